"""The type that a type checker gives a consumer's items; mypy, which `make lint` runs, reads the assertions."""

from __future__ import annotations

import inspect
from typing import Any, assert_type

import pytest
from fastkcl import RecordBatch
from fastkcl.kinesis import (
    Consumer,
    ConsumerRecord,
    JsonProcessor,
    KPLStringProcessor,
    NewlineAggregator,
    Processor,
    SimpleAggregator,
    StringProcessor,
    StringSerializer,
)
from fastkcl.kinesis.items.serializers import Serializer
from fastkcl.kinesis.options import StreamOptions
from fastkcl.kinesis.read.acknowledging import AckRecord
from fastkcl.kinesis.read.item_types import ConsumerOptions, Output


class LineProcessor(Processor, NewlineAggregator, StringSerializer):
    pass


class Numbers(Serializer):
    def serialize(self, item: int) -> bytes:
        return b"%d" % item

    def deserialize(self, data: bytes) -> int:
        return int(data)


class NumberProcessor(Processor, SimpleAggregator, Numbers):
    pass


def test_items_have_the_type_that_their_processor_reads() -> None:
    assert_type(Consumer("s", processor=StringProcessor()), Consumer[str])
    assert_type(Consumer("s", processor=KPLStringProcessor(), idle_timeout=None), Consumer[str])
    assert_type(Consumer("s", processor=LineProcessor()), Consumer[str])
    assert_type(Consumer("s", processor=NumberProcessor(), output="items"), Consumer[int])
    assert_type(Consumer("s", processor=JsonProcessor()), Consumer[Any])
    assert_type(Consumer("s"), Consumer[Any])


def test_outputs() -> None:
    assert_type(Consumer("s", output="records"), Consumer[ConsumerRecord])
    assert_type(Consumer("s", output="records", processor=StringProcessor()), Consumer[ConsumerRecord])
    assert_type(Consumer("s", output="records", acknowledge="explicit"), Consumer[AckRecord])
    assert_type(Consumer("s", output="batches", region_name="eu-west-1"), Consumer[RecordBatch])
    chosen: Output = "records"
    assert_type(Consumer("s", output=chosen), Consumer[ConsumerRecord])


def test_the_options_that_a_type_checker_knows_are_the_consumers() -> None:
    untyped = {"stream_name", "processor", "output", "acknowledge", "options"}
    parameters = inspect.signature(Consumer).parameters.items()
    options = {
        name: hint.__forward_arg__
        for name, hint in ConsumerOptions.__annotations__.items()
        if name not in StreamOptions.__annotations__
    }
    assert options == {name: parameter.annotation for name, parameter in parameters if name not in untyped}


def test_a_serializer_alone_is_no_processor() -> None:
    with pytest.raises(TypeError, match="processor must be a processor"):
        Consumer[str]("s", processor=StringSerializer())  # type: ignore[type-var, call-overload]


async def check(consumer: Consumer[str], any_consumer: Consumer) -> None:
    """For the type checker alone."""
    async for item in consumer:
        assert_type(item, str)
    assert_type(await anext(consumer), str)
    assert_type(await anext(any_consumer), Any)
    async with Consumer("s", processor=LineProcessor()) as opened:
        assert_type(await anext(opened), str)
    record = await anext(Consumer("s", output="records", acknowledge="explicit"))
    await record.done()
