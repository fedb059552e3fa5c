"""Iceberg tables, which the worker process writes itself.

table    IcebergTable; state decides the next step of an append, no I/O
group    a commit: of one worker, or of several of one host together
head     the table's metadata: loaded, compared, moved on by a commit; catalog opens the catalog
file     Arrow in Iceberg's data files; io gives pyiceberg our storage
"""
