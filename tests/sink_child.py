"""A child for the tests: ParquetSink behind a session without Spark, slow or deadly where it is told. Not a test.

Environment: TABLE_PATH; OPTIONS, JSON for SparkProcessor; WRITE_SECONDS of each staging; DIE_AT, ``POINT:N``: be killed
at the Nth time that this point is reached, once (DIED is the file that remembers it).
"""

import json
import os
import signal
import time
from pathlib import Path

import fastkcl
import fastkcl.spark.schema  # noqa: F401 - or the first write takes a second
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import ParquetSink
from fastkcl.spark.sinks import parquet as parquet_module
from sink_helpers import FakeSession, FakeWriter

EARLY_CHECKPOINT = 77
"""Exit code of a child that asks for a checkpoint of what is not in the table."""

# Named points, and what is called there. "before" and "after" each.
POINTS = {
    "stage": (FakeWriter, "parquet"),
    "commit": (Path, "hardlink_to"),
    "publish": (Path, "rename"),
    "checkpoint": (fastkcl.Checkpointer, "checkpoint"),
}


class Settings:
    def set(self, name, value):
        pass


class Session(FakeSession):
    conf = Settings()


class Checked:
    """A checkpointer that ends the process if the table is behind what is asked for."""

    def __init__(self, checkpointer, processor):
        self.checkpointer = checkpointer
        self.processor = processor

    def checkpoint(self, at=None, **options):
        shard = parquet_module.Shard(os.environ["FASTKCL_STREAM"], self.processor._shard_id)
        done = parquet_module.commits(os.environ["TABLE_PATH"], shard)
        asked = self.processor.delivered if at is None else at
        if asked is not None and (not done or max(commit.upto for commit in done) < asked):
            print(f"checkpoint {asked} is ahead of the table", flush=True)
            os._exit(EARLY_CHECKPOINT)
        if at is not None and at > self.processor.delivered:
            print(f"checkpoint {at} is beyond what was delivered", flush=True)
            os._exit(EARLY_CHECKPOINT)
        self.checkpointer.checkpoint(at, **options)


class Processor(SparkProcessor):
    delivered = None

    def process_batch(self, batch, checkpointer):
        self.delivered = batch.last_position or self.delivered
        super().process_batch(batch, Checked(checkpointer, self))

    def shard_ended(self, checkpointer):
        super().shard_ended(Checked(checkpointer, self))

    def shutdown_requested(self, checkpointer):
        super().shutdown_requested(Checked(checkpointer, self))


def die_at(when, point, number):
    owner, name = POINTS[point]
    function = getattr(owner, name)
    left = [number]

    def count():
        left[0] -= 1
        if left[0] == 0 and not Path(os.environ["DIED"]).exists():
            Path(os.environ["DIED"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def call(*arguments, **options):
        if when == "before":
            count()
        result = function(*arguments, **options)
        if when == "after":
            count()
        return result

    setattr(owner, name, call)


def slow_writes(seconds):
    stage = FakeWriter.parquet

    def parquet(self, url):
        print(f"staging {len(self.table)} records", flush=True)
        time.sleep(seconds)
        stage(self, url)

    FakeWriter.parquet = parquet


if __name__ == "__main__":
    slow_writes(float(os.environ.get("WRITE_SECONDS", "0")))
    if "DIE_AT" in os.environ:
        when, point, number = os.environ["DIE_AT"].split(":")
        die_at(when, point, int(number))
    options = {"max_records": 70, "checkpoint_interval": 0} | json.loads(os.environ.get("OPTIONS", "{}"))
    fastkcl.run(Processor(ParquetSink(os.environ["TABLE_PATH"]), spark=Session(), **options))
