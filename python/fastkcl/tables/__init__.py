"""Tables with a position in them: how rows that follow a position get into one exactly once, and what a table has.

    appender    what any format does: rows are appended after the position
    parquet     files in a folder, a commit file for each run
    delta       a Delta table; delta_log looks through its log
    inspection  what a table holds of each shard, as the one beside each format finds it
    formats     which of these a folder has, for `fastkcl sink inspect`
    base        what a table is given, and its errors
    folders     names of streams, shards and positions in paths
    given_up    up to where records have been given up
    storage     the calls by which tables change

The loop of every processor that writes to a table, or through Spark:

    processor    the BatchProcessor: finds the durable position, and checkpoints it
    writer       one write from top to bottom; in the writer's thread
    shard_table  how far a table has the shard: what is dropped, what a failed write has stored all the same
    bounds       when batches are written, and how much is held
    rows, opener a run's records, their payloads opened
    progress     a line in the log and values for the monitor for each write

Spark writes the files of a ParquetSink and a DeltaSink, and nothing here knows it. `fastkcl.spark.sinks` has the names
that users import.
"""
