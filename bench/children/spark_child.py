"""A child of the Spark bench: fastkcl.spark, as users have it, besides a gate before the first batch, or without."""

import os

import fastkcl
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import ParquetSink
from gate import VARIABLE, Gate


class Gated(SparkProcessor):
    """Begins with the other clients, and tells when the shard's end is checkpointed."""

    rows = 0

    def initialize(self, context: fastkcl.ShardContext) -> None:
        """Be ready."""
        super().initialize(context)
        self._gate = Gate()
        self._gate.wait()

    def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
        """Count."""
        super().process_batch(batch, checkpointer)
        self.rows += batch.num_rows

    def shard_ended(self, checkpointer: fastkcl.Checkpointer) -> None:
        """Everything is written and checkpointed when this returns."""
        super().shard_ended(checkpointer)
        self._gate.done(self.rows)


def write(df, context):
    """Have Spark take everything, and store nothing."""
    df.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    options = {"max_bytes": int(os.environ["FASTKCL_BENCH_BYTES"])} if "FASTKCL_BENCH_BYTES" in os.environ else {}
    table = os.environ.get("FASTKCL_BENCH_TABLE")
    processor = Gated if VARIABLE in os.environ else SparkProcessor
    fastkcl.run(processor(ParquetSink(table) if table else write, **options))
