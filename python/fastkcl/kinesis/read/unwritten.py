"""Records that are acknowledged, and come again: their positions are not written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fastkcl.kinesis.read.acknowledging import AckDelivery
from fastkcl.kinesis.read.delivery import Delivery
from fastkcl.kinesis.read.fetch import ShardReader
from fastkcl.kinesis.read.holders import Holders
from fastkcl.kinesis.read.positions import Handed
from fastkcl.stdio.log import module_logger

__all__ = ["UNWRITTEN", "report_partly", "unwritten"]

log = module_logger(__name__)

UNWRITTEN = (
    "%s %s: records that are acknowledged come again to whoever continues, since their positions are not written: %s"
)


def report_partly(title: str, deliveries: Iterable[Delivery | AckDelivery]) -> None:
    """Log which records come again for the sake of their other items: no position is inside of a record of items.

    Args:
        title: the consumer's.
        deliveries: that it leaves.
    """
    for delivery in deliveries:
        partly = delivery.partly
        if partly is not None and not delivery.fetched.reader.lost:
            log.warning(
                "%s: %s: record %s comes again with all of its items, of which %d are acknowledged",
                title,
                delivery.fetched.reader.shard_id,
                partly.sequence_number,
                partly.items,
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
