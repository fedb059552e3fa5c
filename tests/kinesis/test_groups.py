"""Groups seen from outside: who of them lives, and where a time is in a shard."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from checkpoint_helpers import ALL_HASH_KEYS
from fastkcl.kinesis.groups import Row, live_members, plan
from fastkcl.kinesis.topology import Shard
from fastkcl.leases import Lease

Seen = dict[str, tuple[str | None, int]]
"""Owner and version of each shard's row."""

DEAD: Seen = {"0": ("dead", 7)}


@pytest.mark.parametrize(
    ("looks", "members", "seconds"),
    [
        pytest.param([{}], set(), 0, id="nobody ever"),
        pytest.param([{"0": (None, 7)}], set(), 0, id="all have left"),
        pytest.param([DEAD], set(), 4, id="one that died"),
        pytest.param([DEAD, {"0": (None, 7)}], set(), 1, id="one that leaves"),
        pytest.param([DEAD, DEAD, {"0": ("dead", 8)}], {"dead"}, 2, id="one that renews late"),
        pytest.param([DEAD, DEAD | {"1": ("new", 1)}], {"new"}, 1, id="one that comes, with a new row"),
        pytest.param([DEAD | {"1": (None, 1)}, DEAD | {"1": ("new", 1)}], {"new"}, 1, id="one that takes a free shard"),
        pytest.param([DEAD, {"0": ("new", 7)}], {"new"}, 1, id="one that takes the shard of the dead"),
    ],
)
def test_who_lives(looks: list[Seen], members: set[str], seconds: int) -> None:
    left = list(looks)
    slept: list[float] = []

    def look() -> dict[str, Row]:
        seen = left.pop(0) if len(left) > 1 else left[0]
        return {
            key: Row(Lease(key=key, owner=owner, version=version), None, None) for key, (owner, version) in seen.items()
        }

    assert live_members(look, 3.0, sleep=slept.append) == members
    assert sum(slept) == seconds


class OneShard:
    """A service with a shard whose records arrived at these seconds of its own clock."""

    def __init__(self, *seconds: int, ahead: timedelta) -> None:
        self.begin = datetime.now(UTC) - timedelta(hours=1) + ahead
        self.records = [
            {"SequenceNumber": str(index), "ApproximateArrivalTimestamp": self.at(second)}
            for index, second in enumerate(seconds)
        ]

    def at(self, second: float) -> datetime:
        return self.begin + timedelta(seconds=second)

    def get_shard_iterator(self, Timestamp: datetime, **_: Any) -> dict[str, str]:  # noqa: N803 - of boto3
        later = (each["SequenceNumber"] for each in self.records if each["ApproximateArrivalTimestamp"] >= Timestamp)
        return {"ShardIterator": next(later, str(len(self.records)))}

    def get_records(self, ShardIterator: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        return {"Records": self.records[int(ShardIterator) :], "NextShardIterator": "0", "MillisBehindLatest": 0}


@pytest.mark.parametrize("ahead", [timedelta(), timedelta(minutes=5), timedelta(minutes=-5)], ids=str)
@pytest.mark.parametrize(
    ("second", "position"), [(None, "5"), (9, "5"), (4, "1"), (1, "0"), (0, "TRIM_HORIZON"), (5, "1"), (5.5, "3")]
)
def test_where_a_time_is_in_a_shard(second: float | None, position: str, ahead: timedelta) -> None:
    """Before the first record that came then or later: times of arrival may fall. LATEST is of the service's clock."""
    service = OneShard(0, 1, 5, 3, 6, 7, ahead=ahead)
    shard = Shard(shard_id="shardId-000000000000", hash_range=ALL_HASH_KEYS)
    to = "LATEST" if second is None else service.at(second)
    (move,) = plan(service, {}, [shard], {}, to)
    assert move.position == position
