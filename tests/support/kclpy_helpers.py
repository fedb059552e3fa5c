"""The drop-in for amazon_kclpy under test: dialogue cases in memory and with a real child, and unchanged programs.

Cases of kind dialogue describe `fastkcl.run`. `expectation` translates them for the drop-in, whose `on_error` is "skip"
unless it is told otherwise, and whose processors have three versions. `play_in_memory` plays a case on text files,
`play_child` on real pipes.

`Program` is a program under a daemon: unchanged, of amazon_kclpy or ours. `converse` plays a `Shard` to it.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fastkcl.kclpy import kcl
from fastkcl.kclpy.v2 import processor as v2
from fastkcl.kclpy.v3 import processor as v3
from kcl_helpers import TIMEOUT, Daemon, checkpoint_reply, play, status
from paths import PROGRAMS

VERSIONS = (1, 2, 3)
"""Of record processors."""

Step = dict[str, Any]
Case = dict[str, Any]

# ---- what a case of kind dialogue means for the drop-in ---------------------------------------------------------

ORIGINAL = "amazon_kclpy_3.1.3"
"""Field of a case: what the original does."""
_STEPS = frozenset({"daemon", "no_newline", "calls", "reason", "user", "raises", "child"})
# Versions 1 and 2 know only one end.
_SHUTDOWNS = {"lease_lost": "ZOMBIE", "shard_ended": "TERMINATE"}
_KEYS = ("action", "responseFor", "checkpoint", "sequenceNumber", "subSequenceNumber")


class Expectation(NamedTuple):
    """What has to happen in a case."""

    steps: list[Step]
    """As in the case, with the methods of the version, and the statuses that follow errors of user code."""
    exit: int | None
    """None for any but 0."""
    stderr_contains: list[str]
    failures: list[tuple[str, Step]]
    """The daemon's request and the step of user code where user code raises and does not catch."""

    @property
    def children(self) -> list[dict[str, Any]]:
        return [step["child"] for step in self.steps if "child" in step]


def expectation(case: Case, version: int, on_error: str) -> Expectation:
    """What a case means for a processor of that version under that `on_error`.

    An error of user code ends `fastkcl.run`. By default the drop-in does what the original does: the status follows
    as if all was well.
    """
    steps: list[Step] = []
    failures: list[tuple[str, Step]] = []
    exit_code = None if case.get("exit_any_nonzero") else case["exit"]
    request = ""
    for step, after in zip(case["steps"], [*case["steps"], {}][1:], strict=True):
        if "daemon" in step:
            request = step["daemon"]
        if step.get("calls") in _SHUTDOWNS and version < 3:
            steps.append({"calls": "shutdown", "reason": _SHUTDOWNS[step["calls"]]})
            continue
        steps.append(step)
        if "user" in step and _fails(step["user"], after):
            failures.append((request, step))
            told = {"child": status(json.loads(request)["action"])}
            if on_error == "skip" and after != told:
                steps.append(told)
                exit_code = 0
    return Expectation(steps, exit_code, case.get("stderr_contains", []), failures)


def _fails(action: dict[str, Any], after: Step) -> bool:
    """Whether user code leaves its method with an exception that `on_error` is about."""
    if "raise" in action:
        return isinstance(exception_of(action), Exception)
    # A checkpoint that is neither written nor caught was refused on the spot.
    return "child" not in after and "raises" not in after


_EXCEPTIONS: dict[str, type[BaseException]] = {
    "CheckpointError": kcl.CheckpointError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": SystemExit,
    "ValueError": ValueError,
}


def exception_of(action: dict[str, Any]) -> BaseException:
    """What user code raises in a step."""
    return _EXCEPTIONS[action["raise"]](action["code"] if "code" in action else action.get("text", "boom"))


