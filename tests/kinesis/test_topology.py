"""Which shards may be read, and where they begin: `Topology`, without I/O."""

from collections.abc import Sequence
from typing import Any

import pytest
from fastkcl.kinesis.topology import Origin, Shard, Topology


def shard(shard_id: str, *parents: str, closed: bool = False) -> Shard:
    ends = {"EndingSequenceNumber": "9"} if closed else {}
    return Shard(
        shard_id=shard_id, parents=parents, hash_range=(0, 9), sequence_range={"StartingSequenceNumber": "1", **ends}
    )


def ids(shards: Sequence[Shard]) -> list[str]:
    return [each.shard_id for each in shards]


SPLIT = [shard("0", closed=True), shard("1"), shard("2", "0"), shard("3", "0")]
MERGED = [shard("0", closed=True), shard("1", closed=True), shard("2", "0", "1")]


@pytest.mark.parametrize(
    ("shards", "finished", "startable"),
    [
        (SPLIT, [], "01"),
        (SPLIT, ["0"], "123"),
        (SPLIT, ["0", "1"], "23"),
        (SPLIT[1:], [], "123"),  # the parent is not listed any more
        (MERGED, [], "01"),
        (MERGED, ["0"], "1"),
        (MERGED, ["1"], "0"),
        (MERGED, ["0", "1"], "2"),
        (MERGED[1:], [], "1"),
        (MERGED[1:], ["1"], "2"),
        (MERGED[2:], [], "2"),
        ([], [], ""),
    ],
)
def test_a_child_waits_for_all_parents(shards: list[Shard], finished: list[str], startable: str) -> None:
    topology = Topology()
    topology.listed(shards)
    for shard_id in finished:
        topology.finish(shard_id)
    assert "".join(ids(topology.startable)) == startable


def test_children_that_a_list_does_not_have_yet() -> None:
    topology = Topology()
    topology.listed([shard("0")])
    topology.ended("0")
    topology.add_children([shard("1", "0"), shard("2", "0")])
    topology.listed([shard("0")])  # an older one
    assert ids(topology.startable) == ["0"]
    topology.finish("0")
    assert ids(topology.startable) == ["1", "2"]
    topology.listed([shard("0", closed=True), shard("1", "0"), shard("2", "0")])
    topology.listed([shard("1", "0")])  # from now on, what is not listed is gone
    assert ids(topology.startable) == ["1"]
    assert topology.expired == {"0"}


ORIGINS: list[tuple[str, list[Any], bool, str]] = [
    # what happens before, and where the last one begins
    ("an open shard", [("0", False)], True, "ITERATOR_TYPE"),
    ("with a position", [("0", True)], True, "POSITION"),
    ("closed before, with a position", [("c", True)], True, "POSITION"),
    ("closed before, without, LATEST", [("c", False)], True, "NOWHERE"),
    ("closed before, without, TRIM_HORIZON", [("c", False)], False, "ITERATOR_TYPE"),
    ("closed child of one that was passed", [("c", False), ("d", False)], True, "NOWHERE"),
    ("child of one that was read", [("c", True), ("d", False)], True, "TRIM_HORIZON"),
    ("grandchild of one that was read", [("c", True), ("d", False), ("e", False)], True, "TRIM_HORIZON"),
    ("grandchild of one that was passed", [("c", False), ("d", False), ("e", False)], True, "ITERATOR_TYPE"),
    ("child of a split that was seen", [("0", False), ("9", False)], True, "TRIM_HORIZON"),
]


@pytest.mark.parametrize(("before", "at_latest", "origin"), [case[1:] for case in ORIGINS], ids=[c[0] for c in ORIGINS])
def test_where_a_shard_begins(before: list[tuple[str, bool]], at_latest: bool, origin: str) -> None:
    topology = Topology()
    topology.listed([shard("0"), shard("c", closed=True), shard("d", "c", closed=True), shard("e", "d")])
    begun = None
    for shard_id, has_position in before:
        if shard_id == "9":
            topology.add_children([shard("9", "0")])
        begun = topology.begin(shard_id, has_position=has_position, at_latest=at_latest)
        topology.finish(shard_id)
    assert begun is Origin[origin]


def test_a_shard_that_the_group_has_finished() -> None:
    topology = Topology()
    topology.listed(SPLIT)
    topology.finish_for_all("0")
    assert topology.begin("2", has_position=False, at_latest=True) is Origin.TRIM_HORIZON


def test_maps() -> None:
    topology = Topology()
    topology.listed([*MERGED, shard("3", "gone")])
    assert topology.children == {"0": ["2"], "1": ["2"], "gone": ["3"]}
    assert topology.parents == {"2": ["0", "1"], "3": ["gone"]}
    assert topology.expired == {"gone"}


@pytest.mark.parametrize(
    ("shards", "finished", "resharding"),
    [
        ([shard("0")], [], False),
        ([shard("0", closed=True)], [], True),  # children to come
        (SPLIT, [], True),
        (SPLIT, ["0"], False),
        (MERGED, ["0"], True),
        (MERGED, ["0", "1"], False),
    ],
)
def test_whether_it_is_being_resharded(shards: list[Shard], finished: list[str], resharding: bool) -> None:
    topology = Topology()
    assert not topology.is_resharding
    topology.listed(shards)
    for shard_id in finished:
        topology.finish(shard_id)
    assert topology.is_resharding is resharding


def test_nothing_is_kept_of_shards_that_are_gone() -> None:
    topology = Topology()
    for number in range(100):
        topology.listed([shard(str(number), str(number - 1))])
        topology.finish(str(number))
    assert len(topology._finished) <= 2
