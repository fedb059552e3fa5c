"""Payloads with a schema wherever payloads are read: commands, Spark, and the Spark source."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import socket
import sys
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from fastkcl import ConfigurationError, _core
from fastkcl.cli.inspect import inspect
from fastkcl.cli.put import put
from fastkcl.cli.replay import replay
from fastkcl.local_aws import LocalAws
from fastkcl.payloads import AvroPayload, BatchOpener, BinaryPayload, JsonPayload, ProtobufPayload
from fastkcl.payloads.registries import GlueRegistry
from fastkcl.payloads.registries.registry import RegistryAwayError
from fastkcl.payloads.writing import AvroWriter, frame
from fastkcl.spark.payload import Payloads
from fastkcl.spark.schema_payload import SchemaPayloads
from fastkcl.spark.source.options import OptionError, SourceOptions
from fastkcl.spark.source.payloads import PayloadSource
from fastkcl.spark.source.schema import Rows
from fastkcl.tables import Bounds
from local_aws_helpers import SHARD_0, client, iterator, make_registry, make_stream
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType
from spark_helpers import record_batch

AT = {"type": "long", "logicalType": "timestamp-millis"}
FIELDS = [{"name": "user", "type": "string"}, {"name": "at", "type": AT}]
TAG = {"name": "tag", "type": ["null", "string"], "default": None}
CLICK = json.dumps({"type": "record", "name": "Click", "fields": FIELDS})
CLICKS = [{"user": "u", "at": 1_700_000_000_000}, {"user": "v", "at": 1_700_000_000_001}]
WRITER = AvroWriter(CLICK, "confluent", schema_id="7")
ALL = (0, 2**128 - 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A registry that has the schema as 7, and its file."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "7.avsc").write_text(CLICK)
    (tmp_path / "schemas" / "8.json").write_text("{}")
    (tmp_path / "click.avsc").write_text(CLICK)
    return tmp_path


def arguments(folder: Path, *more: str) -> list[str]:
    return ["--payload", "avro", "--schema", str(folder / "click.avsc"), "--framing", "confluent", *more]


def capture(folder: Path, *payloads: bytes) -> Path:
    """Lines of a daemon."""
    count = len(payloads)
    numbers = [str(number) for number in range(1, count + 1)]
    line = _core.encode_process_records(
        list(payloads), ["k"] * count, numbers, [0] * count, [0] * count, millis_behind_latest=0, dialect="modern"
    )
    path = folder / "capture.in.jsonl"
    path.write_bytes(line)
    return path


@pytest.mark.parametrize("form", ["table", "jsonl", "parquet"])
def test_inspect_opens_captured_payloads(folder: Path, form: str) -> None:
    bad = b"\x00\x00\x00\x00\x07\xff"
    captured = capture(folder, *(WRITER.write(click) for click in CLICKS), bad)
    output = folder / "out"
    options = arguments(folder, "--registry", str(folder / "schemas"), "--format", form, "--output", str(output))
    done = CliRunner().invoke(inspect, [str(captured), *options])
    assert done.exit_code == 0, done.output
    if form == "table":
        text = output.read_text()
        assert '{"user": "v", "at": "2023-11-14T22:13:20.001000+00:00"}' in text
        assert "corrupt: 6 B  00 00 00 00 07 ff" in text
        return
    rows = (
        [json.loads(line) for line in output.read_text().splitlines()]
        if form == "jsonl"
        else pq.read_table(output).to_pylist()
    )
    kept = base64.b64encode(bad).decode() if form == "jsonl" else bad
    assert [(row["user"], row["_corrupt"]) for row in rows] == [("u", None), ("v", None), (None, kept)]


REFUSED = [
    (["--schema", "x.avsc"], "are for --payload"),
    (["--payload", "avro"], "needs --schema"),
    (["--payload", "avro", "--schema", "x.avsc", "--message", "M"], "--message is for"),
    (["--payload", "avro", "--schema", "x.avsc", "--framing", "glue"], "--framing glue needs --registry, which"),
    (["--payload", "avro", "--schema", "x.avsc", "--registry", "glue"], "--framing none has no ids that --registry"),
    (["--payload", "json", "--schema", "a int", "--registry", "glue"], "--framing none has no ids that --registry"),
    (["--payload", "avro", "--schema", "x.avsc"], "x.avsc"),
    (["--max-outage", "5"], "are for --payload"),
    (["--payload", "avro", "--schema", "x.avsc", "--max-outage", "5"], "--max-outage is for --registry"),
    (["--payload", "avro", "--schema", "x.avsc", "--max-outage", "nan"], "--max-outage"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_that_do_not_fit_together(folder: Path, options: list[str], message: str) -> None:
    done = CliRunner().invoke(inspect, [str(capture(folder, b"")), *options])
    assert done.exit_code == 2
    assert message in done.output


def test_a_command_waits_for_a_registry_as_long_as_it_is_told(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    captured = capture(folder, WRITER.write(CLICKS[0]))
    done = CliRunner().invoke(inspect, [str(captured), *arguments(folder, "--registry", url, "--max-outage", "0.2")])
    assert done.exit_code == 1
    assert "max_outage is 0.2 s" in done.output


def records(folder: Path) -> Path:
    """A file of JSON objects."""
    path = folder / "records.jsonl"
    rows = [{"data": base64.b64encode(json.dumps(each).encode()).decode(), "partitionKey": "k"} for each in CLICKS]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_put_writes_frames(folder: Path, aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    stream = make_stream(aws)
    options = ["--input", str(records(folder)), *arguments(folder, "--schema-id", "7"), stream]
    done = CliRunner().invoke(put, options)
    assert done.exit_code == 0, done.output
    found = client(aws).get_records(ShardIterator=iterator(client(aws), stream))["Records"]
    assert sorted(record["Data"] for record in found) == sorted(WRITER.write(click) for click in CLICKS)


SPANS = json.dumps(
    {
        "type": "record",
        "name": "Span",
        "fields": [
            {"name": "user", "type": "string"},
            {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "other", "type": ["int", "string"]},
        ],
    }
)


def test_fields_without_a_type_are_cast_by_options(folder: Path) -> None:
    """Of commands and of the source; without them the error names the fields."""
    (folder / "span.avsc").write_text(SPANS)
    writer = AvroWriter(SPANS, "none")
    captured = capture(folder, writer.write({"user": "u", "at": 3_723_004, "other": "x"}))
    options = ["--payload", "avro", "--schema", str(folder / "span.avsc"), "--format", "jsonl"]
    done = CliRunner().invoke(inspect, [str(captured), *options])
    assert done.exit_code == 2
    assert "at" in done.output
    casts = ["--cast", "at=string", "--cast", "other=drop", "--keep-payload"]
    done = CliRunner().invoke(inspect, [str(captured), *options, *casts])
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)
    assert (row["user"], type(row["at"]), "other" in row, "data" in row) == ("u", str, False, True)
    done = CliRunner().invoke(inspect, [str(captured), *options, "--cast", "at=int"])
    assert "'at=int' must be PATH=string or PATH=drop" in done.output
    given = {"payload": "avro", "schema": SPANS, "region": "us-east-1"}
    opened = PayloadSource(source_options(**given, casts="at=drop, other=string"))
    names = pa.schema(opened.reader.columns).names
    assert ("at" in names, "other" in names) == (False, True)
    with pytest.raises(OptionError, match="PATH=drop"):
        source_options(**given, casts="at")
    header = {"payload": "json", "framing": "confluent", "registry": "https://r", "region": "us-east-1"}
    with pytest.raises(OptionError, match="casts is for payload=avro or protobuf; the columns of JSON"):
        PayloadSource(source_options(**header, casts="at=drop"), b"")
    with pytest.raises(OptionError, match="registryEndpoint is for registry=glue"):
        PayloadSource(source_options(**header, registryEndpoint="https://glue"), b"")


def test_put_says_how_a_registry_is_made(folder: Path, aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a local AWS neither credentials nor a region are needed."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = ["--payload", "avro", "--schema", str(folder / "click.avsc"), "--framing", "glue", "--registry", "glue"]
    registry, stream = f"r-{uuid.uuid4()}", make_stream(aws)
    command = ["--input", str(records(folder)), *options, "--endpoint-url", aws.url, stream]
    done = CliRunner().invoke(put, command)
    assert "--framing glue needs --schema-id, or --registry and --schema-name" in done.output
    named = [*command, "--schema-name", f"{registry}/click"]
    done = CliRunner().invoke(put, named)
    assert done.exit_code == 2
    assert f"aws glue create-registry --registry-name {registry}" in done.output
    make_registry(aws, registry)
    done = CliRunner().invoke(put, named)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
@pytest.mark.parametrize("command", ["put", "replay"])
def test_a_schema_is_registered_when_a_record_has_fitted_it(
    folder: Path, aws: LocalAws, monkeypatch: pytest.MonkeyPatch, command: str, kind: str
) -> None:
    """A mistyped command changes nothing for readers of the newest version; one that does says so."""
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    registry, glue = make_registry(aws), aws.client("glue")
    wrong, right = (folder / f"{name}.{'avsc' if kind == 'avro' else 'proto'}" for name in ("wrong", "right"))
    wrong.write_text((CLICK if kind == "avro" else PROTO).replace("user", "account"))
    right.write_text(CLICK if kind == "avro" else PROTO)
    path = records(folder)
    path.write_text(path.read_text() + '{"data": "eyJ4IjogMX0=", "partitionKey": "k"}\n')
    stream = make_stream(aws)
    newest: dict[str, Any] = {"SchemaId": {"RegistryName": registry, "SchemaName": "click"}}
    newest["SchemaVersionNumber"] = {"LatestVersion": True}

    def run(schema: Path, *more: str) -> str:
        header = ["--framing", "glue", "--registry", "glue", "--schema-name", f"{registry}/click", *more]
        options = ["--input", str(path), "--payload", kind, "--schema", str(schema), *header]
        to_put = command == "put"
        done = CliRunner().invoke(put if to_put else replay, [*options, *([stream] if to_put else ["--", "true"])])
        assert done.exit_code == 2, done.output
        return done.output

    error = "the item does not fit the schema" if kind == "avro" else "no such message"
    assert f"Error: record 0: {error}" in run(wrong)
    with pytest.raises(glue.exceptions.EntityNotFoundException):
        glue.get_schema_version(**newest)
    said = run(right)
    assert f"Error: record 2: {error}" in said
    id_ = glue.get_schema_version(**newest)["SchemaVersionId"]
    assert f"under {registry}/click with the id {id_}" in said


def test_replay_writes_frames_and_names_a_record_that_does_not_fit(folder: Path) -> None:
    path = records(folder)
    path.write_text(path.read_text() + '{"data": "e30=", "partitionKey": "k"}\n')
    options = ["--input", str(path), *arguments(folder, "--schema-id", "7"), "--", "true"]
    done = CliRunner().invoke(replay, options)
    assert done.exit_code != 0
    assert "record 2: the item does not fit the schema" in done.output + str(done.exception)


def test_spark_gets_typed_columns(session: Any, folder: Path) -> None:
    payload = AvroPayload(schema=folder / "click.avsc", framing="confluent", registry=folder / "schemas")
    payloads = SchemaPayloads(payload, Bounds())
    payloads.prepare(session)
    data = [WRITER.write(CLICKS[0]), b"bad"]
    opened = payloads.open([record_batch([1, 2], data=data)])
    rows = (
        opened.data_frame(session).selectExpr("user", "unix_millis(at) AS at", "_corrupt", "sequenceNumber").collect()
    )
    assert [tuple(row) for row in rows] == [("u", CLICKS[0]["at"], None, "1"), (None, None, b"bad", "2")]
    assert opened.corrupt == 1


def test_spark_reads_json_after_a_header_by_all_rules_of_from_json(session: Any, folder: Path) -> None:
    payload = JsonPayload("id int, name string", framing="confluent", registry=folder / "schemas")
    payloads = Payloads(payload, max_bytes=1 << 24, max_table_bytes=1 << 24)
    payloads.prepare(session)
    data = [frame("confluent", "8", text) for text in (b'{"id": 1}', b'{"id": "x", "name": 7}')]
    rows = payloads.open([record_batch([1, 2], data=data)]).data_frame(session).collect()
    assert [(row["id"], row["name"], row["_corrupt"]) for row in rows] == [(1, None, None), (None, "7", data[1])]


def source_options(**given: str) -> SourceOptions:
    return SourceOptions.parse({"streamName": "orders", **given})


def test_the_source_makes_rows_in_another_process(folder: Path) -> None:
    known = {"payload": "avro", "schema": str(folder / "click.avsc"), "framing": "confluent", "keepPayload": "true"}
    rows = Rows(source_options(**known, registry=str(folder / "schemas")))
    (folder / "click.avsc").unlink()  # a task has what the driver has found
    there = pickle.loads(pickle.dumps(rows))
    data = [WRITER.write(CLICKS[0]), b"bad"]
    (made,) = there.of(record_batch([1, 2], data=data), "orders", SHARD_0, ALL)
    assert made.schema.equals(rows.arrow)
    assert rows.spark.names[:2] == ["user", "at"]
    shown = [[row[name] for name in ("user", "data", "stream", "_corrupt")] for row in made.to_pylist()]
    assert shown == [["u", data[0], "orders", None], [None, b"bad", "orders", b"bad"]]


def test_the_source_reads_json_after_a_header(folder: Path, session: Any) -> None:
    declared = StructType([StructField("id", IntegerType()), StructField("_corrupt", BinaryType())])
    given = source_options(payload="json", framing="confluent", registry=str(folder / "schemas"))
    rows = pickle.loads(pickle.dumps(Rows(given, None, declared)))
    data = [frame("confluent", "8", b'{"id": 1}'), frame("confluent", "8", b'{"id": "x"}'), b'{"id": 1}']
    (made,) = rows.of(record_batch([1, 2, 3], data=data), "orders", SHARD_0, ALL)
    assert made.to_pylist() == [
        {"id": 1, "_corrupt": None},
        {"id": None, "_corrupt": data[1]},
        {"id": None, "_corrupt": data[2]},
    ]


SOURCE_REFUSED: list[tuple[dict[str, str], type[Exception], str]] = [
    ({"payload": "avro"}, OptionError, "payload=avro needs schema"),
    ({"payload": "avro", "schema": "x.avsc", "framing": "glue"}, OptionError, "needs registry="),
    ({"payload": "avro", "schema": "x.avsc"}, ConfigurationError, "x.avsc"),
    ({"schema": "x.avsc"}, OptionError, "schema is for payload=avro or protobuf$"),
    ({"framing": "glue"}, OptionError, "framing is for payload=avro or protobuf, or for json with a framing"),
    ({"registry": "glue"}, OptionError, "registry is for payload=avro or protobuf, or for json with a framing"),
    ({"registryPassword": "secret"}, OptionError, "FASTKCL_REGISTRY_USER"),
    ({"payload": "avro", "schema": "x", "registry": "https://u:p@r"}, OptionError, "no user, .*FASTKCL_REGISTRY_USER"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "error", "message"), SOURCE_REFUSED, ids=[each[2] for each in SOURCE_REFUSED])
def test_options_of_the_source_that_cannot_be(given: dict[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        Rows(source_options(**given))
    assert "u:p" not in str(raised.value)


ONE_NAME = [
    (("User", "user"), "has columns 'User' and 'user', which differ by case only: .* casts=user=drop", "user=drop"),
    (("a", "stream"), "has a column 'stream', which is the record's: .* casts=stream=drop", "stream=drop"),
    (("a", "SHARDID"), "has a column 'SHARDID', which is the record's: .* casts=SHARDID=drop", "SHARDID=drop"),
]


@pytest.mark.parametrize(("names", "message", "casts"), ONE_NAME, ids=["case", "stream", "shardId"])
def test_columns_with_one_name(names: tuple[str, ...], message: str, casts: str) -> None:
    fields = [{"name": name, "type": "string"} for name in names]
    known = {"payload": "avro", "schema": json.dumps({"type": "record", "name": "Click", "fields": fields})}
    with pytest.raises(OptionError, match=message):
        Rows(source_options(**known))
    assert Rows(source_options(**known, casts=casts)).spark.names[:2] == [names[0], "stream"]


KEPT = StructField("_corrupt", BinaryType())


@pytest.mark.parametrize("framing", ["none", "confluent"])
@pytest.mark.parametrize(
    ("name", "value"), [("schema", "a"), ("message", "m"), ("casts", "a=drop"), ("keepPayload", "true")]
)
def test_the_columns_of_json_come_from_the_query(framing: str, name: str, value: str, folder: Path) -> None:
    header = {"framing": framing} | ({"registry": str(folder / "schemas")} if framing != "none" else {})
    declared = StructType([StructField("id", IntegerType()), KEPT])
    with pytest.raises(OptionError, match=rf"^{name} is for payload=avro or protobuf; the columns of JSON come from"):
        Rows(source_options(payload="json", **header, **{name: value}), None, declared)


DECLARED = [
    ([StructField("user", LongType()), KEPT], "column user bigint of the query: by the option schema it is string"),
    ([StructField("users", StringType()), KEPT], "column users string of the query: by the option schema it is not"),
    ([StructField("user", StringType())], "needs the column _corrupt binary"),
    ([StructField("user", StringType(), nullable=False), KEPT], "column user of the schema must be nullable"),
]


@pytest.mark.parametrize(("declared", "message"), DECLARED, ids=["type", "name", "_corrupt", "nullable"])
def test_columns_that_a_query_over_avro_cannot_declare(declared: list[StructField], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Rows(source_options(payload="avro", schema=CLICK), None, StructType(declared))


def test_an_outage_is_named_as_the_option_of_the_source() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        away = {"framing": "confluent", "registry": f"http://127.0.0.1:{taken.getsockname()[1]}", "maxOutage": "0"}
        with pytest.raises(RegistryAwayError, match=r"and maxOutage is 0 s$"):
            Rows(source_options(payload="avro", schema="latest:click", **away))
        rows = Rows(source_options(payload="avro", schema=CLICK, **away))
        data = [frame("confluent", "7", WRITER.write(CLICKS[0])[5:])]
        with pytest.raises(RegistryAwayError, match=r"and maxOutage is 0 s$"):
            list(rows.of(record_batch([1], data=data), "orders", SHARD_0, ALL))


def test_a_version_that_is_registered_between_plan_and_start_changes_no_columns() -> None:
    newer = json.dumps({"type": "record", "name": "Click", "fields": [*FIELDS, {"name": "new", "type": "int"}]})
    planned = Rows(source_options(payload="avro", schema=CLICK))
    started = Rows(source_options(payload="avro", schema=newer), None, planned.spark)
    data = [AvroWriter(newer, "none").write({**CLICKS[0], "new": 1})]
    (made,) = started.of(record_batch([1], data=data), "orders", SHARD_0, ALL)
    assert made.schema.equals(planned.arrow)
    assert made["user"].to_pylist() == ["u"]


def test_each_query_asks_for_the_newest_version(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's Python workers, in which queries are planned, outlive a query."""
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    name = make_registry(aws)
    given = {"payload": "avro", "schema": f"latest:{name}/click", "framing": "glue", "registry": "glue"}
    given |= {"registryEndpoint": aws.url, "region": "us-east-1"}
    for fields in (FIELDS, [*FIELDS, TAG]):
        schema = json.dumps({"type": "record", "name": "Click", "fields": fields})
        AvroWriter(schema, "glue", registry=GlueRegistry(endpoint_url=aws.url), name=f"{name}/click")
        rows = Rows(source_options(**given))
        assert rows.spark.names[: len(fields) + 1] == [*(field["name"] for field in fields), "stream"]


