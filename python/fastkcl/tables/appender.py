"""Appends a shard's rows after the table's position, in any format, also if others append at the same time.

    append_run(rows)
      1. compare    rows that the table has are dropped
      2. _append    the format's own commit: it adds these rows after position P, up to L. It fails if another writer
                    has continued from P. Then both steps are repeated from that writer's position

`files` turns the rows into Parquet files. This module does not depend on who writes them.
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
    """A table, opened for a shard. Several processes may believe that they own the shard."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._shard: Shard | None = None
        self._position: Position | None = None

    def append_run(self, rows: R, files: Callable[[R], Files]) -> Position:
        """Make rows durable and visible. Rows that the table has already are dropped.

        Args:
            rows: the next run of the shard.
            files: puts rows into the form in which they are written; called again when some of them were dropped.

        Returns:
            The position up to which the table has the shard's records now, at least the last one's of `rows`.
        """
        remaining: R | None = rows
        while remaining is not None:
            if self._position is not None:
                remaining = remaining.after(self._position)
                if remaining is None:
                    break
            self._append(remaining, files(remaining))
        assert self._position is not None
        return self._position

    @abstractmethod
    def _append(self, rows: Rows, files: Files) -> None:
        """Append rows that are all after the position, or learn that another writer has continued from there."""
