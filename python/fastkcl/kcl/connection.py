"""The dialogue with a daemon as a state table, without input or output.

The daemon asks, the child answers: at most one request is open, and between request and status only checkpoint
round trips may happen. `_REQUESTS` below is that whole protocol. A row is read: *in this state, on this message,
go to `state`; there a checkpoint is allowed or not; the status leads to `after`*.

              initialize            processRecords                     shutdownRequested
      START ─▶ INITIALIZING ─S─▶ READY ─▶ PROCESSING ─S─▶ (back)   READY ─▶ SHUTDOWN_REQUESTED ─S─▶ DRAINING
                                 READY, DRAINING ─▶ LEASE_LOST or SHARD_ENDED ─S─▶ DONE ─EOF─▶ CLOSED

Rules:
- A message or an end of input that has no row leads to ERROR, and so does a call that the state does not allow.
- ERROR is for good. The first error is kept in `error`, and everything later raises it again.
- A checkpoint reply belongs to an open checkpoint and to nothing else.
- The messages are the frozen classes of `fastkcl._core`; the bytes come from its encoders.

The dialect matters for our lines: a daemon skips a checkpoint line with a key it does not know, never answers,
and both sides wait for ever. KCL up to 1.7.1 (legacy) knows only `checkpoint`; later ones know `sequenceNumber` and
`subSequenceNumber`, and show it by these keys in `initialize`.
"""

from __future__ import annotations

from fastkcl._core import Checkpoint, Initialize, Shutdown, encode_checkpoint, encode_status
from fastkcl.checks import check_choice
from fastkcl.processing.errors import LocalProtocolError, ProtocolError, RemoteProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, NoReturn, TypeAlias

    from fastkcl._core import Dialect, Message

    State: TypeAlias = Literal[
        "START",
        "INITIALIZING",
        "READY",
        "PROCESSING",
        "LEASE_LOST",
        "SHARD_ENDED",
        "SHUTDOWN_REQUESTED",
        "DRAINING",
        "DONE",
        "CLOSED",
        "ERROR",
    ]


class Request:
    """One row of the table: the state after a request.

    Attributes:
        state: while the request is open.
        checkpoint: whether a checkpoint is allowed in it.
        after: state after its status.
    """

    __slots__ = ("after", "checkpoint", "state")

    def __init__(self, state: State, after: State, *, checkpoint: bool) -> None:
        self.state = state
        self.after = after
        self.checkpoint = checkpoint


_INITIALIZE = Request("INITIALIZING", "READY", checkpoint=False)
_PROCESS = Request("PROCESSING", "READY", checkpoint=True)
_LEASE_LOST = Request("LEASE_LOST", "DONE", checkpoint=False)
_SHARD_ENDED = Request("SHARD_ENDED", "DONE", checkpoint=True)
_SHUTDOWN_REQUESTED = Request("SHUTDOWN_REQUESTED", "DRAINING", checkpoint=True)
# KCL sends no records after shutdownRequested; a daemon that does is answered.
_PROCESS_DRAINING = Request("PROCESSING", "DRAINING", checkpoint=True)

_REQUESTS: dict[State, dict[str, Request]] = {
    "START": {"initialize": _INITIALIZE},
    "READY": {
        "processRecords": _PROCESS,
        "leaseLost": _LEASE_LOST,
        "shutdown ZOMBIE": _LEASE_LOST,
        "shardEnded": _SHARD_ENDED,
        "shutdown TERMINATE": _SHARD_ENDED,
        "shutdownRequested": _SHUTDOWN_REQUESTED,
    },
    "DRAINING": {
        "processRecords": _PROCESS_DRAINING,
        "leaseLost": _LEASE_LOST,
        "shutdown ZOMBIE": _LEASE_LOST,
        "shardEnded": _SHARD_ENDED,
        "shutdown TERMINATE": _SHARD_ENDED,
    },
}
_MAY_END: frozenset[State] = frozenset(("START", "READY", "DRAINING", "DONE"))
"""States in which the end of input is the end of the dialogue."""


