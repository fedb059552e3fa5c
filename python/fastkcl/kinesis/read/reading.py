"""The shards of a stream that this consumer owns: takes them, reads them, gives them back.

    client ── list_shards ──▶ Topology ── startable ──▶ checkpointer.allocate ──▶ ShardReader ──▶ RecordQueue
                                 ▲                                                    │               │
                                 └──────────── children, at the end of a shard ◀──────┘               ▼
                                 └──────────── end_shard, when all its records are handed over ◀──── the program

One task looks for shards: at the start, every 60 s, and at once when a shard ends. While other consumers hold shards it
asks the checkpointer every 2 s or more often, which may give this consumer its share of them. Each shard has a task
that reads it. An error that stops a task reaches the program through the queue, after the records that were read
before it; `resume` lets the task continue.

Rules: a shard is read while the checkpointer allocates it to this consumer. It is given back when its last position is
committed; then its children start. `stop` ends all tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from fastkcl.kinesis.bounds import check_count, check_number
from fastkcl.kinesis.checkpoints.base import (
    SHARD_END,
    BindsStream,
    CheckPointer,
    EndsShards,
    KeepsBeginnings,
    KeepsPositions,
    ListsPositions,
    ListsShards,
    Place,
    SharesShards,
    left_behind,
    was_read,
)
from fastkcl.kinesis.client import StreamClient
from fastkcl.kinesis.exceptions import (
    AnotherStream,
    CheckpointOwnershipConflict,
    CheckpointTableError,
    DataLossError,
    StreamDoesNotExist,
    ValidationError,
    described,
)
from fastkcl.kinesis.failures import Failure, failure_of
from fastkcl.kinesis.metrics import MetricsCollector, MetricType
from fastkcl.kinesis.read.budget import MAX_QUEUE_BYTES, ByteBudget, CallSizes
from fastkcl.kinesis.read.data_loss import OnDataLoss, report_loss
from fastkcl.kinesis.read.fetch import MAX_BATCH_BYTES, FetchOptions, ShardReader, Start
from fastkcl.kinesis.read.fetch_policy import FetchPolicy, Next
from fastkcl.kinesis.read.record_queue import Failed, RecordQueue
from fastkcl.kinesis.read.sharing import Share
from fastkcl.kinesis.read.trimmed import LEAST_RETENTION, TrimWatch, is_of_shard
from fastkcl.kinesis.topology import Origin, Shard, Topology
from fastkcl.stdio.log import module_logger

__all__ = ["LOOK_SECONDS", "IteratorType", "ReadOptions", "StreamReader"]

log = module_logger(__name__)

REFRESH_SECONDS = 60.0
ALLOCATE_SECONDS = 2.0
LOOK_SECONDS = 0.1
"""Between two looks whether all shards have been quiet for long enough."""

IteratorType = Literal["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read a stream.

    Attributes:
        iterator_type: where a shard begins that has no position, and follows none that was read.
        timestamp: aware; needed for AT_TIMESTAMP, and not looked at otherwise.
        max_shard_consumers: open shards at the most; None for all.
        record_limit: records of a GetRecords call at the most, 1 to 10,000.
        sleep_time_no_records: seconds between two calls of a shard that has nothing new.
        shard_fetch_rate: GetRecords calls a second of each shard, 1 to 5.
        deaggregate: take KPL aggregates apart.
        hash_range_check: drop aggregates with keys that their shard does not own.
        max_batch_bytes: of an answer with its aggregates taken apart, 1 to 2**31 - 1.
        max_queue_bytes: of all shards together, answers under way included, 1 or more.
        empty_answers: queue empty batches, too.
        on_data_loss: the reaction to a position that the stream has trimmed.

    Raises:
        ValidationError: an option out of range.
        TypeError: `timestamp` is not a datetime.
    """

    iterator_type: IteratorType = "TRIM_HORIZON"
    timestamp: datetime | None = None
    max_shard_consumers: int | None = None
    record_limit: int = 10_000
    sleep_time_no_records: float = 2.0
    shard_fetch_rate: float = 1
    deaggregate: bool = True
    hash_range_check: bool = True
    max_batch_bytes: int = MAX_BATCH_BYTES
    max_queue_bytes: int = MAX_QUEUE_BYTES
    empty_answers: bool = False
    on_data_loss: OnDataLoss = "continue"

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if self.iterator_type not in get_args(IteratorType):
            raise ValidationError(
                f"iterator_type must be one of {', '.join(get_args(IteratorType))}, not {self.iterator_type!r}"
            )
        if self.iterator_type == "AT_TIMESTAMP" and self.timestamp is None:
            raise ValidationError("iterator_type AT_TIMESTAMP needs a timestamp")
        if self.timestamp is not None and not isinstance(self.timestamp, datetime):
            raise TypeError(f"timestamp must be a datetime, not {self.timestamp!r}")
        if self.timestamp is not None and self.timestamp.tzinfo is None:
            raise ValidationError(f"timestamp must have a time zone, unlike {self.timestamp!r}")
        if self.max_shard_consumers is not None:
            check_count("max_shard_consumers", self.max_shard_consumers, 1)
        check_count("record_limit", self.record_limit, 1, 10_000)
        check_number("sleep_time_no_records", self.sleep_time_no_records, least=0, expected="0 s or more")
        check_count("max_batch_bytes", self.max_batch_bytes, 1, 2**31 - 1)
        check_count("max_queue_bytes", self.max_queue_bytes, 1)
        if self.on_data_loss not in get_args(OnDataLoss):
            raise ValidationError(f'on_data_loss must be "continue" or "raise", not {self.on_data_loss!r}')
        check_number("shard_fetch_rate", self.shard_fetch_rate, least=1, most=5, expected="1 to 5 calls a second")


