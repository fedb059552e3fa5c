"""The limits that a trigger sets for a look, and the records that the look gives to a batch.

Rules: no state.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastkcl.kinesis.read.plan.calls import Records
from fastkcl.kinesis.read.plan.offset import Position

__all__ = ["Gone", "Head", "LookRules", "Taken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRules:
    """The limits that a trigger sets for all shards.

    Attributes:
        limit: records of a head.
        slice: ms that a batch may cover of a shard; None for all.
        rows: records that a batch may take of a shard.
        bytes: bytes that a batch may take of a shard.
        until: ms since the epoch: later records are left for the next query. None for no such bound.
        everything: looks go on until the shard is read up to the time `until`.
        period: least ms between two looks.
        retention: of the stream, in ms.
    """

    limit: int
    slice: int | None
    rows: int | None
    bytes: int | None
    until: int | None
    everything: bool
    period: int
    retention: int


@dataclass(frozen=True, slots=True)
class Head:
    """Rows of an answer.

    Attributes:
        records: the answer.
        begin: its first row.
        stop: the row after its last.
    """

    records: Records
    begin: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.begin

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(self.records.sizes[self.begin : self.stop])

    def without_content(self) -> Head:
        """The same rows, without their records."""
        seen = self.records
        lists = tuple(seen.numbers), tuple(seen.arrivals), tuple(seen.sizes)
        return Head(Records(*lists, seen.millis_behind, seen.next_iterator), self.begin, self.stop)

    def split(self, rows: int) -> tuple[Head, Head]:
        """The first rows, and the rest."""
        row = self.begin + rows
        return Head(self.records, self.begin, row), Head(self.records, row, self.stop)


@dataclass(frozen=True, slots=True)
class Taken:
    """A shard's part of a batch.

    Attributes:
        first: its first record; None if it has none.
        end: the position after it.
        head: its first records.
        after: the last record of the head, where the batch goes on after it.
        covered: until when the shard is known to be read, in ms since the epoch.
        beyond: bytes that may lie between the head and the end.
    """

    first: str | None
    end: Position
    head: Head | None
    after: str | None
    covered: int
    beyond: int = 0


@dataclass(frozen=True, slots=True)
class Gone:
    """A position that has shown to be trimmed, or cannot be shown to be there.

    Attributes:
        position: which.
        oldest: the sequence number of the oldest record left; None if there is none.
        covered: until when the shard was known to be read, in ms since the epoch.
    """

    position: Position
    oldest: str | None
    covered: int
