"""A stitch as a process: its answers, its ends, its streams."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from fastkcl.processv1 import FromStitchMessage, StitchDecoder, ToStitchMessage, stitch
from fastkcl.processv1.watch import CoreWatch, start_time
from paths import PROGRAMS
from waiting import PATIENCE, wait_until_idle

CHILD = PROGRAMS / "stitch.py"


class Driver:
    """A core in a few lines, which reads and writes frames when it is told to."""

    def __init__(
        self,
        *custom: str,
        core: tuple[str, ...] = ("instanceid=me", f"corepid={os.getpid()}"),
        seconds: dict[str, float] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, CHILD, *core, "--", *custom],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "STITCH_SECONDS": json.dumps(seconds or {})},
        )
        self.decoder = StitchDecoder(direction="from_stitch")

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_args: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def write(self, *messages: ToStitchMessage | bytes) -> None:
        assert self.process.stdin is not None
        for message in messages:
            self.process.stdin.write(message if isinstance(message, bytes) else message.to_frame())

    def data(self, id_: int, data: str, channel: str | None = "c") -> None:
        self.write(ToStitchMessage(id=id_, channel_name=channel, data=data, from_stitch_instance_id="other"))

    def read(self) -> FromStitchMessage | None:
        assert self.process.stdout is not None
        while (message := next(self.decoder, None)) is None:
            data = self.process.stdout.read(65536)
            if not data:
                return None
            self.decoder.feed(data)
        assert isinstance(message, FromStitchMessage)
        return message

    def logged(self) -> str:
        message = self.read()
        assert message is not None
        assert message.command == "logs"
        return "\n".join(message.logs or ())

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE)

    def stderr(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


EXIT_5 = ToStitchMessage(id=5, channel_name="_exit")


def beat(number: int) -> ToStitchMessage:
    return ToStitchMessage(id=number, channel_name="_heartbeat", data="")


def sync(number: int) -> FromStitchMessage:
    return FromStitchMessage(command="sync", id=number)


def test_data_is_given_answered_and_acknowledged() -> None:
    with Driver("echo") as driver:
        driver.data(9, "hé\nend\n")
        answer = FromStitchMessage(command="data", id=10, data="c:hé\nend\n", to_stitch_instance_id="other")
        assert driver.read() == answer
        assert driver.read() == FromStitchMessage(command="ack", id=9)
        driver.write(EXIT_5)
        assert driver.exit_code() == 5
        assert "harmless" in driver.stderr()


def test_heartbeats_are_answered_while_user_code_is_busy(tmp_path: Path) -> None:
    with Driver("busy", str(tmp_path / "go")) as driver:
        driver.data(1, "")
        assert driver.logged() == "busy"
        for number in (1, 2, 3):
            driver.write(beat(number))
            assert driver.read() == sync(number)
        (tmp_path / "go").touch()
        assert driver.logged() == "not busy any more"


def test_shown_heartbeats_are_the_users_to_answer() -> None:
    with Driver("heartbeats") as driver:
        assert driver.logged() == "ready"
        driver.write(beat(3), beat(4), beat(5))
        assert [driver.logged(), driver.read(), driver.logged(), driver.logged(), driver.read()] == [
            "_heartbeat 3",
            sync(3),
            "_heartbeat 4",
            "_heartbeat 5",
            sync(5),
        ]


def test_an_unreadable_frame_is_logged_and_the_next_one_read() -> None:
    with Driver("echo") as driver:
        driver.write(b"{Id:1} junk\nend\n", b"\xff\nend\n")
        assert "no JSON" in driver.logged()
        assert "utf8" in driver.logged()
        driver.data(1, "x")
        answer = driver.read()
        assert answer is not None
        assert answer.data == "c:x"


def test_a_standard_error_that_nobody_reads_stops_nothing_if_asked() -> None:
    with Driver("chatty") as driver:
        driver.data(1, "")
        answer = driver.read()
        assert answer is not None
        assert answer.data == "still here"
        assert driver.process.stderr is not None
        assert b"on fd 1 xxx" in driver.process.stderr.read(65536)  # there is room again
        driver.data(2, "")
        assert driver.read() is not None
        driver.write(EXIT_5)
        assert driver.exit_code() == 5
        told = re.search(r"^fastkcl: (\d+) bytes of standard error were dropped: its reader", driver.stderr(), re.M)
        assert told is not None
        assert (
            10_000 * 59 - 2 * 65536 < int(told[1]) < 10_000 * 59
        )  # of one stream: print to fd 1 has a count of its own


def test_a_standard_error_that_is_the_protocols_pipe_is_left_alone() -> None:
    reading, writing = os.pipe()
    try:
        code = "import os; from fastkcl.stdio import lossy; changed = lossy.drop_when_full(1)"
        code += "; os._exit(changed + 10 * (not os.get_blocking(2)))"
        same = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=writing)
        apart = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writing)
        assert (same.returncode, apart.returncode) == (0, 11)
    finally:
        os.close(reading)
        os.close(writing)


def test_exit_of_a_busy_stitch_is_at_once() -> None:
    with Driver("busy", "for ever") as driver:
        driver.data(1, "")
        assert driver.logged() == "busy"
        driver.write(EXIT_5)
        assert driver.exit_code() == 5


def test_exit_of_a_waiting_stitch_runs_its_finally(tmp_path: Path) -> None:
    with Driver("waiting", str(tmp_path / "trace")) as driver:
        assert driver.logged() == "waits"
        driver.write(EXIT_5)
        assert driver.exit_code() == 5
    assert (tmp_path / "trace").read_text() == "finally"


def test_a_wait_without_an_end() -> None:
    with Driver("endless") as driver:
        assert driver.logged() == "ready"
        wait_until_idle(driver.process.pid)
        driver.data(1, "x")
        answer = driver.read()
        assert answer is not None
        assert (answer.command, answer.id) == ("ack", 1)
        driver.write(EXIT_5)
        assert driver.exit_code() == 5


def test_exit_can_be_shown() -> None:
    with Driver("cleanup", "0") as driver:
        assert driver.logged() == "ready"
        driver.write(EXIT_5)
        driver.close_stdin()
        assert driver.logged() == "cleaning up for 5"
        assert driver.exit_code() == 5


def test_cleaning_up_has_ten_seconds() -> None:
    assert stitch.EXIT_SECONDS == 10
    with Driver("cleanup", "600", seconds={"EXIT_SECONDS": 0.5}) as driver:
        assert driver.logged() == "ready"
        driver.write(EXIT_5)
        assert driver.logged() == "cleaning up for 5"
        begun = time.monotonic()
        assert driver.exit_code() == 5
        assert time.monotonic() - begun > 0.4
        assert "still running 0.5 s" in driver.stderr()


@pytest.mark.parametrize(("mode", "code"), [("echo", 1), ("handler", 1)])
def test_the_end_of_input_ends_it(mode: str, code: int) -> None:
    with Driver(mode) as driver:
        driver.data(9, "x")
        assert driver.read() is not None
        driver.close_stdin()
        assert driver.exit_code() == code


def test_a_broken_pipe_ends_it() -> None:
    with Driver("echo") as driver:
        driver.data(9, "x")
        assert driver.read() is not None
        driver.process.stdout.close()
        driver.data(10, "y")
        assert driver.exit_code() == 1


@pytest.fixture(params=["linux", "portable"])
def each_switch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to watch a process. On Linux that of psutil reads /proc, too: `each_way` would take it away."""
    monkeypatch.setenv("FASTKCL_PORTABLE", str(int(request.param == "portable")))


