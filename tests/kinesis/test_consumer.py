"""The consumer against local AWS: the items that arrive, through resharding and faults, and the positions that are
written."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastkcl import RecordBatch
from fastkcl.kinesis import (
    AnswerTooLarge,
    CheckpointOwnershipConflict,
    Consumer,
    ConsumerRecord,
    DeserializeError,
    InMemoryMetricsCollector,
    JsonLineProcessor,
    KPLStringProcessor,
    MemoryCheckPointer,
    StreamDoesNotExist,
    StringProcessor,
    ValidationError,
)
from fastkcl.kinesis.read import fetch
from fastkcl.local_aws import Fault, LocalAws
from kinesis_helpers import (
    QUICK,
    assert_each_once,
    counters,
    merge,
    numbered,
    open_shards,
    put,
    split,
    take,
    take_all,
)
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from local_aws_helpers import SHARD_0, client, make_stream, new_name, read
from paths import EXAMPLES
from waiting import PATIENCE, until


def consume(stream: str, use: Callable[[Consumer], Awaitable[Any]] = take_all, **options: Any) -> Any:
    """What `use` gives of a consumer, which leaves no task behind."""

    async def main() -> Any:
        async with Consumer(stream, **{**QUICK, **options}) as consumer:
            result = await use(consumer)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(main())


def last_sequences(aws: LocalAws, stream: str) -> dict[str, str]:
    """The last record of each shard that has any."""
    kinesis, last = client(aws), {}
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        position = {"ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = kinesis.get_shard_iterator(StreamName=stream, **position)["ShardIterator"]
        records = kinesis.get_records(ShardIterator=iterator)["Records"]
        if records:
            last[shard["ShardId"]] = records[-1]["SequenceNumber"]
    return last


# What arrives.


def test_four_shards(aws: LocalAws) -> None:
    stream = make_stream(aws, 4)
    put(aws, stream, numbered(20, 50))
    kept = MemoryCheckPointer()
    assert_each_once(consume(stream, checkpointer=kept), 20, 50)
    assert kept.get_all_checkpoints() == last_sequences(aws, stream)


@pytest.mark.parametrize("options", [{"skip_describe_stream": True}, {"use_list_shards": True}, {"max_queue_size": 1}])
def test_however_it_is_read(aws: LocalAws, options: dict[str, Any]) -> None:
    stream = make_stream(aws, 2)
    put(aws, stream, numbered(3, 5))
    assert_each_once(consume(stream, **options), 3, 5)


def test_by_arn(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 3))
    arn = client(aws).describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"]
    assert_each_once(consume(arn), 1, 3)


def test_records_with_metadata(aws: LocalAws, stream: str) -> None:
    before = datetime.now(UTC)
    put(aws, stream, [{"key": "k", "n": 1}])
    (record,) = consume(stream, output="records")
    assert isinstance(record, ConsumerRecord)
    assert (record.data, record.partition_key, record.shard_id) == ({"key": "k", "n": 1}, "k", SHARD_0)
    assert record.sequence_number == last_sequences(aws, stream)[SHARD_0]
    assert record.approximate_arrival_timestamp is not None
    assert -1 < (record.approximate_arrival_timestamp - before).total_seconds() < 120
    assert record.millis_behind_latest == 0


def test_batches(aws: LocalAws) -> None:
    stream = make_stream(aws, 2)
    put(aws, stream, numbered(10, 20))
    kept = MemoryCheckPointer()
    batches: list[RecordBatch] = consume(stream, output="batches", checkpointer=kept)
    assert sum(len(batch) for batch in batches) == 200
    assert {batch.shard_id for batch in batches} == {SHARD_0, "shardId-000000000001"}
    assert {batch[0].sub_sequence_number for batch in batches} == {0}
    assert kept.get_all_checkpoints() == last_sequences(aws, stream)


def test_user_data_that_looks_like_a_position(aws: LocalAws, stream: str) -> None:
    items = [{"__CHECKPOINT__": {"ShardId": SHARD_0, "SequenceNumber": "1"}}, {}, None, "", 0, False, []]
    put(aws, stream, items, key="k")
    kept = MemoryCheckPointer()
    assert consume(stream, checkpointer=kept) == items
    assert kept.get_all_checkpoints() == last_sequences(aws, stream)


def test_hundreds_of_records_without_items(aws: LocalAws, stream: str) -> None:
    """Each is a batch by itself, whose position is written."""
    kinesis = client(aws)
    blank = [{"Data": b"\n", "PartitionKey": "k"}] * 150
    kinesis.put_records(StreamName=stream, Records=[*blank, {"Data": b"1\n", "PartitionKey": "k"}, *blank])
    kept = MemoryCheckPointer()
    assert consume(stream, checkpointer=kept, processor=JsonLineProcessor(), max_queue_size=1) == [1]
    assert kept.get_all_checkpoints() == last_sequences(aws, stream)


def test_a_shard_that_is_caught_up_does_not_delay_others(aws: LocalAws) -> None:
    stream = make_stream(aws, 2)
    put(aws, stream, [{"key": 0, "n": n} for n in range(6)], key="k")  # all in one shard
    assert_each_once(
        consume(stream, lambda consumer: take(consumer, 6), record_limit=1, sleep_time_no_records=3600), 1, 6
    )


def test_aggregates(aws: LocalAws, stream: str) -> None:
    processor = KPLStringProcessor()
    for item in "abc":
        processor.add_item(item)
    (aggregate,) = processor.get_items()
    kinesis = client(aws)
    kinesis.put_record(StreamName=stream, PartitionKey="k", Data=b"plain")
    kinesis.put_record(StreamName=stream, PartitionKey="a", Data=aggregate.data)
    kept, metrics = MemoryCheckPointer(), InMemoryMetricsCollector()
    records = consume(stream, processor=KPLStringProcessor(), output="records", checkpointer=kept)
    assert [(record.data, record.partition_key, record.sub_sequence_number) for record in records] == [
        ("plain", "k", 0),
        ("a", "a", 0),
        ("b", "a", 1),
        ("c", "a", 2),
    ]
    assert kept.get_all_checkpoints() == last_sequences(aws, stream)
    assert [len(batch) for batch in consume(stream, output="batches")] == [4]
    assert [len(batch) for batch in consume(stream, output="batches", deaggregate=False)] == [2]
    kinesis.put_record(StreamName=stream, PartitionKey="a", Data=aggregate.data[:-1] + b"!")
    assert [len(batch) for batch in consume(stream, output="batches", metrics_collector=metrics)] == [5]
    key = f"kpl_plain_fallback_total{{reason=digest,shard_id={SHARD_0},stream_name={stream}}}"
    assert metrics.counters[key] == 1


@pytest.mark.parametrize("output", ["items", "records", "batches"])
def test_aggregates_that_become_too_much(aws: LocalAws, stream: str, output: str) -> None:
    """Of an answer, one record at a time is read. One aggregate is not delivered or passed until it may take more."""
    processor = KPLStringProcessor()
    for number in range(100):
        processor.add_item(str(number))
    (aggregate,) = processor.get_items()
    kinesis = client(aws)
    kinesis.put_record(StreamName=stream, PartitionKey="k", Data=b"plain")
    options: dict[str, Any] = {
        "processor": KPLStringProcessor(),
        "output": output,
        "checkpointer": MemoryCheckPointer(),
    }
    assert len(consume(stream, **options)) == 1
    before = options["checkpointer"].get_all_checkpoints()
    for _ in range(2):
        kinesis.put_record(StreamName=stream, PartitionKey="a", Data=aggregate.data)

    async def meet(consumer: Consumer) -> str:
        for _ in range(2):
            with pytest.raises(AnswerTooLarge) as raised:
                await anext(consumer)
        return str(raised.value)

    said = consume(stream, meet, **options, max_batch_bytes=5_000)
    assert SHARD_0 in said
    for advice in ("max_batch_bytes, 5000 bytes", "deaggregate=False"):
        assert advice in said
    assert options["checkpointer"].get_all_checkpoints() == before
    calls = aws.calls()["GetRecords"]
    users = consume(stream, **options, max_batch_bytes=15_000)
    assert (sum(map(len, users)) if output == "batches" else len(users)) == 200
    assert aws.calls()["GetRecords"] >= calls + 3
    assert options["checkpointer"].get_all_checkpoints() == last_sequences(aws, stream)


@pytest.mark.parametrize("most", [0, 2**31])
def test_max_batch_bytes_out_of_range(most: int) -> None:
    with pytest.raises(ValidationError, match="max_batch_bytes must be 1 to"):
        Consumer("s", max_batch_bytes=most)


def test_an_aggregate_that_went_astray(aws: LocalAws) -> None:
    """It has a key of another shard, which has it, too; the position moves past it all the same."""
    stream = make_stream(aws, 2)
    processor = KPLStringProcessor()
    processor.add_item("astray")
    (aggregate,) = processor.get_items()
    owner = client(aws).put_record(StreamName=stream, PartitionKey="a", Data=aggregate.data)["ShardId"]
    other = "0" if owner != SHARD_0 else str(2**128 - 1)
    client(aws).put_record(StreamName=stream, PartitionKey="a", ExplicitHashKey=other, Data=aggregate.data)
    kept, metrics = MemoryCheckPointer(), InMemoryMetricsCollector()
    options = {"processor": KPLStringProcessor(), "metrics_collector": metrics}
    assert consume(stream, checkpointer=kept, **options) == ["astray"]
    assert sum(count for key, count in metrics.counters.items() if key.startswith("kpl_dropped_aggregates")) == 1
    assert kept.get_all_checkpoints() == last_sequences(aws, stream)
    assert len(last_sequences(aws, stream)) == 2
    assert consume(stream, processor=KPLStringProcessor(), hash_range_check=False) == ["astray"] * 2


def test_positions_as_kcl_has_them(aws: LocalAws, stream: str) -> None:
    """Each names the last user record, and what was processed does not come again, whatever the processor."""
    processor = KPLStringProcessor()
    for item in "12":
        processor.add_item(item)
    kinesis = client(aws)
    kinesis.put_record(StreamName=stream, PartitionKey="k", Data=b"0")

    class LikeKcl(MemoryCheckPointer):
        sub_sequences = True

    kept = LikeKcl()
    assert consume(stream, checkpointer=kept) == [0]
    assert kept.get_all_checkpoints() == {SHARD_0: last_sequences(aws, stream)[SHARD_0] + "/0"}
    kinesis.put_record(StreamName=stream, PartitionKey="a", Data=processor.get_items()[0].data)
    assert consume(stream, checkpointer=kept) == [1, 2]
    assert kept.get_all_checkpoints() == {SHARD_0: last_sequences(aws, stream)[SHARD_0] + "/1"}
    assert consume(stream, checkpointer=kept) == []


# Where it begins, and where it goes on.


def test_it_goes_on_behind_what_was_acknowledged(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 10))
    kept = MemoryCheckPointer()
    first = consume(stream, lambda consumer: take(consumer, 4), checkpointer=kept)
    assert [item["n"] for item in first] == [0, 1, 2, 3]
    # The fourth was not acknowledged: nobody asked for more.
    assert [item["n"] for item in consume(stream, checkpointer=kept)] == list(range(3, 10))
    assert consume(stream, checkpointer=kept) == []


def test_it_goes_on_inside_of_an_aggregate(aws: LocalAws, stream: str) -> None:
    processor = KPLStringProcessor()
    for item in "abcd":
        processor.add_item(item)
    client(aws).put_record(StreamName=stream, PartitionKey="a", Data=processor.get_items()[0].data)
    kept = MemoryCheckPointer()
    options: dict[str, Any] = {"processor": KPLStringProcessor(), "checkpointer": kept}
    assert consume(stream, lambda consumer: take(consumer, 3), **options) == ["a", "b", "c"]
    assert consume(stream, **options) == ["c", "d"]
    assert consume(stream, **options) == []


def test_latest(aws: LocalAws) -> None:
    stream = make_stream(aws, 2)
    put(aws, stream, numbered(4, 5))

    async def use(consumer: Consumer) -> list[Any]:
        assert not consumer.is_ready
        await consumer.wait_ready()
        assert consumer.is_ready
        await asyncio.to_thread(put, aws, stream, numbered(4, 5, start=5))
        return await take_all(consumer, 20)

    items = consume(stream, use, iterator_type="LATEST", skip_describe_stream=True)
    assert sorted(item["n"] for item in items) == sorted(list(range(5, 10)) * 4)


def test_ready_while_the_queue_is_full(aws: LocalAws) -> None:
    """Shards that are allocated when the queue is full know where to read as well."""
    stream = make_stream(aws, 3)
    put(aws, stream, numbered(9, 5))
    full = asyncio.Event()

    class Slow(MemoryCheckPointer):
        async def allocate(self, shard_id: str) -> tuple[bool, str | None]:
            if self.get_all_checkpoints():
                await full.wait()
            return await super().allocate(shard_id)

    async def use(consumer: Consumer) -> None:
        ready = asyncio.create_task(consumer.wait_ready(PATIENCE))
        await until(lambda: not consumer._queue.room, "a full queue")
        full.set()
        await ready
        assert_each_once(await take_all(consumer, 45), 9, 5)

    consume(stream, use, checkpointer=Slow(), max_queue_size=1)


def test_latest_loses_nothing_when_its_iterator_expires(own_aws: LocalAws, stream: str) -> None:
    """Before the first record there is no sequence number to continue after."""

    async def use(consumer: Consumer) -> list[Any]:
        own_aws.faults(Fault("GetRecords", "ProvisionedThroughputExceededException"))
        await consumer.wait_ready()
        await asyncio.to_thread(put, own_aws, stream, numbered(1, 3))
        own_aws.faults(Fault("GetRecords", "ExpiredIteratorException", times=1))
        return await take_all(consumer, 3)

    assert_each_once(consume(stream, use, iterator_type="LATEST"), 1, 3)
    assert own_aws.hits() == [1]


def test_children_begin_at_their_first_record(aws: LocalAws, stream: str) -> None:
    """Also with LATEST: they follow a shard that was read."""
    put(aws, stream, numbered(8, 1))

    async def use(consumer: Consumer) -> list[Any]:
        await consumer.wait_ready()
        await asyncio.to_thread(put, aws, stream, numbered(8, 2, start=1))
        await asyncio.to_thread(split, aws, stream, open_shards(aws, stream)[0])
        await asyncio.to_thread(put, aws, stream, numbered(8, 2, start=3))
        return await take_all(consumer, 32)

    items = consume(stream, use, iterator_type="LATEST")
    assert_each_once([{**item, "n": item["n"] - 1} for item in items], 8, 4)


def test_latest_passes_shards_that_were_closed_before(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(8, 2))
    split(aws, stream, open_shards(aws, stream)[0])
    put(aws, stream, numbered(8, 2, start=2))

    async def use(consumer: Consumer) -> list[Any]:
        await consumer.wait_ready()
        await asyncio.to_thread(put, aws, stream, numbered(8, 2, start=4))
        return await take_all(consumer, 16)

    items = consume(stream, use, iterator_type="LATEST")
    assert_each_once([{**item, "n": item["n"] - 4} for item in items], 8, 2)


def test_latest_begins_with_the_iteration(aws: LocalAws, stream: str) -> None:
    """And not with entering, which has listed the shards as well."""

    async def use(consumer: Consumer) -> list[Any]:
        assert consumer.get_shard_status()["total_shards"] == 1
        await asyncio.to_thread(split, aws, stream, open_shards(aws, stream)[0])
        await asyncio.to_thread(put, aws, stream, numbered(8, 2))
        await consumer.wait_ready()
        await asyncio.to_thread(put, aws, stream, numbered(8, 2, start=2))
        return await take_all(consumer, 16)

    items = consume(stream, use, iterator_type="LATEST")
    assert_each_once([{**item, "n": item["n"] - 2} for item in items], 8, 2)


def test_a_timestamp(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 2))
    (*_, last) = consume(stream, output="records")
    while (datetime.now(UTC) - last.approximate_arrival_timestamp).total_seconds() < 0.01:
        pass
    now = datetime.now(UTC)
    put(aws, stream, numbered(1, 2, start=2))
    items = consume(stream, iterator_type="AT_TIMESTAMP", timestamp=now)
    assert [item["n"] for item in items] == [2, 3]
    assert len(consume(stream, timestamp=now)) == 4  # not looked at


# Resharding.


def test_split_and_merge_under_load(aws: LocalAws) -> None:
    stream = make_stream(aws, 4)
    keys, rounds = 16, 12

    def load() -> None:
        for number in range(rounds):
            put(aws, stream, numbered(keys, 10, start=10 * number))
            if number == 2:
                split(aws, stream, open_shards(aws, stream)[0])
            if number == 5:
                low = sorted(open_shards(aws, stream), key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))
                merge(aws, stream, low[-2], low[-1])
            if number == 8:  # the halves of before, together again
                low = sorted(open_shards(aws, stream), key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))
                merge(aws, stream, low[0], low[1])

    statuses = []

    async def use(consumer: Consumer) -> list[Any]:
        loading = asyncio.create_task(asyncio.to_thread(load))
        items = await take(consumer, keys * rounds * 10)
        await loading
        items += await take_all(consumer)
        statuses.append(consumer.get_shard_status())
        assert not consumer.is_resharding_likely_in_progress()
        return items

    kept = MemoryCheckPointer()
    assert_each_once(consume(stream, use, checkpointer=kept), keys, rounds * 10)
    assert kept.get_all_checkpoints() == {**dict.fromkeys(kept.get_all_checkpoints()), **last_sequences(aws, stream)}
    (status,) = statuses
    assert (status["total_shards"], status["active_shards"], status["closed_shards"]) == (8, 3, 5)
    assert (status["parent_shards"], status["exhausted_parents"], status["allocated_shards"]) == (5, 5, 3)
    assert sorted(len(parents) for parents in status["topology"]["child_parent_map"].values()) == [1, 1, 2, 2]


def test_a_merged_shard_waits_for_both_parents(aws: LocalAws) -> None:
    """One parent has much more to read than the other."""
    stream = make_stream(aws, 2)
    put(aws, stream, numbered(10, 20))
    first, second = open_shards(aws, stream)
    merge(aws, stream, first, second)
    put(aws, stream, numbered(10, 5, start=20))
    assert_each_once(consume(stream, record_limit=30), 10, 25)


def test_no_more_open_shards_than_it_may_have(aws: LocalAws) -> None:
    stream = make_stream(aws, 4)
    put(aws, stream, numbered(20, 5))

    async def use(consumer: Consumer) -> int:
        await take_all(consumer)
        return int(consumer.get_shard_status()["allocated_shards"])

    assert consume(stream, use, max_shard_consumers=3) == 3


# Faults.


def test_expired_iterators(own_aws: LocalAws) -> None:
    stream = make_stream(own_aws, 4)
    put(own_aws, stream, numbered(8, 50))
    own_aws.faults(Fault("GetRecords", "ExpiredIteratorException", times=12, skip=3))
    assert_each_once(consume(stream, record_limit=20), 8, 50)
    assert own_aws.hits() == [12]


def test_throttling(own_aws: LocalAws, stream: str) -> None:
    put(own_aws, stream, numbered(1, 5))
    own_aws.faults(
        Fault("GetRecords", "ProvisionedThroughputExceededException", times=2),
        Fault("GetShardIterator", "ProvisionedThroughputExceededException", times=1),
        Fault("DescribeStream", "LimitExceededException", times=1),
    )

    async def use(consumer: Consumer) -> tuple[list[Any], dict[str, int]]:
        items = await take_all(consumer)
        return items, consumer.get_shard_status()["shard_details"][0]["stats"]

    metrics = InMemoryMetricsCollector()
    items, stats = consume(stream, use, metrics_collector=metrics)
    assert_each_once(items, 1, 5)
    assert stats["throttled"] == 3
    assert stats["success"] > 0
    assert counters(metrics, "consumer_errors_total") == {"ProvisionedThroughputExceededException": 3}


def test_a_failing_service(own_aws: LocalAws, stream: str) -> None:
    put(own_aws, stream, numbered(1, 5))
    own_aws.faults(
        Fault("GetRecords", "InternalFailure", times=4), Fault("GetShardIterator", "InternalFailure", times=3)
    )
    metrics = InMemoryMetricsCollector()
    assert_each_once(consume(stream, metrics_collector=metrics), 1, 5)
    assert counters(metrics, "consumer_errors_total") == {"InternalFailure": 7}


def test_connections_that_are_cut(tmp_path: Path) -> None:
    """The service dies twice while there is much to read."""
    with LocalAws(streams={"cut": 4}, state=tmp_path / "state") as aws:
        put(aws, "cut", numbered(16, 100))

        async def use(consumer: Consumer) -> list[Any]:
            items = []
            for _ in range(2):
                items += await take(consumer, 200)
                await asyncio.to_thread(aws.kill)
                items += await take(consumer, consumer._queue.rows)
                await asyncio.to_thread(aws.start)
            return items + await take_all(consumer, 1600 - len(items))

        items = consume("cut", use, endpoint_url=aws.url, record_limit=40, retry_limit=100, expo_backoff_limit=0.2)
        assert_each_once(items, 16, 100)


def test_a_service_that_is_gone(stream: str) -> None:
    with pytest.raises(ConnectionError, match="cannot be reached"):
        consume(stream, endpoint_url="http://127.0.0.1:9", skip_describe_stream=True, retry_limit=3)


def test_what_was_fetched_before_a_service_is_gone(tmp_path: Path) -> None:
    with LocalAws(streams={"gone": 1}) as aws:
        put(aws, "gone", numbered(1, 9))
        seen: list[Any] = []

        async def use(consumer: Consumer) -> None:
            seen.extend(await take(consumer, 1))
            await asyncio.to_thread(aws.kill)
            seen.extend(await take(consumer, 8))
            await take_all(consumer)

        with pytest.raises(ConnectionError, match="cannot be reached"):
            consume("gone", use, endpoint_url=aws.url, retry_limit=3)
        assert_each_once(seen, 1, 9)


def test_ten_failures_in_a_row_reach_the_program_and_it_can_go_on(own_aws: LocalAws, stream: str) -> None:
    put(own_aws, stream, numbered(1, 5))

    async def use(consumer: Consumer) -> list[Any]:
        items = await take(consumer, 3)
        own_aws.faults(Fault("GetRecords", "ExpiredIteratorException"))
        items += await take(consumer, 2)
        with pytest.raises(Exception, match="ExpiredIterator"):
            await take_all(consumer)
        assert own_aws.hits() == [10]
        own_aws.faults()
        await asyncio.to_thread(put, own_aws, stream, numbered(1, 5, start=5))
        return items + await take_all(consumer, 5)

    assert_each_once(consume(stream, use), 1, 10)


def test_a_stream_that_is_not_there(aws: LocalAws) -> None:
    for options in ({}, {"skip_describe_stream": True}):
        with pytest.raises(StreamDoesNotExist):
            consume(new_name(), **options)
    with pytest.raises(StreamDoesNotExist):
        consume(new_name(), lambda consumer: consumer.wait_ready(), skip_describe_stream=True)


def test_a_stream_that_is_deleted_on_the_way(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 5))

    async def use(consumer: Consumer) -> None:
        await take(consumer, 5)
        client(aws).delete_stream(StreamName=stream)
        await take_all(consumer)

    with pytest.raises(StreamDoesNotExist):
        consume(stream, use)


# Records that cannot be read.

POISON = [b"1", b"2", b"{", b"4", b"\xff", b"6"]


@pytest.fixture
def poisoned(aws: LocalAws, stream: str) -> str:
    client(aws).put_records(StreamName=stream, Records=[{"Data": data, "PartitionKey": "k"} for data in POISON])
    return stream


def test_poison_raises_once_all_before_it_is_delivered(aws: LocalAws, poisoned: str) -> None:
    kept = MemoryCheckPointer()
    seen: list[Any] = []

    async def use(consumer: Consumer) -> None:
        for _ in range(3):
            with pytest.raises(DeserializeError, match="no JSON") as caught:
                seen.extend([item async for item in _appended(consumer, seen)])
            assert SHARD_0 in caught.value.__notes__[0]

    consume(poisoned, use, checkpointer=kept)
    assert seen == [1, 2]
    # It is in nobody's way who skips it, and nothing before it comes again.
    assert consume(poisoned, checkpointer=kept, on_record_error="skip") == [4, 6]


async def _appended(consumer: Consumer, seen: list[Any]) -> AsyncIterator[Any]:
    async for item in consumer:
        seen.append(item)
    return
    yield


def test_poison_is_skipped(aws: LocalAws, poisoned: str, caplog: pytest.LogCaptureFixture) -> None:
    kept, metrics = MemoryCheckPointer(), InMemoryMetricsCollector()
    options: dict[str, Any] = {"on_record_error": "skip", "metrics_collector": metrics}
    assert consume(poisoned, checkpointer=kept, **options) == [1, 2, 4, 6]
    assert counters(metrics, "consumer_errors_total") == {"DeserializeError": 2}
    assert sum("is skipped" in record.message for record in caplog.records) == 2
    assert consume(poisoned, checkpointer=kept, **options) == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_poison_goes_to_a_function(poisoned: str, asynchronous: bool) -> None:
    letters: list[tuple[bytes, str]] = []

    def keep(record: ConsumerRecord, error: Exception) -> None:
        letters.append((record.data, type(error).__name__))

    async def keep_later(record: ConsumerRecord, error: Exception) -> None:
        await asyncio.sleep(0)
        keep(record, error)

    assert consume(poisoned, on_record_error=keep_later if asynchronous else keep) == [1, 2, 4, 6]
    assert letters == [(b"{", "DeserializeError"), (b"\xff", "DeserializeError")]


def test_a_function_that_fails(poisoned: str) -> None:
    """The record stays the next one."""
    calls = 0

    def fail_first(record: ConsumerRecord, error: Exception) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError("disk full")

    async def use(consumer: Consumer) -> list[Any]:
        items = await take(consumer, 2)
        with pytest.raises(OSError, match="disk full"):
            await anext(consumer)
        return items + await take_all(consumer)

    assert consume(poisoned, use, on_record_error=fail_first) == [1, 2, 4, 6]
    assert calls == 3


def test_batches_have_poison_as_it_is(poisoned: str) -> None:
    (batch,) = consume(poisoned, output="batches")
    assert [record.data for record in batch] == POISON


# Positions.


class Failing(MemoryCheckPointer):
    """Fails where it is told to, and remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        self.asked: list[tuple[str, ...]] = []

    async def checkpoint(self, shard_id: str, sequence: str) -> None:
        self.asked.append(("checkpoint", shard_id, sequence))
        if self.failures:
            raise self.failures.pop(0)
        await super().checkpoint(shard_id, sequence)

    async def deallocate(self, shard_id: str) -> None:
        self.asked.append(("deallocate", shard_id))
        await super().deallocate(shard_id)


