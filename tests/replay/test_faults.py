"""Each fault of the replayer, and the reaction of a child built on `fastkcl.run`, by docs/protocol-errors.md.

A fault that was asked for is no problem; that the report is `ok` says that the child kept the protocol through it.
"""

from pathlib import Path

import pytest
from fastkcl.replay import CATALOG
from fastkcl.replay.conversation import Conversation
from fastkcl.replay.effects import acting
from fastkcl.replay.faults import GARBAGE
from replay_helpers import BATCH, RECORDS, Played, play_processor, sent, small_source

ALL = sent(small_source())
BATCHES = [ALL[start : start + BATCH] for start in range(0, RECORDS, BATCH)]


def assert_complete(played: Played) -> None:
    """Every record was delivered, in order within each child, and lies below the final checkpoint."""
    assert played.report.ok, played.shard.problems
    assert set(played.records()) == set(ALL)
    for attempt in {call["attempt"] for call in played.calls}:
        places = [int(record[0]) for record in played.records(attempt)]
        assert places == sorted(set(places)), f"child {attempt} got records twice or out of order"
    assert played.shard.records_sent == RECORDS
    assert played.shard.uncheckpointed == 0
    assert played.shard.last_checkpoint == ("SHARD_END", 0)


def test_without_a_fault_everything_comes_once(tmp_path: Path) -> None:
    played = play_processor(tmp_path, stream="orders")
    assert_complete(played)
    assert played.batches() == BATCHES
    assert played.stderr == []
    assert played.shard.exit_codes == [0]
    assert played.calls[0] == {
        "attempt": 1,
        "call": "initialize",
        "stream": "orders",
        "shard_id": "shardId-000000000000",
        "sequence_number": "TRIM_HORIZON",
        "sub_sequence_number": 0,
        "dialect": "modern",
    }


@pytest.mark.parametrize("value", ["whole", "half"])
def test_kill(tmp_path: Path, value: str) -> None:
    """What is above the last checkpoint comes again, cut into other batches; nothing below it does."""
    played = play_processor(tmp_path, f"kill@3={value}")
    assert_complete(played)
    assert played.shard.exit_codes == [-9, 0]
    assert played.shard.restarts == 1
    assert played.shard.records_delivered == RECORDS + BATCH
    again = next(call for call in played.calls if call["attempt"] == 2)
    assert again["sequence_number"] == BATCHES[1][-1][0]
    assert played.records(2) == ALL[2 * BATCH :]
    assert [len(batch) for batch in played.batches(2)] == [6, 4, 10, 10]


def test_kill_without_checkpoints_delivers_everything_again(tmp_path: Path) -> None:
    played = play_processor(tmp_path, "kill@3", child=("--no-checkpoint",))
    assert_complete(played)
    assert played.records(2) == ALL


def test_kill_hits_a_redelivery_as_well(tmp_path: Path) -> None:
    played = play_processor(tmp_path, "kill@3-5")
    assert_complete(played)
    assert played.shard.exit_codes == [-9, -9, -9, 0]


@pytest.mark.parametrize("form", [("--catch",), ("--function",)])
def test_stop_makes_a_zombie_that_cannot_move_the_position(tmp_path: Path, form: tuple[str, ...]) -> None:
    """The stopped child goes on beside its successor: ShutdownException, leaseLost, a clean end."""
    played = play_processor(tmp_path, "stop@2=1.5", child=form)
    assert_complete(played)
    assert played.shard.checkpoint_errors == {"ShutdownException": 1}
    assert sorted(played.shard.exit_codes) == [0, 0]
    assert "ended in good order" in played.shard.faults[-1]
    if "--catch" in form:
        assert played.calls_of(1)[-2:] == ["checkpoint_error", "lease_lost"]


def test_stop_of_a_child_that_does_not_catch_the_error(tmp_path: Path) -> None:
    """An uncaught ShutdownException ends the zombie with 1 and without a status: user_error."""
    played = play_processor(tmp_path, "stop@2=0.2")
    assert_complete(played)
    assert sorted(played.shard.exit_codes) == [0, 1]
    assert any("exit code 1 after ShutdownException" in fault for fault in played.shard.faults)
    assert any("ShutdownException" in line for line in played.messages)


RETRYABLE = ("ThrottlingException", "KinesisClientLibDependencyException", "KinesisClientLibIOException")
FINAL = ("ShutdownException", "InvalidStateException", "IllegalArgumentException", "NullPointerException")


