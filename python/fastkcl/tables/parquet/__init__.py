"""Folders of Parquet files: written by the worker process itself, or by Spark.

table            ParquetTable: each file is a commit; chain says which file can follow which, no I/O
inspection       the records of each shard in such a table
sink             the commits of a ParquetSink, whose files Spark writes: a commit file for each run
sink_inspection  the records of each shard in such a table
"""
