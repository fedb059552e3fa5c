"""A stitch's side of ProcessV1 as a state table, without input or output.

Core and stitch write when they like; nobody waits for a reply. So the table is short: for each kind of message `_ROWS`
has the action, by default and if the user asked to see the message, and the next state.

      start           _exit, shown to the user               user returns, or 10 s
      STARTING ─▶ RUNNING ──────────────────────▶ STOPPING ─────────────────────────▶ EXITED
                     └──────────────── _exit, by default ────────────────────────────▶

Rules:
- A heartbeat is answered when it is received, also while user code is busy.
- A frame that cannot be read is an event like any other: it is logged at the core, and the next frame is read.
- A core that is gone (end of input, no such process, a broken pipe) is an ``_exit`` with Id 1. In STOPPING it changes
  nothing: a core that has sent ``_exit`` closes the pipe.
- Messages after an exit are ignored, except heartbeats of a core that waits for a STOPPING stitch.
"""

from __future__ import annotations

from collections import deque

from fastkcl import LocalProtocolError
from fastkcl._core import DEFAULT_MAX_FRAME_BYTES, DecodeError, FromStitchMessage, StitchDecoder, ToStitchMessage
from fastkcl.stdio.frozen import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, NoReturn, TypeAlias

    State: TypeAlias = Literal["STARTING", "RUNNING", "STOPPING", "EXITED"]
    Kind: TypeAlias = Literal["heartbeat", "data", "error", "exit"]
    Action: TypeAlias = Literal["answer", "deliver", "log", "leave", "drop"]
    Step: TypeAlias = tuple[Action, State]

HEARTBEAT = "_heartbeat"
EXIT = "_exit"
ERROR = "_error"
"""Channels with a meaning; the last one never comes over the wire."""
CORE_GONE = 1
"""Exit code where the core is gone."""


class Deliver(Frozen):
    """Event: a message for the user."""

    __slots__ = ("message",)
    message: ToStitchMessage

    def __init__(self, message: ToStitchMessage) -> None:
        self._freeze(message)


class Write(Frozen):
    """Event: bytes for the core."""

    __slots__ = ("data",)
    data: bytes

    def __init__(self, data: bytes) -> None:
        self._freeze(data)


class Exit(Frozen):
    """Event: the process has to end, with this code."""

    __slots__ = ("code",)
    code: int

    def __init__(self, code: int) -> None:
        self._freeze(code)


if TYPE_CHECKING:
    Event: TypeAlias = Deliver | Write | Exit


class Row(Frozen):
    """One row of the table.

    Attributes:
        default: the action, and the state after it.
        shown: the same where the user wants to see messages of this kind.
    """

    __slots__ = ("default", "shown")
    default: Step
    shown: Step

    def __init__(self, default: Step, shown: Step | None = None) -> None:
        self._freeze(default, shown or default)


_ROWS: dict[State, dict[Kind, Row]] = {
    "RUNNING": {
        "heartbeat": Row(("answer", "RUNNING"), shown=("deliver", "RUNNING")),
        "data": Row(("deliver", "RUNNING")),
        "error": Row(("log", "RUNNING"), shown=("deliver", "RUNNING")),
        "exit": Row(("leave", "EXITED"), shown=("deliver", "STOPPING")),
    },
    "STOPPING": {
        "heartbeat": Row(("answer", "STOPPING")),
        "data": Row(("drop", "STOPPING")),
        "error": Row(("drop", "STOPPING")),
        "exit": Row(("drop", "STOPPING")),
    },
}
_KINDS: dict[str | None, Kind] = {HEARTBEAT: "heartbeat", EXIT: "exit"}


