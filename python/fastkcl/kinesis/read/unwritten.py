"""Records that are acknowledged, and come again: their positions are not written."""

from __future__ import annotations

from collections.abc import Mapping

from fastkcl.kinesis.read.fetch import ShardReader
from fastkcl.kinesis.read.holders import Holders
from fastkcl.kinesis.read.positions import Handed

__all__ = ["UNWRITTEN", "unwritten"]

UNWRITTEN = (
    "%s %s: records that are acknowledged come again to whoever continues, since their positions are not written: %s"
)


def unwritten(handed: Mapping[str, Handed], readers: Mapping[str, ShardReader], holders: Holders) -> dict[str, int]:
    """How many of each shard, where there are any.

    Args:
        handed: up to where shards are acknowledged, but for held records.
        readers: of the shards that are ours.
        holders: of the records.
    """
    capped = {shard_id: holders.cap(shard_id, handed[shard_id]) for shard_id in handed.keys() & readers.keys()}
    counts = {
        shard_id: place.rows - readers[shard_id].committed_rows
        for shard_id, place in sorted(capped.items())
        if place is not None and not readers[shard_id].lost
    }
    return {shard_id: count for shard_id, count in counts.items() if count > 0}
