"""Properties of base64: text that Python encodes decodes, and any other text as the specification's table says."""

import base64

from fastkcl import _core
from hypothesis import given
from hypothesis import strategies as st
from reference import jackson_base64

_SIZES = st.one_of(st.integers(0, 300), st.integers(40, 50).map(lambda n: n * 48), st.sampled_from([4095, 4096, 70000]))
DATA = _SIZES.flatmap(lambda size: st.binary(min_size=size, max_size=size))
LETTERS = st.sampled_from("ABCXYZabcxyz0189+/")
TEXTS = st.lists(
    st.one_of(
        st.text(LETTERS, min_size=4, max_size=4),
        st.text(LETTERS, min_size=64, max_size=64),
        st.text(LETTERS, max_size=5),
        st.sampled_from(
            ["=", "==", "QQ==", "QUI=", " ", "\t", "\n", "\0", "-", "_", "!", ".", "\x7f", "é", "語", "😀"]
        ),
    ),
    max_size=12,
).map("".join)
"""Mostly alphabet, with padding, white space and foreign characters between."""


@given(DATA)
def test_encoding_is_pythons(data: bytes) -> None:
    assert _core.encode_base64(data) == base64.b64encode(data)


@given(DATA)
def test_canonical_text_decodes_back(data: bytes) -> None:
    assert _core.decode_base64(base64.b64encode(data)) == data


Result = bytes | tuple[str | None, str | None, int | None]


def decode(text: str) -> Result:
    """The bytes, or the error's kind, reason and offset."""
    try:
        return _core.decode_base64(text.encode())
    except _core.DecodeError as error:
        return error.kind, error.reason, error.offset


def wanted(text: str) -> Result:
    """The same by the reference, whose offset counts characters."""
    result = jackson_base64(text)
    return result if isinstance(result, bytes) else ("base64", result[0], len(text[: result[1]].encode()))


@given(TEXTS)
def test_any_text_decodes_as_jackson_reads_it(text: str) -> None:
    assert decode(text) == wanted(text)


@given(DATA.filter(len), st.data())
def test_one_bad_character_is_found_where_it_is(data: bytes, draw: st.DataObject) -> None:
    """In whichever block, lane or tail it stands."""
    text = base64.b64encode(data).decode()
    at = draw.draw(st.integers(0, len(text.rstrip("=")) - 1))
    broken = text[:at] + draw.draw(st.sampled_from('-_!.\x7f\x01 "é')) + text[at + 1 :]
    assert decode(broken) == wanted(broken)
