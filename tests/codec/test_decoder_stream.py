"""Decoder, decode_line and the writers: input types, limits, the end of input, errors that do not stop the stream."""

import array
import copy
import json
import os
import pickle

import codec_helpers
import pytest
import reference
from fastkcl import _core

LEASE_LOST = b'{"action":"leaseLost"}'
INITIALIZE = b'{"action":"initialize","shardId":"s","sequenceNumber":"1","subSequenceNumber":0}'


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: array.array("B", data)])
def test_any_contiguous_buffer(kind) -> None:
    assert _core.decode_line(kind(LEASE_LOST)) == _core.LeaseLost()
    decoder = _core.Decoder()
    decoder.feed(kind(LEASE_LOST + b"\n"))
    assert list(decoder) == [_core.LeaseLost()]
    assert _core.decode_base64(kind(b"QUJD")) == b"ABC"
    assert _core.encode_base64(kind(b"ABC")) == b"QUJD"


@pytest.mark.parametrize("wrong", ["text", 1, None, [1]])
def test_other_types_are_refused(wrong: object) -> None:
    for call in (_core.decode_line, _core.Decoder().feed, _core.decode_base64, _core.encode_base64):
        with pytest.raises(TypeError):
            call(wrong)


def test_memory_that_is_not_contiguous_is_refused() -> None:
    with pytest.raises((BufferError, ValueError, TypeError)):
        _core.decode_line(memoryview(LEASE_LOST * 2)[::2])


@pytest.mark.parametrize("limit", [0, -1, 2**31, 2**64])
def test_line_limit_out_of_range(limit: int) -> None:
    for call in (
        lambda: _core.decode_line(LEASE_LOST, max_line_bytes=limit),
        lambda: _core.Decoder(max_line_bytes=limit),
        lambda: _core.Reader(0, max_line_bytes=limit),
    ):
        with pytest.raises((ValueError, OverflowError)):
            call()


def test_default_line_limit() -> None:
    assert _core.DEFAULT_MAX_LINE_BYTES == 256 << 20


def test_too_long_line_is_reported_when_the_limit_is_passed() -> None:
    """Not at its end, which may never come; the option is named."""
    decoder = _core.Decoder(max_line_bytes=100)
    decoder.feed(b'{"ignored":"' + b"x" * 100)
    with pytest.raises(_core.DecodeError, match="max_line_bytes") as caught:
        next(decoder)
    assert caught.value.kind == "line_too_long"
    decoder.feed(b"y" * 1000)
    assert list(decoder) == []
    decoder.feed(b'"}\n' + LEASE_LOST + b"\n")
    assert list(decoder) == [_core.LeaseLost()]


@pytest.mark.parametrize(
    "line",
    [
        '{"action":"leaseLost","ignored":"é😀語é😀語"}'.encode(),
        _core.encode_process_records([b"A", None], ["é😀語", "語"], ["1", "2"], [0, 1], [1, 2]).rstrip(b"\n"),
    ],
    ids=["general", "records"],
)
def test_limit_inside_a_character(line: bytes) -> None:
    """Every limit below the length of a valid line gives line_too_long, also one that cuts a character."""

    def kind(decode) -> str | None:
        try:
            decode()
        except _core.DecodeError as error:
            return error.kind
        return None

    def feed(limit: int, step: int) -> None:
        decoder = _core.Decoder(max_line_bytes=limit)
        for start in range(0, len(line), step):
            decoder.feed(line[start : start + step])
            assert list(decoder) == []
        decoder.feed(b"\n")
        list(decoder)

    for limit in range(1, len(line)):
        kinds = (
            kind(lambda limit=limit: _core.decode_line(line, max_line_bytes=limit)),
            kind(lambda limit=limit: feed(limit, len(line))),
            kind(lambda limit=limit: feed(limit, 1)),
        )
        assert kinds == ("line_too_long",) * 3, limit


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b" \n", b"\t\r\r\n"])
def test_line_ends(end: bytes) -> None:
    assert _core.decode_line(LEASE_LOST + end) == _core.LeaseLost()
    decoder = _core.Decoder()
    decoder.feed((LEASE_LOST + end) * 3)
    assert list(decoder) == [_core.LeaseLost()] * 3


