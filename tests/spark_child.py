"""A child for the tests: small writes, so that faults fall between them. Not a test."""

import os

import fastkcl
from fastkcl.spark import SparkProcessor


def write(df, context):
    print(f"wrote {context.rows} records, attempt {context.attempt}")  # must land on standard error
    if os.environ["FASTKCL_SPARK"].startswith("local"):
        print("jvm", context.spark.sparkContext._gateway.proc.pid)
    if "POISON" in os.environ and not df.where(df.sequenceNumber == os.environ["POISON"]).isEmpty():
        raise ValueError("a poison record")
    df.write.mode("append").parquet(f"{os.environ['TABLE_PATH']}/shardId={context.shard_id}")


if __name__ == "__main__":
    dead_letter = os.environ.get("DEAD_LETTER")
    processor = SparkProcessor(write, max_records=250, checkpoint_interval=0)
    fastkcl.run(processor, on_error=os.environ.get("ON_ERROR", "stop"), dead_letter=dead_letter)
