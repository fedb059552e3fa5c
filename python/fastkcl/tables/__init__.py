"""Tables with a position in them: how rows that follow a position get into one exactly once, and what a table has.

    parquet     files in a folder, a commit file for each run
    delta       a Delta table; delta_log looks through its log
    inspection  what a table of either holds of each shard, for `fastkcl sink inspect`
    base        what a sink is and is given, and its errors
    folders     names of streams, shards and positions in paths
    given_up    up to where records have been given up
    storage     the calls by which tables change

Importing this imports nothing. `fastkcl.spark.sinks` has the names that users import.
"""