@pytest.mark.parametrize("blank", [b"", b"\n", b" ", b"\t\t", b"\r\n", b" \r\t \n"])
def test_blank_lines_are_no_messages(blank: bytes) -> None:
    assert _core.decode_line(blank) is None
    decoder = _core.Decoder()
    decoder.feed(blank + b"\n" + LEASE_LOST + b"\n" + blank)
    assert list(decoder) == [_core.LeaseLost()]
    assert decoder.finish() is None


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x7f"])
def test_only_line_feed_ends_a_line(separator: str) -> None:
    """What str.splitlines takes for a line end is an ordinary character of a partition key."""
    line = _core.encode_process_records([b"x"], [f"a{separator}b"], ["1"], [0], [1])
    assert separator.encode() in line
    outcome = codec_helpers.agreed(line.rstrip(b"\n"))
    assert isinstance(outcome, dict)
    assert outcome["records"][0]["partitionKey"] == f"a{separator}b"


def test_messages_wait_until_they_are_asked_for() -> None:
    decoder = _core.Decoder()
    decoder.feed(INITIALIZE + b"\n" + LEASE_LOST + b"\n")
    decoder.feed(LEASE_LOST + b"\n" + LEASE_LOST[:5])
    assert iter(decoder) is decoder
    assert isinstance(next(decoder), _core.Initialize)
    decoder.feed(LEASE_LOST[5:])
    assert list(decoder) == [_core.LeaseLost()] * 2
    with pytest.raises(StopIteration):
        next(decoder)
    decoder.feed(b"\n")
    assert next(decoder) == _core.LeaseLost()


def test_stream_goes_on_after_an_error() -> None:
    decoder = _core.Decoder()
    decoder.feed(b'hello\n{"action":"reboot"}\n' + LEASE_LOST + b"\n[]\n" + LEASE_LOST + b"\n")
    seen: list[object] = []
    while True:
        try:
            seen.append(next(decoder))
        except StopIteration:
            break
        except _core.DecodeError as error:
            seen.append(error.kind)
    assert seen == ["json", "unknown_action", _core.LeaseLost(), "not_an_object", _core.LeaseLost()]


def test_finish_takes_a_last_line_without_line_feed() -> None:
    decoder = _core.Decoder()
    decoder.feed(LEASE_LOST)
    assert list(decoder) == []
    assert decoder.finish() == _core.LeaseLost()


@pytest.mark.parametrize("part", [b"{", LEASE_LOST[:-1], codec_helpers.batch_line(3, 200)[:400]])
def test_finish_inside_a_message_is_an_error(part: bytes) -> None:
    decoder = _core.Decoder()
    decoder.feed(part)
    assert list(decoder) == []
    with pytest.raises(_core.DecodeError, match="input ended inside a message") as caught:
        decoder.finish()
    assert caught.value.kind == "json"


def test_finish_waits_for_what_came_before() -> None:
    """Before the messages are taken it takes none of them, and blames no earlier line on the end of input."""
    decoder = _core.Decoder()
    decoder.feed(INITIALIZE + b'\n{"action":\n' + LEASE_LOST + b"\n" + LEASE_LOST[:5])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="iterate"):
            decoder.finish()
    assert isinstance(next(decoder), _core.Initialize)
    with pytest.raises(RuntimeError, match="iterate"):
        decoder.finish()
    with pytest.raises(_core.DecodeError, match="the line ended inside a message") as caught:
        next(decoder)
    assert caught.value.offset == 10
    with pytest.raises(RuntimeError, match="iterate"):
        decoder.finish()
    assert list(decoder) == [_core.LeaseLost()]
    with pytest.raises(_core.DecodeError, match="input ended inside a message"):
        decoder.finish()
    assert decoder.finish() is None


@pytest.mark.parametrize("size", [1, 7, 4000])
def test_finish_loses_nothing_whatever_was_taken_before(size: int) -> None:
    stream = b"\n".join(b'{"action":"checkpoint","checkpoint":"%d","x":"%s"}' % (at, b"y" * 3000) for at in range(9))
    decoder = _core.Decoder()
    seen = []
    for start in range(0, len(stream), size):
        decoder.feed(stream[start : start + size])
        if len(seen) < 3:
            seen += [message for message in [next(decoder, None)] if message is not None]
    with pytest.raises(RuntimeError):
        decoder.finish()
    seen += decoder
    seen.append(decoder.finish())
    assert [message.sequence_number for message in seen] == [str(at) for at in range(9)]


