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

Spark writes the files so far, and nothing here knows it. `fastkcl.spark.sinks` has the names that users import.
"""
