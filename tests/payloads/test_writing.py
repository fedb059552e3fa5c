"""Payloads with a schema, written here and by others, and read back: equal values in every framing."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import uuid
import zlib
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fastkcl import ConfigurationError
from fastkcl._core import avro_fingerprint, compile_proto
from fastkcl.local_aws import LocalAws
from fastkcl.payloads.batches import BatchOpener
from fastkcl.payloads.framed import FramedReader
from fastkcl.payloads.options import AvroPayload, JsonPayload, ProtobufPayload
from fastkcl.payloads.registries import GlueRegistry
from fastkcl.payloads.registries.answers import SchemaText
from fastkcl.payloads.registries.registry import RegistryAwayError
from fastkcl.payloads.writing import AvroWriter, ProtobufWriter, frame
from local_aws_helpers import make_registry
from opened_payloads import batch_of, good, opened
from paths import EXAMPLES
from proto_helpers import message_class

CLICK = json.dumps({
    "type": "record", "name": "Click", "namespace": "web", "fields": [
        {"name": "id", "type": "long"}, {"name": "page", "type": ["null", "string"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}}]})  # fmt: skip
NEWER = json.dumps({**json.loads(CLICK), "fields": [*json.loads(CLICK)["fields"], {"name": "extra", "type": "int"}]})
CLICKS = [
    {"id": 1, "page": "/", "kind": "a", "tags": []},
    {"id": -(2**63), "page": None, "kind": "b", "tags": ["x", "é" * 100]},
]
PROTO = """syntax = "proto3"; package web;
message Other { string x = 1; }
message Outer { message Click { int64 id = 1; optional string page = 2; repeated string tags = 3; } }
"""
MESSAGES = [{"id": "1", "page": "/", "tags": []}, {"id": "-5", "tags": ["x"]}]
ID = "5a1f6c3e-1111-4222-8333-abcdefabcdef"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A registry of the schemas above."""
    for id, text in ((ID, CLICK), ("7", CLICK), ("8", NEWER)):
        (tmp_path / f"{id}.avsc").write_text(text)
    for id in (ID.replace("5a", "6a"), "9"):
        (tmp_path / f"{id}.proto").write_text(PROTO)
    (tmp_path / "10.json").write_text('{"type": "object"}')
    return tmp_path


FRAMINGS: list[tuple[Any, str | None, bool]] = [
    ("none", None, False), ("glue", ID, False), ("glue", ID, True), ("confluent", "7", False),
    ("single-object", avro_fingerprint(CLICK), False),
]  # fmt: skip


@pytest.mark.parametrize(("framing", "id", "compress"), FRAMINGS)
def test_avro_comes_back(folder: Path, framing: Any, id: str | None, compress: bool) -> None:
    writer = AvroWriter(CLICK, framing, schema_id=id, compress=compress)
    payloads = [writer.write(click) for click in CLICKS]
    assert [writer.read(payload) for payload in payloads] == CLICKS
    payload = AvroPayload(schema=CLICK, framing=framing, registry=None if framing == "none" else folder)
    assert opened(payload, [*payloads]) == good(CLICKS)


@pytest.mark.parametrize(("framing", "id"), [("none", None), ("glue", ID.replace("5a", "6a")), ("confluent", "9")])
def test_protobuf_comes_back(folder: Path, framing: Any, id: str | None) -> None:
    writer = ProtobufWriter(PROTO, "web.Outer.Click", framing, schema_id=id)
    payloads = [writer.of_json(json.dumps(message).encode()) for message in MESSAGES]
    assert [writer.read(payload).id for payload in payloads] == [1, -5]
    registry = None if framing == "none" else folder
    payload = ProtobufPayload(schema=PROTO, message="web.Outer.Click", framing=framing, registry=registry)
    rows = opened(payload, [*payloads])
    assert rows == good([{"id": 1, "page": "/", "tags": []}, {"id": -5, "page": None, "tags": ["x"]}])


def test_json_after_a_header_comes_back(folder: Path) -> None:
    payloads = [frame("confluent", "10", b'{"id": 1}'), frame("confluent", "7", b'{"id": 1}'), b'{"id": 1}']
    rows = opened(JsonPayload("id long", framing="confluent", registry=folder), [*payloads])
    assert rows == [{"id": 1, "_corrupt": None}, *({"id": None, "_corrupt": each} for each in payloads[1:])]


