"""The query of `fastkcl spark demo`: ``python -m fastkcl.demo.source_query ENDPOINT STREAM FOLDER [last]``.

It stands for a program of a user, and runs in a process of its own, so that it can be killed. With ``last`` it reads
the rest of the stream, and counts the rows of the table: FOLDER/result.json.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

SCHEMA = "number bigint, country string, price double, partitionKey string, shardId string, _corrupt binary"


def main() -> None:
    """Run the query until it is killed, or to its end."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    endpoint, stream, folder, is_last = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:] == ["last"]
    from pyspark.sql import SparkSession

    from fastkcl.spark.server.jdk import use_java

    use_java()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    records = (
        spark.readStream.format("kinesis")
        .options(streamName=stream, endpoint=endpoint, region="us-east-1")
        .options(initialPosition="trim_horizon", payload="json")
        .schema(SCHEMA)
        .load()
    )
    writer = records.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.trigger(availableNow=True) if is_last else writer.trigger(processingTime="500 milliseconds")
    query = writer.start(str(folder / "table"))
    query.awaitTermination()
    if is_last:
        (folder / "result.json").write_text(json.dumps(_looked_at(spark, folder)))


def _looked_at(spark: Any, folder: Path) -> dict[str, Any]:  # noqa: ANN401
    """Rows, distinct numbers and their bounds, and the rows of each shard."""
    table = spark.read.parquet(str(folder / "table"))
    row = table.selectExpr("count(*)", "count(distinct number)", "min(number)", "max(number)").first()
    shards = {found["shardId"]: found["count"] for found in table.groupBy("shardId").count().collect()}
    return {"rows": row[0], "distinct": row[1], "first": row[2], "last": row[3], "shards": shards}


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