class Script:
    """Does what the user side of a case's steps says, and notes what it has seen.

    Args:
        steps: of an `Expectation`.
        note: called with each ``calls`` and ``raises`` step as it comes true.
    """

    def __init__(self, steps: list[Step], note: Callable[[Step], None]) -> None:
        self._steps = [step for step in steps if {"calls", "user", "raises"} & step.keys()]
        self._note = note

    def act(self, method: str, checkpointer: Any = None, reason: str | None = None) -> None:
        self._note({"calls": method} if reason is None else {"calls": method, "reason": reason})
        if self._steps:
            self._steps.pop(0)  # the call itself; whether it was this one, the notes show
        while self._steps and "user" in self._steps[0]:
            action = self._steps.pop(0)["user"]
            if "raise" in action:
                raise exception_of(action)
            expects_error = bool(self._steps) and "raises" in self._steps[0]
            try:
                checkpointer.checkpoint(*action["checkpoint"])
            except Exception as error:
                if not expects_error:
                    raise
                expected = self._steps.pop(0)["raises"]
                found = {"type": type(error).__name__, "value": getattr(error, "value", None)}
                self._note({"raises": {key: found.get(key) for key in expected}})


class Version1(kcl.RecordProcessorBase):
    def __init__(self, script: Script) -> None:
        self.script = script

    def initialize(self, shard_id: str) -> None:
        self.script.act("initialize")

    def process_records(self, records: Any, checkpointer: Any) -> None:
        self.script.act("process_records", checkpointer)

    def shutdown(self, checkpointer: Any, reason: str) -> None:
        self.script.act("shutdown", checkpointer, reason)

    def shutdown_requested(self, checkpointer: Any) -> None:
        self.script.act("shutdown_requested", checkpointer)


class Version2(v2.RecordProcessorBase):
    def __init__(self, script: Script) -> None:
        self.script = script

    def initialize(self, initialize_input: Any) -> None:
        self.script.act("initialize")

    def process_records(self, process_records_input: Any) -> None:
        self.script.act("process_records", process_records_input.checkpointer)

    def shutdown(self, shutdown_input: Any) -> None:
        self.script.act("shutdown", shutdown_input.checkpointer, shutdown_input.reason)

    def shutdown_requested(self, shutdown_requested_input: Any) -> None:
        self.script.act("shutdown_requested", shutdown_requested_input.checkpointer)


class Version3(v3.RecordProcessorBase):
    def __init__(self, script: Script) -> None:
        self.script = script

    def initialize(self, initialize_input: Any) -> None:
        self.script.act("initialize")

    def process_records(self, process_records_input: Any) -> None:
        self.script.act("process_records", process_records_input.checkpointer)

    def lease_lost(self, lease_lost_input: Any) -> None:
        self.script.act("lease_lost")

    def shard_ended(self, shard_ended_input: Any) -> None:
        self.script.act("shard_ended", shard_ended_input.checkpointer)

    def shutdown_requested(self, shutdown_requested_input: Any) -> None:
        self.script.act("shutdown_requested", shutdown_requested_input.checkpointer)


PROCESSORS = {1: Version1, 2: Version2, 3: Version3}


def as_written(message: dict[str, Any]) -> str:
    """A message as amazon_kclpy writes it."""
    return f"\n{json.dumps({key: message[key] for key in _KEYS if key in message})}\n"


def judge(
    expected: Expectation, on_error: str, stdout: str, exit_code: object, stderr: str, *, in_memory: bool = False
) -> None:
    """Compare the end of a played case with what is expected of it."""
    assert stdout == "".join(map(as_written, expected.children))
    assert exit_code != 0 if expected.exit is None else exit_code == expected.exit, stderr
    for text in expected.stderr_contains:
        assert text in stderr
    if expected.failures:
        _judge_failures(expected, on_error, stderr)
        ends = [request for request, _ in expected.failures if "shardEnded" in request or "TERMINATE" in request]
        warnings = 0 if in_memory or on_error == "stop" else len(ends)
        assert stderr.count("returned without a successful checkpoint") == warnings
    elif expected.exit == 0:
        assert stderr == ""
    else:
        # What ends a dialogue is no error of user code, also where it came through there.
        assert "Caught exception" not in stderr
        assert "fastkcl: skip" not in stderr


