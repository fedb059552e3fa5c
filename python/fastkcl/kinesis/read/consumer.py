"""The consumer: reads a stream item by item, record by record, or in Arrow batches.

    StreamReader ──▶ RecordQueue ──▶ Delivery ──▶ ``async for`` ── asks for more ──▶ Positions ──▶ checkpointer

The program acknowledges an item by asking for the next one. Of several tasks each acknowledges its own items. When the
last record of a batch is acknowledged, the batch's position is written: at once, or in the background
(`checkpoint_interval`). `close` also writes the acknowledged part of a batch. So no record is skipped, and a record is
delivered again if the program dies while it has it. A program that works on several records at a time acknowledges each
itself (`acknowledge="explicit"`, `fastkcl.kinesis.read.acknowledging`).

Rules: ``async for`` ends after `close`, or when nothing has come for `idle_timeout` while all shards are at their tips;
a line in the log gives the reason. Any other stop is an exception, and a new iteration continues at the same position.
Once another consumer is known to own a shard, no record of it is delivered. Asking for an item lets the event loop run
every few milliseconds, also if there is nothing to wait for (`fastkcl.kinesis.read.pacing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, Unpack, overload

from fastkcl.kinesis.bounds import check_count, check_seconds, within
from fastkcl.kinesis.checkpoints.base import BindsMetrics, CheckPointer, Place, check_checkpointer
from fastkcl.kinesis.checkpoints.memory import MemoryCheckPointer
from fastkcl.kinesis.client import StreamClient
from fastkcl.kinesis.exceptions import ValidationError, described
from fastkcl.kinesis.items.aggregators import BaseAggregator
from fastkcl.kinesis.items.processors import JsonProcessor
from fastkcl.kinesis.metrics import MetricType, get_metrics_collector
from fastkcl.kinesis.options import StreamOptions
from fastkcl.kinesis.read.acknowledging import AckDelivery, Acknowledgements, AckRecord
from fastkcl.kinesis.read.budget import MAX_QUEUE_BYTES
from fastkcl.kinesis.read.consumer_facts import ConsumerFacts
from fastkcl.kinesis.read.data_loss import OnDataLoss
from fastkcl.kinesis.read.delivery import (
    EXHAUSTED,
    PASSED,
    BatchDelivery,
    ConsumerRecord,
    Delivery,
    ItemDelivery,
    RecordError,
)
from fastkcl.kinesis.read.fetch import MAX_BATCH_BYTES, ShardReader
from fastkcl.kinesis.read.holders import Held, Holders, current_task
from fastkcl.kinesis.read.item_types import (
    Acknowledge,
    ConsumerOptions,
    Item,
    ItemProcessor,
    OnRecordError,
    Output,
    ProcessorItem,
)
from fastkcl.kinesis.read.pacing import Pace
from fastkcl.kinesis.read.positions import Positions
from fastkcl.kinesis.read.reading import LOOK_SECONDS, IteratorType, ReadOptions, StreamReader
from fastkcl.kinesis.read.record_queue import Failed, Fetched, RecordQueue, ShardEnded, ShardLost
from fastkcl.kinesis.read.unwritten import UNWRITTEN, report_partly, unwritten
from fastkcl.kinesis.unclosed import Watched
from fastkcl.stdio.log import module_logger

if TYPE_CHECKING:
    from fastkcl._core import RecordBatch

__all__ = ["Consumer", "OnRecordError", "Output"]

log = module_logger(__name__)

CLOSE_SECONDS = 20.0
"""For each of writing positions, giving shards back and closing connections."""
MOST_WITHOUT_ITEMS = 256
"""Records without items that are passed before the event loop may run."""


class Consumer(ConsumerFacts, Watched, Generic[Item]):
    """Consumes a stream: ``async with Consumer("orders") as consumer: async for item in consumer: ...``.

    Args:
        stream_name: the stream's name, or its ARN.
        max_queue_size: records that are fetched ahead, 1 or more; with that many, fetching waits.
        max_queue_bytes: memory of fetched records, of all shards together and with answers under way, 1 or more;
            64 MiB by default. If records are large, a call asks for fewer. A larger answer is fetched alone.
        max_shard_consumers: at most this many open shards; None for all.
        record_limit: at most this many records in a GetRecords call, 1 to 10,000.
        sleep_time_no_records: seconds between two calls for a shard that has no new records.
        iterator_type: where a shard without a position begins: TRIM_HORIZON, LATEST or AT_TIMESTAMP. If a shard was
            read, its children begin at their first record.
        timestamp: for AT_TIMESTAMP, with a time zone.
        shard_fetch_rate: GetRecords calls a second of each shard, 1 to 5.
        checkpointer: where positions are kept; in memory by default.
        processor: makes items of records; `JsonProcessor` by default. Not used for batches.
        idle_timeout: seconds without a record after which ``async for`` ends, counted while every shard is at its tip;
            None for never.
        checkpoint_interval: seconds between two writes of positions, above 0; None to write each when it is due.
        on_record_error: the reaction to a record that the processor cannot read: "raise" stops in front of it,
            "skip" leaves it out with a line in the log, or a function (or coroutine function) of a `ConsumerRecord`
            with its bytes and the error, after which it is left out.
        output: "items" as the processor makes them, "records" for `ConsumerRecord` with metadata, "batches" for
            `fastkcl.RecordBatch` in its five canonical columns.
        acknowledge: "next": asking for more acknowledges the item before. "explicit", for records: each is
            acknowledged by its `done` or by `ack`, in any order.
        ack_timeout: seconds. With "explicit", a record that is not acknowledged for so long stops the iteration. With
            "next", an iteration waits so long for tasks that are at records of an ended shard.
        deaggregate: take KPL aggregates apart; None to do it for batches, where the processor does, and with positions
            in KCL's lease table.
        hash_range_check: drop aggregates with keys that their shard does not own, as KCL does.
        max_batch_bytes: of one answer with its aggregates taken apart, 1 to 2**31 - 1; each shard that is
            read can hold so much. Of a larger answer one record at a time is read. A larger aggregate stops its shard
            with `AnswerTooLarge`.
        on_data_loss: the reaction when the stream has trimmed the position of a shard, so that records after it are
            lost. Either way it is an ERROR in the log and in `consumer_data_loss_total`. Then "continue" reads the
            rest, and "raise" stops before it with `DataLossError`.
        options: see `StreamOptions`.

    Raises:
        ValidationError: an option out of range, or `checkpoint_interval` with a checkpointer of auto_checkpoint=False.
        TypeError: an argument of another type.
    """

    _kind: ClassVar[str] = "consumer"
    _client_class: ClassVar[type[StreamClient]] = StreamClient

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Consumer[ProcessorItem],
            stream_name: str,
            *,
            processor: ItemProcessor[ProcessorItem],
            output: Literal["items"] = "items",
            acknowledge: Literal["next"] = "next",
            **options: Unpack[ConsumerOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: Consumer[AckRecord],
            stream_name: str,
            *,
            processor: BaseAggregator | None = None,
            output: Literal["records"],
            acknowledge: Literal["explicit"],
            **options: Unpack[ConsumerOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: Consumer[ConsumerRecord],
            stream_name: str,
            *,
            processor: BaseAggregator | None = None,
            output: Literal["records"],
            acknowledge: Literal["next"] = "next",
            **options: Unpack[ConsumerOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: Consumer[RecordBatch],
            stream_name: str,
            *,
            processor: BaseAggregator | None = None,
            output: Literal["batches"],
            acknowledge: Literal["next"] = "next",
            **options: Unpack[ConsumerOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: Consumer[Any],
            stream_name: str,
            *,
            processor: BaseAggregator | None = None,
            output: Output = "items",
            acknowledge: Acknowledge = "next",
            **options: Unpack[ConsumerOptions],
        ) -> None: ...

    def __init__(
        self,
        stream_name: str,
        *,
        max_queue_size: int = 10_000,
        max_queue_bytes: int = MAX_QUEUE_BYTES,
        max_shard_consumers: int | None = None,
        record_limit: int = 10_000,
        sleep_time_no_records: float = 2,
        iterator_type: IteratorType = "TRIM_HORIZON",
        timestamp: datetime | None = None,
        shard_fetch_rate: float = 1,
        checkpointer: CheckPointer | None = None,
        processor: BaseAggregator | ItemProcessor[Any] | None = None,
        idle_timeout: float | None = 2.0,
        checkpoint_interval: float | None = None,
        on_record_error: OnRecordError = "raise",
        output: Output = "items",
        acknowledge: Acknowledge = "next",
        ack_timeout: float = 300,
        deaggregate: bool | None = None,
        hash_range_check: bool = True,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        on_data_loss: OnDataLoss = "continue",
        **options: Unpack[StreamOptions],
    ) -> None:
        self._client = self._client_class(stream_name, **options)
        self._keeps_positions = checkpointer is not None
        self._checkpointer = MemoryCheckPointer() if checkpointer is None else checkpointer
        check_checkpointer(self._checkpointer)
        if processor is None:
            processor = JsonProcessor()
        if not isinstance(processor, BaseAggregator):
            raise TypeError(f"processor must be a processor like JsonProcessor(), not {processor!r}")
        self._processor = processor
        check_count("max_queue_size", max_queue_size, 1)
        check_seconds("idle_timeout", idle_timeout, optional=True)
        if checkpoint_interval is not None:
            check_seconds("checkpoint_interval", checkpoint_interval)
            if getattr(self._checkpointer, "auto_checkpoint", True) is False:
                raise ValidationError(
                    "checkpoint_interval and a checkpointer of auto_checkpoint=False are mutually exclusive: the one "
                    "writes by the clock, the other when manual_checkpoint() is called"
                )
        if output not in ("items", "records", "batches"):
            raise ValidationError(f'output must be "items", "records" or "batches", not {output!r}')
        if acknowledge not in ("next", "explicit"):
            raise ValidationError(f'acknowledge must be "next" or "explicit", not {acknowledge!r}')
        if acknowledge == "explicit" and output != "records":
            raise ValidationError(f'acknowledge="explicit" is for output="records", not {output!r}')
        check_seconds("ack_timeout", ack_timeout)
        if on_record_error not in ("raise", "skip") and not callable(on_record_error):
            raise ValidationError(f'on_record_error must be "raise", "skip" or a function, not {on_record_error!r}')
        self._idle_timeout = idle_timeout
        self._checkpoint_interval = checkpoint_interval
        self._on_record_error = on_record_error
        self._output: Output = output
        self._is_explicit = acknowledge == "explicit"
        self._ack_timeout = ack_timeout
        self._acks = Acknowledgements()
        # Where positions have sub-sequence numbers, as KCL's, records are user records, as to KCL.
        self._deaggregated = (
            deaggregate
            if deaggregate is not None
            else self._processor.deaggregates
            or output == "batches"
            or getattr(self._checkpointer, "sub_sequences", False)
        )
        self._metrics = options.get("metrics_collector") or get_metrics_collector()
        self._labels = {"stream_name": self._client.stream_name}
        if isinstance(self._checkpointer, BindsMetrics):
            self._checkpointer.bind_metrics(self._metrics, dict(self._labels))
        self._queue = RecordQueue[ShardReader](max_queue_size)
        self._stream = StreamReader(
            self._client,
            self._checkpointer,
            ReadOptions(
                iterator_type=iterator_type,
                timestamp=timestamp,
                max_shard_consumers=max_shard_consumers,
                record_limit=record_limit,
                sleep_time_no_records=sleep_time_no_records,
                shard_fetch_rate=shard_fetch_rate,
                deaggregate=self._deaggregated,
                hash_range_check=hash_range_check,
                max_batch_bytes=max_batch_bytes,
                on_data_loss=on_data_loss,
                max_queue_bytes=max_queue_bytes,
            ),
            make_queue=lambda: self._queue,
            on_failure=self._queue.put,
            metrics=self._metrics,
        )
        self._delivery: Delivery | AckDelivery | None = None
        self._delivered_at = 0.0
        self._opening, self._closing = asyncio.Lock(), asyncio.Lock()
        self._turn = asyncio.Lock()  # of the tasks that ask for an item
        self._asks = self._asks_at_end = 0  # that had to wait; those of them before the last end by idle_timeout
        self._pace = Pace()
        self._positions = Positions()
        self._holders = Holders()
        self._capped: dict[str, Place] = {}  # positions before held records, as they were written last
        self._committing = asyncio.Lock()
        self._ended: dict[ShardReader, float] = {}  # shards at their end, and since when, until they are given back
        self._failed: list[Failed[ShardReader]] = []
        self._under_way: asyncio.Task[None] | None = None  # that is done to its end: `_to_its_end`
        self._flusher: asyncio.Task[None] | None = None
        self._flush_failed = False  # and the program does not know yet
        self._told: Exception | None = None  # that `wait_ready` has raised last
        self._is_started = self._is_closed = False
        self._writes_last = False

    # Life.

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """The same as `open`."""
        await self.open()

    async def open(self) -> None:
        """Connect, and list the shards (with `skip_describe_stream` the iteration does). Iterating opens it, too.

        Raises:
            RuntimeError: it was closed.
            AnotherStream: the checkpointer is for another stream.
            Exception: see `StreamClient.open`.
        """
        self._check_open()
        async with self._opening:
            self._check_open()
            if self._client.is_open:
                return
            try:
                await self._open()
            except Exception:
                self._check_open()  # it may have been closed meanwhile
                raise
            if self._is_closed:
                await self._client.close()
                self._check_open()
            self.watch()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{self.title} was closed: make another one")
        self.check_loop()

    async def _open(self) -> None:
        await self._client.open()
        if not self._client.skip_describe_stream:
            try:
                await self._stream.refresh_shards()
            except BaseException:
                await self._client.close()
                raise

    async def close(self) -> None:
        """Stop fetching, write the positions of acknowledged records, and give the shards back.

        Again, nothing happens, once it is closed. It takes a minute at most, whatever the checkpointer's backend does.

        Raises:
            RuntimeError: its event loop has ended, or is another one; in that one it can still be closed.
            TimeoutError: positions were not written, or shards not given back, in time.
            Exception: a position could not be written; everything is closed all the same.
        """
        self.check_other_loop()
        async with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            self._queue.close()
            try:
                self.check_loop()
                await self._close()
            except (asyncio.CancelledError, GeneratorExit):
                self.leave("was cut off in close()")
                raise
            finally:
                self.unwatch()

    async def _close(self) -> None:
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(lambda: within(CLOSE_SECONDS, "closing connections", self._client.close()))
            closing.push_async_callback(
                lambda: within(
                    CLOSE_SECONDS, f"{self._checkpointer!r}: giving shards back", self._stream.close_checkpointer()
                )
            )
            flushers = [] if self._flusher is None else [self._flusher]
            for flusher in flushers:
                flusher.cancel()
            await self._stream.stop()
            await asyncio.gather(*flushers, return_exceptions=True)
            self._writes_last = True
            self._hand_out_acknowledged()
            self._report_partly()
            self._queue.clear()
            shards = ", ".join(self._positions.pending)
            await within(
                CLOSE_SECONDS, f"{self._checkpointer!r}: writing the positions of {shards}", self._write_last()
            )

    async def _write_last(self) -> None:
        """Write the positions that are left, after a write that was begun."""
        begun = self._under_way
        try:
            if begun is not None and self._is_started:
                await asyncio.wait([begun])
        finally:
            if begun is not None:
                begun.cancel()
                await asyncio.gather(begun, return_exceptions=True)  # what it could not write is tried again
        await self._commit()

    def _report_partly(self) -> None:
        current = [] if self._is_explicit or self._delivery is None else [self._delivery]
        if self._keeps_positions:
            report_partly(self.title, [*self._acks.deliveries, *current])

    def report_unclosed(self, why: str) -> None:
        """Log which records are acknowledged and come again, since their positions are not written."""
        if isinstance(self._checkpointer, MemoryCheckPointer):
            return  # it ends with the process
        if not self._is_explicit:  # whose positions move without giving memory back, which wakes tasks
            self._hand_out_acknowledged()
        left = unwritten(self._positions.pending | self._acks.until_all, self._stream.readers, self._holders)
        if left:
            log.warning(UNWRITTEN, self.title, why, ", ".join(f"{shard_id} {n}" for shard_id, n in left.items()))
        self._report_partly()

    # Acknowledging.

    def ack(self, record: ConsumerRecord) -> None:
        """Acknowledge a record, of ``acknowledge="explicit"``. Again, nothing happens.

        The position is written when all before the record are acknowledged too, and the program asks for more;
        every `checkpoint_interval`; and by `close`. `AckRecord.done` writes it itself.

        Raises:
            TypeError: the record is no such one, or another consumer's.
            RuntimeError: the consumer is closed: the record comes again.
        """
        if not isinstance(record, AckRecord) or record.consumer is not self:
            raise TypeError(f'only a record of this consumer, with acknowledge="explicit", is acknowledged: {record!r}')
        if self._writes_last and not record.is_done:
            raise RuntimeError(
                f"{record.shard_id}: record {record.sequence_number} is acknowledged after close(): the position stays "
                "before it, and it comes again. Close the consumer when its records are done"
            )
        delivery = record.delivery
        delivery.acknowledge(record)
        if delivery.is_finished:
            self._move(delivery.fetched.reader)
            self._queue.wake()  # its shard may be finished

    async def _done(self, record: AckRecord) -> None:
        self.ack(record)
        if self._checkpoint_interval is None:
            await self._commit(record.shard_id)

    def _move(self, reader: ShardReader) -> None:
        """Let the position of a shard be committed up to the first record that is open."""
        handed = self._acks.move(reader)
        if handed is not None and not reader.lost:
            self._positions.hand_out(reader.shard_id, handed)
            self._positions.acknowledge()

    # Items.

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Item]:
        """The next item, record or batch.

        The task that calls this holds the item, whichever task awaits it: `asyncio.wait_for` of Python 3.11 and
        `create_task` make another one, which ends with the item as its result.

        Raises:
            StopAsyncIteration: nothing has come for idle_timeout at the tips of all shards, or the consumer is closed.
            DeserializeError: a record cannot be read, with on_record_error "raise". It stays the next one.
            AnswerTooLarge: the user records of an aggregate take more than max_batch_bytes.
            DataLossError: the stream has trimmed a position, with on_data_loss "raise".
            AnotherStream: the stream was made again under its name, or the checkpointer has positions of another one.
            ConnectionError: the service is away.
            UnacknowledgedError: a record was not acknowledged within ack_timeout, with acknowledge="explicit".
            RuntimeError: the consumer was closed before it began.
            Exception: another error that stopped the fetching, or a checkpointer's.
        """
        if self._is_explicit:
            return self._next_item(None, None)
        try:
            task = current_task(asyncio.get_running_loop())
        except RuntimeError:  # for run_until_complete
            task = None
        held = self._holders.held.get(task)
        if held is not None:  # a method's call would take a twentieth of an item's time, here and below
            held.is_done = True
            if held.earlier:
                held.earlier = []
        return self._next_item(task, held)

    async def _next_item(self, task: asyncio.Task[Any] | None, held: Held | None) -> Any:  # noqa: ANN401
        """The next item.

        Args:
            task: that has asked for it.
            held: what it had when it asked.
        """
        # Most items are at hand: what this does for one of them is what a record costs a program.
        if time.perf_counter() >= self._pace.due:
            pause = self._pace.pause(time.perf_counter())
            if pause is not None:
                await self._let_loop_run(pause)
        delivery = self._delivery
        # Nothing has to be awaited for it, here or by another task.
        if not (delivery is None or self._is_closed or delivery.fetched.reader.lost or self._turn.locked()):
            try:
                item = delivery.take(MOST_WITHOUT_ITEMS)
            except RecordError:
                item = EXHAUSTED  # the record stays the next one
            if item is not EXHAUSTED and item is not PASSED:
                if held is not None and held.is_done:  # then it is a `Delivery`: of others nothing is held
                    held.delivery, held.mark, held.is_done = delivery, delivery.mark, False  # type: ignore[assignment,union-attr]
                elif not isinstance(delivery, AckDelivery):
                    self._holders.give(task, delivery)
                return item
        self._holders.wait(task)
        if held is not None and self._turn.locked():
            self._queue.wake()  # who waits there writes the position, and lets child shards begin
        try:
            item = await self._take_next()
        finally:
            self._holders.served(task)
        delivery = self._delivery
        if delivery is not None and not isinstance(delivery, AckDelivery):
            self._holders.give(task, delivery)
        return item

    async def _take_next(self) -> Any:  # noqa: ANN401
        self._asks += 1
        ask = self._asks
        async with self._turn:
            if ask <= self._asks_at_end and self._is_idle():
                raise StopAsyncIteration  # it has waited for as long as the task that has just ended
            return await self._next()

    async def _let_loop_run(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not seconds:
            await asyncio.sleep(0)  # a timer that was due in the first turn lets its task run in the second
        if self._is_explicit:
            self._acks.check_overdue(self._ack_timeout, time.monotonic())
        self._pace.resumed(time.perf_counter())
        asyncio.get_running_loop().call_soon(self._pace.loop_ran)

    async def _next(self) -> Any:  # noqa: ANN401
        """The next item, whatever has to be done for it."""
        await self._begin()
        while not self._is_closed:
            pause = self._pace.pause(time.perf_counter())
            if pause is not None:
                await self._let_loop_run(pause)
            if self._delivery is not None:
                if self._delivery.fetched.reader.lost:
                    if self._is_explicit:
                        self._acks.drop(self._delivery.fetched.reader)
                    else:
                        self._delivery.fetched.release()
                    self._delivery = None
                    continue
                unreadable: RecordError | None = None
                try:
                    item = self._delivery.take(MOST_WITHOUT_ITEMS)
                except RecordError as error:
                    unreadable = error
                if unreadable is not None:
                    await self._pass_unreadable(self._delivery, unreadable)
                    continue
                if item is PASSED:
                    continue
                if item is not EXHAUSTED:
                    return item
                self._finish_delivery()
            await self._settle()
            entry = self._queue.take()
            match entry:
                case Fetched() if not entry.reader.lost:
                    self._deliver(entry)
                case Fetched():
                    entry.release()
                case ShardEnded():
                    self._ended[entry.reader] = time.monotonic()
                case ShardLost():
                    log.warning("%s is another's now: its fetched records are dropped", entry.reader.shard_id)
                    self._lose(entry.reader)
                case Failed():
                    self._flush_failed = False
                    self._failed.append(entry)
                    raise entry.error
                case None:
                    if not await self._wait_for_entries():
                        self._asks_at_end = self._asks
                        raise StopAsyncIteration
        self._log_end("the consumer is closed")
        raise StopAsyncIteration

    async def _begin(self) -> None:
        """Start, or resume what an error has stopped that the program has seen."""
        self.check_loop()
        if not self._is_started:
            was_closed = self._is_closed
            try:
                await self._to_its_end(self._start)
            except RuntimeError:
                if was_closed or not self._is_closed:
                    raise
        elif self._failed:
            self._resume(*(type(each.error) for each in self._failed))

    def _resume(self, *known: type[Exception]) -> None:
        """Resume what errors have stopped that the program has seen."""
        failed, self._failed = self._failed, []
        # Others have met the same since, shards or a write: the program knows it, and it may be over.
        for each in failed + self._queue.take_failures(like=known):
            self._flush_failed &= each.reader is not None
            self._stream.resume(each)

    async def _start(self) -> None:
        if self._is_started:  # for another task, which this one has waited for
            return
        await self.open()
        self._stream.start()
        if self._checkpoint_interval is not None and self._flusher is None:
            self._flusher = asyncio.create_task(self._flush(self._checkpoint_interval))
        self._is_started = True

    async def _wait_for_entries(self) -> bool:
        """Whether there is something to do; not when nothing has come for idle_timeout, and nothing is left."""
        idle = pause = self._idle_timeout
        while True:
            look = LOOK_SECONDS if self._ended else None
            overdue = self._acks.check_overdue(self._ack_timeout, time.monotonic())
            bounds = [each for each in (pause, look, overdue) if each is not None]
            try:
                async with asyncio.timeout(min(bounds, default=None)):
                    await self._queue.wait_for_entries()
                    return True
            except TimeoutError:
                pass
            if self._finished():  # a task has ended at its record, which wakes nobody
                return True
            if idle is None:
                continue
            if self._is_idle():
                self._log_end(f"nothing has come for {idle:g} s; shards at their tips: {len(self._stream.readers)}")
                for reader in self._ended:
                    log.warning("%s: a record is not acknowledged: child shards have not begun", reader.shard_id)
                return False
            pause = min(idle, LOOK_SECONDS)

    def _is_idle(self) -> bool:
        """Whether nothing has come for idle_timeout, and nothing is left."""
        if self._idle_timeout is None or not self._stream.is_quiet(self._idle_timeout):
            return False
        # Something may have come just now; or it may not be asked for until open records are acknowledged.
        return self._queue.is_empty and self._delivery is None and not (self._is_closed or self._is_held_up())

    def _finished(self) -> list[ShardReader]:
        """Shards at their end of which nothing is open, in the hands of no task, and not of one that has failed."""
        ended = (reader for reader in self._ended if not self._acks.is_open(reader))
        return [reader for reader in ended if not self._holders.holds(reader.shard_id)]

    def _is_held_up(self) -> bool:
        """Whether more may come when open records are acknowledged: for which there is no room now, or of child shards.

        A task that never asks again holds child shards up for `ack_timeout`; one that has failed does not.
        """
        if self._is_explicit:
            is_full = bool(self._acks.readers) and self._stream.budget.is_waited_for
            return is_full or any(map(self._acks.is_open, self._ended))
        before = time.monotonic() - self._ack_timeout
        return any(since > before and self._holders.is_at(each.shard_id) for each, since in self._ended.items())

    def _log_end(self, why: str) -> None:
        log.info("%s: the iteration ends: %s", self.stream_name, why)

    def _deliver(self, fetched: Fetched[ShardReader]) -> None:
        self._metrics.gauge(MetricType.CONSUMER_QUEUE_SIZE, self._queue.rows, self._labels)
        self._show_lag(fetched.reader)
        self._delivered_at = time.perf_counter()
        if self._output == "batches":
            self._delivery = BatchDelivery(fetched)
        else:
            items = ItemDelivery(fetched, self._processor, self._output, deaggregated=self._deaggregated)
            if self._is_explicit:
                self._delivery = explicit = AckDelivery(items, self, time.monotonic)
                self._acks.begin(explicit)
                return
            self._delivery = items
        self._delivery.before = self._positions.latest(fetched.reader.shard_id)

    def _show_lag(self, reader: ShardReader) -> None:
        labels = {**self._labels, "shard_id": reader.shard_id}
        self._metrics.gauge(MetricType.CONSUMER_LAG, reader.rows - reader.committed_rows, labels)

    def _finish_delivery(self) -> None:
        assert self._delivery is not None
        self._hand_out_acknowledged()
        labels = {**self._labels, "shard_id": self._delivery.fetched.reader.shard_id}
        self._metrics.histogram(MetricType.CONSUMER_PROCESSING_TIME, time.perf_counter() - self._delivered_at, labels)
        if not self._is_explicit:
            self._delivery.fetched.release()
        self._delivery = None

    def _hand_out_acknowledged(self) -> None:
        """Let finished records be committed."""
        if self._is_explicit:
            for reader in self._acks.readers:
                self._move(reader)
            return
        if self._delivery is None or self._delivery.fetched.reader.lost:
            return
        if (handed := self._delivery.acknowledged) is not None:
            self._positions.hand_out(self._delivery.fetched.reader.shard_id, handed)
            self._positions.acknowledge()

    async def _pass_unreadable(self, delivery: Delivery | AckDelivery, error: RecordError) -> None:
        record, cause = error.record, error.__cause__
        assert isinstance(cause, Exception)
        labels = {**self._labels, "shard_id": record.shard_id, "error_type": type(cause).__name__}
        self._metrics.increment(MetricType.CONSUMER_ERRORS, 1, labels)
        if self._on_record_error == "raise":
            self._hand_out_acknowledged()
            await self._settle()
            cause.add_note(f"in record {record.sequence_number} of {record.shard_id}")
            raise cause
        if self._on_record_error == "skip":
            log.warning("%s: record %s is skipped: %s", record.shard_id, record.sequence_number, cause)
        else:
            if inspect.isawaitable(result := self._on_record_error(record, cause)):
                await result
        delivery.skip()

    # Positions.

    async def _settle(self) -> None:
        """Write the positions that are due, and give shards back that are finished."""
        if self._under_way or self._ended or (self._positions.pending and self._checkpoint_interval is None):
            await self._to_its_end(self._settle_now)

    async def _to_its_end(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something to its end, also where the task that asks is cancelled, and what was begun before it.

        `asyncio.wait_for` with less time than a write takes, or the start, would never come to the next item. The error
        then reaches the next to ask, and all who wait for it: the iteration and `wait_ready` may ask at once.
        """
        begun = self._under_way
        task = self._under_way = begun or asyncio.create_task(work())
        await asyncio.wait([task])
        if self._under_way is task:  # nobody else who waited for it was here first
            self._under_way = None
        if not task.cancelled():
            task.result()
        if begun is not None and not self._is_closed:
            await self._to_its_end(work)

    async def _settle_now(self) -> None:
        if self._checkpoint_interval is None:
            await self._commit()
        for reader in self._finished():
            await self._commit(reader.shard_id)
            await self._stream.end_shard(reader)
            if reader.lost:
                self._stream.drop(reader)
            self._forget(reader.shard_id)
            self._ended.pop(reader, None)

    async def _commit(self, only: str | None = None) -> None:
        """Write positions: of all shards before the first error is raised."""
        if not self._positions.pending:
            return
        first: Exception | None = None
        async with self._committing:
            for shard_id, handed in self._positions.pending.items():
                if only not in (None, shard_id):
                    continue
                if (reader := self._stream.readers.get(shard_id)) is None:
                    self._forget(shard_id)
                    continue
                capped = self._holders.cap(shard_id, handed)
                if capped is None or capped.place == self._capped.get(shard_id):
                    continue
                try:
                    await self._stream.commit(reader, capped.place)
                except Exception as error:
                    log.warning("%s: %s is not written: %s", shard_id, capped.place, described(error))
                    first = first or error
                    continue
                if reader.lost:
                    self._lose(reader)
                    continue
                if capped is handed:
                    self._positions.committed(shard_id, handed)
                self._capped[shard_id] = capped.place
                reader.committed_rows = capped.rows
                self._show_lag(reader)
        if first is not None:
            raise first

    async def _flush(self, interval: float) -> None:
        """Write the newest positions now and then; the program gets a failed write's error, and the position stays."""
        while True:
            await asyncio.sleep(interval)
            self._hand_out_acknowledged()
            try:
                await self._commit()
            except Exception as error:
                if not self._flush_failed:
                    self._flush_failed = True
                    self._queue.put(Failed(None, error))

    def _lose(self, reader: ShardReader) -> None:
        self._stream.drop(reader)
        self._forget(reader.shard_id)
        self._acks.drop(reader)

    def _forget(self, shard_id: str) -> None:
        self._positions.drop(shard_id)
        self._holders.drop(shard_id)
        self._capped.pop(shard_id, None)

    # Questions.

    @property
    def is_ready(self) -> bool:
        """Whether all shards that could be allocated know where to read."""
        return self._is_started and not self._is_closed and self._stream.is_ready

    async def wait_ready(self, timeout: float = 30) -> None:
        """Wait until records that are put from now on are read, also with LATEST. Starts the fetching, or resumes it.

        Raises:
            TimeoutError: it takes longer.
            RuntimeError: the consumer is closed.
            Exception: the error that stopped the fetching.
        """
        async with asyncio.timeout(timeout):
            if not self._is_started:
                await self._to_its_end(self._start)
            if self._stream.failure is self._told is not None:
                self._resume(type(self._told))
            while True:
                self._check_open()
                if (told := self._stream.failure) is not None:
                    self._told = told
                    raise told
                if self.is_ready:
                    return
                await self._stream.wait_for_change()

    async def refresh_shards(self) -> None:
        """List the shards now; otherwise that is done every 60 s, and when a shard ends.

        Raises:
            StreamDoesNotExist: there is no such stream.
            RuntimeError: the consumer is closed.
        """
        await self.open()
        try:
            await self._stream.refresh_shards()
        except Exception:
            self._check_open()
            raise
