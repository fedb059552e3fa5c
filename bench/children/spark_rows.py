"""Shared by clients of the Spark bench that know no fastkcl: a record as a tuple, and where a DataFrame goes."""

import os
from datetime import UTC, datetime

DDL = (
    "data binary, partitionKey string, sequenceNumber string, subSequenceNumber long,"
    " approximateArrivalTimestamp timestamp"
)


def row(record):
    """A record of amazon_kclpy, or one that looks like it, as a tuple."""
    return (
        record.binary_data,
        record.partition_key,
        record.sequence_number,
        record.sub_sequence_number,
        datetime.fromtimestamp(record.timestamp_millis / 1000, UTC),
    )


def append(df, shard):
    """Write to the shard's folder of the table; where there is none, have Spark take everything and store nothing."""
    table = os.environ.get("FASTKCL_BENCH_TABLE")
    if table:
        df.write.mode("append").parquet(f"file://{table}/shard={shard}")
    else:
        df.write.format("noop").mode("overwrite").save()
