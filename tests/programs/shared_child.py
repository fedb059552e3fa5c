"""A child for the tests: a ParquetSink, by a Spark of which nothing is said. Tells the server's process. Not a test."""

import os

import fastkcl
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import ParquetSink


class Sink(ParquetSink):
    def write(self, rows, session):
        print("server", processor._session._attachment.pid)
        return super().write(rows, session)


if __name__ == "__main__":
    processor = SparkProcessor(Sink(os.environ["TABLE_PATH"]), max_records=250, max_bytes=42_000, checkpoint_interval=0)
    fastkcl.run(processor)
