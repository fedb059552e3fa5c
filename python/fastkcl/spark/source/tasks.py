"""The rows of a task: those that came with the plan, and those in ranges of shards, in order.

    Plan ──▶ partitions_of ──▶ Partition: rows (Arrow IPC), ranges ──▶ a Python worker ──▶ read_partition ──▶ batches

Tasks are counted by the bytes that they have to read, as each costs 0.07 s of processor time by itself. A partition has
rows of heads or ranges.

Rules: a partition holds no client and no secret. Its rows are the same at each attempt.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from fastkcl._core import RecordBatch
from fastkcl.backoff import Backoff
from fastkcl.kinesis.access import Access
from fastkcl.kinesis.exceptions import StreamDoesNotExist
from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.read.plan import CallError, Range, RangeReader, TimeRange, TimeRangeReader
from fastkcl.kinesis.read.plan.calls import Answer, Described, DescribeStream, ListShards
from fastkcl.kinesis.read.plan.driver import make_call, read_ahead, read_range
from fastkcl.kinesis.service import Service, ServiceError
from fastkcl.kinesis.topology import Shard
from fastkcl.outage import Outage
from fastkcl.spark.frame import trimmed
from fastkcl.spark.source.options import SourceOptions
from fastkcl.spark.source.schema import Rows

if TYPE_CHECKING:
    import pyarrow as pa

    from fastkcl.kinesis.read.plan.planner import Part

__all__ = [
    "Partition",
    "TaskPartition",
    "listed",
    "packed",
    "partitions_of",
    "read_partition",
    "retention_of",
    "service_of",
]

log = logging.getLogger("fastkcl.spark.source")

MAX_INLINE: Final = 900_000
"""Bytes of rows in a partition: Spark warns of tasks above 1,000 KiB."""
TASK_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Partition:
    """A task.

    Attributes:
        rows: an Arrow IPC stream, or None.
        ranges: which are read after them.
        retention: of each stream, in ms, where it is known.
        planned: when the batch was, in ms since the epoch; None if it is of `spark.read`.
    """

    rows: bytes | None = None
    ranges: tuple[Range | TimeRange, ...] = ()
    retention: dict[str, int] = field(default_factory=dict)
    planned: int | None = None


class TaskPartition(InputPartition):
    """A task, as Spark carries it."""

    def __init__(self, partition: Partition) -> None:
        super().__init__(None)
        self.partition = partition


def partitions_of(
    parts: Sequence[Part],
    rows: Rows,
    retention: dict[str, int],
    shards_per_task: int | None,
    max_bytes: int,
    planned: int | None = None,
) -> list[Partition]:
    """The tasks of a plan.

    Args:
        parts: of it.
        rows: how records become rows.
        retention: of the streams, in ms.
        shards_per_task: ranges of a task; None to count by bytes.
        max_bytes: of rows that travel: aggregates and packed payloads can become a thousand times as large. A head with
            more is read by a task.
        planned: when the plan was made, in ms since the epoch.
    """
    inline, ranges = _inline(parts, rows, max_bytes)
    return [
        *(Partition(rows=data) for data in inline),
        *(Partition(ranges=group, retention=retention, planned=planned) for group in packed(ranges, shards_per_task)),
    ]


def packed(ranges: Sequence[Range | TimeRange], shards_per_task: int | None) -> list[tuple[Range | TimeRange, ...]]:
    """Ranges by tasks: so many of them, or as many as have some 32 MB together."""
    groups: list[list[Range | TimeRange]] = []
    size = 0
    for part in ranges:
        by_count = shards_per_task is not None and bool(groups) and len(groups[-1]) >= shards_per_task
        by_bytes = shards_per_task is None and size + part.expected > TASK_BYTES
        if not groups or by_count or by_bytes:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += part.expected
    return [tuple(group) for group in groups]


def _inline(parts: Sequence[Part], rows: Rows, max_bytes: int) -> tuple[list[bytes], list[Range | TimeRange]]:
    """The rows of the heads, in pieces that a partition may have; and the ranges that are left."""
    pieces: list[pa.RecordBatch] = []
    ranges: list[Range | TimeRange] = []
    for part in parts:
        made = _rows_of_head(part, rows, max_bytes)
        if made is None:
            assert part.whole is not None
            ranges.append(part.whole)
            continue
        if part.range is not None:
            ranges.append(part.range)
        for batch in made:
            pieces += _pieces(batch)
            max_bytes -= batch.nbytes
    return list(_packed_rows(pieces, rows)), ranges


def _rows_of_head(part: Part, rows: Rows, max_bytes: int) -> list[pa.RecordBatch] | None:
    """The rows of a head; None if they are more than `max_bytes`, of which no more than that are made."""
    if part.head is None:
        return []
    batch = part.head.records.content
    assert isinstance(batch, RecordBatch)
    head = batch.slice(part.head.begin, len(part.head))
    found: list[pa.RecordBatch] = []
    size = 0
    try:
        for made in rows.of(head, part.stream, part.shard_id, part.hash_range, max_bytes=max(1, max_bytes)):
            size += made.nbytes
            if size > max_bytes:
                return None
            found.append(made)
    except OverflowError:  # one aggregate has more
        return None
    return found


def _packed_rows(pieces: Sequence[pa.RecordBatch], rows: Rows) -> Iterator[bytes]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for piece in pieces:
        if waiting and size + piece.nbytes > MAX_INLINE:
            yield _to_ipc(waiting, rows.arrow)
            waiting, size = [], 0
        waiting.append(piece)
        size += piece.nbytes
    if waiting:
        yield _to_ipc(waiting, rows.arrow)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of at most `MAX_INLINE` bytes; one row may have more."""
    if batch.nbytes <= MAX_INLINE or batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _to_ipc(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> bytes:
    import pyarrow as pa

    table = trimmed(pa.Table.from_batches(batches, schema)).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table)
    return bytes(memoryview(sink.getvalue()))


