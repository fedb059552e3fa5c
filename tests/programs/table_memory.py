"""A child that writes a table, and says at its end how much memory it had at the most, and which modules it has.

TABLE_URL, TABLE_KIND and TABLE_OPTIONS are as in table_child.py, and OPTIONS is JSON for TableProcessor. ABSENT names
packages that this environment has, and the tables' extras do not bring. A write that fails is made again for an hour.
"""

import json
import os
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any


class Absent(MetaPathFinder):
    """As if the packages were not installed."""

    def find_spec(self, fullname: str, *_: Any) -> None:
        if fullname.partition(".")[0] in os.environ.get("ABSENT", "").split():
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


sys.meta_path.insert(0, Absent())

import fastkcl  # noqa: E402
from fastkcl import tables  # noqa: E402
from fastkcl.tables import TableProcessor  # noqa: E402


def tell() -> None:
    """In bytes."""
    with Path("/proc/self/status").open() as status:
        (peak,) = (line.split()[1] for line in status if line.startswith("VmHWM"))
    print("modules", *(name for name in sys.modules if not name.startswith("_")), file=sys.stderr)
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
