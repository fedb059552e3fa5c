"""Which shards enter an offset, and which leave it.

    0 ──┬─▶ 2      offset n     0: 4968…           2 and 3 wait
        └─▶ 3      offset n+1   0: END             its last records are in this batch: 2 and 3 wait
                   offset n+2   2: 4971…, 3: TRIM  0 leaves, as its children stand in the offset

A key keeps its order from batch to batch, as a shard enters when its parents were finished in an earlier batch, or
have no records in this one.

Rules: no state. A listed shard that is not in the offset is *past* if a descendant of it is, and *future* otherwise. So
`END` stays until each child is in the offset, or past. A parent that is neither listed nor in the offset is gone with
its records. A parent in the offset counts even if a list lacks it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fastkcl.kinesis.read.plan.offset import END, TRIM, Position
from fastkcl.kinesis.topology import Shard

__all__ = ["beginning", "entering", "leaving"]

Shards = Mapping[str, Shard]
Positions = Mapping[str, Position]


def beginning(shards: Shards, initial: Position | None, now: int) -> dict[str, Position]:
    """The positions of a stream that is new to the checkpoint.

    Args:
        shards: as they are listed.
        initial: `TRIM` or a time, for shards without listed parents; the others follow them. None for the latest
            record: open shards begin at the time `now`, and closed ones are not read.
        now: the service's time, in ms.
    """
    if initial is not None:
        return {key: initial for key, shard in shards.items() if not any(parent in shards for parent in shard.parents)}
    positions = {key: END if shard.is_closed else Position.since(now) for key, shard in shards.items()}
    left = leaving(shards, positions, ())
    return {key: position for key, position in positions.items() if key not in left}


def entering(
    shards: Shards,
    positions: Positions,
    times: Mapping[str, int],
) -> dict[str, Position]:
    """The shards that may be read now, in addition, and where they begin.

    Args:
        shards: as they are listed.
        positions: those of the offset; `END` where a batch before this one has all records of the shard.
        times: of parents that have ended without a record since this time, in ms; a shard with such parents only
            begins there, and any other at its first record.
    """
    past = _ancestors(shards, positions)
    found = {}
    for key, shard in shards.items():
        if key in positions or key in past:
            continue
        parents = [key for key in shard.parents if key in positions or (key in shards and key not in past)]
        if all(positions.get(parent) == END for parent in parents):
            untouched = bool(shard.parents) and all(parent in times for parent in shard.parents)
            found[key] = Position.since(min(times[parent] for parent in shard.parents)) if untouched else TRIM
    return found


def leaving(shards: Shards, positions: Positions, with_records: Collection[str]) -> set[str]:
    """The shards at their `END` that nobody needs to know of any more.

    Args:
        shards: as they are listed.
        positions: those of the offset.
        with_records: shards that have records in this batch, which stay.
    """
    past = _ancestors(shards, positions)
    children: dict[str, list[str]] = {}
    for key, shard in shards.items():
        for parent in shard.parents:
            children.setdefault(parent, []).append(key)
    return {
        key
        for key, position in positions.items()
        if position == END
        and key not in with_records
        and all(child in positions or child in past for child in children.get(key, ()))
        and (key not in shards or key in children)
    }


def _ancestors(shards: Shards, keys: Iterable[str]) -> set[str]:
    found: set[str] = set()
    waiting = [parent for key in keys if key in shards for parent in shards[key].parents]
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting += shards[key].parents if key in shards else ()
    return found
