"""Shared by the tests of the DKB room: a stage as a real process over real pipes, and the cases' dialogues."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import Any

from case_files import Case
from paths import PROGRAMS

STAGE = PROGRAMS / "dkb" / "stage.py"
TIMEOUT = 60.0


class Stage:
    """A running stage.

    Args:
        message_type: of input and output.
        behaviour: what process does, see tests/programs/dkb/stage.py.
        batch_size: None for the command line's.
        arguments: of the command line.
    """

    def __init__(self, message_type: str, behaviour: str, batch_size: int | None, *arguments: str) -> None:
        size = "-" if batch_size is None else str(batch_size)
        self.process = subprocess.Popen(
            [sys.executable, str(STAGE), message_type, behaviour, size, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout
        self._read = b""

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def send(self, data: bytes, *, bytewise: bool = False) -> None:
        for piece in [data[at : at + 1] for at in range(len(data))] if bytewise else [data]:
            self._in.write(piece)

    def end_input(self) -> None:
        self._in.close()

    def expect(self, expected: bytes) -> None:
        """Exactly these bytes come next."""
        end = time.monotonic() + TIMEOUT
        while len(self._read) < len(expected):
            readable, _, _ = select.select([self._out], [], [], max(0.0, end - time.monotonic()))
            assert readable, f"{expected!r} did not come, only {self._read!r}"
            data = os.read(self._out.fileno(), 1 << 16)
            assert data, f"the output ended before {expected!r}, after {self._read!r}"
            self._read += data
        assert self._read == expected
        self._read = b""

    def quiet(self, seconds: float) -> None:
        readable, _, _ = select.select([self._out], [], [], seconds)
        assert not readable, os.read(self._out.fileno(), 1 << 16)

    def finish(self) -> tuple[int, str]:
        """End the input; nothing more may come. Exit code and standard error."""
        if not self._in.closed:
            self._in.close()
        self.process.stdin = None
        out, err = self.process.communicate(timeout=TIMEOUT)
        assert self._read + out == b""
        return self.process.returncode, err.decode()


def marker_arguments(markers: dict[str, str | None]) -> list[str]:
    """The markers as options of the command line."""
    names = {"eom": "-e", "eop": "-E", "eob": "--end-of-batch", "bnc": "--batch-not-complete"}
    escaped = {name: (value or "").encode("unicode_escape").decode() for name, value in markers.items()}
    return [argument for name, option in names.items() for argument in (option, escaped[name])]


def play(case: Case, *, bytewise: bool = False) -> None:
    """Play a case of kind dialogue with a real process."""
    arguments = ["-m", "s", *marker_arguments(case["markers"])]
    with Stage(case["message_type"], case["process"], case["batch_size"], *arguments) as stage:
        for step in case["steps"]:
            play_step(stage, step, bytewise=bytewise)
        code, errors = stage.finish()
    assert code == case["exit"], errors


def play_step(stage: Stage, step: dict[str, Any], *, bytewise: bool) -> None:
    if "in" in step:
        stage.send(step["in"].encode(), bytewise=bytewise)
    elif "out" in step:
        stage.expect(step["out"].encode())
    elif "quiet_ms" in step:
        stage.quiet(step["quiet_ms"] / 1000)
    else:
        assert step["eof"]
        stage.end_input()
