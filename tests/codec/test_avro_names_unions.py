"""Avro schemas at the edges: names that columns cannot have, unions of any branches, and sizes. Right, or refused."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from fastkcl import ConfigurationError
from fastkcl.payloads import AvroPayload, BatchOpener
from schema_helpers import avro_reader, confluent, encoded, opened, read


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    """A record of fields, each a name and a type."""
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


FINE = ["a", "A1", "_x", "user-id", "größe", "with space", "a`b", "名", "a,b", "x" * 500, "element", "key", "list"]


@pytest.mark.parametrize("name", FINE)
def test_a_name_that_columns_can_have_is_kept(name: str) -> None:
    schema = record((name, "long"), ("r", record((name, "string"), name="S")))
    reader = avro_reader(schema)
    payload = b"\x0e\x02x"  # fastavro refuses some of the names
    (row,) = opened(reader, [payload]).to_pylist()
    assert (row[name], row["r"], row["_corrupt"]) == (7, {name: "x"}, None)


INNER = record(("Id", "int"), ("iD", "int"), name="S")
REFUSED: list[tuple[Any, str]] = [
    (record(("", "int")), r': "" is no name of a field in Avro.*cast it to "drop"'),
    (record(("a.b", "int")), r'a\.b: "a\.b" is no name of a field in Avro.*"drop"'),
    (record(("r", record(("", "int"), name="S"))), r'r\.: "" is no name'),
    (record(("r", {"type": "array", "items": record(("x.y", "int"), name="S")})), r'r\.element\.x\.y: "x\.y" is'),
    (record(("r", {"type": "map", "values": ["null", record(("x.", "int"), name="S")]})), r'r\.value\.x\.: "x\." is'),
    (record(("id", "int"), ("ID", "int")), "a second column 'ID'"),
    (record(("größe", "int"), ("GRÖSSE", "int")), "a second column 'GRÖSSE'"),
    (record(("r", INNER)), r"r\.iD: Spark has one field of this name.*drop this one"),
    (record(("r", {"type": "array", "items": ["null", INNER]})), r"r\.element\.iD: Spark has one field"),
    (record(("r", {"type": "map", "values": INNER})), r"r\.value\.iD: Spark has one field"),
    (record(("partitionkey", "int")), "partitionkey: every record has a column of this name"),
    (record(("_CORRUPT", "int")), "_CORRUPT: every record has a column of this name"),
    (record(("id", "int"), ("id", "int")), "id: R has two of them"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_name_that_columns_cannot_have_is_refused_at_the_start(schema: Any, message: str) -> None:
    with pytest.raises((ConfigurationError, ValueError), match=message):
        BatchOpener(AvroPayload(schema=json.dumps(schema)))


def test_a_refused_field_can_be_dropped() -> None:
    schema = record(("", "int"), ("a.b", "int"), ("id", "int"), ("ID", "string"), ("r", INNER))
    casts = {"": "drop", "a.b": "drop", "ID": "drop", "r.iD": "drop"}
    reader = avro_reader(schema, casts=casts)
    (row,) = opened(reader, [b"\x02\x04\x06\x02x\x08\x0a"]).to_pylist()
    assert {"id": row["id"], "r": row["r"], "_corrupt": row["_corrupt"]} == {"id": 3, "r": {"Id": 4}, "_corrupt": None}
    assert "ID" not in row
    BatchOpener(AvroPayload(schema=json.dumps(schema), casts=casts))  # type: ignore[arg-type]


KINDS: dict[str, tuple[Any, list[Any]]] = {
    "int": ("int", [0, -1, 2**31 - 1]),
    "string": ("string", ["", "é"]),
    "boolean": ("boolean", [True, False]),
    "double": ("double", [0.5, -0.0]),
    "bytes": ("bytes", [b"", b"\xff"]),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["A", "B"]),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, [b"ab"]),
    "array": ({"type": "array", "items": ["string"]}, [[], ["x", "y"]]),
    "record": (record(("x", ["null", "int"]), name="S"), [{"x": None}, {"x": 5}]),
    "nested": ({"type": "array", "items": ["int", "null"]}, [[1, None, 2]]),
}
FORMS = {
    "T": lambda kind: kind,
    "[T]": lambda kind: [kind],
    "[null, T]": lambda kind: ["null", kind],
    "[T, null]": lambda kind: [kind, "null"],
}
PLACES = {
    "column": (lambda kind: kind, lambda value: value),
    "element": (lambda kind: {"type": "array", "items": kind}, lambda value: [value, value]),
    "field": (lambda kind: record(("y", kind), name="O"), lambda value: {"y": value}),
    "value": (lambda kind: {"type": "map", "values": kind}, lambda value: {"k": value}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("writer", "reader"), list(itertools.product(FORMS, FORMS)))
def test_a_union_of_one_type_is_that_type(kind: str, writer: str, reader: str) -> None:
    """In each place, for each form of the writer's and of the reader's: as fastavro resolves it."""
    inner, values = KINDS[kind]
    for place, (around, within) in PLACES.items():
        written = record(("v", around(FORMS[writer](inner))))
        wanted = record(("v", around(FORMS[reader](inner))))
        given = [within(value) for value in [*values, *([None] if "null" in writer else [])]]
        payloads = [encoded(written, {"v": value}) for value in given]
        made = avro_reader(wanted, framing="confluent")
        assert made.add("1", json.dumps(written).encode()) == []
        rows = opened(made, [confluent(1, payload) for payload in payloads]).to_pylist()
        for row, value, payload in zip(rows, given, payloads, strict=True):
            if value == within(None) and "null" not in reader:
                assert (row["v"], row["_corrupt"]) == (None, confluent(1, payload)), place
                continue
            found = dict(row["v"]) if place == "value" else row["v"]
            assert (found, row["_corrupt"]) == (value, None), place
            assert read(payload, written, wanted)["v"] == value


TWO: list[tuple[Any, str]] = [
    (["int", "string"], r'v: union of int, string has no type of Spark; cast it to "string" or "drop"'),
    (["null", "int", "string"], r'v: union of null, int, string has no type of Spark; cast it to "string" or "drop"'),
    (["int", "null", "string"], r'v: union of int, null, string has no type of Spark; cast it to "string" or "drop"'),
    (["int", record(("x", "int"), name="S")], r'v: union of int, record S has no type of Spark; cast it to "drop"'),
    (["null"], r'v: union of null has no type of Spark; cast it to "drop"'),
    ("null", r'v: null has no type of Spark; cast it to "drop"'),
    ({"type": "array", "items": ["int", "string"]}, r'v\.element: union of int, string has no type of Spark'),
    ({"type": "map", "values": ["int", "string"]}, r'v\.value: union of int, string has no type of Spark'),
    (record(("x", ["null", {"type": "array", "items": ["int", "long", "null"]}]), name="S"), r"v\.x\.element: union"),
    (["int", "int"], "v: a union with int twice"),
    (["null", "null"], "v: a union with null twice"),
    ([], "v: a union of nothing"),
    (["null", ["int"]], "v: a union in a union"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "message"), TWO, ids=[message for _, message in TWO])
def test_a_union_without_a_column_is_refused_with_its_path_and_the_choices(kind: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        avro_reader(record(("v", kind)))


@pytest.mark.parametrize("branches", list(itertools.permutations(["null", "int", "string"])))
def test_a_writers_union_of_several_types_is_read_branch_by_branch(branches: tuple[str, ...]) -> None:
    """A branch that the reader's type does not take is corrupt, and the others are right."""
    written = record(("v", list(branches)))
    reader = avro_reader(record(("v", ["null", "long"])), framing="confluent")
    reader.add("1", json.dumps(written).encode())
    data = [confluent(1, encoded(written, {"v": value})) for value in (5, "x", None, -6)]
    rows = opened(reader, data)
    assert rows["v"].to_pylist() == [5, None, None, -6]
    assert rows["_corrupt"].to_pylist() == [None, data[1], None, None]