def test_a_checkpoint_that_fails_reaches_the_program_and_stays_to_be_written(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 3))
    kept = Failing()

    async def use(consumer: Consumer) -> None:
        await take(consumer, 3)
        kept.failures = [OSError("away"), OSError("still away")]
        for message in ("away", "still away"):
            with pytest.raises(OSError, match=message):
                await anext(consumer)
        assert kept.get_all_checkpoints() == {SHARD_0: None}
        assert await take_all(consumer) == []

    consume(stream, use, checkpointer=kept)
    assert kept.get_all_checkpoints() == last_sequences(aws, stream)


def test_a_checkpoint_that_fails_at_the_end(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 3))
    kept = Failing()

    async def use(consumer: Consumer) -> None:
        await take(consumer, 2)
        kept.failures = [OSError("away")]

    with pytest.raises(OSError, match="away"):
        consume(stream, use, checkpointer=kept)
    assert not kept.is_allocated(SHARD_0)


def test_positions_that_are_written_behind(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 30))
    kept = Failing()

    async def use(consumer: Consumer) -> None:
        await take_all(consumer)
        assert kept.asked == []

    consume(stream, use, checkpointer=kept, checkpoint_interval=3600, max_queue_size=3)
    assert kept.asked == [("checkpoint", SHARD_0, last_sequences(aws, stream)[SHARD_0])]


