"""Collects record batches of any protocol and writes them in the background.

Spark wants tens of megabytes at a time (a small DataFrame costs 50 to 110 ms with any content). A worker gets batches
of any size, and its parent waits for an answer. This buffer is between them. It knows no protocol and no Spark. It
uses three things:

- a *batch*: Arrow columns with a number of rows and of bytes, which can be sliced (`Batch`);
- an *order*: the position of a row, if any, and the rows that must stay together (`Order`);
- a *commit*: a function that reports to the parent how far the data is durable (`Commit`).

    the caller's thread                               the writer's thread
    ──────────────────────────────────────────        ─────────────────────────────────────────────
    add(batch): raise the error of a failed write
                wait while the bound is reached
                commit the durable position, if it is time
                hold the batch ────────────────▶ due ──▶ runs, cut by bytes ──▶ write(run) ──▶ durable position
                                                     (bounds, or max_age)

Rules:

1. The last step of `add` takes the new batch into the buffer. If `add` raises, the batch is not in the buffer.
2. Runs are written one after another, each a contiguous piece of the added rows. Until a run is durable, it is held and
   counts for the bounds.
3. A failed write stops the writer, and the next call raises its error. The call after that writes the same run again,
   and waits for it. If `give_up` is called instead, it hands back all rows after the durable position, because any of
   them may be at fault.
4. A position is committed only when all rows up to it are written. The caller's thread commits, at most once an
   interval.
5. Rows of one group (`Order.group`) are written together. A group may continue in the next batch. So the last group
   waits for the next batch, or for the end.
6. The bounds count the memory that holding a batch keeps allocated, not only its length.
7. The process ends without waiting for the writer's thread. A forked child has no writer's thread, so its calls are
   refused.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar

__all__ = ["Batch", "BatchBuffer", "Commit", "Fitted", "Order", "Run", "Unordered"]

_TURN: Final = 0.25  # seconds that the caller's thread waits at once


class Batch(Protocol):
    """The buffer's interface to a batch; `fastkcl.RecordBatch` has it."""

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
"""Report to the parent that everything up to a position is durable (None: the protocol has no positions).

Returns whether that is done; False asks to be called again at the next opportunity.
"""


class Order(Protocol[B_contra, P_co]):
    """A protocol's rules for the positions of its rows."""

    def position(self, batch: B_contra, row: int) -> P_co | None:
        """Position of a row, None if the protocol has none.

        Raises:
            ValueError: the row has one that can't be read.
        """

    def group(self, batch: B_contra, row: int) -> Hashable | None:
        """Adjacent rows with equal groups must not be parted; None for a row that stands for itself."""


class Unordered:
    """The order of a protocol without positions."""

    def position(self, batch: Batch, row: int) -> None:  # noqa: ARG002 - the interface's shape
        """No position."""

    def group(self, batch: Batch, row: int) -> None:  # noqa: ARG002
        """Every row stands for itself."""


class Fitted(Protocol):
    """The result of `fit` for the rows that it was given."""

    @property
    def num_rows(self) -> int:
        """Rows from the first one on, at least one."""


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
    fitted: Any = None
    """What `fit` has returned: for these rows, or for more or fewer of them from the first on. None without `fit`."""


@dataclass(frozen=True, slots=True)
class _Count:
    """Rows, and the bytes that holding them keeps allocated."""

    rows: int = 0
    nbytes: int = 0

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> _Count:
        return cls(sum(batch.num_rows for batch in batches), sum(batch.capacity_bytes for batch in batches))

    def __add__(self, other: _Count) -> _Count:
        return _Count(self.rows + other.rows, self.nbytes + other.nbytes)