@pytest.mark.parametrize(
    ("line", "limit", "error"),
    [
        (b'{"ac\ntion":"leaseLost"}', 12, ("json", 4)),
        (b'{"ac\ntion":"leaseLost"}', 4, ("line_too_long", 4)),
        (b'{"ac\ntion":"leaseLost"}', 5, ("json", 4)),
        (b'{"ac\ntion":"leaseLost"}', 100, ("json", 4)),
        (b'{\n"action":"leaseLost"}', 12, ("line_too_long", 12)),
        (b'\n\n{"action":"leaseLost"}', 23, ("line_too_long", 23)),
        (b'{"action":"leaseLost"}\n\n', 22, ("line_too_long", 22)),
        (b'{"x":tr\nue,"action":"leaseLost"}', 20, ("json", 7)),
        (b'{"x":"\\\n","action":"leaseLost"}', 20, ("json", 7)),
        (b'{"action":"processRecords","records":[{"data":"QU\nJD"}]}', 50, ("json", 49)),
        (b'{"action":"\xc3\n\xa9"}', 20, ("utf8", 11)),
        (b'{\n"action":"\xc3\xa9"}', 13, ("line_too_long", 13)),
    ],
)
def test_line_feeds_inside_of_one_line_and_a_limit(line: bytes, limit: int, error: tuple[str, int]) -> None:
    with pytest.raises(_core.DecodeError) as caught:
        _core.decode_line(line, max_line_bytes=limit)
    assert (caught.value.kind, caught.value.offset) == error


@pytest.mark.parametrize(
    ("line", "kind", "offset"),
    [
        (b'{"action":"processRecords","records":[{"data":"=', "base64", 47),
        (b'{"action":"processRecords","records":[{"x":1,"data":"=', "base64", 53),
        (b'{"action":"processRecords","records":[{"data" : "QQ=A', "base64", 52),
        (b'{"records":[{"data":"QUJDQ\\u003d"}],"action":"processRecords"}', "base64", 26),
        (b'{"records":[{"data":"QUJDQ\\u003d', "json", 32),
        (b'{"action":"processRecords","records":[{"x":1,"data":"Q', "json", 54),
        (b'{"action":"processRecords","records":[{"x":1,"data":"QQ==\xc3(', "utf8", 57),
        (b'{"action":"processRecords","records":[{"x":1,"data":"QQ==\xc3', "utf8", 57),
        (b'{"action":"processRecords","records":[{"data":"QQ==\xc3', "utf8", 51),
        (b'{"action":"processRecords","records":[{"x":1,"data":"\\u00\xc3', "utf8", 57),
    ],
)
def test_input_that_ends_inside_data_is_looked_at_to_its_end(line: bytes, kind: str, offset: int) -> None:
    """Whatever stands before `data`, from a pipe that closes there, and where a limit cuts it."""
    reading, writing = os.pipe()
    os.write(writing, line)
    os.close(writing)
    try:
        with pytest.raises(_core.DecodeError) as caught:
            _core.Reader(reading).read()
    finally:
        os.close(reading)
    assert (caught.value.kind, caught.value.offset) == (kind, offset)
    decoder = _core.Decoder(max_line_bytes=len(line))
    decoder.feed(line + b"QUJDQUJD")
    with pytest.raises(_core.DecodeError) as caught:
        next(decoder)
    cut = kind == "json" or line.endswith(b"\xc3")
    limited = ("line_too_long", len(line)) if cut else (kind, offset)
    assert (caught.value.kind, caught.value.offset) == limited


def test_nothing_of_a_broken_line_comes_out() -> None:
    """A thousand good records, the last one bad: no batch, one error that says where."""
    good = codec_helpers.batch_line(1000, 50)
    at = good.rindex(b'"sequenceNumber":"999"')
    broken = good[:at] + b'"sequenceNumber":999' + good[at + len(b'"sequenceNumber":"999"') :]
    outcome = codec_helpers.agreed(broken.rstrip(b"\n"))
    assert outcome == ("wrong_type", "sequenceNumber", 999, at + len(b'"sequenceNumber":'), None)


def test_decode_error_is_a_value_error_that_says_where() -> None:
    with pytest.raises(ValueError, match=r"^base64: .*\(record 0, byte 47\)$") as caught:
        _core.decode_line(
            b'{"action":"processRecords","records":[{"data":"!GVs","partitionKey":"k","sequenceNumber":"1"}]}'
        )
    error = caught.value
    assert isinstance(error, _core.DecodeError)
    assert (error.kind, error.record, error.offset, error.reason) == ("base64", 0, 47, "invalid_character")
    assert b"!GVs" in error.context


def test_context_is_bounded_and_around_the_place() -> None:
    line = b'{"ignored":"' + b"a" * 5000 + b"\xff" + b"b" * 5000 + b'","action":"leaseLost"}'
    with pytest.raises(_core.DecodeError) as caught:
        _core.decode_line(line)
    assert caught.value.offset == line.index(b"\xff")
    assert 100 <= len(caught.value.context) <= 200
    assert b"\xff" in caught.value.context


