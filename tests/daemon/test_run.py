"""A daemon from start to end, with a fake java: signals, children that are left, restarts, why it ended."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastkcl.daemon.processes import group_members
from paths import PROGRAMS
from waiting import is_gone, state_of, wait_until, wait_until_gone

LIVES = 60.0  # seconds; nothing here takes as long
# A child that works on once its daemon is gone, until it may finish.
FINISH = """import pathlib, sys, time
sys.stdin.read()
while not pathlib.Path('go').exists(): time.sleep(0.01)
open('done', 'w')
"""
OTHER = FINISH.replace("sys.stdin.read()", "")


class Run:
    """A driver that runs, and what it has written so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def until(self, start: str) -> str:
        """Read on to a line that begins so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith(start):
                return self.lines[-1]
        raise AssertionError(f"it ended before {start!r}: {self.lines}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def errors(self) -> list[str]:
        """What it and its guard have written to standard error, when both have ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().splitlines()

    def end(self) -> dict[str, Any]:
        """Its outcome, with all that was written as `lines`."""
        assert self.process.stdout is not None
        self.lines += self.process.stdout.read().splitlines()
        self.process.wait(LIVES)
        outcome = json.loads(self.lines[-1])
        assert isinstance(outcome, dict)
        return outcome


Start = Callable[..., Run]


@pytest.fixture
def java(tmp_path: Path) -> Path:
    program = tmp_path / "java"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAMS / "fake_java.py"} "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def start(tmp_path: Path, java: Path) -> Any:
    """Starts a daemon that runs lines of Python; ended with the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(*code: str, group: bool = False, **extra: Any) -> Run:
        command = [sys.executable, str(PROGRAMS / "daemon_driver.py"), str(java), str(tmp_path), json.dumps(extra)]
        environment = {**os.environ, "FAKE_DAEMON": "\n".join(code), "SECRET_OF_THE_TEST": "x"}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=tmp_path,
            process_group=0 if group else None,
        )
        processes.append(process)
        return Run(process)

    yield start
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


FORGED = [
    f"|12:00:00.000|ERROR|software.amazon.kinesis.multilang.MultiLangProtocol||{trouble}"
    for trouble in (
        "Failed to get status message for processRecords action for shard shardId-000000000000",
        "Timedout to get status message for processRecords action for shard shardId-000000000000. Terminating...",
    )
] + [
    "|12:00:00.000| [ERROR] MultiLangProtocol - Failed to get status message for processRecords action for shard s-1",
    "|12:00:00.000|INFO|software.amazon.kinesis.multilang.MultiLangDaemon||Process shutdown is complete.",
    "|0123456789abcdef|12:00:00.000|ERROR|a.MultiLangProtocol||Failed to get status message for x action for shard s",
    "java.io.IOException: Cannot run program",
]


@pytest.mark.parametrize("kcl", ["3", "1.7"])
def test_no_line_of_a_child_passes_for_one_of_the_daemon(start: Start, kcl: str) -> None:
    """A payload that a child writes down may hold whole lines of a daemon's log."""
    run = start("lease()", f"for line in {FORGED!r}: said(line)", "until_stopped()", kcl=kcl)
    run.until("ready")
    run.signal(signal.SIGTERM)
    outcome = run.end()
    assert (outcome["exit"], outcome["why"]) == ("STOPPED", "stopped as asked")
    told = [line for line in run.lines if line.startswith(("child: ", "error: ", "warning: ", "daemon: "))]
    assert [line for line in told if line.startswith("child: ")] == [f"child: {line}" for line in FORGED]
    assert [line for line in told if not line.startswith(("child: ", "daemon: "))] == []


def test_long_lines_of_children_stay_whole(start: Start) -> None:
    """A pipe takes 8 KiB at a time from a JVM: in one pipe, the log and its copies would be torn and mixed."""
    text = "java.lang.Error: shutdown is complete; lease lost to another worker"
    run = start("lease()", f"said_at_once({text!r} * 400, 4, 40)", "until_stopped(complete=False)")
    run.until("ready")
    run.signal(signal.SIGTERM)
    outcome = run.end()
    assert outcome["exit"] == "STOPPED_BADLY"
    told = [line for line in run.lines if line.startswith(("child: ", "error: ", "warning: ", "daemon: "))]
    assert [line for line in told if line.startswith("child: ")] == [f"child: {text * 400}"] * 160
    assert [line for line in told if not line.startswith("child: ")] == ["daemon: shutting down"]


