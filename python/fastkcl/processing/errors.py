"""Errors of the protocol, of a checkpoint, and of the program's surroundings.

A `LocalProtocolError` is the caller's mistake, a `RemoteProtocolError` the daemon's (or its end). After either the
connection is in ERROR for good: nothing more is read or written, and `run` ends, also where user code swallows it.
A `CheckpointError` is not a protocol error: the daemon answered, and the dialogue goes on.
A `ConfigurationError` is for the person who runs the program, and is reported without a traceback.
"""

from __future__ import annotations

MOST_REFUSALS = 10
"""How often a program may try again where a broken dialogue refuses it, before it is ended."""


class ProtocolError(Exception):
    """The rules of the dialogue were broken. `str()` is one line: ``<kind>: <what>``.

    Args:
        kind: see docs/protocol-errors.md.
        what: what happened, and where in the dialogue.
        state: state of the connection when it happened.
    """

    def __init__(self, kind: str, what: str, state: str) -> None:
        super().__init__(kind, what, state)
        self.kind = kind
        self.what = what
        self.state = state

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


class LocalProtocolError(ProtocolError):
    """This side made a call that the state does not allow, e.g. a checkpoint outside a request.

    Kind ``not_allowed``; ``descriptors_closed`` where the program has closed descriptors that are not its own.
    """


class RemoteProtocolError(ProtocolError):
    """The daemon sent a message that the state or the format does not allow, or has gone."""


class ConfigurationError(Exception):
    """Something around the program is missing or wrong: a setting, a server, an installation.

    `str()` has the problem and the remedy; a place in the code helps nobody, so `run` prints no traceback.
    """


# Which of KCL's exceptions a checkpoint reply can name: kcl-multilang, CheckpointResponse and its callers.
_MEANINGS: dict[str, tuple[bool, str]] = {
    "ThrottlingException": (True, "the lease table is throttled; try again after a pause"),
    "KinesisClientLibDependencyException": (True, "trouble with DynamoDB or Kinesis; try again after a pause"),
    "KinesisClientLibIOException": (True, "internal trouble of the daemon; try again after a pause"),
    # KCL 3 wraps errors that it has no exception for, such as a connection that is refused: AWSExceptionManager.
    "RuntimeException": (True, "the lease table is most likely out of reach; try again after a pause"),
    "ShutdownException": (False, "the lease is held by another worker now; stop working on this shard"),
    "InvalidStateException": (False, "the lease table is missing, or no checkpoint is possible at this point"),
    "IllegalArgumentException": (
        False,
        "the position is not a number, or outside the range from the last checkpoint to the last record delivered",
    ),
}


class CheckpointError(Exception):
    """The daemon refused a checkpoint.

    Args:
        value: the error's name as the daemon sent it, the simple name of a Java class.
    """

    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.value = value

    @property
    def retryable(self) -> bool:
        """Whether the same checkpoint may succeed later."""
        return self.value in _MEANINGS and _MEANINGS[self.value][0]

    def __str__(self) -> str:
        if self.value in _MEANINGS:
            return f"{self.value}: {_MEANINGS[self.value][1]}"
        return f"{self.value}: unknown; the daemon sends the class name of the exception, see its log"
