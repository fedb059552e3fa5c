"""When a batch may be planned, and which records it has.

    begin(start) ─▶ calls ─▶ answered, failed ─▶ wait = 0 ─▶ plan ─▶ offset, parts

    wait      0 when all looks are back, 0.3 s after one brought records, or 1 s after the beginning: a slow shard
              delays no other, and is taken next time. Without news, 0.2 s for a look that comes due: a query that
              polls without a pause would take a quarter of a core
    plan      the offset where the batch ends, and its parts: one for each shard that has records. The very `start` if
              nothing is new

Limits. A shard takes at most a record and a kB a millisecond, so a slice of time bounds both: ``max_records`` or
``max_bytes``, divided by the shards, is a slice, as is ``max_slice`` without them. Heads are cut to the record. A limit
may be passed by one record in each shard, and by the records that a shard took in the second around the slice's end.
Records are those of Kinesis: an aggregate counts once.

Inline or by range. The head of a part is at hand, and travels with the plan while the heads of a batch have no more
than ``inline_bytes`` together, small ones first. The rest of a part, or all of it, is a range for a task to read.

Memory. The heads that are kept have ``inline_bytes`` together: of others only numbers, times and sizes stay, as they
could not travel. Answers under way count against 64 MiB, each by the most that it may bring: an answer of which nothing
is known may have 10 MiB, and those that come after a batch wait for the next one.

Rules: no I/O and no clock. ``now`` is ms of any clock that does not go back; ``date`` is the service's time as its
answers have it (the Date header, ms since the epoch). The local time of day counts for nothing. Shards that are
finished leave in a later batch than their last records; every hour a quiet query has a new offset, so that it never
looks as if it had been stopped. A query that reads all in one batch (Once) leaves the children of shards that end in
this batch to the next one, as keys have their order from batch to batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.read.plan import generations
from fastkcl.kinesis.read.plan.calls import Answer, Call, GetRecords, Records
from fastkcl.kinesis.read.plan.errors import OffsetError
from fastkcl.kinesis.read.plan.look import Look
from fastkcl.kinesis.read.plan.losses import DAY
from fastkcl.kinesis.read.plan.offset import TRIM, Offset, Position, StreamOffset
from fastkcl.kinesis.read.plan.ranges import ALL_HASHES, Range
from fastkcl.kinesis.read.plan.stream import StreamPlan
from fastkcl.kinesis.read.plan.taken import Head, LookRules, Taken
from fastkcl.kinesis.topology import Shard

__all__ = ["Head", "Part", "Plan", "PlanOptions", "Planner", "ranges_of"]

WITH_NEWS, WITHOUT_NEWS, IDLE = 300, 1_000, 200
"""ms, see above."""
REFRESH = 3_600_000
"""ms between two offsets of a quiet query."""
MIN_LAG = 60_000
AVAILABLE_MARGIN = 1_000
"""ms: a Date header has whole seconds."""
MAX_HEAD = 1_000
FLIGHT_BYTES = 64 << 20
MAX_ANSWER = 10 << 20
"""Bytes of the records of an answer."""
MEAN_SIZE = 1_000
"""Bytes of a record, until some are seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The streams that a query reads, and its options.

    Attributes:
        streams: names or ARNs.
        initial: `TRIM`, or a time; None for the latest record. It counts for streams that the checkpoint lacks.
        fail_on_data_loss: whether lost records are an error.
        max_records: of a batch; None for no such limit.
        max_shard_records: of each shard in a batch; None for no such limit.
        max_bytes: of a batch; None for no such limit.
        max_slice: ms of a shard in a batch, where there is no other limit.
        inline_bytes: of all heads of a batch; 0 for ranges only.
        min_fetch_period: ms between two looks at a shard.
        list_interval: ms between two lists of shards.
        max_outage: ms for which the service may be away.

    Raises:
        ValueError: a limit that would read nothing.
    """

    streams: tuple[str, ...]
    initial: Position | None = None
    fail_on_data_loss: bool = True
    max_records: int | None = None
    max_shard_records: int | None = None
    max_bytes: int | None = None
    max_slice: int = 300_000
    inline_bytes: int = 8 << 20
    min_fetch_period: int = 400
    list_interval: int = 10_000
    max_outage: int = 600_000

    def __post_init__(self) -> None:
        """Refuse what reads nothing, or asks too often."""
        if not self.streams or len(set(self.streams)) != len(self.streams):
            raise ValueError(f"each stream has to be named once: {', '.join(self.streams) or 'there is none'}")
        least = {"max_slice": 1, "inline_bytes": 0, "min_fetch_period": 200, "list_interval": 1_000, "max_outage": 0}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ValueError(f"{name} must be {value} or more, not {getattr(self, name)}")
        for name in ("max_records", "max_shard_records", "max_bytes"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.initial is not None and self.initial != TRIM and self.initial.time is None:
            raise ValueError(f"a stream cannot begin at {self.initial}")


@dataclass(frozen=True, slots=True)
class Part:
    """The records of a batch in one shard: those of the head, then those of the range.

    Attributes:
        stream: name or ARN.
        shard_id: which.
        hash_range: of the shard.
        head: what travels with the plan; None if all is read by a task.
        range: what is read by a task; None if all travels.
        whole: both as one range, for a head whose rows turn out too large to travel; None if there is no head.
    """

    stream: str
    shard_id: str
    hash_range: tuple[int, int]
    head: Head | None
    range: Range | None
    whole: Range | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch.

    Attributes:
        offset: where it ends.
        parts: none, if it is empty.
    """

    offset: Offset
    parts: tuple[Part, ...] = field(default=())