@pytest.mark.parametrize("error", [*RETRYABLE, *FINAL])
def test_checkpoint_error_is_raised_as_the_daemon_names_it(tmp_path: Path, error: str) -> None:
    played = play_processor(tmp_path, f"checkpoint-error@2={error}", child=("--catch",))
    assert_complete(played)
    (raised,) = [call for call in played.calls if call["call"] == "checkpoint_error"]
    assert (raised["value"], raised["retryable"]) == (error, error in RETRYABLE)
    assert played.shard.exit_codes == [0]
    assert played.shard.checkpoint_errors == {error: 1}


@pytest.mark.parametrize("error", ["ThrottlingException", "ShutdownException"])
def test_checkpoint_error_that_nobody_catches(tmp_path: Path, error: str) -> None:
    """user_error: a traceback, no status, exit code 1; the batch comes again."""
    played = play_processor(tmp_path, f"checkpoint-error@2={error}")
    assert_complete(played)
    assert played.shard.exit_codes == [1, 0]
    assert len(played.messages) == 1
    assert any(line.startswith("Traceback") for _, line in played.stderr)
    assert played.records(2) == ALL[BATCH:]


@pytest.mark.parametrize("error", RETRYABLE)
def test_checkpoint_error_is_retried_where_that_was_asked_for(tmp_path: Path, error: str) -> None:
    played = play_processor(tmp_path, f"checkpoint-error@2-3={error}", child=("--retries", "2"))
    assert_complete(played)
    assert played.shard.exit_codes == [0]
    assert played.shard.checkpoint_errors == {error: 2}
    assert played.shard.checkpoints == RECORDS // BATCH + 1 + 2
    assert "checkpoint_error" not in played.calls_of(1)


@pytest.mark.parametrize("error", FINAL)
def test_checkpoint_error_that_cannot_be_retried_is_not(tmp_path: Path, error: str) -> None:
    played = play_processor(tmp_path, f"checkpoint-error@2={error}", child=("--retries", "2", "--catch"))
    assert_complete(played)
    assert played.shard.checkpoint_errors == {error: 1}
    assert played.shard.checkpoints == RECORDS // BATCH + 1


def test_checkpoint_error_in_the_function_form_is_tried_again_at_the_next_request(tmp_path: Path) -> None:
    played = play_processor(tmp_path, "checkpoint-error@2-3=ThrottlingException", child=("--function",))
    assert_complete(played)
    assert played.shard.exit_codes == [0]
    assert played.records() == ALL


def test_slow_reply(tmp_path: Path) -> None:
    """The child waits, and writes nothing until the reply is there."""
    played = play_processor(tmp_path, "slow-reply@2=0.7")
    assert_complete(played)
    assert played.batches() == BATCHES
    assert played.shard.answer_seconds > 0.7


def test_lease_lost_between_batches(tmp_path: Path) -> None:
    played = play_processor(tmp_path, "lease-lost@2", child=("--no-checkpoint",))
    assert_complete(played)
    assert played.calls_of(1) == ["initialize", "process_batch", "process_batch", "lease_lost"]
    assert played.records(2) == ALL
    assert played.shard.exit_codes == [0, 0]
    assert played.stderr == []


@pytest.mark.parametrize("dialect", ["modern", "transitional", "legacy"])
def test_lease_lost_in_mid_batch(tmp_path: Path, dialect: str) -> None:
    played = play_processor(tmp_path, "lease-lost@2=mid-batch", child=("--catch",), dialect=dialect)
    assert played.report.ok, played.shard.problems
    assert played.calls_of(1) == ["initialize", "process_batch", "process_batch", "checkpoint_error", "lease_lost"]
    assert [record[0] for record in played.records(2)] == [record[0] for record in ALL[BATCH:]]
    assert played.shard.exit_codes == [0, 0]


@pytest.mark.parametrize("dialect", ["modern", "transitional", "legacy"])
@pytest.mark.parametrize("form", [("--no-checkpoint",), ("--function",)])
def test_shard_end_is_checkpointed(tmp_path: Path, dialect: str, form: tuple[str, ...]) -> None:
    played = play_processor(tmp_path, "shard-end@2", child=form, dialect=dialect)
    assert played.report.ok, played.shard.problems
    assert played.shard.last_checkpoint == ("SHARD_END", 0)
    assert played.shard.records_sent == 2 * BATCH
    assert played.shard.exit_codes == [0]
    assert any("30 records of the source are not in the shard" in fault for fault in played.shard.faults)


