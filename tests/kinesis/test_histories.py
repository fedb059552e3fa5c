"""Random histories of a stream: put, resharded, read, stopped and read again, while the service errs and has its whims.

Whatever happens, each item arrives, in the order of its key and from the place that its put was told. Within one
consumer's life it arrives once. A consumer that stops leaves at most the item in hand to the next one; of several
tasks, or with explicit acknowledgement, the records that were not acknowledged and those after them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest
from botocore.config import Config
from fastkcl.kinesis import (
    AckRecord,
    Consumer,
    JsonLineProcessor,
    JsonProcessor,
    MemoryCheckPointer,
    Producer,
)
from fastkcl.local_aws import Fault, LocalAws
from kinesis_helpers import QUICK, assert_at_least_once, in_order, numbered
from local_aws_helpers import make_stream, reshard

HISTORIES = int(os.environ.get("FASTKCL_HISTORIES", "2"))
STUBBORN = Config(retries={"max_attempts": 10, "mode": "standard"}, read_timeout=60)
KEYS = 3
FAULTS = [
    Fault("GetRecords", "ExpiredIteratorException", times=1),
    Fault("GetRecords", "ProvisionedThroughputExceededException", times=2),
    Fault("GetRecords", "InternalFailure", times=1),
    Fault("GetRecords", delay=1.2, times=1),
    Fault("GetShardIterator", "ProvisionedThroughputExceededException", times=1),
    Fault("GetShardIterator", "InternalFailure", times=1),
    Fault("ListShards", "LimitExceededException", times=1),
    Fault("DescribeStreamSummary", "LimitExceededException", times=1),
    Fault("PutRecords", "ProvisionedThroughputExceededException", every=2, times=2),
    Fault("PutRecords", "InternalFailure", every=3, times=1),
    Fault("PutRecords", "ProvisionedThroughputExceededException", times=1),
]


@pytest.fixture(scope="module")
def whimsical() -> Iterator[LocalAws]:
    """A service whose iterators are soon over, and whose answers are empty or lie about the tip now and then."""
    with LocalAws(empty_answers=0.4, false_zeros=0.5, iterator_seconds=1, falling_seconds=3) as aws:
        yield aws


class Place(NamedTuple):
    """Where an item is in the stream."""

    shard_id: str
    sequence_number: str


class EnoughError(Exception):
    """A consumer stops."""


class History:
    """One stream's, as a seed decides."""

    def __init__(self, aws: LocalAws, seed: int) -> None:
        self.random = Random(seed)
        self.aws = aws
        self.stream = make_stream(aws, self.random.randint(1, 3))
        self.processor: type[Any] = self.random.choice([JsonProcessor, JsonLineProcessor])
        self.kept = MemoryCheckPointer()
        self.steps = self.random.randint(1, 4)
        self.each = self.random.choice([1, 8, 40])
        self.is_explicit = self.random.random() < 0.4
        self.tasks = 1 if self.is_explicit else self.random.choice([1, 1, 3])
        self.told: dict[tuple[int, int], Place] = {}
        self.found: dict[tuple[int, int], Place] = {}
        self.lives: list[list[dict[str, int]]] = []
        self.options: dict[str, Any] = {
            **QUICK,
            "record_limit": self.random.choice([7, 1000]),
            "max_queue_size": self.random.choice([1, 1000]),
            "checkpointer": self.kept,
            "output": "records",
            "acknowledge": "explicit" if self.is_explicit else "next",
            "processor": self.processor(),
        }

    async def write(self) -> None:
        """All items, through a reshard before each part but the first."""
        kinesis = self.aws.client("kinesis", config=STUBBORN)
        options = {"buffer_time": 0.02, "ordered": True, "parallel_calls": self.random.choice([1, 3])}
        async with Producer(self.stream, **options, processor=self.processor()) as producer:
            for step in range(self.steps):
                if step:
                    await asyncio.to_thread(reshard, kinesis, self.stream, self.random)
                items = numbered(KEYS, self.each, start=step * self.each)
                sent = [await producer.put(item, partition_key=str(item["key"])) for item in items]
                self.aws.faults(*self.random.sample(FAULTS, 4))
                await producer.flush()
                for item, each in zip(items, sent, strict=True):
                    self.told[item["key"], item["n"]] = Place(*await each)

    async def read(self, most: int | None) -> None:
        """Items of one consumer: at most so many, or until it ends."""
        items: list[dict[str, int]] = []
        self.lives.append(items)
        working: list[asyncio.Task[None]] = []

        async def iterate() -> None:
            async for record in consumer:
                item = record.data
                items.append(item)
                self.found[item["key"], item["n"]] = Place(record.shard_id, record.sequence_number)
                if len(items) == most:
                    raise EnoughError
                if self.is_explicit:
                    working.append(asyncio.create_task(self.work(record)))
                elif self.tasks > 1:
                    await self.rest()
            await asyncio.gather(*working)

        async with Consumer(self.stream, **self.options) as consumer:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self.tasks):
                        group.create_task(iterate())
            except* EnoughError:
                pass
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    async def rest(self) -> None:
        """As somebody who works."""
        await asyncio.sleep(self.random.choice([0, 0.01, 0.5]))

    async def work(self, record: AckRecord) -> None:
        """Take some time with a record, and acknowledge it."""
        await self.rest()
        await record.done()

    async def pass_by(self) -> None:
        """Consumers come and go while it is written; one reads what is left, and one finds nothing."""
        writing = asyncio.create_task(self.write())
        try:
            for _ in range(self.random.randint(0, 3)):
                await self.read(self.random.randint(1, 2 * self.each))
            await writing
        finally:
            writing.cancel()
        await self.read(None)
        await self.read(None)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_history(whimsical: LocalAws, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    for name, value in whimsical.environment.items():
        monkeypatch.setenv(name, value)
    history = History(whimsical, seed)
    whimsical.faults()
    asyncio.run(history.pass_by())
    items = [item for life in history.lives for item in life]
    count = KEYS * history.steps * history.each
    assert_at_least_once(items, KEYS, history.steps * history.each)
    assert history.found == history.told
    for life in history.lives:
        assert all(len(numbers) == len(set(numbers)) for numbers in in_order(life).values())
    if not history.is_explicit and history.tasks == 1:
        assert len(items) <= count + len(history.lives) - 1
    assert history.lives[-1] == []
