"""A model of a ParquetTable's writers: three that believe they own a shard, over a store whose requests go astray.

Each writer is a real `ParquetTable` in a thread, and one goes on at a time, by a schedule made of a seed. Between any
two calls of the store another one may go on, die and begin again, or sleep until the end. A request can be

    lost        nothing happens, and nobody knows
    answerless  it happens, and nobody knows
    late        nobody knows, and it happens later, at any time
    repeated    it happens, and its repetition is answered: there is something
    refused     409: nothing happens, and the answer is: there is something; or it happens later

After that the store has each record once, in order, from the first one that anybody wrote to the last one that anybody
was told of.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import pytest
from fastkcl import Position
from fastkcl.tables.base import Shard, SinkError
from fastkcl.tables.parquet import footers
from fastkcl.tables.parquet import table as parquet_table
from fastkcl.tables.parquet.chain import Footer
from fastkcl.tables.parquet.table import ParquetTable
from fastkcl.tables.store import Entry, StoreError
from waiting import PATIENCE

SHARD = Shard("clicks", "shardId-000000000000")
RECORDS = 14
WRITERS = 3
LIVES = 3
TURNS = 400


class DeathError(BaseException):
    """The writer is no more."""


@dataclass
class Rows:
    """Numbers of records; each with its day."""

    world: World
    numbers: list[int]

    @property
    def num_rows(self) -> int:
        return len(self.numbers)

    @property
    def last_position(self) -> Position:
        return Position(str(self.numbers[-1]), 0)

    def after(self, position: Position) -> Rows | None:
        rest = [number for number in self.numbers if number > int(position.sequence_number)]
        return Rows(self.world, rest) if rest else None

    def first(self, count: int) -> Rows:
        return Rows(self.world, self.numbers[:count])

    def slice(self, offset: int, length: int) -> Rows:
        return Rows(self.world, self.numbers[offset : offset + length])

    def newer_than(self, day: date) -> tuple[int, date] | None:
        for row, number in enumerate(self.numbers):
            if self.world.days[number] > day:
                return row, self.world.days[number]
        return None

    def check_wanted(self) -> None:
        pass


@dataclass
class World:
    """What there is, and who goes on."""

    chance: random.Random
    objects: dict[str, bytes] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    pending: list[tuple[str, bytes]] = field(default_factory=list)
    checkpoint: int = 0
    told: int = 0
    faults: bool = True
    turns: int = 0

    def __post_init__(self) -> None:
        day = date(2026, 11, 22)
        self.days = {}
        for number in range(1, RECORDS + 1):
            if self.chance.random() < 0.2:
                day += timedelta(days=self.chance.choice([1, 1, 2]))
            late = timedelta(days=self.chance.choice([0, 0, 0, 1]))
            self.days[number] = day - late
        self.rate = self.chance.choice([0.0, 0.1, 0.3])
        self.deadly = self.chance.choice([0.0, 0.02, 0.05])
        self.latest = self.chance.random() < 0.3

    def tell(self, position: Position | None) -> int:
        upto = 0 if position is None else int(position.sequence_number)
        self.told = max(self.told, upto)
        return upto

    def make(self, key: str, body: bytes) -> bool:
        if key in self.objects:
            return False
        self.objects[key] = bytes(body)
        return True

    def deliver_late(self) -> None:
        for request in [request for request in self.pending if self.chance.random() < 0.2]:
            self.pending.remove(request)
            self.make(*request)


class ModelStore:
    """A store of one writer."""

    url = "model://table"

    def __init__(self, world: World, turn: Callable[[], None]) -> None:
        self.world = world
        self.turn = turn

    def _read(self) -> None:
        self.turn()
        if self.world.faults and self.world.chance.random() < self.world.rate / 4:
            raise StoreError("503")

    def create(self, key: str, body: bytes) -> bool:
        world = self.world
        self.turn()
        fate = "well"
        if world.faults and world.chance.random() < world.rate:
            fate = world.chance.choice(["lost", "answerless", "late", "repeated", "refused", "refused, late"])
        if fate in ("late", "refused, late"):
            world.pending.append((key, bytes(body)))
        made = world.make(key, body) if fate in ("well", "answerless", "repeated") else False
        self.turn()
        if fate in ("lost", "answerless", "late"):
            raise StoreError(fate)
        return made and fate == "well"

    def claim(self, key: str, text: str) -> str:
        self.turn()
        return self.world.texts.setdefault(key, text)

    def claimed(self, key: str) -> str | None:
        self._read()
        return self.world.texts.get(key)

    def tail(self, key: str, count: int) -> bytes | None:
        self._read()
        return self.world.objects.get(key)

    def files(self, folder: str) -> list[Entry]:
        self._read()
        keys = [key for key in self.world.objects if key.rpartition("/")[0] == folder]
        return [Entry(key, len(self.world.objects[key])) for key in sorted(keys)]

    def folders(self, folder: str) -> list[str]:
        self._read()
        start = f"{folder}/" if folder else ""
        below = [key.removeprefix(start) for key in self.world.objects if key.startswith(start)]
        return sorted({name.partition("/")[0] for name in below if "/" in name})

    def settle(self, key: str) -> None:
        pass

    def prove(self) -> None:
        pass


class Schedule:
    """Threads that go on one at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        # Locks, not semaphores, which are made of several in Python: most of a schedule is to hand the turn over.
        self.may = [threading.Lock() for _ in range(WRITERS)]
        self.back = threading.Lock()
        for lock in (*self.may, self.back):
            lock.acquire()
        self.alive = set(range(WRITERS))
        self.asleep: set[int] = set()
        self.failures: list[BaseException] = []

    def turn(self, who: int) -> None:
        """Let others go on, and die if that is its fate."""
        self.back.release()
        assert self.may[who].acquire(timeout=PATIENCE)
        if self.world.faults and self.world.chance.random() < self.world.deadly:
            raise DeathError

    def run(self, life: Callable[[int], None]) -> None:
        threads = [threading.Thread(target=self._work, args=(who, life), daemon=True) for who in range(WRITERS)]
        for thread in threads:
            thread.start()
        chance = self.world.chance
        while self.alive:
            self.world.turns += 1
            if self.world.turns == TURNS:  # whatever happens, the last ones come through
                self.world.faults = False
                self.asleep.clear()
            awake = sorted(self.alive - self.asleep) or sorted(self.alive)
            who = chance.choice(awake)
            for _ in range(chance.choice([1, 1, 2, 8])):
                if who in self.alive:
                    self.may[who].release()
                    assert self.back.acquire(timeout=PATIENCE)
            if self.world.faults and chance.random() < 0.03:
                self.asleep ^= {who}
            self.world.deliver_late()
        for thread in threads:
            thread.join(PATIENCE)
        if self.failures:
            raise self.failures[0]

    def _work(self, who: int, life: Callable[[int], None]) -> None:
        assert self.may[who].acquire(timeout=PATIENCE)
        try:
            life(who)
        except BaseException as error:
            self.failures.append(error)
        finally:
            self.alive.discard(who)
            self.back.release()


