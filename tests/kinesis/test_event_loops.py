"""Clients and checkpointers in another event loop than the one where they began."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from checkpoint_helpers import ALL_HASH_KEYS, KCL, A, Backend, DynamoDB, Redis
from fastkcl.kinesis import Consumer, Producer
from fastkcl.kinesis.checkpoints import (
    CheckPointer,
    DynamoDBCheckPointer,
    KCLCheckPointer,
    MemoryCheckPointer,
    RedisCheckPointer,
)
from fastkcl.kinesis.exceptions import CheckpointOwnershipConflict
from fastkcl.kinesis.topology import Shard
from fastkcl.local_aws import Fault, LocalAws
from kinesis_helpers import QUICK, numbered, put, stopped_loop, take
from kinesis_helpers import connections_of_ended_loops as connections_of_ended_loops  # a fixture
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import nothing_else_is_left as nothing_else_is_left  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from local_aws_helpers import make_stream, new_name, server_of
from waiting import PATIENCE, until, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:Unclosed (client session|connector):ResourceWarning")
"""Of aiohttp's: the tests leave them."""

KINDS: dict[str, type[Any]] = {
    "memory": MemoryCheckPointer,
    "redis": RedisCheckPointer,
    "dynamodb": DynamoDBCheckPointer,
    "kcl": KCLCheckPointer,
}
ARGUMENTS: dict[str, Callable[[str], tuple[Any, ...]]] = {
    "allocate": lambda _: (A,),
    "begin_at_first": lambda _: (A,),
    "begins_at_first": lambda _: (A,),
    "checkpoint": lambda position: (A, position),
    "close": lambda _: (),
    "deallocate": lambda _: (A,),
    "manual_checkpoint": lambda _: (),
    "position": lambda _: (A,),
    "positions": lambda _: ([],),
    "shard_ended": lambda _: (A,),
    "share": lambda _: ([A],),
    "shards_listed": lambda _: ([Shard(shard_id=A, hash_range=ALL_HASH_KEYS)],),
}
GIVES_BACK = {"close", "deallocate"}
IS_FOR_OWNERS = {"begin_at_first", "checkpoint", "shard_ended"}


@pytest.fixture
def backend(request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch) -> Backend | None:
    if kind == "memory":
        return None
    variables = request.getfixturevalue("redis") if kind == "redis" else server_of(request).environment
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    group = new_name("g")
    if kind == "redis":
        return Redis(group, variables)
    aws = server_of(request)
    return DynamoDB(group, aws) if kind == "dynamodb" else KCL(group, aws)


# Checkpointers.


def coroutines(kind: type[Any]) -> list[str]:
    found = inspect.getmembers(kind, inspect.iscoroutinefunction)
    return [name for name, _ in found if not name.startswith("_")]


CALLS = [(kind, name) for kind, made in KINDS.items() for name in coroutines(made)]


async def begin(backend: Backend | None) -> tuple[CheckPointer, str]:
    """A checkpointer that has a shard, and its position."""
    places: CheckPointer = MemoryCheckPointer() if backend is None else await backend.make("a")
    position = str(10**55) if backend is None else backend.position(1)
    assert (await places.allocate(A))[0]
    await places.checkpoint(A, position)
    return places, position


@pytest.mark.parametrize(("kind", "name"), CALLS)
def test_the_first_call_in_another_event_loop(kind: str, name: str, backend: Backend | None) -> None:
    """Nobody has closed the checkpointer in the first, which has ended."""
    with stopped_loop() as loop:
        places, position = loop.run_until_complete(begin(backend))

    async def main() -> None:
        call = getattr(places, name)(*ARGUMENTS[name](position))
        if name in IS_FOR_OWNERS and backend is not None:
            with pytest.raises(CheckpointOwnershipConflict):  # it is to be taken again
                await call
        else:
            await call
        if backend is not None and name in GIVES_BACK:
            assert backend.stored(A) == (None, position)
        if backend is not None:
            assert await places.allocate(A) == (True, position)
        await places.close()
        if backend is not None:
            assert backend.stored(A) == (None, position)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


@pytest.mark.parametrize(("kind", "name"), [call for call in CALLS if call[0] != "memory"])
def test_a_call_in_another_event_loop_while_the_first_is_there(kind: str, name: str, backend: Backend | None) -> None:
    """It cannot use the connections of the first, and says so; nothing happens."""
    assert backend is not None
    with stopped_loop() as loop:
        places, position = loop.run_until_complete(begin(backend))

        async def main() -> None:
            with pytest.raises(RuntimeError, match="another event loop, which is stopped"):
                await getattr(places, name)(*ARGUMENTS[name](position))

        asyncio.run(main())
        assert backend.stored(A) == (backend.owner("a"), position)
        loop.run_until_complete(places.close())
        assert backend.stored(A) == (None, position)


# Consumers and producers.


async def read_some(stream: str) -> Consumer[Any]:
    consumer = Consumer(stream, checkpointer=KCLCheckPointer(new_name()), **QUICK)
    await take(consumer, 3)
    return consumer


async def open_only(stream: str) -> Consumer[Any]:
    consumer = Consumer(stream, **QUICK)
    await consumer.open()
    return consumer


async def put_some(stream: str) -> Producer:
    producer = Producer(stream, buffer_time=60)
    for n in range(3):
        await producer.put(n)
    return producer


async def put_nothing(stream: str) -> Producer:
    producer = Producer(stream)
    await producer.start()
    return producer


async def put_and_wait(producer: Producer) -> None:
    sent = next(iter(producer._held), None) or next(each for pending in producer._queue for each in pending.tags)
    await producer.wait_for(sent)


