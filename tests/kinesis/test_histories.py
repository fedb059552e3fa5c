"""Random histories of a stream: put, resharded, read, stopped and read again, while the service errs and has its whims.

Whatever happens, each item arrives, in the order of its key; within one consumer's life it arrives once, and a consumer
that stops leaves at most the item in hand to the next.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from botocore.config import Config
from fastkcl.kinesis import Consumer, JsonLineProcessor, JsonProcessor, MemoryCheckPointer, Producer
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
        self.arrived: list[list[dict[str, int]]] = []
        self.options: dict[str, Any] = {
            **QUICK,
            "record_limit": self.random.choice([7, 1000]),
            "max_queue_size": self.random.choice([1, 1000]),
            "checkpointer": self.kept,
            "processor": self.processor(),
        }

    async def write(self) -> None:
        """All items, through a reshard before each part but the first."""
        kinesis = self.aws.client("kinesis", config=STUBBORN)
        async with Producer(self.stream, buffer_time=0.02, ordered=True, processor=self.processor()) as producer:
            for step in range(self.steps):
                if step:
                    await asyncio.to_thread(reshard, kinesis, self.stream, self.random)
                for item in numbered(KEYS, self.each, start=step * self.each):
                    await producer.put(item, partition_key=str(item["key"]))
                self.aws.faults(*self.random.sample(FAULTS, 4))
                await producer.flush()

    async def read(self, most: int | None) -> None:
        """Items of one consumer: at most so many, or until it ends."""
        items: list[dict[str, int]] = []
        self.arrived.append(items)
        async with Consumer(self.stream, **self.options) as consumer:
            async for item in consumer:
                items.append(item)
                if len(items) == most:
                    break

    async def pass_by(self) -> None:
        """Consumers come and go while it is written, and a last one reads what is left."""
        writing = asyncio.create_task(self.write())
        try:
            for _ in range(self.random.randint(0, 3)):
                await self.read(self.random.randint(1, 2 * self.each))
            await writing
        finally:
            writing.cancel()
        await self.read(None)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_history(whimsical: LocalAws, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    for name, value in whimsical.environment.items():
        monkeypatch.setenv(name, value)
    history = History(whimsical, seed)
    whimsical.faults()
    asyncio.run(history.pass_by())
    items = [item for life in history.arrived for item in life]
    assert_at_least_once(items, KEYS, history.steps * history.each)
    for life in history.arrived:
        assert all(len(numbers) == len(set(numbers)) for numbers in in_order(life).values())
    assert len(items) <= KEYS * history.steps * history.each + len(history.arrived) - 1
