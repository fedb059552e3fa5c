"""The shards of a stream, and which of them may be read now.

A stream's shards form a graph: a split makes two children of a parent, a merge one child of two parents. Records of a
key go to the parent first and to a child afterwards, so a child is read when each of its parents is finished:

    0 ──┬─▶ 2 ──┐         0 is split into 2 and 3, then 2 and 1 are merged into 4:
        └─▶ 3   ├─▶ 4     2 and 3 wait for 0, and 4 for 2 and 1
    1 ──────────┘

Rules: no I/O and no clock. A shard is finished when it was read to its end and its records were handed over, or when
it is finished for everybody (SHARD_END). A parent that is no longer listed is gone with its records, so it counts as
finished. The start of a shard without a position depends on how the shard came to exist: see `Topology.begin`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fastkcl._core import ChildShard
from fastkcl.kinesis.exceptions import AnotherStream
from fastkcl.shard import ShardRange

__all__ = ["Origin", "Shard", "Topology"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A shard as the service lists it.

    Attributes:
        shard_id: e.g. ``shardId-000000000000``.
        parents: none, one after a split, two after a merge.
        hash_range: the lowest and the highest hash key that it owns.
        sequence_range: as the service gives it; an EndingSequenceNumber of closed shards only.
    """

    shard_id: str
    parents: tuple[str, ...] = ()
    hash_range: tuple[int, int]
    sequence_range: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_closed(self) -> bool:
        """Whether no more records are added."""
        return "EndingSequenceNumber" in self.sequence_range

    @property
    def starting_sequence_number(self) -> str | None:
        """The lower bound of its records' numbers; None if that is not known."""
        return self.sequence_range.get("StartingSequenceNumber")

    def begins_like(self, other: Shard) -> bool:
        """Whether a shard of the same id can be the same."""
        mine, others = self.starting_sequence_number, other.starting_sequence_number
        return mine is None or others is None or mine == others

    @property
    def range(self) -> ShardRange:
        """Its part for a `ShardMap`."""
        return ShardRange(self.shard_id, *self.hash_range, not self.is_closed)

    @classmethod
    def from_answer(cls, shard: Mapping[str, Any]) -> Shard:
        """From an element of ListShards' or DescribeStream's answer."""
        parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
        return cls(
            shard_id=shard["ShardId"],
            parents=tuple(parent for parent in parents if parent is not None),
            hash_range=(
                int(shard["HashKeyRange"]["StartingHashKey"]),
                int(shard["HashKeyRange"]["EndingHashKey"]),
            ),
            sequence_range=dict(shard["SequenceNumberRange"]),
        )

    @classmethod
    def from_child(cls, child: ChildShard) -> Shard:
        """From the answer of GetRecords at the end of a parent."""
        return cls(shard_id=child.shard_id, parents=child.parent_shards, hash_range=child.hash_range)


class Origin(Enum):
    """Where a shard begins."""

    POSITION = "position"
    """After the position that is kept for it."""
    TRIM_HORIZON = "TRIM_HORIZON"
    """At its first record: it follows a shard that was read."""
    ITERATOR_TYPE = "iterator_type"
    """Where the consumer's options say."""
    NOWHERE = "nowhere"
    """It was closed before the consumer started at the latest record, so there is nothing to read."""


