"""The child program of ``fastkcl demo``: a shard's events, as typed columns, into a Parquet table, each exactly once.

The demo starts one for each shard, through the replayer, as a daemon would. It is an ordinary child; FASTKCL_SPARK and
FASTKCL_STREAM come from the environment as well.
"""

from __future__ import annotations

import os
from typing import Final

import fastkcl
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import ParquetSink

__all__ = ["EVENT_SCHEMA", "MAX_BYTES_VARIABLE", "TABLE_VARIABLE"]

EVENT_SCHEMA: Final = (
    "event_id STRING, type STRING, ts BIGINT, user_id STRING, session_id STRING, country STRING,"
    " page STRUCT<path: STRING, referrer: STRING, load_ms: INT>,"
    " device STRUCT<agent: STRING, width: INT, height: INT>,"
    " item STRUCT<sku: STRING, price: DOUBLE, quantity: INT>, experiment STRING, consent BOOLEAN"
)
"""Of the payloads: the events of a web shop."""
TABLE_VARIABLE: Final = "FASTKCL_DEMO_TABLE"
"""Folder of the table."""
MAX_BYTES_VARIABLE: Final = "FASTKCL_DEMO_MAX_BYTES"
"""Bytes of one write: all children share the heap of one server."""


if __name__ == "__main__":
    fastkcl.run(
        SparkProcessor(
            ParquetSink(os.environ[TABLE_VARIABLE]),
            payload="json",
            schema=EVENT_SCHEMA,
            max_bytes=int(os.environ[MAX_BYTES_VARIABLE]),
            max_age=5.0,  # a real stream does not end, and who looks on waits for its last records
            checkpoint_interval=1.0,
            reconnect_timeout=300.0,  # Spark takes as long as the machine takes to start it again
            report_interval=0.25,
        )
    )
