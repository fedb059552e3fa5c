"""ParquetSink: each record exactly once, whoever dies or wakes up, and whenever."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from fastkcl import Position
from fastkcl.spark.sinks import ParquetSink, Shard, SinkError
from fastkcl.spark.sinks.parquet import commits, shards
from sink_helpers import PARQUET, SHARD, FakeSession, FakeWriter, Mortals, batch, race, rows, stored

SESSION: Any = FakeSession()


def opened(folder: Path, shard: Shard = SHARD, **options: Any) -> tuple[ParquetSink, Position | None]:
    sink = ParquetSink(folder, **options)
    return sink, sink.open(shard)


def test_a_life(tmp_path: Path) -> None:
    sink, position = opened(tmp_path / "table")
    assert position is None
    assert sink.write(rows(1, 10), SESSION) == Position("10", 0)
    assert sink.write(rows(11, 12), SESSION) == Position("12", 0)
    assert stored(tmp_path / "table") == list(range(1, 13))
    table = pa.dataset.dataset(tmp_path / "table", format="parquet", partitioning="hive").to_table()
    assert set(table["stream"].to_pylist()) == {"clicks"}
    assert set(table["shard"].to_pylist()) == {"shardId-000000000000"}
    assert opened(tmp_path / "table")[1] == Position("12", 0)
    assert shards(tmp_path / "table") == [SHARD]
    assert [(commit.after, commit.upto, commit.rows) for commit in commits(tmp_path / "table", SHARD)] == [
        (None, Position("10", 0), 10),
        (Position("10", 0), Position("12", 0), 2),
    ]
    assert list((tmp_path / "table" / "_staging" / "clicks" / SHARD.shard_id).iterdir()) == []


def test_what_is_delivered_again_is_dropped(tmp_path: Path) -> None:
    opened(tmp_path)[0].write(rows(1, 10), SESSION)
    sink, _ = opened(tmp_path)
    assert sink.write(rows(3, 7), SESSION) == Position("10", 0)
    assert sink.write(rows(5, 14), SESSION) == Position("14", 0)
    assert stored(tmp_path) == list(range(1, 15))


def test_aggregates_are_cut_between_their_records(tmp_path: Path) -> None:
    from fastkcl.spark.sinks.rows import ShardRows

    sink, _ = opened(tmp_path)
    sink.write(ShardRows([batch([(9, 0), (10, 0), (10, 1)])], legacy=False), SESSION)
    assert sink.write(ShardRows([batch([(10, 0), (10, 1), (10, 2), (11, 0)])], legacy=False), SESSION) == Position(
        "11", 0
    )
    assert stored(tmp_path) == [9, 10, 10, 10, 11]


def test_the_legacy_dialect_drops_by_sequence_number(tmp_path: Path) -> None:
    sink, _ = opened(tmp_path)
    assert sink.write(rows(1, 4, legacy=True), SESSION) == Position("4")
    sink, position = opened(tmp_path)
    assert position is not None
    assert position.sub_sequence_number is None
    sink.write(rows(3, 6, legacy=True), SESSION)
    assert stored(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_positions_of_any_length(tmp_path: Path) -> None:
    first = 10**128
    for start in (first, first + 5):
        opened(tmp_path)[0].write(rows(start, start + 4), SESSION)
    assert stored(tmp_path) == list(range(first, first + 10))


@pytest.mark.parametrize("name", ["a/b", "..", ".", "%2F", "ü ß", "a=b", "_x"])
def test_streams_of_any_name_and_shards_of_one_name(tmp_path: Path, name: str) -> None:
    table = tmp_path / "t"
    for shard in (Shard(name, "s"), Shard("other", "s")):
        opened(table, shard)[0].write(rows(1, 3), SESSION)
    assert stored(table) == [1, 1, 2, 2, 3, 3]
    assert sorted(shards(table), key=str) == sorted([Shard(name, "s"), Shard("other", "s")], key=str)
    read = pa.dataset.dataset(table, format="parquet", partitioning="hive").to_table()
    assert set(read["stream"].to_pylist()) == {name, "other"}
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_transform(tmp_path: Path) -> None:
    def few(df: Any) -> Any:
        df.write = FakeWriter(df.table.filter(pa.compute.equal(df.table["sequenceNumber"], "2")), 1)
        return df

    import pyarrow.compute  # noqa: F401 - for pa.compute

    opened(tmp_path, transform=few)[0].write(rows(1, 3), SESSION)
    assert stored(tmp_path) == [2]
    assert opened(tmp_path)[1] == Position("3", 0)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fails(df: Any) -> Any:
        df.write.parquet = lambda url: (Path(url.removeprefix("file://")).mkdir(), 1 / 0)
        return df

    with pytest.raises(ZeroDivisionError):
        opened(tmp_path, transform=fails)[0].write(rows(1, 3), SESSION)
    assert list((tmp_path / "_staging" / "clicks" / SHARD.shard_id).iterdir()) == []
    sink, position = opened(tmp_path)
    assert position is None
    sink.write(rows(1, 3), SESSION)
    assert stored(tmp_path) == [1, 2, 3]


def test_no_folder_of_a_url() -> None:
    with pytest.raises(ValueError, match="POSIX file system, not s3://bucket"):
        ParquetSink("s3://bucket/table")


def test_damage_is_told(tmp_path: Path) -> None:
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    data = tmp_path / "stream=clicks" / f"shard={SHARD.shard_id}"
    for file in data.iterdir():
        file.unlink()
    with pytest.raises(SinkError, match="committed .* and gone"):
        opened(tmp_path)
    commit = tmp_path / "_commits" / "clicks" / SHARD.shard_id / "after-start"
    commit.write_text("{")
    with pytest.raises(SinkError, match="after-start: a damaged commit file"):
        opened(tmp_path)
    (commit.parent / "after-noon").touch()
    with pytest.raises(SinkError, match="after-noon: no name of a commit file"):
        opened(tmp_path)
    with pytest.raises(SinkError, match="no table of a ParquetSink"):
        shards(tmp_path / "_commits")


# ---- deaths and zombies -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with Mortals("PARQUET") as mortals:
        yield mortals


def test_a_death_at_every_step(tmp_path: Path, mortals: Mortals) -> None:
    """What is delivered again from the start, and what comes after it, is there once."""
    steps = 0
    while not mortals.write(tmp_path / str(steps), 1, 8, steps=steps):
        folder = tmp_path / str(steps)
        sink, position = opened(folder)
        seen = stored(folder) if position is not None else []
        assert seen == list(range(1, 1 + len(seen)))
        assert len(seen) in (0, 4, 8)
        assert position == (Position(str(len(seen)), 0) if seen else None)
        sink.write(rows(1, 6), SESSION)
        sink.write(rows(7, 12), SESSION)
        assert stored(folder) == list(range(1, 13))
        steps += 1
    assert steps > 30


@pytest.mark.parametrize("seed", range(20))
def test_deaths_in_a_row(tmp_path: Path, mortals: Mortals, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        first = chance.randrange(1, 30)
        mortals.write(tmp_path, 1, first + chance.randrange(1, 30), steps=chance.randrange(0, 60))
    sink, position = opened(tmp_path)
    seen = stored(tmp_path) if position is not None else []
    assert seen == list(range(1, 1 + len(seen)))
    sink.write(rows(1, 80), SESSION)
    assert stored(tmp_path) == list(range(1, 81))


@pytest.mark.parametrize("seed", range(60))
def test_a_zombie_and_its_successor_in_any_order(tmp_path: Path, seed: int) -> None:
    """Two that believe they own the shard, cut otherwise: nothing doubled, nothing lost."""
    chance = random.Random(seed)
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    order = [chance.randrange(2) for _ in range(chance.randrange(20, 120))]
    if seed % 3 == 0:  # one sleeps for long
        order = [0] * chance.randrange(1, 50) + [1] * 80
    race(PARQUET, tmp_path, order, [[(1, 6), (7, 12)], [(4, 8), (9, 10), (11, 20)]])
    assert stored(tmp_path) == list(range(1, 21))
    assert opened(tmp_path)[1] == Position("20", 0)
