"""The daemon's side of one child's protocol, without input or output: requests, checkpoints, verdicts.

The daemon asks, the child answers. There is at most one request open; before its status the child may ask
for checkpoints, which the daemon does at once and answers with an echo of the request:

    daemon                                 child
    request ─────────────────────────────▶
            ◀───────────────────────────── checkpoint      any number of times
    reply   ─────────────────────────────▶
            ◀───────────────────────────── status          once, last

One rule of KCL's `ShardRecordProcessorCheckpointer` limits a checkpoint:

    last checkpoint  <=  requested position  <=  largest permitted

where *largest permitted* is the last record delivered to this child (before any: where it started, so no
number can be given). A number without a sub-sequence number means
sub 0. A checkpoint at the last one's position succeeds without touching the lease table; any other is a write
that fails with ShutdownException once the lease belongs to somebody else. At the shard's end the last record
means SHARD_END. There is no checkpointer at all in initialize, nor in leaseLost (KCL 2 and 3; KCL 1.x had one
in ``shutdown`` ZOMBIE): InvalidStateException.

Rules: one `Conversation` for one child, one `Lease` for one shard; the lease outlives the children. A
`Conversation` never raises for a line of a child. Every line gets an `Outcome`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fastkcl import _core
from fastkcl._core import Position
from fastkcl.replay.child_lines import ReplayDialect, read_child_line
from fastkcl.shard import is_sequence_number

__all__ = [
    "Answered",
    "CheckpointAnswer",
    "CheckpointRequest",
    "Conversation",
    "Fatal",
    "Lease",
    "Outcome",
    "RequestName",
    "Skipped",
]

RequestName: TypeAlias = Literal["initialize", "processRecords", "leaseLost", "shardEnded", "shutdownRequested"]
"""The requests of the daemon, by their modern names. KCL 1.x writes the two ends as ``shutdown`` with a reason."""

_SHUTDOWN_REASONS = {"leaseLost": "ZOMBIE", "shardEnded": "TERMINATE"}


class Lease:
    """A shard's row in the lease table: the last checkpoint's position.

    Attributes:
        shard_id: the shard.
        checkpoint: the stored one.
        writes: how often it was written.
    """

    __slots__ = ("checkpoint", "shard_id", "writes")

    def __init__(self, shard_id: str, checkpoint: Position = Position.TRIM_HORIZON) -> None:
        self.shard_id = shard_id
        self.checkpoint = checkpoint
        self.writes = 0

    def store(self, place: Position) -> None:
        """Write a new checkpoint."""
        self.checkpoint = place
        self.writes += 1


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """A checkpoint that a child asks for; both None: at the end of its delivered records."""

    sequence_number: str | None
    sub_sequence_number: int | None

    def __str__(self) -> str:
        if self.sequence_number is None:
            return "the end of the delivered records"
        number = self.sequence_number[:140]
        sub = "" if self.sub_sequence_number is None else f"/{self.sub_sequence_number}"
        return f"{number if is_sequence_number(number) else repr(number)}{sub}"


@dataclass(frozen=True, slots=True)
class Answered:
    """The open request has got its status."""

    request: RequestName


@dataclass(frozen=True, slots=True)
class CheckpointAnswer:
    """A checkpoint was asked for; `line` has to be written.

    Attributes:
        line: the reply, LF at the end.
        request: of the child.
        error: the error's name in the reply, None on success.
        wrong: the child's error in asking, None if there is none; errors of the lease table are not the child's.
        commit: to be called when the reply is written; it stores the checkpoint. A daemon that dies before is
            free to have stored it or not; this one has not.
    """

    line: bytes
    request: CheckpointRequest
    error: str | None
    wrong: str | None
    commit: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line that the daemon does not act on; it goes on waiting.

    Attributes:
        line: the line.
        why: its fault; empty for a blank line.
        message: the action, if it is a message all the same.
    """

    line: bytes
    why: str
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Fatal:
    """A line that ends the daemon, and with it all of its shards."""

    line: bytes
    why: str


Outcome: TypeAlias = Answered | CheckpointAnswer | Skipped | Fatal


def _encode(message: dict[str, object]) -> bytes:
    # As Jackson writes: compact, key order as given, nothing but '"', '\' and control characters escaped. And as
    # Java writes: half of a surrogate pair is a question mark.
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