def test_last_duplicate_wins_on_both_ways_through() -> None:
    """The daemon's shape with a key twice must leave the fast way."""
    for fields in (
        b'"data":"QQ==","data":"Qg==","partitionKey":"k","sequenceNumber":"1"',
        b'"data":"QQ==","partitionKey":"k","sequenceNumber":"1","approximateArrivalTimestamp":1,"subSequenceNumber":0,'
        b'"action":"record","data":"Qg=="',
        b'"data":"QQ==","partitionKey":"k","sequenceNumber":"1","d\\u0061ta":"Qg=="',
    ):
        line = b'{"action":"processRecords","records":[{' + fields + b'}],"millisBehindLatest":0}'
        outcome = codec_helpers.agreed(line)
        assert isinstance(outcome, dict)
        assert outcome["records"][0]["data"] == "42"


def test_duplicate_at_the_end_replaces_the_streamed_records() -> None:
    """Records that were decoded as they arrived are dropped when a later key replaces them, or the action."""
    batch = codec_helpers.batch_line(20, 100).rstrip(b"\n")
    replaced = batch[:-1] + b',"records":[]}'
    assert codec_helpers.agreed(replaced) == {"action": "processRecords", "records": [], "millisBehindLatest": 0}
    other = batch[:-1] + b',"action":"leaseLost"}'
    assert codec_helpers.agreed(other) == {"action": "leaseLost"}


@pytest.mark.parametrize("dialect", ["legacy", "transitional", "modern"])
@pytest.mark.parametrize("nulls", [False, True])
def test_encoded_lines_decode_back(dialect: str, nulls: bool) -> None:
    keys = ["plain", 'q"uo\\te', "\x00\x1f\x7f", "é\u2028😀", "/", "x" * 256]
    data = [b"", b"a", bytes(range(256)), b"\xff" * 3000, b"ab", None if nulls else b"abc"]
    subs = [0, 1, 2, 3, 4, None if nulls else 5]
    times = [0, 1, 1_700_000_000_123, 2, 3, None if nulls else 4]
    line = _core.encode_process_records(
        data, keys, [str(n) for n in range(6)], subs, times, millis_behind_latest=7, dialect=dialect
    )
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    records = [
        {
            "data": data[i],
            "partitionKey": keys[i],
            "sequenceNumber": str(i),
            "subSequenceNumber": None if dialect == "legacy" else subs[i],
            "approximateArrivalTimestamp": times[i],
        }
        for i in range(6)
    ]
    wanted = {
        "action": "processRecords",
        "records": records,
        "millisBehindLatest": None if dialect == "legacy" else 7,
    }
    assert reference.read_daemon_line(line) == wanted
    assert codec_helpers.agreed(line.rstrip(b"\n")) == reference.comparable(wanted)


def test_encoded_bytes_are_the_daemons() -> None:
    """The lines of the specification, section 3, and of KCL 1.7.1."""
    modern = _core.encode_process_records(
        [b"hello"], ["k"], ["4959"], [0], [1700000000123], millis_behind_latest=1234, dialect="modern"
    )
    assert modern == (
        b'{"action":"processRecords","records":[{"data":"aGVsbG8=","partitionKey":"k","sequenceNumber":"4959",'
        b'"approximateArrivalTimestamp":1700000000123,"subSequenceNumber":0,"action":"record"}],"millisBehindLatest":1234}\n'
    )
    legacy = _core.encode_process_records(
        [b"hello", None], ["k", "k"], ["49", "50"], None, [1700000000123, None], dialect="legacy"
    )
    assert legacy == (
        b'{"action":"processRecords","records":[{"data":"aGVsbG8=","partitionKey":"k","sequenceNumber":"49",'
        b'"approximateArrivalTimestamp":1700000000123},{"data":null,"partitionKey":"k","sequenceNumber":"50",'
        b'"approximateArrivalTimestamp":null}]}\n'
    )


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="2"):
        _core.encode_process_records([b"a", b"b"], ["k"], ["1", "2"], None, None)


def test_status_and_checkpoint_lines() -> None:
    assert _core.encode_status("processRecords") == b'\n{"action":"status","responseFor":"processRecords"}\n'
    assert _core.encode_checkpoint("1", 2, "modern") == (
        b'\n{"action":"checkpoint","sequenceNumber":"1","subSequenceNumber":2}\n'
    )
    assert _core.encode_checkpoint(None, None, "modern") == (
        b'\n{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}\n'
    )
    assert _core.encode_checkpoint("1", 0, "legacy") == b'\n{"action":"checkpoint","checkpoint":"1"}\n'
    assert _core.encode_checkpoint(None, None, "legacy") == b'\n{"action":"checkpoint","checkpoint":null}\n'