def test_a_forged_end_is_no_end(start: Start) -> None:
    run = start("lease()", f"said({FORGED[3]!r})", "until_stopped(complete=False)")
    run.until("ready")
    run.signal(signal.SIGTERM)
    assert run.end()["exit"] == "STOPPED_BADLY"


def test_nohup_keeps_sighup_away(start: Start) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = start("lease()", "until_stopped()")
    finally:
        signal.signal(signal.SIGHUP, before)
    run.until("ready")
    run.signal(signal.SIGHUP)
    run.signal(signal.SIGTERM)
    run.end()
    assert [line for line in run.lines if line.startswith("we: SIG")] == [
        "we: SIGTERM: asking the daemon to stop; it has 0 s for it"
    ]


# What a daemon does, with what it ends, why, and what that is called.
ENDS = [
    (["lease()", "batch(answer=None)", "give_up(137)", "sys.exit(1)"], "exited with code 137 (signal 9)"),
    (["lease()", "batch(answer=None)", "give_up(7)", "sys.exit(1)"], "exited with code 7"),
    (
        [
            "log('MultiLangProtocol', f'Timedout to get status message for processRecords action for shard {SHARD}."
            " Terminating...', 'ERROR')",
            "os._exit(1)",
        ],
        "did not answer processRecords within timeoutInSeconds",
    ),
    (["lease()", "batch(answer='initialize')", "give_up()", "sys.exit(1)"], "answered initialize where processRecords"),
    (
        [
            "lease()",
            "batch(answer=None)",
            "failing('process records')",
            "raw('java.lang.NullPointerException: null')",
            "sys.exit(1)",
        ],
        "wrote a line with only the word null",
    ),
]


@pytest.mark.parametrize(("code", "why"), ENDS, ids=lambda value: value if isinstance(value, str) else "")
def test_because_of_a_child(start: Start, code: list[str], why: str) -> None:
    outcome = start(*code).end()
    assert outcome["exit"] == "CHILD_FAILED"
    assert outcome["why"].startswith("the daemon ended: the child of shardId-000000000000 ")
    assert why in outcome["why"]


def test_because_the_program_cannot_be_started(start: Start) -> None:
    outcome = start(
        "failing('initialize record processor')",
        "raw('java.io.IOException: Failed to start client executable')",
        "raw('Caused by: java.io.IOException: Cannot run program \"x\": error=13, Permission denied')",
        "sys.exit(1)",
    ).end()
    assert outcome["exit"] == "CHILD_FAILED"
    assert 'could not be started: Cannot run program "x": error=13, Permission denied' in outcome["why"]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (["sys.exit(0)"], "the daemon ended by itself with exit code 0"),
        (["os.kill(os.getpid(), 9)"], "the daemon was killed"),
        (
            ["log('Scheduler', 'Exceeded max number of attempts', 'ERROR')", "sys.exit(1)"],
            "the daemon ended by itself with exit code 1: Exceeded max number of attempts",
        ),
        (
            [
                "raw('java.lang.RuntimeException: no properties')",
                "raw('\\tat a.B.c(B.java:1)')",
                "sys.exit(1)",
            ],
            "the daemon ended by itself with exit code 1: java.lang.RuntimeException: no properties",
        ),
        (
            ["log('Worker', 'Caught exception', 'ERROR')", "raw('java.net.ConnectException: refused')", "sys.exit(1)"],
            "the daemon ended by itself with exit code 1: Caught exception: java.net.ConnectException: refused",
        ),
    ],
)
def test_for_another_reason(start: Start, code: list[str], why: str) -> None:
    outcome = start(*code).end()
    assert (outcome["exit"], outcome["why"]) == ("DAEMON_FAILED", why)


