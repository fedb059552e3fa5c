"""`write_all`: all of it, in pieces, without the GIL, and never deaf to signals."""

import os
import socket
import threading
import time

import pytest
from fastkcl import _core
from signal_helpers import handled_when_idle

DATA = bytes(range(256)) * 4096


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as source, os.fdopen(writing, "wb", buffering=0) as sink:
        yield source, sink


def stop():
    raise TimeoutError("stopped by the handler")


def read_in_thread(source, sizes=None):
    received = bytearray()

    def read():
        while piece := source.read(1 << 20):
            received.extend(piece)
            if sizes is not None:
                sizes.append(len(piece))

    thread = threading.Thread(target=read)
    thread.start()
    return thread, received


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("write_size", [1, 4096, 8192, 100_000, 1 << 30])
def test_all_arrives(pipe, blocking, write_size):
    source, sink = pipe
    os.set_blocking(sink.fileno(), blocking)
    data = DATA[: min(len(DATA), write_size * 500)]
    thread, received = read_in_thread(source)
    _core.write_all(sink.fileno(), data, write_size=write_size)
    sink.close()
    thread.join()
    assert received == data


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_kinds_of_buffers(tmp_path, kind):
    with (tmp_path / "out").open("wb") as sink:
        _core.write_all(sink.fileno(), kind(DATA))
        _core.write_all(sink.fileno(), kind(b""))
    assert (tmp_path / "out").read_bytes() == DATA


def test_pieces_have_the_size_asked_for():
    """A datagram socket shows each write."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with ours, theirs:
        _core.write_all(ours.fileno(), DATA[:1000], write_size=400)
        assert [len(theirs.recv(10_000)) for _ in range(3)] == [400, 400, 200]


def test_pause_comes_before_each_piece(pipe):
    source, sink = pipe
    start = time.monotonic()
    _core.write_all(sink.fileno(), b"abcde", write_size=2, pause=0.05)
    assert time.monotonic() - start >= 0.15
    assert source.read(100) == b"abcde"


@pytest.mark.parametrize("blocking", [True, False])
def test_a_signal_ends_a_write_that_nobody_reads(pipe, blocking):
    _, sink = pipe
    os.set_blocking(sink.fileno(), blocking)
    # Within the first 100 ms, when the write was only just blocked.
    with handled_when_idle(stop, looks=2), pytest.raises(TimeoutError, match="stopped by the handler"):
        _core.write_all(sink.fileno(), DATA)


def test_a_signal_ends_a_pause(pipe):
    _, sink = pipe
    with handled_when_idle(stop, looks=2), pytest.raises(TimeoutError, match="stopped by the handler"):
        _core.write_all(sink.fileno(), DATA, pause=86_400)


def test_a_reader_that_is_gone(pipe):
    source, sink = pipe
    source.close()
    with pytest.raises(BrokenPipeError):
        _core.write_all(sink.fileno(), DATA)


@pytest.mark.parametrize("arguments", [{"write_size": 0}, {"pause": -0.1}, {"pause": float("nan")}, {"pause": 1e300}])
def test_arguments_out_of_range(pipe, arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        _core.write_all(pipe[1].fileno(), b"a", **arguments)
