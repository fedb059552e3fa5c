"""`spark.readStream.format("kinesis")`: streams of Kinesis as a source of Spark, without a jar or a daemon.

    spark.readStream.format("kinesis").option("streamName", "orders").load()

    options   one table, with other connectors' names
    ways      options of readStream that are given to read, and the other way round
    schema    rows: as Spark declares them, as Arrow has them, and how records become them
    stream    micro-batches: Spark's checkpoint is the only store of progress
    batch     `spark.read`: the records of a time
    tasks     the reading, in Spark's Python workers
    json      JSON objects as typed columns, by all of from_json's rules
    listener  lag, throttling and calls for Prometheus

Spark finds the names ``kinesis`` and ``aws-kinesis`` by the modules `pyspark_fastkcl_kinesis` and
`pyspark_fastkcl_aws_kinesis`. Where another jar has them: ``spark.dataSource.register(FastkclKinesis)`` and
``format("fastkcl-kinesis")``.

Rules: a thin adapter. Which records a batch has is decided in `fastkcl.kinesis.read.plan`.
"""

from typing import TYPE_CHECKING, Any

from pyspark_fastkcl_kinesis import DefaultSource

__all__ = ["FastkclKinesis", "SourceListener"]

if TYPE_CHECKING:
    from fastkcl.spark.source.listener import SourceListener


class FastkclKinesis(DefaultSource):
    """The source under a name that no other connector has."""

    @classmethod
    def name(cls) -> str:
        """For ``format``."""
        return "fastkcl-kinesis"


def __getattr__(name: str) -> Any:  # noqa: ANN401 - tasks import this module, and have no use for a listener
    if name == "SourceListener":
        from fastkcl.spark.source.listener import SourceListener

        return SourceListener
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
