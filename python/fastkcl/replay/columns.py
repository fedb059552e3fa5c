"""Records of a shard as columns, from any source: a list, a generator, or other columns rearranged.

A shard may be longer than memory, and a death makes the daemon deliver any run of it again. So a source is
not an iterator but a sequence that gives any slice when asked: `Columns` are the values of such a slice,
ready for the encoder, and `RecordSequence` is the sequence that is sliced.

Rules: slices of one sequence are the same each time; positions rise strictly along it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fastkcl._core import Position
from fastkcl.replay.profiles import EPOCH_MILLIS, Profile, timestamps
from fastkcl.shard import is_sequence_number, sequence_number_step, sequence_numbers

__all__ = ["Columns", "GeneratedRecords", "PickedRecords", "RecordSequence", "RepeatedRecords", "StoredRecords"]


@dataclass(frozen=True, slots=True)
class Columns:
    """Values of a run of records, one list a column, all of one length."""

    data: Sequence[bytes | None]
    partition_keys: Sequence[str]
    sequence_numbers: Sequence[str]
    sub_sequence_numbers: Sequence[int]
    timestamps_millis: Sequence[int | None]

    def __len__(self) -> int:
        return len(self.sequence_numbers)


class RecordSequence(Protocol):
    """Records of a shard, in order."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def columns(self, start: int, stop: int) -> Columns:
        """Records `start` up to `stop`, both within the sequence."""
        ...

    def place(self, index: int) -> Position:
        """The position of record `index`."""
        ...


def first_after(records: RecordSequence, checkpoint: Position) -> int:
    """Index of the first record above a checkpoint: where a daemon goes on."""
    return bisect_right(range(len(records)), checkpoint, key=records.place)


class StoredRecords:
    """Records that are in memory.

    Args:
        columns: their values; sub-sequence numbers included, which legacy lines do not show.
        describe: the name of the records in an error.

    Raises:
        ValueError: a sequence number is not decimal, a sub-sequence number beyond 64 bits, or a place is not above
            the one before it.
    """

    def __init__(self, columns: Columns, describe: str = "record") -> None:
        self._columns = columns
        before: Position | None = None
        for index in range(len(columns)):
            number, sub = columns.sequence_numbers[index], columns.sub_sequence_numbers[index]
            if not is_sequence_number(number):
                raise ValueError(
                    f"{describe} {index}: {number[:60]!r} is not a sequence number: decimal digits expected"
                )
            if sub >= 2**63:
                raise ValueError(f"{describe} {index}: sub-sequence number {sub} is too large")
            place = Position(number, sub)
            if before is not None and place <= before:
                raise ValueError(
                    f"{describe} {index}: sequence number {place} is not above {before} of the one before; "
                    "records of a shard have to be in the order of the shard"
                )
            before = place

    def __len__(self) -> int:
        return len(self._columns)

    def columns(self, start: int, stop: int) -> Columns:
        """Records `start` up to `stop`."""
        cut = slice(start, stop)
        every = self._columns
        return Columns(
            every.data[cut],
            every.partition_keys[cut],
            every.sequence_numbers[cut],
            every.sub_sequence_numbers[cut],
            every.timestamps_millis[cut],
        )

    def place(self, index: int) -> Position:
        """The position of record `index`."""
        return Position(self._columns.sequence_numbers[index], self._columns.sub_sequence_numbers[index])


_DISTINCT_BLOCKS = 8


