"""Shared by tests of the Kinesis consumer: streams of numbered items, and the items that arrived."""

import asyncio
import gc
import json
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from fastkcl.kinesis import Consumer
from fastkcl.leases.guard import Guard
from fastkcl.local_aws import LocalAws
from local_aws_helpers import client, is_open, make_stream, server_of, shards
from waiting import PATIENCE, NotSeenError

QUICK: dict[str, Any] = {
    "shard_fetch_rate": 5,
    "sleep_time_no_records": 0.1,
    "idle_timeout": 0.4,
    "expo_backoff": 0.01,
}
"""Options of a consumer that loses no time. Each shard is asked more than once within the idle_timeout."""


@pytest.fixture(autouse=True)
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's local AWS, for clients without a configuration of their own."""
    for name, value in server_of(request).environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def nothing_else_is_left() -> Iterator[None]:
    """What a test has left is collected within it; its clients and connections are never closed.

    The services' descriptions, which a process loads once, are most of what there is to look through: 30 ms each time.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        if len(gc.get_objects()) > 20_000:
            gc.collect()
            gc.freeze()
        yield
        for thread in threading.enumerate():
            # It has a checkpointer until it sees that the event loop has ended, some seconds later.
            guard = getattr(getattr(thread, "_target", None), "__self__", None)
            if isinstance(guard, Guard):
                guard._closing.set()
                thread.join(PATIENCE)
        gc.collect()


@pytest.fixture(autouse=True)
def connections_of_ended_loops() -> Iterator[None]:
    """Nobody can close them any more. They are collected here, and not in a test that comes later."""
    yield
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda _: None)
        gc.collect()


@contextmanager
def stopped_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs now and then, and ends without cancelling its tasks.

    Its threads end with it: one that lets go of a client between two phases of a test would have the client's warning
    counted as an error of the next phase, where no filter of the test's module is in force yet.
    """
    loop = asyncio.new_event_loop()
    loop.set_default_executor(threads := ThreadPoolExecutor())
    try:
        yield loop
    finally:
        loop.close()
        threads.shutdown()


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    """A new stream of one shard."""
    return make_stream(server_of(request))


def put(aws: LocalAws, stream: str, items: Iterable[Any], *, key: str | None = None) -> None:
    """Put items as JSON; each has the key that it is for: ``{"key": …, "n": …}``, unless there is one for all."""
    kinesis = client(aws)
    entries = [
        {"Data": json.dumps(item).encode(), "PartitionKey": str(item["key"]) if key is None else key} for item in items
    ]
    for start in range(0, len(entries), 500):
        answer = kinesis.put_records(StreamName=stream, Records=entries[start : start + 500])
        assert not answer["FailedRecordCount"]


def numbered(keys: int, each: int, start: int = 0) -> list[dict[str, int]]:
    """Items of several keys, in turn, each numbered within its key."""
    return [{"key": key, "n": n} for n in range(start, start + each) for key in range(keys)]


def in_order(items: Sequence[dict[str, int]]) -> dict[int, list[int]]:
    """The numbers of each key, as they arrived."""
    arrived: dict[int, list[int]] = {}
    for item in items:
        arrived.setdefault(item["key"], []).append(item["n"])
    return arrived


def assert_each_once(items: Sequence[dict[str, int]], keys: int, each: int) -> None:
    """All items arrived, once, in the order of their key."""
    assert in_order(items) == {key: list(range(each)) for key in range(keys)}


def assert_at_least_once(items: Sequence[dict[str, int]], keys: int, each: int) -> None:
    """All items arrived, and those that arrived first are in the order of their key."""
    firsts = {key: list(dict.fromkeys(numbers)) for key, numbers in in_order(items).items()}
    assert firsts == {key: list(range(each)) for key in range(keys)}


async def take(consumer: Consumer, count: int) -> list[Any]:
    """So many items, whatever the idle_timeout, and not one more asked for."""
    items: list[Any] = []
    idle_timeout, consumer._idle_timeout = consumer._idle_timeout, None
    try:
        while len(items) < count:
            items.append(await asyncio.wait_for(anext(consumer), PATIENCE))
    except TimeoutError:
        raise NotSeenError(f"waited {PATIENCE:g} s for item {len(items) + 1} of {count}; seen: {items}") from None
    finally:
        consumer._idle_timeout = idle_timeout
    return items


async def take_all(consumer: Consumer, least: int = 0) -> list[Any]:
    """Items until nothing comes any more.

    Args:
        consumer: of the items.
        least: so many are waited for. What is put while the consumer reads can come later than its idle_timeout.
    """
    return await take(consumer, least) + [item async for item in consumer]


def open_shards(aws: LocalAws, stream: str) -> list[dict[str, Any]]:
    return [shard for shard in shards(client(aws), stream) if is_open(shard)]


def split(aws: LocalAws, stream: str, shard: dict[str, Any]) -> None:
    """Split a shard in the middle."""
    low, high = (int(shard["HashKeyRange"][name]) for name in ("StartingHashKey", "EndingHashKey"))
    client(aws).split_shard(
        StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((low + high) // 2 + 1)
    )


def merge(aws: LocalAws, stream: str, shard: dict[str, Any], other: dict[str, Any]) -> None:
    client(aws).merge_shards(StreamName=stream, ShardToMerge=shard["ShardId"], AdjacentShardToMerge=other["ShardId"])


def counters(metrics: Any, name: str) -> Counter[str]:
    """A counter's values by what its labels say: ``error_type``."""
    found: Counter[str] = Counter()
    for key, value in metrics.counters.items():
        if key.startswith(name):
            labels = dict(pair.split("=") for pair in key.partition("{")[2].rstrip("}").split(",") if pair)
            found[labels.get("error_type", "")] += int(value)
    return found
