"""The promises of the tests' own runs: waits with a bound, limits that say what hangs, nothing left behind, no
sleeps."""

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

SLEEP = re.compile(r"sleep\(((?:[^()]|\([^()]*\))+)\)|sleep['\", ]+(\d[\d.]*)|Event\(\)\.wait\(([^()]+)\)")
"""Of Python, of a shell or a command, and of an event that nobody sets."""
HANG = "600"
"""Seconds of a process that hangs until its test ends it."""
LISTED = {
    ("programs/rogue.py", "options.every"): "the pace at which a rogue writes, which its test sets: 0.2 s at most",
    ("programs/stitch.py", "float(stitch.custom_arguments[1])"): "nothing, or a hang: its test says which",
    ("programs/sink_child.py", "seconds"): "a hang, or 0.1 s; more in tests of the system alone",
    ("support/sink_helpers.py", "seconds"): "a process is killed at a random moment, which is the subject",
    ("programs/table_chaos.py", "chance.uniform(0, 0.2)"): "before a writer that its store refused begins again",
    (
        "programs/table_chaos.py",
        "pace * chance.uniform(0.05, 0.5)",
    ): "writers die at random moments, which is the subject",
    ("programs/table_chaos.py", "pace * chance.uniform(0.05, 0.8)"): "a zombie sleeps for a random time",
    ("support/fault_proxy.py", "HANG_SECONDS"): "a store that does not answer, which is the subject",
    ("support/waiting.py", "step"): "between two looks of a wait for an event",
    ("kcl/test_run.py", "seconds"): "the sleep that a test puts in the place of a longer one",
    ("kinesis/test_balance.py", "1.1"): "a table stamps renewals with whole seconds, and two are to differ",
    ("kinesis/test_acknowledging.py", "random.Random(record.sequence_number).random() / 20"): "0.05 s at most",
    ("kinesis/test_parallel_puts.py", "pauses.random() / 200"): "0.005 s at most",
    ("kinesis/test_histories.py", "self.random.choice([0, 0.01, 0.5])"): "the work that a program does with a record",
}
"""Other sleeps than hangs and those below 0.2 s, and why: by the file, and what is slept."""


def test_no_test_sleeps_for_a_time() -> None:
    found, listed = {}, set()
    for path in sorted(TESTS.rglob("*.py")):
        name = str(path.relative_to(TESTS))
        if name.startswith("system/") or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for seconds in map("".join, SLEEP.findall(line)):
                short = re.fullmatch(r"0|0?\.[01]\d*", seconds)
                if (name, seconds) in LISTED:
                    listed.add((name, seconds))
                elif not short and seconds != HANG and not line.strip().startswith("def "):
                    found[f"{name}:{number}"] = line.strip()
    assert found == {}, "wait for an event (support/waiting.py), or list the sleep with the reason"
    assert listed == LISTED.keys()


@pytest.mark.parametrize(
    "line",
    [
        "time.sleep(2)",
        "await asyncio.sleep(delay(3) * 2)",
        "threading.Event().wait(5)",
        "['sleep', '5']",
        "sh -c 'sleep 5'",
    ],
)
def test_sleeps_of_all_kinds_are_found(line: str) -> None:
    assert len(SLEEP.findall(line)) == 1


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
        plugins = (
            'import run_folder\nrun_folder.PATIENCE = 0.5\npytest_plugins = ["run_folder", "time_limits", "no_skips"]\n'
        )
        (folder / "conftest.py").write_text(plugins)
        (folder / "test_it.py").write_text(text)
        (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS / 'support'}\n")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "FASTKCL_TEST", "TMPDIR"))}
        blocked = [part for name in ("cacheprovider", "randomly", "rerunfailures") for part in ("-p", f"no:{name}")]
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *blocked, *options],
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


HANGS_FOR_GOOD = """
import signal, time, pytest, time_limits

time_limits.LAST_GRACE = 1.0

@pytest.mark.timeout(1)
def test_it():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(600)
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "a worker"])
def test_what_cannot_be_interrupted_ends_with_its_stacks(run: Run, options: tuple[str, ...]) -> None:
    done = run(HANGS_FOR_GOOD, *options)
    assert done.returncode == 1
    assert "Timeout (0:00:02)!" in done.stderr
    assert "in test_it" in done.stderr


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


LEAVES_WITHOUT_ENVIRONMENT = """
import os, signal, subprocess

def test_a_process():
    subprocess.Popen(["sleep", "600"], env={}).returncode = 0

def test_a_fork():
    if os.fork() == 0:
        signal.pause()
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "a worker"])
def test_processes_without_the_environment_of_the_run_are_named_and_ended(run: Run, options: tuple[str, ...]) -> None:
    done = run(LEAVES_WITHOUT_ENVIRONMENT, *options)
    assert done.returncode == 1, done.stdout
    left = re.findall(r"^process (\d+), started by no test: (sleep 600|\S+python)", done.stdout, re.MULTILINE)
    assert [what == "sleep 600" for _, what in left].count(True) == 1, done.stdout
    assert len(left) == 2, done.stdout
    for pid, _ in left:
        wait_until_gone(int(pid))


SKIPS = """
import pytest

@pytest.mark.skip(reason="no reason")
def test_marked(): pass

def test_on_the_way():
    pytest.skip("nor here")
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "a worker"])
@pytest.mark.parametrize(
    "text", [SKIPS, "import pytest\npytest.importorskip('no_such_module')"], ids=["tests", "a module"]
)
def test_in_ci_a_skip_is_a_failure(
    run: Run, text: str, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    done = run(text, *options)
    assert done.returncode in (1, 2), done.stdout
    assert "skipped, which CI does not allow" in done.stdout


def test_a_run_that_leaves_nothing_leaves_no_folder(run: Run, tmp_path: Path) -> None:
    done = run("def test_it(tmp_path):\n    (tmp_path / 'file').write_text('')\n")
    assert done.returncode == 0, done.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]


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


def test_each_run_of_the_systems_tests_selects_them() -> None:
    """By their marker: pytest runs none of them by itself, and says only that it has deselected them."""
    lines = (ROOT / "Makefile").read_text().replace("\\\n", " ").splitlines()
    runs = [line for line in lines if line.startswith("\t") and "tests/system" in line and "pytest" in line.lower()]
    assert len(runs) >= 4
    assert [line for line in runs if not re.search(r"-m '?system", line)] == []
