"""A child of ``fastkcl demo`` that writes its shard into a table on S3 itself, each event exactly once, without Spark.

The demo starts one for each shard, through the replayer, as a daemon would. FASTKCL_STREAM and the place and
credentials of S3 come from the environment.
"""

from __future__ import annotations

import os
from typing import Final

import fastkcl
from fastkcl.demo.child import EVENT_SCHEMA
from fastkcl.tables import JsonPayload, ParquetTable, TableProcessor

__all__ = ["TABLE_VARIABLE"]

TABLE_VARIABLE: Final = "FASTKCL_DEMO_LAKE"
"""URL of the table."""


if __name__ == "__main__":
    fastkcl.run(
        TableProcessor(
            ParquetTable(os.environ[TABLE_VARIABLE]),
            payload=JsonPayload(EVENT_SCHEMA),
            max_age=5.0,
            checkpoint_interval=1.0,
            report_interval=0.25,
        )
    )
