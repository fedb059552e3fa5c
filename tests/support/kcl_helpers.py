"""The daemon's side of a KCL dialogue for tests, in process and with a real child over real pipes.

`Daemon` writes lines and reads answers on a pair of descriptors. `in_process` runs a processor on `os.pipe` pairs in
this process, `Child` is a Python program of its own. `play_in_process` and `play_child` play a case of kind dialogue.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fastkcl
from fastkcl.kcl.connection import Connection
from fastkcl.kcl.dialogue import Dialogue
from fastkcl.kcl.runner import serve
from fastkcl.processing.failures import FailurePolicy
from fastkcl.stdio import process
from fastkcl.stdio.descriptors import Descriptors
from paths import PROGRAMS
from waiting import PATIENCE, wait_until

TIMEOUT = PATIENCE
"""Seconds until a dialogue that does not go on fails the test."""

INITIALIZE = (
    b'{"action":"initialize","shardId":"shardId-000000000000","sequenceNumber":"TRIM_HORIZON","subSequenceNumber":0}\n'
)
LEGACY_INITIALIZE = b'{"action":"initialize","shardId":"shardId-000000000000"}\n'
LEASE_LOST = b'{"action":"leaseLost"}\n'
SHARD_ENDED = b'{"action":"shardEnded"}\n'
SHUTDOWN_REQUESTED = b'{"action":"shutdownRequested"}\n'


def process_records(*sequence_numbers: int, sub: int | None = 0) -> bytes:
    """A processRecords line with one small record for each sequence number."""
    records = [
        {
            "data": "aGVsbG8=",
            "partitionKey": "k",
            "sequenceNumber": str(number),
            "approximateArrivalTimestamp": 1700000000123,
            "subSequenceNumber": sub,
            "action": "record",
        }
        for number in sequence_numbers
    ]
    message = {"action": "processRecords", "records": records, "millisBehindLatest": 0}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def checkpoint_reply(error: str | None = None, sequence_number: str | None = None) -> bytes:
    message = {"action": "checkpoint", "sequenceNumber": sequence_number, "subSequenceNumber": None, "error": error}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def status(action: str) -> dict[str, Any]:
    return {"action": "status", "responseFor": action}


def checkpoint(sequence_number: str | None = None, sub_sequence_number: int | None = None) -> dict[str, Any]:
    return {"action": "checkpoint", "sequenceNumber": sequence_number, "subSequenceNumber": sub_sequence_number}


class Daemon:
    """Writes to a child and reads its lines; closes both descriptors at the end."""

    def __init__(self, write_fd: int, read_fd: int, *, bytewise: bool = False) -> None:
        self.write_fd = write_fd
        self.read_fd = read_fd
        self.bytewise = bytewise
        self._buffer = b""

    def send(self, line: bytes) -> None:
        step = 1 if self.bytewise else max(len(line), 1)
        for start in range(0, len(line), step):
            piece = line[start : start + step]
            while piece:
                piece = piece[os.write(self.write_fd, piece) :]

    def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end of the child's output. Blank lines are skipped, as a daemon does."""
        while True:
            line, found, rest = self._buffer.partition(b"\n")
            if found:
                self._buffer = rest
                if line.strip():
                    message: dict[str, Any] = json.loads(line)
                    return message
                continue
            readable, _, _ = select.select([self.read_fd], [], [], TIMEOUT)
            assert readable, f"the child wrote nothing for {TIMEOUT} s; open line: {self._buffer!r}"
            data = os.read(self.read_fd, 1 << 16)
            if not data:
                assert not self._buffer.strip(), f"the child's output ended inside a line: {self._buffer!r}"
                return None
            self._buffer += data

    def ask(self, line: bytes, *expected: dict[str, Any]) -> None:
        """Send a request and expect its status, with successful checkpoints answered on the way."""
        self.send(line)
        for message in expected:
            assert self.receive() == message
            if message["action"] == "checkpoint":
                self.send(checkpoint_reply(sequence_number=message.get("sequenceNumber")))

    def start(self) -> None:
        self.ask(INITIALIZE, status("initialize"))

    def end_input(self) -> None:
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def finish(self) -> None:
        """End the child's input and expect the end of its output."""
        self.end_input()
        assert self.receive() is None

    def close(self) -> None:
        self.end_input()
        if self.read_fd >= 0:
            os.close(self.read_fd)
            self.read_fd = -1