def play(seed: object, kind: Any = ParquetTable) -> World:
    """One schedule.

    Raises:
        BaseException: a writer has failed by something else than the store's faults.
    """
    world = World(random.Random(str(seed)))
    schedule = Schedule(world)

    def live(who: int) -> None:
        for _ in range(LIVES):
            with suppress(DeathError):
                write(kind, world, lambda: schedule.turn(who))
                return
        write_to_the_end(kind, world, lambda: schedule.turn(who))

    schedule.run(live)
    world.faults = False
    write(kind, world, lambda: None)
    return world


def write_to_the_end(kind: Any, world: World, turn: Callable[[], None]) -> None:
    while True:
        with suppress(DeathError):
            write(kind, world, turn)
            return


def write(kind: Any, world: World, turn: Callable[[], None]) -> None:
    """A worker's life: from the checkpoint on, as the loop has it."""
    table = kind("/model")
    table._store = ModelStore(world, turn)
    table._pause = lambda _seconds: turn()
    table._partition = "date"
    first = world.checkpoint + 1
    if not world.checkpoint and world.latest:
        first = world.chance.randrange(1, 5)
    tries(lambda: world.tell(table.open(SHARD)))
    while first <= RECORDS:
        last = min(RECORDS, first + world.chance.randrange(6))
        rows: Any = Rows(world, list(range(first, last + 1)))
        while True:
            try:
                world.tell(table.append(rows, lambda rows: rows))
                break
            except StoreError:
                if tries(lambda: world.tell(table.open(SHARD))) >= last:
                    break
        turn()
        if world.chance.random() < 0.5:
            world.checkpoint = max(world.checkpoint, last)
        first = last + 1


def tries(function: Callable[[], int]) -> int:
    while True:
        with suppress(StoreError):
            return function()


def in_files(world: World) -> list[int]:
    """Numbers that readers of a ParquetTable see, in order."""
    return sorted(number for body in world.objects.values() for number in json.loads(body)["numbers"])


def problem(world: World, visible: Callable[[World], list[int]] = in_files) -> str | None:
    """What is wrong with what readers see; None if nothing is."""
    seen = visible(world)
    if len(set(seen)) < len(seen):
        return f"doubled: {seen}"
    first = 4 if world.latest else 1  # before that, each writer has its own beginning
    if [number for number in seen if number >= first] != list(range(first, RECORDS + 1)):
        return f"lost: {seen}"
    if world.told > RECORDS:
        return f"told {world.told}"
    return None


def found(
    count: int,
    kind: Any = ParquetTable,
    *,
    first: int = 0,
    visible: Callable[[World], list[int]] = in_files,
) -> str | None:
    """What goes wrong first in so many schedules."""
    for seed in range(first, first + count):
        try:
            wrong = problem(play(seed, kind), visible)
        except SinkError as error:
            wrong = f"refused: {error}"
        if wrong is not None:
            return f"{seed}: {wrong}"
    return None


def without_parquet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files be JSON: thousands of schedules make a hundred thousand of them."""

    def body(rows: Any, footer: bytes) -> bytes:
        numbers = [] if Footer.parse(footer).rows == 0 else rows.numbers
        return json.dumps({"numbers": numbers, "footer": footer.decode()}).encode()

    monkeypatch.setattr(parquet_table, "parquet_bytes", body)
    monkeypatch.setattr(footers, "footer_of", lambda tail: json.loads(tail)["footer"].encode())
