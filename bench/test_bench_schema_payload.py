"""A batch of Avro or Protobuf payloads in memory to Arrow columns, beside a library, dictionaries and pyarrow."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from clicks import AVRO, PROTO, avro_payloads, clicks
from fastkcl import _core
from google.protobuf.json_format import MessageToDict
from proto_helpers import message_class
from schema_helpers import batch_of
from suites import Way, one_core, take_turns, timed

RECORDS = 100_000
QUICK_RECORDS = 2_000
ROUNDS = 5
MOST = 1 << 28


class Avro:
    """Clicks in Avro."""

    peer = "fastavro, dictionaries, pyarrow"

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.schema = fastavro.parse_schema(AVRO)
        self.payloads = avro_payloads(rows)
        schema = json.dumps(AVRO).encode()
        self.reader = _core.SchemaReader(format="avro", framing="none", schema=schema, max_payload_bytes=1 << 20)

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
