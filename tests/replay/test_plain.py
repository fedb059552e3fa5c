"""Replays for a child without fastkcl: the replayer judged by an independent counterpart."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from fastkcl.replay import Progress, ReplayError, ReplayOptions, from_captures, generate, replay
from paths import DATA, PROGRAMS
from replay_helpers import BATCH, RECORDS, play, play_plain, play_processor, sent, small_source
from waiting import PATIENCE


def stored(sink: Path) -> list[tuple[str, str, str, str]]:
    return [tuple(row.split()) for row in sink.read_text().splitlines()]  # type: ignore[misc]


@pytest.mark.parametrize("dialect", ["modern", "transitional", "legacy"])
@pytest.mark.parametrize("profile", ["tiny", "keys"])
def test_every_record_arrives_as_it_was_sent(tmp_path: Path, profile: str, dialect: str) -> None:
    source = generate(profile, shards=3, records=700, batch_records=100, seed=5)
    sink = tmp_path / "sink"
    played = play_plain(child=("--sink", str(sink)), source=source, dialect=dialect)
    assert played.report.ok, [shard.problems for shard in played.report.shards]
    expected = []
    for shard in source.shards():
        columns = shard.records.columns(0, 700)
        for number, data in zip(columns.sequence_numbers, columns.data, strict=True):
            sub = "None" if dialect == "legacy" else "0"
            expected.append((shard.shard_id, number, sub, hashlib.sha1(data or b"").hexdigest()))
    assert sorted(stored(sink)) == sorted(expected)
    for shard_report in played.report.shards:
        assert shard_report.records_sent == shard_report.records_delivered == 700
        assert shard_report.batches == 7
        assert shard_report.checkpoints == 8
        assert shard_report.last_checkpoint == ("SHARD_END", 0)


MISBEHAVIOURS: list[tuple[str, list[str], list[int]]] = [
    # what the child does, what each problem says, exit codes
    ("noise", ["wrote 'processed 10 records' on standard output: it is not JSON"], [0]),
    ("null", ["stops the daemon (NullPointerException)", "30 of 50 records were never delivered"], [1]),
    ("wrong-status", ["status of 'initialize' where the daemon waits for the status of processRecords", "never"], [1]),
    ("no-status", ["no message for 1.5 s, and the status of processRecords is owed", "never delivered"], [-9]),
    ("exit", ["child 1, delivery 2: ended with exit code 3 while", "given up after 0 restarts", "never"], [3]),
    ("exit-zero", ["ended with exit code 0 while the status of processRecords was owed", "given up", "never"], [0]),
    ("abort", ["ended by SIGABRT while", "given up", "never"], [-6]),
    ("unknown-key", ["a modern checkpoint message has no key 'place'"], [0]),
    ("above", ["no more has been delivered (IllegalArgumentException)"], [0]),
    ("in-initialize", ["checkpoint in initialize, which has no checkpointer (InvalidStateException)"], [0]),
    ("linger", ["still running 1 s after the end of its input"], [-9]),
    ("grandchild", ["its standard output is still open 1 s after the end of its input, although it has ended"], [0]),
    ("exit-code", ["ended with exit code 5 after the end of its input"], [5]),
]


@pytest.mark.parametrize(("what", "problems", "exit_codes"), MISBEHAVIOURS, ids=[row[0] for row in MISBEHAVIOURS])
def test_a_broken_promise_is_a_problem(what: str, problems: list[str], exit_codes: list[int]) -> None:
    played = play_plain(child=("--misbehave", what, "--at", "2"), answer_timeout=1.5, exit_grace=1.0, restarts=0)
    assert not played.report.ok
    assert len(played.shard.problems) == len(problems), played.shard.problems
    for problem, words in zip(played.shard.problems, problems, strict=True):
        assert words in problem
    assert played.shard.exit_codes == exit_codes


def test_a_second_status_is_taken_for_the_answer_to_the_next_request() -> None:
    played = play_plain(child=("--misbehave", "two-statuses", "--at", "2"), restarts=1)
    assert "child 1, delivery 3: wrote " in played.shard.problems[0]
    assert "before it had read processRecords" in played.shard.problems[0]
    assert "ended with exit code 1 while the status" in played.shard.problems[-1]
    assert played.shard.exit_codes == [1, 0]


def test_a_second_status_is_no_secret_of_a_child_that_is_killed() -> None:
    played = play_plain("kill@3", child=("--misbehave", "two-statuses", "--at", "2"), rate=100.0)
    assert "child 1, delivery 3: wrote " in played.shard.problems[0]
    assert "before it had read processRecords" in played.shard.problems[0]


def test_a_child_that_does_not_read_is_ended() -> None:
    """The line is larger than the pipe, so the daemon cannot even finish writing."""
    played = play_plain(
        child=("--misbehave", "do-not-read", "--at", "1"),
        source=generate("clickstream", records=2000, batch_records=1000),
        answer_timeout=1.5,
    )
    # The status of the first batch is owed as well; whichever wait ends first is reported.
    assert any("no message for 1.5 s" in p or "did not read" in p for p in played.shard.problems)


def test_a_write_that_nobody_reads_is_bounded() -> None:
    command = [
        sys.executable,
        "-c",
        "import sys, time\nsys.stdin.buffer.readline()\nprint(STATUS, flush=True)\ntime.sleep(600)",
    ]
    command[2] = command[2].replace("STATUS", repr('{"action":"status","responseFor":"initialize"}'))
    played = play(command, generate("blob", records=9), answer_timeout=1.0)
    assert "did not read processRecords within 1 s" in played.shard.problems[0]
    assert played.shard.exit_codes == [-9]


def test_a_child_that_is_broken_from_the_start_is_not_started_again() -> None:
    played = play([sys.executable, "-c", "raise SystemExit(4)"], small_source(), restarts=5)
    assert played.shard.exit_codes == [4]
    assert "ended with exit code 4 while the status of initialize was owed" in played.shard.problems[0]


def test_much_noise_while_a_line_is_written_blocks_nobody() -> None:
    """The child fills its output before it reads: a daemon that wrote first and read later would hang."""
    code = """