@pytest.mark.parametrize("dialect", ["modern", "transitional"])
def test_shutdown_is_a_chance_to_checkpoint(tmp_path: Path, dialect: str) -> None:
    played = play_processor(tmp_path, "shutdown@2", child=("--no-checkpoint",), dialect=dialect)
    assert_complete(played)
    assert played.calls_of(1) == ["initialize", "process_batch", "process_batch", "shutdown_requested", "lease_lost"]
    assert played.records(2) == ALL[2 * BATCH :]
    assert played.shard.exit_codes == [0, 0]


def test_shutdown_in_the_legacy_dialect_is_the_end_of_input(tmp_path: Path) -> None:
    played = play_processor(tmp_path, "shutdown@2", child=("--no-checkpoint",), dialect="legacy")
    assert played.report.ok, played.shard.problems
    assert played.calls_of(1) == ["initialize", "process_batch", "process_batch"]
    assert len(played.records(2)) == RECORDS
    assert played.shard.exit_codes == [0, 0]


GARBAGE_KINDS = {
    "not-json": "json",
    "truncated": "json",
    "base64": "base64",
    "utf8": "utf8",
    "missing-field": "missing_field",
    "unknown-action": "unknown_action",
    "unexpected": "unexpected_message",
    "null": "not_an_object",
}


@pytest.mark.parametrize("value", GARBAGE)
def test_garbage_stops_the_child_with_one_clear_line(tmp_path: Path, value: str) -> None:
    """No method is called for it, no status is written, exit code 1; the batch itself comes to the next child."""
    played = play_processor(tmp_path, f"garbage@2={value}")
    assert_complete(played)
    assert played.shard.exit_codes == [1, 0]
    (message,) = played.messages
    assert message.startswith(f"fastkcl: {GARBAGE_KINDS[value]}: ")
    assert played.calls_of(1) == ["initialize", "process_batch"]
    assert played.records(2) == ALL[BATCH:]
    assert not any(line.startswith("Traceback") for _, line in played.stderr)


def test_close_between_requests_is_a_clean_end(tmp_path: Path) -> None:
    played = play_processor(tmp_path, "close@2=idle")
    assert_complete(played)
    assert played.shard.exit_codes == [0, 0]
    assert played.stderr == []


def test_close_in_the_middle_of_a_line(tmp_path: Path) -> None:
    played = play_processor(tmp_path, "close@2=mid-line")
    assert_complete(played)
    assert played.shard.exit_codes == [1, 0]
    (message,) = played.messages
    assert message.startswith("fastkcl: json: ")
    assert "input ended inside a message" in message
    assert played.calls_of(1) == ["initialize", "process_batch"]


def test_close_while_a_checkpoint_reply_is_open(tmp_path: Path) -> None:
    played = play_processor(tmp_path, "close@2=reply", child=("--catch",))
    assert_complete(played)
    assert played.shard.exit_codes == [1, 0]
    (message,) = played.messages
    assert message.startswith("fastkcl: closed_while_waiting: ")
    assert played.records(2) == ALL[BATCH:]


@pytest.mark.parametrize("fault", ["slow-pipe@*=0.001", "byte-wise@*", "crlf@*"])
@pytest.mark.parametrize("dialect", ["modern", "transitional", "legacy"])
def test_the_way_a_line_is_written_changes_nothing(tmp_path: Path, fault: str, dialect: str) -> None:
    played = play_processor(tmp_path, fault, dialect=dialect, write_size=256)
    assert played.report.ok, played.shard.problems
    subs = {record[1] for record in played.records()}
    assert subs == ({None} if dialect == "legacy" else {0})
    assert [(r[0], r[2], r[3]) for r in played.records()] == [(r[0], r[2], r[3]) for r in ALL]
    assert played.stderr == []
    assert len(played.shard.faults) == 1


def test_user_code_that_fails_is_a_problem_and_not_a_fault(tmp_path: Path) -> None:
    """on_error="stop": a daemon would go down, so the replay says that the protocol was broken."""
    played = play_processor(tmp_path, child=("--raise-at", ALL[25][0]), restarts=1)
    assert not played.report.ok
    assert played.shard.exit_codes == [1, 1]
    assert "given up after 1 restarts" in played.shard.problems[-2]
    assert played.shard.problems[-1] == "20 of 50 records were never delivered"
    assert played.shard.uncheckpointed == BATCH


def test_user_code_that_fails_with_skip_goes_on(tmp_path: Path) -> None:
    played = play_processor(tmp_path, child=("--raise-at", ALL[25][0], "--on-error", "skip"))
    assert_complete(played)
    assert played.shard.exit_codes == [0]


# Every fault, with each of its values.

