"""A batch of Avro or Protobuf payloads in memory to Arrow columns, beside a library, dictionaries and pyarrow.

Clicks of some 400 bytes: strings, an enum, a number that may be null, a list, a record inside.
"""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fastkcl import _core
from google.protobuf.json_format import MessageToDict
from proto_helpers import message_class
from schema_helpers import batch_of
from suites import Way, one_core, take_turns, timed

RECORDS = 100_000
QUICK_RECORDS = 2_000
ROUNDS = 5
MOST = 1 << 28
KINDS = ("VIEW", "CLICK", "BUY")
AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [
        *({"name": name, "type": "string"} for name in ("id", "user", "session", "url", "agent")),
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": list(KINDS)}},
        {"name": "price", "type": ["null", "double"]},
        {"name": "at", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "country", "type": "string"}, {"name": "zip", "type": "int"}],
            },
        },
    ],
}
PROTO = """syntax = "proto3";
enum Kind { VIEW = 0; CLICK = 1; BUY = 2; }
message Place { string country = 1; int32 zip = 2; }
message Click {
  string id = 1; string user = 2; string session = 3; string url = 4; string agent = 5; Kind kind = 6;
  optional double price = 7; int64 at = 8; repeated string tags = 9; Place place = 10;
}"""


def clicks(count: int) -> list[dict[str, Any]]:
    """The same each time."""
    chance = random.Random(7)  # noqa: S311 - no secret
    return [
        {
            "id": f"{chance.getrandbits(128):032x}",
            "user": f"user-{chance.randint(1, 10**6)}",
            "session": f"{chance.getrandbits(128):032x}",
            "url": "https://www.example.org/shop/items/" + "x" * chance.randint(20, 100),
            "agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0",
            "kind": chance.choice(KINDS),
            "price": None if chance.random() < 0.5 else chance.random() * 100,
            "at": 1_700_000_000_000 + chance.randint(1, 10**9),
            "tags": [f"tag-{chance.randint(1, 100)}" for _ in range(chance.randint(0, 5))],
            "place": {"country": chance.choice(("DE", "FR", "US")), "zip": chance.randint(10_000, 99_999)},
        }
        for _ in range(count)
    ]


class Avro:
    """Clicks in Avro."""

    peer = "fastavro, dictionaries, pyarrow"

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.schema = fastavro.parse_schema(AVRO)
        self.payloads = [self._write(row) for row in rows]
        schema = json.dumps(AVRO).encode()
        self.reader = _core.SchemaReader(format="avro", framing="none", schema=schema, max_payload_bytes=1 << 20)

    def _write(self, row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self.schema, row)
        return out.getvalue()

    def other(self, columns: pa.Schema) -> pa.RecordBatch:
        """As people do it."""
        rows = [fastavro.schemaless_reader(io.BytesIO(payload), self.schema) for payload in self.payloads]
        return pa.RecordBatch.from_pylist(rows, columns)


class Protobuf:
    """Clicks in Protobuf."""

    peer = "protobuf, dictionaries, pyarrow"

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        schema = _core.compile_proto({"click.proto": PROTO}, "click.proto")
        self.kind: Any = message_class(schema, "Click")
        self.payloads = [self.kind(**row).SerializeToString() for row in rows]
        options: dict[str, Any] = {"framing": "none", "message": "Click", "max_payload_bytes": 1 << 20}
        self.reader = _core.SchemaReader(format="protobuf", schema=schema, **options)

    def other(self, columns: pa.Schema) -> pa.RecordBatch:
        """As people do it: numbers of 64 bits are texts in its dictionaries."""
        rows = []
        for payload in self.payloads:
            row = MessageToDict(
                self.kind.FromString(payload),
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            )
            row["at"] = int(row["at"])
            rows.append(row)
        return pa.RecordBatch.from_pylist(rows, columns)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("profile", ["avro", "protobuf"])
def test_schema_payload(benchmark, profile: str) -> None:
    """Equal columns first; with every second payload cut short, those that are left."""
    rows = clicks(RECORDS if benchmark.enabled else QUICK_RECORDS)
    clicked = Avro(rows) if profile == "avro" else Protobuf(rows)
    batch = batch_of(clicked.payloads)
    bad = batch_of([payload[:-1] if index % 2 else payload for index, payload in enumerate(clicked.payloads)])
    reader = clicked.reader
    columns = pa.schema(list(pa.schema(reader))[: len(AVRO["fields"])])

    def fastkcl(records: _core.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch(reader.open(records, 0, MOST))

    expected = clicked.other(columns)
    assert fastkcl(batch).select(columns.names).equals(expected)
    half = fastkcl(bad)
    assert half["_corrupt"].null_count * 2 == len(rows)
    even = pa.array(range(0, len(rows), 2))
    assert half.select(columns.names).take(even).equals(expected.take(even))
    ways: dict[str, Way] = {
        "fastkcl": timed(fastkcl, batch),
        "fastkcl, half of all cut short": timed(fastkcl, bad),
        clicked.peer: timed(clicked.other, columns),
    }
    size = sum(map(len, clicked.payloads))
    with one_core():
        take_turns(benchmark, "payloads with a schema", profile, ways, ROUNDS, line_bytes=size, records=len(rows))
