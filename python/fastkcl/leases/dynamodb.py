"""Leases in our own DynamoDB table: `shard_id`, `ref` (the owner), `ts` (second of its last renewal), `sequence`.

`stream` is the stream's name, and `ended` is true when all of the shard is processed. The table has no clock, so a
lease runs out when its item stood still for the failover time. The clocks of two machines are compared only where no
two can differ so much: DynamoDB refuses requests that are signed five minutes before or after its own time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastkcl.leases.keeper import Take, Why
from fastkcl.leases.lease import Lease

__all__ = ["GRAIN", "lease", "seize_condition"]

GRAIN = 1.0
"""Renewals are stamped with whole seconds."""
CLOCKS_DIFFER = 600.0
"""Seconds, at the most, between the clocks of two members."""


def lease(item: Mapping[str, Mapping[str, Any]], now: float, failover: float) -> Lease:
    """An item's content.

    Args:
        item: with the wire's values.
        now: by the clock of this machine.
        failover: seconds without a renewal after which a lease is free.
    """
    stamp = item.get("ts", {}).get("N")
    owner = item.get("ref", {}).get("S") if stamp is not None else None
    return Lease(
        key=str(item["shard_id"]["S"]),
        owner=owner,
        version=stamp,
        finished=item.get("ended", {}).get("BOOL") is True,
        placed="S" in item.get("sequence", {}),
        stream=item.get("stream", {}).get("S"),
        expired=stamp is not None and now - float(stamp) > failover + CLOCKS_DIFFER,
    )


def seize_condition(take: Take) -> tuple[str, dict[str, dict[str, str]]]:
    """Condition of a take, and its values: of a lease that ran out the last renewal is compared, too."""
    assert take.seen is not None
    assert take.seen.owner is not None
    values = {"seen": {"S": take.seen.owner}}
    if take.why is Why.BALANCE:
        return "#ref = :seen", values
    return "#ref = :seen AND #ts = :still", values | {"still": {"N": str(take.seen.version)}}
