"""`fastkcl replay`: options, exit status, both outputs."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fastkcl.replay import generate
from paths import DATA, PROGRAMS, ROOT
from replay_helpers import dead_letter

CHILD = (sys.executable, str(PROGRAMS / "plain.py"))


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


def test_standard_error_of_children_is_without_control_characters() -> None:
    odd = "printf 'a\\033[31m\\007\\302\\233\\233\\tü\\n' >&2"
    done = replay(*SMALL, child=("sh", "-c", odd))
    assert done.stderr
    assert done.stderr == "a\\x1b[31m\\x07\\x9b\\x9b\tü\n" * done.stderr.count("\n")


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
    code = "import os, sys\nassert os.environ['COLOUR'] == 'a=b'\n" + (PROGRAMS / "plain.py").read_text()
    done = replay(
        *("--profile", "tiny", "--records", "40", "--batch-records", "10", "--seed", "3", "--repeat", "2"),
        *("--aggregate", "2"),
        *("--rate", "1000", "--dialect", "legacy", "--end", "shard-end", "--split-at", "1", "--empty-batches", "1"),
        *("--write-size", "100", "--env", "COLOUR=a=b", "--restarts", "0", "--timeout", "20", "--exit-grace", "5"),
        "--json",
        child=(sys.executable, "-c", code, "--sink", str(sink)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert [shard["dialect"] for shard in report["shards"]] == ["legacy"] * 3
    assert [shard["records_sent"] for shard in report["shards"]][0] == 10
    rows = [line.split() for line in sink.read_text().splitlines()]
    assert len(rows) == 80
    # In the legacy dialect nothing else is seen of aggregates: pairs of one sequence number in a shard.
    assert set(Counter((row[0], row[1]) for row in rows).values()) == {2}


def test_captures() -> None:
    done = replay("--capture", str(DATA / "kcl-multilang"), "--json")
    assert done.returncode == 0, done.stdout
    assert len(json.loads(done.stdout)["shards"]) == 17


def test_dead_letters_reach_a_child_again(tmp_path: Path) -> None:
    """Each stream's and shard's in order, with the stream's name; the letters stay."""
    letters, log = tmp_path / "letters", tmp_path / "log"
    dead_letter(letters, [(10, 0, "b"), (10, 1, "c")])
    dead_letter(letters, [(9, 0, "a"), (10, 0, "b")])
    dead_letter(letters, [(1, 0, "d")], stream="orders", shard=1)
    before = sorted(letters.iterdir())
    child = (sys.executable, str(PROGRAMS / "processor.py"), str(log))
    done = replay("--dead-letter", str(letters), child=child)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 dead letters, stream clicks, orders" in done.stdout
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    started = {(call["stream"], call["shard_id"]) for call in calls if call["call"] == "initialize"}
    assert started == {("clicks", "shardId-000000000000"), ("orders", "shardId-000000000001")}
    delivered = [tuple(record) for call in calls if call["call"] == "process_batch" for record in call["records"]]
    assert [each for each in delivered if each[0] != "1"] == [
        ("9", 0, "k", b"a".hex()),
        ("10", 0, "k", b"b".hex()),
        ("10", 1, "k", b"c".hex()),
    ]
    assert ("1", 0, "k", b"d".hex()) in delivered
    assert sorted(letters.iterdir()) == before


