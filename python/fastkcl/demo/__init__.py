"""`fastkcl demo`: the whole way once on one machine, through what usually goes wrong, and a check of what arrived.

    replayed   the replayer plays the daemon
    daemon     a real daemon, on local AWS
    child      what the daemon starts for each shard
    parts      what both are made of
    check      compares what was sent with what Spark reads back
    report     the results

It is a separate room, as it uses all the others.
"""
