"""The interface of a consumer to the store of its positions.

A checkpointer divides a stream's shards among consumers, and stores the processed position of each shard:

    allocate ──▶ (ours?, position) ──▶ checkpoint ──▶ checkpoint ──▶ … ──▶ deallocate, which keeps the position

A position is text:

==================  =================================================================================================
``"49…2"``          the complete record with that sequence number, and everything before it
``"49…2/3"``        everything before that record, and, if it is an aggregate, its user records 0 to 3
``"TRIM_HORIZON"``  nothing yet: the start that the lease's creator chose; also ``LATEST``, ``AT_TIMESTAMP``
``"SHARD_END"``     everything: the shard is finished, by any consumer
==================  =================================================================================================

A checkpointer returns this text unchanged.

Rules: each method may safely be called again. Only the owner's position is written. If another consumer owns the shard
by now, nothing is written and `CheckpointOwnershipConflict` is raised. After any other exception it is unknown whether
the position was written; the consumer keeps it and tries again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, runtime_checkable

from fastkcl._core import Position
from fastkcl.kinesis.exceptions import AnotherStream
from fastkcl.kinesis.failures import not_of_kinesis
from fastkcl.kinesis.metrics import MetricsCollector, MetricType, get_metrics_collector

if TYPE_CHECKING:
    from fastkcl.kinesis.topology import Shard

__all__ = [
    "FIRST",
    "SHARD_END",
    "STANDALONE_STREAM_LABEL",
    "BaseCheckPointer",
    "BindsMetrics",
    "BindsStream",
    "CheckPointer",
    "EndsShards",
    "KeepsBeginnings",
    "KeepsPositions",
    "ListsPositions",
    "ListsShards",
    "Place",
    "SharesShards",
    "check_checkpointer",
    "left_behind",
    "was_read",
]

SHARD_END = "SHARD_END"
FIRST = "TRIM_HORIZON"
"""Position of a shard that begins at its first record."""
STANDALONE_STREAM_LABEL = "<standalone>"
"""The stream's name in counts of a checkpointer that no consumer has; async-kinesis' dashboards know it."""


class Place(NamedTuple):
    """A position taken apart.

    It is not `fastkcl.Position`, the daemon's: there a missing sub-sequence number is the first user record, and here,
    as KCL's lease tables have it, all of the record. So the two differ in order and in equality.

    Attributes:
        sequence_number: of the last record, decimal digits.
        sub_sequence_number: of the last user record in it; None for all of the record.
    """

    sequence_number: str
    sub_sequence_number: int | None = None

    @classmethod
    def parse(cls, position: str) -> Place | None:
        """From text; None for a position that names no record.

        Raises:
            ValueError: it is not a position.
        """
        sequence, slash, sub = position.partition("/")
        if _is_decimal(sequence) and (not slash or _is_decimal(sub)):
            return cls(sequence, int(sub) if slash else None)
        Position.parse(position)  # a sentinel, or no position
        return None

    @property
    def order(self) -> tuple[float, float]:
        """The order of a shard's positions.

        Raises:
            ConnectionError: Kinesis has no such sequence numbers.
        """
        sub = self.sub_sequence_number
        try:
            return int(self.sequence_number), math.inf if sub is None else sub
        except ValueError:
            raise not_of_kinesis(self.sequence_number) from None

    def __str__(self) -> str:
        """As text."""
        if self.sub_sequence_number is None:
            return self.sequence_number
        return f"{self.sequence_number}/{self.sub_sequence_number}"


def was_read(position: str | None) -> bool:
    """Whether a position means that records of its shard were processed."""
    return position is not None and (position == SHARD_END or Place.parse(position) is not None)


def left_behind(positions: Mapping[str, str], listed: Iterable[Shard]) -> dict[str, str]:
    """Of the positions of shards that are no longer listed, those after which the group lost its way.

    Their shards were read, and no listed shard follows them: their children are gone, too.
    """
    parents = {parent for shard in listed for parent in shard.parents}
    return {
        shard_id: position for shard_id, position in positions.items() if was_read(position) and shard_id not in parents
    }


def _is_decimal(text: str) -> bool:
    return text.isascii() and text.isdecimal()


@runtime_checkable
class CheckPointer(Protocol):
    """The methods of every checkpointer. Several tasks of one event loop may call them, for different shards."""

    async def allocate(self, shard_id: str) -> tuple[bool, str | None]:
        """Ask for a shard.

        Returns:
            Whether it is ours now, and its position; None if it has none. With `SHARD_END` nobody needs it any more,
            and nothing is allocated.
        """

    async def deallocate(self, shard_id: str) -> None:
        """Let go of a shard; its position stays. Nothing happens to a shard of another's."""

    async def checkpoint(self, shard_id: str, sequence: str) -> None:
        """Write a position of a shard that is ours.

        Raises:
            CheckpointOwnershipConflict: it is not.
        """

    def get_all_checkpoints(self) -> dict[str, str | None]:
        """The positions of the shards that this checkpointer knows of, as they were last read or written."""

    def is_allocated(self, shard_id: str) -> bool:
        """Whether the shard is ours, as far as it is known here. A consumer stops reading a shard that is not."""

    async def close(self) -> None:
        """Let go of all shards, and of connections."""


def check_checkpointer(checkpointer: object) -> None:
    """Refuse options with which a consumer would fail at its first shard.

    Raises:
        TypeError: it is not a checkpointer.
    """
    if isinstance(checkpointer, type) or not isinstance(checkpointer, CheckPointer):
        raise TypeError(f"checkpointer must be a checkpointer like MemoryCheckPointer(), not {checkpointer!r}")