class TestStopping:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_in_order(self, start: Start, number: signal.Signals) -> None:
        run = start("lease()", "until_stopped()")
        run.until("ready")
        run.signal(number)
        assert run.end()["exit"] == "STOPPED"
        assert f"we: {number.name}: asking the daemon to stop; it has 0 s for it" in run.lines
        assert "daemon: shutdown is complete" in run.lines

    def test_before_there_is_any_child(self, start: Start) -> None:
        run = start("until_stopped(complete=False)")
        run.until("ready")
        run.signal(signal.SIGTERM)
        assert run.end()["exit"] == "STOPPED"

    def test_a_daemon_that_does_not_finish_its_shutdown(self, start: Start) -> None:
        run = start("lease()", "until_stopped(complete=False)")
        run.until("ready")
        run.signal(signal.SIGTERM)
        outcome = run.end()
        assert outcome["exit"] == "STOPPED_BADLY"
        assert "before the daemon's shutdown was complete" in outcome["why"]

    def test_a_daemon_without_a_graceful_shutdown(self, start: Start) -> None:
        run = start("lease()", "until_stopped(complete=False)", kcl="1.7")
        run.until("ready")
        run.signal(signal.SIGTERM)
        assert run.end()["exit"] == "STOPPED"

    @pytest.mark.parametrize("again", [False, True])
    def test_a_daemon_that_does_not_stop(self, start: Start, again: bool) -> None:
        run = start(
            "signal.signal(signal.SIGTERM, lambda *_: raw('told'))",
            "raw('ready')",
            "while True: time.sleep(0.01)",
            shutdownGraceMillis="600000" if again else "0",
        )
        run.until("ready")
        run.signal(signal.SIGTERM)
        run.until("told")
        if again:
            run.signal(signal.SIGTERM)
        outcome = run.end()
        assert (outcome["exit"], outcome["return_code"]) == ("STOPPED_BADLY", -signal.SIGKILL)

    def test_a_terminals_signal_reaches_us_alone(self, start: Start) -> None:
        run = start("stoppable()", "raw(f'ready {os.getpgid(0)} {os.getpid()}')", "until_stopped()")
        _, group, pid = run.until("ready").split()
        assert group == pid
        assert int(group) != os.getpgid(run.process.pid)
        run.signal(signal.SIGTERM)
        run.end()

    def test_sigquit_is_the_jvms(self, start: Start) -> None:
        run = start("signal.signal(signal.SIGQUIT, lambda *_: raw('told'))", "lease()", "until_stopped()")
        run.until("ready")
        run.signal(signal.SIGQUIT)
        run.until("told")
        run.signal(signal.SIGTERM)
        assert run.end()["exit"] == "STOPPED"


@pytest.mark.usefixtures("each_way")
def test_a_group_has_those_who_run() -> None:
    """Not who has ended and was not waited for yet."""
    code = "import subprocess, sys; c = subprocess.Popen(['sleep', '600']); print(c.pid, flush=True); sys.stdin.read()"
    leader = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    assert group_members(leader.pid) == sorted([leader.pid, child])
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: state_of(child) == "Z", "the end of the child")
    assert group_members(leader.pid) == [leader.pid]
    leader.communicate()
    assert group_members(leader.pid) == []