def test_positions_within_an_answer_are_written_by_the_clock(aws: LocalAws, stream: str) -> None:
    """As the task works on an item for long: it is not among them."""
    put(aws, stream, numbered(1, 30))
    sequences = [record["SequenceNumber"] for record in read(client(aws), stream)]
    kept = MemoryCheckPointer()

    async def use(consumer: Consumer) -> None:
        await take(consumer, 8)
        await until(lambda: kept.get_all_checkpoints()[SHARD_0] is not None, "a position")
        assert kept.get_all_checkpoints() == {SHARD_0: sequences[6]}

    consume(stream, use, checkpointer=kept, checkpoint_interval=0.05)


def test_what_is_written_behind_and_fails(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 3))
    kept = Failing()
    kept.failures = [OSError("away")]

    async def use(consumer: Consumer) -> None:
        with pytest.raises(OSError, match="away"):
            await take_all(consumer)
        await take_all(consumer)
        assert kept.get_all_checkpoints() == last_sequences(aws, stream)

    consume(stream, use, checkpointer=kept, checkpoint_interval=0.05)


def test_a_shard_is_given_back_behind_its_last_position(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(4, 5))
    split(aws, stream, open_shards(aws, stream)[0])
    kept = Failing()

    async def use(consumer: Consumer) -> None:
        await take_all(consumer)
        assert kept.asked == [("checkpoint", SHARD_0, last_sequences(aws, stream)[SHARD_0]), ("deallocate", SHARD_0)]

    consume(stream, use, checkpointer=kept, checkpoint_interval=3600)
    assert consume(stream, checkpointer=kept) == []


