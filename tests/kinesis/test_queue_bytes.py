"""Records that are fetched ahead are bounded in bytes, over all shards, in a process that is measured."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from fastkcl import BatchProcessor, Checkpointer, RecordBatch, ShardContext, _core
from fastkcl.kinesis import (
    Consumer,
    JsonProcessor,
    KPLStringProcessor,
    MemoryCheckPointer,
    StringProcessor,
    run_processors,
)
from fastkcl.kinesis.read import fetch
from fastkcl.kinesis.read.budget import MAX_QUEUE_BYTES
from fastkcl.local_aws import LocalAws
from kinesis_helpers import QUICK, take, take_all
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from kinesis_programs import last_line, program, put_texts
from local_aws_helpers import SHARD_0, client, make_stream
from waiting import PATIENCE, until

MB = 1_000_000


def texts(count: int, size: int) -> list[str]:
    return [f"{number:06} ".ljust(size, "x") for number in range(count)]


def test_a_hundred_shards_of_large_records(own_aws: LocalAws) -> None:
    stream = make_stream(own_aws, 100)
    with program(own_aws, "kinesis_memory.py", stream, 200) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "idle\n"
        put_texts(own_aws, stream, texts(200, MB), shards=100)
        told = last_line(process, seconds=4 * PATIENCE)
    assert told["records"] == 200
    assert told["grown"] <= 1.2 * MAX_QUEUE_BYTES
    assert told["fetched"] >= MAX_QUEUE_BYTES / 4  # and it does fetch ahead


def watched(consumer: Consumer, most: list[int]) -> None:
    """Have the most bytes that were reserved at a time noted."""
    shared = consumer._stream.budget
    change = shared._change

    def noted(*arguments: Any) -> None:
        change(*arguments)
        most.append(shared.used)

    shared._change = noted  # type: ignore[method-assign]


def consume(stream: str, most: list[int], **options: Any) -> list[Any]:
    async def main() -> list[Any]:
        async with Consumer(stream, **{**QUICK, "processor": StringProcessor(), **options}) as consumer:
            watched(consumer, most)
            items = await take_all(consumer)
        assert consumer._stream.budget.used == 0
        return items

    return asyncio.run(main())


@pytest.mark.parametrize("options", [{}, {"output": "batches"}, {"max_queue_size": 1}])
def test_a_record_above_the_bound_comes_alone(aws: LocalAws, options: dict[str, Any]) -> None:
    """Whatever there is to read, no more than one of them is in memory at a time."""
    stream = make_stream(aws, 2)
    put_texts(aws, stream, texts(6, MB), shards=2)
    most: list[int] = []
    items = consume(stream, most, max_queue_bytes=100_000, **options)
    assert sum(map(len, items)) == (6 if options.get("output") == "batches" else 6 * MB)
    assert max(most) < 6 * MB  # 3.5 bodies of 1.33 MB, and what a connection buffers; two would be 10


def test_fewer_records_are_asked_for_where_they_are_large(aws: LocalAws) -> None:
    stream = make_stream(aws)
    put_texts(aws, stream, texts(30, 100_000))
    batches = consume(stream, [], output="batches", max_queue_bytes=2 * MB)
    assert sum(map(len, batches)) == 30
    assert max(map(len, batches[1:])) <= 3


def test_many_small_records_come_as_ever(aws: LocalAws) -> None:
    stream = make_stream(aws)
    put_texts(aws, stream, texts(3000, 20))
    assert list(map(len, consume(stream, [], output="batches"))) == [3000]


def test_an_answer_that_finds_no_room_is_let_go_of(
    own_aws: LocalAws, stream: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its body is not read, and it comes again when there is room."""
    monkeypatch.setattr(fetch, "QUEUE_FULL_SECONDS", 0.05)
    put_texts(own_aws, stream, texts(2, 10))

    async def main() -> list[str]:
        async with Consumer(
            stream, **QUICK, processor=StringProcessor(), max_queue_bytes=MB, record_limit=1
        ) as consumer:
            items = await take(consumer, 1)
            await asyncio.to_thread(put_texts, own_aws, stream, texts(4, MB))
            await until(lambda: "is let go of" in caplog.text, "the bound", seen=lambda: caplog.text)
            return items + await take_all(consumer, 5)

    items = asyncio.run(main())
    assert [len(item) for item in items] == [10, 10, MB, MB, MB, MB]
    assert "max_queue_bytes" in caplog.text


@pytest.mark.parametrize("deaggregate", [True, False])
def test_aggregates_that_grow(aws: LocalAws, stream: str, deaggregate: bool) -> None:
    """80 kB become 20 MB: the bytes that they become count, and nothing is lost."""
    aggregate = _core.Aggregate()
    for _ in range(10_000):
        aggregate.add("k" * 200, b"1")
    for _ in range(3):
        client(aws).put_record(StreamName=stream, PartitionKey="k", Data=aggregate.encode())
    most: list[int] = []
    processor = KPLStringProcessor() if deaggregate else JsonProcessor()
    options = {"output": "batches", "deaggregate": deaggregate, "processor": processor, "max_queue_bytes": MB}
    batches = consume(stream, most, **options)
    assert sum(map(len, batches)) == (30_000 if deaggregate else 3)
    if deaggregate:
        assert max(most) >= 3 * MB


def test_a_processor_that_stands_still_leaves_room_for_other_shards(aws: LocalAws) -> None:
    stream, kinesis = make_stream(aws, 2), client(aws)
    others: list[bytes | None] = []
    stands, go_on = threading.Event(), threading.Event()

    class Stands(BatchProcessor):
        def initialize(self, context: ShardContext) -> None:
            self.shard_id = context.shard_id

        def process_batch(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
            del checkpointer
            if self.shard_id != SHARD_0:
                others.extend(record.data for record in batch)
            elif batch.num_rows:
                stands.set()
                go_on.wait()

    def put(number: int, *, hash_key: int) -> None:
        data = str(number).encode().ljust(MB // 5)
        kinesis.put_record(StreamName=stream, Data=data, PartitionKey="a", ExplicitHashKey=str(hash_key))

    async def main() -> None:
        stop = asyncio.Event()
        options: dict[str, Any] = {**QUICK, "idle_timeout": None, "stop": stop, "max_queue_bytes": 4 << 20}
        running = asyncio.create_task(run_processors(stream, Stands, checkpointer=MemoryCheckPointer(), **options))
        try:
            await until(stands.is_set, "a processor that stands still")
            for number in range(20):
                await asyncio.to_thread(put, number, hash_key=1 << 127)
                await until(lambda count=number + 1: len(others) == count, "the other shard's record")  # type: ignore[misc]
        finally:
            go_on.set()
            stop.set()
            await running

    for number in range(40):
        put(number, hash_key=0)
    asyncio.run(main())
    assert [int(data or b"") for data in others] == list(range(20))
