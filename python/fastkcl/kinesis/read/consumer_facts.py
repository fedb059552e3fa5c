"""Questions that a consumer answers at once: its options, and its shards as it knows them."""

from __future__ import annotations

from typing import Any

from fastkcl.kinesis.checkpoints.base import CheckPointer
from fastkcl.kinesis.items.aggregators import BaseAggregator
from fastkcl.kinesis.read.reading import IteratorType, StreamReader

__all__ = ["ConsumerFacts"]


class ConsumerFacts:
    """The part of `Consumer` that only reads its attributes."""

    _checkpointer: CheckPointer
    _processor: BaseAggregator
    _stream: StreamReader

    @property
    def checkpointer(self) -> CheckPointer:
        """The checkpointer."""
        return self._checkpointer

    @property
    def processor(self) -> BaseAggregator:
        """The processor."""
        return self._processor

    @property
    def iterator_type(self) -> IteratorType:
        """The option of this name."""
        return self._stream.options.iterator_type

    @property
    def max_shard_consumers(self) -> int | None:
        """The option of this name."""
        return self._stream.options.max_shard_consumers

    @property
    def record_limit(self) -> int:
        """The option of this name."""
        return self._stream.options.record_limit

    @property
    def shard_fetch_rate(self) -> float:
        """The option of this name, in calls a second."""
        return self._stream.options.shard_fetch_rate

    def get_shard_status(self) -> dict[str, Any]:
        """The shards as they are known now.

        Returns:
            total_shards, active_shards, closed_shards, allocated_shards, parent_shards, child_shards,
            exhausted_parents, expired_parents: counts. resharding_in_progress: bool. topology: parent_child_map and
            child_parent_map, each of ids to lists of ids. shard_details, for each shard: shard_id, is_allocated,
            is_closed, has_iterator, sequence_range, parent_shard_id, is_parent, is_child, can_allocate, and stats
            (throttled and success, or None where it is not read here).
        """
        return self._stream.status()

    def is_resharding_likely_in_progress(self) -> bool:
        """Whether a shard waits for its parents, or has ended without children that are known."""
        return self._stream.topology.is_resharding
