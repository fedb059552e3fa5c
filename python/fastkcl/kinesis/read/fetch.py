"""One shard, from where it begins to its end: GetRecords again and again, into a queue.

    Start ──▶ GetShardIterator ──▶ GetRecords ──▶ Arrow batch ──▶ aggregates taken apart ──▶ RecordQueue
                    ▲                  │                                                       │ no room for 30 s:
                    └── FetchPolicy ◀──┴── failure                                             └ the rest is dropped,
                                                                                                 and fetched again later
    ByteBudget: room for an answer before it is asked for, for its body before it is read, and for its user records

Rules: a shard's records are queued once, in order, without a gap; one that the stream has trimmed is reported
(`fastkcl.kinesis.read.trimmed`). A reader waits for its own shard only. Where it began at the latest record and nothing
was queued yet, a new iterator begins at the time of the first one, or the records between would be lost.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from fastkcl._core import ChildShard, Deaggregated, GetRecordsAnswer, Record, RecordBatch, deaggregate
from fastkcl.kinesis.checkpoints.base import Place
from fastkcl.kinesis.client import LARGE_BODY, StreamClient
from fastkcl.kinesis.exceptions import AnotherStream, AnswerTooLarge, DataLossError, StreamDoesNotExist
from fastkcl.kinesis.failures import Failure, error_code, failure_of
from fastkcl.kinesis.metrics import MetricsCollector, MetricType
from fastkcl.kinesis.read.budget import MAX_QUEUE_BYTES, ByteBudget, CallSizes, Reservation
from fastkcl.kinesis.read.data_loss import OnDataLoss, report_loss
from fastkcl.kinesis.read.fetch_policy import FetchPolicy, Next, Step
from fastkcl.kinesis.read.record_queue import Fetched, RecordQueue, ShardEnded, ShardLost
from fastkcl.kinesis.read.trimmed import LEAST_RETENTION, TrimWatch
from fastkcl.kinesis.topology import Shard
from fastkcl.masking import without_sent
from fastkcl.stdio.log import module_logger

__all__ = [
    "MAX_BATCH_BYTES",
    "FetchOptions",
    "NoRoomError",
    "ShardReader",
    "Start",
    "TooManyRecordsError",
    "whole_records",
]

log = module_logger(__name__)

MAX_BATCH_BYTES = 256 << 20
"""The default limit of an answer with its aggregates taken apart."""
QUEUE_FULL_SECONDS = 30.0
LOOKS_FOR_OLDEST = 5  # answers
LOOK_PAUSE = 1.0
"""Seconds between two looks at the stream's retention, by all shards: AWS answers twenty an account and second."""


class NoRoomError(Exception):
    """The bytes of all shards were used up for too long: an answer is let go of, and asked for again later."""


