"""The buffer between a protocol and Spark: what it writes when, and what it commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from fastkcl.spark.buffer import BatchBuffer, Run, Unordered
from hypothesis import given, settings
from hypothesis import strategies as st


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

    def write(self, run: Run[Rows, int]) -> None:
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
        bounds = {"max_bytes": 100, "max_records": 1000, "max_run_bytes": 1000, "commit_interval": 10.0} | changes
        return BatchBuffer(self.write, RowOrder(), clock=lambda: self.now, **bounds)  # type: ignore[arg-type]


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
        buffer.add(batch, sink.commit)
    assert (sink.runs, buffer.rows) == (runs, held)
    buffer.flush(at_end=True)
    assert [p for run in sink.runs for p in run] == [p for b in batches for p, _, _ in b.rows]
    assert (buffer.rows, buffer.capacity_bytes, buffer.first_position, buffer.last_position) == (0, 0, None, None)


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
        buffer.add(batch, sink.commit)
    buffer.flush(at_end=at_end)
    assert (sink.runs, buffer.rows) == (runs, held)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50)), max_size=8), max_size=8),
    st.integers(1, 200),
    st.integers(1, 200),
    st.integers(1, 12),
    st.lists(st.integers(0, 20), max_size=8),
    st.booleans(),
)
def test_everything_once_in_order_and_groups_whole(
    shape: list[list[tuple[int, int]]],
    max_bytes: int,
    max_run_bytes: int,
    max_records: int,
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
    buffer = sink.buffer(max_bytes=max_bytes, max_run_bytes=max_run_bytes, max_records=max_records, commit_interval=0)
    for batch in batches:
        while True:
            try:
                buffer.add(batch, sink.commit)
            except RuntimeError:
                continue
            break
        assert buffer.capacity_bytes < max_bytes or grouped
        done = sum(map(len, sink.runs))
        if sink.commits:
            assert sink.commits[-1] == done - 1  # commits say what is written, no more and no less
    while True:
        try:
            buffer.flush(at_end=True)
        except RuntimeError:
            continue
        break
    assert [row for run in sink.runs for row in run] == list(range(len(expected)))
    if grouped:
        for run in sink.runs[:-1]:
            assert expected[run[-1]] != expected[run[-1] + 1]
    for run in sink.runs:
        sizes = {position: size for batch in batches for position, _, size in batch.rows}
        assert sum(sizes[row] for row in run) <= max_run_bytes or len(run) == 1 or grouped


@settings(max_examples=300, deadline=None)
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
        assert all(position is not None and position < len(groups) - buffer.rows for position in sink.commits)
    until_done(lambda: buffer.flush(at_end=True), None, at_end=True)
    buffer.commit(sink.commit)
    written = [position for run in sink.runs for position in run]
    assert sorted([*written, *given]) == [*range(len(groups))]
    assert (written, given) == (sorted(written), sorted(given))
    assert sink.commits == sorted(sink.commits)
    assert not groups or sink.commits[-1] == len(groups) - 1
    if grouped:  # never one half here and the other there
        assert {groups[position] for position in written}.isdisjoint(groups[position] for position in given)


class TestRetry:
    def test_a_failed_batch_is_not_adopted(self) -> None:
        sink = Sink(fail={0: 1})
        buffer = sink.buffer()
        buffer.add(rows(0, 1), sink.commit)
        with pytest.raises(RuntimeError, match="write 0 failed"):
            buffer.add(rows(*range(2, 12)), sink.commit)
        assert (buffer.rows, buffer.first_position, buffer.last_position) == (2, 0, 1)
        assert sink.commits == []

    def test_the_same_batch_again_is_not_doubled(self) -> None:
        sink = Sink(fail={0: 1, 1: 1})
        buffer = sink.buffer()
        buffer.add(rows(0, 1), sink.commit)
        batch = rows(*range(2, 12))
        for _ in range(2):
            with pytest.raises(RuntimeError):
                buffer.add(batch, sink.commit)
        buffer.add(batch, sink.commit)
        assert sink.runs == [[*range(12)]]
        assert sink.attempts == [3]

    def test_it_goes_on_behind_what_was_written(self) -> None:
        sink = Sink(fail={2: 1})
        buffer = sink.buffer(max_run_bytes=40)
        buffer.add(rows(0, 1), sink.commit)
        batch = rows(*range(2, 12))
        with pytest.raises(RuntimeError):
            buffer.add(batch, sink.commit)
        assert sink.runs == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert buffer.durable_position == 7
        buffer.add(batch, sink.commit)  # 8 to 11 alone are below the bound
        assert (buffer.first_position, buffer.last_position) == (8, 11)
        buffer.flush(at_end=True)
        assert sink.runs == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        assert sink.attempts == [1, 1, 2]

    def test_another_batch_after_a_failed_one_is_whole(self) -> None:
        """The failed one was skipped or stored elsewhere: nothing of the new one may be taken for written."""
        sink = Sink(fail={1: 1})
        buffer = sink.buffer(max_run_bytes=50)
        with pytest.raises(RuntimeError):
            buffer.add(rows(*range(10)), sink.commit)
        buffer.add(rows(*range(10, 20)), sink.commit)
        assert sink.runs == [[0, 1, 2, 3, 4], [*range(10, 15)], [*range(15, 20)]]

    def test_a_failed_commit_after_the_write_doubles_nothing(self) -> None:
        sink = Sink()
        buffer = sink.buffer()
        batch = rows(*range(10))

        def refused(position: int | None) -> bool:
            raise ConnectionError(position)

        with pytest.raises(ConnectionError):
            buffer.add(batch, refused)
        buffer.add(batch, sink.commit)
        assert (sink.runs, sink.commits, buffer.rows) == ([[*range(10)]], [9], 0)


class TestGiveUp:
    def failed(self, buffer: BatchBuffer[Rows, int], batch: Rows, sink: Sink) -> None:
        with pytest.raises(RuntimeError, match="failed"):
            buffer.add(batch, sink.commit)

    def test_everything_unwritten_goes_and_the_position_moves_on(self) -> None:
        sink = Sink(fail={0: 1})
        buffer = sink.buffer()
        buffer.add(rows(0, 1), sink.commit)
        self.failed(buffer, batch := rows(*range(2, 12)), sink)
        assert buffer.give_up(batch, at_end=False) == [rows(0, 1), batch]
        assert (buffer.rows, buffer.durable_position) == (0, 11)
        buffer.add(rows(), sink.commit)
        buffer.add(rows(*range(12, 22)), sink.commit)
        assert (sink.runs, sink.attempts, sink.commits) == ([[*range(12, 22)]], [1], [11])

    def test_what_was_written_before_the_failure_is_not_among_it(self) -> None:
        sink = Sink(fail={1: 1})
        buffer = sink.buffer(max_run_bytes=50)
        buffer.add(rows(0, 1, 2), sink.commit)
        self.failed(buffer, batch := rows(*range(3, 15)), sink)
        assert buffer.give_up(batch, at_end=False) == [rows(*range(5, 15))]
        assert sink.runs == [[*range(5)]]

    def test_at_an_end(self) -> None:
        sink = Sink(fail={0: 1})
        buffer = sink.buffer()
        buffer.add(rows(0, 1, groups=(7, 7)), sink.commit)
        with pytest.raises(RuntimeError):
            buffer.flush(at_end=True)
        assert buffer.give_up(None, at_end=True) == [rows(0, 1, groups=(7, 7))]
        buffer.flush(at_end=True)
        buffer.commit(sink.commit)
        assert (sink.runs, sink.commits) == ([], [1])

    def test_a_group_that_may_go_on_stays(self) -> None:
        sink = Sink(fail={0: 1})
        buffer = sink.buffer(max_records=3)
        self.failed(buffer, batch := rows(0, 1, 2, groups=(7, 8, 8)), sink)
        assert buffer.give_up(batch, at_end=False) == [rows(0, groups=(7,))]
        assert (buffer.rows, buffer.durable_position) == (2, 0)
        buffer.add(rows(3, 4, groups=(8, 9)), sink.commit)
        assert sink.runs == [[1, 2, 3]]

    def test_nothing_goes_because_of_a_commit(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_run_bytes=50)

        def refused(position: int | None) -> bool:
            raise ConnectionError(position)

        for batch in (rows(*range(10)), rows(10)):
            with pytest.raises(ConnectionError):
                buffer.add(batch, refused)
            assert buffer.give_up(batch, at_end=False) == []
        assert buffer.rows == 1  # adopted
        buffer.flush(at_end=True)
        buffer.commit(sink.commit)
        assert (sink.runs, sink.commits) == ([[*range(5)], [*range(5, 10)], [10]], [10])

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
        buffer.add(rows(0), sink.commit)
        batch = rows(1, 2, UNREADABLE, 3)
        with pytest.raises(ValueError, match="unreadable"):
            buffer.add(batch, sink.commit)
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
        buffer.flush(at_end=True)
        buffer.commit(sink.commit)
        buffer.commit(sink.commit)
        assert sink.commits == [0]

    def test_at_most_once_an_interval_and_on_a_tick(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_bytes=1)
        buffer.add(rows(0), sink.commit)
        sink.now += 9
        buffer.add(rows(1), sink.commit)
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
        buffer.add(rows(0), sink.commit)
        buffer.add(rows(1), sink.commit)
        assert sink.commits == []
        buffer.add(rows(), sink.commit)
        assert sink.commits == [1]

    def test_a_protocol_without_positions(self) -> None:
        sink = Sink()
        written: list[int] = []
        buffer: BatchBuffer[Rows, None] = BatchBuffer(
            lambda run: written.append(run.rows),
            Unordered(),
            max_bytes=50,
            max_records=100,
            max_run_bytes=100,
            commit_interval=0,
        )
        buffer.add(rows(0, 0), sink.commit)
        buffer.add(rows(0, 0, 0), sink.commit)
        assert (written, sink.commits) == ([5], [None])

    def test_discarded_is_neither_written_nor_committed(self) -> None:
        sink = Sink()
        buffer = sink.buffer(max_records=2)
        buffer.add(rows(0, 1), sink.commit)
        sink.now += 1
        buffer.add(rows(2, 3), sink.commit)
        buffer.add(rows(4), sink.commit)
        buffer.discard()
        buffer.flush(at_end=True)
        buffer.commit(sink.commit)
        assert (sink.runs, sink.commits) == ([[0, 1], [2, 3]], [1])


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"max_bytes": 0}, "max_bytes=0"),
        ({"max_records": 0}, "max_records=0"),
        ({"max_run_bytes": -1}, "max_run_bytes=-1"),
        ({"commit_interval": -1.0}, "commit_interval=-1.0"),
        ({"commit_interval": float("nan")}, "commit_interval=nan"),
    ],
)
def test_bounds_that_make_no_sense(bounds: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sink().buffer(**bounds)