class GeneratedRecords:
    """Records of a profile, made when they are asked for.

    Payloads and keys come in blocks of the profile's batch. After eight blocks they begin again, under new
    sequence numbers, so that a stream of any length is made faster than a child reads it.

    Args:
        profile: of the payloads.
        count: how many records.
        shard: number of the shard.
        seed: of everything.
        aggregate: so many records after each other share a sequence number and an arrival time, as the user records
            of a KPL aggregate do, and have sub-sequence numbers from 0.
    """

    _SHARDS_APART = 1_000_003  # so that shard 1 of seed 0 is not shard 0 of seed 1

    def __init__(self, profile: Profile, count: int, *, shard: int, seed: int, aggregate: int = 1) -> None:
        self._profile = profile
        self._count = count
        self._aggregate = aggregate
        self._shard = shard
        self._seed = seed * self._SHARDS_APART + shard
        self._blocks: dict[int, tuple[list[bytes], list[str]]] = {}

    def __len__(self) -> int:
        return self._count

    def columns(self, start: int, stop: int) -> Columns:
        """Records `start` up to `stop`."""
        size = self._profile.records
        data: list[bytes | None] = []
        keys: list[str] = []
        for number in range(start // size, -(-stop // size)):
            payloads, partition_keys = self._block(number % _DISTINCT_BLOCKS)
            cut = slice(max(start - number * size, 0), stop - number * size)
            data += payloads[cut]
            keys += partition_keys[cut]
        first = start // self._aggregate
        count = -(-stop // self._aggregate) - first
        numbers, times = self._numbers(first, count), timestamps(first, count)
        if self._aggregate == 1:
            return Columns(data, keys, numbers, [0] * count, times)
        places = [divmod(index, self._aggregate) for index in range(start, stop)]
        return Columns(
            data,
            keys,
            [numbers[number - first] for number, _ in places],
            [sub for _, sub in places],
            [times[number - first] for number, _ in places],
        )

    def _block(self, number: int) -> tuple[list[bytes], list[str]]:
        block = self._blocks.get(number)
        if block is None:
            size = min(self._profile.records, self._count)
            seed = self._seed * _DISTINCT_BLOCKS + number
            block = self._profile.payloads(size, seed), self._profile.partition_keys(size, seed)
            self._blocks[number] = block
        return block

    def _numbers(self, first: int, count: int) -> list[str]:
        created = EPOCH_MILLIS // 1000
        return sequence_numbers(first, count, shard=self._shard, created=created, arrival=created)

    def place(self, index: int) -> Position:
        """The position of record `index`."""
        number, sub = divmod(index, self._aggregate)
        return Position(self._numbers(number, 1)[0], sub)


class RepeatedRecords:
    """The same records several times over, each round under higher sequence numbers.

    Args:
        records: at least one.
        rounds: how many times.
    """

    def __init__(self, records: RecordSequence, rounds: int) -> None:
        self._records = records
        self._rounds = rounds
        first, last = records.place(0), records.place(len(records) - 1)
        self._shift = int(last.sequence_number) - int(first.sequence_number) + sequence_number_step(1)

    def __len__(self) -> int:
        return len(self._records) * self._rounds

    def columns(self, start: int, stop: int) -> Columns:
        """Records `start` up to `stop`."""
        size = len(self._records)
        parts = []
        for number in range(start // size, -(-stop // size)):
            part = self._records.columns(max(start - number * size, 0), min(stop - number * size, size))
            parts.append((number, part))
        return Columns(
            [value for _, part in parts for value in part.data],
            [value for _, part in parts for value in part.partition_keys],
            [self._moved(value, number) for number, part in parts for value in part.sequence_numbers],
            [value for _, part in parts for value in part.sub_sequence_numbers],
            [value for _, part in parts for value in part.timestamps_millis],
        )

    def _moved(self, sequence_number: str, number: int) -> str:
        return str(int(sequence_number) + number * self._shift) if number else sequence_number

    def place(self, index: int) -> Position:
        """The position of record `index`."""
        number, rest = divmod(index, len(self._records))
        place = self._records.place(rest)
        return Position(self._moved(place.sequence_number, number), place.sub_sequence_number)


class PickedRecords:
    """Records of other shards under sequence numbers of a new shard, as a split or a merge leaves them to its children.

    Neighbours of one sequence number have one again, and sub-sequence numbers from 0.

    Args:
        picks: (where from, index there), in the order of the new shard.
        shard: number of the new shard.
    """

    def __init__(self, picks: Sequence[tuple[RecordSequence, int]], *, shard: int) -> None:
        self._picks = picks
        self._shard = shard
        self._places: list[tuple[int, int]] = []  # counter of the sequence number, sub-sequence number
        before: tuple[RecordSequence, str] | None = None
        counter, sub = -1, 0
        for source, index in picks:
            now = source, source.place(index).sequence_number
            counter, sub = (counter, sub + 1) if now == before else (counter + 1, 0)
            self._places.append((counter, sub))
            before = now

    def __len__(self) -> int:
        return len(self._picks)

    def columns(self, start: int, stop: int) -> Columns:
        """Records `start` up to `stop`."""
        picked = [source.columns(index, index + 1) for source, index in self._picks[start:stop]]
        return Columns(
            [one.data[0] for one in picked],
            [one.partition_keys[0] for one in picked],
            [self._number(counter) for counter, _ in self._places[start:stop]],
            [sub for _, sub in self._places[start:stop]],
            [one.timestamps_millis[0] for one in picked],
        )

    def _number(self, counter: int) -> str:
        created = EPOCH_MILLIS // 1000 + 1  # a child shard is made after its parents
        return sequence_numbers(counter, 1, shard=self._shard, created=created, arrival=created)[0]

    def place(self, index: int) -> Position:
        """The position of record `index`."""
        counter, sub = self._places[index]
        return Position(self._number(counter), sub)