class BatchBuffer(Generic[B, P]):
    """Collects batches, writes them as runs in its own thread, commits the durable position. For one caller's thread.

    Args:
        write: writes one run, in the writer's thread; the run is durable when it returns, and not when it raises.
        order: positions and groups of the protocol's rows.
        max_bytes: collected rows become due when holding them keeps this many bytes allocated,
        max_records: or when it is this many rows,
        max_age: or when the first of it has waited for this many seconds.
        max_run_bytes: cut runs so that none is larger; a single row or group may be.
        max_held_bytes: let `add` wait while holding everything that is not written, the new batch included, would keep
            more bytes allocated. A single batch or group may.
        commit_interval: seconds, at least, between two commits.
        fit: prepares rows from the start of these batches, as many as may become one run, where that is not a question
            of `max_run_bytes` alone; at least one, and as many whenever it is asked. In the writer's thread, before
            `write`, which finds what it returns in `Run.fitted`. What it raises counts as raised by `write`.
        clock: monotonic seconds.

    Raises:
        ValueError: a bound out of range.
    """

    def __init__(
        self,
        write: Callable[[Run[B, P]], None],
        order: Order[B, P],
        *,
        max_bytes: int,
        max_records: int,
        max_run_bytes: int,
        max_held_bytes: int,
        max_age: float,
        commit_interval: float,
        fit: Callable[[Sequence[B]], Fitted] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, value in (("max_bytes", max_bytes), ("max_records", max_records), ("max_run_bytes", max_run_bytes)):
            if value < 1:
                raise ValueError(f"{name}={value!r}: must be at least 1")
        if max_held_bytes < max_bytes:
            raise ValueError(f"max_held_bytes={max_held_bytes!r}: must be at least max_bytes, {max_bytes}")
        if not max_age > 0:
            raise ValueError(f"max_age={max_age!r}: must be seconds, more than 0")
        if not commit_interval >= 0:
            raise ValueError(f"commit_interval={commit_interval!r}: must be seconds, 0 or more")
        self._write = write
        self._order = order
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._max_run_bytes = max_run_bytes
        self._max_held_bytes = max_held_bytes
        self._max_age = max_age
        self._commit_interval = commit_interval
        self._fit = fit
        self._clock = clock
        # Both threads', under the lock of _changed:
        self._changed = threading.Condition(threading.Lock())
        self._held: list[B] = []  # everything not written, the run that is being written included
        self._held_bytes = 0
        self._due: list[int] = []  # rows of each piece that has become due, from the start of _held on
        self._collected = _Count()  # rows that are held and not due
        self._since: float | None = None  # when the first batch came that has not been due yet
        self._at_end = False
        self._failures = 0  # of writes, since the last one that succeeded
        self._stalled = False  # a write has failed, and the writer waits for the caller's decision
        self._failure: BaseException | None = None  # ... which has not been raised yet
        self._durable: P | None = None
        self._durable_runs = 0
        self._closed = False
        # The caller's:
        self._tried: B | None = None  # the batch of a failed add
        self._committed_runs = 0
        self._committed_at: float | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    @property
    def rows(self) -> int:
        """Rows that are held, not yet written."""
        return sum(batch.num_rows for batch in self._held)

    @property
    def capacity_bytes(self) -> int:
        """Bytes that the held batches keep allocated."""
        return self._held_bytes

    @property
    def busy(self) -> bool:
        """Whether the writer has something to do, or waits for the decision on a failure."""
        return bool(self._due)

    @property
    def closed(self) -> bool:
        """Whether nothing that is held is wanted any more; for a running write, from any thread."""
        return self._closed

    @property
    def durable_position(self) -> P | None:
        """Position of the last row written."""
        return self._durable

    def add(self, batch: B, commit: Commit[P]) -> None:
        """Take a batch over: wait for room, commit if it is time, then hold it.

        An empty batch is a tick: it only gives the chance to raise and to commit.

        Raises:
            BaseException: the error of `write`, for rows that were added before, or of `commit`. The batch is
                not adopted; see rules 1 and 3.
            ValueError: the position of its first or last row can't be read.
            RuntimeError: the buffer is closed, or this is a forked child.
        """
        self._check_process()
        self._tried = None
        for row in {0, batch.num_rows - 1} if batch.num_rows else ():
            self._order.position(batch, row)  # raises if it can't be read, before anything is done with the batch
        self._tried = batch
        with self._changed:
            if self._closed:
                raise RuntimeError("the buffer is closed")
            self._recover()
            if batch.num_rows:
                self._wait_for_room(batch.capacity_bytes)
        if self._committed_at is None or self._clock() - self._committed_at >= self._commit_interval:
            self.commit(commit)
        self._tried = None
        with self._changed:
            self._adopt(batch)

    def flush(self, *, at_end: bool, timeout: float | None = None) -> bool:
        """Have everything written that is held, and wait for it.

        Args:
            at_end: nothing comes after this in the protocol's stream. Otherwise the last group stays, as it
                may go on (rule 5).
            timeout: seconds to wait at most.

        Returns:
            False if that was not enough; the writer goes on.

        Raises:
            BaseException: the error of `write`; the rows not written stay held.
            RuntimeError: this is a forked child.
        """
        self._check_process()
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._recover(end)
            self._at_end = at_end
            self._make_due()
            while self._due:
                self._recover(end)
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._wait(left)
        return True

    def give_up(self, batch: B | None, *, at_end: bool) -> list[B]:
        """Let go of the rows that are not written, after a failure: the caller stores them elsewhere, or loses them.

        The position after them counts as durable and is committed when it is time. Nothing is let go if only a commit
        has failed; the batch is adopted then. Of a batch that was refused for its positions nothing was tried: it goes
        alone, and held rows stay.

        Args:
            batch: the one that `add` failed on; None after `flush`.
            at_end: as for `flush`: otherwise the last group stays held, as it may go on (rule 5).

        Returns:
            The rows, in order; no empty batches.
        """
        self._check_process()
        tried, self._tried = self._tried, None
        if batch is not None and tried is not batch:
            return [batch]
        with self._changed:
            if batch is not None:
                self._adopt(batch)
            if not self._stalled or self._failure is not None or not self._held:  # a commit, or one not raised yet
                return []
            rows = sum(batch.num_rows for batch in self._held)
            given, held = _split(self._held, self._boundary(self._held, rows, at_end=at_end))
            self._hold(held)
            self._due.clear()
            self._collected = _Count.of(held)
            self._since = None
            self._failures = 0
            self._stalled = False
            if given:
                # A position that cannot be read is not committed; a later one stands for it as well.
                with suppress(ValueError):
                    self._durable = self._order.position(given[-1], given[-1].num_rows - 1)
                    self._durable_runs += 1
            return given

    def commit(self, commit: Commit[P]) -> None:
        """Commit the durable position now, before the interval is over."""
        with self._changed:
            position, runs = self._durable, self._durable_runs
        if runs > self._committed_runs and commit(position):
            self._committed_runs = runs
            self._committed_at = self._clock()

    def discard(self) -> list[B]:
        """Drop held rows, forget the durable position, and stop writing: the data is another worker's now.

        A write that is under way goes on as long as it does not look at `closed`; nothing comes of it here.

        Returns:
            The held rows, the run that is being written included. Nothing in a forked child, whose parent has it.
        """
        if os.getpid() != self._process:  # the lock may have been held when it was forked
            return []
        with self._changed:
            self._closed = True
            held = self._held
            self._hold([])
            self._due.clear()
            self._collected = _Count()
            self._committed_runs = self._durable_runs
            self._stalled = False
            self._failure = None
            self._tried = None
            self._changed.notify_all()
        return held

    def join(self, timeout: float) -> bool:
        """Wait for the writer's thread to end after `discard`.

        Returns:
            Whether it has; a write that hangs has its thread for itself, and ends with the process.
        """
        if self._thread is None or os.getpid() != self._process:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("a forked child has no writer; the buffer is its parent's")

    # Under the lock, in the caller's thread.

    def _recover(self, end: float | None = None) -> None:
        """Raise the error of the last write; or if that was done, have it tried again, and wait for it.

        Args:
            end: when to wait no longer, on the clock of `time.monotonic`; the write goes on.
        """
        if self._stalled and self._failure is None:
            self._stalled = False
            self._changed.notify_all()
            while self._failures and self._due and not self._stalled:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return
                self._wait(left)
        if self._stalled:
            failure, self._failure = self._failure, None
            assert failure is not None
            try:
                raise failure
            finally:
                del failure  # or its own traceback keeps it, and the rows that it failed on

    def _wait_for_room(self, nbytes: int) -> None:
        while self._held and self._held_bytes + nbytes > self._max_held_bytes:
            if not self._due:
                if self._since is None:
                    return  # a group that may go on, and nothing else: it has to be held
                self._make_due()
            self._wait()
            self._recover()

    def _wait(self, seconds: float | None = None) -> None:
        # Not longer than a turn: a signal that comes right before a wait, or to another thread, does not end it.
        self._changed.wait(_TURN if seconds is None else min(seconds, _TURN))

    def _adopt(self, batch: B) -> None:
        if not batch.num_rows:
            return
        self._held.append(batch)
        self._held_bytes += batch.capacity_bytes
        self._collected += _Count.of([batch])
        if self._since is None:
            self._since = self._clock()
        if self._collected.nbytes >= self._max_bytes or self._collected.rows >= self._max_records:
            self._make_due()
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="fastkcl-writer", daemon=True)
            self._thread.start()

    def _make_due(self) -> None:
        if self._collected.rows:
            self._due.append(self._collected.rows)
            self._collected = _Count()
            self._since = None
            self._changed.notify_all()

    def _hold(self, batches: list[B]) -> None:
        self._held = batches
        self._held_bytes = sum(batch.capacity_bytes for batch in batches)

    # In the writer's thread.

    def _work(self) -> None:
        while self._wait_until_due():
            self._write_next()

    def _wait_until_due(self) -> bool:
        """False when there is nothing to wait for any more."""
        with self._changed:
            while not self._closed and (self._stalled or not self._due):
                left = None if self._since is None else self._since + self._max_age - self._clock()
                if self._stalled or left is None:
                    self._changed.wait()
                elif left > 0:
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                else:
                    self._make_due()
            return not self._closed

    def _write_next(self) -> None:
        """Write the next run of due rows, if there is one that may be parted from the next rows."""
        rows, position = 0, None
        failure: BaseException | None = None
        try:
            with self._changed:
                taken = self._take()
                attempt = self._failures + 1
            if not taken:
                return
            fitted = None if self._fit is None else self._fit(taken)
            if fitted is not None:
                # They end where rows may be parted; so does every shorter beginning that `_boundary` finds.
                taken = _split(taken, self._boundary(taken, fitted.num_rows, at_end=True))[0]
            run = Run(
                batches=tuple(taken),
                first_position=self._order.position(taken[0], 0),
                last_position=self._order.position(taken[-1], taken[-1].num_rows - 1),
                rows=(rows := sum(batch.num_rows for batch in taken)),
                nbytes=sum(batch.nbytes for batch in taken),
                attempt=attempt,
                fitted=fitted,
            )
            position = run.last_position
            self._write(run)
        except BaseException as error:  # it is the caller's, whatever it is: it ends no thread, it ends the run
            failure = error
        if os.getpid() != self._process:
            os._exit(1)  # forked by `write`, and come back into its parent's writer
        with self._changed:
            if self._closed:
                return
            if failure is None:
                self._written(rows, position)
            else:
                self._failures += 1
                self._failure = failure
                self._stalled = True
            failure = None  # its traceback has this frame
            self._changed.notify_all()

    def _take(self) -> list[B]:
        """The next run of the first piece that is due. Pieces stay apart, so that a retry repeats the same run."""
        if not self._due:
            return []  # closed in between
        piece, later = _split(self._held, self._due[0])
        rows = self._next_cut(piece, at_end=self._at_end and not later)
        if rows == 0:  # one group, which may go on: it waits
            if len(self._due) > 1:
                self._due[:2] = [sum(self._due[:2])]
            else:
                self._due.clear()
                self._collected += _Count.of(piece)
            self._changed.notify_all()
        return _split(piece, rows)[0]

    def _written(self, rows: int, position: P | None) -> None:
        self._hold(_split(self._held, rows)[1])
        self._due[0] -= rows
        if self._due[0] == 0:
            del self._due[0]
        self._failures = 0
        self._durable = position
        self._durable_runs += 1

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
        """The nearest row at or before `cut` where the rows may be parted, else the nearest after it, else 0."""
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