class Conversation:
    """The daemon's knowledge about one child of a shard.

    Args:
        lease: of the shard, shared with the children before and after.
        dialect: of the daemon.

    Attributes:
        open: the request that waits for its status, None between requests.
        owns_lease: set to False when the lease has gone to somebody else: checkpoints fail from then on.
        intervene: asked at each checkpoint that would be written; returns the name of an error to answer with,
            or None. It stands for trouble with the lease table.
        checkpoints: checkpoints asked for.
    """

    def __init__(self, lease: Lease, dialect: ReplayDialect = "modern") -> None:
        self.lease = lease
        self.dialect: ReplayDialect = dialect
        self._has = _core.DIALECTS[dialect]
        self.open: RequestName | None = None
        self.owns_lease = True
        self.intervene: Callable[[CheckpointRequest], str | None] = lambda _request: None
        self.checkpoints = 0
        self._last_checkpoint = lease.checkpoint
        self._delivered = lease.checkpoint
        self._shard_has_ended = False

    # Requests: each gives the line to write, and opens the request.

    def initialize(self) -> bytes:
        """The first request: the shard, and (from KCL 1.7.2) its last checkpoint's position."""
        self.open = "initialize"
        message: dict[str, object] = {"action": "initialize", "shardId": self.lease.shard_id}
        if self._has.sub_sequence_numbers:
            number, sub = self.lease.checkpoint
            message["sequenceNumber"], message["subSequenceNumber"] = number, sub or 0
        return _encode(message)

    def process_records(self, last: Position | None) -> None:
        """Opens processRecords; the line itself is encoded elsewhere.

        Args:
            last: place of the batch's last record, None for an empty batch.
        """
        self.open = "processRecords"
        if last is not None:
            self._delivered = last

    def lease_lost(self) -> bytes:
        """The lease has gone to another worker."""
        self.owns_lease = False
        return self._end("leaseLost")

    def shard_ended(self) -> bytes:
        """All records of the shard have been delivered."""
        self._shard_has_ended = True
        return self._end("shardEnded")

    def shutdown_requested(self) -> bytes:
        """The worker is about to stop; a chance to checkpoint. KCL knows it from 1.8.0 on."""
        self.open = "shutdownRequested"
        return _encode({"action": "shutdownRequested"})

    def _end(self, request: Literal["leaseLost", "shardEnded"]) -> bytes:
        self.open = request
        if self._has.named_ends:
            return _encode({"action": request})
        return _encode({"action": "shutdown", "reason": _SHUTDOWN_REASONS[request]})

    @property
    def awaited_status(self) -> str | None:
        """The expected `responseFor` of the status; None between requests."""
        if self.open in _SHUTDOWN_REASONS and not self._has.named_ends:
            return "shutdown"
        return self.open

    # Answers.

    def receive(self, line: bytes) -> Outcome:
        """The daemon's reaction to a line of the child's standard output (without its end)."""
        read = read_child_line(line, self.dialect)
        if read.verdict == "skip":
            return Skipped(line, read.why)
        if read.verdict == "fatal" or read.message is None:
            return Fatal(line, read.why)
        match read.message["action"]:
            case "status":
                return self._status(line, read.message["responseFor"])
            case "checkpoint":
                if not self._has.sub_sequence_numbers:
                    return self._checkpoint(CheckpointRequest(read.message["checkpoint"], None))
                return self._checkpoint(
                    CheckpointRequest(read.message["sequenceNumber"], read.message["subSequenceNumber"])
                )
            case action:
                return Skipped(line, f"{action} is a message of the daemon, not of a child", action)

    def _status(self, line: bytes, response_for: str | None) -> Outcome:
        if self.open is None or response_for != self.awaited_status:
            awaited = f"the status of {self.awaited_status}" if self.open else "no status"
            named = None if response_for is None else response_for[:140]
            return Fatal(line, f"status of {named!r} where the daemon waits for {awaited}")
        answered, self.open = self.open, None
        return Answered(answered)

    def _checkpoint(self, request: CheckpointRequest) -> CheckpointAnswer:
        self.checkpoints += 1
        error, wrong, target = self._judge(request)
        stored = target
        if error is None and stored is not None and stored == self._last_checkpoint:
            stored = None  # there already: the lease table is not touched
        if error is None and stored is not None:
            error = self.intervene(request) or (None if self.owns_lease else "ShutdownException")

        def commit() -> None:
            if error is None and stored is not None:
                self._last_checkpoint = stored
                self.lease.store(stored)

        return CheckpointAnswer(self._reply(request, error), request, error, wrong, commit)

    def _judge(self, request: CheckpointRequest) -> tuple[str | None, str | None, Position | None]:
        """Error and fault of the asker by the rules above, or the place to store."""
        if self.open is None:
            return "InvalidStateException", "checkpoint while no request is open", None
        no_checkpointer = self.open == "initialize" or (self.open == "leaseLost" and self._has.named_ends)
        if no_checkpointer:
            return "InvalidStateException", f"checkpoint in {self.open}, which has no checkpointer", None
        wrong = "checkpoint after the lease was lost" if self.open == "leaseLost" else None
        if request.sequence_number is None:
            return None, wrong, Position.SHARD_END if self._shard_has_ended else self._delivered
        if not is_sequence_number(request.sequence_number):
            return "IllegalArgumentException", f"checkpoint at {request}: no sequence number", None
        sub = request.sub_sequence_number or 0
        if sub < 0:
            return "IllegalArgumentException", f"checkpoint at {request}: negative sub-sequence number", None
        place = Position(request.sequence_number, sub)
        if place < self._last_checkpoint:
            return (
                "IllegalArgumentException",
                f"checkpoint at {request}, below the last checkpoint {self._last_checkpoint}",
                None,
            )
        if place > self._delivered:
            return (
                "IllegalArgumentException",
                f"checkpoint at {request}, above {self._delivered}: no more has been delivered",
                None,
            )
        if self._shard_has_ended and place == self._delivered:
            place = Position.SHARD_END
        return None, wrong, place

    def _reply(self, request: CheckpointRequest, error: str | None) -> bytes:
        if not self._has.sub_sequence_numbers:
            return _encode({"action": "checkpoint", "checkpoint": request.sequence_number, "error": error})
        return _encode(
            {
                "action": "checkpoint",
                "sequenceNumber": request.sequence_number,
                "subSequenceNumber": request.sub_sequence_number,
                "error": error,
            }
        )
