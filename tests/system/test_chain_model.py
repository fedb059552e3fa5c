"""Thousands of schedules of three writers of a shard, over a store that loses, delays and repeats requests.

FASTKCL_CHAIN_SCHEDULES says how many; spoiled versions of the table have to be found by the same schedules.
"""

from __future__ import annotations

import os
from datetime import date
from typing import Any

import pytest
from chain_model import Rows, found, play, without_parquet
from fastkcl.tables.parquet.chain import State
from fastkcl.tables.parquet.table import ParquetTable

SCHEDULES = int(os.environ.get("FASTKCL_CHAIN_SCHEDULES", "6000"))
PARTS = 12


@pytest.fixture(autouse=True)
def _without_parquet(monkeypatch: pytest.MonkeyPatch) -> None:
    without_parquet(monkeypatch)


@pytest.mark.parametrize("part", range(PARTS))
def test_each_record_is_there_once(part: int) -> None:
    count = -(-SCHEDULES // PARTS)
    assert found(count, first=part * count) is None


def test_a_schedule_is_the_same_each_time() -> None:
    first, again = play(7), play(7)
    assert (first.turns, sorted(first.objects)) == (again.turns, sorted(again.objects))


class DayOfItsOwnRow(ParquetTable):
    """Takes the day folder from the writer's own first row."""

    def _create(self, state: State, rows: Any, make: Any) -> bool:
        assert isinstance(rows, Rows)
        day = rows.world.days[rows.numbers[0]]
        return super()._create(State(state.position, max(day, state.day or date.min)), rows, make)


class TakesARefusalForItsOwn(ParquetTable):
    """Believes that what is there is its own file."""

    def _create(self, state: State, rows: Any, make: Any) -> bool:
        if super()._create(state, rows, make):
            return True
        self._state = State(rows.last_position, state.day)
        return True


def test_a_day_of_its_own_row_is_found() -> None:
    """Two writers at the start of a shard have different first rows, whose files would not exclude each other."""
    assert "doubled" in str(found(300, DayOfItsOwnRow))


def test_a_refusal_that_is_taken_for_ones_own_is_found() -> None:
    assert found(300, TakesARefusalForItsOwn) is not None


def test_rows_that_are_not_compared_with_the_position_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Rows, "after", lambda rows, position: rows if rows.numbers[-1] > int(position.sequence_number) else None
    )
    assert "doubled" in str(found(300))


def test_the_schedules_are_hard() -> None:
    """Else they would show nothing: turns to another day, and files that others had made already."""
    worlds = [play(seed) for seed in range(100)]
    assert sum(len({key.split("/")[-2] for key in world.objects}) > 2 for world in worlds) > 50
    assert sum(world.turns for world in worlds) > 3000
    assert sum(bool(world.pending) for world in worlds) < 100
