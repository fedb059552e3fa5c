"""Rows of a shard for a table: slices of record batches, converted to a pa.Table on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final, Self

from fastkcl import Position, RecordBatch
from fastkcl.tables.base import WriteCancelledError

if TYPE_CHECKING:
    import pyarrow as pa

    from fastkcl.payloads.opened import Opened

__all__ = ["ShardRows"]

_FIRST_DAY: Final = date(1970, 1, 1)
_MICROSECONDS_A_DAY: Final = 86_400_000_000
_END: Final = ((date.max - _FIRST_DAY).days + 1) * _MICROSECONDS_A_DAY
"""The first time that has no day: of the year 10000."""


class ShardRows:
    """A contiguous run of a shard's records.

    Args:
        batches: in order; none of them empty.
        legacy: sub-sequence numbers do not exist: records after a position are those of larger sequence numbers.
        cancelled: whether the rows are not wanted any more; asked by the thread that writes them.
        opened: the same rows with their payloads opened, if they are to be.
    """

    def __init__(
        self,
        batches: Sequence[RecordBatch],
        *,
        legacy: bool,
        cancelled: Callable[[], bool] = lambda: False,
        opened: Opened | None = None,
    ) -> None:
        self._batches = tuple(batches)
        self._legacy = legacy
        self._cancelled = cancelled
        self._opened = opened

    @property
    def batches(self) -> tuple[RecordBatch, ...]:
        """The records, in order; no batch is empty."""
        return self._batches

    @property
    def num_rows(self) -> int:
        """Records, at least one."""
        return sum(len(batch) for batch in self._batches)

    @property
    def nbytes(self) -> int:
        """Bytes of the Arrow columns."""
        if self._opened is not None:
            return self._opened.nbytes
        return sum(batch.nbytes for batch in self._batches)

    @property
    def corrupt_payloads(self) -> int:
        """Payloads that could not be opened in this process; not those that Spark finds."""
        return 0 if self._opened is None else self._opened.corrupt

    @property
    def millis_behind_latest(self) -> int | None:
        """Of the last batch."""
        return self._batches[-1].millis_behind_latest

    @property
    def first_position(self) -> Position:
        """Of the first record."""
        return self._position(self._batches[0], 0)

    @property
    def last_position(self) -> Position:
        """Of the last record."""
        return self._position(self._batches[-1], len(self._batches[-1]) - 1)

    def table(self) -> pa.Table:
        """The records in the canonical schema, without a copy; or with their payloads opened."""
        if self._opened is not None:
            return self._opened.table
        import pyarrow as pa

        return pa.Table.from_batches([pa.record_batch(batch) for batch in self._batches])

    def after(self, position: Position) -> Self | None:
        """The records after a position, None if there are none.

        A position without a sub-sequence number, written in the legacy dialect, stands for its whole sequence number.
        """
        for index, batch in enumerate(self._batches):
            row = self._first_after(batch, position)
            if row < len(batch):
                rest = batch.slice(row) if row else batch
                rests = (rest, *self._batches[index + 1 :])
                opened = self._opened
                if opened is not None:
                    opened = opened.slice(opened.num_rows - sum(map(len, rests)))
                return type(self)(rests, legacy=self._legacy, cancelled=self._cancelled, opened=opened)
        return None

    def first(self, count: int) -> Self:
        """The first rows, at least one, and no more than there are."""
        batches, left = [], count
        for batch in self._batches:
            batches.append(batch if len(batch) <= left else batch.slice(0, left))
            left -= len(batches[-1])
            if not left:
                break
        opened = None if self._opened is None else self._opened.slice(0, count)
        return type(self)(batches, legacy=self._legacy, cancelled=self._cancelled, opened=opened)

    def newer_than(self, day: date) -> tuple[int, date] | None:
        """The first row that arrived on a later day (UTC), and that day; None if there is none.

        A time after the year 9999 counts as none.

        In the legacy dialect records of an aggregate are one record of the service, which has arrived once; they stay
        together whatever they say.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        end = ((day - _FIRST_DAY).days + 1) * _MICROSECONDS_A_DAY
        offset = 0
        for batch in self._batches:
            column = pa.record_batch(batch).column("approximateArrivalTimestamp").view(pa.int64())
            newest = pc.max(column).as_py()  # pa.scalar(end), to compare with, would import pandas
            if newest is not None and newest >= end:
                for row, value in enumerate(column):
                    time = value.as_py()
                    if time is not None and end <= time < _END:
                        later = _FIRST_DAY + timedelta(days=time // _MICROSECONDS_A_DAY)
                        return self._group_start(offset + row), later
            offset += len(batch)
        return None

    def _group_start(self, row: int) -> int:
        """The first of the rows that must stay together with one.

        In the legacy dialect the records of an aggregate have one sequence number; elsewhere each stands for itself.
        """
        start = 0
        for batch in self._batches:
            if row < start + len(batch):
                break
            start += len(batch)
        record = batch[row - start]
        if not self._legacy and record.sub_sequence_number is not None:
            return row
        while row and self._sequence_number(row - 1) == record.sequence_number:
            row -= 1
        return row

    def check_wanted(self) -> None:
        """Stop a write before its atomic step.

        Raises:
            WriteCancelledError: the rows are not wanted any more.
        """
        if self._cancelled():
            raise WriteCancelledError("the lease has gone; the shard's new owner writes these records")

    def _sequence_number(self, row: int) -> str:
        for batch in self._batches:
            if row < len(batch):
                return batch[row].sequence_number
            row -= len(batch)
        raise IndexError(row)

    def _first_after(self, batch: RecordBatch, position: Position) -> int:
        """Index of the first record after `position`; the records are in order."""
        low, high = 0, len(batch)
        while low < high:
            middle = (low + high) // 2
            if self._position(batch, middle, whole=position.sub_sequence_number is None) <= position:
                low = middle + 1
            else:
                high = middle
        return low

    def _position(self, batch: RecordBatch, row: int, *, whole: bool = False) -> Position:
        record = batch[row]
        return Position(record.sequence_number, None if self._legacy or whole else record.sub_sequence_number)
