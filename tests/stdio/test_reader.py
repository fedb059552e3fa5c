"""`Reader`: every kind of descriptor, the end of input, deadlines, signals, idleness, misuse."""

import concurrent.futures
import errno
import fcntl
import os
import signal
import socket
import threading
import time

import codec_helpers
import pytest
from fastkcl import _core
from signal_helpers import NUMBER, handled_when_idle, when_idle
from waiting import PATIENCE, wait_until_idle

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
def in_thread():
    """Starts functions in threads and waits for them at the end."""
    threads = []

    def start(function):
        threads.append(threading.Thread(target=function))
        threads[-1].start()
        return threads[-1]

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


def test_one_byte_at_a_time(pipe, in_thread):
    content = codec_helpers.batch_line(20, 100) + LEASE_LOST
    in_thread(lambda: _core.write_all(pipe.writing, content, write_size=1))
    reader = _core.Reader(pipe.fd)
    assert codec_helpers.to_dict(reader.read()) == codec_helpers.whole(content.split(b"\n")[0])
    assert reader.read() == _core.LeaseLost()
    assert reader.bytes_read == len(content)


def test_messages_come_as_they_arrive(pipe):
    reader = _core.Reader(pipe.fd)
    for size in (1, 10, 1000):
        pipe.write(codec_helpers.batch_line(size, 20))
        assert len(reader.read().batch) == size
    pipe.close(pipe.writing)
    assert reader.read() is None
    assert reader.read() is None


def test_descriptor_stays_open(pipe):
    reader = _core.Reader(pipe.fd)
    pipe.write(LEASE_LOST)
    reader.read()
    del reader
    os.fstat(pipe.fd)


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


@pytest.mark.parametrize("part", [b'{"action":', RECORDS[:5000]], ids=["general", "records"])
@pytest.mark.parametrize("before", [b"", INITIALIZE], ids=["first", "second"])
def test_input_ends_inside_a_message(pipe, before, part):
    pipe.write(before + part)
    pipe.close(pipe.writing)
    reader = _core.Reader(pipe.fd)
    assert not before or reader.read().action == "initialize"
    with pytest.raises(_core.DecodeError, match="input ended inside a message") as caught:
        reader.read()
    assert caught.value.kind == "json"
    assert reader.read() is None


@pytest.mark.parametrize("broken", [b'{"action" "leaseLost"}\n', b"nonsense\n"], ids=["almost", "no JSON"])
def test_goes_on_after_a_broken_line(pipe, broken):
    pipe.write(broken + LEASE_LOST)
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


def test_too_long_line_is_given_up_before_its_end(pipe):
    pipe.write(b'{"ignored":"' + b"x" * 5000)
    reader = _core.Reader(pipe.fd, max_line_bytes=1000)
    with pytest.raises(_core.DecodeError) as caught:
        reader.read()
    assert caught.value.kind == "line_too_long"
    pipe.write(b'"}\n' + LEASE_LOST)
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


def test_deadline_keeps_what_was_read(pipe):
    reader = _core.Reader(pipe.fd)
    line = codec_helpers.batch_line(3, 3000)
    pipe.write(line[:4000])
    reader.set_deadline(0.05)
    with pytest.raises(TimeoutError):
        reader.read()
    reader.set_deadline(None)
    pipe.write(line[4000:])
    assert codec_helpers.to_dict(reader.read()) == codec_helpers.whole(line.rstrip(b"\n"))


def test_what_has_arrived_is_handed_out_after_the_deadline(pipe):
    pipe.write(INITIALIZE + LEASE_LOST)
    reader = _core.Reader(pipe.fd)
    reader.set_deadline(0)
    assert [reader.read().action for _ in range(2)] == ["initialize", "leaseLost"]
    with pytest.raises(TimeoutError):
        reader.read()


@pytest.mark.parametrize("seconds", [float("inf"), 1e30])
def test_a_far_deadline_is_none(pipe, seconds):
    reader = _core.Reader(pipe.fd)
    reader.set_deadline(seconds)
    writer = when_idle(lambda: pipe.write(LEASE_LOST))
    assert reader.read() == _core.LeaseLost()
    writer.join()


def test_nan_is_no_deadline(pipe):
    with pytest.raises(ValueError, match="nan"):
        _core.Reader(pipe.fd).set_deadline(float("nan"))


@pytest.mark.parametrize("watched", [True, False])
def test_a_signal_handler_sets_the_deadline(pipe, wakeup, watched):
    """What a graceful stop does: the first signal limits the wait that it interrupts."""
    reader = _core.Reader(pipe.fd, wakeup_fd=wakeup.fd if watched else None)
    begun = []

    def handler():
        begun.append(time.monotonic())
        reader.set_deadline(0.1)

    with handled_when_idle(handler), pytest.raises(TimeoutError):
        reader.read()
    assert time.monotonic() - begun[0] >= 0.1


# Signals.


class StopError(Exception):
    """Raised by a handler."""