def _judge_failures(expected: Expectation, on_error: str, stderr: str) -> None:
    """The original's words first, then what was skipped, or that the run ends."""
    caught = "Caught exception from action dispatch: "
    assert stderr.startswith(caught)
    assert stderr.count(caught) == len(expected.failures)
    reports = [line for line in stderr.splitlines() if re.match("fastkcl: (?!warning: )", line)]
    assert len(reports) == len(expected.failures)
    for (request, step), report in zip(expected.failures, reports, strict=True):
        if "raise" in step["user"]:
            error = exception_of(step["user"])
            assert f"{caught}{error}Traceback (most recent call last):\n" in stderr
            assert f" failed with {type(error).__name__}: {error} (" in report
        assert report.startswith("fastkcl: skip: " if on_error == "skip" else "fastkcl: user_error: ")
        records = json.loads(request).get("records")
        if records:
            places = [
                f"{record['sequenceNumber']}"
                + (f"/{sub}" if (sub := record.get("subSequenceNumber")) is not None else "")
                for record in (records[0], records[-1])
            ]
            assert f"{len(records)} records from {places[0]} to {places[1]})" in report


# ---- a case in memory -------------------------------------------------------------------------------------------


class ScriptedInput(io.TextIOBase):
    """Gives a daemon's line when all that the case expects before it has happened, the end of input otherwise."""

    def __init__(self, steps: list[Step], happened: list[Step]) -> None:
        self._steps = steps
        self._happened = happened

    def readline(self, size: int | None = -1, /) -> str:
        done = len(self._happened)
        if self._happened != self._steps[:done] or done == len(self._steps) or "daemon" not in self._steps[done]:
            return ""
        step = self._steps[done]
        self._happened.append(step)
        return str(step["daemon"]) + ("" if step.get("no_newline") else "\n")


class _NotedOutput(io.StringIO):
    """Notes what the child has said when it is flushed; before that a daemon would not see it."""

    def __init__(self, note: Callable[[Step], None]) -> None:
        super().__init__()
        self._note = note
        self._noted = 0

    def flush(self) -> None:
        new = self.getvalue()[self._noted :]
        self._noted += len(new)
        for line in new.splitlines():
            if line:
                self._note({"child": json.loads(line)})


def play_in_memory(case: Case, version: int, on_error: str | None = None) -> None:
    """Play a case on text files, and compare what happened, in its order.

    Args:
        case: of kind dialogue.
        version: of the processor.
        on_error: None for the drop-in's default, which is "skip".
    """
    effective = on_error or "skip"
    expected = expectation(case, version, effective)
    for step in expected.steps:
        assert step.keys() <= _STEPS, f"no test knows such a step: {step}"
    steps = [step for step in expected.steps if "user" not in step]
    happened: list[Step] = []
    output = _NotedOutput(happened.append)
    errors = io.StringIO()
    exit_code: object = 0
    try:
        process = kcl.KCLProcess(
            PROCESSORS[version](Script(expected.steps, happened.append)),
            ScriptedInput(steps, happened),  # type: ignore[arg-type]
            output,
            errors,
            **({} if on_error is None else {"on_error": on_error}),  # type: ignore[arg-type]
        )
        assert process.run() is None  # type: ignore[func-returns-value]
    except SystemExit as end:
        exit_code = 0 if end.code is None else end.code
    except BaseException as error:  # as Python itself does at the end of a program
        exit_code = 1
        errors.write("".join(traceback.format_exception(error)))
    assert happened == steps
    judge(expected, effective, output.getvalue(), exit_code, errors.getvalue(), in_memory=True)


# ---- a program under a daemon -----------------------------------------------------------------------------------


class RawDaemon(Daemon):
    """A daemon that keeps all bytes of its child, and reads over lines that are no message, as the Java one does."""

    def __init__(self, write_fd: int, read_fd: int, *, bytewise: bool = False) -> None:
        super().__init__(write_fd, read_fd, bytewise=bytewise)
        self.heard = b""
        self._read = 0

    def receive(self) -> dict[str, Any] | None:
        while (line := self._line()) is not None:
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict) and "action" in message:
                    return message
        return None

    def _line(self) -> bytes | None:
        """The next line, None at the end of output. An open line at the end is no line."""
        while (end := self.heard.find(b"\n", self._read)) < 0:
            readable, _, _ = select.select([self.read_fd], [], [], TIMEOUT)
            assert readable, f"the child wrote nothing for {TIMEOUT} s; open line: {self.heard[self._read :]!r}"
            data = os.read(self.read_fd, 1 << 16)
            if not data:
                return None
            self.heard += data
        line = self.heard[self._read : end]
        self._read = end + 1
        return line


