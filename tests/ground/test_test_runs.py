"""What the tests' own runs promise: waits with a bound, limits that say what hangs, nothing left behind, no sleeps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import ROOT, TESTS
from waiting import NotSeenError, is_gone, wait_until, wait_until_gone, wait_until_idle

SLEEP = re.compile(r"sleep\(([^()]+)\)")
HANG = "600"
"""Seconds of a process that hangs until its test ends it."""
LISTED = {
    "programs/rogue.py": "options.every: the pace at which a rogue writes, which its test sets",
    "programs/sink_child.py": "seconds: until a child kills itself, in tests of the system",
    "support/sink_helpers.py": "seconds: a process is killed at a random moment, which is the subject",
    "support/waiting.py": "step: between two looks of a wait for an event",
    "kcl/test_run.py": "seconds: the sleep that a test puts in the place of a longer one",
    "ground/test_test_runs.py": "this file",
    "kinesis/test_balance.py": "1.1 s: a table stamps renewals with whole seconds, and two are to differ",
    "kinesis/test_busy.py": "1 s: a body of a loop that blocks, which is the subject",
}
"""Files with other sleeps than hangs and those below 0.2 s, and why."""


def test_no_test_sleeps_for_a_time() -> None:
    found = {}
    for path in sorted(TESTS.rglob("*.py")):
        name = str(path.relative_to(TESTS))
        if name.startswith("system/") or name in LISTED:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for seconds in SLEEP.findall(line):
                short = re.fullmatch(r"0|0?\.[01]\d*", seconds)
                if not short and seconds != HANG and not line.strip().startswith("def "):
                    found[f"{name}:{number}"] = line.strip()
    assert found == {}, "wait for an event (support/waiting.py), or list the file with the reason"


def test_a_wait_says_what_for_and_what_was_seen() -> None:
    with pytest.raises(NotSeenError, match=r"^waited 0\.05 s for the second child; seen: \['one'\]$"):
        wait_until(lambda: False, "the second child", seconds=0.05, seen=lambda: ["one"])
    values = iter([0, "", "there"])
    assert wait_until(lambda: next(values), "anything") == "there"


def test_ends_and_idleness_of_a_process_are_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        wait_until_idle(process.pid)
        assert not is_gone(process.pid)
        with pytest.raises(NotSeenError, match=r"the end of process \d+; seen: 'S'"):
            wait_until_gone(process.pid, seconds=0.05)
        process.kill()
        wait_until_gone(process.pid)  # nobody has waited for it


# ---- runs of pytest --------------------------------------------------------------------------------------------------

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a test file with the plugins of these tests, as a run of its own."""

    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "run"
        folder.mkdir()
        plugins = 'import run_folder\nrun_folder.PATIENCE = 0.5\npytest_plugins = ["run_folder", "time_limits"]\n'
        (folder / "conftest.py").write_text(plugins)
        (folder / "test_it.py").write_text(text)
        (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS / 'support'}\n")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "FASTKCL_TEST", "TMPDIR"))}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *options],
            cwd=folder,
            env={**environment, "TMPDIR": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


HANGS = """
import subprocess, sys, threading, pytest

def in_a_thread():
    threading.Event().wait(600)

@pytest.mark.timeout(3)
def test_it():
    threading.Thread(target=in_a_thread, daemon=True, name="waiter").start()
    words = "print('words of the child', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            child.wait()
        finally:
            child.kill()
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "a worker"])
def test_what_hangs_is_named_with_all_stacks_and_what_its_processes_wrote(run: Run, options: tuple[str, ...]) -> None:
    done = run(HANGS, *options)
    assert done.returncode == 1
    assert "test_it has not ended within 3 s" in done.stdout
    assert "---- thread waiter" in done.stdout
    assert "in in_a_thread" in done.stdout
    assert "child.wait()" in done.stdout
    assert re.search(r"---- process \d+, child of \d+, \w+: \S+python\S* -c print", done.stdout)
    assert "stdout: words of the child" in done.stdout


LEAVES = """
import subprocess, sys, tempfile

def test_a_process():
    words = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
    child = subprocess.Popen([sys.executable, "-c", words + "time.sleep(600)"], stdout=subprocess.PIPE)
    print("port", int(child.stdout.readline()))
    child.returncode = 0
    child.stdout.close()

def test_a_file():
    tempfile.mkstemp(prefix="left-")

def test_nothing(tmp_path):
    (tmp_path / "file").write_text("gone with the run")
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "a worker"])
def test_what_is_left_behind_is_named_and_ended(run: Run, options: tuple[str, ...]) -> None:
    done = run(LEAVES, *options, "-o", "filterwarnings=ignore")
    assert done.returncode == 1, done.stdout
    assert "3 passed" in done.stdout
    left = re.search(
        r"^process (\d+), started by test_it.py::test_a_process \(call\), listening at \[\d+\]:", done.stdout, re.M
    )
    assert left is not None, done.stdout
    wait_until_gone(int(left[1]))
    assert len(re.findall(r"^file: \S+/tmp/left-", done.stdout, re.MULTILINE)) == 1


def test_a_run_that_leaves_nothing_leaves_no_folder(run: Run, tmp_path: Path) -> None:
    done = run("def test_it(tmp_path):\n    (tmp_path / 'file').write_text('')\n")
    assert done.returncode == 0, done.stdout
    assert list(tmp_path.glob("fastkcl-*")) == []


def test_each_folder_of_tests_is_a_mark() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "ground and not system", "tests/ground"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "tests/ground/test_test_runs.py::test_each_folder_of_tests_is_a_mark" in done.stdout
