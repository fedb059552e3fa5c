"""Records that wait for PutRecords: chooses the records of the next call, and settles them by its answer.

    add ─▶ shard 0 ▏k7 k1 k3 k1 …▏ ─┐                                   taken ─▶ Settled
           shard 1 ▏k2 k9 k2▏      ─┼─▶ take(now) ── one call ── settle ─┤
           shard 2 ▏(backs off)▏    │                                   refused ─▶ in front of its shard's line
                                  due(now): when there is something to take

A shard has its own limits, and refuses records by itself: so each has its own line, its own count of the last second,
and its own pause after a refusal, and none waits for another. Without a `ShardMap` there is one line, with the limits
of one shard.

With `PutLimits.aggregate` added records go into KPL aggregates, one open for each shard, and these wait. An aggregate
is in doubt if another shard has taken it than the one it was made for: after a reshard, `reshard` checks whether that
shard owns all of its keys. If not, readers will drop it: its user records are packed anew, and so is everything after
them.

Rules: a call has records of all lines in the order in which they were added, as far as their shards may have them now.
With `PutLimits.calls` lines are divided into so many groups, each of which has one call at a time. Refused records, and
those of a failed call, go before everything that came after them. Still the service may take the second record of a
key in a call and refuse the first, or a reshard lead the first aggregate of it astray; with `PutLimits.ordered` a call
has each key once. No clock and no network in here: callers give the time.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fastkcl.backoff import Backoff
from fastkcl.kinesis.items.aggregators import OutputItem
from fastkcl.kinesis.write.aggregate import Aggregator, Entry, UserRecord
from fastkcl.kinesis.write.put import MAX_CALL_BYTES, MAX_CALL_RECORDS
from fastkcl.kinesis.write.sent import PutResult
from fastkcl.shard import ShardMap

__all__ = ["Pending", "PutLimits", "PutQueue", "Settled"]

_WINDOW = 1.0  # seconds that a shard's limits are for


@dataclass(frozen=True, slots=True, kw_only=True)
class PutLimits:
    """Limits of a call, and of a shard.

    Attributes:
        call_records: of one call.
        call_bytes: of one call, keys included; a larger record goes alone.
        calls: at the same time, each with other shards.
        shard_records: for one shard in any second.
        shard_bytes: for one shard in any second, keys included; a larger record goes alone, and is made up for.
        ordered: each key at most once in a call, which keeps its order when the service refuses records.
        aggregate: pack records into KPL aggregates, each for one shard.
    """

    call_records: int = MAX_CALL_RECORDS
    call_bytes: int = MAX_CALL_BYTES
    calls: int = 1
    shard_records: float = 1000.0
    shard_bytes: float = 1024.0 * 1024
    ordered: bool = False
    aggregate: bool = False


class Pending:
    """A record that waits.

    Attributes:
        ordinal: its place among all that were added.
        item: the added record, or an aggregate of it.
        users: the records in an aggregate.
        partition_key: that it is put with.
        explicit_hash_key: in the place of the key's own, decimal digits.
        tags: that came with it.
        size: bytes that count against limits: of its data and its key.
    """

    __slots__ = ("explicit_hash_key", "item", "lane", "ordinal", "partition_key", "size", "tags", "users")

    def __init__(
        self,
        ordinal: int,
        item: OutputItem,
        partition_key: str,
        users: Sequence[UserRecord] = (),
        explicit_hash_key: str | None = None,
        tags: tuple[object, ...] = (),
    ) -> None:
        self.ordinal = ordinal
        self.item = item
        self.users = users
        self.partition_key = partition_key
        self.explicit_hash_key = explicit_hash_key
        self.tags = tags
        self.size = item.size + len(partition_key.encode())
        self.lane: _Lane

    @property
    def keys(self) -> set[str]:
        """Of the added record."""
        return {user.partition_key for user in self.users} or {self.partition_key}


class _Tagged(UserRecord):
    """One whose tags are found again in its aggregate."""

    tags: tuple[object, ...] = ()


@dataclass(slots=True)
class Settled:
    """The results of a call.

    Attributes:
        accepted: records that the stream has now.
        results: of these, one for one: the tags, and where they are.
        bytes: of that, keys included.
        refused: records that wait again, by error code.
        moved: whether a shard has taken a record of another's key range: the stream was resharded.
    """

    accepted: list[OutputItem] = field(default_factory=list)
    results: list[tuple[tuple[object, ...], PutResult]] = field(default_factory=list)
    bytes: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    moved: bool = False

    def accept(self, pending: Pending, outcome: Mapping[str, str]) -> None:
        """Count it."""
        self.accepted.append(pending.item)
        self.results.append((pending.tags, PutResult(outcome["ShardId"], outcome.get("SequenceNumber", ""))))
        self.bytes += pending.size


class _Lane:
    """Records that wait for one shard."""

    def __init__(self, shard_id: str | None, limits: PutLimits, group: int = 0) -> None:
        self.shard_id = shard_id
        self.group = group
        self.waiting: deque[Pending] = deque()
        self.not_before = float("-inf")
        self.backoff = Backoff()
        self._limits = limits
        self._sent: deque[tuple[float, int, int]] = deque()  # until when it counts, records, bytes
        self._records = self._bytes = 0  # that count now

    def forget(self, now: float) -> None:
        """Do not count records that were sent more than a second ago."""
        while self._sent and self._sent[0][0] <= now:
            _, records, size = self._sent.popleft()
            self._records -= records
            self._bytes -= size

    def has_room(self, size: int, records: int = 0, sent: int = 0) -> bool:
        """Whether a record may be sent besides so many others with so many bytes."""
        records, sent = self._records + records, self._bytes + sent
        if not records:
            return True
        return records + 1 <= self._limits.shard_records and sent + size <= self._limits.shard_bytes

    def spend(self, records: int, size: int, now: float) -> None:
        """Count sent records; those above a second's limit count for longer."""
        seconds = max(_WINDOW, records / self._limits.shard_records, size / self._limits.shard_bytes)
        self._sent.append((now + seconds, records, size))
        self._records += records
        self._bytes += size

    def due(self, now: float) -> float:
        """When the first that waits may be sent."""
        self.forget(now)
        moment, records, size = now, 0, 0
        for until, sent_records, sent_size in self._sent:
            if self.has_room(self.waiting[0].size, records, size):
                break
            moment, records, size = until, records - sent_records, size - sent_size
        return max(moment, self.not_before)