def stop():
    raise StopError


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("begun", [b"", b'{"action":'], ids=["at a line's start", "inside a line"])
def test_what_a_handler_raises_comes_out_and_nothing_is_lost(pipe, wakeup, watched, begun):
    pipe.write(begun)
    reader = _core.Reader(pipe.fd, wakeup_fd=wakeup.fd if watched else None)
    with handled_when_idle(stop), pytest.raises(StopError):
        reader.read()
    pipe.write(b'"leaseLost"}\n' if begun else LEASE_LOST)
    assert reader.read() == _core.LeaseLost()


@pytest.mark.parametrize("watched", [True, False])
def test_a_handler_that_returns_lets_waiting_go_on(pipe, wakeup, watched):
    calls = []

    def handler():
        calls.append(time.monotonic())
        if len(calls) == 5:
            pipe.write(LEASE_LOST)

    reader = _core.Reader(pipe.fd, wakeup_fd=wakeup.fd if watched else None)
    with handled_when_idle(handler, times=5):
        assert reader.read() == _core.LeaseLost()
    assert len(calls) == 5


def test_a_wait_goes_on_until_a_handler_raises(pipe):
    calls = []

    def handler():
        calls.append(None)
        if len(calls) == 2:
            raise StopError

    reader = _core.Reader(pipe.fd)
    with handled_when_idle(handler, times=2), pytest.raises(StopError):
        reader.read()
    assert len(calls) == 2
    pipe.write(LEASE_LOST)
    assert reader.read() == _core.LeaseLost()


def test_the_wakeup_descriptor_runs_the_handler_of_a_signal_that_another_thread_got(pipe, wakeup):
    """No system call of the main thread is interrupted then."""

    def kill_itself():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [NUMBER])
        signal.pthread_kill(threading.get_ident(), NUMBER)

    before = signal.signal(NUMBER, lambda *_: stop())
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [NUMBER])
    try:
        reader = _core.Reader(pipe.fd, wakeup_fd=wakeup.fd)
        other = when_idle(kill_itself)
        with pytest.raises(StopError):
            reader.read()
        other.join()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(NUMBER, before)


def test_the_wakeup_descriptor_is_drained(pipe, wakeup):
    """What a signal just before the wait leaves in it must neither be missed nor make every wait return at once."""
    reader = _core.Reader(pipe.fd, wakeup_fd=wakeup.fd)
    os.write(wakeup.writing, bytes([NUMBER]) * 1000)
    reader.set_deadline(0.2)
    with pytest.raises(TimeoutError):
        reader.read()
    with pytest.raises(BlockingIOError):
        os.read(wakeup.fd, 1)


def test_a_wakeup_descriptor_at_its_end_is_left_alone(pipe):
    """poll would report it for ever; a busy loop would use the processor all the time."""
    other = Pipe()
    other.close(other.writing)
    reader = _core.Reader(pipe.fd, wakeup_fd=other.fd)
    writer = when_idle(lambda: pipe.write(LEASE_LOST))  # a busy thread is never idle
    assert reader.read() == _core.LeaseLost()
    writer.join()
    other.close(other.fd)


# Waiting.


def test_waiting_lets_other_threads_run(pipe):
    writer = when_idle(lambda: pipe.write(LEASE_LOST))
    assert _core.Reader(pipe.fd).read() == _core.LeaseLost()
    writer.join()


def test_waiting_in_a_thread_lets_the_main_thread_run(pipe, in_thread):
    got = []
    thread = in_thread(lambda: got.append(_core.Reader(pipe.fd).read()))
    wait_until_idle(os.getpid(), thread.native_id)
    assert thread.is_alive()
    pipe.write(LEASE_LOST)
    thread.join(PATIENCE)
    assert got == [_core.LeaseLost()]


# Misuse.


def test_two_threads_at_the_same_time(pipe, in_thread):
    reader = _core.Reader(pipe.fd)
    wait_until_idle(os.getpid(), in_thread(reader.read).native_id)
    with pytest.raises(RuntimeError, match="Reader used by two threads at the same time"):
        reader.read()
    reader.set_deadline(5)
    assert reader.bytes_read == 0
    pipe.write(LEASE_LOST)


def test_many_threads_at_one_reader(pipe):
    """Each message comes once, to one of them; who comes while another one reads is refused, and nothing is spoilt."""
    reader, count = _core.Reader(pipe.fd), 400
    got: list[object] = []
    refused = []

    def work() -> None:
        while True:
            try:
                message = reader.read()
            except RuntimeError as error:
                refused.append(str(error))
                time.sleep(0.001)
                continue
            if message is None:
                return
            got.append(message)
            assert reader.bytes_read > 0

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        done = [pool.submit(work) for _ in range(8)]
        for n in range(count):
            line = codec_helpers.batch_line(20, 30, seed=n) if n % 2 else LEASE_LOST
            pipe.write(line)
        pipe.close(pipe.writing)
        for future in done:
            future.result(PATIENCE)
    assert len(got) == count
    batches = [message for message in got if isinstance(message, _core.ProcessRecords)]
    assert len(batches) == count // 2
    assert all(len(message.batch) == 20 for message in batches)
    assert set(refused) == {"Reader used by two threads at the same time, or by a signal handler during a call"}


def test_read_inside_a_signal_handler(pipe, wakeup):
    reader = _core.Reader(pipe.fd, wakeup_fd=wakeup.fd)
    with handled_when_idle(reader.read), pytest.raises(RuntimeError, match="signal handler"):
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
