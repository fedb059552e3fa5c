"""The daemon's checkpoint rules: the captured dialogues of real daemons, and a table of cases that they do not show."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastkcl import Position
from fastkcl.replay.child_lines import ReplayDialect
from fastkcl.replay.conversation import Answered, CheckpointAnswer, Conversation, Fatal, Lease, Skipped
from paths import DATA

CAPTURES = sorted(
    path.with_name(path.name.replace(".out.", ".in."))
    for folder in ("kcl-multilang", "kcl-legacy-captures")
    for path in (DATA / folder).glob("*.out.jsonl")
)


def dialect_of(messages: list[dict[str, Any]]) -> ReplayDialect:
    if "sequenceNumber" not in messages[0]:
        return "legacy"
    return "transitional" if any(message["action"] == "shutdown" for message in messages) else "modern"


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.name.partition('.in')[0]}")
def test_replies_equal_those_of_a_real_daemon(path: Path) -> None:
    """What the captured child wrote, given to our daemon, is answered byte for byte as the real one did.

    Errors of the world around (ShutdownException, ThrottlingException) are told to it; all others it has to find.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    messages = [json.loads(line) for line in lines]
    asked = iter(path.with_name(path.name.replace(".in.", ".out.")).read_bytes().splitlines())
    number = messages[0].get("sequenceNumber", "TRIM_HORIZON")
    start = Position(number, messages[0].get("subSequenceNumber", 0)) if number[0].isdigit() else Position.parse(number)
    lease = Lease(messages[0]["shardId"], start)
    talk = Conversation(lease, dialect_of(messages))
    wire = list(zip(messages, lines, strict=True))
    compared = 0
    while wire:
        message, line = wire.pop(0)
        match message["action"], message.get("reason"):
            case "initialize", _:
                assert talk.initialize() == line
            case "processRecords", _:
                records = message["records"]
                last = records[-1] if records else None
                talk.process_records(last and Position(last["sequenceNumber"], last.get("subSequenceNumber", 0)))
            case ("leaseLost", _) | (_, "ZOMBIE"):
                assert talk.lease_lost() == line
            case ("shardEnded", _) | (_, "TERMINATE"):
                assert talk.shard_ended() == line
            case "shutdownRequested", _:
                assert talk.shutdown_requested() == line
        while talk.open is not None:
            request = next(asked, None)
            if request is None:
                break  # the captured child was ended in the middle
            outcome = answer(talk, request, wire)
            if isinstance(outcome, CheckpointAnswer):
                assert outcome.line == wire.pop(0)[1]
                outcome.commit()
                compared += 1
    assert compared == sum(message["action"] == "checkpoint" for message in messages)


def answer(talk: Conversation, request: bytes, wire: list[tuple[dict[str, Any], bytes]]) -> Any:
    error = wire[0][0].get("error") if wire else None
    environment = error if error not in (None, "IllegalArgumentException", "InvalidStateException") else None
    talk.intervene = lambda _request: environment
    outcome = talk.receive(request)
    assert isinstance(outcome, Answered | CheckpointAnswer), outcome
    return outcome


def checkpoint(sequence_number: str | None = None, sub: int | None = None) -> bytes:
    return json.dumps({"action": "checkpoint", "sequenceNumber": sequence_number, "subSequenceNumber": sub}).encode()


def status(response_for: str | None) -> bytes:
    return json.dumps({"action": "status", "responseFor": response_for}).encode()


def in_state(state: str, start: Position | None = None) -> Conversation:
    """A modern conversation; the last record of its batch stands at (200, 5)."""
    talk = Conversation(Lease("shardId-000000000000", start or Position.TRIM_HORIZON))
    talk.initialize()
    if state == "initialize":
        return talk
    assert talk.receive(status("initialize")) == Answered("initialize")
    if state == "before any record":
        talk.process_records(None)
        return talk
    talk.process_records(Position("200", 5))
    if state == "processRecords":
        return talk
    assert talk.receive(status("processRecords")) == Answered("processRecords")
    {"leaseLost": talk.lease_lost, "shardEnded": talk.shard_ended, "shutdownRequested": talk.shutdown_requested}[
        state
    ]()
    return talk