@pytest.mark.parametrize("count", [2, 126, 127, 128])
def test_a_union_of_many_branches(count: int) -> None:
    """The writer's, read branch by branch; and the reader's as text."""
    kinds = [{"type": "enum", "name": f"E{number}", "symbols": ["A"]} for number in range(count - 1)]
    written = record(("v", [*kinds, "long"]), ("w", "string"))
    reader = avro_reader(record(("v", ["null", "long"]), ("w", "string")), framing="confluent")
    reader.add("1", json.dumps(written).encode())
    data = [confluent(1, encoded(written, {"v": value, "w": "x"})) for value in (5, "A", 7)]
    rows = opened(reader, data)
    assert rows["v"].to_pylist() == [5, None, 7]
    assert rows["_corrupt"].to_pylist() == [None, data[1], None]
    texts = opened(avro_reader(written, casts={"v": "string"}), [each[5:] for each in data])
    assert texts["v"].to_pylist() == ["5", "A", "7"]


@pytest.mark.parametrize("count", [129, 5000])
def test_a_union_of_more_branches_than_arrow_has_ids_is_refused_with_its_path(count: int) -> None:
    branches = [{"type": "fixed", "name": f"F{number}", "size": 1} for number in range(count)]
    schema = record(("r", record(("v", branches), name="S")))
    with pytest.raises(ValueError, match=rf"schema: r\.v: a union of {count} types; the most are 128"):
        avro_reader(schema, casts={"r": "drop"})
    reader = avro_reader(record(("w", "string")), framing="confluent")
    with pytest.raises(ValueError, match=rf"schema 1: r\.v: a union of {count} types; the most are 128"):
        reader.add("1", json.dumps(schema).encode())


