"""A shard's position in a table, as a writer sees it move: a warning if others move it, an error if it goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastkcl.stdio.log import logger
from fastkcl.tables.base import RECOVERY, SinkError
from fastkcl.tables.folders import position_text

if TYPE_CHECKING:
    from fastkcl import Position

__all__ = ["check_forward", "report_other", "went_back"]


def report_other(table: str, after: Position | None, upto: Position | None) -> None:
    """Log that another writer has continued from a shard's position; nothing if the position has not moved.

    Args:
        table: its name, with the shard.
        after: the position from which this writer wanted to continue.
        upto: the table's position now.
    """
    if upto != after:
        logger().warning(
            "%s: another writer has continued from %s up to %s; dropping the records that it has written",
            table,
            position_text(after),
            position_text(upto),
        )


def check_forward(table: str, before: Position | None, found: Position | None) -> None:
    """See that a position has not gone back.

    Args:
        table: its name, with the shard.
        before: the position that the writer has seen.
        found: the table's position now.

    Raises:
        SinkError: it has.
    """
    if before is not None and (found is None or found < before):
        raise went_back(table, before, found, "commits")


def went_back(table: str, before: Position | None, found: Position | None, gone: str) -> SinkError:
    """The error of a position that has gone back; `gone` names the missing part of the table."""
    return SinkError(
        f"{table}: its position was {position_text(before)}, and now is {position_text(found)}: {gone} are gone, or it"
        f" was replaced by an older copy; {RECOVERY}"
    )
