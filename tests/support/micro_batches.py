"""Spark's micro-batch engine as a source sees it: offset log, commit log, replays, and deaths between any two steps."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.read.plan import Call, Offset, Plan, Planner, PlanOptions, Range, RangeReader, Records
from fastkcl.kinesis.read.plan.planner import ranges_of
from simulated_stream import Row, ServiceError, SimulatedStream

Rows = dict[str, list[Row]]
"""The rows of a batch, by shard."""


class DiedError(Exception):
    """The process is dead; what it remembered is gone."""


class Engine:
    """A query.

    Args:
        stream: what it reads.
        options: of its planner.
        random: for the order of answers, times and deaths.
        deaths: how likely it dies at a step.
        happens: is called between any two calls: who writes to the stream meanwhile.
        skew: ms by which the clock of the process differs.
    """

    def __init__(
        self,
        stream: SimulatedStream,
        options: PlanOptions,
        random: Random,
        *,
        deaths: float = 0.0,
        happens: Callable[[], None] = lambda: None,
        skew: int = 0,
    ) -> None:
        self.stream, self.options, self.random = stream, options, random
        self.deaths, self.happens, self.skew = deaths, happens, skew
        self.offsets: list[str] = []
        self.committed = 0
        self.sink: list[Rows] = []
        self.attempts: dict[int, Rows] = {}
        self.died = self.replayed = 0
        self.warnings: list[str] = []
        self.planner = Planner(options)
        self._plan: Plan | None = None
        self._was_dead = False

    @property
    def now(self) -> int:
        return self.stream.time + self.skew

    def step(self, *, everything: bool = False) -> bool:
        """Run one batch, with all its deaths; whether there was one."""
        while True:
            try:
                return self._step(everything)
            except DiedError:
                self.died += 1
                self._was_dead = True
                self.planner, self._plan = Planner(self.options), None

    def _step(self, everything: bool) -> bool:
        if self.committed == len(self.offsets):
            start = Offset.parse(self.offsets[-1]) if self.offsets else Offset()
            plan = self._latest(start, everything)
            if str(plan.offset) == str(start):
                return False
            self._may_die()
            self.offsets.append(str(plan.offset))
            self._plan = plan
        self._may_die()
        number = self.committed
        rows = self._read(Offset.parse(self.offsets[number]))
        before = self.attempts.setdefault(number, rows)
        assert rows == before, f"batch {number} has other rows at its second attempt"
        self.sink[number:] = [rows]
        self._may_die()
        self.committed += 1
        return True

    def _latest(self, start: Offset, everything: bool) -> Plan:
        planner = self.planner
        planner.begin(start, self.now, everything=everything)
        waiting: list[Call] = []
        for _ in range(100_000):
            self.warnings += planner.warnings()
            pause = planner.wait(self.now)
            if pause == 0:
                break
            waiting += planner.calls(self.now, 32)
            if waiting:
                self._answer(waiting.pop(self.random.randrange(len(waiting))))
            else:
                self.stream.time += pause
                self.happens()
        else:
            raise AssertionError("no plan after 100,000 steps")
        for call in waiting:  # threads that go on
            self._answer(call)
        return planner.plan(self.now)

    def _answer(self, call: Call) -> None:
        self._may_die()
        self.stream.time += self.random.randint(0, 40)
        self.happens()
        try:
            answer = self.stream.answer(call)
        except ServiceError as error:
            self.planner.failed(call, error.failure, error, self.now)
        else:
            date = self.stream.time // 1000 * 1000
            self.planner.answered(call, answer, self.now, date)  # type: ignore[arg-type]

    def _read(self, end: Offset) -> Rows:
        plan, self._plan = self._plan, None
        rows: Rows = {}
        if plan is None or self.random.random() < 0.1:  # another machine, or the same after a death
            self.replayed += 1
            shards = {name: {shard.shard_id: shard for shard in self.stream.listed()} for name in end.streams}
            for part in ranges_of(end, shards):
                rows[part.shard_id] = self._read_range(part)
            return rows
        for item in plan.parts:
            rows[item.shard_id] = []
            if item.whole is not None and self.random.random() < 0.1:  # the head's rows are too large to travel
                rows[item.shard_id] += self._read_range(item.whole)
                continue
            if item.head is not None:
                records = item.head.records
                assert isinstance(records.content, tuple)
                for record in records.content[item.head.begin : item.head.stop]:
                    rows[item.shard_id] += record
            if item.range is not None:
                rows[item.shard_id] += self._read_range(item.range)
        return rows

    def _read_range(self, part: Range) -> list[Row]:
        reader = RangeReader(
            part,
            retention=self.stream.retention,
            limit=self.random.choice((3, 50, 10_000)),
            fail_on_data_loss=self.options.fail_on_data_loss,
        )
        rows: list[Row] = []
        for _ in range(100_000):
            if reader.finished:
                self.warnings += reader.warnings
                return rows
            call = reader.call(self.now)
            if call is None:
                self.stream.time += reader.wait(self.now)
                continue
            self._may_die()
            self.stream.time += self.random.randint(0, 40)
            self.happens()
            try:
                answer = self.stream.answer(call)
            except ServiceError as error:
                reader.failed(error.failure, error, self.now)
                continue
            assert isinstance(answer, str | Records)
            taken = reader.answered(answer, self.now)
            if isinstance(answer, Records):
                assert isinstance(answer.content, tuple)
                for record in answer.content[taken.start : taken.stop]:
                    rows += record
        raise AssertionError(f"{part} has no end after 100,000 steps")

    def _may_die(self) -> None:
        if self.random.random() < self.deaths:
            raise DiedError


def check_rows(sink: list[Rows], counts: dict[str, int], *, least: dict[str, int] | None = None) -> int:
    """See that each row is there once, each key in its order from batch to batch, and in one shard of a batch.

    Returns:
        How many rows there are.
    """
    seen = dict(least or {})
    total = 0
    for number, batch in enumerate(sink):
        keys: dict[str, str] = {}
        for shard_id, rows in batch.items():
            for key, count in rows:
                assert keys.setdefault(key, shard_id) == shard_id, f"batch {number} has key {key} in two shards"
                expected = seen.get(key, 0) + 1
                assert count == expected, f"batch {number}: key {key} has row {count}, and not {expected}"
                seen[key] = count
                total += 1
    missing = {key: count for key, count in counts.items() if seen.get(key, 0) != count}
    assert not missing, f"rows are missing: {missing}, seen {[seen.get(key) for key in missing]}"
    return total


__all__ = ["DiedError", "Engine", "Failure", "Rows", "check_rows"]
