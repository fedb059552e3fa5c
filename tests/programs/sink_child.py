"""A child for the tests: a sink with a session without Spark, slow, deadly or short of disk where it is told.

Not a test. Environment:

    SINK                ParquetSink or DeltaSink
    TABLE_PATH          its folder
    OPTIONS             JSON for SparkProcessor
    RUN_OPTIONS         JSON for fastkcl.run
    WRITE_SECONDS       of each staging
    FREE_WRITES         so many stagings are done before the end; the next one waits for shutdownRequested or shardEnded
    WRITTEN_BEFORE      number of the batch before which everything is written that came before
    STAGING_BEFORE      number of the batch before which a staging has begun
    TELL_BATCHES        write a line for each batch that is taken over
    POISON              a sequence number that cannot be written
    TROUBLE             a JSON list of what shall happen to the shard's first child, to its second and so on, null for
                        nothing. The replayer says which one a child is; under a daemon they count themselves, in files
                        beside the table.

    ["kill", "before", "commit", 2]     SIGKILL right before the second commit; "after": when it is done
    ["kill", "seconds", 0.3]            SIGKILL so long after initialize
    ["full", "before", "file", 1]       from there on no file can grow, as on a full disk
    ["full", "before", "file", 1, 0.5]  ... for so many seconds
    ["full", "before", "file", 1, "failures", 2]    ... until so many calls of the processor have failed
"""

import itertools
import json
import os
import resource
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

import fastkcl
import fastkcl.spark.schema  # noqa: F401 - or the first write takes a second
import sink_helpers
from fastkcl.kcl.dialogue import Dialogue
from fastkcl.spark import SparkProcessor, sinks
from sink_helpers import FakeSession, FakeWriter
from waiting import PATIENCE, wait_until

EARLY_CHECKPOINT = 77
"""Exit code of a child that asks for a checkpoint of what is not in the table, or was not delivered."""

SINK = os.environ.get("SINK", "ParquetSink")

