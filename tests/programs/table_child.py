"""A child for the tests: it writes a table itself, and dies where it is told.

Not a test. Environment:

    TABLE_URL    the table; Place.environment has the rest for S3
    TABLE_KIND   its class, ParquetTable without it
    TABLE_OPTIONS  JSON of its options: the catalog of an IcebergTable
    SPARK_WRITER   a Connect server by which a SparkWriter makes the files
    OPTIONS      JSON for TableProcessor
    TROUBLE      a JSON list of what happens to the shard's first child, to its second and so on:
                 ["kill", "before", "create", 2]     SIGKILL right before the second creation; "after": when it is done
                 ["kill", "seconds", 0.3]            SIGKILL so long after initialize

It asks for no checkpoint of records that the table does not have: before each one the table is looked at afresh, and
the child ends with EARLY_CHECKPOINT if it is at an earlier position.
"""

import functools
import json
import os
import signal
import threading

import fastkcl
from fastkcl import tables
from fastkcl.tables import Shard, TableProcessor, storage
from fastkcl.tables.object_store import ObjectStore
from fastkcl.tables.posix_store import PosixStore

EARLY_CHECKPOINT = 77
URL = os.environ["TABLE_URL"]
KIND = os.environ.get("TABLE_KIND", "ParquetTable")
OPTIONS = json.loads(os.environ.get("TABLE_OPTIONS", "{}"))
TABLE = functools.partial(getattr(tables, KIND), **OPTIONS)
CATALOG = OPTIONS.get("catalog", {})
STORE = ObjectStore if CATALOG.get("warehouse", URL).startswith("s3://") else PosixStore
POINTS = {
    "create": (STORE, "create"),
    "claimed": (STORE, "claimed"),
    "read": (STORE, "read"),
    "checkpoint": (fastkcl.Checkpointer, "checkpoint"),
    "rename": (storage, "rename"),
}
if KIND == "IcebergTable":
    from pyiceberg.catalog import glue, rest, sql

    CATALOGS = {"glue": glue.GlueCatalog, "rest": rest.RestCatalog, "sql": sql.SqlCatalog}
    POINTS["commit"] = (CATALOGS[CATALOG["type"]], "commit_table")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def arrange(_kill, when, *details):
    if when == "seconds":
        timer = threading.Timer(details[0], die)
        timer.daemon = True
        timer.start()
        return
    owner, name = POINTS[details[0]]
    function = getattr(owner, name)
    left = [details[1]]

    def call(*arguments, **options):
        left[0] -= 1
        if left[0] == 0 and when == "before":
            die()
        result = function(*arguments, **options)
        if left[0] == 0:
            die()
        return result

    setattr(owner, name, call)


class Checked:
    """A checkpointer that ends the process if the table does not have what is asked for."""

    def __init__(self, checkpointer, shard, delivered):
        self.checkpointer, self.shard, self.delivered = checkpointer, shard, delivered

    def checkpoint(self, at=None, **options):
        asked = self.delivered if at is None else at
        done = TABLE(URL).open(self.shard)
        if asked is not None and (done is None or done < asked):
            print(f"checkpoint {asked} is after the table's position, {done}", flush=True)
            os._exit(EARLY_CHECKPOINT)
        self.checkpointer.checkpoint(at, **options)


class Processor(TableProcessor):
    shard = None
    delivered = None

    def initialize(self, context):
        self.shard = Shard(os.environ["FASTKCL_STREAM"], context.shard_id)
        trouble = json.loads(os.environ["TROUBLE"])[int(os.environ["FASTKCL_REPLAY_ATTEMPT"]) - 1 :]
        super().initialize(context)
        if trouble:  # a daemon starts no other child for a death within initialize
            arrange(*trouble[0])

    def process_batch(self, batch, checkpointer):
        self.delivered = batch.last_position or self.delivered
        super().process_batch(batch, Checked(checkpointer, self.shard, self.delivered))

    def shard_ended(self, checkpointer):
        super().shard_ended(Checked(checkpointer, self.shard, self.delivered))

    def shutdown_requested(self, checkpointer):
        super().shutdown_requested(Checked(checkpointer, self.shard, self.delivered))


writer = None
if "SPARK_WRITER" in os.environ:
    from fastkcl.spark import SparkWriter

    writer = SparkWriter(lambda df: df, spark=os.environ["SPARK_WRITER"])
fastkcl.run(Processor(TABLE(URL), writer=writer, report_interval=None, **json.loads(os.environ["OPTIONS"])))
