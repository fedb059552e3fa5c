"""The stand-ins for tests of programs: streams in memory, mocks, assertions, pytest fixtures."""

import asyncio
import inspect
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator, Sequence
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from fastkcl.kinesis import (
    Consumer,
    ConsumerRecord,
    JsonLineProcessor,
    MemoryCheckPointer,
    OutputItem,
    Producer,
    StreamDoesNotExist,
    StringProcessor,
    ValidationError,
)
from fastkcl.kinesis.testing import (
    MemoryShard,
    MemoryStream,
    MockConsumer,
    MockKinesisBackend,
    MockProducer,
    assert_records_delivered,
    assert_shard_ordering,
    collect_records,
    memory_stream,
)
from paths import ROOT


@pytest.fixture(autouse=True)
def _no_streams() -> Iterator[None]:
    MockKinesisBackend.reset()
    yield
    MockKinesisBackend.reset()


# Streams.


def test_a_shard_keeps_what_it_gets_in_order() -> None:
    shard = MemoryShard("shardId-000000000000")
    assert [shard.put(b"a", "k"), shard.put(b"b", "l")] == ["00000000000000000001", "00000000000000000002"]
    assert shard.record_count == 2
    assert [record[:3] for record in shard.records] == [
        ("00000000000000000001", b"a", "k"),
        ("00000000000000000002", b"b", "l"),
    ]
    shard.seal()
    shard.seal()
    with pytest.raises(RuntimeError, match="shardId-000000000000 is sealed"):
        shard.put(b"c", "k")
    assert shard.record_count == 2


def test_a_key_goes_to_its_shard() -> None:
    stream = MemoryStream("orders", shard_count=3)
    assert [shard.shard_id for shard in stream.shards] == [f"shardId-{number:012}" for number in range(3)]
    for number in range(100):
        stream.put(b"%d" % number, f"k{number}")
    for index, shard in enumerate(stream.shards):
        keys = {record.partition_key for record in shard.records}
        assert keys == {
            f"k{number}"
            for number in range(100)
            if int.from_bytes(md5(b"k%d" % number, usedforsecurity=False).digest()) % 3 == index
        }
        assert [int(record.sequence_number) for record in shard.records] == list(range(1, len(keys) + 1))
    assert (stream.shard_count, stream.record_count, stream.sealed) == (3, 100, False)
    stream.seal()
    assert stream.sealed
    with pytest.raises(ValueError, match="shard_count must be 1 or more, not 0"):
        MemoryStream("orders", 0)


def test_the_backend() -> None:
    stream = MockKinesisBackend.create_stream("orders", shard_count=2)
    assert MockKinesisBackend.get_stream("orders") is stream
    assert MockKinesisBackend.stream_exists("orders")
    assert MockKinesisBackend.create_stream("orders") is not stream
    MockKinesisBackend.reset()
    assert not MockKinesisBackend.stream_exists("orders")
    with pytest.raises(KeyError, match="stream 'orders' does not exist"):
        MockKinesisBackend.get_stream("orders")


def test_a_stream_for_a_block() -> None:
    MockKinesisBackend.create_stream("other")
    with memory_stream("orders", 2) as stream:
        assert stream is MockKinesisBackend.get_stream("orders")
        assert not MockKinesisBackend.stream_exists("other")
    assert not MockKinesisBackend.stream_exists("orders")


# The producer.


def test_a_mock_has_the_arguments_of_the_real_one() -> None:
    assert inspect.signature(MockProducer) == inspect.signature(Producer)
    for name in ("put", "flush", "close", "start"):
        assert inspect.signature(getattr(MockProducer, name)) == inspect.signature(getattr(Producer, name))
    with pytest.raises(ValidationError, match="batch_size"):
        MockProducer("orders", batch_size=501)


def test_records_are_in_the_stream_at_once() -> None:
    async def main() -> None:
        stream = MockKinesisBackend.create_stream("orders")
        told: list[OutputItem] = []

        async def after_flush(items: Sequence[OutputItem]) -> None:
            told.extend(items)

        async with MockProducer("orders", processor=StringProcessor(), after_flush_fun=after_flush) as producer:
            await producer.put("a", "k")
            assert [record[1:3] for record in stream.shards[0].records] == [(b"a", "k")]
            await producer.put("b")
            await producer.put("c")
            assert len({record.partition_key for record in stream.shards[0].records}) == 3
            assert [item.data for item in told] == [b"a", b"b", b"c"]
            assert (producer.queue_size, producer.unsent) == (0, [])
            for key in ("", "x" * 257):
                with pytest.raises(ValidationError, match="a partition key"):
                    await producer.put("d", key)
            stream.seal()
            with pytest.raises(RuntimeError, match="shardId-000000000000 is sealed"):
                await producer.put("d", "k")
        with pytest.raises(RuntimeError, match="the producer of orders is closed"):
            await producer.put("e")

    asyncio.run(main())