import json, sys
for line in sys.stdin.buffer:
    action = json.loads(line)["action"]
    if action == "initialize":
        print('{"action":"status","responseFor":"initialize"}', flush=True)
        print("\\n" * 300_000, flush=True)
    else:
        if action == "shardEnded":
            print('{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}', flush=True)
            sys.stdin.buffer.readline()
        print(json.dumps({"action": "status", "responseFor": action}), flush=True)
"""
    played = play([sys.executable, "-c", code], generate("blob", records=9))
    assert played.report.ok, played.shard.problems


def test_standard_error_never_blocks_the_child() -> None:
    """Nobody takes the lines on until the shard is done; what did not fit is counted where it is missing."""
    done = threading.Event()
    lines: list[bytes] = []

    def slow(_shard: str, line: bytes) -> None:
        assert done.wait(60)
        lines.append(line)

    noise = "import sys\nfor i in range(100_000): print('x' * 60, i, file=sys.stderr)\n"
    report = replay(
        [sys.executable, "-c", noise + (PROGRAMS / "plain.py").read_text()],
        generate("tiny", records=10),
        ReplayOptions(on_stderr=slow, answer_timeout=30.0),
        lambda progress: done.set() if progress.state == "done" else None,
    )
    assert report.ok, report.shards[0].problems
    words = lines[-1].split()
    assert words[1:] == b"lines of the children's standard error were dropped here)".split()
    assert int(words[0][1:]) + len(lines) - 1 == 100_000


def test_split_children_start_when_the_end_is_checkpointed(tmp_path: Path) -> None:
    sink = tmp_path / "sink"
    source = small_source(shards=2)
    played = play_plain(child=("--sink", str(sink)), source=source, split_at=2)
    assert played.report.ok
    assert [shard.parents for shard in played.report.shards] == [
        [],
        [],
        *[[f"shardId-{parent:012d}"] for parent in (0, 0, 1, 1)],
    ]
    digests = sorted(row[3] for row in stored(sink))
    assert digests == sorted(hashlib.sha1(bytes.fromhex(row[3])).hexdigest() for row in sent(source))
    order = [row[0] for row in stored(sink)]
    assert order.index("shardId-000000000002") > len(order) - 1 - order[::-1].index("shardId-000000000000")


def test_without_a_checkpoint_at_the_end_children_do_not_start() -> None:
    played = play_plain(child=("--no-end-checkpoint",), source=small_source(shards=2), merge_at=1)
    first, second, merged = played.report.shards
    assert "the shard's end was not checkpointed" in first.problems[0]
    assert "the shard's end was not checkpointed" in second.problems[0]
    assert "not started: the end of shardId-000000000000 and shardId-000000000001" in merged.problems[0]
    assert merged.exit_codes == []


def test_what_is_not_checkpointed_is_counted() -> None:
    played = play_plain(child=("--every", "2"), end="eof")
    assert played.report.ok
    assert played.shard.uncheckpointed == BATCH
    played = play_plain(child=("--every", "0"), end="lease-lost")
    assert played.report.ok
    assert (played.shard.uncheckpointed, played.shard.last_checkpoint) == (RECORDS, None)


def test_empty_batches_repeat_and_rate(tmp_path: Path) -> None:
    played = play_plain(empty_batches=2, repeat=2, rate=150.0)
    assert played.report.ok
    assert played.shard.batches == 2 * 3 * (RECORDS // BATCH)
    assert played.shard.records_sent == 2 * RECORDS
    assert played.report.seconds >= 90 / 150


def test_faults_of_one_shard_only() -> None:
    played = play_plain("kill@2#1", source=small_source(shards=2))
    assert [shard.restarts for shard in played.report.shards] == [0, 1]


def test_a_fault_that_never_came_is_told() -> None:
    played = play_plain("kill@99")
    assert played.report.ok
    assert played.shard.faults == ["kill@99=whole never came: 5 deliveries, 6 checkpoints"]


def test_children_know_stream_shard_and_attempt(tmp_path: Path) -> None:
    out = tmp_path / "env"
    code = "import os\nwith open(os.environ['OUT'], 'a') as f: f.write(' '.join(os.environ[k] for k in KEYS) + '\\n')\n"
    keys = ("FASTKCL_STREAM", "FASTKCL_REPLAY_SHARD", "FASTKCL_REPLAY_ATTEMPT")
    code = f"KEYS = {keys}\n{code}" + (PROGRAMS / "plain.py").read_text()
    play([sys.executable, "-c", code], small_source(), "kill@2", stream="orders", environment={"OUT": str(out)})
    assert out.read_text().splitlines() == ["orders shardId-000000000000 1", "orders shardId-000000000000 2"]


NOTING = """
import os, sys, types

