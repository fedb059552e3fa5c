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
from table_helpers import Place, posix_place

WRITERS = int(os.environ.get("FASTKCL_CONTENTION_WRITERS", "8"))
WRITES = 6


def check(place: Place, kind: str, writers: int, hosts: list[Path]) -> None:
    contention = contend(kind, place.url, writers, WRITES, hosts, place.environment)
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


def test_writers_of_a_parquet_table(tmp_path: Path) -> None:
    check(posix_place(tmp_path), "ParquetTable", min(WRITERS, 4), [tmp_path / "host"])
