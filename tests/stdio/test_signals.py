"""SIGTERM, SIGINT and SIGHUP: the first is noted, the second stops, and the grace time bounds the end."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from clocks import Clock
from fastkcl.stdio import signals
from fastkcl.stdio.signals import SignalWatch
from kcl_helpers import (
    LEASE_LOST,
    SHARD_ENDED,
    SHUTDOWN_REQUESTED,
    Child,
    Result,
    checkpoint,
    checkpoint_reply,
    process_records,
    status,
)

DONE = status("processRecords")
NUMBERS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]

PROGRAM = """
import os, signal, sys, time
import fastkcl

class Processor(fastkcl.BatchProcessor):
    def process_batch(self, batch, checkpointer):
        if len(batch) == 2:  # two records ask for a checkpoint, three for a long sleep, five for a wait
            checkpointer.checkpoint()
        if len(batch) == 3:
            print("busy")
            try:
                time.sleep(600)
            finally:
                print("cleaned up")
        if len(batch) == 4:
            print("busy")
            try:
                time.sleep(600)
            except BaseException as error:
                print("swallowed", type(error).__name__)
        if len(batch) == 5:
            print("busy")
            while not os.path.exists(sys.argv[3]):
                time.sleep(0.01)
            print("not interrupted")

    def shutdown_requested(self, checkpointer):
        super().shutdown_requested(checkpointer)
        if sys.argv[3] == "over":
            # The grace time, now.
            from fastkcl.stdio import signals
            signals._watching._deadline = time.monotonic()
            signals._watching._bound_reads()

