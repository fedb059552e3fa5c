"""Parts that several consumers, or several tasks, of one process share: a checkpointer, and a consumer's items."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fastkcl.kinesis import (
    Consumer,
    MemoryCheckPointer,
    Producer,
    RedisCheckPointer,
    ValidationError,
    run_processors,
)
from fastkcl.kinesis.bounds import check_count, within
from fastkcl.kinesis.read.sharing import Share
from fastkcl.kinesis.testing import MemoryStream
from fastkcl.local_aws import Fault, LocalAws
from kinesis_helpers import (
    QUICK,
    assert_at_least_once,
    assert_each_once,
    numbered,
    open_shards,
    put,
    split,
    take,
    take_all,
)
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from local_aws_helpers import SHARD_0, client, make_stream, new_name
from waiting import until

PATIENT: dict[str, Any] = {**QUICK, "idle_timeout": 5}
"""For reading without a count of what is to come."""

# Consumers that share a checkpointer.


class SlowToClose(MemoryCheckPointer):
    """It is closed when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.may_close = asyncio.Event()

    async def allocate(self, shard_id: str) -> tuple[bool, str | None]:
        self.calls.append("allocate")
        return await super().allocate(shard_id)

    async def close(self) -> None:
        self.calls.append("close")
        await self.may_close.wait()
        self.calls.append("closed")
        await super().close()


