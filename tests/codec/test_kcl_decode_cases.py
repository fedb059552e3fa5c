"""kcl-modern.jsonl and kcl-legacy.jsonl, kinds decode and decode_error: every way gives the result of the case."""

import base64
from typing import Any

import case_files
import codec_helpers
import pytest
from fastkcl import _core

FILES = ("kcl-modern", "kcl-legacy")


def load(kind: str) -> list[Any]:
    return [pytest.param(case, id=f"{file}-{case['name']}") for file in FILES for case in case_files.load(file, kind)]


def line_of(case: dict[str, Any]) -> bytes:
    return base64.b64decode(case["line_b64"]) if "line_b64" in case else case["line"].encode()


@pytest.mark.parametrize("way", codec_helpers.WAYS)
@pytest.mark.parametrize("case", load("decode"))
def test_kcl_case_decodes(case: dict[str, Any], way: str) -> None:
    expected = None if case["expect"] == "ignored" else case["expect"]
    assert codec_helpers.WAYS[way](line_of(case)) == expected


@pytest.mark.parametrize("way", codec_helpers.WAYS)
@pytest.mark.parametrize("case", load("decode_error"))
def test_kcl_case_is_refused(case: dict[str, Any], way: str) -> None:
    outcome = codec_helpers.WAYS[way](line_of(case))
    assert isinstance(outcome, tuple), f"accepted: {outcome!r}"
    named = dict(zip(("kind", "field", "record", "offset", "reason"), outcome, strict=True))
    assert {key: named[key] for key in case["error"]} == case["error"]


@pytest.mark.parametrize("case", load("decode_error"))
def test_kcl_case_is_refused_alike_in_every_way(case: dict[str, Any]) -> None:
    """Also where the case leaves the field, record or offset open."""
    codec_helpers.agreed(line_of(case))


@pytest.mark.parametrize("case", load("decode_error"))
def test_kcl_case_error_reads_well(case: dict[str, Any]) -> None:
    """The message is one line that begins with the kind; the context is at most 200 bytes of the input."""
    line = line_of(case)
    with pytest.raises(_core.DecodeError) as caught:
        _core.decode_line(line)
    error = caught.value
    assert str(error).startswith(f"{error.kind}: ")
    assert len(str(error).splitlines()) == 1
    assert len(error.context) <= 200
    assert error.context in line
    if error.record is not None:
        assert f"record {error.record}" in str(error)
    if error.offset is not None:
        assert f"byte {error.offset}" in str(error)
        assert 0 <= error.offset <= len(line)
