"""The state table of the protocol, as the specification lists it, and the ways into ERROR."""

from __future__ import annotations

import json
from typing import Any

import kcl_helpers
import pytest
from fastkcl import (
    Checkpoint,
    Initialize,
    LeaseLost,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    ShardEnded,
    Shutdown,
    ShutdownRequested,
    decode_line,
)
from fastkcl.kcl import Connection

INITIALIZE = Initialize(shard_id="shardId-0", sequence_number="TRIM_HORIZON", sub_sequence_number=0, dialect="modern")
LEGACY_INITIALIZE = Initialize(shard_id="shardId-0", sequence_number=None, sub_sequence_number=None, dialect="legacy")
PROCESS = decode_line(kcl_helpers.process_records(100, 101))
REPLY = Checkpoint(sequence_number=None, sub_sequence_number=None, error=None)
EOF = None

MESSAGES = {
    "initialize": INITIALIZE,
    "processRecords": PROCESS,
    "leaseLost": LeaseLost(),
    "shutdown ZOMBIE": Shutdown(reason="ZOMBIE"),
    "shardEnded": ShardEnded(),
    "shutdown TERMINATE": Shutdown(reason="TERMINATE"),
    "shutdownRequested": ShutdownRequested(),
    "checkpoint": REPLY,
}

# How to get there: messages that are answered, and one that is left open.
PATHS: dict[str, tuple[list[str], str | None]] = {
    "START": ([], None),
    "INITIALIZING": ([], "initialize"),
    "READY": (["initialize"], None),
    "PROCESSING": (["initialize"], "processRecords"),
    "LEASE_LOST": (["initialize"], "leaseLost"),
    "SHARD_ENDED": (["initialize"], "shardEnded"),
    "SHUTDOWN_REQUESTED": (["initialize"], "shutdownRequested"),
    "DRAINING": (["initialize", "shutdownRequested"], None),
    "DONE": (["initialize", "leaseLost"], None),
}

# state, message, next state, checkpoint allowed, status names, state after the status
TABLE = [
    ("START", "initialize", "INITIALIZING", False, "initialize", "READY"),
    ("READY", "processRecords", "PROCESSING", True, "processRecords", "READY"),
    ("READY", "leaseLost", "LEASE_LOST", False, "leaseLost", "DONE"),
    ("READY", "shutdown ZOMBIE", "LEASE_LOST", False, "shutdown", "DONE"),
    ("READY", "shardEnded", "SHARD_ENDED", True, "shardEnded", "DONE"),
    ("READY", "shutdown TERMINATE", "SHARD_ENDED", True, "shutdown", "DONE"),
    ("READY", "shutdownRequested", "SHUTDOWN_REQUESTED", True, "shutdownRequested", "DRAINING"),
    ("DRAINING", "processRecords", "PROCESSING", True, "processRecords", "DRAINING"),
    ("DRAINING", "leaseLost", "LEASE_LOST", False, "leaseLost", "DONE"),
    ("DRAINING", "shutdown ZOMBIE", "LEASE_LOST", False, "shutdown", "DONE"),
    ("DRAINING", "shardEnded", "SHARD_ENDED", True, "shardEnded", "DONE"),
    ("DRAINING", "shutdown TERMINATE", "SHARD_ENDED", True, "shutdown", "DONE"),
]
CLEAN_END = {"START", "READY", "DRAINING", "DONE"}
NOT_LISTED = [
    (state, message) for state in PATHS for message in MESSAGES if (state, message) not in {row[:2] for row in TABLE}
]


def reach(state: str, **options: Any) -> Connection:
    connection = Connection(**options)
    answered, opened = PATHS[state]
    for name in answered:
        connection.receive(MESSAGES[name])
        connection.send_status()
    if opened is not None:
        connection.receive(MESSAGES[opened])
    assert connection.state == state
    return connection


def written(line: bytes) -> Any:
    assert line.startswith(b"\n")
    assert line.endswith(b"\n")
    return json.loads(line)


@pytest.mark.parametrize(("state", "message", "next_state", "checkpoint", "status", "after"), TABLE)
def test_request(state: str, message: str, next_state: str, checkpoint: bool, status: str, after: str) -> None:
    connection = reach(state)
    assert connection.receive(MESSAGES[message]) == next_state
    assert connection.state == next_state
    if checkpoint:
        assert written(connection.send_checkpoint("7", 3)) == kcl_helpers.checkpoint("7", 3)
        assert connection.waiting_for_reply
        assert connection.receive(REPLY) == next_state
        assert not connection.waiting_for_reply
    assert written(connection.send_status()) == kcl_helpers.status(status)
    assert connection.state == after


@pytest.mark.parametrize(("state", "message", "next_state", "checkpoint", "status", "after"), TABLE)
def test_checkpoint_where_the_request_has_none(
    state: str, message: str, next_state: str, checkpoint: bool, status: str, after: str
) -> None:
    connection = reach(state)
    connection.receive(MESSAGES[message])
    if checkpoint:
        connection.send_checkpoint(None, None)
    with pytest.raises(LocalProtocolError, match=f"a checkpoint is not allowed in state {next_state}"):
        connection.send_checkpoint(None, None)
    assert connection.state == "ERROR"


