"""A writer of a shard that meets others: `table_contender.py KIND URL SHARD WRITES`.

TABLE_OPTIONS is JSON of the table's options: the catalog of an IcebergTable. The program writes a table of its own
first, so that its libraries are loaded. It opens the shared table, prints ``ready``, and waits for a line. Then it
appends its runs one after another, each of three rows, and prints the seconds that each of them took, and when it began
and ended, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

from fastkcl import _core
from fastkcl.tables import DeltaTable, IcebergTable, ParquetTable, Shard
from fastkcl.tables.rows import ShardRows

KINDS = {"DeltaTable": DeltaTable, "IcebergTable": IcebergTable, "ParquetTable": ParquetTable}
ROWS = 3


def rows(first: int) -> ShardRows:
    """A run of records."""
    numbers = range(first, first + ROWS)
    line = _core.encode_process_records(
        [str(number).encode() for number in numbers],
        ["key"] * ROWS,
        [str(number) for number in numbers],
        [0] * ROWS,
        [1_795_300_000_000] * ROWS,
    )
    message = _core.decode_line(line)
    assert isinstance(message, _core.ProcessRecords)
    return ShardRows([message.batch], legacy=False)


def own(kind: str, folder: str) -> DeltaTable | IcebergTable | ParquetTable:
    """A table of this process alone."""
    if kind == "IcebergTable":
        uri = f"sqlite:///{folder}/catalog.db"
        return IcebergTable("db.own", {"type": "sql", "uri": uri, "warehouse": f"file://{folder}"})
    return KINDS[kind](f"{folder}/table")


def main(kind: str, url: str, shard: str, writes: int) -> None:
    """Write."""
    with tempfile.TemporaryDirectory() as folder:
        first = own(kind, folder)
        first.open(Shard("clicks", shard))
        first.append(rows(1), lambda rows: rows.table())
    table = KINDS[kind](url, **json.loads(os.environ.get("TABLE_OPTIONS", "{}")))
    table.open(Shard("clicks", shard))
    print("ready", flush=True)
    sys.stdin.readline()
    took = []
    begun = time.monotonic()
    for number in range(writes):
        start = time.monotonic()
        table.append(rows(1 + number * ROWS), lambda rows: rows.table())
        took.append(time.monotonic() - start)
    print(json.dumps({"took": took, "begun": begun, "ended": time.monotonic()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
