"""A child between two pipes, the daemon's half of its conversation, and the cores of both.

Lines go out in pieces: 8 KiB, as the daemon's BufferedWriter writes them, or of the caller's size. Writer and child are
pinned, both to one core or to two: unpinned runs jump between the two placements.

Only Linux can pin them, and has their figures in /proc: elsewhere this can be imported, and no more.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fastkcl import _core
from fastkcl.portable import is_linux

__all__ = ["BARE", "CHECK_VARIABLE", "CPUS", "INITIALIZE", "PLACEMENTS", "PROGRAMS", "WRITE_SIZE", "Child"]

PROGRAMS = Path(__file__).parent / "programs"
BARE = "bare reader"
"""A child that only reads: the floor. Its program is ``bare.py``; it decodes nothing."""
CHECK_VARIABLE = "FASTKCL_BENCH_CHECK"
"""Environment variable: the file for the result of a child's first batch."""
CPUS = sorted(os.sched_getaffinity(0)) if is_linux() else [0]
PLACEMENTS = {"one core": (CPUS[0], CPUS[0])} | ({"two cores": (CPUS[0], CPUS[1])} if len(CPUS) > 1 else {})
"""Cores of the writer and of the child."""
WRITE_SIZE = 8192
INITIALIZE = (
    b'{"action":"initialize","shardId":"shardId-000000000000","sequenceNumber":"TRIM_HORIZON","subSequenceNumber":0}\n'
)


class Child:
    """A child process between two pipes, and the daemon's half of the conversation.

    Args:
        command: interpreter, program and arguments.
        cpu: the core it runs on.
        check: the value of `CHECK_VARIABLE`.
        write_size: bytes of a write(2).
        environment: added to this process's.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        cpu: int,
        check: Path | None = None,
        write_size: int = WRITE_SIZE,
        environment: dict[str, str] | None = None,
    ) -> None:
        variables = dict(os.environ) | (environment or {})
        if check is not None:
            variables[CHECK_VARIABLE] = str(check)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=variables
        )
        os.sched_setaffinity(self.process.pid, {cpu})
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin = self.process.stdin.fileno()
        self._stdout = self.process.stdout
        self._write_size = write_size

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
        """Write a line, wait for its status.

        Raises:
            RuntimeError: the child has ended, or answered something else.
        """
        self.write(message)
        self.await_status(action)

    def write(self, content: bytes) -> None:
        """Write to the child, in pieces.

        Raises:
            RuntimeError: the child has ended.
        """
        try:
            _core.write_all(self._stdin, content, write_size=self._write_size)
        except BrokenPipeError:
            raise RuntimeError(f"the child ended with {self.process.wait(10)} while it was written to") from None

    def await_status(self, action: str) -> None:
        """Read up to the status for `action`.

        Raises:
            RuntimeError: the child has ended, or answered something else.
        """
        while not (answer := self._stdout.readline()).strip():
            if not answer:
                raise RuntimeError(f"the child ended with {self.process.wait(10)} before it answered {action}")
        if json.loads(answer) != {"action": "status", "responseFor": action}:
            raise RuntimeError(f"the child answered {action} with {answer!r}")

    def measure(self, content: bytes) -> dict[str, float]:
        """One batch, from the first byte written to the status read: "seconds", and the child's "cpu_seconds"."""
        cpu = self.cpu_seconds()
        start = time.perf_counter()
        self.ask(content, "processRecords")
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "cpu_seconds": self.cpu_seconds() - cpu}

    def measure_last_byte(self, content: bytes, pause: float) -> dict[str, float]:
        """One batch, whose last byte is written `pause` seconds after the others: "seconds" from it to the status."""
        self.write(content[:-1])
        time.sleep(pause)
        start = time.perf_counter()
        self.ask(content[-1:], "processRecords")
        return {"seconds": time.perf_counter() - start}

    def cpu_seconds(self) -> float:
        """Time on a CPU so far, of all threads (proc(5), schedstat: ns; stat would count in ticks of 10 ms)."""
        nanoseconds = 0
        for thread in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                nanoseconds += int(thread.read_text().split()[0])
        return nanoseconds / 1e9

    def resident_bytes(self) -> int:
        """Memory of the process now."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        """Lease lost, end of input, a clean exit.

        Raises:
            RuntimeError: it did not end cleanly.
        """
        self.ask(b'{"action":"leaseLost"}\n', "leaseLost")
        assert self.process.stdin is not None
        self.process.stdin.close()
        if (code := self.process.wait(20)) != 0:
            raise RuntimeError(f"the child ended with {code} after the end of its input")
