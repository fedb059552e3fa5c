"""The buffer between a protocol and Spark: its writes, their time and thread, and its commits."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from fastkcl.write_after import BatchBuffer, Run, Unordered
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import PATIENCE, wait_until, wait_until_gone, wait_until_idle


@dataclass(frozen=True)
class Rows:
    """A batch of bare numbers: a row is (position, group, bytes)."""

    rows: tuple[tuple[int, int | None, int], ...]
    allocated: int | None = None

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return sum(size for _, _, size in self.rows)

    @property
    def capacity_bytes(self) -> int:
        return self.nbytes if self.allocated is None else self.allocated

    def slice(self, offset: int, length: int | None = None) -> Rows:
        end = None if length is None else offset + length
        return Rows(self.rows[offset:end], self.allocated)


UNREADABLE = -1


class RowOrder:
    def position(self, batch: Rows, row: int) -> int:
        if batch.rows[row][0] == UNREADABLE:
            raise ValueError("unreadable")
        return batch.rows[row][0]

    def group(self, batch: Rows, row: int) -> int | None:
        return batch.rows[row][1]


def rows(*positions: int, size: int = 10, groups: tuple[int | None, ...] = (), allocated: int | None = None) -> Rows:
    return Rows(
        tuple((p, g, size) for p, g in zip(positions, groups or (None,) * len(positions), strict=True)), allocated
    )


_made: list[BatchBuffer[Rows, int]] = []


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    close_all()


def close_all() -> None:
    while _made:
        buffer = _made.pop()
        buffer.discard()
        assert buffer.join(PATIENCE)


def settle(buffer: BatchBuffer[Rows, int]) -> None:
    """Wait until the writer has nothing to do, or has failed."""
    wait_until(lambda: not buffer.busy or buffer._stalled, "an idle writer", seen=lambda: vars(buffer), step=0.0005)


def add(buffer: BatchBuffer[Rows, int], batch: Rows, sink: Sink) -> None:
    """Add a batch, and a tick when it is written: what it leads to is there then, or raised."""
    buffer.add(batch, sink.commit)
    settle(buffer)
    buffer.add(rows(), sink.commit)


def wait_until_blocked(thread: threading.Thread | None) -> None:
    """Wait until a thread has done what it can, and waits for another one."""
    assert thread is not None
    wait_until_idle(os.getpid(), thread.native_id)


@dataclass
class Sink:
    """Where runs go: fails as often as told, first."""

    fail: dict[int, int] = field(default_factory=dict)  # by number of the write
    runs: list[list[int]] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    commits: list[int | None] = field(default_factory=list)
    refuse: int = 0
    now: float = 100.0
    writes: int = 0
    gate: threading.Event | None = None  # a write waits for it
    begun: threading.Event = field(default_factory=threading.Event)

    def write(self, run: Run[Rows, int]) -> None:
        assert threading.current_thread().name == "fastkcl-writer"
        self.begun.set()
        if self.gate is not None:
            assert self.gate.wait(PATIENCE)
        number, self.writes = self.writes, self.writes + 1
        if self.fail.get(number):
            raise RuntimeError(f"write {number} failed")
        positions = [position for batch in run.batches for position, _, _ in batch.rows]
        assert run.rows == len(positions)
        assert run.nbytes == sum(batch.nbytes for batch in run.batches)
        assert all(batch.num_rows for batch in run.batches)
        assert (run.first_position, run.last_position) == (positions[0], positions[-1])
        self.runs.append(positions)
        self.attempts.append(run.attempt)

    def commit(self, position: int | None) -> bool:
        if self.refuse:
            self.refuse -= 1
            return False
        self.commits.append(position)
        return True

    def buffer(self, **changes: float) -> BatchBuffer[Rows, int]:
        bounds = {
            "max_bytes": 100,
            "max_records": 1000,
            "max_run_bytes": 1000,
            "max_held_bytes": 1_000_000,
            "max_age": 3600.0,
            "commit_interval": 10.0,
        } | changes
        buffer: BatchBuffer[Rows, int] = BatchBuffer(
            self.write,
            RowOrder(),
            clock=lambda: self.now,
            **bounds,  # type: ignore[arg-type]
        )
        _made.append(buffer)
        return buffer


# Bounds (max_bytes 100, rows of 10 bytes): what is added, what is written by then, what is still held.
BOUNDS = [
    ("below", {}, [rows(*range(9))], [], 9),
    ("bytes reached by one batch", {}, [rows(*range(10))], [[*range(10)]], 0),
    ("bytes reached together", {}, [rows(*range(6)), rows(*range(6, 12))], [[*range(12)]], 0),
    ("records reached", {"max_records": 4}, [rows(0, 1), rows(2), rows(3), rows(4)], [[0, 1, 2, 3]], 1),
    ("allocated memory counts", {}, [rows(0, allocated=60), rows(1, allocated=60)], [[0, 1]], 0),
    ("runs are cut by bytes", {"max_run_bytes": 40}, [rows(*range(10))], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], 0),
    (
        "a cut inside the second batch",
        {"max_run_bytes": 70},
        [rows(0, 1, 2, 3), rows(*range(4, 10))],
        [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9]],
        0,
    ),
    ("a row larger than a run goes alone", {"max_run_bytes": 5}, [rows(*range(10))], [[row] for row in range(10)], 0),
    ("empty batches are nothing", {}, [rows(), rows(0), rows()], [], 1),
]


@pytest.mark.parametrize(("bounds", "batches", "runs", "held"), [row[1:] for row in BOUNDS], ids=[r[0] for r in BOUNDS])
def test_bounds(bounds: dict[str, float], batches: list[Rows], runs: list[list[int]], held: int) -> None:
    sink = Sink()
    buffer = sink.buffer(**bounds)
    for batch in batches:
        add(buffer, batch, sink)
    assert (sink.runs, buffer.rows) == (runs, held)
    assert buffer.flush(at_end=True)
    assert [p for run in sink.runs for p in run] == [p for b in batches for p, _, _ in b.rows]
    assert (buffer.rows, buffer.capacity_bytes) == (0, 0)


def test_a_run_ends_by_what_fits_and_has_it() -> None:
    """A group that ends elsewhere makes the run shorter, or longer if the run begins with it."""
    written: list[tuple[list[int], list[int]]] = []

    class FittedSink(Sink):
        def write(self, run: Run[Rows, int]) -> None:
            super().write(run)
            written.append((self.runs[-1], [position for position, _, _ in run.fitted.rows]))

    def three(batches: Sequence[Rows]) -> Rows:
        return Rows(tuple(row for batch in batches for row in batch.rows)[:3])

    sink = FittedSink()
    buffer = sink.buffer(fit=three)  # type: ignore[arg-type]
    add(buffer, rows(*range(4), groups=(1, 1, 2, 2)), sink)
    add(buffer, rows(*range(4, 7), groups=(2, 2, 3)), sink)
    assert buffer.flush(at_end=True)
    assert written == [([0, 1], [0, 1, 2]), ([2, 3, 4, 5], [2, 3, 4]), ([6], [6])]


def test_what_fit_raises_is_the_writes() -> None:
    def refuse(_batches: Sequence[Rows]) -> Rows:
        raise RuntimeError("nothing fits")

    sink = Sink()
    buffer = sink.buffer(fit=refuse, max_records=1)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="nothing fits"):
        add(buffer, rows(0), sink)
    assert (sink.runs, buffer.rows) == ([], 1)


# Groups: rows of one number are never parted. (rows with their groups, at the end?, what is written, what is held)
GROUPS = [
    ("the last group waits", [rows(0, 1, 2, groups=(7, 8, 8))], False, [[0]], 2),
    ("a single group waits as a whole", [rows(0, 1, groups=(7, 7))], False, [], 2),
    ("it may go on in the next batch", [rows(0, 1, groups=(6, 7)), rows(2, 3, groups=(7, 8))], False, [[0, 1, 2]], 1),
    ("the end releases it", [rows(0, 1, 2, groups=(7, 8, 8))], True, [[0, 1, 2]], 0),
    ("no group, no waiting", [rows(0, 1, groups=(7, None))], False, [[0, 1]], 0),
    ("cuts go back to a boundary", [rows(*range(6), groups=(1, 1, 2, 2, 2, 3))], True, [[0, 1], [2, 3, 4], [5]], 0),
    ("a group larger than a run stays whole", [rows(*range(5), groups=(1, 1, 1, 1, 2))], True, [[0, 1, 2, 3], [4]], 0),
]


@pytest.mark.parametrize(
    ("batches", "at_end", "runs", "held"), [row[1:] for row in GROUPS], ids=[row[0] for row in GROUPS]
)
def test_groups_are_not_parted(batches: list[Rows], at_end: bool, runs: list[list[int]], held: int) -> None:
    sink = Sink()
    buffer = sink.buffer(max_bytes=10_000, max_run_bytes=30)
    for batch in batches:
        add(buffer, batch, sink)
    buffer.flush(at_end=at_end)
    assert (sink.runs, buffer.rows) == (runs, held)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50)), max_size=8), max_size=8),
    st.integers(1, 200),
    st.integers(1, 200),
    st.integers(1, 12),
    st.integers(0, 300),
    st.lists(st.integers(0, 20), max_size=8),
    st.booleans(),
)
def test_everything_once_in_order_and_groups_whole(
    shape: list[list[tuple[int, int]]],
    max_bytes: int,
    max_run_bytes: int,
    max_records: int,
    room: int,
    failing: list[int],
    grouped: bool,
) -> None:
    """Whatever the bounds are and whichever writes fail: retried in place, every row is written once, in order."""
    group = 0
    batches, expected = [], []
    for rows_of_batch in shape:
        made = []
        for step, size in rows_of_batch:
            group += step > 1  # about half of the rows go on with the group before
            made.append((len(expected), group if grouped else None, size))
            expected.append(group)
        batches.append(Rows(tuple(made)))
    sink = Sink(fail=dict.fromkeys(failing, 1))
    buffer = sink.buffer(
        max_bytes=max_bytes,
        max_run_bytes=max_run_bytes,
        max_records=max_records,
        max_held_bytes=max_bytes + room,
        commit_interval=0,
    )
    for batch in batches:
        while True:
            try:
                buffer.add(batch, sink.commit)
            except RuntimeError:
                continue
            break
        assert buffer.capacity_bytes <= max(max_bytes + room, *(each.nbytes for each in batches), 0) or grouped
        done = sum(map(len, sink.runs))
        assert all(position is not None and position < done for position in sink.commits)
    while True:
        try:
            buffer.flush(at_end=True)
        except RuntimeError:
            continue
        break
    close_all()
    assert [row for run in sink.runs for row in run] == list(range(len(expected)))
    assert sink.commits == sorted(set(sink.commits))  # type: ignore[type-var]
    if grouped:
        for run in sink.runs[:-1]:
            assert expected[run[-1]] != expected[run[-1] + 1]
    for run in sink.runs:
        sizes = {position: size for batch in batches for position, _, size in batch.rows}
        assert sum(sizes[row] for row in run) <= max_run_bytes or len(run) == 1 or grouped


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=8),
    st.integers(1, 200),
    st.integers(1, 200),
    st.lists(st.integers(0, 20), max_size=8),
    st.booleans(),
    st.data(),
)
def test_with_what_is_given_up_everything_is_there_once(
    shape: list[list[int]],
    max_bytes: int,
    max_run_bytes: int,
    failing: list[int],
    grouped: bool,
    data: st.DataObject,
) -> None:
    """Whichever writes fail, and whether that is retried or given up: each row is written or given up, in order."""
    group = 0
    sink = Sink(fail=dict.fromkeys(failing, 1))
    buffer = sink.buffer(max_bytes=max_bytes, max_run_bytes=max_run_bytes, commit_interval=0)
    given: list[int] = []
    groups: list[int] = []

    def until_done(act: Callable[[], None], batch: Rows | None, *, at_end: bool) -> None:
        while True:
            try:
                act()
            except RuntimeError:
                if data.draw(st.booleans()):
                    continue
                let_go = buffer.give_up(batch, at_end=at_end)
                given.extend(position for rest in let_go for position, _, _ in rest.rows)
                if batch is None:
                    continue
            return

    for steps in shape:
        made = []
        for step in steps:
            group += step > 1
            made.append((len(groups), group if grouped else None, 10))
            groups.append(group)
        batch = Rows(tuple(made))
        until_done(lambda batch=batch: buffer.add(batch, sink.commit), batch, at_end=False)  # type: ignore[misc]
        out = sum(map(len, sink.runs)) + len(given)
        assert all(position is not None and position < out for position in sink.commits)
    until_done(lambda: buffer.flush(at_end=True), None, at_end=True)
    buffer.commit(sink.commit)
    close_all()
    written = [position for run in sink.runs for position in run]
    assert sorted([*written, *given]) == [*range(len(groups))]
    assert (written, given) == (sorted(written), sorted(given))
    assert sink.commits == sorted(sink.commits)
    assert not groups or sink.commits[-1] == len(groups) - 1
    if grouped:  # never one half here and the other there
        assert {groups[position] for position in written}.isdisjoint(groups[position] for position in given)


def failed(buffer: BatchBuffer[Rows, int], batch: Rows, sink: Sink) -> None:
    """The write of what is held has failed, and a further batch meets it."""
    settle(buffer)
    with pytest.raises(RuntimeError, match="failed"):
        buffer.add(batch, sink.commit)


class TestBehind:
    """The caller goes on while a write takes its time."""

    def test_add_returns_at_once_until_the_bound_is_reached(self) -> None:
        sink = Sink(gate=threading.Event())
        assert sink.gate is not None
        buffer = sink.buffer(max_bytes=20, max_held_bytes=100)
        for number in range(10):  # the write of the first two is under way all the time
            buffer.add(rows(number), sink.commit)
        assert (buffer.capacity_bytes, sink.runs, sink.commits) == (100, [], [])
        eleventh = threading.Thread(target=buffer.add, args=(rows(10), sink.commit))
        eleventh.start()
        wait_until_blocked(eleventh)
        assert eleventh.is_alive()
        assert buffer.capacity_bytes == 100
        sink.gate.set()
        eleventh.join(PATIENCE)
        assert not eleventh.is_alive()
        assert buffer.flush(at_end=True)
        assert sink.runs == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10]]

    @pytest.mark.parametrize("at", ["add", "flush"])
    def test_a_signal_that_another_thread_gets_ends_the_wait(self, at: str) -> None:
        class Signalled(Exception):  # noqa: N818 - no error
            pass

        def stop(number: int, _frame: object) -> None:
            raise Signalled(number)

        def send() -> None:
            wait_until_blocked(threading.main_thread())
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

        sink = Sink(gate=threading.Event())
        assert sink.gate is not None
        buffer = sink.buffer(max_bytes=20, max_held_bytes=20)
        buffer.add(rows(0, 1), sink.commit)
        sender = threading.Thread(target=send)
        release = threading.Timer(PATIENCE / 2, sink.gate.set)
        before = signal.signal(signal.SIGUSR1, stop)
        try:
            sender.start()
            release.start()
            with pytest.raises(Signalled):
                buffer.add(rows(2, 3), sink.commit) if at == "add" else buffer.flush(at_end=True)
            assert not sink.gate.is_set()
        finally:
            signal.signal(signal.SIGUSR1, before)
            release.cancel()
            sink.gate.set()
            sender.join()

    def test_memory_that_is_held_counts_for_the_bound(self) -> None:
        sink = Sink(gate=threading.Event())
        assert sink.gate is not None
        buffer = sink.buffer(max_bytes=500, max_held_bytes=1000)
        buffer.add(rows(0, allocated=600), sink.commit)
        second = threading.Thread(target=buffer.add, args=(rows(1, allocated=600), sink.commit))
        second.start()
        wait_until_blocked(second)
        assert second.is_alive()
        sink.gate.set()
        second.join(PATIENCE)
        assert not second.is_alive()

    def test_the_rest_of_a_batch_keeps_all_of_it_allocated(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_bytes=500, max_held_bytes=1000)
        buffer.add(rows(0, 1, 2, groups=(7, 7, 8), allocated=600), sink.commit)
        settle(buffer)
        assert (sink.runs, buffer.rows, buffer.capacity_bytes) == ([[0, 1]], 1, 600)

    def test_a_batch_larger_than_the_bound_goes_alone(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_bytes=100, max_held_bytes=100)
        buffer.add(rows(0), sink.commit)
        buffer.add(rows(*range(1, 31)), sink.commit)
        assert sink.runs == [[0]]
        assert buffer.flush(at_end=True)
        assert sink.runs == [[0], [*range(1, 31)]]

    def test_a_group_that_may_go_on_does_not_wait_for_itself(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_bytes=30, max_held_bytes=30)
        for number in range(10):
            buffer.add(rows(number, groups=(7,)), sink.commit)
        assert (sink.runs, buffer.rows) == ([], 10)
        buffer.add(rows(10, groups=(8,)), sink.commit)
        assert buffer.flush(at_end=False)
        assert sink.runs == [[*range(10)]]

    def test_what_has_waited_for_max_age_is_written_without_any_call(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_age=10.0)
        buffer.add(rows(0, 1), sink.commit)
        wait_until_blocked(buffer._thread)
        assert sink.runs == []
        sink.now += 5
        buffer.add(rows(2), sink.commit)  # the age is the first one's
        sink.now += 5
        buffer.add(rows(), sink.commit)  # nothing new; but the writer looks at this test's clock when it is woken
        with buffer._changed:
            buffer._changed.notify_all()
        wait_until(lambda: sink.runs == [[0, 1, 2]], "the writes", seen=lambda: sink.runs)

    def test_max_age_on_a_clock_that_runs(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_age=0.2)
        buffer._clock = time.monotonic
        begun = time.monotonic()
        buffer.add(rows(0), sink.commit)
        wait_until(lambda: sink.runs == [[0]], "the writes", seen=lambda: sink.runs)
        assert time.monotonic() - begun >= 0.2

    def test_a_group_is_not_parted_by_its_age(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_age=0.01)
        buffer._clock = time.monotonic
        buffer.add(rows(0, 1, 2, groups=(6, 7, 7)), sink.commit)
        wait_until(lambda: sink.runs == [[0]], "the writes", seen=lambda: sink.runs)
        wait_until_blocked(buffer._thread)
        buffer.add(rows(3, 4, groups=(7, 8)), sink.commit)
        wait_until(lambda: sink.runs == [[0], [1, 2, 3]], "the writes", seen=lambda: sink.runs)

    def test_no_age_at_all(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_age=float("inf"))
        buffer.add(rows(0), sink.commit)
        assert buffer.flush(at_end=True)
        assert sink.runs == [[0]]

    def test_a_flush_that_takes_too_long_leaves_the_writer_at_it(self) -> None:
        sink = Sink(gate=threading.Event())
        assert sink.gate is not None
        buffer = sink.buffer()
        buffer.add(rows(0), sink.commit)
        begun = time.monotonic()
        assert not buffer.flush(at_end=True, timeout=0.1)
        assert time.monotonic() - begun >= 0.1
        sink.gate.set()
        assert buffer.flush(at_end=True, timeout=PATIENCE)
        assert sink.runs == [[0]]

    def test_a_write_that_hangs_does_not_hold_up_the_end(self) -> None:
        sink = Sink(gate=threading.Event())
        assert sink.gate is not None
        buffer = sink.buffer(max_bytes=1)
        buffer.add(rows(0), sink.commit)
        assert sink.begun.wait(PATIENCE)
        assert buffer.discard() == [rows(0)]
        assert not buffer.join(0.05)
        assert buffer._thread is not None
        assert buffer._thread.daemon
        sink.gate.set()
        assert buffer.join(PATIENCE)

    def test_no_thread_before_there_is_anything(self) -> None:
        sink = Sink()
        buffer = sink.buffer()
        buffer.add(rows(), sink.commit)
        assert buffer._thread is None

    @pytest.mark.parametrize("failure", [SystemExit(3), KeyboardInterrupt(), MemoryError()])
    def test_whatever_a_write_raises_is_the_callers(self, failure: BaseException) -> None:
        def write(_run: Run[Rows, int]) -> None:
            raise failure

        buffer = Sink().buffer(max_bytes=1)
        buffer._write = write
        buffer.add(rows(0), Sink().commit)
        settle(buffer)
        with pytest.raises(type(failure)):
            buffer.add(rows(1), Sink().commit)

    def test_an_idle_buffer_holds_no_batch(self) -> None:
        import gc
        import weakref

        sink = Sink()
        buffer = sink.buffer(max_bytes=1)
        gc.disable()
        try:
            batch = rows(0)
            ends = weakref.ref(batch)
            buffer.add(batch, sink.commit)
            del batch
            wait_until(lambda: ends() is None, "the end of the batch", seen=ends)
        finally:
            gc.enable()


class TestFork:
    """A fork in user code, at any moment: the child neither waits for locks of its parent nor does its work."""

    def in_child(self, work: Callable[[], None]) -> int:
        child = os.fork()
        if child == 0:
            try:
                work()
            except RuntimeError as error:
                os._exit(7 if "forked child" in str(error) else 8)
            except BaseException:
                os._exit(9)
            os._exit(0)
        wait_until_gone(child, "the end of the forked child")
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_while_the_lock_is_held(self) -> None:
        sink = Sink()
        buffer = sink.buffer()
        buffer.add(rows(0), sink.commit)
        with buffer._changed:
            assert self.in_child(lambda: buffer.add(rows(1), sink.commit)) == 7
            assert self.in_child(lambda: buffer.flush(at_end=True) and None) == 7
            assert self.in_child(lambda: buffer.give_up(None, at_end=True) and None) == 7

            def end() -> None:
                assert buffer.discard() == []
                assert buffer.join(PATIENCE)

            assert self.in_child(end) == 0
        assert buffer.flush(at_end=True)
        assert sink.runs == [[0]]

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_in_a_write_that_comes_back_twice(self) -> None:
        codes: list[int] = []

        def write(_run: Run[Rows, int]) -> None:
            child = os.fork()
            if child:
                codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        sink = Sink()
        buffer = sink.buffer(max_bytes=1)
        buffer._write = write
        buffer.add(rows(0), sink.commit)
        assert buffer.flush(at_end=True)
        assert codes == [1]


class TestRetry:
    def test_a_batch_that_meets_a_failure_is_not_adopted(self) -> None:
        sink = Sink(fail={0: 1})
        buffer = sink.buffer()
        buffer.add(rows(*range(10)), sink.commit)
        failed(buffer, rows(10), sink)
        assert (buffer.rows, sink.runs, sink.commits) == (10, [], [])

    def test_a_tick_meets_it_as_well(self) -> None:
        sink = Sink(fail={0: 1})
        buffer = sink.buffer()
        buffer.add(rows(*range(10)), sink.commit)
        failed(buffer, rows(), sink)

    def test_nothing_is_tried_again_before_somebody_knows(self) -> None:
        sink = Sink(fail={0: 1})
        buffer = sink.buffer()
        buffer.add(rows(*range(10)), sink.commit)
        settle(buffer)
        wait_until_blocked(buffer._thread)
        assert sink.writes == 1

    def test_a_retry_repeats_the_same_run_whatever_has_come_since(self) -> None:
        sink = Sink(fail={0: 1, 1: 1}, gate=threading.Event())
        assert sink.gate is not None
        buffer = sink.buffer()
        buffer.add(rows(*range(10)), sink.commit)
        buffer.add(rows(*range(10, 20)), sink.commit)  # while the first write is under way
        sink.gate.set()
        batch = rows(20)
        for _ in range(2):
            failed(buffer, batch, sink)
        buffer.add(batch, sink.commit)
        assert sink.runs[0] == [*range(10)]
        assert buffer.flush(at_end=True)
        assert sink.runs == [[*range(10)], [*range(10, 20)], [20]]
        assert sink.attempts == [3, 1, 1]

    def test_it_goes_on_behind_what_was_written(self) -> None:
        sink = Sink(fail={2: 1})
        buffer = sink.buffer(max_run_bytes=40)
        buffer.add(rows(*range(12)), sink.commit)
        failed(buffer, rows(), sink)
        assert sink.runs == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert buffer.durable_position == 7
        buffer.add(rows(), sink.commit)
        assert sink.runs == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        assert sink.attempts == [1, 1, 2]

    def test_while_it_waits_for_room(self) -> None:
        sink = Sink(fail={0: 1}, gate=threading.Event())
        assert sink.gate is not None
        buffer = sink.buffer(max_bytes=100, max_held_bytes=100)
        buffer.add(rows(*range(10)), sink.commit)
        threading.Timer(0.05, sink.gate.set).start()
        with pytest.raises(RuntimeError, match="write 0 failed"):
            buffer.add(rows(10), sink.commit)
        buffer.add(rows(10), sink.commit)
        assert (sink.runs, buffer.rows) == ([[*range(10)]], 1)

    def test_a_failed_commit_doubles_nothing(self) -> None:
        sink = Sink()
        buffer = sink.buffer()
        buffer.add(rows(*range(10)), sink.commit)
        settle(buffer)

        def refused(position: int | None) -> bool:
            raise ConnectionError(position)

        with pytest.raises(ConnectionError):
            buffer.add(rows(10), refused)
        buffer.add(rows(10), sink.commit)
        assert (sink.runs, sink.commits, buffer.rows) == ([[*range(10)]], [9], 1)


class TestGiveUp:
    def test_everything_unwritten_goes_and_the_position_moves_on(self) -> None:
        sink = Sink(fail={0: 1})
        buffer = sink.buffer()
        first = rows(*range(10))
        buffer.add(first, sink.commit)
        failed(buffer, batch := rows(10, 11), sink)
        assert buffer.give_up(batch, at_end=False) == [first, batch]
        assert (buffer.rows, buffer.capacity_bytes, buffer.durable_position) == (0, 0, 11)
        add(buffer, rows(), sink)
        add(buffer, rows(*range(12, 22)), sink)
        assert (sink.runs, sink.attempts, sink.commits) == ([[*range(12, 22)]], [1], [11])

    def test_what_was_written_before_the_failure_is_not_among_it(self) -> None:
        sink = Sink(fail={1: 1})
        buffer = sink.buffer(max_run_bytes=50)
        buffer.add(rows(*range(12)), sink.commit)
        failed(buffer, batch := rows(12), sink)
        assert buffer.give_up(batch, at_end=False) == [rows(*range(5, 12)), batch]
        assert sink.runs == [[*range(5)]]

    def test_at_an_end(self) -> None:
        sink = Sink(fail={0: 1})
        buffer = sink.buffer()
        buffer.add(rows(0, 1, groups=(7, 7)), sink.commit)
        with pytest.raises(RuntimeError):
            buffer.flush(at_end=True)
        assert buffer.give_up(None, at_end=True) == [rows(0, 1, groups=(7, 7))]
        assert buffer.flush(at_end=True)
        buffer.commit(sink.commit)
        assert (sink.runs, sink.commits) == ([], [1])

    def test_a_group_that_may_go_on_stays(self) -> None:
        sink = Sink(fail={0: 1})
        buffer = sink.buffer(max_records=3)
        buffer.add(rows(0, 1, 2, groups=(7, 8, 8)), sink.commit)
        failed(buffer, batch := rows(), sink)
        assert buffer.give_up(batch, at_end=False) == [rows(0, groups=(7,))]
        assert (buffer.rows, buffer.durable_position) == (2, 0)
        add(buffer, rows(3, 4, groups=(8, 9)), sink)
        assert sink.runs == [[1, 2, 3]]

    def test_nothing_goes_because_of_a_commit(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_run_bytes=50)
        buffer.add(rows(*range(10)), sink.commit)
        settle(buffer)

        def refused(position: int | None) -> bool:
            raise ConnectionError(position)

        for batch in (rows(10), rows(11)):
            with pytest.raises(ConnectionError):
                buffer.add(batch, refused)
            assert buffer.give_up(batch, at_end=False) == []
        assert buffer.rows == 2  # adopted
        assert buffer.flush(at_end=True)
        buffer.commit(sink.commit)
        assert (sink.runs, sink.commits) == ([[*range(5)], [*range(5, 10)], [10, 11]], [11])

    def test_a_failure_that_nobody_knows_is_not_given_up_with_a_commit(self) -> None:
        sink = Sink(fail={1: 1}, gate=threading.Event())
        assert sink.gate is not None
        buffer = sink.buffer(max_run_bytes=50)
        sink.gate.set()
        buffer.add(rows(*range(5), size=20), sink.commit)  # durable: 0, 1
        settle(buffer)
        assert buffer.durable_position == 1
        buffer._stalled = False  # as if the failure came during the commit

        def refused(position: int | None) -> bool:
            buffer._stalled = True
            raise ConnectionError(position)

        with pytest.raises(ConnectionError):
            buffer.add(batch := rows(5), refused)
        assert buffer.give_up(batch, at_end=False) == []
        with pytest.raises(RuntimeError, match="write 1 failed"):
            buffer.add(rows(6), sink.commit)

    def test_a_batch_without_a_readable_position_goes_alone(self) -> None:
        sink = Sink()
        buffer = sink.buffer()
        buffer.add(rows(0), sink.commit)
        batch = rows(1, UNREADABLE)
        with pytest.raises(ValueError, match="unreadable"):
            buffer.add(batch, sink.commit)
        assert buffer.give_up(batch, at_end=False) == [batch]
        assert (buffer.rows, buffer.durable_position) == (1, None)

    def test_one_in_the_middle_is_found_by_the_run_that_ends_there(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_run_bytes=20, max_records=5)
        buffer.add(rows(0, 1, 2, UNREADABLE, 3), sink.commit)
        settle(buffer)
        with pytest.raises(ValueError, match="unreadable"):
            buffer.add(batch := rows(), sink.commit)
        assert sink.runs == [[0, 1]]
        assert buffer.give_up(batch, at_end=False) == [rows(2, UNREADABLE, 3)]
        assert buffer.durable_position == 3


class TestCommit:
    def test_only_what_is_written(self) -> None:
        sink = Sink()
        buffer = sink.buffer()
        buffer.add(rows(0), sink.commit)
        buffer.commit(sink.commit)
        assert sink.commits == []
        assert buffer.flush(at_end=True)
        buffer.commit(sink.commit)
        buffer.commit(sink.commit)
        assert sink.commits == [0]

    def test_at_most_once_an_interval_and_on_a_tick(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_bytes=1)
        add(buffer, rows(0), sink)
        sink.now += 9
        add(buffer, rows(1), sink)
        assert sink.commits == [0]
        sink.now += 1
        buffer.add(rows(), sink.commit)  # a tick
        assert sink.commits == [0, 1]
        sink.now += 60
        buffer.add(rows(), sink.commit)  # nothing new
        assert sink.commits == [0, 1]

    def test_one_that_was_put_off_is_asked_for_at_the_next_request(self) -> None:
        sink = Sink(refuse=2)
        buffer = sink.buffer(max_bytes=1)
        add(buffer, rows(0), sink)
        add(buffer, rows(1), sink)
        assert sink.refuse == 0
        assert sink.commits == [1]

    def test_what_becomes_durable_during_a_commit_is_the_next_ones(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_bytes=1, commit_interval=0)
        buffer.add(rows(0), sink.commit)
        settle(buffer)
        sink.gate = threading.Event()
        buffer.add(rows(1), lambda _position: False)

        def slow(position: int | None) -> bool:
            assert sink.gate is not None
            sink.gate.set()
            settle(buffer)
            return sink.commit(position)

        buffer.add(rows(), slow)
        assert (buffer.durable_position, sink.commits) == (1, [0])
        buffer.add(rows(), sink.commit)
        assert sink.commits == [0, 1]

    def test_a_protocol_without_positions(self) -> None:
        sink = Sink()
        written: list[int] = []
        buffer: BatchBuffer[Rows, None] = BatchBuffer(
            lambda run: written.append(run.rows),
            Unordered(),
            max_bytes=50,
            max_records=100,
            max_run_bytes=100,
            max_held_bytes=100,
            max_age=60,
            commit_interval=0,
        )
        _made.append(buffer)  # type: ignore[arg-type]
        buffer.add(rows(0, 0), sink.commit)
        buffer.add(rows(0, 0, 0), sink.commit)
        settle(buffer)  # type: ignore[arg-type]
        buffer.add(rows(), sink.commit)
        assert (written, sink.commits) == ([5], [None])

    def test_discarded_is_neither_written_nor_committed(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_records=2)
        add(buffer, rows(0, 1), sink)
        sink.now += 1
        add(buffer, rows(2, 3), sink)
        add(buffer, rows(4), sink)
        assert buffer.discard() == [rows(4)]
        assert buffer.closed
        assert buffer.flush(at_end=True)
        buffer.commit(sink.commit)
        assert (sink.runs, sink.commits) == ([[0, 1], [2, 3]], [1])
        with pytest.raises(RuntimeError, match="closed"):
            buffer.add(rows(5), sink.commit)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"max_bytes": 0}, "max_bytes=0"),
        ({"max_records": 0}, "max_records=0"),
        ({"max_run_bytes": -1}, "max_run_bytes=-1"),
        ({"max_held_bytes": 99}, "max_held_bytes=99: must be at least max_bytes, 100"),
        ({"max_age": 0}, "max_age=0"),
        ({"max_age": float("nan")}, "max_age=nan"),
        ({"commit_interval": -1.0}, "commit_interval=-1.0"),
        ({"commit_interval": float("nan")}, "commit_interval=nan"),
    ],
)
def test_bounds_that_make_no_sense(bounds: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sink().buffer(**bounds)
