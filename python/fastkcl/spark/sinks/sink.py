"""The interface of a sink, and the rows that it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from fastkcl.tables import base

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fastkcl import Position
    from fastkcl.tables.base import Shard

__all__ = ["Frame", "Rows", "Sink", "Transform"]

Transform: TypeAlias = "Callable[[DataFrame], DataFrame]"
"""What a user makes of the DataFrame in the canonical schema before it is written."""


class Frame(Protocol):
    """Rows to be written, not empty."""

    def data_frame(self, session: SparkSession) -> DataFrame:
        """The rows; those of a shard in the canonical schema (`fastkcl.spark.schema.SCHEMA`)."""

    def check_wanted(self) -> None:
        """To be called right before the atomic step.

        Raises:
            WriteCancelledError: it must not be taken, as nobody wants the rows any more.
        """


class Rows(base.Rows, Frame, Protocol):
    """A contiguous run of a shard's records, not empty, of which Spark makes a DataFrame."""


class Sink(Protocol):
    """A table, for the shard that it was opened for.

    A record is there exactly once if `open` returns the position up to which the table has the shard, and `write` moves
    it on in the same atomic step in which the rows become visible. Without a position it is there at least once.
    One with a position is `KeepsPositions` as well.
    """

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard: finish what a death has interrupted.

        It is called again after a write that has raised, for the same shard: was it committed before that?

        Returns:
            The position up to which the table has the shard's records; None if it has none, or nobody knows.

        Raises:
            SinkError: the table is damaged.
            OSError: it cannot be read or written.
        """

    def write(self, rows: Rows, session: SparkSession) -> Position:
        """Make rows durable. Rows that the table already has are dropped.

        Returns:
            The position up to which the table has the shard's records now, at least the last one's of `rows`.

        Raises:
            SinkError: the table is damaged.
            WriteCancelledError: the rows are not wanted any more; nothing of them is durable.
            Exception: what Spark raised. Nothing of `rows` is durable then, or all of it is: write again. Without a
                position, a part can be, and is there twice after that.
        """
