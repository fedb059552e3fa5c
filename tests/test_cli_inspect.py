"""`fastkcl inspect`: the table, the formats for tools, errors with their line."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastkcl.replay import from_captures, from_records
from replay_helpers import DATA

SPLIT = DATA / "kcl-multilang" / "split.shard0.in.jsonl"
MANY = DATA / "kcl-multilang" / "many.shard0.in.jsonl.gz"
SHAPES = DATA / "kcl-multilang" / "shapes.shard0.in.jsonl"
LEGACY = DATA / "kcl-legacy-captures" / "aggregated.shard0.in.jsonl"


def inspect(*args: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "fastkcl", "inspect", *args]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60)


def test_table() -> None:
    done = inspect(str(SPLIT), "--records", "2")
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    rows = [line.split() for line in text.splitlines()]
    assert [row[1] for row in rows if row and row[0].isdigit()] == [
        "initialize",
        "processRecords",
        "checkpoint",
        "checkpoint",
        "shardEnded",
        "checkpoint",
    ]
    assert "20 records, 6,153 B of line, 0 ms behind" in text
    assert "18 more" in text
    assert text.count("  record ") == 2
    assert "49680426818667339435918894675144888260058346082667593730/0" in text


def test_table_of_what_a_child_wrote() -> None:
    done = inspect(str(SPLIT).replace(".in.", ".out."))
    assert done.returncode == 0
    text = done.stdout.decode()
    assert text.count("status (child)") == 3
    assert text.count("checkpoint (child)") == 3


def test_table_of_odd_keys_stays_a_table() -> None:
    """Control characters and markup in keys and payloads neither break lines nor become colours."""
    done = inspect(str(SHAPES), "--records", "100")
    text = done.stdout.decode()
    assert done.returncode == 0
    assert text.count("  record ") == 49
    assert "tab\\tkey" in text
    assert not set("\x00\x1b\x07\u2028\x85") & set(text)


def test_standard_input_and_output_file(tmp_path: Path) -> None:
    output = tmp_path / "table.txt"
    done = inspect("-", "--output", str(output), stdin=SPLIT.read_bytes())
    assert (done.returncode, done.stdout) == (0, b"")
    assert "standard input" in output.read_text()


BAD = (
    SPLIT.read_bytes().splitlines(keepends=True)[0] + b"\n" + b'{"action":"processRecords","records":[{"data":"?"}]}\n'
)


def test_table_shows_an_error_in_its_place_and_goes_on() -> None:
    done = inspect("-", stdin=BAD + b'{"action":"leaseLost"}\n')
    assert done.returncode == 1
    text = done.stdout.decode()
    assert "record 0, byte 47" in text
    assert "leaseLost" in text
    assert "1 of the lines cannot be read" in text


@pytest.mark.parametrize("form", ["jsonl", "parquet", "arrow"])
def test_other_formats_stop_at_an_error_and_leave_no_file(tmp_path: Path, form: str) -> None:
    source = tmp_path / "bad.in.jsonl"
    source.write_bytes(BAD)
    done = inspect(str(source), "--format", form, "--output", str(tmp_path / "out"))
    assert done.returncode == 1
    assert done.stderr.decode().startswith(f"Error: {source}:3: base64: ")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.in.jsonl"]


@pytest.mark.parametrize("path", [SPLIT, MANY, SHAPES, LEGACY], ids=lambda path: path.name)
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_what_is_converted_can_be_replayed(tmp_path: Path, path: Path, form: str) -> None:
    """Records of a capture, through a file for tools, are the same records."""
    output = tmp_path / f"records.{form}"
    done = inspect(str(path), "--format", form, "--output", str(output))
    assert done.returncode == 0, done.stderr
    (captured,), (read,) = from_captures(path).shards(), from_records(output).shards()
    size = len(captured.records)
    assert read.records.columns(0, size) == captured.records.columns(0, size)
    assert output.stat().st_mode & 0o777 == 0o644 or output.stat().st_mode & 0o700 == 0o600


def test_arrow_file_has_the_canonical_schema_after_the_shard() -> None:
    done = inspect(str(MANY), "--format", "arrow")
    assert done.returncode == 0, done.stderr
    table = pa.ipc.open_file(io.BytesIO(done.stdout)).read_all()
    assert table.num_rows == 10_000
    assert table.schema == pa.schema(
        [
            ("shardId", pa.string()),
            ("data", pa.binary()),
            ("partitionKey", pa.string()),
            ("sequenceNumber", pa.string()),
            ("subSequenceNumber", pa.int64()),
            ("approximateArrivalTimestamp", pa.timestamp("us", "UTC")),
        ]
    )
    lines = gzip.decompress(MANY.read_bytes()).splitlines()
    records = json.loads(lines[1])["records"]
    assert table.column("partitionKey").to_pylist() == [record["partitionKey"] for record in records]
    assert set(table.column("shardId").to_pylist()) == {json.loads(lines[0])["shardId"]}


def test_a_file_without_records_has_the_schema_too() -> None:
    done = inspect("-", "--format", "parquet", stdin=b'{"action":"leaseLost"}\n')
    assert pq.read_table(io.BytesIO(done.stdout)).column_names[0] == "shardId"


def test_json_lines_are_one_record_each() -> None:
    done = inspect(str(LEGACY), "--format", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 47
    assert rows[0]["shardId"] == "shardId-000000000000"
    assert rows[0]["subSequenceNumber"] is None


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("/nonexistent",), 2, "does not exist"),
        (("-", "--format", "xml"), 2, "is not one of"),
        (("-", "--records", "-1"), 2, "is not in the range"),
        (("-", "--format", "jsonl", "--output", "/nonexistent/x"), 1, "No such file or directory"),
        (("-", "--output", "/nonexistent/x"), 1, "No such file or directory"),
        ((str(MANY), "--format", "jsonl", "--output", "/dev/full/x"), 1, "Not a directory"),
    ],
)
def test_user_errors(args: tuple[str, ...], code: int, message: str) -> None:
    done = inspect(*args, stdin=b"")
    assert done.returncode == code
    assert message in " ".join(done.stderr.decode().split())
    assert b"Traceback" not in done.stderr


def test_a_broken_gzip_file(tmp_path: Path) -> None:
    path = tmp_path / "x.in.jsonl.gz"
    path.write_bytes(MANY.read_bytes()[:5000])
    for form in ("table", "jsonl"):
        done = inspect(str(path), "--format", form)
        assert done.returncode == 1
        assert b"Traceback" not in done.stderr
        assert b"end-of-stream" in done.stderr


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m fastkcl inspect {MANY} --format jsonl | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
