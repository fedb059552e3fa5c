"""A stitch that fills a Spark table: the base64 payloads of its messages, acknowledged when they are stored.

Custom arguments: the name of a table that is there, and perhaps the URL of a Spark Connect server.

    CREATE TABLE db.messages (id bigint, channel string, sender string, node string, data binary) USING parquet

Plain Parquet files take one writer. A table of a format with commits (Iceberg, Delta) takes several stitches, without
`only_writer`. A message is stored at least once: if this process dies between the write and the acknowledgement, who
sent it cannot know.
"""

from fastkcl.processv1 import Stitch, StitchBatch
from fastkcl.spark import MessageWriter
from fastkcl.spark.sinks import TableSink

with Stitch(receive_exit=True) as stitch:
    table, *url = stitch.custom_arguments
    with MessageWriter(TableSink(table, only_writer=True), spark=url[0] if url else None) as writer:
        while True:
            batch = stitch.next_batch(max_messages=100_000)
            if isinstance(batch, StitchBatch):
                writer.add(batch.columns)  # id, channel, sender, node, data
                writer.flush()
                stitch.ack(*batch.messages)
            elif batch is not None:  # _exit: leave within 10 s
                break
