"""A table's commits cost the same, however many there were: requests of the store, and CPU of the writer.

`make test-system` makes 300 commits of each format and counts requests. `make test-long` makes 1,000
(`FASTKCL_GROWTH_HUNDREDS`), and compares CPU, too: a busy machine spoils that of a few commits.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest
from delta_table_helpers import counted, delta_s3
from fastkcl.local_aws import LocalAws
from fastkcl.tables import DeltaTable, ParquetTable, S3Storage
from iceberg_helpers import IcebergPlace, sql_posix, sql_s3
from sink_helpers import SHARD
from table_helpers import arrived, as_they_are, s3_place

HUNDREDS = int(os.environ.get("FASTKCL_GROWTH_HUNDREDS", "3"))
LAST = 100 * HUNDREDS
IS_LONG = HUNDREDS >= 10


class Spent(NamedTuple):
    """By a hundred commits."""

    cpu_seconds: float
    requests: int
    of_a_commit: float
    """The median."""
    most: int
    """Of one that also merges, checkpoints or cleans up, or is the first."""


def spent(table: Any, requests: list[str]) -> list[Spent]:
    """What each hundred commits of a row have taken."""
    table.open(SHARD)
    each = []
    for hundred in range(HUNDREDS):
        counts = []
        begin = time.process_time()
        for number in range(hundred * 100 + 1, hundred * 100 + 101):
            requests.clear()
            table.append(arrived([number]), as_they_are)
            counts.append(len(requests))
        each.append(Spent(time.process_time() - begin, sum(counts), median(counts), max(counts)))
    print(*each, sep="\n")
    return each


def no_more_requests(each: list[Spent]) -> None:
    """The first hundred have fewer snapshots to carry on."""
    assert each[-1].requests <= 2 * each[1].requests, each


def no_more_cpu(each: list[Spent]) -> None:
    """The first hundred also load modules."""
    assert each[-1].cpu_seconds <= 2 * each[1].cpu_seconds, each


def test_commits_of_a_parquet_table(aws: LocalAws) -> None:
    place = s3_place(aws)
    with counted(aws.url) as (url, requests):
        storage = S3Storage(endpoint=url, access_key="local", secret_key="local")
        each = spent(ParquetTable(place.url, storage=storage), requests)
    no_more_requests(each)
    assert max(hundred.of_a_commit for hundred in each) <= 2
    assert max(hundred.requests for hundred in each) <= 210
    assert place.numbers() == list(range(1, LAST + 1))


def test_commits_of_a_delta_table(aws: LocalAws) -> None:
    """A checkpoint, every hundredth time, takes requests of its own."""
    place = delta_s3(aws)
    with counted(aws.url) as (url, requests):
        storage = S3Storage(endpoint=url, access_key="local", secret_key="local")
        each = spent(DeltaTable(place.url, storage=storage, share_commits=False), requests)
    no_more_requests(each)
    if IS_LONG:
        no_more_cpu(each)
    assert max(hundred.of_a_commit for hundred in each) <= 12
    assert max(hundred.requests for hundred in each) <= 1200
    assert place.handle().version() == LAST
    assert place.numbers() == list(range(1, LAST + 1))


def test_commits_of_an_iceberg_table(aws: LocalAws, tmp_path: Path) -> None:
    """Requests of the store; the catalog is a file here. Every hundredth time the manifests of the others are merged,
    which reads each of them.
    """
    place = sql_s3(aws, tmp_path)
    with counted(aws.url) as (url, requests):
        each = spent(IcebergPlace({**place.catalog, "s3.endpoint": url}).table(), requests)
    no_more_requests(each)
    if IS_LONG:
        no_more_cpu(each)
    assert max(hundred.of_a_commit for hundred in each) <= 8
    assert max(hundred.requests for hundred in each) <= 850
    assert len(place.handle().metadata.snapshots) == 100
    assert place.numbers() == list(range(1, LAST + 1))


@pytest.mark.long
def test_commits_of_an_iceberg_table_on_a_disk(tmp_path: Path) -> None:
    place = sql_posix(tmp_path)
    no_more_cpu(spent(place.table(), []))
    assert len(place.handle().metadata.snapshots) == 100
    assert place.numbers() == list(range(1, LAST + 1))
