"""A child of a real daemon that writes to Spark: each shard into the table TABLE_PATH, each record once."""

import os

import fastkcl
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import ParquetSink

fastkcl.run(SparkProcessor(ParquetSink(os.environ["TABLE_PATH"]), max_age=0.5, checkpoint_interval=0))
