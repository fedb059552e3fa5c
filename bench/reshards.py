"""Rows that are lost while shards change: the Spark source and awslabs' connector, in the scenarios of our own tests.

``python bench/reshards.py JAR`` has awslabs' connector, built from its source, beside ours (README.md says how to build
it); without JAR it is ours alone. A query runs until no row has come for 15 s, as a connector does not say when it has
all; it stops where a scenario has it down, and goes on from its checkpoint. About 15 minutes with both.

The last line of each scenario is a count, not a time: rows put, and of those the ones that are in the table.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastkcl.local_aws import LocalAws
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from reshard_scenarios import SCENARIOS, Stage

QUIET = 15.0
PATIENCE = 300.0


def options_of(way: str, aws: LocalAws, stream: str) -> tuple[str, dict[str, str]]:
    """Format and options of the reader."""
    if way == "awslabs":
        options = {"region": "us-east-1", "streamName": stream, "endpointUrl": aws.url}
        options |= {"consumerType": "GetRecords", "startingPosition": "TRIM_HORIZON"}
        return "aws-kinesis", {f"kinesis.{name}": value for name, value in options.items()}
    options = {"region": "us-east-1", "streamName": stream, "endpoint": aws.url, "initialPosition": "trim_horizon"}
    return "kinesis", options | ({"inlineBytes": "0"} if way == "by range" else {})


def reader_of(spark: SparkSession, way: str, aws: LocalAws, stream: str, folder: Path) -> Callable[[], None]:
    """What reads until no more rows come."""
    name, options = options_of(way, aws, stream)

    def read() -> None:
        writer = spark.readStream.format(name).options(**options).load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(processingTime="1 second")
        query = writer.start(str(folder / "table"))
        begun = last = time.monotonic()
        rows = 0
        while time.monotonic() - last < QUIET:
            assert query.isActive, query.exception()
            assert time.monotonic() - begun < PATIENCE, "rows come without an end"
            time.sleep(0.5)
            now = sum({each["batchId"]: each["numInputRows"] for each in query.recentProgress}.values())
            if now != rows or not query.recentProgress:
                rows, last = now, time.monotonic()
        query.stop()

    return read


def lost_and_doubled(table: Any, put: int) -> tuple[int, int]:
    """Of the rows that were put; each has a sequence number of its own."""
    numbers = [row["sequenceNumber"] for row in table.select("sequenceNumber").collect()]
    return put - len(set(numbers)), len(numbers) - len(set(numbers))


def main(arguments: list[str]) -> None:
    """A line for each scenario and way."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "FATAL")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    ways = ["inline", "by range"]
    if arguments:
        builder, ways = builder.config("spark.jars", str(Path(arguments[0]).resolve(strict=True))), [*ways, "awslabs"]
    with LocalAws() as aws, TemporaryDirectory() as folder:
        os.environ |= {**aws.environment, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        spark = builder.getOrCreate()
        for scenario in SCENARIOS:
            for way in ways:
                stage, place = Stage(aws), Path(folder) / f"{scenario.__name__}-{way}"
                stage.read = reader_of(spark, way, aws, stage.stream, place)
                scenario(stage)
                put = stage.counts.total()
                lost, doubled = lost_and_doubled(spark.read.parquet(str(place / "table")), put)
                print(f"{scenario.__name__}, {way}: {put} rows put, {lost} lost, {doubled} doubled", flush=True)
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
