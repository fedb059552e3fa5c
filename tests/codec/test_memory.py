"""Only held bytes take memory, not reserved ones; and it does not grow.

Resident memory is measured in processes of their own (/proc/self/statm), where nothing else allocates.
"""

import os
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

PRELUDE = f"""
import gc, os, sys
sys.path.insert(0, {str(SUPPORT)!r})
import codec_helpers
from fastkcl import _core

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
"""
GROWTH_LIMIT = 6 << 20
"""Bytes a process may gain between warm-up and the end of a long run; one batch of these tests has 0.3 to 2 MB."""


def run(script: str, timeout: float = 120) -> list[str]:
    """Run a script after `PRELUDE` in a Python of its own; its standard output, by lines."""
    child = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PRELUDE + textwrap.dedent(script)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, ""), f"{child.returncode}: {child.stderr}\n{child.stdout}"
    return child.stdout.splitlines()


LOOPS = {
    "decode_line": """
        def once(i):
            _core.decode_line(lines[i % len(lines)])
    """,
    "decoder": """
        decoder = _core.Decoder()
        def once(i):
            line = lines[i % len(lines)]
            for start in range(0, len(line), 65536):
                decoder.feed(line[start:start + 65536])
                for message in decoder:
                    pass
    """,
    "arrow export": """
        import pyarrow
        def once(i):
            table = pyarrow.table(_core.decode_line(lines[i % len(lines)]).batch)
            assert table.num_rows
    """,
    "kept for a while": """
        kept = []
        def once(i):
            batch = _core.decode_line(lines[i % len(lines)]).batch
            kept.append((batch[0], batch.slice(1, 1), batch.__arrow_c_array__()))
            if len(kept) > 3:
                kept.pop(i % 3)
    """,
    "row access": """
        def once(i):
            for record in list(_core.decode_line(lines[i % len(lines)]).batch)[:50]:
                record.data, record.partition_key, record.sequence_number, record.approximate_arrival_timestamp
    """,
    "general path": """
        lines = [b'{"records"' + line[line.index(b":", 12):-2] + b',"action":"processRecords"}' for line in lines]
        def once(i):
            assert len(_core.decode_line(lines[i % len(lines)]).batch)
    """,
    "errors": """
        decoder = _core.Decoder()
        def once(i):
            line = lines[i % len(lines)]
            at = len(line) * (i % 10) // 10 + 60
            broken = line[:at] + b"\\xff" + line[at:]
            decoder.feed(broken)
            for decode in (lambda: list(decoder), lambda: _core.decode_line(broken)):
                try:
                    decode()
                except _core.DecodeError as error:
                    str(error)
                else:
                    raise SystemExit("no error")
            list(decoder)
    """,
    "decoders thrown away inside a line": """
        def once(i):
            decoder = _core.Decoder()
            decoder.feed(lines[i % len(lines)][:-100])
            assert list(decoder) == []
    """,
    "reader": """
        fd = os.memfd_create("lines")
        os.write(fd, b"".join(lines))
        def once(i):
            os.lseek(fd, 0, os.SEEK_SET)
            reader = _core.Reader(fd)
            while reader.read() is not None:
                pass
    """,
}


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.replace(" ", "_"))
def test_thousands_of_batches_do_not_grow(loop: str) -> None:
    output = run(
        """
        lines = [
            codec_helpers.batch_line(2000, 120),
            codec_helpers.batch_line(3, 100_000),
            codec_helpers.batch_line(200, 1000),
        ]
        """
        + LOOPS[loop]
        + """
        for i in range(300):
            once(i)
        gc.collect()
        before = resident()
        for i in range(300, 3300):
            once(i)
        gc.collect()
        print(resident() - before)
        """
    )
    assert int(output[0]) < GROWTH_LIMIT


def test_small_batch_after_a_large_one_holds_little() -> None:
    """A batch that fills less than half of its buffers gets exact ones."""
    decoder = _core.Decoder()
    decoder.feed(codec_helpers.batch_line(2000, 5000))
    decoder.feed(codec_helpers.batch_line(1, 100))
    large, small = (message.batch for message in decoder)
    assert large.nbytes > 2000 * 5000
    assert small.nbytes <= small.capacity_bytes <= 4096


