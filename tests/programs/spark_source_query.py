"""A query over a stream, with a Spark of its own: ``spark_source_query.py ENDPOINT STREAM FOLDER [OPTION=VALUE …]``.

Each batch replaces FOLDER/table/batch=N, so a batch that comes again shows its rows of that time. With FOLDER/last it
reads the rest of the stream, and ends. QUERY_MASTER is the master, QUERY_SETTINGS are more settings of Spark, as JSON;
with QUERY_SLOW each row of a shard with an even number takes so many milliseconds.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    endpoint, stream, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    options = dict(argument.split("=", 1) for argument in sys.argv[4:])
    builder = (
        SparkSession.builder.master(os.environ.get("QUERY_MASTER", "local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.host", "127.0.0.1")
    )
    for name, value in json.loads(os.environ.get("QUERY_SETTINGS", "{}")).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    columns = ["cast(data as string) AS number", "partitionKey AS key", "sequenceNumber", "shardId"]
    if "QUERY_SLOW" in os.environ:
        pause = f"if(right(shardId, 1) IN ('0', '2', '4', '6', '8'), {os.environ['QUERY_SLOW']}L, 0L)"
        columns.append(f"reflect('java.lang.Thread', 'sleep', {pause}) AS slept")
    records = (
        spark.readStream.format("kinesis")
        .options(streamName=stream, endpoint=endpoint, region="us-east-1", initialPosition="trim_horizon", **options)
        .load()
        .selectExpr(*columns)
    )

    def store(batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(folder / "table" / f"batch={number}"))

    trigger = {"availableNow": True} if (folder / "last").exists() else {"processingTime": "200 milliseconds"}
    writer = records.writeStream.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(store)
    writer.trigger(**trigger).start().awaitTermination()


main()
