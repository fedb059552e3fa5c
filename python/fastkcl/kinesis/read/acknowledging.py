"""Records that a program works on at the same time, and acknowledges one by one, in any order.

    handed out      1 2 3 4 5 6 7 8
    acknowledged    1 2   4     7        ──▶ the position is 2: it moves over acknowledged records without gaps

So after a death all records after the first gap are delivered again. Open records are bounded in bytes, because an
answer counts against `max_queue_bytes` until all of it is acknowledged. `ack_timeout` bounds them in time.

Rules: no I/O; a clock measures how long a record has been open. A record without items counts as acknowledged when the
reader passes it. A second acknowledgement changes nothing, nor does one for a shard that was lost in the meantime.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, Protocol

from fastkcl.kinesis.exceptions import UnacknowledgedError
from fastkcl.kinesis.read.delivery import ConsumerRecord, Exhausted, ItemDelivery, Partly
from fastkcl.kinesis.read.fetch import ShardReader
from fastkcl.kinesis.read.positions import Handed

__all__ = ["AckDelivery", "AckRecord", "Acknowledgements", "Overdue"]


class _Consumer(Protocol):
    async def _done(self, record: AckRecord) -> None:
        """Acknowledge a record, and write the position if that moves it."""


class AckRecord(ConsumerRecord):
    """A record that the program acknowledges itself, with `done` or with the consumer's `ack`."""

    consumer: _Consumer
    delivery: AckDelivery
    row: int
    number: int
    is_done: bool = False

    async def done(self) -> None:
        """Acknowledge it, and write the position if an answer is done with by that. Again, nothing happens.

        With `checkpoint_interval` the position is written by the clock.

        Raises:
            RuntimeError: the consumer is closed: the record comes again.
            Exception: the position could not be written; it is tried again with the next one.
        """
        await self.consumer._done(self)


@dataclass(slots=True)
class _OpenRow:
    """A row of which items are not acknowledged, or not handed out."""

    handed_out: int = 0
    since: dict[int, float] = field(default_factory=dict)
    """When each item that is not acknowledged was handed out, by its number in the row."""


class Overdue(NamedTuple):
    """The oldest record that is open.

    Attributes:
        shard_id: of the record.
        sequence_number: of the record.
        since: when its first item that is open was handed out.
    """

    shard_id: str
    sequence_number: str
    since: float


class AckDelivery:
    """Hands out the items of a batch, and waits until each is acknowledged.

    Args:
        items: hands them out, as `ConsumerRecord`.
        consumer: whose they are.
        clock: for the time at which each was handed out.
    """

    def __init__(self, items: ItemDelivery, consumer: _Consumer, clock: Callable[[], float]) -> None:
        self.fetched = items.fetched
        self._items = items
        self._consumer = consumer
        self._clock = clock
        self._open: OrderedDict[int, _OpenRow] = OrderedDict()

    def take(self, most_records: int = sys.maxsize) -> Any:  # noqa: ANN401 - items are of any type
        """See `Delivery`; it acknowledges nothing."""
        item = self._items.take(most_records)
        if isinstance(item, Exhausted):
            return item
        row = self._items.last_row
        opened = self._open.setdefault(row, _OpenRow())
        opened.since[opened.handed_out] = self._clock()
        record = AckRecord(*item)
        record.consumer, record.delivery, record.row, record.number = self._consumer, self, row, opened.handed_out
        opened.handed_out += 1
        return record

    def skip(self) -> None:
        """Leave out the record that could not be parsed."""
        self._items.skip()

    def acknowledge(self, record: AckRecord) -> None:
        """One item of a row is done with."""
        if record.is_done:
            return
        record.is_done = True
        row = self._open[record.row]
        del row.since[record.number]
        if not row.since and record.row < self._items.rows_handed_out:
            del self._open[record.row]

    @property
    def acknowledged(self) -> Handed | None:
        """Up to the first record that is open."""
        return self._items.done_until(next(iter(self._open), self._items.rows_handed_out))

    @property
    def partly(self) -> Partly | None:
        """The first record of which an item is acknowledged, and another one is not."""
        for row, opened in self._open.items():
            if done := opened.handed_out - len(opened.since):
                return Partly(self.fetched.batch[row].sequence_number, done)
        return None

    @property
    def is_finished(self) -> bool:
        """Whether all of it was handed out and acknowledged."""
        return not self._open and self._items.rows_handed_out == self.fetched.batch.num_rows

    @property
    def oldest(self) -> Overdue | None:
        """The record with the item that is open and was handed out first."""
        for row, opened in self._open.items():
            for since in opened.since.values():
                return Overdue(self.fetched.reader.shard_id, self.fetched.batch[row].sequence_number, since)
        return None


class Acknowledgements:
    """Open records of all shards."""

    def __init__(self) -> None:
        self._deliveries: dict[ShardReader, deque[AckDelivery]] = {}

    def begin(self, delivery: AckDelivery) -> None:
        """A batch is handed out."""
        self._deliveries.setdefault(delivery.fetched.reader, deque()).append(delivery)

    def move(self, reader: ShardReader) -> Handed | None:
        """Let go of the batches that are finished; up to where the shard is acknowledged, if it has moved."""
        handed = self.until(reader)
        deliveries = self._deliveries.get(reader)
        while deliveries and deliveries[0].is_finished:
            deliveries.popleft().fetched.release()
        if not deliveries:
            self._deliveries.pop(reader, None)
        return handed

    def until(self, reader: ShardReader) -> Handed | None:
        """Up to where the shard is acknowledged, if it has moved."""
        handed: Handed | None = None
        for delivery in self._deliveries.get(reader, ()):
            handed = delivery.acknowledged or handed
            if not delivery.is_finished:
                break
        return handed

    @property
    def until_all(self) -> dict[str, Handed]:
        """Up to where the shards are acknowledged that have moved."""
        found = {reader.shard_id: self.until(reader) for reader in self._deliveries}
        return {shard_id: handed for shard_id, handed in found.items() if handed is not None}

    @property
    def deliveries(self) -> Iterator[AckDelivery]:
        """Those of which something is open."""
        return chain.from_iterable(self._deliveries.values())

    @property
    def readers(self) -> list[ShardReader]:
        """Of the shards of which something is open."""
        return list(self._deliveries)

    def is_open(self, reader: ShardReader) -> bool:
        """Whether something of a shard is not acknowledged."""
        return reader in self._deliveries

    def drop(self, reader: ShardReader) -> None:
        """The shard is no longer ours."""
        for delivery in self._deliveries.pop(reader, ()):
            delivery.fetched.release()

    @property
    def oldest(self) -> Overdue | None:
        """The record that is open for the longest time."""
        heads = [deliveries[0].oldest for deliveries in self._deliveries.values()]
        return min(filter(None, heads), key=lambda head: head.since, default=None)

    def check_overdue(self, timeout: float, now: float) -> float | None:
        """Seconds until the oldest record has been open for so long; None if none is open.

        Args:
            timeout: so long, in seconds.
            now: the time.

        Raises:
            UnacknowledgedError: it has.
        """
        oldest = self.oldest
        if oldest is None:
            return None
        left = oldest.since + timeout - now
        if left <= 0:
            raise UnacknowledgedError(
                f"{oldest.shard_id}: record {oldest.sequence_number} is not acknowledged after the {timeout:g} s of "
                "ack_timeout: the position stays before it. Acknowledge each record, also those that fail, or close "
                "the consumer: then it comes again"
            )
        return left