@pytest.mark.parametrize(("records", "size"), [(1, 0), (1, 1), (1, 1_000_000), (9, 300_000), (300, 100), (10_000, 87)])
def test_capacity_is_at_most_twice_what_is_used(records: int, size: int) -> None:
    """Whatever the decoder had to hold before, and slack for empty columns."""
    decoder = _core.Decoder()
    decoder.feed(codec_helpers.batch_line(2000, 2000))
    decoder.feed(codec_helpers.batch_line(records, size))
    _, batch = (message.batch for message in decoder)
    assert batch.nbytes >= records * size
    assert batch.capacity_bytes <= 2 * batch.nbytes + 4096


def test_kept_small_batches_cost_little_resident_memory() -> None:
    """A thousand small batches between large ones, all kept: the large buffers are not kept with them."""
    output = run(
        """
        large, small = codec_helpers.batch_line(2000, 2000), codec_helpers.batch_line(2, 100)
        decoder = _core.Decoder()
        decoder.feed(large)
        list(decoder)
        before = resident()
        kept = []
        for i in range(1000):
            decoder.feed(small)
            kept += decoder
            if i % 50 == 0:
                decoder.feed(large)
                list(decoder)
        print(resident() - before)
        """
    )
    assert int(output[0]) < 24 << 20  # the two or three large batches under way, not a thousand


def test_pool_holds_what_was_dropped_and_no_more() -> None:
    output = run(
        """
        line = codec_helpers.batch_line(2000, 2000)
        assert _core.pool_stats() == {"buffers": 0, "bytes": 0}, _core.pool_stats()
        decoder = _core.Decoder()
        for _ in range(20):
            decoder.feed(line)
            message = next(decoder)
        batch_bytes = message.batch.capacity_bytes
        del message
        stats = _core.pool_stats()
        print(batch_bytes, stats["bytes"])
        """
    )
    batch_bytes, pooled = map(int, output[0].split())
    assert pooled <= 4 * batch_bytes


@pytest.mark.parametrize(("records", "size"), [(10_000, 87), (2000, 5000), (9, 1_000_000)])
def test_idle_reader_gives_memory_back(records: int, size: int) -> None:
    """Before a child waits for its next line the pool is emptied, and the system has the memory back.

    Six batches of 1 to 13 MB are held at the same time (a sink that buffers), dropped, and the reader waits;
    three times, as an allocator may learn from the first time to keep what it gets.
    """
    output = run(
        f"""
        import threading
        line = codec_helpers.batch_line({records}, {size})
        """
        """
        read_end, write_end = os.pipe()
        reader = _core.Reader(read_end, idle_after=0.1)
        before = resident()
        for _ in range(3):
            writer = threading.Thread(target=lambda: [_core.write_all(write_end, line) for _ in range(6)])
            writer.start()
            held = [reader.read() for _ in range(6)]
            writer.join()
            del held
            for _ in range(50):  # on a busy machine a deadline may pass before the reader has seen the silence
                reader.set_deadline(0.2)
                try:
                    reader.read()
                except TimeoutError:
                    reader.set_deadline(None)
                if _core.pool_stats()["bytes"] == 0:
                    break
        print(_core.pool_stats()["bytes"], resident() - before)
        """
    )
    pooled, grown = map(int, output[0].split())
    assert pooled == 0
    assert grown < 8 << 20


def test_silence_between_two_lines_of_a_daemon_costs_no_fresh_memory() -> None:
    """Fresh memory costs a fault a page, and more time than decoding. The batch takes 2,500 pages."""
    output = run(
        """
        import resource, threading, time
        line = codec_helpers.batch_line(2000, 5000)
        read_end, write_end = os.pipe()
        reader = _core.Reader(read_end)

        def write():
            time.sleep(0.15)
            _core.write_all(write_end, line)

        def faults():
            return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

        for _ in range(5):
            writer = threading.Thread(target=write)
            writer.start()
            before = faults()
            reader.read()
            print(faults() - before)
            writer.join()
        """
    )
    first, *others = map(int, output)
    assert first > 2000
    assert max(others) < 200, output


