"""A shard at its end of which a record is still open: its child shards have records, so the iteration does not end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from fastkcl.kinesis import Consumer, MemoryCheckPointer
from fastkcl.local_aws import LocalAws
from kinesis_helpers import QUICK, numbered, open_shards, put, split
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from waiting import PATIENCE, until

BEFORE, AFTER = 2, 8
"""Items that were put before and after the split."""
WAYS = {"next": {}, "explicit": {"output": "records", "acknowledge": "explicit"}}
WARNING = "shardId-000000000000: a record is not acknowledged: child shards have not begun"


@pytest.fixture
def resharded(aws: LocalAws, stream: str) -> str:
    """A stream whose first shard has two items, and its children eight."""
    put(aws, stream, numbered(1, BEFORE))
    split(aws, stream, open_shards(aws, stream)[0])
    put(aws, stream, numbered(AFTER, 1, start=BEFORE))
    return stream


class Reader:
    """A consumer, and how often it has looked for an end of the iteration."""

    def __init__(self, stream: str, **options: Any) -> None:
        self.consumer = Consumer(stream, **{**QUICK, "checkpointer": MemoryCheckPointer(), **options})
        self.items: list[Any] = []
        self.looks = 0
        self.has_ended = False
        self._wait = self.consumer._queue.wait_for_entries
        self.consumer._queue.wait_for_entries = self._count  # type: ignore[method-assign]

    async def _count(self) -> None:
        self.looks += 1
        await self._wait()

    async def read(self) -> None:
        """Items to the end of the iteration, each acknowledged at once."""
        async for item in self.consumer:
            self.items.append(item)
            if self.consumer._is_explicit:
                await item.done()
        self.has_ended = True

    async def hold_until_nothing_comes(self) -> Any:
        """An item, when the iteration of others has found nothing for long enough to end, or has ended."""
        item = await anext(self.consumer)
        self.items.append(item)
        await until(lambda: self.looks > 1 and self.consumer._stream.is_quiet(QUICK["idle_timeout"]), "nothing comes")
        before = self.looks
        await until(lambda: self.looks > before + 3 or self.has_ended, "looks")
        assert not self.has_ended, "the iteration of others"
        return item


async def beside(reader: Reader, holding: Any) -> None:
    """One task reads all there is, while another one does something else."""
    async with reader.consumer, asyncio.timeout(PATIENCE):
        held = asyncio.create_task(holding)
        await until(lambda: reader.items, "the first item")
        await asyncio.gather(held, reader.read())


@pytest.mark.parametrize("way", WAYS)
def test_an_iteration_waits_for_the_task_at_the_last_record_of_a_shard(resharded: str, way: str) -> None:
    async def main() -> None:
        reader = Reader(resharded, **WAYS[way])

        async def slow() -> None:
            item = await reader.hold_until_nothing_comes()
            if way == "explicit":
                await item.done()
            await reader.read()

        await beside(reader, slow())
        assert len(reader.items) == BEFORE + AFTER

    asyncio.run(main())


@pytest.mark.parametrize("asks_again", [True, False])
def test_child_shards_begin_when_the_task_is_done(resharded: str, asks_again: bool) -> None:
    """Also where the iteration has no end: another task waits meanwhile, and nothing comes that would wake it."""

    async def main() -> None:
        reader = Reader(resharded, idle_timeout=None)

        async def slow() -> None:
            await reader.hold_until_nothing_comes()
            if asks_again:
                await reader.read()

        async def closing() -> None:
            await until(lambda: len(reader.items) == BEFORE + AFTER, "all items", seen=lambda: reader.items)
            await reader.consumer.close()

        closer = asyncio.create_task(closing())
        await beside(reader, slow())
        await closer

    asyncio.run(main())


def test_a_position_is_written_when_a_task_asks_while_another_one_waits(aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(1, 2))

    async def main() -> None:
        kept = MemoryCheckPointer()
        reader = Reader(stream, idle_timeout=None, checkpointer=kept)

        async def slow() -> None:
            reader.items.append(await anext(reader.consumer))
            await until(lambda: reader.looks > 1 and reader.consumer._turn.locked(), "the other task waits")
            closer = asyncio.create_task(close_when_written(kept.get_all_checkpoints()))
            await reader.read()
            await closer

        async def close_when_written(before: dict[str, str]) -> None:
            await until(lambda: kept.get_all_checkpoints() != before, "the position of the last record")
            await reader.consumer.close()

        await beside(reader, slow())

    asyncio.run(main())


@pytest.mark.parametrize("fails", [True, False])
def test_a_task_that_never_asks_again(resharded: str, caplog: pytest.LogCaptureFixture, fails: bool) -> None:
    """It has failed, or lives on for longer than `ack_timeout`: the iteration ends, and says what was not read."""
    caplog.set_level(logging.WARNING, "fastkcl.kinesis.read.consumer")

    async def main() -> None:
        reader = Reader(resharded, ack_timeout=0.5)
        ended = asyncio.Event()

        async def stays() -> None:
            reader.items.append(await anext(reader.consumer))
            if fails:
                raise ValueError("of the program")
            await ended.wait()

        async def read() -> None:
            await reader.read()
            ended.set()

        async with reader.consumer, asyncio.timeout(PATIENCE):
            staying = asyncio.create_task(stays())
            await until(lambda: reader.items, "the first item")
            await asyncio.gather(staying, read(), return_exceptions=True)
        assert len(reader.items) == BEFORE

    asyncio.run(main())
    assert WARNING in caplog.messages


def test_a_task_that_waits_for_more_itself_holds_nothing_up(resharded: str) -> None:
    """It has asked for three items together, and is done with none until it asks again."""

    async def main() -> None:
        reader = Reader(resharded)
        async with reader.consumer, asyncio.timeout(PATIENCE):
            asked = [anext(reader.consumer) for _ in range(BEFORE + 1)]
            *items, last = await asyncio.gather(*asked, return_exceptions=True)
        assert [item["n"] for item in items] == [0, 1]
        assert isinstance(last, StopAsyncIteration)

    asyncio.run(main())
