"""Thousands of schedules of three writers of a shard that share their commits, with all that can go astray.

FASTKCL_CHAIN_SCHEDULES says how many; spoiled versions have to be found by the same schedules.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from chain_model import found, play
from delta_model import visible, without_parquet
from fastkcl.tables.delta import table as delta_table
from fastkcl.tables.group import Member, Turn
from group_model import SharedDeltaTable, not_compared, two_of_a_shard

SCHEDULES = int(os.environ.get("FASTKCL_CHAIN_SCHEDULES", "600"))
PARTS = 4


@pytest.fixture(autouse=True)
def _without_parquet(monkeypatch: pytest.MonkeyPatch) -> None:
    without_parquet(monkeypatch)


@pytest.mark.parametrize("part", range(PARTS))
def test_each_record_is_there_once(part: int) -> None:
    count = -(-SCHEDULES // PARTS)
    assert found(count, SharedDeltaTable, first=part * count, visible=visible) is None


@pytest.mark.parametrize("choose", [two_of_a_shard, not_compared])
def test_spoiled_choices_are_found(monkeypatch: pytest.MonkeyPatch, choose: Any) -> None:
    monkeypatch.setattr(delta_table, "choose", choose)
    wrong = str(found(300, SharedDeltaTable, visible=visible))
    # The next to read such an entry also refuses it: two requests of a shard, or not from where the table is.
    refused = ("and has another one in its application transactions", "and the entries before it end at")
    assert any(said in wrong for said in ("doubled", *refused))


def test_an_answer_that_is_believed_more_than_the_table_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of an older request, or of one that came late, is no position."""

    class Believes(SharedDeltaTable):
        def _share(self, staged: Any, snapshot: Any) -> bool:
            done = super()._share(staged, snapshot)
            if done:
                self._position = staged.upto
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
    worlds = [play(seed, SharedDeltaTable) for seed in range(60)]
    assert {each: turns.count(each) > 20 for each in Turn} == dict.fromkeys(Turn, True)
    assert sum(world.__dict__.get("most", 0) > 1 for world in worlds) > 10
