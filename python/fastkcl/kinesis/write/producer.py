"""Puts items into a stream, from asyncio: `Producer`.

    put ─▶ processor ─▶ PutQueue ─▶ one task: a PutRecords call after the other ─▶ after_flush_fun
           items into     records, shard by                │
           records        shard, their limits              └─ refused: back into the queue, in front

A record waits for `buffer_time` at most, or until a call is full; then it is put as soon as its shard's limits allow.
`put` waits while the queue is full. Refused records are put again, with growing pauses, until they are taken: see
`PutQueue` for their order. A call without an answer is repeated, so a record can be in the stream twice, and none is
missing.

Failures: an error that repeating cannot solve stops the sending, and the next `put`, `flush` or `close` raises it.
Nothing that was put is dropped: `flush` tries again, and if `close` fails, the remaining records are in `unsent`. An
error of `after_flush_fun` stops nothing, and is raised in the same way, once.

Rules: one task, from `start` to `close`, also if callers are cancelled; it ends before `close` does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self, Unpack, cast

from fastkcl.backoff import Backoff
from fastkcl.kinesis.bounds import check_count, check_number
from fastkcl.kinesis.client import StreamClient
from fastkcl.kinesis.exceptions import StreamDoesNotExist, UnknownException, ValidationError
from fastkcl.kinesis.failures import Failure, error_code, failure_of
from fastkcl.kinesis.items.aggregators import BaseAggregator, OutputItem, SimpleAggregator
from fastkcl.kinesis.items.processors import JsonProcessor
from fastkcl.kinesis.metrics import MetricType, get_metrics_collector
from fastkcl.kinesis.options import StreamOptions
from fastkcl.kinesis.unclosed import Watched
from fastkcl.kinesis.write.keys import MAX_KEY_BYTES, check_key, random_key
from fastkcl.kinesis.write.put import MAX_CALL_BYTES, MAX_CALL_RECORDS
from fastkcl.kinesis.write.put_queue import Pending, PutLimits, PutQueue, Settled
from fastkcl.kinesis.write.sent import PutResult, Sent, Waiting
from fastkcl.shard import ShardMap
from fastkcl.stdio.log import module_logger

__all__ = ["Producer"]

MAX_RECORD_BYTES = 2**20
DEFAULT_BUFFER_TIME = 0.5  # seconds
DEFAULT_QUEUE_SIZE = 10_000
MAX_PARALLEL_CALLS = 100
SHARD_RECORDS, SHARD_KIB = 1000, 1024
"""The limit of a shard for each second."""

_THROTTLED = "ProvisionedThroughputExceededException"
_PUT_AGAIN = frozenset({_THROTTLED, "InternalFailure"})
"""Error codes of records that are put again; others need somebody to do something."""
_REFRESH_PAUSE = 10.0  # seconds, at least, between two looks at the shards
_NEVER = float("inf")

_log = module_logger(__name__)


class Producer(Watched):
    """Puts items into one stream.

        async with Producer("orders") as producer:
            await producer.put({"id": 1}, partition_key="customer-7")

    The options of `StreamOptions`, common to producers and consumers, are keyword arguments, too.

    Args:
        stream_name: the stream's name, or its ARN.
        buffer_time: seconds that a record waits for others, above 0.
        put_rate_limit_per_shard: records a second for each shard.
        put_bandwidth_limit_per_shard: KiB a second for each shard, keys included. AWS takes 1024.
        after_flush_fun: is awaited with the records of each call that were accepted, in their order. It must not wait
            for this producer.
        batch_size: records of a call, 1 to 500.
        max_queue_size: records that wait, 1 or more; `put` waits for room.
        parallel_calls: calls at the same time, 1 to 100, each with other shards. It needs to know them.
        processor: makes records of items; a `JsonProcessor` by default. It is the producer's alone from now on.
        max_request_bytes: of a call, keys included.
        max_record_bytes: of a record, key included; by default the stream's limit: its MaxRecordSize, which is asked
            for when records of the processor can be larger than 1 MiB.
        ordered: each key at most once in a call, which keeps the order of a key's records where some are refused.
        aggregate: pack the records into KPL aggregates for each shard, which readers take apart; for processors that
            make a record of each item.

    Raises:
        ValueError: an argument out of range (`ValidationError` is one), or records of the processor can be larger than
            `max_record_bytes`.
        TypeError: an argument of another type, or an option that there is not.
    """

    _kind: ClassVar[str] = "producer"
    _client_class: ClassVar[type[StreamClient]] = StreamClient

    def __init__(
        self,
        stream_name: str,
        *,
        buffer_time: float = DEFAULT_BUFFER_TIME,
        put_rate_limit_per_shard: float = SHARD_RECORDS,
        put_bandwidth_limit_per_shard: float = SHARD_KIB,
        after_flush_fun: Callable[[Sequence[OutputItem]], Awaitable[object]] | None = None,
        batch_size: int = MAX_CALL_RECORDS,
        max_queue_size: int = DEFAULT_QUEUE_SIZE,
        parallel_calls: int = 1,
        processor: BaseAggregator | None = None,
        max_request_bytes: int = MAX_CALL_BYTES,
        max_record_bytes: int | None = None,
        ordered: bool = False,
        aggregate: bool = False,
        **options: Unpack[StreamOptions],
    ) -> None:
        positive = {
            "buffer_time": buffer_time,
            "put_rate_limit_per_shard": put_rate_limit_per_shard,
            "put_bandwidth_limit_per_shard": put_bandwidth_limit_per_shard,
        }
        for name, value in positive.items():
            check_number(name, value, above=0, expected="above 0")
        check_count("batch_size", batch_size, 1, MAX_CALL_RECORDS)
        check_count("max_queue_size", max_queue_size, 1)
        check_count("parallel_calls", parallel_calls, 1, MAX_PARALLEL_CALLS)
        check_count("max_request_bytes", max_request_bytes, 1)
        if max_record_bytes is not None:
            check_count("max_record_bytes", max_record_bytes, 1)
        self.processor = JsonProcessor() if processor is None else processor
        if not isinstance(self.processor, BaseAggregator):
            raise TypeError(f"processor must be a processor like JsonProcessor(), not {self.processor!r}")
        if after_flush_fun is not None and not callable(after_flush_fun):
            raise TypeError(f"after_flush_fun must be a coroutine function, not {after_flush_fun!r}")
        self._largest = largest = self.processor.max_bytes + MAX_KEY_BYTES
        self._looks_at_size = max_record_bytes is None and largest > MAX_RECORD_BYTES
        if max_record_bytes is None:
            max_record_bytes = max(largest, MAX_RECORD_BYTES)
        if largest > max_request_bytes == MAX_CALL_BYTES:
            max_request_bytes = largest  # such a record goes alone
        if not largest <= max_record_bytes <= max_request_bytes:
            raise ValidationError(
                f"records of {type(self.processor).__name__} have up to {largest:,} bytes with their keys: "
                f"max_record_bytes, {max_record_bytes:,}, must be as much, and max_request_bytes, "
                f"{max_request_bytes:,}, no less than that; its max_size makes records smaller"
            )
        if aggregate and not isinstance(self.processor, SimpleAggregator):
            raise ValidationError(
                f"aggregate packs records of one item, which {type(self.processor).__name__} does not make"
            )
        if aggregate and options.get("skip_describe_stream"):
            raise ValidationError("aggregate needs to know the shards: it cannot be with skip_describe_stream")
        if put_bandwidth_limit_per_shard > SHARD_KIB:
            _log.warning(
                "put_bandwidth_limit_per_shard=%s: a shard of AWS takes %s KiB a second and refuses more",
                put_bandwidth_limit_per_shard,
                SHARD_KIB,
            )
        self.buffer_time = buffer_time
        self.batch_size = batch_size
        self.max_queue_size = max_queue_size
        self.after_flush_fun = after_flush_fun
        self._metrics = options.get("metrics_collector") or get_metrics_collector()
        self._client = self._client_class(stream_name, on_outage=self._count_outage, **options)
        self._labels = {"stream_name": self._client.stream_name}
        self._queue = PutQueue(
            PutLimits(
                call_records=batch_size,
                call_bytes=max_request_bytes,
                calls=parallel_calls,
                shard_records=put_rate_limit_per_shard,
                shard_bytes=put_bandwidth_limit_per_shard * 1024,
                ordered=ordered,
                aggregate=aggregate,
            )
        )
        self._backoff = Backoff()  # of calls that are refused as a whole
        self._refreshed = -_NEVER
        self._life = asyncio.Lock()  # of start and close
        self._sender: asyncio.Task[None] | None = None
        self._closed = False
        self._failure: Exception | None = None  # that has stopped the sending
        self._owed: Exception | None = None  # of after_flush_fun, for the program
        self._work = asyncio.Event()  # for the sender: something has changed
        self._progress = asyncio.Event()  # for everybody else: the sender has done something; then it is a new one
        self._ripe = 0  # so many of all records are to be put now
        self._ripens_at = _NEVER  # when the others are
        self._settling = 0  # calls whose after_flush_fun is awaited
        self._calling_back = asyncio.Lock()
        self._parallel_calls = parallel_calls
        self._under_way: set[asyncio.Task[None]] = set()  # calls beside the sender's own
        self._looks_again = False  # at the shards, when no call is under way
        self._turn = asyncio.Lock()  # of those who wait for room, in their order
        self._puts = 0  # since others could run
        self._is_full = False  # as far as `put` knows, which looks again before it waits
        self._aggregates = aggregate
        self._held: deque[Sent] = deque()  # items that the processor has
        self._waiting = Waiting()

    # Life.

    @property
    def queue_size(self) -> int:
        """Records that the stream does not have yet, without those that the processor still adds items to."""
        return len(self._queue)

    @property
    def unsent(self) -> list[OutputItem]:
        """Records that a failed `close` has left, in their order, calls without an answer included."""
        return [pending.item for pending in self._queue]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect, and begin to put. `put` and `flush` do it, too; again, nothing happens.

        Raises:
            StreamDoesNotExist: there is no such stream.
            StreamShardLimit: it cannot be made.
            StreamStatusInvalid: it did not become ACTIVE in time.
            ConnectionError: the service cannot be reached.
            ValidationError: records of the processor can be larger than the stream takes.
            RuntimeError: the producer is closed, or began in another event loop.
        """
        self._check_open()
        self.check_other_loop()
        async with self._life:
            self._check_open()
            if self._sender is not None:
                if self.has_lost_its_loop:
                    raise self._ended()
                return
            await self._client.open()
            try:
                if self._looks_at_size:
                    await self._check_size()
                if not self._client.skip_describe_stream:
                    await self._look_at_shards()
            except BaseException:
                await self._client.close()
                raise
            self._sender = asyncio.create_task(self._send(), name=f"fastkcl producer of {self.stream_name}")
            self.watch()

    async def _check_size(self) -> None:
        """Refuse records that the stream does not take."""
        await self._client.look_at_stream()
        most = self._client.max_record_bytes or MAX_RECORD_BYTES
        if self._largest > most:
            raise ValidationError(
                f"records of {type(self.processor).__name__} have up to {self._largest:,} bytes with their keys, and "
                f"{self.stream_name} takes {most:,}: its MaxRecordSize allows more (UpdateMaxRecordSize), or the "
                "processor's max_bytes less; give max_record_bytes= if the stream's limit cannot be asked"
            )

    async def close(self) -> None:
        """Put everything, and end; from now on nothing can be put. Again, nothing happens.

        Raises:
            RuntimeError: its event loop has ended, or is another one; in that one it can still be closed.
            Exception: as of `flush`; records that could not be put are in `unsent`.
        """
        self.check_other_loop()
        self._refuse_to_wait_for_itself("close")
        self._closed = True
        async with self._life:
            if self._sender is None:
                return
            try:
                await self._flush()
            except Exception as error:
                if self._queue:
                    error.add_note(f"{len(self._queue):,} records are not in {self.stream_name}: see Producer.unsent")
                raise
            except BaseException:  # which does not say how many
                self.leave("was cut off in close()")
                raise
            finally:
                has_loop = not self.has_lost_its_loop
                self.unwatch()
                sender, self._sender = self._sender, None
                if has_loop:
                    sender.cancel()
                    await asyncio.wait([sender])
                    await self._client.close()

    def report_unclosed(self, why: str) -> None:
        """Log how many records are not in the stream."""
        self._ripen()
        if self._queue:
            left = len(self._queue)
            _log.error("%s %s: %d records are not in the stream", self.title, why, left)

    # Items.

    async def put(
        self,
        data: Any,  # noqa: ANN401 - items are of any type
        partition_key: str | None = None,
        *,
        explicit_hash_key: str | int | None = None,
    ) -> Sent:
        """Put an item; it is in the stream when `flush` has returned. Waits while the queue is full.

        Args:
            data: an item of the processor's type.
            partition_key: 1 to 256 bytes in UTF-8; by default a random one for each record.
            explicit_hash_key: 0 to 2**128 - 1, decides on the shard in the place of the key; for processors that make a
                record of each item.

        Returns:
            An awaitable for its `PutResult`: ``result = await (await producer.put(item))``.

        Raises:
            ValidationError: the key cannot be one; or the processor cannot take the item.
            ExceededPutLimit: no record has room for the item.
            Exception: records that were put before cannot be; see `flush`. The item was not taken.
        """
        if partition_key is not None:
            check_key(partition_key)
        hash_key = None if explicit_hash_key is None else self._check_hash_key(explicit_hash_key)
        self._puts += 1
        if (
            self._puts > self.batch_size
            or self._sender is None
            or self._failure is not None
            or self._owed is not None
            or self._is_full
            or self._turn.locked()
        ):
            return await self._wait_for_room(data, partition_key, hash_key)
        return self._take(data, partition_key, hash_key)

    async def wait_for(self, sent: Sent) -> None:
        """Wait until an item of this producer is in the stream; awaiting it does the same.

        Raises:
            Exception: see `flush`.
        """
        self._refuse_to_wait_for_itself("awaiting an item")
        self._check_sending()
        await self._waiting.wait(sent)

    def _check_hash_key(self, explicit_hash_key: str | int) -> str:
        if self._aggregates or not isinstance(self.processor, SimpleAggregator):
            raise ValidationError("explicit_hash_key is for records of one item, without aggregate")
        text = str(explicit_hash_key)
        if not (text.isascii() and text.isdecimal() and int(text) < 2**128):
            raise ValidationError(f"explicit_hash_key must be 0 to 2**128 - 1, not {explicit_hash_key!r}")
        return text

    async def _wait_for_room(self, data: Any, partition_key: str | None, hash_key: str | None) -> Sent:  # noqa: ANN401
        waits = self._failure is not None or self._owed is not None or self._turn.locked()
        if waits or len(self._queue) >= self.max_queue_size:
            self._refuse_to_wait_for_itself("put, while the queue is full,")
        await self.start()
        async with self._turn:  # which goes around by the order of the calls
            await asyncio.sleep(0)  # the sender's turn
            self._puts = 0
            while True:
                self._check_open()
                self._check_sending()
                self._pay()
                if len(self._queue) < self.max_queue_size:
                    break
                self._work.set()
                await self._progress.wait()
            self._is_full = False
            return self._take(data, partition_key, hash_key)

    def _take(self, data: Any, partition_key: str | None, hash_key: str | None) -> Sent:  # noqa: ANN401
        if self._closed:
            self._check_open()
        if self._ripens_at == _NEVER:
            self._check_sending()
        records = self.processor.add_item(data, partition_key)
        sent = Sent(self)
        self._held.append(sent)
        if records:
            self._line_up(records, hash_key)
        if self._ripens_at == _NEVER:
            self._ripens_at = asyncio.get_running_loop().time() + self.buffer_time
            self._work.set()
        elif records and self._queue.is_full_call:
            self._work.set()
        return sent

    def _line_up(self, records: Sequence[OutputItem], hash_key: str | None = None) -> None:
        for record in records:
            key = random_key() if record.partition_key is None else record.partition_key
            self._queue.add(record, key, hash_key, self._take_held(record.n))
        self._is_full = len(self._queue) >= self.max_queue_size

    def _take_held(self, count: int) -> tuple[Sent, ...]:
        """The items of a record that is complete."""
        if count == 1 and self._held:
            return (self._held.popleft(),)
        popleft = self._held.popleft
        return tuple([popleft() for _ in range(min(count, len(self._held)))])

    async def flush(self) -> None:
        """Wait until everything that was put before is in the stream. Failed calls are tried again.

        Raises:
            UnknownException: the service refuses records by other codes than those that repeating helps against.
            StreamDoesNotExist: the stream has gone.
            ConnectionError: the service cannot be reached.
            Exception: the error of `after_flush_fun`.
        """
        self._refuse_to_wait_for_itself("flush")
        if self._failure is not None:
            self._client.try_again()
        await self.start()
        await self._flush()

    async def _flush(self) -> None:
        if self._sender is not None and not self._sender.done():
            self._failure = None
        self._ripen()
        if self._queue and self.has_lost_its_loop:
            raise self._ended()
        mark = self._queue.added
        self._work.set()
        while self._queue.has_any_of(mark) or self._settling:
            self._check_sending()
            await self._progress.wait()
        self._pay()

    def _check_sending(self) -> None:
        """Refuse to wait where nothing would be put."""
        if self._failure is not None:
            raise self._failure
        if self._sender is None or self._sender.done() or self.has_lost_its_loop:
            raise self._ended()
        self.check_other_loop()

    def _ended(self) -> RuntimeError:
        why = "its event loop has ended" if self.has_lost_its_loop else "its task was cancelled"
        return RuntimeError(f"{self.title} puts nothing any more: {why}")

    def _pay(self) -> None:
        """Raise the error of `after_flush_fun`, once."""
        owed, self._owed = self._owed, None
        if owed is not None:
            raise owed

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"{self.title} is closed")

    def _refuse_to_wait_for_itself(self, what: str) -> None:
        task = asyncio.current_task()
        if self._sender is not None and (task is self._sender or task in self._under_way):
            raise RuntimeError(f"{what} in after_flush_fun would wait for itself")

    # The task.

    async def _send(self) -> None:
        try:
            while True:
                self._work.clear()
                if not await self._put_a_call():
                    await self._rest()
        except asyncio.CancelledError:
            self._failure = self._failure or self._ended()
            self._waiting.fail(self._failure)
            for call in self._under_way:
                call.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)
            if not self._closed:
                self.leave("puts nothing any more: its task was cancelled, before close()")
            raise
        finally:
            if not self.has_lost_its_loop:
                self._wake()

    async def _put_a_call(self) -> bool:
        """Put due records; whether there were any."""
        now = asyncio.get_running_loop().time()
        try:
            if now >= self._ripens_at:
                self._ripen()
            if (self._queue.is_in_doubt or self._looks_again) and self._failure is None:
                if self._under_way:
                    return False
                if self._queue.is_in_doubt:
                    await self._accept(await self._look_at_shards())
                else:
                    await self._look_if_possible()
            elif self._is_to_send() and len(self._under_way) < self._parallel_calls and (call := self._queue.take(now)):
                if self._parallel_calls > 1:
                    self._put_beside(call)
                    return True
                await self._put_records(call)
            else:
                return False
        except Exception as error:
            self._fail(error)
        self._wake()
        return True

    def _fail(self, error: Exception) -> None:
        _log.warning("records cannot be put into %s: %r", self.stream_name, error)
        self._failure = error
        self._waiting.fail(error)

    def _put_beside(self, call: Sequence[Pending]) -> None:
        """Put a call in a separate task."""

        async def put() -> None:
            try:
                await self._put_records(call)
            except Exception as error:
                self._fail(error)

        def ended(task: asyncio.Task[None]) -> None:
            self._under_way.discard(task)
            self._work.set()
            self._wake()

        task = asyncio.create_task(put(), name=f"fastkcl call to {self.stream_name}")
        self._under_way.add(task)
        task.add_done_callback(ended)

    def _ripen(self) -> None:
        """Everything is to be put now, also the processor's open record."""
        self._ripens_at = _NEVER
        self._line_up(self.processor.get_items())
        self._queue.close_aggregates()
        self._ripe = self._queue.added

    def _is_to_send(self) -> bool:
        return self._failure is None and (self._queue.is_full_call or self._queue.has_any_of(self._ripe))

    async def _rest(self) -> None:
        """Until there is something to do."""
        until = _NEVER if self._failure is not None else self._ripens_at
        may_call = self._is_to_send() and len(self._under_way) < self._parallel_calls
        waits_for_calls = self._queue.is_in_doubt or self._looks_again
        due = self._queue.due(asyncio.get_running_loop().time()) if may_call and not waits_for_calls else None
        if due is not None:
            until = min(until, due)
        try:
            async with asyncio.timeout_at(None if until == _NEVER else until):
                await self._work.wait()
        except TimeoutError:
            pass

    def _wake(self) -> None:
        """Wake all waiting tasks after a change."""
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    async def _put_records(self, call: Sequence[Pending]) -> None:
        loop = asyncio.get_running_loop()
        self._metrics.histogram(MetricType.PRODUCER_BATCH_SIZE, len(call), self._labels)
        records = [_entry(pending) for pending in call]
        try:
            with self._metrics.timer(MetricType.PRODUCER_FLUSH_DURATION, self._labels):
                answer = await self._client.call("put_records", {**self._client.address, "Records": records})
            settled = self._queue.settle(answer["Records"], loop.time(), call)
        except Exception as error:
            throttled = failure_of(error) is Failure.THROTTLED
            self._queue.put_back(loop.time() + self._backoff.next() if throttled else loop.time(), call)
            if not throttled:
                self._raise_explained(error)
            self._count_refused(error_code(error), len(call))
            return
        except BaseException:
            self._queue.put_back(loop.time(), call)
            raise
        self._backoff.reset()
        if settled.moved and not self._queue.is_in_doubt:
            await self._look_again()
        await self._accept(settled)
        for_good = sorted(settled.refused.keys() - _PUT_AGAIN)
        if for_good:
            raise UnknownException(
                f"{self.stream_name} refuses records: "
                + ", ".join(f"{code} {settled.refused[code]:,}x" for code in for_good)
            )

    async def _accept(self, settled: Settled) -> None:
        self._count(settled)
        for tags, result in cast("list[tuple[tuple[Sent, ...], PutResult]]", settled.results):
            for sent in tags:
                sent.result = result
            self._waiting.settle(tags)
        if settled.accepted and self.after_flush_fun is not None:
            await self._call_back(self.after_flush_fun, settled.accepted)

    async def _call_back(
        self, function: Callable[[Sequence[OutputItem]], Awaitable[object]], accepted: Sequence[OutputItem]
    ) -> None:
        self._settling += 1
        try:
            async with self._calling_back:
                await function(accepted)
        except Exception as error:
            _log.warning("after_flush_fun of the producer of %s has failed", self.stream_name, exc_info=True)
            self._owed = self._owed or error
        finally:
            self._settling -= 1

    def _raise_explained(self, error: Exception) -> NoReturn:
        """The error of a call, as a program catches it."""
        from botocore.exceptions import ClientError

        if failure_of(error) is Failure.NOT_FOUND:
            raise StreamDoesNotExist(f"there is no stream {self.stream_name}: {error}") from error
        if isinstance(error, ClientError):
            raise UnknownException(f"{self.stream_name} refuses a call: {error}") from error
        raise error

    # Shards.

    async def _look_at_shards(self) -> Settled:
        self._refreshed = asyncio.get_running_loop().time()
        shards = await self._client.list_shards()
        return self._queue.reshard(ShardMap(shard.range for shard in shards))

    async def _look_again(self) -> None:
        """The stream was resharded. Where its shards cannot be had, limits are those of the old ones: it costs time."""
        if asyncio.get_running_loop().time() < self._refreshed + _REFRESH_PAUSE:
            return
        if self._under_way:
            self._looks_again = True
        else:
            await self._look_if_possible()

    async def _look_if_possible(self) -> None:
        self._looks_again = False
        try:
            await self._look_at_shards()
        except Exception as error:
            _log.warning("the shards of %s cannot be listed: %r", self.stream_name, error)

    # Metrics.

    def _count(self, settled: Settled) -> None:
        if settled.accepted:
            self._metrics.increment(MetricType.PRODUCER_RECORDS_SENT, len(settled.accepted), self._labels)
            self._metrics.increment(MetricType.PRODUCER_BYTES_SENT, settled.bytes, self._labels)
        for code, records in settled.refused.items():
            self._count_refused(code, records)
        self._metrics.gauge(MetricType.PRODUCER_QUEUE_SIZE, len(self._queue), self._labels)

    def _count_refused(self, code: str, records: int) -> None:
        self._metrics.increment(MetricType.PRODUCER_ERRORS, records, {**self._labels, "error_type": code})
        if code == _THROTTLED:
            self._metrics.increment(MetricType.PRODUCER_THROTTLES, records, self._labels)

    def _count_outage(self, error: BaseException) -> None:
        self._metrics.increment(MetricType.PRODUCER_ERRORS, 1, {**self._labels, "error_type": error_code(error)})


def _entry(pending: Pending) -> dict[str, object]:
    """As a PutRecords request has it."""
    entry: dict[str, object] = {"Data": pending.item.data, "PartitionKey": pending.partition_key}
    if pending.explicit_hash_key is not None:
        entry["ExplicitHashKey"] = pending.explicit_hash_key
    return entry
