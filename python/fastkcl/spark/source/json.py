"""JSON objects of a stream as typed columns, by all of the rules of Spark's ``from_json``.

    kinesis_json ──▶ the source: objects with one reading are parsed in the tasks, in Rust ──▶ columns
                              └─ objects that need a rule: _unparsed ──▶ from_json ──────────┘

Rules: the result is that of `fastkcl.spark.payload`, whose tests compare it with from_json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastkcl.spark.payload import parse_schema, parsed_frame
from fastkcl.spark.source.options import EXTRA_COLUMNS, TYPES
from fastkcl.spark.source.schema import LEFT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["kinesis_json"]

RECORD_COLUMNS = tuple(name for name in TYPES if name not in ("data", *EXTRA_COLUMNS))


def kinesis_json(spark: SparkSession, schema: str | StructType, *, streaming: bool = True, **options: str) -> DataFrame:
    """The JSON objects of streams, as typed columns.

    Args:
        spark: classic, or over Connect.
        schema: of the objects, as a StructType or in Spark's DDL: ``"id bigint, at timestamp, price decimal(9,2)"``.
        streaming: whether it is for ``writeStream``; otherwise the records of a time that is over.
        options: of the source, e.g. ``streamName="orders"``.

    Returns:
        The columns of `schema`, those of the records, and ``_corrupt``: the unchanged payload if it is not an object
        or has a value that does not fit.

    Raises:
        ConfigurationError: `schema` is none, or has a name that is taken.
    """
    from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

    fields = parse_schema(schema, spark, taken=RECORD_COLUMNS)
    kinds = {"string": StringType(), "bigint": LongType(), "timestamp": TimestampType()}
    declared = StructType(
        [
            *(StructField(field.name, field.dataType) for field in fields),
            *(StructField(name, kinds[TYPES[name]]) for name in RECORD_COLUMNS),
            *(StructField(name, BinaryType()) for name in LEFT),
        ]
    )
    reader = (spark.readStream if streaming else spark.read).format("kinesis").schema(declared)
    return parsed_frame(reader.options(**options, payload="json").load(), fields, RECORD_COLUMNS, typed=True)
