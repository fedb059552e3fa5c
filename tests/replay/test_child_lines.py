"""A child's line as the daemon takes it: the published cases, the line splitter, and our own writer."""

from typing import Any

import case_files
import pytest
from fastkcl import _core
from fastkcl.replay.child_lines import ReplayDialect, read_child_line
from fastkcl.stdio.lines import LINE_LIMIT, LineSplitter
from hypothesis import given
from hypothesis import strategies as st

FILES: dict[str, ReplayDialect] = {"kcl-modern": "modern", "kcl-legacy": "legacy"}
CASES = [
    pytest.param(dialect, case, id=case["name"])
    for file, dialect in FILES.items()
    for case in case_files.load(file, "child_line")
]


@pytest.mark.parametrize(("dialect", "case"), CASES)
def test_child_line_case(dialect: ReplayDialect, case: dict[str, Any]) -> None:
    read = read_child_line(case["line"].encode(), dialect)
    assert read.verdict == case["daemon"], read.why
    assert read.message == case.get("as")
    assert (read.why == "") == (read.verdict == "accept" or not case["line"].strip())


MODERN: list[tuple[bytes, str, dict[str, Any] | None]] = [
    # coercions of scalars, as Jackson does them
    (b'{"action":"checkpoint","sequenceNumber":true}', "accept", {"sequenceNumber": "true"}),
    (b'{"action":"checkpoint","sequenceNumber":1.50}', "accept", {"sequenceNumber": "1.50"}),
    (b'{"action":"checkpoint","subSequenceNumber":1.7}', "accept", {"subSequenceNumber": 1}),
    (b'{"action":"checkpoint","subSequenceNumber":-1.7}', "accept", {"subSequenceNumber": -1}),
    (b'{"action":"checkpoint","subSequenceNumber":" 4 "}', "accept", {"subSequenceNumber": 4}),
    (b'{"action":"checkpoint","subSequenceNumber":""}', "accept", {"subSequenceNumber": None}),
    (b'{"action":"checkpoint","subSequenceNumber":9223372036854775807}', "accept", {"subSequenceNumber": 2**63 - 1}),
    (b'{"action":"checkpoint","subSequenceNumber":9223372036854775808}', "skip", None),
    (b'{"action":"checkpoint","subSequenceNumber":1e999}', "skip", None),
    (b'{"action":"checkpoint","subSequenceNumber":true}', "skip", None),
    (b'{"action":"checkpoint","subSequenceNumber":"x"}', "skip", None),
    (b'{"action":"checkpoint","sequenceNumber":["1"]}', "skip", None),
    (b'{"action":"status","responseFor":null}', "accept", {"responseFor": None}),
    # the word null, and what only begins like it
    (b" null ", "fatal", None),
    (b"null}", "fatal", None),
    (b"nullx", "skip", None),
    (b"null_", "skip", None),
    # no JSON, although Python reads it
    (b'{"action":"checkpoint","sequenceNumber":NaN}', "skip", None),
    (b"Infinity", "skip", None),
    # form
    (b'\t{"action":"status","responseFor":"initialize"}', "accept", {"responseFor": "initialize"}),
    (b'{"action":"status","responseFor":"a"}{"action":"nope"}', "accept", {"responseFor": "a"}),
    (b'{"action":"status","responseFor":"\xff"}', "accept", {"responseFor": "\ufffd"}),
    (b'{"action":"status","responseFor":"a"', "skip", None),
    (b'{"action":"status","action":"status","responseFor":"a"}', "skip", None),
    (b'{"action":["status"],"responseFor":"a"}', "skip", None),
    (b'{"action":"Status","responseFor":"a"}', "skip", None),
    (b"[" * 100_000, "skip", None),
    # messages of the daemon itself are read, and not acted on
    (b'{"action":"leaseLost"}', "accept", {}),
    (b'{"action":"processRecords","records":[],"millisBehindLatest":0}', "accept", {"records": []}),
    (b'{"action":"processRecords","records":{}}', "skip", None),
]


@pytest.mark.parametrize(("line", "verdict", "fields"), MODERN, ids=[repr(line[:60]) for line, _, _ in MODERN])
def test_modern_line(line: bytes, verdict: str, fields: dict[str, Any] | None) -> None:
    read = read_child_line(line, "modern")
    assert read.verdict == verdict, read.why
    if fields is not None:
        assert read.message is not None
        assert {key: read.message[key] for key in fields} == fields


@pytest.mark.parametrize("dialect", ["legacy", "transitional", "modern"])
def test_what_fastkcl_writes_is_accepted(dialect: ReplayDialect) -> None:
    words = "legacy" if dialect == "legacy" else "modern"
    for place in ((None, None), ("123", None), ("1" * 129, None), *([("123", 4)] if words == "modern" else [])):
        line = _core.encode_checkpoint(*place, words).strip(b"\n")
        read = read_child_line(line, dialect)
        assert read.verdict == "accept", read.why
        assert read.message is not None
        assert read.message["checkpoint" if words == "legacy" else "sequenceNumber"] == place[0]
    for action in ("initialize", "processRecords", "shutdown", "ünïcode"):
        read = read_child_line(_core.encode_status(action).strip(b"\n"), dialect)
        assert read.message == {"action": "status", "responseFor": action}


def test_the_other_dialect_is_not_understood() -> None:
    line = _core.encode_checkpoint("1", None, "modern").strip(b"\n")
    assert "no key 'sequenceNumber'" in read_child_line(line, "legacy").why
    line = _core.encode_checkpoint("1", None, "legacy").strip(b"\n")
    assert "no key 'checkpoint'" in read_child_line(line, "transitional").why


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    splitter = LineSplitter()
    lines: list[bytes] = []
    places = sorted({0, *cuts, len(data)})
    for start, stop in zip(places, places[1:], strict=False):
        lines += splitter.feed(data[start:stop])
    last = splitter.finish()
    return lines if last is None else [*lines, last]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\rb\r", [b"a", b"b"]),
        (b"\n\n", [b"", b""]),
        (b"\r\r\n\n\r", [b"", b"", b"", b""]),
        # not ends of lines for the daemon: VT, FF, NEL, LINE SEPARATOR
        ("a\x0bb\x0cc\x85d\u2028e\n".encode(), ["a\x0bb\x0cc\x85d\u2028e".encode()]),
    ],
)
def test_lines_end_as_for_the_daemon(data: bytes, lines: list[bytes]) -> None:
    assert split(data, []) == lines
    assert split(data, list(range(len(data)))) == lines


def test_of_a_line_without_an_end_only_the_beginning_is_kept() -> None:
    splitter = LineSplitter()
    for _ in range(40):
        assert splitter.feed(b"x" * 65536) == []
    assert splitter.feed(b"y\nz\r" + b"w" * (LINE_LIMIT + 5)) == [b"x" * LINE_LIMIT, b"z"]
    assert splitter.finish() == b"w" * LINE_LIMIT


@given(st.lists(st.sampled_from([b"\r", b"\n", b"x", b"yz"])).map(b"".join), st.lists(st.integers(0, 60)))
def test_cuts_change_no_line(data: bytes, cuts: list[int]) -> None:
    expected = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert split(data, [cut for cut in cuts if cut <= len(data)]) == expected
