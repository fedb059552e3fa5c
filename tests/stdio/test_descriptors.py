"""fd 0 and fd 1 belong to the protocol: whatever user code writes, forks, closes or starts."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from fastkcl.processv1 import ToStitchMessage
from fastkcl.stdio.descriptors import Descriptors
from kcl_helpers import INITIALIZE, LEASE_LOST, Child, process_records, status
from paths import PROGRAMS
from waiting import PATIENCE, wait_until_idle

DONE = status("processRecords")

PROGRAM = """
import ctypes, multiprocessing, os, signal, subprocess, sys, threading, time
import fastkcl

print("printed before the run")

class Processor(fastkcl.BatchProcessor):
    def initialize(self, context):
        pass

    def process_batch(self, batch, checkpointer):
{body}

fastkcl.run(Processor())
{after}
"""


def program(body: str, after: str = "") -> str:
    indented = "\n".join("        " + line for line in body.strip().splitlines())
    return PROGRAM.format(body=indented, after=after)


WRITERS = {
    "print": "print('stray', flush=True)",
    "print without flush": "print('stray')",
    "print of a message": """print('{"action":"status","responseFor":"stray"}')""",
    "null": "print('null stray')",
    "no line feed": "print('stray', end='', flush=True)",
    "stdout.buffer": "sys.stdout.buffer.write(b'stray\\n'); sys.stdout.buffer.flush()",
    "os.write": "os.write(1, b'stray\\n')",
    "C library": "libc = ctypes.CDLL(None); libc.puts(b'stray'); libc.fflush(None)",
    "subprocess": "subprocess.run(['echo', 'stray'], check=True)",
    "os.system": "os.system('echo stray')",
    "shell that keeps descriptors": "subprocess.run('echo stray >&1', shell=True, close_fds=False, check=True)",
    "sys.__stdout__": "sys.__stdout__.write('stray\\n')",
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_user_code_writes_lands_on_standard_error(writer: str) -> None:
    with Child("-c", program(WRITERS[writer])) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        child.daemon.ask(LEASE_LOST, status("leaseLost"))
        code, stderr = child.finish()
    assert code == 0
    assert "stray" in stderr
    assert stderr.startswith("printed before the run\n")


def test_prints_at_exit_land_on_standard_error() -> None:
    after = "import atexit; atexit.register(print, 'at exit'); print('after the run')"
    with Child("-c", program("pass", after)) as child:
        child.daemon.start()
        code, stderr = child.finish()
    assert (code, stderr) == (0, "printed before the run\nafter the run\nat exit\n")


def test_a_print_shows_at_once() -> None:
    with Child("-c", program("print('now'); time.sleep(600)")) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        child.await_stderr("now\n")


@pytest.mark.parametrize(
    "body", ["sys.stdout.close()", "os.close(1)", "os.close(0)", "sys.stdin.close()", "sys.stdout = None"]
)
def test_user_code_may_close_what_it_has(body: str) -> None:
    with Child("-c", program(body)) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        child.daemon.ask(LEASE_LOST, status("leaseLost"))
        assert child.finish().exit == 0


def test_user_code_that_reads_sees_the_end_of_input() -> None:
    with Child("-c", program("print(repr(sys.stdin.read()), repr(os.read(0, 10)))")) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        code, stderr = child.finish()
    assert code == 0
    assert "'' b''" in stderr


def test_no_subprocess_inherits_the_protocol() -> None:
    body = """
        before = {os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if int(fd) > 2
                  and os.path.islink(f'/proc/self/fd/{fd}')}
        listing = subprocess.run(['ls', '-l', '/proc/self/fd'], close_fds=False, capture_output=True, text=True).stdout
        own = {link for link in before if link.startswith('pipe:')}
        assert len(own) >= 3, own
        assert not [link for link in own if link in listing], listing
    """
    body = "\n".join(line[8:] for line in body.strip("\n").splitlines())
    with Child("-c", program(body)) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        assert child.finish().exit == 0


FORKED = """
context = multiprocessing.get_context('fork')
worker = context.Process(target=time.sleep, args=(600,))
worker.start()
print('worker', worker.pid)
if len(batch) == 2:
    worker._popen = None  # so that nobody waits for it: it outlives us
    multiprocessing.process._children.clear()
    os._exit(3)
