"""A note beside a table: the position up to which a shard's records were given up (dead letter, `on_error="skip"`).

    table/_given_up/clicks/shardId-000000000000       {"upto": ["4959…", 0], "sha256": "…"}

A checkpoint after the table's position means lost records, unless they were given up. The note is not a part of the
commits, and no record is dropped because of it.
"""

from __future__ import annotations

from pathlib import Path

from fastkcl import Position
from fastkcl.tables import storage
from fastkcl.tables.base import SinkError, parse_sealed, sealed
from fastkcl.tables.folders import position_of

__all__ = ["NOTES", "give_up", "given_up", "note", "noted"]

NOTES = "_given_up"
"""Folder of a table."""


def give_up(root: Path, folders: str, upto: Position) -> None:
    """Note it, for the shard with these folders, unless it is noted already.

    Raises:
        SinkError: the note that is there is damaged, or no file.
        OSError: it cannot be written.
    """
    before = given_up(root, folders)
    if before is None or before < upto:
        path = root / NOTES / folders
        storage.make_folder(path.parent)
        storage.replace(path, note(upto))


def given_up(root: Path, folders: str) -> Position | None:
    """Up to where records have been given up, None if none have.

    Raises:
        SinkError: the note is damaged, or no file.
    """
    path = root / NOTES / folders
    text = storage.read(path)
    return None if text is None else noted(text, str(path))


def note(upto: Position) -> bytes:
    """A note's content."""
    return sealed({"upto": (upto.sequence_number, upto.sub_sequence_number)})


def noted(text: bytes, where: str) -> Position:
    """The position in a note.

    Raises:
        SinkError: it is damaged.
    """
    try:
        return position_of(parse_sealed(text)[0]["upto"])
    except (ValueError, KeyError, TypeError) as error:
        raise SinkError(f"{where}: a damaged note ({error!r}): remove it") from error
