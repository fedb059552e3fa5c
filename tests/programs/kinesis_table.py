"""Consumers that write a stream into a Parquet table, in a process of their own, until it is killed.

kinesis_table.py STREAM KIND ID TABLE [LIMIT]     KIND: redis, dynamodb or kcl; LIMIT: of its shards
"""

import asyncio
import sys

from fastkcl.kinesis import DynamoDBCheckPointer, KCLCheckPointer, RedisCheckPointer, run_processors
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import ParquetSink
from sink_helpers import FakeSession

STREAM, KIND, ID, TABLE, *LIMIT = sys.argv[1:]
KINDS = {"redis": RedisCheckPointer, "dynamodb": DynamoDBCheckPointer, "kcl": KCLCheckPointer}


class Session(FakeSession):
    """What SparkProcessor asks of a session."""

    @property
    def conf(self):
        return self

    def set(self, name, value):
        """Nothing to set."""


def processor():
    options = {"max_records": 60, "max_age": 0.3, "checkpoint_interval": 0, "report_interval": None}
    return SparkProcessor(ParquetSink(TABLE), spark=Session(), **options)


asyncio.run(
    run_processors(
        STREAM,
        processor,
        checkpointer=KINDS[KIND](STREAM, id=ID, session_timeout=3, heartbeat_frequency=1),
        shard_fetch_rate=5,
        sleep_time_no_records=0.2,
        max_shard_consumers=int(LIMIT[0]) if LIMIT else None,
    )
)