class Connection:
    """One stitch's talk with its core. Give it the input, and act on its events, in their order.

    Args:
        receive_heartbeats: heartbeats go to the user, who has to answer them.
        receive_exit: ``_exit`` goes to the user, who may clean up.
        receive_errors: frames that cannot be read go to the user, too, as messages of the channel ``_error``.
        max_frame_bytes: bound of one frame.

    Raises:
        ValueError: `max_frame_bytes` out of range.
    """

    __slots__ = ("_decoder", "_events", "_exit_code", "_state", "receive_errors", "receive_exit", "receive_heartbeats")

    def __init__(
        self,
        *,
        receive_heartbeats: bool = False,
        receive_exit: bool = False,
        receive_errors: bool = False,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        self.receive_heartbeats = receive_heartbeats
        self.receive_exit = receive_exit
        self.receive_errors = receive_errors
        self._decoder = StitchDecoder(max_frame_bytes=max_frame_bytes)
        self._events: deque[Event] = deque()
        self._state: State = "STARTING"
        self._exit_code = 0

    @property
    def state(self) -> State:
        """The state of the stitch."""
        return self._state

    @property
    def exit_code(self) -> int | None:
        """The exit code that the process shall end with; None as long as it shall not."""
        return self._exit_code if self._state in ("STOPPING", "EXITED") else None

    def start(self) -> None:
        """The arguments are parsed and somebody reads: from here on messages come and go.

        Raises:
            LocalProtocolError: it has started before.
        """
        if self._state != "STARTING":
            self.not_allowed("a start")
        self._state = "RUNNING"

    def receive_data(self, data: bytes) -> None:
        """Take bytes of the core, cut anywhere.

        Raises:
            LocalProtocolError: before `start`.
        """
        self._check_started("input")
        self._decoder.feed(data)
        while self._take_next():
            pass

    def receive_eof(self) -> None:
        """Take the end of input: the core is gone.

        Raises:
            LocalProtocolError: before `start`.
        """
        self._check_started("an end of input")
        try:
            message = self._decoder.finish()
            if message is not None:
                self._receive_message(message)
        except DecodeError as error:
            self._receive_error(error)
        self.core_gone()

    def core_gone(self) -> None:
        """Take note that the core's process or its end of a pipe is gone."""
        self._receive("exit", ToStitchMessage(id=CORE_GONE, channel_name=EXIT))

    def user_returned(self) -> None:
        """The user is done with the ``_exit`` that was shown, or had long enough."""
        if self._state == "STOPPING":
            self._leave()

    def next_event(self) -> Event | None:
        """The next thing to do; None if there is nothing."""
        return self._events.popleft() if self._events else None

    def send(self, message: FromStitchMessage) -> bytes:
        """The frame of a message of ours.

        Raises:
            LocalProtocolError: before `start`, or when the process has to end.
        """
        if self._state not in ("RUNNING", "STOPPING"):
            self.not_allowed(f"a message ({message.command})")
        return message.to_frame()

    def not_allowed(self, what: str) -> NoReturn:
        """Refuse a call that the state does not allow.

        Raises:
            LocalProtocolError: always.
        """
        raise LocalProtocolError("not_allowed", f"{what} is not allowed in state {self._state}", self._state)

    def _check_started(self, what: str) -> None:
        if self._state == "STARTING":
            self.not_allowed(what)

    def _take_next(self) -> bool:
        try:
            message = next(self._decoder, None)
        except DecodeError as error:
            self._receive_error(error)
            return True
        if message is not None:
            self._receive_message(message)
        return message is not None

    def _receive_message(self, message: ToStitchMessage | FromStitchMessage) -> None:
        assert isinstance(message, ToStitchMessage)
        self._receive(_KINDS.get(message.channel_name, "data"), message)

    def _receive_error(self, error: DecodeError) -> None:
        what = f"a frame of the core cannot be read: {error}; it begins or goes on with {error.context[:100]!r}"
        self._receive("error", ToStitchMessage(channel_name=ERROR, data=what))

    def _receive(self, kind: Kind, message: ToStitchMessage) -> None:
        row = _ROWS.get(self._state, {}).get(kind)
        if row is None:
            return
        wanted = {"heartbeat": self.receive_heartbeats, "exit": self.receive_exit, "error": self.receive_errors}
        action, after = row.shown if wanted.get(kind) else row.default
        if kind == "error" and action != "drop":
            lines = [message.data or ""]
            self._events.append(Write(FromStitchMessage(command="logs", logs=lines).to_frame()))
        if kind == "exit" and self._state == "RUNNING":
            self._exit_code = message.id & 0xFF  # as much as a process can return
        if action == "answer":
            self._events.append(Write(FromStitchMessage(command="sync", id=message.id).to_frame()))
        elif action == "deliver":
            self._events.append(Deliver(message))
        elif action == "leave":
            self._leave()
        self._state = after

    def _leave(self) -> None:
        self._state = "EXITED"
        self._events.append(Exit(self._exit_code))