class Ended(NamedTuple):
    """All that a program has said."""

    stdout: bytes
    stderr: str
    exit: int


class Program:
    """A program as a child of a daemon; ends it on leaving the context, if it has not ended by itself.

    Args:
        command: interpreter and arguments.
        environment: all of it.
        bytewise: write one byte at a time.
    """

    def __init__(
        self, command: Sequence[str | Path], environment: Mapping[str, str], *, bytewise: bool = False
    ) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            env=environment,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.daemon = RawDaemon(
            os.dup(self.process.stdin.fileno()), os.dup(self.process.stdout.fileno()), bytewise=bytewise
        )
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exception: object) -> None:
        self.daemon.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._stderr.close()

    def end(self) -> Ended:
        """End the input, read all output, and wait."""
        self.daemon.end_input()
        while self.daemon.receive() is not None:
            pass
        code = self.process.wait(TIMEOUT)
        self._stderr.seek(0)
        return Ended(self.daemon.heard, self._stderr.read().decode("utf-8", "replace"), code)


def environment(**variables: str) -> dict[str, str]:
    """This process's, without what would change an interpreter or the drop-in."""
    changes = ("PYTHON", "VIRTUAL_ENV", "FASTKCL_ON_ERROR", "FASTKCL_DEAD_LETTER", "FASTKCL_STREAM")
    return {name: value for name, value in os.environ.items() if not name.startswith(changes)} | variables


class Shard(NamedTuple):
    """What a daemon says to the child of one shard."""

    name: str
    requests: list[bytes]
    replies: list[bytes]
    """To its checkpoints, in their order; those after the last are granted."""


def captured(path: Path) -> Shard:
    """A shard as a real daemon served it, by its capture."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = data.splitlines(keepends=True)
    replies = [line for line in lines if line.startswith(b'{"action":"checkpoint"')]
    return Shard(path.name.partition(".in.")[0], [line for line in lines if line not in replies], replies)


def converse(program: Program, shard: Shard) -> Ended:
    """Play a shard to its end or the program's."""
    daemon = program.daemon
    replies = iter(shard.replies)
    for line in shard.requests:
        try:
            daemon.send(line)
        except BrokenPipeError:
            break
        while (message := daemon.receive()) is not None and message["action"] == "checkpoint":
            daemon.send(next(replies, checkpoint_reply()))
        if message is None:
            break
        assert message == status(json.loads(line)["action"])
    return program.end()


def play_child(case: Case, version: int, folder: Path, on_error: str | None = None, *, bytewise: bool = False) -> None:
    """Play a case over real pipes, against a process of its own.

    Args:
        case: of kind dialogue.
        version: of the processor.
        folder: for the case and the child's notes.
        on_error: None for the drop-in's default, which is "skip".
        bytewise: write one byte at a time.
    """
    effective = on_error or "skip"
    expected = expectation(case, version, effective)
    steps_file, notes_file = folder / "steps.json", folder / "notes.jsonl"
    steps_file.write_text(json.dumps(expected.steps))
    notes_file.touch()
    command = [
        sys.executable,
        str(PROGRAMS / "kclpy_dialogue_child.py"),
        str(steps_file),
        str(notes_file),
        str(version),
        *([on_error] if on_error else []),
    ]
    with Program(command, environment(PYTHONPATH=os.pathsep.join(sys.path)), bytewise=bytewise) as program:
        play({"steps": expected.steps, "exit": expected.exit}, program.daemon)
        stdout, stderr, code = program.end()
    notes = [json.loads(line) for line in notes_file.read_text().splitlines()]
    assert notes == [step for step in expected.steps if {"calls", "raises"} & step.keys()]
    judge(expected, effective, stdout.decode("ascii"), code, stderr)
