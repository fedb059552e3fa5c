"""Consumers and producers that many tasks use at once, in random order: iterate, acknowledge, flush, cancel, close.

SCHEDULES=2000 plays more of them; SCHEDULE=7 plays one again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from random import Random
from typing import Any

import pytest
from fastkcl.backoff import Backoff
from fastkcl.kinesis import CheckpointOwnershipConflict, Consumer, MemoryCheckPointer, Producer, UnacknowledgedError
from fastkcl.kinesis.memory import MemoryClient, MemoryStream, MockKinesisBackend
from fastkcl.kinesis.write import put_queue
from waiting import PATIENCE

SCHEDULES = int(os.environ.get("SCHEDULES", "12"))
SEED = os.environ.get("SCHEDULE")
SEEDS = range(SCHEDULES) if SEED is None else (int(SEED),)


class ShakyError(Exception):
    """A failure that this test has made."""


def check_over(error: RuntimeError, *, is_over: bool) -> None:
    """The only RuntimeError that there may be: of a client that is closed."""
    if not (is_over and re.search("was closed|is closed|puts nothing any more", str(error))):
        raise error


class World:
    """A stream, and its clients' luck."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.trouble = self.random.choice((0.0, 0.0, 0.03))  # of calls fail
        self.losses = self.random.choice((0.0, 0.0, 0.03))  # of writes show that the shard was lost
        self.slow = self.random.choice((1, 3, 20))
        MockKinesisBackend.reset()
        self.stream: MemoryStream = MockKinesisBackend.create_stream("orders", self.random.randint(1, 3))

    async def turns(self) -> None:
        """Some turns of the loop."""
        for _ in range(self.random.randrange(self.slow)):
            await asyncio.sleep(0)

    async def call(self) -> None:
        """A call to a service: it takes time, and may fail."""
        await self.turns()
        if self.random.random() < self.trouble:
            raise ShakyError

    def some(self, *works: Callable[[], Coroutine[Any, Any, None]], most: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.random.choice(works)()) for _ in range(self.random.randint(1, most))]

    async def cancel_some(self, tasks: list[asyncio.Task[None]]) -> None:
        while any(not task.done() for task in tasks):
            await self.turns()
            await asyncio.sleep(self.random.choice((0, 0, 0.001)))
            if self.random.random() < 0.3:
                self.random.choice(tasks).cancel()


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    yield World(request.param)
    MockKinesisBackend.reset()


class ShakyClient(MemoryClient):
    """A stream in memory, whose answers come when they come."""

    world: World

    async def open(self) -> None:
        await self.world.call()
        await super().open()

    async def call_once(self, operation: str, request: Mapping[str, object]) -> dict[str, Any]:
        await self.world.call()
        if self._client is None:
            raise RuntimeError("the client is not open")
        if operation != "put_records":
            return await super().call_once(operation, request)
        records: Any = request["Records"]
        outcomes: list[dict[str, str]] = []
        for record in records:
            if self.world.random.random() < 0.02:
                outcomes.append({"ErrorCode": "InternalFailure", "ErrorMessage": ""})
                continue
            shard = self.world.stream.shard_of(record["PartitionKey"])
            outcomes.append({"ShardId": shard.shard_id, "SequenceNumber": shard.put(record["Data"], "k")})
        await self.world.turns()  # the answer is lost if the call is cancelled now
        return {"Records": outcomes}

    async def get_records(self, shard_id: str, iterator: str, limit: int, then: Any, **options: Any) -> Any:
        await self.world.turns()
        return await super().get_records(shard_id, iterator, limit, then, **options)


class ShakyCheckPointer(MemoryCheckPointer):
    """Writes fail, and shards are lost."""

    def __init__(self, world: World) -> None:
        super().__init__("group")
        self.world = world

    async def allocate(self, shard_id: str) -> tuple[bool, str | None]:
        await self.world.call()
        return await super().allocate(shard_id)

    async def checkpoint(self, shard_id: str, sequence: str) -> None:
        await self.world.call()
        if self.world.random.random() < self.world.losses:
            self._allocated.discard(shard_id)
            raise CheckpointOwnershipConflict(shard_id)
        await super().checkpoint(shard_id, sequence)
        await self.world.turns()

    async def shard_ended(self, shard_id: str) -> None:
        await self.world.turns()
        await super().shard_ended(shard_id)

    async def close(self) -> None:
        await self.world.turns()
        await super().close()


