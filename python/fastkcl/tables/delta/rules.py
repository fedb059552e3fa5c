"""Decides which Delta tables we can add files to, by their demands on writers. No I/O.

Files are added as they are: we check no constraint, compute no column and rename none. A table that demands one of
these is refused, and the error names the demand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from fastkcl.tables.base import SinkError

__all__ = ["Rules", "check_field", "checked_fields", "fields_of", "nullable", "primitives"]

_Json: TypeAlias = Any

# The protocol's, except variant, which is a separate feature.
_TYPES: Final = {
    *("string", "long", "integer", "short", "byte", "float", "double", "decimal", "boolean", "binary"),
    *("date", "timestamp", "timestamp_ntz"),
}
# Features of a table that an append of whole files keeps to by itself, or that are looked for one by one.
_SAFE_FEATURES: Final = {
    *("appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns", "columnMapping"),
    *("changeDataFeed", "deletionVectors", "domainMetadata", "timestampNtz", "v2Checkpoint"),
}
_DEEPEST: Final = 100
_NEWEST_READER: Final = 3
_NEWEST_WRITER: Final = 7


@dataclass(frozen=True, slots=True)
class Rules:
    """A table's, by its metadata and its protocol."""

    table: str
    """For errors."""
    writer: str
    """The class that wants to write, for errors."""
    partition_columns: Sequence[str]
    configuration: Mapping[str, str]
    fields: Sequence[_Json]
    """Columns, as the JSON of a schema has them."""
    features: frozenset[str] = frozenset()
    """A writer's."""
    reader_version: int = 1
    writer_version: int = 2
    remedy: str = "add it to the table"
    """For a column that it does not have."""

    def check(self, partition_columns: Sequence[str] | None, fields: Sequence[_Json] = ()) -> None:
        """See that files can be added as they are.

        Args:
            partition_columns: those that it must be partitioned by.
            fields: columns that are to be written; none to look at the table's shape alone.

        Raises:
            SinkError: they cannot; it names the obstacle.
        """
        if partition_columns is not None and list(self.partition_columns) != list(partition_columns):
            raise self.refused(f"it is partitioned by {list(self.partition_columns)}, not by {list(partition_columns)}")
        if self.reader_version > _NEWEST_READER or self.writer_version > _NEWEST_WRITER:
            raise self.refused(f"its protocol, {self.reader_version} and {self.writer_version}, is newer than this")
        if unsafe := self.features - _SAFE_FEATURES:
            raise self.refused(f"it has features that are unknown here: {', '.join(sorted(unsafe))}")
        for key, value in self.configuration.items():
            if key.startswith("delta.constraints."):
                raise self.refused(f"nobody would check its constraint {key.removeprefix('delta.constraints.')}")
            if key == "delta.columnMapping.mode" and value != "none":
                raise self.refused("its columns have other names in its files (delta.columnMapping.mode)")
            if key == "delta.setTransactionRetentionDuration":
                raise self.refused(f"{key} would make it forget the positions of its shards: unset it")
        there = {field["name"]: field for field in self.fields}
        for name, field in there.items():
            if not field["nullable"]:
                raise self.refused(f"its column {name} is NOT NULL, and nobody would check it")
            kept = [key for key in field["metadata"] if key.startswith("delta.") and "columnMapping" not in key]
            if kept:
                raise self.refused(f"nobody would keep to {kept[0]} of its column {name}")
        for field in fields:
            name = field["name"]
            if name not in there:
                raise self.refused(f"it has no column {name}: {self.remedy}, or drop it in transform")
            if nullable(there[name]["type"]) != field["type"]:
                raise self.refused(f"its column {name} is {there[name]['type']}, and {field['type']} was to be written")

    def new(self, fields: Sequence[_Json]) -> list[_Json]:
        """The columns that the table does not have.

        Raises:
            SinkError: it has one of them in other capitals, or they need a feature that it does not have.
        """
        there = {field["name"]: field for field in self.fields}
        folded = {name.casefold(): name for name in there}
        found = [field for field in fields if field["name"] not in there]
        for field in found:
            name = field["name"]
            if name.casefold() in folded:
                raise self.refused(f"it has a column {folded[name.casefold()]}, and {name} was to be written")
            if "timestamp_ntz" in primitives(field["type"]) and "timestampNtz" not in self.features:
                raise self.refused(f"column {name} has times without a zone, and it lacks the feature timestampNtz")
        return found

    def refused(self, why: str) -> SinkError:
        """The error."""
        return SinkError(f"{self.table}: {self.writer} cannot write to this table: {why}")


