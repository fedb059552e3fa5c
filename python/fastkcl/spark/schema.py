"""The canonical record schema as Spark declares it.

Spark compares schemas literally, nullability included, so this is one constant that equals the schema of
`fastkcl.RecordBatch`; the names are the wire's and the Spark connectors'. A timestamp is an instant; Spark shows
it in ``spark.sql.session.timeZone``.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from fastkcl import _core

__all__ = ["SCHEMA"]

_TYPES: Final = {
    "binary": BinaryType(),
    "string": StringType(),
    "int64": LongType(),
    "timestamp[us, tz=UTC]": TimestampType(),
}

SCHEMA: Final = StructType([StructField(name, _TYPES[kind]) for name, kind in _core.CANONICAL_COLUMNS.items()])
"""Columns of the DataFrame that `SparkProcessor` hands to `write`, all nullable."""