class StreamReader:
    """Reads the shards of a stream that the checkpointer gives.

    Args:
        client: of the stream, open when `start` is called.
        checkpointer: divides the shards, and keeps the positions.
        options: see there.
        make_queue: the queue of a shard: the same one for all, or one for each.
        on_failure: called when looking for shards has stopped.
        on_reader: called with each shard that is ours from now on.
        metrics: for the counts.

    Attributes:
        topology: the shards that there are.
        readers: of the shards that are ours, by id.
        budget: the memory that they share.
    """

    def __init__(
        self,
        client: StreamClient,
        checkpointer: CheckPointer,
        options: ReadOptions,
        *,
        make_queue: Callable[[], RecordQueue[ShardReader]],
        on_failure: Callable[[Failed[ShardReader]], None],
        on_reader: Callable[[ShardReader], None] = lambda reader: None,
        metrics: MetricsCollector,
    ) -> None:
        self.topology = Topology()
        self.readers: dict[str, ShardReader] = {}
        self._client = client
        self._checkpointer = checkpointer
        self._share = Share(checkpointer, client.stream_name)
        self._options = options
        self._make_queue = make_queue
        self._on_failure = on_failure
        self._on_reader = on_reader
        self._metrics = metrics
        self.budget = ByteBudget(options.max_queue_bytes, lambda: len(self.readers))
        self._sizes = CallSizes()
        self._labels = {"stream_name": client.stream_name}
        self._sub_sequences: bool = getattr(checkpointer, "sub_sequences", False)
        self._tasks: dict[ShardReader | None, asyncio.Task[None]] = {}  # None: that looks for shards
        self._look = asyncio.Event()
        self._look_is_done = False
        self._list_is_old = True
        self._listed_at = 0.0  # when the list was asked for, on the clock of the event loop
        self._listing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._left_behind: dict[str, str] | None = None
        self._lost_parents: set[str] = set()
        self._failures: dict[ShardReader | None, Exception] = {}

    # Life.

    @property
    def options(self) -> ReadOptions:
        """As they were given."""
        return self._options

    @property
    def failure(self) -> Exception | None:
        """The error that stopped one of the tasks, until it is resumed."""
        return next(iter(self._failures.values()), None)

    def start(self) -> None:
        """Begin to look for shards, and to read them. Again, nothing happens.

        Raises:
            AnotherStream: the checkpointer is for another stream.
        """
        if None not in self._tasks:
            self._bind()
            self._share.join()
            if self._options.iterator_type == "LATEST":  # an earlier list does not show the shards to pass
                self._list_is_old = True
                self.topology.start_over()
            self._run(None, self._look_for_shards())

    def _bind(self) -> None:
        if isinstance(self._checkpointer, BindsStream):
            self._checkpointer.bind_stream(self._client.stream_name, self._client.region_name)

    async def stop(self) -> None:
        """End all tasks; the shards stay allocated."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        self._changed.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close_checkpointer(self) -> None:
        """Give the shards back; the checkpointer is closed, too, unless another consumer of this process uses it.

        Raises:
            Exception: a shard was not given back.
        """
        await self._share.close()

    def resume(self, failed: Failed[ShardReader]) -> None:
        """Resume stopped tasks; nothing happens to the others."""
        reader = failed.reader
        if not (reader in self._tasks and self._tasks[reader].done()):
            return
        self._client.try_again()
        if reader is None:
            self._run(None, self._look_for_shards())
        else:
            self._run(reader, self._read(reader))

    def _run(self, what: ShardReader | None, work: Coroutine[Any, Any, None]) -> None:
        self._failures.pop(what, None)
        name = f"{self._client.stream_name} {'shards' if what is None else what.shard_id}"
        self._tasks[what] = asyncio.create_task(work, name=name)

    # Shards that are looked for.

    async def _look_for_shards(self) -> None:
        policy = FetchPolicy()
        while True:
            self._look.clear()
            try:
                await self._share.begin()
                clock = asyncio.get_running_loop().time
                if self._list_is_old or clock() - self._listed_at >= REFRESH_SECONDS:
                    await self.refresh_shards()
                await self._take_shards()
            except Exception as error:
                self._count_error("", error)
                step = policy.failed(Failure.DENIED if failure_of(error) is Failure.DENIED else Failure.OTHER)
                if step.next is Next.GIVE_UP or _lasts(error):
                    log.error("%s: looking for shards has stopped: %s", self._client.stream_name, described(error))
                    self._on_failure(self._failed(None, error))
                    return
                log.warning(
                    "%s: looking for shards, again in %g s: %s",
                    self._client.stream_name,
                    step.pause,
                    described(error),
                )
                await asyncio.sleep(step.pause)
                continue
            policy.succeeded()
            self._look_is_done = not self._look.is_set()
            self._changed.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_interval):
                    await self._look.wait()

    @property
    def _look_interval(self) -> float:
        return min(ALLOCATE_SECONDS, getattr(self._checkpointer, "look_interval", ALLOCATE_SECONDS))

    async def refresh_shards(self) -> None:
        """List the shards of the stream now.

        Raises:
            StreamDoesNotExist: there is no such stream.
            AnotherStream: it was made again since the last list, or the checkpointer is for another stream.
            ConnectionError: the service cannot be reached.
        """
        self._bind()
        self._list_is_old = False
        asked = asyncio.get_running_loop().time()
        try:
            shards = await self._client.list_shards()
        except BaseException:
            self._list_is_old = True
            raise
        if asked < self._listed_at:
            return  # a newer list was quicker
        self._listed_at = asked
        self.topology.listed(shards)
        if isinstance(self._checkpointer, ListsShards):
            await self._checkpointer.shards_listed(self.topology.shards)
        closed = sum(self.topology.is_closed(shard.shard_id) for shard in shards)
        self._metrics.gauge(MetricType.STREAM_SHARDS_CLOSED, closed, self._labels)
        self._metrics.gauge(MetricType.STREAM_SHARDS_ACTIVE, len(shards) - closed, self._labels)

    async def _is_listed(self, shard_id: str) -> bool:
        """Whether the stream has a shard, by a list that is not older than the question; many readers share one."""
        asked = asyncio.get_running_loop().time()
        async with self._listing:
            if self._listed_at < asked:
                await self.refresh_shards()
        return self.topology.has(shard_id)

    async def _take_shards(self) -> None:
        """Allocate shards that may be read; again if that has finished shards, as their children may follow."""
        finished = True
        while finished:
            finished = False
            if isinstance(self._checkpointer, SharesShards):
                await self._look_at_group(self._checkpointer)
            for shard in self.topology.startable:
                if shard.shard_id not in self.readers and self._has_place_for(shard):
                    finished |= await self._take(shard)
                    await asyncio.sleep(0)  # a first call takes a tenth of a millisecond: each in a turn of its own

    async def _look_at_group(self, checkpointer: SharesShards) -> None:
        """Let the checkpointer choose our shards; if another consumer has finished one, list the shards again."""
        startable = [shard.shard_id for shard in self.topology.startable]
        if await checkpointer.share(startable, restartable=self._options.iterator_type != "LATEST"):
            await self.refresh_shards()

    def _has_place_for(self, shard: Shard) -> bool:
        limit = self._options.max_shard_consumers
        if limit is None or self.topology.is_closed(shard.shard_id):
            return True
        return sum(not self.topology.is_closed(shard_id) for shard_id in self.readers) < limit

    async def _take(self, shard: Shard) -> bool:
        """Ask for a shard; whether it turned out to be finished."""
        shard_id = shard.shard_id
        if not self._share.claim(shard_id):
            return False
        is_ours, position = False, None
        try:
            is_ours, position = await self._checkpointer.allocate(shard_id)
        finally:
            if not is_ours:
                self._share.release(shard_id)
        self._check_position(shard, position)
        if position == SHARD_END:
            self.topology.finish_for_all(shard_id)
            return True
        if not is_ours:
            return False
        if not was_read(position):
            await self._begin_after_gone_parents(shard)
        at_latest = self._options.iterator_type == "LATEST"
        origin = self.topology.begin(shard_id, has_position=position is not None, at_latest=at_latest)
        if origin is Origin.NOWHERE:
            await self._checkpointer.deallocate(shard_id)
            self._share.release(shard_id)
            self.topology.finish(shard_id)
            return True
        reader = ShardReader(
            shard,
            self._start_at(origin, position),
            self._client,
            self._make_queue(),
            FetchOptions(
                record_limit=self._options.record_limit,
                interval=1 / self._options.shard_fetch_rate,
                sleep_time_no_records=self._options.sleep_time_no_records,
                deaggregate=self._options.deaggregate,
                hash_range_check=self._options.hash_range_check,
                max_batch_bytes=self._options.max_batch_bytes,
                sub_sequences=self._sub_sequences,
                empty_answers=self._options.empty_answers,
                on_data_loss=self._options.on_data_loss,
            ),
            is_ours=lambda: self._checkpointer.is_allocated(shard_id),
            is_listed=lambda: self._is_listed(shard_id),
            metrics=self._metrics,
            labels={**self._labels, "shard_id": shard_id},
            budget=self.budget,
            sizes=self._sizes,
            on_change=self._changed.set,
        )
        log.info("%s: ours, from %s", shard_id, position or reader.start.iterator_type)
        self.readers[shard_id] = reader
        self._run(reader, self._read(reader))
        self._on_reader(reader)
        return False

    async def _begin_after_gone_parents(self, shard: Shard) -> None:
        """Look after the parents of a shard that are no longer listed, once: what they have lost is reported then.

        Raises:
            DataLossError: as below.
        """
        if all(self.topology.has(parent) for parent in shard.parents):
            return
        checkpointer = self._checkpointer if isinstance(self._checkpointer, KeepsBeginnings) else None
        if checkpointer is not None and await checkpointer.begins_at_first(shard.shard_id):
            return
        await self._follow_gone_parents(shard)
        gone = [parent for parent in shard.parents if not self.topology.has(parent)]
        if checkpointer is not None and any(map(self.topology.is_finished, gone)):
            try:
                await checkpointer.begin_at_first(shard.shard_id)
            except Exception as error:
                log.warning(
                    "%s: its beginning is not kept, the next start tries again: %s", shard.shard_id, described(error)
                )

    async def _follow_gone_parents(self, shard: Shard) -> None:
        """Let a shard begin at its first record if it follows one that was read, and is no longer listed.

        Raises:
            DataLossError: that one was not read to its end, and on_data_loss is "raise".
        """
        if not isinstance(self._checkpointer, KeepsPositions):
            return
        for parent in shard.parents:
            if self.topology.has(parent) or self.topology.is_finished(parent):
                continue
            position = await self._checkpointer.position(parent)
            if not was_read(position):
                await self._follow_gone_ancestors(parent, shard)
                continue
            log.warning(
                "%s is no longer listed: %s, which follows it, is read from its first record", parent, shard.shard_id
            )
            if position is not None and (place := Place.parse(position)) is not None:
                await self._report_loss(parent, place)
            self.topology.finish_for_all(parent)

    async def _follow_gone_ancestors(self, parent: str, shard: Shard) -> None:
        """The same where nothing was read of the parent either: the stream was resharded again before it was begun.

        Raises:
            DataLossError: on_data_loss is "raise".
        """
        if not isinstance(self._checkpointer, ListsPositions):
            return
        listed = self.topology.shards
        if self._left_behind is None:
            positions = await self._checkpointer.positions({each.shard_id for each in listed})
            self._left_behind = left_behind(positions, listed)
        if parent in self._lost_parents or not self._left_behind:
            return
        places = {shard_id: Place.parse(position) for shard_id, position in self._left_behind.items()}
        unfinished = {shard_id: place for shard_id, place in places.items() if place is not None}
        log.log(
            logging.WARNING if unfinished else logging.ERROR,
            "%s/%s is no longer listed, and none of its records was read: those that it had are lost. %s, which "
            "follows it, is read from its first record",
            self._client.stream_name,
            parent,
            shard.shard_id,
        )
        for shard_id, place in unfinished.items():
            if shard_id not in self._lost_parents:
                await self._report_loss(shard_id, place)
                self._lost_parents.add(shard_id)
        self._lost_parents.add(parent)
        self.topology.finish_for_all(parent)

    async def _report_loss(self, shard_id: str, place: Place) -> None:
        """Report that a shard is gone of which records were read, and its end was not."""
        await self._client.look_at_stream()  # the retention may be another one by now
        retention = self._client.retention_seconds or LEAST_RETENTION
        if (loss := TrimWatch().judge(shard_id, place.sequence_number, retention, time.time())) is not None:
            labels = {**self._labels, "shard_id": shard_id}
            report_loss(loss, self._options.on_data_loss, self._metrics, labels)

    def _check_position(self, shard: Shard, position: str | None) -> None:
        """Refuse a position that cannot be in the shard.

        Raises:
            AnotherStream: it is of another stream's shard.
        """
        place = None if position is None else Place.parse(position)
        start = shard.starting_sequence_number
        if place is not None and start is not None and not is_of_shard(place.sequence_number, start):
            raise AnotherStream(
                f"{shard.shard_id} of {self._client.stream_name} begins with sequence number {start}, and "
                f"{self._checkpointer!r} has {place} as its position: that is of another stream, or of one that was "
                "deleted since. Use another checkpointer name for each stream"
            )

    def _start_at(self, origin: Origin, position: str | None) -> Start:
        match origin:
            case Origin.POSITION if position is not None:
                place = Place.parse(position)
                iterator_type = "AFTER_SEQUENCE_NUMBER" if place is not None else position
            case Origin.ITERATOR_TYPE:
                place, iterator_type = None, self._options.iterator_type
            case _:
                place, iterator_type = None, "TRIM_HORIZON"
        timestamp = self._options.timestamp if iterator_type == "AT_TIMESTAMP" else None
        if iterator_type == "AT_TIMESTAMP" and timestamp is None:
            raise ValidationError("a position is AT_TIMESTAMP, and the consumer has no timestamp: give it one")
        return Start(iterator_type, timestamp, place)

    async def _read(self, reader: ShardReader) -> None:
        try:
            await reader.run()
        except Exception as error:
            reader.queue.put(self._failed(reader, error))
            return
        if reader.ended:
            self.topology.ended(reader.shard_id)
            self.topology.add_children(Shard.from_child(child) for child in reader.children)
            if reader.children:
                self._metrics.increment(MetricType.STREAM_RESHARDING_EVENTS, 1, self._labels)
            self._list_is_old = True
            self._look_again()

    def _failed(self, reader: ShardReader | None, error: Exception) -> Failed[ShardReader]:
        self._failures[reader] = error
        self._changed.set()
        return Failed(reader, error)

    def _look_again(self) -> None:
        self._look_is_done = False
        self._look.set()

    def _count_error(self, shard_id: str, error: Exception) -> None:
        labels = {**self._labels, "shard_id": shard_id, "error_type": type(error).__name__}
        self._metrics.increment(MetricType.CONSUMER_ERRORS, 1, labels)

    # Shards that are read.

    async def commit(self, reader: ShardReader, place: Place) -> None:
        """Write a position. If the shard is not ours any more, its reader is `lost` and ends; `drop` is to follow.

        Raises:
            Exception: the position is not known to be written.
        """
        try:
            await self._checkpointer.checkpoint(reader.shard_id, str(place))
        except CheckpointOwnershipConflict as error:
            self._lose(reader, error)

    async def end_shard(self, reader: ShardReader) -> None:
        """Give a shard back that was read to its end and is committed; its children may start.

        If it is not ours any more, its reader is `lost`; `drop` is to follow.

        Raises:
            Exception: it is not known to be given back.
        """
        if reader.lost:
            return
        try:
            if isinstance(self._checkpointer, EndsShards):
                if isinstance(self._checkpointer, ListsShards):  # its children may be in no list yet
                    await self._checkpointer.shards_listed(self.topology.shards)
                await self._checkpointer.shard_ended(reader.shard_id)
            else:
                await self._checkpointer.deallocate(reader.shard_id)
        except CheckpointOwnershipConflict as error:
            self._lose(reader, error)
            return
        self._forget(reader)
        self.topology.finish(reader.shard_id)
        log.info("%s: finished", reader.shard_id)

    def _lose(self, reader: ShardReader, error: Exception) -> None:
        log.warning("%s is another's now: %s", reader.shard_id, error)
        reader.lost = True
        self._end_reading(reader)

    def drop(self, reader: ShardReader) -> None:
        """Release a shard that another consumer owns, and that nobody here uses any longer; it can be ours again."""
        reader.lost = True
        self._forget(reader)

    def _forget(self, reader: ShardReader) -> None:
        if self.readers.get(reader.shard_id) is reader:
            del self.readers[reader.shard_id]
            self._share.release(reader.shard_id)
        self._end_reading(reader)
        self._look_again()  # it may be free, or has children

    def _end_reading(self, reader: ShardReader) -> None:
        self._failures.pop(reader, None)
        if (task := self._tasks.pop(reader, None)) is not None:
            task.cancel()

    # Questions.

    @property
    def is_ready(self) -> bool:
        """Whether all shards that could be allocated know where to read."""
        return self._look_is_done and all(reader.has_iterator or reader.ended for reader in self.readers.values())

    @property
    def is_settled(self) -> bool:
        """Whether the shards that could be ours are. Not while all are other consumers': theirs may become ours."""
        return self._look_is_done and bool(self.readers or not self.topology.startable)

    def is_quiet(self, seconds: float) -> bool:
        """Whether nothing is wrong, and all shards have been at their tips for so many seconds."""
        return self.is_settled and all(reader.is_quiet(seconds) for reader in self.readers.values())

    async def wait_for_change(self) -> None:
        """Wait until `is_ready` may have changed."""
        self._changed.clear()
        await self._changed.wait()

    def status(self) -> dict[str, Any]:
        """See `fastkcl.kinesis.Consumer.get_shard_status`."""
        topology = self.topology
        shards, children, parents = topology.shards, topology.children, topology.parents
        details = []
        for shard in shards:
            reader = self.readers.get(shard.shard_id)
            details.append(
                {
                    "shard_id": shard.shard_id,
                    "is_allocated": self._checkpointer.is_allocated(shard.shard_id),
                    "is_closed": topology.is_closed(shard.shard_id),
                    "has_iterator": reader is not None and reader.has_iterator,
                    "sequence_range": dict(shard.sequence_range),
                    "parent_shard_id": shard.parents[0] if shard.parents else None,
                    "is_parent": shard.shard_id in children,
                    "is_child": shard.shard_id in parents,
                    "can_allocate": topology.can_start(shard.shard_id),
                    "stats": None if reader is None else {"throttled": reader.throttled, "success": reader.successes},
                }
            )
        return {
            "total_shards": len(shards),
            "active_shards": sum(not detail["is_closed"] for detail in details),
            "closed_shards": sum(bool(detail["is_closed"]) for detail in details),
            "allocated_shards": sum(bool(detail["is_allocated"]) for detail in details),
            "parent_shards": len(children),
            "child_shards": len(parents),
            "exhausted_parents": sum(topology.is_finished(shard_id) for shard_id in children),
            "expired_parents": len(topology.expired),
            "resharding_in_progress": topology.is_resharding,
            "topology": {"parent_child_map": children, "child_parent_map": parents},
            "shard_details": details,
        }


def _lasts(error: Exception) -> bool:
    """Whether looking for shards again would meet the same."""
    if isinstance(error, CheckpointTableError):
        return error.is_lasting
    return isinstance(error, StreamDoesNotExist | AnotherStream | DataLossError | ValidationError | ConnectionError)
