"""Consumers that write a stream into a Parquet table, in a process of their own, until it is killed.

kinesis_table.py STREAM KIND ID TABLE [LIMIT]     KIND: redis, dynamodb or kcl; LIMIT: of its shards

FAILOVER: seconds, 3 by default; NOTES: folder in which ID notes each record that it is given, before it is written.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from fastkcl.kinesis import DynamoDBCheckPointer, KCLCheckPointer, RedisCheckPointer, run_processors
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import ParquetSink
from sink_helpers import FakeSession

STREAM, KIND, ID, TABLE, *LIMIT = sys.argv[1:]
KINDS = {"redis": RedisCheckPointer, "dynamodb": DynamoDBCheckPointer, "kcl": KCLCheckPointer}
FAILOVER = float(os.environ.get("FAILOVER", "3"))
NOTES = os.environ.get("NOTES")


class Session(FakeSession):
    """What SparkProcessor asks of a session."""

    @property
    def conf(self):
        return self

    def set(self, name, value):
        """Nothing to set."""


class Noting(SparkProcessor):
    """Notes what it is given."""

    def initialize(self, context):
        super().initialize(context)
        self.shard_id = context.shard_id

    def process_batch(self, batch, checkpointer):
        now = time.monotonic_ns()
        lines = [
            json.dumps([now, self.shard_id, record.sequence_number, record.partition_key, record.data.decode()]) + "\n"
            for record in batch
        ]
        with (Path(NOTES) / ID).open("a", encoding="utf-8") as out:
            out.write("".join(lines))
        super().process_batch(batch, checkpointer)


def processor():
    options = {"max_records": 60, "max_age": 0.3, "checkpoint_interval": 0, "report_interval": None}
    kind = Noting if NOTES else SparkProcessor
    return kind(ParquetSink(TABLE), spark=Session(), **options)


async def main():
    if NOTES:
        (Path(NOTES) / ID).touch()
    await run_processors(
        STREAM,
        processor,
        checkpointer=KINDS[KIND](STREAM, id=ID, session_timeout=FAILOVER, heartbeat_frequency=FAILOVER / 3),
        shard_fetch_rate=5,
        sleep_time_no_records=0.2,
        max_shard_consumers=int(LIMIT[0]) if LIMIT else None,
    )


asyncio.run(main())
