"""A stream in memory that misbehaves as Kinesis may: for state machines, without a network and with its own time."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from random import Random

from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.read.plan import (
    Call,
    Described,
    DescribeStream,
    GetRecords,
    GetShardIterator,
    ListShards,
    Position,
    Records,
)
from fastkcl.kinesis.topology import Shard

HASHES = 2**128
Row = tuple[str, int]
"""A key, and which of its rows it is."""


class ServiceError(Exception):
    """A call that has failed."""

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


@dataclass(kw_only=True)
class Faults:
    """How often what goes wrong, and how far times are off."""

    empty: float = 0.0
    false_zero: float = 0.0
    throttled: float = 0.0
    away: float = 0.0
    falling: int = 0
    iterator_life: int = 300_000


@dataclass
class SimulatedShard:
    shard_id: str
    hash_range: tuple[int, int]
    parents: tuple[str, ...]
    start: int
    numbers: list[int] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    rows: list[list[Row]] = field(default_factory=list)
    closed_at: int | None = None
    trimmed: int = 0
    was_false: bool = False


class SimulatedStream:
    """A stream.

    Args:
        random: of its faults.
        shards: at its beginning.
        retention: ms.
        faults: see there.
    """

    def __init__(self, random: Random, shards: int, retention: int, faults: Faults) -> None:
        self.random, self.retention, self.faults = random, retention, faults
        self.time = 1_800_000_000_000
        self.created = self.time // 1000
        self.shards: dict[str, SimulatedShard] = {}
        self.calls: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self._number = 10**20
        self._iterators: dict[str, tuple[str, int, int]] = {}
        width = HASHES // shards
        for index in range(shards):
            last = HASHES - 1 if index == shards - 1 else (index + 1) * width - 1
            self._add((index * width, last), ())

    # Who writes.

    def put(self, keys: list[int]) -> None:
        """Put a record; with several keys, of the same shard, it is an aggregate."""
        shard = self._owner(keys[0])
        rows = []
        for key in keys:
            if self._owner(key) is shard:
                name = str(key)
                self.counts[name] = self.counts.get(name, 0) + 1
                rows.append((name, self.counts[name]))
        self._number += self.random.randint(1, 9)
        shard.numbers.append(self._number)
        shard.arrivals.append(self.time - self.random.randint(0, self.faults.falling))
        shard.rows.append(rows)

    def split(self, shard_id: str) -> None:
        low, high = self.shards[shard_id].hash_range
        if high - low > 10:
            middle = (low + high) // 2
            self._close(shard_id)
            self._add((low, middle), (shard_id,))
            self._add((middle + 1, high), (shard_id,))

    def merge(self) -> None:
        open_shards = sorted(self.open, key=lambda shard: shard.hash_range)
        if len(open_shards) > 1:
            index = self.random.randrange(len(open_shards) - 1)
            one, other = open_shards[index : index + 2]
            self._close(one.shard_id)
            self._close(other.shard_id)
            self._add((one.hash_range[0], other.hash_range[1]), (one.shard_id, other.shard_id))

    def trim(self) -> None:
        """Drop what is older than the retention, and closed shards that are."""
        oldest = self.time - self.retention
        for shard in list(self.shards.values()):
            while shard.trimmed < len(shard.numbers) and shard.arrivals[shard.trimmed] < oldest:
                shard.trimmed += 1
            if shard.closed_at is not None and shard.closed_at < oldest:
                del self.shards[shard.shard_id]

    @property
    def open(self) -> list[SimulatedShard]:
        return [shard for shard in self.shards.values() if shard.closed_at is None]

    def listed(self) -> list[Shard]:
        found = []
        for shard in self.shards.values():
            numbers = {"StartingSequenceNumber": str(shard.start)}
            if shard.closed_at is not None:
                numbers["EndingSequenceNumber"] = str(self._number)
            found.append(
                Shard(
                    shard_id=shard.shard_id,
                    parents=shard.parents,
                    hash_range=shard.hash_range,
                    sequence_range=numbers,
                )
            )
        return found

    # Who reads.

    def answer(self, call: Call) -> object:
        """Answer a call, or raise `ServiceError`."""
        name = type(call).__name__
        self.calls[name] = self.calls.get(name, 0) + 1
        chance = self.random.random()
        if chance < self.faults.throttled:
            raise ServiceError(Failure.THROTTLED, "too much")
        if chance < self.faults.throttled + self.faults.away:
            raise ServiceError(Failure.UNAVAILABLE, "InternalFailure")
        match call:
            case ListShards():
                return self.listed()
            case DescribeStream():
                return Described(self.created, self.retention)
            case GetShardIterator():
                return self._iterator(call.shard_id, self._row_of(call.shard_id, call.position))
            case GetRecords():
                return self._records(call)

    def _row_of(self, shard_id: str, position: Position) -> int:
        shard = self._shard(shard_id)
        if position.number is not None:
            row = bisect_left(shard.numbers, int(position.number))
        elif position.time is not None:
            if position.time > self.time:
                raise ServiceError(Failure.OTHER, "the timestamp is in the future")
            row = bisect_left(shard.arrivals, position.time)  # they are not sorted: some record near it
        else:
            row = 0
        return max(row, shard.trimmed)

    def _iterator(self, shard_id: str, row: int) -> str:
        token = f"i{len(self._iterators)}"
        self._iterators[token] = (shard_id, row, self.time)
        return token

    def _records(self, call: GetRecords) -> Records:
        shard_id, row, made = self._iterators[call.iterator]
        shard = self._shard(shard_id)
        if self.time - made > self.faults.iterator_life:
            raise ServiceError(Failure.EXPIRED_ITERATOR, "expired")
        row = max(row, shard.trimmed)
        total = len(shard.numbers)
        stop = min(total, row + call.limit)
        is_empty = row < total and self.random.random() < self.faults.empty
        stop = row if is_empty else stop
        behind = max(1, self.time - shard.arrivals[stop]) if stop < total else 0
        is_false = behind > 0 and not shard.was_false and self.random.random() < self.faults.false_zero
        shard.was_false = is_false
        is_over = stop == total and shard.closed_at is not None
        return Records(
            tuple(map(str, shard.numbers[row:stop])),
            tuple(shard.arrivals[row:stop]),
            tuple(100 * len(rows) for rows in shard.rows[row:stop]),
            0 if is_false else behind,
            None if is_over else self._iterator(shard_id, stop),
            tuple(tuple(rows) for rows in shard.rows[row:stop]),
        )

    # Insides.

    def _shard(self, shard_id: str) -> SimulatedShard:
        if shard_id not in self.shards:
            raise ServiceError(Failure.NOT_FOUND, f"{shard_id} does not exist")
        return self.shards[shard_id]

    def _owner(self, key: int) -> SimulatedShard:
        place = (key * 0x9E3779B97F4A7C15F39CC0605CEDC835) % HASHES
        return next(shard for shard in self.open if shard.hash_range[0] <= place <= shard.hash_range[1])

    def _add(self, hash_range: tuple[int, int], parents: tuple[str, ...]) -> None:
        self._number += 1
        shard_id = f"shardId-{self.created % 1000:03d}{self._made:09d}"
        self._made += 1
        self.shards[shard_id] = SimulatedShard(shard_id, hash_range, parents, self._number)

    _made = 0

    def _close(self, shard_id: str) -> None:
        self.shards[shard_id].closed_at = self.time
