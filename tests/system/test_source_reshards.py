"""Seven ways in which shards change, read by real Spark, inline and by range; tests/spark has them without a JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fastkcl.local_aws import LocalAws
from reshard_scenarios import SCENARIOS, Stage, check_rows
from spark_fixtures import SharedSpark


@pytest.mark.long
@pytest.mark.parametrize("inline", ["8m", "0"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_shards_that_change(
    spark: SharedSpark, own_aws: LocalAws, tmp_path: Path, scenario: Callable[[Stage], None], inline: str
) -> None:
    stage = Stage(own_aws)
    table = tmp_path / "table"

    def read() -> None:
        reader = spark.session.readStream.format("kinesis").options(
            streamName=stage.stream, endpoint=own_aws.url, region="us-east-1", initialPosition="trim_horizon"
        )
        writer = reader.option("inlineBytes", inline).load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query = writer.start(str(table))
        assert query.awaitTermination(240), query.lastProgress

    stage.read = read
    scenario(stage)
    check_rows(list(batches_of(table)), stage.counts)


def batches_of(table: Path) -> Iterator[list[tuple[int, str, bytes]]]:
    """The rows of each batch, as Spark's log of the table has them."""
    seen: set[str] = set()
    logs = (table / "_spark_metadata").glob("[0-9]*")
    for log in sorted(logs, key=lambda path: int(path.name.partition(".")[0])):
        names = {json.loads(line)["path"].rpartition("/")[2] for line in log.read_text().splitlines()[1:]}
        rows = [row for name in sorted(names - seen) for row in pq.ParquetFile(table / name).read().to_pylist()]
        seen |= names  # a compacted log has those of all batches before it
        yield [(int(row["sequenceNumber"]), row["partitionKey"], row["data"]) for row in rows]
