"""A child that reads, and gives its memory back after so many seconds of silence, its argument; it looks at no batch.

The first batch's digest goes to FASTKCL_BENCH_CHECK, as amazon_kclpy_child.py writes it.
"""

import hashlib
import os
import sys

from fastkcl import _core

NAMES = {
    _core.Initialize: "initialize",
    _core.ProcessRecords: "processRecords",
    _core.LeaseLost: "leaseLost",
}


def check(batch: _core.RecordBatch, path: str) -> None:
    """Write the digest of a batch."""
    digest = hashlib.sha256()
    for record in batch:
        for value in (record.data, record.partition_key.encode(), record.sequence_number.encode()):
            assert value is not None
            digest.update(b"%d:" % len(value))
            digest.update(value)
    with open(path, "w") as file:  # noqa: PTH123 - pathlib would be a part of the start-up
        file.write(digest.hexdigest())


def main(idle_after: float) -> None:
    """Answer each message."""
    reader = _core.Reader(0, idle_after=idle_after)
    unchecked = os.environ.get("FASTKCL_BENCH_CHECK")
    while (message := reader.read()) is not None:
        if unchecked and isinstance(message, _core.ProcessRecords):
            check(message.batch, unchecked)
            unchecked = None
        answer = _core.encode_status(NAMES[type(message)])
        del message
        _core.write_all(1, answer)


if __name__ == "__main__":
    main(float(sys.argv[1]))
