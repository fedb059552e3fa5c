"""Tasks of the source, without Spark's JVM: how work is shared, and rows that travel with the plan."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from fastkcl import RecordBatch, _core
from fastkcl.kinesis.exceptions import StreamDoesNotExist
from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.read.plan import END, CallError, Head, Range
from fastkcl.kinesis.read.plan.driver import records_of
from fastkcl.kinesis.read.plan.planner import Part
from fastkcl.kinesis.service import ServiceError
from fastkcl.spark.source import schema, tasks
from fastkcl.spark.source.options import SourceOptions
from fastkcl.spark.source.schema import Rows
from fastkcl.spark.source.tasks import (
    MAX_INLINE,
    Partition,
    listed,
    packed,
    partitions_of,
    read_partition,
    retention_of,
)
from local_aws_helpers import SHARD_0

ALL = (0, 2**128 - 1)


def options(**given: str) -> SourceOptions:
    return SourceOptions.parse({"streamName": "orders", **given})


def part_of(*sizes: int, shard_id: str = SHARD_0) -> Part:
    """A part whose head has records of these sizes."""
    return part_with(*(b"xxx" * (size // 3) for size in sizes), shard_id=shard_id)


def part_with(*payloads: bytes, shard_id: str = SHARD_0) -> Part:
    """A part whose head has records with these payloads."""
    records = b",".join(
        b'{"SequenceNumber":"%d","ApproximateArrivalTimestamp":%d,"Data":"%s","PartitionKey":"k"}'
        % (number, number, base64.b64encode(payload))
        for number, payload in enumerate(payloads, 1)
    )
    answer = _core.decode_get_records(b'{"Records":[%s],"MillisBehindLatest":0}' % records, shard_id=shard_id)
    return Part("orders", shard_id, ALL, Head(records_of(answer), 0, len(payloads)), None, whole_of(shard_id))


def whole_of(shard_id: str) -> Range:
    return Range(stream="orders", shard_id=shard_id, first="1", end=END)


def bomb(kind: str) -> bytes:
    """A payload of some kB that becomes some MB."""
    if kind == "gzip":
        return gzip.compress(bytes(4 << 20))
    aggregate = _core.Aggregate()
    for _ in range(10_000):
        aggregate.add("k" * 256, b"", None)
    return aggregate.encode()


def ranges(*expected: int) -> list[Range]:
    return [
        Range(stream="s", shard_id=f"shardId-{n:012d}", first="1", end=END, expected=size)
        for n, size in enumerate(expected)
    ]


@pytest.mark.parametrize(
    ("expected", "per_task", "tasks"),
    [
        ((), None, []),
        ((1, 1, 1), None, [3]),
        ((20 << 20, 10 << 20, 5 << 20, 1), None, [2, 2]),
        ((100 << 20, 100 << 20), None, [1, 1]),
        ((1, 1, 1), 1, [1, 1, 1]),
        ((100 << 20,) * 5, 2, [2, 2, 1]),
    ],
)
def test_tasks_are_counted_by_bytes(expected: tuple[int, ...], per_task: int | None, tasks: list[int]) -> None:
    groups = packed(ranges(*expected), per_task)
    assert [len(group) for group in groups] == tasks
    assert [part for group in groups for part in group] == ranges(*expected)


@pytest.mark.parametrize("sizes", [(9,), (300,) * 5000, (MAX_INLINE * 3,), (400_000, 400_000, 400_000, 3)])
def test_rows_travel_in_pieces(sizes: tuple[int, ...]) -> None:
    rows = Rows(options())
    parts = [part_of(*sizes), part_of(3, 3, shard_id="shardId-000000000001")]
    made = partitions_of(parts, rows, {}, None, 64 << 20)
    read: list[pa.RecordBatch] = []
    for partition in made:
        assert partition.rows is not None
        batches = list(read_partition(pickle.loads(pickle.dumps(partition)), options(), rows))
        assert all(batch.schema.equals(rows.arrow) for batch in batches)
        table = pa.Table.from_batches(batches)
        assert len(partition.rows) <= 1_000_000 or table.num_rows == 1
        read += batches
    table = pa.Table.from_batches(read)
    by_shard = [(row["shardId"], row["sequenceNumber"], len(row["data"])) for row in table.to_pylist()]
    assert sorted(by_shard) == sorted(
        [
            *((SHARD_0, str(n), size // 3 * 3) for n, size in enumerate(sizes, 1)),
            *(("shardId-000000000001", str(n), 3) for n in (1, 2)),
        ]
    )
    assert set(table["stream"].to_pylist()) == {"orders"}


@pytest.mark.parametrize(("kind", "records"), [("aggregate", 1), ("aggregate", 8), ("gzip", 1), ("gzip", 8)])
def test_a_head_whose_rows_are_too_large_is_read_by_a_task(kind: str, records: int) -> None:
    given = options(compression="auto")
    rows = Rows(given)
    second = "shardId-000000000001"
    parts = [part_with(*[bomb(kind)] * records), part_of(3, 3, shard_id=second)]
    made = partitions_of(parts, rows, {}, None, 2 << 20)
    assert [partition.ranges for partition in made] == [(), (whole_of(SHARD_0),)]
    (batch,) = read_partition(made[0], given, rows)
    assert batch.column("shardId").to_pylist() == [second] * 2
    large = partitions_of(parts, rows, {}, None, 64 << 20)
    assert sum(len(partition.rows or b"") for partition in large) > records * (2 << 20)
    assert not any(partition.ranges for partition in large)


def test_the_driver_makes_no_more_rows_than_may_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    original = Rows._row_batch

    def counted(self: Rows, *args: Any) -> pa.RecordBatch:
        batch = original(self, *args)
        made.append(batch.nbytes)
        return batch

    monkeypatch.setattr(Rows, "_row_batch", counted)
    rows = Rows(options(compression="auto"))
    partitions_of([part_with(*[bomb("gzip")] * 64)], rows, {}, None, 6 << 20)
    assert sum(made) < 16 << 20


def test_an_aggregate_is_taken_apart_or_left() -> None:
    aggregate = _core.Aggregate()
    aggregate.add("a", b"1", None)
    aggregate.add("b", b"2", None)
    body = {
        "Records": [
            {
                "SequenceNumber": "7",
                "ApproximateArrivalTimestamp": 1,
                "Data": base64.b64encode(aggregate.encode()).decode(),
                "PartitionKey": "a",
            }
        ],
        "MillisBehindLatest": 0,
    }
    batch = _core.decode_get_records(json.dumps(body).encode(), shard_id=SHARD_0).batch
    (taken,) = Rows(options()).of(batch, "orders", SHARD_0, ALL)
    seen = taken.to_pylist()
    assert [(row["data"], row["partitionKey"], row["subSequenceNumber"]) for row in seen] == [
        (b"1", "a", 0),
        (b"2", "b", 1),
    ]
    (left,) = Rows(options(deaggregate="false")).of(batch, "orders", SHARD_0, ALL)
    assert left.num_rows == 1
    assert list(Rows(options()).of(batch, "orders", SHARD_0, (0, 5))) == []  # keys of another shard


def test_user_records_of_more_than_a_batch_come_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = part_of(*[30] * 64).head.records.content  # type: ignore[union-attr]
    assert isinstance(batch, RecordBatch)
    monkeypatch.setattr(schema, "MAX_USER_BYTES", 500)
    seen = [row["sequenceNumber"] for rows in Rows(options()).of(batch, "s", SHARD_0, ALL) for row in rows.to_pylist()]
    assert seen == [str(n) for n in range(1, 65)]


class Listing:
    """A service that fails as it is told, and then lists a shard."""

    def __init__(self, *failures: Failure) -> None:
        self.failures = list(failures)

    def json(self, operation: str, request: object) -> tuple[dict[str, object], None]:
        if self.failures:
            failure = self.failures.pop(0)
            raise ServiceError(f"{failure.value}, it says", failure, failure.value)
        hashes = {"StartingHashKey": "0", "EndingHashKey": "9"}
        shard = {"ShardId": SHARD_0, "HashKeyRange": hashes, "SequenceNumberRange": {"StartingSequenceNumber": "1"}}
        if operation == "DescribeStreamSummary":
            return {"StreamDescriptionSummary": {"RetentionPeriodHours": 168}}, None
        return {"Shards": [shard]}, None


def test_shards_are_listed_over_throttling_and_outages() -> None:
    service: Any = Listing(Failure.THROTTLED, Failure.UNAVAILABLE)
    assert list(listed(service, "orders", 60_000)) == [SHARD_0]


@pytest.mark.parametrize(
    ("failures", "kind", "said"),
    [
        ([Failure.DENIED], CallError, r"kinesis:ListShards on orders is denied \(denied, it says\)"),
        ([Failure.NOT_FOUND], StreamDoesNotExist, "there is no stream orders"),
        ([Failure.UNAVAILABLE] * 9, ConnectionError, "orders: .*; so for"),
    ],
)
def test_shards_that_cannot_be_listed(failures: list[Failure], kind: type[Exception], said: str) -> None:
    service: Any = Listing(*failures)
    with pytest.raises(kind, match=said):
        listed(service, "orders", 0)


@pytest.mark.parametrize(
    ("failures", "hours"),
    [([], 168), ([Failure.THROTTLED, Failure.UNAVAILABLE], 168), ([Failure.DENIED], None)],
)
def test_the_retention_of_a_replay_is_asked_for(failures: list[Failure], hours: int | None) -> None:
    service: Any = Listing(*failures)
    assert retention_of(service, "orders", 60_000) == (None if hours is None else hours * 3_600_000)


def test_outages_that_are_far_apart_end_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of a laptop that sleeps."""
    hours = iter(range(1, 100))
    monkeypatch.setattr(tasks.time, "monotonic_ns", lambda: next(hours) * 3_600 * 10**9)
    service: Any = Listing(*[Failure.UNAVAILABLE] * 3)
    assert list(listed(service, "orders", 200_000)) == [SHARD_0]


def test_a_task_without_ranges_calls_nobody() -> None:
    assert list(read_partition(Partition(), options(), Rows(options()))) == []