def ranges_of(offset: Offset, shards: Mapping[str, Mapping[str, Shard]]) -> list[Range]:
    """The batch that ends at an offset, as ranges: what a replay reads.

    Args:
        offset: where it ends.
        shards: as they are listed now, by stream and id, for their hash ranges.
    """
    return [
        Range(
            stream=name,
            shard_id=key,
            first=first,
            end=stream.shards[key],
            hash_range=_hash_range(shards.get(name, {}), key),
        )
        for name, stream in offset.streams.items()
        for key, first in stream.first.items()
    ]


class Planner:
    """Plans the batches of a query.

    Args:
        options: see there.
    """

    def __init__(self, options: PlanOptions) -> None:
        self.options = options
        self._warnings: list[str] = []
        self.streams = {
            name: StreamPlan(
                name,
                options.initial,
                fail_on_data_loss=options.fail_on_data_loss,
                list_interval=options.list_interval,
                max_outage=options.max_outage,
                warnings=self._warnings,
            )
            for name in options.streams
        }
        self._start = Offset()
        self._began = 0
        self._ahead: int | None = None  # of the service's time, to the caller's clock
        self._until: int | None = None
        self._is_preparing = False
        self._everything = False
        self._everything_until: int | None = None
        self._news_at: int | None = None  # when `wait` saw them first
        self._mean: float | None = None  # bytes of a record
        self._held = 0  # at most, of the heads
        self._is_full = False  # whether no more calls may be under way, until an answer comes
        self._rules = self._make_rules()

    # What is told.

    def prepare(self) -> None:
        """The query ends when it has all that there is now (AvailableNow)."""
        self._is_preparing, self._until = True, None
        for stream in self.streams.values():
            stream.prepare()

    def begin(self, start: Offset, now: int, *, everything: bool = False) -> None:
        """A batch is wanted.

        Args:
            start: where it begins: the end of the last one, or an offset without streams.
            now: ms.
            everything: all that there is now, in one batch (Once).

        Raises:
            OffsetError: the offset has a stream that the options lack.
        """
        unknown = sorted(start.streams.keys() - self.streams.keys())
        if unknown:
            raise OffsetError(
                f"the checkpoint has the stream {unknown[0]}, and the options do not: name it again, or use a new "
                "checkpointLocation"
            )
        self._start, self._began, self._news_at = start, now, None
        self._is_full = False
        self._everything = everything
        self._everything_until = None
        for name, stream in self.streams.items():
            stream.begin(start.streams.get(name), start.at)
            if everything:
                for look in stream.looks.values():
                    look.prepare()
        self._rules = self._make_rules()

    def answered(self, call: Call, answer: Answer, now: int, date: int) -> None:
        """A call has succeeded.

        Args:
            call: the very object that `calls` gave.
            answer: see `fastkcl.kinesis.read.plan.calls`.
            now: ms.
            date: the service's time, in ms since the epoch.

        Raises:
            DataLossError: records are gone that no batch has.
            AnotherStream: the stream was made again.
        """
        self._ahead = date - now
        self._is_full = False
        if self._is_preparing:
            self._until, self._is_preparing = date + AVAILABLE_MARGIN, False
            self._rules = self._make_rules()
        if self._everything and self._everything_until is None:
            self._everything_until = date + AVAILABLE_MARGIN
            self._rules = self._make_rules()
        self.streams[call.stream].answered(call, answer, now, date, self._rules)
        if isinstance(answer, Records):
            self._bound_heads(sum(answer.sizes))

    def failed(self, call: Call, failure: Failure, error: BaseException, now: int) -> None:
        """A call has failed.

        Args:
            call: the very object that `calls` gave.
            failure: of which kind.
            error: for the message.
            now: ms.

        Raises:
            ConnectionError: the service was away for longer than ``max_outage``.
            StreamDoesNotExist: there is no such stream.
            CallError: nothing mends it.
        """
        self._is_full = False
        self.streams[call.stream].failed(call, failure, error, now)

    # What is asked.

    def calls(self, now: int, at_most: int) -> list[Call]:
        """The calls that are due, each once.

        Args:
            now: ms.
            at_most: so many may be under way together.
        """
        found: list[Call] = []
        rules = self._rules = self._make_rules()
        under_way = [call for stream in self.streams.values() for call in stream.under_way]
        room = at_most - len(under_way)
        bytes_left = FLIGHT_BYTES - sum(map(self._expected, under_way))
        for stream in self.streams.values():
            calls = stream.calls(now, self._date(now), rules)
            while not self._is_full:
                self._is_full = room <= len(found) or bytes_left <= 0
                call = None if self._is_full else next(calls, None)
                if call is None:
                    break
                found.append(call)
                bytes_left -= self._expected(call)
        return found

    def wait(self, now: int) -> int:
        """Ms until `plan` may be called, if no answer comes before; 0 for now."""
        rules = self._rules
        due = min(stream.next_due(rules) for stream in self.streams.values())
        due = now + WITHOUT_NEWS if self._is_full else due
        if not all(stream.is_known for stream in self.streams.values()):
            return min(WITHOUT_NEWS, max(1, due - now))
        looks = self._looks()
        dues = (look.due(rules) for look in looks if look.is_resting)
        is_busy = any(due is not None and due <= now for due in dues) or not all(look.is_resting for look in looks)
        must_go_on = not self._is_done(rules)
        last = self._began + WITHOUT_NEWS
        if self._has_news():
            self._news_at = now if self._news_at is None else self._news_at
            bounded = min(last, self._news_at + WITH_NEWS)
            end = None if self._everything and must_go_on else bounded if is_busy else now
        elif must_go_on:
            end = None
        else:
            end = last if is_busy else self._began + IDLE
        if end is not None and end <= now:
            return 0
        times = [time for time in (end, due) if time is not None]
        return min(WITHOUT_NEWS, max(1, min(times) - now))

    def plan(self, now: int) -> Plan:
        """The batch of the records that were seen.

        Args:
            now: ms.
        """
        rules = self._rules
        date = self._date(now)
        is_old = self._start.at is not None and date - self._start.at >= REFRESH
        is_known = all(stream.is_known for stream in self.streams.values())
        if not is_known or not (self._has_news() or is_old):
            return Plan(self._start)
        taken = self._take(rules)
        at = max(date, self._start.at or 0)
        streams = {name: _offset_of(stream, taken[name], at) for name, stream in self.streams.items()}
        return Plan(Offset(at, streams), self._parts(taken))

    def warnings(self) -> list[str]:
        """Lines for the log, each once."""
        lines = self._warnings[:]
        self._warnings.clear()
        return lines

    # Insides.

    def _looks(self) -> list[Look]:
        return [look for stream in self.streams.values() for look in stream.looks.values()]

    def _date(self, now: int) -> int:
        return now + (self._ahead or 0)

    def _has_news(self) -> bool:
        rules = self._rules
        known = [stream for stream in self.streams.values() if stream.is_known]
        return any(
            stream.has_entered or any(look.has_news(rules) for look in stream.looks.values()) for stream in known
        )

    def _is_done(self, rules: LookRules) -> bool:
        """Whether nothing is left that has to be read before the query, or the batch, may end."""
        if self._everything:
            return all(look.is_done(rules) for look in self._looks())
        if self._until is None:
            return not self._is_preparing
        waits = any(stream.could_enter() for stream in self.streams.values())
        return not waits and all(look.is_done(rules) for look in self._looks())

    def _make_rules(self) -> LookRules:
        looks = self._looks()
        shards = max(1, len(looks))
        sizes = [look.mean_size for look in looks if look.mean_size]
        self._mean = sum(sizes) / len(sizes) if sizes else self._mean
        mean = self._mean or MEAN_SIZE
        options = self.options
        shares = [options.max_shard_records, options.max_records and max(1, options.max_records // shards)]
        rows = min((share for share in shares if share is not None), default=None)
        size = None if options.max_bytes is None else max(1, options.max_bytes // shards)
        slices = [count for count in (rows, None if size is None else max(1, size // 1000)) if count is not None]
        everything = self._everything
        return LookRules(
            limit=max(1, min(MAX_HEAD, int(options.inline_bytes / shards / mean), rows or MAX_HEAD)),
            slice=None if everything else min(slices, default=options.max_slice),
            rows=None if everything else rows,
            bytes=None if everything else size,
            until=self._everything_until if everything else self._until,
            everything=everything,
            period=options.min_fetch_period,
            retention=DAY,
        )

    def _expected(self, call: Call) -> int:
        """Bytes that a call may bring."""
        if not isinstance(call, GetRecords):
            return 0
        look = self.streams[call.stream].looks.get(call.shard_id)
        mean = (look.mean_size if look is not None else 0) or self._mean
        return MAX_ANSWER if not mean else int(min(MAX_ANSWER, 2 * mean * call.limit))

    def _bound_heads(self, more: int) -> None:
        """Drop the largest heads, while they have more than may travel."""
        self._held += more
        if self._held <= self.options.inline_bytes:
            return
        looks = sorted((look for look in self._looks() if look.held), key=lambda look: look.held)
        self._held = sum(look.held for look in looks)
        while self._held > self.options.inline_bytes:
            self._held -= looks[-1].held
            looks.pop().drop()

    def _take(self, rules: LookRules) -> dict[str, dict[str, Taken]]:
        """The records of each shard. With a limit for all, the shards whose records have waited longest come first."""
        left = None if self._everything else self.options.max_records
        taken: dict[str, dict[str, Taken]] = {name: {} for name in self.streams}
        for look in sorted(self._looks(), key=_arrival_of):
            rows = None if left is None else min(left, rules.rows or left)
            part = look.take(self.streams[look.stream].rules(rules), rows if look.is_resting else 0)
            taken[look.stream][look.shard_id] = part
            if left is not None and part.head is not None:
                left = max(0, left - len(part.head))
        return taken

    def _parts(self, taken: Mapping[str, Mapping[str, Taken]]) -> tuple[Part, ...]:
        room = self.options.inline_bytes
        found = [(name, key, part) for name, shards in taken.items() for key, part in shards.items()]
        parts = []
        for name, key, part in sorted(found, key=lambda item: item[2].head.size if item[2].head else 0):
            if part.first is None or part.head is None:
                continue
            size = part.head.size
            travels = size <= room and self.options.inline_bytes and part.head.records.content is not None
            inline = part.head if travels else None
            room -= size if inline is not None else 0
            hash_range = _hash_range(self.streams[name].shards, key)
            whole = Range(
                stream=name,
                shard_id=key,
                first=part.first,
                end=part.end,
                hash_range=hash_range,
                expected=part.beyond + size,
            )
            if inline is None:
                parts.append(Part(name, key, hash_range, None, whole))
                continue
            rest = None if part.after is None else replace(whole, after=part.after, expected=part.beyond)
            parts.append(Part(name, key, hash_range, inline, rest, whole))
        return tuple(parts)


def _offset_of(stream: StreamPlan, taken: Mapping[str, Taken], at: int) -> StreamOffset:
    shards = {key: part.end for key, part in taken.items()}
    first = {key: part.first for key, part in taken.items() if part.first is not None}
    left = generations.leaving(stream.shards, shards, first)
    kept = {key: position for key, position in shards.items() if key not in left}
    lag = {key: at - taken[key].covered for key in kept if at - taken[key].covered > MIN_LAG}
    return StreamOffset(stream.created, kept, first, lag)


def _hash_range(shards: Mapping[str, Shard], key: str) -> tuple[int, int]:
    return shards[key].hash_range if key in shards else ALL_HASHES


def _arrival_of(look: Look) -> int:
    head = look.head
    return 0 if head is None else head.records.arrivals[head.begin]
