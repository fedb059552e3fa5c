"""Hands the records of a shard to Spark, in the worker process that the daemon started.

    import fastkcl
    from fastkcl.spark import SparkProcessor
    from fastkcl.spark.sinks import ParquetSink

    fastkcl.run(SparkProcessor(ParquetSink("/data/events"), spark="sc://localhost:15002"))

Modules, from the protocol to Spark:

    processor   the BatchProcessor: finds the durable position, and checkpoints it
    messages    the same for messages without positions, of other protocols: at least once
    buffer      collects and cuts batches, writes them in a thread; knows no protocol and no Spark
    shard_table how far a sink's table has the shard: drops the records that it has, also those of a failed write
    payload     gzip unpacked, JSON objects as typed columns
    sinks       tables for the records: exactly once, or at least once
    frame       a DataFrame of a table, in the form that costs Spark least
    schema      the canonical record schema as a StructType (imports pyspark)
    session     the session that is written to: a given one, or opened, and opened again when its server was restarted
    connect     opens sessions on a Connect server, with an end to every wait
    shared      one Connect server for all children of a host; keeper is its parent process
    local       Spark in a JVM of this process
    settings    the common settings of these
    jdk         the Java for a JVM, from the machine or from PyPI

Importing this imports neither pyspark nor pyarrow: both are needed when the first shard is initialized.
"""

from fastkcl.spark.local import LocalSpark
from fastkcl.spark.messages import MessageContext, MessageWriter
from fastkcl.spark.processor import SparkProcessor, WriteContext
from fastkcl.spark.settings import SparkUnavailableError

__all__ = ["LocalSpark", "MessageContext", "MessageWriter", "SparkProcessor", "SparkUnavailableError", "WriteContext"]
