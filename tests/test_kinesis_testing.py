"""What tests of programs get: streams in memory, mocks, assertions, pytest fixtures."""

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
    JsonLineProcessor,
    OutputItem,
    Producer,
    StreamDoesNotExist,
    StringProcessor,
    ValidationError,
)
from fastkcl.kinesis.testing import (
    MemoryShard,
    MemoryStream,
    MockKinesisBackend,
    MockProducer,
    assert_shard_ordering,
    collect_records,
    memory_stream,
)

ROOT = Path(__file__).parent.parent


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
    with pytest.raises(KeyError, match="there is no stream 'orders'"):
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


# Assertions.


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(0)
        yield number
    if count > 5:
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("there", "options", "expected"),
    [(3, {}, 3), (3, {"count": 2}, 2), (3, {"count": 0}, 0), (3, {"count": 9}, 3), (9, {"timeout": 0.05}, 9)],
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
        with pytest.raises(AssertionError, match=re.escape("record 2 of key 'a' has 1, after one that has 2")):
            check()
    else:
        check()


# pytest.


def test_the_fixtures_are_there_for_every_run_of_pytest(tmp_path: Path) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        plugins = tomllib.load(file)["project"]["entry-points"]["pytest11"]
    assert list(plugins.values()) == ["fastkcl.kinesis.pytest_plugin"]
    (tmp_path / "test_orders.py").write_text(
        "import asyncio, sys\n"
        "def test_nothing_is_imported_for_others():\n"
        "    assert 'fastkcl.kinesis.testing' not in sys.modules\n"
        "def test_first(kinesis_producer, kinesis_stream):\n"
        "    assert kinesis_stream.name == 'test-stream' and kinesis_stream.shard_count == 1\n"
        "    asyncio.run(kinesis_producer.put({'a': 1}, 'k'))\n"
        "    assert [record.data for record in kinesis_stream.shards[0].records] == [b'{\"a\": 1}']\n"
        "def test_second(kinesis_backend):\n"
        "    assert not kinesis_backend.stream_exists('test-stream')\n"
        "    kinesis_backend.create_stream('left over')\n"
        "def test_third(kinesis_backend, kinesis_stream):\n"
        "    assert not kinesis_backend.stream_exists('left over') and kinesis_stream.record_count == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "fastkcl.kinesis.pytest_plugin", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