def test_dead_letters_of_a_run_of_replay(tmp_path: Path) -> None:
    """What one child gives up, another gets, byte for byte, under the name that --stream gave the first."""
    log, letters = tmp_path / "log", tmp_path / "letters"
    fails = (
        "import fastkcl, sys\n@fastkcl.processor\ndef child(batch, checkpointer):\n    raise ValueError('boom')\n"
        f"fastkcl.run(child, dead_letter={str(letters)!r})"
    )
    done = replay(*SMALL, "--stream", "orders", "--end", "shutdown", child=(sys.executable, "-c", fails))
    assert done.stderr.count("fastkcl: dead_letter: ") == 5
    child = (sys.executable, str(PROGRAMS / "processor.py"), str(log))
    done = replay("--dead-letter", str(letters), "--fault", "kill@2", child=child)
    assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert {call["stream"] for call in calls if call["call"] == "initialize"} == {"orders"}
    (shard,) = generate("tiny", records=50, batch_records=10).shards()
    every = shard.records.columns(0, 50)
    delivered = {tuple(record) for call in calls if call["call"] == "process_batch" for record in call["records"]}
    payloads = [(data or b"").hex() for data in every.data]
    assert delivered == set(zip(every.sequence_numbers, [0] * 50, every.partition_keys, payloads, strict=True))


