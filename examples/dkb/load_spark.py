"""Last stage: orders into Parquet files, by Spark. A batch is answered when it is stored.

The batch comes as Arrow columns and goes to Spark as they are; Spark parses the JSON. The folder is that of the
environment variable ORDERS; Spark is that of FASTKCL_SPARK, e.g. sc://localhost:15002, or one shared by this host.

Orders that a worker had stored before it died are stored again with the next: each order is there at least once, and
its number tells doubles.
"""

import os
import sys

from fastkcl import dkb
from fastkcl.spark import MessageContext, MessageWriter
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, from_json

SCHEMA = "order long, country string, cents long, tax long, _incomplete boolean"


def write(df: DataFrame, context: MessageContext) -> None:
    """Store a batch before returning."""
    orders = df.select(from_json(col("data").cast("string"), SCHEMA).alias("order")).select("order.*")
    orders.write.mode("append").parquet(os.environ["ORDERS"])


class Load(dkb.ProcessorStage):
    """Stores batches of orders."""

    def __init__(self) -> None:
        super().__init__()
        self.set_input_message_type("arrow")
        self.writer = MessageWriter(write, source="orders")

    def process(self, batch: dkb.MessageBatch) -> bool:
        """Hand a batch to Spark, and wait until it is stored."""
        self.writer.add(batch)
        self.writer.flush()
        self.log(f"{len(batch)} orders stored")
        return True


if __name__ == "__main__":
    stage = Load()
    code = stage.run()
    stage.writer.close()
    sys.exit(code)
