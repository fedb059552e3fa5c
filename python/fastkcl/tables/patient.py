"""A table that waits for its store: it repeats a call that the store refuses or does not answer.

    append ──▶ table.append ── OSError ──▶ log, pause ──▶ open: read the table's position ──▶ append the missing rows
                    └── anything else: raised

Nobody watches a worker that runs for months, and its store may be away for an hour. In that time the stream keeps the
records, the held bytes are bounded, and the lease is kept. Errors of the table itself (`SinkError`), of a
transformation or of the rows would occur again, so they are raised at once.

A run that ends by itself has read all that it wanted; its processor (`PatientProcessor`) waits for the store before
it lets go of the shard. After a signal nothing is waited for but `shutdown_grace`.

Rules: for the thread of one shard. A pause ends within half a second if the rows are no longer wanted or the worker has
to stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fastkcl.backoff import Backoff
from fastkcl.stdio.log import logger
from fastkcl.tables.base import in_one_line
from fastkcl.tables.rows import ShardRows
from fastkcl.tables.table_processor import Table, TableProcessor

if TYPE_CHECKING:
    import pyarrow as pa

    from fastkcl import Position, ShardContext
    from fastkcl.tables.base import Shard
    from fastkcl.tables.progress import WriteProgress
    from fastkcl.tables.writer import Target

__all__ = ["DEFAULT_PATIENCE", "PatientProcessor", "PatientTable"]

DEFAULT_PATIENCE: Final = 86_400.0
"""Seconds: as long as a stream keeps its records by default."""

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_LOOK_SECONDS: Final = 0.5

T = TypeVar("T")


class PatientTable:
    """A table whose calls are made again while its store is away.

    Args:
        table: any.
        stopping: set when the worker is to stop: nothing is waited for any more but the rows that it holds.
        patience: seconds for which a call is made again; 0 for none.
        clock: seconds, for tests.
        sleep: waits, for tests.
    """

    def __init__(
        self,
        table: Table,
        *,
        stopping: threading.Event,
        patience: float = DEFAULT_PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._table = table
        self._stopping = stopping
        self._patience = patience
        self._clock = clock
        self._sleep = sleep
        self._shard: Shard | None = None
        self.on_failure: Callable[[], None] = lambda: None
        """Called after each attempt of an append that is made again."""

    @property
    def url(self) -> str:
        """Where it is."""
        return self._table.url

    def open(self, shard: Shard) -> Position | None:
        """See `Table.open`."""
        self._shard = shard
        return self._again(f"{shard.shard_id}: opening {self.url}", lambda: self._table.open(shard), self._check_going)

    def append(self, rows: ShardRows, make: Callable[[ShardRows], pa.Table]) -> Position:
        """See `Table.append`. After a failure nobody knows what is stored, so the table's position is read first."""
        assert self._shard is not None
        shard = self._shard
        failed = False

        def append() -> Position:
            nonlocal failed
            position = self._table.open(shard) if failed else None
            rest = rows if position is None else rows.after(position)
            if rest is None:
                assert position is not None
                return position
            failed = True
            return self._table.append(rest, make)

        return self._again(f"{shard.shard_id}: a write to {self.url}", append, rows.check_wanted, self.on_failure)

    def give_up(self, upto: Position) -> None:
        """See `KeepsPositions.give_up`."""
        self._table.give_up(upto)

    def given_up(self) -> Position | None:
        """See `KeepsPositions.given_up`."""
        return self._table.given_up()

    def gone_on(self) -> bool:
        """See `KeepsPositions.gone_on`."""
        return self._table.gone_on()

    def _again(
        self, what: str, call: Callable[[], T], check: Callable[[], None], failed: Callable[[], None] = lambda: None
    ) -> T:
        """Make a call until it is answered.

        Args:
            what: for the log.
            call: of the table.
            check: raises if the call is not wanted any more.
            failed: called before it is made again.

        Raises:
            OSError: the patience is over, or the call is not wanted any more.
            Exception: any other error of the call, at once.
        """
        begun = self._clock()
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                return call()
            except OSError as error:
                waited = self._clock() - begun
                if waited >= self._patience:
                    raise
                pause = min(backoff.next(), self._patience - waited)
                failed()
                logger().warning("%s failed, again in %.0f s: %s", what, pause, in_one_line(error))
                try:
                    self._wait(pause, check)
                except _StoppingError:
                    raise error from None

    def _wait(self, seconds: float, check: Callable[[], None]) -> None:
        end = self._clock() + seconds
        while (left := end - self._clock()) > 0:
            check()
            self._sleep(min(left, _LOOK_SECONDS))

    def _check_going(self) -> None:
        if self._stopping.is_set():
            raise _StoppingError


class PatientProcessor(TableProcessor):
    """A `TableProcessor` whose shutdown waits for the table's store, as its table does.

    Args:
        table: where the records go.
        stopping: set when the worker is to stop: then held records are written within `shutdown_grace`, or left.
        patience: seconds for which the end of a run waits for its writes without that.
        options: of `TableProcessor`.
    """

    def __init__(
        self,
        table: PatientTable,
        *,
        stopping: threading.Event,
        patience: float,
        **options: Any,  # noqa: ANN401 - whatever a TableProcessor takes
    ) -> None:
        super().__init__(table, **options)
        self._patient = table
        self._stopping = stopping
        self._patience = patience

    def _open(self, context: ShardContext, progress: WriteProgress) -> Target[ShardRows]:
        self._patient.on_failure = progress.repeated
        return super()._open(context, progress)

    def _write_held(self) -> bool:
        """Have everything written that is held.

        Raises:
            TimeoutError: that took longer than the patience.
            Exception: the error of a write.
        """
        end = time.monotonic() + self._patience
        while not self._stopping.is_set():
            left = end - time.monotonic()
            if self._buffer.flush(at_end=False, timeout=min(max(left, 0), _LOOK_SECONDS)):
                return True
            if left <= 0:
                raise TimeoutError(
                    f"{self._shard_id}: {self._buffer.rows} records were not written to {self._patient.url} within"
                    f" {self._patience:g} s; they are read again at the next start"
                )
        return super()._write_held()


class _StoppingError(Exception):
    """The worker is to stop."""
