"""Producers and consumers that a program leaves without close(): the log says, once, what that costs."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from fastkcl.kinesis import (
    Consumer,
    DynamoDBCheckPointer,
    JsonLineProcessor,
    KCLCheckPointer,
    MemoryCheckPointer,
    Producer,
    RedisCheckPointer,
)
from fastkcl.kinesis.checkpoints.base import CheckPointer
from fastkcl.kinesis.unclosed import Watched
from fastkcl.local_aws import LocalAws
from kinesis_helpers import QUICK, numbered, put, stopped_loop, take
from kinesis_helpers import connections_of_ended_loops as connections_of_ended_loops  # a fixture
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import nothing_else_is_left as nothing_else_is_left  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from local_aws_helpers import SHARD_0, new_name
from waiting import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore:Unclosed (client session|connector):ResourceWarning")
"""Of aiohttp's: the tests leave them."""

T = TypeVar("T")

LATE: dict[str, Any] = {"buffer_time": 60}


def run_and_stop(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run it in an event loop that ends without cancelling its tasks."""
    with stopped_loop() as loop:
        return loop.run_until_complete(main())


def run_and_cancel(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return asyncio.run(main())


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """Lines of this level or above, of ours."""
    gc.collect()
    return [each.getMessage() for each in caplog.records if each.levelno >= level and each.name.startswith("fastkcl.k")]


ENDS = pytest.mark.parametrize("run", [run_and_stop, run_and_cancel], ids=["loop.close", "asyncio.run"])


@ENDS
def test_a_producer_that_nobody_closes(stream: str, caplog: pytest.LogCaptureFixture, run: Callable[..., Any]) -> None:
    async def main() -> None:
        producer = Producer(stream, **LATE)
        for n in range(3):
            await producer.put(n)

    run(main)
    (line,) = said(caplog, logging.ERROR)
    assert line.startswith(f"the producer of {stream} ")
    assert line.endswith(": 3 records are not in the stream")


@ENDS
def test_a_producers_close_that_is_cut_off(
    stream: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    called = asyncio.Event()

    async def put_records(*_: object) -> None:
        called.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(Producer, "_put_records", put_records)

    async def main() -> list[Any]:
        producer = Producer(stream, **LATE)
        for n in range(3):
            await producer.put(n)
        closing = asyncio.create_task(producer.close())
        await called.wait()
        return [producer, closing]

    left = run(main)
    assert len(left[0].unsent) == 3
    left.clear()
    (line,) = said(caplog, logging.ERROR)
    assert line.startswith(f"the producer of {stream} was ")
    assert line.endswith(": 3 records are not in the stream")


@ENDS
@pytest.mark.parametrize("end", [Producer.flush, Producer.close])
def test_a_producer_that_has_put_everything(
    stream: str, caplog: pytest.LogCaptureFixture, run: Callable[..., Any], end: Callable[..., Any]
) -> None:
    async def main() -> None:
        producer = Producer(stream, **LATE)
        await producer.put(1)
        await end(producer)

    run(main)
    assert not said(caplog, logging.WARNING)


def test_a_close_that_fails_says_it_itself(
    stream: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def put_records(*_: object) -> None:
        raise ValueError("too blue")

    monkeypatch.setattr(Producer, "_put_records", put_records)

    async def main() -> None:
        producer = Producer(stream, **LATE)
        await producer.put(1)
        with pytest.raises(ValueError, match="too blue"):
            await producer.close()

    asyncio.run(main())
    assert not said(caplog, logging.ERROR)


def test_a_producer_is_closed_in_another_loop(stream: str) -> None:
    """Nothing can be put any more, and nobody waits for it."""

    async def main() -> Producer:
        producer = Producer(stream, **LATE)
        await producer.put(1)
        return producer

    producer = run_and_stop(main)
    for end in (producer.flush, producer.close):
        with pytest.raises(RuntimeError, match="its event loop has ended"):
            asyncio.run(asyncio.wait_for(end(), PATIENCE))
    assert len(producer.unsent) == 1


PROGRAM = """
import asyncio, logging, os, sys
from fastkcl.kinesis import Producer

logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", filename=sys.argv[3])

async def main():
    producer = Producer(sys.argv[1], buffer_time=60)
    for n in range(3):
        await producer.put(n)
    return producer

loop = asyncio.new_event_loop()
kept = loop.run_until_complete(main())
loop.close()
if sys.argv[2] == "fork":
    child = os.fork()
    if not child:
        del kept
        sys.exit()
    os.waitpid(child, 0)
elif sys.argv[2] == "exit":
    sys.exit(3)
elif sys.argv[2] == "error":
    raise RuntimeError
"""


@pytest.mark.parametrize("end", ["end", "exit", "error", "fork"])
def test_a_process_that_ends(aws: LocalAws, stream: str, tmp_path: Path, end: str) -> None:
    """Also with a file for the log, which is closed early, and with a child that has a copy of the producer."""
    lines = tmp_path / "log"
    subprocess.run(
        [sys.executable, "-c", PROGRAM, stream, end, lines],
        env={**os.environ, **aws.environment},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    ours = [line for line in lines.read_text().splitlines() if " fastkcl." in line]
    named = f"ERROR fastkcl.kinesis.write.producer: the producer of {stream} "
    assert ours == [named + "was not closed: 3 records are not in the stream"]


CHILDREN = """
import asyncio, logging, logging.handlers, multiprocessing, sys
from fastkcl.kinesis import Producer

async def put(stream):
    producer = Producer(stream, buffer_time=60)
    for n in range(3):
        await producer.put(n)
    return producer

def child(stream, queue, fails):
    global kept
    logging.getLogger().handlers[:] = [logging.handlers.QueueHandler(queue)]
    loop = asyncio.new_event_loop()
    kept = loop.run_until_complete(put(stream))
    loop.close()
    if fails:
        raise ValueError

if __name__ == "__main__":
    stream, method, parent = sys.argv[1:]
    processes = multiprocessing.get_context(method)
    if parent == "has one":
        kept_by_parent = asyncio.run(put(stream))
    queue = processes.Queue()
    for fails in (False, True):
        process = processes.Process(target=child, args=(stream, queue, fails))
        process.start()
        print(queue.get(timeout=60).getMessage())
        process.join()
"""


@pytest.mark.parametrize("parent", ["has none", "has one"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_multiprocessing(aws: LocalAws, stream: str, tmp_path: Path, method: str, parent: str) -> None:
    """Also with the log in a queue, which ends early; a parent's producer is not theirs."""
    program = tmp_path / "program.py"
    program.write_text(CHILDREN)
    done = subprocess.run(
        [sys.executable, program, stream, method, parent],
        env={**os.environ, **aws.environment},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    line = f"the producer of {stream} was not closed: 3 records are not in the stream"
    assert done.stdout.splitlines() == [line, line]


# Consumers.


def reader(stream: str, **options: Any) -> Consumer[Any]:
    return Consumer(stream, **{"checkpointer": KCLCheckPointer(new_name()), **QUICK, **options})


@ENDS
def test_a_consumer_that_nobody_closes(
    aws: LocalAws, stream: str, caplog: pytest.LogCaptureFixture, run: Callable[..., Any]
) -> None:
    """The third item is not acknowledged."""
    put(aws, stream, numbered(1, 10))

    async def main() -> None:
        await take(reader(stream), 3)

    run(main)
    (line,) = said(caplog, logging.WARNING)
    assert line.startswith(f"the consumer of {stream} was not closed: records that are acknowledged come again")
    assert line.endswith(f": {SHARD_0} 2")


@ENDS
def test_it_is_said_before_the_next_one_reads_on(
    aws: LocalAws, stream: str, caplog: pytest.LogCaptureFixture, run: Callable[..., Any]
) -> None:
    """The program keeps the first; when all is read, nothing is left to be said of it."""
    put(aws, stream, numbered(1, 10))
    places = KCLCheckPointer(new_name())

    async def first() -> Consumer[Any]:
        consumer = reader(stream, checkpointer=places)
        await take(consumer, 3)
        return consumer

    async def second() -> None:
        async with reader(stream, checkpointer=places) as consumer:
            await take(consumer, 1)
            (line,) = said(caplog, logging.WARNING)
            assert line.startswith(f"the consumer of {stream} was not closed before its event loop ended: ")
            assert line.endswith(f"come again to whoever continues, since their positions are not written: {SHARD_0} 2")
            await take(consumer, 9)

    kept = run(first)
    assert not said(caplog, logging.WARNING)
    asyncio.run(second())
    caplog.clear()
    del kept
    assert not said(caplog, logging.WARNING)


def test_explicit_acknowledgements_that_nobody_writes(
    aws: LocalAws, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(aws, stream, numbered(1, 10))

    async def main() -> None:
        consumer = reader(stream, output="records", acknowledge="explicit", checkpoint_interval=60)
        for record in await take(consumer, 10):
            consumer.ack(record)

    asyncio.run(main())
    (line,) = said(caplog, logging.WARNING)
    assert line.endswith(f": {SHARD_0} 10")


def test_a_consumers_close_that_is_cut_off(
    aws: LocalAws, stream: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(aws, stream, numbered(1, 10))
    called = asyncio.Event()

    async def write_last(*_: object) -> None:
        called.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(Consumer, "_write_last", write_last)

    async def main() -> asyncio.Task[None]:
        consumer = reader(stream)
        await take(consumer, 3)
        closing = asyncio.create_task(consumer.close())
        await called.wait()
        return closing

    asyncio.run(main())
    (line,) = said(caplog, logging.WARNING)
    assert line.startswith(f"the consumer of {stream} was cut off in close(): ")
    assert line.endswith(f": {SHARD_0} 2")


@ENDS
@pytest.mark.parametrize("how", ["closed", "written", "in memory"])
def test_a_consumer_that_loses_nothing(
    aws: LocalAws, stream: str, caplog: pytest.LogCaptureFixture, run: Callable[..., Any], how: str
) -> None:
    put(aws, stream, numbered(1, 10))

    async def main() -> None:
        consumer = reader(stream, **({"checkpointer": MemoryCheckPointer()} if how == "in memory" else {}))
        if how == "written":
            assert len([item async for item in consumer]) == 10
        else:
            await take(consumer, 3)
        if how == "closed":
            await consumer.close()

    run(main)
    assert not said(caplog, logging.WARNING)


@ENDS
def test_its_shards_are_free_for_the_next_one(aws: LocalAws, stream: str, run: Callable[..., Any]) -> None:
    """They share a checkpointer, and the program still has the first of them."""
    put(aws, stream, numbered(1, 10))
    kept = MemoryCheckPointer()

    async def main() -> Consumer[Any]:
        consumer = reader(stream, checkpointer=kept)
        await take(consumer, 3)
        return consumer

    first = run(main)
    assert not first._is_closed
    run(main)


MAKERS: dict[str, Callable[[str], CheckPointer]] = {
    "memory": MemoryCheckPointer,
    "redis": RedisCheckPointer,
    "dynamodb": DynamoDBCheckPointer,
    "kcl": KCLCheckPointer,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_its_checkpointer_in_another_event_loop(
    aws: LocalAws, redis: dict[str, str], stream: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Leases and connections are made anew; the first consumer can only say what is lost."""
    for name, value in redis.items():
        monkeypatch.setenv(name, value)
    put(aws, stream, numbered(1, 100))
    kept = MAKERS[kind](new_name())
    options: dict[str, Any] = {"checkpointer": kept, "record_limit": 10}

    async def first() -> Consumer[Any]:
        consumer = reader(stream, **options)
        await take(consumer, 25)
        return consumer

    async def second() -> list[Any]:
        async with reader(stream, **options) as consumer:
            return await take(consumer, 80)

    unclosed = asyncio.run(first())
    assert [item["n"] for item in asyncio.run(second())] == list(range(20, 100))
    with pytest.raises(RuntimeError, match="the event loop has ended"):
        asyncio.run(unclosed.close())


def test_who_closes_it_too_waits_for_the_first(aws: LocalAws, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that ends after its close() has its positions."""
    put(aws, stream, numbered(1, 10))
    called, gate = asyncio.Event(), asyncio.Event()
    write_last = Consumer._write_last

    async def slow(consumer: Consumer[Any]) -> None:
        called.set()
        await gate.wait()
        await write_last(consumer)

    monkeypatch.setattr(Consumer, "_write_last", slow)
    kept = MemoryCheckPointer()

    async def main() -> None:
        consumer = reader(stream, checkpointer=kept)
        await take(consumer, 3)
        first = asyncio.create_task(consumer.close())
        await called.wait()
        second = asyncio.create_task(consumer.close())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not second.done()
        gate.set()
        await second
        assert first.done()

    asyncio.run(main())
    assert kept.get_all_checkpoints()[SHARD_0] is not None


# Records of several items.


@pytest.mark.parametrize("acknowledge", ["next", "explicit"])
@pytest.mark.parametrize(("taken", "left"), [(1, 0), (2, 1), (3, 2), (4, 0), (5, 1), (6, 2)])
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_record_of_which_not_all_items_are_acknowledged(
    stream: str, caplog: pytest.LogCaptureFixture, acknowledge: Any, taken: int, left: int, is_closed: bool
) -> None:
    """Two records of three lines: the one comes again with all of them, and that is said."""
    places = KCLCheckPointer(new_name())
    options: dict[str, Any] = {"checkpointer": places, "processor": JsonLineProcessor()}
    if acknowledge == "explicit":
        options |= {"output": "records", "acknowledge": "explicit"}

    async def main() -> list[Any]:
        async with Producer(stream, processor=JsonLineProcessor(), **LATE) as producer:
            for n in range(6):
                await producer.put(n, partition_key=f"key-{n // 3}")
        consumer = reader(stream, **options)
        for record in (await take(consumer, taken))[:-1]:
            if acknowledge == "explicit":
                consumer.ack(record)
        if is_closed:
            await consumer.close()
            lines[:] = said(caplog, logging.WARNING)
            async with reader(stream, **options | {"checkpointer": KCLCheckPointer(places._name)}) as rest:
                again = [record.data if acknowledge == "explicit" else record async for record in read(rest)]
                assert again == list(range(6))[(taken - 1) // 3 * 3 :]
        return []

    async def read(consumer: Consumer[Any]) -> Any:
        async for record in consumer:
            yield record
            if acknowledge == "explicit":
                consumer.ack(record)

    lines: list[str] = []
    run_and_cancel(main)
    lines = lines or ([] if is_closed else said(caplog, logging.WARNING))
    found = [line for line in lines if "comes again with all of its items" in line]
    assert [line[-20:] for line in found] == ([f"h {left} are acknowledged"] if left else [])


class Nothing(Watched):
    """A client without a stream."""

    _kind = "client"

    @property
    def stream_name(self) -> str:
        return "none"

    def report_unclosed(self, why: str) -> None:
        """Say nothing."""


def test_clients_begin_and_end_in_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[BaseException] = []
    switching = sys.getswitchinterval()

    async def begin_and_end() -> None:
        clients = [Nothing() for _ in range(20)]
        for client in clients:
            client.watch()
        for client in clients:
            client.unwatch()

    def work() -> None:
        try:
            for _ in range(50):
                asyncio.run(begin_and_end())
        except BaseException as error:
            failed.append(error)
            raise

    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # `failed` has the error
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    finally:
        sys.setswitchinterval(switching)
    assert not failed
