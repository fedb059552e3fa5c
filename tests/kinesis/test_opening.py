"""Consumers that several tasks open, or that are closed while somebody opens them, or waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fastkcl.kinesis import Consumer, MemoryCheckPointer, StreamDoesNotExist
from fastkcl.kinesis.client import StreamClient
from fastkcl.local_aws import LocalAws
from kinesis_helpers import QUICK, numbered, open_shards, put, split, take
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from local_aws_helpers import client, new_name
from waiting import PATIENCE, until


class Gate:
    """Streams become ACTIVE when it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        self.opened = asyncio.Event()
        become_active = StreamClient.wait_active

        async def wait_active(client: StreamClient, *, is_made: bool = False) -> None:
            self.looks += 1
            await self.opened.wait()
            await become_active(client, is_made=is_made)

        monkeypatch.setattr(StreamClient, "wait_active", wait_active)

    async def looked(self) -> None:
        await until(lambda: self.looks, "a look at the stream")


@pytest.mark.parametrize(
    "second",
    [Consumer.open, Consumer.wait_ready, Consumer.refresh_shards, lambda consumer: consumer._client.open()],
    ids=["open", "wait_ready", "refresh_shards", "client"],
)
def test_all_who_open_wait_for_the_stream(
    stream: str, monkeypatch: pytest.MonkeyPatch, second: Callable[[Consumer], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        gate, consumer = Gate(monkeypatch), Consumer(stream, **QUICK)
        first = asyncio.create_task(consumer.open())
        await gate.looked()
        other = asyncio.create_task(second(consumer))
        for _ in range(20):  # more turns of the loop than it takes to see that the client is there
            await asyncio.sleep(0)
        assert not first.done()
        assert not other.done()
        gate.opened.set()
        await asyncio.gather(first, other)
        assert gate.looks == 1
        await consumer.close()

    asyncio.run(main())


def test_it_is_closed_while_somebody_opens_it(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        gate, consumer = Gate(monkeypatch), Consumer(stream, **QUICK)
        opening = asyncio.create_task(consumer.open())
        reading = asyncio.create_task(consumer.__anext__())
        await gate.looked()
        await consumer.close()
        gate.opened.set()
        with pytest.raises(RuntimeError, match=f"the consumer of {stream} was closed"):
            await opening
        with pytest.raises(StopAsyncIteration):
            await reading
        assert not consumer._client.is_open

    asyncio.run(main())


def test_nobody_waits_for_one_that_is_closed(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        consumer = Consumer(stream, **QUICK)
        monkeypatch.setattr(Consumer, "is_ready", False)
        waiting = asyncio.create_task(consumer.wait_ready(4 * PATIENCE))
        await until(lambda: consumer._is_started, "its start")
        await consumer.close()
        for late in (waiting, consumer.wait_ready(4 * PATIENCE)):
            with pytest.raises(RuntimeError, match="was closed"):
                await asyncio.wait_for(late, PATIENCE)

    asyncio.run(main())


def test_who_waits_for_the_shards_waits_no_longer_for_the_stream(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        gate, consumer = Gate(monkeypatch), Consumer(stream, **QUICK)
        async with asyncio.timeout(PATIENCE) as patience:
            with pytest.raises(TimeoutError):
                await consumer.wait_ready(0.05)
        assert not patience.expired()
        begun = consumer._under_way
        assert begun is not None  # the opening goes on
        gate.opened.set()
        await consumer.wait_ready(PATIENCE)
        assert begun.exception() is None
        await consumer.close()

    asyncio.run(main())


def starters(consumer: Consumer[Any]) -> list[asyncio.Task[Any]]:
    """Two tasks that wait for the shards, and one that iterates: in both orders, before the first of them has run."""
    calls = [consumer.wait_ready(PATIENCE), consumer.__anext__(), consumer.wait_ready(PATIENCE)]
    return [asyncio.ensure_future(call) for call in calls]


def test_some_wait_for_the_shards_and_one_iterates(aws: LocalAws, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(aws, stream, numbered(1, 1))

    async def main() -> None:
        gate, consumer = Gate(monkeypatch), Consumer(stream, **QUICK)
        tasks = starters(consumer)
        await gate.looked()
        gate.opened.set()
        assert [item and item["n"] for item in await asyncio.gather(*tasks)] == [None, 0, None]
        await consumer.close()

    asyncio.run(main())


def test_a_start_that_fails_fails_for_all_who_wait_for_it(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        gate, consumer = Gate(monkeypatch), Consumer(stream + "-that-is-not-there", **QUICK)
        tasks = starters(consumer)
        await gate.looked()
        gate.opened.set()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in errors] == 3 * [StreamDoesNotExist]
        await consumer.close()

    asyncio.run(main())


def test_nothing_that_was_fetched_is_kept(aws: LocalAws, stream: str) -> None:
    """A program may keep the closed consumer."""
    put(aws, stream, numbered(1, 50))

    async def main() -> None:
        async with Consumer(stream, **QUICK, record_limit=5) as consumer:
            await take(consumer, 1)
            await until(lambda: consumer._queue.rows >= 40, "records that are fetched ahead")
        assert consumer._queue.is_empty

    asyncio.run(main())


def test_nobody_waits_for_one_whose_close_was_cancelled(stream: str) -> None:
    asked = asyncio.Event()

    class Slow(MemoryCheckPointer):
        async def allocate(self, shard_id: str) -> tuple[bool, str | None]:
            asked.set()
            return await asyncio.get_running_loop().create_future()

    async def main() -> None:
        consumer = Consumer(stream, **QUICK, checkpointer=Slow())
        waiting = asyncio.create_task(consumer.wait_ready(4 * PATIENCE))
        await asked.wait()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        assert consumer._is_closed
        closing.cancel()  # while it waits for the task that looks for shards
        with pytest.raises(RuntimeError, match="was closed"):
            await asyncio.wait_for(waiting, PATIENCE)
        await asyncio.wait([closing])

    asyncio.run(main())


def test_shards_are_listed_while_it_is_closed(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the consumer's own, and not one of its client."""

    async def main() -> None:
        consumer = Consumer(stream, **QUICK)
        await consumer.open()
        called, gate = asyncio.Event(), asyncio.Event()
        call_once = StreamClient.call_once

        async def slow(client: StreamClient, operation: str, request: Any) -> dict[str, Any]:
            called.set()
            await gate.wait()
            return await call_once(client, operation, request)

        monkeypatch.setattr(StreamClient, "call_once", slow)
        listing = asyncio.create_task(consumer.refresh_shards())
        await called.wait()
        await consumer.close()
        gate.set()
        with pytest.raises(RuntimeError, match=f"the consumer of {stream} was closed"):
            await listing

    asyncio.run(main())


def test_wait_ready_resumes_what_has_failed(aws: LocalAws) -> None:
    """It has raised the error once; nobody iterates in between."""
    stream = new_name()

    async def main() -> list[Any]:
        async with Consumer(stream, **QUICK, skip_describe_stream=True) as consumer:
            with pytest.raises(StreamDoesNotExist):
                await consumer.wait_ready(PATIENCE)
            client(aws).create_stream(StreamName=stream, ShardCount=1)
            client(aws).get_waiter("stream_exists").wait(StreamName=stream)
            put(aws, stream, numbered(1, 3))
            await consumer.wait_ready(PATIENCE)
            return await take(consumer, 3)

    assert [item["n"] for item in asyncio.run(main())] == [0, 1, 2]


def test_wait_ready_where_the_reading_has_stopped(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knew where to read before."""
    error = ValueError("no answer that can be read")

    async def unreadable(*_: Any, **__: Any) -> Any:
        raise error

    async def main() -> None:
        async with Consumer(stream, **QUICK) as consumer:
            monkeypatch.setattr(StreamClient, "get_records", unreadable)
            await consumer.wait_ready(PATIENCE)
            await until(lambda: consumer._stream.failure, "the end of the reading")
            with pytest.raises(ValueError, match="no answer that can be read"):
                await consumer.wait_ready(PATIENCE)
            monkeypatch.undo()
            await consumer.wait_ready(PATIENCE)

    asyncio.run(main())


def test_an_older_list_of_shards_that_comes_later(aws: LocalAws, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer one is known by then, with the children of a split."""
    list_shards = StreamClient.list_shards
    gate, calls = asyncio.Event(), 0

    async def listed(client: StreamClient) -> Any:
        nonlocal calls
        calls += 1
        waits = calls == 1
        shards = await list_shards(client)
        if waits:
            await gate.wait()
        return shards

    async def main() -> int:
        async with Consumer(stream, **QUICK) as consumer:
            monkeypatch.setattr(StreamClient, "list_shards", listed)
            older = asyncio.create_task(consumer.refresh_shards())
            await until(lambda: calls, "the first call")
            await asyncio.to_thread(split, aws, stream, open_shards(aws, stream)[0])
            await asyncio.to_thread(lambda: client(aws).get_waiter("stream_exists").wait(StreamName=stream))
            await consumer.refresh_shards()
            assert consumer.get_shard_status()["total_shards"] == 3
            gate.set()
            await older
            return int(consumer.get_shard_status()["total_shards"])

    assert asyncio.run(main()) == 3
