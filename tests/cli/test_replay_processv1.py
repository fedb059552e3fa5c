"""``fastkcl replay --protocol processv1``: stitches played with from the command line, and how that is judged."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastkcl.cli.main import cli
from paths import EXAMPLES, PROGRAMS

PROCESSV1 = EXAMPLES / "processv1"
STITCH = [sys.executable, str(PROGRAMS / "stitch.py")]
PLAIN = [sys.executable, str(PROGRAMS / "plain_stitch.py")]


def replay(*args: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["replay", "--protocol", "processv1", *args])
    return done.exit_code, done.output


def report(*args: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(cli, ["replay", "--protocol=processv1", "--json", *args])
    return done.exit_code, json.loads(done.stdout)


def replay_until(*said: str, args: tuple[str, ...]) -> tuple[int, str]:
    """Play until all of this was said on standard error; then it is interrupted."""
    command = [sys.executable, "-m", "fastkcl", "replay", "--protocol", "processv1", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        text = ""
        while not all(each in text for each in said):
            line = process.stderr.readline()
            assert line, text
            text += line
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=60)
    return process.returncode, text + rest + out


def test_payloads_are_answered_and_stitches_ended() -> None:
    code, played = report(
        *("--messages", "1200", "--profile", "tiny", "--stitches", "2", "--exit-code", "9", "--argument", "waiting"),
        *("--argument", "/dev/null", "--", *STITCH),
    )
    assert (code, played["ok"], played["problems"]) == (0, True, [])
    for number, each in enumerate(played["stitches"], start=1):
        assert (each["instance_id"], each["exit_code"], each["health"]) == (f"stitch{number}", 9, "green")
        assert (each["received"], each["acknowledged"], each["dropped"]) == (1200, 1200, 0)


@pytest.mark.parametrize(
    ("way", "problem"),
    [
        ("bad-frames", "stitch1: wrote 4 frames that cannot be read"),
        ("deaf", "stitch1: owes answers for more than 1 s"),
        ("dies", "stitch1: ended by itself with 3"),
    ],
)
def test_what_a_stitch_must_not_do(way: str, problem: str) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit(3)"] if way == "dies" else PLAIN
    timeout = "1" if way == "deaf" else "60"
    code, played = report(
        *("--messages", "10", "--timeout", timeout, "--exit-grace", "1", "--argument", way, "--", *command)
    )
    assert code == 1
    assert problem in played["problems"]


def test_control_characters_of_a_log_are_escaped() -> None:
    log = r"""print('{"Command":"logs","Logs":["a\\nb \\u001b[2J"]}' + chr(10) + 'end'); input()"""
    _, text = replay("--seconds", "1", "--exit-grace", "60", "--", sys.executable, "-c", log)
    assert "[stitch1] a\\nb \\x1b[2J\n" in text


def test_stitches_of_several_programs() -> None:
    node = shutil.which("node")
    assert node is not None, "the example ping.js needs Node.js"
    ping = f"ping@Games.Ping.1={node} {PROCESSV1 / 'ping.js'}"
    pong = f"pong@Games.Pong.1={sys.executable} {PROCESSV1 / 'pong.py'}"
    code, text = replay_until(
        "[ping] pong answered pong 2",
        "[pong] group: played 2",
        args=("--stitch", ping, "--argument", "pong", "--argument", "2", "--stitch", pong),
    )
    assert code == 0, text
    assert "Every stitch kept the protocol" in text


def test_health_is_told(tmp_path: Path) -> None:
    code, _ = replay_until(
        "[stitch1] health: yellow, 2 heartbeats missed",
        "[stitch1] health: red, 6 heartbeats missed",
        args=("--heartbeat", "0.1", "--exit-grace", "1", "--argument", "no-sync", "--", *PLAIN),
    )
    assert code == 1


def test_an_interrupt_ends_it_in_good_order() -> None:
    code, text = replay_until("[stitch1] WARNING", args=("--argument", "logs", "--", *STITCH))
    assert code == 0
    assert "kept the protocol" in text


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ([], "nothing to start"),
        (["--stitch", "a"], "expected"),
        (["--stitch", "a=node 'x"], "No closing quotation"),
        (["--seconds", "nan", "--", "x"], "'nan' is no number in the range"),
        (["--heartbeat", "inf", "--", "x"], "not in the range"),
        (["--stitch", "a=x", "--stitch", "a=x"], "instance id"),
        (["--", "/no/such/program"], "/no/such/program"),
        (["--fault", "kill@1", "--", "x"], "--fault"),
    ],
)
def test_arguments_that_cannot_work(args: list[str], what: str) -> None:
    if args[:2] == ["--stitch", "a=x"]:
        args = [each.replace("=x", f"={sys.executable} -c pass") for each in args]
    code, text = replay(*args)
    assert code == 2
    assert what in text


def test_the_help_of_either_protocol() -> None:
    assert "--heartbeat" in replay("--help")[1]
    kcl = CliRunner().invoke(cli, ["replay", "--help"]).output
    assert "--protocol" in kcl
    assert "--heartbeat" not in kcl
