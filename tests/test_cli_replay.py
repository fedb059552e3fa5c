"""`fastkcl replay`: options, exit status, what is printed where."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from replay_helpers import CHILDREN, DATA

CHILD = (sys.executable, str(CHILDREN / "plain.py"))


def replay(*args: str, child: tuple[str, ...] = CHILD) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fastkcl", "replay", *args, "--", *child]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


SMALL = ("--profile", "tiny", "--records", "50", "--batch-records", "10")


def test_a_good_child() -> None:
    done = replay(*SMALL, "--shards", "2", "--stream", "orders")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "profile tiny, seed 0, stream orders" in done.stdout
    assert done.stdout.count("kept  ") == 2
    assert "100 records" in done.stdout
    assert "Every child kept the protocol." in done.stdout


def test_a_bad_child_and_its_standard_error() -> None:
    done = replay(*SMALL, "--prefix", child=(*CHILD, "--misbehave", "above"))
    assert done.returncode == 1
    assert "[shardId-000000000000] checkpoint said IllegalArgumentException\n" in done.stderr
    assert "no more has been delivered (IllegalArgumentException)" in done.stdout
    assert "The protocol was broken" in done.stdout


def test_faults_and_json() -> None:
    done = replay(*SMALL, "--fault", "kill@2", "--fault", "checkpoint-error@4=ThrottlingException", "--json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    (shard,) = report["shards"]
    assert report["ok"] is True
    assert shard["exit_codes"] == [-9, 0]
    assert shard["checkpoint_errors"] == {"ThrottlingException": 1}
    assert [fault.partition(": ")[2].partition(" ")[0] for fault in shard["faults"]] == [
        "kill@2=whole",
        "checkpoint-error@4=ThrottlingException",
    ]
    assert done.stderr == "checkpoint failed: ThrottlingException\n"


def test_every_option_arrives(tmp_path: Path) -> None:
    sink = tmp_path / "sink"
    code = "import os, sys\nassert os.environ['COLOUR'] == 'a=b'\n" + (CHILDREN / "plain.py").read_text()
    done = replay(
        *("--profile", "tiny", "--records", "40", "--batch-records", "10", "--seed", "3", "--repeat", "2"),
        *("--rate", "1000", "--dialect", "legacy", "--end", "shard-end", "--split-at", "1", "--empty-batches", "1"),
        *("--write-size", "100", "--env", "COLOUR=a=b", "--restarts", "0", "--timeout", "20", "--exit-grace", "5"),
        "--json",
        child=(sys.executable, "-c", code, "--sink", str(sink)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert [shard["dialect"] for shard in report["shards"]] == ["legacy"] * 3
    assert [shard["records_sent"] for shard in report["shards"]][0] == 10
    assert len(sink.read_text().splitlines()) == 80


def test_captures() -> None:
    done = replay("--capture", str(DATA / "kcl-multilang"), "--json")
    assert done.returncode == 0, done.stdout
    assert len(json.loads(done.stdout)["shards"]) == 17


USAGE: list[tuple[tuple[str, ...], str]] = [
    (("--fault", "nope"), "unknown fault 'nope'; there are: kill, stop,"),
    (("--fault", "kill@*"), "give a number or a range"),
    (("--fault", "kill@0"), "counting starts at 1"),
    (("--fault", "kill@3-2"), "a range goes upwards"),
    (("--fault", "kill=full"), "one of whole, half"),
    (("--fault", "crlf=yes"), "takes no value"),
    (("--fault", "slow-reply=soon"), "a number of seconds expected"),
    (("--fault", "slow-reply=nan"), "seconds cannot be negative"),
    (("--fault", "kill 3"), "expected NAME[@WHEN][#SHARD][=VALUE]"),
    (("--env", "X"), "NAME=VALUE expected"),
    (("--profile", "x"), "is not one of"),
    (("--profile", "iot", "--capture", str(DATA)), "exclude each other"),
    (("--capture", str(DATA / "kcl-multilang"), "--records", "1"), "--records is for generated records"),
    (("--capture", str(DATA / "kcl-multilang"), "--shards", "2"), "each file is a shard"),
    (("--capture", str(DATA)), "no captures"),
    (("--capture", str(DATA / "nothing")), "does not exist"),
    (("--input", __file__), ":1: no JSON: Extra data (column 3)"),
    ((*SMALL, "--split-at", "5"), "nothing is left for a split"),
    ((*SMALL, "--split-at", "1", "--merge-at", "1"), "exclude each other"),
]


@pytest.mark.parametrize(("args", "message"), USAGE, ids=[" ".join(args)[-50:] for args, _ in USAGE])
def test_user_errors_say_what_to_do(args: tuple[str, ...], message: str) -> None:
    done = replay(*args)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("child", [(), ("/nonexistent/child",)])
def test_commands_that_cannot_be_started(child: tuple[str, ...]) -> None:
    done = replay(*SMALL, child=child)
    assert done.returncode == 2
    assert "Missing argument 'COMMAND...'" in done.stderr or "no such program" in done.stderr


def test_help_explains_profiles_faults_environment_and_exit_status() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastkcl", "replay", "--help"], capture_output=True, text=True, timeout=60
    )
    for words in ("clickstream", "kill@N", "checkpoint-error@N", "FASTKCL_REPLAY_ATTEMPT", "Exit status", "Examples:"):
        assert words in done.stdout


def test_interrupt() -> None:
    command = [sys.executable, "-m", "fastkcl", "replay", *SMALL, "--"]
    child = [
        sys.executable,
        "-c",
        "import os, sys, time\nprint(os.getpid(), file=sys.stderr, flush=True)\ntime.sleep(60)",
    ]
    process = subprocess.Popen([*command, *child], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    pid = int(process.stderr.readline())
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; the children have been ended" in stderr
    assert "Traceback" not in stderr
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_bars_on_a_terminal() -> None:
    """Standard error is a terminal: bars there, the children's lines above them, the table on standard output."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fastkcl", "replay", *SMALL, "--fault", "checkpoint-error@2", "--", *CHILD]
    process = subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    seen = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the terminal's other side is closed
            break
        if not data:
            break
        seen += data
    os.close(ours)
    stdout, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert b"50/50" in seen
    assert b"checkpoint failed: ThrottlingException" in seen
    assert b"Every child kept the protocol." in stdout
    assert b"\x1b" not in stdout
