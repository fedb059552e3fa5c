"""Delta tables: what the worker process writes itself, and what Spark writes.

table       DeltaTable: the worker process writes it; file has Arrow in Delta's types
group       a request's part of an entry that several shards share; staged the files that it is about
head        the head of the log: opened once, moved on, continued; checkpoint makes checkpoints
snapshot    a table at a version, actions a shard in its log, rules what it asks of writers; no I/O
sink        the commits of a DeltaSink, whose files Spark writes; log looks through the log
inspection  what a table holds of each shard
"""