def test_dead_letters_of_kcl_1_come_in_its_dialect_without_saying_their_stream(tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    dead_letter(letters, [(1, None, "a"), (1, None, "b")], stream=None)
    done = replay("--dead-letter", str(letters))
    assert (done.returncode, done.stdout) == (2, "")
    path = letters / "shardId-000000000000-1-0.arrow"
    assert done.stderr == f"Error: {path}: it does not name its stream; give the stream (--stream)\n"
    done = replay("--dead-letter", str(letters), "--stream", "orders", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["stream"]) == (0, "orders")
    assert [(shard["dialect"], shard["records_sent"]) for shard in report["shards"]] == [("legacy", 2)]


def test_a_broken_dead_letter_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.arrow").write_bytes(b"ARROW1 and nothing else")
    done = replay("--dead-letter", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {tmp_path}/x.arrow: no dead letter: ")
    assert len(done.stderr.splitlines()) == 1


USAGE: list[tuple[tuple[str, ...], str]] = [
    (("--fault", "nope"), "unknown fault 'nope'; there are: kill, stop,"),
    (("--fault", "kill@*"), "give a number or a range"),
    (("--fault", "kill@0"), "counting starts at 1"),
    (("--fault", "kill@3-2"), "a range goes upwards"),
    (("--fault", "kill=full"), "one of whole, half"),
    (("--fault", "crlf=yes"), "takes no value"),
    (("--fault", "slow-reply=soon"), "a number of seconds expected"),
    (("--fault", "slow-reply=nan"), "from 0 to 1,000,000 seconds expected"),
    (("--fault", "slow-reply=inf"), "from 0 to 1,000,000 seconds expected"),
    (("--fault", "stop@1=inf"), "from 0 to 1,000,000 seconds expected"),
    (("--fault", "checkpoint-error=a b"), "a class name expected"),
    (("--fault", "kill@1#1", *SMALL), "kill@1#1=whole: there is no shard 1; the last one is 0"),
    (("--timeout", "inf"), "is not in the range"),
    (("--timeout", "1e300"), "is not in the range"),
    (("--timeout", "nan"), "is no number in the range"),
    (("--exit-grace", "inf"), "is not in the range"),
    (("--rate", "1e-300"), "is not in the range"),
    (("--rate", "inf"), "is not in the range"),
    (("--write-size", "9" * 20), "write_size must be from 1 to 1,000,000,000"),
    (("--records", "9" * 20), "at most 1,000,000,000 records"),
    (("--shards", "9" * 20), "is not in the range"),
    (("--capture", str(DATA / "kcl-multilang"), "--seed", "1"), "--seed is for generated records"),
    (("--input", __file__, "--seed", "0"), "--seed is for generated records"),
    (("--input", __file__, "--aggregate", "2"), "--aggregate is for generated records"),
    (("--aggregate", "0"), "is not in the range"),
    (("--fault", "kill 3"), "expected NAME[@WHEN][#SHARD][=VALUE]"),
    (("--env", "X"), "NAME=VALUE expected"),
    (("--profile", "x"), "is not one of"),
    (("--profile", "iot", "--capture", str(DATA)), "exclude each other"),
    (("--capture", str(DATA / "kcl-multilang"), "--records", "1"), "--records is for generated records"),
    (("--capture", str(DATA / "kcl-multilang"), "--shards", "2"), "each file is a shard"),
    (("--capture", str(DATA)), "no captures"),
    (("--dead-letter", str(DATA)), "no dead letters"),
    (("--dead-letter", str(DATA / "nothing")), "does not exist"),
    (("--dead-letter", str(DATA), "--shards", "2"), "each letter knows its shard"),
    (("--dead-letter", str(DATA), "--input", __file__), "--input and --dead-letter exclude each other"),
    (("--dead-letter", str(DATA), "--seed", "1"), "--seed is for generated records"),
    (("--capture", str(DATA / "nothing")), "does not exist"),
    (("--input", __file__), ":1: no JSON: Extra data (column 3)"),
    ((*SMALL, "--split-at", "5"), "nothing is left for a split"),
    ((*SMALL, "--split-at", "1", "--merge-at", "1"), "exclude each other"),
]


def usage_id(args: tuple[str, ...]) -> str:
    """The arguments, without the path of the checkout."""
    return " ".join(args).replace(f"{ROOT}/", "")[-50:]


@pytest.mark.parametrize(("args", "message"), USAGE, ids=[usage_id(args) for args, _ in USAGE])
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


def test_a_broken_capture_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.in.jsonl.gz"
    for data, error in ((b"", "no initialize message"), (b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 9, "Error -3 while")):
        path.write_bytes(data)
        done = replay("--capture", str(path))
        assert done.returncode == 2
        assert error in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_output_that_cannot_be_written_is_no_verdict_on_the_child() -> None:
    """1 says that a child broke the protocol, and nothing else does."""
    command = [sys.executable, "-m", "fastkcl", "replay", *SMALL, "--", *CHILD]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (2, b"Error: standard output: No space left on device\n")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


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
        "import os, sys, time\nprint(os.getpid(), file=sys.stderr, flush=True)\ntime.sleep(600)",
    ]
    process = subprocess.Popen([*command, *child], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    pid = int(process.stderr.readline())
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; the children have been ended" in stderr
    assert "Traceback" not in stderr
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_names_are_no_markup(tmp_path: Path) -> None:
    capture = tmp_path / "[bold]x.in.jsonl"
    capture.write_bytes((DATA / "kcl-multilang" / "split.shard0.in.jsonl").read_bytes())
    done = replay("--capture", str(capture), "--stream", "[/]")
    assert done.returncode == 0, done.stderr
    assert "stream [/]" in done.stdout
    assert "[bold]x " in done.stdout


@pytest.mark.parametrize("width", [50, 80, 200])
def test_a_summary_for_a_terminal_of_any_width(width: int) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, width, 0, 0))
    command = [sys.executable, "-m", "fastkcl", "replay", *SMALL, "--shards", "2", "--fault", "kill@2", "--", *CHILD]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env={**environment, "TERM": "xterm"})
    os.close(theirs)
    text = re.sub(r"\x1b\[[0-9;]*m", "", read_terminal(ours).decode()).partition("Faults")[0]
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    words = text.replace("\xa0", " ").split()
    assert words.count("kept") == 2
    for name in ("records", "delivered", "batches", "MB/s", "checkpoints", "errors", "uncovered", "restarts", "exit"):
        assert words.count(name) == (1 if width == 200 else 2)


def read_terminal(fd: int) -> bytes:
    seen = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            data = os.read(fd, 65536)
        except OSError:  # the terminal's other side is closed
            break
        if not data:
            break
        seen += data
    os.close(fd)
    return seen


def test_bars_on_a_terminal() -> None:
    """Standard error is a terminal: bars there, the children's lines above them, the table on standard output."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fastkcl", "replay", *SMALL, "--fault", "checkpoint-error@2", "--", *CHILD]
    process = subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    seen = read_terminal(ours)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"50/50" in seen
    assert b"checkpoint failed: ThrottlingException" in seen
    assert b"Every child kept the protocol." in stdout
    assert b"\x1b" not in stdout