@runtime_checkable
class BindsMetrics(Protocol):
    """A checkpointer that counts its writes."""

    def bind_metrics(self, collector: MetricsCollector, labels: dict[str, str]) -> None:
        """Count there, with these labels and shard_id. The consumer calls it before anything else."""


@runtime_checkable
class BindsStream(Protocol):
    """A checkpointer that is for one stream, and remembers which."""

    def bind_stream(self, stream_name: str, region_name: str | None) -> None:
        """Its positions are those of this stream; the consumer calls it before it allocates anything.

        Raises:
            AnotherStream: it has those of another one.
        """


@runtime_checkable
class EndsShards(Protocol):
    """A checkpointer that remembers finished shards, for everybody."""

    async def shard_ended(self, shard_id: str) -> None:
        """A shard of ours is completely processed: write `SHARD_END`, and release it. Replaces `deallocate`.

        Raises:
            CheckpointOwnershipConflict: it is another's by now.
        """


@runtime_checkable
class KeepsPositions(Protocol):
    """A checkpointer that can be asked for the position of a shard that is not to be allocated."""

    async def position(self, shard_id: str) -> str | None:
        """The position of a shard, with any owner; None if it has none."""


@runtime_checkable
class ListsPositions(KeepsPositions, Protocol):
    """A checkpointer that knows which shards it has positions of."""

    async def positions(self, besides: Collection[str]) -> dict[str, str]:
        """The positions of all shards but these, which the stream lists; with any owner."""


@runtime_checkable
class KeepsBeginnings(Protocol):
    """A checkpointer that stores the start of a shard before the first record is read."""

    async def begin_at_first(self, shard_id: str) -> None:
        """Keep that a shard of ours begins at its first record: it follows one that is gone, which was looked at.

        Raises:
            CheckpointOwnershipConflict: it is another's by now.
        """

    async def begins_at_first(self, shard_id: str) -> bool:
        """Whether that is kept of a shard of ours."""


@runtime_checkable
class ListsShards(Protocol):
    """A checkpointer that wants to know the shards that there are."""

    async def shards_listed(self, shards: Sequence[Shard]) -> None:
        """The shards of the stream; before any of them is allocated or ended, and after each refresh."""


@runtime_checkable
class SharesShards(Protocol):
    """A checkpointer that divides the shards evenly among its group's consumers.

    Attributes:
        look_interval: seconds between two calls of `share`.
    """

    look_interval: float

    async def share(self, shard_ids: Collection[str], *, restartable: bool) -> bool:
        """Look at the group's leases, and choose those that `allocate` may give from now on, until the next call.

        Args:
            shard_ids: all shards that may be read now, here or elsewhere.
            restartable: whether a shard without a position may be taken from an owner that lives: it begins anew.

        Returns:
            Whether a shard was finished by somebody since the last look: there may be shards that are not listed yet.
        """


class BaseCheckPointer:
    """The common part of checkpointers: a name, an id, and counts of writes.

    Without a consumer, or `bind_metrics`, they count into the process's collector, for `STANDALONE_STREAM_LABEL`.

    Args:
        name: of the group of consumers that divide a stream.
        id: of this consumer in the group; the process id by default.
    """

    sub_sequences: ClassVar[bool] = False
    """Whether positions should name the last user record also where all of a record was processed."""

    def __init__(self, name: str = "", id: str | int | None = None) -> None:
        self._name = name
        self._id = os.getpid() if id is None else id
        self._stream: str | None = None
        self._metrics = get_metrics_collector()
        self._labels = {"stream_name": STANDALONE_STREAM_LABEL}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.get_ref()!r})"

    def get_id(self) -> str | int:
        """The consumer's id."""
        return self._id

    def get_ref(self) -> str:
        """The consumer among all: ``<name>/<id>``."""
        return f"{self._name}/{self._id}"

    def bind_stream(self, stream_name: str, region_name: str | None = None) -> None:
        """Keep positions of this stream only.

        Raises:
            AnotherStream: positions of another one were kept here.
        """
        del region_name
        if self._stream not in (None, stream_name):
            raise self._another(self._stream, stream_name)
        self._stream = stream_name

    def _check_stream(self, kept: str | None, where: str) -> None:
        """Refuse a position or lease that a consumer of another stream has left."""
        if kept is not None and self._stream is not None and kept != self._stream:
            raise self._another(kept, self._stream, f" in {where}")

    def _another(self, kept: str | None, wanted: str, where: str = "") -> AnotherStream:
        return AnotherStream(
            f"{self!r} keeps positions of stream {kept}{where}, and cannot keep those of {wanted} as well: use "
            "another checkpointer name for each stream"
        )

    def bind_metrics(self, collector: MetricsCollector, labels: dict[str, str]) -> None:
        """Count there, with these labels and shard_id."""
        self._metrics = collector
        self._labels = labels

    def _count(self, shard_id: str, *, written: bool) -> None:
        """Count a position that was written, or could not be."""
        outcome = MetricType.CONSUMER_CHECKPOINT_SUCCESS if written else MetricType.CONSUMER_CHECKPOINT_FAILURE
        self._metrics.increment(outcome, 1, {**self._labels, "shard_id": shard_id})


def is_later(position: str, than: str | None) -> bool:
    """Whether a position comes after another one of the same shard."""
    return than is None or _order(position) > _order(than)


def _order(position: str) -> tuple[float, float]:
    place = Place.parse(position)
    if place is None:
        return (math.inf if position == SHARD_END else -math.inf), 0
    return place.order
