"""TableProcessor in real children on a pipe: payloads, transformations, failures, and a stream without a daemon."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastkcl
import pyarrow as pa
import pytest
from fastkcl.kinesis import MemoryCheckPointer, run_processors
from fastkcl.local_aws import LocalAws
from fastkcl.replay import ReplayOptions, Report, from_records, parse_fault, replay
from fastkcl.tables import BinaryPayload, JsonPayload, ParquetTable, TableProcessor
from local_aws_helpers import make_stream
from table_helpers import Place, posix_place

HEAD = """
import os

import fastkcl
import pyarrow as pa
from fastkcl.tables import *

table = ParquetTable(os.environ["TABLE_URL"])
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return posix_place(tmp_path)


@pytest.fixture
def run(place: Place, tmp_path: Path) -> Callable[..., tuple[Report, str]]:
    """Replay payloads to a child that ends with such a call."""

    def run(body: str, payloads: list[bytes], *faults: str) -> tuple[Report, str]:
        child, records = tmp_path / "child.py", tmp_path / "records.jsonl"
        child.write_text(HEAD + body)
        records.write_bytes(b"".join(json.dumps(_row(data)).encode() + b"\n" for data in payloads))
        noise: list[str] = []
        report = replay(
            [sys.executable, str(child)],
            from_records(records, batch_records=10),
            ReplayOptions(
                stream="clicks",
                faults=tuple(map(parse_fault, faults)),
                environment={**os.environ, **place.environment},
                on_stderr=lambda _shard, line: noise.append(line.decode()),
            ),
        )
        return report, "".join(noise)

    return run


def _row(data: bytes) -> dict[str, str]:
    from base64 import b64encode

    return {"data": b64encode(data).decode(), "partitionKey": "k"}


def columns(place: Place, *names: str) -> dict[str, list[Any]]:
    table = place.read().sort_by("sequenceNumber")
    return {name: table[name].to_pylist() for name in names}


CLICKS = [json.dumps({"user": f"u{n}", "price": n / 2}).encode() for n in range(25)]


def test_records_as_they_are(run: Callable[..., tuple[Report, str]], place: Place) -> None:
    report, noise = run("fastkcl.run(TableProcessor(table))", CLICKS)
    assert report.ok, noise
    assert columns(place, "data")["data"] == CLICKS


def test_json_as_typed_columns_and_what_is_none(run: Callable[..., tuple[Report, str]], place: Place) -> None:
    body = "fastkcl.run(TableProcessor(table, payload=JsonPayload('user string, price double')))"
    report, noise = run(body, [*CLICKS[:3], b"{", CLICKS[3]])
    assert report.ok, noise
    found = columns(place, "user", "price", "_corrupt")
    assert found["user"] == ["u0", "u1", "u2", None, "u3"]
    assert found["price"] == [0, 0.5, 1, None, 1.5]
    assert found["_corrupt"] == [None, None, None, b"{", None]


LOADED = """
import sys

class Told(TableProcessor):
    def initialize(self, context):
        super().initialize(context)
        self.before = set(sys.modules)

    def shard_ended(self, checkpointer):
        super().shard_ended(checkpointer)
        late = {name for name in sys.modules if name.startswith("pyarrow")} - self.before
        print("loaded late:", *sorted(late), "pandas:", "pandas" in sys.modules, file=sys.stderr)
        print("memory:", pa.default_memory_pool().backend_name, file=sys.stderr)
"""


