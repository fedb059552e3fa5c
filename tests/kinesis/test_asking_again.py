"""Asking again: after an ask that was cancelled while a position was written, and after an error of many shards."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from fastkcl.kinesis import Consumer, MemoryCheckPointer, Producer
from fastkcl.local_aws import Fault, LocalAws
from kinesis_helpers import QUICK, assert_each_once, numbered, open_shards, put, split, take, take_all
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from local_aws_helpers import SHARD_0, make_stream
from waiting import until


class SlowCheckPointer(MemoryCheckPointer):
    """Writes a position, or only gives a shard back, when it is let to."""

    def __init__(self, *, only_ends: bool = False) -> None:
        super().__init__()
        self.only_ends = only_ends
        self.begun: list[str] = []
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def _pass(self, what: str) -> None:
        if self.only_ends and what != "end":
            return
        self.begun.append(what)
        await self.gate.wait()
        error, self.error = self.error, None
        if error is not None:
            raise error

    async def checkpoint(self, shard_id: str, sequence: str) -> None:
        await self._pass(sequence)
        await super().checkpoint(shard_id, sequence)

    async def shard_ended(self, shard_id: str) -> None:
        await self._pass("end")
        await super().shard_ended(shard_id)


async def cancelled_ask(consumer: Consumer, kept: SlowCheckPointer, writes: int) -> None:
    """Ask for an item, and give up while the write of this number is under way."""
    ask = asyncio.ensure_future(anext(consumer))
    await until(lambda: len(kept.begun) == writes, "a write", seen=lambda: kept.begun)
    ask.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ask


def consumer_of(stream: str, kept: MemoryCheckPointer, **options: Any) -> Consumer:
    return Consumer(stream, **{**QUICK, "output": "records", "checkpointer": kept, **options})


def test_a_write_goes_on_when_its_ask_is_cancelled(aws: LocalAws, stream: str) -> None:
    """With less time for an ask than a write takes there would be no next item."""
    put(aws, stream, numbered(1, 3))

    async def main() -> None:
        kept = SlowCheckPointer()
        async with consumer_of(stream, kept, record_limit=1) as consumer:
            (first,) = await take(consumer, 1)
            await cancelled_ask(consumer, kept, 1)
            await cancelled_ask(consumer, kept, 1)
            kept.gate.set()
            (second,) = await take(consumer, 1)
            assert second.data["n"] == 1
            assert kept.begun == [first.sequence_number]
            assert kept.get_all_checkpoints() == {SHARD_0: first.sequence_number}

    asyncio.run(main())


def test_the_error_of_such_a_write_reaches_the_next_to_ask(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 2))

    async def main() -> None:
        kept = SlowCheckPointer()
        async with consumer_of(stream, kept, record_limit=1) as consumer:
            await take(consumer, 1)
            await cancelled_ask(consumer, kept, 1)
            kept.error = OSError("no table")
            kept.gate.set()
            with pytest.raises(OSError, match="no table"):
                await anext(consumer)
            (second,) = await take(consumer, 1)
            assert second.data["n"] == 1

    asyncio.run(main())


def test_close_waits_for_such_a_write(aws: LocalAws, stream: str) -> None:
    """And writes what it could not."""
    put(aws, stream, numbered(1, 2))

    async def main() -> None:
        kept = SlowCheckPointer()
        consumer = consumer_of(stream, kept, record_limit=1)
        (first,) = await take(consumer, 1)
        await cancelled_ask(consumer, kept, 1)
        closing = asyncio.create_task(consumer.close())
        kept.error = OSError("no table")
        asyncio.get_running_loop().call_soon(kept.gate.set)
        await closing
        assert kept.begun == [first.sequence_number] * 2
        assert kept.get_all_checkpoints() == {SHARD_0: first.sequence_number}

    asyncio.run(main())


def test_a_shard_is_given_back_when_the_ask_is_cancelled(aws: LocalAws, stream: str) -> None:
    """Its children begin."""
    put(aws, stream, numbered(8, 2))
    split(aws, stream, open_shards(aws, stream)[0])
    put(aws, stream, numbered(8, 2, start=2))

    async def main() -> list[Any]:
        kept = SlowCheckPointer(only_ends=True)
        async with consumer_of(stream, kept) as consumer:
            records = await take(consumer, 16)
            await cancelled_ask(consumer, kept, 1)
            kept.gate.set()
            records += await take_all(consumer, 16)
        assert kept.begun == ["end"]
        return [record.data for record in records]

    assert_each_once(asyncio.run(main()), 8, 4)


@pytest.mark.parametrize("then", ["is asked again", "is closed"])
def test_the_start_goes_on_when_its_ask_is_cancelled(
    aws: LocalAws, stream: str, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Of a consumer that nobody has opened before."""
    put(aws, stream, numbered(1, 1))
    begun: list[Consumer] = []

    async def main() -> None:
        gate = asyncio.Event()
        consumer = Consumer(stream, **QUICK)
        connect = consumer._client.open

        async def connect_slowly() -> None:
            begun.append(consumer)
            await gate.wait()
            await connect()

        monkeypatch.setattr(consumer._client, "open", connect_slowly)
        for _ in range(2):
            ask = asyncio.ensure_future(anext(consumer))
            await until(lambda: bool(begun), "the start")
            ask.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ask
        if then == "is asked again":
            gate.set()
            assert await take(consumer, 1) == [{"key": 0, "n": 0}]
        await consumer.close()
        assert len(begun) == 1

    asyncio.run(main())