@pytest.mark.parametrize("interrupted_by", ["a signal", "a deadline", "a deadline in the past"])
def test_a_reader_that_is_interrupted_again_and_again_gives_memory_back(interrupted_by: str) -> None:
    """A program's timer, or a deadline of its own, comes more often than `idle_after`; or it polls."""
    output = run(
        f"""
        import signal, threading, time
        by_signal = {interrupted_by == "a signal"}
        seconds = {-1 if interrupted_by == "a deadline in the past" else 0.1}
        line = codec_helpers.batch_line(300, 1024)
        """
        """
        class Over(Exception): pass

        read_end, write_end = os.pipe()
        reader = _core.Reader(read_end, idle_after=0.5)
        writer = threading.Thread(target=_core.write_all, args=(write_end, line))
        writer.start()
        reader.read()
        writer.join()
        begun = time.monotonic()
        print(_core.pool_stats()["bytes"])

        def look(*_):
            if not _core.pool_stats()["bytes"] or time.monotonic() - begun > 20:
                raise Over

        if by_signal:
            signal.signal(signal.SIGALRM, look)
            signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        try:
            while True:
                if not by_signal:
                    reader.set_deadline(seconds)
                try:
                    reader.read()
                except TimeoutError:
                    look()
        except Over:
            print(_core.pool_stats()["bytes"], time.monotonic() - begun >= 0.4)
        """
    )
    pooled, after = output
    assert int(pooled) > 0
    assert after == "0 True"


def test_idle_reader_sleeps() -> None:
    """One wake-up to give memory back, 2.5 s after the last line, then none."""
    output = run(
        """
        import threading
        from waiting import wait_until, wait_until_idle
        line = codec_helpers.batch_line(300, 1024)
        read_end, write_end = os.pipe()

        def watch():
            try:
                wait_until(lambda: not _core.pool_stats()["bytes"], "the memory to be given back")
                wait_until_idle(os.getpid(), looks=40)
                print("idle")
            finally:
                _core.write_all(write_end, b'{"action":"leaseLost"}\\n')

        writer = threading.Thread(target=_core.write_all, args=(write_end, line))
        writer.start()
        reader = _core.Reader(read_end)
        reader.read()
        writer.join()
        print(_core.pool_stats()["bytes"])
        watcher = threading.Thread(target=watch)
        watcher.start()
        assert reader.read() == _core.LeaseLost()
        watcher.join()
        """
    )
    pooled, idle = output
    assert int(pooled) > 300 * 1024
    assert idle == "idle"


@pytest.mark.parametrize("way", ["answers", "aggregates", "lines"])
def test_a_large_batch_that_is_held_while_others_come_does_not_rest(way: str) -> None:
    """Its buffers would stay for good: nobody asks for so large ones again, and answers have no moment of silence."""
    output = run(
        """
        import base64, hashlib, json

        def answer(data, count=1):
            record = {"Data": base64.b64encode(data).decode(), "PartitionKey": "k", "SequenceNumber": "1"}
            return _core.decode_get_records(json.dumps({"Records": [record] * count}).encode()).batch

        def of_aggregates():
            message = b"\\x0a\\x80\\x02" + b"k" * 256 + b"\\x1a\\x04\\x08\\x00\\x1a\\x00" * 130_000
            return _core.deaggregate(answer(b"\\xf3\\x89\\x9a\\xc2" + message + hashlib.md5(message).digest())).batch

        def line(rows, size):
            return _core.decode_line(codec_helpers.batch_line(rows, size)).batch
        """
        f"""
        make, other = {{
            "answers": (lambda: answer(bytes(1 << 20), 34), lambda: answer(b"x")),
            "aggregates": (of_aggregates, lambda: answer(b"x")),
            "lines": (lambda: line(34, 1 << 20), lambda: line(1, 10)),
        }}[{way!r}]
        """
        """
        batch = make()
        other()
        assert batch.capacity_bytes > 33 << 20
        del batch
        gc.collect()
        other()
        print(_core.pool_stats()["bytes"])
        """
    )
    assert int(output[0]) < 1 << 20


