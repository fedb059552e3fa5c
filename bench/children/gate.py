"""The clients' side of the Spark bench: start together, and report when the work was done and its cost.

For programs in bench/children. The bench listens on a Unix socket; each client says that it is ready, waits for the
word to go, and says at the end when it was done.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from pathlib import Path

VARIABLE = "FASTKCL_BENCH_GATE"
"""Environment variable: the path of the bench's socket."""


class Gate:
    """A client's connection to the bench."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(os.environ[VARIABLE])
        self._resident = 0
        self._cpu = 0.0

    def wait(self) -> None:
        """Return when all clients are ready. What the process has by then is its start, not the work."""
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew (proc(5))
        self._resident = _status_bytes("VmRSS")
        self._socket.sendall(b"ready\n")
        assert self._socket.recv(1), "the bench has gone"
        self._cpu = time.process_time()

    def done(self, rows: int) -> None:
        """All rows are stored."""
        told = {
            "time": time.monotonic(),
            "rows": rows,
            "cpu": time.process_time() - self._cpu,
            "start_bytes": self._resident,
            "peak_bytes": _status_bytes("VmHWM"),
        }
        self._socket.sendall(json.dumps(told).encode() + b"\n")
        self._socket.close()


def _status_bytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])
