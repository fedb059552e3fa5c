"""Children that do not play along: none is certified as good, none keeps a replay from its end."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from fastkcl.replay import Source, generate, session
from fastkcl.replay.child import Child, _Lines
from fastkcl.replay.report import LISTED
from fastkcl.replay.session import Session
from paths import PROGRAMS
from processes import open_files
from replay_helpers import Played, play, small_source, threads_of_the_replay
from waiting import PATIENCE, wait_until_gone, wait_until_idle

ROGUE = [sys.executable, str(PROGRAMS / "rogue.py")]


@pytest.fixture(autouse=True)
def _patient_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes its time to start a child: short timeouts are for what comes then."""
    await_status = Session.await_status

    def patient(session: Session) -> float:
        options = session._options
        if session.conversation.awaited_status == "initialize":
            session._options = dataclasses.replace(options, answer_timeout=PATIENCE)
        try:
            return await_status(session)
        finally:
            session._options = options

    monkeypatch.setattr(Session, "await_status", patient)


def play_rogue(what: str, *faults: str, every: float = 0.0, source: Source | None = None, **options: Any) -> Played:
    settings = {"answer_timeout": 1.0, "exit_grace": 1.0, **options}
    return play([*ROGUE, what, "--every", str(every)], source or small_source(), *faults, **settings)


STATUS = """'{"action": "status", "responseFor": "processRecords"}'"""

UNHEARD = [
    # what, its clock, what is said of it
    ("deaf", 0.2, "closed its input before processRecords was written: the daemon stops, with all its shards"),
    ("canned", 0.2, f"delivery 5: wrote {STATUS} before it had read processRecords"),
    ("deaf-later", 0.0, "delivery 3: closed its input before processRecords was written: the daemon stops"),
    ("deaf-for-replies", 0.1, "delivery 1: closed its input before the reply to its checkpoint was written"),
    ("hasty", 0.0, f"delivery 1: wrote {STATUS} before it had read the reply to its checkpoint"),
    ("hasty-later", 0.0, """"subSequenceNumber": null}' before it had read the reply to its checkpoint"""),
]


@pytest.mark.parametrize(("what", "every", "words"), UNHEARD, ids=[row[0] for row in UNHEARD])
def test_an_answer_to_what_was_not_read_is_none(what: str, every: float, words: str) -> None:
    played = play_rogue(what, every=every)
    assert not played.report.ok
    assert any(words in problem for problem in played.shard.problems), played.shard.problems