@pytest.mark.parametrize("where", ["driver", "worker"])
def test_each_start_of_a_query_asks_for_ids_that_were_missing(
    folder: Path, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And logs its own lines: once for all of its tasks in a process, which has had other queries."""
    monkeypatch.setattr("fastkcl.payloads.registries.lookups.SECOND_LOOK", 0.0)
    data = [AvroWriter(CLICK, "confluent", schema_id="9").write(CLICKS[0]), b"bad"]
    known = {"payload": "avro", "schema": CLICK, "framing": "confluent", "registry": str(folder / "schemas")}
    first, second = (Rows(source_options(**known)) for _ in range(2))
    if where == "worker":  # another process, which has not planned the queries
        monkeypatch.setattr("fastkcl.spark.source.payloads._told", {}, raising=False)

    def corrupt(rows: Rows) -> list[bytes | None]:
        (made,) = pickle.loads(pickle.dumps(rows)).of(record_batch([1, 2], data=data), "orders", SHARD_0, ALL)
        return made["_corrupt"].to_pylist()

    def lines() -> list[str]:
        told = sorted(record.message.split(" of ")[0] for record in caplog.records)
        caplog.clear()
        return told

    assert [corrupt(first), corrupt(first)] == [data, data]
    assert lines() == ["records", "the payload"]
    if where == "driver":
        second = Rows(source_options(**known))
    assert corrupt(second) == data
    assert lines() == ["records", "the payload"]
    (folder / "schemas" / "9.avsc").write_text(CLICK)
    assert [corrupt(first), corrupt(second)] == [data, data]  # an id stays missing as long as a query runs
    third = Rows(source_options(**known))
    assert [corrupt(third), corrupt(third)] == [[None, b"bad"], [None, b"bad"]]
    assert lines() == ["the payload"]


def test_a_batch_is_opened_beside_the_event_loop(folder: Path) -> None:
    opener = BatchOpener(AvroPayload(schema=CLICK, framing="confluent", registry=folder / "schemas"))
    table = asyncio.run(opener.open_async(record_batch([1], data=[WRITER.write(CLICKS[0])])))
    assert table["user"].to_pylist() == ["u"]
    with pytest.raises(ValueError, match="nothing to open"):
        BatchOpener(BinaryPayload())


def test_an_arrow_schema_names_the_columns() -> None:
    from fastkcl.payloads.framed import FramedReader

    reader = FramedReader(AvroPayload(schema=CLICK), max_payload_bytes=1 << 20)
    assert pa.schema(reader.columns).names[:2] == ["user", "at"]


PROTO = 'syntax = "proto3"; message Click { string user = 1; int64 at = 2; }'
IDS = {"none": None, "glue": "5a1f6c3e-1111-4222-8333-abcdefabcdef", "confluent": "7", "single-object": None}
WAYS = [
    *(("avro", framing) for framing in ("none", "glue", "confluent", "single-object")),
    *(("protobuf", framing) for framing in ("none", "glue", "confluent")),
]


@pytest.mark.parametrize(("kind", "framing"), WAYS)
def test_what_put_writes_is_what_inspect_and_a_program_read(
    tmp_path: Path, aws: LocalAws, monkeypatch: pytest.MonkeyPatch, kind: str, framing: Any
) -> None:
    """For each payload and framing: `fastkcl put`, then `fastkcl inspect`, and batches in asyncio."""
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    suffix, text = ("avsc", CLICK) if kind == "avro" else ("proto", PROTO)
    schema = tmp_path / f"click.{suffix}"
    schema.write_text(text)
    (tmp_path / "schemas").mkdir()
    id_ = IDS[framing]
    if id_ is not None:
        (tmp_path / "schemas" / f"{id_}.{suffix}").write_text(text)
    common = ["--payload", kind, "--schema", str(schema), "--framing", framing]
    stream = make_stream(aws)
    written = [*common, *([] if id_ is None else ["--schema-id", id_])]
    done = CliRunner().invoke(put, ["--input", str(records(tmp_path)), *written, stream])
    assert done.exit_code == 0, done.output
    found = client(aws).get_records(ShardIterator=iterator(client(aws), stream))["Records"]
    data = sorted((record["Data"] for record in found), key=lambda each: b"v" in each)
    bad = data[0][:-1] + b"\xff\xff"
    registry = [] if id_ is None else ["--registry", str(tmp_path / "schemas")]
    output = tmp_path / "out"
    options = [*common, *registry, "--format", "jsonl", "--output", str(output)]
    done = CliRunner().invoke(inspect, [str(capture(tmp_path, *data, bad)), *options])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["user"], row["_corrupt"]) for row in rows] == [
        ("u", None), ("v", None), (None, base64.b64encode(bad).decode())]  # fmt: skip
    made: type[AvroPayload] | type[ProtobufPayload] = AvroPayload if kind == "avro" else ProtobufPayload
    opener = BatchOpener(made(schema=schema, framing=framing, registry=None if id_ is None else tmp_path / "schemas"))
    table = asyncio.run(opener.open_async(record_batch([1, 2, 3], data=[*data, bad])))
    assert table["user"].to_pylist() == ["u", "v", None]
    assert table["_corrupt"].to_pylist() == [None, None, bad]


def into_a_table(folder: Path, payload: str, *arguments: str) -> pa.Table:
    """The table of a child that the replayer gives its records."""
    child = folder / "child.py"
    child.write_text(f"""import fastkcl
from fastkcl.tables import AvroPayload, JsonPayload, ParquetTable, ProtobufPayload, TableProcessor
fastkcl.run(TableProcessor(ParquetTable({str(folder / "table")!r}), payload={payload}))
""")
    done = CliRunner().invoke(replay, ["--stream", "clicks", *arguments, "--", sys.executable, str(child)])
    assert done.exit_code == 0, done.output
    return pq.read_table(folder / "table").sort_by("sequenceNumber")


@pytest.mark.parametrize(("kind", "framing"), WAYS)
def test_what_the_replayer_writes_is_what_tables_and_the_source_read(tmp_path: Path, kind: str, framing: str) -> None:
    """For each payload and framing: `fastkcl replay`, a TableProcessor, and a task of the Spark source."""
    suffix, text = ("avsc", CLICK) if kind == "avro" else ("proto", PROTO)
    schema, schemas, id_ = tmp_path / f"click.{suffix}", tmp_path / "schemas", IDS[framing]
    schema.write_text(text)
    schemas.mkdir()
    if id_ is not None:
        (schemas / f"{id_}.{suffix}").write_text(text)
    registry = {} if id_ is None else {"registry": str(schemas)}
    name = "AvroPayload" if kind == "avro" else "ProtobufPayload"
    options = {"schema": str(schema), "framing": framing, **registry}
    written = ["--payload", kind, "--schema", str(schema), "--framing", framing]
    written += [] if id_ is None else ["--schema-id", id_]
    payload = f"{name}(keep_payload=True, **{options!r})"
    table = into_a_table(tmp_path, payload, "--input", str(records(tmp_path)), *written)
    assert table.select(["user", "_corrupt"]).to_pylist() == [
        {"user": "u", "_corrupt": None}, {"user": "v", "_corrupt": None}]  # fmt: skip
    data = table["data"].to_pylist()
    bad = data[0][:-1] + b"\xff\xff"
    rows = pickle.loads(pickle.dumps(Rows(source_options(payload=kind, **options))))
    (made,) = rows.of(record_batch([1, 2, 3], data=[*data, bad]), "orders", SHARD_0, ALL)
    assert made["user"].to_pylist() == ["u", "v", None]
    assert made["_corrupt"].to_pylist() == [None, None, bad]


@pytest.mark.parametrize("framing", ["glue", "confluent"])
def test_tables_read_json_after_a_header(tmp_path: Path, framing: Any) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / f"{IDS[framing]}.json").write_text("{}")
    data = [frame(framing, IDS[framing], b'{"user": "u"}'), b'{"user": "v"}']
    path = tmp_path / "records.jsonl"
    rows = [{"data": base64.b64encode(each).decode(), "partitionKey": "k"} for each in data]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    payload = f"JsonPayload('user string', framing={framing!r}, registry={str(tmp_path / 'schemas')!r})"
    table = into_a_table(tmp_path, payload, "--input", str(path))
    assert table.select(["user", "_corrupt"]).to_pylist() == [
        {"user": "u", "_corrupt": None}, {"user": None, "_corrupt": data[1]}]  # fmt: skip
