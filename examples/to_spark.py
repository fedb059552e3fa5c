"""Stores a stream as Parquet through Spark: one folder of a table for each shard, and an event's fields as columns.

Try it without AWS, with a Spark Connect server that is running (https://spark.apache.org/docs/latest/spark-connect-overview.html):

    export FASTKCL_SPARK=sc://localhost:15002 TABLE_PATH=/tmp/clicks
    fastkcl replay --profile clickstream --shards 4 -- python examples/to_spark.py

In production a MultiLangDaemon starts it, with FASTKCL_STREAM set to the stream's name.
"""

import os

import fastkcl
from fastkcl.spark import SparkProcessor, WriteContext
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, get_json_object, lit

TABLE_PATH = os.environ["TABLE_PATH"]


def write(df: DataFrame, context: WriteContext) -> None:
    """Append a run of one shard's records. It may come twice after a death: the first three columns are the key."""
    events = df.select(
        lit(context.stream).alias("stream"),
        "sequenceNumber",
        "subSequenceNumber",
        "approximateArrivalTimestamp",
        get_json_object(col("data").cast("string"), "$.type").alias("event"),
        "data",
    )
    events.write.mode("append").parquet(f"{TABLE_PATH}/shardId={context.shard_id}")


if __name__ == "__main__":
    fastkcl.run(SparkProcessor(write), retries=2)