@pytest.mark.usefixtures("each_way")
class TestIfWeAreKilled:
    def test_the_daemon_is_told_and_its_children_may_finish(self, start: Start, tmp_path: Path) -> None:
        run = start(
            *(f"c = child({FINISH!r})", "stoppable()", "raw(f'ready {os.getpid()} {c.pid}')", "until_stopped()"),
            patience=LIVES,
        )
        _, jvm, child = run.until("ready").split()
        run.signal(signal.SIGKILL)
        assert run.process.stderr is not None
        assert [run.process.stderr.readline() for _ in range(2)] == [
            "fastkcl daemon: it was killed; the JVM is asked to stop, and has 60 s for it\n",
            "fastkcl daemon: waiting for a child to finish\n",
        ]
        wait_until_gone(int(jvm))
        (tmp_path / "go").touch()
        assert run.errors() == ["fastkcl daemon: nothing of it is left"]
        wait_until_gone(int(child))
        assert (tmp_path / "done").exists()

    def test_those_that_do_not_end_are_ended(self, start: Start) -> None:
        """A JVM and a child that pass over SIGTERM."""
        hang = "import pathlib, time; pathlib.Path('hangs').write_text(''); time.sleep(600)"
        run = start(
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)",  # which a child inherits
            f"c = child({hang!r})",
            "while not Path('hangs').exists(): time.sleep(0.01)",
            "folder = Path(option('--properties-file')).parent",
            "raw(f'ready {os.getpid()} {c.pid} {folder}')",
            "while True: time.sleep(0.01)",
        )
        _, jvm, child, folder = run.until("ready").split()
        run.signal(signal.SIGKILL)
        wait_until_gone(int(jvm))
        wait_until_gone(int(child))
        said = run.errors()
        assert said[1:2] == ["fastkcl daemon: the JVM has not stopped in time: killing it"]
        assert [line.partition(" to ")[0] for line in said[3:5]] == [
            "fastkcl daemon: SIGTERM",
            "fastkcl daemon: SIGKILL",
        ]
        assert said[5:] == ["fastkcl daemon: nothing of it is left, and a child had to be ended"]
        assert not Path(folder).exists()

    def test_with_the_whole_group(self, start: Start) -> None:
        """The guard is in none of the groups that somebody would kill."""
        run = start("c = child('import time; time.sleep(600)')", "raw(f'ready {c.pid}')", "time.sleep(600)", group=True)
        child = int(run.until("ready").split()[1])
        os.killpg(run.process.pid, signal.SIGKILL)
        wait_until_gone(child)
        assert run.errors()[-1] == "fastkcl daemon: nothing of it is left, and a child had to be ended"

    def test_and_nothing_of_the_kind_if_we_are_not(self, start: Start) -> None:
        run = start("lease()", "until_stopped()")
        run.until("ready")
        run.signal(signal.SIGTERM)
        assert run.end()["exit"] == "STOPPED"
        assert run.errors() == []


@pytest.mark.usefixtures("each_way")
class TestChildrenThatAreLeft:
    def test_one_that_finishes_is_waited_for(self, start: Start, tmp_path: Path) -> None:
        run = start("lease()", f"child({FINISH!r})", "until_stopped()", patience=LIVES)
        run.until("ready")
        run.signal(signal.SIGTERM)
        run.until("we: waiting for a child to finish")
        (tmp_path / "go").touch()
        assert run.end()["exit"] == "STOPPED"
        assert (tmp_path / "done").exists()
        assert "we: waiting for a child to finish" in run.lines

    @pytest.mark.parametrize("stubborn", [False, True])
    def test_one_that_does_not_is_ended(self, start: Start, stubborn: bool) -> None:
        ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " if stubborn else ""
        hang = f"{ignore}import pathlib, time; pathlib.Path('hangs').write_text(''); time.sleep(600)"
        run = start(
            f"c = child({hang!r})",
            "while not Path('hangs').exists(): time.sleep(0.01)",
            "raw(f'ready {c.pid}')",
            "give_up()",
            "os._exit(1)",
        )
        pid = int(run.until("ready").split()[1])
        assert run.end()["exit"] == "CHILD_FAILED"
        assert is_gone(pid)
        told = [line for line in run.lines if line.startswith("we: SIG")]
        names = ["SIGTERM", "SIGKILL"] if stubborn else ["SIGTERM"]
        assert told == [f"we: {name} to a child that the daemon left: {pid}" for name in names]

    def test_after_a_stop_that_is_not_in_order(self, start: Start) -> None:
        run = start("child('import time; time.sleep(600)')", "lease()", "until_stopped()")
        run.until("ready")
        run.signal(signal.SIGTERM)
        assert run.end()["why"] == "stopped, but a child had to be ended"

    def test_a_server_that_a_child_has_detached_stays(self, start: Start) -> None:
        detach = (
            "import subprocess, sys; server = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
            " start_new_session=True); open('server.new', 'w').write(str(server.pid));"
            " import os; os.rename('server.new', 'server')"
        )
        run = start(
            f"child({detach!r}).wait()",
            "lease()",
            "stoppable()",
            "raw('ready ' + Path('server').read_text())",
            "until_stopped()",
        )
        server = int(run.until("ready").split()[1])
        try:
            run.signal(signal.SIGTERM)
            assert run.end()["exit"] == "STOPPED"
            assert not is_gone(server)
        finally:
            os.kill(server, signal.SIGKILL)

    def test_a_daemon_that_waits_for_itself_is_not_waited_for(self, start: Start) -> None:
        """As KCL 3 does in its exit hook, for the whole of shutdownGraceMillis."""
        run = start(
            "lease()", "batch(answer=None)", "give_up(9)", "time.sleep(600)", shutdownGraceMillis="600000", alone=0.1
        )
        outcome = run.end()
        assert (outcome["exit"], outcome["return_code"]) == ("CHILD_FAILED", -signal.SIGKILL)

    def test_but_other_children_may_finish_meanwhile(self, start: Start, tmp_path: Path) -> None:
        """The driver lets this one finish when the daemon would have been killed, were it alone."""
        code = (f"child({OTHER!r})", "lease()", "batch(answer=None)", "give_up(9)", "time.sleep(600)")
        start(*code, alone=0.1, patience=LIVES).end()
        assert (tmp_path / "done").exists()


