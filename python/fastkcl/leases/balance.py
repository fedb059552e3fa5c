"""Chooses the leases that a member takes: KCL 2's targets and stealing, as a function.

A member's target is its share of the leases, rounded up. Below it a member takes free leases; where there are none, it
steals from the member that has most, down to the target of that one, or one lease of two that have their target while
it has none. So all members come to differ by one lease at the most.

Rules: members do not talk to each other. The rows that every member sees are enough; if two want one lease, the table
decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from random import Random

__all__ = ["choose", "target"]


def target(leases: int, members: int, most: int | None = None) -> int:
    """How many leases a member should have.

    Args:
        leases: that there are, free ones included.
        members: that own leases, this one included.
        most: leases of this member at the most; None for any number.
    """
    share = -(-leases // members)
    return share if most is None else min(share, most)


def choose(
    me: str,
    *,
    free: Collection[str],
    overdue: Collection[str],
    owned: Mapping[str, str],
    stealable: Collection[str],
    max_leases: int | None,
    max_to_steal: int | None,
    chance: Random,
) -> tuple[list[str], list[str]]:
    """Choose the leases to take.

    Args:
        me: this member.
        free: leases that nobody has, or whose owner is gone.
        overdue: those of them that have waited too long, and are taken beyond the target.
        owned: owners of the leases that live, ours included.
        stealable: those of them that may be stolen.
        max_leases: of this member; None for any number.
        max_to_steal: at once; None for as many as are needed.
        chance: two members that see the same should not want the same.

    Returns:
        The free leases to take, and the owned ones to steal. One of both is empty.
    """
    loads = Counter(owned.values())
    mine = loads[me]
    members = len(loads.keys() | {me})
    leases = len(owned) + len(free)
    share = target(leases, members)
    needed = target(leases, members, max_leases) - mine
    room = leases if max_leases is None else max_leases - mine
    late, others = sorted(overdue), sorted(set(free) - set(overdue))
    chance.shuffle(late)
    chance.shuffle(others)
    taken = late[: max(room, 0)]
    taken += others[: max(needed - len(taken), 0)]
    if taken or free or needed <= 0:
        return taken, []
    return [], _steal(me, loads, owned, stealable, share, needed, max_to_steal, chance)


def _steal(
    me: str,
    loads: Counter[str],
    owned: Mapping[str, str],
    stealable: Collection[str],
    share: int,
    needed: int,
    max_to_steal: int | None,
    chance: Random,
) -> list[str]:
    theirs: dict[str, list[str]] = {}
    for key in sorted(stealable):
        theirs.setdefault(owned[key], []).append(key)
    theirs.pop(me, None)
    if not theirs:
        return []
    most = max(loads[owner] for owner in theirs)
    keys = theirs[chance.choice(sorted(owner for owner in theirs if loads[owner] == most))]
    count = min(needed, most - share)
    if count <= 0 and needed > 1 and most == share:
        count = 1
    if max_to_steal is not None:
        count = min(count, max_to_steal)
    return chance.sample(keys, min(max(count, 0), len(keys)))
