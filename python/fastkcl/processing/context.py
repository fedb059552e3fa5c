"""The shard that a processor works on, as `initialize` learns it."""

from __future__ import annotations

from fastkcl.stdio.frozen import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fastkcl._core import Dialect


class ShardContext(Frozen):
    """The shard that this process works on. Immutable.

    Attributes:
        stream: the stream's name, from ``run(stream=)`` or FASTKCL_STREAM; the daemon does not send it.
        shard_id: e.g. ``shardId-000000000000``.
        sequence_number: the last checkpoint's: decimal digits, TRIM_HORIZON, LATEST or AT_TIMESTAMP;
            None in the legacy dialect.
        sub_sequence_number: its sub-sequence number; None in the legacy dialect.
        dialect: "legacy" or "modern", as used in this dialogue.
    """

    __slots__ = ("dialect", "sequence_number", "shard_id", "stream", "sub_sequence_number")

    stream: str | None
    shard_id: str
    sequence_number: str | None
    sub_sequence_number: int | None
    dialect: Dialect

    def __init__(
        self,
        *,
        stream: str | None,
        shard_id: str,
        sequence_number: str | None,
        sub_sequence_number: int | None,
        dialect: Dialect,
    ) -> None:
        self._freeze(dialect, sequence_number, shard_id, stream, sub_sequence_number)