def test_an_aggregating_processor_is_flushed() -> None:
    async def main() -> None:
        stream = MockKinesisBackend.create_stream("orders")
        async with MockProducer("orders", processor=JsonLineProcessor()) as producer:
            await producer.put(1, "k")
            await producer.put(2, "k")
            assert stream.record_count == 0
            await producer.flush()
            assert stream.record_count == 1
            await producer.put(3, "k")
        await producer.close()
        assert [record.data for record in stream.shards[0].records] == [b"1\n2\n", b"3\n"]

    asyncio.run(main())


def test_a_stream_that_the_producer_makes_or_misses() -> None:
    async def main() -> None:
        with pytest.raises(StreamDoesNotExist, match="there is no stream orders"):
            await MockProducer("orders").start()
        async with MockProducer("orders", create_stream=True, create_stream_shards=3) as producer:
            assert producer.stream.shard_count == 3
        async with MockProducer("orders", create_stream=True) as again:
            assert again.stream is producer.stream

    asyncio.run(main())


# The consumer.


def test_the_mock_consumer_has_the_arguments_of_the_real_one_and_a_delay() -> None:
    parameters = dict(inspect.signature(MockConsumer).parameters)
    assert parameters.pop("poll_delay").default == 0
    assert parameters == dict(inspect.signature(Consumer).parameters)
    for options in ({"record_limit": 0}, {"poll_delay": -1}, {"idle_timeout": 0}, {"shard_fetch_rate": 6}):
        with pytest.raises(ValueError, match=next(iter(options))):
            MockConsumer("orders", **options)
    with pytest.raises(TypeError, match="unexpected option 'no_such'"):
        MockConsumer("orders", no_such=1)


def test_a_sealed_stream_is_read_to_its_end() -> None:
    async def main() -> None:
        stream = MockKinesisBackend.create_stream("orders", shard_count=3)
        async with MockProducer("orders", processor=JsonLineProcessor()) as producer:
            for number in range(100):
                await producer.put(number, f"k{number % 10}")
        stream.seal()
        async with MockConsumer("orders", processor=JsonLineProcessor(), idle_timeout=None) as consumer:
            read = [item async for item in consumer]
            status = consumer.get_shard_status()
        assert sorted(read) == list(range(100))
        assert_shard_ordering(read, lambda number: number % 10, lambda number: number)
        assert (status["total_shards"], status["closed_shards"]) == (3, 3)

    asyncio.run(main())


def test_what_is_put_while_it_is_read() -> None:
    async def main() -> None:
        async with (
            MockProducer("orders", create_stream=True) as producer,
            MockConsumer("orders", iterator_type="TRIM_HORIZON") as consumer,
        ):
            await producer.put(1)
            reading = asyncio.create_task(collect_records(consumer, count=2, timeout=30))
            await asyncio.sleep(0.01)
            await producer.put(2)
            assert await reading == [1, 2]

    asyncio.run(main())


def test_where_a_mock_consumer_begins() -> None:
    async def main() -> None:
        stream = MockKinesisBackend.create_stream("orders")
        producer = MockProducer("orders")
        await producer.put(1)
        between = stream.shards[0].records[0].approximate_arrival_timestamp
        checkpointer = MemoryCheckPointer()
        async with MockConsumer("orders", iterator_type="LATEST") as latest:
            for number in (2, 3, 4):
                await producer.put(number)
            async with MockConsumer("orders", checkpointer=checkpointer) as first:
                assert await collect_records(first, count=4) == [1, 2, 3, 4]
            stream.seal()
            assert [item async for item in latest] == [2, 3, 4]
        async with MockConsumer("orders", iterator_type="AT_TIMESTAMP", timestamp=between) as at:
            assert [item async for item in at] == [1, 2, 3, 4]
        # The fourth was not acknowledged, as nobody has asked for another one after it.
        assert checkpointer.get_all_checkpoints() == {"shardId-000000000000": f"{3:020}"}
        async with MockConsumer("orders", checkpointer=checkpointer) as again:
            assert [item async for item in again] == [4]

    asyncio.run(main())


