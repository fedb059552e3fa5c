"""Payloads with a schema: batches of them, headers of registries, and Avro schemas and values by chance."""

from __future__ import annotations

import io
import json
import random
import struct
import uuid
import zlib
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
from fastkcl import _core

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST = 1 << 26


def batch_of(payloads: Sequence[bytes | None]) -> _core.RecordBatch:
    """Records of a GetRecords answer: keys k0, k1…"""
    records = [
        {
            "Data": None if payload is None else b64encode(payload).decode(),
            "PartitionKey": f"k{index}",
            "SequenceNumber": str(index),
        }
        for index, payload in enumerate(payloads)
    ]
    return _core.decode_get_records(json.dumps({"Records": records}).encode()).batch.canonical()


def opened(reader: _core.SchemaReader, payloads: Sequence[bytes | None], max_bytes: int = MOST) -> pa.RecordBatch:
    """All of them; each piece has the columns that the reader promises."""
    batch, pieces, row = batch_of(payloads), [], 0
    promised = pa.schema(reader)
    while row < len(payloads):
        piece = reader.open(batch, row, max_bytes)
        assert piece.num_rows > 0
        pieces.append(pa.record_batch(piece))
        assert pieces[-1].schema.equals(promised), (pieces[-1].schema, promised)
        pieces[-1].validate(full=True)
        row += piece.num_rows
    table = pa.Table.from_batches(pieces, promised).combine_chunks()
    assert table["partitionKey"].to_pylist() == [f"k{index}" for index in range(len(payloads))]
    (whole,) = table.to_batches() or [pa.RecordBatch.from_pylist([], promised)]
    return whole


def avro_reader(schema: Any, **options: Any) -> _core.SchemaReader:
    """Of a schema as Python objects, or as text."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    options = {"framing": "none", "max_payload_bytes": MOST} | options
    return _core.SchemaReader(format="avro", schema=text.encode(), **options)


def encoded(schema: Any, value: Any) -> bytes:
    """By fastavro, without a header."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def glue(schema_id: uuid.UUID, body: bytes, *, compress: bool = False) -> bytes:
    """Glue's header."""
    return bytes([3, 5 if compress else 0]) + schema_id.bytes + (zlib.compress(body) if compress else body)


def confluent(schema_id: int, body: bytes) -> bytes:
    """Confluent's header."""
    return struct.pack(">BI", 0, schema_id) + body


def single_object(fingerprint: str, body: bytes) -> bytes:
    """The header of a single object."""
    return b"\xc3\x01" + bytes.fromhex(fingerprint)[::-1] + body


def same(one: Any, other: Any, node: Any) -> bool:
    """Whether a value of pyarrow is that of fastavro: maps of pyarrow are lists of pairs."""
    if isinstance(node, list):
        inner = [branch for branch in node if branch != "null"]
        return one is None and other is None if one is None or other is None else same(one, other, inner[0])
    kind = node["type"] if isinstance(node, dict) else node
    if isinstance(kind, (dict, list)):
        return same(one, other, kind)
    if kind == "record":
        return all(same(one[field["name"]], other[field["name"]], field["type"]) for field in node["fields"])
    if kind == "array":
        return len(one) == len(other) and all(map(lambda left, right: same(left, right, node["items"]), one, other))
    if kind == "map":
        pairs = dict(one)
        return pairs.keys() == other.keys() and all(same(pairs[key], other[key], node["values"]) for key in pairs)
    if kind == "float":
        other = struct.unpack("f", struct.pack("f", other))[0]  # fastavro makes doubles of integers
    if kind == "bytes" and isinstance(other, str):
        other = other.encode("latin-1")  # fastavro leaves a default as the schema's JSON has it
    return one == (str(other) if isinstance(other, uuid.UUID) else other)


