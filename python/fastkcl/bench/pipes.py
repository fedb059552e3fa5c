"""What the benches with a real child share: the child between two pipes, the daemon's half, and where they run.

Lines go out in 8 KiB pieces, as the daemon's BufferedWriter writes them. Writer and child are pinned, both to one
core or to two: unpinned runs jump between the two placements.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from fastkcl import _core
from fastkcl.replay import profiles

PROFILES = ("iot", "clickstream", "logs", "blob")
BARE = "bare read (decodes nothing)"
"""A child that only reads: the floor. Its program is `BARE_PROGRAM`."""
PROGRAMS = Path(__file__).parent / "children"
BARE_PROGRAM = PROGRAMS / "bare_child.py"
CHECK_VARIABLE = "FASTKCL_BENCH_CHECK"
"""Environment variable: where a child writes what its first batch came to."""
CPUS = sorted(os.sched_getaffinity(0))
PLACEMENTS = {"one core": (CPUS[0], CPUS[0])} | ({"two cores": (CPUS[0], CPUS[1])} if len(CPUS) > 1 else {})
"""Cores of the writer and of the child."""
WRITE_SIZE = 8192
INITIALIZE = (
    b'{"action":"initialize","shardId":"shardId-000000000000","sequenceNumber":"TRIM_HORIZON","subSequenceNumber":0}\n'
)


@functools.cache
def line(profile: str) -> bytes:
    """A batch of the profile's own size."""
    return profiles.line(profiles.PROFILES[profile])


class Child:
    """A child process between two pipes, and the daemon's half of the conversation.

    Args:
        command: interpreter, program and arguments.
        cpu: the core it runs on.
        check: what `CHECK_VARIABLE` says.
    """

    def __init__(self, command: Sequence[str | Path], cpu: int, check: Path | None = None) -> None:
        environment = dict(os.environ)
        if check is not None:
            environment[CHECK_VARIABLE] = str(check)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )
        os.sched_setaffinity(self.process.pid, {cpu})
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin = self.process.stdin.fileno()
        self._stdout = self.process.stdout
        self.last_byte_to_status: list[float] = []

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def ask(self, message: bytes, action: str) -> None:
        """Write a line, wait for its status."""
        _core.write_all(self._stdin, message, write_size=WRITE_SIZE)
        written = time.perf_counter()
        while not (answer := self._stdout.readline()).strip():
            assert answer, f"the child ended with {self.process.wait(10)}"
        self.last_byte_to_status.append(time.perf_counter() - written)
        assert json.loads(answer) == {"action": "status", "responseFor": action}

    def cpu_seconds(self) -> float:
        """Time on a CPU so far, of all threads (proc(5), schedstat: ns; stat would count in ticks of 10 ms)."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def resident_bytes(self) -> int:
        """Memory of the process now."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        """Lease lost, end of input, a clean exit."""
        self.ask(b'{"action":"leaseLost"}\n', "leaseLost")
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(20) == 0


def measure(benchmark, child: Child, content: bytes, rounds: int) -> dict[str, float]:
    """Time round trips of a batch, from the first byte written to the status read.

    Returns:
        What is noted beside the time: bytes of the line, the child's CPU for a GB of it, and the time from the last
        byte to the status (median).
    """
    child.last_byte_to_status.clear()
    cpu = child.cpu_seconds()
    benchmark.pedantic(child.ask, (content, "processRecords"), rounds=rounds)
    asked = len(child.last_byte_to_status)
    used = child.cpu_seconds() - cpu
    return {
        "line_bytes": len(content),
        "cpu_seconds_per_gb": used / (asked * len(content) / 1e9),
        "last_byte_to_status": sorted(child.last_byte_to_status)[asked // 2],
    }