class ShakyConsumer(Consumer[Any]):
    _client_class = ShakyClient

    def __init__(self, world: World, kept: MemoryCheckPointer, **options: Any) -> None:
        quick = {"sleep_time_no_records": 0, "shard_fetch_rate": 5, "idle_timeout": 0.05, "record_limit": 3}
        super().__init__("orders", checkpointer=kept, **{**quick, **options})
        assert isinstance(self._client, ShakyClient)
        self._client.world = world
        object.__setattr__(self._stream.options, "shard_fetch_rate", 1000)


class Life:
    """A consumer, from its making to its close, and its tasks."""

    def __init__(self, world: World, consumer: Consumer[Any], finished: set[int], *, is_explicit: bool) -> None:
        self.world, self.consumer, self.finished, self.is_explicit = world, consumer, finished, is_explicit
        self.delivered: list[int] = []

    async def iterate(self) -> None:
        random, consumer = self.world.random, self.consumer
        while True:
            try:
                if random.random() < 0.2:
                    item = await asyncio.wait_for(anext(consumer), random.choice((0, 0.001, 0.01)))
                else:
                    item = await anext(consumer)
            except (ShakyError, TimeoutError):
                continue
            except StopAsyncIteration:
                if consumer._is_closed or random.random() < 0.3:
                    return
                continue
            except UnacknowledgedError:  # of a record that a cancelled task had
                return
            except RuntimeError as error:
                check_over(error, is_over=consumer._is_closed and not consumer._is_started)
                return
            number = item.data if self.is_explicit else item
            self.delivered.append(number)
            await self.world.turns()
            try:
                if self.is_explicit and random.random() < 0.5:
                    await item.done()
                elif self.is_explicit:
                    consumer.ack(item)
            except ShakyError:
                pass  # it is acknowledged, and not written
            except RuntimeError:
                assert consumer._writes_last
                return
            finally:
                if not self.is_explicit or item.is_done:  # also where the task is cancelled meanwhile
                    self.finished.add(number)

    async def manage(self) -> None:
        random, consumer = self.world.random, self.consumer
        for _ in range(random.randint(1, 8)):
            await self.world.turns()
            consumer.get_shard_status()
            work = random.choice((consumer.open, consumer.refresh_shards, consumer.wait_ready, self.wait_a_moment))
            try:
                await work()
            except ShakyError:
                continue
            except RuntimeError as error:
                check_over(error, is_over=consumer._is_closed)
                return

    async def wait_a_moment(self) -> None:
        with contextlib.suppress(TimeoutError):
            await self.consumer.wait_ready(self.world.random.choice((0.0001, 0.001)))

    async def close(self) -> None:
        with contextlib.suppress(ShakyError):
            await self.consumer.close()

    async def play(self) -> None:
        world, random = self.world, self.world.random
        tasks = world.some(self.iterate, self.iterate, self.manage, most=6)
        disturbing = asyncio.create_task(world.cancel_some(tasks[: random.randint(0, len(tasks))]))
        await asyncio.sleep(random.choice((0, 0, 0.002, 0.01, 0.03)))
        await world.turns()
        closing = world.some(self.close, most=2)
        if random.random() < 0.3:
            await world.turns()
            closing[0].cancel()
        await asyncio.wait([*closing, *tasks])
        await asyncio.wait([disturbing])
        await self.close()
        for task in [*tasks, *closing, disturbing]:
            if not task.cancelled():
                task.result()
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("world", SEEDS, indirect=True)
def test_a_consumer_of_many_tasks(world: World) -> None:
    random = world.random
    is_explicit = random.random() < 0.4
    options: dict[str, Any] = {"checkpoint_interval": random.choice((None, None, 0.0005))}
    if is_explicit:
        options |= {"output": "records", "acknowledge": "explicit", "ack_timeout": 1}
    numbers = range(random.choice((5, 60)))
    for n in numbers:
        world.stream.put(str(n).encode(), str(n))
    if random.random() < 0.5:
        world.stream.seal()
    kept, finished = ShakyCheckPointer(world), set[int]()

    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            for _ in range(4):
                life = Life(world, ShakyConsumer(world, kept, **options), finished, is_explicit=is_explicit)
                await life.play()
                if not world.losses:
                    assert [n for n, times in Counter(life.delivered).items() if times > 1] == []
            world.trouble = world.losses = 0
            async with ShakyConsumer(world, kept, idle_timeout=0.2) as last:
                finished.update([item async for item in last])

    asyncio.run(main())
    assert finished == set(numbers)


