"""Records that are acknowledged one by one: the position moves over them without gaps, whatever their order."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from fastkcl.kinesis import (
    AckRecord,
    Consumer,
    JsonLineProcessor,
    JsonProcessor,
    MemoryCheckPointer,
    UnacknowledgedError,
    ValidationError,
)
from fastkcl.local_aws import LocalAws
from kinesis_helpers import QUICK, assert_each_once, numbered, open_shards, put, split, take, take_all
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from kinesis_programs import put_texts
from local_aws_helpers import SHARD_0, client, make_stream
from waiting import until


def consume(stream: str, use: Callable[[Consumer], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        explicit = {**QUICK, "output": "records", "acknowledge": "explicit"}
        async with Consumer(stream, **{**explicit, **options}) as consumer:
            result = await use(consumer)
        assert consumer._acks.oldest is None or consumer._is_closed
        return result

    return asyncio.run(main())


def left(stream: str, kept: MemoryCheckPointer) -> list[Any]:
    """What the next consumer of the group gets."""

    async def use(consumer: Consumer) -> list[Any]:
        return [record.data for record in await take_all(consumer)]

    return list(consume(stream, use, checkpointer=kept))


@pytest.mark.parametrize(
    ("done", "position"),
    [([], 0), ([0, 1], 2), ([0, 1, 3, 6], 2), ([7, 5, 3, 1], 0), ([7, 6, 5, 4, 3, 2, 1, 0], 8), ([0, 0, 0], 1)],
)
@pytest.mark.parametrize("record_limit", [3, 10_000])
def test_the_position_moves_without_gaps(
    aws: LocalAws, stream: str, done: list[int], position: int, record_limit: int
) -> None:
    put(aws, stream, numbered(1, 8))
    kept = MemoryCheckPointer()

    async def use(consumer: Consumer) -> None:
        records: list[AckRecord] = await take(consumer, 8)
        for number in done:
            consumer.ack(records[number])

    consume(stream, use, checkpointer=kept, record_limit=record_limit)
    assert [item["n"] for item in left(stream, kept)] == list(range(position, 8))


def test_in_tasks_of_any_pace(aws: LocalAws) -> None:
    """A hundred at a time; the one that fails comes again, with what came after it in its shard."""
    stream = make_stream(aws, 2)
    put(aws, stream, numbered(10, 30))
    kept = MemoryCheckPointer()
    seen: list[dict[str, int]] = []

    async def work(record: AckRecord) -> None:
        await asyncio.sleep(random.Random(record.sequence_number).random() / 20)
        seen.append(record.data)
        if record.data != {"key": 3, "n": 20}:
            await record.done()

    async def use(consumer: Consumer) -> None:
        async with asyncio.TaskGroup() as tasks:
            async for record in consumer:
                tasks.create_task(work(record))

    consume(stream, use, checkpointer=kept, record_limit=20)
    assert_each_once(sorted(seen, key=lambda item: item["n"]), 10, 30)
    again = left(stream, kept)
    assert again[0] == {"key": 3, "n": 20}
    assert len(again) < 200


def test_done_writes_the_position_of_an_answer(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 4))
    kept = MemoryCheckPointer()

    async def use(consumer: Consumer) -> None:
        records: list[AckRecord] = await take(consumer, 4)
        for record in reversed(records):
            assert kept.get_all_checkpoints() == {SHARD_0: None}
            await record.done()
        assert kept.get_all_checkpoints() == {SHARD_0: records[-1].sequence_number}

    consume(stream, use, checkpointer=kept)


def test_what_is_acknowledged_after_close_comes_again(aws: LocalAws, stream: str) -> None:
    """An error says so; what was acknowledged before may be acknowledged again."""
    put(aws, stream, numbered(1, 3))
    kept = MemoryCheckPointer()

    async def main() -> None:
        async with Consumer(stream, **QUICK, output="records", acknowledge="explicit", checkpointer=kept) as consumer:
            first, second, _ = await take_all(consumer)
            await first.done()
        await first.done()
        message = rf"{SHARD_0}: record {second.sequence_number} is acknowledged after close\(\): .* it comes again"
        with pytest.raises(RuntimeError, match=message):
            await second.done()
        with pytest.raises(RuntimeError, match=message):
            consumer.ack(second)

    asyncio.run(main())
    assert left(stream, kept) == [{"key": 0, "n": 1}, {"key": 0, "n": 2}]


def test_a_record_of_several_items(aws: LocalAws, stream: str) -> None:
    put_texts(aws, stream, ["1\n2\n", "\n", "3\n4\n", "\n"])
    kept = MemoryCheckPointer()
    options: dict[str, Any] = {"processor": JsonLineProcessor(), "checkpointer": kept}

    async def use(consumer: Consumer) -> list[Any]:
        records = await take(consumer, 4)
        for record in (records[1], records[2], records[0]):
            await record.done()
        return [record.data for record in records]

    async def rest(consumer: Consumer) -> list[Any]:
        records = await take_all(consumer)
        for record in records:
            await record.done()
        return [record.data for record in records]

    assert consume(stream, use, **options) == [1, 2, 3, 4]
    assert consume(stream, rest, **options) == [3, 4]
    assert consume(stream, rest, **options) == []


def test_children_wait_until_all_of_a_shard_is_acknowledged(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(8, 2))
    split(aws, stream, open_shards(aws, stream)[0])
    put(aws, stream, numbered(8, 2, start=2))

    async def use(consumer: Consumer) -> list[Any]:
        records = await take(consumer, 16)
        more = asyncio.create_task(take(consumer, 16))
        await until(lambda: len(consumer._ended) == 1, "the end of the parent")
        assert not more.done()
        for record in records:
            consumer.ack(record)
        return [record.data for record in [*records, *await more]]

    assert_each_once(consume(stream, use), 8, 4)


def test_what_is_open_is_bounded_in_bytes(aws: LocalAws, stream: str) -> None:
    """No more is fetched until something is acknowledged."""
    put_texts(aws, stream, ['"' + "x" * 100_000 + '"'] * 20)

    async def use(consumer: Consumer) -> int:
        records: list[AckRecord] = []
        reading = asyncio.create_task(collect(consumer, records))
        await until(lambda: bool(records) and len(records) == len_before(records), "the bound", seen=lambda: records)
        held = len(records)
        while len(records) < 20:
            for record in list(records):
                await record.done()
            await asyncio.sleep(0.01)
        reading.cancel()
        return held

    async def collect(consumer: Consumer, records: list[AckRecord]) -> None:
        async for record in consumer:
            records.append(record)

    looks: list[int] = []

    def len_before(records: list[AckRecord]) -> int:
        looks.append(len(records))
        return looks[-100] if len(looks) >= 100 else -1

    held = consume(stream, use, max_queue_bytes=1_000_000, idle_timeout=None, record_limit=2, processor=JsonProcessor())
    assert 1 <= held <= 8


def test_what_is_open_is_bounded_in_time(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 3))

    async def use(consumer: Consumer) -> None:
        first, second, third = await take(consumer, 3)
        consumer.ack(first)
        consumer.ack(third)
        with pytest.raises(UnacknowledgedError, match=f"{SHARD_0}: record {second.sequence_number} .* ack_timeout"):
            await anext(consumer)
        consumer.ack(second)
        assert await take_all(consumer) == []

    consume(stream, use, ack_timeout=0.3, idle_timeout=1)


@pytest.mark.parametrize("ahead", [1, 3])
def test_the_time_of_a_record_of_many_items(
    aws: LocalAws, stream: str, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """Each item is open from when it was handed out: the ones before it may have taken long."""
    put_texts(aws, stream, ["".join(f"{n}\n" for n in range(12)), "12\n"])
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now, perf_counter=time.perf_counter)
    monkeypatch.setattr("fastkcl.kinesis.read.consumer.time", clock)

    async def use(consumer: Consumer) -> list[Any]:
        nonlocal now
        records: list[AckRecord] = []
        while len(records) < 13:
            records.append(await anext(consumer))
            now += 4
            if len(records) >= ahead:
                await records[-ahead].done()
            consumer._pace.due = 0.0  # the event loop, with which the times are looked at
        now += 8
        with pytest.raises(UnacknowledgedError) if ahead > 1 else nullcontext():
            await anext(consumer, None)
        return [record.data for record in records]

    options: dict[str, Any] = {"processor": JsonLineProcessor(), "ack_timeout": 4 * ahead + 3}
    assert consume(stream, use, **options) == list(range(13))


def test_a_shard_that_is_lost(aws: LocalAws, stream: str) -> None:
    """Acknowledging its records changes nothing, and its memory is free."""
    put(aws, stream, numbered(1, 3))
    kept = MemoryCheckPointer()

    async def use(consumer: Consumer) -> None:
        records = await take(consumer, 3)
        kept._allocated.clear()
        for record in records:
            await record.done()
        assert kept.get_all_checkpoints() == {SHARD_0: None}

    consume(stream, use, checkpointer=kept)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "items"}, "records"),
        ({"output": "batches"}, "records"),
        ({"acknowledge": "later"}, "acknowledge"),
        ({"ack_timeout": 0}, "ack_timeout"),
    ],
)
def test_what_cannot_be_meant(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Consumer("orders", **{"output": "records", "acknowledge": "explicit", **options})


def test_records_of_others_are_not_acknowledged(aws: LocalAws, stream: str) -> None:
    client(aws).put_record(StreamName=stream, PartitionKey="k", Data=b"1")

    async def use(consumer: Consumer) -> None:
        (record,) = await take(consumer, 1)
        async with Consumer(stream, **QUICK, output="records") as other:
            with pytest.raises(TypeError, match="explicit"):
                other.ack(record)
            with pytest.raises(TypeError, match="explicit"):
                consumer.ack((await take(other, 1))[0])

    consume(stream, use)


def test_it_does_not_end_while_open_records_keep_others_from_being_asked_for(aws: LocalAws, stream: str) -> None:
    """Nobody knows then whether the shard is at its tip."""
    put(aws, stream, numbered(1, 1))

    async def use(consumer: Consumer) -> list[int]:
        (first,) = await take(consumer, 1)
        following = asyncio.create_task(consumer.__anext__())
        await until(lambda: consumer._stream.budget.is_waited_for, "a shard that waits for room")
        await asyncio.to_thread(put, aws, stream, numbered(1, 1, start=1))
        done, _ = await asyncio.wait([following], timeout=3 * QUICK["idle_timeout"])
        assert not done
        await first.done()
        return [first.data["n"], (await following).data["n"]]

    assert consume(stream, use, max_queue_bytes=1) == [0, 1]
