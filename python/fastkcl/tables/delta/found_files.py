"""Parquet files that somebody else has written into a Delta table's folder, e.g. Spark: which of them a commit adds.

write(folder) ──▶ part-….parquet, _SUCCESS, .crc ──▶ synced, those without rows removed ──▶ actions
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fastkcl import Position
from fastkcl.tables import storage
from fastkcl.tables.base import Files
from fastkcl.tables.delta.actions import Json
from fastkcl.tables.delta.group import add_action
from fastkcl.tables.folders import position_text

__all__ = ["FoundFile", "found_files", "moved_in"]


class FoundFile(NamedTuple):
    """A Parquet file with rows, synced."""

    path: Path
    rows: int
    size: int
    modified: int
    """Milliseconds since the epoch."""


def found_files(folder: Path) -> Iterator[FoundFile]:
    """The Parquet files with rows in a folder, each synced; all others are removed."""
    import pyarrow.parquet as pq

    for name in storage.names(folder):
        file = folder / name
        rows = pq.read_metadata(file).num_rows if name.endswith(".parquet") and name[0] not in "._" else 0
        if rows == 0:
            storage.unlink(file)
            continue
        storage.sync_file(file)
        status = file.stat()
        yield FoundFile(file, rows, status.st_size, status.st_mtime_ns // 1_000_000)


def moved_in(
    root: Path, files: Files, folder: str, after: Position | None, values: Mapping[str, str | None]
) -> list[Json]:
    """Have files written aside, and move them to names that a table's own writer gives.

    Args:
        root: the table's folder.
        files: to be written.
        folder: of their partition, from the table's on, with its slash.
        after: the position that their rows continue from.
        values: of the partition.

    Returns:
        The actions that add them; none if there are no rows.
    """
    target = root / folder
    storage.make_folder(target)
    staging = target / f"after-{position_text(after)}-{secrets.token_hex(8)}"
    adds = []
    try:
        files.write(staging)
        for each in found_files(staging):
            name = f"after-{position_text(after)}-{secrets.token_hex(12)}.parquet"
            storage.rename(each.path, target / name)
            adds.append(add_action(f"{folder}{name}", dict(values), each.size, each.rows, each.modified))
    finally:
        storage.remove(staging)
    storage.sync_folder(target)
    return adds