def test_import_keeps_the_batch_and_nothing_else() -> None:
    """One kept Arrow column keeps its batch's buffers; after it is dropped nothing is held but the pool."""
    output = run(
        """
        import pyarrow
        line = codec_helpers.batch_line(2000, 2000)
        decoder = _core.Decoder()
        columns = []
        for _ in range(10):
            decoder.feed(line)
            columns.append(pyarrow.record_batch(next(decoder).batch).column("data"))
        held = resident()
        del columns[1:]
        gc.collect()
        one_left = resident()
        assert len(columns[0]) == 2000
        del columns, decoder
        gc.collect()
        print(held - one_left, _core.pool_stats()["bytes"])
        """
    )
    freed, pooled = map(int, output[0].split())
    assert freed > 4 * 2000 * 2000  # nine dropped, at most four of them in the pool
    assert pooled == 0  # without a decoder nobody will use it


def test_a_long_line_one_byte_at_a_time_takes_linear_time() -> None:
    """Feeding bytes one by one must not look at what came before again."""
    small, large = codec_helpers.batch_line(1, 30_000), codec_helpers.batch_line(1, 240_000)

    def seconds(line: bytes) -> float:
        decoder = _core.Decoder()
        pieces = [line[i : i + 1] for i in range(len(line))]
        start = time.process_time()
        for piece in pieces:
            decoder.feed(piece)
        taken = time.process_time() - start
        assert len(list(decoder)) == 1
        return taken

    baseline = min(seconds(small) for _ in range(3))
    assert min(seconds(large) for _ in range(2)) < baseline * 8 * 4  # eight times the bytes; quadratic would be 64


def test_many_chunks_of_ignored_text_take_linear_time() -> None:
    """The same for a line that is collected before it is parsed."""
    line = b'{"ignored":"' + b"x" * 400_000 + b'","action":"leaseLost"}\n'

    def seconds(content: bytes) -> float:
        decoder = _core.Decoder()
        start = time.process_time()
        for at in range(len(content)):
            decoder.feed(content[at : at + 1])
            assert decoder is iter(decoder)
        taken = time.process_time() - start
        assert list(decoder) == [_core.LeaseLost()]
        return taken

    part = b'{"ignored":"' + b"x" * 50_000 + b'","action":"leaseLost"}\n'
    baseline = min(seconds(part) for _ in range(3))
    assert min(seconds(line) for _ in range(2)) < baseline * 8 * 4


def test_line_limit_bounds_memory() -> None:
    """A line without an end is given up at the limit: what is held does not depend on what is sent."""
    output = run(
        """
        decoder = _core.Decoder(max_line_bytes=1 << 20)
        before = resident()
        failed = 0
        for start in (b'{"ignored":"', b'{"action":"processRecords","records":[{"data":"', b'{"\\\\u0061'):
            decoder.feed(start)
            for _ in range(2000):
                decoder.feed(b"A" * 65536)
                try:
                    assert list(decoder) == []
                except _core.DecodeError as error:
                    assert error.kind == "line_too_long", error
                    failed += 1
            decoder.feed(b"\\n")
            assert list(decoder) == []
        assert failed == 3, failed
        print(resident() - before)
        """
    )
    assert int(output[0]) < 8 << 20


def test_released_on_another_thread() -> None:
    """The last holder may be any thread, also one that has never seen the decoder."""
    line = codec_helpers.batch_line(500, 500)
    for _ in range(50):
        holder = [pa.record_batch(codec_helpers.batch_of(line))]
        thread = threading.Thread(target=holder.clear)
        thread.start()
        thread.join()
        assert not holder


def test_open_descriptors_do_not_grow() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(200):
        codec_helpers.read_from_descriptor(b'{"action":"leaseLost"}')
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
