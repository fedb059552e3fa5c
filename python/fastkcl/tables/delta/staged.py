"""Files of a DeltaTable that no entry of its log names yet, and the division of rows into days. No I/O."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

from fastkcl import Position
from fastkcl.tables.base import Shard, SinkError
from fastkcl.tables.delta.group import files_of
from fastkcl.tables.group import Request
from fastkcl.tables.rows import ShardRows

__all__ = ["MOST_AGE", "Staged", "days"]

MOST_AGE: Final = 23 * 3600.0
"""Seconds; VACUUM and `fastkcl sink orphans` may take files that are staged for longer than a day."""


@dataclass
class Staged:
    """Files that no entry names yet."""

    rows: ShardRows
    after: Position | None
    upto: Position
    partition_columns: list[str]
    at: float
    """When the first of them was put, or before that."""
    fields: list[Any] = field(default_factory=list)
    """Columns of all of them, as the JSON of a schema has them."""
    adds: list[Any] = field(default_factory=list)
    """Actions."""
    is_gone: bool = False
    """A file of them is not there any more."""
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    """Of the request to commit them."""

    def request(self, table: str, shard: Shard) -> Request:
        """The request to commit them to the table with this id."""
        files = files_of(self.adds, self.fields, self.partition_columns)
        return Request(self.id, table, shard, self.after, self.upto, self.rows.num_rows, files)

    def take_fields(self, fields: Sequence[Any], where: str) -> None:
        """Take in the columns of one more file.

        Raises:
            SinkError: one has another type than in an earlier file.
        """
        there = {each["name"]: each["type"] for each in self.fields}
        for each in fields:
            if (kind := there.get(each["name"])) is None:
                self.fields.append(each)
            elif kind != each["type"]:
                raise SinkError(
                    f"{where}: transform made column {each['name']} {kind} for one day, and {each['type']} for another"
                )


def days(rows: ShardRows) -> Iterator[tuple[date | None, ShardRows]]:
    """Rows by the day (UTC) of their arrival; one that arrived late, or without a time, lies in the newer day.

    None for the day of rows of which none has a time.
    """
    found = rows.newer_than(date.min)
    day = None if found is None else found[1]
    rest: ShardRows | None = rows
    while rest is not None:
        newer = None if day is None else rest.newer_than(day)
        if newer is None:
            yield day, rest
            return
        at, later = newer
        if at:
            part = rest.first(at)
            yield day, part
            rest = rest.after(part.last_position)
        day = later
