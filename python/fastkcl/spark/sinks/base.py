"""The interface of a sink, and of the rows that it writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fastkcl import Position

__all__ = [
    "RECOVERY",
    "Frame",
    "KeepsPositions",
    "Rows",
    "Shard",
    "Sink",
    "SinkError",
    "Transform",
    "WriteCancelledError",
    "parse_json",
    "place",
]

Transform: TypeAlias = "Callable[[DataFrame], DataFrame]"
"""A user's transformation of the DataFrame in the canonical schema before it is written."""


RECOVERY = "the remedy is in docs/recovery.md"
"""The end of an error about a table's damage."""


class SinkError(Exception):
    """A table is not as its own rules say, or cannot be written. `str()` says what, where and what to do."""


class WriteCancelledError(Exception):
    """Rows are not wanted any more: the shard's lease is another worker's."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Whose positions a table keeps. Two streams can have shards of one name, so both are needed."""

    stream: str
    shard_id: str


class Frame(Protocol):
    """Rows to be written, not empty."""

    def data_frame(self, session: SparkSession) -> DataFrame:
        """The rows; those of a shard in the canonical schema (`fastkcl.spark.schema.SCHEMA`)."""

    def check_wanted(self) -> None:
        """To be called right before the atomic step.

        Raises:
            WriteCancelledError: it must not be taken, as nobody wants the rows any more.
        """


class Rows(Frame, Protocol):
    """A contiguous run of a shard's records, not empty."""

    @property
    def num_rows(self) -> int:
        """Records, at least one."""

    @property
    def last_position(self) -> Position:
        """Of the last record."""

    def behind(self, position: Position) -> Rows | None:
        """The records after a position, None if there are none."""


class Sink(Protocol):
    """A table, for the shard that it was opened for.

    A record is there exactly once if `open` returns the position up to which the table has the shard, and `write` moves
    it on in the same atomic step in which the rows become visible. Without a position it is there at least once.
    One with a position is `KeepsPositions` as well.
    """

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard: finish steps that a death has interrupted.

        It is called again after a write that has raised, for the same shard: was it committed before that?

        Returns:
            The position up to which the table has the shard's records; None if it has none, or nobody knows.

        Raises:
            SinkError: the table is damaged.
            OSError: it cannot be read or written.
        """

    def write(self, rows: Rows, session: SparkSession) -> Position:
        """Make rows durable. Rows that the table has already are dropped.

        Returns:
            The position up to which the table has the shard's records now, at least the last one's of `rows`.

        Raises:
            SinkError: the table is damaged.
            WriteCancelledError: the rows are not wanted any more; nothing of them is durable.
            Exception: Spark's error. Nothing of `rows` is durable then, or all of it is: write again. Without a
                position, a part can be, and is there twice after that.
        """


@runtime_checkable
class KeepsPositions(Protocol):
    """A sink whose table keeps positions. With it, a checkpoint after the table's position means a loss."""

    def give_up(self, upto: Position) -> None:
        """Note that the shard's records up to a position have been given up: they are in no table, and need not be.

        Raises:
            OSError: it cannot be written.
        """

    def given_up(self) -> Position | None:
        """Up to where records have been given up; None if none have."""


def parse_json(text: bytes | str) -> Any:  # noqa: ANN401 - whatever a file says
    """The JSON of a file that anybody can have written.

    Raises:
        ValueError: it is none, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def place(position: Position) -> str:
    """A position for people: ``sequence number/sub-sequence number``, or the first alone in the legacy dialect."""
    sub = position.sub_sequence_number
    return position.sequence_number if sub is None else f"{position.sequence_number}/{sub}"
