"""One keeper, step by step: the leases that it takes, and those that it leaves, by its view of the group."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from fastkcl.leases import Keeper, Lease, Rules, Take, Why
from fastkcl.leases.balance import target

FAILOVER = 9.0
ALL = ["a", "b", "c", "d", "e", "f"]


def keeper(**rules: Any) -> Keeper:
    return Keeper("me", Rules(**{"failover": FAILOVER, "renew_every": 3.0, **rules}), Random(1))


def leases(**owners: str | None) -> list[Lease]:
    return [Lease(key=key, owner=owner, version=1) for key, owner in owners.items()]


def looked(keeper: Keeper, rows: list[Lease], at: float = 0.0) -> list[str]:
    return keeper.looked(rows, began=at, ended=at)


def taken(takes: list[Take]) -> dict[str, Why]:
    return {take.key: take.why for take in takes}


def hold(keeper: Keeper, *keys: str, at: float = 0.0) -> None:
    for key in keys:
        keeper.held(key, asked=at, answered=at)


@pytest.mark.parametrize(
    ("count", "members", "most", "share"),
    [(8, 1, None, 8), (8, 3, None, 3), (8, 4, None, 2), (2, 4, None, 1), (0, 2, None, 0), (8, 2, 3, 3)],
)
def test_targets(count: int, members: int, most: int | None, share: int) -> None:
    assert target(count, members, most) == share


def test_what_has_no_row_is_free() -> None:
    one = keeper()
    looked(one, [])
    assert taken(one.takes(ALL, 0)) == dict.fromkeys(ALL, Why.FREE)


def test_free_leases_up_to_the_target() -> None:
    one = keeper()
    rows = leases(a="other", b="other", c=None, d=None, e=None, f=None)
    looked(one, rows)
    takes = one.takes(ALL, 0)
    assert len(takes) == 3
    assert {take.why for take in takes} == {Why.FREE}
    assert {take.key for take in takes} <= {*"cdef"}
    assert {take.seen for take in takes} <= {*rows}


def test_free_leases_that_nobody_takes() -> None:
    """They are taken beyond the target, as the member with room for them may be this one."""
    one = keeper(overdue=1.5)
    rows = leases(a="me", b="me", c="me", d="full", e=None, f=None)
    hold(one, *"abc", at=0)
    looked(one, rows)
    assert one.takes(ALL, 0) == []
    hold(one, *"abc", at=8)
    rows = [*rows[:3], Lease(key="d", owner="full", version=2), *rows[4:]]
    looked(one, rows, 13)
    hold(one, *"abc", at=13)
    assert one.takes(ALL, 13) == []
    rows = [*rows[:3], Lease(key="d", owner="full", version=3), *rows[4:]]
    looked(one, rows, 13.5)
    assert taken(one.takes(ALL, 13.5)) == {"e": Why.FREE, "f": Why.FREE}


def test_at_the_most() -> None:
    one = keeper(max_leases=2)
    looked(one, leases(a=None, b=None, c=None))
    assert len(one.takes(["a", "b", "c"], 0)) == 2
    looked(one, leases(a=None, b=None, c=None), 20)
    assert len(one.takes(["a", "b", "c"], 20)) == 2


@pytest.mark.parametrize(("most", "count"), [(None, 3), (1, 1), (2, 2)])
def test_stealing(most: int | None, count: int) -> None:
    one = keeper(max_to_steal=most)
    looked(one, leases(a="x", b="x", c="x", d="x", e="x", f="x"))
    takes = one.takes(ALL, 0)
    assert len(takes) == count
    assert {take.why for take in takes} == {Why.BALANCE}


def test_from_who_has_most() -> None:
    one = keeper()
    looked(one, leases(a="x", b="y", c="y", d="y", e="y", f="x"))
    assert {take.seen.owner for take in one.takes(ALL, 0) if take.seen is not None} == {"y"}
    assert len(one.takes(ALL, 0)) == 2


def test_who_has_nothing_takes_one_of_two_targets() -> None:
    """Three have two each, which is the target, and so it would stay."""
    one = keeper()
    looked(one, leases(a="x", b="x", c="y", d="y", e="z", f="z"))
    assert [take.why for take in one.takes(ALL, 0)] == [Why.BALANCE]


def test_who_has_one_less_than_the_target_takes_none() -> None:
    one = keeper()
    looked(one, leases(a="me", b="y", c="y", d="z", e="z"))
    hold(one, "a")
    assert one.takes(ALL[:5], 0) == []


def test_more_members_than_leases() -> None:
    one = keeper()
    looked(one, leases(a="x", b="y"))
    assert one.takes(["a", "b"], 0) == []


def test_what_cannot_be_served_is_load_and_is_not_taken() -> None:
    one = keeper()
    looked(one, leases(a="x", b="x", c=None, d="y"))
    takes = one.takes(["a", "b"], 0)
    assert taken(takes).keys() <= {"a", "b"}
    assert len(takes) == 1


def test_a_finished_lease_is_nobodys() -> None:
    one = keeper()
    looked(one, [Lease(key="a", owner="x", finished=True), Lease(key="b", finished=True), *leases(c="x", d="x")])
    assert one.finished == {"a", "b"}
    assert len(one.takes(["a", "b", "c", "d"], 0)) == 1


def test_a_lease_that_is_handed_over() -> None:
    """It is its heir's load, and nobody steals it; the owner keeps it until it lets go."""
    one = keeper()
    handed = [Lease(key=key, owner="x", heir="y", version=1) for key in "abcd"]
    looked(one, handed)
    assert one.takes(list("abcd"), 0) == []
    looked(one, handed, FAILOVER)
    assert one.takes(list("abcd"), FAILOVER) != []
    ours = keeper()
    hold(ours, "a")
    assert looked(ours, [Lease(key="a", owner="me", heir="y", version=1)], 1) == []
    assert ours.holds("a", 1)