def test_an_answer_to_the_beginning_of_a_line_is_none() -> None:
    source = generate("clickstream", records=300, batch_records=300)  # more than a pipe holds
    played = play_rogue("before-the-end", source=source, answer_timeout=2.0)
    assert f"delivery 1: wrote {STATUS} before it had read processRecords" in played.shard.problems[0]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("kill@2", "ended with exit code 0 before it was killed"),
        ("kill@2=half", "ended with exit code 0 before it was killed"),
        ("close@2=mid-line", "ended with exit code 0 after the end of its input in the middle of a line"),
    ],
)
def test_a_fault_does_not_hide_that_the_child_was_gone(fault: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await_status = Session.await_status

    def gone(session: Session) -> float:
        is_batch = session.conversation.awaited_status == "processRecords"
        result = await_status(session)
        if is_batch:
            wait_until_gone(session.child.pid)
        return result

    monkeypatch.setattr(Session, "await_status", gone)
    played = play_rogue("gone-early", fault)
    assert any(f"child 1, delivery 2: {words}" in problem for problem in played.shard.problems), played.shard.problems


def test_an_end_after_recovery_is_not_what_was_asked_for() -> None:
    played = play_rogue("all-by-itself", "checkpoint-error@1", restarts=0)
    assert "child 1, delivery 1: ended with exit code 3 while the status" in played.shard.problems[0]
    assert played.shard.checkpoint_errors == {"ThrottlingException": 1}
    assert [fault for fault in played.shard.faults if "exit code" in fault] == []
    # Where the error is the last thing that it reads, it is.
    played = play_rogue("all-by-itself", "checkpoint-error@1-2", restarts=0)
    assert "child 1, delivery 1: ended with exit code 3 after ThrottlingException" in played.shard.faults
    assert "child 2, delivery 2: ended with exit code 3 while the status" in played.shard.problems[0]


def test_words_of_a_child_break_no_line() -> None:
    played = play_rogue("odd-words")
    assert r"checkpoint at '1\nERROR all is lost\u2028\ud800': no sequence number" in played.shard.problems[0]
    assert r"status of 'process\x1b[31m\nRecords' where the daemon waits" in played.shard.problems[1]
    assert all(problem.isprintable() for problem in played.shard.problems)


ENDLESS = [
    # what, seconds between, the timeout, what is said of it, how many problems are listed
    ("junk", 0.1, 1.0, "no message for 1 s, and the status of processRecords is owed", 4),
    ("junk-flood", 0.0, 1.0, "no message for 1 s, and the status of processRecords is owed", 4),
    ("endless-line", 0.0, 1.0, "no message for 1 s, and the status of processRecords is owed", 2),
    ("checkpoints", 0.01, 5.0, "other messages, and no status of processRecords, for 2 s", 2),
    ("other-messages", 0.0, 5.0, "other messages, and no status of processRecords, for 2 s", LISTED + 2),
    ("flood-at-the-end", 0.0, 1.0, "still running 1 s after the end of its input", 2),
    ("escaped", 0.0, 1.0, "no message for 1 s, and the status of processRecords is owed", 2),
]


@pytest.mark.parametrize(("what", "every", "timeout", "words", "count"), ENDLESS, ids=[row[0] for row in ENDLESS])
def test_every_wait_has_an_end(
    what: str, every: float, timeout: float, words: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session._STATUS_WITHIN == 10
    if timeout == 5.0:
        monkeypatch.setattr(session, "_STATUS_WITHIN", 0.4)
    played = play_rogue(what, every=every, answer_timeout=timeout)
    assert any(words in problem for problem in played.shard.problems), played.shard.problems
    assert len(played.shard.problems) == count, played.shard.problems
    assert (played.shard.more_problems > 1000) == (what == "other-messages")
    if what == "junk-flood":
        assert "more lines that are no messages" in played.shard.problems[2]
    end_escaped(line for _, line in played.stderr)


def test_a_write_ends_although_a_process_that_got_away_holds_the_pipe() -> None:
    played = play_rogue("escaped", source=generate("blob", records=9))
    end_escaped(line for _, line in played.stderr)
    assert "did not read processRecords within 1 s" in played.shard.problems[0]


def end_escaped(lines: Any) -> None:
    for line in lines:
        if line.startswith("escaped as "):
            os.kill(int(line.split()[-1]), signal.SIGKILL)


@pytest.mark.parametrize(
    ("what", "profile"), [*((row[0], "tiny") for row in ENDLESS), ("escaped", "blob")], ids=lambda name: name
)
def test_an_interrupt_ends_it_whatever_the_child_does(what: str, profile: str) -> None:
    code = ROGUE[1], what, "--every", "0" if "flood" in what or "line" in what else "0.05"
    command = [sys.executable, "-m", "fastkcl", "replay", "--profile", profile, "--records", "9", "--batch-records"]
    command += ["9", "--timeout", "1000", "--exit-grace", "1000", "--", sys.executable, *code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.readline()  # the child does it by now
    wait_until_idle(process.pid, looks=3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stdout) == (130, "")
    assert "interrupted; the children have been ended" in stderr
    assert "Traceback" not in stderr
    end_escaped([said])


@pytest.mark.parametrize(
    "settings",
    [
        ("--rate", "0.001"),
        ("--fault", "slow-reply@2=1000000"),
        ("--fault", "stop@2=1000000"),
        ("--fault", "slow-pipe@2=1000000"),
        ("--fault", "close@2=reply", "--fault", "slow-reply@*=1000000"),
    ],
    ids=" ".join,
)
def test_an_interrupt_ends_every_wait_that_was_asked_for(settings: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "fastkcl", "replay", "--profile", "tiny", "--records", "90"]
    command += [
        "--batch-records",
        "9",
        *settings,
        "--",
        sys.executable,
        str(PROGRAMS / "plain.py"),
        "--sink",
        "/dev/stderr",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    process.stderr.readline()  # the first batch has come
    wait_until_idle(process.pid, looks=3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "interrupted; the children have been ended" in stderr


# What a flood costs, and what is left of a child.


def test_a_run_of_noise_is_one_entry_and_messages_wait_for_room() -> None:
    lines = _Lines()
    for _ in range(100_000):
        assert lines.put(b"noise", 1.0, message=False)
    assert lines.put(b"message", 2.0, message=True)
    assert lines.put(b"noise", 3.0, message=False)
    first = lines.take(0.0)
    assert first is not None
    assert (first.text, first.more) == (b"noise", 99_999)

    def flood() -> None:
        while lines.put(b"message", 4.0, message=True):
            pass

    thread = threading.Thread(target=flood)
    thread.start()
    assert thread.native_id is not None
    wait_until_idle(os.getpid(), thread.native_id)
    assert thread.is_alive()
    assert len(lines._entries) == 100
    lines.end(drop=True)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert lines.take(0.0) is None


def pipes() -> set[tuple[int, str]]:
    """Of this process, by descriptor; others may close theirs meanwhile."""
    return {(descriptor, link) for descriptor, link in open_files().items() if link.startswith("pipe:")}


def test_a_child_gives_back_what_it_held() -> None:
    """Also where a process that got away holds the other ends of its pipes."""
    before = pipes()
    said: list[bytes] = []
    child = Child([*ROGUE, "escaped"], dict(os.environ), said.append)
    assert child.write(b'{"action":"initialize"}\n')
    assert child.next_line(30.0) is not None
    assert child.wait(30.0) == 0
    writer = threading.Thread(target=child.write, args=(bytes(1 << 20),))
    writer.start()
    assert writer.native_id is not None
    wait_until_idle(os.getpid(), writer.native_id, looks=2)
    assert writer.is_alive()
    assert child.unread() > 0
    child.abandon()
    writer.join(PATIENCE)
    assert not writer.is_alive()
    assert not child.write(b"more")
    assert child.next_line(0.0) is None
    child.discard()
    assert threads_of_the_replay() == []
    assert pipes() <= before
    end_escaped(line.decode() for line in said)
