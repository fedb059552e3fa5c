"""A child for the tests, with a Connect server: a ParquetSink or a DeltaSink, by its shard's number, or a TableSink.

Not a test. Environment: FASTKCL_SPARK; TABLE_PATH, the folder of both tables, or TABLE, the name of one.
"""

import os

import fastkcl
from fastkcl.spark import SparkProcessor, sinks


def told(df):
    print("writing", flush=True)
    return df


if __name__ == "__main__":
    if "TABLE" in os.environ:
        sink = sinks.TableSink(os.environ["TABLE"], transform=told, only_writer=True)
    else:
        name = ("ParquetSink", "DeltaSink")[int(os.environ["FASTKCL_REPLAY_SHARD"][-1]) % 2]
        sink = getattr(sinks, name)(f"{os.environ['TABLE_PATH']}/{name}", transform=told)
    # Four of the batches of 20 records make a table, and there is no room for much more.
    processor = SparkProcessor(sink, max_records=80, checkpoint_interval=0, max_age=0.5, max_bytes=2**14)
    fastkcl.run(processor)
