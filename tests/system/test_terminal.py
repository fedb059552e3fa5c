"""Text from outside never controls a terminal: names, keys, payloads, lines of children, errors."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fastkcl import _core
from fastkcl.local_aws import LocalAws
from paths import PROGRAMS, ROOT
from waiting import wait_until, wait_until_gone

FASTKCL = [sys.executable, "-m", "fastkcl"]
ODD = "\x1b[31m\x9b\x07\u202e"
SHOWN = "\\x1b[31m\\x9b\\x07\\u202e"
PLAIN = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "COLUMNS": "300",
    "PYTHONIOENCODING": "utf-8",
    "LC_ALL": "C.UTF-8",
    "STAGE_REQUESTS": os.devnull,
}


def on_a_terminal(command: list[str], folder: Path) -> str:
    """What a command writes to a terminal that is its standard input, output and error."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env={**os.environ, **PLAIN}
    )
    os.close(theirs)
    written: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(ours, 65536):
                written.append(data)
        except OSError:  # the other side is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        process.wait(120)
    finally:
        process.kill()
        process.wait()
        reader.join(60)
        os.close(ours)
    return b"".join(written).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = _core.encode_base64(f"payload {ODD}".encode()).decode()
    record = {"data": data, "partitionKey": ODD, "sequenceNumber": "1"}
    lines = [
        {"action": "initialize", "shardId": f"shard {ODD}"},
        {"action": "processRecords", "records": [record]},
        {"action": ODD},
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (tmp_path / f"{ODD}.in.jsonl").write_text(text)
    (tmp_path / "sound.in.jsonl").write_text("".join(text.splitlines(keepends=True)[:2]))
    stage = '[[stage]]\nname = "s"\ncommand = [{}]\n'
    words = ", ".join(
        map(json.dumps, [sys.executable, str(PROGRAMS / "dkb" / "stage.py"), "text", "echo", "-", "-m", "s"])
    )
    (tmp_path / "pipeline.toml").write_text('[pipeline]\ninput = "in.txt"\noutput = "-"\n' + stage.format(words))
    (tmp_path / "in.txt").write_text(f"message {ODD}\n")
    (tmp_path / "wrong.toml").write_text(stage.replace('"s"', json.dumps(ODD).replace("\\u202e", "x")).format('"true"'))
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", f"{ODD}.in.jsonl"],
        ["inspect", "sound.in.jsonl", "--format", "jsonl"],
        ["inspect", f"{ODD}.in.jsonl", "--format", "jsonl"],
        ["inspect", f"no {ODD}"],
        ["inspect", "sound.in.jsonl", "-o", f"no/{ODD}"],
        ["inspect", f"--no-{ODD}"],
        [f"no-{ODD}"],
        ["replay", "--capture", f"no {ODD}", "--", "true"],
        ["replay", "--capture", f"{ODD}.in.jsonl", "--", "true"],
        ["replay", "--profile", "iot", "--records", "1", "--", "sh", "-c", f"printf '%s\\n' '{ODD}' >&2"],
        [
            "replay",
            "--profile",
            "iot",
            "--records",
            "1",
            "--no-prefix",
            "--",
            "sh",
            "-c",
            f"printf '%s\\n' '{ODD}' >&2",
        ],
        ["replay", "--profile", "iot", "--records", "1", "--", "sh", "-c", f"printf '%s\\n' '{ODD}'"],
        ["daemon", "--set", f"{ODD}=1", "--stream", ODD, "--application", "a", "--check", "--", f"no{ODD}"],
        ["daemon", "--properties", f"no {ODD}"],
        ["sink", "inspect", f"no {ODD}"],
        ["dkb", "run", "pipeline.toml"],
        ["dkb", "run", "wrong.toml"],
        ["bench", "--payloads", f"no {ODD}"],
        ["kinesis", "--endpoint-url", "AWS", "--region", "us-east-1", "put", ODD, ODD],
        ["put", "s", "--input", f"no {ODD}"],
        ["local-aws", "--state", f"no/{ODD}"],
        ["run", f"no {ODD}.py"],
    ],
    ids=lambda arguments: " ".join(arguments).replace(ODD, "ODD")[:60],
)
def test_nothing_from_outside_controls_a_terminal(folder: Path, arguments: list[str], aws: LocalAws) -> None:
    text = on_a_terminal([*FASTKCL, *(aws.url if argument == "AWS" else argument for argument in arguments)], folder)
    assert [char for char in text if ord(char) < 32 and char not in "\r\n\t"] == []
    assert [char for char in text if 0x7F <= ord(char) < 0xA0] == []
    assert "\u202e" not in text
    assert re.search(r"\\x1b|\\u001b|u001B|x1b|x9b|\\033|expected|usage", text, re.IGNORECASE), text


