"""Readers of a ParquetTable as docs/load.md has them: every row once, with a column that has come in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from duckdb_helpers import EXTENSIONS, extended
from fastkcl.local_aws import LocalAws
from fastkcl.tables import Shard
from fastkcl.tables.rows import ShardRows
from sink_helpers import SHARD
from table_helpers import DAY, NOON, Place, arrived, as_they_are, posix_place, s3_place

if TYPE_CHECKING:
    from spark_fixtures import SharedSpark

SHARDS = (SHARD, Shard("clicks-eu", "shardId-000000000007"))
RUNS, STRIDE = 8, 50
"""Runs of two rows each, so many days apart: more than a year."""
NAMES = ("stream", "shard", "date", "sequenceNumber", "price")
EXPECTED = sorted(
    (shard.stream, shard.shard_id, str(date(2026, 11, 22) + timedelta(days=run * STRIDE)), 2 * run + row, price)
    for shard in SHARDS
    for run, price in enumerate([None] * (RUNS // 2) + [7] * (RUNS // 2))
    for row in (1, 2)
)


def with_price(rows: ShardRows) -> pa.Table:
    table = rows.table()
    return table.append_column("price", pa.array([7] * len(table), pa.int32()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second half of the files has one column more."""
    place = posix_place(tmp_path_factory.mktemp("readers"))
    fill(place)
    return Path(place.url)


def fill(place: Place) -> None:
    for shard in SHARDS:
        table = place.table()
        table.open(shard)
        for run in range(RUNS):
            rows = arrived([2 * run + 1, 2 * run + 2], NOON + run * STRIDE * DAY)
            table.append(rows, as_they_are if run < RUNS // 2 else with_price)


def newest(folder: Path) -> Path:
    return max(folder.rglob("after-*.parquet"), key=lambda path: path.parent.name)


def by_pyarrow(folder: Path) -> Iterable[tuple[Any, ...]]:
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    columns = ds.dataset(folder, partitioning="hive").schema
    schema = pa.unify_schemas([columns, pq.read_schema(newest(folder)).remove_metadata()])
    table = ds.dataset(folder, partitioning="hive", schema=schema).to_table()
    return zip(*(table[name].to_pylist() for name in NAMES), strict=True)


def by_polars(folder: Path) -> Iterable[tuple[Any, ...]]:
    import polars as pl

    schema = pl.read_parquet_schema(newest(folder))
    frame = pl.scan_parquet(folder, schema=schema, hive_partitioning=True, missing_columns="insert")
    return frame.select(NAMES).collect().rows()


def by_duckdb(folder: Path) -> Iterable[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.execute(in_sql(str(folder))).fetchall()


def in_sql(url: str) -> str:
    files = f"read_parquet('{url}/**/*.parquet', hive_partitioning = true, union_by_name = true)"
    return f"SELECT {', '.join(NAMES)} FROM {files}"


def same(rows: Iterable[tuple[Any, ...]]) -> bool:
    found = [(stream, shard, str(day), int(number), price) for stream, shard, day, number, price in rows]
    return sorted(found, key=str) == sorted(EXPECTED, key=str)


@pytest.mark.parametrize("read", [by_pyarrow, by_polars, by_duckdb], ids=lambda read: read.__name__)
def test_every_row_once(folder: Path, read: Callable[[Path], Iterable[tuple[Any, ...]]]) -> None:
    assert same(read(folder))


@pytest.mark.skipif(not EXTENSIONS, reason="DuckDB has no packages of its extensions for this Python")
def test_every_row_once_by_duckdb_on_s3(aws: LocalAws) -> None:
    place = s3_place(aws)
    fill(place)
    with extended(aws) as connection:
        assert same(connection.execute(in_sql(place.url)).fetchall())


def test_every_row_once_by_spark(folder: Path, spark: SharedSpark) -> None:
    frame = spark.session.read.option("mergeSchema", "true").parquet(str(folder))
    assert same(frame.select(*NAMES).collect())
