"""One write, of a shard's records or of messages; in the writer's thread.

    write(run, rows)
      missing    rows that the target has already are dropped
      session    one whose server answers; if the server goes meanwhile, `store` is repeated with another
      store      the sink, or the user's function, makes the rows durable
      has        after a failure: the target may have the rows all the same
      done       the target counts the stored and the dropped rows
      progress   a line in the log and values for the monitor, of a failure too

The target is the table of a sink, or a function of the user's, which keeps no position.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from fastkcl.processing.processor import refuse_deferred_result
from fastkcl.spark.progress import WriteProgress, Written
from fastkcl.spark.sinks.sink import Frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fastkcl.spark.server.session import Session
    from fastkcl.write_after import Run

__all__ = ["FunctionTarget", "Target", "WritableRows", "Writer"]


class WritableRows(Written, Frame, Protocol):
    """Rows of one run, not empty."""


R = TypeVar("R", bound=WritableRows)
C = TypeVar("C")


class Target(ABC, Generic[R]):
    """Where rows go. This one keeps no position: it drops no rows, and cannot tell which rows a failed write stored."""

    def missing(self, rows: R) -> R | None:
        """The rows that it does not have; None if it has all of them."""
        return rows

    @abstractmethod
    def store(self, rows: R, session: SparkSession, attempt: int) -> None:
        """Make rows durable."""

    def has(self, rows: R, error: Exception) -> bool:
        """Whether it has rows although `store` has raised."""
        return False

    def done(self, rows: R, missing: R | None) -> None:  # noqa: B027 - nothing to count
        """Count, and report: of these rows, it has the missing ones now."""


class FunctionTarget(Target[R], Generic[R, C]):
    """A function of the user's.

    Args:
        write: stores a DataFrame before it returns.
        context: tells `write` what that holds.
    """

    def __init__(self, write: Callable[[DataFrame, C], object], context: Callable[[R, SparkSession, int], C]) -> None:
        self._write = write
        self._context = context

    def store(self, rows: R, session: SparkSession, attempt: int) -> None:
        """Call the function, at the last moment at which the rows are still wanted."""
        context = self._context(rows, session, attempt)
        df = rows.data_frame(session)
        rows.check_wanted()
        refuse_deferred_result("write", self._write(df, context))


class Writer(Generic[R]):
    """Writes runs.

    Args:
        target: where rows go.
        session: that they go through.
        progress: reports each write.
        wanted: whether the rows are still wanted; called while a write waits for a server.
    """

    def __init__(
        self, target: Target[R], session: Session, progress: WriteProgress, wanted: Callable[[], bool]
    ) -> None:
        self._target = target
        self._session = session
        self._progress = progress
        self._wanted = wanted

    def write(self, run: Run[Any, Any], rows: R) -> None:
        """Make the rows of a run durable.

        Raises:
            BaseException: the error of the target or its session.
        """
        target, attempts = self._target, count(run.attempt)
        begun = time.monotonic()
        try:
            missing = target.missing(rows)
            if missing is not None:
                try:
                    self._session.call(lambda session: target.store(missing, session, next(attempts)), self._wanted)
                except Exception as error:
                    if not target.has(missing, error):
                        raise
            target.done(rows, missing)
        except BaseException as error:
            self._progress.failed(run, error, time.monotonic() - begun)
            raise
        self._progress.written(missing, time.monotonic() - begun)