def test_frames_are_those_of_the_specifications() -> None:
    assert frame("confluent", "258", b"x") == b"\x00\x00\x00\x01\x02x"
    assert frame("glue", ID, b"x") == b"\x03\x00" + uuid.UUID(ID).bytes + b"x"
    assert zlib.decompress(frame("glue", ID, b"x", compress=True)[18:]) == b"x"
    schema = fastavro.parse_schema({"type": "string"})
    number = int(avro_fingerprint('"string"'), 16)
    assert frame("single-object", avro_fingerprint('"string"'), b"") == b"\xc3\x01" + number.to_bytes(8, "little")
    fingerprint = fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(schema), "CRC-64-AVRO")
    assert int.from_bytes(bytes.fromhex(fingerprint), "little") == number
    for framing, id in (("confluent", "x"), ("confluent", str(2**32)), ("glue", "7")):
        with pytest.raises(ValueError):  # noqa: PT011 - of uuid, or ours
            frame(framing, id, b"")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="only Glue's header"):
        frame("confluent", "7", b"", compress=True)


def test_rows_that_are_bad_cost_no_other_and_writers_come_in_any_order(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = (AvroWriter(text, "confluent", schema_id=id) for text, id in ((CLICK, "7"), (NEWER, "8")))
    fine = old.write(CLICKS[0])
    bad: list[bytes] = [b"", b"\x00", b"\x00\x00\x00\x00\x07", fine[:-1], fine + b"\x00", b"\x01" + fine[1:]]
    bad += [frame("confluent", "9", b"\x02"), frame("confluent", "6", fine[5:])]
    data: list[bytes | None] = []
    wanted: list[dict[str, Any]] = []
    nothing = dict.fromkeys(CLICKS[0])
    for each in bad:
        data += [each, fine, new.write({**CLICKS[1], "extra": 7})]
        wanted += [{**nothing, "_corrupt": each}, *good(CLICKS)]
    data.append(None)
    wanted.append({**nothing, "_corrupt": None})
    with caplog.at_level(logging.WARNING):
        assert opened(AvroPayload(schema=CLICK, framing="confluent", registry=folder), data) == wanted
    said = "\n".join(record.message for record in caplog.records)
    assert said.count("schema 8 has fields that the reader's schema lacks, and which are dropped: extra") == 1
    assert "schema 9 are corrupt" in said
    assert "PROTOBUF" in said
    assert "has no 6.avsc" in said


def test_a_batch_waits_for_a_registry_that_is_away(folder: Path) -> None:
    class Away:
        def schemas(self, ids: Any) -> Any:
            if self.is_away:
                raise RegistryAwayError("no answer")
            return {id: SchemaText("avro", CLICK) for id in ids}

        is_away = True

    payload = AvroPayload(schema=CLICK, framing="confluent", registry=folder)
    registry = Away()
    reader = FramedReader(payload, max_payload_bytes=1 << 20, registry=registry)  # type: ignore[arg-type]
    batch = batch_of([AvroWriter(CLICK, "confluent", schema_id="7").write(CLICKS[0])])
    for _ in range(2):
        with pytest.raises(RegistryAwayError):
            reader.open(batch, 0, 1 << 20)
    registry.is_away = False
    rows = pa.record_batch(reader.open(batch, 0, 1 << 20)).to_pylist()
    assert [(row["id"], row["_corrupt"]) for row in rows] == [(1, None)]


CORRUPT = {
    "none": (b"\xff", "framing='none': it is not one value of the schema; does its producer write a registry's header"),
    "glue": (b"\x04abc", "framing='glue': its first bytes are no such header, which begins with 03 00 or 03 05"),
    "confluent": (b"\x00\x00\x00\x00\x07\xff", "what follows its header is not exactly one value of schema 7"),
    "single-object": (b"\xc3", "framing='single-object': its first bytes are no such header, which begins with c3 01"),
}


@pytest.mark.parametrize("framing", CORRUPT)
def test_the_first_corrupt_payload_has_a_line_with_its_reason(
    folder: Path, framing: Any, caplog: pytest.LogCaptureFixture
) -> None:
    payload, reason = CORRUPT[framing]
    registry = None if framing == "none" else folder
    opener = BatchOpener(AvroPayload(schema=CLICK, framing=framing, registry=registry))
    unknown = AvroWriter(CLICK, "confluent", schema_id="99").write(CLICKS[0])
    for _ in range(2):
        opener.open(batch_of([unknown, payload] if framing == "confluent" else [payload]))
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert reason in said[0]
    assert "is corrupt, and kept as it came" in said[0]


UNION = '{"type":"record","name":"R","fields":[{"name":"u","type":["int","string"]}]}'
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"schema": "none.avsc"}, ConfigurationError, "none.avsc.*No such file"),
    ({"schema": "{"}, ConfigurationError, "schema"),
    ({"schema": UNION}, ConfigurationError, "u"),
    ({"schema": CLICK, "framing": "glue"}, ValueError, "needs registry="),
    ({"schema": CLICK, "registry": "glue"}, ValueError, "framing='none' has no ids that registry="),
    ({"schema": CLICK, "framing": "glued"}, ValueError, "Avro comes with 'none' or 'glue'"),
    ({"schema": CLICK, "framing": "glue", "registry": "https://r"}, ValueError, "give registry='glue'"),
    ({"schema": CLICK, "framing": "confluent", "registry": "glue"}, ValueError, "give its URL"),
    ({"schema": "latest:x"}, ValueError, "needs registry="),
    ({"schema": "latest:x", "framing": "confluent", "registry": "."}, ValueError, "a folder has no versions"),
    ({"schema": 7}, TypeError, "schema must be a file"),
    ({"schema": CLICK, "max_outage": -1}, ValueError, "max_outage=-1"),
    ({"schema": CLICK, "max_outage": "5s"}, TypeError, "max_outage='5s': must be seconds"),
    ({"schema": CLICK, "casts": "page=drop"}, TypeError, "casts='page=drop': must be a mapping"),
    ({"schema": CLICK, "casts": {"page": "int"}}, ValueError, 'casts={.page.: .int.}: must be "string" or "drop"'),
    ({"schema": CLICK, "keep_payload": "yes"}, TypeError, "keep_payload='yes': must be True or False"),
    ({"schema": CLICK.replace("page", "partitionKey")}, ConfigurationError, "partitionKey: every record has a column"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "error", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_options_that_cannot_be_are_refused_at_the_start(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        BatchOpener(AvroPayload(**options))


@pytest.mark.parametrize(
    ("schema", "framing", "compress"), [(CLICK, "confluent", True), ('{"type": "none"}', "glue", False)]
)
def test_a_schema_of_which_no_payload_can_be_is_not_registered(
    schema: str, framing: Any, compress: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastkcl.payloads.writing.client_of", lambda _: pytest.fail("a registry is asked"))
    with pytest.raises((ValueError, ConfigurationError), match="only Glue's header|no Avro schema"):
        AvroWriter(schema, framing, registry="glue", name="web/click", compress=compress)


def test_schemas_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "geo").mkdir()
    (tmp_path / "geo" / "p.proto").write_text('syntax = "proto3"; package geo; message P { int32 x = 1; }')
    main = tmp_path / "click.proto"
    main.write_text('syntax = "proto3"; import "geo/p.proto"; message C { geo.P at = 1; }')
    rows = opened(ProtobufPayload(schema=main), [b"\x0a\x02\x08\x05"])
    assert rows == good([{"at": {"x": 5}}])
    described = tmp_path / "click.desc"
    files = {"click.proto": main.read_text(), "geo/p.proto": (tmp_path / "geo" / "p.proto").read_text()}
    described.write_bytes(compile_proto(files, "click.proto"))
    assert opened(ProtobufPayload(schema=str(described)), [b"\x0a\x02\x08\x05"]) == rows
    (tmp_path / "click.avsc").write_text(CLICK)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(CLICK)), CLICKS[0])
    assert opened(AvroPayload(schema=tmp_path / "click.avsc"), [body.getvalue()]) == good(CLICKS[:1])
    kept = opened(AvroPayload(schema=CLICK, keep_payload=True), [body.getvalue()])
    assert kept[0]["data"] == body.getvalue()