class TooManyRecordsError(Exception):
    """An answer takes more than all shards together may: it is let go of, and fewer records are asked for."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a shard begins.

    Attributes:
        iterator_type: TRIM_HORIZON, LATEST or AT_TIMESTAMP, where there is no place.
        timestamp: of AT_TIMESTAMP.
        place: after which to begin; inside of a record, if it has a sub-sequence number.
    """

    iterator_type: str
    timestamp: datetime | None = None
    place: Place | None = None

    @property
    def request(self) -> dict[str, object]:
        """The position in a GetShardIterator request."""
        if self.place is None:
            where: dict[str, object] = {"ShardIteratorType": self.iterator_type}
            return where if self.timestamp is None else {**where, "Timestamp": self.timestamp}
        # The record comes again, and shows that it was not trimmed; its processed part is left out.
        return {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": self.place.sequence_number}


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """How to read a shard.

    Attributes:
        record_limit: records of a GetRecords call at the most.
        interval: least seconds between two calls.
        sleep_time_no_records: seconds between two calls when there is nothing new.
        deaggregate: take KPL aggregates apart.
        hash_range_check: drop aggregates with keys of other shards.
        max_batch_bytes: of an answer with its aggregates taken apart.
        sub_sequences: places have the sub-sequence number of the last user record.
        empty_answers: queue empty batches, too.
        on_data_loss: whether a trimmed position stops the reader, after a line in the log.
    """

    record_limit: int
    interval: float
    sleep_time_no_records: float
    deaggregate: bool
    hash_range_check: bool = True
    max_batch_bytes: int = MAX_BATCH_BYTES
    sub_sequences: bool = False
    empty_answers: bool = False
    on_data_loss: OnDataLoss = "continue"


class _Answer(NamedTuple):
    """The kept part of an answer.

    Attributes:
        records: as they go to the program.
        last: sequence number of the last record as it came; None if there was none.
        held: the memory that the records take.
        millis_behind_latest: of the answer, as the next two.
    """

    records: RecordBatch
    last: str | None
    held: Reservation
    millis_behind_latest: int | None
    next_shard_iterator: str | None
    child_shards: tuple[ChildShard, ...]


class ShardReader:
    """Reads one shard.

    Args:
        shard: which.
        start: where it begins.
        client: of its stream.
        queue: where its records go.
        options: see there.
        is_ours: whether the shard is still this consumer's.
        is_listed: looks whether the stream still has the shard; raises `AnotherStream` or `StreamDoesNotExist`.
        metrics: for the counts, with these labels.
        labels: stream_name and shard_id.
        budget: the memory that it shares with the other shards; its own by default.
        sizes: of the answers of all shards.
        on_change: is called when it has its first iterator.

    Attributes:
        shard: which.
        children: of the shard, as its last answer named them.
        lost: whether the shard is another's by now.
        ended: whether it was read to its end.
        healthy: whether the last call has succeeded; False before the first.
        throttled: answers that said too much or too often.
        successes: answers with or without records.
        rows: records that were queued.
        committed_rows: how many of them are covered by the position that was written last.
    """

    def __init__(
        self,
        shard: Shard,
        start: Start,
        client: StreamClient,
        queue: RecordQueue[ShardReader],
        options: FetchOptions,
        *,
        is_ours: Callable[[], bool],
        is_listed: Callable[[], Awaitable[bool]],
        metrics: MetricsCollector,
        labels: Mapping[str, str],
        budget: ByteBudget | None = None,
        sizes: CallSizes | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.shard = shard
        self.start = start
        self.queue = queue
        self.children: tuple[ChildShard, ...] = ()
        self.lost = False
        self.ended = False
        self.healthy = False
        self.throttled = 0
        self.successes = 0
        self.rows = 0
        self.committed_rows = 0
        self._client = client
        self._options = options
        self._is_ours = is_ours
        self._is_listed = is_listed
        self._metrics = metrics
        self._labels = dict(labels)
        self._budget = budget or ByteBudget(MAX_QUEUE_BYTES)
        self._sizes = CallSizes(sizes, aggregates=options.deaggregate)
        self._on_change = on_change
        self._policy = FetchPolicy()
        self._watch = TrimWatch()
        self._iterator: str | None = None
        # On the clock of the event loop.
        self._next_call = 0.0
        self._calling_since: float | None = None
        self._at_tip_since: float | None = None
        self._tips = 0  # answers in a row that were at the tip: one alone may say so by mistake

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self.shard.shard_id

    @property
    def has_iterator(self) -> bool:
        """Whether it knows where to read."""
        return self._iterator is not None

    def is_quiet(self, seconds: float) -> bool:
        """Whether it has been at the shard's tip for so many seconds, and no call is without an answer for as long.

        Two answers in a row have said so: one alone may do that by mistake.
        """
        if self.ended:
            return True
        before = asyncio.get_running_loop().time() - seconds
        at_tip = self.healthy and self._at_tip_since is not None and self._at_tip_since <= before
        return at_tip and self._tips > 1 and (self._calling_since is None or self._calling_since > before)

    async def run(self) -> None:
        """Read until the shard has ended or is lost. After an exception, it continues at the same position.

        Raises:
            ConnectionError: the service is away, and the client has given up.
            AnswerTooLarge: the user records of an aggregate take more than max_batch_bytes.
            DataLossError: the stream has trimmed the position, and on_data_loss is "raise".
            AnotherStream: the stream was made again under its name.
            StreamDoesNotExist: there is no such stream any more.
            Exception: the tenth failure in a row.
        """
        self._policy.succeeded()  # again, after an exception
        while True:
            if not self._is_ours():
                self.lost = True
                self.queue.put(ShardLost(self))
                return
            try:
                iterator = self._iterator or await self._new_iterator()  # needs no room: others wait until all have one
                await self.queue.wait_for_room()
                answer = await self._call(iterator)
            except (ConnectionError, AnotherStream, DataLossError, StreamDoesNotExist):
                raise
            except NoRoomError as error:
                log.warning("%s: %s", self.shard_id, error)
            except TooManyRecordsError as error:
                log.info("%s: %s", self.shard_id, error)
            except AnswerTooLarge as error:
                self._note(error)
                log.error("%s", error)
                raise
            except Exception as error:
                if await self._recover(error, of_iterator=self._iterator is None):
                    return
            else:
                try:
                    if await self._take(answer):
                        return
                finally:
                    answer.held.release()
                    del answer  # the next call must not find it in memory

    # Calls.

    async def _new_iterator(self) -> str:
        request = {**self._client.address, "ShardId": self.shard_id, **self.start.request}
        answer = await self._client.call("get_shard_iterator", request, on_outage=self._note)
        if self.start.iterator_type == "LATEST" and self.start.place is None:
            told = _time_of(answer)
            if told is not None:
                self.start = Start("AT_TIMESTAMP", told)
        if self.start.place is not None:
            self._watch.resumed()
        iterator: str = answer["ShardIterator"]
        self._iterator = iterator
        self._on_change()
        return iterator

    async def _call(self, iterator: str) -> _Answer:
        """Ask for records, when it is time and there is room for them."""
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._next_call - clock()))
        plan = self._sizes.plan(self._options.record_limit, self._budget.share)
        held = await self._budget.reserve(plan.reserve)
        try:
            # After the waiting, while which records may have been trimmed.
            if self.start.place is not None and self._watch.is_due(self._retention, time.time()):
                self._iterator = None
                iterator = await self._new_iterator()
            self._next_call = clock() + self._options.interval
            self._calling_since = clock()
            return await self._get_records(iterator, plan.limit, held)
        except BaseException:
            held.release()
            raise
        finally:
            self._calling_since = None

    async def _get_records(self, iterator: str, limit: int, held: Reservation) -> _Answer:
        length = 0  # of the body

        async def wait_for_room(body: int) -> None:
            nonlocal length
            length = body
            if self._sizes.is_too_many(limit, body, self._budget.max_bytes):
                raise TooManyRecordsError(
                    f"an answer of {body} bytes takes more than the {self._budget.max_bytes} of max_queue_bytes: it is "
                    "let go of, and one record is asked for, to see how large they are"
                )
            await self._grow(held, self._sizes.memory(body), body)

        def read(answer: GetRecordsAnswer) -> tuple[GetRecordsAnswer, Deaggregated | None]:
            most = held.size - length - answer.batch.capacity_bytes
            return answer, self._take_apart(answer.batch, min(most, LARGE_BODY) if length < LARGE_BODY else most, limit)

        answer, result = await self._client.get_records(
            self.shard_id, iterator, limit, read, on_outage=self._note, gate=wait_for_room
        )
        await self._check_position(answer)
        batch = answer.batch
        memory = length + batch.capacity_bytes
        if self._options.deaggregate and batch.num_rows:
            most = max(LARGE_BODY, held.size - memory)
            while result is None:
                most = min(2 * most, self._options.max_batch_bytes)
                await self._grow(held, batch.capacity_bytes + most, length)
                result = await asyncio.to_thread(self._take_apart, batch, most, limit)
            self._count(result)
            memory += result.batch.capacity_bytes
        self._sizes.answered(batch.num_rows, length, memory)
        if batch.num_rows:
            self._metrics.increment(MetricType.CONSUMER_RECORDS_RECEIVED, batch.num_rows, self._labels)
            self._metrics.increment(MetricType.CONSUMER_BYTES_RECEIVED, batch.nbytes, self._labels)
        records = batch if result is None else result.batch
        held.settle(records.capacity_bytes if batch.num_rows else 0)
        return _Answer(
            records,
            batch[batch.num_rows - 1].sequence_number if batch.num_rows else None,
            held,
            answer.millis_behind_latest,
            answer.next_shard_iterator,
            answer.child_shards,
        )

    async def _grow(self, held: Reservation, size: int, body: int) -> None:
        """Wait for room for an answer.

        Raises:
            NoRoomError: there was none for too long.
        """
        try:
            async with asyncio.timeout(QUEUE_FULL_SECONDS):
                await held.grow(size)
        except TimeoutError:
            self._sizes.refused(body)
            raise NoRoomError(
                f"the {self._budget.max_bytes} bytes of max_queue_bytes were used up for {QUEUE_FULL_SECONDS:g} s: an "
                f"answer of {body} bytes is let go of, and asked for again when there is room"
            ) from None

    def _take_apart(self, batch: RecordBatch, most: int, limit: int) -> Deaggregated | None:
        """Split aggregates, if that is wanted and takes no more than this many bytes.

        Raises:
            TooManyRecordsError: all together take more than max_batch_bytes; the next call asks for one record.
            AnswerTooLarge: one alone does.
        """
        if not (self._options.deaggregate and batch.num_rows):
            return None
        hash_range = self.shard.hash_range if self._options.hash_range_check else None
        allowed = self._options.max_batch_bytes
        try:
            return deaggregate(batch, hash_range, max_batch_bytes=max(1, min(most, allowed)))
        except OverflowError:
            if most < allowed:
                return None
            if min(limit, batch.num_rows) > 1:
                self._sizes.expanded()
                raise TooManyRecordsError(
                    f"the user records of {batch.num_rows} records take more than max_batch_bytes, {allowed} bytes: "
                    "the answer is let go of, and one record is asked for"
                ) from None
            raise AnswerTooLarge(
                f"{self.shard_id}: record {batch[0].sequence_number} holds a KPL aggregate whose user records take "
                f"more than max_batch_bytes, {allowed} bytes. None of them was delivered. Allow more; "
                "deaggregate=False delivers aggregates as they are"
            ) from None

    def _note(self, error: BaseException) -> None:
        """Count a call that has failed."""
        self.healthy = False
        self._metrics.increment(MetricType.CONSUMER_ERRORS, 1, {**self._labels, "error_type": error_code(error)})

    async def _recover(self, error: Exception, *, of_iterator: bool) -> bool:
        """Do the step of the table; whether that was the shard's end."""
        failure = failure_of(error)
        self._note(error)
        if failure is Failure.THROTTLED:
            self.throttled += 1
        step = self._policy.failed(failure, of_iterator=of_iterator)
        if failure is Failure.NOT_FOUND:
            step = await self._look_at_list(step)
        match step.next:
            case Next.GIVE_UP:
                log.error("%s: it failed again and again, at last by %r", self.shard_id, error)
                raise error
            case Next.SHARD_GONE:
                log.warning("%s is no longer listed: its unread records are gone: %s", self.shard_id, error)
                await self._report_loss(None)
                self._end(())
                return True
            case Next.NEW_ITERATOR:
                log.info("%s: a new iterator: %s", self.shard_id, error)
                self._iterator = None
            case Next.AGAIN:
                note = log.warning if step.is_news else log.info
                said = without_sent(str(error))
                note("%s: a call has failed, and is made again in %g s: %s", self.shard_id, step.pause, said)
                await asyncio.sleep(step.pause)
        return False

    async def _look_at_list(self, step: Step) -> Step:
        """The step after a look at the list of shards. It shows another stream of the same name."""
        try:
            is_listed = await self._is_listed()
            return self._policy.looked(is_listed=is_listed) if step.next is Next.LOOK else step
        except (ConnectionError, AnotherStream, StreamDoesNotExist):
            raise
        except Exception as error:
            return self._policy.failed(failure_of(error))

    # Records that were trimmed.

    @property
    def _retention(self) -> float:
        return self._client.retention_seconds or LEAST_RETENTION

    async def _check_position(self, answer: GetRecordsAnswer) -> None:
        """Report a position that is trimmed, as the first record of an answer shows, or a shorter retention.

        Raises:
            DataLossError: if that is to stop the reader; nothing of the answer is queued.
        """
        place, batch = self.start.place, answer.batch
        if place is not None and batch.num_rows:
            first = batch[0]
            if self._watch.is_trimmed(place.sequence_number, first.sequence_number):
                await self._report_loss(first)
            elif self._watch.is_leap(_age_of_first(answer), time.time()):
                await self._client.look_at_stream(LOOK_PAUSE)
                if self._watch.is_past(self._retention, time.time()):
                    await self._report_loss(first)
            self._watch.decided()
        elif place is not None and answer.next_shard_iterator is None and self._watch.is_open:
            await self._report_loss(None)  # the shard has ended, and all of it was trimmed
        self._watch.answered(answer.millis_behind_latest, time.time())

    async def _report_loss(self, first: Record | None) -> None:
        """Report a position that is gone, unless nothing else is.

        Args:
            first: the record found instead of the position; None if the shard has ended without one.
        """
        place = self.start.place
        if place is None:
            return
        oldest = None if first is None else await self._oldest()
        if oldest is not None and int(oldest.sequence_number) <= int(place.sequence_number):
            log.info("%s: nothing is missing after %s: the shard has older records", self.shard_id, place)
            return
        if first is not None:
            await self._is_listed()  # it may be another stream's record
        await self._client.look_at_stream()  # the retention may be another one by now
        loss = self._watch.judge(
            self.shard_id,
            place.sequence_number,
            self._retention,
            time.time(),
            None if first is None else first.sequence_number,
            _arrival(first),
        )
        if loss is None:
            log.info("%s: %s was trimmed, and nothing came after it until then", self.shard_id, place)
            return
        if self._options.on_data_loss == "raise":
            self._iterator = None
        report_loss(loss, self._options.on_data_loss, self._metrics, self._labels)

    async def _oldest(self) -> Record | None:
        """The oldest record of the shard; None if a few answers have none."""
        request = {**self._client.address, "ShardId": self.shard_id, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = (await self._client.call("get_shard_iterator", request, on_outage=self._note))["ShardIterator"]
        for _ in range(LOOKS_FOR_OLDEST):
            await asyncio.sleep(self._options.interval)
            answer = await self._client.get_records(
                self.shard_id, iterator, 1, lambda answer: answer, on_outage=self._note
            )
            if answer.batch.num_rows:
                return answer.batch[0]
            iterator = answer.next_shard_iterator
            if iterator is None:
                break
        return None

    # Answers.

    async def _take(self, answer: _Answer) -> bool:
        """Queue an answer; whether it was the last one of the shard."""
        self._policy.succeeded()
        self.healthy = True
        self.successes += 1
        behind = answer.millis_behind_latest
        is_at_tip = not behind if behind is not None else answer.last is None
        self._tips = self._tips + 1 if is_at_tip else 0
        if not is_at_tip:
            self._at_tip_since = None
        elif self._at_tip_since is None:
            self._at_tip_since = asyncio.get_running_loop().time()
        if behind is not None:
            self._metrics.gauge(MetricType.CONSUMER_ITERATOR_AGE, behind, self._labels)
        if answer.last is not None:
            if not await self._queue_all(answer.records, answer.last, answer.held):
                return False
        elif self._options.empty_answers and self.queue.is_empty:  # ticks do not pile up while a batch is slow
            self.queue.put(Fetched(self, answer.records, None, self.rows))
        self._iterator = answer.next_shard_iterator
        if self._iterator is None:
            self._end(answer.child_shards)
            return True
        if answer.last is None and not behind and self._tips > 1:
            pause = max(self._options.interval, self._options.sleep_time_no_records)
            self._next_call = asyncio.get_running_loop().time() + pause
        return False

    def _end(self, children: tuple[ChildShard, ...]) -> None:
        self.children = children
        self.ended = True
        self.queue.put(ShardEnded(self))

    async def _queue_all(self, records: RecordBatch, last: str, held: Reservation) -> bool:
        """Queue the records of an answer as there is room; False if the rest has to be fetched again.

        Args:
            records: of it, with the aggregates taken apart if that is to be.
            last: sequence number of the last one as it came.
            held: the memory that they take.
        """
        records = self._without_processed(records)
        offset = 0
        while offset < records.num_rows:
            if not await self._wait_for_room():
                log.warning(
                    "%s: the queue was full for %g s: the other records are fetched again later",
                    self.shard_id,
                    QUEUE_FULL_SECONDS,
                )
                self._iterator = None
                return False
            end = whole_records(records, offset, self.queue.room)
            last_row = records[end - 1]
            sub = last_row.sub_sequence_number if self._options.sub_sequences else None
            self._queue(records.slice(offset, end - offset), Place(last_row.sequence_number, sub), held)
            offset = end
        if self.start.place is None or self.start.place.sequence_number != last:
            # The last records were aggregates that gave nothing; the shard's position still moves past them.
            self._queue(records.slice(0, 0), Place(last), held)
        return True

    def _queue(self, batch: RecordBatch, place: Place, held: Reservation) -> None:
        self._watch.moved(_arrival(batch[batch.num_rows - 1]) if batch.num_rows else None)
        self.rows += batch.num_rows
        self.queue.put(Fetched(self, batch, place, self.rows, held.share()))
        self.start = Start(self.start.iterator_type, place=Place(place.sequence_number))
        stream = {"stream_name": self._labels["stream_name"]}
        self._metrics.gauge(MetricType.CONSUMER_QUEUE_SIZE, self.queue.rows, stream)

    async def _wait_for_room(self) -> bool:
        try:
            async with asyncio.timeout(QUEUE_FULL_SECONDS):
                await self.queue.wait_to_put()
        except TimeoutError:
            return False
        return True

    def _count(self, result: Deaggregated) -> None:
        if result.dropped_aggregates:
            self._metrics.increment(MetricType.KPL_DROPPED_AGGREGATES, result.dropped_aggregates, self._labels)
            log.info(
                "%s: %d aggregates of %d records dropped: they have keys of other shards, which have them, too",
                self.shard_id,
                result.dropped_aggregates,
                result.dropped_records,
            )
        for reason, records in result.fallbacks.items():
            self._metrics.increment(MetricType.KPL_PLAIN_FALLBACK, records, {**self._labels, "reason": reason})
        if result.fallbacks:
            log.debug("%s: records that begin as aggregates and are none: %r", self.shard_id, result.fallbacks)

    def _without_processed(self, batch: RecordBatch) -> RecordBatch:
        """Leave out the user records that were processed of the record that the shard begins in."""
        place = self.start.place
        if place is None:
            return batch
        sequence, until = place.sequence_number, place.sub_sequence_number

        def is_left(row: int) -> bool:
            record = batch[row]
            if record.sequence_number != sequence:
                return True
            # Without sub-sequence numbers nobody knows which user records are in it: then it comes again.
            sub = record.sub_sequence_number
            return until is not None and (sub is None or sub > until)

        return batch.slice(bisect(range(batch.num_rows), False, key=is_left))


def whole_records(batch: RecordBatch, offset: int, room: int) -> int:
    """Where to cut a batch so that about `room` rows from `offset` on are before it, and no aggregate is cut.

    At least one record is before it, if there is one.
    """
    end = min(offset + max(room, 1), batch.num_rows)
    if end < batch.num_rows and batch[end - 1].sub_sequence_number is not None:
        sequence = batch[end - 1].sequence_number
        # Rows of one sequence number are neighbours, and there may be a hundred thousand of them.
        end += bisect(range(end, batch.num_rows), False, key=lambda row: batch[row].sequence_number != sequence)
    return end


def _arrival(record: Record | None) -> float | None:
    arrived = None if record is None else record.approximate_arrival_timestamp
    return None if arrived is None else arrived.timestamp()


def _age_of_first(answer: GetRecordsAnswer) -> float:
    """Seconds from the first record of an answer to the shard's tip, by the service's clock."""
    first, last = _arrival(answer.batch[0]), _arrival(answer.batch[answer.batch.num_rows - 1])
    length = 0.0 if first is None or last is None else last - first
    return length + (answer.millis_behind_latest or 0) / 1000


def _time_of(answer: Mapping[str, Any]) -> datetime | None:
    """When the service answered, by its own clock."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return None if date is None else parsedate_to_datetime(date)
    except ValueError:
        return None
