"""What is inside of a record: how payloads become typed columns.

    options      binary and JSON payloads, as users say it, and the rules that all payloads share
    schema_text  schemas of JSON objects as text
    opener       opens the payloads of batches, as many as make one table
    opened       records whose payloads are opened
    table        openers for tables that are written without Spark

Nothing here knows Spark, or how a table commits. `fastkcl.tables` and `fastkcl.spark` have the names that users import.
"""
