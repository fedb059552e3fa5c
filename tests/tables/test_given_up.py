"""A note of records that were given up excuses a checkpoint after them, and no loss of commits before them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastkcl import Position
from fastkcl.spark.sinks import DeltaSink, ParquetSink
from fastkcl.tables import DeltaTable, ParquetTable, SinkError
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.given_up import GivenUp, note, noted, upto_of
from fastkcl.tables.shard_table import ShardTable
from sink_helpers import SHARD, FakeSession, rows
from table_helpers import arrived, as_they_are

NINE, TWELVE = Position("9", 0), Position("12", 0)


def by_sink(sink: Any, numbers: range) -> None:
    sink.open(SHARD)
    sink.write(rows(numbers.start, numbers.stop - 1), FakeSession(1))


def by_table(table: Any, numbers: range) -> None:
    table.open(SHARD)
    table.append(arrived(numbers), as_they_are)


def newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.name)


def lose_a_parquet_sinks(root: Path) -> None:
    newest(root / "_commits", "clicks/*/after-6.0").unlink()
    newest(root / "stream=clicks", "shard=*/6.0-*").unlink()


KINDS: dict[str, tuple[Any, Callable[[Any, range], None], Callable[[Path], None]]] = {
    "ParquetSink": (ParquetSink, by_sink, lose_a_parquet_sinks),
    "DeltaSink": (DeltaSink, by_sink, lambda root: newest(root, "_delta_log/*.json").unlink()),
    "ParquetTable": (ParquetTable, by_table, lambda root: newest(root, "stream=clicks/*/*/after-*").unlink()),
    "DeltaTable": (DeltaTable, by_table, lambda root: newest(root, "_delta_log/*.json").unlink()),
}


def started(table: Any, checkpoint: Position) -> ShardTable[Any]:
    """As a child does."""
    return ShardTable(table, lambda *_: checkpoint, SHARD, legacy=False, dropped=lambda _: None, checkpoint=checkpoint)


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_is_lost_before_a_note(tmp_path: Path, kind: str) -> None:
    make, write, lose = KINDS[kind]
    write(make(tmp_path), range(1, 7))
    write(make(tmp_path), range(7, 10))
    started(make(tmp_path), NINE).before_checkpoint(TWELVE)
    started(make(tmp_path), TWELVE)
    assert inspect_table(str(tmp_path)).ok
    lose(tmp_path)
    with pytest.raises(SinkError, match=r"the checkpoint 12/0 lies after the table's position: .* up to 6/0"):
        started(make(tmp_path), TWELVE)
    (state,) = inspect_table(str(tmp_path)).shards
    assert any(
        "were given up when the table had those up to 9/0, and it has those up to 6/0" in each for each in state.damage
    )


@pytest.mark.parametrize("kind", KINDS)
def test_later_notes_and_commits(tmp_path: Path, kind: str) -> None:
    make, write, _ = KINDS[kind]
    table = make(tmp_path)
    table.open(SHARD)
    table.give_up(Position("3", 0))
    started(make(tmp_path), Position("3", 0))
    write(make(tmp_path), range(4, 7))
    started(make(tmp_path), Position("6", 0)).before_checkpoint(NINE)
    started(make(tmp_path), NINE).before_checkpoint(TWELVE)
    started(make(tmp_path), TWELVE)
    write(make(tmp_path), range(13, 16))
    started(make(tmp_path), Position("15", 0))
    assert inspect_table(str(tmp_path)).ok


def test_a_note_of_an_earlier_version_says_no_position() -> None:
    found = noted(json.dumps({"upto": ["12", 0]}).encode(), "here")
    assert found == GivenUp(None, TWELVE)
    assert upto_of(found, None) == TWELVE


@pytest.mark.parametrize("after", [None, Position("9", None), NINE])
def test_what_a_note_says(after: Position | None) -> None:
    assert noted(note(TWELVE, after), "here") == GivenUp(after, TWELVE)