worker.terminate()
worker.join(60)
assert worker.exitcode == -signal.SIGTERM, worker.exitcode
"""


def test_a_forked_worker_that_outlives_us_does_not_hold_the_pipe() -> None:
    with Child("-c", program(FORKED)) as child:
        child.daemon.start()
        child.daemon.send(process_records(1, 2))
        try:
            assert child.daemon.receive() is None  # the end of our output, although the worker lives
            assert child.wait().exit == 3
            pid = int(child.stderr().split("worker ")[1].split()[0])
            os.kill(pid, 0)
            with pytest.raises(BrokenPipeError):  # nor the other end
                child.daemon.send(process_records(3))
        finally:
            pid = int(child.stderr().split("worker ")[1].split()[0])
            os.kill(pid, 9)


def test_a_forked_worker_can_be_terminated() -> None:
    """It has the signal handlers of before the run, not those that note a first SIGTERM."""
    with Child("-c", program(FORKED)) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        code, stderr = child.finish()
    assert code == 0, stderr


def test_a_forked_child_that_comes_back_says_nothing_to_the_daemon() -> None:
    body = """
pid = os.fork()
if pid != 0:
    _, wait_status = os.waitpid(pid, 0)
    print('forked child ended with', os.waitstatus_to_exitcode(wait_status))
"""
    with Child("-c", program(body)) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        child.daemon.ask(LEASE_LOST, status("leaseLost"))
        code, stderr = child.finish()
    assert code == 0
    assert "fastkcl: not_allowed: a forked child came back into the dialogue of its parent" in stderr
    assert "forked child ended with 1\n" in stderr


def test_a_checkpoint_in_a_forked_child_says_nothing_to_the_daemon() -> None:
    body = """
def work():
    try:
        checkpointer.checkpoint()
    except fastkcl.LocalProtocolError as error:
        print('refused:', error)

worker = multiprocessing.get_context('fork').Process(target=work)
worker.start()
worker.join()
"""
    with Child("-c", program(body)) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        code, stderr = child.finish()
    assert code == 0
    assert "refused: not_allowed: a forked child came back" in stderr


def test_a_thread_that_forks_while_the_main_thread_reads(tmp_path: Path) -> None:
    body = """
def work():
    while not os.path.exists(os.environ['GO']):
        time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    print('worker', pid)

