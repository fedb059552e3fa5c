"""Where Spark writes rows: a sink's table, a sink of messages, or a function of the user's.

Each goes through a session whose server answers. If the server goes meanwhile, the write is repeated with another.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from fastkcl.processing.processor import refuse_deferred_result
from fastkcl.spark.sinks.sink import Frame
from fastkcl.tables.progress import Written
from fastkcl.tables.writer import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fastkcl.spark.server.session import Session

__all__ = ["FunctionTarget", "Through", "WritableRows"]


class WritableRows(Written, Frame, Protocol):
    """Rows of one run, not empty."""


R = TypeVar("R", bound=WritableRows)
C = TypeVar("C")
T = TypeVar("T")


class Through:
    """Calls functions with a session.

    Args:
        session: that rows go through.
        wanted: whether the rows are still wanted; called while a write waits for a server.
    """

    def __init__(self, session: Session, wanted: Callable[[], bool]) -> None:
        self._session = session
        self._wanted = wanted

    def call(self, function: Callable[[SparkSession, int], T], attempt: int) -> T:
        """Call it with a session and the number of the attempt, which each repetition counts on."""
        attempts = count(attempt)
        return self._session.call(lambda session: function(session, next(attempts)), self._wanted)


class FunctionTarget(Target[R], Generic[R, C]):
    """A function of the user's.

    Args:
        write: stores a DataFrame before it returns.
        context: describes the rows for `write`.
        through: the session.
    """

    def __init__(
        self,
        write: Callable[[DataFrame, C], object],
        context: Callable[[R, SparkSession, int], C],
        through: Through,
    ) -> None:
        self._write = write
        self._context = context
        self._through = through

    def store(self, rows: R, attempt: int) -> None:
        """Call the function, at the last moment at which the rows are still wanted."""

        def call(session: SparkSession, attempt: int) -> None:
            context = self._context(rows, session, attempt)
            df = rows.data_frame(session)
            rows.check_wanted()
            refuse_deferred_result("write", self._write(df, context))

        self._through.call(call, attempt)