IAE = "IllegalArgumentException"

RULES: list[tuple[str, tuple[str | None, int | None], str | None, Position | None]] = [
    # state, request, error, what is stored
    ("initialize", (None, None), "InvalidStateException", None),
    ("leaseLost", (None, None), "InvalidStateException", None),
    ("leaseLost", ("200", 5), "InvalidStateException", None),
    ("before any record", (None, None), None, None),
    ("before any record", ("1", None), IAE, None),
    ("before any record", ("0", None), IAE, None),
    ("processRecords", (None, None), None, Position("200", 5)),
    ("processRecords", (None, 3), None, Position("200", 5)),
    ("processRecords", ("200", 5), None, Position("200", 5)),
    ("processRecords", ("200", None), None, Position("200", 0)),
    ("processRecords", ("0", None), None, Position("0", 0)),
    ("processRecords", ("200", 6), IAE, None),
    ("processRecords", ("201", None), IAE, None),
    ("processRecords", ("199", 9), None, Position("199", 9)),
    ("processRecords", ("199", -1), IAE, None),
    ("processRecords", ("9" * 129, None), IAE, None),
    ("processRecords", ("9" * 5000, None), IAE, None),
    ("processRecords", ("", None), IAE, None),
    ("processRecords", ("-5", None), IAE, None),
    ("processRecords", ("\u0664", None), IAE, None),  # a digit, and no decimal one
    ("processRecords", ("TRIM_HORIZON", None), IAE, None),
    ("processRecords", ("SHARD_END", None), IAE, None),
    ("shutdownRequested", (None, None), None, Position("200", 5)),
    ("shardEnded", (None, None), None, Position.SHARD_END),
    ("shardEnded", ("200", 5), None, Position.SHARD_END),
    ("shardEnded", ("200", 4), None, Position("200", 4)),
    ("shardEnded", ("201", None), IAE, None),
]


@pytest.mark.parametrize(("state", "request_", "error", "stored"), RULES, ids=lambda value: str(value)[:40])
def test_checkpoint_rule(
    state: str, request_: tuple[str | None, int | None], error: str | None, stored: Position | None
) -> None:
    talk = in_state(state)
    outcome = talk.receive(checkpoint(*request_))
    assert isinstance(outcome, CheckpointAnswer)
    assert outcome.error == error
    assert (outcome.wrong is not None) == (error is not None)
    assert json.loads(outcome.line) == {
        "action": "checkpoint",
        "sequenceNumber": request_[0],
        "subSequenceNumber": request_[1],
        "error": error,
    }
    assert talk.lease.checkpoint == Position.TRIM_HORIZON, "stored before the reply"
    outcome.commit()
    assert talk.lease.checkpoint == (stored or Position.TRIM_HORIZON)


def test_nothing_below_the_last_checkpoint() -> None:
    talk = in_state("processRecords", start=Position("150", 2))
    assert talk.receive(checkpoint("150", 1)).error == IAE  # type: ignore[union-attr]
    outcome = talk.receive(checkpoint("180"))
    assert isinstance(outcome, CheckpointAnswer)
    outcome.commit()
    assert talk.receive(checkpoint("179", 9)).error == IAE  # type: ignore[union-attr]


def test_what_the_child_says_is_quoted_and_never_too_odd_to_answer() -> None:
    talk = in_state("processRecords")
    outcome = talk.receive(b'{"action":"checkpoint","sequenceNumber":"1\\nERROR\\u2028\\ud800","subSequenceNumber":7}')
    assert isinstance(outcome, CheckpointAnswer)
    assert outcome.wrong == r"checkpoint at '1\nERROR\u2028\ud800'/7: no sequence number"
    assert '"sequenceNumber":"1\\nERROR\u2028?"' in outcome.line.decode(), "Java writes half of a pair as ?"
    outcome = talk.receive(status("process\nRecords"))
    assert isinstance(outcome, Fatal)
    assert outcome.why == r"status of 'process\nRecords' where the daemon waits for the status of processRecords"