def test_a_shard_that_is_lost(aws: LocalAws) -> None:
    """Nothing of it is delivered any more, nothing is written; the others go on. Then it is ours again."""
    stream = make_stream(aws, 2)
    put(aws, stream, numbered(10, 20))

    class Losing(Failing):
        taken = False

        async def allocate(self, shard_id: str) -> tuple[bool, str | None]:
            if shard_id == SHARD_0 and self.taken:
                return False, None
            return await super().allocate(shard_id)

    kept = Losing()

    async def use(consumer: Consumer) -> list[ConsumerRecord]:
        records = []
        while not records or records[-1].shard_id != SHARD_0:
            records += await take(consumer, 1)
        kept.taken = True
        kept._allocated.discard(SHARD_0)
        kept.failures = [CheckpointOwnershipConflict("another's")] * 2
        records += await take_all(consumer)
        assert kept.get_all_checkpoints()[SHARD_0] is None
        assert not consumer.get_shard_status()["shard_details"][0]["is_allocated"]
        kept.failures = []
        kept.taken = False
        return records

    options: dict[str, Any] = {"checkpointer": kept, "output": "records", "max_queue_size": 5}
    records = consume(stream, use, **options)
    assert [record.shard_id for record in records].count(SHARD_0) < 100
    again = consume(stream, **options)
    assert {record.shard_id for record in again} >= {SHARD_0}
    seen = {(record.data["key"], record.data["n"]) for record in [*records, *again]}
    assert len(seen) == 200


