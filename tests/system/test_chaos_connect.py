"""A Connect server that is killed while children write to it, and comes back: each record once in both sinks.

One JVM after the other, of its own, ten seconds each: one restart here, two and more seeds in ``make test-long``.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from fastkcl.replay import ReplayOptions, generate, parse_fault, replay
from paths import PROGRAMS
from sink_helpers import records_of
from sink_replay import STREAM, delivered
from waiting import PATIENCE

RUNS = max(int(os.environ.get("FASTKCL_CHAOS_RUNS", "1")) // 5, 1)
SINKS = ("ParquetSink", "DeltaSink")


class Server:
    """tests/programs/connect_server.py, one process after the other at the same URL."""

    def __init__(self, log: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"sc://localhost:{self.port}/;token=secret"
        self._log = log

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAMS / "connect_server.py"), str(self.port), "secret"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._log.parent,
            )
        assert self._process.stdout is not None
        words = self._process.stdout.readline().decode().split()
        assert words[1:] == [self.url], self._log.read_text()
        self._pid = int(words[0])

    def kill(self) -> None:
        """SIGKILL for the JVM."""
        os.kill(self._pid, 9)
        self.stop()

    def stop(self) -> None:
        self._process.communicate(timeout=PATIENCE)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("mortal_jvms")
@pytest.mark.parametrize("seed", range(RUNS))
def test_chaos_with_a_server_that_is_killed(tmp_path: Path, seed: int) -> None:
    """Each time in the middle of a write, as a rule; of later seeds children die as well."""
    chance = random.Random(seed)
    source = generate("tiny", records=400, shards=2, batch_records=20, aggregate=chance.choice([1, 7]), seed=seed)
    faults = [f"kill@{chance.randrange(2, 30)}#{shard}" for shard in (0, 1) if seed and chance.random() < 0.7]
    settings: dict[str, Any] = {"dialect": ("modern", "legacy")[seed % 2], "rate": 60}
    noise: list[str] = []
    writing = threading.Semaphore(0)

    def heard(_shard: str, line: bytes) -> None:
        noise.append(line.decode())
        if line == b"writing":
            writing.release()

    deaths = 2 if seed else 1
    server = Server(tmp_path / "server.log")
    server.start()
    kills: list[int] = []
    over = threading.Event()

    def kill_and_start() -> None:
        for _ in range(deaths):
            for _ in range(chance.randrange(2, 4)):
                writing.acquire()
            if over.wait(chance.uniform(0, 0.3)):
                return
            server.kill()
            kills.append(len(noise))
            over.wait(chance.uniform(0, 2))
            server.start()

    killer = threading.Thread(target=kill_and_start)
    killer.start()
    try:
        report = replay(
            [sys.executable, str(PROGRAMS / "connect_child.py")],
            source,
            ReplayOptions(
                stream=STREAM,
                faults=tuple(map(parse_fault, faults)),
                environment={"FASTKCL_SPARK": server.url, "TABLE_PATH": str(tmp_path)},
                on_stderr=heard,
                **settings,
            ),
        )
    finally:
        over.set()
        writing.release(1000)
        killer.join()
        server.stop()
    said = (seed, faults, [shard.problems for shard in report.shards], noise)
    assert report.ok, said
    assert len(kills) == deaths, said
    found = records_of(tmp_path / SINKS[0]) + records_of(tmp_path / SINKS[1])
    sent = delivered(source, **settings)
    assert sent - found == {}, ("lost", said)
    assert found - sent == {}, ("too many", said)
    # A write was on its way at least once: it has failed, and was repeated.
    assert any("the write is repeated" in line or "opening a new one" in line for line in noise), said
