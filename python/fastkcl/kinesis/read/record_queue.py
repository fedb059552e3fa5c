"""Records on their way from the shards to the program: bounded, in order.

Rules: for one event loop. An entry names the reader of its shard; the queue does not use it. Room is counted in records
here, and in bytes by `fastkcl.kinesis.read.budget`. If there is any room, an entry may exceed it; so an empty queue
takes every entry. An entry that is taken out makes room at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from fastkcl._core import RecordBatch
from fastkcl.kinesis.checkpoints.base import Place
from fastkcl.kinesis.read.budget import Reservation

__all__ = ["Entry", "Failed", "Fetched", "RecordQueue", "ShardEnded", "ShardLost"]

Reader = TypeVar("Reader")


class Fetched(NamedTuple, Generic[Reader]):
    """Records of a shard.

    Attributes:
        reader: of the shard.
        batch: whole records: no aggregate goes on in the next entry. It can be empty, where aggregates were dropped.
        place: the last record of the shard that is done with when these are.
        rows: records that were queued of the shard, these included.
        held: the memory of the answer that they came in.
    """

    reader: Reader
    batch: RecordBatch
    place: Place | None
    rows: int
    held: Reservation | None = None

    def release(self) -> None:
        """The program is done with them, or nobody is to have them; once."""
        if self.held is not None:
            self.held.release()


class ShardEnded(NamedTuple, Generic[Reader]):
    """The shard was read to its end, and all its records were queued before."""

    reader: Reader


class ShardLost(NamedTuple, Generic[Reader]):
    """The shard is another consumer's, and so are its queued records."""

    reader: Reader


class Failed(NamedTuple, Generic[Reader]):
    """An error for the program: reading a shard has stopped; or, without one, looking for shards, or writing."""

    reader: Reader | None
    error: Exception


Entry = Fetched[Reader] | ShardEnded[Reader] | ShardLost[Reader] | Failed[Reader]


class RecordQueue(Generic[Reader]):
    """A queue that is full from `max_rows` records on.

    Args:
        max_rows: 1 or more.
        max_bytes: from so many bytes of records on nothing is fetched for it, either; None for any number.
    """

    def __init__(self, max_rows: int, max_bytes: Callable[[], int] | None = None) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: deque[Entry[Reader]] = deque()
        self._rows = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._putters: deque[asyncio.Future[None]] = deque()
        self._has_entries = asyncio.Event()
        self._is_closed = False

    @property
    def rows(self) -> int:
        """Records in it."""
        return self._rows

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it."""
        return not self._entries

    @property
    def room(self) -> int:
        """Records that still fit."""
        return max(0, self._max_rows - self._rows)

    def put(self, entry: Entry[Reader]) -> None:
        """Add an entry, whether there is room or not."""
        self._entries.append(entry)
        self._has_entries.set()
        if isinstance(entry, Fetched):
            self._change(entry.batch.num_rows, entry.batch.nbytes)

    def take(self) -> Entry[Reader] | None:
        """The first entry; None if there is none."""
        entry = self._entries.popleft() if self._entries else None
        if not self._entries and not self._is_closed:
            self._has_entries.clear()
        if isinstance(entry, Fetched):
            self._change(-entry.batch.num_rows, -entry.batch.nbytes)
        return entry

    def take_failures(self, like: tuple[type[Exception], ...]) -> list[Failed[Reader]]:
        """Take out the failures with errors of these types."""
        failures: list[Failed[Reader]] = []
        entries, self._entries = self._entries, deque()
        for entry in entries:
            if isinstance(entry, Failed) and isinstance(entry.error, like):
                failures.append(entry)
            else:
                self._entries.append(entry)
        return failures

    def _change(self, rows: int, size: int) -> None:
        self._rows += rows
        self._bytes += size
        is_heavy = self._max_bytes is not None and self._bytes >= max(1, self._max_bytes())
        if self._rows >= self._max_rows or is_heavy:
            self._has_room.clear()
        else:
            self._has_room.set()
        if self._rows < self._max_rows:
            self._wake_putter()

    def clear(self) -> None:
        """Let go of everything in it: nobody is to have it."""
        while (entry := self.take()) is not None:
            if isinstance(entry, Fetched):
                entry.release()

    def wake(self) -> None:
        """Wake the tasks that wait for entries, once."""
        self._has_entries.set()

    def close(self) -> None:
        """End all waits for entries, now and later."""
        self._is_closed = True
        self._has_entries.set()

    async def wait_for_entries(self) -> None:
        """Wait until there is an entry, or the queue is closed."""
        await self._has_entries.wait()

    async def wait_for_room(self) -> None:
        """Wait until there is room, for nothing in particular."""
        await self._has_room.wait()

    async def wait_to_put(self) -> None:
        """Wait until there is room for records that are there already; who waits longest gets it.

        One at a time is woken: of some hundred shards all but one would find the queue full again.
        """
        add = self._putters.append
        while not self.room:
            putter = asyncio.get_running_loop().create_future()
            add(putter)
            add = self._putters.appendleft  # somebody was quicker: still the first
            try:
                await putter
            except asyncio.CancelledError:
                putter.cancel()
                if self.room:  # it may have been this one's turn
                    self._wake_putter()
                raise

    def _wake_putter(self) -> None:
        while self._putters:
            putter = self._putters.popleft()
            if not putter.done():
                putter.set_result(None)
                return
