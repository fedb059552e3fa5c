"""Avro payloads opened in Rust: every type and every step of a schema's evolution beside fastavro, headers, casts."""

import copy
import json
import os
import random
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from fastavro.read import SchemaResolutionError
from fastavro.schema import fingerprint, to_parsing_canonical_form
from fastkcl import _core
from schema_helpers import Schemas, avro_reader, batch_of, confluent, encoded, glue, opened, read, same, single_object

RECORDS = int(os.environ.get("FASTKCL_SCHEMA_RECORDS", "3000"))
"""Of each differential test; `make test-long` has 10^5."""
EACH = 20
"""Records of a schema."""
USER = {
    "type": "record",
    "name": "User",
    "namespace": "org.example",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}],
}


@pytest.mark.parametrize("part", range(5))
def test_random_schemas_and_values_are_fastavros(part: int) -> None:
    for seed in range(part, RECORDS // EACH, 5):
        schemas = Schemas(seed)
        schema = schemas.record()
        values = [schemas.value(schema) for _ in range(EACH)]
        payloads = [encoded(schema, value) for value in values]
        batch = opened(avro_reader(schema), payloads)
        assert batch["_corrupt"].null_count == EACH, (seed, schema)
        for row, payload in zip(batch.to_pylist(), payloads, strict=True):
            assert same(row, read(payload, schema), schema), (seed, row, schema)


def evolved(writer: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A reader's schema that can read the writer's, or its values but some."""
    reader = copy.deepcopy(writer)

    def change(node: Any) -> Any:
        if isinstance(node, list):
            return [branch if branch == "null" else change(branch) for branch in node]
        if isinstance(node, str):
            wider = {"int": ("long", "float", "double"), "long": ("double",), "float": ("double",)}.get(node, ())
            return chance.choice([node, *wider])
        match node["type"]:
            case "record":
                fields = [field | {"type": change(field["type"])} for field in node["fields"]]
                fields = [field for field in fields if chance.random() < 0.8]
                for index, (kind, default) in enumerate(DEFAULTS):
                    if chance.random() < 0.1:
                        fields.append({"name": f"new{index}", "type": kind, "default": default})
                for field in fields:
                    if chance.random() < 0.2:
                        field |= {"aliases": [field["name"]], "name": f"{field['name']}_renamed"}
                    if not isinstance(field["type"], list) and chance.random() < 0.2:
                        field["type"] = ["null", field["type"]]
                chance.shuffle(fields)
                return node | {"fields": fields or [{"name": "only", "type": "int", "default": 5}]}
            case "array":
                return node | {"items": change(node["items"])}
            case "map":
                return node | {"values": change(node["values"])}
            case "enum":
                symbols = chance.sample(node["symbols"], chance.randint(1, 4))
                return node | {"symbols": symbols} | ({"default": symbols[0]} if chance.random() < 0.5 else {})
        return node

    return change(reader)


DEFAULTS: list[tuple[Any, Any]] = [
    ("int", -7),
    ("string", "é"),
    (["null", "double"], None),
    ({"type": "array", "items": "long"}, [1, 2]),
    ({"type": "map", "values": "boolean"}, {"k": True}),
    ("bytes", "\u00ff"),
]


@pytest.mark.parametrize("part", range(5))
def test_evolution_is_fastavros(part: int) -> None:
    for seed in range(part, RECORDS // EACH, 5):
        schemas = Schemas(seed)
        writer = schemas.record()
        reader = evolved(writer, schemas.chance)
        payloads = [encoded(writer, schemas.value(writer)) for _ in range(EACH)]
        mine = avro_reader(reader, framing="confluent")
        dropped = mine.add("7", json.dumps(writer).encode())
        names = {name for field in reader["fields"] for name in (field["name"], *field.get("aliases", ()))}
        assert {path for path in dropped if "." not in path} == {
            field["name"] for field in writer["fields"] if field["name"] not in names
        }
        batch = opened(mine, [confluent(7, payload) for payload in payloads])
        for row, payload in zip(batch.to_pylist(), payloads, strict=True):
            try:
                expected = read(payload, writer, reader)
            except SchemaResolutionError:
                assert row["_corrupt"] == confluent(7, payload), (seed, writer, reader)
            else:
                assert row["_corrupt"] is None, (seed, writer, reader)
                assert same(row, expected, reader), (seed, row, expected)


UNIONS: list[tuple[Any, Any, list[Any]]] = [
    (["null", "int", "string"], ["null", "long"], [None, 5, "no"]),
    (["int", "null"], "int", [3, None]),
    (["int", "float"], ["null", "double"], [1, 2.5]),
    (["string"], "string", ["only"]),
    ("string", ["null", "string"], ["one"]),
    (
        ["null", {"type": "array", "items": "int"}, "string"],
        ["null", {"type": "array", "items": "double"}],
        [None, [1, 2], "no"],
    ),
    (["string", "bytes"], "bytes", ["text", b"\xff"]),
]


@pytest.mark.parametrize(("writer", "reader", "values"), UNIONS)
def test_unions_of_writers(writer: Any, reader: Any, values: list[Any]) -> None:
    def record(kind: Any) -> dict[str, Any]:
        return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}, {"name": "g", "type": "int"}]}

    mine = avro_reader(record(reader), framing="confluent")
    mine.add("1", json.dumps(record(writer)).encode())
    payloads = [encoded(record(writer), {"f": value, "g": index}) for index, value in enumerate(values)]
    batch = opened(mine, [confluent(1, payload) for payload in payloads])
    for row, payload in zip(batch.to_pylist(), payloads, strict=True):
        try:
            expected = read(payload, record(writer), record(reader))
        except SchemaResolutionError:
            assert row["_corrupt"] is not None
        else:
            assert (row["f"], row["g"], row["_corrupt"]) == (expected["f"], expected["g"], None)


def test_several_writers_in_one_batch() -> None:
    other = USER | {
        "fields": [{"name": "name", "type": "string"}, {"name": "id", "type": "int"}, {"name": "x", "type": "int"}]
    }
    ids = [uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3), uuid.UUID(int=4)]
    reader = avro_reader(USER, framing="glue")
    payloads: list[bytes | None] = [
        glue(ids[0], encoded(USER, {"id": 1, "name": "a"})),
        glue(ids[1], encoded(other, {"id": 2, "name": "b", "x": 0}), compress=True),
        None,
        glue(ids[2], b"anything"),
        b"no header",
        glue(ids[0], encoded(USER, {"id": 3, "name": None})),
        glue(ids[1], encoded(other, {"id": 4, "name": "c", "x": 0})),
    ]
    assert reader.unknown(batch_of([*payloads, glue(ids[3], b"")])) == [str(one) for one in ids]
    assert reader.add(str(ids[0]), json.dumps(USER).encode()) == []
    assert reader.add(str(ids[1]), json.dumps(other).encode()) == ["x"]
    with pytest.raises(ValueError, match="neither added nor rejected"):
        reader.open(batch_of(payloads), 0, 1 << 20)
    reader.reject(str(ids[2]), "EntityNotFoundException")
    assert reader.rejected == {str(ids[2]): "EntityNotFoundException"}
    assert reader.unknown(batch_of(payloads)) == []
    batch = opened(reader, payloads)
    assert batch["id"].to_pylist() == [1, 2, None, None, None, 3, 4]
    assert batch["name"].to_pylist() == ["a", "b", None, None, None, None, "c"]
    assert batch["_corrupt"].to_pylist() == [None, None, None, payloads[3], payloads[4], None, None]
    for most in (1, 50, 200):
        assert opened(reader, payloads, most).equals(batch)
    with pytest.raises(ValueError, match="added already"):
        reader.reject(str(ids[0]), "no")
    reader.add(str(ids[2]), json.dumps(USER).encode())
    assert reader.rejected == {}


def test_single_objects_and_fingerprints() -> None:
    for seed in range(50):
        schema = Schemas(seed).record()
        expected = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
        # fastavro writes the bytes as a single object has them.
        assert _core.avro_fingerprint(json.dumps(schema)) == bytes.fromhex(expected)[::-1].hex()
    # The fingerprint of "int" in the specification's own test data.
    assert _core.avro_fingerprint('"int"') == "7275d51a3f395c8f"
    own = _core.avro_fingerprint(json.dumps(USER))
    reader = avro_reader(USER, framing="single-object")
    payload = single_object(own, encoded(USER, {"id": 5, "name": "n"}))
    assert reader.unknown(batch_of([payload])) == []
    assert opened(reader, [payload])["id"].to_pylist() == [5]


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, **({"fields": []} if kind == "record" else {}), **more}


def holding(*kinds: Any) -> list[dict[str, Any]]:
    return [{"name": f"f{index}", "type": kind} for index, kind in enumerate(kinds)]


FIXED = named("fixed", "F", size=4)
ENUM = named("enum", "E", symbols=["a"])
NAMESPACES: list[tuple[Any, str, str]] = [
    (
        named("record", "A", namespace=""),
        "abca0562d47ca72a",
        '{"name":"A","type":"record","fields":[]}',
    ),
    (
        named("record", "A", namespace="n", fields=holding(FIXED | {"namespace": ""}, "F")),
        "fcf0ffedf620cac1",
        '{"name":"n.A","type":"record","fields":[{"name":"f0","type":{"name":"F","type":"fixed","size":4}},'
        '{"name":"f1","type":"F"}]}',
    ),
    (
        named(
            "record", "A", namespace="n", fields=holding(named("record", "B", namespace="", fields=holding(ENUM, "E")))
        ),
        "67bad31f25e213a0",
        '{"name":"n.A","type":"record","fields":[{"name":"f0","type":{"name":"B","type":"record","fields":['
        '{"name":"f0","type":{"name":"E","type":"enum","symbols":["a"]}},{"name":"f1","type":"E"}]}}]}',
    ),
    (
        named("record", "A", namespace="n", fields=holding(named("record", ".B", fields=holding("int")), ".B")),
        "8b9d01e496ad9953",
        '{"name":"n.A","type":"record","fields":[{"name":"f0","type":{"name":"B","type":"record","fields":['
        '{"name":"f0","type":"int"}]}},{"name":"f1","type":"B"}]}',
    ),
    (
        named("record", "a.b.A", namespace="n", fields=holding(FIXED, "F", "a.b.F")),
        "3065a19830bf585d",
        '{"name":"a.b.A","type":"record","fields":[{"name":"f0","type":{"name":"a.b.F","type":"fixed","size":4}},'
        '{"name":"f1","type":"a.b.F"},{"name":"f2","type":"a.b.F"}]}',
    ),
    (
        named("record", "A", fields=holding(named("record", "B", namespace="m", fields=holding(ENUM)), "m.E")),
        "50634c5daff7deec",
        '{"name":"A","type":"record","fields":[{"name":"f0","type":{"name":"m.B","type":"record","fields":['
        '{"name":"f0","type":{"name":"m.E","type":"enum","symbols":["a"]}}]}},{"name":"f1","type":"m.E"}]}',
    ),
    (
        named("error", "A", doc="ü", fields=[{"name": "x", "type": {"type": "int"}, "default": 0, "aliases": ["y"]}]),
        "00933990f2028450",
        '{"name":"A","type":"record","fields":[{"name":"x","type":"int"}]}',
    ),
]
"""Schemas; the CRC-64-AVRO and the Parsing Canonical Form of Avro's Java library, which the system tests ask again."""


@pytest.mark.parametrize(("schema", "number", "form"), NAMESPACES, ids=[form[:40] for *_, form in NAMESPACES])
def test_fingerprints_of_namespaces(schema: Any, number: str, form: str) -> None:
    assert _core.avro_fingerprint(json.dumps(schema)) == number
    # Of one that is canonical already, fastavro's agrees; of others it lacks some namespaces.
    assert bytes.fromhex(fingerprint(form, "CRC-64-AVRO"))[::-1].hex() == number


def test_what_has_no_type_of_spark_is_refused_with_the_choices() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "u", "type": ["null", "int", "string"]},
            {"name": "t", "type": {"type": "array", "items": {"type": "int", "logicalType": "time-millis"}}},
            {"name": "d", "type": {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}},
            {
                "name": "n",
                "type": {"type": "map", "values": ["null", {"type": "long", "logicalType": "timestamp-nanos"}]},
            },
            {"name": "e", "type": {"type": "record", "name": "E", "fields": []}},
            {"name": "b", "type": ["int", {"type": "array", "items": "int"}]},
            {"name": "x", "type": "null"},
            {"name": "big", "type": {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 0}},
            {"name": "ok", "type": "int"},
        ],
    }
    with pytest.raises(ValueError, match="no type of Spark") as refused:
        avro_reader(schema)
    text = str(refused.value)
    for path in ("u: ", "t.element: ", "d: ", "n.value: ", "e: ", "b: ", "x: ", "big: "):
        assert f"{path}" in text, path
    assert text.count('cast it to "string" or "drop"') == 4
    assert text.count('cast it to "drop"') == 4
    casts = {"u": "string", "t.element": "string", "d": "string", "n.value": "string"}
    casts |= {"e": "drop", "b": "drop", "x": "drop", "big": "drop"}
    reader = avro_reader(schema, casts=casts)
    value = {"u": 7, "t": [3_723_004], "d": bytes([1, 0, 0, 0, 2, 0, 0, 0, 0xDC, 5, 0, 0]), "n": {"k": 1_500_000_000}}
    rest = {"e": {}, "b": [1], "x": None, "big": Decimal(1), "ok": 9}
    plain = copy.deepcopy(schema)
    for field in plain["fields"][1:4]:
        json.dumps(field)  # fastavro writes the numbers themselves where the logical type is gone
    plain = json.loads(json.dumps(plain).replace('"logicalType": "time-millis"', '"x": 1'))
    plain = json.loads(json.dumps(plain).replace('"logicalType": "timestamp-nanos"', '"x": 1'))
    plain = json.loads(json.dumps(plain).replace('"logicalType": "duration"', '"x": 1'))
    payloads = [encoded(plain, value | rest), encoded(plain, value | rest | {"u": "seven"})]
    payloads.append(encoded(plain, value | rest | {"u": None, "n": {"k": None}}))
    batch = opened(reader, payloads)
    assert batch["u"].to_pylist() == ["7", "seven", None]
    assert batch["t"].to_pylist()[0] == ["01:02:03.004"]
    assert batch["d"].to_pylist()[0] == "P1M2DT1.500S"
    assert batch["n"].to_pylist() == [[("k", "1970-01-01T00:00:01.500Z")]] * 2 + [[("k", None)]]
    assert batch["ok"].to_pylist() == [9, 9, 9]
    assert pa.schema(reader).names[:5] == ["u", "t", "d", "n", "ok"]