fastkcl.run(Processor(), shutdown_grace=float(sys.argv[1]), retries=int(sys.argv[2]), retry_backoff=60)
"""


def start(grace: float = 30, retries: int = 0, more: object = "") -> Child:
    return Child("-c", PROGRAM, str(grace), str(retries), str(more))


def ends(child: Child) -> Result:
    assert child.daemon.receive() is None
    return child.wait()


@pytest.mark.parametrize("number", NUMBERS)
def test_a_graceful_stop_goes_through(number: int) -> None:
    with start() as child:
        child.daemon.start()
        child.process.send_signal(number)
        child.await_stderr(
            f"fastkcl: {signal.Signals(number).name}: noted; going on until the daemon ends the dialogue, 30 s"
        )
        child.daemon.ask(process_records(1), DONE)
        child.daemon.ask(process_records(1, 2), checkpoint(), DONE)
        child.daemon.ask(SHUTDOWN_REQUESTED, checkpoint(), status("shutdownRequested"))
        child.daemon.ask(LEASE_LOST, status("leaseLost"))
        code, stderr = ends(child)  # without an end of input: nothing can come any more
    assert code == 0
    assert stderr.count("\n") == 1


@pytest.mark.parametrize(("line", "answers"), [(LEASE_LOST, ["leaseLost"]), (SHARD_ENDED, [None, "shardEnded"])])
def test_the_end_of_the_shard_ends_a_signalled_child(line: bytes, answers: list[str | None]) -> None:
    with start() as child:
        child.daemon.start()
        child.process.send_signal(signal.SIGTERM)
        child.await_stderr("noted")
        child.daemon.ask(line, *(checkpoint() if answer is None else status(answer) for answer in answers))
        assert ends(child).exit == 0


@pytest.mark.parametrize("number", NUMBERS)
def test_the_end_of_input_ends_a_signalled_child(number: int) -> None:
    with start() as child:
        child.daemon.start()
        child.process.send_signal(number)
        child.await_stderr("noted")
        assert child.finish().exit == 0


@pytest.mark.parametrize("number", NUMBERS)
def test_a_second_signal_stops_a_waiting_child(number: int) -> None:
    with start() as child:
        child.daemon.start()
        child.process.send_signal(signal.SIGTERM)
        child.await_stderr("noted")
        child.process.send_signal(number)
        code, stderr = ends(child)
    assert code == 128 + number
    assert stderr.endswith(f"fastkcl: {signal.Signals(number).name}: stopping at once, no status is sent\n")


def test_a_second_signal_stops_user_code_with_its_clean_up_and_no_status() -> None:
    with start() as child:
        child.daemon.start()
        child.daemon.send(process_records(1, 2, 3))
        child.await_stderr("busy")
        child.process.send_signal(signal.SIGINT)
        child.await_stderr("noted")
        child.process.send_signal(signal.SIGTERM)
        code, stderr = ends(child)
    assert code == 128 + signal.SIGTERM
    assert "cleaned up" in stderr
    assert "Traceback" not in stderr


def test_a_second_signal_that_user_code_swallows_stops_all_the_same() -> None:
    with start() as child:
        child.daemon.start()
        child.daemon.send(process_records(1, 2, 3, 4))
        child.await_stderr("busy")
        child.process.send_signal(signal.SIGTERM)
        child.await_stderr("noted")
        child.process.send_signal(signal.SIGTERM)
        code, stderr = ends(child)
    assert code == 128 + signal.SIGTERM
    assert "swallowed SystemExit" in stderr


def test_the_first_signal_does_not_interrupt_user_code(tmp_path: Path) -> None:
    with start(more=tmp_path / "go") as child:
        child.daemon.start()
        child.daemon.send(process_records(1, 2, 3, 4, 5))
        child.await_stderr("busy")
        child.process.send_signal(signal.SIGTERM)
        child.await_stderr("noted")
        assert "not interrupted" not in child.stderr()
        (tmp_path / "go").touch()
        assert child.daemon.receive() == DONE
        code, stderr = child.finish()
    assert code == 0
    assert "not interrupted" in stderr


def test_the_grace_time_ends_a_child_that_nobody_ends() -> None:
    with start(grace=0.5) as child:
        child.daemon.start()
        begin = time.monotonic()
        child.process.send_signal(signal.SIGTERM)
        code, stderr = ends(child)
    assert code == 128 + signal.SIGTERM
    assert time.monotonic() - begin >= 0.5
    assert "fastkcl: SIGTERM: stopped in state READY; the daemon did not end the dialogue within 0.5 s\n" in stderr


def test_after_shutdown_requested_the_grace_time_is_a_clean_end() -> None:
    with start(grace=3600, more="over") as child:
        child.daemon.start()
        child.process.send_signal(signal.SIGTERM)
        child.await_stderr("noted")
        child.daemon.ask(SHUTDOWN_REQUESTED, checkpoint(), status("shutdownRequested"))
        assert ends(child).exit == 0


def test_the_grace_time_bounds_the_wait_for_a_checkpoint_reply() -> None:
    with start(grace=0.5) as child:
        child.daemon.start()
        child.daemon.send(process_records(1, 2))
        assert child.daemon.receive() == checkpoint()
        child.process.send_signal(signal.SIGINT)
        code, stderr = ends(child)
    assert code == 128 + signal.SIGINT
    assert "fastkcl: SIGINT: stopped waiting for a checkpoint reply; " in stderr


def test_the_grace_time_bounds_retries() -> None:
    with start(grace=0.5, retries=1) as child:
        child.daemon.start()
        child.daemon.send(process_records(1, 2))
        assert child.daemon.receive() == checkpoint()
        child.daemon.send(checkpoint_reply("ShutdownException"))
        child.await_stderr("fastkcl: retry: ")
        child.process.send_signal(signal.SIGTERM)
        code, stderr = ends(child)
    assert code == 128 + signal.SIGTERM
    assert "fastkcl: SIGTERM: stopped while waiting for a retry; " in stderr


def test_no_grace_means_the_next_wait_ends_the_child() -> None:
    with start(grace=0) as child:
        child.daemon.start()
        child.process.send_signal(signal.SIGTERM)
        assert ends(child).exit == 128 + signal.SIGTERM


@pytest.mark.parametrize("grace", [float("inf"), 1e300])
def test_unlimited_grace(grace: float) -> None:
    with start(grace=grace) as child:
        child.daemon.start()
        child.process.send_signal(signal.SIGTERM)
        child.await_stderr("noted")
        child.daemon.ask(process_records(1), DONE)
        assert child.finish().exit == 0


def test_a_signal_before_the_reader_is_there_bounds_its_waits() -> None:
    deadlines: list[float | None] = []
    with SignalWatch(5) as watch:
        signal.raise_signal(signal.SIGTERM)
        assert watch.signalled
        watch.limit_reads(deadlines.append)
    (deadline,) = deadlines
    assert deadline is not None
    assert 4 < deadline <= 5


def test_back_off_doubles_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(SignalWatch, "sleep", lambda self, seconds: pauses.append(seconds))
    for attempt in (0, 1, 5, 16, 5000):
        SignalWatch(1).back_off(0.5, attempt)
    assert pauses == [0.5, 1.0, 16.0, 32768.0, 32768.0]


@pytest.mark.parametrize("seconds", [0.0, 0.5, 7.25])
def test_a_pause_has_its_whole_length(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(100.0)
    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))
    SignalWatch(1).back_off(seconds, 0)
    assert clock.now == pytest.approx(100 + seconds)


def test_an_ignored_signal_stays_ignored() -> None:
    source = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + PROGRAM
    with Child("-c", source, "0", "0", "") as child:
        child.daemon.start()
        child.process.send_signal(signal.SIGINT)
        child.process.send_signal(signal.SIGINT)
        child.daemon.ask(process_records(1), DONE)
        assert child.finish() == (0, "")


def test_handlers_come_back_after_the_run() -> None:
    after = (
        "print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,"
        " signal.getsignal(signal.SIGINT) == signal.default_int_handler, signal.set_wakeup_fd(-1))"
    )
    source = PROGRAM + "\n" + after
    with Child("-c", source, "30", "0", "") as child:
        child.daemon.start()
        code, stderr = child.finish()
    assert (code, stderr) == (0, "True True -1\n")


def test_user_code_finds_no_wake_up_descriptor_but_its_own() -> None:
    """Trio warns where there is one, and asyncio leaves none when it ends."""
    source = """
import os, signal, fastkcl
own = os.pipe()[1]
os.set_blocking(own, False)
class Processor(fastkcl.BatchProcessor):
    def process_batch(self, batch, checkpointer):
        print("found", signal.set_wakeup_fd(own) in (-1, own), flush=True)
fastkcl.run(Processor())
print("after", signal.set_wakeup_fd(-1) == own)
"""
    with Child("-c", source) as child:
        child.daemon.start()
        for number in (1, 2):
            child.daemon.ask(process_records(number), DONE)
        assert child.finish() == (0, "found True\nfound True\nafter True\n")


def test_only_the_main_thread_can_run() -> None:
    source = """
import threading, fastkcl
def serve():
    try:
        fastkcl.run(fastkcl.processor(lambda batch: None))
    except RuntimeError as error:
        print("refused:", error)
thread = threading.Thread(target=serve)
thread.start()
thread.join()
"""
    with Child("-c", source) as child:
        assert child.daemon.receive() is None
        code, stderr = child.wait()
    assert code == 0
    assert "refused: a run has to be started in the main thread" in stderr
