"""Stores a stream as Parquet through Spark, each record once, without a daemon. SIGTERM or Ctrl-C ends it.

Try it without AWS:

    fastkcl local-aws --create-stream readings:4
    export AWS_ENDPOINT_URL=http://127.0.0.1:4567 AWS_DEFAULT_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
    python examples/to_kinesis.py readings 100000
    python examples/kinesis_to_spark.py readings /tmp/readings

Several of them share the shards, by the DynamoDB table kinesis-checkpoints-to-spark. Kill one: the others have its
shards after a minute, and the table has each record once all the same.
"""

import asyncio
import signal
import sys

from fastkcl.kinesis import DynamoDBCheckPointer, run_processors
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import ParquetSink


async def main(stream: str, folder: str) -> None:
    """Run until a signal comes; what is held is written first."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run_processors(
        stream,
        lambda: SparkProcessor(ParquetSink(folder), max_age=5),
        checkpointer=DynamoDBCheckPointer("to-spark"),
        stop=stop,
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
