"""Rows of a shard as a sink takes them: slices of record batches, a DataFrame when it is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastkcl import Position, RecordBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ShardRows"]


class ShardRows:
    """A contiguous run of a shard's records.

    Args:
        batches: in order; none of them empty.
        legacy: sub-sequence numbers do not exist: records behind a position are those of larger sequence numbers.
    """

    def __init__(self, batches: Sequence[RecordBatch], *, legacy: bool) -> None:
        self._batches = tuple(batches)
        self._legacy = legacy

    @property
    def num_rows(self) -> int:
        """Records, at least one."""
        return sum(len(batch) for batch in self._batches)

    @property
    def last_position(self) -> Position:
        """Of the last record."""
        return self._position(self._batches[-1], len(self._batches[-1]) - 1)

    def data_frame(self, session: SparkSession) -> DataFrame:
        """The records in the canonical schema, without a copy up to the pa.Table."""
        import pyarrow as pa

        from fastkcl.spark.schema import SCHEMA

        table = pa.Table.from_batches([pa.record_batch(batch) for batch in self._batches])
        return session.createDataFrame(table, schema=SCHEMA)

    def behind(self, position: Position) -> ShardRows | None:
        """The records behind a position, None if there are none."""
        for index, batch in enumerate(self._batches):
            row = self._first_behind(batch, position)
            if row < len(batch):
                rest = batch.slice(row) if row else batch
                return ShardRows((rest, *self._batches[index + 1 :]), legacy=self._legacy)
        return None

    def _first_behind(self, batch: RecordBatch, position: Position) -> int:
        """Index of the first record behind `position`; the records are in order."""
        low, high = 0, len(batch)
        while low < high:
            middle = (low + high) // 2
            if self._position(batch, middle) <= position:
                low = middle + 1
            else:
                high = middle
        return low

    def _position(self, batch: RecordBatch, row: int) -> Position:
        record = batch[row]
        return Position(record.sequence_number, None if self._legacy else record.sub_sequence_number)
