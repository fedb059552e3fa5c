"""`Reader`: every kind of descriptor, the end of input, deadlines, signals, idleness, misuse."""

import errno
import fcntl
import os
import signal
import socket
import threading
import time

import pytest
from fastkcl import _core

INITIALIZE = b'{"action":"initialize","shardId":"s","sequenceNumber":"1","subSequenceNumber":0}\n'
LEASE_LOST = b'{"action":"leaseLost"}\n'
RECORDS = _core.encode_process_records(
    [bytes(range(256)) * 4] * 300, [f"key-{i}" for i in range(300)], [str(10**20 + i) for i in range(300)], None, None
)
LINES = INITIALIZE + b"\r\n" + RECORDS + LEASE_LOST


class Pipe:
    """A pipe whose ends are closed at most once."""

    def __init__(self):
        self.fd, self.writing = os.pipe()
        self.open = {self.fd, self.writing}

    def write(self, data):
        os.write(self.writing, data)

    def close(self, end):
        if end in self.open:
            self.open.remove(end)
            os.close(end)


@pytest.fixture
def pipe():
    pipe = Pipe()
    yield pipe
    pipe.close(pipe.fd)
    pipe.close(pipe.writing)


@pytest.fixture
def wakeup():
    """A pipe that Python writes the numbers of signals to."""
    pipe = Pipe()
    os.set_blocking(pipe.fd, False)
    os.set_blocking(pipe.writing, False)
    before = signal.set_wakeup_fd(pipe.writing)
    yield pipe
    signal.set_wakeup_fd(before)
    pipe.close(pipe.fd)
    pipe.close(pipe.writing)


@pytest.fixture
def alarm():
    """Runs a handler in the main thread after a delay, by SIGALRM."""
    before = signal.getsignal(signal.SIGALRM)

    def after(seconds, handler, interval=0.0):
        signal.signal(signal.SIGALRM, lambda *_: handler())
        signal.setitimer(signal.ITIMER_REAL, seconds, interval)

    yield after
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def in_thread():
    """Starts functions in threads and waits for them at the end."""
    threads = []

    def start(function):
        threads.append(threading.Thread(target=function))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()


def check_lines(reader):
    initialize, records, lost = iter(reader.read, None)
    assert initialize == _core.Initialize(shard_id="s", sequence_number="1", sub_sequence_number=0)
    assert records == _core.decode_line(RECORDS)
    assert records.batch.shard_id == "s"
    assert lost == _core.LeaseLost()
    assert reader.bytes_read == len(LINES)
    assert reader.read() is None


# Where input comes from.


@pytest.mark.parametrize("write_size", [1, 7, 8192, 1 << 20])
@pytest.mark.parametrize("blocking", [True, False])
def test_pipe(pipe, in_thread, write_size, blocking):
    os.set_blocking(pipe.fd, blocking)
    lines = LINES if write_size > 7 else INITIALIZE + b"\r\n" + LEASE_LOST

    def feed():
        _core.write_all(pipe.writing, lines, write_size=write_size)
        pipe.close(pipe.writing)

    in_thread(feed)
    reader = _core.Reader(pipe.fd)
    if lines is LINES:
        check_lines(reader)
    else:
        assert [message.action for message in iter(reader.read, None)] == ["initialize", "leaseLost"]


