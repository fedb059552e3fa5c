"""A client of the Spark bench without a daemon: its shard's records are ready in memory before the clock starts.

spark_client.py tables SHARD RECORDS.arrow PIECE_BYTES     createDataFrame's best case: pieces of a pa.Table
spark_client.py tuples SHARD RECORDS.arrow                 lists of tuples, one for each batch of the daemon
"""

import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from fastkcl.spark.schema import SCHEMA
from gate import Gate
from pyspark.sql import SparkSession
from spark_rows import DDL, append, row


class Record(NamedTuple):
    """What amazon_kclpy gives for a record."""

    binary_data: bytes
    partition_key: str
    sequence_number: str
    sub_sequence_number: int
    timestamp_millis: int


def pieces(table: pa.Table, nbytes: int) -> list[pa.Table]:
    """The table in equal pieces, none larger than `nbytes` if records are equally large."""
    count = -(-table.nbytes // nbytes)
    rows = -(-table.num_rows // count)
    return [table.slice(start, rows) for start in range(0, table.num_rows, rows)]


def records(batches: list[pa.RecordBatch]) -> Iterator[list[Record]]:
    """Each batch as a program for amazon_kclpy has it."""
    for batch in batches:
        *columns, times = batch.columns
        millis = times.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
        yield [Record(*values) for values in zip(*(column.to_pylist() for column in (*columns, millis)), strict=True)]


def main(kind: str, shard: str, path: str, *size: str) -> None:
    """Open the session, get the data ready, wait for the word to go, write."""
    spark = SparkSession.builder.remote(os.environ["FASTKCL_SPARK"]).create()
    with pa.OSFile(path) as file:
        table = pa.ipc.open_file(file).read_all()
    work: list[Any]
    if kind == "tables":
        for name, value in (("localRelationCacheThreshold", "120000000"), ("timeZone", "UTC")):
            spark.conf.set(f"spark.sql.session.{name}", value)
        work = pieces(table.combine_chunks(), int(size[0]))
    else:
        work = list(records(table.to_batches()))
    rows = table.num_rows
    del table
    gate = Gate()
    gate.wait()
    for piece in work:
        if kind == "tables":
            append(spark.createDataFrame(piece, SCHEMA), shard)
        else:
            append(spark.createDataFrame([row(record) for record in piece], DDL), shard)
    gate.done(rows)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
