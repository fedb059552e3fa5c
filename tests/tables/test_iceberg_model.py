"""A model of an Iceberg table: writers of one shard, whose commits' answers are lost or late. `iceberg.state` decides.

Spoiled versions fail it, so it can fail.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from fastkcl import Position
from fastkcl.tables.base import Shard
from fastkcl.tables.group import Outcome, Request, choose
from fastkcl.tables.iceberg.state import POSITION, Append, Do, Seen, position_value

SHARD = Shard("clicks", "shardId-0")
SCHEDULES = int(os.environ.get("FASTKCL_ICEBERG_SCHEDULES", "3000"))
LAST = 12  # records of the shard
STEPS = 400


@dataclass
class Catalog:
    """The table: a snapshot is accepted only after the one that it was made on."""

    seen: Seen = field(default_factory=lambda: Seen("db.clicks", "u", {}, None, {}))
    rows: list[int] = field(default_factory=list)
    fences: bool = True
    """Whether a commit moves main; one of properties alone does not."""

    def commit(self, base: Seen, request: Request) -> Seen | None:
        if self.fences and base.main != self.seen.main:
            return None
        snapshot = len(self.seen.parents) + 1
        value = position_value(request.upto, snapshot)
        properties = {**self.seen.properties, f"{POSITION}clicks/shardId-0": value}
        parents = {**self.seen.parents, snapshot: self.seen.main}
        self.seen = replace(self.seen, properties=properties, main=snapshot, parents=parents)
        self.rows += request.files
        return self.seen


class Writer:
    """Drives `Append` as `IcebergTable` does, a step at a time.

    Args:
        catalog: everybody's.
        chance: of the schedule.
        compare: whether it compares the position that it has staged after; without it, it is spoiled.
    """

    def __init__(self, catalog: Catalog, chance: random.Random, *, compare: bool) -> None:
        self._catalog, self._chance, self._compare = catalog, chance, compare
        self.late: list[Callable[[], object]] = []
        self.start()

    def start(self) -> None:
        """A new process, or a loop that opens again after an error."""
        self._base = self._catalog.seen
        self._position = self._base.position(SHARD)
        self._run: Append[int] | None = None
        self._request: Request | None = None

    @property
    def is_done(self) -> bool:
        return self._position == Position(str(LAST), 0)

    def step(self) -> None:
        at = 0 if self._position is None else int(self._position.sequence_number)
        if self._run is None:
            self._run = Append(Position(str(self._chance.randint(min(at + 1, LAST), LAST)), 0))
        upto = self._run.upto
        match self._run.do(self._position, 0, 0.0):
            case Do.DONE:
                self._run = None
            case Do.STAGE:
                numbers = list(range(at + 1, int(upto.sequence_number) + 1))
                self._request = Request("x", "u", SHARD, self._position, upto, len(numbers), numbers)
                self._run.staged(self._position, 0, 0.0)
            case Do.COMMIT:
                self._commit()
            case Do.GIVE_UP:
                self.start()

    def _commit(self) -> None:
        assert self._run is not None
        assert self._request is not None
        base, request = self._base, self._request
        if self._compare:
            _, answers = choose([request], base.uuid, base.position)
            assert [each.outcome for each in answers] in ([], [Outcome.PASSED])
            if answers:
                self._load()
                return
        what = self._chance.random()
        if what < 0.1:  # the request comes later, perhaps much later
            self.late.append(lambda: self._catalog.commit(base, request))
            self.start()
            return
        done = self._catalog.commit(base, request)
        if what < 0.25:  # the answer is lost
            self.start()
        elif done is None:
            self._run.refused()
            self._load()
        else:
            self._base, self._position = done, request.upto

    def _load(self) -> None:
        self._base = self._catalog.seen
        if self._compare:
            self._position = self._base.position(SHARD)


def play(seed: int, *, compare: bool = True, fences: bool = True) -> list[int]:
    """The rows of a table after one schedule of three writers."""
    chance = random.Random(seed)
    catalog = Catalog(fences=fences)
    writers = [Writer(catalog, chance, compare=compare) for _ in range(3)]
    for _ in range(STEPS):
        writer = chance.choice(writers)
        if writer.late and chance.random() < 0.3:
            writer.late.pop(chance.randrange(len(writer.late)))()
        elif chance.random() < 0.03:
            writer.start()
        elif not writer.is_done:
            writer.step()
        if all(each.is_done for each in writers):
            break
    for writer in writers:
        for late in writer.late:
            late()
        writer.start()
        for _ in range(STEPS):
            if writer.is_done:
                break
            writer.step()
    return catalog.rows


def test_each_record_is_there_once_whatever_the_schedule() -> None:
    wanted = list(range(1, LAST + 1))
    for seed in range(SCHEDULES):
        assert play(seed) == wanted, f"schedule {seed}"


@pytest.mark.parametrize("spoiled", [{"compare": False}, {"fences": False}], ids=["no comparison", "properties alone"])
def test_spoiled_versions_fail(spoiled: dict[str, bool]) -> None:
    assert any(play(seed, **spoiled) != list(range(1, LAST + 1)) for seed in range(200))