# Sizes: the cost of a schema is linear in its size, whatever refers to what.


def seconds_of(schema: Any) -> float:
    """CPU of a schema that is read or refused, and of itself as a writer's."""
    begun = time.process_time()
    with suppress(ValueError):
        reader = avro_reader(schema, framing="confluent")
        reader.add("1", json.dumps(schema).encode())
    return time.process_time() - begun


def chained(count: int) -> Any:
    """Records, each of which has the one before, and its name: 2^count types, were all written out."""
    kind: Any = "int"
    for number in range(count):
        kind = record(("a", kind), ("b", kind if isinstance(kind, str) else kind["name"]), name=f"R{number}")
    return record(("v", kind))


def referred(count: int) -> Any:
    """A record, and its name again and again."""
    return record(("f", record(("x", "int"), name="S")), *((f"f{number}", "S") for number in range(count)))


def deep(namespace: str, levels: int) -> Any:
    """Records in each other."""
    kind: Any = "int"
    for number in range(levels):
        kind = record(("f", kind), name=f"{namespace}.R{number}")
    return kind


GROWING: dict[str, Any] = {
    "names of a record": referred,
    "fields": lambda count: record(*((f"f{number}", "int") for number in range(count))),
    "unions": lambda count: record(*((f"f{n}", ["null", {"type": "array", "items": ["int"]}]) for n in range(count))),
    "records in each other": lambda count: record(*((f"f{n}", deep(f"n{n}", 25)) for n in range(count // 25))),
    "symbols": lambda count: record(("v", {"type": "enum", "name": "E", "symbols": [f"s{n}" for n in range(count)]})),
}


@pytest.mark.parametrize("kind", GROWING)
def test_the_cost_of_a_schema_grows_with_its_size(kind: str) -> None:
    """Ten times the size costs ten times as much, and not a hundred times: between them is the bound."""
    small, large = (seconds_of(GROWING[kind](count)) for count in (400, 4000))
    assert large < 35 * max(small, 0.004), (small, large)


def test_names_in_names_are_not_written_out_without_a_bound() -> None:
    """2^9 types have columns; 2^40 are refused in the time of some thousands."""
    allowed, refused = chained(9), chained(40)
    avro_reader(allowed)
    with pytest.raises(ValueError, match="more than 20000 types"):
        avro_reader(refused)
    assert seconds_of(refused) < 5 * max(seconds_of(allowed), 0.1)


def test_a_writers_union_is_compared_a_bounded_number_of_times() -> None:
    """Each branch is read as the reader's record, whose fields have defaults: a product of both sizes."""
    fields = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(4000)]
    wanted = record(("v", {"type": "record", "name": "S", "fields": fields}))
    branches = [{"type": "record", "name": f"n{number}.S", "fields": []} for number in range(128)]
    reader = avro_reader(wanted, framing="confluent")
    begun = time.process_time()
    with pytest.raises(ValueError, match="too many types to compare|two types of the writer's union"):
        reader.add("1", json.dumps(record(("v", branches))).encode())
    assert time.process_time() - begun < 10
    assert pa.schema(reader).names[0] == "v"
