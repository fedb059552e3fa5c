"""Shards of a stream into a table by a Spark in this process, until standard input ends.

kinesis_local_spark.py STREAM OUT
"""

import asyncio
import sys

from fastkcl.kinesis import MemoryCheckPointer, run_processors
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import ParquetSink

STREAM, OUT = sys.argv[1:]


async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, stop.set)
    await run_processors(
        STREAM,
        lambda: SparkProcessor(ParquetSink(OUT), spark="local[2]", max_age=0.5),
        checkpointer=MemoryCheckPointer(),
        stop=stop,
        shard_fetch_rate=5,
        sleep_time_no_records=0.2,
    )


asyncio.run(main())
