"""Peers: other ways to turn a processRecords line into a pyarrow.RecordBatch.

Each is a function from the line's bytes to the batch in the canonical schema, written as well as the library allows in
a few lines: typed decoding where it has that, fast base64 beside it, one pyarrow array a column, one thread. Nulls are
kept. Peers that are not installed are left out.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fastkcl import _core
from fastkcl.bench import kclpy_steps, original
from fastkcl.bench.arrow_columns import SCHEMA, kclpy_records_to_arrow, to_arrow

if TYPE_CHECKING:
    from typing import TypeAlias

__all__ = ["FRESH", "LIBRARIES", "OURS", "STDLIB", "Decode", "installed"]

Decode: TypeAlias = Callable[[bytes], pa.RecordBatch]

OURS = "fastkcl"
FRESH = "fastkcl, fresh memory"
STDLIB = "json + base64"
LIBRARIES = ("msgspec", "orjson", "pysimdjson", "pybase64", "polars", "duckdb")
"""Distributions that peers need."""

_TIME = "approximateArrivalTimestamp"
_NAMES = SCHEMA.names
_FIELDS = [itemgetter(name) for name in _NAMES]


def _columns_of(line: bytes, decoder: _core.Decoder) -> pa.RecordBatch:
    decoder.feed(line)
    message = next(decoder)
    assert isinstance(message, _core.ProcessRecords)
    return pa.record_batch(message.batch)


def _fastkcl() -> Decode:
    """The incremental decoder, as a child uses it: one for all lines, whose buffers serve again."""
    decoder = _core.Decoder()
    return lambda line: _columns_of(line, decoder)


def _fastkcl_fresh() -> Decode:
    """The same in memory that nobody has used before: the cost of a consumer that keeps each batch."""
    return lambda line: _columns_of(line, _core.Decoder())


def _from_dictionaries(records: Iterable[Any], decode: Callable[[Any], bytes]) -> pa.RecordBatch:
    data, *others = ([get(record) for record in records] for get in _FIELDS)
    return to_arrow([None if text is None else decode(text) for text in data], *others)


def _stdlib() -> Decode:
    """Python's json and base64."""
    return lambda line: _from_dictionaries(json.loads(line)["records"], base64.b64decode)


def _orjson() -> Decode:
    """A fast general JSON parser and SIMD base64."""
    import orjson
    import pybase64

    return lambda line: _from_dictionaries(
        orjson.loads(line)["records"], lambda text: pybase64.b64decode(text, validate=True)
    )


def _pysimdjson() -> Decode:
    """The simdjson parser through its Python objects, and SIMD base64."""
    import pybase64
    import simdjson

    parser: Any = simdjson.Parser()

    def decode(line: bytes) -> pa.RecordBatch:
        records = parser.parse(line)["records"].as_list()
        return _from_dictionaries(records, lambda text: pybase64.b64decode(text, validate=True))

    return decode


def _msgspec() -> Decode:
    """Typed structures; msgspec decodes base64 for `bytes` by itself."""
    import msgspec

    record = msgspec.defstruct(
        "Record",
        [
            ("data", bytes | None),
            ("partitionKey", str),
            ("sequenceNumber", str),
            ("approximateArrivalTimestamp", int | None, None),
            ("subSequenceNumber", int | None, None),
        ],
        gc=False,
    )
    message = msgspec.defstruct("Message", [("records", list[record])], gc=False)  # type: ignore[valid-type]
    decoder = msgspec.json.Decoder(message)
    fields = [attrgetter(name) for name in _NAMES]

    def decode(line: bytes) -> pa.RecordBatch:
        records = decoder.decode(line).records  # type: ignore[attr-defined]
        return to_arrow(*([get(record) for record in records] for get in fields))

    return decode


def _polars() -> Decode:
    """The NDJSON reader with the schema given, and polars' own base64."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as all others; polars reads it when it is imported
    import polars as pl

    text, number = pl.String(), pl.Int64()
    types = dict(zip(_NAMES, (text, text, text, number, number), strict=True))
    schema: Any = {"records": pl.List(pl.Struct(types))}
    made: dict[str, Any] = {
        "data": pl.col("data").str.decode("base64"),
        _TIME: pl.col(_TIME).cast(pl.Datetime("ms", "UTC")).dt.cast_time_unit("us"),
    }
    columns: list[Any] = [made.get(name, name) for name in _NAMES]

    def decode(line: bytes) -> pa.RecordBatch:
        records = pl.read_ndjson(line, schema=schema).explode("records").unnest("records")
        table = records.select(*columns).to_arrow(compat_level=pl.CompatLevel.oldest())
        (batch,) = table.cast(SCHEMA).combine_chunks().to_batches()
        return batch

    return decode


def _duckdb() -> Decode:
    """SQL over the line as JSON with the structure given, and DuckDB's own base64."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    kinds = dict(zip(_NAMES, ("VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "BIGINT"), strict=True))
    structure = json.dumps({"records": [kinds]})
    query = f"""
        SELECT from_base64(r.data) AS data, r.partitionKey, r.sequenceNumber, r.subSequenceNumber,
            make_timestamptz(1000 * r.approximateArrivalTimestamp) AS approximateArrivalTimestamp
        FROM (SELECT unnest(from_json($line::JSON, '{structure}').records) AS r)"""

    def decode(line: bytes) -> pa.RecordBatch:
        table = connection.sql(query, params={"line": line.decode()}).to_arrow_table()
        (batch,) = table.cast(SCHEMA).combine_chunks().to_batches()
        return batch

    return decode


def _kclpy() -> Decode:
    """amazon_kclpy's objects, read into columns."""
    hook: Callable[[dict[str, Any]], Any] = kclpy_steps.message_decode
    if original.import_original() is not None:
        from amazon_kclpy import dispatch

        hook = dispatch.message_decode
    return lambda line: kclpy_records_to_arrow(json.loads(line.decode(), object_hook=hook).records)


def installed() -> dict[str, Decode]:
    """All peers that can be imported, by name; the first one is ours."""
    ways: dict[str, Callable[[], Decode]] = {
        OURS: _fastkcl,
        FRESH: _fastkcl_fresh,
        "msgspec (typed)": _msgspec,
        "pysimdjson + pybase64": _pysimdjson,
        "orjson + pybase64": _orjson,
        "polars": _polars,
        "duckdb": _duckdb,
        STDLIB: _stdlib,
        original.name(): _kclpy,
    }
    found = {}
    for name, make in ways.items():
        try:
            found[name] = make()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "fastkcl":
                raise
    return found