@pytest.mark.parametrize("world", [0], indirect=True)
def test_a_close_right_after_a_start_that_two_have_asked_for(world: World) -> None:
    """Others open it meanwhile, so that the start waits; one is cancelled, another iterates, and ends by the close."""
    world.trouble, world.slow = 0, 10

    async def play(before_cancel: int, before_close: int) -> None:
        consumer = ShakyConsumer(world, ShakyCheckPointer(world))
        preparing = asyncio.create_task(consumer.wait_ready(PATIENCE))
        first, second = (asyncio.ensure_future(anext(consumer)) for _ in range(2))
        while consumer._under_way is None:
            await asyncio.sleep(0)
        opening = [asyncio.create_task(consumer.open()) for _ in range(8)]
        while not consumer._is_started:
            await asyncio.sleep(0)
        for _ in range(before_cancel):
            await asyncio.sleep(0)
        first.cancel()
        for _ in range(before_close):
            await asyncio.sleep(0)
        await consumer.close()
        await asyncio.gather(*opening, return_exceptions=True)
        results = await asyncio.gather(first, second, preparing, return_exceptions=True)
        for result, allowed in zip(results, (asyncio.CancelledError, StopAsyncIteration, RuntimeError), strict=True):
            assert result is None or isinstance(result, allowed), (before_cancel, before_close, result)

    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            for before_cancel in range(6):
                for before_close in range(6):
                    await play(before_cancel, before_close)

    asyncio.run(main())


class ShakyProducer(Producer):
    _client_class = ShakyClient

    def __init__(self, world: World, **options: Any) -> None:
        super().__init__("orders", **options)
        assert isinstance(self._client, ShakyClient)
        self._client.world = world
        self._backoff = Backoff(0.0001)


class Putting:
    """A producer and its tasks."""

    def __init__(self, world: World, producer: Producer) -> None:
        self.world, self.producer = world, producer
        self.taken: list[int] = []  # items whose put has returned
        self.doubtful: set[int] = set()  # whose put was cancelled, or has failed
        self.flushed: set[int] = set()
        self.number = 0

    async def put(self) -> None:
        random, producer = self.world.random, self.producer
        for _ in range(random.randint(1, 30)):
            self.number = number = self.number + 1
            self.doubtful.add(number)
            try:
                sent = await producer.put(number, str(number))
            except ShakyError:
                self.doubtful.discard(number)  # it was not taken
                continue
            except RuntimeError as error:
                check_over(error, is_over=self.producer._closed)
                self.doubtful.discard(number)
                return
            self.doubtful.discard(number)
            self.taken.append(number)
            if random.random() < 0.1:
                try:
                    await sent
                except ShakyError:
                    continue
                except RuntimeError as error:
                    check_over(error, is_over=self.producer._closed)
                    return
                self.flushed.add(number)
            await self.world.turns()

    async def flush(self) -> None:
        await self.world.turns()
        before = set(self.taken)
        try:
            await self.producer.flush()
        except ShakyError:
            return
        except RuntimeError as error:
            check_over(error, is_over=self.producer._closed)
            return
        self.flushed |= before

    async def close(self) -> None:
        with contextlib.suppress(ShakyError):
            await self.producer.close()

    async def play(self) -> None:
        world, random = self.world, self.world.random
        tasks = world.some(self.put, self.put, self.flush, most=6)
        disturbing = asyncio.create_task(world.cancel_some(tasks[: random.randint(0, len(tasks))]))
        await asyncio.sleep(random.choice((0, 0, 0.002, 0.01)))
        await world.turns()
        closing = world.some(self.close, most=2)
        if random.random() < 0.3:
            await world.turns()
            closing[0].cancel()
        await asyncio.wait([*closing, *tasks, disturbing])
        await self.close()
        for task in [*tasks, *closing, disturbing]:
            if not task.cancelled():
                task.result()
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("world", SEEDS, indirect=True)
def test_a_producer_of_many_tasks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item that was taken is in the stream or in `unsent`; twice in the stream only if an answer was lost."""
    monkeypatch.setattr(put_queue, "Backoff", lambda: Backoff(0.0001))
    random = world.random
    producer = ShakyProducer(
        world,
        buffer_time=random.choice((0.0001, 0.005)),
        batch_size=random.choice((1, 5, 500)),
        max_queue_size=random.choice((1, 7, 10_000)),
        parallel_calls=random.choice((1, 1, 3)),
        ordered=random.choice((False, True)),
    )
    putting = Putting(world, producer)

    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            await putting.play()

    asyncio.run(main())
    there = Counter(int(record.data) for shard in world.stream.shards for record in shard.records)
    unsent = Counter(int(item.data) for item in producer.unsent)
    assert unsent.keys() | there.keys() >= set(putting.taken)
    assert putting.flushed <= there.keys()
    assert (there.keys() | unsent.keys()) - set(putting.taken) <= putting.doubtful
    assert max(unsent.values(), default=1) == 1
    assert [n for n, times in there.items() if times > 1] == []
