"""A batch on its way to the program, one item after the other.

Rules: no I/O and no clock. A record is parsed when its turn comes. When the program asks for more, the record is
acknowledged, because all its items were handed out by then. A record that cannot be parsed stays the next one until it
is skipped; the records before it are acknowledged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, Protocol

from fastkcl._core import RecordBatch, payloads_from, record_metadata
from fastkcl.kinesis.checkpoints.base import Place
from fastkcl.kinesis.items.aggregators import BaseAggregator
from fastkcl.kinesis.read.fetch import ShardReader
from fastkcl.kinesis.read.positions import Handed
from fastkcl.kinesis.read.record_queue import Fetched

__all__ = [
    "EXHAUSTED",
    "PASSED",
    "BatchDelivery",
    "ConsumerRecord",
    "Delivery",
    "Exhausted",
    "ItemDelivery",
    "Partly",
    "RecordError",
]


class Exhausted(Enum):
    """There is no item: nothing more is in a delivery, or nothing was in as many records as were to be looked at."""

    EXHAUSTED = "exhausted"
    PASSED = "passed"


AHEAD_BYTES = 65_536
"""Payloads that are copied out of a batch at a time, unless one alone has more."""

EXHAUSTED: Final = Exhausted.EXHAUSTED
PASSED: Final = Exhausted.PASSED


class ConsumerRecord(NamedTuple):
    """An item with the metadata of its record.

    Attributes:
        data: the item; the record's bytes, where it could not be parsed.
        partition_key: the record's; of a user record of an aggregate its own.
        explicit_hash_key: of a user record that has one, decimal digits.
        sequence_number: decimal digits; user records have that of their aggregate.
        sub_sequence_number: of a user record its number in the aggregate; None if aggregates are not taken apart.
        approximate_arrival_timestamp: UTC, aware.
        shard_id: e.g. ``shardId-000000000000``.
        encryption_type: NONE or KMS; None where the service did not say.
        millis_behind_latest: of the answer that it was in.
    """

    data: Any
    partition_key: str
    explicit_hash_key: str | None
    sequence_number: str
    sub_sequence_number: int | None
    approximate_arrival_timestamp: datetime | None
    shard_id: str
    encryption_type: str | None
    millis_behind_latest: int | None


class Partly(NamedTuple):
    """A record of which not all items are acknowledged: it comes again with all of them.

    Attributes:
        sequence_number: of the record.
        items: that are acknowledged.
    """

    sequence_number: str
    items: int


class RecordError(Exception):
    """A record that cannot be parsed; its cause is the reason.

    Attributes:
        record: with its data as bytes.
    """

    def __init__(self, record: ConsumerRecord) -> None:
        super().__init__(f"{record.shard_id}: record {record.sequence_number} cannot be parsed")
        self.record = record


class Delivery(Protocol):
    """The batch that is being handed out."""

    fetched: Fetched[ShardReader]
    before: Handed | None
    """Up to where its shard was handed out before it."""

    def take(self, most_records: int = sys.maxsize) -> Any:  # noqa: ANN401 - items are of any type
        """The next item; `EXHAUSTED` at the end. It acknowledges the one before.

        Args:
            most_records: to look at; `PASSED` if nothing was in them.

        Raises:
            RecordError: the next record cannot be parsed.
        """

    def skip(self) -> None:
        """Leave out the record that could not be parsed."""

    @property
    def acknowledged(self) -> Handed | None:
        """The position up to which the program has finished it; None if it has finished nothing."""

    @property
    def partly(self) -> Partly | None:
        """The record of which an item is acknowledged, and another one is not."""

    @property
    def mark(self) -> int:
        """The argument of `done_until` for the position of `acknowledged`."""

    def done_until(self, mark: int) -> Handed | None:
        """The value of `acknowledged` when `mark` was this one."""


class BatchDelivery:
    """Hands out a batch as it is, if there is anything in it.

    Args:
        fetched: to hand out.
    """

    def __init__(self, fetched: Fetched[ShardReader]) -> None:
        self.fetched = fetched
        self.before: Handed | None = None
        self._given = not fetched.batch.num_rows
        self._done = False

    def take(self, most_records: int = sys.maxsize) -> RecordBatch | Exhausted:
        """The batch, once."""
        del most_records
        if self._given:
            self._done = True
            return EXHAUSTED
        self._given = True
        return self.fetched.batch.canonical()

    def skip(self) -> None:
        """A batch is not parsed."""

    @property
    def partly(self) -> Partly | None:
        """A batch is one item."""
        return None

    @property
    def acknowledged(self) -> Handed | None:
        """All or nothing."""
        return self.done_until(self._done)

    @property
    def mark(self) -> int:
        """1 when it is done with."""
        return self._done

    def done_until(self, mark: int) -> Handed | None:
        """All or nothing."""
        place = self.fetched.place
        return Handed(place, self.fetched.rows) if mark and place is not None else None


class ItemDelivery:
    """Hands out the items of a batch's records.

    Args:
        fetched: to hand out.
        processor: knows the items of a record.
        output: items as they are, or as `ConsumerRecord`.
        deaggregated: whether aggregates are taken apart already.
    """

    def __init__(
        self,
        fetched: Fetched[ShardReader],
        processor: BaseAggregator,
        output: Literal["items", "records"],
        *,
        deaggregated: bool,
    ) -> None:
        self.fetched = fetched
        self.before: Handed | None = None
        self._batch = fetched.batch
        self._rows = fetched.batch.num_rows
        self._shard_id = fetched.reader.shard_id
        self._millis_behind_latest = fetched.batch.millis_behind_latest
        self._row = 0  # the next one to parse
        self.mark = 0
        """Records that are acknowledged."""
        self._payloads: list[bytes] = []  # of the next rows, the last one first
        self._items: list[Any] = []  # of the row before it, the last one first
        self._several = (-1, 0)  # the last row of several items, and how many
        self._parse: Callable[[bytes], list[Any]] = processor.parse
        # User data that looks aggregated is not opened again.
        has_one_item = type(processor).parse is BaseAggregator.parse or (deaggregated and processor.deaggregates)
        self._deserialize: Callable[[bytes], Any] | None = processor.deserialize if has_one_item else None
        self._as_records = output == "records"

    def take(self, most_records: int = sys.maxsize) -> Any:  # noqa: ANN401
        """The next item."""
        deserialize = self._deserialize
        if deserialize is None:
            return self._take_of_several(most_records)
        row = self.mark = self._row
        payloads = self._payloads
        if not payloads:
            payloads = self._payloads = payloads_from(self._batch, row, AHEAD_BYTES)
            if not payloads:
                return EXHAUSTED
        try:
            item = deserialize(payloads[-1])
        except Exception as error:
            raise self._unreadable() from error
        if self._as_records:
            item = self._with_metadata(row, item)
        payloads.pop()
        self._row = row + 1
        return item

    def _take_of_several(self, most_records: int) -> Any:  # noqa: ANN401
        """The next item, where a record may have several, or none."""
        if self._items:
            return self._items.pop()
        end = self._row + most_records
        while True:
            row = self.mark = self._row
            if row == end and row < self._rows:
                return PASSED
            self._payloads = self._payloads or payloads_from(self._batch, row, AHEAD_BYTES)
            if not self._payloads:
                return EXHAUSTED
            try:
                items = self._parse(self._payloads[-1])
            except Exception as error:
                raise self._unreadable() from error
            if self._as_records:
                items = [self._with_metadata(row, item) for item in items]
            self._payloads.pop()
            self._row = row + 1
            if len(items) == 1:
                return items[0]
            if items:
                self._several = row, len(items)
                items.reverse()
                self._items = items
                return items.pop()

    def _unreadable(self) -> RecordError:
        """The next record cannot be parsed."""
        return RecordError(self._with_metadata(self._row, self._batch[self._row].data))

    def skip(self) -> None:
        """Leave out the record that could not be parsed."""
        self._payloads.pop()
        self._row += 1

    @property
    def last_row(self) -> int:
        """The row of the item that was taken last."""
        return self._row - 1

    @property
    def rows_handed_out(self) -> int:
        """Rows of which no item is left."""
        return self._row - bool(self._items)

    @property
    def partly(self) -> Partly | None:
        """The record of which an item is acknowledged, and another one is not."""
        row, count = self._several
        done = count - len(self._items) - 1  # the program is at the last one
        return Partly(self._batch[row].sequence_number, done) if row >= self.mark and done > 0 else None

    @property
    def acknowledged(self) -> Handed | None:
        """Up to the last record of which all items were taken, and more."""
        return self.done_until(self.mark)

    def done_until(self, mark: int) -> Handed | None:
        """The position after so many records."""
        left = self._rows - mark
        if not left:
            return None if self.fetched.place is None else Handed(self.fetched.place, self.fetched.rows)
        if not mark:
            return None
        last = self._batch[mark - 1]
        inside = self._batch[mark].sequence_number == last.sequence_number
        place = self.fetched.place
        with_sub = inside or (place is not None and place.sub_sequence_number is not None)
        sub = last.sub_sequence_number if with_sub else None
        return Handed(Place(last.sequence_number, sub), self.fetched.rows - left)

    def _with_metadata(self, row: int, data: object) -> ConsumerRecord:
        key, explicit_hash_key, sequence_number, sub_sequence_number, arrival, encryption_type = record_metadata(
            self._batch, row
        )
        return ConsumerRecord._make(
            (
                data,
                key,
                explicit_hash_key,
                sequence_number,
                sub_sequence_number,
                arrival,
                self._shard_id,
                encryption_type,
                self._millis_behind_latest,
            )
        )