threading.Thread(target=work).start()
"""
    with Child("-c", program(body), environment={"GO": str(tmp_path / "go")}) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        wait_until_idle(child.process.pid)  # for the next message
        (tmp_path / "go").touch()
        child.await_stderr("worker ")
        child.daemon.ask(process_records(2), DONE)
        pids = [int(part.split()[0]) for part in child.stderr().split("worker ")[1:]]
        try:
            assert child.finish().exit == 0
        finally:
            for pid in {*pids, *(int(part.split()[0]) for part in child.stderr().split("worker ")[1:])}:
                os.kill(pid, 9)


SIMPLE = program("pass")


def test_a_terminal_is_told_how_the_program_is_started() -> None:
    master, slave = pty.openpty()
    try:
        result = subprocess.run(
            [sys.executable, "-c", SIMPLE],
            stdin=slave,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    finally:
        os.close(master)
        os.close(slave)
    assert result.returncode == 2
    assert result.stderr.startswith("fastkcl: no_daemon: standard input is a terminal; a daemon starts this program")
    assert "fastkcl replay --profile clickstream -- python" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("redirect", "name"), [("<&-", "input"), (">&-", "output")])
def test_a_closed_standard_stream_is_told(redirect: str, name: str) -> None:
    result = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {redirect}', sys.executable, SIMPLE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert result.returncode == 2
    assert f"fastkcl: no_daemon: standard {name} is closed; a daemon has to start this program\n" in result.stderr


def test_a_closed_standard_error_does_not_become_a_pipe_of_ours() -> None:
    source = "import os, sys, kcl_helpers\nos.dup2(os.open(os.devnull, os.O_WRONLY), 2); os.close(2)\n" + program(
        "os.write(2, b'stray\\n'); print('stray')"
    )
    with Child("-c", source) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        assert child.finish().exit == 0


def test_a_close_in_another_thread_is_not_taken_for_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes = [*os.pipe(), *os.pipe()]
    descriptors = Descriptors(pipes[0], pipes[3])
    seen: list[bool] = []
    really_close = os.close

    def close(fd: int) -> None:
        really_close(fd)
        seen.append(descriptors.lost)

    monkeypatch.setattr(os, "close", close)
    descriptors.close()
    monkeypatch.undo()
    really_close(pipes[1])
    really_close(pipes[2])
    assert seen == [False, False]


def test_one_process_serves_once() -> None:
    after = "\ntry:\n    fastkcl.run(Processor())\nexcept RuntimeError as error:\n    print('refused:', error)"
    with Child("-c", program("pass", after)) as child:
        child.daemon.start()
        code, stderr = child.finish()
    assert code == 0
    assert "refused: an earlier run of this process took standard input and output" in stderr


def test_a_nested_run_is_a_user_error() -> None:
    with Child("-c", program("fastkcl.run(Processor())")) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        assert child.daemon.receive() is None
        code, stderr = child.wait()
    assert code == 1
    assert "user_error: process_batch failed with RuntimeError: an earlier run of this process took" in stderr


@pytest.mark.parametrize("then", ["returns", "checkpoints", "checkpoints and swallows", "raises", "opens files"])
@pytest.mark.parametrize("interface", ["run", "drop-in", "drop-in beside an input of its own"])
def test_a_program_that_closes_all_descriptors_is_told_so(interface: str, then: str, tmp_path: Path) -> None:
    """In one line; what it opens afterwards under the same numbers is neither written to, nor read, nor closed."""
    lines = INITIALIZE + process_records(1)
    with Child(str(PROGRAMS / "closes_descriptors.py"), interface, then, str(tmp_path), lines.decode()) as child:
        if interface == "drop-in beside an input of its own":
            assert child.daemon.receive() == status("initialize")
        else:
            child.daemon.start()
            child.daemon.send(process_records(1))
        assert child.daemon.receive() is None
        code, stderr = child.wait()
    assert code == 1
    *_, last = stderr.splitlines()
    assert last.startswith("fastkcl: descriptors_closed: this program has closed the descriptors that its standard")
    if then == "raises":
        assert stderr.count("Traceback") == 1
        assert "ValueError: boom" in stderr
    else:
        assert stderr == f"{last}\n"
    for file in tmp_path.iterdir():
        assert file.read_bytes() == LEASE_LOST


@pytest.mark.parametrize("then", ["returns", "opens files"])
@pytest.mark.parametrize(
    ("interface", "message"),
    [
        ("stitch", ToStitchMessage(id=3, channel_name="c", data="x", from_stitch_instance_id="other").to_frame()),
        ("stage", b"first\nsecond\n"),
    ],
    ids=["stitch", "stage"],
)
def test_programs_of_other_protocols_are_told_so_too(interface: str, message: bytes, then: str, tmp_path: Path) -> None:
    with Child(str(PROGRAMS / "closes_descriptors.py"), interface, then, str(tmp_path)) as child:
        child.daemon.send(message)
        assert child.daemon.receive() is None
        code, stderr = child.wait()
    assert code == 1
    assert "this program has closed the descriptors that its standard input and output were moved to" in stderr
    assert stderr.count("\n") == 1
    for file in tmp_path.iterdir():
        assert file.read_bytes() == LEASE_LOST
