"""Bounds the memory of all shards of a stream together, and chooses how many records a call asks for.

    CallSizes.plan ──▶ reserve ──▶ GetRecords ──▶ grow: the answer's length ──▶ body, batch ──▶ settle: the batch
                          ▲                                                                          │
                          └───────────── room ◀── release: the program has finished the batch ◀──────┘

A reservation covers all memory of an answer, from the call to the last record that the program has finished: first its
body and its columns, then the columns alone. The headers give the length of a body
before it is read. If the body is longer than the reservation, the call waits there and reads nothing.

Rules: no I/O and no clock; for one event loop. Requests get room in their order, but those that already hold some come
first. A request above the whole budget is granted when nothing else is held. So the held memory exceeds the budget by
at most one answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Self

__all__ = ["MAX_QUEUE_BYTES", "READ_AHEAD", "ByteBudget", "CallPlan", "CallSizes", "Reservation"]

MAX_QUEUE_BYTES = 64 << 20
"""The default bound of all shards together."""

READ_AHEAD = 64 << 10
"""Bytes of an answer that a connection should hold before somebody looks at it."""
SMALLEST_RESERVATION = 2 * READ_AHEAD + (256 << 10)
"""Of a call whatever it may bring. aiohttp stops when it holds more than twice what it should, and the event loop gives
it up to 256 KiB at a time."""
FEWEST_SHARES, MOST_SHARES = 2, 16
"""An answer may take up to this part of the budget. With more shares than 16 calls would become too small."""
MEMORY_OF_BODY = 2.5
"""Body and columns, by the body: base64 is a third longer than the data, and a column may have half of it to spare."""
MEMORY_OF_AGGREGATES = 3.5
"""The same with the columns of the user records, which as a rule take no more than those that they were in."""


class ByteBudget:
    """Bytes that all shards of a stream may hold together.

    Args:
        max_bytes: 1 or more.
        shards: how many share it now.
    """

    def __init__(self, max_bytes: int, shards: Callable[[], int] = lambda: 1) -> None:
        self.max_bytes = max_bytes
        self._shards = shards
        self._used = 0
        self._growing: deque[_Waiting] = deque()
        self._waiting: deque[_Waiting] = deque()

    @property
    def used(self) -> int:
        """Bytes that are reserved."""
        return self._used

    @property
    def share(self) -> int:
        """Bytes that one answer should take at the most."""
        return self.max_bytes // min(max(self._shards(), FEWEST_SHARES), MOST_SHARES)

    @property
    def is_waited_for(self) -> bool:
        """Whether a call cannot be made, or an answer not be read, until somebody releases something."""
        return bool(self._growing or self._waiting)

    async def reserve(self, size: int) -> Reservation:
        """Wait for room, and take it."""
        reservation = Reservation(self)
        await self._admit(self._waiting, reservation, size)
        return reservation

    async def _admit(self, queue: deque[_Waiting], reservation: Reservation, size: int) -> None:
        before = reservation.size
        waiting = _Waiting(reservation, size - before, asyncio.get_running_loop().create_future())
        queue.append(waiting)
        self._let_in()
        try:
            await waiting.admitted
        except asyncio.CancelledError:
            if waiting.admitted.cancelled():
                queue.remove(waiting)
                self._let_in()
            else:  # the room came first
                reservation.settle(before)
            raise

    def _let_in(self) -> None:
        """Give room to those that wait, as far as there is any."""
        while queue := self._growing or self._waiting:
            first = queue[0]
            if first.admitted.cancelled():
                return  # its task removes it, and comes here again
            held_by_waiting = sum(waiting.reservation.size for waiting in self._growing)
            if self._used + first.more > self.max_bytes and self._used > held_by_waiting:
                return
            queue.popleft()
            self._change(first.reservation, first.more)
            first.admitted.set_result(None)

    def _change(self, reservation: Reservation, more: int) -> None:
        reservation.size += more
        self._used += more


class Reservation:
    """Bytes of a budget that one answer takes. The pieces in which the program gets the answer share it.

    Attributes:
        size: bytes; 0 when nobody holds it any more.
    """

    __slots__ = ("_budget", "_holders", "size")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._holders = 1
        self.size = 0

    async def grow(self, size: int) -> None:
        """Wait until it may have so many bytes; nothing happens if it has them."""
        if size > self.size:
            await self._budget._admit(self._budget._growing, self, size)

    def settle(self, size: int) -> None:
        """It turned out to take so many bytes; more are not waited for, as they are in memory already."""
        self._budget._change(self, size - self.size)
        self._budget._let_in()

    def share(self) -> Self:
        """The same for one holder more."""
        self._holders += 1
        return self

    def release(self) -> None:
        """Release it; the last holder returns its bytes."""
        self._holders -= 1
        if not self._holders:
            self.settle(0)


class _Waiting(NamedTuple):
    """A reservation that waits for so many bytes more."""

    reservation: Reservation
    more: int
    admitted: asyncio.Future[None]


class CallPlan(NamedTuple):
    """How to call.

    Attributes:
        limit: records to ask for.
        reserve: bytes.
    """

    limit: int
    reserve: int


class CallSizes:
    """How many records to ask a shard for, by those that it gave before.

    Sizes that grow count at once, those that shrink by half.

    Args:
        stream: of all shards: the size of a shard's records while the shard has shown none.
        aggregates: whether aggregates are taken apart.
    """

    def __init__(self, stream: CallSizes | None = None, *, aggregates: bool = False) -> None:
        self._stream = stream
        self._least_memory = MEMORY_OF_AGGREGATES if aggregates else MEMORY_OF_BODY
        self._memory = self._least_memory  # by the body
        self._record: float | None = None  # bytes of the body
        self._last: int | None = None  # bytes of the last body
        self._next_alone = False

    def memory(self, body: int) -> int:
        """The bytes of an answer whose body has so many bytes."""
        return self._answer(body) + SMALLEST_RESERVATION

    def _answer(self, body: int) -> int:
        return int(body * self._memory)

    def is_too_many(self, limit: int, body: int, max_bytes: int) -> bool:
        """Whether an answer to a call for so many records is to be asked for anew, record by record.

        It has more than one, as far as anybody knows, and takes more than there can ever be.
        """
        self._next_alone = limit > 1 and self._answer(body) > max_bytes
        return self._next_alone

    def plan(self, record_limit: int, share: int) -> CallPlan:
        """The next call.

        Args:
            record_limit: records at the most.
            share: bytes that the answer should take at the most.
        """
        record = self._record
        if record is None and self._stream is not None:
            record = self._stream._record
        limit = record_limit if record is None else min(record_limit, max(1, int(share / (record * self._memory))))
        if self._next_alone:
            limit = 1
        return CallPlan(limit, share if self._last is None else self.memory(self._last))

    def answered(self, records: int, body: int, memory: int = 0) -> None:
        """Note an answer.

        Args:
            records: of it, as they came.
            body: its bytes.
            memory: the most bytes that it took, its body included.
        """
        if not records:
            self._last = 0
            return
        self._last = body
        self._memory = max(self._least_memory, _grown(self._memory, (memory - SMALLEST_RESERVATION) / body))
        self._record = _grown(self._record, body / records)
        if self._stream is not None:
            self._stream.answered(records, body)

    def expanded(self) -> None:
        """Note an answer whose aggregates take too much together: the next call asks for one record."""
        self._next_alone = True

    def refused(self, body: int) -> None:
        """Note an answer that there was no room for: the next call reserves it before."""
        self._last = body


def _grown(before: float | None, now: float) -> float:
    return now if before is None or now > before else (before + now) / 2
