"""Collects record batches and writes them in larger runs, whatever protocol they came by.

Spark wants tens of megabytes at a time (a small DataFrame costs 50 to 110 ms whatever is in it), a worker
gets what its parent happens to send. Between the two stands this buffer. It knows no protocol and no
Spark, only three things:

- a *batch*: Arrow columns that can be counted, measured and sliced (`Batch`);
- an *order*: which position a row has, if any, and which rows must not be parted (`Order`);
- a *commit*: a function that tells the parent how far the data is durable (`Commit`).

    add(batch) ──▶ pending ──▶ runs, cut by bytes ──▶ write(run) ──▶ durable position ──▶ commit(position)

Rules:

1. A batch is adopted as the last act of `add`. If a write or a commit raises, the batch of the moment is
   not in the buffer; giving the same object again goes on behind the rows that a failed attempt has
   already written, so that a retry in place doubles nothing. Instead of a retry `give_up` lets go of
   everything behind the durable position, whichever row of it is the one that cannot be written.
2. Runs are written one after another, each a contiguous piece of what was added; what is written leaves
   the buffer at once.
3. Only a position whose rows are all written is ever committed, at most once an interval.
4. Rows of one group (`Order.group`) are written together. A group may go on in the next batch, so the
   last one waits for it, or for the end.
5. The bounds count the memory that holding a batch keeps allocated, not only its length.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Generic, Protocol, Self, TypeAlias, TypeVar

__all__ = ["Batch", "BatchBuffer", "Commit", "Order", "Run", "Unordered"]


class Batch(Protocol):
    """What the buffer asks of a batch; `fastkcl.RecordBatch` has it."""

    @property
    def num_rows(self) -> int:
        """Rows."""

    @property
    def nbytes(self) -> int:
        """Bytes of the columns' part in use (of a slice: of its rows)."""

    @property
    def capacity_bytes(self) -> int:
        """Bytes that holding the batch keeps allocated."""

    def slice(self, offset: int, length: int | None = None) -> Self:
        """Rows [offset, offset + length) without a copy."""


B = TypeVar("B", bound=Batch)
B_contra = TypeVar("B_contra", bound=Batch, contravariant=True)
P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)

Commit: TypeAlias = Callable[[P | None], bool]
"""Tell the parent that everything up to a position is durable (None: the protocol has no positions).

Returns whether that is done; False asks to be called again at the next opportunity.
"""


class Order(Protocol[B_contra, P_co]):
    """What a protocol says about the places of its rows."""

    def position(self, batch: B_contra, row: int) -> P_co | None:
        """Position of a row, None if the protocol has none.

        Raises:
            ValueError: the row has one that can't be read.
        """

    def group(self, batch: B_contra, row: int) -> Hashable | None:
        """Adjacent rows with equal groups must not be parted; None for a row that stands for itself."""


class Unordered:
    """The order of a protocol without positions: nothing to say."""

    def position(self, batch: Batch, row: int) -> None:  # noqa: ARG002 - the interface's shape
        """No position."""

    def group(self, batch: Batch, row: int) -> None:  # noqa: ARG002
        """Every row stands for itself."""


@dataclass(frozen=True, slots=True)
class Run(Generic[B, P]):
    """A contiguous piece of the input, to be written as one table."""

    batches: tuple[B, ...]
    """Never empty, and none of them is."""
    first_position: P | None
    last_position: P | None
    rows: int
    nbytes: int
    attempt: int
    """1 + the writes that have failed since the last one that did not."""


