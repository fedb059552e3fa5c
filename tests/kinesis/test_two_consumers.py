"""Two consumers share a stream, and one dies: each record at least once, in order for each key, and once in a table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from daemon_helpers import put
from daemon_records import in_shard, in_stream
from fastkcl.daemon.keys import Generation
from fastkcl.local_aws import LocalAws
from local_aws_helpers import is_open, make_stream, shards
from paths import PROGRAMS, SUPPORT
from sink_helpers import records_of
from waiting import wait_until

PATIENCE = 120.0
KEYS = [f"key {number}" for number in range(24)]


class Line(NamedTuple):
    """A record as a consumer wrote it down."""

    nanoseconds: int
    """On the clock of all processes of the machine."""
    shard: str
    sequence_number: str
    partition_key: str
    data: str


class Group:
    """A stream, and the consumers of a group."""

    def __init__(self, aws: LocalAws, variables: dict[str, str], kind: str, folder: Path) -> None:
        self.aws = aws
        self.kind = kind
        self.folder = folder
        path = os.pathsep.join([str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = {**os.environ, **aws.environment, **variables, "PYTHONPATH": path}
        self.stream = make_stream(aws, 4)
        self.kinesis = aws.client("kinesis")
        self.rounds = 0
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, id: str, *limit: str, program: str = "kinesis_consumer.py", out: str | None = None) -> None:
        command = [sys.executable, str(PROGRAMS / program), self.stream, self.kind, id, str(self.folder / (out or id))]
        self.processes[id] = subprocess.Popen([*command, *limit], env=self.environment)

    def lines(self, id: str) -> list[Line]:
        path = self.folder / id
        text = path.read_text("utf-8") if path.exists() else ""
        return [Line(*json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]

    def put(self) -> None:
        """A round: the next number of each key."""
        put(self.aws, self.stream, *(str(self.rounds) for _ in KEYS), keys=KEYS)
        self.rounds += 1

    def put_until(self, condition: Callable[[], bool], what: str) -> None:
        """Put a round after the other until a condition holds."""

        def holds() -> bool:
            if condition():
                return True
            assert all(process.poll() in (None, -9) for process in self.processes.values())
            self.put()
            return False

        wait_until(holds, what, seconds=PATIENCE, seen=lambda: f"{self.rounds} rounds", step=0.2)

    def all(self) -> set[tuple[str, str]]:
        """Shard and sequence number of each record of the stream."""
        return {
            (shard["ShardId"], record["SequenceNumber"])
            for shard in shards(self.kinesis, self.stream)
            for record in in_shard(self.kinesis, self.stream, shard["ShardId"])
        }


@pytest.fixture(params=["redis", "dynamodb", "kcl"])
def group(request: pytest.FixtureRequest, aws: LocalAws, redis: dict[str, str], tmp_path: Path) -> Iterator[Group]:
    group = Group(aws, redis, request.param, tmp_path)
    yield group
    for process in group.processes.values():
        process.kill()
        process.wait()


def test_a_table_has_each_record_once(group: Group) -> None:
    """Whoever is killed, or suspended and wakes up beside its heir."""
    table = group.folder / "table"

    def start(id: str, *limit: str) -> None:
        group.start(id, *limit, program="kinesis_table.py", out="table")

    def written() -> int:
        return sum(records_of(table).values())

    def more_in(shard_ids: Collection[str]) -> Callable[[], bool]:
        """Whether records that come from now on are in the table, of all these shards."""
        rounds = str(group.rounds)
        return lambda: {shard for _, shard, _, _, data in records_of(table) if data == rounds.encode()} >= {*shard_ids}

    first, second, third, _ = before = [shard["ShardId"] for shard in shards(group.kinesis, group.stream)]
    start("a", "2")
    group.put_until(lambda: written() > len(KEYS), "rows of the first")
    start("b")
    group.put_until(more_in(before), "rows of all shards")
    group.processes["a"].kill()
    group.put_until(more_in(before), "rows of all shards")
    group.kinesis.split_shard(StreamName=group.stream, ShardToSplit=first, NewStartingHashKey=str(1 << 125))
    group.kinesis.merge_shards(StreamName=group.stream, ShardToMerge=second, AdjacentShardToMerge=third)
    group.put()
    group.processes["b"].send_signal(signal.SIGSTOP)
    start("c")
    after = [shard["ShardId"] for shard in shards(group.kinesis, group.stream) if is_open(shard)]
    group.put_until(more_in(after), "rows of all shards after resharding")
    group.processes["b"].send_signal(signal.SIGCONT)
    group.put_until(more_in(after), "rows of all shards after resharding")
    group.processes["c"].kill()
    group.put_until(more_in(after), "rows of all shards after resharding")

    expected = Counter(
        (group.stream, record.shard, record.sequence_number, record.sub_sequence_number, record.data)
        for record in in_stream(group.kinesis, group.stream, Generation.KCL_3)
    )
    assert len(expected) == group.rounds * len(KEYS)
    wait_until(
        lambda: records_of(table) == expected,
        "each record once",
        seconds=PATIENCE,
        seen=lambda: records_of(table) - expected or f"{len(expected - records_of(table))} are missing",
        step=0.1,
    )


def read(lines: list[Line]) -> set[tuple[str, str]]:
    return {(line.shard, line.sequence_number) for line in lines}


def test_one_of_two_is_killed(group: Group) -> None:
    group.start("a", "2")
    group.put_until(lambda: len({line.shard for line in group.lines("a")}) == 2, "two shards of a")
    group.start("b")
    group.put_until(lambda: len({line.shard for line in group.lines("b")}) == 2, "two shards of b")
    assert {line.shard for line in group.lines("a")}.isdisjoint({line.shard for line in group.lines("b")})

    # Shards of both of them end, and the one dies before it has seen the ends of its own.
    first, second, third, _ = before = [shard["ShardId"] for shard in shards(group.kinesis, group.stream)]
    group.kinesis.split_shard(StreamName=group.stream, ShardToSplit=first, NewStartingHashKey=str(1 << 125))
    group.kinesis.merge_shards(StreamName=group.stream, ShardToMerge=second, AdjacentShardToMerge=third)
    group.put()
    group.processes["a"].kill()
    group.put_until(lambda: len({line.shard for line in group.lines("b")} - {*before}) == 3, "the new shards")
    due = group.all()
    wait_until(
        lambda: due <= read(group.lines("a") + group.lines("b")),
        "all records",
        seconds=PATIENCE,
        seen=lambda: due - read(group.lines("a") + group.lines("b")),
        step=0.1,
    )

    dead, alive = group.lines("a"), group.lines("b")
    assert read(dead + alive) == due
    assert len(read(dead)) == len(dead)
    assert len(read(alive)) == len(alive)
    lines = sorted(dead + alive)
    for key in KEYS:
        numbers = [int(line.data) for line in lines if line.partition_key == key]
        assert list(dict.fromkeys(numbers)) == list(range(group.rounds))  # what comes again was there in order, too
