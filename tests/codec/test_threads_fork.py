"""Threads, forks and the end of the interpreter: batches can be released anywhere, and decoding is parallel."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import codec_helpers
import pyarrow as pa
import pytest
from fastkcl import _core
from paths import SUPPORT


def run(script: str, timeout: float = 60) -> str:
    """A script in a Python of its own, which must end well and say nothing on stderr; its standard output."""
    prelude = f"import os, sys\nsys.path.insert(0, {str(SUPPORT)!r})\nimport codec_helpers\nfrom fastkcl import _core\n"
    # Python 3.12 and newer warn of a fork beside threads, which is the case here.
    options = ("-X", "faulthandler", "-W", "ignore:This process:DeprecationWarning")
    child = subprocess.run(
        [sys.executable, *options, "-c", prelude + textwrap.dedent(script)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, ""), f"{child.returncode}: {child.stderr}"
    return child.stdout


def test_threads_decode_in_parallel_and_get_their_own_results() -> None:
    lines = [codec_helpers.batch_line(50 + seed, 20 * seed, seed=seed) for seed in range(8)]
    expected = [pa.record_batch(codec_helpers.batch_of(line)) for line in lines]

    def work(index: int) -> None:
        decoder = _core.Decoder()
        line = lines[index]
        for turn in range(60):
            for start in range(0, len(line), 1000 + turn):
                decoder.feed(line[start : start + 1000 + turn])
            (message,) = decoder
            assert isinstance(message, _core.ProcessRecords)
            assert pa.record_batch(message.batch).equals(expected[index])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(work, index) for index in range(8)]:
            future.result()


def test_one_batch_is_read_by_many_threads() -> None:
    batch = codec_helpers.batch_of(codec_helpers.batch_line(200, 100))
    expected = [codec_helpers.record_dict(record) for record in batch]

    def work() -> None:
        for _ in range(20):
            assert [codec_helpers.record_dict(record) for record in batch] == expected
            assert pa.record_batch(batch).num_rows == 200

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work) for _ in range(8)]:
            future.result()


def test_decode_lets_other_threads_run() -> None:
    """A Python thread makes progress while another decodes long lines: the GIL is released."""
    line = codec_helpers.batch_line(8, 1 << 20)
    counted = 0
    stop = False

    def count() -> None:
        nonlocal counted
        while not stop:
            counted += 1
            time.sleep(0)

    counter = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # nobody is made to give the GIL up: only who releases it lets others run
    try:
        counter.start()
        start = counted
        for _ in range(20):
            codec_helpers.batch_of(line)
        progress = counted - start
    finally:
        stop = True
        sys.setswitchinterval(interval)
        counter.join()
    assert progress >= 20


def test_decoder_refuses_two_threads_at_once() -> None:
    """RuntimeError, no crash and no mixed lines; alone again it goes on."""
    decoder = _core.Decoder()
    line = codec_helpers.batch_line(4, 1 << 20)
    refused = []
    barrier = threading.Barrier(2)

    def feed() -> None:
        barrier.wait()
        for _ in range(30):
            try:
                decoder.feed(line)
            except RuntimeError as error:
                refused.append(error)

    threads = [threading.Thread(target=feed) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages = list(decoder)
    assert len(messages) + len(refused) == 60
    assert all(len(message.batch) == 4 for message in messages)


def test_batches_outlive_their_decoder() -> None:
    decoder = _core.Decoder()
    decoder.feed(codec_helpers.batch_line(300, 300))
    batch = next(decoder).batch
    expected = pa.record_batch(codec_helpers.batch_of(codec_helpers.batch_line(300, 300)))
    del decoder
    for seed in range(20):
        codec_helpers.batch_of(codec_helpers.batch_line(300, 300, seed=seed + 1))
    assert pa.record_batch(batch).equals(expected)


def in_forked_child(work) -> int:
    """Exit status of a forked child that does `work`; a child that hangs is killed by its alarm."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(240)
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_batches_are_released_after_fork() -> None:
    """In the child and in the parent, in either order; both decode on."""
    line = codec_helpers.batch_line(500, 500)
    held = [codec_helpers.batch_of(line) for _ in range(4)]
    imported = [pa.record_batch(batch) for batch in held]
    expected = imported[0].to_pydict()

    def child() -> None:
        assert imported[0].to_pydict() == expected
        held.clear()
        imported.clear()
        for _ in range(20):
            assert pa.record_batch(codec_helpers.batch_of(line)).to_pydict() == expected

    assert in_forked_child(child) == 0
    assert imported[0].to_pydict() == expected
    held.clear()
    imported.clear()
    assert pa.record_batch(codec_helpers.batch_of(line)).to_pydict() == expected


def test_open_line_survives_fork() -> None:
    """A decoder that is inside a line at the fork goes on in both processes."""
    line = codec_helpers.batch_line(100, 1000)
    decoder = _core.Decoder()
    decoder.feed(line[:50_000])
    assert list(decoder) == []

    def finish() -> None:
        decoder.feed(line[50_000:])
        (message,) = decoder
        assert pa.record_batch(message.batch).equals(pa.record_batch(codec_helpers.batch_of(line)))

    assert in_forked_child(finish) == 0
    finish()


def test_fork_while_threads_release_batches() -> None:
    """No lock that a vanished thread held may stop the child: 100 forks beside two busy threads."""
    run(
        """
        import signal, threading, time
        line = codec_helpers.batch_line(200, 200)
        stop = False
        def busy():
            while not stop:
                for _ in range(10):
                    _core.decode_line(line)
        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        held = _core.decode_line(line).batch
        for turn in range(100):
            pid = os.fork()
            if pid == 0:
                signal.alarm(240)
                held = None
                assert len(_core.decode_line(line).batch) == 200
                assert _core.pool_stats()["bytes"] >= 0
                os._exit(0)
            status = os.waitpid(pid, 0)[1]
            assert status == 0, (turn, status)
        stop = True
        for thread in threads:
            thread.join()
        """
    )


@pytest.mark.parametrize(
    "holding",
    [
        "batch = _core.decode_line(line).batch",
        "import pyarrow; kept = pyarrow.table(_core.decode_line(line).batch)",
        "kept = _core.decode_line(line).batch.__arrow_c_array__()",
        "import builtins; builtins.kept = [_core.decode_line(line).batch]; builtins.kept.append(builtins.kept)",
        "import atexit; atexit.register(lambda batch: print(len(batch)), _core.decode_line(line).batch)",
        "kept = _core.Decoder(); kept.feed(line[:-50]); list(kept)",
        "import threading; b = _core.decode_line(line).batch; e = threading.Event(); "
        "threading.Thread(target=lambda: (e.wait(10), b), daemon=True).start()",
    ],
    ids=["batch", "arrow", "capsule", "cycle", "atexit", "open_line", "daemon_thread"],
)
def test_interpreter_ends_while_batches_are_alive(holding: str) -> None:
    run(f"line = codec_helpers.batch_line(300, 300)\n{holding}\n")


def test_reader_waiting_in_a_daemon_thread_lets_the_interpreter_end() -> None:
    run(
        """
        import threading
        from waiting import wait_until_idle
        read_end, write_end = os.pipe()
        reader = _core.Reader(read_end)
        thread = threading.Thread(target=reader.read, daemon=True)
        thread.start()
        wait_until_idle(os.getpid(), thread.native_id)
        """
    )
