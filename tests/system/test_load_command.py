"""`fastkcl load`: a stream into a table, as a user sees it: rows, exit codes, errors, metrics, signals."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fastkcl.tables
import pytest
from aws_commands import environment
from click.testing import CliRunner
from delta_table_helpers import delta_s3
from fastkcl.cli import table_formats
from fastkcl.cli.main import cli
from fastkcl.local_aws import Fault, LocalAws
from fastkcl.payloads.registries import GlueRegistry
from fastkcl.payloads.writing import AvroWriter
from fault_proxy import FaultProxy, fault_proxy
from iceberg_helpers import glue
from local_aws_helpers import make_registry, make_stream, new_name
from table_helpers import Place, posix_place, s3_place
from waiting import wait_until

COMMAND = [sys.executable, "-m", "fastkcl", "load"]
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_DEFAULT_REGION": "us-east-1"}
WIDE = {"COLUMNS": "300"}
"""Lines are not cut."""
EVENTS = [json.dumps({"user": f"u{n}", "price": n / 4}) for n in range(40)]


def load(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(**{**WIDE, **variables}),
        check=False,
    )


@contextmanager
def loading(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is ended in any case."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**WIDE)
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def stream(aws: LocalAws) -> str:
    """A stream of two shards with the events."""
    name = make_stream(aws, 2)
    put(aws, name)
    return name


def put(aws: LocalAws, stream: str) -> None:
    records = [{"Data": event.encode(), "PartitionKey": str(number)} for number, event in enumerate(EVENTS)]
    assert aws.client("kinesis").put_records(StreamName=stream, Records=records)["FailedRecordCount"] == 0


@pytest.fixture(params=["posix", "s3"])
def place(request: pytest.FixtureRequest, aws: LocalAws, tmp_path: Path) -> Place:
    return posix_place(tmp_path) if request.param == "posix" else s3_place(aws)


def test_a_stream_into_a_table_twice(aws: LocalAws, stream: str, place: Place) -> None:
    """The second run goes on where the first one has ended."""
    arguments = [stream, place.url, "--endpoint-url", aws.url, "--stop-at-tip", "--json"]
    done = load(*arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rows"], found["commits"], found["error"]) == (40, 2, None)
    assert sum(found["shards"].values()) == 40
    assert sorted(place.read()["data"].to_pylist()) == sorted(event.encode() for event in EVENTS)
    put(aws, stream)
    again = load(*arguments)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["rows"] == 40
    assert len(set(place.numbers())) == len(place.numbers()) == 80


def test_a_stream_into_a_delta_table_on_s3(aws: LocalAws, stream: str) -> None:
    """Its two shards write to one log."""
    place = delta_s3(aws)
    done = load(stream, place.url, "--endpoint-url", aws.url, "--stop-at-tip", "--json", "--format", "delta")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 40
    assert sorted(place.read()["data"].to_pylist()) == sorted(event.encode() for event in EVENTS)
    assert len(place.numbers()) == 40


def test_a_stream_into_an_iceberg_table_of_glue(aws: LocalAws, stream: str) -> None:
    place = glue(aws)
    arguments = [stream, *place.arguments, "--endpoint-url", aws.url, "--stop-at-tip", "--json", "--format", "iceberg"]
    done = load(*arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 40
    assert sorted(place.read()["data"].to_pylist()) == sorted(event.encode() for event in EVENTS)
    assert len(place.numbers()) == 40
    wrong = load(stream, place.name, "--format", "iceberg", "--catalog", "glue")
    assert wrong.returncode == 2
    assert "must be NAME=VALUE" in wrong.stderr


def test_typed_columns_of_a_schema_in_a_file(aws: LocalAws, stream: str, tmp_path: Path) -> None:
    schema = tmp_path / "events.txt"
    schema.write_text("user string,\n  price double\n")
    place = posix_place(tmp_path)
    done = load(
        *(stream, place.url, "--endpoint-url", aws.url, "--idle-timeout", "0.5"),
        *("--payload", "json", "--schema", str(schema)),
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"{stream}: 40 rows \(0\.0 MB\) of 2 shards in 2 commits and [0-9.]+ s\n", done.stdout)
    assert f"fastkcl load: {stream} into {place.url}, application load-{stream}-" in done.stderr
    assert sorted(place.read()["price"].to_pylist()) == [n / 4 for n in range(40)]


def test_avro_after_a_registrys_header(aws: LocalAws, tmp_path: Path) -> None:
    fields = [{"name": "user", "type": "string"}, {"name": "price", "type": "double"}]
    schema = tmp_path / "7.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "Event", "fields": fields}))
    writer = AvroWriter(schema.read_text(), "confluent", schema_id="7")
    name = make_stream(aws)
    for event in EVENTS[:3]:
        aws.client("kinesis").put_record(StreamName=name, Data=writer.of_json(event.encode()), PartitionKey="k")
    place = posix_place(tmp_path / "table")
    done = load(
        *(name, place.url, "--endpoint-url", aws.url, "--stop-at-tip", "--payload", "avro", "--schema", str(schema)),
        *("--framing", "confluent", "--registry", str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr
    assert place.read()["price"].to_pylist() == [0.0, 0.25, 0.5]


def test_glue_is_where_the_stream_is_and_each_line_comes_once(aws: LocalAws, tmp_path: Path) -> None:
    """A local AWS alone, without credentials and a region. A newer version adds a column, if it is allowed to."""
    first, second = tmp_path / "first.avsc", tmp_path / "second.avsc"
    fields: list[dict[str, object]] = [{"name": "user", "type": "string"}]
    first.write_text(json.dumps({"type": "record", "name": "Event", "fields": fields}))
    fields.append({"name": "price", "type": "double", "default": 0.0})
    second.write_text(json.dumps({"type": "record", "name": "Event", "fields": fields}))
    registry = make_registry(aws)
    name = make_stream(aws, 2)
    options = GlueRegistry(endpoint_url=aws.url, region="us-east-1")

    def put_events(schema: Path) -> None:
        writer = AvroWriter(schema, "glue", registry=options, name=f"{registry}/events")
        for number, event in enumerate(EVENTS):
            aws.client("kinesis").put_record(
                StreamName=name, Data=writer.of_json(event.encode()), PartitionKey=str(number)
            )

    arguments = [name, str(tmp_path / "table"), "--format", "delta", "--stop-at-tip", "--endpoint-url", aws.url]
    arguments += ["--payload", "avro", "--framing", "glue", "--registry", "glue", "--schema"]
    put_events(first)
    latest = f"latest:{registry}/events"
    done = load(*arguments, latest)
    assert done.returncode == 0, done.stderr
    put_events(second)
    refused = load(*arguments, latest)
    assert refused.returncode == 1, refused.stderr
    assert "it has no column price: --add-columns adds it" in refused.stderr
    assert "Traceback" not in refused.stderr
    failed = [line for line in refused.stderr.splitlines() if "failed after" in line]
    assert len(failed) == len(set(failed)) == len({line.split("shardId-")[1][:12] for line in failed})
    done = load(*arguments, str(first), "--add-columns")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("which are dropped: price") == 1
    assert f"{name}: 40 rows" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_a_last_commit(aws: LocalAws, stream: str, tmp_path: Path, number: int) -> None:
    place = posix_place(tmp_path)
    with loading(stream, place.url, "--endpoint-url", aws.url, "--prometheus", "0") as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        url = re.search(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", said)
        assert url is not None, said

        def metrics() -> str:
            with urllib.request.urlopen(url[1], timeout=60) as answer:
                return str(answer.read().decode())

        def held() -> float:
            return sum(map(float, re.findall(r"^fastkcl_held_records\{.*\} (\S+)$", metrics(), re.MULTILINE)))

        wait_until(lambda: held() == 40, "all records are held", seen=metrics)
        text = metrics()
        assert f'stream="{stream}"' in text
        assert re.search(r'application="load-[^"]+"', text)
        assert re.search(r"^async_kinesis_consumer_records_received_total\{", text, re.MULTILINE)
        assert place.numbers() == []
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert f"{signal.Signals(number).name}: ends after a last commit" in err
    assert out.startswith(f"{stream}: 40 rows")
    assert len(place.numbers()) == 40


def test_what_cannot_begin_says_so_within_seconds(aws: LocalAws, stream: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "table")
    absent = new_name("absent")
    dead = "http://127.0.0.1:9"
    for arguments, said in {
        (new_name(), folder, "--endpoint-url", aws.url): "there is no stream ",
        (stream, folder, "--endpoint-url", dead): f'Could not connect to the endpoint URL: "{dead}"',
        (stream, f"s3://{absent}/t", "--endpoint-url", aws.url): f"there is no bucket {absent} at ",
        (stream, f"s3://{absent}/t", "--endpoint-url", aws.url, "--s3-endpoint-url", dead): "is the table's storage",
        (stream, "/proc/table", "--endpoint-url", aws.url): "/proc/table",
        (stream, "gs://lake/t", "--endpoint-url", aws.url): "gs://lake/t",
        (stream, folder, "--endpoint-url", aws.url, "--payload", "json"): "--payload json needs --schema FILE",
        (stream, folder, "--endpoint-url", aws.url, "--application", "a b"): "--application 'a b'",
        (stream, folder, "--endpoint-url", aws.url, "--prometheus", "x:y"): "must be a port, or an address and a port",
        (stream, folder, "--endpoint-url", "nonsense"): "is not a URL such as",
    }.items():
        begun = time.monotonic()
        done = CliRunner().invoke(cli, ["load", *arguments], env=KEYS)
        assert (done.exit_code, done.stdout) == (2, ""), (arguments, done.output, done.exception)
        assert said in done.stderr, (arguments, done.stderr)
        assert "s3cret" not in done.stderr
        assert time.monotonic() - begun < 30
    assert not (tmp_path / "table").exists() or not list((tmp_path / "table").rglob("*.parquet"))


@contextmanager
def ending_without_a_store(
    aws: LocalAws, stream: str, *arguments: str
) -> Iterator[tuple[Place, FaultProxy, subprocess.Popen[str]]]:
    """A load that ends when nothing has come for 2 s. Its store is away since the start, before anything is written."""
    place = s3_place(aws)
    with fault_proxy(aws.url, 0, 0) as proxy:
        store = ["--s3-endpoint-url", proxy.url, "--endpoint-url", aws.url]
        with loading(stream, place.url, *store, "--idle-timeout", "2", "--json", *arguments) as process:
            assert process.stderr is not None
            assert "fastkcl load:" in process.stderr.readline()
            proxy.is_down = True
            wait_until(lambda: proxy.faults["down"] >= 2 or process.poll() is not None, "calls that fail", seconds=60)
            assert process.poll() is None, process.stderr.read()
            yield place, proxy, process


def test_an_end_waits_for_a_store_that_comes_back(aws: LocalAws, stream: str) -> None:
    with ending_without_a_store(aws, stream) as (_, proxy, process):
        proxy.is_down = False
        output, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    done = json.loads(output)
    assert (done["rows"], done["error"]) == (40, None)


def test_an_end_without_its_store_is_none(aws: LocalAws, stream: str) -> None:
    """What was read is not stored, so who relies on the exit code has to see it."""
    with ending_without_a_store(aws, stream, "--retry-for", "4") as (place, _, process):
        output, said = process.communicate(timeout=90)
    assert process.returncode == 1, said
    done = json.loads(output)
    assert done["rows"] == 0
    assert place.url in done["error"]
    assert "Traceback" not in said


def test_a_signal_ends_the_wait_for_the_store(aws: LocalAws, stream: str) -> None:
    with ending_without_a_store(aws, stream) as (_, _, process):
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=90)
    assert process.returncode in (0, 1), said
    assert "they are delivered again" in said or "Error:" in said


@pytest.mark.parametrize("operation", ["DescribeStream", "GetShardIterator", "GetRecords", "Scan", "PutItem"])
def test_a_permission_that_is_missing_is_named(own_aws: LocalAws, tmp_path: Path, operation: str) -> None:
    name = make_stream(own_aws, 1)
    put(own_aws, name)
    own_aws.faults(Fault(operation, "AccessDeniedException"))
    done = load(name, str(tmp_path / "table"), "--endpoint-url", own_aws.url, "--stop-at-tip")
    assert done.returncode == (2 if operation == "DescribeStream" else 1), done.stderr
    assert done.stderr.splitlines()[-1].endswith(f": allow {operation} in the policy of these credentials")
    assert "Traceback" not in done.stderr


def test_an_error_on_the_way_ends_it_with_1(aws: LocalAws, stream: str, tmp_path: Path) -> None:
    """The lease table has positions, and the table is a new one: records would be missing in it."""
    arguments = [stream, "--endpoint-url", aws.url, "--stop-at-tip", "--application", new_name("app")]
    assert load(*arguments, str(tmp_path / "first")).returncode == 0
    done = load(*arguments, str(tmp_path / "second"))
    assert done.returncode == 1
    assert "lies after the table's position" in done.stderr
    assert "start with --accept-gap until each shard has been written to" in done.stderr
    assert "Traceback" not in done.stderr
    put(aws, stream)
    done = load(*arguments, str(tmp_path / "second"), "--accept-gap")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{stream}: 40 rows")


def test_formats_are_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = [each.name for each in table_formats.FORMATS.values()]
    assert table_formats.offered() == [
        name for name, each in table_formats.FORMATS.items() if each.name in vars(fastkcl.tables)
    ]
    monkeypatch.setattr(fastkcl.tables, "DeltaTable", object, raising=False)
    assert table_formats.offered() == list(table_formats.FORMATS)
    assert classes[0] == "ParquetTable"
    monkeypatch.delattr(fastkcl.tables, "DeltaTable")
    monkeypatch.delattr(fastkcl.tables, "IcebergTable")
    assert table_formats.offered() == ["parquet"]