class Schemas:
    """Schemas and values by chance, the same for a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.names = 0

    def name(self, prefix: str) -> str:
        """One that no other type has."""
        self.names += 1
        return f"{prefix}{self.names}"

    def record(self, depth: int = 0) -> dict[str, Any]:
        """A record of up to eight fields."""
        count = self.chance.randint(1, 8 if depth == 0 else 4)
        fields = [{"name": f"f{index}", "type": self.type(depth + 1)} for index in range(count)]
        return {"type": "record", "name": self.name("R"), "fields": fields}

    def type(self, depth: int) -> Any:
        """Any type with a column."""
        chance = self.chance
        if chance.random() < 0.3:
            inner = self.single(depth)
            return ["null", inner] if chance.random() < 0.7 else [inner, "null"]
        return self.single(depth)

    def single(self, depth: int) -> Any:
        """A type that is no union."""
        makers = [lambda one=one: one for one in ("boolean", "int", "long", "float", "double", "bytes", "string")]
        makers += [
            lambda: {"type": "enum", "name": self.name("E"), "symbols": ["A", "B", "C", "D"]},
            lambda: {"type": "fixed", "name": self.name("F"), "size": self.chance.randint(1, 20)},
            lambda: {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
            lambda: {
                "type": "fixed",
                "name": self.name("D"),
                "size": 9,
                "logicalType": "decimal",
                "precision": 20,
                "scale": 0,
            },
            lambda: {"type": "int", "logicalType": "date"},
            lambda: {"type": "long", "logicalType": self.chance.choice(LOGICAL)},
            lambda: {"type": "string", "logicalType": "uuid"},
        ]
        if depth < 4:
            makers += [
                lambda: {"type": "array", "items": self.type(depth + 1)},
                lambda: {"type": "map", "values": self.type(depth + 1)},
                lambda: self.record(depth),
            ] * 2
        return self.chance.choice(makers)()

    def value(self, node: Any) -> Any:
        """A value of a type, as fastavro takes and gives it."""
        chance = self.chance
        if isinstance(node, list):
            return self.value(chance.choice(node))
        if isinstance(node, str):
            return self.primitive(node)
        kind, logical = node["type"], node.get("logicalType")
        if kind == "record":
            return {field["name"]: self.value(field["type"]) for field in node["fields"]}
        if kind == "array":
            return [self.value(node["items"]) for _ in range(chance.randint(0, 3))]
        if kind == "map":
            return {self.primitive("string"): self.value(node["values"]) for _ in range(chance.randint(0, 3))}
        if kind == "enum":
            return chance.choice(node["symbols"])
        if logical:
            return self.logical(node, logical)
        return chance.randbytes(node["size"]) if kind == "fixed" else self.value(kind)

    def primitive(self, kind: str) -> Any:
        """A value of a type with a name of Avro's."""
        chance = self.chance
        width = chance.choice((1, 8, 31, 63))
        match kind:
            case "null":
                return None
            case "boolean":
                return chance.random() < 0.5
            case "int":
                return chance.randint(-(2 ** min(width, 31)), 2 ** min(width, 31) - 1)
            case "long":
                return chance.randint(-(2**width), 2**width - 1)
            case "float":
                return struct.unpack("f", struct.pack("f", chance.gauss(0, 1e6)))[0]
            case "double":
                return chance.choice((0.0, -0.0, float("inf"), chance.gauss(0, 1e100)))
            case "bytes":
                return chance.randbytes(chance.choice((0, 1, 20, 200)))
            case _:
                return "".join(chance.choice("aZ0 é√😀\0") for _ in range(chance.choice((0, 1, 10, 100))))

    def logical(self, node: dict[str, Any], logical: str) -> Any:
        """A value of a logical type."""
        chance = self.chance
        if logical == "decimal":
            digits = chance.randint(1, node["precision"])
            return Decimal(chance.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(-node["scale"])
        if logical == "date":
            return date(1970, 1, 1) + timedelta(days=chance.randint(-700_000, 2_900_000))
        if logical == "uuid":
            return uuid.UUID(int=chance.getrandbits(128))
        micros = chance.randint(-(10**16), 10**17)
        when = EPOCH + timedelta(microseconds=micros - micros % (1000 if "millis" in logical else 1))
        return when.replace(tzinfo=None) if "local" in logical else when


LOGICAL = ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")


def read(body: bytes, writer: Any, reader: Any = None) -> Any:
    """What fastavro makes of it."""
    return fastavro.schemaless_reader(io.BytesIO(body), writer, reader)
