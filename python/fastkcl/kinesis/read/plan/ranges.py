"""A closed range of a shard, and its reader: the same rows in the same order, at each attempt and on any machine.

==============================================  ===============================================================
the first record is not the one that begins     the stream has trimmed it: `DataLossError`, or it goes on
records above the end                           they are cut off; if the end is not among the records, it was trimmed
no records, MBL > 0                             it goes on
no records, MBL 0, before the end               five more tries, 0.2 to 3 s apart; then the oldest record decides: above
                                                the end, the range was trimmed; else `CallError`, so that a task is
                                                repeated
the iterator is null before the end             `CallError`; where the range ends with the shard, it is finished
throttled                                       it waits, however long
iterator expired                                a new one at the last record, which comes again and is dropped
records by an iterator that was kept over       a proof: the record before them is asked for again, before the range may
nearly the retention                            end; if it does not come, it was trimmed, and maybe more
no such shard                                   it was trimmed with its records
no connection, failure of the service           it waits, for ``max_outage`` at most
anything else                                   `CallError` at once
==============================================  ===============================================================

A reader that lags by nearly the retention asks for its last record again after each answer that has rows: a kept
iterator skips trimmed records, without a word, in the middle of a range, where neither its first nor its last record
shows it. After an answer without rows the iterator is kept: a large record, or one before a long gap, comes alone each
time.

Rules: no I/O and no clock; times are ms. A reader has one call under way at most. After an error it is of no more use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from fastkcl.backoff import Backoff
from fastkcl.kinesis.exceptions import DataLossError
from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.read.plan.calls import GetRecords, GetShardIterator, Records
from fastkcl.kinesis.read.plan.errors import CallError
from fastkcl.kinesis.read.plan.losses import DAY, MARGIN, NEARLY, moment
from fastkcl.kinesis.read.plan.offset import END, TRIM, Position
from fastkcl.outage import Outage

__all__ = ["ALL_HASHES", "Range", "RangeReader", "TimeRange", "TimeRangeReader"]

ALL_HASHES = (0, 2**128 - 1)
PAUSES = (200, 400, 800, 1600, 3000)
"""ms before each try of a range whose records do not come."""
MAX_OUTAGE = 600_000
MAX_PROOFS = 5
"""Answers without records, until a record counts as gone."""
MAX_RECORDS = 10_000
EXPECTED = 4 << 20
"""Bytes of a range of which nothing is known: one that is read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The records of a batch in a shard, or those after its head.

    Attributes:
        stream: name or ARN.
        shard_id: which.
        first: the sequence number of the batch's first record.
        end: its last record; `END` for all that the closed shard has.
        after: the last record that somebody else has; None to begin with `first`.
        hash_range: of the shard, for its aggregates: the lowest and the highest hash key.
        expected: bytes that it may have, to share the work; no part of the range itself.
    """

    stream: str
    shard_id: str
    first: str
    end: Position
    after: str | None = None
    hash_range: tuple[int, int] = ALL_HASHES
    expected: int = field(default=EXPECTED, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """The records of a shard in a time that is over.

    Attributes:
        stream: name or ARN.
        shard_id: which.
        start: `TRIM`, or a time near which the first record has arrived.
        until: ms since the epoch: the range ends before the first record that has arrived later.
        hash_range: of the shard, for its aggregates.
        expected: bytes that it may have, to share the work; no part of the range itself.
    """

    stream: str
    shard_id: str
    start: Position
    until: int
    hash_range: tuple[int, int] = ALL_HASHES
    expected: int = field(default=EXPECTED, compare=False)


@dataclass(slots=True)
class _Proof:
    """What has to be shown before a range goes on.

    Attributes:
        position: a record that has to be there.
        iterator: where the range goes on.
        finished: whether it is at its end.
        tries: answers without records.
    """

    position: Position
    iterator: str | None
    finished: bool
    tries: int = 0


class _Reader(ABC):
    """What both readers share: iterators, pauses and failures.

    Attributes:
        finished: whether the range is read to its end.
        throttled: how many calls were.
        warnings: what was lost, for the log, where that is not an error.
    """

    def __init__(
        self,
        stream: str,
        shard_id: str,
        start: Position,
        *,
        retention: int | None,
        planned: int | None,
        fail_on_data_loss: bool,
        limit: int,
        max_outage: int,
    ) -> None:
        self.finished = False
        self.throttled = 0
        self.warnings: list[str] = []
        self._name = f"{stream}/{shard_id}"
        self._stream, self._shard_id = stream, shard_id
        self._last = start
        self._retention = DAY if retention is None else retention
        self._planned, self._date = planned, planned
        self._fails = fail_on_data_loss
        self._limit = limit
        self._max_outage = max_outage
        self._iterator: str | None = None
        self._call: GetShardIterator | GetRecords | None = None
        self._due = 0
        self._backoff = Backoff()
        self._away = Outage()
        self._answered: int | None = None
        self._behind = self._seen = 0
        self._is_kept = False  # whether the iterator came with records, and not for a position
        self._proof: _Proof | None = None

    def wait(self, now: int) -> int:
        """Ms until `call` has one to make."""
        return max(0, self._due - now)

    def call(self, now: int) -> GetShardIterator | GetRecords | None:
        """The next call.

        Args:
            now: ms, of any clock.

        Returns:
            None while one is under way, in a pause, and at the end.
        """
        if self.finished or self._call is not None or now < self._due:
            return None
        if self._answered is not None and self._behind + now - self._answered > NEARLY * self._retention:
            self._iterator = self._answered = None
        position = self._last if self._proof is None else self._proof.position
        if self._iterator is None:
            self._call = GetShardIterator(self._stream, self._shard_id, position)
        else:
            limit = self._limit if self._proof is None else 1
            self._call = GetRecords(self._stream, self._shard_id, self._iterator, limit)
        return self._call

    def answered(self, answer: str | Records, now: int, date: int | None = None) -> range:
        """The answer to `call`.

        Args:
            answer: an iterator, or records.
            now: ms, of the same clock.
            date: the service's time, in ms since the epoch, for messages.

        Returns:
            The rows of the answer that belong to the range.

        Raises:
            DataLossError: records of the range are gone.
            CallError: the range does not come to its end.
        """
        self._call = None
        self._date = self._date if date is None else date
        if isinstance(answer, str):
            self._iterator = answer
            if self._proof is None:
                self._is_kept = False
                self._sought()
            return range(0)
        self._away.ended()
        self._backoff.reset()
        if self._proof is not None:
            self._prove(self._proof, answer, now)
            return range(0)
        before, was_behind = self._last, self._behind + now - self._seen
        self._iterator, self._behind, self._seen = answer.next_iterator, answer.millis_behind, now
        rows = self._read(answer, now)
        self._answered = now if rows else None
        if rows:
            self._last = Position(answer.numbers[rows[-1]])
            if self._is_kept and before.number is not None and was_behind > self._retention - MARGIN:
                self._proof = _Proof(before, self._iterator, self.finished)
                self._iterator = self._answered = None
                self.finished = False
        self._is_kept = True
        return rows

    def failed(self, failure: Failure, error: BaseException, now: int) -> None:
        """The call has failed.

        Args:
            failure: of which kind.
            error: for the message.
            now: ms, of the same clock.

        Raises:
            DataLossError: the shard is gone.
            ConnectionError: the service was away for too long.
            CallError: nothing mends it.
        """
        call, self._call = self._call, None
        match failure:
            case Failure.THROTTLED:
                self._away.ended()
                self.throttled += 1
            case Failure.UNAVAILABLE:
                away = self._away.failed(now)
                if away > self._max_outage:
                    raise ConnectionError(
                        f"{self._name}: the service is away for {away / 1000:.0f} s: {error}"
                    ) from error
            case Failure.EXPIRED_ITERATOR:
                self._iterator = None
                return
            case Failure.NOT_FOUND:
                self._lose(f"the shard is gone ({error})", None)
                self.finished = True
                return
            case _:
                raise CallError.of(type(call).__name__, self._stream, self._name, failure, error) from error
        self._due = now + int(1000 * self._backoff.next())

    def _prove(self, proof: _Proof, answer: Records, now: int) -> None:
        """Let the record before a gap show that nothing after it was trimmed."""
        proof.tries += 1
        if not answer.numbers and answer.next_iterator is not None and proof.tries < MAX_PROOFS:
            self._iterator = answer.next_iterator
            return
        self._proof = None
        self._iterator, self._answered, self.finished = proof.iterator, now, proof.finished
        if not answer.numbers or int(answer.numbers[0]) > int(proof.position.text):
            self._lose(f"record {proof.position} is gone", next(iter(answer.numbers), None))

    def _lose(self, what: str, oldest: str | None) -> None:
        planned = "" if self._planned is None else f"; batch planned {moment(self._planned)}"
        now = "" if self._date is None else f"; now {moment(self._date)}"
        left = "no record is left" if oldest is None else f"the next record left is {oldest}"
        times = f"(retention {self._retention / 3_600_000:g} h{planned}{now}; {left})"
        message = f"{self._name}: {what} {times}: records of the batch are lost"
        if self._fails:
            hint = "failOnDataLoss=false goes on with what is left"
            raise DataLossError(f"{message}. {hint}", self._shard_id, self._last.text, oldest)
        self.warnings.append(message)

    @abstractmethod
    def _sought(self) -> None:
        """There is a new iterator at the last record."""

    @abstractmethod
    def _read(self, answer: Records, now: int) -> range:
        """The rows of an answer that belong to the range."""


class RangeReader(_Reader):
    """Reads a range.

    Args:
        part: the range.
        retention: of the stream, in ms; None if that is not known.
        planned: when the batch was, in ms since the epoch; None if that is not known.
        fail_on_data_loss: whether it is an error that records of the range are gone.
        limit: records of a call, 1 to 10,000.
        max_outage: ms for which the service may be away.
    """

    def __init__(
        self,
        part: Range,
        *,
        retention: int | None = None,
        planned: int | None = None,
        fail_on_data_loss: bool = True,
        limit: int = MAX_RECORDS,
        max_outage: int = MAX_OUTAGE,
    ) -> None:
        super().__init__(
            part.stream,
            part.shard_id,
            Position(part.after or part.first),
            retention=retention,
            planned=planned,
            fail_on_data_loss=fail_on_data_loss,
            limit=limit,
            max_outage=max_outage,
        )
        self.part = part
        self._begun = part.after is not None  # the last record is read, and is dropped where it comes again
        self._checks = True
        self._tries = 0
        self._asks_oldest = False
        self._resume = self._last

    def _sought(self) -> None:
        self._checks = not self._asks_oldest

    def _read(self, answer: Records, now: int) -> range:
        if self._asks_oldest:
            return self._judge(answer)
        if not answer.numbers:
            self._miss(answer, now)
            return range(0)
        self._tries = 0
        self._check(answer.numbers[0])
        begin = answer.rows_until(self._last.number) if self._begun else 0
        end = self.part.end.number
        stop = len(answer.numbers) if end is None else answer.rows_until(end)
        self._begun |= stop > 0
        if end is not None and stop and answer.numbers[stop - 1] == end:
            self.finished = True
        elif stop < len(answer.numbers):
            self._lose(f"record {end}, the last one of the batch, is gone", answer.numbers[stop])
            self.finished = True
        elif answer.next_iterator is None:
            self._close()
        return range(begin, max(begin, stop))

    def _check(self, first: str) -> None:
        """Let the first record after a new iterator show whether the last one is there."""
        if self._checks and int(first) > int(self._last.text):
            self._lose(f"record {self._last} is gone", first)
        self._checks = False

    def _miss(self, answer: Records, now: int) -> None:
        if answer.next_iterator is None:
            self._close()
        elif answer.millis_behind == 0:
            if self._tries < len(PAUSES):
                self._due = now + PAUSES[self._tries]
                self._tries += 1
            else:
                self._asks_oldest, self._iterator = True, None
                self._resume, self._last = self._last, TRIM

    def _judge(self, answer: Records) -> range:
        """Let the oldest record show whether the range was trimmed."""
        if not answer.numbers and answer.millis_behind > 0 and answer.next_iterator is not None:
            return range(0)
        end = self.part.end.number
        oldest = answer.numbers[0] if answer.numbers else None
        self._last = self._resume
        if oldest is not None and int(oldest) > int(end or self._last.text):
            self._lose(f"record {self._last} and those after it are gone", oldest)
            self.finished = True
            return range(0)
        raise self._incomplete("has no more records now")

    def _close(self) -> None:
        if self.part.end != END:
            raise self._incomplete("is closed")
        self.finished = True

    def _incomplete(self, what: str) -> CallError:
        return CallError(
            f"{self._name}: the shard {what}, after record {self._last}, and the batch ends at {self.part.end}",
            "GetRecords",
            self._stream,
        )


class TimeRangeReader(_Reader):
    """Reads a range of time.

    It ends before the first record that has arrived after the range, with the shard, or where two answers in a row
    have no records and MillisBehindLatest 0. Each attempt has the same rows while the stream keeps them.

    Args:
        part: the range.
        retention: of the stream, in ms; None if that is not known.
        planned: when the batch was, in ms since the epoch; None if that is not known.
        fail_on_data_loss: whether it is an error that the shard is gone, or that records are trimmed while it is read.
        limit: records of a call, 1 to 10,000.
        max_outage: ms for which the service may be away.
    """

    def __init__(
        self,
        part: TimeRange,
        *,
        retention: int | None = None,
        planned: int | None = None,
        fail_on_data_loss: bool = True,
        limit: int = MAX_RECORDS,
        max_outage: int = MAX_OUTAGE,
    ) -> None:
        super().__init__(
            part.stream,
            part.shard_id,
            part.start,
            retention=retention,
            planned=planned,
            fail_on_data_loss=fail_on_data_loss,
            limit=limit,
            max_outage=max_outage,
        )
        self.part = part
        self._checks = False
        self._quiet = 0

    def _sought(self) -> None:
        self._checks = self._last.number is not None

    def _read(self, answer: Records, now: int) -> range:
        if not answer.numbers:
            self._quiet = self._quiet + 1 if answer.millis_behind == 0 else 0
            self.finished = self._quiet >= 2 or answer.next_iterator is None
            self._due = now + PAUSES[0] if self._quiet else self._due
            return range(0)
        self._quiet = 0
        if self._checks and int(answer.numbers[0]) > int(self._last.text):
            self._lose(f"record {self._last} is gone", answer.numbers[0])
        self._checks = False
        begin = answer.rows_until(self._last.number)
        stop = _first_after(answer.arrivals, begin, self.part.until)
        self.finished = stop < len(answer.numbers) or answer.next_iterator is None
        return range(begin, stop)


def _first_after(arrivals: Sequence[int], begin: int, until: int) -> int:
    return next((row for row in range(begin, len(arrivals)) if arrivals[row] > until), len(arrivals))
