"""Tables in the folder of another table: their files are no orphans of it.

    folder                  whose
    ──────────────────────  ─────────────────────────────────────────────────
    lake/_delta_log         of the table that is looked at
    lake/date=2026-11-22    likewise: it has no mark, nor has a folder above
    lake/stream=a           another table's: it has one, ``_delta_log``
    lake/stream=a/date=…    likewise

Rules: only folders above files that may be deleted are looked at. Object stores have them as prefixes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath
from typing import Final

from fastkcl.tables.base import SinkError
from fastkcl.tables.store import Found, Store

__all__ = ["MARKS", "iceberg_tables", "not_in"]

MARKS: Final = frozenset({"_delta_log", "_commits", "_fastkcl"})
"""Folders that tables alone have; an Iceberg table in a catalog has the last one on a disk only."""
_METADATA: Final = re.compile(r"(?:(.+)/)?metadata/[^/]+\.metadata\.json(?:\.gz)?")


def iceberg_tables(store: Store, there: Iterable[Found]) -> set[str]:
    """The folders of Iceberg tables in the folder of a table of another format.

    Args:
        store: of the table.
        there: its files.

    Raises:
        SinkError: one is the table's own folder, so nobody knows whose a file is.
    """
    found = set()
    for each in there:
        if match := _METADATA.fullmatch(each.key):
            if match[1] is None:
                raise SinkError(
                    f"{store.url}/{each.key}: metadata of an Iceberg table lies in the folder of this one, so nothing"
                    " is called an orphan: its files may be needed yet"
                )
            found.add(match[1])
    return found


def not_in(
    store: Store, files: Iterable[Found], tables: Collection[str] = (), marks: Collection[str] = MARKS
) -> list[Found]:
    """The files that lie in no other table.

    Args:
        store: of the table.
        files: of it.
        tables: folders of others, as far as they are known.
        marks: folders by which others are known.

    Raises:
        SinkError, OSError: a folder cannot be read.
    """
    known = dict.fromkeys(tables, True)

    def is_table(folder: str) -> bool:
        if folder not in known:
            known[folder] = any(name in marks for name in store.folders(folder))
        return known[folder]

    return [each for each in files if not any(map(is_table, _folders_above(each.key)))]


def _folders_above(key: str) -> list[str]:
    """From the file's own up to the one in the table's."""
    return [str(folder) for folder in PurePosixPath(key).parents][:-1]
