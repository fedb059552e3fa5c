"""Reader: messages off a descriptor, and what happens at its end, at signals and at deadlines."""

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import codec_helpers
import pytest
from fastkcl import _core

LEASE_LOST = b'{"action":"leaseLost"}\n'
Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    read_end, write_end = os.pipe()
    yield read_end, write_end
    for fd in (read_end, write_end):
        try:
            os.close(fd)
        except OSError:
            continue  # a test has closed it


def test_messages_come_as_they_arrive(pipe: Pipe) -> None:
    read_end, write_end = pipe
    reader = _core.Reader(read_end)
    for size in (1, 10, 1000):
        line = codec_helpers.batch_line(size, 20)
        os.write(write_end, line)
        message = reader.read()
        assert isinstance(message, _core.ProcessRecords)
        assert len(message.batch) == size
    os.close(write_end)
    assert reader.read() is None
    assert reader.read() is None


def test_one_byte_at_a_time(pipe: Pipe) -> None:
    read_end, write_end = pipe
    content = codec_helpers.batch_line(20, 100) + LEASE_LOST
    writer = threading.Thread(target=lambda: _core.write_all(write_end, content, write_size=1))
    writer.start()
    reader = _core.Reader(read_end)
    first = reader.read()
    assert isinstance(first, _core.ProcessRecords)
    assert codec_helpers.to_dict(first) == codec_helpers.whole(content.split(b"\n")[0])
    assert reader.read() == _core.LeaseLost()
    writer.join()
    assert reader.bytes_read == len(content)


def test_socket_is_as_good_as_a_pipe() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(LEASE_LOST)
        reader = _core.Reader(ours.fileno())
        assert reader.read() == _core.LeaseLost()
        theirs.close()
        assert reader.read() is None


def test_descriptor_stays_open(pipe: Pipe) -> None:
    read_end, write_end = pipe
    reader = _core.Reader(read_end)
    os.write(write_end, LEASE_LOST)
    reader.read()
    del reader
    os.fstat(read_end)


def test_last_line_without_line_feed(pipe: Pipe) -> None:
    read_end, write_end = pipe
    os.write(write_end, LEASE_LOST.strip())
    os.close(write_end)
    reader = _core.Reader(read_end)
    assert reader.read() == _core.LeaseLost()
    assert reader.read() is None


@pytest.mark.parametrize("part", [b'{"action":', codec_helpers.batch_line(5, 100)[:-20]], ids=["general", "records"])
def test_end_inside_a_message(pipe: Pipe, part: bytes) -> None:
    read_end, write_end = pipe
    os.write(write_end, part)
    os.close(write_end)
    reader = _core.Reader(read_end)
    with pytest.raises(_core.DecodeError, match="input ended inside a message") as caught:
        reader.read()
    assert caught.value.kind == "json"
    assert reader.read() is None


def test_goes_on_after_an_error(pipe: Pipe) -> None:
    read_end, write_end = pipe
    os.write(write_end, b"nonsense\n" + LEASE_LOST)
    reader = _core.Reader(read_end)
    with pytest.raises(_core.DecodeError):
        reader.read()
    assert reader.read() == _core.LeaseLost()


def test_too_long_line_is_given_up_before_its_end(pipe: Pipe) -> None:
    read_end, write_end = pipe
    os.write(write_end, b'{"ignored":"' + b"x" * 5000)
    reader = _core.Reader(read_end, max_line_bytes=1000)
    with pytest.raises(_core.DecodeError) as caught:
        reader.read()
    assert caught.value.kind == "line_too_long"
    os.write(write_end, b'"}\n' + LEASE_LOST)
    assert reader.read() == _core.LeaseLost()


def test_closed_descriptor_is_an_os_error() -> None:
    read_end, write_end = os.pipe()
    reader = _core.Reader(read_end)
    os.close(write_end)
    os.close(read_end)
    with pytest.raises(OSError, match=r"Bad file descriptor|not valid"):
        reader.read()


def test_waiting_reader_lets_other_threads_run(pipe: Pipe) -> None:
    read_end, write_end = pipe
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(_core.Reader(read_end).read()))
    thread.start()
    time.sleep(0.05)
    assert thread.is_alive()
    os.write(write_end, LEASE_LOST)
    thread.join(10)
    assert got == [_core.LeaseLost()]


