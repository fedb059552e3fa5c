"""Shards as Kinesis has them: their ids, the hash keys that each owns, and the layout of sequence numbers.

The MD5 of a partition key is its hash key, and the open shards of a stream divide all hash keys among them.

A sequence number has 186 bits, 56 decimal digits. From the top, in hexadecimal digits:

    2 | creation time of the shard in s (9) | shard, last digit (1) | counter (16) | 00 | time in s (9) | shard (8) | 2
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from hashlib import md5
from typing import Any, NamedTuple

__all__ = [
    "HASH_KEYS",
    "LAST_SECOND",
    "ShardMap",
    "ShardRange",
    "created_of",
    "hash_key",
    "is_sequence_number",
    "sequence_number_step",
    "sequence_numbers",
    "shard_name",
    "shard_number_of",
]

HASH_KEYS = 2**128
"""How many hash keys there are."""

LAST_SECOND = 2**36 - 1
"""The last second since the epoch that a sequence number can hold."""

_COUNTER_SHIFT = 80  # bits below the counter: 20 hexadecimal digits
_MAX_DIGITS = 1000  # of a number that is still compared; the service has 129, and Python's int() stops at 4300


def shard_name(number: int) -> str:
    """Amazon's id of shard `number`."""
    return f"shardId-{number:012d}"


def hash_key(partition_key: str) -> int:
    """Where a partition key lies among the hash keys, 0 to 2**128 - 1."""
    return int.from_bytes(md5(partition_key.encode(), usedforsecurity=False).digest())


class ShardRange(NamedTuple):
    """A shard and its hash keys, the first and the last."""

    shard_id: str
    low: int
    high: int
    is_open: bool


class ShardMap:
    """The shards of a stream at one moment.

    Args:
        shards: all of them, closed ones too.
    """

    def __init__(self, shards: Iterable[ShardRange]) -> None:
        self._by_id = {shard.shard_id: shard for shard in shards}
        self._open = sorted((shard for shard in self._by_id.values() if shard.is_open), key=lambda shard: shard.low)
        self._lows = [shard.low for shard in self._open]

    @classmethod
    def of(cls, client: Any, stream: str) -> ShardMap:  # noqa: ANN401 - boto3's clients have no types
        """Ask the service."""
        pages = client.get_paginator("list_shards").paginate(StreamName=stream)
        return cls(
            ShardRange(
                shard["ShardId"],
                int(shard["HashKeyRange"]["StartingHashKey"]),
                int(shard["HashKeyRange"]["EndingHashKey"]),
                "EndingSequenceNumber" not in shard["SequenceNumberRange"],
            )
            for page in pages
            for shard in page["Shards"]
        )

    def owner(self, partition_key: str) -> str:
        """Id of the open shard that the key belongs to.

        Raises:
            ConnectionError: the list of shards has no open one, although a stream has.
        """
        return self.owner_of(hash_key(partition_key))

    def owner_of(self, key: int) -> str:
        """Id of the open shard that has a hash key, 0 to 2**128 - 1.

        Raises:
            ConnectionError: as `owner`.
        """
        if not self._open:
            raise ConnectionError("the list of the stream's shards has no open one: it is not whole")
        return self._open[bisect_right(self._lows, key) - 1].shard_id

    def owns(self, shard_id: str, partition_key: str) -> bool:
        """Whether the key belongs to that shard, open or closed; False if the map does not have it."""
        shard = self._by_id.get(shard_id)
        return shard is not None and shard.low <= hash_key(partition_key) <= shard.high


def is_sequence_number(text: str) -> bool:
    """Whether a text can be a sequence number: decimal digits, and not too many of them to compare."""
    return 0 < len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit()


def sequence_number_step(records: int) -> int:
    """How far sequence numbers move on for `records` more records of a shard."""
    return records << _COUNTER_SHIFT


def sequence_numbers(first: int, count: int, *, shard: int = 0, created: int, arrival: int) -> list[str]:
    """Sequence numbers of `count` records of a shard, rising, in Amazon's layout.

    Args:
        first: counter of the first of them, from 0.
        count: how many.
        shard: number of the shard.
        created: when the shard was made, seconds since the epoch.
        arrival: when the records came, seconds since the epoch; must not fall within a shard.
    """
    head = (2 << 36 | created) << 4 | (shard & 0xF)
    tail = (arrival << 32 | shard) << 4 | 2
    base = head << 64 + _COUNTER_SHIFT | tail
    return [str(base + (counter << _COUNTER_SHIFT)) for counter in range(first + 1, first + count + 1)]


def shard_number_of(sequence: int) -> int | None:
    """The number of the shard that gave this sequence number; None if the number has another layout."""
    if sequence.bit_length() != 186 or sequence & 0xF != 2:
        return None
    return sequence >> 4 & 0xFFFF_FFFF


def created_of(sequence: int) -> int | None:
    """When the shard was made that gave this sequence number; None if the number has another layout."""
    return None if shard_number_of(sequence) is None else sequence >> 148 & LAST_SECOND
