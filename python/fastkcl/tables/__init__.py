"""Tables that store each shard's position with its rows, so that each record is there exactly once.

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
    store            the verbs of a storage; posix_store and object_store implement them
    patient          repeats a write while the storage does not answer
    parquet_file     makes Parquet of Arrow
    group            chooses which requests of one host's children go into one commit; no I/O
    combiner         makes that commit
    group_folder     the folder that the children share: requests, answers and a lock

For tables whose files Spark writes:

    appender    drops the rows that a table already has, and appends the others; in every format
    storage     the file system calls that change tables

For both:

    base        the rows that a table gets, and its errors
    folders     names of streams, shards and positions in paths
    given_up    the position up to which records were given up
    position    the warning if another writer has moved a position, and the error if it has gone back

The loop of every processor that writes to a table, or through Spark:

    processor    the BatchProcessor: finds the durable position, and checkpoints it
    writer       one write from top to bottom; in the writer's thread
    shard_table  the shard's position in a table: records up to it are not written again, and not given up
    bounds       when batches are written, and how many bytes are held
    rows         a run's records, their payloads opened by `fastkcl.payloads`
    progress     reports each write: a line in the log, and values for the monitor

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