def read_partition(partition: Partition, options: SourceOptions, rows: Rows) -> Iterator[pa.RecordBatch]:
    """The rows of a task.

    Raises:
        DataLossError: records of it are gone, and the options have that as an error.
        CallError: a permission is missing, or a range does not come to its end.
        ConnectionError: the service was away for too long.
    """
    import pyarrow as pa

    if partition.rows is not None:
        with pa.ipc.open_stream(partition.rows) as reader:
            yield from reader
    if not partition.ranges:
        return

    def read(part: Range | TimeRange, stopped: Callable[[], bool]) -> Iterator[RecordBatch]:
        reader = _reader(part, options, partition)
        yield from read_range(reader, service_of(options.access_of(part.stream)), stopped)
        for line in reader.warnings:
            log.warning("%s", line)

    for part, batch in read_ahead(partition.ranges, read):
        yield from rows.of(batch, part.stream, part.shard_id, part.hash_range)


def _reader(part: Range | TimeRange, options: SourceOptions, task: Partition) -> RangeReader | TimeRangeReader:
    settings: dict[str, Any] = {
        "retention": task.retention.get(part.stream),
        "planned": task.planned,
        "fail_on_data_loss": options["failOnDataLoss"],
        "limit": options["maxRecordsPerFetch"],
        "max_outage": options["maxOutage"],
    }
    return RangeReader(part, **settings) if isinstance(part, Range) else TimeRangeReader(part, **settings)


_lock = threading.Lock()
_services: dict[tuple[int, Access], Service] = {}


def service_of(access: Access) -> Service:
    """The service that a process calls: one for all of its tasks, so that connections are kept."""
    key = os.getpid(), access
    with _lock:
        if key not in _services:
            for other in [other for other in _services if other[0] != key[0]]:
                del _services[other]  # of the process that was forked
            _services[key] = Service(access)
        return _services[key]


def listed(service: Service, stream: str, max_outage: int) -> dict[str, Shard]:
    """The shards of a stream, by their ids.

    Args:
        service: of the stream.
        stream: its name or ARN.
        max_outage: ms for which the service may be away.

    Raises:
        StreamDoesNotExist: there is no such stream.
        CallError: a permission is missing.
        ConnectionError: the service was away for too long.
    """
    try:
        shards = _asked(service, ListShards(stream), max_outage)
    except ServiceError as error:
        if error.failure is Failure.NOT_FOUND:
            raise StreamDoesNotExist(f"there is no stream {stream}: {error}") from error
        raise CallError.of("ListShards", stream, stream, error.failure, error) from error
    return {shard.shard_id: shard for shard in shards if isinstance(shard, Shard)}  # type: ignore[union-attr]


def retention_of(service: Service, stream: str, max_outage: int) -> int | None:
    """How long a stream keeps records, in ms; None if that may not be asked.

    Raises:
        ConnectionError: the service was away for too long.
    """
    try:
        described = _asked(service, DescribeStream(stream), max_outage)
    except ServiceError as error:
        log.warning("%s: the retention is taken as 24 h: %s", stream, error)
        return None
    assert isinstance(described, Described)
    return described.retention


def _asked(service: Service, call: ListShards | DescribeStream, max_outage: int) -> Answer:
    """The answer to a call, however long the service throttles it.

    Raises:
        ServiceError: nothing mends it.
        ConnectionError: the service was away for too long.
    """
    backoff, outage = Backoff(), Outage()
    while True:
        try:
            return make_call(service, call)[0]
        except ServiceError as error:
            match error.failure:
                case Failure.THROTTLED:
                    outage.ended()
                case Failure.UNAVAILABLE:
                    away = outage.failed(time.monotonic_ns() // 1_000_000)
                    if away > max_outage:
                        raise ConnectionError(f"{call.stream}: {error}; so for {away / 1000:.0f} s") from error
                case _:
                    raise
            time.sleep(backoff.next())
