"""A child that writes a table, and says at its end how much memory it had at the most.

TABLE_URL, TABLE_KIND and TABLE_OPTIONS are as in table_child.py, and OPTIONS is JSON for TableProcessor. A write that
fails is made again for an hour.
"""

import json
import os
import sys
from pathlib import Path

import fastkcl
from fastkcl import tables
from fastkcl.tables import TableProcessor


def tell() -> None:
    """In bytes."""
    with Path("/proc/self/status").open() as status:
        (peak,) = (line.split()[1] for line in status if line.startswith("VmHWM"))
    print(f"peak {int(peak) * 1024}", file=sys.stderr, flush=True)


class Processor(TableProcessor):
    """Tells when the shard is written."""

    def shard_ended(self, checkpointer: fastkcl.Checkpointer) -> None:
        super().shard_ended(checkpointer)
        tell()


options = json.loads(os.environ.get("TABLE_OPTIONS", "{}"))
table = getattr(tables, os.environ.get("TABLE_KIND", "ParquetTable"))(os.environ["TABLE_URL"], **options)
processor = Processor(table, report_interval=None, **json.loads(os.environ["OPTIONS"]))
fastkcl.run(processor, retries=3600, retry_backoff=1.0)
