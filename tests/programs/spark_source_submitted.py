"""A query as a program for ``spark-submit``: ``spark_source_submitted.py ENDPOINT STREAM FOLDER ROWS``.

Its listener writes to FOLDER/metrics. When that has seen all rows, the plans are printed, the file is kept as
FOLDER/seen.prom, and the query is stopped.
"""

import logging
import shutil
import sys
import time
from pathlib import Path

from fastkcl.spark.source import SourceListener
from pyspark.sql import SparkSession

PATIENCE = 120.0


def main() -> None:
    endpoint, stream, folder, rows = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    logging.basicConfig(level=logging.DEBUG)
    spark = SparkSession.builder.getOrCreate()
    listener = SourceListener(metrics_dir=folder / "metrics", report_interval=0.2)
    spark.streams.addListener(listener)
    records = (
        spark.readStream.format("kinesis")
        .options(streamName=stream, endpoint=endpoint, region="us-east-1", initialPosition="trim_horizon")
        .load()
    )
    records.explain(True)
    writer = records.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.queryName("orders").start(str(folder / "table"))
    file = folder / "metrics" / "fastkcl+orders+0.prom"
    deadline = time.monotonic() + PATIENCE
    while not (file.exists() and f'source_rows_total{{query="orders",source="0"}} {rows}\n' in file.read_text()):
        if query.exception() is not None or time.monotonic() > deadline:
            raise SystemExit(f"not all rows were seen: {query.exception() or query.lastProgress}")
        time.sleep(0.05)
    shutil.copy(file, folder / "seen.prom")
    query.explain(True)
    print(query.lastProgress.json if query.lastProgress else None, flush=True)
    query.stop()
    while file.exists():
        if time.monotonic() > deadline:
            raise SystemExit("the file of a query that has ended stays")
        time.sleep(0.05)
    spark.stop()


main()