# Flow, and its end.


def test_a_queue_that_stays_full(
    own_aws: LocalAws, stream: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What found no room is fetched again, and arrives once."""
    monkeypatch.setattr(fetch, "QUEUE_FULL_SECONDS", 0.02)
    put(own_aws, stream, numbered(1, 40))
    before = own_aws.calls().get("GetShardIterator", 0)

    def times_full() -> int:
        return sum("the queue was full" in record.message for record in caplog.records)

    async def use(consumer: Consumer) -> list[Any]:
        items = []
        for _ in range(6):
            seen = times_full()
            items += await take(consumer, 5)
            await until(lambda seen=seen: times_full() > seen, "the queue to be full again", seen=times_full)
        return items + await take_all(consumer)

    assert_each_once(consume(stream, use, max_queue_size=3), 1, 40)
    assert own_aws.calls()["GetShardIterator"] > before + 1


def test_waiting_that_is_cancelled_loses_nothing(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 20))

    async def use(consumer: Consumer) -> list[Any]:
        items = []
        while len(items) < 20:
            try:
                items.append(await asyncio.wait_for(anext(consumer), 0.001))
            except TimeoutError:
                await asyncio.sleep(0.001)
        return items

    assert_each_once(consume(stream, use, idle_timeout=None), 1, 20)


class Slow(MemoryCheckPointer):
    """Takes its time, in which other tasks run."""

    async def checkpoint(self, shard_id: str, sequence: str) -> None:
        await asyncio.sleep(0.005)
        await super().checkpoint(shard_id, sequence)

    async def deallocate(self, shard_id: str) -> None:
        await asyncio.sleep(0.005)
        await super().deallocate(shard_id)


async def in_three_tasks(consumer: Consumer) -> list[Any]:
    """What three tasks get that iterate at the same time."""

    async def part() -> list[Any]:
        items = []
        async for item in consumer:
            items.append(item)
            await asyncio.sleep(0)
        return items

    return [item for items in await asyncio.gather(part(), part(), part()) for item in items]


def test_several_tasks_share_a_consumer(aws: LocalAws) -> None:
    """While one of them waits for a checkpoint, or for a shard's end, the others begin nothing of the kind."""
    stream = make_stream(aws, 2)
    put(aws, stream, numbered(10, 20))
    for shard in open_shards(aws, stream):
        split(aws, stream, shard)
    put(aws, stream, numbered(10, 20, 20))
    items = consume(stream, in_three_tasks, checkpointer=Slow(), max_queue_size=20)
    assert_each_once(sorted(items, key=lambda item: item["n"]), 10, 40)


def test_several_tasks_and_poison(poisoned: str) -> None:
    letters: list[bytes] = []

    async def keep(record: ConsumerRecord, error: Exception) -> None:
        letters.append(record.data)
        await asyncio.sleep(0.005)

    assert sorted(consume(poisoned, in_three_tasks, on_record_error=keep)) == [1, 2, 4, 6]
    assert letters == [b"{", b"\xff"]


def test_without_an_idle_timeout_it_ends_when_it_is_closed(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 2))

    async def use(consumer: Consumer) -> list[Any]:
        reading = asyncio.create_task(take_all(consumer))

        def answers() -> int:
            return sum((each["stats"] or {}).get("success", 0) for each in consumer.get_shard_status()["shard_details"])

        await until(lambda: answers() >= 5, "answers without records", seen=answers)
        assert not reading.done()
        await consumer.close()
        return await reading

    assert_each_once(consume(stream, use, idle_timeout=None), 1, 2)