def test_fields_that_differ_by_the_size_of_letters_are_refused() -> None:
    inner = named("record", "I", fields=[{"name": "id", "type": "int"}, {"name": "Id", "type": "int"}])
    for kind, path in (
        (inner, "f0.Id"),
        ({"type": "array", "items": inner}, "f0.element.Id"),
        ({"type": "map", "values": ["null", {"type": "array", "items": inner}]}, "f0.value.element.Id"),
    ):
        schema = named("record", "R", fields=holding(kind, "int"))
        with pytest.raises(ValueError, match=f"{path}: Spark has one field of this name"):
            avro_reader(schema)
        assert pa.schema(avro_reader(schema, casts={path: "drop"})).names[:2] == ["f0", "f1"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "no JSON"),
        ('"int"', "columns need a record"),
        ({"type": "record", "name": "R", "fields": []}, "no fields"),
        ({"type": "record", "name": "R", "fields": [{"name": "f", "type": "nix"}]}, "f: no type has the name nix"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", "R"]}]},
            "f: R contains itself",
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "partitionkey", "type": "int"}]},
            "every record has a column of this name",
        ),
        ('{"type":"array","items":' * 200 + '"int"' + "}" * 200, "no JSON|deeper"),
    ],
)
def test_a_schema_that_is_none(schema: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        avro_reader(schema)


def test_a_schema_that_grows_is_bounded() -> None:
    fields: list[dict[str, Any]] = []
    inner: Any = {"type": "record", "name": "R0", "fields": [{"name": "f", "type": "int"}]}
    for level in range(1, 30):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{level - 1}"}]
        inner = {"type": "record", "name": f"R{level}", "fields": fields}
    with pytest.raises(ValueError, match="more than 20000 types"):
        avro_reader(inner)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("string", "id: string cannot be read as long"),
        ({"type": "long", "logicalType": "timestamp-micros"}, None),
        (["null"], "the writer has nulls alone"),
    ],
)
def test_a_writer_that_cannot_be_resolved(kind: Any, message: str | None) -> None:
    reader = avro_reader(USER, framing="confluent")
    writer = USER | {"fields": [{"name": "id", "type": kind}]}
    if message is None:
        assert reader.add("1", json.dumps(writer).encode()) == []
        return
    with pytest.raises(ValueError, match=message):
        reader.add("1", json.dumps(writer).encode())
    with pytest.raises(ValueError, match="no such field"):
        reader.add("1", json.dumps(USER | {"fields": [{"name": "other", "type": "long"}]}).encode())
    for bad in ("x", "-1", "01", ""):
        with pytest.raises(ValueError, match="no id"):
            reader.add(bad, b"{}")
    assert reader.unknown(batch_of([confluent(1, b"")])) == ["1"]


