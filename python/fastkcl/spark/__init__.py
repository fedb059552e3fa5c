"""Hands the records of a shard to Spark, in the worker process that the daemon started.

    import fastkcl
    from fastkcl.spark import SparkProcessor
    from fastkcl.spark.sinks import ParquetSink

    fastkcl.run(SparkProcessor(ParquetSink("/data/events"), spark="sc://localhost:15002"))

Modules, from the protocol to Spark:

    processor   the BatchProcessor: which position is durable, when it is checkpointed
    buffer      collects and cuts batches, writes them in a thread; knows no protocol and no Spark
    payload     gzip unpacked, JSON objects as typed columns
    sinks       tables that records get into: exactly once, or at least once
    schema      the canonical record schema as a StructType (imports pyspark)
    session     a given session, a Connect server, or a JVM of this process
    jdk         the Java for that JVM, from the machine or from PyPI

Importing this imports neither pyspark nor pyarrow: both are needed when the first shard is initialized.
"""

from fastkcl.spark.processor import SparkProcessor, WriteContext
from fastkcl.spark.session import LocalSpark, SparkUnavailableError

__all__ = ["LocalSpark", "SparkProcessor", "SparkUnavailableError", "WriteContext"]
