"""Errors between a program and a stream.

Rules: a mistake of the caller is a `ValidationError`; an error of putting or reading names the item and the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fastkcl.masking import without_sent

__all__ = [
    "AnotherStream",
    "AnswerTooLarge",
    "CheckpointFlushError",
    "CheckpointOwnershipConflict",
    "CheckpointTableError",
    "DataLossError",
    "DeserializeError",
    "ExceededPutLimit",
    "StreamDoesNotExist",
    "StreamExists",
    "StreamShardLimit",
    "StreamStatusInvalid",
    "UnknownException",
    "ValidationError",
    "described",
]


def described(error: BaseException) -> str:
    """Class and message of an error, for the log; the repr of redis' errors has neither server nor cause."""
    return f"{type(error).__name__}({without_sent(str(error))!r})"


class ValidationError(ValueError):
    """An argument that cannot be meant; the message names it, and the valid ones."""


class ExceededPutLimit(ValueError):  # noqa: N818 - the name that programs catch
    """An item that is too large for a record, including its framing. Nothing of it was taken."""


class DeserializeError(ValueError):
    """A record's data that its processor cannot read; none of its items is handed out.

    Attributes:
        kind: "deserialize", the content of an item, or "framing", its end.
    """

    def __init__(self, message: str, kind: Literal["deserialize", "framing"] = "deserialize") -> None:
        super().__init__(message)
        self.kind: Literal["deserialize", "framing"] = kind


class AnswerTooLarge(Exception):  # noqa: N818 - like the others
    """The user records of an aggregate take more than max_batch_bytes; none of them was delivered."""


class AnotherStream(Exception):  # noqa: N818 - like the others
    """A stream that was made again under its name, or positions of another one. Nothing was read or written."""


class DataLossError(Exception):
    """The stream has trimmed a position: records after it are lost. The remaining ones were not delivered either.

    Attributes:
        shard_id: which shard.
        position: sequence number of the last record that was read.
        oldest: sequence number of the oldest record left; None if the shard has none, or is gone.
    """

    def __init__(self, message: str, shard_id: str, position: str, oldest: str | None) -> None:
        super().__init__(message)
        self.shard_id = shard_id
        self.position = position
        self.oldest = oldest


class StreamExists(Exception):  # noqa: N818 - this and the following: the names that programs catch
    """A stream that was to be made is there already."""


class StreamDoesNotExist(Exception):  # noqa: N818
    """There is no such stream in this region and account."""


class StreamShardLimit(Exception):  # noqa: N818
    """The account may not have so many shards, or streams."""


class StreamStatusInvalid(Exception):  # noqa: N818
    """The stream is not ACTIVE, and did not become it in time."""


class UnknownException(Exception):  # noqa: N818
    """The service refused records by codes that repeating does not help against; the message has the codes."""


class CheckpointOwnershipConflict(Exception):  # noqa: N818
    """A shard is another worker's: its position was not written, and nothing of the other's was changed."""


class CheckpointTableError(Exception):
    """A table of positions that cannot be used.

    Attributes:
        operation: the API call that failed, e.g. ``DescribeTable``.
        table: its name.
        account: twelve digits; None if it is not known.
        is_lasting: whether trying again does not help: a permission, a credential or a name has to be mended.
    """

    def __init__(self, message: str, operation: str, table: str, account: str | None, *, is_lasting: bool) -> None:
        super().__init__(message)
        self.operation = operation
        self.table = table
        self.account = account
        self.is_lasting = is_lasting


class UnacknowledgedError(Exception):
    """A record was not acknowledged within ack_timeout: the position of its shard cannot move past it."""


class CheckpointFlushError(Exception):
    """Positions that could not be written; they stay buffered, and the others are written.

    Attributes:
        errors: shard id and exception, for each.
    """

    def __init__(self, errors: Sequence[tuple[str, BaseException]]) -> None:
        self.errors = list(errors)
        super().__init__(
            f"{len(self.errors)} checkpoints could not be written: "
            + "; ".join(f"{shard_id}: {error!r}" for shard_id, error in self.errors)
        )
