"""Leases in KCL's table: `leaseKey`, `leaseOwner`, `leaseCounter`, `checkpoint`, and `checkpointOwner` of a handover.

The counter goes up with each write, so it is the version, and no clock is needed. KCL counts finished leases as load.
Here they are none, and its workers agree with ours all the same: our share is never more than theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastkcl.leases.lease import Lease

__all__ = ["is_of_shard", "lease"]


def lease(item: Mapping[str, Mapping[str, Any]]) -> Lease:
    """An item's content, with the wire's values."""
    owner, handing = (item.get(name, {}).get("S") for name in ("leaseOwner", "checkpointOwner"))
    checkpoint = item.get("checkpoint", {}).get("S")
    return Lease(
        key=str(item["leaseKey"]["S"]),
        owner=handing or owner,
        version=int(item.get("leaseCounter", {}).get("N", 0)),
        heir=owner if handing else None,
        finished=checkpoint == "SHARD_END",
        placed=checkpoint != "LATEST",
        stream=item.get("fastkclStream", {}).get("S"),
    )


def is_of_shard(item: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether an item is a lease of a shard, of a table for one stream."""
    return str(item["leaseKey"]["S"]).startswith("shardId-")
