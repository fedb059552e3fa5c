"""Several PutRecords calls at the same time: each with other shards, so that the order of a key stays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from fastkcl.kinesis import Producer, PutResult, ShardMap, StringProcessor, UnknownException, ValidationError
from fastkcl.kinesis.client import StreamClient
from fastkcl.kinesis.topology import Shard
from waiting import until

THROTTLED = "ProvisionedThroughputExceededException"


class Service(StreamClient):
    """A stream in memory that takes its time.

    Attributes:
        stored: texts by shard and key, in their order.
        running: shards of the calls that are under way.
        most: calls at the same time, so far.
    """

    def start(self, shards: int, answer: Callable[[], Awaitable[object]], *, refuse: float = 0.0) -> None:
        step = 2**128 // shards
        self.shards = [Shard(shard_id=f"s{n}", hash_range=(n * step, (n + 1) * step - 1)) for n in range(shards)]
        self.map = ShardMap(shard.range for shard in self.shards)
        self.answer, self.refuse = answer, refuse
        self.stored: dict[tuple[str, str], list[str]] = {}
        self.running: list[set[str]] = []
        self.most = 0
        self.random = random.Random(7)

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def list_shards(self) -> list[Shard]:
        assert not self.running
        return self.shards

    async def call_once(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        assert operation == "put_records"
        owners = [self.map.owner(record["PartitionKey"]) for record in request["Records"]]
        assert all({*owners}.isdisjoint(each) for each in self.running)
        self.running.append({*owners})
        self.most = max(self.most, len(self.running))
        try:
            await self.answer()
        finally:
            self.running.remove({*owners})
        return {"Records": self.outcomes(request["Records"], owners)}

    def outcomes(self, records: Sequence[Mapping[str, Any]], owners: Sequence[str]) -> list[dict[str, str]]:
        refused = {owner for owner in sorted({*owners}) if self.random.random() < self.refuse}
        outcomes = []
        for record, owner in zip(records, owners, strict=True):
            if owner in refused:
                outcomes.append({"ErrorCode": THROTTLED, "ErrorMessage": ""})
                continue
            kept = self.stored.setdefault((owner, record["PartitionKey"]), [])
            kept.append(record["Data"].decode())
            outcomes.append({"ShardId": owner, "SequenceNumber": str(len(kept))})
        return outcomes


class Parallel(Producer):
    _client_class = Service

    def __init__(self, shards: int, answer: Callable[[], Awaitable[object]], **options: Any) -> None:
        refuse = options.pop("refuse", 0.0)
        super().__init__("orders", **{"buffer_time": 0.01, "processor": StringProcessor(), **options})
        self.service.start(shards, answer, refuse=refuse)

    @property
    def service(self) -> Service:
        assert isinstance(self._client, Service)
        return self._client


def run(use: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await use()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize(("calls", "most"), [(1, 1), (3, 3), (100, 8)])
def test_calls_at_the_same_time(calls: int, most: int) -> None:
    async def use() -> None:
        let = asyncio.Event()
        async with Parallel(8, let.wait, parallel_calls=calls) as producer:
            sent = [await producer.put(str(n), f"key {n % 40}") for n in range(400)]
            await until(lambda: len(producer.service.running) == most, "calls", seen=lambda: producer.service.running)
            let.set()
            results = await asyncio.gather(*sent)
        assert producer.service.most == most
        assert len(set(zip(results, (n % 40 for n in range(400)), strict=True))) == 400
        assert all(isinstance(result, PutResult) for result in results)

    run(use)


@pytest.mark.parametrize("ordered", [False, True])
def test_the_order_of_a_key_stays(ordered: bool) -> None:
    """With shards that refuse, answers of all lengths, and callbacks that come one at a time."""
    pauses = random.Random(3)
    calling, flushed = [0], [0]

    async def answer() -> None:
        await asyncio.sleep(pauses.random() / 200)

    async def after(items: Sequence[Any]) -> None:
        calling[0] += 1
        assert calling[0] == 1
        await asyncio.sleep(0.001)
        calling[0] -= 1
        flushed[0] += len(items)

    async def use() -> None:
        options: dict[str, Any] = {"refuse": 0.05, "after_flush_fun": after, "ordered": ordered, "batch_size": 30}
        async with Parallel(6, answer, parallel_calls=4, **options) as producer:
            for n in range(600):
                await producer.put(str(n // 20), f"key {n % 20}")
            await producer.flush()
            assert flushed == [600]
        stored = producer.service.stored
        assert {key for _, key in stored} == {f"key {n}" for n in range(20)}
        assert all(texts == [str(n) for n in range(30)] for texts in stored.values())
        assert producer.service.most > 1

    run(use)


def test_a_call_that_fails_beside_others() -> None:
    """The others are accepted; its records are put when somebody says so."""

    async def use() -> None:
        failures = [ValueError("no"), None, None, None]

        async def answer() -> None:
            await asyncio.sleep(0)
            error = failures.pop() if failures else None
            if error is not None:
                raise error

        async with Parallel(4, answer, parallel_calls=4) as producer:
            for n in range(40):
                await producer.put(str(n), f"key {n}")
            with pytest.raises((ValueError, UnknownException), match="no"):
                await producer.flush()
            await until(lambda: not producer.service.running, "the other calls")
            await producer.flush()
            assert sum(map(len, producer.service.stored.values())) == 40

    run(use)


def test_a_producer_that_is_cancelled_keeps_its_records() -> None:
    async def use() -> None:
        async with Parallel(4, asyncio.Event().wait, parallel_calls=4) as producer:
            for n in range(40):
                await producer.put(str(n), f"key {n}")
            await until(lambda: len(producer.service.running) == 4, "calls")
            closing = asyncio.create_task(producer.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            assert len(producer.unsent) == 40

    run(use)


@pytest.mark.parametrize("calls", [0, 101, 1.5])
def test_how_many(calls: Any) -> None:
    with pytest.raises(ValidationError, match="parallel_calls must be"):
        Producer("orders", parallel_calls=calls)