class Noting:
    def __init__(self, raw):
        self.raw = raw

    def readline(self):
        line = self.raw.readline()
        with open(os.environ["OUT"], "a") as out:
            print(line[:30].split(b'"')[3].decode() if line else "end", line[-2:], file=out)
        return line

sys.stdin = types.SimpleNamespace(buffer=Noting(sys.stdin.buffer))
"""


def test_crlf_ends_the_line_of_its_batch_and_no_other(tmp_path: Path) -> None:
    out = tmp_path / "endings"
    code = NOTING + (PROGRAMS / "plain.py").read_text()
    play([sys.executable, "-c", code], small_source(), "crlf@2", environment={"OUT": str(out)})
    batches = [line for line in out.read_text().splitlines() if line.startswith("processRecords ")]
    others = [line for line in out.read_text().splitlines() if line not in batches and not line.startswith("end ")]
    plain, with_return = r"processRecords b'}\n'", r"processRecords b'\r\n'"
    assert batches == [plain, with_return, *[plain] * (len(batches) - 2)]
    assert {line.partition(" ")[2] for line in others} == {r"b'}\n'"}


def test_progress_tells_of_every_batch() -> None:
    seen: list[Progress] = []
    replay([sys.executable, str(PROGRAMS / "plain.py")], small_source(), progress=seen.append)
    assert [step.state for step in seen] == ["waiting", *["playing"] * 6, "done"]
    assert seen[-1].records == seen[-1].records_total == RECORDS


def test_report_is_json() -> None:
    played = play_plain("checkpoint-error@1")
    facts = json.loads(json.dumps(played.report.to_dict()))
    assert facts["ok"] is True
    assert facts["shards"][0]["checkpoint_errors"] == {"ThrottlingException": 1}


@pytest.mark.parametrize("command", [[], ["/nonexistent/child"], [str(Path(__file__))]])
def test_a_command_that_cannot_be_started(command: list[str]) -> None:
    with pytest.raises(ReplayError, match="no command|no such program"):
        replay(command, small_source())


def test_a_program_that_the_system_cannot_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("no header line")
    program.chmod(0o755)
    with pytest.raises(ReplayError, match="Exec format error"):
        replay([str(program)], small_source(shards=2))


def test_interrupt_ends_all_children(tmp_path: Path) -> None:
    """Ctrl-C reaches the replay only: it has to end the children, which are in groups of their own."""
    code = """
