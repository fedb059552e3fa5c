"""Processors convert items to records and back. Each is an aggregator and a serializer in one class.

Write your own from the same two parts:

    class LineProcessor(Processor, NewlineAggregator, StringSerializer):
        pass
"""

from __future__ import annotations

from fastkcl.kinesis.items.aggregators import (
    KPLAggregator,
    ListAggregator,
    NetstringAggregator,
    NewlineAggregator,
    SimpleAggregator,
)
from fastkcl.kinesis.items.serializers import JsonSerializer, MsgpackSerializer, StringSerializer

__all__ = [
    "JsonLineProcessor",
    "JsonListProcessor",
    "JsonProcessor",
    "KPLJsonProcessor",
    "KPLStringProcessor",
    "MsgpackProcessor",
    "Processor",
    "StringProcessor",
]


class Processor:
    """Base class of processors."""


class StringProcessor(Processor, SimpleAggregator, StringSerializer):
    """A text a record."""


class JsonProcessor(Processor, SimpleAggregator, JsonSerializer):
    """A JSON value a record."""


class JsonLineProcessor(Processor, NewlineAggregator, JsonSerializer):
    """JSON values, one a line."""


class JsonListProcessor(Processor, ListAggregator, JsonSerializer):
    """JSON values in a list, which is one item when it is read."""


class MsgpackProcessor(Processor, NetstringAggregator, MsgpackSerializer):
    """Msgpack values in netstrings."""


class KPLJsonProcessor(Processor, KPLAggregator, JsonSerializer):
    """JSON values in KPL aggregates."""


class KPLStringProcessor(Processor, KPLAggregator, StringSerializer):
    """Texts in KPL aggregates."""
