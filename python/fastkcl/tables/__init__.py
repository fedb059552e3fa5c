"""Tables that store a shard's position: they add the rows after it exactly once, and can be inspected.

    import fastkcl
    from fastkcl.tables import ParquetTable, TableProcessor

    fastkcl.run(TableProcessor(ParquetTable("s3://lake/clicks")))

One folder for each format:

    parquet/    Parquet files
    delta/      a Delta table
    iceberg/    an Iceberg table
    formats     which of these a folder has, for `fastkcl sink inspect`
    inspection  the records of each shard in a table; each format has a module of this name

For tables that the worker process writes itself:

    table_processor  the BatchProcessor for them
    store            the verbs of a storage; posix_store and object_store have them
    parquet_file     makes Parquet of Arrow
    group            decides which requests of one host's children go into one commit; no I/O. combiner commits them
    group_folder     the folder that the children share: requests, answers and a lock

For tables whose files Spark writes:

    appender    the steps of every format: rows are appended after the position
    storage     the file system calls that change tables

For both:

    base        the rows that a table gets, and its errors
    folders     names of streams, shards and positions in paths
    given_up    the position up to which records were given up

The loop of every processor that writes to a table, or through Spark:

    processor    the BatchProcessor: finds the durable position, and checkpoints it
    writer       one write from top to bottom; in the writer's thread
    shard_table  how far a table has the shard: what is dropped, what a failed write has stored all the same
    bounds       when batches are written, and how much is held
    rows         a run's records, their payloads opened by `fastkcl.payloads`
    progress     a line in the log and values for the monitor for each write

Nothing here knows Spark. `fastkcl.spark.sinks` has the names that users import of the tables whose files it writes.
"""

from fastkcl.payloads.options import AvroPayload, BinaryPayload, JsonPayload, ProtobufPayload
from fastkcl.payloads.registries.options import ConfluentRegistry, FolderRegistry, GlueRegistry
from fastkcl.tables.base import Shard, SinkError, WriteCancelledError
from fastkcl.tables.bounds import Bounds
from fastkcl.tables.delta.table import DeltaTable
from fastkcl.tables.iceberg.table import IcebergTable
from fastkcl.tables.object_store import S3Storage
from fastkcl.tables.parquet.table import ParquetTable
from fastkcl.tables.table_processor import TableProcessor

__all__ = [
    "AvroPayload",
    "BinaryPayload",
    "Bounds",
    "ConfluentRegistry",
    "DeltaTable",
    "FolderRegistry",
    "GlueRegistry",
    "IcebergTable",
    "JsonPayload",
    "ParquetTable",
    "ProtobufPayload",
    "S3Storage",
    "Shard",
    "SinkError",
    "TableProcessor",
    "WriteCancelledError",
]
