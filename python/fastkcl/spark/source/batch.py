"""A stream as `spark.read` sees it: the records of a time that is over.

    partitions ──▶ ListShards ──▶ a range of time for each shard ──▶ tasks ──▶ read

Rules: a time is near some record only, so each shard begins near `startingTimestamp` and ends before the first record
that has arrived after `endingTimestamp`. Whoever needs it exact filters on the column.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from fastkcl.kinesis.read.plan import TRIM, Position, TimeRange
from fastkcl.spark.source.options import OptionError, SourceOptions
from fastkcl.spark.source.schema import Rows
from fastkcl.spark.source.tasks import (
    TASK_BYTES,
    Partition,
    TaskPartition,
    listed,
    packed,
    read_partition,
    retention_of,
    service_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KinesisBatchReader"]


class KinesisBatchReader(DataSourceReader):
    """Reads the records of a time.

    Args:
        options: of the query.
        rows: how records become rows.
    """

    def __init__(self, options: SourceOptions, rows: Rows) -> None:
        self._options = options
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        """A range of time for each shard, by tasks.

        Raises:
            OptionError: the time ends before it begins.
            Exception: those of `listed`.
        """
        start, until = self._options["startingTimestamp"], self._options["endingTimestamp"]
        now = int(time.time() * 1000)
        until = now if until is None else min(until, now)
        if start is not None and start > until:
            raise OptionError(f"startingTimestamp is later than the end, which is {until} ms since the epoch")
        ranges = [
            TimeRange(
                stream=name,
                shard_id=shard.shard_id,
                start=TRIM if start is None else Position.since(start),
                until=until,
                hash_range=shard.hash_range,
                expected=TASK_BYTES if start is None else 1000 * (until - start),
            )
            for name in self._options.streams
            for shard in listed(service_of(self._options.access_of(name)), name, self._options["maxOutage"]).values()
        ]
        groups = packed(ranges, self._options["shardsPerTask"])
        retention = {name: keeps for name in self._options.streams if (keeps := self._retention(name)) is not None}
        return [TaskPartition(Partition(ranges=group, retention=retention)) for group in groups]

    def _retention(self, name: str) -> int | None:
        return retention_of(service_of(self._options.access_of(name)), name, self._options["maxOutage"])

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        if not isinstance(partition, TaskPartition):
            return iter(())  # Spark makes one of no partitions
        return read_partition(partition.partition, self._options, self._rows)
