"""Processors: the aggregator cases, and an aggregator around its limit."""

import base64
from typing import Any

import case_files
import pytest
from fastkcl import _core, kinesis
from hypothesis import given
from hypothesis import strategies as st

PROCESSORS: dict[str, type[Any]] = {
    name: getattr(kinesis, name)
    for name in (
        "StringProcessor",
        "JsonProcessor",
        "JsonLineProcessor",
        "JsonListProcessor",
        "MsgpackProcessor",
        "KPLJsonProcessor",
        "KPLStringProcessor",
    )
}


def put(processor: Any, items: list[tuple[Any, str | None]]) -> list[kinesis.OutputItem]:
    """All records of these items."""
    records = [record for item, key in items for record in processor.add_item(item, key)]
    return [*records, *processor.get_items()]


def named(cases: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case["name"])


@named(case_files.load("aggregators", "round_trip"))
def test_round_trip_case(case: dict[str, Any]) -> None:
    processor = PROCESSORS[case["processor"]]()
    records = put(processor, [(item["value"], item["partition_key"]) for item in case["items"]])
    assert not processor.has_items()
    found = [
        {
            "data_b64": base64.b64encode(record.data).decode(),
            "n": record.n,
            "partition_key": record.partition_key,
            "size": record.size,
            "parsed": processor.parse(record.data),
        }
        for record in records
    ]
    assert found == case["records"]


@named(case_files.load("aggregators", "parse"))
def test_parse_case(case: dict[str, Any]) -> None:
    processor = PROCESSORS[case["processor"]]()
    data = base64.b64decode(case["data_b64"])
    if "error" not in case:
        assert processor.parse(data) == case["parsed"]
        return
    with pytest.raises(kinesis.DeserializeError) as caught:
        processor.parse(data)
    assert caught.value.kind == case["error"]["kind"]


@named(case_files.load("aggregators", "options"))
def test_options_case(case: dict[str, Any]) -> None:
    make = PROCESSORS[case["processor"]]
    if case["result"] == "ok":
        assert make(case["max_size"]).max_bytes == case["max_size"] // 25 * 25 * 1024
        return
    with pytest.raises(getattr(kinesis, case["result"]), match="max_size"):
        make(case["max_size"])


@named(case_files.load("aggregators", "limit"))
def test_limit_case(case: dict[str, Any]) -> None:
    processor = PROCESSORS[case["processor"]](case["max_size"])
    item = case["item"]["repeat"] * case["item"]["times"]
    if case["result"] == "ok":
        (record,) = put(processor, [(item, case["partition_key"])])
        assert record.size == len(record.data) == len(item)
        return
    with pytest.raises(getattr(kinesis, case["result"])):
        processor.add_item(item, case["partition_key"])
    assert put(processor, []) == []


FRAMING = {"JsonLineProcessor": 3, "JsonListProcessor": 4, "MsgpackProcessor": 10, "KPLStringProcessor": 34}
"""What one item of 25 KiB of text has besides its characters: quotes, heads, lengths, and of KPL the partition key."""

LIMIT = 25 * 1024


@pytest.mark.parametrize(("name", "framing"), FRAMING.items())
def test_an_item_alone_may_fill_its_record(name: str, framing: int) -> None:
    fits = "x" * (LIMIT - framing)
    processor = PROCESSORS[name](25)
    (record,) = put(processor, [(fits, None)])
    assert record.size == len(record.data) == LIMIT - (record.partition_key is not None)
    put(processor, [])
    processor.add_item("before")
    with pytest.raises(kinesis.ExceededPutLimit, match="25601"):
        processor.add_item(fits + "x")
    (before,) = processor.get_items()
    assert before.n == 1


@pytest.mark.parametrize("name", FRAMING)
def test_two_items_that_would_just_fill_a_record(name: str) -> None:
    """They are two records; with a byte less they are one."""
    first, second = "a" * 12_000, "b" * 13_000
    (both,) = put(PROCESSORS[name](50), [(first, None), (second, None)])
    outside = both.partition_key is not None  # a key, of one byte, counts
    second += "b" * (LIMIT - outside - both.size)
    assert [record.n for record in put(PROCESSORS[name](25), [(first, None), (second, None)])] == [1, 1]
    (record,) = put(PROCESSORS[name](25), [(first, None), (second[1:], None)])
    assert record.size == len(record.data) == LIMIT - outside - 1


@pytest.mark.parametrize("name", FRAMING)
@given(sizes=st.lists(st.integers(1, 9000), max_size=12))
def test_records_of_several_items_stay_below_the_limit(name: str, sizes: list[int]) -> None:
    """Each as full as it can be, in order, sizes as they are."""
    processor = PROCESSORS[name](25)
    items = [chr(97 + number) * size for number, size in enumerate(sizes)]
    records = put(processor, [(item, None) for item in items])
    parsed = [processor.parse(record.data) for record in records]
    if name == "JsonListProcessor":
        parsed = [items for (items,) in parsed]
    assert [item for items in parsed for item in items] == items
    for record, of_it, following in zip(records, parsed, [*parsed, None][1:], strict=True):
        assert (record.size, record.n) == (len(record.data), len(of_it))
        assert record.size < LIMIT
        if following is not None:
            (joined,) = put(PROCESSORS[name](1000), [(item, None) for item in [*of_it, following[0]]])
            assert joined.size + (joined.partition_key is not None) >= LIMIT


@pytest.mark.parametrize("name", ["KPLJsonProcessor", "KPLStringProcessor"])
def test_kpl_aggregates_belong_where_they_are_put(name: str) -> None:
    """All user records have the key of the record: the shard that gets it owns them."""
    processor = PROCESSORS[name]()
    (record,) = put(processor, [("1", None), ("2", None)])
    assert record.partition_key == "a"
    assert processor.parse(record.data) == ["1", "2"]
    assert processor.parse(b'"plain"') == ['"plain"' if name == "KPLStringProcessor" else "plain"]
    assert processor.deaggregates
    assert not PROCESSORS["JsonProcessor"].deaggregates
    with pytest.raises(ValueError, match="partition keys"):
        processor.add_item("3", "key")


def test_an_item_that_would_not_come_back_is_refused() -> None:
    class Lines(kinesis.Processor, kinesis.NewlineAggregator, kinesis.StringSerializer):
        pass

    lines = Lines()
    lines.add_item("one")
    for item in ("", "two\nthree"):
        with pytest.raises(kinesis.ValidationError):
            lines.add_item(item)
    (record,) = lines.get_items()
    assert record.data == b"one\n"


def test_msgpack_keeps_types() -> None:
    processor = PROCESSORS["MsgpackProcessor"]()
    item = {"bytes": b"\x00", "text": "\u00e9", 1: [None, True, 1.5, -(2**63), 2**64 - 1]}
    (record,) = put(processor, [(item, None)])
    assert processor.parse(record.data) == [item]


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_netstrings(items: list[bytes]) -> None:
    data = b"".join(b"%d:%b," % (len(item), item) for item in items)
    assert _core.split_netstrings(data) == items
    for end in range(len(data)):
        if end not in {len(b"".join(b"%d:%b," % (len(i), i) for i in items[:n])) for n in range(len(items))}:
            with pytest.raises(ValueError, match="no netstring"):
                _core.split_netstrings(data[:end])
