"""Readers of an IcebergTable: every row once, over a year of days, with a column that has come in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from duckdb_helpers import EXTENSIONS, extended
from fastkcl.local_aws import LocalAws
from fastkcl.tables import Shard
from fastkcl.tables.rows import ShardRows
from iceberg_helpers import IcebergPlace, plans, sql_posix, sql_s3
from sink_helpers import SHARD
from table_helpers import DAY, NOON, arrived, as_they_are

SHARDS = (SHARD, Shard("clicks-eu", "shardId-000000000007"))
NAMES = ("stream", "shard", "sequenceNumber", "price")
YEAR, WEEK = 365, 7
"""Folders of days of the first shard, on a disk and on S3; the other one has a day."""
COUNT = 4
"""Rows of the runs after those: two of them have the new column."""

Read = Callable[[IcebergPlace, "LocalAws | None"], Iterable[tuple[Any, ...]]]


def with_price(rows: ShardRows) -> pa.Table:
    table = rows.table()
    return table.add_column(1, "price", pa.array([7] * len(table), pa.int32()))


def fill(place: IcebergPlace, days: int) -> IcebergPlace:
    """A run over all days, one with a column more, and one without it again."""
    for shard, number in zip(SHARDS, (days, 1), strict=True):
        table = place.table(evolve="add")
        table.open(shard)
        table.append(arrived(range(1, number + 1), [NOON + day * DAY for day in range(number)]), as_they_are)
        table.append(arrived([number + 1, number + 2], NOON + days * DAY), with_price)
        table.append(arrived([number + 3, number + 4], NOON + days * DAY), as_they_are)
    assert len(plans(place)) == (days + 2) + (1 + 2)
    return place


def expected(days: int) -> list[tuple[Any, ...]]:
    return [
        (shard.stream, shard.shard_id, str(number), 7 if number in (count + 1, count + 2) else None)
        for shard, count in zip(SHARDS, (days, 1), strict=True)
        for number in range(1, count + COUNT + 1)
    ]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> IcebergPlace:
    return fill(sql_posix(tmp_path_factory.mktemp("readers")), YEAR)


@pytest.fixture(scope="module")
def bucket(aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> IcebergPlace:
    return fill(sql_s3(aws, tmp_path_factory.mktemp("catalog")), WEEK)


def by_pyiceberg(place: IcebergPlace, _: LocalAws | None) -> Iterable[tuple[Any, ...]]:
    table = place.handle().scan(selected_fields=NAMES).to_arrow()
    return zip(*(table[name].to_pylist() for name in NAMES), strict=True)


def by_polars(place: IcebergPlace, _: LocalAws | None) -> Iterable[tuple[Any, ...]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
        options = {name: value for name, value in place.catalog.items() if name.startswith("s3.")}
        frame = pl.scan_iceberg(place.handle(), storage_options=options or None)
        return frame.select(NAMES).collect().rows()


def by_duckdb(place: IcebergPlace, aws: LocalAws | None) -> Iterable[tuple[Any, ...]]:
    with extended(aws) as connection:
        table = f"iceberg_scan('{place.handle().metadata_location}')"
        rows: list[tuple[Any, ...]] = connection.execute(f"SELECT {', '.join(NAMES)} FROM {table}").fetchall()
        return rows


def same(rows: Iterable[tuple[Any, ...]], days: int) -> bool:
    return sorted(rows, key=str) == sorted(expected(days), key=str)


ALL = [by_pyiceberg, by_polars, by_duckdb] if EXTENSIONS else [by_pyiceberg, by_polars]
READERS = pytest.mark.parametrize("read", ALL, ids=lambda read: read.__name__)


@READERS
def test_every_row_once(disk: IcebergPlace, read: Read) -> None:
    assert same(read(disk, None), YEAR)


@READERS
def test_every_row_once_on_s3(bucket: IcebergPlace, aws: LocalAws, read: Read) -> None:
    assert same(read(bucket, aws), WEEK)


@pytest.mark.skipif(not EXTENSIONS, reason="DuckDB has no packages of its extensions for this Python")
def test_a_day_by_its_partition(disk: IcebergPlace) -> None:
    """DuckDB and pyiceberg look at the days of a filter alone."""
    with extended() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        table = f"iceberg_scan('{disk.handle().metadata_location}')"
        day = "approximateArrivalTimestamp >= '2027-11-22' AND approximateArrivalTimestamp < '2027-11-23'"
        found = connection.execute(f'SELECT "sequenceNumber" FROM {table} WHERE {day}').fetchall()
    assert sorted(found) == sorted((str(count + number),) for count in (YEAR, 1) for number in range(1, COUNT + 1))