import sys
from fastkcl.replay import ReplayOptions, generate, replay
child = "import os, sys, time\\nprint(os.getpid(), file=sys.stderr, flush=True)\\ntime.sleep(600)"
try:
    replay([sys.executable, "-c", child], generate("tiny", shards=2, records=1))
except KeyboardInterrupt:
    sys.exit(77)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, cwd=tmp_path)
    assert process.stderr is not None
    pids = [int(process.stderr.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 77
    process.stderr.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


ALL_CAPTURES = [DATA / "kcl-multilang", DATA / "kcl-legacy-captures"]


@pytest.mark.parametrize("child", ["plain", "processor"])
def test_all_captures_are_replayed(tmp_path: Path, child: str) -> None:
    """Real lines of three generations of daemons, for a child with and one without fastkcl."""
    source = from_captures(ALL_CAPTURES)
    if child == "plain":
        played = play_plain(source=source)
    else:
        played = play_processor(tmp_path, child=("--catch",), source=source)
    assert played.report.ok, [shard.problems for shard in played.report.shards if shard.problems]
    shards = {shard.label: shard for shard in played.report.shards}
    assert len(played.report.shards) == 33
    assert shards["many.shard0"].records_sent == 10_000
    assert shards["lease-lost-mid-batch.shard0.1"].checkpoint_errors == {"ShutdownException": 1}
    assert shards["checkpoint-throttled.shard0"].checkpoint_errors == {"ThrottlingException": 1}
    assert shards["split.shard0"].last_checkpoint == ("SHARD_END", 0)
    if child == "processor":
        captured: list[Any] = [
            row for shard in source.shards() for row in shard.records.columns(0, len(shard.records)).data
        ]
        assert sorted(record[3] for record in played.records()) == sorted((data or b"").hex() for data in captured)


@pytest.mark.parametrize("dialect", ["modern", "legacy"])
def test_redelivery_inside_an_aggregate(tmp_path: Path, dialect: str) -> None:
    """The daemon filters by place: sub-records above the checkpoint come again, those below do not."""
    folder = "kcl-multilang" if dialect == "modern" else "kcl-legacy-captures"
    source = from_captures(DATA / folder / "aggregated.shard0.in.jsonl")
    played = play_processor(tmp_path, "kill@4", source=source, batch_records=7)
    assert played.report.ok, played.shard.problems
    total = len(source.shards()[0].records)
    assert played.shard.records_sent == total
    assert len(played.records(1)) in (21, 28)  # the fourth batch may have been seen before the kill
    assert len(played.records(2)) == total - 21
