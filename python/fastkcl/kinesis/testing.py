"""Streams in memory, and clients for them: tests of programs without a service, a network or a wait.

    MockProducer ─▶ MemoryStream ─┬─ MemoryShard  0001 0002 0003 …  sealed ─▶ MockConsumer
                    by name, in   └─ MemoryShard  0001 0002 …
                    MockKinesisBackend

A program that makes its clients by ``Producer(name, …)`` and ``Consumer(name, …)`` is tested by replacing these two
names, as `unittest.mock.patch` does: the mocks have the same arguments, and check them in the same way. The fixtures
``kinesis_backend``, ``kinesis_stream``, ``kinesis_producer`` and ``kinesis_consumer`` are there in every pytest run.

Rules: a key's shard is its MD5 modulo the number of shards, and sequence numbers have 20 digits, from 1 in each shard.
Streams do not end by themselves: `MemoryStream.seal` ends them, and with them a consumer's iteration. For faults,
resharding and real answers there is `fastkcl.local_aws`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from fastkcl.kinesis.bounds import check_number
from fastkcl.kinesis.items.aggregators import OutputItem
from fastkcl.kinesis.memory import MemoryClient, MemoryRecord, MemoryShard, MemoryStream, MockKinesisBackend
from fastkcl.kinesis.read.consumer import Consumer
from fastkcl.kinesis.write.keys import check_key, random_key
from fastkcl.kinesis.write.producer import Producer
from fastkcl.kinesis.write.sent import PutResult, Sent

if TYPE_CHECKING:
    pass

__all__ = [
    "MemoryRecord",
    "MemoryShard",
    "MemoryStream",
    "MockConsumer",
    "MockKinesisBackend",
    "MockProducer",
    "assert_records_delivered",
    "assert_shard_ordering",
    "collect_records",
    "memory_stream",
]

_FETCH_RATE = 5  # calls a second of a shard: the most that there may be


class MockProducer(Producer):
    """A `Producer` whose stream is in memory: a record is in the stream as soon as the processor has completed it.

    It has no task, and no queue: `flush` is for the record to which the processor still adds items, and for
    ``after_flush_fun``. It can be used without ``async with``.
    """

    _client_class = MemoryClient

    @property
    def stream(self) -> MemoryStream:
        """The stream that it puts into.

        Raises:
            KeyError: there is no such stream.
        """
        return MockKinesisBackend.get_stream(self.stream_name)

    async def start(self) -> None:
        """Find the stream, or make it.

        Raises:
            StreamDoesNotExist: there is none.
            RuntimeError: the producer is closed.
        """
        self._check_open()
        await self._client.open()

    async def put(
        self,
        data: Any,  # noqa: ANN401 - items are of any type
        partition_key: str | None = None,
        *,
        explicit_hash_key: str | int | None = None,
    ) -> Sent:
        """Put an item. Arguments, result and errors are those of `Producer.put`."""
        if partition_key is not None:
            check_key(partition_key)
        hash_key = None if explicit_hash_key is None else self._check_hash_key(explicit_hash_key)
        await self.start()
        sent = Sent(self)
        records = self.processor.add_item(data, partition_key)
        self._held.append(sent)
        await self._put_now(records, hash_key)
        return sent

    async def wait_for(self, sent: Sent) -> None:
        """Put the processor's open record, the item with it."""
        del sent
        await self.flush()

    async def flush(self) -> None:
        """Put the processor's open record."""
        await self.start()
        await self._put_now(self.processor.get_items())

    async def close(self) -> None:
        """Put the processor's open record; from now on nothing can be put. Again, nothing happens."""
        if not self._closed:
            await self._put_now(self.processor.get_items())
        self._closed = True

    async def _put_now(self, records: Sequence[OutputItem], explicit_hash_key: str | None = None) -> None:
        for record in records:
            key = random_key() if record.partition_key is None else record.partition_key
            shard = self.stream.shard_of(key, explicit_hash_key)
            result = PutResult(shard.shard_id, shard.put(record.data, key))
            for sent in self._take_held(record.n):
                sent.result = result
        if records and self.after_flush_fun is not None:
            await self.after_flush_fun(records)


