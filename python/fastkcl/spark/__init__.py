"""Hands the records of a shard to Spark, in the worker process that the daemon started.

    import fastkcl
    from fastkcl.spark import SparkProcessor
    from fastkcl.spark.sinks import ParquetSink

    fastkcl.run(SparkProcessor(ParquetSink("/data/events"), spark="sc://localhost:15002"))

Modules, from the protocol to Spark:

    processor   the BatchProcessor; its loop is that of `fastkcl.tables`
    messages    the same for messages without positions, of other protocols: at least once
    targets     where rows go: sinks and functions, through a session
    writer      files of a table that the worker commits itself
    payload     gzip unpacked, JSON objects as typed columns
    sinks       tables for the records: exactly once, or at least once
    frame       a DataFrame of a table, in the form that costs Spark least
    schema      the canonical record schema as a StructType (imports pyspark)
    source      `spark.readStream.format("kinesis")`: the other way round, streams that Spark reads (imports pyspark)
    server      the session that is written to, the server that it is on, and the Java for that

Importing this imports neither pyspark nor pyarrow: both are needed when the first shard is initialized.
"""

import sys
from typing import TYPE_CHECKING, Any

from fastkcl import write_after as buffer
from fastkcl.payloads.options import AvroPayload, BinaryPayload, JsonPayload, ProtobufPayload
from fastkcl.spark.messages import MessageContext, MessageWriter
from fastkcl.spark.processor import SparkProcessor, WriteContext
from fastkcl.spark.server.local import LocalSpark
from fastkcl.spark.server.settings import SparkUnavailableError
from fastkcl.spark.writer import SparkWriter
from fastkcl.tables.bounds import Bounds

__all__ = [
    "AvroPayload",
    "BinaryPayload",
    "Bounds",
    "JsonPayload",
    "ProtobufPayload",
    "LocalSpark",
    "MessageContext",
    "MessageWriter",
    "SparkProcessor",
    "SparkUnavailableError",
    "SparkWriter",
    "WriteContext",
    "kinesis_json",
]

if TYPE_CHECKING:
    from fastkcl.spark.source.json import kinesis_json

sys.modules[f"{__name__}.buffer"] = buffer  # its path of earlier versions, which the docs named


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what imports pyspark is imported when it is asked for
    if name == "kinesis_json":
        from fastkcl.spark.source.json import kinesis_json

        return kinesis_json
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
