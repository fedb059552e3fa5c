"""Schedules of three writers of one shard whose commits to an Iceberg table are shared, with all that can go astray.

FASTKCL_ICEBERG_SCHEDULES says how many; spoiled versions have to be found by the same schedules.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from chain_model import found, play
from fastkcl.tables.group import Member, Turn
from fastkcl.tables.iceberg import group
from group_model import not_compared, two_of_a_shard
from iceberg_group_model import LoadsInTheCommit, SharedIcebergTable, visible, without_files

SCHEDULES = int(os.environ.get("FASTKCL_ICEBERG_SCHEDULES", "600"))
PARTS = 4


@pytest.fixture(autouse=True)
def _without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    without_files(monkeypatch)


@pytest.mark.parametrize("part", range(PARTS))
def test_each_record_is_there_once(part: int) -> None:
    count = -(-SCHEDULES // PARTS)
    assert found(count, SharedIcebergTable, first=part * count, visible=visible) is None


@pytest.mark.parametrize("choose", [two_of_a_shard, not_compared])
def test_spoiled_choices_are_found(monkeypatch: pytest.MonkeyPatch, choose: Any) -> None:
    monkeypatch.setattr(group, "choose", choose)
    assert "doubled" in str(found(300, SharedIcebergTable, visible=visible))


def test_a_head_that_is_loaded_after_the_comparison_is_found() -> None:
    class Spoiled(SharedIcebergTable):
        head_kind = LoadsInTheCommit

    assert found(300, Spoiled, visible=visible) is not None


def test_an_answer_that_is_believed_more_than_the_table_is_found() -> None:
    """An answer of an older request, or of one that came late, is no position."""

    class Believes(SharedIcebergTable):
        def _share(self, request: Any, *rest: Any) -> bool:
            done = super()._share(request, *rest)
            if done:
                self._position = request.upto
            return done

    assert found(300, Believes, visible=visible) is not None


def test_the_schedules_are_hard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would show nothing: each turn of the decisions, and several requests at once."""
    turns: list[Turn] = []
    turn = Member.turn

    def noted(*arguments: Any, **named: Any) -> Turn:
        turns.append(turn(*arguments, **named))
        return turns[-1]

    monkeypatch.setattr(Member, "turn", noted)
    worlds = [play(seed, SharedIcebergTable) for seed in range(60)]
    assert {each: turns.count(each) > 20 for each in Turn} == dict.fromkeys(Turn, True)
    assert sum(world.__dict__.get("most", 0) > 1 for world in worlds) > 10