class PutQueue:
    """Records on their way into a stream.

    Args:
        limits: see there.
        shards: which shard owns a key; None if that is not known. Aggregates need it.
    """

    def __init__(self, limits: PutLimits = PutLimits(), shards: ShardMap | None = None) -> None:  # noqa: B008 - frozen
        self._limits = limits
        self._shards = shards
        self._lanes: dict[str | None, _Lane] = {}
        self._aggregator: Aggregator | None = None
        self._calls: dict[int, list[Pending]] = {}  # under way, by the group of their lanes
        self._doubtful: list[tuple[Pending, Mapping[str, str]]] = []  # and which shard has taken it, by its outcome
        self._waiting = self._waiting_bytes = 0
        self._added = 0

    def __len__(self) -> int:
        """Records that the stream does not have yet, those of a call that is under way and in doubt included."""
        return self._waiting + sum(map(len, self._calls.values())) + len(self._doubtful)

    def __iter__(self) -> Iterator[Pending]:
        """These records, in their order."""
        waiting = [pending for lane in self._lanes.values() for pending in lane.waiting]
        doubtful = [pending for pending, _ in self._doubtful]
        under_way = [pending for call in self._calls.values() for pending in call]
        return iter(sorted([*under_way, *waiting, *doubtful], key=lambda pending: pending.ordinal))

    @property
    def added(self) -> int:
        """How many have begun to wait, ever: records in an open aggregate are not among them."""
        return self._added

    @property
    def is_in_doubt(self) -> bool:
        """Whether nothing can be taken before `reshard` is called."""
        return bool(self._doubtful)

    @property
    def is_full_call(self) -> bool:
        """Whether the waiting records fill a call."""
        return self._waiting >= self._limits.call_records or self._waiting_bytes >= self._limits.call_bytes

    def has_any_of(self, first: int) -> bool:
        """Whether one of the first so many of these is still here."""
        heads = [lane.waiting[0].ordinal for lane in self._lanes.values() if lane.waiting]
        heads += [call[0].ordinal for call in self._calls.values()]
        heads += [pending.ordinal for pending, _ in self._doubtful]
        return min(heads, default=first) < first

    def add(
        self,
        item: OutputItem,
        partition_key: str,
        explicit_hash_key: str | None = None,
        tags: tuple[object, ...] = (),
    ) -> None:
        """Put a record at the end of its shard's line, or into its shard's aggregate.

        Args:
            item: the record.
            partition_key: its own.
            explicit_hash_key: in the place of the key's; not for aggregates.
            tags: come back in `Settled.results`.
        """
        if self._limits.aggregate:
            user = _Tagged(partition_key, item.data)
            user.tags = tags
            for entry in self._pack(user):
                self._add_entry(entry)
        else:
            self._line_up(Pending(self._added, item, partition_key, (), explicit_hash_key, tags))
            self._added += 1

    def close_aggregates(self) -> None:
        """Close open aggregates: they wait from now on."""
        if self._aggregator is not None:
            for entry in self._aggregator.drain():
                self._add_entry(entry)

    def _pack(self, user: UserRecord) -> list[Entry]:
        if self._aggregator is None:
            assert self._shards is not None, "aggregates are made for shards"
            self._aggregator = Aggregator(self._shards)
        return self._aggregator.add(user)

    def _add_entry(self, entry: Entry) -> None:
        self._line_up(_aggregate(self._added, entry))
        self._added += 1

    def _line_up(self, pending: Pending) -> None:
        shard_id = None
        if self._shards is not None:
            given = pending.explicit_hash_key
            shard_id = self._shards.owner(pending.partition_key) if given is None else self._shards.owner_of(int(given))
        lane = self._lanes.get(shard_id)
        if lane is None:
            group = len(self._lanes) % self._limits.calls
            lane = self._lanes[shard_id] = _Lane(shard_id, self._limits, group)
        pending.lane = lane
        lane.waiting.append(pending)
        self._waiting += 1
        self._waiting_bytes += pending.size

    # Calls.

    def due(self, now: float) -> float | None:
        """When `take` has something to give: now or later, or never if all that waits is waiting for a call's end."""
        free = (lane for lane in self._lanes.values() if lane.waiting and lane.group not in self._calls)
        return min((lane.due(now) for lane in free), default=None)

    @property
    def _call(self) -> list[Pending]:
        """The call that is under way, where there is one at the most."""
        (call,) = self._calls.values() or ([],)
        return call

    def take(self, now: float) -> Sequence[Pending]:
        """The records of the next call, which `settle` or `put_back` has to follow; none if none is due."""
        assert len(self._calls) < self._limits.calls, "one call at a time for each group"
        assert not self._doubtful, "reshard comes first"
        lines: dict[int, list[tuple[int, _Lane]]] = {}
        for lane in self._lanes.values():
            if lane.waiting and lane.not_before <= now and lane.group not in self._calls:
                lane.forget(now)
                if lane.has_room(lane.waiting[0].size):
                    lines.setdefault(lane.group, []).append((lane.waiting[0].ordinal, lane))
        if not lines:
            return []
        group = min(lines, key=lambda group: min(lines[group])[0])
        call = self._calls[group] = self._take(lines[group], now)
        return call

    def _take(self, lines: list[tuple[int, _Lane]], now: float) -> list[Pending]:
        """A call of these lanes, by the first that waits in each; at least one record."""
        limits, call = self._limits, list[Pending]()
        heapq.heapify(lines)
        size, keys = 0, set[str]()
        spent: dict[_Lane, tuple[int, int]] = {}
        while lines and len(call) < limits.call_records:
            _, lane = lines[0]
            pending = lane.waiting[0]
            records, sent = spent.get(lane, (0, 0))
            if not lane.has_room(pending.size, records, sent) or (limits.ordered and not keys.isdisjoint(pending.keys)):
                heapq.heappop(lines)
                continue
            if call and size + pending.size > limits.call_bytes:
                break
            call.append(lane.waiting.popleft())
            size += pending.size
            spent[lane] = (records + 1, sent + pending.size)
            if limits.ordered:
                keys.update(pending.keys)
            if lane.waiting:
                heapq.heapreplace(lines, (lane.waiting[0].ordinal, lane))
            else:
                heapq.heappop(lines)
        for lane, (records, sent) in spent.items():
            lane.spend(records, sent, now)
        self._waiting -= len(call)
        self._waiting_bytes -= size
        return call

    def settle(
        self, outcomes: Sequence[Mapping[str, str]], now: float, call: Sequence[Pending] | None = None
    ) -> Settled:
        """Take the result of a call.

        Args:
            outcomes: ``Records`` of the answer: ShardId, or ErrorCode, of each record of the call.
            now: when it came.
            call: as `take` gave it; the only one by default.

        Raises:
            ValueError: there are more or fewer of them than records. The call is still under way.
        """
        call = self._call if call is None else call
        if len(outcomes) != len(call):
            raise ValueError(f"an answer of {len(outcomes)} outcomes to a call of {len(call)} records")
        self._end(call)
        settled = Settled()
        refused: list[Pending] = []
        accepted: set[_Lane] = set()
        for pending, outcome in zip(call, outcomes, strict=True):
            code = outcome.get("ErrorCode")
            if code is not None:
                settled.refused[code] += 1
                refused.append(pending)
                continue
            accepted.add(pending.lane)
            elsewhere = self._shards is not None and outcome["ShardId"] != pending.lane.shard_id
            settled.moved |= elsewhere
            if elsewhere and len(pending.users) > 1:
                self._doubtful.append((pending, outcome))
            else:
                settled.accept(pending, outcome)
        for lane in accepted:
            lane.backoff.reset()
        for lane in self._in_front(refused):
            lane.not_before = now + lane.backoff.next()
        return settled

    def put_back(self, not_before: float = float("-inf"), call: Sequence[Pending] | None = None) -> None:
        """A call has failed: its records wait again.

        Args:
            not_before: when their shards may be tried again.
            call: as `take` gave it; the only one by default.
        """
        call = self._call if call is None else call
        self._end(call)
        for lane in self._in_front(call):
            lane.not_before = max(lane.not_before, not_before)

    def _end(self, call: Sequence[Pending]) -> None:
        """The call is no longer running."""
        if call:
            del self._calls[call[0].lane.group]

    def _in_front(self, records: Sequence[Pending]) -> set[_Lane]:
        """Let them wait before all others; their lanes."""
        for pending in reversed(records):
            pending.lane.waiting.appendleft(pending)
        self._waiting += len(records)
        self._waiting_bytes += sum(pending.size for pending in records)
        return {pending.lane for pending in records}

    # Shards.

    def reshard(self, shards: ShardMap | None) -> Settled:
        """Line up again for the shards that there are now. Between calls.

        Returns:
            The doubtful records that are where readers keep them.
        """
        assert not self._calls, "between calls"
        self._shards = shards
        settled = Settled()
        doubtful, self._doubtful = self._doubtful, []
        astray = []
        for pending, outcome in doubtful:
            shard_id = outcome["ShardId"]
            if shards is not None and all(shards.owns(shard_id, user.partition_key) for user in pending.users):
                settled.accept(pending, outcome)
            else:
                astray.append(pending)
        waiting = sorted([*astray, *self], key=lambda pending: pending.ordinal)
        for lane in self._lanes.values():
            lane.waiting.clear()
        self._waiting = self._waiting_bytes = 0
        for pending in self._packed_anew(waiting) if self._limits.aggregate else waiting:
            self._line_up(pending)
        self._lanes = {shard_id: lane for shard_id, lane in self._lanes.items() if lane.waiting}
        return settled

    def _packed_anew(self, waiting: Sequence[Pending]) -> Sequence[Pending]:
        """Other aggregates of the same user records, before all others; open ones are open again."""
        opened = [] if self._aggregator is None else self._aggregator.drain()
        self._aggregator = None
        entries = [entry for pending in waiting for user in pending.users for entry in self._pack(user)]
        if self._aggregator is not None:
            entries += self._aggregator.drain()
        for user in (user for entry in opened for user in entry.users):
            entries += self._pack(user)  # none of those before it is open
        first = min((pending.ordinal for pending in waiting), default=self._added) - len(entries)
        return [_aggregate(first + index, entry) for index, entry in enumerate(entries)]


def _aggregate(ordinal: int, entry: Entry) -> Pending:
    item = OutputItem(len(entry.data), len(entry.users), entry.data, entry.partition_key)
    tags = tuple(tag for user in entry.users if isinstance(user, _Tagged) for tag in user.tags)
    return Pending(ordinal, item, entry.partition_key, entry.users, None, tags)