class Connection:
    """One dialogue. Give it the input, write its output, in that order.

    Args:
        dialect: "auto" finds it from `initialize`; "legacy" or "modern" forces it.

    Raises:
        ValueError: another dialect.
    """

    __slots__ = ("_dialect", "_error", "_forced", "_request", "_response_for", "_state", "_waiting")

    def __init__(self, *, dialect: Literal["auto", "legacy", "modern"] = "auto") -> None:
        check_choice("dialect", dialect, "auto", "legacy", "modern")
        self._forced: Dialect | None = None if dialect == "auto" else dialect
        self._dialect: Dialect | None = self._forced
        self._state: State = "START"
        self._request: Request | None = None
        self._response_for = ""
        self._waiting = False
        self._error: ProtocolError | None = None

    @property
    def state(self) -> State:
        """The state of the dialogue."""
        return self._state

    @property
    def waiting_for_reply(self) -> bool:
        """Whether a checkpoint is open; nothing else may be written until its reply."""
        return self._waiting

    @property
    def dialect(self) -> Dialect | None:
        """The dialect of our lines; None before `initialize` unless it is forced."""
        return self._dialect

    @property
    def error(self) -> ProtocolError | None:
        """The error that led to ERROR; None in every other state."""
        return self._error

    def receive(self, message: Message) -> State:
        """Take a message of the daemon.

        Returns:
            The state it leads to, which names the next step: answer the request that is now open, or, after a
            checkpoint reply, go on where the checkpoint was asked for.

        Raises:
            RemoteProtocolError: the message is not allowed here (kind ``unexpected_message``).
            ProtocolError: the connection was in ERROR before.
        """
        self.check()
        name: str = message.action
        if self._waiting != isinstance(message, Checkpoint):
            self._refuse(name)
        if self._waiting:
            self._waiting = False
            return self._state
        if isinstance(message, Shutdown):
            name = f"shutdown {message.reason}"
        request = _REQUESTS.get(self._state, {}).get(name)
        if request is None:
            self._refuse(name)
        if isinstance(message, Initialize) and self._forced is None:
            self._dialect = message.dialect
        self._request = request
        self._response_for = message.action
        self._state = request.state
        return request.state

    def receive_eof(self) -> None:
        """Take the end of the daemon's output.

        Raises:
            RemoteProtocolError: something is still open (kind ``closed_while_waiting``).
            ProtocolError: the connection was in ERROR before.
        """
        self.check()
        if self._state not in _MAY_END:
            self.fail(RemoteProtocolError("closed_while_waiting", f"end of input{self._where()}", self._state))
        self._state = "CLOSED"

    def send_status(self) -> bytes:
        """The status line of the open request; the request is closed by it.

        Raises:
            LocalProtocolError: no request is open, or a checkpoint is.
            ProtocolError: the connection was in ERROR before.
        """
        self.check()
        if self._request is None or self._waiting:
            self.not_allowed("a status")
        self._state = self._request.after
        self._request = None
        return encode_status(self._response_for)

    def send_checkpoint(self, sequence_number: str | None, sub_sequence_number: int | None) -> bytes:
        """The line of a checkpoint request; its reply has to come before anything else.

        Args:
            sequence_number: None for the end of everything delivered.
            sub_sequence_number: None for 0.

        Raises:
            ValueError: a sub-sequence number without a sequence number, above 0 in the legacy dialect, or of more than
                64 bits. Nothing has happened then.
            LocalProtocolError: no request is open that allows it, or a checkpoint is open.
            ProtocolError: the connection was in ERROR before.
        """
        self.check()
        if self._request is None or not self._request.checkpoint or self._waiting or self._dialect is None:
            self.not_allowed("a checkpoint")
        try:
            line = encode_checkpoint(sequence_number, sub_sequence_number, self._dialect)
        except OverflowError:
            raise ValueError(f"a sub-sequence number has 64 bits at most: {sub_sequence_number}") from None
        self._waiting = True
        return line

    def check(self) -> None:
        """Raise the error that led to ERROR, if there was one.

        Raises:
            ProtocolError: the connection is in ERROR.
        """
        if self._error is not None:
            raise self._error

    def fail(self, error: ProtocolError) -> NoReturn:
        """Go to ERROR for a reason that only the caller can see: an unreadable line, a broken pipe.

        Raises:
            ProtocolError: always, `error` or the one that came before it.
        """
        if self._error is None:
            self._error = error
            self._state = "ERROR"
        raise self._error

    def not_allowed(self, what: str) -> NoReturn:
        """Go to ERROR because of a call that the state does not allow.

        Raises:
            LocalProtocolError: always.
        """
        self.fail(LocalProtocolError("not_allowed", f"{what} is not allowed{self._where()}", self._state))

    def _refuse(self, name: str) -> NoReturn:
        self.fail(RemoteProtocolError("unexpected_message", f"{name} is not allowed{self._where()}", self._state))

    def _where(self) -> str:
        return f" in state {self._state}" + (", where a checkpoint waits for its reply" if self._waiting else "")
