"""Folders of Parquet files: what the worker process writes itself, and what Spark writes.

table            ParquetTable: each file is a commit; chain says which file can follow which, no I/O
inspection       what such a table holds of each shard
sink             the commits of a ParquetSink, whose files Spark writes: a commit file for each run
sink_inspection  what such a table holds of each shard
"""
