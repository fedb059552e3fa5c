"""Groups seen from outside: who of them lives."""

from __future__ import annotations

import pytest
from fastkcl.kinesis.groups import Row, live_members
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
