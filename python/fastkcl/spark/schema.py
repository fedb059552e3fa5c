"""The canonical record schema as Spark declares it.

Spark compares schemas literally, nullability included, so this is one constant that equals the schema of
`fastkcl.RecordBatch`; the names are the wire's and the Spark connectors'. A timestamp is an instant; Spark shows
it in ``spark.sql.session.timeZone``.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

__all__ = ["SCHEMA"]

SCHEMA: Final = StructType(
    [
        StructField("data", BinaryType()),
        StructField("partitionKey", StringType()),
        StructField("sequenceNumber", StringType()),
        StructField("subSequenceNumber", LongType()),
        StructField("approximateArrivalTimestamp", TimestampType()),
    ]
)
"""Columns of the DataFrame that `SparkProcessor` hands to `write`, all nullable."""
