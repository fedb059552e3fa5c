"""A note beside a table: up to where records of a shard have been given up (a dead letter, `on_error="skip"`).

    table/_given_up/clicks/shardId-000000000000       {"upto": ["4959…", 0]}

A checkpoint that lies after the table's position means lost records, unless they were given up. The note
is no part of the commits: nobody drops a record by it.
"""

from __future__ import annotations

import json
from pathlib import Path

from fastkcl import Position
from fastkcl.tables import storage
from fastkcl.tables.base import SinkError, parse_json

__all__ = ["give_up", "given_up"]

_FOLDER = "_given_up"


def give_up(root: Path, folders: str, upto: Position) -> None:
    """Note it, for the shard with these folders, unless it is noted already.

    Raises:
        SinkError: the note that is there is damaged, or no file.
        OSError: it cannot be written.
    """
    before = given_up(root, folders)
    if before is None or before < upto:
        path = root / _FOLDER / folders
        storage.make_folder(path.parent)
        content = {"upto": (upto.sequence_number, upto.sub_sequence_number)}
        storage.replace(path, json.dumps(content).encode())


def given_up(root: Path, folders: str) -> Position | None:
    """Up to where records have been given up, None if none have.

    Raises:
        SinkError: the note is damaged, or no file.
    """
    path = root / _FOLDER / folders
    text = storage.read(path)
    if text is None:
        return None
    try:
        return Position(*parse_json(text)["upto"])
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise SinkError(f"{path}: a damaged note ({error!r}): remove it") from error