@pytest.mark.usefixtures("each_switch")
def test_a_core_whose_process_is_gone_ends_it() -> None:
    """The pipes stay open, so that only the process id can tell; it is looked for each 10 s."""
    assert stitch.WATCH_SECONDS == 10
    core = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    arguments = ("instanceid=me", f"corepid={core.pid}")
    with Driver("busy", "for ever", core=arguments, seconds={"WATCH_SECONDS": 0.1}) as driver:
        driver.data(1, "")
        assert driver.logged() == "busy"
        core.kill()  # and not waited for: a zombie is no core
        assert driver.exit_code() == 1
    core.communicate()


@pytest.mark.usefixtures("each_switch")
def test_a_core_that_is_not_there_at_the_start() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with Driver("echo", core=(f"corepid={gone.pid}",)) as driver:
        assert driver.exit_code() == 1
        assert f"corepid={gone.pid}: there is no such process" in driver.stderr()


@pytest.mark.parametrize(
    ("core", "what"), [(("channel=Pipe",), "channel: named pipes"), (("a=1", "a=2"), "duplicate_argument: 'a'")]
)
@pytest.mark.parametrize("mode", ["echo", "handler"])
def test_arguments_that_cannot_work(core: tuple[str, ...], what: str, mode: str) -> None:
    with Driver(mode, core=core) as driver:
        assert driver.exit_code() == 1
        assert what in driver.stderr()