@pytest.mark.parametrize("text", ['q"\\', "\x00\n\r\x1f\x7f", "é\u2028\ud7ff", "😀"])
def test_what_a_child_writes_is_ascii_on_one_line(text: str) -> None:
    """The daemon's charset may be anything; only ASCII is safe (specification, section 1)."""
    for line in (_core.encode_status(text), _core.encode_checkpoint(text, None, "modern")):
        body = line.strip(b"\n")
        assert body.isascii()
        assert not any(byte < 0x20 or byte == 0x7F for byte in body)
        assert text in json.loads(body).values()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [((None, 1, "modern"), "sequence"), (("1", 3, "legacy"), "sub-sequence"), (("1", 0, "ancient"), "dialect")],
)
def test_checkpoints_that_cannot_be_written(arguments: tuple, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        _core.encode_checkpoint(*arguments)


def test_positions_compare_as_numbers() -> None:
    """As integers, then by sub-sequence number, where a missing one is 0."""
    ordered = [
        _core.Position.AT_TIMESTAMP,
        _core.Position.TRIM_HORIZON,
        _core.Position.LATEST,
        _core.Position("0"),
        _core.Position("9"),
        _core.Position("10"),
        _core.Position("10", 1),
        _core.Position("10", 12),
        _core.Position("011"),
        _core.Position("1" + "0" * 128),
        _core.Position.SHARD_END,
    ]
    shuffled = ordered[3:] + ordered[:3]
    assert sorted(shuffled) == ordered
    for low, high in zip(ordered, ordered[1:], strict=False):
        assert low < high
        assert low <= high
        assert high > low
        assert high >= low
        assert low != high
    assert _core.Position("10") == _core.Position("10", 0) == _core.Position("0010")
    assert len({_core.Position("10"), _core.Position("10", 0), _core.Position("0010")}) == 1
    sequence_number, sub_sequence_number = _core.Position("10", 3)
    assert (sequence_number, sub_sequence_number) == ("10", 3)
    assert _core.Position("10") != "10"
    assert repr(_core.Position("10", 3)) == "Position('10', 3)"
    assert repr(_core.Position.SHARD_END) == "Position.SHARD_END"


@pytest.mark.parametrize("wrong", ["", "TRIM_HORIZON", "-1", "1.0", " 1", "١", "1_0", "0x1"])
def test_positions_need_decimal_digits(wrong: str) -> None:
    with pytest.raises(ValueError, match="decimal"):
        _core.Position(wrong)


@pytest.mark.parametrize("text", ["0", "49", "49/0", "49/3", "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", "SHARD_END"])
def test_positions_as_text(text: str) -> None:
    """`str` writes what `parse` reads, and pickle and copy keep it."""
    position = _core.Position.parse(text)
    assert str(position) == text
    assert position.is_sentinel is not text[0].isdigit()
    assert position.sequence_number == text.partition("/")[0]
    for same in (copy.copy(position), pickle.loads(pickle.dumps(position))):
        assert (same, str(same)) == (position, text)


@pytest.mark.parametrize(
    "text", ["", "/", "49/", "/3", "49/-1", "49/+1", "49/1/2", "-1", "4 9", "latest", "49/" + "9" * 20, "٤٩"]
)
def test_texts_that_are_no_position(text: str) -> None:
    with pytest.raises(ValueError, match="is no position: NUMBER, NUMBER/NUMBER, TRIM_HORIZON"):
        _core.Position.parse(text)


def test_messages_are_made_compared_and_shown() -> None:
    """Every message but processRecords can be made for tests; equal fields make equal messages."""
    cases = [
        (INITIALIZE, _core.Initialize(shard_id="s", sequence_number="1", sub_sequence_number=0, dialect="modern")),
        (LEASE_LOST, _core.LeaseLost()),
        (b'{"action":"shardEnded"}', _core.ShardEnded()),
        (b'{"action":"shutdownRequested"}', _core.ShutdownRequested()),
        (b'{"action":"shutdown","reason":"ZOMBIE"}', _core.Shutdown(reason="ZOMBIE")),
        (
            b'{"action":"checkpoint","sequenceNumber":"1","subSequenceNumber":2,"error":"X"}',
            _core.Checkpoint(sequence_number="1", sub_sequence_number=2, error="X"),
        ),
    ]
    for line, made in cases:
        decoded = _core.decode_line(line)
        assert decoded == made
        assert decoded.action == json.loads(line)["action"]
        assert type(made).__name__ in repr(made)
    assert len({repr(made) for _, made in cases}) == len(cases)
    assert _core.Shutdown(reason="ZOMBIE") != _core.Shutdown(reason="TERMINATE")
