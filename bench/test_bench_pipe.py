"""A real child on a real pipe: from the first byte of a line written to the child's status read.

The line goes out in 8 KiB pieces, as the daemon's BufferedWriter writes it. Writer and child are pinned, both to
one core or to two: unpinned runs jump between the two placements. Besides the time of a round trip: CPU of the
child, time from the last byte to the status, and the child's memory when it is idle again.
"""

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from fastkcl import _core
from fastkcl.replay import profiles
from peers import KCLPY_NAME, PEERS

PROFILES = ("iot", "clickstream", "logs", "blob")
BARE = "bare read (decodes nothing)"
CHILDREN = {"fastkcl": "fastkcl_child.py", KCLPY_NAME: "kclpy_child.py", BARE: "bare_child.py"}
CPUS = sorted(os.sched_getaffinity(0))
PLACEMENTS = {"one core": (CPUS[0], CPUS[0])} | ({"two cores": (CPUS[0], CPUS[1])} if len(CPUS) > 1 else {})
WRITE_SIZE = 8192
INITIALIZE = (
    b'{"action":"initialize","shardId":"shardId-000000000000","sequenceNumber":"TRIM_HORIZON","subSequenceNumber":0}\n'
)
ROUNDS = {"fastkcl": 60, KCLPY_NAME: 10, BARE: 60}


@functools.cache
def line(profile: str) -> bytes:
    """A batch of the profile's own size."""
    return profiles.line(profiles.PROFILES[profile])


class Child:
    """A child process between two pipes, and the daemon's half of the conversation."""

    def __init__(self, script: str, cpu: int, check: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "children" / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "FASTKCL_BENCH_CHECK": str(check)},
        )
        os.sched_setaffinity(self.process.pid, {cpu})
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin = self.process.stdin.fileno()
        self._stdout = self.process.stdout
        self.last_byte_to_status: list[float] = []

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
        self._stdout.close()


@pytest.fixture(params=PLACEMENTS, ids=lambda name: name.replace(" ", "_"))
def placement(request: pytest.FixtureRequest) -> Iterator[str]:
    """This process on its core for the time of the test."""
    os.sched_setaffinity(0, {PLACEMENTS[request.param][0]})
    yield request.param
    os.sched_setaffinity(0, CPUS)


@pytest.mark.parametrize("peer", CHILDREN)
@pytest.mark.parametrize("profile", PROFILES)
def test_pipe(benchmark, placement: str, profile: str, peer: str, tmp_path: Path) -> None:
    """The first batch is compared before anything is timed."""
    content = line(profile)
    check = tmp_path / "first.arrow"
    child = Child(CHILDREN[peer], PLACEMENTS[placement][1], check)
    try:
        child.ask(INITIALIZE, "initialize")
        child.ask(content, "processRecords")
        if peer != BARE:
            with pa.ipc.open_file(check) as file:
                assert file.get_batch(0).equals(PEERS["json + base64"](content))
        child.ask(content, "processRecords")  # the first round did extra work
        child.last_byte_to_status.clear()
        cpu = child.cpu_seconds()
        benchmark.group = f"pipe, {placement}, {profile}"
        benchmark.pedantic(child.ask, (content, "processRecords"), rounds=ROUNDS[peer])
        rounds = len(child.last_byte_to_status)
        benchmark.extra_info |= {
            "suite": f"pipe, {placement}",
            "profile": profile,
            "peer": peer,
            "line_bytes": len(content),
            "cpu_seconds_per_gb": (child.cpu_seconds() - cpu) / (rounds * len(content) / 1e9),
            "last_byte_to_status": sorted(child.last_byte_to_status)[rounds // 2],
        }
        time.sleep(0.1)
        benchmark.extra_info["idle_resident_bytes"] = child.resident_bytes()
        child.end()
    finally:
        if child.process.poll() is None:
            child.process.kill()
            child.process.wait()
