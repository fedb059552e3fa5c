"""How any format appends a shard's rows: after the position, whoever else appends meanwhile.

    append_run(rows)
      1. behind     what the table has of the rows is dropped
      2. _append    the format's own commit: after position P these rows, up to L. It fails if somebody has continued
                    from P; then the position is his, and both steps are taken again

The rows are whatever `files` can make Parquet files of: nothing here knows who writes these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fastkcl import Position
from fastkcl.tables.base import Files, Rows, Shard

__all__ = ["Appender", "R"]

R = TypeVar("R", bound=Rows)


class Appender(ABC):
    """A table, opened for a shard by one of those who may believe that the shard is theirs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._shard: Shard | None = None
        self._position: Position | None = None

    def append_run(self, rows: R, files: Callable[[R], Files]) -> Position:
        """Make rows durable and visible. What the table has of them already is dropped.

        Args:
            rows: the next run of the shard.
            files: puts rows into the form in which they are written; called again when some of them were dropped.

        Returns:
            The position up to which the table has the shard's records now, at least the last one's of `rows`.
        """
        remaining: R | None = rows
        while remaining is not None:
            if self._position is not None:
                remaining = remaining.behind(self._position)
                if remaining is None:
                    break
            self._append(remaining, files(remaining))
        assert self._position is not None
        return self._position

    @abstractmethod
    def _append(self, rows: Rows, files: Files) -> None:
        """Append rows that are all behind the position, or learn that somebody else has continued from there."""
