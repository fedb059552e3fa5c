"""The shards of a stream, as the service lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastkcl._core import ChildShard
from fastkcl.kinesis.shards import ShardRange

__all__ = ["Shard"]


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
        """Whether no records are added any more."""
        return "EndingSequenceNumber" in self.sequence_range

    @property
    def range(self) -> ShardRange:
        """What a `ShardMap` needs of it."""
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
        """From what GetRecords says at the end of a parent."""
        return cls(shard_id=child.shard_id, parents=child.parent_shards, hash_range=child.hash_range)
