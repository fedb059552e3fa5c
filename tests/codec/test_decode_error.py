"""`DecodeError`: a ValueError that says kind and position, and travels between processes."""

import copy
import pickle

import pytest
from fastkcl import _core

BAD_BASE64 = b'{"action":"processRecords","records":[{"data":"!","partitionKey":"k","sequenceNumber":"1"}]}'


@pytest.fixture
def error():
    with pytest.raises(_core.DecodeError) as caught:
        _core.decode_line(BAD_BASE64)
    return caught.value


def test_says_what_and_where(error):
    assert isinstance(error, ValueError)
    assert (error.kind, error.field, error.record) == ("base64", "data", 0)
    assert (error.offset, error.reason) == (BAD_BASE64.index(b"!"), "invalid_character")
    assert error.context in BAD_BASE64
    assert str(error).startswith("base64: ")
    assert str(error).endswith(f"(record 0, byte {error.offset})")
    assert "\n" not in str(error)


def test_what_does_not_apply_is_none():
    with pytest.raises(_core.DecodeError) as caught:
        _core.decode_line(b'{"action":"no such"}')
    error = caught.value
    assert (error.kind, error.record, error.reason) == ("unknown_action", None, None)


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        *[
            lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
        ],
    ],
)
def test_copies_and_pickles(error, copied):
    other = copied(error)
    assert type(other) is _core.DecodeError
    assert (other.args, vars(other)) == (error.args, vars(error))


def test_each_way_of_decoding_raises_it(error):
    decoder = _core.Decoder()
    decoder.feed(BAD_BASE64 + b"\n")
    with pytest.raises(_core.DecodeError) as fed:
        next(decoder)
    with pytest.raises(_core.DecodeError) as alone:
        _core.decode_base64(b"!")
    assert vars(fed.value) == vars(error)
    assert (alone.value.kind, alone.value.reason, alone.value.offset) == ("base64", "invalid_character", 0)