class Result(NamedTuple):
    """How a run ended."""

    exit: object
    """Exit code, 0 for a plain return."""
    stderr: str


def in_process(
    processor: fastkcl.BatchProcessor,
    script: Callable[[Daemon], None],
    *,
    bytewise: bool = False,
    dialect: Any = "auto",
    on_error: Any = "stop",
    retries: int = 0,
    retry_backoff: float = 0.0,
    dead_letter: Path | None = None,
    stream: str | None = None,
    shutdown_grace: float = 30.0,
    max_line_bytes: int = 1 << 28,
) -> Result:
    """Serve a daemon that `script` plays in a thread; an exception of the script is raised here."""
    child_read, daemon_write = os.pipe()
    daemon_read, child_write = os.pipe()
    daemon = Daemon(daemon_write, daemon_read, bytewise=bytewise)
    failed: list[BaseException] = []

    def play() -> None:
        try:
            script(daemon)
        except BaseException as error:
            failed.append(error)
        finally:
            daemon.close()

    thread = threading.Thread(target=play, daemon=True)
    policy = FailurePolicy(on_error=on_error, retries=retries, backoff=retry_backoff, dead_letter=dead_letter)
    code: object = 0
    with standard_error() as stderr:
        thread.start()
        try:
            process.run_on(
                Descriptors(child_read, child_write),
                lambda descriptors, signals: serve(
                    processor,
                    Dialogue(Connection(dialect=dialect), descriptors, signals, max_line_bytes),
                    policy,
                    stream,
                ),
                shutdown_grace,
            )
        except SystemExit as end:
            code = 0 if end.code is None else end.code
        thread.join(TIMEOUT)
        assert not thread.is_alive(), "the daemon's script still waits after the run has ended"
    if failed:
        raise failed[0]
    return Result(code, stderr())


@contextlib.contextmanager
def standard_error() -> Iterator[Callable[[], str]]:
    """Collect what is written to fd 2; the value is read after the block."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        text = ""
        try:
            yield lambda: text
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            text = file.read().decode("utf-8", "replace")


class Child:
    """A Python program as a child of a daemon; ends it on leaving the context, if it has not ended by itself.

    Args:
        arguments: of the interpreter: ``["-c", source]`` or ``[path, ...]``.
        bytewise: write one byte at a time.
        environment: variables to add.
    """

    def __init__(self, *arguments: str, bytewise: bool = False, environment: dict[str, str] | None = None) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONUNBUFFERED": "",  # as a daemon's child: what is printed is held back
                **(environment or {}),
            },
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.daemon = Daemon(
            os.dup(self.process.stdin.fileno()), os.dup(self.process.stdout.fileno()), bytewise=bytewise
        )
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exception: object) -> None:
        self.daemon.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._stderr.close()

    def wait(self) -> Result:
        """Wait for the process; the daemon's ends of the pipes stay as they are."""
        code = self.process.wait(TIMEOUT)
        return Result(code, self.stderr())

    def finish(self) -> Result:
        """End the input, expect the end of the output, and wait."""
        self.daemon.finish()
        return self.wait()

    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace")

    def await_stderr(self, text: str) -> None:
        """Wait until the child has written `text` to standard error."""
        wait_until(lambda: text in self.stderr(), f"{text!r} on standard error", seen=self.stderr)


# ---- cases of kind dialogue -------------------------------------------------------------------------------------

_METHODS = {
    "initialize": "initialize",
    "process_batch": "process_records",
    "lease_lost": "lease_lost",
    "shard_ended": "shard_ended",
    "shutdown_requested": "shutdown_requested",
}
_EXCEPTIONS: dict[str, type[BaseException]] = {
    "CheckpointError": fastkcl.CheckpointError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": SystemExit,
    "ValueError": ValueError,
}