def test_the_payload_stays_if_asked() -> None:
    payloads = [encoded(USER, {"id": 1, "name": "x"}), b"bad"]
    batch = opened(avro_reader(USER, keep_payload=True), payloads)
    assert batch["data"].to_pylist() == payloads
    assert batch.schema.names[:3] == ["id", "name", "data"]


def test_json_after_a_header() -> None:
    columns = pa.schema([("a", pa.int64())]).serialize().to_pybytes()
    one = uuid.UUID(int=9)
    reader = _core.SchemaReader(
        format="json", framing="glue", schema=columns, max_payload_bytes=1000, keep_payload=True
    )
    payloads = [glue(one, b'{"a":1}'), glue(one, b'{"a":2}', compress=True), b'{"a":3}', glue(one, b'{"a":1.5}'), None]
    assert reader.unknown(batch_of(payloads)) == [str(one)]
    with pytest.raises(ValueError, match="neither added nor rejected"):
        reader.open(batch_of(payloads), 0, 1 << 20)
    reader.add(str(one), b"{}")
    batch = opened(reader, payloads)
    assert batch["a"].to_pylist() == [1, 2, None, None, None]
    assert batch["_corrupt"].to_pylist() == [None, None, payloads[2], None, None]
    assert batch["_unparsed"].to_pylist() == [None, None, None, b'{"a":1.5}', None]
    assert batch["_packed"].to_pylist() == [None, None, None, payloads[3], None]
    assert batch["data"].to_pylist() == payloads
