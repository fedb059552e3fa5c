"""Tables on S3 as Spark 4.1 reads them: Parquet and Delta by s3a, Iceberg by its own runtime.

No release of Delta's or Iceberg's jars is for the Spark of the other tests. Spark 4.1 has an environment of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_table_helpers import delta_s3
from fastkcl.local_aws import LocalAws
from fastkcl.tables import Shard
from fastkcl.tables.rows import ShardRows
from foreign_packages import CACHE, install, jars_of
from iceberg_helpers import rest_catalog, sql_s3
from paths import ROOT
from sink_helpers import SHARD
from table_helpers import DAY, NOON, arrived, as_they_are, s3_place

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

PROGRAM = ROOT / "tests" / "programs" / "spark_on_s3"
SHARDS = {SHARD: 105, Shard("clicks-eu", "shardId-000000000007"): 5}
"""Commits of a row each: more than Delta has between two checkpoints."""
STRIDE = 4
"""Days from one to the next: more than a year."""


def with_price(rows: ShardRows) -> pa.Table:
    table = rows.table()
    return table.append_column("price", pa.array([7] * len(table), pa.int32()))


def fill(place: Any, **options: Any) -> None:
    """Commits whose middle third has one column more."""
    for shard, count in SHARDS.items():
        table = place.table(**options)
        table.open(shard)
        for number in range(1, count + 1):
            rows = arrived([number], NOON + number * STRIDE * DAY)
            table.append(rows, with_price if is_priced(number, count) else as_they_are)


def is_priced(number: int, count: int) -> bool:
    return count < 3 * number <= 2 * count


EXPECTED = sorted(
    [shard.stream, shard.shard_id, str(number), 7 if is_priced(number, count) else None]
    for shard, count in SHARDS.items()
    for number in range(1, count + 1)
)


def test_every_row_once(aws: LocalAws, tmp_path: Path) -> None:
    python = install(CACHE / "spark-4.1", "pyspark==4.1.4", check="import pyspark.sql", timeout=1200)
    jars = jars_of(CACHE / "spark-on-s3", PROGRAM / "pom.xml")
    parquet, delta, iceberg = s3_place(aws), delta_s3(aws), sql_s3(aws, tmp_path)
    fill(parquet)
    fill(delta, evolve="add")
    fill(iceberg, evolve="add")
    places = (parquet.url.replace("s3://", "s3a://"), delta.url.replace("s3://", "s3a://"), iceberg.name)
    tables = map("=".join, zip(("parquet", "delta", "iceberg"), places, strict=True))
    with rest_catalog(iceberg.theirs()) as catalog:
        done = subprocess.run(
            [python, PROGRAM / "read.py", jars, aws.url, catalog, *tables],
            env={name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-5000:]
    found = dict(map(json.loads, done.stdout.splitlines()))
    assert {name: sorted(rows) for name, rows in found.items()} == dict.fromkeys(
        ("parquet", "delta", "iceberg"), EXPECTED
    )