def test_deadline_ends_the_wait(pipe: Pipe) -> None:
    read_end, write_end = pipe
    reader = _core.Reader(read_end)
    reader.set_deadline(0.1)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        reader.read()
    assert 0.05 < time.monotonic() - start < 5
    reader.set_deadline(None)
    os.write(write_end, LEASE_LOST)
    assert reader.read() == _core.LeaseLost()


def test_deadline_keeps_what_was_read(pipe: Pipe) -> None:
    read_end, write_end = pipe
    reader = _core.Reader(read_end)
    line = codec_helpers.batch_line(3, 3000)
    os.write(write_end, line[:4000])
    reader.set_deadline(0.05)
    with pytest.raises(TimeoutError):
        reader.read()
    reader.set_deadline(None)
    os.write(write_end, line[4000:])
    message = reader.read()
    assert isinstance(message, _core.ProcessRecords)
    assert codec_helpers.to_dict(message) == codec_helpers.whole(line.rstrip(b"\n"))


def script(body: str) -> subprocess.CompletedProcess[str]:
    prelude = "import os, signal, threading, time\nfrom fastkcl import _core\nread_end, write_end = os.pipe()\n"
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", prelude + textwrap.dedent(body)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_signal_handlers_run_while_waiting() -> None:
    """A handler that returns lets the wait go on; one that raises ends it."""
    child = script(
        """
        seen = []
        def handler(number, frame):
            seen.append(number)
            if len(seen) == 2:
                raise ZeroDivisionError
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        reader = _core.Reader(read_end)
        try:
            reader.read()
        except ZeroDivisionError:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.write(write_end, b'{"action":"leaseLost"}\\n')
            print(len(seen), reader.read() == _core.LeaseLost())
        """
    )
    assert (child.stdout, child.stderr, child.returncode) == ("2 True\n", "", 0)


def test_wakeup_descriptor_runs_handlers() -> None:
    """Also when another thread got the signal, so that no read(2) was interrupted."""
    child = script(
        """
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(wake_read, False)
        signal.set_wakeup_fd(wake_write)
        def handler(number, frame):
            raise KeyError(number)
        signal.signal(signal.SIGUSR1, handler)
        reader = _core.Reader(read_end, wakeup_fd=wake_read)
        def later():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
            time.sleep(0.2)
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        thread = threading.Thread(target=later)
        thread.start()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        try:
            reader.read()
        except KeyError as error:
            print(error.args[0] == signal.SIGUSR1)
        thread.join()
        """
    )
    assert (child.stdout, child.stderr, child.returncode) == ("True\n", "", 0)


def test_deadline_set_in_a_handler_ends_the_wait() -> None:
    child = script(
        """
        reader = _core.Reader(read_end)
        signal.signal(signal.SIGALRM, lambda number, frame: reader.set_deadline(0.1))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            reader.read()
        except TimeoutError:
            print("timed out")
        """
    )
    assert (child.stdout, child.stderr, child.returncode) == ("timed out\n", "", 0)


def test_write_all_in_pieces(pipe: Pipe) -> None:
    read_end, write_end = pipe
    content = bytes(range(256)) * 100
    received = bytearray()

    def drain() -> None:
        while piece := os.read(read_end, 65536):
            received.extend(piece)

    thread = threading.Thread(target=drain)
    thread.start()
    start = time.monotonic()
    _core.write_all(write_end, content, write_size=len(content) // 5, pause=0.02)
    assert time.monotonic() - start >= 0.1
    os.close(write_end)
    thread.join()
    assert received == content


def test_write_all_reports_a_broken_pipe(pipe: Pipe) -> None:
    read_end, write_end = pipe
    os.close(read_end)
    with pytest.raises(BrokenPipeError):
        _core.write_all(write_end, b"x" * 100)


def test_write_all_runs_signal_handlers() -> None:
    child = script(
        """
        def handler(number, frame):
            raise ZeroDivisionError
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            _core.write_all(write_end, bytes(10_000_000))
        except ZeroDivisionError:
            print("interrupted")
        """
    )
    assert (child.stdout, child.stderr, child.returncode) == ("interrupted\n", "", 0)
