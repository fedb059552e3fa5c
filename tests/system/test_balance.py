"""Shards are shared evenly by real processes, as members join, leave and die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastkcl.local_aws import LocalAws
from kinesis_groups import KEYS, KINDS, Group, Line
from waiting import wait_until


@pytest.fixture(params=KINDS)
def group(request: pytest.FixtureRequest, aws: LocalAws, redis: dict[str, str], tmp_path: Path) -> Iterator[Group]:
    group = Group(aws, redis, request.param, tmp_path, shards=8, failover=12)
    yield group
    group.close()


def test_four_consumers_of_eight_shards(group: Group) -> None:
    """One after the other comes; then one leaves in order, and one dies."""
    for number, id in enumerate("abcd", start=1):
        group.start(id)
        group.put_until(lambda: group.is_shared(8), f"shares of {number}")
    group.leave("a")
    group.put_until(lambda: group.is_shared(8), "shares without a")
    group.kill("b")
    group.put_until(lambda: group.is_shared(8), "shares without b")
    due = group.all()

    def lines() -> list[Line]:
        return sorted(line for id in "abcd" for line in group.lines(id))

    wait_until(
        lambda: due <= {(line.shard, line.sequence_number) for line in lines()},
        "all records",
        seen=lambda: due - {(line.shard, line.sequence_number) for line in lines()},
    )
    for key in KEYS:
        numbers = [int(line.data) for line in lines() if line.partition_key == key]
        assert list(dict.fromkeys(numbers)) == list(range(group.rounds))
