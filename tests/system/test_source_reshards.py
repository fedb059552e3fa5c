"""Seven ways in which shards change, read by real Spark, inline and by range; tests/spark has them without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fastkcl.local_aws import LocalAws
from reshard_scenarios import SCENARIOS, Stage, check_rows
from spark_fixtures import SharedSpark

QUICK = ("while_the_query_is_down", "after_a_record_of_no_bytes")
"""Of `make test-system`; all of them in `make test-long`."""


@pytest.mark.parametrize("inline", ["8m", "0"])
@pytest.mark.parametrize(
    "scenario",
    [pytest.param(one, id=one.__name__, marks=[] if one.__name__ in QUICK else pytest.mark.long) for one in SCENARIOS],
)
def test_shards_that_change(
    spark: SharedSpark, own_aws: LocalAws, tmp_path: Path, scenario: Callable[[Stage], None], inline: str
) -> None:
    stage = Stage(own_aws)
    runs = 0

    def read() -> None:
        """Into a folder of its own for each run, so that the batches of runs can be told apart."""
        nonlocal runs
        reader = spark.session.readStream.format("kinesis").options(
            streamName=stage.stream, endpoint=own_aws.url, region="us-east-1", initialPosition="trim_horizon"
        )
        writer = reader.option("inlineBytes", inline).load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query = writer.start(str(tmp_path / f"run-{runs}"))
        assert query.awaitTermination(120), query.lastProgress
        runs += 1

    stage.read = read
    scenario(stage)
    batches = []
    for number in range(runs):
        rows = []
        for file in sorted((tmp_path / f"run-{number}").glob("*.parquet")):
            rows += pq.ParquetFile(file).read().to_pylist()
        batches.append([(int(row["sequenceNumber"]), row["partitionKey"], row["data"]) for row in rows])
    check_rows(batches, stage.counts)
