"""Planner and reader against a stream that misbehaves, under random schedules with deaths between any two steps.

READ_WORLDS=10000 plays more of them; READ_SEED=7 plays one again.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from fastkcl.kinesis.exceptions import DataLossError
from fastkcl.kinesis.read.plan import TRIM, Offset, Planner, PlanOptions
from micro_batches import Engine, check_rows
from simulated_stream import Faults, SimulatedStream

WORLDS = int(os.environ.get("READ_WORLDS", "24"))
SEED = os.environ.get("READ_SEED")
SEEDS = range(WORLDS) if SEED is None else (int(SEED),)
HOUR = 3_600_000
CHUNKS = 4


def make_faults(random: Random) -> Faults:
    return Faults(
        empty=random.choice((0, 0.3)),
        false_zero=random.choice((0, 0.2)),
        throttled=random.choice((0, 0, 0.1)),
        away=random.choice((0, 0, 0.05)),
        falling=random.choice((0, 0, 300, 2500)),
        iterator_life=random.choice((300_000, 3_000)),
    )


class World:
    """A stream, who writes to it, and a query."""

    def __init__(self, seed: int, *, retention: int = 1000 * HOUR, deaths: float | None = None) -> None:
        self.random = random = Random(seed)
        self.stream = SimulatedStream(random, random.randint(1, 4), retention, make_faults(random))
        self.keys = random.choice((1, 3, 20))
        self.busy = random.choice((0.2, 1.0, 6.0))
        self.reshards = random.choice((0.0, 0.003, 0.02))
        options = PlanOptions(
            streams=("orders",),
            initial=TRIM,
            max_records=random.choice((None, None, 1, 7, 200)),
            max_bytes=random.choice((None, None, 150, 20_000)),
            max_slice=random.choice((1, 700, 5000, 300_000)),
            inline_bytes=random.choice((0, 300, 8 << 20)),
            list_interval=random.choice((1_000, 10_000)),
        )
        self.engine = Engine(
            self.stream,
            options,
            random,
            deaths=random.choice((0.0, 0.002, 0.02)) if deaths is None else deaths,
            happens=self.happens,
            skew=random.choice((0, -5_000, 7_000)),
        )
        self.is_writing = True

    def happens(self) -> None:
        if not self.is_writing:
            return
        random = self.random
        for _ in range(int(random.expovariate(1 / self.busy))):
            self.write()
        if random.random() < self.reshards and len(self.stream.shards) < 40:
            self.reshard()

    def write(self) -> None:
        count = self.random.choice((1, 1, 1, 4))
        self.stream.put([self.random.randrange(self.keys) for _ in range(count)])

    def reshard(self) -> None:
        if self.random.random() < 0.6:
            self.stream.split(self.random.choice(self.stream.open).shard_id)
        else:
            self.stream.merge()

    def write_backlog(self) -> None:
        for _ in range(self.random.choice((0, 30, 400))):
            self.write()
            self.stream.time += self.random.choice((0, 1, 5, 800))
            if self.random.random() < self.reshards:
                self.reshard()

    def drain(self) -> None:
        """Run until all rows are there and nothing more comes, or until nothing has come for long."""
        self.is_writing = False
        quiet = 0
        for _ in range(10_000):
            self.stream.time += 1_000
            quiet = 0 if self.engine.step() else quiet + 1
            if quiet >= 100 or (quiet >= 3 and self.has_all):
                return
        raise AssertionError("the query does not come to its end")

    @property
    def has_all(self) -> bool:
        """Whether as many rows are there as were put."""
        rows = sum(len(rows) for batch in self.engine.sink for rows in batch.values())
        return rows >= sum(self.stream.counts.values())

    def restart(self, options: PlanOptions | None = None) -> None:
        """Go on in another process."""
        self.engine.options = options or self.engine.options
        self.engine.planner = Planner(self.engine.options)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_row_is_there_once_and_in_order(chunk: int) -> None:
    for seed in SEEDS[chunk::CHUNKS]:
        world = World(seed)
        world.write_backlog()
        for _ in range(world.random.randint(3, 15)):
            world.engine.step()
            world.stream.time += world.random.choice((0, 100, 2_000, 30_000))
        world.drain()
        try:
            check_rows(world.engine.sink, world.stream.counts)
        except AssertionError as error:
            raise AssertionError(f"READ_SEED={seed}: {error}") from error


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_query_that_goes_on_never_looks_lost(chunk: int) -> None:
    """Shards are quiet for longer than the retention, and their last records are trimmed."""
    for seed in SEEDS[chunk::CHUNKS]:
        world = World(seed, retention=3 * HOUR)
        world.restart(PlanOptions(streams=("orders",), initial=TRIM))
        for _ in range(world.random.randint(10, 40)):
            world.is_writing = world.random.random() < 0.3
            world.engine.step()
            world.drain()
            world.stream.time += world.random.choice((1_000, HOUR // 4, HOUR))
            world.stream.trim()
        world.drain()
        check_rows(world.engine.sink, world.stream.counts)


@pytest.mark.parametrize("fails", [True, False])
def test_a_stop_over_the_retention_is_an_error(fails: bool) -> None:
    """No row is lost in silence: either there is an error or a warning, or all rows are there."""
    errors = 0
    for seed in SEEDS:
        world = World(seed, retention=HOUR, deaths=0.0)
        world.restart(PlanOptions(streams=("orders",), initial=TRIM, fail_on_data_loss=fails))
        world.write_backlog()
        for _ in range(world.random.randint(1, 6)):
            world.engine.step()
        world.is_writing = True
        for _ in range(world.random.randint(0, 30)):
            world.happens()
            world.stream.time += world.random.choice((1_000, 60_000, HOUR // 2))
        if world.random.random() < 0.5:
            world.restart()
        world.stream.trim()
        for key in range(1_000, 1_200):  # a shard without records does not show what it had
            world.stream.put([key])
        try:
            world.drain()
        except DataLossError:
            assert fails
            errors += 1
            continue
        lost = [line for line in world.engine.warnings if "may be missing" in line or "lost" in line]
        errors += bool(lost)
        if fails or not lost:
            check_rows(world.engine.sink, world.stream.counts)
    assert errors or len(SEEDS) < 20


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_available_now_ends_and_has_all_that_there_was(chunk: int) -> None:
    for seed in SEEDS[chunk::CHUNKS]:
        world = World(seed)
        world.write_backlog()
        world.stream.time += 3_000
        before = dict(world.stream.counts)
        offsets = world.engine.offsets
        world.engine.deaths = 0.0
        world.engine.planner.prepare()
        for _ in range(3_000):
            if not world.engine.step():
                break
        else:
            raise AssertionError(f"READ_SEED={seed}: it does not end")
        seen: dict[str, int] = {}
        for batch in world.engine.sink:
            for rows in batch.values():
                seen.update({key: max(count, seen.get(key, 0)) for key, count in rows})
        assert all(seen.get(key, 0) >= count for key, count in before.items()), f"READ_SEED={seed}"
        world.restart(PlanOptions(streams=("orders",), initial=TRIM))
        world.drain()
        check_rows(world.engine.sink, world.stream.counts)
        assert offsets == [str(Offset.parse(text)) for text in offsets]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_once_has_all_of_the_shards_that_it_may_read(chunk: int) -> None:
    for seed in SEEDS[chunk::CHUNKS]:
        world = World(seed, deaths=0.0)
        world.reshards = 0.0
        world.write_backlog()
        world.stream.time += 3_000
        before = dict(world.stream.counts)
        world.is_writing = False
        world.engine.step(everything=True)
        assert check_rows(world.engine.sink, before) == sum(before.values()), f"READ_SEED={seed}"
        assert len(world.engine.offsets) <= 1


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_latest_record_is_fixed_by_the_first_offset(chunk: int) -> None:
    """What is put after the first offset is read, whatever dies, and in order."""
    for seed in SEEDS[chunk::CHUNKS]:
        world = World(seed)
        world.restart(PlanOptions(streams=("orders",)))
        world.stream.faults.falling = 0
        world.is_writing = False
        world.write_backlog()
        world.stream.time += 5_000
        least = dict(world.stream.counts)
        assert world.engine.step()
        world.is_writing = True
        for _ in range(6):
            world.engine.step()
        world.drain()
        check_rows(world.engine.sink, world.stream.counts, least=least)
