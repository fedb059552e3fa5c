"""The child program of ``fastkcl demo``: a shard's records into Parquet, and a note of what each write took.

The demo starts one for each shard, through the replayer, as a daemon would. It is an ordinary child: apart from the
notes, this is all that a program needs. FASTKCL_SPARK and FASTKCL_STREAM come from the environment as well.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import fastkcl
from fastkcl.spark import SparkProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fastkcl.spark import WriteContext

__all__ = ["NOTES_VARIABLE", "TABLE_VARIABLE"]

TABLE_VARIABLE: Final = "FASTKCL_DEMO_TABLE"
"""Folder of the table; each shard writes to a partition of its own."""
NOTES_VARIABLE: Final = "FASTKCL_DEMO_NOTES"
"""Folder for a file of JSON lines per shard, one line a write: begun, ended (s since the epoch), rows, bytes."""
MAX_BYTES_VARIABLE: Final = "FASTKCL_DEMO_MAX_BYTES"
"""Bytes of one write: all children share the heap of one server."""


def write(df: DataFrame, context: WriteContext) -> None:
    """Append a run of records to the shard's partition of the table."""
    begun = time.time()
    df.write.mode("append").parquet(f"{os.environ[TABLE_VARIABLE]}/shardId={context.shard_id}")
    note = {"begun": begun, "ended": time.time(), "rows": context.rows, "bytes": context.bytes}
    with (Path(os.environ[NOTES_VARIABLE]) / f"{context.shard_id}.jsonl").open("a") as notes:
        notes.write(json.dumps(note) + "\n")


if __name__ == "__main__":
    fastkcl.run(SparkProcessor(write, max_bytes=int(os.environ[MAX_BYTES_VARIABLE])))
