"""Which shards enter an offset, and which leave it."""

from __future__ import annotations

import pytest
from fastkcl.kinesis.read.plan import TRIM, Position
from fastkcl.kinesis.read.plan.generations import beginning, entering, leaving
from fastkcl.kinesis.topology import Shard


def shards(text: str) -> dict[str, Shard]:
    """From ``a- b:a c:a,b-``: ids, parents, and a minus for closed ones."""
    found = {}
    for part in text.split():
        key, _, parents = part.rstrip("-").partition(":")
        numbers = {"EndingSequenceNumber": "9"} if part.endswith("-") else {}
        found[key] = Shard(
            shard_id=key, parents=tuple(filter(None, parents.split(","))), hash_range=(0, 1), sequence_range=numbers
        )
    return found


def positions(text: str) -> dict[str, Position]:
    """From ``a=5 b=END``."""
    return {key: Position(position) for key, position in (part.split("=") for part in text.split())}


SPLIT = "a- b:a c:a"
MERGE = "a- b- c:a,b"
CHAIN = "a- b:a- c:b- d:c"


@pytest.mark.parametrize(
    ("listed", "initial", "expected"),
    [
        ("a b", TRIM, "a=TRIM b=TRIM"),
        (SPLIT, TRIM, "a=TRIM"),
        (MERGE, Position.since(7), "a=T7 b=T7"),
        ("b:a c:a", TRIM, "b=TRIM c=TRIM"),
        ("a b", None, "a=T50 b=T50"),
        (SPLIT, None, "b=T50 c=T50"),
        (CHAIN, None, "d=T50"),
        ("a-", None, "a=END"),
        ("a- b:a-", None, "b=END"),
    ],
)
def test_where_a_new_stream_begins(listed: str, initial: Position | None, expected: str) -> None:
    found = beginning(shards(listed), initial, 50)
    assert found == positions(expected)


@pytest.mark.parametrize(
    ("listed", "offset", "times", "expected"),
    [
        (SPLIT, "a=5", {}, ""),
        (SPLIT, "a=END", {}, "b=TRIM c=TRIM"),
        (SPLIT, "a=END", {"a": 7}, "b=T7 c=T7"),
        (SPLIT, "b=5 c=6", {}, ""),
        (SPLIT, "b=5", {}, "c=TRIM"),
        (MERGE, "a=END b=5", {}, ""),
        (MERGE, "a=END b=END", {}, "c=TRIM"),
        (MERGE, "a=END b=END", {"a": 7}, "c=TRIM"),
        (MERGE, "a=END b=END", {"a": 7, "b": 6}, "c=T6"),
        (MERGE, "b=END", {}, "a=TRIM"),
        ("b- c:a,b", "a=5 b=END", {}, ""),
        ("b- c:a,b", "b=END", {}, "c=TRIM"),
        (CHAIN, "a=END", {}, "b=TRIM"),
        (CHAIN, "d=5", {}, ""),
        ("c:b- d:c", "", {}, "c=TRIM"),
    ],
)
def test_who_enters(listed: str, offset: str, times: dict[str, int], expected: str) -> None:
    assert entering(shards(listed), positions(offset), times) == positions(expected)


@pytest.mark.parametrize(
    ("listed", "offset", "with_records", "left"),
    [
        (SPLIT, "a=END", "", ""),
        (SPLIT, "a=END b=TRIM", "", ""),
        (SPLIT, "a=END b=TRIM c=5", "", "a"),
        (SPLIT, "a=END b=TRIM c=5", "a", ""),
        (SPLIT, "a=5 b=TRIM c=5", "", ""),
        (MERGE, "a=END b=END c=TRIM", "", "ab"),
        (CHAIN, "a=END b=END c=END d=TRIM", "", "abc"),
        (CHAIN, "a=END b=END", "", "a"),
        ("a-", "a=END", "", ""),
        ("b", "a=END b=5", "", "a"),
        ("b:a", "a=END", "", ""),
        ("b:a", "a=END b=TRIM", "", "a"),
    ],
)
def test_who_leaves(listed: str, offset: str, with_records: str, left: str) -> None:
    assert leaving(shards(listed), positions(offset), with_records) == set(left)
