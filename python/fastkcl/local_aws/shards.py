"""Streams, shards and records as the service keeps them: no I/O, no clock, no wire format.

A stream's hash keys, 0 to 2**128 - 1, are divided among its open shards. A record goes to the shard that owns the MD5
of its partition key (or its explicit hash key), and gets a sequence number above all before it there. Resharding
never moves a record: a split or a merge closes the parents, which keep their records, and opens children, which take
the new ones.

    shard 0  [───────── records ─────────|  closed
                                          ├─ shard 2  [── records ──▶
                                          └─ shard 3  [── records ──▶

Rules: `now`, in seconds since the epoch, is always an argument, so that the same calls with the same times give the
same sequence numbers (see `fastkcl.local_aws.journal`). Records older than the retention are gone, and so are closed
shards whose last record is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from fastkcl.local_aws.errors import ServiceError
from fastkcl.shard import HASH_KEYS, LAST_SECOND, sequence_numbers, shard_name

__all__ = ["Record", "Shard", "Stream"]

MAX_READ = 10 * 2**20
"""Most bytes of one GetRecords answer."""

_LAST_COUNTER = 2**63 - 1  # of the sequence number that ends a closed shard


class Record(NamedTuple):
    """A stored record.

    Attributes:
        sequence_number: the digits of `sequence`.
        size: bytes, with its key, as they count against the limits.
        total: those of all records of the shard up to it, itself included.
    """

    sequence: int
    sequence_number: str
    partition_key: str
    data: bytes
    arrival_millis: int
    size: int
    total: int


_by_sequence = attrgetter("sequence")
_by_arrival = attrgetter("arrival_millis")
_by_total = attrgetter("total")


@dataclass(slots=True)
class Shard:
    """A shard with its records.

    Attributes:
        number: of the shard within its stream, from 0.
        low: first hash key.
        high: last hash key.
        parents: shard ids, the one in which a merge was asked for first.
        created: seconds since the epoch; a whole number, since it is in the sequence numbers.
        closed: when, in seconds since the epoch.
    """

    number: int
    low: int
    high: int
    parents: tuple[str, ...]
    created: int
    closed: float | None = None
    records: list[Record] = field(default_factory=list)
    _counter: int = 0

    @property
    def shard_id(self) -> str:
        """The shard's name."""
        return shard_name(self.number)

    @property
    def is_open(self) -> bool:
        """Whether records may still come."""
        return self.closed is None

    @property
    def starting_sequence(self) -> int:
        """Below all sequence numbers of the shard."""
        return self._sequence(0, self.created)

    @property
    def ending_sequence(self) -> int | None:
        """Above all sequence numbers of the shard; None while it is open."""
        return None if self.closed is None else self._sequence(_LAST_COUNTER, self.closed)

    @property
    def latest(self) -> int:
        """Above all sequence numbers so far, below all that come."""
        return self._sequence(self._counter, LAST_SECOND)

    def _sequence(self, counter: int, now: float) -> int:
        return int(self._sequence_number(counter, now))

    def _sequence_number(self, counter: int, now: float) -> str:
        (number,) = sequence_numbers(counter - 1, 1, shard=self.number, created=self.created, arrival=int(now))
        return number

    def append(self, partition_key: str, data: bytes, size: int, now: float) -> Record:
        """Store a record of `size` bytes with its key; arrival times never fall, whatever the clock does."""
        self._counter += 1
        millis, total = int(now * 1000), size
        if self.records:
            last = self.records[-1]
            millis, total = max(millis, last.arrival_millis), total + last.total
        number = self._sequence_number(self._counter, millis // 1000)
        record = Record(int(number), number, partition_key, data, millis, size, total)
        self.records.append(record)
        return record

    def trim(self, horizon_millis: int) -> None:
        """Forget older entries."""
        if self.records and self.records[0].arrival_millis < horizon_millis:
            del self.records[: bisect_left(self.records, horizon_millis, key=_by_arrival)]

    def before(self, millis: int) -> int:
        """The sequence number after which records of that time and later come; 0 for the start."""
        index = bisect_left(self.records, millis, key=_by_arrival)
        return self.records[index - 1].sequence if index else 0

    def read(self, after: int, limit: int, max_bytes: int = MAX_READ) -> tuple[list[Record], bool]:
        """Records above a sequence number, up to `limit` and `max_bytes`, one at least; and whether there are more."""
        start = bisect_right(self.records, after, key=_by_sequence)
        end = min(len(self.records), start + limit)
        if start < end:
            first = self.records[start]
            most = first.total - first.size + max_bytes
            end = max(start + 1, bisect_right(self.records, most, start, end, key=_by_total))
        return self.records[start:end], end < len(self.records)


@dataclass(slots=True)
class Consumer:
    """A registered consumer.

    Attributes:
        created: seconds since the epoch.
        subscriptions: by shard id, the number of the newest subscription, which is the only one that goes on.
    """

    name: str
    arn: str
    created: float
    subscriptions: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Stream:
    """A stream with its shards.

    Attributes:
        created: seconds since the epoch.
        mode: ``PROVISIONED`` or ``ON_DEMAND``.
        retention_seconds: how long records stay.
        max_record_bytes: of one record with its key.
        key_id: of the encryption that GetRecords reports (nothing is encrypted); None without.
        metrics: names of shard-level metrics that were switched on.
    """

    name: str
    arn: str
    created: float
    mode: str
    retention_seconds: float
    max_record_bytes: int = 2**20
    shards: dict[str, Shard] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    key_id: str | None = None
    metrics: set[str] = field(default_factory=set)
    status: str = "ACTIVE"
    _open: list[Shard] = field(default_factory=list)
    _next_number: int = 0
    _change: tuple[float, Callable[[float], None]] | None = None

    # Changes that take a while.

    def change(self, status: str, now: float, seconds: float, then: Callable[[float], None]) -> None:
        """Be in `status` for `seconds`, and do `then` at the end of it, or at once if that is 0."""
        if seconds <= 0:
            then(now)
            return
        self.status = status
        self._change = now + seconds, then

    def settle(self, now: float) -> None:
        """Do the due changes, and forget records that are too old."""
        if self._change is not None and now >= self._change[0]:
            due, then = self._change
            self._change = None
            self.status = "ACTIVE"
            then(due)
        horizon = int((now - self.retention_seconds) * 1000)
        for shard in list(self.shards.values()):
            shard.trim(horizon)
            if shard.closed is not None and not shard.records and shard.closed * 1000 < horizon:
                del self.shards[shard.shard_id]

    def require_active(self) -> None:
        """Refuse calls that only an ACTIVE stream takes.

        Raises:
            ServiceError: it is not.
        """
        if self.status != "ACTIVE":
            raise ServiceError(
                "ResourceInUseException", f"Stream {self.name} is not ACTIVE, but in the state {self.status}"
            )

    # Shards.

    @property
    def open_shards(self) -> list[Shard]:
        """By their hash keys."""
        return self._open

    def shard(self, shard_id: str) -> Shard:
        """The shard of that id.

        Raises:
            ServiceError: there is none.
        """
        try:
            return self.shards[shard_id]
        except KeyError:
            raise ServiceError(
                "ResourceNotFoundException", f"Shard {shard_id} in stream {self.name} does not exist"
            ) from None

    def owner(self, key: int) -> Shard:
        """The open shard that has this hash key."""
        return self._open[bisect_right(self._open, key, key=attrgetter("low")) - 1]

    def children(self, shard: Shard) -> list[Shard]:
        """Shards that came from this one."""
        return [child for child in self.shards.values() if shard.shard_id in child.parents]

    def divide(self, count: int, now: float) -> None:
        """Open `count` shards of equal width, as a new stream has them."""
        for low, high in _ranges(count):
            self._open_shard(low, high, (), now)

    def split(self, shard: Shard, key: int, now: float) -> None:
        """Close an open shard, and open two, the second of which begins at `key`."""
        self._close_shard(shard, now)
        self._open_shard(shard.low, key - 1, (shard.shard_id,), now)
        self._open_shard(key, shard.high, (shard.shard_id,), now)

    def merge(self, shard: Shard, other: Shard, now: float) -> None:
        """Close two open shards that lie side by side, and open one in their place."""
        self._close_shard(shard, now)
        self._close_shard(other, now)
        parents = shard.shard_id, other.shard_id
        self._open_shard(min(shard.low, other.low), max(shard.high, other.high), parents, now)

    def rescale(self, count: int, now: float) -> None:
        """Split and merge until there are `count` open shards of equal width."""
        for low, _ in _ranges(count):
            shard = self.owner(low)
            if shard.low != low:
                self.split(shard, low, now)
        for low, high in _ranges(count):
            while (shard := self.owner(low)).high != high:
                self.merge(shard, self.owner(shard.high + 1), now)

    def _open_shard(self, low: int, high: int, parents: tuple[str, ...], now: float) -> None:
        # Above the sequence numbers of its parents, even if it opens in the second in which they did.
        created = max([int(now), *(self.shards[parent].created + 1 for parent in parents)])
        shard = Shard(self._next_number, low, high, parents, created)
        self._next_number += 1
        self.shards[shard.shard_id] = shard
        self._open.append(shard)
        self._open.sort(key=attrgetter("low"))

    def _close_shard(self, shard: Shard, now: float) -> None:
        shard.closed = now
        self._open.remove(shard)


def _ranges(count: int) -> list[tuple[int, int]]:
    cuts = [HASH_KEYS * number // count for number in range(count + 1)]
    return [(low, high - 1) for low, high in zip(cuts, cuts[1:], strict=False)]
