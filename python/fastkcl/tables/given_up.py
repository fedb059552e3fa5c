"""A note beside a table: which of a shard's records were given up (dead letter, `on_error="skip"`).

    table/_given_up/clicks/shardId-000000000000       {"after": ["4958…", 0], "upto": ["4959…", 0], "sha256": "…"}

A checkpoint after the table's position means lost records, unless they were given up: those after the position that
the table had then, up to another one. So a table that is before that position has lost commits, and the note excuses
nothing. It is not a part of the commits, and no record is dropped because of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fastkcl import Position
from fastkcl.tables import storage
from fastkcl.tables.base import RECOVERY, SinkError, parse_sealed, place, sealed
from fastkcl.tables.folders import position_of

__all__ = ["NOTES", "GivenUp", "give_up", "given_up", "note", "noted", "upto_of"]

NOTES = "_given_up"
"""Folder of a table."""


class GivenUp(NamedTuple):
    """A note's content."""

    after: Position | None
    """The table's position then; None if it had none, or if the note does not say it."""
    upto: Position
    """Of the last record that was given up."""

    def fault(self, position: Position | None) -> str | None:
        """What a table at this position has lost."""
        if self.after is None or (position is not None and position >= self.after):
            return None
        has = "none of them" if position is None else f"those up to {place(position)}"
        return (
            f"records up to {place(self.upto)} were given up when the table had those up to {place(self.after)}, and"
            f" it has {has}: commits are lost; {RECOVERY}"
        )

    def is_news(self, upto: Position, position: Position | None) -> bool:
        """Whether a note of records up to `upto`, with the table at this position, says more than this one."""
        return self.upto < upto or self.fault(position) is not None


def upto_of(found: GivenUp | None, position: Position | None) -> Position | None:
    """Up to where the records after a table's position have been given up; None if none have."""
    return None if found is None or found.fault(position) else found.upto


def give_up(root: Path, folders: str, upto: Position, position: Position | None) -> None:
    """Note it, for the shard with these folders, unless it is noted already; the table is at this position.

    Raises:
        SinkError: the note that is there is damaged, or no file.
        OSError: it cannot be written.
    """
    before = given_up(root, folders)
    if before is None or before.is_news(upto, position):
        path = root / NOTES / folders
        storage.make_folder(path.parent)
        storage.replace(path, note(upto, position))


def given_up(root: Path, folders: str) -> GivenUp | None:
    """The note of a shard; None without one.

    Raises:
        SinkError: the note is damaged, or no file.
    """
    path = root / NOTES / folders
    text = storage.read(path)
    return None if text is None else noted(text, str(path))


def note(upto: Position, after: Position | None) -> bytes:
    """A note's content."""
    return sealed({"after": after and _as_list(after), "upto": _as_list(upto)})


def _as_list(position: Position) -> list[str | int | None]:
    return [position.sequence_number, position.sub_sequence_number]


def noted(text: bytes, where: str) -> GivenUp:
    """What a note says.

    Raises:
        SinkError: it is damaged.
    """
    try:
        content = parse_sealed(text)[0]
        after = content.get("after")
        return GivenUp(None if after is None else position_of(after), position_of(content["upto"]))
    except (ValueError, KeyError, TypeError) as error:
        raise SinkError(f"{where}: a damaged note ({error!r}): remove it") from error
