"""A run of the tests leaves nothing behind: no process, no file, no port. Anything that it leaves is named, ended, and
an error.

A pytest plugin, listed in conftest. The process that the user started makes a folder for the run: temporary files of
all kinds land there (TMPDIR, ``tmp_path``), and whatever the tests start inherits the folder's name in its
environment. At the end, when workers and shared servers are gone, no process may have that name, and the folder for
temporary files is empty. Processes carry the test that started them (PYTEST_CURRENT_TEST), so the report can say which
one it was. A process without that environment is known as a descendant of the process that ran its test.

A run within a run (a test that starts pytest) uses the folder of the outer one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from paths import ROOT

_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30
"""Bytes, far more than a run has at once."""
VARIABLE = "FASTKCL_TEST_RUN"
"""Names the folder, for workers and for what tests start."""
PATIENCE = 20.0
"""Seconds that processes may take to end after the last test."""
# Other JVMs than those of Spark write to /tmp.
PATTERNS_OF_OTHERS = ("spark-*", "blockmgr-*", "artifacts-*", "fastkcl*", "liblz4*", "snappy-*")


@dataclass
class Run:
    """What the process keeps that has made the folder."""

    folder: Path
    alive: int
    """The run's end of a FIFO: shared servers end when it is closed, however this process dies."""
    before: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


_run = pytest.StashKey[Run]()


def folder() -> Path:
    """The folder of this run."""
    return Path(os.environ[VARIABLE])


def spark_options(folder: Path) -> str:
    """SPARK_SUBMIT_OPTS: a JVM does not look at TMPDIR; the quick compiler alone saves a quarter of the CPU."""
    return f"-Djava.io.tmpdir={folder} -XX:TieredStopAtLevel=1"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if VARIABLE in os.environ or hasattr(config, "workerinput"):
        return
    made = Path(tempfile.mkdtemp(prefix="fastkcl-", dir=_in_memory()))
    os.mkfifo(made / "alive")
    (made / "tmp").mkdir()
    (made / "runtime").mkdir(mode=0o700)
    run = Run(made, os.open(made / "alive", os.O_RDWR))
    run.before = _files()
    os.environ[VARIABLE] = str(made)
    os.environ["TMPDIR"] = tempfile.tempdir = str(made / "tmp")
    os.environ["XDG_RUNTIME_DIR"] = str(made / "runtime")  # locks of tables stay there
    os.environ["SPARK_SUBMIT_OPTS"] = spark_options(made / "tmp")
    if config.option.basetemp is None:
        config.option.basetemp = made / "t"
    config.stash[_run] = run


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    run = session.config.stash.get(_run, None)
    if run is None:
        _note_descendants()
        yield  # the process that started this worker may end it any time from here on
        return
    yield
    os.close(run.alive)
    run.problems += _left_processes(run.folder)
    run.problems += [f"file: {path}" for path in sorted(_files() - run.before)]
    run.problems += [f"file: {path}" for path in sorted((run.folder / "tmp").iterdir())]
    if run.problems and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    if run.problems and reporter is not None:
        reporter.section("left behind by the tests", red=True)
        for problem in run.problems:
            reporter.write_line(problem)
    if session.exitstatus == pytest.ExitCode.TESTS_FAILED:
        if reporter is not None:
            reporter.write_line(f"the run's files are kept: {run.folder}")
    else:
        # At once for runs beside this one, which know it by its FIFO.
        shutil.rmtree(run.folder.rename(run.folder.with_name(f".{run.folder.name}")), ignore_errors=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _run in config.stash:
        del os.environ[VARIABLE]
        del os.environ["TMPDIR"]
        del os.environ["SPARK_SUBMIT_OPTS"]
        tempfile.tempdir = None


def _in_memory() -> Path | None:
    """Where a file is synced in no time, which takes 4 ms on a disk; None without room there, or if TMPDIR is set."""
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK) or os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
        return None  # JVMs run the libraries that they unpack
    return _MEMORY if shutil.disk_usage(_MEMORY).free > _ROOM else None


def _note_descendants() -> None:
    """For the end of the run: when this process has ended, nobody can tell whose they were."""
    (folder() / f"descendants-{os.getpid()}.json").write_text(json.dumps(_descendants()))


def _descendants() -> dict[str, float]:
    """The processes below this one: when each was created, by its id, as JSON has it."""
    return {str(process.pid): process.create_time() for process in psutil.Process().children(recursive=True)}


def _left_processes(folder: Path) -> list[str]:
    """Wait a while for the run's processes, then name and end those that are still there."""
    deadline = time.monotonic() + PATIENCE
    while (left := _processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [_end(process) for process in left]


def _processes_of(folder: Path) -> list[psutil.Process]:
    below = _descendants()
    for noted in folder.glob("descendants-*.json"):
        below |= json.loads(noted.read_text())
    found = []
    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        if process.pid in mine:
            continue
        try:
            known = abs(below.get(str(process.pid), 0.0) - process.create_time()) < 2  # ids are used again
            ours = known or process.environ().get(VARIABLE) == str(folder)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _end(process: psutil.Process) -> str:
    try:
        with process.oneshot():
            test = process.environ().get("PYTEST_CURRENT_TEST", "no test")
            words = " ".join(process.cmdline())[:300]
        ports = [link.laddr.port for link in process.net_connections("tcp") if link.status == psutil.CONN_LISTEN]
        process.send_signal(signal.SIGKILL)
    except psutil.Error as error:
        return f"process: {error}"
    return f"process {process.pid}, started by {test}{f', listening at {ports}' if ports else ''}: {words}"


def _files() -> set[str]:
    """What JVMs leave in the machine's /tmp; in CI, where nobody edits, also the checkout's untracked files."""
    found = {str(path) for pattern in PATTERNS_OF_OTHERS for path in Path("/tmp").glob(pattern) if not _is_run(path)}
    if "CI" in os.environ and (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "--others", "--exclude-standard", "-z"],
            capture_output=True,
            check=False,
            text=True,
        )
        found |= {str(ROOT / name) for name in listed.stdout.split("\0") if name}
    return found


def _is_run(path: Path) -> bool:
    """Whether it is the folder of a run, of this one or of one beside it."""
    return (path / "alive").exists()