def test_a_lease_without_a_position() -> None:
    one = keeper()
    rows = [Lease(key="a", owner="x", version=1, placed=False), *leases(b="x")]
    looked(one, rows)
    assert taken(one.takes(["a", "b"], 0, restartable=False)) == {"b": Why.BALANCE}
    looked(one, [Lease(key="a", owner="x", version=1, placed=False)], FAILOVER)
    assert taken(one.takes(["a"], FAILOVER, restartable=False)) == {"a": Why.EXPIRED}


def test_a_row_that_names_us() -> None:
    """An answer got lost, or a process of this name died."""
    one = keeper()
    looked(one, leases(a="me", b="x"))
    assert taken(one.takes(["a", "b"], 0)) == {"a": Why.OURS}


def test_how_long_a_lease_stands_still() -> None:
    one = keeper(grain=1.0)
    row = leases(a="x")
    one.looked(row, began=0, ended=2)
    one.looked(row, began=11.9, ended=12.5)
    assert one.takes(["a"], 12.5) == []
    one.looked(row, began=12, ended=13)
    assert taken(one.takes(["a"], 13)) == {"a": Why.EXPIRED}
    one.looked([Lease(key="a", owner="x", version=2)], began=14, ended=14)
    assert one.takes(["a"], 14) == []
    one.looked([Lease(key="a", owner="x", version=2, expired=True)], began=15, ended=15)
    assert taken(one.takes(["a"], 15)) == {"a": Why.EXPIRED}


def test_how_long_a_lease_is_believed_in() -> None:
    one = keeper()
    one.held("a", asked=1, answered=5)
    assert one.holds("a", 9.9)
    assert not one.holds("a", 10)
    one.renewed("a", asked=4, answered=9)
    assert one.holds("a", 12.9)
    one.renewed("a", asked=2, answered=12)  # a slow one, asked before
    assert one.holds("a", 12.9)
    assert not one.holds("a", 13)
    one.dropped("a")
    one.renewed("a", asked=13, answered=13)
    assert not one.holds("a", 13)


def test_renewals() -> None:
    one = keeper()
    hold(one, "a", at=0)
    hold(one, "b", at=2)
    assert one.renewals(2.9) == []
    assert [renewal.key for renewal in one.renewals(3)] == ["a"]
    assert [renewal.key for renewal in one.renewals(4.5, late=True)] == ["a"]
    assert [renewal.key for renewal in one.renewals(8.9)] == ["a", "b"]
    assert [renewal.key for renewal in one.renewals(9)] == ["b"]  # nothing wakes it any more


def test_a_look_shows_what_was_lost() -> None:
    one = keeper()
    one.held("a", asked=1, answered=2)
    one.held("b", asked=1, answered=2)
    assert one.looked(leases(a=None, b="x"), began=1.5, ended=3) == []  # from before the answer
    assert one.looked(leases(a="me", b="x"), began=4, ended=5) == ["b"]
    assert not one.holds("b", 5)
    assert one.holds("a", 5)


@pytest.mark.parametrize("renew_every", [0, 9, 10])
def test_rules_that_lose_every_lease(renew_every: float) -> None:
    with pytest.raises(ValueError, match="renew_every"):
        keeper(renew_every=renew_every)