def test_numbers_compare_as_integers() -> None:
    talk = in_state("processRecords", start=Position("99"))
    outcome = talk.receive(checkpoint("100"))
    assert isinstance(outcome, CheckpointAnswer)
    assert outcome.error is None


def test_a_checkpoint_where_the_last_one_stands_needs_no_lease() -> None:
    talk = in_state("processRecords")
    talk.receive(checkpoint("200", 5)).commit()  # type: ignore[union-attr]
    talk.owns_lease = False
    assert talk.receive(checkpoint("200", 5)).error is None  # type: ignore[union-attr]
    assert talk.receive(checkpoint(None)).error is None  # type: ignore[union-attr]
    assert talk.lease.writes == 1


def test_the_range_is_looked_at_before_the_lease() -> None:
    talk = in_state("processRecords")
    talk.owns_lease = False
    assert talk.receive(checkpoint("999")).error == IAE  # type: ignore[union-attr]
    assert talk.receive(checkpoint("200")).error == "ShutdownException"  # type: ignore[union-attr]


def test_a_second_child_starts_at_the_checkpoint_of_the_first() -> None:
    talk = in_state("processRecords")
    talk.receive(checkpoint("200", 3)).commit()  # type: ignore[union-attr]
    second = Conversation(talk.lease)
    assert json.loads(second.initialize()) == {
        "action": "initialize",
        "shardId": "shardId-000000000000",
        "sequenceNumber": "200",
        "subSequenceNumber": 3,
    }


@pytest.mark.parametrize(
    ("state", "line", "expected"),
    [
        ("processRecords", status("initialize"), Fatal),
        ("processRecords", status(None), Fatal),
        ("processRecords", b"null", Fatal),
        ("processRecords", b"hello", Skipped),
        ("processRecords", b'{"action":"leaseLost"}', Skipped),
        ("processRecords", b'{"action":"checkpoint","checkpoint":"1"}', Skipped),
        ("processRecords", b"", Skipped),
        ("processRecords", status("processRecords") + b" tail", Answered),
    ],
)
def test_other_lines(state: str, line: bytes, expected: type) -> None:
    talk = in_state(state)
    outcome = talk.receive(line)
    assert isinstance(outcome, expected)
    assert (talk.open is None) == (expected is Answered)
    if isinstance(outcome, Skipped):
        assert (outcome.why == "") == (line == b"")


def test_a_status_when_nothing_was_asked() -> None:
    talk = in_state("processRecords")
    assert talk.receive(status("processRecords")) == Answered("processRecords")
    assert isinstance(talk.receive(status("processRecords")), Fatal)


@pytest.mark.parametrize(
    ("dialect", "lost", "ended", "awaited"),
    [
        ("modern", b'{"action":"leaseLost"}\n', b'{"action":"shardEnded"}\n', "shardEnded"),
        (
            "transitional",
            b'{"action":"shutdown","reason":"ZOMBIE"}\n',
            b'{"action":"shutdown","reason":"TERMINATE"}\n',
            "shutdown",
        ),
        (
            "legacy",
            b'{"action":"shutdown","reason":"ZOMBIE"}\n',
            b'{"action":"shutdown","reason":"TERMINATE"}\n',
            "shutdown",
        ),
    ],
)
def test_the_two_ends(dialect: ReplayDialect, lost: bytes, ended: bytes, awaited: str) -> None:
    assert Conversation(Lease("s"), dialect).lease_lost() == lost
    talk = Conversation(Lease("s"), dialect)
    assert talk.shard_ended() == ended
    assert talk.awaited_status == awaited
    assert talk.receive(status(awaited)) == Answered("shardEnded")
