"""base64.jsonl: by `decode_base64`, and as the payload of a record, where errors are placed in the line."""

import json
import re
from typing import Any, NamedTuple

import case_files
import codec_helpers
import pytest
from fastkcl import _core

CASES = [case for kind in sorted(case_files.KINDS["base64"]) for case in case_files.load("base64", kind)]
IDS = [case["name"] for case in CASES]
TEXT_CASES = [case for case in CASES if "text" in case]
TEXT_IDS = [case["name"] for case in TEXT_CASES]


class Literal(NamedTuple):
    """A JSON string literal and where each byte offset of the value that it stands for is in it."""

    source: bytes
    """With its quotes."""
    places: list[int] | None
    """Byte offset in the UTF-8 text (its length for the end) to byte offset after the opening quote; None = same."""

    def place(self, offset: int) -> int:
        return offset if self.places is None else self.places[offset]


def literal(text: str, escape: re.Pattern[str] | None) -> Literal:
    """Write `text` as a literal; what must be escaped and what `escape` matches as ``\\uXXXX``."""
    source = bytearray(b'"')
    places: list[int] = []
    for character in text:
        raw = character.encode()
        must = character in '"\\' or character < " "
        places += [len(source) - 1] * len(raw)
        if must or (escape is not None and escape.match(character)):
            units = character.encode("utf-16-be")
            source += b"".join(b"\\u%02x%02x" % (units[i], units[i + 1]) for i in range(0, len(units), 2))
        else:
            source += raw
    places.append(len(source) - 1)
    return Literal(bytes(source) + b'"', places)


FORMS = {
    "raw": None,
    "ascii": re.compile(r"[^\x00-\x7f]"),
    "all escaped": re.compile(r".", re.DOTALL),
    "padding escaped": re.compile(r"="),
    "slash escaped": re.compile(r"/"),
    "every seventh letter escaped": re.compile(r"[AHOVcjqx4]"),
}


def literals(case: dict[str, Any]) -> dict[bytes, Literal]:
    """The distinct literals that write the case's text."""
    if "json" in case:
        return {b"": Literal(case["json"].encode(), None)}
    written = (literal(case["text"], escape) for escape in FORMS.values())
    return {one.source: one for one in written}


DAEMON_TAIL = (
    b',"partitionKey":"k","sequenceNumber":"2","approximateArrivalTimestamp":1,"subSequenceNumber":0,"action":"record"}'
)
GOOD = b'{"data":"aGVsbG8="' + DAEMON_TAIL

SHAPES: dict[str, tuple[bytes, bytes, int]] = {
    "first of a daemon's line": (
        b'{"action":"processRecords","records":[{"data":',
        DAEMON_TAIL + b"," + GOOD + b'],"millisBehindLatest":0}',
        0,
    ),
    "third of a daemon's line": (
        b'{"action":"processRecords","records":[' + GOOD + b"," + GOOD + b',{"data":',
        DAEMON_TAIL + b'],"millisBehindLatest":0}',
        2,
    ),
    "another key order": (
        b'{"action":"processRecords","records":[' + GOOD + b',{"sequenceNumber":"2","data" : ',
        b' ,"partitionKey":"k"}]}',
        1,
    ),
    "records before the action": (
        b'{ "records":[' + GOOD + b',{"data":',
        DAEMON_TAIL + b'],"action":"processRecords"}',
        1,
    ),
}
"""Where a payload stands: what is before it, what after, and the index of its record."""


@pytest.mark.parametrize("case", TEXT_CASES, ids=TEXT_IDS)
def test_base64_case_by_itself(case: dict[str, Any]) -> None:
    if case["error"] is None:
        assert _core.decode_base64(case["text"].encode()).hex() == case["hex"]
        return
    with pytest.raises(_core.DecodeError) as caught:
        _core.decode_base64(case["text"].encode())
    assert (caught.value.kind, caught.value.reason, caught.value.offset) == (
        "base64",
        case["error"]["kind"],
        case["error"]["offset"],
    )


@pytest.mark.parametrize("case", TEXT_CASES, ids=TEXT_IDS)
def test_base64_case_from_any_alignment(case: dict[str, Any]) -> None:
    """A kernel that loads whole blocks must not care where in memory a text begins or what follows it."""
    text = case["text"].encode()
    expected: object = case["hex"]
    if case["error"] is not None:
        expected = (case["error"]["kind"], case["error"]["offset"])
    for before in (1, 3, 16, 31, 63):
        block = memoryview(b"!" * before + text + b"QUJD" * 16)[before : before + len(text)]
        got: object
        try:
            got = _core.decode_base64(block).hex()
        except _core.DecodeError as error:
            got = (error.reason, error.offset)
        assert got == expected, before


@pytest.mark.parametrize("case", [c for c in TEXT_CASES if c["canonical"]], ids=lambda case: case["name"])
def test_base64_case_encodes_back(case: dict[str, Any]) -> None:
    """Canonical text is what the encoder writes."""
    assert _core.encode_base64(bytes.fromhex(case["hex"])) == case["text"].encode()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.replace(" ", "_"))
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_base64_case_in_a_line(case: dict[str, Any], shape: str) -> None:
    before, after, index = SHAPES[shape]
    for one in literals(case).values():
        outcome = codec_helpers.agreed(before + one.source + after)
        if case["error"] is None:
            assert isinstance(outcome, dict), outcome
            assert outcome["records"][index]["data"] == case["hex"]
            continue
        assert isinstance(outcome, tuple), outcome
        kind, _, record, offset, reason = outcome
        place = len(before) + 1 + one.place(case["error"]["offset"])
        if case["error"]["kind"] == "json":  # no base64 error, so the record is not promised
            assert (kind, offset) == ("json", place)
        else:
            assert (kind, record, offset, reason) == ("base64", index, place, case["error"]["kind"])


def test_base64_literals_are_json() -> None:
    """The literals of this file say what they should, by Python's json."""
    for case in TEXT_CASES:
        for one in literals(case).values():
            assert json.loads(one.source, strict=True) == case["text"]


def test_base64_json_cases_say_what_they_decode() -> None:
    """A case that is written as a literal decodes like its value."""
    for case in CASES:
        if "json" in case and case["error"] is None:
            assert _core.decode_base64(json.loads(case["json"]).encode()).hex() == case["hex"]
