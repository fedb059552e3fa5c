"""One write, of a shard's records or of messages; in the writer's thread.

    write(run, rows)
      missing    drops the rows that the target already has
      store      the target makes the rows durable
      has        after a failure: asks whether the target has the rows nevertheless
      done       the target counts the stored and the dropped rows
      progress   a line in the log and values for the monitor, also after a failure

The target is a table that stores a position, or one that does not.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fastkcl.tables.progress import WriteProgress, Written

if TYPE_CHECKING:
    from fastkcl.write_after import Run

__all__ = ["Target", "Writer"]

R = TypeVar("R", bound=Written)


class Target(ABC, Generic[R]):
    """The target of rows. This one keeps no position: it drops no rows, and cannot know what a failed write stored."""

    def missing(self, rows: R) -> R | None:
        """The rows that it does not have; None if it has all of them."""
        return rows

    @abstractmethod
    def store(self, rows: R, attempt: int) -> None:
        """Make rows durable."""

    def has(self, rows: R, error: Exception) -> bool:
        """Whether it has rows although `store` has raised."""
        return False

    def done(self, rows: R, missing: R | None) -> None:  # noqa: B027 - nothing to count
        """Count, and report: of these rows, it has the missing ones now."""


class Writer(Generic[R]):
    """Writes runs.

    Args:
        target: where rows go.
        progress: reports each write.
    """

    def __init__(self, target: Target[R], progress: WriteProgress) -> None:
        self._target = target
        self._progress = progress

    def write(self, run: Run[Any, Any], rows: R) -> None:
        """Make the rows of a run durable.

        Raises:
            BaseException: the error of the target.
        """
        target = self._target
        begun = time.monotonic()
        try:
            missing = target.missing(rows)
            if missing is not None:
                try:
                    target.store(missing, run.attempt)
                except Exception as error:
                    if not target.has(missing, error):
                        raise
            target.done(rows, missing)
        except BaseException as error:
            self._progress.failed(run, error, time.monotonic() - begun)
            raise
        self._progress.written(missing, time.monotonic() - begun)