def test_file(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(LINES)
    with path.open("rb") as file:
        check_lines(_core.Reader(file.fileno()))


def test_socket(in_thread):
    ours, theirs = socket.socketpair()

    def feed():
        with theirs:
            theirs.sendall(LINES)

    in_thread(feed)
    with ours:
        check_lines(_core.Reader(ours.fileno()))


def test_pipe_size_is_raised_but_not_lowered(pipe):
    _core.Reader(pipe.fd)
    assert fcntl.fcntl(pipe.fd, fcntl.F_GETPIPE_SZ) == 256 << 10
    fcntl.fcntl(pipe.fd, fcntl.F_SETPIPE_SZ, 512 << 10)
    _core.Reader(pipe.fd)
    assert fcntl.fcntl(pipe.fd, fcntl.F_GETPIPE_SZ) == 512 << 10


# How input ends.


@pytest.mark.parametrize("blank", [b"", b"\n", b" \t\r\n\n", b"  "])
def test_empty_input(pipe, blank):
    pipe.write(blank)
    pipe.close(pipe.writing)
    reader = _core.Reader(pipe.fd)
    assert reader.read() is None
    assert reader.read() is None


def test_last_line_without_line_feed(pipe):
    pipe.write(LEASE_LOST[:-1])
    pipe.close(pipe.writing)
    reader = _core.Reader(pipe.fd)
    assert reader.read() == _core.LeaseLost()
    assert reader.read() is None


def test_input_ends_inside_a_message(pipe):
    pipe.write(INITIALIZE + RECORDS[:5000])
    pipe.close(pipe.writing)
    reader = _core.Reader(pipe.fd)
    assert reader.read().action == "initialize"
    with pytest.raises(_core.DecodeError, match="input ended inside a message") as caught:
        reader.read()
    assert caught.value.kind == "json"
    assert reader.read() is None


def test_goes_on_after_a_broken_line(pipe):
    pipe.write(b'{"action" "leaseLost"}\n' + LEASE_LOST)
    reader = _core.Reader(pipe.fd)
    with pytest.raises(_core.DecodeError) as caught:
        reader.read()
    assert caught.value.kind == "json"
    assert reader.read() == _core.LeaseLost()


def test_line_bound(pipe):
    pipe.write(INITIALIZE + LEASE_LOST)
    reader = _core.Reader(pipe.fd, max_line_bytes=len(LEASE_LOST))
    with pytest.raises(_core.DecodeError, match="max_line_bytes") as caught:
        reader.read()
    assert caught.value.kind == "line_too_long"
    assert reader.read() == _core.LeaseLost()


# Deadlines.


@pytest.mark.parametrize("begun", [b"", b'{"action":'], ids=["at a line's start", "inside a line"])
@pytest.mark.parametrize("seconds", [0.25, 0.02, 0, -1])
def test_deadline(pipe, begun, seconds):
    pipe.write(begun)
    reader = _core.Reader(pipe.fd)
    start = time.monotonic()
    reader.set_deadline(seconds)
    with pytest.raises(TimeoutError, match="deadline"):
        reader.read()
    assert time.monotonic() - start >= seconds
    reader.set_deadline(None)
    pipe.write(b'"leaseLost"}\n' if begun else LEASE_LOST)
    assert reader.read() == _core.LeaseLost()


def test_what_has_arrived_is_handed_out_after_the_deadline(pipe):
    pipe.write(INITIALIZE + LEASE_LOST)
    reader = _core.Reader(pipe.fd)
    reader.set_deadline(0)
    assert [reader.read().action for _ in range(2)] == ["initialize", "leaseLost"]
    with pytest.raises(TimeoutError):
        reader.read()


@pytest.mark.parametrize("seconds", [float("inf"), 1e30])
def test_a_far_deadline_is_none(pipe, in_thread, seconds):
    reader = _core.Reader(pipe.fd)
    reader.set_deadline(seconds)
    in_thread(lambda: (time.sleep(0.2), pipe.write(LEASE_LOST)))
    assert reader.read() == _core.LeaseLost()


def test_nan_is_no_deadline(pipe):
    with pytest.raises(ValueError, match="nan"):
        _core.Reader(pipe.fd).set_deadline(float("nan"))


@pytest.mark.parametrize("watched", [True, False])
def test_a_signal_handler_sets_the_deadline(pipe, wakeup, alarm, watched):
    """What a graceful stop does: the first signal limits the wait that it interrupts."""
    reader = _core.Reader(pipe.fd, wakeup_fd=wakeup.fd if watched else None)
    alarm(0.15, lambda: reader.set_deadline(0.1))
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        reader.read()
    assert 0.25 <= time.monotonic() - start < 5


# Signals.


class StopError(Exception):
    """Raised by a handler."""


def stop():
    raise StopError


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("begun", [b"", b'{"action":'], ids=["at a line's start", "inside a line"])
def test_what_a_handler_raises_comes_out_and_nothing_is_lost(pipe, wakeup, alarm, watched, begun):
    pipe.write(begun)
    reader = _core.Reader(pipe.fd, wakeup_fd=wakeup.fd if watched else None)
    alarm(0.15, stop)
    with pytest.raises(StopError):
        reader.read()
    pipe.write(b'"leaseLost"}\n' if begun else LEASE_LOST)
    assert reader.read() == _core.LeaseLost()


def test_a_handler_that_returns_lets_waiting_go_on(pipe, wakeup, alarm):
    calls = []

    def handler():
        calls.append(time.monotonic())
        if len(calls) == 5:
            pipe.write(LEASE_LOST)

    alarm(0.05, handler, interval=0.05)
    assert _core.Reader(pipe.fd, wakeup_fd=wakeup.fd).read() == _core.LeaseLost()
    assert len(calls) == 5


def test_the_wakeup_descriptor_is_drained(pipe, wakeup):
    """What a signal just before the wait leaves in it must neither be missed nor make every wait return at once."""
    reader = _core.Reader(pipe.fd, wakeup_fd=wakeup.fd)
    os.write(wakeup.writing, bytes([signal.SIGALRM]) * 1000)
    reader.set_deadline(0.2)
    with pytest.raises(TimeoutError):
        reader.read()
    with pytest.raises(BlockingIOError):
        os.read(wakeup.fd, 1)


def test_a_wakeup_descriptor_at_its_end_is_left_alone(pipe, in_thread):
    """poll would report it for ever; a busy loop would use the processor all the time."""
    other = Pipe()
    other.close(other.writing)
    reader = _core.Reader(pipe.fd, wakeup_fd=other.fd)
    in_thread(lambda: (time.sleep(0.5), pipe.write(LEASE_LOST)))
    before = time.process_time()
    assert reader.read() == _core.LeaseLost()
    assert time.process_time() - before < 0.2
    other.close(other.fd)


# Waiting.


def test_waiting_lets_other_threads_run(pipe, in_thread):
    in_thread(lambda: (time.sleep(0.1), pipe.write(LEASE_LOST)))
    assert _core.Reader(pipe.fd).read() == _core.LeaseLost()


# Misuse.


def test_two_threads_at_the_same_time(pipe, in_thread):
    reader = _core.Reader(pipe.fd)
    in_thread(reader.read)
    time.sleep(0.1)
    with pytest.raises(RuntimeError, match="Reader used by two threads at the same time"):
        reader.read()
    reader.set_deadline(5)
    assert reader.bytes_read == 0
    pipe.write(LEASE_LOST)


def test_read_inside_a_signal_handler(pipe, wakeup, alarm):
    reader = _core.Reader(pipe.fd, wakeup_fd=wakeup.fd)
    alarm(0.05, reader.read)
    with pytest.raises(RuntimeError, match="signal handler"):
        reader.read()


def test_closed_descriptor(pipe):
    reader = _core.Reader(pipe.fd)
    pipe.close(pipe.fd)
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        reader.read()
    assert caught.value.errno == errno.EBADF


def test_directory(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            _core.Reader(fd).read()
    finally:
        os.close(fd)


@pytest.mark.parametrize("arguments", [{"fd": -1}, {"fd": 0, "wakeup_fd": -1}])
def test_negative_descriptors(arguments):
    with pytest.raises(ValueError, match="must be an open file descriptor, not -1"):
        _core.Reader(**arguments)
