"""Typed payloads: what Spark gets of JSON and gzip, on a classic session and on Connect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from fastkcl import RecordBatch
from fastkcl.spark.payload import Payloads
from spark_helpers import record_batch

MIB = 1 << 20
KEYS = ["partitionKey", "sequenceNumber", "subSequenceNumber", "approximateArrivalTimestamp"]


def payloads(
    payload: Any = "json",
    schema: Any = None,
    compression: Any = "none",
    max_payload_bytes: int | None = None,
    *,
    max_bytes: int = 16 * MIB,
    max_table_bytes: int = 112 * MIB,
) -> Payloads:
    return Payloads(
        payload, schema, compression, max_payload_bytes, max_bytes=max_bytes, max_table_bytes=max_table_bytes
    )


def batch_of(data: Iterable[bytes]) -> RecordBatch:
    listed = list(data)
    return record_batch(range(1, len(listed) + 1), data=listed)


def collected(session: Any, data: Iterable[bytes], schema: str, **options: Any) -> list[dict[str, Any]]:
    opener = payloads(schema=schema, **options)
    opener.prepare(session)
    rows = opener.open([batch_of(data)]).data_frame(session).orderBy("subSequenceNumber", "approximateArrivalTimestamp")
    return [row.asDict(recursive=True) for row in rows.collect()]


TABLE = [
    # payload, the columns that are not null, whether it is corrupt
    (b'{"a":1,"b":"x","c":1.5}', {"a": 1, "b": "x", "c": 1.5}, False),
    (b' {"c":2,"a":-2147483648}\n', {"a": -2147483648, "c": 2.0}, False),
    (b"{}", {}, False),
    (b'{"z":[{}],"a":7}', {"a": 7}, False),
    (b'{"a":null,"b":null}', {}, False),
    (b'{"A":5}', {}, False),
    ('{"b":"größer 😀 \\u00e9\\n"}'.encode(), {"b": "größer 😀 é\n"}, False),
    (b'{"s":{"y":"good","x":3},"l":[1,null,3]}', {"s": {"x": 3, "y": "good"}, "l": [1, None, 3]}, False),
    # what only from_json's rules can tell: the values that fit are kept
    (b'{"a":3000000000,"b":"ok"}', {"b": "ok"}, True),
    (b'{"a":"1","b":"ok"}', {"b": "ok"}, True),
    (b'{"a":1.0,"b":"ok"}', {"b": "ok"}, True),
    (b'{"s":{"x":"bad","y":"good"},"b":"k"}', {"s": {"x": None, "y": "good"}, "b": "k"}, True),
    (b'{"l":[1,"x"],"b":"k"}', {"b": "k"}, True),
    (b'{"b":5}', {"b": "5"}, False),
    (b'{"b":{"q":[1,true]}}', {"b": '{"q":[1,true]}'}, False),
    (b'{"a":1,"a":2}', {"a": 2}, False),
    # what from_json would take in silence, in part or with other text
    (b'{"a":1}{"a":2}', {}, True),
    (b'{"a":1} xyz', {}, True),
    (b'{"a":1}\x00', {}, True),
    (b'{"b":"\xff"}', {}, True),
    (b'{"b":"\xed\xa0\x80"}', {}, True),
    (b"{'a':1}", {}, True),
    (b'{"c":NaN}', {}, True),
    (b"null", {}, True),
    (b"", {}, True),
    (b" ", {}, True),
    # no objects
    (b'[{"a":1}]', {}, True),
    (b"[]", {}, True),
    (b"5", {}, True),
    (b'"x"', {}, True),
    (b'{"a":1,"b":', {}, True),
    (b'\xef\xbb\xbf{"a":1}', {}, True),
    (b"\x1f\x8b", {}, True),
]
SCHEMA = "a int, b string, c double, s struct<x: int, y: string>, l array<int>"


@pytest.mark.parametrize("schema", [SCHEMA, f"{SCHEMA}, other map<string,int>"], ids=["parsed here", "by Spark"])
def test_every_record_is_a_row_and_what_cannot_be_read_is_kept(session: Any, schema: str) -> None:
    rows = collected(session, [payload for payload, _, _ in TABLE], schema)
    assert len(rows) == len(TABLE)
    for number, (row, (payload, values, corrupt)) in enumerate(zip(rows, TABLE, strict=True), 1):
        assert row["sequenceNumber"] == str(number)
        assert row["partitionKey"] == f"key-{number}"
        assert row["_corrupt"] == (payload if corrupt else None), payload
        found = {name: row[name] for name in "abcsl" if row[name] is not None}
        assert found == values, payload