def test_an_outage_of_many_shards_is_one_error(own_aws: LocalAws) -> None:
    """When it is over, asking again continues with all of them."""
    stream = make_stream(own_aws, 8)
    put(own_aws, stream, numbered(40, 2))

    async def main() -> list[Any]:
        async with Consumer(stream, **QUICK) as consumer:
            own_aws.faults(Fault(op="GetRecords", error="InternalFailure"))
            with pytest.raises(ConnectionError):
                await anext(consumer)
            await until(
                lambda: len(consumer._stream._failures) == 8, "all errors", seen=lambda: consumer._stream._failures
            )
            own_aws.faults()
            return await take_all(consumer, 80)

    assert_each_once(asyncio.run(main()), 40, 2)


def test_each_time_of_asking_has_all_attempts(own_aws: LocalAws) -> None:
    """A program that asks again in a loop does not run hot while the service is away."""
    stream = make_stream(own_aws)
    options: dict[str, Any] = {**QUICK, "retry_limit": 2}

    async def main() -> None:
        async with Consumer(stream, **options) as consumer:
            own_aws.faults(Fault(op="GetRecords", error="InternalFailure"))
            for time in range(1, 4):
                with pytest.raises(ConnectionError):
                    await anext(consumer)
                assert own_aws.hits() == [3 * time]
        own_aws.faults(Fault(op="PutRecords", error="InternalFailure", times=9))
        async with Producer(stream, retry_limit=2, expo_backoff=0.01) as producer:
            await producer.put(1)
            for time in range(1, 4):
                with pytest.raises(ConnectionError):
                    await producer.flush()
                assert own_aws.hits() == [3 * time]

    asyncio.run(main())


def test_tasks_that_wait_end_together(aws: LocalAws, stream: str, caplog: pytest.LogCaptureFixture) -> None:
    """Not one idle_timeout after the other. Who asks later waits for an idle_timeout."""
    put(aws, stream, numbered(1, 5))
    caplog.set_level(logging.INFO, logger="fastkcl.kinesis")

    def ends() -> int:
        return sum("the iteration ends" in message for message in caplog.messages)

    async def main() -> None:
        async with Consumer(stream, **QUICK) as consumer:

            async def iterate() -> list[Any]:
                return [item async for item in consumer]

            items = await asyncio.gather(*(iterate() for _ in range(8)))
            assert sum(map(len, items)) == 5
            assert ends() == 1
            await asyncio.gather(iterate(), iterate())
            assert ends() == 2
            put(aws, stream, numbered(1, 5, start=5))
            more = await asyncio.gather(*(iterate() for _ in range(8)))
            assert sum(map(len, more)) == 5

    asyncio.run(main())