# Named points, and what is called there.
REQUESTS = {
    "status": (Dialogue, "send_status"),
    "shutdown": (SparkProcessor, "shutdown_requested"),
    "end": (SparkProcessor, "shard_ended"),
}
POINTS = {
    "ParquetSink": {
        "stage": (FakeWriter, "parquet"),
        "file": (sink_helpers.pq, "write_table"),  # within the staging
        "sync": (sink_helpers.storage, "sync_file"),
        "commit": (sink_helpers.ParquetSink, "_commit"),
        "link": (sink_helpers.storage, "link"),
        "publish": (sink_helpers.ParquetSink, "_publish"),
        "checkpoint": (fastkcl.Checkpointer, "checkpoint"),
    },
    "DeltaSink": {
        "stage": (FakeWriter, "parquet"),
        "file": (sink_helpers.pq, "write_table"),
        "sync": (sink_helpers.storage, "sync_file"),
        "make": (sink_helpers.delta_module, "beginning"),
        "commit": (sink_helpers.DeltaSink, "_commit"),
        "link": (sink_helpers.storage, "link"),
        "checkpoint": (fastkcl.Checkpointer, "checkpoint"),
    },
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
        shard = sinks.Shard(os.environ["FASTKCL_STREAM"], self.processor._shard_id)
        done = sink_helpers.position_of(Path(os.environ["TABLE_PATH"]), shard)
        asked = self.processor.delivered if at is None else at
        # What is not in the table may be in a dead letter.
        if asked is not None and (done is None or done < asked) and "POISON" not in os.environ:
            print(f"checkpoint {asked} is ahead of the table, which is at {done}", flush=True)
            os._exit(EARLY_CHECKPOINT)
        if at is not None and at > self.processor.delivered:
            print(f"checkpoint {at} is beyond what was delivered, {self.processor.delivered}", flush=True)
            os._exit(EARLY_CHECKPOINT)
        self.checkpointer.checkpoint(at, **options)


def tell(text):
    """A line in one piece, also beside one of another thread."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


staging = threading.Event()
"""A write has begun."""
may_write = threading.Event()
"""What the writes that are not free wait for: nothing comes any more."""


class Processor(SparkProcessor):
    delivered = None
    batches = 0

    def initialize(self, context):
        super().initialize(context)
        attempt = attempt_of(context.shard_id)
        trouble = json.loads(os.environ.get("TROUBLE", "[]"))[attempt - 1 : attempt]
        if trouble and trouble[0] is not None:
            arrange(*trouble[0])

    def process_batch(self, batch, checkpointer):
        self.delivered = batch.last_position or self.delivered
        self.batches += 1
        if self.batches == int(os.environ.get("WRITTEN_BEFORE", "0")):
            wait_until(lambda: not self._buffer.rows, "the end of a write")
        if self.batches == int(os.environ.get("STAGING_BEFORE", "0")):
            assert staging.wait(PATIENCE)
        with seen_by_disk():
            super().process_batch(batch, Checked(checkpointer, self))
        if "TELL_BATCHES" in os.environ:
            tell("taken over")

    def shard_ended(self, checkpointer):
        may_write.set()
        with seen_by_disk():
            super().shard_ended(Checked(checkpointer, self))

    def shutdown_requested(self, checkpointer):
        may_write.set()
        super().shutdown_requested(Checked(checkpointer, self))


def attempt_of(shard_id):
    """1 for the shard's first child, 2 for the next."""
    if "FASTKCL_REPLAY_ATTEMPT" in os.environ:
        return int(os.environ["FASTKCL_REPLAY_ATTEMPT"])
    with Path(f"{os.environ['TABLE_PATH']}-{shard_id}.attempts").open("ab") as file:
        file.write(b".")
        return file.tell()


def arrange(what, when, *details):
    happen = {"kill": lambda: os.kill(os.getpid(), signal.SIGKILL), "full": lambda: fill_disk(*details[2:])}[what]
    if when == "seconds":
        timer = threading.Timer(details[0], happen)
        timer.daemon = True
        timer.start()
        return
    owner, name = (REQUESTS | POINTS[SINK])[details[0]]
    function = getattr(owner, name)
    left = [details[1]]

    def count():
        left[0] -= 1
        if left[0] == 0:
            happen()

    def call(*arguments, **options):
        if when == "before":
            count()
        result = function(*arguments, **options)
        if when == "after":
            count()
        return result

    setattr(owner, name, call)


def fill_disk(until=None, failures=0):
    """No file can grow any more; pipes are none. Python ignores SIGXFSZ, so that a write fails instead."""
    global failures_left
    print("the disk is full", flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, MOST_ROOM[1]))
    if until == "failures":
        failures_left = failures
    elif until is not None:
        timer = threading.Timer(until, resource.setrlimit, (resource.RLIMIT_FSIZE, MOST_ROOM))
        timer.daemon = True
        timer.start()


MOST_ROOM = resource.getrlimit(resource.RLIMIT_FSIZE)
failures_left = 0
"""Calls that have to fail until the disk has room again."""


@contextmanager
def seen_by_disk():
    """A call that fails on a full disk; after the last of them there is room."""
    global failures_left
    try:
        yield
    except OSError:
        failures_left -= 1
        if failures_left == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, MOST_ROOM)
        raise


def poisoned(df):
    if os.environ.get("POISON") in df.table["sequenceNumber"].to_pylist():
        raise ValueError("a poison record")
    return df


def slow_writes(seconds, free):
    stage = FakeWriter.parquet
    stagings = itertools.count()

    def parquet(self, url):
        tell(f"staging {len(self.table)} records")
        staging.set()
        if next(stagings) >= free:
            may_write.wait()
        time.sleep(seconds)
        stage(self, url)
        tell(f"staged {len(self.table)} records, {'at the end' if may_write.is_set() else 'on the way'}")

    FakeWriter.parquet = parquet


if __name__ == "__main__":
    slow_writes(float(os.environ.get("WRITE_SECONDS", "0")), float(os.environ.get("FREE_WRITES", "inf")))
    options = {"max_records": 70, "checkpoint_interval": 0} | json.loads(os.environ.get("OPTIONS", "{}"))
    sink = getattr(sinks, SINK)(os.environ["TABLE_PATH"], transform=poisoned)
    processor = Processor(sink, spark=Session(), **options)
    fastkcl.run(processor, **json.loads(os.environ.get("RUN_OPTIONS", "{}")))
