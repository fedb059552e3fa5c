"""Programs whose loop body never awaits: they are fetched for, and keep their shards; none of ours blocks for long."""

import asyncio
import time
from typing import Any

import pytest
from fastkcl import _core
from fastkcl.kinesis import (
    Consumer,
    JsonLineProcessor,
    KPLStringProcessor,
    StringProcessor,
)
from fastkcl.kinesis.client import StreamClient
from fastkcl.kinesis.read.pacing import Pace
from fastkcl.local_aws import LocalAws
from kinesis_helpers import QUICK
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from kinesis_programs import last_line, program, put_texts
from local_aws_helpers import client, make_stream
from waiting import PATIENCE

LONGEST_BLOCK = 0.020


def test_each_record_comes_once_and_the_loop_runs(aws: LocalAws, stream: str) -> None:
    """It takes longer than a lease lasts. `tests/system/test_busy_consumer.py` has a minute with KCL's times."""
    put_texts(aws, stream, [f"{number:05}" for number in range(7000)])
    with program(aws, "kinesis_busy.py", stream, 7000, 0.0011, 6) as process:
        told = last_line(process, seconds=4 * PATIENCE)
    assert (told["deliveries"], told["distinct"]) == (7000, 7000)
    assert told["longest"] <= LONGEST_BLOCK


# The pace.


def played(pace: Pace, *bodies: float, awaits: bool = False) -> list[float | None]:
    """What comes before each item of a program whose bodies take so many seconds."""
    now, pauses = 100.0, []
    pace.resumed(now)
    for body in bodies:
        if awaits:
            pace.loop_ran()
        now += body
        pauses.append(pace.pause(now))
        if pauses[-1] is not None:
            now += pauses[-1] or 0
            pace.resumed(now)
    return pauses


@pytest.mark.parametrize(
    ("bodies", "awaits", "pauses"),
    [
        ([0.001] * 11, False, [None, None, None, None, 0] * 2 + [None]),
        ([0.004, 0.02, 0.049], False, [None, 0, 0]),
        ([0.1, 1, 100], False, [0.002, 0.02, 0.25]),
        ([0.1, 1, 100], True, [0, 0, 0]),
        ([0.001] * 6, True, [None, None, None, None, 0, None]),
    ],
)
def test_when_the_loop_runs(bodies: list[float], awaits: bool, pauses: list[float | None]) -> None:
    assert played(Pace(), *bodies, awaits=awaits) == [
        pause if pause is None else pytest.approx(pause) for pause in pauses
    ]


# What takes long without any item.


def longest_block(stream: str, **options: Any) -> tuple[list[Any], float]:
    """The items of a stream, and the longest time in seconds of CPU between two turns of the event loop."""

    async def main() -> tuple[list[Any], float]:
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            while True:
                before = time.thread_time()
                await asyncio.sleep(0.001)
                longest = max(longest, time.thread_time() - before)

        async with Consumer(stream, **{**QUICK, **options}) as consumer:
            await consumer.wait_ready(PATIENCE)
            watching = asyncio.create_task(watch())
            items = [item async for item in consumer]
            watching.cancel()
        return items, longest

    return asyncio.run(main())


def test_records_without_items(aws: LocalAws, stream: str) -> None:
    put_texts(aws, stream, ["\n"] * 9000 + ["1"])
    items, longest = longest_block(stream, processor=JsonLineProcessor())
    assert items == [1]
    assert longest <= LONGEST_BLOCK


def test_records_that_cannot_be_read(aws: LocalAws, stream: str) -> None:
    put_texts(aws, stream, ["{"] * 3000 + ["1"])
    items, longest = longest_block(stream, on_record_error=lambda record, error: None)
    assert items == [1]
    assert longest <= LONGEST_BLOCK


def test_an_aggregate_of_a_hundred_thousand(aws: LocalAws, stream: str) -> None:
    """One record, which nothing cuts: it is taken apart in a thread, and gone on in without a look at each row."""
    aggregate = _core.Aggregate()
    for _ in range(100_000):
        aggregate.add("k", b"x")
    client(aws).put_record(StreamName=stream, PartitionKey="k", Data=aggregate.encode())
    items, longest = longest_block(stream, processor=KPLStringProcessor())
    assert len(items) == 100_000
    assert longest <= LONGEST_BLOCK


def test_a_consumer_with_bodies_of_seconds(aws: LocalAws, stream: str) -> None:
    """Each of them is longer than the time to connect, on a machine of that pace."""
    put_texts(aws, stream, ["a", "b", "c"])

    async def main() -> list[str]:
        items = []
        async with Consumer(stream, **QUICK, processor=StringProcessor(), record_limit=1) as consumer:
            async for item in consumer:
                items.append(item)
                time.sleep(1)  # noqa: ASYNC251 - the program blocks
        return items

    assert asyncio.run(main()) == ["a", "b", "c"]


def test_the_first_call_of_each_shard_begins_in_a_turn_of_its_own(
    aws: LocalAws, environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, turns = 0, []
    call = StreamClient.call

    async def noted(self: StreamClient, operation: str, *arguments: Any, **options: Any) -> Any:
        if operation == "get_shard_iterator":
            turns.append(turn)
        return await call(self, operation, *arguments, **options)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def count() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count)

        count()
        async with Consumer(make_stream(aws, 12), **QUICK) as consumer:
            await consumer.wait_ready()

    monkeypatch.setattr(StreamClient, "call", noted)
    asyncio.run(main())
    assert len(turns) == len(set(turns)) == 12