def test_records_and_errors_of_a_mock_consumer() -> None:
    async def main() -> None:
        stream = MockKinesisBackend.create_stream("orders")
        stream.put(b"{", "k")
        stream.put(b"1", "l")
        stream.seal()
        left_out: list[ConsumerRecord] = []
        options: dict[str, Any] = {
            "output": "records",
            "on_record_error": lambda record, error: left_out.append(record),
        }
        async with MockConsumer("orders", **options) as consumer:
            (record,) = [record async for record in consumer]
        assert (record.data, record.partition_key, record.sequence_number) == (1, "l", f"{2:020}")
        assert record.approximate_arrival_timestamp is not None
        assert [(bad.data, bad.partition_key) for bad in left_out] == [(b"{", "k")]
        with pytest.raises(StreamDoesNotExist, match="there is no stream nowhere"):
            await MockConsumer("nowhere").open()

    asyncio.run(main())


# Assertions.


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(0)
        yield number
    if count > 5:
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("there", "options", "expected"),
    [(3, {}, 3), (3, {"count": 2}, 2), (3, {"count": 0}, 0), (3, {"count": 9}, 3), (9, {"timeout": 1.0}, 9)],
)
def test_collected_records(there: int, options: dict[str, Any], expected: int) -> None:
    assert asyncio.run(collect_records(numbers(there), **options)) == list(range(expected))


@pytest.mark.parametrize(
    ("records", "fails"),
    [
        ([], False),
        ([("a", 1), ("b", 9), ("a", 1), ("a", 2), ("b", 9)], False),
        ([("a", 2), ("b", 1)], False),
        ([("a", 2), ("b", 1), ("a", 1)], True),
    ],
)
def test_order_within_keys(records: list[tuple[str, int]], fails: bool) -> None:
    def check() -> None:
        assert_shard_ordering(iter(records), lambda record: record[0], lambda record: record[1])

    if fails:
        with pytest.raises(
            AssertionError, match=re.escape("records of key 'a' are not in order: record 2 has 1, after one that has 2")
        ):
            check()
    else:
        check()


class Losing(MockProducer):
    """Does not put the first so many numbers."""

    lost = 0

    async def put(self, data: Any, partition_key: str | None = None) -> None:
        if data >= self.lost:
            await super().put(data, partition_key)


@pytest.mark.parametrize(
    ("lost", "extra", "message"),
    [
        (0, 0, None),
        (1, 0, "1 records are missing: 0; 0 were not put: none"),
        (0, 1, "0 records are missing: none; 1 were not put: -1"),
        (5, 0, "5 records are missing: 0, 1, 2 and 2 more; 0 were not put: none"),
    ],
)
def test_what_was_put_came_out(lost: int, extra: int, message: str | None) -> None:
    async def main() -> list[Any]:
        stream = MockKinesisBackend.create_stream("orders", shard_count=2)
        for _ in range(extra):
            stream.put(b"-1", "k")
        producer = Losing("orders")
        producer.lost = lost
        async with MockConsumer("orders") as consumer:
            return await assert_records_delivered(producer, consumer, range(6), timeout=30)

    if message is None:
        assert sorted(asyncio.run(main())) == [0, 1, 2, 3, 4, 5]
    else:
        with pytest.raises(AssertionError, match=re.escape(message)):
            asyncio.run(main())


# pytest.


def test_the_fixtures_are_there_for_every_run_of_pytest(tmp_path: Path) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        plugins = tomllib.load(file)["project"]["entry-points"]["pytest11"]
    assert list(plugins.values()) == ["fastkcl.pytest_plugin"]
    (tmp_path / "test_orders.py").write_text(
        "import asyncio, sys\n"
        "def test_nothing_is_imported_for_others():\n"
        "    assert 'fastkcl.kinesis' not in sys.modules\n"
        "def test_first(kinesis_producer, kinesis_stream):\n"
        "    assert kinesis_stream.name == 'test-stream' and kinesis_stream.shard_count == 1\n"
        "    asyncio.run(kinesis_producer.put({'a': 1}, 'k'))\n"
        "    assert [record.data for record in kinesis_stream.shards[0].records] == [b'{\"a\": 1}']\n"
        "def test_both(kinesis_producer, kinesis_consumer):\n"
        "    from fastkcl.kinesis.testing import assert_records_delivered\n"
        "    async def main():\n"
        "        async with kinesis_consumer:\n"
        "            await assert_records_delivered(kinesis_producer, kinesis_consumer, [1, 2])\n"
        "    asyncio.run(main())\n"
        "def test_second(kinesis_backend):\n"
        "    assert not kinesis_backend.stream_exists('test-stream')\n"
        "    kinesis_backend.create_stream('left over')\n"
        "def test_third(kinesis_backend, kinesis_stream):\n"
        "    assert not kinesis_backend.stream_exists('left over') and kinesis_stream.record_count == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "fastkcl.pytest_plugin", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout
