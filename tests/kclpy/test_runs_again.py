"""run() is called again after an exception has left it, by the same object or another: as with the original."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from kcl_helpers import (
    INITIALIZE,
    LEASE_LOST,
    LEGACY_INITIALIZE,
    SHARD_ENDED,
    TIMEOUT,
    checkpoint,
    checkpoint_reply,
    status,
)
from kclpy_helpers import Ended, Program, environment
from paths import PROGRAMS
from waiting import is_gone, wait_until, wait_until_idle

PROGRAM = PROGRAMS / "kclpy" / "runs_again.py"
DONE = status("processRecords")
WAYS = pytest.mark.parametrize("way", ["same", "new"])
ALL_WAYS = pytest.mark.parametrize("way", ["same", "new", "text", "new text"])


def batch(*sources: str) -> bytes:
    """A request whose records the program executes."""
    records = [
        {
            "data": base64.b64encode(source.encode()).decode(),
            "partitionKey": "k",
            "sequenceNumber": str(number),
            "approximateArrivalTimestamp": 1700000000123,
            "subSequenceNumber": 0,
            "action": "record",
        }
        for number, source in enumerate(sources)
    ]
    message = {"action": "processRecords", "records": records, "millisBehindLatest": 0}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Child(Program):
    """The program, as `fastkcl run` runs it or as another command does."""

    def __init__(self, log: Path, way: str, between: str = "pass", *, command: Any = None, **variables: str) -> None:
        self.log = log
        ours = [sys.executable, "-m", "fastkcl", "run"]
        path = {} if command else {"PYTHONPATH": os.pathsep.join(sys.path)}
        super().__init__([*(command or ours), str(PROGRAM), str(log), way, between], environment(**path, **variables))

    def await_run(self, number: int) -> None:
        """Wait until so many runs were left, and the next one waits for a message."""
        wait_until(lambda: self.log.exists() and self.log.read_text().count('"left"') == number, "a run to be left")
        wait_until_idle(self.process.pid)

    def calls(self) -> list[Any]:
        return [json.loads(line) for line in self.log.read_text().splitlines()][1:]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


LEAVES = {
    "an interrupt": batch("raise KeyboardInterrupt"),
    "an exit": batch("sys.exit(7)"),
    "an invalid line": b"nonsense\n",
    "an exit after a checkpoint": batch("checkpointer.checkpoint('0')", "sys.exit()"),
}


@WAYS
@pytest.mark.parametrize("leaves", LEAVES)
def test_it_goes_on_with_the_next_message(leaves: str, way: str, original_python: Path, tmp_path: Path) -> None:
    """Everything is sent at once: what was read ahead is not lost."""
    ends: list[tuple[Ended, list[Any]]] = []
    for command in ([str(original_python)], None):
        with Child(tmp_path / f"{len(ends)}.jsonl", way, "print('between')", command=command) as child:
            reply = checkpoint_reply() if "checkpoint" in leaves else b""
            child.daemon.send(INITIALIZE + LEAVES[leaves] + reply + batch("1 + 1") + LEASE_LOST)
            ends.append((child.end(), child.calls()))
    (theirs, their_calls), (ours, our_calls) = ends
    assert our_calls == their_calls
    assert our_calls[-1] == ["returned"]
    assert ours.stdout == theirs.stdout.replace(b"between\n", b"")
    assert "between\n" in ours.stderr
    assert (ours.exit, theirs.exit) == (0, 0)


@WAYS
def test_an_interrupt_of_an_idle_child(way: str, log: Path) -> None:
    with Child(log, way) as child:
        child.daemon.send(INITIALIZE)
        assert child.daemon.receive() == status("initialize")
        for number in (1, 2, 3):
            wait_until_idle(child.process.pid)
            child.process.send_signal(signal.SIGINT)
            child.await_run(number)
            child.daemon.send(batch("checkpointer.checkpoint()"))
            assert child.daemon.receive() == checkpoint()
            child.daemon.send(checkpoint_reply())
            assert child.daemon.receive() == DONE
        assert child.end().exit == 0


@WAYS
def test_an_interrupt_inside_of_a_line(way: str, log: Path) -> None:
    line = batch(f"# {'x' * 100_000}", "print('whole')")
    with Child(log, way) as child:
        child.daemon.send(INITIALIZE + line[:70_000])
        assert child.daemon.receive() == status("initialize")
        wait_until_idle(child.process.pid)
        child.process.send_signal(signal.SIGINT)
        child.await_run(1)
        child.daemon.send(line[70_000:])
        assert child.daemon.receive() == DONE
        ended = child.end()
    assert (ended.exit, "whole\n" in ended.stderr) == (0, True)


def test_a_checkpoint_between_two_runs(original_python: Path, tmp_path: Path) -> None:
    for number, command in enumerate(([str(original_python)], None)):
        with Child(
            tmp_path / f"{number}.jsonl", "same", "process.checkpointer.checkpoint('0', 0)", command=command
        ) as child:
            child.daemon.send(INITIALIZE)
            assert child.daemon.receive() == status("initialize")
            child.daemon.send(batch("raise KeyboardInterrupt"))
            assert child.daemon.receive() == checkpoint("0", 0)
            child.daemon.send(checkpoint_reply() + batch("1 + 1"))
            assert child.daemon.receive() == DONE
            assert child.end().exit == 0


def test_another_object_knows_the_dialect_and_the_shard(log: Path) -> None:
    with Child(log, "new") as child:
        failing = batch("checkpointer.checkpoint()", "1/0")
        child.daemon.send(LEGACY_INITIALIZE + batch("raise KeyboardInterrupt") + failing)
        assert child.daemon.receive() == status("initialize")
        assert child.daemon.receive() == {"action": "checkpoint", "checkpoint": None}
        child.daemon.send(b'{"action":"checkpoint","checkpoint":null,"error":null}\n')
        assert child.daemon.receive() == DONE
        ended = child.end()
    assert "ZeroDivisionError: division by zero (shardId-000000000000, 2 records" in ended.stderr


STARTS = {
    "a subprocess": "print('worker', subprocess.Popen(['sleep', '600']).pid, file=sys.stderr, flush=True)",
    "a fork": "worker = os.fork() or (os.close(2), time.sleep(600))"
    "\nprint('worker', worker, file=sys.stderr, flush=True)",
}


@pytest.mark.parametrize("start", STARTS)
def test_what_is_started_between_two_runs_does_not_hold_the_pipe(start: str, log: Path) -> None:
    with Child(log, "same", STARTS[start]) as child:
        child.daemon.send(INITIALIZE + batch("raise KeyboardInterrupt"))
        assert child.daemon.receive() == status("initialize")
        ended = child.end()
        worker = int(ended.stderr.split("worker ")[1].split()[0])
        try:
            assert ended.exit == 0
            assert not is_gone(worker)
        finally:
            os.kill(worker, signal.SIGKILL)


@ALL_WAYS
def test_a_broken_dialogue_stays_broken(way: str, log: Path) -> None:
    """Another run ends the process with a SystemExit, which those who pass over each Exception do not catch."""
    with Child(log, way) as child:
        child.daemon.send(INITIALIZE + batch("checkpointer.checkpoint()") + SHARD_ENDED + SHARD_ENDED)
        for expected in (status("initialize"), checkpoint(), None):
            assert child.daemon.receive() == expected
        ended = child.end()
    what = "UnexpectedReplyError: InvalidStateException: unexpected_message: shardEnded came where a checkpoint waits"
    assert ended.stderr.count(f"fastkcl: run() cannot go on: {what}") == 4
    assert child.calls()[-5:] == [["left", False], *[["left", 1]] * 4]


def test_a_daemon_that_does_not_read_is_gone_for_good(log: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Child(log, "same", GO=str(go)) as child:
        child.daemon.send(INITIALIZE + batch("while not os.path.exists(os.environ['GO']): time.sleep(0.01)"))
        assert child.daemon.receive() == status("initialize")
        os.close(child.daemon.read_fd)
        child.daemon.read_fd = os.open(os.devnull, os.O_RDONLY)
        go.touch()
        ended = child.end()
    assert ended.stderr.count("fastkcl: run() cannot go on: RemoteProtocolError: closed_while_waiting") == 4
    assert child.calls()[-1] == ["left", 1]


@ALL_WAYS
def test_a_fork_that_runs_again_ends(way: str, log: Path) -> None:
    source = (
        "if os.fork() == 0: raise ValueError('in the fork')\nprint('fork', os.waitstatus_to_exitcode(os.wait()[1]))"
    )
    with Child(log, way) as child:
        child.daemon.send(INITIALIZE + batch(source) + batch("1 + 1"))
        for expected in (status("initialize"), DONE, DONE):
            assert child.daemon.receive() == expected
        ended = child.end()
    assert ended.exit == 0
    assert ended.stderr.count("fastkcl: run() cannot go on: RuntimeError: a forked child came back") == 4


def test_text_files_simply_stay(original_python: Path, tmp_path: Path) -> None:
    """A subclass with lines of its own is served over the text files, as by the original."""
    ends = []
    for number, command in enumerate(([str(original_python)], None)):
        with Child(tmp_path / f"{number}.jsonl", "text", command=command) as child:
            child.daemon.send(INITIALIZE + batch("raise KeyboardInterrupt") + batch("1 + 1") + LEASE_LOST)
            ends.append((child.end().exit, child.calls()))
    assert ends[0] == ends[1]


@ALL_WAYS
def test_what_was_stopped_stays_stopped(way: str, log: Path) -> None:
    with Child(log, way, FASTKCL_ON_ERROR="stop") as child:
        child.daemon.send(INITIALIZE + batch("1/0") + batch("1 + 1"))
        for expected in (status("initialize"), None):
            assert child.daemon.receive() == expected
        child.end()
    assert [call for call in child.calls() if call[0] != "record"] == [
        ["initialize", "shardId-000000000000"],
        *[["left", 1]] * 5,
    ]


@pytest.mark.parametrize("last", ["1/0", "checkpointer.checkpoint()"])
@ALL_WAYS
def test_a_loop_that_catches_everything_ends(last: str, way: str, log: Path) -> None:
    with Child(log, way, MOST_RUNS="1000000", FASTKCL_ON_ERROR="stop") as child:
        child.daemon.send(INITIALIZE + batch(last) + SHARD_ENDED)
        ended = child.end()
    assert ended.exit == 1
    assert ended.stderr.splitlines()[-1].startswith("fastkcl: the program tries again and again")
    assert len(child.calls()) < 20


def test_the_daemon_sees_the_end_though_a_thread_lives_on(log: Path, tmp_path: Path) -> None:
    """A thread that is no daemon keeps the process; it does not keep the pipe."""
    go = tmp_path / "go"
    source = (
        "def wait():\n    while not os.path.exists(os.environ['GO']): time.sleep(0.01)\n"
        "threading.Thread(target=wait).start()\nsys.exit(3)"
    )
    with Child(log, "same", "os.kill(os.getpid(), 0); sys.exit(4)", GO=str(go)) as child:
        child.daemon.send(INITIALIZE + batch(source))
        assert child.daemon.receive() == status("initialize")
        assert child.daemon.receive() is None
        assert child.process.poll() is None
        go.touch()
        assert child.process.wait(TIMEOUT) == 4


def test_a_run_that_cannot_go_on_there_says_so(log: Path) -> None:
    with Child(log, "same", "process._handle_a_line = print") as child:
        child.daemon.send(INITIALIZE + batch("raise KeyboardInterrupt"))
        assert child.daemon.receive() == status("initialize")
        ended = child.end()
    assert (
        "fastkcl: run() cannot go on: RuntimeError: an earlier run reads standard input in Rust, and this one cannot:"
        " KCLProcess._handle_a_line is replaced by the program"
    ) in ended.stderr
    assert child.calls()[-1] != ["returned"]


def test_a_file_in_the_place_of_standard_input_is_read(log: Path, tmp_path: Path) -> None:
    """Who puts one there between two runs wants it to be read."""
    lines = tmp_path / "lines.jsonl"
    lines.write_bytes(INITIALIZE + LEASE_LOST)
    with Child(log, "same", f"os.dup2(os.open({str(lines)!r}, os.O_RDONLY), 0)") as child:
        child.daemon.send(INITIALIZE + batch("raise KeyboardInterrupt"))
        assert child.daemon.receive() == status("initialize")
        assert child.end().exit == 0
    assert child.calls()[-2:] == [["lease_lost"], ["returned"]]
