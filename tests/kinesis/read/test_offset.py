"""Offsets of version 1: read, checked and written."""

from __future__ import annotations

import json

import pytest
from fastkcl.kinesis.read.plan import END, TRIM, Offset, OffsetError, Position, StreamOffset
from fastkcl.kinesis.read.plan.offset import MAX_BYTES, MAX_SHARDS

TEXT = (
    '{"v":1,"at":1763812345000,"streams":{"orders":{"created":1763000000,"shards":{"other-1":"0","000000000000":"4968",'
    '"000000000001":"END","000000000002":"TRIM","000000000003":"T1763812000000"},'
    '"first":{"000000000000":"4967"},"lag":{"000000000000":7200000}}}}'
)
SHARD = "shardId-00000000000"


def test_an_offset_is_what_was_written() -> None:
    offset = Offset.parse(TEXT)
    assert offset.at == 1763812345000
    assert offset.streams["orders"] == StreamOffset(
        1763000000,
        {
            SHARD + "0": Position("4968"),
            SHARD + "1": END,
            SHARD + "2": TRIM,
            SHARD + "3": Position.since(1763812000000),
            "other-1": Position("0"),
        },
        {SHARD + "0": "4967"},
        {SHARD + "0": 7200000},
    )
    assert str(offset) == TEXT
    assert json.dumps(offset.to_json(), separators=(",", ":")) == TEXT


def test_the_first_offset_is_a_constant() -> None:
    assert str(Offset()) == '{"v":1,"streams":{}}'
    assert Offset.from_json({"v": 1, "streams": {}}) == Offset()


def test_the_order_of_keys_is_fixed() -> None:
    streams = {
        name: StreamOffset(None, {SHARD + key: TRIM for key in keys}) for name, keys in (("b", "21"), ("a", "0"))
    }
    assert str(Offset(None, streams)) == (
        '{"v":1,"streams":{"a":{"shards":{"000000000000":"TRIM"}},'
        '"b":{"shards":{"000000000001":"TRIM","000000000002":"TRIM"}}}}'
    )


@pytest.mark.parametrize(
    ("text", "number", "time"),
    [("4968", "4968", None), ("0", "0", None), ("TRIM", None, None), ("END", None, None), ("T12", None, 12)],
)
def test_a_position_is_a_record_or_a_time_or_neither(text: str, number: str | None, time: int | None) -> None:
    assert (Position(text).number, Position(text).time) == (number, time)


def changed(**parts: object) -> dict[str, object]:
    return {**json.loads(TEXT), **parts}


def of_stream(**parts: object) -> dict[str, object]:
    return changed(streams={"orders": {"shards": {"000000000000": "5"}, **parts}})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (changed(v=2), "version 2.*newer fastkcl"),
        (changed(v="1"), "another source"),
        (changed(v=True), "version True"),
        (changed(v=1.0), "version 1.0"),
        ({"streams": {}}, "version None.*another source"),
        ([], "another source"),
        (None, "another source"),
        (changed(more=1), "'more'.*newer"),
        (of_stream(more=1), "'more'.*newer"),
        ({"v": 1}, "streams"),
        (changed(at="1"), "at of an offset"),
        (changed(at=-1), "at of an offset"),
        (changed(at=1.5), "at of an offset"),
        (changed(at=10**15), "at of an offset"),
        (changed(streams=[]), "list, and not an object"),
        (of_stream(shards=None), "shards"),
        (of_stream(shards={"x/y": "5"}), "not a shard id"),
        (of_stream(shards={"000000000000": "LATEST"}), "not a position"),
        (of_stream(shards={"000000000000": 5}), "not a position"),
        (of_stream(shards={"000000000000": "05"}), "not a position"),
        (of_stream(shards={"000000000000": "٥"}), "not a position"),
        (of_stream(shards={"000000000000": "9" * 130}), "not a position"),
        (of_stream(shards={"000000000000": "T-1"}), "not a position"),
        (of_stream(first={"000000000000": "END"}), "not a sequence number"),
        (of_stream(first={"000000000000": "6"}), "begins with record 6 and ends at 5"),
        (of_stream(first={"000000000001": "1"}), "begins with record 1 and ends at None"),
        (of_stream(first={"000000000000": "1"}, shards={"000000000000": "TRIM"}), "ends at TRIM"),
        (of_stream(lag={"000000000001": 5}), "without a position"),
        (of_stream(lag={"000000000000": True}), "lag of"),
        (of_stream(created="x"), "created"),
    ],
)
def test_what_is_no_offset_is_refused(value: object, message: str) -> None:
    with pytest.raises(OffsetError, match=message):
        Offset.from_json(value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "nan", '{"v":1,"streams":{}}' + " " * MAX_BYTES])
def test_text_that_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(OffsetError):
        Offset.parse(text)


def test_an_offset_is_bounded() -> None:
    shards = {f"shardId-{index:012d}": Position("49" * 28) for index in range(MAX_SHARDS)}
    lag = dict.fromkeys(shards, 7_200_000)
    full = Offset(1763812345000, {"orders": StreamOffset(1, shards, dict.fromkeys(shards, "49" * 27), lag)})
    assert Offset.parse(str(full)) == full
    with pytest.raises(OffsetError, match="20,001 shards"):
        str(Offset(1, {"orders": StreamOffset(1, {**shards, "one-more": TRIM})}))
    many = {f"{index:012d}": "TRIM" for index in range(MAX_SHARDS + 1)}
    with pytest.raises(OffsetError, match="more than 20,000 shards"):
        Offset.from_json({"v": 1, "streams": {"orders": {"shards": many}}})
