"""Fixtures of `fastkcl.kinesis.testing`, which pytest finds by itself where fastkcl is installed.

None of them is asynchronous: they work with every way to run coroutines in a test. The module stands here, not in
`fastkcl.kinesis`, as every run of pytest imports it: it costs those that use no fixture next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # imported by the tests that use a fixture, not by all others
    from fastkcl.kinesis.testing import MemoryStream, MockConsumer, MockKinesisBackend, MockProducer

__all__ = ["kinesis_backend", "kinesis_consumer", "kinesis_producer", "kinesis_stream"]


@pytest.fixture
def kinesis_backend() -> Iterator[type[MockKinesisBackend]]:
    """The `MockKinesisBackend`, without streams before the test and after it."""
    from fastkcl.kinesis.testing import MockKinesisBackend

    MockKinesisBackend.reset()
    yield MockKinesisBackend
    MockKinesisBackend.reset()


@pytest.fixture
def kinesis_stream(kinesis_backend: type[MockKinesisBackend]) -> MemoryStream:
    """A stream of one shard, named ``test-stream``."""
    return kinesis_backend.create_stream("test-stream")


@pytest.fixture
def kinesis_producer(kinesis_stream: MemoryStream) -> MockProducer:
    """A producer of `kinesis_stream`."""
    from fastkcl.kinesis.testing import MockProducer

    return MockProducer(kinesis_stream.name)


@pytest.fixture
def kinesis_consumer(kinesis_stream: MemoryStream) -> MockConsumer:
    """A consumer of `kinesis_stream`, for a test's ``async with``."""
    from fastkcl.kinesis.testing import MockConsumer

    return MockConsumer(kinesis_stream.name)
