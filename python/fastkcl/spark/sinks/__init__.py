"""Tables for a shard's records, each with its guarantee.

    ParquetSink   files in a folder          exactly once, a zombie is fenced off
    DeltaSink     a Delta table              exactly once, a zombie is fenced off
    TableSink     a table of Spark's catalog at least once, with the columns to find doubles by

A sink serves one shard at a time. `SparkProcessor` opens it when the shard is initialized, gives it one contiguous run
of rows after another, and checkpoints the position that the sink returns. The interface is `sink.Sink`.

How a record gets into one of the first two exactly once (a child can die at any point, and two can believe they own one
shard):

    1. data    written where readers do not see it
    2. commit  one atomic step: "after position P comes this data, up to position L". It fails if somebody has already
               continued from P; then the rows up to its L are dropped, and the rest is tried again after it
    3. publish committed data becomes visible; after a death the next child finishes this step

The commit does not depend on the lease: of two children that continue from the same position one succeeds.
"""

import sys

from fastkcl.spark.sinks.files import DeltaSink, ParquetSink
from fastkcl.spark.sinks.sink import Frame, Rows, Sink
from fastkcl.spark.sinks.table import TableSink
from fastkcl.tables import folders
from fastkcl.tables.base import Shard, SinkError, WriteCancelledError

__all__ = [
    "DeltaSink",
    "Frame",
    "ParquetSink",
    "Rows",
    "Shard",
    "Sink",
    "SinkError",
    "TableSink",
    "WriteCancelledError",
]

sys.modules[f"{__name__}.folders"] = folders  # its path of earlier versions, which the docs named
