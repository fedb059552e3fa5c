"""Hands the records of a shard to Spark, in the worker process that the daemon started.

    import fastkcl
    from fastkcl.spark import SparkProcessor

    def write(df, context):
        df.write.mode("append").parquet(f"/data/events/shard={context.shard_id}")

    fastkcl.run(SparkProcessor(write, spark="sc://localhost:15002"))

Modules, from the protocol to Spark:

    processor   the BatchProcessor: which position is durable, when it is checkpointed
    buffer      collects and cuts batches; knows no protocol and no Spark
    schema      the canonical record schema as a StructType (imports pyspark)
    session     a given session, a Connect server, or a JVM of this process
    jdk         the Java for that JVM, from the machine or from PyPI

Importing this imports neither pyspark nor pyarrow: both are needed when the first shard is initialized.
"""

from fastkcl.spark.processor import SparkProcessor, WriteContext
from fastkcl.spark.session import LocalSpark, SparkUnavailableError

__all__ = ["LocalSpark", "SparkProcessor", "SparkUnavailableError", "WriteContext"]
