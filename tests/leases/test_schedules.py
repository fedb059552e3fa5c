"""Groups of keepers over a table that is a dictionary, on a clock that is a number: whatever happens, and when.

A schedule is a seed: members join, leave, die, are suspended and go on; requests and answers are slow or lost; clocks
of the machines step. The invariants of each moment:

- Of a lease that was not stolen there is one owner at the most that believes in it. One that was robbed stops believing
  at its next look or write, and within the failover time whatever fails.

And two failover times after the last change: each lease has an owner, and members differ by one lease at the most. It
stays so, without a take.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from fastkcl.leases import Keeper, Lease, Rules, Take, Why

SEEDS = int(os.environ.get("FASTKCL_LEASE_SEEDS", "60"))
FAILOVER = 10.0
RENEW_EVERY = FAILOVER / 3
KINDS = {
    "counter": Rules(failover=FAILOVER, renew_every=RENEW_EVERY),
    "own clock": Rules(failover=FAILOVER, renew_every=RENEW_EVERY, grain=1.0),
    "table's clock": Rules(failover=FAILOVER, renew_every=RENEW_EVERY, grain=1.0),
}
"""A counter, as KCL has it; whole seconds by the clock of who renews, or by that of the table."""
MARGIN = 8 * FAILOVER
"""By so much two clocks can differ."""
LOOK_EVERY = FAILOVER / 5
TIMEOUT = FAILOVER / 5


@dataclass
class Row:
    owner: str | None = None
    version: int = 0
    finished: bool = False


@dataclass
class World:
    """The table, the clock, and what is under way."""

    chance: Random
    kind: str
    now: float = 0.0
    rows: dict[str, Row] = field(default_factory=dict)
    robbed: dict[tuple[str, str], float] = field(default_factory=dict)
    takes: int = 0
    steals: int = 0
    is_calm: bool = False
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _number: itertools.count[int] = field(default_factory=itertools.count)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._number), act))

    def run(self, until: float, check: Callable[[], None]) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, act = heapq.heappop(self._events)
            act()
            check()
        self.now = until

    def stamp(self, version: int, skew: float) -> int:
        """What a renewal leaves."""
        if self.kind == "counter":
            return version + 1
        return int(self.now + (skew if self.kind == "own clock" else 0))

    def look(self, skew: float) -> list[Lease]:
        now = self.now + {"counter": -1e9, "own clock": skew - MARGIN, "table's clock": 0.0}[self.kind]
        return [
            Lease(
                key=key,
                owner=row.owner,
                version=row.version,
                finished=row.finished,
                expired=now - row.version > FAILOVER + 1,
            )
            for key, row in self.rows.items()
        ]

    def take(self, me: str, take: Take, skew: float) -> bool:
        row = self.rows.get(take.key)
        if take.seen is None:
            if row is not None:
                return False
            row = self.rows.setdefault(take.key, Row())
        elif row is None or row.owner != take.seen.owner:
            return False
        if take.why is not Why.BALANCE and take.seen is not None and row.version != take.seen.version:
            return False
        if take.why is Why.BALANCE:
            assert row.owner is not None
            self.steals += 1
            self.robbed[take.key, row.owner] = self.now
        self.takes += 1
        self.robbed.pop((take.key, me), None)
        row.owner, row.version = me, self.stamp(row.version, skew)
        return True

    def renew(self, me: str, key: str, skew: float) -> bool:
        row = self.rows[key]
        if row.owner != me:
            return False
        row.version = self.stamp(row.version, skew)
        return True

    def release(self, me: str, key: str) -> None:
        if self.rows[key].owner == me:
            self.rows[key].owner = None


class Member:
    """A process with a keeper. What it does while it is suspended, it does when it goes on."""

    def __init__(self, world: World, name: str, shards: list[str]) -> None:
        self.world, self.name, self.shards = world, name, shards
        self.keeper = Keeper(name, KINDS[world.kind], Random(f"{name} {world.chance.random()}"))
        self.offset = world.chance.uniform(-1000, 1000)
        self.skew = world.chance.uniform(-MARGIN, MARGIN) / 2  # of the clock on the wall
        self.is_alive, self.is_suspended, self.has_left = True, False, False
        self._waiting: list[Callable[[], None]] = []
        self._busy: set[str] = set()
        self.look()
        self.beat()

    @property
    def clock(self) -> float:
        return self.world.now + self.offset

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        def arrive() -> None:
            if not self.is_alive:
                return
            if self.is_suspended:
                self._waiting.append(act)
            else:
                act()

        self.world.later(seconds, arrive)

    def resume(self) -> None:
        self.is_suspended = False
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            act()

    def call(self, request: Callable[[], object], done: Callable[[object, float], None]) -> None:
        """A request to the table; `done` gets the answer, or None if there was none, and when it was sent."""
        chance, sent = self.world.chance, self.clock
        loss = 0.0 if self.world.is_calm else chance.choice([0.0, 0.05])
        there, back = (chance.choice([0.001, 0.01, 0.1]) for _ in range(2))
        if chance.random() < loss:
            self.later(TIMEOUT, lambda: done(None, sent))
            return
        lost = chance.random() < loss

        def execute() -> None:
            answer = request()
            self.later(TIMEOUT if lost else back, lambda: done(None if lost else answer, sent))

        self.world.later(there, execute)

    def look(self) -> None:
        if self.has_left:
            return
        self.later(LOOK_EVERY, self.look)

        def seen(leases: object, began: float) -> None:
            if leases is None or self.has_left:
                return
            assert isinstance(leases, list)
            self.keeper.looked(leases, began=began, ended=self.clock)
            wanted = [key for key in self.shards if key not in self.keeper.finished]
            for take in self.keeper.takes(wanted, self.clock):
                self.write(take.key, self.keeper.held, lambda take=take: self.world.take(self.name, take, self.skew))  # type: ignore[misc]

        self.call(lambda: self.world.look(self.skew), seen)

    def beat(self) -> None:
        if self.has_left:
            return
        self.later(KINDS[self.world.kind].renew_every, self.beat)
        for key in self.believes():
            self.write(key, self.keeper.renewed, lambda key=key: self.world.renew(self.name, key, self.skew))  # type: ignore[misc]

    def write(self, key: str, succeeded: Callable[..., None], request: Callable[[], bool]) -> None:
        """A write of a lease, one at a time."""
        if key in self._busy:
            return
        self._busy.add(key)

        def done(answer: object, sent: float) -> None:
            self._busy.discard(key)
            if answer is True and not self.has_left:
                succeeded(key, asked=sent, answered=self.clock)
            elif answer is False:
                self.keeper.dropped(key)

        self.call(request, done)

    def leave(self) -> None:
        self.has_left = True
        for key in list(self.keeper._held):
            self.keeper.dropped(key)
            self.call(lambda key=key: self.world.release(self.name, key), lambda answer, sent: None)  # type: ignore[misc]

    def believes(self) -> list[str]:
        if not self.is_alive or self.is_suspended or self.has_left:
            return []
        return [key for key in self.shards if self.keeper.holds(key, self.clock)]


class Group:
    def __init__(self, seed: str, kind: str) -> None:
        self.chance = Random(seed)
        self.world = World(self.chance, kind)
        self.shards = [f"shard {number}" for number in range(self.chance.choice([1, 2, 4, 5, 8, 13, 30]))]
        self.members: list[Member] = []

    def join(self) -> None:
        self.members.append(Member(self.world, f"m{len(self.members)}", self.shards))

    @property
    def working(self) -> list[Member]:
        return [one for one in self.members if one.is_alive and not one.is_suspended and not one.has_left]

    def check(self) -> None:
        believers: dict[str, list[str]] = {}
        for member in self.working:
            for key in member.believes():
                if self.world.now - self.world.robbed.get((key, member.name), -FAILOVER) >= FAILOVER:
                    believers.setdefault(key, []).append(member.name)
        two = {key: names for key, names in believers.items() if len(names) > 1}
        assert not two, (self.world.now, two, self.world.rows)

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds, self.check)

    def disturb(self) -> None:
        one = self.chance.choice(self.members)
        match self.chance.choice(["join", "leave", "die", "suspend", "resume", "step", "end"]):
            case "join" if len(self.working) < 7:
                self.join()
            case "leave" if one in self.working:
                one.leave()
            case "die":
                one.is_alive = False
            case "suspend" if not one.is_suspended and one.is_alive:
                one.is_suspended = True
                self.world.later(self.chance.uniform(0.1, 3) * FAILOVER, one.resume)
            case "step":
                one.skew = self.chance.uniform(-MARGIN, MARGIN) / 2
            case "end" if len(self.world.rows) > 2:
                self.world.rows[self.chance.choice(sorted(self.world.rows))].finished = True
            case _:
                pass

    def assert_shared(self) -> None:
        """Each lease that is needed has an owner that believes in it, and all have their share."""
        held = {one.name: [key for key in one.believes() if not self.is_finished(key)] for one in self.working}
        needed = [key for key in self.shards if not self.is_finished(key)]
        assert sorted(itertools.chain(*held.values())) == sorted(needed), (held, self.world.rows)
        loads = [len(keys) for keys in held.values()]
        assert max(loads) - min(loads) <= 1, held

    def is_finished(self, key: str) -> bool:
        return key in self.world.rows and self.world.rows[key].finished


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", range(3))
def test_schedules(kind: str, part: int) -> None:
    for seed in range(part, SEEDS, 3):
        group = Group(f"{kind} {seed}", kind)
        for _ in range(group.chance.choice([1, 2, 4])):
            group.join()
        for _ in range(group.chance.randrange(1, 12)):
            group.run(group.chance.uniform(0, 2) * FAILOVER)
            group.disturb()
        group.run(0)
        if not group.working:
            group.join()
        for one in group.members:
            if one.is_suspended:
                one.resume()
        group.world.is_calm = True
        group.run(2 * FAILOVER)
        try:
            group.assert_shared()
            takes = group.world.takes
            group.run(5 * FAILOVER)
            group.assert_shared()
            assert group.world.takes == takes
        except AssertionError as error:
            error.add_note(f"{kind}, seed {seed}")
            raise
