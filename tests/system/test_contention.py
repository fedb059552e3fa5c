"""Many processes that write one table at once: each row is there once, and no writer fails.

FASTKCL_CONTENTION_WRITERS says how many; speed is measured in bench/test_bench_tables.py.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from contention import ROWS, contend
from delta_table_helpers import delta_posix, delta_s3
from fastkcl.local_aws import LocalAws
from fastkcl.tables import Shard
from iceberg_helpers import IcebergPlace, sql_posix
from table_helpers import Place, posix_place

WRITERS = int(os.environ.get("FASTKCL_CONTENTION_WRITERS", "8"))
WRITES = 6


def check(place: Place | IcebergPlace, kind: str, writers: int, hosts: list[Path]) -> None:
    contention = contend(kind, place.environment["TABLE_URL"], writers, WRITES, hosts, place.environment)
    print(f"{kind}, {writers} writers, {len(hosts)} hosts: {contention.writes_a_second:.1f} writes/s,", end=" ")
    print(f"95 % within {contention.seconds_of_95_percent:.2f} s, all within {contention.longest:.2f} s")
    assert len(contention.took) == writers * WRITES
    found = Counter((shard, int(number)) for _, shard, number, *_ in place.records())
    expected = {(f"shardId-{shard:012}", number) for shard in range(writers) for number in range(1, WRITES * ROWS + 1)}
    assert found == Counter(expected)
    assert place.records().total() == len(expected)


@pytest.mark.parametrize("hosts", [1, 2])
def test_writers_of_a_delta_table(tmp_path: Path, hosts: int) -> None:
    """One lock, and two: writers of two hosts are kept apart by the table alone."""
    place = delta_posix(tmp_path)
    check(place, "DeltaTable", WRITERS, [tmp_path / f"host-{number}" for number in range(hosts)])
    assert len(place.entries()) <= 1 + WRITERS * WRITES


def test_writers_of_a_delta_table_on_s3(aws: LocalAws, tmp_path: Path) -> None:
    check(delta_s3(aws), "DeltaTable", min(WRITERS, 4), [tmp_path / "host"])


@pytest.mark.parametrize("hosts", [1, 2])
def test_writers_of_an_iceberg_table(tmp_path: Path, hosts: int) -> None:
    """Of one host they combine their commits: there are fewer snapshots than writes."""
    place = sql_posix(tmp_path)
    place.table().open(Shard("clicks", "shardId-0"))  # pyiceberg makes the catalog's own tables, and not at once
    check(place, "IcebergTable", WRITERS, [tmp_path / f"host-{number}" for number in range(hosts)])
    assert len(place.handle().metadata.snapshots) < WRITERS * WRITES


def test_writers_of_a_parquet_table(tmp_path: Path) -> None:
    check(posix_place(tmp_path), "ParquetTable", min(WRITERS, 4), [tmp_path / "host"])