class Topology:
    """The shards of a stream, as one consumer knows them."""

    def __init__(self) -> None:
        self._shards: dict[str, Shard] = {}
        self._from_parents: set[str] = set()  # named by GetRecords, and not listed yet
        self._at_first: frozenset[str] | None = None  # in the first list
        self._finished: set[str] = set()
        self._ended: set[str] = set()  # closed, as the last answer has shown
        self._followed: set[str] = set()  # read from a position or from the first record on
        self._expired: set[str] = set()  # parents that are not listed any more

    # Input.

    def listed(self, shards: Iterable[Shard]) -> None:
        """All shards of the stream, of all pages.

        Raises:
            AnotherStream: a shard begins with another sequence number than before: the stream was made again.
        """
        listed = {shard.shard_id: shard for shard in shards}
        for shard in listed.values():
            before = self._shards.get(shard.shard_id)
            if before is not None and not shard.begins_like(before):
                raise AnotherStream(
                    f"the stream was deleted, and there is another one of its name: {shard.shard_id} begins with "
                    f"sequence number {shard.starting_sequence_number}, and began with "
                    f"{before.starting_sequence_number}. Start again with another checkpointer name to read it"
                )
        if self._at_first is None:
            self._at_first = frozenset(listed)
        # A list can be older than an answer of GetRecords.
        self._from_parents -= listed.keys()
        for shard_id in self._from_parents:
            listed[shard_id] = self._shards[shard_id]
        self._shards = dict(sorted(listed.items()))
        parents = {parent for shard in self._shards.values() for parent in shard.parents}
        self._expired = parents - self._shards.keys()
        known = parents | self._shards.keys()
        for names in (self._finished, self._ended, self._followed):
            names &= known

    def start_over(self) -> None:
        """Nothing was begun yet: the next list is the first."""
        self._at_first = None

    def add_children(self, children: Iterable[Shard]) -> None:
        """Children named by GetRecords at the end of a shard; a list may not have them yet."""
        for child in children:
            if child.shard_id not in self._shards:
                self._shards[child.shard_id] = child
                self._from_parents.add(child.shard_id)

    def ended(self, shard_id: str) -> None:
        """A shard was read to its end; its records may not be handed over yet."""
        self._ended.add(shard_id)

    def finish(self, shard_id: str) -> None:
        """A shard is finished: its children may start."""
        self._finished.add(shard_id)
        self._ended.add(shard_id)

    def finish_for_all(self, shard_id: str) -> None:
        """A shard was finished by somebody: its children may start, with their first records."""
        self.finish(shard_id)
        self._followed.add(shard_id)

    def begin(self, shard_id: str, *, has_position: bool, at_latest: bool) -> Origin:
        """Decide where a shard begins that the consumer has been given.

        Args:
            shard_id: which.
            has_position: whether a position is kept for it.
            at_latest: whether the consumer's option is to begin at the latest record.
        """
        if has_position:
            self._followed.add(shard_id)
            return Origin.POSITION
        parents = self._shards[shard_id].parents if shard_id in self._shards else ()
        if self._at_first is None or shard_id not in self._at_first or not self._followed.isdisjoint(parents):
            self._followed.add(shard_id)
            return Origin.TRIM_HORIZON
        if at_latest and self.is_closed(shard_id):
            return Origin.NOWHERE
        return Origin.ITERATOR_TYPE

    # Questions.

    def has(self, shard_id: str) -> bool:
        """Whether the stream has it: it is listed, or a parent's end has named it and no list is newer."""
        return shard_id in self._shards

    @property
    def shards(self) -> list[Shard]:
        """All of them, by their ids."""
        return [self._shards[shard_id] for shard_id in sorted(self._shards)]

    def is_closed(self, shard_id: str) -> bool:
        """Whether no more records are added, as far as is known."""
        shard = self._shards.get(shard_id)
        return shard_id in self._ended or (shard is not None and shard.is_closed)

    def is_finished(self, shard_id: str) -> bool:
        """Whether nobody needs to read it any longer."""
        return shard_id in self._finished

    def can_start(self, shard_id: str) -> bool:
        """Whether it may be read: it is not finished, and each of its parents is finished or gone."""
        shard = self._shards.get(shard_id)
        return (
            shard is not None
            and shard_id not in self._finished
            and all(parent in self._finished or parent not in self._shards for parent in shard.parents)
        )

    @property
    def startable(self) -> list[Shard]:
        """The shards that may be read, in the order of their ids: older ones first."""
        return [shard for shard in self.shards if self.can_start(shard.shard_id)]

    @property
    def children(self) -> dict[str, list[str]]:
        """Each parent that is listed or gone, and its children."""
        found: dict[str, list[str]] = {}
        for shard in self.shards:
            for parent in shard.parents:
                found.setdefault(parent, []).append(shard.shard_id)
        return found

    @property
    def parents(self) -> dict[str, list[str]]:
        """Each child and its parents, both after a merge."""
        return {shard.shard_id: list(shard.parents) for shard in self.shards if shard.parents}

    @property
    def expired(self) -> frozenset[str]:
        """Parents that are no longer listed."""
        return frozenset(self._expired)

    @property
    def is_resharding(self) -> bool:
        """Whether a shard waits for a parent, or has ended and its children are not known yet."""
        children = self.children
        return any(
            not self.is_finished(shard.shard_id)
            and (
                not self.can_start(shard.shard_id)
                or (self.is_closed(shard.shard_id) and shard.shard_id not in children)
            )
            for shard in self.shards
        )