def test_it_does_not_end_while_the_service_is_away(own_aws: LocalAws, stream: str) -> None:
    """The outage takes longer than idle_timeout."""
    put(own_aws, stream, numbered(1, 2))
    own_aws.faults(Fault("GetRecords", "InternalFailure", times=4))
    items = consume(stream, idle_timeout=0.05, expo_backoff=0.3, expo_backoff_limit=0.3)
    assert_each_once(items, 1, 2)


def endings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "iteration ends" in record.message]


def test_it_does_not_end_before_the_tip(aws: LocalAws, stream: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is asked once a second for one record, and waits for each longer than its idle_timeout."""
    caplog.set_level("INFO", "fastkcl")
    put(aws, stream, numbered(1, 4))
    assert_each_once(consume(stream, record_limit=1, shard_fetch_rate=1, idle_timeout=0.2), 1, 4)
    assert endings(caplog) == [f"{stream}: the iteration ends: nothing has come for 0.2 s; shards at their tips: 1"]


def test_a_shard_that_is_behind_keeps_others_from_ending(aws: LocalAws, caplog: pytest.LogCaptureFixture) -> None:
    stream = make_stream(aws, 4)
    put(aws, stream, numbered(1, 4))
    assert_each_once(consume(stream, record_limit=1, shard_fetch_rate=1, idle_timeout=0.2), 1, 4)


def test_one_line_says_that_it_was_closed(aws: LocalAws, stream: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "fastkcl")

    async def use(consumer: Consumer) -> list[Any]:
        reading = asyncio.create_task(take_all(consumer))
        await consumer.wait_ready()
        await consumer.close()
        return await reading

    assert consume(stream, use, idle_timeout=None) == []
    assert endings(caplog) == [f"{stream}: the iteration ends: the consumer is closed"]


def test_iterating_opens_it(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 2))

    async def main() -> list[Any]:
        consumer = Consumer(stream, **QUICK)
        items = await take_all(consumer)
        await consumer.close()
        await consumer.close()
        assert await take_all(consumer) == []
        with pytest.raises(RuntimeError, match="was closed"):
            await consumer.open()
        return items

    assert_each_once(asyncio.run(main()), 1, 2)


def test_status(aws: LocalAws, stream: str) -> None:
    split(aws, stream, open_shards(aws, stream)[0])
    keys = {
        "total_shards",
        "active_shards",
        "closed_shards",
        "allocated_shards",
        "parent_shards",
        "child_shards",
        "exhausted_parents",
        "expired_parents",
        "resharding_in_progress",
        "topology",
        "shard_details",
    }

    async def use(consumer: Consumer) -> None:
        empty = Consumer(stream).get_shard_status()
        assert (set(empty), empty["total_shards"], empty["shard_details"]) == (keys, 0, [])
        entered = consumer.get_shard_status()
        await consumer.refresh_shards()
        status = consumer.get_shard_status()
        assert set(status) == keys
        assert entered == status
        assert (status["total_shards"], status["resharding_in_progress"]) == (3, True)
        assert consumer.is_resharding_likely_in_progress()
        children = ["shardId-000000000001", "shardId-000000000002"]
        assert status["topology"] == {
            "parent_child_map": {SHARD_0: children},
            "child_parent_map": {child: [SHARD_0] for child in children},
        }
        parent, child, _ = status["shard_details"]
        assert set(parent["sequence_range"]) == {"StartingSequenceNumber", "EndingSequenceNumber"}
        del parent["sequence_range"], child["sequence_range"]
        nothing = {"is_allocated": False, "has_iterator": False, "stats": None}
        assert parent == nothing | {
            "shard_id": SHARD_0,
            "is_closed": True,
            "parent_shard_id": None,
            "is_parent": True,
            "is_child": False,
            "can_allocate": True,
        }
        assert child == nothing | {
            "shard_id": children[0],
            "is_closed": False,
            "parent_shard_id": SHARD_0,
            "is_parent": False,
            "is_child": True,
            "can_allocate": False,
        }

    consume(stream, use)


def test_metrics(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(2, 5))
    split(aws, stream, open_shards(aws, stream)[0])
    metrics = InMemoryMetricsCollector()
    consume(stream, metrics_collector=metrics)
    shard = f"{{shard_id={SHARD_0},stream_name={stream}}}"
    whole = f"{{stream_name={stream}}}"
    assert metrics.counters[f"consumer_records_received_total{shard}"] == 10
    assert metrics.counters[f"consumer_bytes_received_total{shard}"] > 100
    assert metrics.counters[f"consumer_checkpoint_success_total{shard}"] == 1
    assert metrics.counters[f"stream_resharding_events_total{whole}"] == 1
    assert metrics.gauges[f"consumer_lag_records{shard}"] == 0
    assert metrics.gauges[f"consumer_queue_size{whole}"] == 0
    assert metrics.gauges[f"stream_shards_active{whole}"] == 2
    assert metrics.gauges[f"stream_shards_closed{whole}"] == 1
    assert len(metrics.histograms[f"consumer_processing_time_seconds{shard}"]) == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_queue_size": 0}, ValueError, "max_queue_size"),
        ({"max_shard_consumers": 0}, ValueError, "max_shard_consumers"),
        ({"record_limit": 0}, ValueError, "record_limit"),
        ({"record_limit": 10_001}, ValueError, "record_limit"),
        ({"sleep_time_no_records": -1}, ValueError, "sleep_time_no_records"),
        ({"iterator_type": "AFTER"}, ValueError, "iterator_type"),
        ({"iterator_type": "AT_TIMESTAMP"}, ValueError, "needs a timestamp"),
        ({"timestamp": datetime(2026, 1, 1)}, ValueError, "time zone"),
        ({"shard_fetch_rate": 0}, ValueError, "shard_fetch_rate"),
        ({"shard_fetch_rate": 6}, ValueError, "shard_fetch_rate"),
        ({"idle_timeout": 0}, ValueError, "idle_timeout"),
        ({"checkpoint_interval": 0}, ValueError, "checkpoint_interval"),
        ({"on_record_error": "ignore"}, ValueError, "on_record_error"),
        ({"output": "rows"}, ValueError, "output"),
        ({"processor": StringProcessor}, TypeError, "processor"),
        ({"checkpointer": MemoryCheckPointer}, TypeError, "checkpointer"),
        ({"checkpointer": "positions"}, TypeError, "checkpointer"),
        ({"timestamp": "2026-01-01"}, TypeError, "timestamp"),
        ({"session": object()}, TypeError, "AioSession"),
        ({"retry_limit": -1}, ValueError, "retry_limit"),
        ({"record_limits": 1}, TypeError, "record_limits"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Consumer("orders", **options)


def test_two_ways_to_write_positions_exclude_each_other() -> None:
    class Manual(MemoryCheckPointer):
        auto_checkpoint = False

    with pytest.raises(ValueError, match="mutually exclusive"):
        Consumer("orders", checkpointer=Manual(), checkpoint_interval=1)


def test_the_example(aws: LocalAws) -> None:
    """What one example puts, the other reads; started again, it continues after that."""
    stream = make_stream(aws, 4)
    environment = {**os.environ, **aws.environment}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=EXAMPLES)

    assert run("to_kinesis.py", stream, "1000").returncode == 0
    client(aws).put_record(StreamName=stream, PartitionKey="k", Data=b"no reading")
    done = run("from_kinesis.py", stream)
    assert done.returncode == 0, done.stderr
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == [f"sensor {n}: 100 readings" for n in range(10)]
    assert "b'no reading'" in done.stderr
    again = run("from_kinesis.py", stream)
    assert (again.returncode, again.stdout) == (0, "")
