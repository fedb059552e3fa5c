"""Thousands of schedules of three writers of a shard of a DeltaTable, over a store that loses, delays and repeats.

FASTKCL_CHAIN_SCHEDULES says how many; spoiled versions of the table have to be found by the same schedules.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from chain_model import Rows, found, play
from delta_model import HeadAfterTheComparison, ModelDeltaTable, Rebases, visible, without_parquet

SCHEDULES = int(os.environ.get("FASTKCL_CHAIN_SCHEDULES", "800"))
PARTS = 4


@pytest.fixture(autouse=True)
def _without_parquet(monkeypatch: pytest.MonkeyPatch) -> None:
    without_parquet(monkeypatch)


@pytest.mark.parametrize("part", range(PARTS))
def test_each_record_is_there_once(part: int) -> None:
    count = -(-SCHEDULES // PARTS)
    assert found(count, ModelDeltaTable, first=part * count, visible=visible) is None


@pytest.mark.parametrize("kind", [HeadAfterTheComparison, Rebases])
def test_spoiled_versions_are_found(kind: Any) -> None:
    assert found(300, kind, visible=visible) is not None


def test_rows_that_are_not_compared_with_the_position_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Rows, "after", lambda rows, position: rows if rows.numbers[-1] > int(position.sequence_number) else None
    )
    assert "doubled" in str(found(300, ModelDeltaTable, visible=visible))


def test_the_schedules_are_hard() -> None:
    """Else they would show nothing: files that were staged and never committed, and many turns."""
    worlds = [play(seed, ModelDeltaTable) for seed in range(60)]
    staged = [sum("after-" in key for key in world.objects) for world in worlds]
    named = [sum(b'"add"' in body and body.count(b'"add"') for body in world.objects.values()) for world in worlds]
    assert sum(one > other for one, other in zip(staged, named, strict=True)) > 30
    assert sum(world.turns for world in worlds) > 1800
