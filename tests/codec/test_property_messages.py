"""Properties of decoding: equal to the reference, equal however the bytes arrive, never a crash."""

import json
import random

import codec_helpers
import message_strategies as messages
import pyarrow as pa
import pytest
import reference
from fastkcl import _core
from hypothesis import given
from hypothesis import strategies as st

SPELLING = st.integers(0, 2**32 - 1).map(random.Random)


@given(messages.daemon_batches(), SPELLING)
def test_daemon_batch_equals_reference(message: messages.Object, source: random.Random) -> None:
    """The daemon's own spelling, against pysimdjson, base64 and pyarrow: values and Arrow columns."""
    line = messages.spell(message, source, plain=True)
    wanted = reference.read_daemon_line(line)
    assert codec_helpers.agreed(line) == reference.comparable(wanted)
    decoded = _core.decode_line(line)
    assert isinstance(decoded, _core.ProcessRecords)
    batch = pa.record_batch(decoded.batch)
    batch.validate(full=True)
    assert batch.equals(reference.record_batch(wanted["records"]))


@given(messages.messages(), SPELLING)
def test_any_message_equals_reference(message: messages.Object, source: random.Random) -> None:
    """Any key order, white space, escapes, duplicates, unknown keys, missing optional fields."""
    line = messages.spell(message, source)
    outcome = codec_helpers.agreed(line)
    assert isinstance(outcome, dict), outcome
    assert outcome == reference.comparable(reference.read_line(line))


@given(st.lists(st.tuples(messages.messages(), SPELLING), max_size=6), SPELLING)
def test_many_messages_in_any_pieces(items: list[tuple[messages.Object, random.Random]], source: random.Random) -> None:
    """Lines after each other, blank ones and CR LF among them, cut anywhere, the last without its line feed."""
    lines = [messages.spell(message, spelling) for message, spelling in items]
    ends = [source.choice((b"\n", b"\r\n", b"\n\n", b"\n \t\r\n")) for _ in lines]
    content = b"".join(line + end for line, end in zip(lines, ends, strict=True))
    if source.random() < 0.5:
        content = content.rstrip(b"\n")
    decoder = _core.Decoder()
    got: list[codec_helpers.Message] = []
    start = 0
    for end in [*codec_helpers.random_cuts(source, len(content), source.choice((1, 5, 80, 2000))), len(content)]:
        decoder.feed(content[start:end])
        got += decoder
        start = end
    last = decoder.finish()
    if last is not None:
        got.append(last)
    wanted = [reference.comparable(reference.read_line(line)) for line in lines]
    assert [codec_helpers.to_dict(message) for message in got] == wanted


INTERESTING = [b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b"=", b"-", b"0", b"9", b"e", b".", b" ", b"\r"]
INTERESTING += [
    b"\x00",
    b"\x1f",
    b"\x7f",
    b"\xff",
    b"\xc0",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\xf0\x9f",
]
INTERESTING += [
    b"null",
    b"true",
    b"NaN",
    b"\\u",
    b"\\ud800",
    b"\\udc00",
    b'""',
    b"{}",
    b"[]",
    b'"a":1,',
    b"1e3",
    b"/*x*/",
]
INTERESTING += [
    b'"data":null,',
    b'"action":"record",',
    b'"action":"leaseLost",',
    b"9223372036854775808",
    b"QUJD",
    b"Q!",
]


def mutate(line: bytes, source: random.Random) -> bytes:
    """A few small accidents, which often leave a line almost valid."""
    content = bytearray(line)
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        at = source.randrange(len(content) + 1)
        to = min(len(content), at + source.choice((0, 1, 1, 2, 5, 30)))
        match source.randrange(6):
            case 0:
                content[at:at] = source.choice(INTERESTING)
            case 1:
                content[at:to] = source.choice(INTERESTING)
            case 2:
                del content[at:to]
            case 3:
                content[at:at] = content[at:to]
            case 4:
                del content[at:]
            case 5:
                content[at:to] = bytes(source.randrange(256) for _ in range(to - at))
    return bytes(content).replace(b"\n", b"\r")


REFUSED = "refused"
UNSPECIFIED = "unspecified"


def verdict(line: bytes) -> codec_helpers.Outcome | str:
    """What the reference says to a line."""
    try:
        return reference.comparable(reference.read_line(line))
    except reference.UnspecifiedError:
        return UNSPECIFIED
    except reference.RejectedError:
        return REFUSED


def check(line: bytes) -> None:
    """A line has the same outcome in every way, which is a message iff the reference has the same message."""
    outcome = codec_helpers.agreed(line)
    wanted = verdict(line)
    if wanted != UNSPECIFIED:
        assert (REFUSED if isinstance(outcome, tuple) else outcome) == wanted, (outcome, line)


@given(st.one_of(messages.messages(), messages.daemon_batches()), SPELLING)
def test_broken_lines_fail_alike(message: messages.Object, source: random.Random) -> None:
    """The same error (kind, field, record, offset, reason) in every way, and refused iff the reference refuses."""
    check(mutate(messages.spell(message, source, plain=source.random() < 0.5), source))


@given(messages.daemon_batches(), SPELLING)
def test_every_beginning_of_a_line_is_refused(message: messages.Object, source: random.Random) -> None:
    """A message that was cut off is an error wherever it was cut, never a shorter message."""
    line = messages.spell(message, source, plain=True)
    cut = source.randrange(1, len(line))
    outcome = codec_helpers.agreed(line[:cut])
    assert isinstance(outcome, tuple), outcome
    assert outcome[0] in ("json", "utf8")


@given(messages.messages(), SPELLING, st.integers(1, 5))
def test_line_limit_is_exact(message: messages.Object, source: random.Random, over: int) -> None:
    """A line as long as the limit passes; a longer one fails with line_too_long, and the next line is decoded."""
    line = messages.spell(message, source)
    assert codec_helpers.to_dict(_core.decode_line(line, max_line_bytes=len(line))) == codec_helpers.whole(line)
    limit = max(1, len(line) - over)
    with pytest.raises(_core.DecodeError) as caught:
        _core.decode_line(line, max_line_bytes=limit)
    assert caught.value.kind == "line_too_long"
    decoder = _core.Decoder(max_line_bytes=max(limit, 30))
    decoder.feed(line + b"\n" + b'{"action":"leaseLost"}\n')
    if len(line) > 30:
        with pytest.raises(_core.DecodeError) as caught:
            next(decoder)
        assert caught.value.kind == "line_too_long"
        assert list(decoder) == [_core.LeaseLost()]
    else:
        assert len(list(decoder)) == 2


SEED_TEXTS = [
    b"null",
    b"[true,false]",
    b'{"a":[1,-2.5e+10,{}],"b":""}',
    b'"\\ud83d\\ude00\\u0000\\/"',
    b"-0.0E-0",
    b'{"":{"":[]}}',
    b'["\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80"]',
    b"[" * 120 + b"]" * 120,
    b'{"a":' * 100 + b"1" + b"}" * 100,
    b"1" * 400,
]


@given(
    st.one_of(st.sampled_from(SEED_TEXTS), messages.IGNORED.map(lambda value: json.dumps(value).encode())),
    SPELLING,
    st.booleans(),
)
def test_ignored_values_are_json_as_python_says(text: bytes, source: random.Random, broken: bool) -> None:
    """Both as a member and as an element; NaN, depth, lone surrogates and long integers included."""
    content = mutate(text, source) if broken else text
    for before, after in ((b"", b""), (b"[", b"]")):
        check(b'{"action":"leaseLost","ignored":' + before + content + after + b"}")
