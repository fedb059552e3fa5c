"""Four members share eight shards: records a second of each, and the failover when one is killed.

Failover is 3 s. The stream and the lease table are local AWS, on the same cores: the figures say how evenly a group
reads, and how soon it reads on, not how fast a service is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import fastkcl
import pytest
from fastkcl.kinesis import Filler, UserRecord
from fastkcl.local_aws import LocalAws
from suites import CHILDREN

MEMBERS, SHARDS = 4, 8
ROUNDS = 3
PATIENCE = 60.0
KEYS = [f"key {number}" for number in range(256)]
OURS = Path(fastkcl.__file__).parents[1]


class Line(NamedTuple):
    """A batch that a member got."""

    seconds: float
    shard: str
    records: int


class Member:
    """A process."""

    def __init__(self, aws: LocalAws, out: Path, stack: ExitStack) -> None:
        self.out = out
        environment = {**os.environ, **aws.environment, "PYTHONPATH": str(OURS)}
        command = [sys.executable, CHILDREN / "group_member.py", "bench"]
        self.process = subprocess.Popen(command, stdout=stack.enter_context(out.open("wb")), env=environment)
        stack.callback(self.process.wait)
        stack.callback(self.process.kill)

    def lines(self, since: float) -> list[Line]:
        """What it got from then on."""
        text = self.out.read_text()
        split = (line.split() for line in text[: text.rfind("\n") + 1].splitlines())
        found = (Line(int(when) / 1e9, shard, int(records)) for when, shard, records in split)
        return [line for line in found if line.seconds >= since]

    def shards(self, since: float) -> set[str]:
        """Of what it got from then on."""
        return {line.shard for line in self.lines(since)}


def wait(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.mark.timeout(600)
def test_group(benchmark: Any, tmp_path: Path) -> None:
    """Each round puts the same records, and waits for the last. Then one is killed, and three read the next rounds."""
    records = 100_000 if benchmark.enabled else 4_000
    samples: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        aws = stack.enter_context(LocalAws(streams={"bench": SHARDS}))
        filler = Filler(aws.client("kinesis"), "bench")
        members = [Member(aws, tmp_path / f"member {number + 1}", stack) for number in range(MEMBERS)]

        def put(count: int) -> float:
            begun = time.monotonic()
            filler.put(UserRecord(KEYS[number % len(KEYS)], bytes(256)) for number in range(count))
            return begun

        def shared() -> bool:
            """Whether what is put now is read by all, an even share of shards by each."""
            since = put(len(KEYS))
            wait(lambda: sum(line.records for one in members for line in one.lines(since)) >= len(KEYS), "the records")
            shards = [one.shards(since) for one in members]
            return sum(map(len, shards)) == SHARDS and {len(found) for found in shards} <= {
                SHARDS // len(members),
                -(-SHARDS // len(members)),
            }

        def read(suffix: str) -> None:
            """A round: what each has read for a second, from the first record of all to the last of its own."""
            since = put(records)
            wait(lambda: sum(line.records for one in members for line in one.lines(since)) >= records, "the records")
            lines = {one.out.name + suffix: one.lines(since) for one in members}
            first = min(line.seconds for found in lines.values() for line in found)
            lines["all" + suffix] = [line for found in lines.values() for line in found]
            for name, found in lines.items():
                rate = sum(line.records for line in found) / max(1e-3, max(line.seconds for line in found) - first)
                samples.setdefault(name, {}).setdefault("records_a_second", []).append(rate)

        wait(shared, "even shares of four")
        benchmark.group = "group"
        benchmark.pedantic(lambda: read(""), rounds=ROUNDS)
        victim = members.pop()
        since = put(len(KEYS))
        wait(lambda: len(victim.shards(since)) >= SHARDS // MEMBERS, "a share of the victim")
        shards = victim.shards(since)
        victim.process.kill()
        killed = time.monotonic()

        def taken() -> bool:
            put(len(KEYS))
            return shards <= {shard for one in members for shard in one.shards(killed)}

        wait(taken, "the shards of the one that was killed")
        gaps = [
            min(line.seconds for one in members for line in one.lines(killed) if line.shard == shard) - killed
            for shard in shards
        ]
        samples["after a kill"] = {"gap_seconds": gaps}
        wait(shared, "even shares of three")
        for _ in range(ROUNDS):
            read(", after a kill")
        benchmark.extra_info |= {
            "suite": "group of four",
            "profile": f"{records:,} records of 256 bytes",
            "samples": samples,
        }
