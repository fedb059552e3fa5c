"""Tables that store a shard's position: they add the rows after it exactly once, and can be inspected.

    import fastkcl
    from fastkcl.tables import ParquetTable, TableProcessor

    fastkcl.run(TableProcessor(ParquetTable("s3://lake/clicks")))

One folder for each format:

    parquet/    Parquet files
    delta/      a Delta table
    iceberg/    an Iceberg table
    formats     finds the format of a folder's table
    inspection  the records of each shard in a table; each format has a module of this name

For tables that the worker process writes itself:

    table_processor  the BatchProcessor for them
    store            the verbs of a storage; posix_store and object_store have them. patient waits for one that is away
    parquet_file     makes Parquet of Arrow
    group            chooses the requests of one host's children for one commit; no I/O. combiner commits them
    group_folder     the folder that the children share: requests, answers and a lock

For tables whose files Spark writes:

    appender    the steps of every format: rows are appended after the position
    storage     the file system calls that change tables

For both:

    base        the rows that a table gets, and its errors
    folders     names of streams, shards and positions in paths
    given_up    the position up to which records were given up
    position    the warning if another writer has moved a position, and the error if it has gone back

The loop of every processor that writes to a table, or through Spark:

    processor    the BatchProcessor: finds the durable position, and checkpoints it
    writer       one write from top to bottom; in the writer's thread
    shard_table  how far a table has the shard: the rows to drop, and those that a failed write has stored all the same
    bounds       when batches are written, and how many bytes are held
    rows         a run's records, their payloads opened by `fastkcl.payloads`
    progress     a line in the log and values for the monitor for each write

For tables that exist:

    compaction      small files of a Delta table become large ones
    orphans         files that nobody reads
    log_inspection  inspects a table with a log, in any format

Nothing here knows Spark. Users import the sinks, through which Spark writes the files, from `fastkcl.spark.sinks`.
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
