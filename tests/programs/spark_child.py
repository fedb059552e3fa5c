"""A child for the tests: small writes, so that faults fall between them, and no room for batches beyond them.

Not a test.
"""

import os

import fastkcl
from fastkcl.spark import SparkProcessor, sinks

HELD = 42_000


def write(df, context):
    print(f"wrote {context.rows} records, attempt {context.attempt}")  # must land on standard error
    if os.environ["FASTKCL_SPARK"].startswith("local"):
        print("jvm", context.spark.sparkContext._gateway.proc.pid)
    if "POISON" in os.environ and not df.where(df.sequenceNumber == os.environ["POISON"]).isEmpty():
        raise ValueError("a poison record")
    df.write.mode("append").parquet(f"{os.environ['TABLE_PATH']}/shardId={context.shard_id}")


if __name__ == "__main__":
    dead_letter = os.environ.get("DEAD_LETTER")
    # Three of the batches of 100 small records make a table; there is no room for a fourth.
    room = {"max_bytes": HELD, "max_held_bytes": HELD}
    sink = getattr(sinks, os.environ["SINK"])(os.environ["TABLE_PATH"]) if "SINK" in os.environ else write
    processor = SparkProcessor(sink, max_records=250, checkpoint_interval=0, **room)
    fastkcl.run(processor, on_error=os.environ.get("ON_ERROR", "stop"), dead_letter=dead_letter)
