"""`fastkcl demo`: the whole way once on one machine, through the usual faults, and a check of the table.

    replayed   the replayer plays the daemon
    daemon     a real daemon, on local AWS
    child      the program that the daemon starts for each shard
    parts      the common parts of both
    check      compares the sent records with those that Spark reads back
    report     the results
    source     the Spark source, from local AWS into Parquet; source_query is its driver

It is a separate room, as it uses all the others.
"""