@pytest.mark.parametrize("table", ["ParquetTable", "DeltaTable"])
@pytest.mark.parametrize("payload", ["None", "JsonPayload('user string, price double')"])
def test_a_child_loads_what_its_writes_need_before_the_first_record_and_no_pandas(
    run: Callable[..., tuple[Report, str]], table: str, payload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    importlib.import_module("pandas")  # it is installed: pyarrow would import it
    body = f"fastkcl.run(Told({table}(os.environ['TABLE_URL']), payload={payload}))"
    report, noise = run(LOADED + body, CLICKS)
    assert report.ok, noise
    assert "loaded late: pandas: False" in noise
    assert f"memory: {'jemalloc' if 'jemalloc' in pa.supported_memory_backends() else 'mimalloc'}" in noise


def test_memory_as_the_user_has_chosen_it(
    run: Callable[..., tuple[Report, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    report, noise = run(LOADED + "fastkcl.run(Told(table))", CLICKS)
    assert report.ok, noise
    assert "memory: mimalloc" in noise


def test_gzip_is_unpacked(run: Callable[..., tuple[Report, str]], place: Place) -> None:
    body = "fastkcl.run(TableProcessor(table, payload=BinaryPayload('gzip')))"
    report, noise = run(body, [gzip.compress(data, mtime=0) for data in CLICKS])
    assert report.ok, noise
    assert columns(place, "data")["data"] == CLICKS


def test_a_transformation(run: Callable[..., tuple[Report, str]], place: Place) -> None:
    body = """
import pyarrow.compute as pc
def dear(table):
    table = table.filter(pc.greater(table["price"], 6))
    return table.append_column("cents", pc.cast(pc.multiply(table["price"], 100), pa.int64()))
fastkcl.run(TableProcessor(table, payload=JsonPayload("user string, price double"), transform=dear))
"""
    report, noise = run(body, CLICKS)
    assert report.ok, noise
    assert columns(place, "cents")["cents"] == [50 * n for n in range(13, 25)]


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("table.append_column('Date', table['data'])", "a column 'Date', which is given by the folders"),
        ("table.append_column('_corrupt', table['data'])", "which is fastkcl's, for payloads that cannot be opened"),
        ("table.append_column('DATA', table['data'])", "a second column 'DATA'"),
        ("table.select([])", "a table without columns"),
        ("table.to_batches()", "must return a pyarrow.Table, not list"),
    ],
)
def test_what_a_transformation_must_not_return(
    run: Callable[..., tuple[Report, str]], place: Place, returned: str, said: str
) -> None:
    report, noise = run(f"fastkcl.run(TableProcessor(table, transform=lambda table: {returned}))", CLICKS)
    assert not report.ok
    assert said in noise
    assert place.files() == []


def test_what_cannot_be_written_is_in_a_dead_letter(
    run: Callable[..., tuple[Report, str]], place: Place, tmp_path: Path
) -> None:
    body = f"""
def fails(table):
    if b"u7" in b"".join(table["data"].to_pylist()):
        raise ValueError("u7 is not wanted")
    return table
processor = TableProcessor(table, transform=fails, max_bytes=1, max_held_bytes=1)
fastkcl.run(processor, dead_letter={str(tmp_path / "letters")!r})
"""
    report, noise = run(body, CLICKS)
    assert report.ok, noise
    letters = [pa.ipc.open_file(path).read_all() for path in (tmp_path / "letters").rglob("*.arrow")]
    left = [data for letter in letters for data in letter["data"].to_pylist()]
    assert CLICKS[7] in left
    assert sorted(left + columns(place, "data")["data"]) == sorted(CLICKS)


@pytest.mark.parametrize("policy", ["", ', on_error="skip"'])
def test_a_damaged_note_ends_a_child_that_has_nothing_to_note(
    run: Callable[..., tuple[Report, str]], place: Place, policy: str
) -> None:
    """It would write on without a checkpoint."""
    body = f"fastkcl.run(TableProcessor(table){policy})"
    report, noise = run(body, CLICKS)
    assert report.ok, noise
    (folder,) = (path for path in Path(place.url).glob("stream=*/shard=*") if path.is_dir())
    note = Path(place.url, "_fastkcl", "given_up", *folder.parts[-2:], "note")
    note.parent.mkdir(parents=True)
    note.write_text('{"after": ["49')
    report, noise = run(body, CLICKS, "shutdown@1")
    assert not report.ok
    assert f"{note}: a damaged note" in noise


def test_a_failure_that_passes_is_retried(run: Callable[..., tuple[Report, str]], place: Place) -> None:
    body = """
left = [2]
def fails(table):
    left[0] -= 1
    if left[0] >= 0:
        raise OSError("not yet")
    return table
fastkcl.run(TableProcessor(table, transform=fails), retries=3, retry_backoff=0.01)
"""
    report, noise = run(body, CLICKS)
    assert report.ok, noise
    assert columns(place, "data")["data"] == CLICKS


def test_a_stream_without_a_daemon(aws: LocalAws, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    kinesis = aws.client("kinesis")
    stream = make_stream(aws, shards=2)
    kinesis.put_records(StreamName=stream, Records=[{"Data": data, "PartitionKey": data.decode()} for data in CLICKS])
    asyncio.run(
        run_processors(
            stream,
            lambda: TableProcessor(place.table(), payload=JsonPayload("user string"), report_interval=None),
            checkpointer=MemoryCheckPointer(),
            endpoint_url=aws.url,
            region_name="us-east-1",
            idle_timeout=1.0,
        )
    )
    assert sorted(place.read()["user"].to_pylist()) == sorted(f"u{n}" for n in range(25))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"table": "s3://lake/clicks"}, TypeError, "table must be a table"),
        ({"table": ParquetTable}, TypeError, "table must be a table"),
        ({"payload": "json"}, TypeError, "an AvroPayload, a BinaryPayload, a JsonPayload or"),
        ({"payload": JsonPayload("stream string")}, ValueError, "stream"),
        ({"bounds": fastkcl.tables.Bounds(), "max_age": 1}, TypeError, "max_age"),
        ({"maxAge": 1}, TypeError, r"TableProcessor has no option maxAge=; did you mean max_age=\?"),
        ({"zzz": 1}, TypeError, "TableProcessor has no option zzz=$"),
    ],
)
def test_options_that_are_refused(place: Place, options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        TableProcessor(**{"table": place.table(), **options})


def test_a_binary_payload_is_opened_by_name() -> None:
    assert BinaryPayload("gzip").compression == "gzip"
