"""Trimmed and lost records of a stream are reported: positions that are gone, shards without an iterator, other
streams."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from checkpoint_helpers import DynamoDB
from fastkcl import BatchProcessor, Checkpointer, RecordBatch
from fastkcl.kinesis import (
    AnotherStream,
    Consumer,
    DataLossError,
    DynamoDBCheckPointer,
    InMemoryMetricsCollector,
    KCLCheckPointer,
    MemoryCheckPointer,
    RedisCheckPointer,
    run_processors,
)
from fastkcl.kinesis.client import StreamClient
from fastkcl.kinesis.read import fetch_policy, trimmed
from fastkcl.kinesis.read.trimmed import TrimWatch, arrival_of, is_of_shard
from fastkcl.kinesis.topology import Shard, Topology
from fastkcl.local_aws import Fault, LocalAws
from kinesis_helpers import QUICK, assert_each_once, numbered, put, take, take_all
from local_aws_helpers import SHARD_0, client, make_stream, new_name
from waiting import until, wait_until

STREAM = "short"
RETENTION_SECONDS = 3000
HOUR = 3600.0


@pytest.fixture(scope="module")
def forgetful() -> Iterator[LocalAws]:
    """Local AWS of the tests that let the retention pass."""
    with LocalAws(retention_seconds=RETENTION_SECONDS) as aws:
        yield aws


@pytest.fixture
def short(forgetful: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalAws]:
    """With a stream whose records stay until `trim_all`."""
    for name, value in forgetful.environment.items():
        monkeypatch.setenv(name, value)
    client(forgetful).create_stream(StreamName=STREAM, ShardCount=1)
    yield forgetful
    client(forgetful).delete_stream(StreamName=STREAM)


def left(aws: LocalAws, shard_id: str) -> int:
    kinesis = client(aws)
    position = {"StreamName": STREAM, "ShardId": shard_id, "ShardIteratorType": "TRIM_HORIZON"}
    return len(kinesis.get_records(ShardIterator=kinesis.get_shard_iterator(**position)["ShardIterator"])["Records"])


def trim_all(aws: LocalAws, shard_id: str = SHARD_0) -> None:
    """The retention passes; a shard that is listed then has no record left."""
    aws.pass_time(RETENTION_SECONDS + 1)
    assert not left(aws, shard_id)


async def read(count: int | None = None, **options: Any) -> list[int]:
    """The numbers of so many records, or of all."""
    async with Consumer(STREAM, **{**QUICK, **options}) as consumer:
        items = await (take_all(consumer) if count is None else take(consumer, count))
    return [item["n"] for item in items]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What readers of shards have said."""
    said = [record for record in caplog.records if record.name == "fastkcl.kinesis.read.data_loss"]
    return [record.getMessage() for record in said if record.levelno >= logging.ERROR]


def losses(metrics: InMemoryMetricsCollector) -> dict[str, float]:
    return {key: value for key, value in metrics.counters.items() if key.startswith("consumer_data_loss")}


def stop_for_longer_than_the_retention(aws: LocalAws, kept: Any, **options: Any) -> None:
    """200 records, of which 49 are acknowledged, are trimmed; then come 100 more."""
    put(aws, STREAM, numbered(1, 200))
    assert asyncio.run(read(50, checkpointer=kept, **options)) == list(range(50))
    trim_all(aws)
    put(aws, STREAM, numbered(1, 100, start=200))


