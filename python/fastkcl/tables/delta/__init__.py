"""Delta tables: those that the worker process writes itself, and those whose files Spark writes.

table       DeltaTable: the worker process writes it. file converts Arrow to Delta's types
group       a request's part of an entry that several shards share. staged has its files
head        the head of the log: opened once, then moved on and continued. checkpoint makes checkpoints
snapshot    a table at a version. actions: a shard in its log. rules: its demands on writers. No I/O
found_files  the files that Spark has made for a DeltaTable or a DeltaSink, as actions
sink        the commits of a DeltaSink, whose files Spark writes. log checks the log for damage
checkpoint_content  a checkpoint's actions, compared with the log. checkpoint_damage sets damaged ones aside
inspection  the records of each shard in a table
"""
