"""Positions in a shard as the daemon orders them, and sequence numbers in Amazon's layout.

The daemon's `ExtendedSequenceNumber` is a pair (sequence number, sub-sequence number) that compares
as integers. Beside decimal numbers it knows sentinels, which `_core.Position` (the position of a record) refuses on
purpose; the lease table needs them, so the replayer has its own small type:

    AT_TIMESTAMP < TRIM_HORIZON < LATEST < 0 < 1 < ... < any sequence number < SHARD_END

A number of Kinesis has 186 bits, 56 decimal digits. From the top, in hexadecimal digits:

    2 | creation time of the shard in s (9) | shard, last digit (1) | counter (16) | 00 | time in s (9) | shard (8) | 2
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = [
    "SHARD_END",
    "TRIM_HORIZON",
    "Place",
    "sequence_number_step",
    "sequence_numbers",
]

_SENTINELS = {"AT_TIMESTAMP": -3.0, "TRIM_HORIZON": -2.0, "LATEST": -1.0, "SHARD_END": math.inf}

MAX_DIGITS = 1000
"""Digits of a number that we still compare. The service's own limit is 129; Python's int() stops at 4300."""


class Place(NamedTuple):
    """A place in a shard, a sentinel of the lease table included. Use `order` to compare."""

    sequence_number: str
    sub_sequence_number: int = 0

    @property
    def order(self) -> tuple[float, int]:
        """The daemon's order: the sequence number as an integer, then the sub-sequence number.

        Raises:
            ValueError: the sequence number is neither decimal digits nor a sentinel.
        """
        sentinel = _SENTINELS.get(self.sequence_number)
        if sentinel is not None:
            return sentinel, 0
        if not is_decimal(self.sequence_number):
            raise ValueError(f"{self.sequence_number[:60]!r} is no sequence number: decimal digits expected")
        return int(self.sequence_number), self.sub_sequence_number

    def __str__(self) -> str:
        if self.sequence_number in _SENTINELS:
            return self.sequence_number
        return f"{self.sequence_number}/{self.sub_sequence_number}"


TRIM_HORIZON = Place("TRIM_HORIZON")
SHARD_END = Place("SHARD_END")


def is_decimal(text: str) -> bool:
    """Whether `text` is a sequence number: decimal digits, of a length that can be compared."""
    return 0 < len(text) <= MAX_DIGITS and text.isascii() and text.isdigit()


def is_sentinel(text: str) -> bool:
    """Whether `text` is a sentinel of the lease table, e.g. TRIM_HORIZON."""
    return text in _SENTINELS


_COUNTER_SHIFT = 80  # bits below the counter: 20 hexadecimal digits


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
