"""`fastkcl inspect`: the table, the formats for tools, errors with their line."""

import base64
import gzip
import io
import json
import os
import pty
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastkcl import _core
from fastkcl.cli import inspect_payloads
from fastkcl.cli.console import Console
from fastkcl.cli.inspect import _show, _Shown
from fastkcl.cli.inspect_payloads import OpenedBatches
from fastkcl.payloads import JsonPayload
from fastkcl.replay import from_captures, from_records
from paths import DATA
from rich.cells import cell_len

SPLIT = DATA / "kcl-multilang" / "split.shard0.in.jsonl"
MANY = DATA / "kcl-multilang" / "many.shard0.in.jsonl.gz"
SHAPES = DATA / "kcl-multilang" / "shapes.shard0.in.jsonl"
LEGACY = DATA / "kcl-legacy-captures" / "aggregated.shard0.in.jsonl"
COMMAND = [sys.executable, "-m", "fastkcl", "inspect"]


def inspect(*args: str, stdin: bytes | None = None, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *args], input=stdin, capture_output=True, timeout=60, env={**os.environ, **environment}
    )


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


ODD = r"""
{"action":"initialize","shardId":"a\u001b[31mred\u202e[bold]"}
{"action":"processRecords","records":[{"data":"G1szMW0=","partitionKey":"\u001b[31m","sequenceNumber":"1\u001b[31m"}]}
{"action":"checkpoint","checkpoint":"\u001b[31m1","error":"\u001b[31m"}
{"action":"shutdown","reason":"\u001b[31m"}
{"action":"\u001b[31m"}
{"action":"status","responseFor":"\u001b[31m\ud800"}
"""


def test_nothing_of_a_line_controls_the_terminal() -> None:
    done = inspect("-", stdin=ODD.encode())
    text = done.stdout.decode()
    assert done.stderr == b""
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "a\\x1b[31mred\\u202e[bold]" in text
    assert "for \\x1b[31m\\ud800" in text
    done = inspect("-", "--format", "jsonl", stdin=b'{"action":"\\u001b[31m"}\n')
    assert done.returncode == 1
    assert b"\x1b" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_encoding_has_not(encoding: str) -> None:
    done = inspect(str(SHAPES), PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"0e 0f\\u2026" in done.stdout


def test_a_line_is_shown_before_the_next_one_is_read() -> None:
    lines = SPLIT.read_bytes().splitlines(keepends=True)
    with subprocess.Popen([*COMMAND, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines[0])
        process.stdin.flush()
        while b"initialize" not in process.stdout.readline():
            assert process.poll() is None
        process.stdin.write(lines[1])
        process.stdin.flush()
        while b"15 more" not in process.stdout.readline():
            assert process.poll() is None
        process.stdin.close()
        assert process.stdout.read() == b""


@pytest.mark.parametrize(("width", "most_rows"), [(80, 6), (120, 3), (200, 1), (250, 1)])
def test_a_terminal_of_any_width(width: int, most_rows: int) -> None:
    text = io.StringIO()
    _show(io.BytesIO(SHAPES.read_bytes()), "shapes", _Shown(100, None), Console(file=text, width=width))
    rows = text.getvalue().splitlines()
    assert max(map(cell_len, rows)) <= width
    assert len(rows) <= 4 + 7 + 49 * most_rows


@pytest.mark.parametrize("path", [SHAPES, SPLIT, MANY, LEGACY], ids=lambda path: path.name)
def test_a_pipe_has_the_rows_of_a_terminal(path: Path) -> None:
    """A terminal's go through rich, with styles."""
    arguments = [str(path), "--records", "1000"]
    with_styles = inspect(*arguments, FORCE_COLOR="1", TERM="xterm").stdout.decode()
    text = re.sub(r"\x1b\[[0-9;]*m", "", with_styles)
    assert text != with_styles
    assert inspect(*arguments).stdout.decode().splitlines() == text.splitlines()


def test_standard_input_and_output_file(tmp_path: Path) -> None:
    output = tmp_path / "table.txt"
    done = inspect("-", "--output", str(output), stdin=SPLIT.read_bytes())
    assert (done.returncode, done.stdout) == (0, b"")
    assert "standard input" in output.read_text()


def read_fifo(path: Path, into: list[bytes]) -> threading.Thread:
    thread = threading.Thread(target=lambda: into.append(path.read_bytes()), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("form", ["table", "jsonl", "arrow", "parquet"])
def test_a_fifo_is_written_in_its_place(tmp_path: Path, form: str) -> None:
    fifo, link, got = tmp_path / "fifo", tmp_path / "link", []
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    reader = read_fifo(fifo, got)
    done = inspect(str(SPLIT), "--format", form, "--output", str(link))
    reader.join(30)
    assert done.returncode == 0, done.stderr
    assert fifo.is_fifo()
    assert link.is_symlink()
    assert got == [inspect(str(SPLIT), "--format", form).stdout]


def test_a_device_is_written_in_its_place() -> None:
    """A terminal stands for all of them: whatever goes wrong here, nothing else can be put in its place."""
    ours, theirs = pty.openpty()
    device = Path(os.ttyname(theirs))
    done = inspect("-", "--format", "jsonl", "--output", str(device), stdin=ODD.encode().splitlines()[2])
    assert done.returncode == 0, done.stderr
    assert b'"data": "G1szMW0="' in os.read(ours, 4096)
    assert device.is_char_device()
    os.close(theirs)
    os.close(ours)


def test_a_file_that_is_too_large_leaves_nothing(tmp_path: Path) -> None:
    for form in ("table", "jsonl", "arrow"):
        command = ["bash", "-c", 'ulimit -f 1 && exec "$@"', "bash", *COMMAND, str(SHAPES), "--records", "100"]
        done = subprocess.run(
            [*command, "--format", form, "-o", "out"], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (2, "Error: out: File too large\n")
        assert list(tmp_path.iterdir()) == []


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "private").write_bytes(b"x")
    (folder / "private").chmod(0o600)
    for name in ("private", "new"):
        link = tmp_path / name
        link.symlink_to(folder / name)
        assert inspect(str(SPLIT), "--format", "jsonl", "-o", str(link)).returncode == 0
        assert link.is_symlink()
        assert (folder / name).read_bytes().count(b"\n") == 20
    assert (folder / "private").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in folder.iterdir()) == ["new", "private"]


def test_a_dash_is_standard_output(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, str(SPLIT), "-o", "-"], capture_output=True, cwd=tmp_path, timeout=60)
    assert b"shardEnded" in done.stdout
    assert list(tmp_path.iterdir()) == []


BAD = (
    SPLIT.read_bytes().splitlines(keepends=True)[0] + b"\n" + b'{"action":"processRecords","records":[{"data":"?"}]}\n'
)


def test_table_shows_an_error_in_its_place_and_goes_on() -> None:
    done = inspect("-", stdin=BAD + b'{"action":"leaseLost"}\n')
    assert done.returncode == 1
    text = done.stdout.decode()
    assert "record 0, byte 47" in text
    assert "leaseLost" in text
    assert "Lines that cannot be read: 1" in text


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
        (("-", "--format", "jsonl", "--output", "/nonexistent/x"), 2, "No such file or directory"),
        (("-", "--output", "/nonexistent/x"), 2, "No such file or directory"),
        ((str(MANY), "--format", "jsonl", "--output", f"{__file__}/x"), 2, "Not a directory"),
    ],
)
def test_user_errors(args: tuple[str, ...], code: int, message: str) -> None:
    done = inspect(*args, stdin=b"")
    assert done.returncode == code
    assert message in " ".join(done.stderr.decode().split())
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_GLUE"])
@pytest.mark.parametrize("url", ["http://user:S/SECRET@127.0.0.1:1", "http://user:SECRET@127.0.0.1:port", "h:SECRET@h"])
def test_what_is_no_endpoint_of_a_registry(name: str, url: str) -> None:
    options = ("--payload", "avro", "--framing", "glue", "--registry", "glue", "--schema", "latest:r/a")
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    done = inspect(str(SPLIT), *options, **keys, **{name: url})
    assert done.returncode == 2
    assert "is not a URL such as http://127.0.0.1:4567" in " ".join(done.stderr.decode().split())
    for part in (b"Traceback", b"SECRET", b"S/"):
        assert part not in done.stderr