class BatchBuffer(Generic[B, P]):
    """Collects batches, writes them as runs, commits what is durable. Not for several threads.

    Args:
        write: writes one run; the run is durable when it returns, and not when it raises.
        order: positions and groups of the protocol's rows.
        max_bytes: write when holding the batches would keep this many bytes allocated.
        max_records: write when this many rows are there.
        max_run_bytes: cut runs so that none is larger; a single row or group may be.
        commit_interval: seconds, at least, between two commits.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        write: Callable[[Run[B, P]], None],
        order: Order[B, P],
        *,
        max_bytes: int,
        max_records: int,
        max_run_bytes: int,
        commit_interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, value in (("max_bytes", max_bytes), ("max_records", max_records), ("max_run_bytes", max_run_bytes)):
            if value < 1:
                raise ValueError(f"{name}={value!r}: must be at least 1")
        if not commit_interval >= 0:
            raise ValueError(f"commit_interval={commit_interval!r}: must be seconds, 0 or more")
        self._write = write
        self._order = order
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._max_run_bytes = max_run_bytes
        self._commit_interval = commit_interval
        self._clock = clock
        self._pending: list[B] = []
        self._failures = 0  # of writes, since the last one that succeeded
        self._tried: tuple[B, int] | None = None  # the batch of a failed add, and how many of its rows are written
        self._durable: P | None = None
        self._uncommitted = False
        self._committed_at: float | None = None

    @property
    def rows(self) -> int:
        """Rows that are held, not yet written."""
        return sum(batch.num_rows for batch in self._pending)

    @property
    def capacity_bytes(self) -> int:
        """Bytes that the held batches keep allocated."""
        return sum(batch.capacity_bytes for batch in self._pending)

    @property
    def durable_position(self) -> P | None:
        """Position of the last row written."""
        return self._durable

    @property
    def first_position(self) -> P | None:
        """Position of the first row that is held, None if there is none."""
        return self._order.position(self._pending[0], 0) if self._pending else None

    @property
    def last_position(self) -> P | None:
        """Position of the last row that is held, None if there is none."""
        return self._order.position(self._pending[-1], self._pending[-1].num_rows - 1) if self._pending else None

    def add(self, batch: B, commit: Commit[P]) -> None:
        """Take a batch over: write if the bounds are reached, commit if it is time, then adopt the rest of it.

        An empty batch is a tick: it only gives the chance to commit.

        Raises:
            Exception: what `write` or `commit` raised. The batch is not adopted; see rule 1.
        """
        written = self._tried[1] if self._tried is not None and self._tried[0] is batch else 0
        self._tried = None
        rest = _rest(batch, written)
        for row in {0, rest.num_rows - 1} if rest.num_rows else ():
            self._order.position(rest, row)  # raises if it can't be read, before anything is done with the batch
        try:
            if (
                self.capacity_bytes + rest.capacity_bytes >= self._max_bytes
                or self.rows + rest.num_rows >= self._max_records
            ):
                held = self.rows
                for rows in self._write_runs([*self._pending, rest], at_end=False):
                    of_pending = min(rows, held)
                    self._pending = _split(self._pending, of_pending)[1]
                    held -= of_pending
                    written += rows - of_pending
            self._commit_if_due(commit)
        except BaseException:
            self._tried = (batch, written)
            raise
        if batch.num_rows > written:
            self._pending.append(_rest(batch, written))

    def flush(self, *, at_end: bool) -> None:
        """Write everything that is held.

        Args:
            at_end: nothing comes after this in the protocol's stream. Otherwise the last group stays, as it
                may go on (rule 4).

        Raises:
            Exception: what `write` raised; the rows not written stay held.
        """
        for rows in self._write_runs(self._pending, at_end=at_end):
            self._pending = _split(self._pending, rows)[1]

    def give_up(self, batch: B | None, *, at_end: bool) -> list[B]:
        """Let go of the rows that are not written, after a failure: the caller stores them elsewhere, or loses them.

        The position behind them counts as durable and is committed when it is time. Nothing is let go if only a commit
        has failed; the batch is adopted then. Of a batch that was refused for its positions nothing was tried: it goes
        alone, and what is held stays.

        Args:
            batch: what `add` failed on; None after `flush`.
            at_end: as for `flush`: otherwise the last group stays held, as it may go on (rule 4).

        Returns:
            The rows, in order; no empty batches.
        """
        tried, self._tried = self._tried, None
        if batch is not None:
            if tried is None or tried[0] is not batch:
                return [batch]
            if batch.num_rows > tried[1]:
                self._pending.append(_rest(batch, tried[1]))
        if self._failures == 0 or not self._pending:
            return []
        given, self._pending = _split(self._pending, self._boundary(self._pending, self.rows, at_end=at_end))
        self._failures = 0
        if given:
            # What cannot be read is not committed; a later position stands for it as well.
            with suppress(ValueError):
                self._durable = self._order.position(given[-1], given[-1].num_rows - 1)
                self._uncommitted = True
        return given

    def commit(self, commit: Commit[P]) -> None:
        """Commit now what is durable and not committed yet, whatever the interval says."""
        if self._uncommitted and commit(self._durable):
            self._uncommitted = False
            self._committed_at = self._clock()

    def discard(self) -> None:
        """Drop what is held and forget what could be committed: the data is somebody else's now."""
        self._pending = []
        self._tried = None
        self._uncommitted = False

    def _commit_if_due(self, commit: Commit[P]) -> None:
        if self._committed_at is None or self._clock() - self._committed_at >= self._commit_interval:
            self.commit(commit)

    def _write_runs(self, batches: Sequence[B], *, at_end: bool) -> Iterator[int]:
        """Write run after run; yields the rows of each one when it is durable."""
        remaining = list(batches)
        while rows := self._next_cut(remaining, at_end=at_end):
            taken, remaining = _split(remaining, rows)
            try:
                run = Run(
                    batches=tuple(taken),
                    first_position=self._order.position(taken[0], 0),
                    last_position=self._order.position(taken[-1], taken[-1].num_rows - 1),
                    rows=rows,
                    nbytes=sum(batch.nbytes for batch in taken),
                    attempt=self._failures + 1,
                )
                self._write(run)
            except BaseException:
                self._failures += 1
                raise
            self._failures = 0
            self._durable = run.last_position
            self._uncommitted = True
            yield rows

    def _next_cut(self, batches: Sequence[B], *, at_end: bool) -> int:
        """Rows of the next run: as many as fit, ending where rows may be parted; 0 for nothing to write."""
        rows = nbytes = 0
        for batch in batches:
            room = self._max_run_bytes - nbytes
            if batch.nbytes > room:
                rows += _longest_start(batch, room)
                break
            rows += batch.num_rows
            nbytes += batch.nbytes
        return self._boundary(batches, max(rows, 1), at_end=at_end) if batches else 0

    def _boundary(self, batches: Sequence[B], cut: int, *, at_end: bool) -> int:
        """The nearest place at or before `cut` rows where they may be parted, else the nearest behind it, else 0."""
        ends = list(accumulate(batch.num_rows for batch in batches))

        def group(row: int) -> Hashable | None:
            index = bisect_right(ends, row)
            return self._order.group(batches[index], row - (ends[index] - batches[index].num_rows))

        def parts(place: int) -> bool:
            before = group(place - 1)
            if before is None:
                return True
            return at_end if place == ends[-1] else before != group(place)

        places = chain(range(cut, 0, -1), range(cut + 1, ends[-1] + 1))
        return next((place for place in places if parts(place)), 0)


def _longest_start(batch: Batch, nbytes: int) -> int:
    """The most rows from the start of the batch that take no more than `nbytes`."""
    return bisect_right(range(1, batch.num_rows + 1), nbytes, key=lambda rows: batch.slice(0, rows).nbytes)


def _rest(batch: B, rows: int) -> B:
    """All but the first `rows` rows."""
    return batch.slice(rows) if rows else batch


def _split(batches: Sequence[B], rows: int) -> tuple[list[B], list[B]]:
    """The first `rows` rows and the others, without a copy."""
    head: list[B] = []
    for index, batch in enumerate(batches):
        if rows < batch.num_rows:
            if rows == 0:
                return head, list(batches[index:])
            return [*head, batch.slice(0, rows)], [batch.slice(rows), *batches[index + 1 :]]
        head.append(batch)
        rows -= batch.num_rows
    return head, []
