"""Typed payloads beside readers that share no code with ours: Spark's from_json, and Python's json."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
from fastkcl import _core
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from payload_helpers import batch_of, frame

WIDE = (
    "i int, h smallint, t8 tinyint, n bigint, f double, b string, o boolean, t timestamp, d date,"
    " s struct<x: int, y: string>, l array<int>, ls array<struct<x: bigint, d: date>>, ll array<array<string>>"
)
_names = st.sampled_from([*"ihnfbotdslxyz", "t8", "ls", "ll", "N", ""])
_integers = st.one_of(
    st.integers(-200, 300),
    st.sampled_from([sign * 2**power + by for power in (7, 15, 31, 63, 64) for sign in (1, -1) for by in (-1, 0, 1)]),
)
_numbers = st.one_of(
    _integers.map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        [
            "-0",
            "0.0",
            "-0.0",
            "1e2",
            "1E-7",
            "1e400",
            "-1e999",
            "1.50",
            "0.1",
            "123456789012345678901234567890",
            "4.9e-324",
            "1e-400",
        ]
    ),
    st.decimals(allow_nan=False, allow_infinity=False, places=25, min_value=-10, max_value=10).map(lambda d: f"{d:f}"),
)
_times = st.builds(
    "{}{}{}{}".format,
    st.one_of(
        st.dates().map(str),
        st.sampled_from(
            [
                "2025-02-29",
                "2024-02-29",
                "1500-02-29",
                "1582-10-10",
                "0000-01-01",
                "2025-6-1",
                "2025-06",
                "2025-13-01",
                " 2025-06-01",
                "12025-06-01",
            ]
        ),
    ),
    st.sampled_from(["", "T00:00:00", "T23:59:59", "T24:00:00", "T23:59:60", " 01:02:03", "T1:2:3", "T12:34", "x"]),
    st.sampled_from(["", ".1", ".000001", ".999999", ".1234567", "."]),
    st.sampled_from(["", "Z", "+02:00", "-0330", "z", " UTC"]),
)
_texts = st.one_of(
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.text(max_size=8).map(json.dumps),
    _times.map(json.dumps),
    st.sampled_from(["NaN", "Infinity", "-INF", "true", "1", "1.5", "", " "]).map(json.dumps),
    st.sampled_from([r'"\ud800"', r'"\udc00x"', r'"\u0000"', r'"\/\b"']),
)
_values = st.recursive(
    st.one_of(_numbers, _texts, st.sampled_from(["null", "true", "false"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(st.tuples(_names.map(json.dumps), inner), max_size=3).map(
            lambda items: "{" + ",".join(f"{name}: {value}" for name, value in items) + "}"
        ),
    ),
    max_leaves=5,
)
# Mostly values that could fit, or every record would be left to Spark.
_fitting = {
    "i": st.integers(-(2**31), 2**31 - 1).map(str),
    "h": st.integers(-(2**15), 2**15 - 1).map(str),
    "t8": st.integers(-128, 127).map(str),
    "n": st.integers(-(2**63), 2**63 - 1).map(str),
    "f": _numbers,
    "b": _texts,
    "o": st.sampled_from(["true", "false"]),
    "t": st.datetimes().map(lambda at: json.dumps(at.isoformat() + "Z")),
    "d": st.dates().map(lambda day: json.dumps(str(day))),
    "s": st.sampled_from(["{}", '{"x":1}', '{"y":"é","x":-7}', '{"x":null}', '{"x":1,"w":[1]}']),
    "l": st.lists(st.one_of(st.integers(-9, 9), st.none()), max_size=4).map(json.dumps),
    "ls": st.sampled_from(["[]", '[{"x":1}, null, {}]', '[{"d":"2025-06-01"}]']),
    "ll": st.sampled_from(["[]", '[[],["a",null],null]']),
}
_pairs = st.one_of(*(st.tuples(st.just(name), value) for name, value in _fitting.items()), st.tuples(_names, _values))
_objects = st.lists(_pairs, max_size=6).map(
    lambda pairs: ("{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in pairs) + "}").encode()
)


class Pairs(list[Any]):
    """An object with all of its entries."""


KINDS: dict[str, Any] = {
    **dict.fromkeys("ihnod"),
    "t8": "byte",
    "f": "double",
    "b": "text",
    "t": "instant",
    "s": {"x": None, "y": "text"},
    "l": [None],
    "ls": [{"x": None, "d": None}],
    "ll": [["text"]],
}
"""Of WIDE, what may be lost in silence."""


def loses(kind: Any, value: Any) -> bool:
    """Whether from_json keeps something else than `value` and says nothing."""
    match kind, value:
        case dict(), Pairs():
            names = [name for name, _ in value if name in kind]
            return len(names) > len(set(names)) or any(loses(kind.get(name), part) for name, part in value)
        case [item], list() if not isinstance(value, Pairs):
            return any(loses(item, part) for part in value)
        case "byte", int():
            return 128 <= value <= 255
        case "double", int() | Decimal():
            return abs(Decimal(value)) >= Decimal(2**1024 - 2**970)
        case "instant", int() if not isinstance(value, bool):
            return -(2**63) <= value < 2**63 and not -(2**63) <= value * 10**6 < 2**63
        case "text", str():
            return any(0xD800 <= ord(character) < 0xE000 for character in value)
        case "text", _:
            return digits_are_lost(value)
    return False


def digits_are_lost(value: Any) -> bool:
    if isinstance(value, Pairs):
        return any(digits_are_lost(part) for _, part in value)
    if isinstance(value, list):
        return any(map(digits_are_lost, value))
    return isinstance(value, Decimal) and Decimal(repr(float(value))) != value


def is_lost(payload: bytes, kinds: Any) -> bool:
    return loses(kinds, json.loads(payload, parse_float=Decimal, object_pairs_hook=Pairs))


def spark_compares(session: Any, data: list[bytes]) -> tuple[list[Any], list[Any]]:
    """What the reader makes of payloads, and what from_json makes of them: as JSON, doubles with all their digits."""
    columns = ", ".join(name.split()[0] for name in WIDE_COLUMNS)
    as_text = f"to_json(struct({columns}), map('ignoreNullFields', 'false'))"
    ours = frame(session, data, WIDE).selectExpr("sequenceNumber", f"{as_text} AS json", "_corrupt")
    raw = session.createDataFrame(
        [(str(number), bytearray(text)) for number, text in enumerate(data, 1)], "row string, data binary"
    )
    options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"
    theirs = (
        raw.selectExpr(
            "row", "data", f"from_json(CAST(data AS STRING), '{WIDE}, _corrupt string', {options}) AS parsed"
        )
        .selectExpr("row", "data", "parsed.*")
        .selectExpr("row", f"{as_text} AS json", "CASE WHEN _corrupt IS NOT NULL THEN data END AS _corrupt")
    )
    return (
        sorted(map(tuple, ours.collect()), key=lambda row: int(row[0])),
        sorted(map(tuple, theirs.collect()), key=lambda row: int(row[0])),
    )


WIDE_COLUMNS = [*"ihnfbotdsl", "t8", "ls", "ll"]


# Each example is a job of Spark for some hundred payloads, so a failing one is told and not made smaller.
@settings(max_examples=8, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(_objects, min_size=100, max_size=400))
def check_objects(session: Any, data: list[bytes]) -> None:
    ours, theirs = spark_compares(session, data)
    for payload, our, their in zip(data, ours, theirs, strict=True):
        number, text, corrupt = their
        assert our == (number, text, payload if is_lost(payload, KINDS) else corrupt), payload


def test_objects_are_read_as_from_json_reads_them(session: Any) -> None:
    check_objects(session)


@st.composite
def damaged(draw: Any) -> bytes:
    """An object with a few bytes put in, taken out or replaced; most are none any more."""
    text = bytearray(draw(_objects))
    pieces = st.one_of(
        st.sampled_from([b"{", b"}", b"[", b",", b":", b'"', b"\\", b" ", b"\n", b"\0"]), st.binary(max_size=2)
    )
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(text)))
        text[start : start + draw(st.integers(0, 3))] = draw(pieces)
    return bytes(text)


def is_object(text: bytes) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return isinstance(json.loads(text.decode(), parse_constant=refuse), dict)
    except ValueError:
        return False


@given(st.lists(damaged(), min_size=1, max_size=20))
def test_what_is_no_object_is_kept_as_corrupt(data: list[bytes]) -> None:
    schema = pa.schema([("i", pa.int32()), ("b", pa.string()), ("s", pa.struct([("x", pa.int32())]))])
    kinds = {"i": None, "b": "text", "s": {"x": None}}
    for typed in (None, schema.serialize().to_pybytes()):
        reader = _core.PayloadReader(json=True, schema=typed, max_payload_bytes=1 << 20)
        opened = pa.record_batch(reader.open(batch_of(data), 0, 1 << 20))
        for payload, row in zip(data, opened.to_pylist(), strict=True):
            kept = not is_object(payload) or (typed is not None and is_lost(payload, kinds))
            assert row["_corrupt"] == (payload if kept else None)
            if not is_object(payload):
                assert row["_unparsed"] is None
            if kept or typed is None:
                assert {row.get(name) for name in "ibs"} == {None}
            if is_object(payload) and (kept or typed is None):
                assert row["_unparsed"] == payload