class ScriptedProcessor(fastkcl.BatchProcessor):
    """Does what the user side of a case's steps says, and notes what it has seen.

    Args:
        steps: of the case.
        note: called with each ``calls`` and ``raises`` step as it comes true.
    """

    def __init__(self, steps: list[dict[str, Any]], note: Callable[[dict[str, Any]], None]) -> None:
        self._steps = [step for step in steps if {"calls", "user", "raises"} & step.keys()]
        self._note = note

    def initialize(self, context: fastkcl.ShardContext) -> None:
        self._act("initialize", None)

    def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
        self._act("process_batch", checkpointer)

    def lease_lost(self) -> None:
        self._act("lease_lost", None)

    def shard_ended(self, checkpointer: fastkcl.Checkpointer) -> None:
        self._act("shard_ended", checkpointer)

    def shutdown_requested(self, checkpointer: fastkcl.Checkpointer) -> None:
        self._act("shutdown_requested", checkpointer)

    def _act(self, method: str, checkpointer: fastkcl.Checkpointer | None) -> None:
        self._note({"calls": _METHODS[method]})
        if self._steps:
            self._steps.pop(0)  # the call itself; whether it was this one, the notes show
        while self._steps and "user" in self._steps[0]:
            action = self._steps.pop(0)["user"]
            if "raise" in action:
                argument = action["code"] if "code" in action else action.get("text", "boom")
                raise _EXCEPTIONS[action["raise"]](argument)
            assert checkpointer is not None
            expects_error = bool(self._steps) and "raises" in self._steps[0]
            try:
                checkpointer.checkpoint(*action["checkpoint"])
            except fastkcl.CheckpointError as error:
                if not expects_error:
                    raise
                self._steps.pop(0)
                self._note({"raises": {"type": "CheckpointError", "value": error.value}})


def play(case: dict[str, Any], daemon: Daemon) -> None:
    """The daemon's side of a case: write its lines, compare the child's, end the input."""
    for step in case["steps"]:
        if "daemon" in step:
            try:
                daemon.send(step["daemon"].encode() + (b"" if step.get("no_newline") else b"\n"))
            except BrokenPipeError:
                assert case["exit"] != 0  # the child may stop at the bad byte, before the line's end
            if step.get("no_newline"):
                daemon.end_input()
        elif "child" in step:
            assert daemon.receive() == step["child"]
    daemon.finish()


def judge(case: dict[str, Any], result: Result, notes: list[dict[str, Any]]) -> None:
    """Compare the end of a played case with what it says."""
    expected = [{key: step[key]} for step in case["steps"] for key in ("calls", "raises") if key in step]
    assert notes == expected
    if case.get("exit_any_nonzero"):
        assert result.exit != 0
    else:
        assert result.exit == case["exit"], result.stderr
    for text in case.get("stderr_contains", []):
        assert text in result.stderr
    if case["exit"] == 0 and "stderr_contains" not in case and "shard_ended" not in str(notes):
        assert result.stderr == ""


def play_in_process(case: dict[str, Any], *, bytewise: bool) -> None:
    """Play a case against the connection and run loop in this process, over `os.pipe` pairs."""
    notes: list[dict[str, Any]] = []
    processor = ScriptedProcessor(case["steps"], notes.append)
    options = {"on_error": case["on_error"]} if "on_error" in case else {}
    result = in_process(processor, lambda daemon: play(case, daemon), bytewise=bytewise, **options)
    judge(case, result, notes)


def play_child(case: dict[str, Any], folder: Path, *, bytewise: bool = False) -> None:
    """Play a case against `fastkcl.run` in a process of its own.

    Args:
        case: of kind dialogue.
        folder: for the case and the child's notes.
        bytewise: write one byte at a time.
    """
    case_file, notes_file = folder / "case.json", folder / "notes.jsonl"
    case_file.write_text(json.dumps(case))
    notes_file.touch()
    with Child(str(PROGRAMS / "dialogue_child.py"), str(case_file), str(notes_file), bytewise=bytewise) as child:
        play(case, child.daemon)
        result = child.wait()
    judge(case, result, [json.loads(line) for line in notes_file.read_text().splitlines()])
