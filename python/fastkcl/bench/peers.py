"""Peers: what one would write without fastkcl to turn a processRecords line into a pyarrow.RecordBatch.

Each is a function from the line's bytes to the batch in the canonical schema, written as well as the library
allows in a few lines: typed decoding where it has that, fast base64 beside it, one pyarrow array a column.
Nulls are kept.
"""

import base64
import importlib.metadata
import json
from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any

import kclpy_steps
import msgspec
import orjson
import pyarrow as pa
import pybase64
import simdjson
from arrow_columns import kclpy_records_to_arrow, to_arrow
from fastkcl import _core

_FIELDS = [
    itemgetter(name)
    for name in ("data", "partitionKey", "sequenceNumber", "subSequenceNumber", "approximateArrivalTimestamp")
]


def _from_dictionaries(records: Any, decode: Callable[[Any], bytes]) -> pa.RecordBatch:
    data, *others = ([get(record) for record in records] for get in _FIELDS)
    return to_arrow([None if text is None else decode(text) for text in data], *others)


_decoder = _core.Decoder()


def fastkcl(line: bytes) -> pa.RecordBatch:
    """The incremental decoder, as a child uses it: one for all lines."""
    _decoder.feed(line)
    message = next(_decoder)
    assert isinstance(message, _core.ProcessRecords)
    return pa.record_batch(message.batch)


def stdlib(line: bytes) -> pa.RecordBatch:
    """Python's json and base64."""
    return _from_dictionaries(json.loads(line)["records"], base64.b64decode)


def orjson_pybase64(line: bytes) -> pa.RecordBatch:
    """A fast general JSON parser and SIMD base64."""
    return _from_dictionaries(orjson.loads(line)["records"], lambda text: pybase64.b64decode(text, validate=True))


_simdjson = simdjson.Parser()


def pysimdjson_pybase64(line: bytes) -> pa.RecordBatch:
    """The simdjson parser through its Python objects, and SIMD base64."""
    records = _simdjson.parse(line)["records"].as_list()
    return _from_dictionaries(records, lambda text: pybase64.b64decode(text, validate=True))


class _Record(msgspec.Struct, gc=False):
    data: bytes | None
    partitionKey: str  # noqa: N815  the wire's names
    sequenceNumber: str  # noqa: N815
    approximateArrivalTimestamp: int | None = None  # noqa: N815
    subSequenceNumber: int | None = None  # noqa: N815


class _Message(msgspec.Struct, gc=False):
    records: list[_Record]


_msgspec = msgspec.json.Decoder(_Message)
_ATTRIBUTES = [
    attrgetter(name)
    for name in ("data", "partitionKey", "sequenceNumber", "subSequenceNumber", "approximateArrivalTimestamp")
]


def msgspec_typed(line: bytes) -> pa.RecordBatch:
    """Typed structures; msgspec decodes base64 for `bytes` by itself."""
    records = _msgspec.decode(line).records
    return to_arrow(*([get(record) for record in records] for get in _ATTRIBUTES))


def _original_decoder() -> tuple[str, Callable[[str], Any]]:
    try:
        version = importlib.metadata.version("amazon_kclpy")
    except importlib.metadata.PackageNotFoundError:
        return "amazon_kclpy (steps)", kclpy_steps.decode
    from amazon_kclpy import dispatch

    return f"amazon_kclpy {version}", lambda line: json.loads(line, object_hook=dispatch.message_decode)


KCLPY_NAME, _decode_as_kclpy = _original_decoder()
"""``amazon_kclpy 3.1.3`` where it is installed, ``amazon_kclpy (steps)`` for the re-statement."""


def kclpy(line: bytes) -> pa.RecordBatch:
    """amazon_kclpy's objects, read into columns."""
    return kclpy_records_to_arrow(_decode_as_kclpy(line.decode()).records)


PEERS: dict[str, Callable[[bytes], pa.RecordBatch]] = {
    "fastkcl": fastkcl,
    "msgspec (typed)": msgspec_typed,
    "pysimdjson + pybase64": pysimdjson_pybase64,
    "orjson + pybase64": orjson_pybase64,
    "json + base64": stdlib,
    KCLPY_NAME: kclpy,
}
"""By name; the first is what the ratios are for."""
