"""Which open shard owns a partition key.

The MD5 of a key is its hash key, and the open shards of a stream divide all hash keys among them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from hashlib import md5
from typing import Any, NamedTuple

__all__ = ["ShardMap", "ShardRange", "hash_key"]


def hash_key(partition_key: str) -> int:
    """Where a partition key lies among the hash keys, 0 to 2**128 - 1."""
    return int.from_bytes(md5(partition_key.encode(), usedforsecurity=False).digest())


class ShardRange(NamedTuple):
    """A shard and its hash keys, the first and the last."""

    shard_id: str
    low: int
    high: int
    is_open: bool


class ShardMap:
    """The shards of a stream at one moment.

    Args:
        shards: all of them, closed ones too.
    """

    def __init__(self, shards: Iterable[ShardRange]) -> None:
        self._by_id = {shard.shard_id: shard for shard in shards}
        self._open = sorted((shard for shard in self._by_id.values() if shard.is_open), key=lambda shard: shard.low)
        self._lows = [shard.low for shard in self._open]

    @classmethod
    def of(cls, client: Any, stream: str) -> ShardMap:  # noqa: ANN401 - boto3's clients have no types
        """Ask the service."""
        pages = client.get_paginator("list_shards").paginate(StreamName=stream)
        return cls(
            ShardRange(
                shard["ShardId"],
                int(shard["HashKeyRange"]["StartingHashKey"]),
                int(shard["HashKeyRange"]["EndingHashKey"]),
                "EndingSequenceNumber" not in shard["SequenceNumberRange"],
            )
            for page in pages
            for shard in page["Shards"]
        )

    def owner(self, partition_key: str) -> str:
        """Id of the open shard that the key belongs to."""
        return self.owner_of(hash_key(partition_key))

    def owner_of(self, key: int) -> str:
        """Id of the open shard that has a hash key, 0 to 2**128 - 1."""
        return self._open[bisect_right(self._lows, key) - 1].shard_id

    def owns(self, shard_id: str, partition_key: str) -> bool:
        """Whether the key belongs to that shard, open or closed; False if the map does not have it."""
        shard = self._by_id.get(shard_id)
        return shard is not None and shard.low <= hash_key(partition_key) <= shard.high
