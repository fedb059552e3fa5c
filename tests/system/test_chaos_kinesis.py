"""Chaos with four consumers that share a stream: killed, suspended, leaving, coming, while shards are split and merged.

Each seed is a run of its own: its changes, in an order and at times of its own. The invariants:

- within two failover times after each change each member that lives is given records that were put after it, and so is
  each key somebody;
- each record is delivered at least once, first in the order of its key;
- a table of ParquetSink has each record once.

Failover is 3 s, and more where a call takes so long that no lease of 3 s could be kept. A machine that has other work
keeps processes waiting. It says for how long (/proc/pressure/cpu), and so much longer it may take. ``make test-long``
plays twenty seeds for each lease table.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastkcl.local_aws import LocalAws
from kinesis_groups import KEYS, KINDS, PATIENCE, Group, Line
from local_aws_helpers import is_open, shards
from waiting import wait_until

RUNS = int(os.environ.get("FASTKCL_GROUP_RUNS", "2"))
FAILOVER = 3.0
CALLS = 12
"""A failover time has room for so many calls, one after the other, as slow as the slowest that was seen."""
MEMBERS = 4
PRESSURE = Path("/proc/pressure/cpu")
PROGRAMS = {"consumer": "kinesis_consumer.py", "table": "kinesis_table.py"}

pytestmark = pytest.mark.timeout(900)


def stalled() -> float:
    """Seconds for which some process of this machine has waited for a core."""
    some = PRESSURE.read_text().splitlines()[0]
    return int(some.rpartition("total=")[2]) / 1e6


class Chaos:
    """A group, and what is done to it.

    Args:
        group: of eight shards.
        program: of each member.
        chance: decides.
    """

    def __init__(self, group: Group, program: str, chance: random.Random) -> None:
        self.group, self.program, self.chance = group, program, chance
        self.names = (f"m{number}" for number in range(100))
        self.everybody: list[str] = []
        self.suspended: set[str] = set()
        group.environment["NOTES"] = str(group.folder)

    def join(self) -> None:
        name = next(self.names)
        self.everybody.append(name)
        out = {"table": "table", "consumer": None}[self.program]
        self.group.start(name, program=PROGRAMS[self.program], out=out)
        wait_until((self.group.folder / name).exists, f"the start of {name}", seconds=PATIENCE)

    @property
    def working(self) -> list[str]:
        return [name for name in self.group.processes if name not in self.suspended]

    def change(self) -> str:
        """Do something to the group, and say what."""
        group = self.group
        what = self.chance.choice(["kill", "stop", "leave", "split", "merge"])
        if len(self.working) < MEMBERS:
            what = self.chance.choice(["join", "continue"] if self.suspended else ["join"])
        victim = self.chance.choice(self.working)
        open_shards = [shard for shard in shards(group.kinesis, group.stream) if is_open(shard)]
        match what:
            case "join":
                self.join()
            case "continue":
                for name in self.suspended:
                    group.processes[name].send_signal(signal.SIGCONT)
                self.suspended.clear()
            case "kill":
                group.kill(victim)
            case "stop":
                group.processes[victim].send_signal(signal.SIGSTOP)
                self.suspended.add(victim)
            case "leave":
                group.leave(victim)
            case "split":
                shard = max(open_shards, key=width)
                middle = low(shard) + width(shard) // 2
                group.kinesis.split_shard(
                    StreamName=group.stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle)
                )
            case "merge":
                in_order = sorted(open_shards, key=low)
                one, other = min(zip(in_order, in_order[1:], strict=False), key=lambda both: sum(map(width, both)))
                group.kinesis.merge_shards(
                    StreamName=group.stream, ShardToMerge=one["ShardId"], AdjacentShardToMerge=other["ShardId"]
                )
        return f"{what} {victim if what in ('kill', 'stop', 'leave') else ''}".strip()

    def wait(self, what: str) -> float:
        """Wait until all work again; the seconds that it took, without those that the machine kept somebody waiting."""
        begun, waited = time.monotonic(), stalled()
        first = self.group.rounds
        self.group.put_until(lambda: self.works(first), f"work after {what}")
        return time.monotonic() - begun - (stalled() - waited)

    def works(self, first: int) -> bool:
        """Whether each member, and each key, had records of this round or a later one."""
        lines = {name: [line for line in self.group.lines(name) if int(line.data) >= first] for name in self.everybody}
        keys = {line.partition_key for found in lines.values() for line in found}
        return keys == {*KEYS} and all(lines[name] for name in self.working)

    def lines(self) -> list[Line]:
        return sorted(line for name in self.everybody for line in self.group.lines(name))


def low(shard: dict[str, dict[str, str]]) -> int:
    return int(shard["HashKeyRange"]["StartingHashKey"])


def width(shard: dict[str, dict[str, str]]) -> int:
    return int(shard["HashKeyRange"]["EndingHashKey"]) - low(shard) + 1


@pytest.fixture(params=KINDS)
def group(request: pytest.FixtureRequest, aws: LocalAws, redis: dict[str, str], tmp_path: Path) -> Iterator[Group]:
    group = Group(aws, redis, request.param, tmp_path, shards=8, failover=FAILOVER)
    slowest = 0.0
    for _ in range(5):
        begun = time.monotonic()
        group.put()
        slowest = max(slowest, time.monotonic() - begun)
    group.failover = max(FAILOVER, CALLS * slowest)
    yield group
    group.close()


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed >= 2)) for seed in range(RUNS)])
def test_chaos(group: Group, seed: int) -> None:
    """Consumers with even seeds; processors that write a table with odd ones."""
    program = ("consumer", "table")[seed % 2]
    chance = random.Random(f"{group.kind} {seed}")
    chaos = Chaos(group, program, chance)
    for _ in range(MEMBERS):
        chaos.join()
    chaos.wait("the start")
    took: dict[str, float] = {}
    for number in range(chance.randrange(5, 8)):
        what = f"change {number}: {chaos.change()}"
        took[what] = chaos.wait(what)
    while chaos.suspended:
        what = f"at last: {chaos.change()}"
        took[what] = chaos.wait(what)
    late = {what: seconds for what, seconds in took.items() if seconds > 2 * group.failover}
    assert not late, (group.failover, took)

    due = group.all()

    def missing() -> set[tuple[str, str]]:
        return due - {(line.shard, line.sequence_number) for line in chaos.lines()}

    wait_until(lambda: not missing(), "each record", seconds=PATIENCE, seen=missing, step=0.2)
    for key in KEYS:
        numbers = [int(line.data) for line in chaos.lines() if line.partition_key == key]
        assert list(dict.fromkeys(numbers)) == list(range(group.rounds))
    if program == "table":
        group.wait_for_table(group.folder / "table")
