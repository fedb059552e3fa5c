"""Runs processors over a stream without a daemon: processors for KCL, and `fastkcl.spark.SparkProcessor`.

    StreamReader ──▶ a queue for each shard ──▶ a thread for each shard ──▶ BatchProcessor.process_batch(batch, …)
         ▲                                                                            │
         └──────── commit: the position that the processor chose ◀──── checkpoint ◀───┘

A processor gets the same calls as from a daemon: initialize, process_batch, then shard_ended, lease_lost or
shutdown_requested, and finally run_ended. An empty batch gives a processor that writes in the background the chance to
checkpoint. The processor chooses the positions: after a death, records that it has not checkpointed are delivered
again. A sink that stores its position in the table still has each record once.

Rules: each shard has its own processor object, called in its own thread, one call at a time. When shard_ended has
checkpointed the end of a shard, the shard is finished and its children start. `fastkcl.processing.failures` handles
records that a processor fails on, as under a daemon. If it decides to stop, the other processors are asked to shut
down, and then the exception ends the run. No thread or task outlives the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Literal, TypeVar, Unpack

from fastkcl._core import RecordBatch
from fastkcl.kinesis.bounds import check_count, check_seconds, within
from fastkcl.kinesis.checkpoints.base import BindsMetrics, CheckPointer, Place, check_checkpointer
from fastkcl.kinesis.client import StreamClient
from fastkcl.kinesis.exceptions import ValidationError
from fastkcl.kinesis.metrics import get_metrics_collector
from fastkcl.kinesis.options import StreamOptions
from fastkcl.kinesis.read.budget import MAX_QUEUE_BYTES
from fastkcl.kinesis.read.data_loss import OnDataLoss
from fastkcl.kinesis.read.fetch import MAX_BATCH_BYTES, ShardReader
from fastkcl.kinesis.read.reading import LOOK_SECONDS, IteratorType, ReadOptions, StreamReader
from fastkcl.kinesis.read.record_queue import Failed, Fetched, RecordQueue, ShardEnded, ShardLost
from fastkcl.kinesis.shard_host import ShardHost
from fastkcl.processing.checkpointer import Checkpointer
from fastkcl.processing.context import ShardContext
from fastkcl.processing.counters import Counters
from fastkcl.processing.errors import CheckpointError
from fastkcl.processing.failures import FailurePolicy, ProcessorError
from fastkcl.processing.processor import BatchProcessor, check_processor, refuse_deferred_result
from fastkcl.stdio.log import module_logger

__all__ = ["run_processors"]

T = TypeVar("T")

log = module_logger(__name__)

COMMIT_SECONDS = 60.0  # for one position
CLOSE_SECONDS = 20.0  # for giving all shards back


async def run_processors(
    stream_name: str,
    make_processor: Callable[[], BatchProcessor],
    *,
    checkpointer: CheckPointer,
    stop: asyncio.Event | None = None,
    idle_timeout: float | None = None,
    stop_at_tip: bool = False,
    max_queue_size: int = 10_000,
    max_queue_bytes: int = MAX_QUEUE_BYTES,
    max_shard_consumers: int | None = None,
    record_limit: int = 10_000,
    sleep_time_no_records: float = 2,
    iterator_type: IteratorType = "TRIM_HORIZON",
    timestamp: datetime | None = None,
    shard_fetch_rate: float = 1,
    deaggregate: bool = True,
    hash_range_check: bool = True,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    on_data_loss: OnDataLoss = "continue",
    on_error: Literal["stop", "skip"] = "stop",
    retries: int = 0,
    retry_backoff: float = 1.0,
    dead_letter: str | os.PathLike[str] | None = None,
    **options: Unpack[StreamOptions],
) -> None:
    """Have processors process the shards of a stream, until it is cancelled or `stop` is set.

    Either way the processors are asked to shut down first, and may take their time for it.

    Args:
        stream_name: the stream's name, or its ARN.
        make_processor: gives a new processor for each shard.
        checkpointer: where positions are kept; it is closed at the end.
        stop: ends the run when it is set.
        idle_timeout: ends the run when nothing has come for so many seconds at the tips of all shards; None for never.
        stop_at_tip: ends the run when each shard was read to its tip once, also where more records come all the time.
            A processor that writes in the background then has its `shutdown_grace`, as when the run is stopped. It logs
            what it could not write in that time; the next run reads these records again.
        max_queue_size: records of each shard that are fetched ahead.
        max_queue_bytes: see `Consumer`. A batch counts until process_batch has returned; a processor
            that keeps records bounds them itself.
        max_shard_consumers: see `Consumer`, as for all that follow.
        record_limit: see there.
        sleep_time_no_records: see there; a shard without records has its tick as often.
        iterator_type: see there.
        timestamp: see there.
        shard_fetch_rate: see there.
        deaggregate: take KPL aggregates apart.
        hash_range_check: see there.
        max_batch_bytes: see there.
        on_data_loss: see there.
        on_error: the reaction when a processor fails on records: "stop" ends the run with its exception, "skip" passes
            the records, with a line in the log that names them.
        retries: how often a call that failed is repeated before that. It is not repeated when the run is to stop: then
            the run ends with the call's exception, and the records come again.
        retry_backoff: seconds before the first repetition, doubled before each further one.
        dead_letter: folder for the records that would be stopped at or skipped; then the shard goes on.
        options: see `StreamOptions`.

    Raises:
        ValidationError: an option out of range, or a checkpointer of auto_checkpoint=False, which writes nothing here.
        ValueError: on_error, retries or retry_backoff out of range.
        TypeError: an argument of another type.
        AnswerTooLarge: the user records of an aggregate take more than max_batch_bytes.
        DataLossError: the stream has trimmed a position, with on_data_loss "raise".
        AnotherStream: the stream was made again under its name, or the checkpointer has positions of another one.
        OSError: `dead_letter` cannot be made or written to.
        Exception: a processor's error, or the error that stopped the reading.
    """

    def policy(counters: Counters) -> FailurePolicy:
        return FailurePolicy(
            on_error=on_error,
            retries=retries,
            backoff=retry_backoff,
            dead_letter=dead_letter,
            report=log.warning,
            counters=counters,
        )

    policy(Counters(None))  # refuses invalid options before anything is read
    stops_at_once = on_error == "stop" and not retries and dead_letter is None
    check_count("max_queue_size", max_queue_size, 1)
    check_seconds("idle_timeout", idle_timeout, optional=True)
    check_checkpointer(checkpointer)
    if getattr(checkpointer, "auto_checkpoint", True) is False:
        raise ValidationError("a checkpointer of auto_checkpoint=False writes no position that a processor checkpoints")
    read_options = ReadOptions(
        iterator_type=iterator_type,
        timestamp=timestamp,
        max_shard_consumers=max_shard_consumers,
        record_limit=record_limit,
        sleep_time_no_records=sleep_time_no_records,
        shard_fetch_rate=shard_fetch_rate,
        deaggregate=deaggregate,
        hash_range_check=hash_range_check,
        max_batch_bytes=max_batch_bytes,
        on_data_loss=on_data_loss,
        max_queue_bytes=max_queue_bytes,
        empty_answers=True,
    )
    metrics = options.get("metrics_collector") or get_metrics_collector()
    client = StreamClient(stream_name, **options)
    if isinstance(checkpointer, BindsMetrics):
        checkpointer.bind_metrics(metrics, {"stream_name": client.stream_name})
    running = _Run(client.stream_name, make_processor, None if stops_at_once else policy)
    running.stream = StreamReader(
        client,
        checkpointer,
        read_options,
        # A processor that stands still keeps its shard's part, and leaves the other shards theirs.
        make_queue=lambda: RecordQueue(max_queue_size, lambda: running.stream.budget.share // 2),
        on_failure=lambda failed: running.fail(failed.error),
        on_reader=running.serve,
        metrics=metrics,
    )
    async with contextlib.AsyncExitStack() as closing:
        giving_back = f"{checkpointer!r}: giving shards back"
        closing.push_async_callback(lambda: within(CLOSE_SECONDS, giving_back, running.stream.close_checkpointer()))
        await closing.enter_async_context(client)
        try:
            running.stream.start()
            await running.run(stop or asyncio.Event(), idle_timeout, stop_at_tip=stop_at_tip)
        finally:
            await running.shut_down()
        running.check()


class _Run:
    """The shards that are served, and the reasons why others no longer are."""

    stream: StreamReader

    def __init__(
        self,
        stream_name: str,
        make_processor: Callable[[], BatchProcessor],
        make_policy: Callable[[Counters], FailurePolicy] | None,
    ) -> None:
        self.stream_name = stream_name
        self.make_policy = make_policy
        self._make_processor = make_processor
        self._shards: dict[ShardReader, _HostedShard] = {}
        self._tasks: dict[ShardReader, asyncio.Task[None]] = {}
        self._error: Exception | None = None
        self._failed = asyncio.Event()
        self.active_at = time.monotonic()

    async def run(self, stop: asyncio.Event, idle_timeout: float | None, *, stop_at_tip: bool) -> None:
        """Wait until it is over."""
        waiting = [asyncio.create_task(event.wait()) for event in (stop, self._failed)]
        looks = stop_at_tip or idle_timeout is not None
        pause = min(idle_timeout or LOOK_SECONDS, LOOK_SECONDS) if looks else None
        try:
            while not self._failed.is_set():
                done, _ = await asyncio.wait(waiting, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set():
                    log.info("%s: the run ends: it was asked to stop", self.stream_name)
                elif idle_timeout is not None and self._is_idle(idle_timeout):
                    log.info("%s: the run ends: nothing has come for %g s, at the tips", self.stream_name, idle_timeout)
                elif stop_at_tip and self._has_met_tips():
                    log.info("%s: the run ends: its shards were read to their tips", self.stream_name)
                elif not done:
                    continue
                break
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _is_idle(self, seconds: float) -> bool:
        busy = any(shard.is_busy for shard in self._shards.values())
        return self.stream.is_quiet(seconds) and not busy and time.monotonic() - self.active_at >= seconds

    def _has_met_tips(self) -> bool:
        hosted = self._shards
        return self.stream.is_settled and all(
            reader in hosted and hosted[reader].met_tip for reader in self.stream.readers.values()
        )

    def fail(self, error: Exception) -> None:
        """End the run; the first error counts."""
        self._error = self._error or error
        self._failed.set()

    def check(self) -> None:
        """Raise the error of the run, its shutdown included."""
        if self._error is not None:
            raise self._error

    def serve(self, reader: ShardReader) -> None:
        """Serve a shard that is ours from now on."""
        shard = _HostedShard(reader, self)
        self._shards[reader] = shard
        self._tasks[reader] = asyncio.create_task(self._serve(shard), name=f"processor of {reader.shard_id}")

    async def _serve(self, shard: _HostedShard) -> None:
        try:
            check_processor(processor := self._make_processor())
            await shard.run(processor)
        except Exception as error:
            log.exception("%s: its processor has failed", shard.reader.shard_id)
            self.fail(error)
        finally:
            self._shards.pop(shard.reader, None)
            shard.reader.queue.clear()

    async def shut_down(self) -> None:
        """Stop reading, and let the processors shut down."""
        await self.stream.stop()
        for shard in self._shards.values():
            shard.stop()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


class _HostedShard:
    """A shard with its processor and its thread.

    Args:
        reader: of the shard.
        run: of all shards.
    """

    def __init__(self, reader: ShardReader, run: _Run) -> None:
        self.reader = reader
        self.is_busy = False
        self.met_tip = False
        """Whether two entries of the queue in a row were at the tip: one alone may say so by mistake."""
        self._was_at_tip = False
        self._run = run
        self._host = ShardHost(reader, self._commit)
        place = reader.start.place
        self._context = ShardContext(
            stream=run.stream_name,
            shard_id=reader.shard_id,
            sequence_number=reader.start.iterator_type if place is None else place.sequence_number,
            sub_sequence_number=0 if place is None else place.sub_sequence_number,
            dialect="modern",
        )
        self._policy: FailurePolicy | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=reader.shard_id)
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Ask the processor to shut down after the call of the moment."""
        self._host.stop()
        self.reader.queue.close()

    async def run(self, processor: BatchProcessor) -> None:
        """Serve it to its end.

        Raises:
            Exception: a method's error, or the error that stopped the reading.
        """
        counters = Counters(processor.monitor)
        make_policy = self._run.make_policy
        self._policy = None if make_policy is None else make_policy(counters)
        try:
            counters.start(self._context)
            # In its thread, the only one that it is for.
            checkpointer = await self._call(lambda: Checkpointer(self._host, counters))
            await self._call(lambda: processor.initialize(self._context))
            await self._serve(processor, checkpointer, counters)
        finally:
            try:
                await self._call(processor.run_ended)
            except Exception:
                log.exception("%s: run_ended has failed", self.reader.shard_id)
            counters.stop()
            self._thread.shutdown()  # it has nothing to do any more

    async def _serve(self, processor: BatchProcessor, checkpointer: Checkpointer, counters: Counters) -> None:
        queue = self.reader.queue
        while True:
            if self.reader.lost:
                try:
                    await self._call(lambda: processor.lease_lost())
                except Exception:  # no record can be lost by it; a stop would end the other shards
                    log.exception("%s: lease_lost has failed", self.reader.shard_id)
                self._run.stream.drop(self.reader)  # it can be allocated again from now on
                return
            if self._host.is_stopping:
                await self._call_guarded(
                    "shutdown_requested", lambda: processor.shutdown_requested(checkpointer), processor
                )
                return
            entry = queue.take()
            match entry:
                case Fetched():
                    try:
                        await self._process(entry, processor, checkpointer, counters)
                    finally:
                        entry.release()
                case ShardEnded():
                    self._host.is_at_end = True
                    await self._call_guarded("shard_ended", lambda: processor.shard_ended(checkpointer), processor)
                    if self.reader.lost:
                        continue
                    if not self._host.end_is_stored:
                        raise RuntimeError(
                            f"{type(processor).__name__}.shard_ended returned without a checkpoint of the end of "
                            f"{self.reader.shard_id}: its children cannot start"
                        )
                    await self._run.stream.end_shard(self.reader)
                    if self.reader.lost:
                        continue
                    return
                case ShardLost():
                    self._run.stream.drop(self.reader)
                case Failed():
                    raise entry.error
                case None:
                    await queue.wait_for_entries()

    async def _process(
        self, fetched: Fetched[ShardReader], processor: BatchProcessor, checkpointer: Checkpointer, counters: Counters
    ) -> None:
        batch = fetched.batch.canonical()
        if fetched.place is not None:
            self._host.deliver(batch, fetched.place)
            self._run.active_at = time.monotonic()
        counters.received(batch)
        begun = time.monotonic()
        await self._call_guarded(
            "process_batch", lambda: processor.process_batch(batch, checkpointer), processor, batch
        )
        counters.processed(begun)
        is_at_tip = batch.millis_behind_latest == 0
        self.met_tip |= self._was_at_tip and is_at_tip
        self._was_at_tip = is_at_tip

    async def _call_guarded(
        self, name: str, method: Callable[[], object], processor: BatchProcessor, batch: RecordBatch | None = None
    ) -> None:
        """Call a method that has to do with records; the policy decides on its failure."""
        await self._call(lambda: self._guard(name, method, processor, batch))

    def _guard(
        self, name: str, method: Callable[[], object], processor: BatchProcessor, batch: RecordBatch | None
    ) -> None:
        raised: Exception | None = None

        def attempt() -> None:
            nonlocal raised
            try:
                refuse_deferred_result("a processor's method", method())
            except Exception as error:
                if not self._is_lost_lease(error):
                    raised = error
                    raise

        if self._policy is None:
            attempt()
            return
        try:
            self._policy.call(attempt, name, self._host, self._context, batch, processor.give_up)
        except ProcessorError:
            assert raised is not None
            raise raised from None

    def _is_lost_lease(self, error: Exception) -> bool:
        """A lost lease is not a failure of a checkpoint: lease_lost reports it."""
        if not (isinstance(error, CheckpointError) and self.reader.lost and error.value == "ShutdownException"):
            return False
        log.warning("%s: %s", self.reader.shard_id, error)
        return True

    async def _call(self, method: Callable[[], T]) -> T:
        """Call something in the shard's thread, and wait for it."""
        self.is_busy = True
        try:
            result = await self._loop.run_in_executor(self._thread, method)
            refuse_deferred_result("a processor's method", result)
            return result
        finally:
            self.is_busy = False

    def _commit(self, place: Place) -> None:
        """Write a position; in the shard's thread. If the shard is no longer ours, its reader becomes `lost`.

        Raises:
            Exception: it is not known to be written.
        """
        writing = within(COMMIT_SECONDS, f"writing {place}", self._run.stream.commit(self.reader, place))
        asyncio.run_coroutine_threadsafe(writing, self._loop).result()
