"""A child of the Spark bench: a program as people write it with amazon_kclpy, besides the gate before the first batch.

Each batch becomes a list of tuples, a DataFrame and a write, then a checkpoint.
"""

import os
import sys

from gate import Gate
from spark_rows import DDL, append, row

sys.path.append(os.environ["FASTKCL_BENCH_KCLPY"])  # the original's packages, after ours

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor
from pyspark.sql import SparkSession


class ToSpark(processor.RecordProcessorBase):
    """Writes as it reads."""

    def initialize(self, initialize_input):
        """Be ready."""
        self._shard = initialize_input.shard_id
        self._spark = SparkSession.builder.remote(os.environ["FASTKCL_SPARK"]).create()
        self._rows = 0
        self._gate = Gate()
        self._gate.wait()

    def process_records(self, process_records_input):
        """Write, then checkpoint."""
        rows = [row(record) for record in process_records_input.records]
        append(self._spark.createDataFrame(rows, DDL), self._shard)
        self._rows += len(rows)
        process_records_input.checkpointer.checkpoint()

    def lease_lost(self, lease_lost_input):
        """Nothing is held."""

    def shard_ended(self, shard_ended_input):
        """Everything is written."""
        shard_ended_input.checkpointer.checkpoint()
        self._gate.done(self._rows)
        self._spark.stop()


if __name__ == "__main__":
    kcl.KCLProcess(ToSpark()).run()
