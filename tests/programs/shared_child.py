"""A child for the tests: a ParquetSink, by a Spark of which nothing is said. Tells the server's process. Not a test.

It writes when all CHILDREN have opened the server, which they note in the folder OPENED: a server that dies while a
child initializes ends the child.
"""

import os
import time
from pathlib import Path

import fastkcl
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import ParquetSink

OPENED = Path(os.environ["OPENED"])
CHILDREN = int(os.environ["CHILDREN"])
SECONDS = 120.0


class Sink(ParquetSink):
    def write(self, rows, session):
        until = time.monotonic() + SECONDS
        while len(list(OPENED.iterdir())) < CHILDREN and time.monotonic() < until:
            time.sleep(0.05)
        print("server", processor._session._attachment.pid)
        return super().write(rows, session)


class Processor(SparkProcessor):
    def initialize(self, context):
        super().initialize(context)
        (OPENED / context.shard_id).touch()


if __name__ == "__main__":
    processor = Processor(Sink(os.environ["TABLE_PATH"]), max_records=250, max_bytes=42_000, checkpoint_interval=0)
    fastkcl.run(processor)
