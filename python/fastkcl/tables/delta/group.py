"""Requests for shared commits of a Delta table, and the entry that commits several of them. No I/O.

A request has the actions that add its files, the columns of those files, and the columns that the table is partitioned
by. A request of another child is checked completely: each action has to be exactly the one that a child makes for a
file in the folder of its partitions, with its position in the name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from fastkcl import Position
from fastkcl.tables.base import Shard
from fastkcl.tables.delta.actions import Json, about, information, transactions
from fastkcl.tables.delta.file import folder_of
from fastkcl.tables.folders import position_text
from fastkcl.tables.group import Request

__all__ = ["add_action", "checked", "entry_of", "files_of", "sizes_of"]

_MOST_FILES: Final = 4096  # of a request: one for each day
_MOST_SIZE: Final = 5 << 30  # bytes, of one PUT
_FILE: Final = re.compile(r"after-(.+)-[0-9a-f]{24}\.parquet", re.ASCII)


def add_action(key: str, values: dict[str, str | None], size: int, rows: int, modified: int) -> Json:
    """The action that adds a file.

    Args:
        key: of the file, from the table's folder on.
        values: of its partitions.
        size: bytes.
        rows: in it.
        modified: milliseconds since the epoch.
    """
    return {
        "add": {
            "path": quote(key, safe="/=@"),
            "partitionValues": values,
            "size": size,
            "modificationTime": modified,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows}),
        }
    }


def files_of(adds: Sequence[Json], fields: Sequence[Json], partition_columns: Sequence[str]) -> Json:
    """`Request.files` of a Delta table.

    Args:
        adds: actions.
        fields: columns of the files, as the JSON of a schema has them.
        partition_columns: of the table.
    """
    return {"adds": list(adds), "fields": list(fields), "columns": list(partition_columns)}


def sizes_of(request: Request) -> dict[str, int]:
    """The files of a request that was checked, from the table's folder on, and their bytes."""
    return {unquote(action["add"]["path"]): action["add"]["size"] for action in request.files["adds"]}


def checked(request: Request, partition_columns: Sequence[str]) -> list[Json]:
    """The columns of another child's files, of which each is one that can be added.

    Raises:
        ValueError: they are not.
    """
    try:
        if request.files["columns"] != list(partition_columns):
            raise ValueError(f"for partitions by {request.files['columns']}")
        adds, fields = request.files["adds"], request.files["fields"]
        if not isinstance(adds, list) or not isinstance(fields, list) or len(adds) > _MOST_FILES:
            raise ValueError("no lists")
        for action in adds:
            _check_add(action, request.shard, request.after, partition_columns)
        if len({action["add"]["path"] for action in adds}) < len(adds):
            raise ValueError("a file is named twice")
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{error!r}") from error
    return fields


def _check_add(action: Json, shard: Shard, after: Position | None, partition_columns: Sequence[str]) -> None:
    add = action["add"]
    values = add["partitionValues"]
    if set(values) != set(partition_columns) or not all(
        value is None or isinstance(value, str) for value in values.values()
    ):
        raise ValueError(f"partitions {values}")
    if values.get("stream", shard.stream) != shard.stream or values.get("shard", shard.shard_id) != shard.shard_id:
        raise ValueError(f"partitions of another shard: {values}")
    if (day := values.get("date")) is not None and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", day, re.ASCII):
        raise ValueError(f"date {day}")
    key = unquote(add["path"], errors="strict")
    folder = folder_of({name: values[name] for name in partition_columns})
    match = _FILE.fullmatch(key.removeprefix(folder))
    if not key.startswith(folder) or match is None or match[1] != position_text(after):
        raise ValueError(f"path {key}: not a file that a child stages")
    size, modified, rows = add["size"], add["modificationTime"], json.loads(add["stats"])["numRecords"]
    if type(size) is not int or type(modified) is not int or type(rows) is not int:
        raise ValueError("its numbers are none")
    if not (0 < size <= _MOST_SIZE and rows > 0 and 0 <= modified < 1 << 53):
        raise ValueError(f"{size} bytes, {rows} rows, of {modified}")
    if action != add_action(key, values, size, rows, modified):
        raise ValueError("it says more than a file")


def entry_of(requests: Sequence[Request], partition_columns: Sequence[str], metadata: Json) -> list[Json]:
    """The entry that commits requests, each of another shard.

    Args:
        requests: at least one.
        partition_columns: of the table.
        metadata: the table's new metadata; None if it stays.
    """
    told: list[Any] = [
        about(each.shard, each.after, each.upto, each.rows, len(each.files["adds"])) for each in requests
    ]
    return [
        information(partition_columns, told[0] if len(told) == 1 else told, blind=metadata is None),
        *([] if metadata is None else [{"metaData": metadata}]),
        *(add for each in requests for add in each.files["adds"]),
        *(action for each in requests for action in transactions(each.shard, each.upto)),
    ]
