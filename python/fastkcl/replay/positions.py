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

from fastkcl.shard import is_sequence_number

__all__ = [
    "SHARD_END",
    "TRIM_HORIZON",
    "Place",
]

_SENTINELS = {"AT_TIMESTAMP": -3.0, "TRIM_HORIZON": -2.0, "LATEST": -1.0, "SHARD_END": math.inf}


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
        if not is_sequence_number(self.sequence_number):
            raise ValueError(f"{self.sequence_number[:60]!r} is no sequence number: decimal digits expected")
        return int(self.sequence_number), self.sub_sequence_number

    def __str__(self) -> str:
        if self.sequence_number in _SENTINELS:
            return self.sequence_number
        return f"{self.sequence_number}/{self.sub_sequence_number}"


TRIM_HORIZON = Place("TRIM_HORIZON")
SHARD_END = Place("SHARD_END")


def is_sentinel(text: str) -> bool:
    """Whether `text` is a sentinel of the lease table, e.g. TRIM_HORIZON."""
    return text in _SENTINELS
