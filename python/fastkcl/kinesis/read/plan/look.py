"""One shard as a plan sees it: its next records, and how far a batch may reach beyond them.

    position ─▶ head: records, kept ─▶ …… records that are not fetched …… ─▶ highest: one record, found by its time

A *look* is one GetRecords if the shard is quiet, two if it is busy, and more while it searches:

==================================  ============================================================================
records, MBL 0                      they are the head, and its last record may end the batch
records, MBL > 0                    the head, and a probe: AT_TIMESTAMP t with Limit 1, t = the end of the slice, or
                                    half a second ago
the probe finds a record            it may end the batch, if it is above the head
nothing at t, MBL 0                 up to five more probes, each halfway between the highest record and the lowest t
                                    without one, which the next look keeps
nothing at t, the iterator is null  the shard is closed, and ends before t: `END`
no records                          unchanged; twice in a row with MBL 0: the shard is quiet
the iterator is null                `END`
throttled, iterator expired, away   a head is planned without its probe; else the look is repeated, after a pause
records by an iterator that was     a proof: the position before them is asked for again. If it comes, nothing after it
kept over more than the retention   was trimmed; if not, it is `Gone`. Nothing is planned before
closed, and the position is old     `Gone`: whatever it had is trimmed
==================================  ============================================================================

Rules: no I/O and no clock. A new iterator at a record asks for this record again, and whatever is not above it is
dropped. An answer without records does not show whether the position is there. A MillisBehindLatest of 0 is believed
when it comes twice in a row. An iterator that lags by nearly the retention is made anew before each look, but is kept
after two answers in a row without a new record: asked again, a large record, or one before a long gap, comes alone each
time. A refused probe (a time that the service has not reached) ends the search, and no query.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from fastkcl.backoff import Backoff
from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.read.plan.calls import GetRecords, GetShardIterator, Records
from fastkcl.kinesis.read.plan.losses import MARGIN, NEARLY
from fastkcl.kinesis.read.plan.offset import END, Position
from fastkcl.kinesis.read.plan.taken import Gone, Head, LookRules, Taken

__all__ = ["Look"]

ITERATOR_LIFE = 240_000
CALL_PAUSE = 200
"""ms for each call that a look has made: the service takes five a second and shard."""
ABSENCE_PAUSE = 1_000
"""ms until a shard that there is not is asked for again."""
MAX_PROBES = 6
WIDE = 1_000
"""Records of a head where the end of the shard is within a second of it."""
UNKNOWN = 8 << 20
"""Bytes between a head and the end of its closed shard, of which nothing is known."""
NOT_YET = 500
"""ms before now that a probe may ask for."""


class _Phase(Enum):
    REST = "rest"
    SEEK = "seek"
    READ = "read"
    PROBE_SEEK = "probe: seek"
    PROBE_READ = "probe: read"
    PROOF_SEEK = "proof: seek"
    PROOF_READ = "proof: read"


class Look:
    """A shard.

    Args:
        stream: name or ARN.
        shard_id: which.
        position: where the next batch begins.
        covered: until when the shard is known to be read, in ms since the epoch.
        unsure: whether records after the position may have been trimmed before this process began.
    """

    def __init__(self, stream: str, shard_id: str, position: Position, covered: int, *, unsure: bool) -> None:
        self.stream = stream
        self.shard_id = shard_id
        self.position = position
        self.covered = covered
        self.head: Head | None = None
        self.first: str | None = None
        self.quiet = 0
        self.throttled = 0
        self.mean_size = 0.0
        self._head_bytes = 0
        self._highest: str | None = None
        self._arrived = 0
        self._newest = 0
        self._is_far = False
        self._ended = position == END
        self._iterator: str | None = None
        self._made = 0
        self._empty = 0
        self._checks = unsure or position.number is not None
        self.behind: int | None = None
        self._wide = False
        self._phase = _Phase.REST
        self._call: GetShardIterator | GetRecords | None = None
        self._began = self._calls = self._due = 0
        self._backoff = Backoff()
        self._probe_time = self._probes = 0
        self._probe_iterator = ""
        self._span = 0
        self._nothing_from: int | None = None
        self._doubt: Gone | None = None  # what has to be proved before anything is planned

    # What is asked.

    def has_news(self, rules: LookRules) -> bool:
        """Whether a batch that ends now has records of the shard, or ends it."""
        if not self.is_resting:
            return False
        if self.first is None:
            return self.has_ended and self.position != END
        return self._is_far or self._cut(rules, None) > 0

    @property
    def has_ended(self) -> bool:
        """Whether the shard is closed, and there is no record after those that were planned."""
        return self._ended and self.first is None and self._doubt is None

    @property
    def is_resting(self) -> bool:
        """Whether no look is under way."""
        return self._phase is _Phase.REST and self._doubt is None

    def is_done(self, rules: LookRules) -> bool:
        """Whether the shard is seen up to the time that was asked for."""
        return self._doubt is None and (self._ended or self.quiet >= 2 or self._is_late(rules))

    def due(self, rules: LookRules) -> int | None:
        """When the next look may begin; None while there is nothing to look for."""
        if self._phase is not _Phase.REST:
            return None
        if self._doubt is not None:
            return self._due
        if self._ended:
            return None
        if rules.until is not None and self.is_done(rules):
            return None
        return self._due if self.first is None or rules.everything else None

    def call(self, now: int, date: int, rules: LookRules) -> GetShardIterator | GetRecords | None:
        """The next call; None while one is under way, or none is due.

        Args:
            now: ms, of any clock.
            date: ms since the epoch, the service's.
            rules: of this trigger.
        """
        if self._call is not None:
            return None
        if self._phase is _Phase.REST:
            due = self.due(rules)
            if due is None or due > now:
                return None
            self._begin(now, date, rules)
        self._call = self._next_call(now, rules)
        return self._call

    def is_current(self, call: object) -> bool:
        """Whether an answer to this call is waited for."""
        return call is self._call

    # What is seen.

    def answered(self, answer: str | Records, now: int, date: int, rules: LookRules) -> Gone | None:
        """The answer to `call`.

        Returns:
            The position, where the answer shows that it was trimmed.
        """
        self._call = None
        self._backoff.reset()
        match self._phase, answer:
            case _Phase.SEEK, str():
                self._iterator, self._made = answer, now
                self._checks |= self._tail.number is not None
                self._phase = _Phase.READ
            case _Phase.PROBE_SEEK, str():
                self._probe_iterator = answer
                self._phase = _Phase.PROBE_READ
            case _Phase.READ, Records():
                self._calls += 1
                return self._read(answer, now, date, rules)
            case _Phase.PROBE_READ, Records():
                self._calls += 1
                self._probed(answer, now)
            case _Phase.PROOF_SEEK, str():
                self._probe_iterator, self._probes = answer, MAX_PROBES
                self._phase = _Phase.PROOF_READ
            case _Phase.PROOF_READ, Records():
                self._calls += 1
                return self._proved(answer, now, rules)
        return None

    def failed(self, failure: Failure, now: int) -> bool:
        """The call has failed.

        Returns:
            Whether that is mended by itself: later, or by another iterator.
        """
        self._call = None
        probing = self._phase not in (_Phase.SEEK, _Phase.READ)
        proving = self._doubt is not None
        self._phase = _Phase.REST
        if failure is Failure.THROTTLED:
            self.throttled += 1
        elif failure is Failure.EXPIRED_ITERATOR:
            self._iterator = None if not probing else self._iterator
        elif failure is not Failure.UNAVAILABLE:
            self._due = max(self._due, now + ABSENCE_PAUSE)
            return probing and not proving and failure is Failure.OTHER
        pause = 0 if failure is Failure.EXPIRED_ITERATOR else int(1000 * self._backoff.next())
        self._due = max(self._due, now + pause)
        return True

    def vanish(self) -> None:
        """The shard is gone with its records: it ends."""
        self._ended, self._doubt = True, None
        self._phase, self._call = _Phase.REST, None

    def prepare(self) -> None:
        """Only later answers show that the shard is quiet."""
        self.quiet = 0

    def take(self, rules: LookRules, rows: int | None) -> Taken:
        """Plan the records that were seen, and continue after them.

        Args:
            rules: of this trigger.
            rows: records at most; None for no such limit.
        """
        stop = self._cut(rules, rows)
        rows = 0 if self._doubt is not None else rows
        if self.first is None or rows == 0 or (stop == 0 and not self._is_far):
            if self.has_ended:
                self.position = END
            return Taken(None, self.position, None, None, self._covered_before(self.head))
        head, rest = (self.head, None) if self.head is None or stop >= len(self.head) else self.head.split(stop)
        last = None if head is None else head.records.numbers[head.stop - 1]
        is_whole = rest is None
        end = END if is_whole and self._ended else Position((self._highest if is_whole else last) or "")
        after = last if self._is_far else None
        taken = Taken(self.first, end, head, after, self._covered_before(rest), self._beyond(head))
        self._move(end, rest)
        return taken

    @property
    def held(self) -> int:
        """Bytes of records that are kept: those of the head's whole answer."""
        return 0 if self.head is None or self.head.records.content is None else self._head_bytes

    def drop(self) -> None:
        """Keep numbers, times and sizes of the head, and not its records: a task reads them."""
        if self.head is not None:
            self.head = self.head.without_content()

    # Insides.

    @property
    def _tail(self) -> Position:
        """The record after which a new iterator continues."""
        return self.position if self._highest is None else Position(self._highest)

    def _begin(self, now: int, date: int, rules: LookRules) -> None:
        self._began, self._calls = now, 0
        if self._doubt is not None:
            self._phase = _Phase.PROOF_SEEK
            return
        is_old = now - self._made > ITERATOR_LIFE
        is_near = date - self.covered > NEARLY * rules.retention
        if is_old or (is_near and self._empty < 2):
            self._iterator, self._checks = None, True
        self._phase = _Phase.SEEK if self._iterator is None else _Phase.READ

    def _next_call(self, now: int, rules: LookRules) -> GetShardIterator | GetRecords:
        match self._phase:
            case _Phase.SEEK:
                return GetShardIterator(self.stream, self.shard_id, self._tail)
            case _Phase.PROBE_SEEK:
                return GetShardIterator(self.stream, self.shard_id, Position.since(self._probe_time))
            case _Phase.PROOF_SEEK:
                assert self._doubt is not None
                return GetShardIterator(self.stream, self.shard_id, self._doubt.position)
            case _Phase.PROBE_READ | _Phase.PROOF_READ:
                return GetRecords(self.stream, self.shard_id, self._probe_iterator, 1)
        limit = WIDE if self._wide or self._is_far else rules.limit
        comes_again = self._checks and self._tail.number is not None
        return GetRecords(self.stream, self.shard_id, self._iterator or "", limit + comes_again)

    def _rest(self, now: int, rules: LookRules | None = None) -> None:
        self._phase = _Phase.REST
        period = rules.period if rules is not None else 0
        self._due = max(self._began + period, self._began + CALL_PAUSE * self._calls, self._due)

    def _read(self, answer: Records, now: int, date: int, rules: LookRules) -> Gone | None:
        gone = self._check(answer, date, rules)
        begin = answer.rows_until(self._tail.number)
        self._iterator, self._made = answer.next_iterator, now
        self._note_time(answer, date, rules)
        self._empty = 0 if begin < len(answer.numbers) else self._empty + 1
        if begin < len(answer.numbers):
            self._add(answer, begin)
        elif answer.millis_behind == 0:
            self.quiet += 1
        else:
            self.quiet = 0
        self._ended = answer.next_iterator is None
        self._rest(now, rules)
        if self._doubt is not None:
            self._phase = _Phase.PROOF_SEEK
        elif begin < len(answer.numbers) and answer.millis_behind > 0 and not self._ended:
            self._search(date, rules)
        return gone

    def _check(self, answer: Records, date: int, rules: LookRules) -> Gone | None:
        """Let the first record, or the end, show whether the position is there."""
        if not answer.numbers and answer.next_iterator is not None:
            return None
        first, number = next(iter(answer.numbers), None), self._tail.number
        gone = Gone(self._tail, first, self.covered)
        if not self._checks:
            may_be_gone = self._is_old(date, rules)
            self._doubt = gone if may_be_gone and number is not None else None
            return gone if may_be_gone and number is None else None
        self._checks = False
        return None if number is not None and first is not None and int(first) <= int(number) else gone

    def _proved(self, answer: Records, now: int, rules: LookRules) -> Gone | None:
        """Let the position before a gap show that nothing after it was trimmed."""
        doubt = self._doubt
        assert doubt is not None
        self._probes -= 1
        if not answer.numbers and answer.next_iterator is not None and self._probes > 0:
            self._probe_iterator = answer.next_iterator
            return None
        self._doubt = None
        self._rest(now, rules)
        is_there = bool(answer.numbers) and int(answer.numbers[0]) <= int(doubt.position.text)
        return None if is_there else doubt

    def _is_old(self, date: int, rules: LookRules) -> bool:
        """Whether records after those that are known to be read may be trimmed."""
        return self.covered - MARGIN < date - rules.retention

    def _note_time(self, answer: Records, date: int, rules: LookRules) -> None:
        before, self.behind = self.behind, answer.millis_behind
        if answer.next_iterator is None:
            return  # a closed shard is at its tip while its children are a day old
        if self._is_old(date, rules):
            return  # what was trimmed is not known yet
        if before is not None or answer.millis_behind > 0:
            self.covered = max(self.covered, date - max(answer.millis_behind, before or 0))

    def _add(self, answer: Records, begin: int) -> None:
        stop = len(answer.numbers)
        self.quiet = 0
        size = sum(answer.sizes)
        self.mean_size = size / stop
        self._see(answer.numbers[-1], answer.arrivals[-1])
        self._newest = max(self._newest, *answer.arrivals[begin:])
        if self.first is None:
            self.first = answer.numbers[begin]
            self.head = Head(answer, begin, stop)
            self._head_bytes = size
        else:
            self._is_far = True

    def _see(self, number: str, arrived: int) -> None:
        self._highest, self._arrived = number, arrived
        self._newest = max(self._newest, arrived)
        self.covered = max(self.covered, arrived)

    def _is_late(self, rules: LookRules) -> bool:
        return rules.until is not None and self._newest > rules.until

    def _search(self, date: int, rules: LookRules) -> None:
        """Begin to look for a record beyond the head, where the batch may take more."""
        if self._is_full(rules):
            return
        head = self.head
        begin = self._arrived if head is None or self._is_far else head.records.arrivals[head.begin]
        ends = [date - NOT_YET, *([] if rules.slice is None else [begin + rules.slice])]
        time = min(ends if rules.until is None else [*ends, rules.until])
        if self._nothing_from is not None and self._nothing_from - self._arrived <= 1000:
            self._nothing_from = None
        if self._nothing_from is not None and self._nothing_from < time:
            time = (self._arrived + self._nothing_from) // 2
        self._span = time - self._arrived
        self._probes = MAX_PROBES
        self._wide = False
        self._probe(time)

    def _probe(self, time: int) -> None:
        if time > self._arrived and self._probes > 0:
            self._probes -= 1
            self._probe_time = time
            self._phase = _Phase.PROBE_SEEK
        else:
            self._phase = _Phase.REST

    def _probed(self, answer: Records, now: int) -> None:
        self._rest(now)
        if answer.numbers:
            is_above = int(answer.numbers[0]) > int(self._highest or 0)
            if is_above:
                self._see(answer.numbers[0], answer.arrivals[0])
                self._is_far = True
                self._iterator = None
            if is_above and self._nothing_from is not None:
                self._halve()
        elif answer.next_iterator is None:
            self._ended = self._is_far = True
        elif answer.millis_behind > 0:
            if self._probes > 0:
                self._probes -= 1
                self._probe_iterator = answer.next_iterator
                self._phase = _Phase.PROBE_READ
        else:
            self._nothing_from = self._probe_time
            self._halve()

    def _halve(self) -> None:
        rest = (self._nothing_from or 0) - self._arrived
        self._wide = rest <= 1000
        if rest > max(1000, self._span // 50):
            self._probe(self._arrived + rest // 2)

    def _is_full(self, rules: LookRules) -> bool:
        """Whether the head has all that a batch may take."""
        if self.head is None or self._is_late(rules):
            return True
        too_many = rules.rows is not None and len(self.head) >= rules.rows
        return too_many or (rules.bytes is not None and self.head.size >= rules.bytes)

    def _cut(self, rules: LookRules, rows: int | None) -> int:
        """How many rows of the head a batch may take."""
        if self.head is None:
            return 0
        if self._is_far:
            return len(self.head)
        stop = len(self.head) if rows is None else min(len(self.head), rows)
        head = self.head
        if rules.bytes is not None:
            stop = min(stop, _rows_within(head.records.sizes[head.begin : head.stop], rules.bytes))
        if rules.until is not None:
            arrivals = head.records.arrivals[head.begin : head.begin + stop]
            stop = next((row for row, arrived in enumerate(arrivals) if arrived > rules.until), stop)
        return stop

    def _covered_before(self, rest: Head | None) -> int:
        return self.covered if rest is None else min(self.covered, rest.records.arrivals[rest.begin])

    def _beyond(self, head: Head | None) -> int:
        """Bytes that may lie between the head and the end, if they came as fast as those of the head."""
        if head is None or not self._is_far:
            return 0
        if self._ended:
            return UNKNOWN
        first, last = head.records.arrivals[head.begin], head.records.arrivals[head.stop - 1]
        rate = min(1000.0, head.size / max(1, last - first))
        return int(rate * max(0, self._arrived - last))

    def _move(self, end: Position, rest: Head | None) -> None:
        self.position = end
        self.head = rest
        if self._is_far:
            self._iterator = None
        self._is_far = False
        self.first = None if rest is None else rest.records.numbers[rest.begin]
        if rest is None:
            self._highest = None


def _rows_within(sizes: Sequence[int], limit: int) -> int:
    """How many records have at most so many bytes together; at least one."""
    total = 0
    for row, size in enumerate(sizes):
        total += size
        if total > limit:
            return max(1, row)
    return len(sizes)
