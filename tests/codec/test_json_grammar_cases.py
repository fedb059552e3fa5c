"""json-grammar.jsonl (JSONTestSuite): a text is valid JSON iff it is accepted as an ignored value.

A text stands under an object key *and* as an array element: ``1,"a":2`` would pass in the first alone,
``1,2`` or nothing at all in the second. Line feeds end a line, so a text's line feeds become carriage returns, which
are white space and control characters just the same.
"""

import base64
import re
from pathlib import Path
from typing import Any

import case_files
import codec_helpers
import pytest

RECORD = (
    b'{"data":"aGVsbG8=","partitionKey":"k","sequenceNumber":"1","subSequenceNumber":0'
    b',"approximateArrivalTimestamp":1,"action":"record"'
)
PLACES: dict[str, tuple[bytes, bytes]] = {
    "lease lost": (b'{"action":"leaseLost","ignored":', b"}"),
    "before the action": (b'{"ignored":', b',"action":"leaseLost"}'),
    "record": (b'{"action":"processRecords","records":[' + RECORD + b',"ignored":', b'}],"millisBehindLatest":0}'),
    "instead of the record's action": (
        b'{"action":"processRecords","records":[' + RECORD.replace(b'"record"', b""),
        b'}],"millisBehindLatest":0}',
    ),
}
MEMORY_LIMIT = 32 << 20
"""Bytes that decoding one case, the longest of which has 250 kB, may add to the process at its peak."""


def text(case: dict[str, Any]) -> bytes:
    if "b64" in case:
        content = base64.b64decode(case["b64"])
    else:
        content = base64.b64decode(case["repeat"]["b64"]) * case["repeat"]["times"]
    return content.replace(b"\n", b"\r")


def verdicts(case: dict[str, Any], place: str) -> tuple[codec_helpers.Outcome, codec_helpers.Outcome]:
    before, after = PLACES[place]
    content = text(case)
    return (
        codec_helpers.agreed(before + content + after),
        codec_helpers.agreed(before + b"[" + content + b"]" + after),
    )


def reset_peak() -> None:
    """Set VmHWM to what the process holds now (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def memory(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found, field
    return int(found[1]) * 1024


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.replace(" ", "_"))
@pytest.mark.parametrize("case", case_files.load("json-grammar", "accept"), ids=lambda case: case["name"])
def test_json_grammar_case_is_accepted(case: dict[str, Any], place: str) -> None:
    for outcome in verdicts(case, place):
        assert isinstance(outcome, dict), outcome


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.replace(" ", "_"))
@pytest.mark.parametrize("case", case_files.load("json-grammar", "reject"), ids=lambda case: case["name"])
def test_json_grammar_case_is_rejected(case: dict[str, Any], place: str) -> None:
    outcomes = verdicts(case, place)
    kinds = [outcome[0] if isinstance(outcome, tuple) else "accepted" for outcome in outcomes]
    # One may also be a missing_field: `{}}` before the action closes the message early.
    assert {"json", "utf8", "depth"} & set(kinds), kinds


@pytest.mark.parametrize("case", case_files.load("json-grammar", "either"), ids=lambda case: case["name"])
def test_json_grammar_case_is_survived(case: dict[str, Any]) -> None:
    """Free to accept or refuse, but the same in every way, with an error of JSON's own."""
    for place in PLACES:
        for outcome in verdicts(case, place):
            assert isinstance(outcome, dict) or (outcome is not None and outcome[0] in {"json", "utf8", "depth"})


@pytest.mark.parametrize(
    "case",
    [case for kind in ("accept", "either", "reject") for case in case_files.load("json-grammar", kind)],
    ids=lambda case: case["name"],
)
def test_json_grammar_case_takes_little_memory(case: dict[str, Any]) -> None:
    before, after = PLACES["record"]
    line = before + text(case) + after
    reset_peak()
    held = memory("VmRSS")
    codec_helpers.whole(line)
    codec_helpers.stream(line, range(4096, len(line), 4096))
    assert memory("VmHWM") - held < MEMORY_LIMIT
