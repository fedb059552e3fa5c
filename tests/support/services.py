"""Servers that all tests of a run share, over all workers: one Spark, one local AWS, one Redis. Fixtures.

Whoever asks first starts the server, as a process of its own (programs/service.py); the others find its description in
the run's folder. It ends with the run. Tests have their own streams, tables and names in it. A test that kills, stops
or misleads a server has its own: `own_aws` is one for the tests of a worker that inject faults.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import run_folder
from fastkcl.local_aws import LocalAws
from paths import PROGRAMS
from waiting import wait_until

START_SECONDS = 240.0
"""For a JVM on a machine that has other work."""


@cache
def shared(name: str) -> dict[str, Any]:
    """What a server says about itself; it is started if it has not been.

    Args:
        name: as programs/service.py knows it.

    Raises:
        RuntimeError: it did not start; with the last lines it wrote.
    """
    folder = run_folder.folder()
    said, log = folder / f"{name}.json", folder / f"{name}.log"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [sys.executable, str(PROGRAMS / "service.py"), name, str(folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=folder,
                    start_new_session=True,
                )
            wait_until(
                lambda: said.exists() or process.poll() is not None,
                f"the shared {name}",
                seconds=START_SECONDS,
                seen=lambda: log.read_text("utf-8", "replace")[-2000:],
            )
            process.returncode = process.returncode or 0  # nobody here waits for it: it ends after this process
            if not said.exists():
                raise RuntimeError(f"the shared {name} did not start: {log.read_text('utf-8', 'replace')[-2000:]}")
        found: dict[str, Any] = json.loads(said.read_text())
        return found


class SharedAws(LocalAws):
    """The server of another process: everything but starting, ending and stopping it."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def _not_ours(self, *_: Any) -> Any:
        raise AssertionError("all tests share this server: a test that does this to one needs its own, `own_aws`")

    start = stop = kill = restart = pause = resume = faults = pass_time = __enter__ = _not_ours  # type: ignore[assignment]
    pid = property(_not_ours)  # type: ignore[assignment]


@pytest.fixture(scope="session")
def aws() -> LocalAws:
    """Local AWS for everybody: make streams and tables of the test's own."""
    return SharedAws(shared("aws")["url"])


@pytest.fixture(scope="session")
def _aws_of_this_worker() -> Iterator[LocalAws]:
    with LocalAws() as server:
        yield server


@pytest.fixture
def own_aws(_aws_of_this_worker: LocalAws) -> Iterator[LocalAws]:
    """Local AWS for this test alone, as long as it lasts: its faults end with it; streams of others may be there."""
    yield _aws_of_this_worker
    _aws_of_this_worker.faults()


@pytest.fixture(scope="session")
def redis() -> dict[str, str]:
    """A Redis server for everybody, as variables of the environment: use keys of the test's own."""
    found = shared("redis")
    return {"REDIS_HOST": found["host"], "REDIS_PORT": str(found["port"])}