def test_a_trimmed_position_is_said(short: LocalAws, caplog: pytest.LogCaptureFixture) -> None:
    """Where it stops, nothing is delivered or written until somebody says so; then what is left is read."""
    kept, metrics = MemoryCheckPointer(), InMemoryMetricsCollector()
    stop_for_longer_than_the_retention(short, kept)
    before = kept.get_all_checkpoints()
    with pytest.raises(DataLossError) as raised:
        asyncio.run(read(checkpointer=kept, on_data_loss="raise"))
    assert (raised.value.shard_id, raised.value.position) == (SHARD_0, before[SHARD_0])
    assert 'on_data_loss="continue"' in str(raised.value)
    assert kept.get_all_checkpoints() == before

    caplog.clear()
    assert asyncio.run(read(checkpointer=kept, metrics_collector=metrics)) == list(range(200, 300))
    (error,) = errors(caplog)
    for said in (f"{STREAM}/{SHARD_0}", str(before[SHARD_0]), "came at 20", "oldest record left", "the retention 1 h"):
        assert said in error
    assert losses(metrics) == {f"consumer_data_loss_total{{shard_id={SHARD_0},stream_name={STREAM}}}": 1}
    assert asyncio.run(read(checkpointer=kept)) == []
    assert len(errors(caplog)) == 1


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_split_shard_whose_rest_is_trimmed(
    short: LocalAws, caplog: pytest.LogCaptureFixture, is_listed: bool
) -> None:
    """The stream was resharded while the group was stopped: nothing comes in the place of the position."""
    kept, metrics = MemoryCheckPointer(), InMemoryMetricsCollector()
    put(short, STREAM, numbered(1, 20))
    assert asyncio.run(read(5, checkpointer=kept)) == list(range(5))
    before = kept.get_all_checkpoints()[SHARD_0]
    kinesis = client(short)
    if is_listed:
        trim_all(short)
    kinesis.split_shard(StreamName=STREAM, ShardToSplit=SHARD_0, NewStartingHashKey=str(1 << 127))
    if not is_listed:
        trim_all(short, SHARDS[1])
        assert len(kinesis.list_shards(StreamName=STREAM)["Shards"]) == 2
    put(short, STREAM, numbered(4, 1, start=20))

    for _ in range(2):
        with pytest.raises(DataLossError) as raised:
            asyncio.run(read(checkpointer=kept, on_data_loss="raise"))
        assert (raised.value.shard_id, raised.value.position, raised.value.oldest) == (SHARD_0, before, None)
    caplog.clear()
    assert asyncio.run(read(checkpointer=kept, metrics_collector=metrics)) == [20] * 4
    (error,) = errors(caplog)
    assert f"{STREAM}/{SHARD_0}: record {before}, which came at 20" in error
    assert losses(metrics) == {f"consumer_data_loss_total{{shard_id={SHARD_0},stream_name={STREAM}}}": 1}


def test_all_of_it_is_trimmed_and_more_comes_later(short: LocalAws, caplog: pytest.LogCaptureFixture) -> None:
    """Answers without records decide nothing."""
    kept = MemoryCheckPointer()
    put(short, STREAM, numbered(1, 20))
    asyncio.run(read(5, checkpointer=kept))
    trim_all(short)

    async def later() -> list[int]:
        async with Consumer(STREAM, **{**QUICK, "idle_timeout": None}, checkpointer=kept) as consumer:
            await consumer.wait_ready()
            first = asyncio.create_task(anext(consumer))
            await until(lambda: consumer._stream.readers[SHARD_0].successes > 1, "answers without records")
            await asyncio.to_thread(put, short, STREAM, numbered(1, 1, start=20))
            return [(await first)["n"]]

    assert asyncio.run(later()) == [20]
    assert len(errors(caplog)) == 1