@pytest.mark.parametrize(("state", "message"), NOT_LISTED)
def test_message_that_the_table_does_not_list(state: str, message: str) -> None:
    connection = reach(state)
    with pytest.raises(RemoteProtocolError) as caught:
        connection.receive(MESSAGES[message])
    assert caught.value.kind == "unexpected_message"
    assert caught.value.state == state
    assert str(caught.value) == f"unexpected_message: {message} is not allowed in state {state}"
    assert connection.state == "ERROR"
    assert connection.error is caught.value


@pytest.mark.parametrize("message", [name for name in MESSAGES if name != "checkpoint"])
@pytest.mark.parametrize("state", ["PROCESSING", "SHARD_ENDED", "SHUTDOWN_REQUESTED"])
def test_only_a_reply_while_one_is_awaited(state: str, message: str) -> None:
    connection = reach(state)
    connection.send_checkpoint(None, None)
    with pytest.raises(RemoteProtocolError, match="where a checkpoint waits for its reply") as caught:
        connection.receive(MESSAGES[message])
    assert caught.value.kind == "unexpected_message"
    assert connection.state == "ERROR"


@pytest.mark.parametrize("state", PATHS)
def test_end_of_input(state: str) -> None:
    connection = reach(state)
    if state in CLEAN_END:
        connection.receive_eof()
        assert connection.state == "CLOSED"
        with pytest.raises(RemoteProtocolError, match="not allowed in state CLOSED"):
            connection.receive(INITIALIZE)
    else:
        with pytest.raises(RemoteProtocolError, match=f"closed_while_waiting: end of input in state {state}"):
            connection.receive_eof()
        assert connection.state == "ERROR"


@pytest.mark.parametrize("state", ["PROCESSING", "SHARD_ENDED", "SHUTDOWN_REQUESTED"])
def test_end_of_input_while_a_reply_is_awaited(state: str) -> None:
    connection = reach(state)
    connection.send_checkpoint(None, None)
    with pytest.raises(RemoteProtocolError) as caught:
        connection.receive_eof()
    assert caught.value.kind == "closed_while_waiting"
    assert connection.state == "ERROR"


@pytest.mark.parametrize("state", ["START", "READY", "DRAINING", "DONE"])
def test_status_without_a_request(state: str) -> None:
    connection = reach(state)
    with pytest.raises(LocalProtocolError, match=f"a status is not allowed in state {state}"):
        connection.send_status()
    assert connection.state == "ERROR"


def test_status_while_a_reply_is_awaited() -> None:
    connection = reach("PROCESSING")
    connection.send_checkpoint(None, None)
    with pytest.raises(LocalProtocolError, match="a status is not allowed in state PROCESSING, where a checkpoint"):
        connection.send_status()


def test_error_is_for_good() -> None:
    connection = reach("READY")
    with pytest.raises(LocalProtocolError) as first:
        connection.send_status()
    for attempt in (
        lambda: connection.receive(PROCESS),
        lambda: connection.receive_eof(),
        lambda: connection.send_status(),
        lambda: connection.send_checkpoint(None, None),
        lambda: connection.fail(RemoteProtocolError("json", "later", "ERROR")),
        lambda: connection.check(),
    ):
        with pytest.raises(ProtocolError) as again:
            attempt()
        assert again.value is first.value
    assert connection.state == "ERROR"


@pytest.mark.parametrize(
    ("forced", "initialize", "dialect"),
    [
        ("auto", INITIALIZE, "modern"),
        ("auto", LEGACY_INITIALIZE, "legacy"),
        ("legacy", INITIALIZE, "legacy"),
        ("modern", LEGACY_INITIALIZE, "modern"),
    ],
)
def test_dialect(forced: Any, initialize: Initialize, dialect: str) -> None:
    connection = Connection(dialect=forced)
    assert connection.dialect == (None if forced == "auto" else forced)
    connection.receive(initialize)
    assert connection.dialect == dialect
    connection.send_status()
    connection.receive(PROCESS)
    keys = {"modern": {"action", "sequenceNumber", "subSequenceNumber"}, "legacy": {"action", "checkpoint"}}
    assert written(connection.send_checkpoint("5", None)).keys() == keys[dialect]


@pytest.mark.parametrize(
    ("dialect", "sequence_number", "sub_sequence_number"),
    [("modern", None, 3), ("legacy", None, 0), ("legacy", "5", 1)],
)
def test_position_that_cannot_be_said_changes_nothing(
    dialect: Any, sequence_number: str | None, sub_sequence_number: int
) -> None:
    connection = reach("PROCESSING", dialect=dialect)
    with pytest.raises(ValueError, match="sub"):
        connection.send_checkpoint(sequence_number, sub_sequence_number)
    assert connection.state == "PROCESSING"
    assert not connection.waiting_for_reply
    connection.send_status()


def test_unknown_dialect() -> None:
    with pytest.raises(ValueError, match="'auto', 'legacy' or 'modern', not 'old'"):
        Connection(dialect="old")  # type: ignore[arg-type]