class MockConsumer(Consumer):
    """A `Consumer` whose stream is in memory: its iteration ends as soon as it has read a sealed stream to its end.

    In its ``async with`` it is ready at once: with LATEST it reads records that are put from then on. On a stream that
    is not sealed the iteration ends as that of a real one does, after ``idle_timeout``.

    Args:
        stream_name: the stream's name.
        poll_delay: seconds between two looks at a shard that has nothing new, in the place of
            ``sleep_time_no_records`` and ``shard_fetch_rate``.
        options: those of `Consumer`.
    """

    _client_class = MemoryClient

    def __init__(self, stream_name: str, *, poll_delay: float = 0, **options: Any) -> None:  # noqa: ANN401
        super().__init__(stream_name, **options)
        check_number("poll_delay", poll_delay, least=0, expected="0 s or more")
        self._stream._options = replace(
            self._stream._options, sleep_time_no_records=poll_delay, shard_fetch_rate=_FETCH_RATE
        )

    @property
    def stream(self) -> MemoryStream:
        """The stream that it reads.

        Raises:
            KeyError: there is no such stream.
        """
        return MockKinesisBackend.get_stream(self.stream_name)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.wait_ready()
        return self

    async def _wait_for_entries(self) -> bool:
        topology = self._stream.topology
        if topology.shards and all(topology.is_finished(shard.shard_id) for shard in topology.shards):
            return False
        return await super()._wait_for_entries()


def _signature() -> inspect.Signature:
    """That of `Consumer`, and poll_delay."""
    *parameters, options = inspect.signature(Consumer).parameters.values()
    poll_delay = inspect.signature(MockConsumer.__init__).parameters["poll_delay"]
    return inspect.Signature([*parameters, poll_delay, options])


MockConsumer.__signature__ = _signature()  # type: ignore[attr-defined]


async def collect_records(consumer: AsyncIterable[Any], count: int | None = None, timeout: float = 5.0) -> list[Any]:
    """The items of a consumer, a real one or a mock.

    Args:
        consumer: in its ``async with``.
        count: stop after so many; None for the end of the iteration.
        timeout: seconds, after which it returns the items until then.
    """
    records: list[Any] = []
    if count is not None and count <= 0:
        return records
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            async for record in consumer:
                records.append(record)
                if len(records) == count:
                    break
    return records


async def assert_records_delivered(
    producer: MockProducer,
    consumer: AsyncIterable[Any],
    records: Iterable[Any],
    partition_key: str | None = None,
    timeout: float = 5.0,
) -> list[Any]:
    """Put records, seal the stream, and see that exactly these come out, in any order.

    Args:
        producer: it puts them.
        consumer: of the same stream, in its ``async with``.
        records: items that the processor gives back as they were put.
        partition_key: of all of them.
        timeout: seconds for reading them.

    Returns:
        The delivered items, in their order.

    Raises:
        AssertionError: something is missing, or there is something else.
    """
    missing = list(records)
    for record in missing:
        await producer.put(record, partition_key=partition_key)
    await producer.flush()
    producer.stream.seal()
    received = await collect_records(consumer, timeout=timeout)
    unexpected = []
    for record in received:
        if record in missing:
            missing.remove(record)
        else:
            unexpected.append(record)
    if missing or unexpected:
        raise AssertionError(
            f"{len(missing)} records are missing: {_some(missing)}; {len(unexpected)} were not put: {_some(unexpected)}"
        )
    return received


def assert_shard_ordering(
    records: Iterable[Any], key_func: Callable[[Any], Any], order_func: Callable[[Any], Any]
) -> None:
    """See that records of a key never go back.

    Args:
        records: in the order in which they were read.
        key_func: the partition key of one, or whatever else has an order.
        order_func: a value that does not become less within a key.

    Raises:
        AssertionError: a record comes after one with a greater value.
    """
    last: dict[Any, Any] = {}
    for place, record in enumerate(records):
        key, value = key_func(record), order_func(record)
        assert key not in last or last[key] <= value, (
            f"records of key {key!r} are not in order: record {place} has {value!r}, after one that has {last[key]!r}"
        )
        last[key] = value


@contextlib.contextmanager
def memory_stream(name: str = "test-stream", shard_count: int = 1) -> Iterator[MemoryStream]:
    """A stream in a backend that has nothing else, for tests without pytest."""
    MockKinesisBackend.reset()
    try:
        yield MockKinesisBackend.create_stream(name, shard_count)
    finally:
        MockKinesisBackend.reset()


def _some(records: Sequence[Any]) -> str:
    more = f" and {len(records) - 3} more" if len(records) > 3 else ""
    return f"{', '.join(map(repr, records[:3]))}{more}" or "none"
