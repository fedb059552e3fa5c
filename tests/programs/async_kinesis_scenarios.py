"""A consumer, a producer or a processor as a program sees it; one run for async-kinesis, one for fastkcl.

    python async_kinesis_scenarios.py SCENARIO PACKAGE STREAM

PACKAGE is ``kinesis`` or ``fastkcl.kinesis``. The results come as JSON on standard output. A scenario makes STREAM
itself, at the endpoint and with the credentials of the environment, and imports nothing of the tests: the interpreter
of async-kinesis has none of it.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from aiobotocore.session import AioSession

SHARD = "shardId-000000000000"
Scenario = Callable[[ModuleType], Awaitable[object]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def is_ours(package: ModuleType) -> bool:
    return package.__name__.startswith("fastkcl")


def stream() -> str:
    """One that nobody else has."""
    return sys.argv[3]


class Stream:
    """A stream of the scenario's name, and a client without anything of the two packages."""

    def __init__(self, shards: int = 1) -> None:
        self._shards = shards

    async def __aenter__(self) -> "Stream":
        self._context = AioSession().create_client("kinesis", endpoint_url=os.environ["ENDPOINT"])
        self.client = await self._context.__aenter__()
        await self.client.create_stream(StreamName=stream(), ShardCount=self._shards)
        await self.active()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._context.__aexit__(*error)

    async def active(self) -> None:
        while True:
            told = await self.client.describe_stream_summary(StreamName=stream())
            if told["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE":
                return
            await asyncio.sleep(0.05)

    async def put(self, data: object, hash_key: int = 0) -> None:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        await self.client.put_record(StreamName=stream(), Data=body, PartitionKey="k", ExplicitHashKey=str(hash_key))


def consumer(package: ModuleType, **options: Any) -> Any:
    given = {"endpoint_url": os.environ["ENDPOINT"], "shard_fetch_rate": 5, **options}
    return package.Consumer(stream(), **given)


async def items(package: ModuleType, last: object = None, **options: Any) -> list[Any]:
    """What a consumer gives until it ends by itself.

    That of async-kinesis ends also when it is slow. So it is not waited for where its last item is known.
    """
    idle_timeout = 0.5 if is_ours(package) else 3.0 if last is None else 60.0
    seen: list[Any] = []
    async with consumer(package, idle_timeout=idle_timeout, **options) as reading:
        async for item in reading:
            seen.append(item)
            if item == last and not is_ours(package):
                break
    return seen


# 1
@scenario
async def undecodable_record(package: ModuleType) -> object:
    async with Stream() as kinesis:
        for data in (1, b"{no json", 2):
            await kinesis.put(data)
    options = {"on_record_error": "skip", "idle_timeout": 0.5} if is_ours(package) else {"idle_timeout": 60.0}
    seen: list[Any] = []
    async with consumer(package, **options) as reading:
        async for item in reading:
            seen.append(item)
            if seen.count(item) > 1:
                break
    return seen


# 2
@scenario
async def skip_describe_stream(package: ModuleType) -> object:
    async with Stream() as kinesis:
        await kinesis.put("a")
    return await items(package, skip_describe_stream=True)


# 3
@scenario
async def records_of_a_call(package: ModuleType) -> object:
    calls: list[int] = []
    session = AioSession()
    session.register(
        "provide-client-params.kinesis.PutRecords", lambda params, **_: calls.append(len(params["Records"]))
    )
    processor = package.JsonLineProcessor()
    async with Stream():
        producer = package.Producer(
            stream(), endpoint_url=os.environ["ENDPOINT"], session=session, processor=processor, buffer_time=600
        )
        async with producer:
            for n in range(501):  # each key closes the record of the one before, so one is open when it flushes
                await producer.put(n, partition_key=str(n))
            await producer.flush()
    return {"largest": max(calls), "sum": sum(n for n in calls if n <= 500)}


# 4
@scenario
async def kpl(package: ModuleType) -> object:
    # async-kinesis has it in a module, fastkcl in the package.
    processors = package if hasattr(package, "KPLJsonProcessor") else import_module(f"{package.__name__}.processors")

    def made(processor: Any, values: list[str]) -> list[Any]:
        records = [record for value in values for record in processor.add_item(value)]
        return [*records, *processor.get_items()]

    (aggregate,) = made(processors.KPLJsonProcessor(), ["a", "b"])
    corrupt = aggregate.data[:-1] + bytes([aggregate.data[-1] ^ 1])

    def parse(data: bytes) -> object:
        try:
            return list(processors.KPLJsonProcessor().parse(data))
        except Exception:
            return "error"

    return {
        "whole": parse(aggregate.data),
        "digest": parse(corrupt),
        "plain": parse(b'{"a": 1}'),
        "records": len(made(processors.KPLStringProcessor(max_size=100), ["x" * 20] * 50)),
    }


# 5
@scenario
async def checkpoint_key(package: ModuleType) -> object:
    async with Stream() as kinesis:
        await kinesis.put({"__CHECKPOINT__": {"ShardId": SHARD, "SequenceNumber": "1"}})
        await kinesis.put("a")
    return await items(package, "a")


# 6
@scenario
async def pages_of_shards(package: ModuleType) -> object:
    async with Stream(shards=130), consumer(package, max_shard_consumers=1) as reading:
        await reading.wait_ready()
        return reading.get_shard_status()["total_shards"]


# 7
@scenario
async def netstrings(package: ModuleType) -> object:
    def parse(data: bytes) -> object:
        try:
            return list(package.MsgpackProcessor().parse(data))
        except Exception:
            return "error"

    return {"empty": parse(b""), "comma": parse(b"1:\x01;"), "whole": parse(b"1:\x01,")}


# 8
@scenario
async def merge(package: ModuleType) -> object:
    async with Stream(shards=2) as kinesis:
        shards = (await kinesis.client.list_shards(StreamName=stream()))["Shards"]
        second = int(shards[1]["HashKeyRange"]["StartingHashKey"])
        for n in range(8):
            await kinesis.put(n, second)
        await kinesis.client.merge_shards(
            StreamName=stream(), ShardToMerge=shards[0]["ShardId"], AdjacentShardToMerge=shards[1]["ShardId"]
        )
        await kinesis.active()
        await kinesis.put("child", second)
    return await items(package, "child", record_limit=1)


# 9
@scenario
async def item_of_the_limit(package: ModuleType) -> object:
    processor = package.JsonLineProcessor(max_size=25)
    try:
        records = list(processor.add_item("x" * (25 * 1024 - 2)))
    except Exception as error:
        return type(error).__name__
    return [record.n for record in [*records, *processor.get_items()]]


# 10
@scenario
async def sizes(package: ModuleType) -> object:
    found = {}
    for name in ("JsonListProcessor", "JsonLineProcessor"):
        processor = getattr(package, name)(max_size=25)
        records = [record for n in range(4000) for record in processor.add_item("é" * (n % 9))]
        records += processor.get_items()
        found[name] = all(record.size == len(record.data) for record in records)
    return found


# 11
@scenario
async def hundred_checkpoints(package: ModuleType) -> object:
    async with Stream() as kinesis:
        for n in range(100):
            await kinesis.put({"__CHECKPOINT__": {"ShardId": SHARD, "SequenceNumber": str(n)}})
        await kinesis.put("a")
    return len(await items(package))


# 12
@scenario
async def quiet_shard(package: ModuleType) -> object:
    async with Stream(shards=2) as kinesis:
        for n in range(8):
            await kinesis.put(n)
    return await items(package, record_limit=1, sleep_time_no_records=60)


# 13
@scenario
async def records_without_items(package: ModuleType) -> object:
    async with Stream() as kinesis:
        await kinesis.put(b"\n")
    places = package.MemoryCheckPointer()
    seen = await items(package, processor=package.JsonLineProcessor(), checkpointer=places)
    assert seen == []
    place = places.get_all_checkpoints()[SHARD]
    return bool(place["sequence"] if isinstance(place, dict) else place)


# 14
@scenario
async def json_text(package: ModuleType) -> object:
    import ujson  # it is there: so async-kinesis takes it

    assert ujson.dumps([1, 2]) == "[1,2]"
    (record,) = package.JsonProcessor().add_item({"a": [1, "é/"]})
    return record.data.decode()


# 15
@scenario
async def lost_lease(package: ModuleType) -> object:
    from redis.asyncio import Redis

    key = f"pyredis-{stream()}-{SHARD}"
    others = json.dumps({"ref": f"{stream()}/other", "ts": 9_999_999_999, "sequence": "7"})
    places = package.RedisCheckPointer(stream(), id="me", heartbeat_frequency=30)
    redis = Redis(host=os.environ["REDIS_HOST"], port=int(os.environ["REDIS_PORT"]))
    assert (await places.allocate(SHARD))[0]
    await redis.set(key, others)
    raised = None
    try:
        await places.checkpoint(SHARD, "1")
    except Exception as error:
        raised = type(error).__name__
    kept = (await redis.get(key)).decode() == others
    await redis.aclose()
    return {"raised": raised, "the other's is kept": kept}


# 16
@scenario
async def status_of_no_shards(package: ModuleType) -> object:
    return len(consumer(package).get_shard_status())


# 17
@scenario
async def metadata(package: ModuleType) -> object:
    async with Stream() as kinesis:
        await kinesis.put("a")
    (item,) = await items(package, "a", **({"output": "records"} if is_ours(package) else {}))
    return [getattr(item, "partition_key", None), getattr(item, "shard_id", None), getattr(item, "data", item)]


def main() -> None:
    name, package, _ = sys.argv[1:]
    print(json.dumps(asyncio.run(SCENARIOS[name](import_module(package)))))


if __name__ == "__main__":
    main()