# Bytes of others.


def test_what_aws_glue_schema_registry_writes(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    from aws_schema_registry import DataAndSchema, SchemaRegistryClient
    from aws_schema_registry.avro import AvroSchema
    from aws_schema_registry.serde import KafkaSerializer

    name, glue = make_registry(aws), aws.client("glue")
    serializer = KafkaSerializer(SchemaRegistryClient(glue, registry_name=name))
    payload = serializer.serialize("clicks", DataAndSchema(CLICKS[1], AvroSchema(CLICK)))
    for key, value in aws.environment.items():
        monkeypatch.setenv(key, value)
    registry = GlueRegistry(endpoint_url=aws.url, region="us-east-1")
    newest = AvroPayload(schema=f"latest:{name}/clicks-value", framing="glue", registry=registry)
    assert opened(newest, [payload]) == good(CLICKS[1:])


@pytest.mark.before_python("3.15")
def test_what_confluents_serialiser_writes(tmp_path: Path) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient.new_client({"url": f"mock://{uuid.uuid4()}"})
    serializer = AvroSerializer(client, CLICK)
    payload = serializer(CLICKS[1], SerializationContext("clicks", MessageField.VALUE))
    number = client.get_latest_version("clicks-value").schema_id
    (tmp_path / f"{number}.avsc").write_text(CLICK)
    assert opened(AvroPayload(schema=CLICK, framing="confluent", registry=tmp_path), [payload]) == good(CLICKS[1:])


NESTED = """syntax = "proto3"; package web;
message Outer { message In { int64 x = 1; } In i = 1; }
message Click { string user = 1; int64 at = 2; }
"""


@pytest.mark.before_python("3.15")
@pytest.mark.parametrize(
    ("message", "row"),
    [("web.Outer", {"i": {"x": 7}}), ("web.Outer.In", {"x": 7}), ("web.Click", {"user": "u", "at": -7})],
)
def test_what_confluents_serialiser_of_protobuf_writes(tmp_path: Path, message: str, row: dict[str, Any]) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient.new_client({"url": f"mock://{uuid.uuid4()}"})
    kind = message_class(compile_proto({"nested.proto": NESTED}, "nested.proto"), message)
    serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    payload = serializer(kind(**row), SerializationContext("clicks", MessageField.VALUE))
    number = client.get_latest_version("clicks-value").schema_id
    (tmp_path / f"{number}.proto").write_text(NESTED)
    (tmp_path / "reader.proto").write_text(NESTED)
    known = ProtobufPayload(schema=tmp_path / "reader.proto", message=message, framing="confluent", registry=tmp_path)
    assert opened(known, [payload]) == good([row])


@pytest.mark.before_python("3.15")
def test_what_confluents_serialiser_of_json_writes(tmp_path: Path) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient.new_client({"url": f"mock://{uuid.uuid4()}"})
    text = json.dumps({"type": "object", "title": "Click", "properties": {"id": {"type": "integer"}}})
    payload = JSONSerializer(text, client)({"id": 1}, SerializationContext("clicks", MessageField.VALUE))
    number = client.get_latest_version("clicks-value").schema_id
    (tmp_path / f"{number}.json").write_text(text)
    assert opened(JsonPayload("id long", framing="confluent", registry=tmp_path), [payload]) == good([{"id": 1}])


def test_the_example_runs_by_one_command(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    command = [sys.executable, str(EXAMPLES / "clicks_with_schema.py"), str(tmp_path / "table")]
    done = subprocess.run(command, check=True, timeout=120, stdout=subprocess.PIPE, text=True)
    first, columns, *counts = done.stdout.splitlines()
    assert first == f"1000 clicks are in {tmp_path / 'table'}, 0 of them corrupt"
    assert columns.startswith("columns: user, page, referrer, partitionKey, ")
    assert counts == ["500 of page / with referrer None", "500 of page /cart with referrer /"]
    tables = [pq.read_table(path) for path in (tmp_path / "table").rglob("*.parquet")]
    rows = [row for table in tables for row in table.select(["page", "referrer", "_corrupt"]).to_pylist()]
    assert len(rows) == 1000
    assert sum(row == {"page": "/cart", "referrer": "/", "_corrupt": None} for row in rows) == 500
    assert sum(row == {"page": "/", "referrer": None, "_corrupt": None} for row in rows) == 500