def test_a_consumer_begins_while_the_last_one_closes_the_checkpointer(aws: LocalAws, stream: str) -> None:
    """It waits for that: what is closed are the connections of both."""
    put(aws, stream, numbered(1, 10))

    async def main() -> list[Any]:
        kept = SlowToClose()
        first, second = (Consumer(stream, **{**QUICK, "checkpointer": kept}) for _ in range(2))
        items = await take(first, 5)
        leaving = asyncio.create_task(first.close())
        await until(lambda: "close" in kept.calls, "the end of the first", seen=lambda: kept.calls)
        await second.open()
        rest = asyncio.create_task(take_all(second))
        share = second._stream._share
        await until(lambda: share in Share._all.get(id(kept), ()), "the second", seen=lambda: Share._all)
        beginning = asyncio.create_task(share.begin())
        await asyncio.sleep(0)
        assert not beginning.done()
        kept.may_close.set()
        items += await rest
        await asyncio.gather(leaving, beginning, second.close())
        assert "allocate" not in kept.calls[kept.calls.index("close") : kept.calls.index("closed")]
        assert not Share._closing
        return items

    assert_at_least_once(asyncio.run(main()), 1, 10)


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_two_consumers_share_a_checkpointer(
    aws: LocalAws, redis: dict[str, str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each record goes to one of them; what the first one had goes to the second when the first one has left."""
    for name, value in redis.items():
        monkeypatch.setenv(name, value)
    stream = make_stream(aws, 4)
    put(aws, stream, numbered(20, 5))

    async def main() -> list[Any]:
        kept = MemoryCheckPointer() if kind == "memory" else RedisCheckPointer(new_name())
        options: dict[str, Any] = {**QUICK, "checkpointer": kept, "idle_timeout": None}
        async with Consumer(stream, **options) as second:
            async with Consumer(stream, **options, max_shard_consumers=3) as first:
                await first.wait_ready()
                both: list[Any] = []

                async def part(consumer: Consumer) -> None:
                    while len(both) < 100:
                        both.append(await anext(consumer))

                parts = [asyncio.create_task(part(consumer)) for consumer in (first, second)]
                await until(lambda: len(both) >= 100, "all items", seen=lambda: len(both))
                for each in parts:
                    each.cancel()
                await asyncio.gather(*parts, return_exceptions=True)
                shards = [consumer._stream.readers.keys() for consumer in (first, second)]
                assert [len(each) for each in shards] == [3, 1]
                assert shards[0].isdisjoint(shards[1])
            await until(lambda: len(second._stream.readers) == 4, "the shards of the first")
            await asyncio.to_thread(put, aws, stream, numbered(20, 5, start=5))
            due = {(key, n) for key in range(20) for n in range(5, 10)}
            async for item in second:
                due.discard((item["key"], item["n"]))
                if not due:
                    break
            return both

    assert_each_once(asyncio.run(main()), 20, 5)


# Tasks that share a consumer.


class TaskError(Exception):
    pass


def numbers(items: list[Any]) -> list[int]:
    return [item["n"] for item in items]


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
def test_an_item_whose_task_fails_comes_again(aws: LocalAws, stream: str, how: str) -> None:
    """Other tasks go on, and acknowledge what they have themselves."""
    put(aws, stream, numbered(1, 30))
    kept = MemoryCheckPointer()

    async def main() -> list[int]:
        seen: list[int] = []
        has_failed = asyncio.Event()

        async def fail(consumer: Consumer) -> None:
            seen.extend(numbers(await take_in_task(consumer, 8)))
            has_failed.set()
            if how == "fails":
                raise TaskError
            await asyncio.Event().wait()

        async def go_on(consumer: Consumer) -> None:
            await has_failed.wait()
            seen.extend(numbers([item async for item in consumer]))

        async with Consumer(stream, **PATIENT, checkpointer=kept, max_queue_size=10) as consumer:
            failing = asyncio.create_task(fail(consumer))
            going_on = asyncio.create_task(go_on(consumer))
            await has_failed.wait()
            if how == "is cancelled":
                failing.cancel()
            await going_on
            with pytest.raises((TaskError, asyncio.CancelledError)):
                await failing
        return seen

    assert asyncio.run(main()) == list(range(30))

    async def again() -> list[int]:
        async with Consumer(stream, **PATIENT, checkpointer=kept) as consumer:
            return numbers(await take_all(consumer))

    assert asyncio.run(again()) == list(range(7, 30))
    assert asyncio.run(again()) == []


async def take_in_task(consumer: Consumer, count: int) -> list[Any]:
    """So many items, asked for by this very task."""
    return [await anext(consumer) for _ in range(count)]


def test_a_task_that_is_still_at_its_item_holds_the_position(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 20))
    kept = MemoryCheckPointer()
    before: list[str | None] = []

    async def main() -> None:
        done = asyncio.Event()

        async def slow(consumer: Consumer) -> None:
            await take_in_task(consumer, 3)
            await done.wait()
            with pytest.raises(StopAsyncIteration):
                await anext(consumer)

        async with Consumer(stream, **PATIENT, checkpointer=kept) as consumer:
            working = asyncio.create_task(slow(consumer))
            await until(lambda: consumer._delivery is not None and consumer._delivery.mark == 2, "the third item")
            assert numbers(await take_all(consumer)) == list(range(3, 20))
            before.append(kept.get_all_checkpoints()[SHARD_0])
            done.set()
            await working
            assert kept.get_all_checkpoints()[SHARD_0] == last_of(aws, stream)

    asyncio.run(main())
    assert before[0] != last_of(aws, stream)


async def waited(consumer: Consumer) -> Any:
    return await asyncio.wait_for(anext(consumer), 5)


async def spawned(consumer: Consumer) -> Any:
    return await asyncio.create_task(consumer.__anext__())


async def ensured(consumer: Consumer) -> Any:
    return await asyncio.ensure_future(anext(consumer))


async def grouped(consumer: Consumer) -> Any:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(anext(consumer))  # type: ignore[arg-type]  # not of every Awaitable
    return task.result()


async def gathered(consumer: Consumer) -> Any:
    return (await asyncio.gather(anext(consumer)))[0]


@pytest.mark.parametrize("ask", [waited, spawned, ensured, grouped, gathered])
def test_the_task_that_asks_holds_the_item_whichever_awaits_it(
    aws: LocalAws, stream: str, ask: Callable[[Consumer], Awaitable[Any]]
) -> None:
    """A helper's task ends with the item as its result, long before the body is done with it."""
    put(aws, stream, numbered(1, 20))
    kept = MemoryCheckPointer()

    async def main() -> None:
        has_third, others_done = asyncio.Event(), asyncio.Event()

        async def slow(consumer: Consumer) -> list[int]:
            items = [await ask(consumer) for _ in range(3)]
            has_third.set()
            await others_done.wait()
            return numbers(items)

        async with Consumer(stream, **QUICK, checkpointer=kept) as consumer:
            working = asyncio.create_task(slow(consumer))
            await has_third.wait()
            assert numbers([await ask(consumer) for _ in range(17)]) == list(range(3, 20))
            with pytest.raises(StopAsyncIteration):
                await anext(consumer)
            assert kept.get_all_checkpoints()[SHARD_0] == numbers_of(aws, stream)[1]
            others_done.set()
            assert await working == [0, 1, 2]
        assert kept.get_all_checkpoints()[SHARD_0] == last_of(aws, stream)

    asyncio.run(main())


def test_items_that_a_task_asks_for_together_are_held_until_it_asks_again(aws: LocalAws) -> None:
    """Of each shard; and what is given later is not acknowledged by having been asked for before."""
    stream = make_stream(aws, 2)
    put(aws, stream, numbered(8, 4))
    kept = MemoryCheckPointer()

    async def main() -> None:
        async with Consumer(stream, **QUICK, checkpointer=kept) as consumer:
            items = await asyncio.gather(*(anext(consumer) for _ in range(32)))
            with pytest.raises(StopAsyncIteration):
                await asyncio.create_task(take_in_task(consumer, 1))
            assert set(kept.get_all_checkpoints().values()) <= {None}
            with pytest.raises(StopAsyncIteration):
                await anext(consumer)
            assert None not in kept.get_all_checkpoints().values()
        assert_each_once(items, 8, 4)

    asyncio.run(main())


def test_an_item_of_a_loop_that_does_not_run_yet(aws: LocalAws, stream: str) -> None:
    """``run_until_complete`` makes a task for each call: nobody's, so that the next call acknowledges."""
    put(aws, stream, numbered(1, 3))
    kept = MemoryCheckPointer()
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        consumer = Consumer(stream, **QUICK, checkpointer=kept)
        assert numbers([loop.run_until_complete(consumer.__anext__()) for _ in range(3)]) == [0, 1, 2]
        loop.run_until_complete(consumer.close())
    assert kept.get_all_checkpoints()[SHARD_0] == numbers_of(aws, stream)[1]


def last_of(aws: LocalAws, stream: str) -> str:
    return numbers_of(aws, stream)[-1]


def numbers_of(aws: LocalAws, stream: str) -> list[str]:
    kinesis = client(aws)
    position = {"StreamName": stream, "ShardId": SHARD_0, "ShardIteratorType": "TRIM_HORIZON"}
    records = kinesis.get_records(ShardIterator=kinesis.get_shard_iterator(**position)["ShardIterator"])["Records"]
    return [record["SequenceNumber"] for record in records]


def test_tasks_that_end_are_done_with_their_items(aws: LocalAws, stream: str) -> None:
    """A task for each item, hundreds of them; nothing is kept of those that have ended."""
    put(aws, stream, numbered(1, 300))
    kept = MemoryCheckPointer()

    async def main() -> list[int]:
        async with Consumer(stream, **PATIENT, checkpointer=kept) as consumer:
            items = [await asyncio.create_task(anext(consumer)) for _ in range(300)]
            assert len(consumer._holders.held) <= 128
            with pytest.raises(StopAsyncIteration):
                await asyncio.create_task(anext(consumer))
        return numbers(items)

    assert asyncio.run(main()) == list(range(300))
    assert kept.get_all_checkpoints()[SHARD_0] == last_of(aws, stream)


def test_a_shard_is_not_finished_while_a_task_is_at_its_last_item(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(4, 2))
    split(aws, stream, open_shards(aws, stream)[0])
    put(aws, stream, numbered(4, 1, start=2))

    async def main() -> None:
        done = asyncio.Event()

        async def slow(consumer: Consumer) -> list[Any]:
            await take_in_task(consumer, 8)
            await done.wait()
            return await take_all(consumer)

        async with Consumer(stream, **PATIENT) as consumer:
            working = asyncio.create_task(slow(consumer))
            await until(lambda: consumer._delivery is not None and consumer._delivery.mark == 7, "the last item")
            others = asyncio.create_task(take_all(consumer))
            await until(lambda: consumer._ended, "the shard's end")
            assert list(consumer._stream.readers) == [SHARD_0]
            done.set()
            assert len(await working + await others) == 4

    asyncio.run(main())


# Counts, and waits.


@pytest.mark.parametrize(
    "option",
    ["max_queue_size", "max_shard_consumers", "record_limit", "max_batch_bytes", "retry_limit", "create_stream_shards"],
)
@pytest.mark.parametrize("value", [1.5, 2.0, float("nan")])
def test_a_fraction_is_no_count(option: str, value: float) -> None:
    with pytest.raises(ValidationError, match=f"{option} must be a whole number"):
        Consumer("orders", **{option: value})
    if option != "create_stream_shards" and option != "retry_limit":
        with pytest.raises(ValidationError, match=f"{option} must be a whole number"):
            asyncio.run(run_processors("orders", object, checkpointer=MemoryCheckPointer(), **{option: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["batch_size", "max_queue_size", "max_request_bytes", "max_record_bytes"])
def test_a_fraction_is_no_count_of_a_producer(option: str) -> None:
    with pytest.raises(ValidationError, match=f"{option} must be a whole number"):
        Producer("orders", **{option: 499.5})


def test_counts() -> None:
    check_count("n", 3, 1, 3)
    for value in (0, 4, True):
        with pytest.raises(ValidationError, match="n must be 1 to 3, not"):
            check_count("n", value, 1, 3)
    with pytest.raises(TypeError, match="whole number"):
        check_count("n", "3", 1)
    with pytest.raises(ValidationError, match="whole number"):
        MemoryStream("s", 1.5)  # type: ignore[arg-type]


def test_waits_that_end() -> None:
    async def main() -> None:
        assert await within(5, "it", asyncio.to_thread(int, "7")) == 7
        with pytest.raises(TimeoutError, match=r"it: not done within 0.01 s"):
            await within(0.01, "it", asyncio.sleep(600))
        with pytest.raises(TimeoutError, match="its own"):
            await within(5, "it", fail())

    async def fail() -> None:
        raise TimeoutError("its own")

    asyncio.run(main())


# Streams that are looked at.


def consume(stream: str, **options: Any) -> list[Any]:
    async def main() -> list[Any]:
        async with Consumer(stream, **{**QUICK, **options}) as consumer:
            return await take(consumer, 5)

    return asyncio.run(main())


@pytest.mark.parametrize("also", [[], ["DescribeStreamSummary"]], ids=["", "nor its summary"])
@pytest.mark.parametrize("option", ["use_list_shards", "skip_describe_stream"])
def test_without_the_permission_to_describe(own_aws: LocalAws, stream: str, option: str, also: list[str]) -> None:
    put(own_aws, stream, numbered(1, 5))
    own_aws.faults(*(Fault(operation, "AccessDeniedException") for operation in ["DescribeStream", *also]))
    assert_each_once(consume(stream, **{option: True}), 1, 5)


@pytest.mark.parametrize(
    ("options", "operation"),
    [
        ({}, "DescribeStream"),
        ({"use_list_shards": True}, "DescribeStreamSummary"),
        ({"skip_describe_stream": True}, "DescribeStreamSummary"),
    ],
    ids=str,
)
def test_a_stream_that_is_made_and_not_visible_yet(own_aws: LocalAws, options: dict[str, Any], operation: str) -> None:
    stream = new_name()
    own_aws.faults(Fault(operation, "ResourceNotFoundException", times=2))

    async def main() -> list[Any]:
        async with Consumer(stream, **QUICK, create_stream=True, **options) as consumer:
            await asyncio.to_thread(put, own_aws, stream, numbered(1, 5))
            return await take(consumer, 5)

    assert_each_once(asyncio.run(main()), 1, 5)
    assert own_aws.hits() == [2]
