"""A writer of an IcebergTable in SQLite, which pulls the plug right after its last commit was told.

Not a test. Arguments: the mounted file system, and how many commits of one record to write; without any it only looks,
and pulls no plug. Standard output: how far the table is for sure.
"""

import fcntl
import os
import struct
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

from fastkcl.tables import IcebergTable
from iceberg_helpers import NAME, sql_posix
from sink_helpers import SHARD
from table_helpers import arrived, as_they_are

SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH

mounted, count = Path(sys.argv[1]), int(sys.argv[2])
table = IcebergTable(NAME, sql_posix(mounted).catalog, share_commits=False)
position = table.open(SHARD)
there = 0 if position is None else int(position.sequence_number)
for number in range(there + 1, there + 1 + count):
    there = int(table.append(arrived([number]), as_they_are).sequence_number)
if count:
    assert os.path.ismount(mounted)
    fcntl.ioctl(os.open(mounted, os.O_RDONLY), SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
os.write(1, str(there).encode())
os._exit(0)