def test_processors_are_told_as_well(short: LocalAws, caplog: pytest.LogCaptureFixture) -> None:
    class Keeps(BatchProcessor):
        def process_batch(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
            seen.extend(record.data for record in batch)
            checkpointer.checkpoint()

    seen: list[Any] = []
    kept = MemoryCheckPointer()
    stop_for_longer_than_the_retention(short, kept)
    options: dict[str, Any] = {"checkpointer": kept, **QUICK}
    with pytest.raises(DataLossError):
        asyncio.run(run_processors(STREAM, Keeps, on_data_loss="raise", **options))
    assert seen == []
    asyncio.run(run_processors(STREAM, Keeps, **options))
    assert len(seen) == 100
    assert len(errors(caplog)) == 2


def test_a_kept_iterator_skips_in_silence(
    short: LocalAws, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program takes its time, and what was not fetched is trimmed meanwhile."""
    monkeypatch.setattr(trimmed, "STOPPED", 0.5)
    put(short, STREAM, numbered(1, 200))

    async def slow() -> list[int]:
        options = QUICK | {"idle_timeout": 2.0}  # more than a stall of a busy machine
        async with Consumer(STREAM, **options, max_queue_size=10, record_limit=10) as consumer:
            items = await take(consumer, 5)
            await asyncio.to_thread(trim_all, short)
            await asyncio.to_thread(put, short, STREAM, numbered(1, 100, start=200))
            return [item["n"] for item in items + await take_all(consumer)]

    numbers = asyncio.run(slow())
    assert numbers[-100:] == list(range(200, 300))
    assert len(numbers) < 300
    assert len(errors(caplog)) == 1


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("use_list_shards", [False, True])
def test_a_retention_that_is_made_shorter(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, use_list_shards: bool, is_listed: bool
) -> None:
    """While the consumer lags by more than the new one: also before the next list of the shards says so."""
    with LocalAws(streams={STREAM: 1}) as aws:
        for name, value in aws.environment.items():
            monkeypatch.setenv(name, value)
        kinesis = client(aws)
        kinesis.increase_stream_retention_period(StreamName=STREAM, RetentionPeriodHours=168)
        put(aws, STREAM, numbered(1, 100))
        aws.pass_time(100 * HOUR)
        put(aws, STREAM, numbered(1, 10, start=100))

        async def main() -> list[int]:
            options: dict[str, Any] = {**QUICK, "max_queue_size": 10, "record_limit": 10}
            async with Consumer(STREAM, **options, use_list_shards=use_list_shards) as consumer:
                items = await take(consumer, 5)
                kinesis.decrease_stream_retention_period(StreamName=STREAM, RetentionPeriodHours=24)
                if is_listed:
                    await consumer.refresh_shards()
                return [item["n"] for item in items + await take_all(consumer)]

        numbers = asyncio.run(main())
    assert numbers[-10:] == list(range(100, 110))
    assert len(numbers) < 110
    (error,) = errors(caplog)
    assert "the retention 24 h" in error


def test_a_position_between_records_is_no_loss(
    own_aws: LocalAws, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has set it by hand; the records before it are there."""
    for name, value in own_aws.environment.items():
        monkeypatch.setenv(name, value)
    stream, kept = make_stream(own_aws), MemoryCheckPointer()
    put(own_aws, stream, numbered(1, 10))

    async def main() -> list[int]:
        async with Consumer(stream, **QUICK, checkpointer=kept) as consumer:
            await take(consumer, 5)
        await kept.allocate(SHARD_0)
        await kept.checkpoint(SHARD_0, str(int(kept.get_all_checkpoints()[SHARD_0] or 0) + 1))
        async with Consumer(stream, **QUICK, checkpointer=kept, on_data_loss="raise") as consumer:
            return [item["n"] for item in await take(consumer, 6)]

    assert asyncio.run(main()) == list(range(4, 10))
    assert errors(caplog) == []


P, Q = "100", "200"
NOW, RETENTION = 10 * 86400.0, 86400.0


@pytest.mark.parametrize(
    ("arrived", "covered", "is_loss"),
    [
        (NOW - 2 * RETENTION, NOW - 60, False),  # a quiet shard, read to its tip all the time
        (NOW - 2 * RETENTION, NOW - RETENTION + 120, False),
        (NOW - 2 * RETENTION, NOW - RETENTION, True),  # what came then may be gone
        (NOW - 2 * RETENTION, None, True),  # a start: nobody knows what came after it
        (NOW - HOUR, NOW - 60, True),  # trimmed before the retention: it was made shorter
        (None, NOW - 60, True),
    ],
)
def test_what_a_trimmed_position_means(arrived: float | None, covered: float | None, is_loss: bool) -> None:
    watch = TrimWatch()
    watch.moved(arrived)
    if covered is not None:
        watch.answered(0, covered - 1)
        watch.answered(0, covered)
    watch.resumed()
    assert watch.is_trimmed(P, Q)
    assert (watch.judge(SHARD_0, P, RETENTION, NOW, Q, NOW - HOUR) is not None) is is_loss


def test_when_a_kept_iterator_is_not_trusted() -> None:
    watch = TrimWatch()
    assert not watch.is_due(RETENTION, NOW)
    watch.moved(NOW)
    watch.answered(0, NOW)
    assert not watch.is_due(RETENTION, NOW + 5)
    assert watch.is_due(RETENTION, NOW + 11)  # it was stopped
    watch.answered(int(0.95 * RETENTION * 1000), NOW)
    assert watch.is_due(RETENTION, NOW + 1)  # it lags
    watch.resumed()
    assert not watch.is_due(RETENTION, NOW + 1)
    watch.decided()
    watch.answered(int(0.95 * RETENTION * 1000), NOW)
    assert not watch.is_due(RETENTION, NOW + 1)  # it was looked for, and has not moved
    watch.moved(NOW)
    assert watch.is_due(RETENTION, NOW + 1)


def test_looks_at_the_retention_are_shared() -> None:
    """Many shards that lag by a whole number of hours need two of them: some ask while one is under way."""
    hours = iter((48, 24, 12, 12))

    class Counts(StreamClient):
        async def call_once(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
            assert operation == "describe_stream_summary"
            await asyncio.sleep(0)
            return {"StreamDescriptionSummary": {"RetentionPeriodHours": next(hours), "StreamStatus": "ACTIVE"}}

    async def main() -> None:
        looking = Counts(STREAM)
        looks = [asyncio.create_task(looking.look_at_stream(0.01)) for _ in range(100)]
        await looks[0]
        late = [asyncio.create_task(looking.look_at_stream(0.01)) for _ in range(100)]
        await asyncio.gather(*looks, *late)
        assert looking.retention_seconds == 24 * HOUR  # nobody has seen less than there was when he asked
        given_up, waits = (asyncio.create_task(looking.look_at_stream()) for _ in range(2))
        for _ in range(2):
            await asyncio.sleep(0)  # it has begun
        given_up.cancel()
        await waits
        assert looking.retention_seconds == 12 * HOUR

    asyncio.run(main())


@pytest.mark.parametrize(
    ("arrived", "first", "is_leap"),
    [
        (99.9, 99.5, False),  # no number of hours is between them
        (100.5, 99.5, True),
        (100.0, 0.0, True),
        (25.0, 24.0, True),
        (23.0, 0.0, False),  # no retention is so short
        (24.0, 0.0, True),
        (100.0004, 100.0002, True),  # ages are about right
        (100.01, 100.005, False),
    ],
)
def test_where_a_shorter_retention_may_end(arrived: float, first: float, is_leap: bool) -> None:
    """Both in hours before now."""
    watch = TrimWatch()
    watch.moved(NOW - arrived * HOUR)
    assert not watch.is_leap(first * HOUR, NOW)  # nothing was answered yet
    watch.answered(int(arrived * HOUR * 1000), NOW)
    assert watch.is_leap(first * HOUR, NOW) is is_leap
    watch.answered(0, NOW - 2 * HOUR)
    assert watch.is_leap(first * HOUR, NOW) is is_leap  # one such answer may be a mistake
    watch.answered(0, NOW - HOUR)
    assert not watch.is_leap(first * HOUR, NOW)  # the shard was read to its tip
    watch.answered(int(arrived * HOUR * 1000), NOW)
    watch.resumed()
    assert not watch.is_leap(first * HOUR, NOW)  # the position is looked for


def test_what_sequence_numbers_say() -> None:
    """Of the service's documentation; and numbers of another layout, which say nothing."""
    start = "49546986683135544286507457935754639466300920667981217794"
    record = "49546986683135544286507457936321625675700192471156785154"
    assert is_of_shard(record, start)
    assert 1.4e9 < (arrival_of(record) or 0) < 1.5e9
    other = "49598630142999655949899443842509554952738656579378741250"
    assert not is_of_shard(record, other)
    assert is_of_shard("5", start)
    assert arrival_of("5") is None


# Shards without an iterator.


@pytest.mark.parametrize("kind", ["memory", "kcl"])
def test_an_open_shard_is_not_ended_by_an_error(own_aws: LocalAws, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for name, value in own_aws.environment.items():
        monkeypatch.setenv(name, value)
    stream = make_stream(own_aws, 2)
    put(own_aws, stream, numbered(10, 10))
    own_aws.faults(Fault("GetShardIterator", "ResourceNotFoundException", times=2))

    async def main() -> list[Any]:
        kept = MemoryCheckPointer() if kind == "memory" else KCLCheckPointer(stream)
        async with Consumer(stream, **{**QUICK, "idle_timeout": 2}, checkpointer=kept) as consumer:
            items = await take_all(consumer)
            assert all(not shard["is_closed"] for shard in consumer.get_shard_status()["shard_details"])
        return items

    assert_each_once(asyncio.run(main()), 10, 10)
    if kind == "kcl":
        leases = client(own_aws, "dynamodb").scan(TableName=stream)["Items"]
        assert all(lease["checkpoint"]["S"].isdecimal() for lease in leases)


def test_a_shard_that_is_no_longer_listed_is_finished(
    short: LocalAws, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are gone with it; its children are read."""
    monkeypatch.setattr(fetch_policy, "ABSENCE_SECONDS", 0.1)
    put(short, STREAM, numbered(4, 20))
    kept, metrics = MemoryCheckPointer(), InMemoryMetricsCollector()

    async def main() -> list[Any]:
        options: dict[str, Any] = {**QUICK, "max_queue_size": 10, "record_limit": 10, "metrics_collector": metrics}
        async with Consumer(STREAM, checkpointer=kept, **options) as consumer:
            items = await take(consumer, 5)
            kinesis = client(short)
            kinesis.split_shard(StreamName=STREAM, ShardToSplit=SHARD_0, NewStartingHashKey=str(1 << 127))
            trim_all(short, SHARDS[1])
            assert len(kinesis.list_shards(StreamName=STREAM)["Shards"]) == 2
            await asyncio.to_thread(put, short, STREAM, numbered(4, 1, start=20))
            return items + await take_all(consumer)

    items = asyncio.run(main())
    assert sorted(item["key"] for item in items if item["n"] == 20) == [0, 1, 2, 3]
    assert len(losses(metrics)) == 1
    assert any("no longer listed" in error for error in errors(caplog))


@pytest.mark.parametrize("kind", ["memory", "redis", "dynamodb", "kcl"])
def test_children_of_a_shard_that_is_gone_are_read_from_their_first_record(
    own_aws: LocalAws,
    redis: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """Also with LATEST: while the group was stopped its shard was split, and has left the list with its last record."""
    for name, value in {**own_aws.environment, **redis}.items():
        monkeypatch.setenv(name, value)
    stream, group, memory = make_stream(own_aws), new_name(), MemoryCheckPointer()
    kinds: dict[str, Callable[[], Any]] = {
        "memory": lambda: memory,
        "redis": lambda: RedisCheckPointer(group),
        "dynamodb": lambda: DynamoDBCheckPointer(group),
        "kcl": lambda: KCLCheckPointer(group, initial_position="LATEST"),
    }

    async def before() -> None:
        async with Consumer(stream, **QUICK, iterator_type="LATEST", checkpointer=kinds[kind]()) as consumer:
            await consumer.wait_ready()
            await asyncio.to_thread(put, own_aws, stream, numbered(4, 2))
            await take(consumer, 8)

    async def after() -> list[Any]:
        async with Consumer(stream, **QUICK, iterator_type="LATEST", checkpointer=kinds[kind]()) as consumer:
            return await take(consumer, 4)

    asyncio.run(before())
    client(own_aws).split_shard(StreamName=stream, ShardToSplit=SHARD_0, NewStartingHashKey=str(1 << 127))
    put(own_aws, stream, numbered(4, 1, start=2))
    listed = StreamClient.list_shards

    async def without_the_parent(self: StreamClient) -> list[Shard]:
        return [shard for shard in await listed(self) if shard.shard_id != SHARD_0]

    monkeypatch.setattr(StreamClient, "list_shards", without_the_parent)
    assert sorted(item["key"] for item in asyncio.run(after())) == [0, 1, 2, 3]
    assert any(f"{SHARD_0} is no longer listed" in record.getMessage() for record in caplog.records)


def list_without(monkeypatch: pytest.MonkeyPatch, *gone: str) -> None:
    """The service does not list these shards any more."""
    listed = StreamClient.list_shards

    async def without(self: StreamClient) -> list[Shard]:
        return [shard for shard in await listed(self) if shard.shard_id not in gone]

    monkeypatch.setattr(StreamClient, "list_shards", without)


def split(aws: LocalAws, stream: str, number: int) -> None:
    """Split one of the shards, and wait for both of its children."""
    kinesis = client(aws)
    before = kinesis.list_shards(StreamName=stream)["Shards"]
    shard = next(shard for shard in before if shard["ShardId"] == SHARDS[number])
    low, high = (int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
    kinesis.split_shard(StreamName=stream, ShardToSplit=SHARDS[number], NewStartingHashKey=str((low + high) // 2))
    wait_until(lambda: len(kinesis.list_shards(StreamName=stream)["Shards"]) == len(before) + 2, "two children")


SHARDS = [f"shardId-{number:012}" for number in range(7)]


@pytest.mark.parametrize("kind", ["memory", "redis", "dynamodb", "kcl"])
def test_a_stream_that_was_resharded_twice_while_its_group_was_stopped(
    own_aws: LocalAws,
    redis: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """The shard with the position and the ones after it are gone: nobody can tell whom the listed ones follow."""
    for name, value in {**own_aws.environment, **redis}.items():
        monkeypatch.setenv(name, value)
    stream, group, memory, metrics = make_stream(own_aws), new_name(), MemoryCheckPointer(), InMemoryMetricsCollector()
    kinds: dict[str, Callable[[], Any]] = {
        "memory": lambda: memory,
        "redis": lambda: RedisCheckPointer(group),
        "dynamodb": lambda: DynamoDBCheckPointer(group),
        "kcl": lambda: KCLCheckPointer(group, initial_position="LATEST"),
    }

    async def read(count: int, **options: Any) -> list[Any]:
        options = {**QUICK, "iterator_type": "LATEST", "checkpointer": kinds[kind](), **options}
        async with Consumer(stream, **options) as consumer:
            await consumer.wait_ready()
            if count == 8:
                await asyncio.to_thread(put, own_aws, stream, numbered(4, 2))
            return await take(consumer, count)

    asyncio.run(read(8))
    for number in (0, 1, 2):
        split(own_aws, stream, number)
    put(own_aws, stream, numbered(60, 1, start=2))
    list_without(monkeypatch, *SHARDS[:3])
    for _ in range(2):
        with pytest.raises(DataLossError, match=f"{SHARD_0}: record .* was the last one read"):
            asyncio.run(read(4, on_data_loss="raise"))
    caplog.clear()
    assert sorted(item["key"] for item in asyncio.run(read(60, metrics_collector=metrics))) == list(range(60))
    assert len(errors(caplog)) == len(losses(metrics)) == 1
    caplog.clear()
    asyncio.run(read(0))
    assert errors(caplog) == []


@pytest.mark.parametrize(
    ("kind", "generations"), [("memory", 1), ("redis", 2), ("dynamodb", 1), ("kcl", 1), ("kcl", 2)]
)
def test_a_loss_is_reported_once_also_before_the_next_record(
    own_aws: LocalAws,
    redis: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    generations: int,
) -> None:
    """The listed shards have no record yet, so their positions do not show that the loss was reported."""
    for name, value in {**own_aws.environment, **redis}.items():
        monkeypatch.setenv(name, value)
    stream, group, memory = make_stream(own_aws), new_name(), MemoryCheckPointer()
    kinds: dict[str, Callable[[], Any]] = {
        "memory": lambda: memory,
        "redis": lambda: RedisCheckPointer(group),
        "dynamodb": lambda: DynamoDBCheckPointer(group),
        "kcl": lambda: KCLCheckPointer(group, initial_position="LATEST"),
    }

    async def read(count: int, kept: Any, first: int = 0) -> list[Any]:
        async with Consumer(stream, **QUICK, iterator_type="LATEST", checkpointer=kept) as consumer:
            await consumer.wait_ready()
            if first:
                await asyncio.to_thread(put, own_aws, stream, numbered(first, 2))
            return await take(consumer, count)

    asyncio.run(read(8, kinds[kind](), 4))
    shards = (1 << generations) - 1
    for number in range(shards):
        split(own_aws, stream, number)
    list_without(monkeypatch, *SHARDS[:shards])
    said = []
    for _ in range(3):
        caplog.clear()
        asyncio.run(read(0, kinds[kind]()))
        said.append([line.getMessage() for line in caplog.records if line.levelno == logging.ERROR])
    assert [len(lines) for lines in said] == [1, 0, 0]
    assert f"{SHARD_0}: record" in said[0][0]
    put(own_aws, stream, numbered(60, 1, start=2))
    assert sorted(item["key"] for item in asyncio.run(read(60, kinds[kind]()))) == list(range(60))


def test_shards_that_were_never_begun_and_are_gone(
    own_aws: LocalAws, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group has finished the shard before them."""
    for name, value in own_aws.environment.items():
        monkeypatch.setenv(name, value)
    stream, group = make_stream(own_aws), new_name()
    put(own_aws, stream, numbered(4, 2))

    def read(**options: Any) -> list[Any]:
        async def main() -> list[Any]:
            async with Consumer(stream, **QUICK, checkpointer=DynamoDBCheckPointer(group), **options) as consumer:
                return await take_all(consumer)

        return asyncio.run(main())

    client(own_aws).split_shard(StreamName=stream, ShardToSplit=SHARD_0, NewStartingHashKey=str(1 << 127))
    with monkeypatch.context() as patched:
        list_without(patched, *SHARDS[1:])
        patched.setattr(Topology, "add_children", lambda self, children: None)
        assert len(read()) == 8
    for number in (1, 2):
        split(own_aws, stream, number)
    put(own_aws, stream, numbered(4, 1, start=2))
    list_without(monkeypatch, *SHARDS[:3])
    assert len(read(iterator_type="LATEST")) == 4
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    for shard, line in zip(SHARDS[1:3], said, strict=True):
        assert f"{stream}/{shard} is no longer listed, and none of its records was read" in line


def test_a_group_that_is_new_has_lost_nothing(
    own_aws: LocalAws, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in own_aws.environment.items():
        monkeypatch.setenv(name, value)
    stream = make_stream(own_aws)
    for number in (0, 1, 2):
        split(own_aws, stream, number)
    put(own_aws, stream, numbered(4, 2))
    list_without(monkeypatch, *SHARDS[:3])

    async def main(checkpointer: Any) -> list[Any]:
        async with Consumer(stream, **QUICK, checkpointer=checkpointer, on_data_loss="raise") as consumer:
            return await take_all(consumer)

    group = new_name()
    assert_each_once(asyncio.run(main(DynamoDBCheckPointer(group))), 4, 2)
    DynamoDB(group, own_aws).remove(SHARDS[3])
    assert len(asyncio.run(main(DynamoDBCheckPointer(group)))) < 8
    assert errors(caplog) == []


@pytest.mark.parametrize("kind", ["redis", "dynamodb", "kcl", "memory"])
def test_a_parent_that_was_finished_is_no_loss(
    own_aws: LocalAws,
    redis: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """Its child has had no record yet, so it has no position, and the parent has left the list meanwhile."""
    for name, value in {**own_aws.environment, **redis}.items():
        monkeypatch.setenv(name, value)
    stream, group, memory = make_stream(own_aws), new_name(), MemoryCheckPointer()
    kinds: dict[str, Callable[[], Any]] = {
        "memory": lambda: memory,
        "redis": lambda: RedisCheckPointer(group),
        "dynamodb": lambda: DynamoDBCheckPointer(group),
        "kcl": lambda: KCLCheckPointer(group),
    }

    async def main() -> list[Any]:
        async with Consumer(stream, **QUICK, checkpointer=kinds[kind](), on_data_loss="raise") as consumer:
            return await take_all(consumer)

    put(own_aws, stream, numbered(4, 2))
    split(own_aws, stream, 0)
    assert_each_once(asyncio.run(main()), 4, 2)
    list_without(monkeypatch, SHARD_0)
    assert asyncio.run(main()) == []
    assert errors(caplog) == []


def test_a_stream_that_was_made_again_is_another_one(own_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in own_aws.environment.items():
        monkeypatch.setenv(name, value)
    stream = make_stream(own_aws)
    put(own_aws, stream, numbered(1, 5))
    kept = MemoryCheckPointer()

    async def main() -> None:
        async with Consumer(stream, **{**QUICK, "idle_timeout": None}, checkpointer=kept) as consumer:
            await take(consumer, 5)
            await asyncio.to_thread(make_again, own_aws, stream)
            with pytest.raises(AnotherStream, match="another one of its name"):
                await take(consumer, 1)

    asyncio.run(main())
    position = kept.get_all_checkpoints()
    with pytest.raises(AnotherStream, match="another checkpointer name"):
        asyncio.run(take_of(stream, checkpointer=kept))
    assert kept.get_all_checkpoints() == position
    assert_each_once(asyncio.run(take_of(stream)), 1, 5)


async def take_of(stream: str, **options: Any) -> list[Any]:
    async with Consumer(stream, **QUICK, **options) as consumer:
        return await take_all(consumer)


def make_again(aws: LocalAws, stream: str) -> None:
    """Delete a stream, and make another one of its name, not in the same second."""
    kinesis = client(aws)

    def start() -> str:
        (shard,) = kinesis.list_shards(StreamName=stream)["Shards"]
        return str(shard["SequenceNumberRange"]["StartingSequenceNumber"])

    before = start()

    def is_another() -> bool:
        kinesis.delete_stream(StreamName=stream)
        kinesis.create_stream(StreamName=stream, ShardCount=1)
        return start() != before

    wait_until(is_another, "a stream of another second", step=0.3)
    put(aws, stream, numbered(1, 5))


def test_a_group_of_another_stream(own_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its positions would be passed, or its leases waited for, without a word."""
    for name, value in own_aws.environment.items():
        monkeypatch.setenv(name, value)
    group, stream = new_name(), make_stream(own_aws)
    put(own_aws, stream, numbered(1, 5))

    async def of(name: str) -> list[Any]:
        return await take_of(name, checkpointer=DynamoDBCheckPointer(group))

    assert len(asyncio.run(of(stream))) == 5
    make_again(own_aws, stream)
    with pytest.raises(AnotherStream, match=f"DynamoDBCheckPointer.'{group}"):
        asyncio.run(of(stream))
