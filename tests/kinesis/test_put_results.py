"""Where items are that were put, records of up to 10 MiB, and shards that are chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiobotocore.session import AioSession
from fastkcl.kinesis import (
    Consumer,
    ExceededPutLimit,
    JsonLineProcessor,
    JsonProcessor,
    KPLStringProcessor,
    Producer,
    PutResult,
    StreamDoesNotExist,
    StringProcessor,
    ValidationError,
)
from fastkcl.kinesis.testing import MockKinesisBackend, MockProducer
from fastkcl.local_aws import Fault, LocalAws
from kinesis_helpers import QUICK, take
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from local_aws_helpers import client, make_stream, new_name, read, shards

PUT: dict[str, Any] = {"buffer_time": 0.02, "expo_backoff": 0.01}


def run(stream: str, use: Callable[[Producer], Any], **options: Any) -> Any:
    async def main() -> Any:
        async with Producer(stream, **{**PUT, **options}) as producer:
            return await use(producer)

    return asyncio.run(main())


def stored(aws: LocalAws, stream: str) -> dict[PutResult, bytes]:
    """The records of a stream by where they are."""
    kinesis = client(aws)
    return {
        PutResult(shard["ShardId"], record["SequenceNumber"]): record["Data"]
        for shard in shards(kinesis, stream)
        for record in read(kinesis, stream, shard["ShardId"])
    }


# Results.


def test_the_result_of_a_put(aws: LocalAws) -> None:
    stream = make_stream(aws, 3)

    async def use(producer: Producer) -> list[PutResult]:
        sent = [await producer.put(f"item {n}", f"key {n}") for n in range(30)]
        assert sent[0].result is None
        results = await asyncio.gather(*sent)
        assert await sent[0] == results[0] == sent[0].result
        return list(results)

    results = run(stream, use, processor=StringProcessor())
    assert len({result.shard_id for result in results}) == 3
    assert stored(aws, stream) == {result: f"item {n}".encode() for n, result in enumerate(results)}


@pytest.mark.parametrize("options", [{"processor": JsonLineProcessor()}, {"aggregate": True}], ids=["lines", "kpl"])
def test_items_that_share_a_record(aws: LocalAws, options: dict[str, Any]) -> None:
    stream = make_stream(aws)

    async def use(producer: Producer) -> set[PutResult]:
        sent = [await producer.put(n, "k") for n in range(10)]
        return set(await asyncio.gather(*sent))

    assert run(stream, use, **options) == set(stored(aws, stream))


def test_a_result_after_refusals(own_aws: LocalAws, stream: str) -> None:
    """Records that are put again have the result of the call that was accepted."""
    own_aws.faults(Fault("PutRecords", "InternalFailure", every=3, times=3))

    async def use(producer: Producer) -> list[PutResult]:
        return list(await asyncio.gather(*[await producer.put(f"item {n}") for n in range(20)]))

    results = run(stream, use, processor=StringProcessor())
    assert stored(own_aws, stream) == {result: f"item {n}".encode() for n, result in enumerate(results)}


def test_a_producer_that_fails_fails_who_waits(own_aws: LocalAws, stream: str) -> None:
    """And loses nothing: awaited again after a flush, the item has its result."""
    own_aws.faults(Fault("PutRecords", "ResourceNotFoundException", times=1))

    async def use(producer: Producer) -> PutResult:
        sent = await producer.put("item")
        with pytest.raises(StreamDoesNotExist):
            await sent
        with pytest.raises(StreamDoesNotExist):
            await sent
        await producer.flush()
        return await sent

    result = run(stream, use, processor=StringProcessor())
    assert stored(own_aws, stream) == {result: b"item"}


def test_the_callback_cannot_wait_for_items_to_come(aws: LocalAws, stream: str) -> None:
    async def main() -> None:
        async def after(items: Any) -> None:
            await (await producer.put(2))

        async with Producer(stream, **PUT, after_flush_fun=after) as producer:
            await producer.put(1)
            with pytest.raises(RuntimeError, match="would wait for itself"):
                await producer.flush()
            producer.after_flush_fun = None

    asyncio.run(main())


def test_results_of_a_stream_in_memory() -> None:
    memory = MockKinesisBackend.create_stream(new_name(), shard_count=2)

    async def main() -> None:
        async with MockProducer(memory.name) as producer:
            first = await (await producer.put({"n": 1}, explicit_hash_key=1))
            assert first == PutResult(memory.shards[1].shard_id, memory.shards[1].records[0].sequence_number)
        async with MockProducer(memory.name, processor=JsonLineProcessor()) as producer:
            sent = await producer.put({"n": 2}, "k")
            assert sent.result is None
            assert (await sent).shard_id == memory.shard_of("k").shard_id

    asyncio.run(main())


# Shards that are chosen.


def test_an_explicit_hash_key(aws: LocalAws) -> None:
    stream = make_stream(aws, 4)
    kinesis = client(aws)
    wanted = {shard["ShardId"]: shard["HashKeyRange"]["StartingHashKey"] for shard in shards(kinesis, stream)}

    async def use(producer: Producer) -> list[PutResult]:
        sent = [await producer.put(each, "one key", explicit_hash_key=key) for each, key in wanted.items()]
        sent.append(await producer.put("last", explicit_hash_key=2**128 - 1))
        return list(await asyncio.gather(*sent))

    results = run(stream, use, processor=StringProcessor())
    assert [result.shard_id for result in results] == [*wanted, list(wanted)[-1]]
    records = [record for shard in wanted for record in read(kinesis, stream, shard)]
    assert [record["PartitionKey"] for record in records][:4] == ["one key"] * 4


@pytest.mark.parametrize("value", ["", "x", "-1", -1, 2**128, "٣"])
def test_what_is_no_hash_key(value: Any) -> None:
    async def main() -> None:
        with pytest.raises(ValidationError, match="0 to 2"):
            await Producer("orders").put(1, "k", explicit_hash_key=value)

    asyncio.run(main())


@pytest.mark.parametrize(
    "options",
    [{"processor": JsonLineProcessor()}, {"processor": KPLStringProcessor()}, {"aggregate": True}],
    ids=["lines", "KPL", "aggregate"],
)
def test_a_hash_key_for_records_of_several_items(options: dict[str, Any]) -> None:
    async def main() -> None:
        with pytest.raises(ValidationError, match="records of one item"):
            await Producer("orders", **options).put("item", explicit_hash_key="1")

    asyncio.run(main())


# Large records.

LARGE = 10 * 2**20 - 256


def large_stream(aws: LocalAws) -> str:
    stream = new_name()
    client(aws).create_stream(StreamName=stream, ShardCount=1, MaxRecordSizeInKiB=10 * 1024)
    return stream


def test_what_a_program_registers_sees_bytes(aws: LocalAws, stream: str) -> None:
    """Large bodies are sent in pieces, and handlers like those of mocks read them before."""
    session, seen = AioSession(), []
    session.register("before-send.kinesis", lambda request, **_: seen.append(request.body))

    async def use(producer: Producer) -> PutResult:
        sent = await producer.put("x" * 500_000)
        await producer.flush()
        return await sent

    result = run(stream, use, processor=StringProcessor(), session=session)
    assert stored(aws, stream) == {result: b"x" * 500_000}
    assert {type(body) for body in seen} == {bytes}
    assert max(map(len, seen)) > 500_000


def test_records_of_ten_mebibytes(aws: LocalAws) -> None:
    """Put and read among small ones; each goes in a call of its own."""
    stream = large_stream(aws)
    texts = ["a", "b" * LARGE, "c", "d" * (LARGE - 1)]

    async def use(producer: Producer) -> list[PutResult]:
        return list(await asyncio.gather(*[await producer.put(text, "k" * 256) for text in texts]))

    results = run(stream, use, processor=StringProcessor(max_bytes=LARGE))
    assert [int(result.sequence_number) for result in results] == sorted(int(each.sequence_number) for each in results)

    async def read_items() -> list[str]:
        async with Consumer(stream, **QUICK, processor=StringProcessor()) as consumer:
            return await take(consumer, 4)

    assert asyncio.run(read_items()) == texts


def test_a_stream_that_takes_less(aws: LocalAws, stream: str) -> None:
    """It is said at the start, with what mends it, and not by the first large record."""

    async def use(producer: Producer) -> None:
        await producer.flush()

    with pytest.raises(ValidationError, match=r"up to 2,000,256 bytes.*takes 1,048,576.*UpdateMaxRecordSize"):
        run(stream, use, processor=JsonProcessor(max_bytes=2_000_000))
    with pytest.raises(ExceededPutLimit, match="2000"):
        StringProcessor(max_bytes=2000).add_item("x" * 2001)
    for options in ({"max_bytes": 10 * 2**20}, {"max_bytes": 1.5}, {"max_bytes": 0}, {"max_bytes": 9, "max_size": 25}):
        with pytest.raises(ValidationError, match="max_bytes"):
            StringProcessor(**options)  # type: ignore[arg-type]


def test_nobody_is_asked_for_small_records(own_aws: LocalAws, stream: str) -> None:
    before = own_aws.calls().get("DescribeStreamSummary", 0)

    async def use(producer: Producer) -> None:
        await producer.put({"n": 1})

    run(stream, use)
    assert own_aws.calls().get("DescribeStreamSummary", 0) == before