def checked_fields(columns: Sequence[_Json], taken: Sequence[str]) -> list[_Json]:
    """Columns as a table has them: each value may be null, and there is no metadata.

    Args:
        columns: as the JSON of a schema has them.
        taken: names that the table has already.

    Raises:
        SinkError: one is taken, or has a type that Delta has not.
    """
    fields = [nullable(field) for field in columns]
    if found := {field["name"] for field in fields if field["name"].lower() in taken}:
        raise SinkError(f"column {found.pop()}: the table has it already, with the record's origin: name it otherwise")
    for field in fields:
        if unknown := {kind for kind in primitives(field["type"]) if kind.partition("(")[0] not in _TYPES}:
            raise SinkError(
                f"column {field['name']}: its type {unknown.pop()} is none of Delta's: cast it in transform"
            )
    return fields


def check_field(field: _Json) -> None:
    """See that a field in a schema's JSON is one, with all that is in it.

    Raises:
        ValueError: it is not, or is nested too deeply; or KeyError, or TypeError.
    """
    waiting = [(field, 0)]
    while waiting:
        each, depth = waiting.pop()
        if depth > _DEEPEST:
            raise ValueError(f"a type is nested in more than {_DEEPEST} others")
        if not (
            isinstance(each["name"], str) and type(each["nullable"]) is bool and isinstance(each["metadata"], dict)
        ):
            raise TypeError(f"{str(each)[:200]}: no field")
        waiting += [(part, depth + 1) for part in _fields_in(each["type"])]


def _fields_in(kind: _Json) -> list[_Json]:
    """The fields in a type; its elements, keys and values as if they were some."""

    def part(kind: _Json) -> _Json:
        return {"name": "", "nullable": True, "metadata": {}, "type": kind}

    match kind:
        case str():
            return []
        case {"type": "struct", "fields": list(fields)}:
            return fields
        case {"type": "array", "elementType": element, "containsNull": bool()}:
            return [part(element)]
        case {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": bool()}:
            return [part(key), part(value)]
        case {"type": "struct" | "array" | "map"}:
            raise TypeError(f"{str(kind)[:200]}: no type")
        case {"type": str()}:
            return []
    raise TypeError(f"{str(kind)[:200]}: no type")


def primitives(kind: _Json) -> Iterator[str]:
    """The types that a type in a schema's JSON is made of."""
    match kind:
        case {"type": "struct", "fields": fields}:
            for field in fields:
                yield from primitives(field["type"])
        case {"type": "array", "elementType": element}:
            yield from primitives(element)
        case {"type": "map", "keyType": key, "valueType": value}:
            yield from primitives(key)
            yield from primitives(value)
        case {"type": other}:
            yield other
        case _:
            yield kind


def nullable(part: _Json) -> _Json:
    """A part of a schema's JSON as Spark writes it into files: each value may be null, and there is no metadata."""
    if isinstance(part, list):
        return [nullable(item) for item in part]
    if not isinstance(part, dict):
        return part
    free = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}
    return {name: free.get(name, nullable(item)) for name, item in part.items()}


def fields_of(schema: str) -> list[_Json]:
    """The columns in a schema's JSON."""
    fields: list[_Json] = json.loads(schema)["fields"]
    return fields