USES: dict[str, tuple[Callable[[str], Any], Callable[[Any], Any]]] = {
    "consumer.close": (read_some, lambda consumer: consumer.close()),
    "consumer.open": (read_some, lambda consumer: consumer.open()),
    "consumer.refresh_shards": (read_some, lambda consumer: consumer.refresh_shards()),
    "consumer.wait_ready": (read_some, lambda consumer: consumer.wait_ready()),
    "anext of a consumer": (read_some, lambda consumer: take(consumer, 100)),
    "close of a consumer that was opened": (open_only, lambda consumer: consumer.close()),
    "anext of a consumer that was opened": (open_only, lambda consumer: take(consumer, 1)),
    "producer.close": (put_some, lambda producer: producer.close()),
    "producer.flush": (put_some, lambda producer: producer.flush()),
    "producer.wait_for": (put_some, put_and_wait),
    "producer.put": (put_nothing, lambda producer: producer.put(1)),
    "producer.start": (put_some, lambda producer: producer.start()),
    "close of a producer that has put nothing": (put_nothing, lambda producer: producer.close()),
}
SECONDS = 10.0
"""Less than a step of `close` may take."""


@pytest.mark.parametrize("use", USES)
def test_a_client_in_another_event_loop_while_the_first_is_stopped(aws: LocalAws, stream: str, use: str) -> None:
    """It says so at once, and can still be closed where it began."""
    put(aws, stream, numbered(1, 10))
    begin, then = USES[use]
    with stopped_loop() as loop:
        client = loop.run_until_complete(begin(stream))
        with pytest.raises(RuntimeError, match=f"of {stream} began in another event loop, which is stopped"):
            asyncio.run(asyncio.wait_for(then(client), SECONDS))
        loop.run_until_complete(client.close())
    asyncio.run(client.close())


def test_a_client_in_another_event_loop_while_the_first_runs(stream: str) -> None:
    with stopped_loop() as loop:
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            producer = asyncio.run_coroutine_threadsafe(put_some(stream), loop).result(PATIENCE)
            with pytest.raises(RuntimeError, match="runs in another thread: .*run_coroutine_threadsafe"):
                asyncio.run(asyncio.wait_for(producer.close(), SECONDS))
            asyncio.run_coroutine_threadsafe(producer.close(), loop).result(PATIENCE)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(PATIENCE)


@pytest.mark.parametrize("use", [use for use in USES if "nothing" not in use])
def test_a_client_whose_event_loop_has_ended(aws: LocalAws, stream: str, use: str) -> None:
    put(aws, stream, numbered(1, 10))
    begin, then = USES[use]
    with stopped_loop() as loop:
        client = loop.run_until_complete(begin(stream))
    with pytest.raises(RuntimeError, match="event loop has ended"):
        asyncio.run(asyncio.wait_for(then(client), SECONDS))


# An event loop that ends during a call.


async def consume(stream: str) -> None:
    await take(Consumer(stream, **QUICK), 1)


async def produce(stream: str) -> None:
    producer = Producer(stream, buffer_time=0.01)
    await producer.put(1)
    await producer.flush()


async def produce_in_parallel(stream: str) -> None:
    producer = Producer(stream, buffer_time=0.01, parallel_calls=2)
    await producer.put(1)
    await producer.flush()


async def keep_in_dynamodb(_: str) -> None:
    await DynamoDBCheckPointer(new_name()).allocate(A)


async def keep_in_kcls_table(_: str) -> None:
    places = KCLCheckPointer(new_name())
    await places.shards_listed([Shard(shard_id=A, hash_range=ALL_HASH_KEYS)])
    assert not await places.share([A])
    await places.allocate(A)


CUT_OFF: list[tuple[Callable[[str], Any], Fault]] = [
    (produce, Fault("PutRecords", delay=PATIENCE)),
    (produce_in_parallel, Fault("PutRecords", delay=PATIENCE)),
    (consume, Fault("GetShardIterator", delay=PATIENCE)),
    (consume, Fault("GetRecords", delay=PATIENCE)),
    (keep_in_dynamodb, Fault("UpdateItem", delay=PATIENCE)),
    (keep_in_kcls_table, Fault("Scan", delay=PATIENCE)),
    (keep_in_kcls_table, Fault("GetItem", delay=PATIENCE)),
]


@pytest.mark.parametrize(
    ("work", "fault"), CUT_OFF, ids=[f"{work.__name__}, {fault.op} {fault.skip}" for work, fault in CUT_OFF]
)
def test_a_loop_that_ends_during_a_call(
    own_aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    work: Callable[[str], Any],
    fault: Fault,
) -> None:
    """Its coroutines are collected in any order: the log has asyncio's lines, and ours of an end without close()."""
    for name, value in own_aws.environment.items():
        monkeypatch.setenv(name, value)
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    stream = make_stream(own_aws)
    own_aws.faults(fault)
    tasks = weakref.WeakSet[asyncio.Task[Any]]()

    async def main() -> None:
        working = asyncio.create_task(work(stream))
        await until(lambda: own_aws.hits() == [1], fault.op, seen=own_aws.hits)
        assert not working.done()
        tasks.update(asyncio.all_tasks())

    with stopped_loop() as loop:
        loop.run_until_complete(main())
    # A thread that guards leases has its checkpointer until it sees that the loop has ended.
    wait_until(lambda: gc.collect() >= 0 and not tasks, "all tasks to be collected", seen=lambda: list(tasks))
    # aiohttp's and aiobotocore's own coroutines complain by themselves where they are collected before ours.
    assert not [
        each for each in ignored if "fastkcl/kinesis" in str(getattr(each.object, "cr_code", "fastkcl/kinesis"))
    ]
    ignored.clear()
    ours = [each.getMessage() for each in caplog.records if each.name.startswith("fastkcl")]
    assert not [line for line in ours if "close" not in line]
