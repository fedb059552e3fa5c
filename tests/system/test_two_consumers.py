"""Two consumers share a stream, and one dies: each record at least once, in order for each key, and once in a table."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from fastkcl.local_aws import LocalAws
from kinesis_groups import KEYS, KINDS, PATIENCE, Group, Line
from local_aws_helpers import is_open, shards
from sink_helpers import records_of
from waiting import wait_until


@pytest.fixture(params=KINDS)
def group(request: pytest.FixtureRequest, aws: LocalAws, redis: dict[str, str], tmp_path: Path) -> Iterator[Group]:
    group = Group(aws, redis, request.param, tmp_path)
    yield group
    group.close()


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

    group.wait_for_table(table)


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