def test_logging_goes_to_the_core() -> None:
    with Driver("logs") as driver:
        message = driver.read()
        assert message is not None
        assert message.logs == ("WARNING a.b: two", "lines")


def test_async_iteration() -> None:
    with Driver("asynchronous") as driver:
        assert driver.logged() == "idle"
        for number in (1, 5):
            driver.data(number, "x")
            answer = driver.read()
            assert answer is not None
            assert (answer.id, answer.data) == (number + 1, "async")
        driver.write(EXIT_5)
        assert driver.exit_code() == 5


def test_a_batch_of_messages() -> None:
    with Driver("batches") as driver:
        driver.data(1, "aGk=")
        row = "{'id': 1, 'channel': 'c', 'sender': 'other', 'node': None, 'data': b'hi'}"
        assert driver.logged() == row
        assert driver.read() == FromStitchMessage(command="ack", id=1)
        driver.data(2, "no base64")
        assert driver.read() == FromStitchMessage(command="fail", id=2)
        assert "message 2 of other cannot be taken: base64" in driver.logged()


def test_a_function_for_each_message() -> None:
    with Driver("handler") as driver:
        driver.data(1, "x")
        assert driver.read() == FromStitchMessage(command="data", id=2, data="handled", to_stitch_instance_id="other")
        assert driver.read() == FromStitchMessage(command="ack", id=1)
        driver.data(3, "fail")
        assert driver.read() == FromStitchMessage(command="fail", id=3)
        assert driver.logged().endswith("ValueError: as asked")
        driver.process.send_signal(signal.SIGTERM)  # noted: the core ends it
        driver.data(5, "x")
        assert driver.read() is not None
        assert driver.read() == FromStitchMessage(command="ack", id=5)
        driver.write(EXIT_5)
        assert driver.exit_code() == 5


def test_a_function_that_only_makes_a_coroutine_has_failed() -> None:
    with Driver("lazy") as driver:
        driver.data(1, "x")
        assert driver.read() == FromStitchMessage(command="fail", id=1)
        assert "TypeError: lazy returned an object of type coroutine, which nobody runs" in driver.logged()


def test_a_coroutine_function_is_refused() -> None:
    with Driver("nothing") as driver:
        assert driver.exit_code() == 1
        assert driver.process.stderr is not None
        assert b"TypeError: nothing is a coroutine or generator function" in driver.process.stderr.read()


def test_a_process_is_known_by_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = CoreWatch(os.getpid())
    assert not watch.is_gone()
    assert start_time(os.getpid()) == start_time(os.getpid())
    monkeypatch.setattr("fastkcl.processv1.watch.start_time", lambda _pid: 1.0)
    assert watch.is_gone()  # another process of the same id


def test_psutil_knows_a_process_by_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTKCL_PORTABLE", "1")
    watch = CoreWatch(os.getpid())
    assert not watch.is_gone()
    # Who sets the clock moves all these times.
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: time.time())
    assert not watch.is_gone()
    monkeypatch.setattr(psutil.Process, "_get_ident", lambda self: (self.pid, 1.0))
    assert watch.is_gone()  # another process of the same id
