"""Servers and JVMs of a test's own, that are stopped, killed and outlived: no shared one takes that."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import run_folder
from fastkcl.replay import ReplayOptions, generate, parse_fault, replay
from fastkcl.spark import SparkUnavailableError
from fastkcl.spark.server.session import Session
from paths import PROGRAMS
from pyarrow import dataset
from pyspark.errors import PySparkException
from sink_helpers import stored
from spark_fixtures import WARNINGS
from waiting import is_gone, wait_until_gone

pytestmark = [pytest.mark.timeout(600), *WARNINGS]


@pytest.fixture
def server_to_stop(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """A Connect server for one test: the JVM's process id, and the URL."""
    with (
        (tmp_path / "server.log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / "connect_server.py"), "0", "secret"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=tmp_path,
        ) as process,
    ):
        assert process.stdout is not None
        words = process.stdout.readline().decode().split()
        assert len(words) == 2, (tmp_path / "server.log").read_text()
        yield int(words[0]), words[1]
        process.communicate()


@pytest.mark.usefixtures("connect_mode")
@pytest.mark.filterwarnings(r"ignore:\[RETRIES_EXCEEDED\]:UserWarning")  # pyspark's word for it
def test_a_server_that_hangs_is_given_up_and_found_again(
    server_to_stop: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle of a write, it accepts connections and says nothing."""
    monkeypatch.setattr("fastkcl.spark.server.connect._KEEPALIVE_SECONDS", 10.0)  # a server takes no more
    monkeypatch.setattr("fastkcl.spark.server.connect._PING_SECONDS", 10.0)
    monkeypatch.setattr("fastkcl.spark.server.connect._CONNECT_SECONDS", 2.0)
    monkeypatch.setattr("fastkcl.spark.server.connect._PATIENCE_SECONDS", 1.0)
    pid, url = server_to_stop
    session = Session(url, reconnect_timeout=1)
    assert session.call(lambda opened: opened.range(3).count()) == 3

    def write(opened: Any) -> int:
        os.kill(pid, signal.SIGSTOP)
        return int(opened.range(4).count())

    begun = time.monotonic()
    try:
        with pytest.raises((PySparkException, SparkUnavailableError), match="UNAVAILABLE|opens no session"):
            session.call(write)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert time.monotonic() - begun < 150
    assert session.call(lambda opened: opened.range(5).count()) == 5
    session.close()


@pytest.mark.usefixtures("mortal_jvms")
def test_a_child_with_a_jvm_of_its_own(tmp_path: Path) -> None:
    """Killed without a farewell, it takes its JVM with it: the end of its standard input is what tells the JVM."""
    noise: list[bytes] = []
    report = replay(
        [sys.executable, str(PROGRAMS / "spark_child.py")],
        generate("tiny", records=1000, batch_records=100),
        ReplayOptions(
            environment={"FASTKCL_SPARK": "local[1]", "TABLE_PATH": str(tmp_path / "table")},
            faults=(parse_fault("kill@5"),),
            on_stderr=lambda _shard, line: noise.append(line),
        ),
    )
    assert report.ok, (report.shards[0].problems, noise)
    table = dataset.dataset(tmp_path / "table", format="parquet", partitioning="hive").to_table()
    stored = Counter(table["sequenceNumber"].to_pylist())
    assert (len(stored), set(stored.values())) == (1000, {1})  # killed just after a checkpoint
    pids = {int(line.split()[1]) for line in noise if line.startswith(b"jvm ")}
    assert len(pids) == 2
    for pid in pids:
        wait_until_gone(pid, f"the end of JVM {pid}")


# ---- the server that children share -------------------------------------------------------------------------------


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of its own for locks, sockets and logs; its path is short, as a socket's has to be."""
    folder = tempfile.mkdtemp(prefix="r-", dir=run_folder.folder())
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    return Path(folder, "fastkcl")


CLIENT = """
import itertools, json, sys
from fastkcl.spark.server import shared
from fastkcl.spark.server.session import Session
shared.LINGER_SECONDS = 3.0
session = Session("shared:tests;memory=700m")
for line in itertools.chain([""], sys.stdin):
    rows = session.call(lambda spark: spark.range(7).count())
    print(json.dumps([rows, session._attachment.pid, session._attachment.url]), flush=True)
"""


class Client:
    """A process that writes each time that it is asked to."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CLIENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def answer(self) -> tuple[int, int, str]:
        assert self.process.stdout is not None
        rows, pid, url = json.loads(self.process.stdout.readline())
        return rows, pid, url

    def ask(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def jvm_of(keeper: int) -> int:
    (pid,) = map(int, Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split())
    return pid


@pytest.mark.usefixtures("each_way", "mortal_jvms")  # three JVMs, one after the other
def test_a_life(runtime: Path) -> None:
    """Three that start at once; one is killed, then the JVM, then the keeper; nothing is left when all have ended."""
    with ExitStack() as stack:
        clients = [stack.enter_context(Client()) for _ in range(3)]
        first = [client.answer() for client in clients]
        ((rows, keeper, url),) = set(first)
        jvm = jvm_of(keeper)
        assert rows == 7

        # Nothing of whom it was started by, and nobody else's business.
        assert os.getsid(jvm) == jvm
        assert os.getsid(keeper) not in {client.process.pid for client in clients}
        log = next(runtime.glob("*.log"))
        for pid in (keeper, jvm):
            assert Path(f"/proc/{pid}/fd/1").readlink() == Path(f"/proc/{pid}/fd/2").readlink() == log
            assert "-Xmx700m" in Path(f"/proc/{jvm}/cmdline").read_text().split("\0")
        token = url.partition("token=")[2]
        assert len(token) > 40
        processes = [Path(f"/proc/{pid}/cmdline").read_text() for pid in (keeper, jvm)]
        assert not any(token in text for text in [*processes, *(file.read_text() for file in runtime.glob("*.l*"))])
        assert {stat.S_IMODE(file.stat().st_mode) for file in runtime.glob("*.l*")} == {0o600}

        os.kill(keeper, signal.SIGTERM)  # a service manager's, for all processes: its clients have work to finish
        os.kill(jvm, signal.SIGTERM)
        clients.pop().process.kill()
        clients[0].ask()
        assert clients[0].answer() == (7, keeper, url)

        os.kill(jvm, signal.SIGKILL)
        for client in clients:
            client.ask()
        ((rows, second, _),) = {client.answer() for client in clients}
        assert rows == 7
        assert second != keeper
        assert is_gone(keeper)

        second_jvm = jvm_of(second)
        os.kill(second, signal.SIGKILL)
        wait_until_gone(second_jvm, "the end of the JVM after its keeper")
        clients[0].ask()
        rows, third, _ = clients[0].answer()
        assert rows == 7
        third_jvm = jvm_of(third)
        for client in clients:
            client.end()
        wait_until_gone(third, "the end of the keeper after its last client")
        wait_until_gone(third_jvm, "the end of its JVM")
    assert sorted({file.suffix for file in runtime.iterdir()}) == [".lock", ".log", ".old"]


@pytest.mark.usefixtures("mortal_jvms")
def test_children_of_a_daemon_share_it_and_outlive_it(tmp_path: Path, runtime: Path) -> None:
    """Two shards, no address told. Their server is killed at its first write: each record is stored once."""
    killed: list[int] = []

    def listen(_shard: str, line: bytes) -> None:
        noise.append(line)
        if line.startswith(b"server ") and not killed:
            killed.append(int(line.split()[1]))
            os.kill(jvm_of(killed[0]), signal.SIGKILL)

    noise: list[bytes] = []
    (tmp_path / "opened").mkdir()
    environment = {"TABLE_PATH": str(tmp_path / "table"), "OPENED": str(tmp_path / "opened"), "CHILDREN": "2"}
    report = replay(
        [sys.executable, str(PROGRAMS / "shared_child.py")],
        generate("tiny", shards=2, records=1000, batch_records=100),
        ReplayOptions(environment={**environment, "FASTKCL_SPARK": "", "SPARK_REMOTE": ""}, on_stderr=listen),
    )
    assert report.ok, ([shard.problems for shard in report.shards], noise)
    assert [shard.exit_codes for shard in report.shards] == [[0], [0]]  # nobody had to start again
    sent = sorted(
        int(number)
        for shard in generate("tiny", shards=2, records=1000).shards()
        for number in shard.records.columns(0, 1000).sequence_numbers
    )
    assert stored(tmp_path / "table") == sent
    servers = {int(line.split()[1]) for line in noise if line.startswith(b"server ")}
    assert len(servers) == 2, noise
    assert any(b"opening a new one" in line for line in noise)
    for pid in servers:
        if not is_gone(pid):
            os.kill(pid, signal.SIGTERM)  # no need to linger
        wait_until_gone(pid)
    assert not list(runtime.glob("*.sock"))