@pytest.mark.parametrize(
    "arguments",
    [
        ["kinesis", "--endpoint-url", "http://user:TOKEN@127.0.0.1:1", "--region", "us-east-1", "describe", "s"],
        ["put", "s", "--profile", "iot", "--endpoint-url", "http://user:TOKEN@127.0.0.1:1"],
        ["kinesis", "--endpoint-url", "user:TOKEN@127.0.0.1:1", "--region", "us-east-1", "list"],
        ["kinesis", "--endpoint-url", "http://user:TOKEN@127.0.0.1:x", "--region", "us-east-1", "list"],
        ["kinesis", "--endpoint-url", "user:TOKEN@127.0.0.1:1", "--region", "us-east-1", "tail", "s"],
        ["put", "s", "--profile", "iot", "--endpoint-url", "http://user:TOKEN@127.0.0.1:99999"],
        ["put", "s", "--profile", "iot", "--endpoint-url", "http://user:TOKEN and a space@127.0.0.1:1"],
        ["daemon", "--stream", "s", "--application", "a", "--kinesis-endpoint", "user:TOKEN@h:80", "--", "true"],
        ["daemon", "--stream", "s", "--application", "a", "--kinesis-endpoint", "ftp://user:TOKEN@h", "--", "true"],
        ["daemon", "--stream", "s", "--endpoint-url", "http://user:TOKEN@127.0.0.1:1", "--check", "--", "true"],
        ["sink", "inspect", "a.b", "--catalog", "type=rest", "--catalog", "uri=http://127.0.0.1:1/?token=TOKEN&x=1"],
        ["sink", "inspect", "a.b", "--catalog", "uri=user:TOKEN@127.0.0.1"],
        ["sink", "inspect", "s3://user:TOKEN@bucket/t"],
        ["sink", "inspect", "s3://bucket/t", "--endpoint-url", "http://user:TOKEN@127.0.0.1:1"],
        ["sink", "orphans", "s3://user:TOKEN@bucket/t"],
        ["load", "s", "az://user:TOKEN@h/x"],
    ],
    ids=" ".join,
)
def test_no_password_of_a_url_is_shown(tmp_path: Path, arguments: list[str]) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1"}
    done = subprocess.run(
        [*FASTKCL, *arguments], capture_output=True, text=True, timeout=120, cwd=tmp_path, env={**os.environ, **keys}
    )
    assert "TOKEN" not in done.stdout + done.stderr
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_one_console_and_one_way_to_standard_error() -> None:
    """rich's own console, and writes to descriptors, would go past the escapes."""
    outside = re.compile(
        r"rich\.console import .*\bConsole\b|rich\.get_console|from rich import print|os\.write\([12],"
    )
    found = {
        f"{path.name}: {line.strip()}"
        for path in (ROOT / "python" / "fastkcl" / "cli").glob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if outside.search(line)
    }
    assert found == set()


def test_a_gzip_bomb_is_not_blown_up(tmp_path: Path) -> None:
    """400 kB are 400 MB without a line feed, or a few are 1.5 MB with many."""
    (tmp_path / "one.jsonl.gz").write_bytes(gzip.compress(b" " * 2**26) * 6)
    (tmp_path / "many.jsonl.gz").write_bytes(gzip.compress(b'{"action":"shardEnded"}\n' * 2**15) * 2)
    values = gzip.compress(b"{}," * 2**22) * 6  # 2 GB as objects of Python
    (tmp_path / "values.jsonl.gz").write_bytes(
        gzip.compress(b'{"action":"status","x":[') + values + gzip.compress(b"{}]}")
    )
    bombs = (("one.jsonl.gz", 1, 800 << 10), ("many.jsonl.gz", 0, 200 << 10), ("values.jsonl.gz", 1, 800 << 10))
    for name, code_of_exit, most in bombs:
        for form in ("table", "jsonl", "arrow"):
            found, kibibytes, said = inspected(tmp_path / name, form)
            assert (found, kibibytes < most) == (code_of_exit, True), (name, form, kibibytes, said)
            assert not said or "a line of more than 268435456 bytes" in said or "unknown_action" in said


def test_a_long_value_takes_little_to_show(tmp_path: Path) -> None:
    """32 MiB of an id took a minute and 600 MB, those of a payload 400 MB."""
    end = b'","partitionKey":"k","sequenceNumber":"1","subSequenceNumber":0,"approximateArrivalTimestamp":1}]}\n'
    lines = {
        "id": (b'{"action":"initialize","shardId":"', b'","sequenceNumber":"1","subSequenceNumber":0}\n'),
        "error": (b'{"action":"checkpoint","sequenceNumber":"1","subSequenceNumber":0,"error":"', b'"}\n'),
        "payload": (b'{"action":"processRecords","records":[{"action":"record","data":"', end),
    }
    path = tmp_path / "long.jsonl.gz"
    for name, (before, after) in lines.items():
        path.write_bytes(b"".join(map(gzip.compress, (before, b"YWFh" * 2**23, after))))
        found, kibibytes, said = inspected(path, "table")
        assert (found, said) == (0, "")
        assert kibibytes < 300 << 10, name


def inspected(path: Path, form: str) -> tuple[int, int, str]:
    """The exit code of `fastkcl inspect`, the KiB that it took at its peak, and the end of its standard error."""
    code = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)\n"
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.stderr.decode()[-200:])"
    )
    command = [sys.executable, "-c", code, *FASTKCL, "inspect", str(path), "--format", form, "-o", "out"]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, timeout=300, check=True)
    found, kibibytes, *said = done.stdout.split(maxsplit=2)
    return int(found), int(kibibytes), "".join(said)


@pytest.mark.parametrize("thread", ["main", "another"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_ends_its_children(tmp_path: Path, number: signal.Signals, thread: str) -> None:
    is_ended_with_its_children(tmp_path, [number], thread)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_again_ends_nothing_else(tmp_path: Path, number: signal.Signals) -> None:
    is_ended_with_its_children(tmp_path, [number] * 3, "main")


def is_ended_with_its_children(folder: Path, signals: list[signal.Signals], thread: str) -> None:
    child = ["sh", "-c", f"echo $$ > {folder}/pid.new; mv {folder}/pid.new {folder}/pid; exec sleep 600"]
    process = subprocess.Popen(
        [*FASTKCL, "replay", "--profile", "iot", "--records", "10", "--", *child], stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until((folder / "pid").exists, "the child")
        threads = {int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()}
        for number in signals:
            os.kill(process.pid if thread == "main" else max(threads - {process.pid}), number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + signals[0]
    assert "interrupted; the children have been ended" in said
    wait_until_gone(int((folder / "pid").read_text()))
