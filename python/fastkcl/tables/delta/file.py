"""Prepares Arrow for a Delta table's files: columns in Delta's types, and columns for the stream and the shard.

Delta has fewer types than Arrow. Types that fit are converted: times to microseconds in UTC, dictionaries to their
values, unsigned integers if they fit. Others are refused with the column's name.
"""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fastkcl.tables.base import Shard, SinkError
from fastkcl.tables.columns import repeated_text
from fastkcl.tables.delta.rules import checked_fields
from fastkcl.tables.folders import NULL, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

__all__ = ["ORIGIN", "folder_of", "origin_fields", "partition_values", "storable", "with_origin"]

_Json: TypeAlias = Any

ORIGIN: Final = ("stream", "shard", "date")
"""Columns that a table has of a record's origin; the last one only if it is partitioned by it."""


def storable(table: pa.Table) -> tuple[pa.Table, list[_Json]]:
    """A table in Delta's types.

    Returns:
        The table, and its columns as the JSON of a schema has them.

    Raises:
        SinkError: a column is of another type, has a value that does not fit, or a name of `ORIGIN`.
    """
    import pyarrow as pa
    from deltalake import Schema

    types, columns = [], []
    for field in table.schema:
        kind = field.type
        if pa.types.is_timestamp(kind):
            kind = pa.timestamp("us" if kind.unit in ("s", "ms") else kind.unit, None if kind.tz is None else "UTC")
        try:
            schema = Schema.from_arrow(pa.schema([(field.name, kind)]))
        except Exception:  # deltalake's has no other class, and a stack of Rust's in its text
            raise SinkError(f"column {field.name}: its type {kind} is none of Delta's: cast it in transform") from None
        columns += json.loads(schema.to_json())["fields"]
        types.append((field, schema))
    fields = checked_fields(columns, ORIGIN)
    made = []
    for (field, schema), column in zip(types, table.columns, strict=True):
        target = pa.schema(schema.to_arrow()).field(0).type
        try:
            made.append(column if column.type == target else column.cast(target))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SinkError(f"column {field.name}: {field.type} as Delta's {target}: {error}") from error
    return pa.table(made, names=table.column_names), fields


def origin_fields(partition_columns: Sequence[str]) -> list[_Json]:
    """The columns that say where a row is from, as the JSON of a schema has them."""
    kinds = {"stream": "string", "shard": "string", "date": "date"}
    names = [name for name in ORIGIN if name != "date" or name in partition_columns]
    return [{"name": name, "type": kinds[name], "nullable": True, "metadata": {}} for name in names]


def with_origin(table: pa.Table, shard: Shard, partition_columns: Sequence[str]) -> pa.Table:
    """A table as its file has it: columns that it is partitioned by are not in it."""
    for name, value in (("stream", shard.stream), ("shard", shard.shard_id)):
        if name not in partition_columns:
            table = table.append_column(name, repeated_text(value, table.num_rows))
    return table


def partition_values(shard: Shard, day: date | None, partition_columns: Sequence[str]) -> dict[str, str | None]:
    """Of a file with rows of a shard and a day."""
    values = {"stream": shard.stream, "shard": shard.shard_id, "date": None if day is None else day.isoformat()}
    return {name: values[name] for name in partition_columns}


def folder_of(values: Mapping[str, str | None]) -> str:
    """The folder of files with these values of partitions, with its slash.

    Readers take the values from the log, but polars takes them from the folder.
    """
    return "".join(f"{name}={NULL if value is None else quoted(value)}/" for name, value in values.items())