class TestRestart:
    def test_until_it_is_stopped(self, start: Start, tmp_path: Path) -> None:
        run = start(
            "with open('starts', 'a') as file: file.write('x')",
            "if len(Path('starts').read_text()) < 3: sys.exit(5)",
            "lease()",
            "until_stopped()",
            restart=True,
        )
        run.until("ready")
        run.signal(signal.SIGTERM)
        assert run.end()["exit"] == "STOPPED"
        assert (tmp_path / "starts").read_text() == "xxx"
        why = "we: the daemon ended by itself with exit code 5; again in"
        assert [line for line in run.lines if line.startswith(why)] == [f"{why} 0.1 s", f"{why} 0.2 s"]

    def test_not_after_a_stop(self, start: Start, tmp_path: Path) -> None:
        run = start("Path('starts').open('a').write('x')", "lease()", "until_stopped()", restart=True)
        run.until("ready")
        run.signal(signal.SIGTERM)
        run.end()
        assert (tmp_path / "starts").read_text() == "x"


class TestWhatTheDaemonGets:
    def test_its_files_and_environment(self, start: Start) -> None:
        run = start(
            "path = Path(option('--properties-file'))",
            "mode = path.parent.stat().st_mode",
            "xml = option('--log-configuration')",
            "found = (str(path), mode, properties(), os.environ['FASTKCL_STREAM'], Path(xml).exists())",
            "raw(f'ready {found!r}')",
            "lease()",
            "until_stopped()",
        )
        path, mode, text, stream, has_log = eval(run.until("ready").partition(" ")[2])
        assert stat.S_IMODE(mode) == 0o700
        assert "streamName=clicks\n" in text
        assert "initialPositionInStream=TRIM_HORIZON\n" in text
        assert (stream, has_log) == ("clicks", True)
        run.signal(signal.SIGTERM)
        run.end()
        assert not Path(path).parent.exists()

    def test_credentials_in_a_file_that_is_gone_once_it_is_read(self, start: Start) -> None:
        run = start(
            "path = Path(next(word for word in ARGUMENTS if word.startswith('@'))[1:])",
            "elsewhere = ' '.join(ARGUMENTS) + properties()",
            "found = (path.read_text(), 'sesame' in elsewhere)",
            "raw('first')",
            "while path.exists(): time.sleep(0.01)",
            "raw(f'ready {found!r}')",
            "lease()",
            "until_stopped()",
            awsCredentialsProvider="CustomEnvironmentVariableCredentialsProvider",
        )
        text, elsewhere = eval(run.until("ready").partition(" ")[2])
        assert text == '"-Daws.accessKeyId=id"\n"-Daws.secretAccessKey=open \\"sesame\\" \\\\"\n'
        assert not elsewhere
        run.signal(signal.SIGTERM)
        run.end()

    def test_the_log_in_short(self, start: Start) -> None:
        run = start(
            "lease()",
            "log('DrainChildSTDERRTask', f'Received error line from subprocess [hello] for shard {SHARD}', 'ERROR')",
            "raw('hello')",
            "batch(1234)",
            "batch(0)",
            "until_stopped()",
        )
        run.until("ready")
        run.signal(signal.SIGTERM)
        run.end()
        kinds = [line for line in run.lines if line.startswith(("lease", "child", "batch", "hello"))]
        assert kinds[:2] == ["lease: lease taken, from TRIM_HORIZON", "child: hello"]
        assert kinds[2].startswith("batch: batch of 1,234 records, 0.00 MB, answered in ")
        assert len(kinds) == 3