def test_payloads_that_open_to_many_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_payloads, "_TABLE_BYTES", 4096)
    rows = [{"a": f"{number} {'x' * 1000}"} for number in range(50)]
    packed = [base64.b64encode(gzip.compress(json.dumps(row).encode())).decode() for row in rows]
    records = [{"data": data, "partitionKey": "k", "sequenceNumber": "1"} for data in packed]
    message = _core.decode_line(json.dumps({"action": "processRecords", "records": records}).encode())
    assert isinstance(message, _core.ProcessRecords)
    opened = OpenedBatches(JsonPayload("a STRING", "gzip"))
    tables = list(opened.tables([("s", message.batch)]))
    assert len(tables) > 2  # the first one is empty
    assert [row["a"] for table in tables for row in table.to_pylist()] == [row["a"] for row in rows]
    assert opened.shown(message.batch, 10) == [json.dumps(row)[:11] for row in rows]
    assert opened.shown(message.batch.slice(0, 0), 10) == []


def test_a_socket_in_the_place_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as there:
        there.bind("socket")
        done = inspect("socket")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"Error: socket: No such device or address\n"


def test_a_broken_gzip_file(tmp_path: Path) -> None:
    path = tmp_path / "x.in.jsonl.gz"
    data = MANY.read_bytes()
    for broken, error in ((data[:5000], "Compressed file ended"), (data[:10] + b"\xff" * 20, "Error -3 while")):
        path.write_bytes(broken)
        for form in ("table", "jsonl"):
            done = inspect(str(path), "--format", form)
            assert done.returncode == 1
            assert done.stderr.decode().startswith(f"Error: {path}: {error}")


def test_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    done = inspect(str(SPLIT), "-o", str(loop))
    assert done.returncode == 2
    assert b"Too many levels of symbolic links" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("form", ["table", "jsonl", "arrow", "parquet"])
def test_a_reader_that_goes_away(form: str) -> None:
    command = [*COMMAND, str(MANY), "--records", "10000", "--format", form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.read(10)) == 10
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("form", ["table", "jsonl", "arrow", "parquet"])
def test_a_full_disk_behind_standard_output(form: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, str(SPLIT), "--format", form], stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 2
    assert done.stderr == b"Error: standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("redirection", "message"), [("<&-", "standard input is closed"), (">&-", "standard output is closed")]
)
def test_closed_streams(redirection: str, message: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"$@" {redirection}', "bash", *COMMAND, "-"], input=b"", capture_output=True, timeout=60
    )
    assert done.returncode == 2
    assert message in done.stderr.decode()
    assert b"Traceback" not in done.stderr
