"""Files that users name: bounded, and a pipe is read if somebody writes to it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from fastkcl.cli.main import cli
from fastkcl.stdio import given_files
from fastkcl.stdio.given_files import read_given
from waiting import PATIENCE


@pytest.mark.parametrize("size", [0, 1, 65_536, 200_000])
def test_a_file_and_a_pipe(tmp_path: Path, size: int) -> None:
    body = os.urandom(size)
    (tmp_path / "file").write_bytes(body)
    assert read_given(tmp_path / "file", size) == body
    os.mkfifo(tmp_path / "pipe")
    writing = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(body,))
    writing.start()
    assert read_given(tmp_path / "pipe", size, patience=PATIENCE) == body
    writing.join(PATIENCE)


def test_what_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(101))
    for path in (tmp_path / "file", Path("/dev/zero")):
        with pytest.raises(OSError, match="more than 100 bytes"):
            read_given(path, 100)


def test_other_things(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TimeoutError, match=r"nobody has written for 0.05 s.*pipe"):
        read_given(tmp_path / "pipe", 100, patience=0.05)
    with pytest.raises(IsADirectoryError):
        read_given(tmp_path, 100)
    with pytest.raises(FileNotFoundError):
        read_given(tmp_path / "no", 100)


@pytest.mark.parametrize(
    "words",
    [
        ["daemon", "-p", "{}"],
        ["inspect", "-", "--payload", "avro", "--schema", "{}"],
        ["load", "orders", "table", "--payload", "protobuf", "--message", "M", "--schema", "{}"],
        ["load", "orders", "table", "--payload", "json", "--schema", "{}"],
        ["put", "orders", "--profile", "iot", "--payload", "avro", "--schema", "{}"],
        ["put", "orders", "--input", "{}"],
        ["replay", "--input", "{}", "--", "true"],
        ["replay", "--capture", "{}", "--", "true"],
        ["replay", "--capture", "{folder}", "--", "true"],
        ["replay", "--dead-letter", "{}", "--", "true"],
        ["replay", "--dead-letter", "{folder}", "--", "true"],
        ["bench", "--file", "{}"],
        ["dkb", "run", "{}"],
        ["daemon", "--stream", "s", "--application", "a", "--check", "--log-configuration", "{}", "--", "true"],
    ],
)
def test_commands_do_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setattr(given_files, "PATIENCE", 0.05)
    for name in ("pipe", "pipe.in.jsonl", "pipe.arrow"):
        os.mkfifo(tmp_path / name)
    done = CliRunner().invoke(cli, [word.format(tmp_path / "pipe", folder=tmp_path) for word in words], input="")
    assert done.exit_code == 2
    line = done.output.strip().splitlines()[-1]
    assert str(tmp_path / "pipe") in line
    assert "nobody has written for 0.05 s" in line or "no regular file" in line


def test_inspect_says_for_what_it_waits(tmp_path: Path) -> None:
    """Lines of a daemon that runs can come through a FIFO at any time."""
    os.mkfifo(tmp_path / "in")
    os.mkfifo(tmp_path / "out")
    command = [sys.executable, "-m", "fastkcl", "inspect", "in", "--format", "jsonl", "-o", "out"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "in: nobody writes to this pipe yet: waiting\n"
            (tmp_path / "in").write_text('{"action":"initialize","shardId":"s"}\n')
            assert process.stderr.readline() == "out: nobody reads this FIFO yet: waiting\n"
            assert (tmp_path / "out").read_text() == ""
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