OUTCOMES: dict[str, tuple[list[int], int]] = {
    # exit codes, records that come a second time
    "kill=whole": ([-9, 0], BATCH),
    "kill=half": ([-9, 0], BATCH),
    "stop=0.3": ([0, 0], BATCH),
    "checkpoint-error=ThrottlingException": ([0], 0),
    "slow-reply=0.3": ([0], 0),
    "lease-lost=between": ([0, 0], 0),
    "lease-lost=mid-batch": ([0, 0], BATCH),
    "shard-end": ([0], 0),
    "shutdown": ([0, 0], 0),
    **{f"garbage={value}": ([1, 0], 0) for value in GARBAGE},
    "close=idle": ([0, 0], 0),
    "close=mid-line": ([1, 0], BATCH),
    "close=reply": ([1, 0], BATCH),
    "slow-pipe=0.01": ([0], 0),
    "byte-wise": ([0], 0),
    "crlf": ([0], 0),
}


def every_fault() -> list[str]:
    """All of the catalog, so that a new fault, or a new value of one, has no row above and fails."""
    numbers = {"stop": "0.3", "slow-reply": "0.3", "slow-pipe": "0.01"}
    faults = []
    for kind in CATALOG.values():
        values = kind.choices or ((numbers.get(kind.name, kind.default),) if kind.default is not None else ())
        faults += [f"{kind.name}={value}" for value in values] or [kind.name]
    return faults


@pytest.mark.parametrize("fault", every_fault())
def test_every_fault_comes_once_and_the_child_keeps_the_protocol(tmp_path: Path, fault: str) -> None:
    exit_codes, repeated = OUTCOMES[fault]
    name, equals, value = fault.partition("=")
    played = play_processor(tmp_path, f"{name}@2{equals}{value}", child=("--catch",))
    assert played.report.ok, played.shard.problems
    assert sorted(played.shard.exit_codes) == sorted(exit_codes)
    assert len([note for note in played.shard.faults if f": {name}@2{equals}{value}" in note]) == 1
    assert not any("never came" in note for note in played.shard.faults)
    planned = 2 * BATCH if name == "shard-end" else RECORDS
    assert played.shard.records_sent == planned
    assert played.shard.records_delivered == planned + repeated
    assert played.shard.uncheckpointed == 0
    assert played.shard.last_checkpoint == ("SHARD_END", 0)


# Errors that were asked for, and how long they excuse an end.


@pytest.mark.parametrize("restarts", [0, 2])
def test_children_that_all_end_by_an_error_that_was_asked_for_come_to_an_end(tmp_path: Path, restarts: int) -> None:
    """The checkpoint never moves: as a daemon would go on for ever, there is a limit."""
    played = play_processor(tmp_path, "checkpoint-error@*=InvalidStateException", restarts=restarts)
    assert played.shard.exit_codes == [1] * (restarts + 2)
    assert not played.report.ok
    assert f"given up after {restarts + 2} children that ended, at the same checkpoint" in played.shard.problems[0]
    assert played.shard.problems[1] == "40 of 50 records were never delivered"


def test_ends_by_errors_that_were_asked_for_are_no_restarts_while_the_checkpoint_moves(tmp_path: Path) -> None:
    faults = [f"checkpoint-error@{number}" for number in (2, 4, 6)]
    played = play_processor(tmp_path, *faults, restarts=0)
    assert_complete(played)
    assert played.shard.exit_codes == [1, 1, 1, 0]


def test_a_zombie_takes_no_fault_from_its_successor(tmp_path: Path) -> None:
    """Its checkpoint, the second of all, comes long before that of the child that is just starting."""
    played = play_processor(tmp_path, "stop@2=0", "checkpoint-error@2", "slow-reply@2=0.1", child=("--catch",))
    assert_complete(played)
    assert played.shard.checkpoint_errors == {"ShutdownException": 1, "ThrottlingException": 1}
    for fault in ("checkpoint-error@2=ThrottlingException", "slow-reply@2=0.1"):
        assert any(note.startswith(f"child 2, delivery 3: {fault} at checkpoint 2") for note in played.shard.faults)


def test_a_bug_in_a_zombies_thread_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(_self: Conversation) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(Conversation, "lease_lost", break_down)
    with pytest.raises(ZeroDivisionError):
        play_processor(tmp_path, "stop@2=0", child=("--catch",))


def test_each_fault_of_a_delivery_has_an_effect() -> None:
    assert acting() == {name for name, kind in CATALOG.items() if kind.counts == "delivery"}
