"""Messages between markers: all decode cases, and streams of any kind against ten lines that say the rules."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import case_files
import pyarrow as pa
import pytest
from case_files import Case
from fastkcl import DecodeError, _core
from hypothesis import assume, given
from hypothesis import strategies as st

Event = tuple[str, bytes | None]
CASES = case_files.load("dkb-frames", "decode")


def decoded(markers: dict[str, Any], pieces: Iterable[bytes]) -> list[Event]:
    """What a decoder makes of the pieces; a message that EOP ended is "unterminated"."""
    decoder = _core.MarkerDecoder(**markers)
    events: list[Event] = []

    def take() -> None:
        for event in decoder:
            unterminated = event.kind == "message" and not event.terminated
            events.append(("unterminated" if unterminated else event.kind, event.data))

    for piece in pieces:
        decoder.feed(piece)
        take()
    decoder.finish()
    take()
    return events


def read(markers: dict[str, Any], pieces: Iterable[bytes]) -> list[Event]:
    """The same from a pipe."""
    read_fd, write_fd = os.pipe()

    def write() -> None:
        for piece in pieces:
            os.write(write_fd, piece)
        os.close(write_fd)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reader = _core.MarkerReader(read_fd, **markers)
        events: list[Event] = []
        while (event := reader.read()) is not None:
            unterminated = event.kind == "message" and not event.terminated
            events.append(("unterminated" if unterminated else event.kind, event.data))
        return events
    finally:
        writer.join()
        os.close(read_fd)


def reference(stream: bytes, eom: bytes, eop: bytes | None, boundary: bytes | None) -> Iterator[Event]:
    at = start = 0
    while at < len(stream):
        if boundary and at == start and stream.startswith(boundary, at):
            yield "at_boundary", None
            at = start = at + len(boundary)
        elif stream.startswith(eom, at):
            yield "message", stream[start:at]
            if eop == eom:
                yield "end_of_process", None
            at = start = at + len(eom)
        elif eop and stream.startswith(eop, at):
            if at > start:
                yield "unterminated", stream[start:at]
            yield "end_of_process", None
            at = start = at + len(eop)
        else:
            at += 1
    if at > start:
        yield "truncated", stream[start:]


def case_markers(case: Case) -> dict[str, Any]:
    given = {name: marker.encode() if marker else None for name, marker in case["markers"].items()}
    if case["role"] == "supervisor":
        return {"end_of_message": given["eom"], "end_of_process": given["eop"], "at_boundary": given["bnc"]}
    boundary = given["eob"] if case["batch_size"] != 1 else None
    return {"end_of_message": given["eom"], "at_boundary": boundary}


def case_events(case: Case) -> list[Event]:
    boundary = "BNC" if case["role"] == "supervisor" else "EOB"
    events: list[Event] = []
    for event in case["events"]:
        if "marker" in event:
            events.append(("at_boundary" if event["marker"] == boundary else "end_of_process", None))
        elif "truncated" in event:
            events.append(("truncated", event["truncated"].encode()))
        elif not event.get("end"):
            data = base64.b64decode(event["message_b64"]) if "message_b64" in event else event["message"].encode()
            events.append(("unterminated" if event.get("unterminated") else "message", data))
    assert case["events"][-1] == {"end": True}
    return events


@pytest.mark.parametrize("way", [decoded, read])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_decode_case(case: Case, way: Any) -> None:
    chunks = [base64.b64decode(chunk) for chunk in case["chunks_b64"]]
    whole = b"".join(chunks)
    for pieces in (chunks, [whole], [whole[at : at + 1] for at in range(len(whole))]):
        events = way(case_markers(case), pieces)
        if case["role"] == "supervisor":  # whose connection discards empty messages
            events = [event for event in events if event != ("message", b"")]
        assert events == case_events(case)


LETTERS = st.text("abc", min_size=1, max_size=4).map(str.encode)


@given(
    eom=LETTERS,
    eop=st.none() | LETTERS,
    boundary=st.none() | LETTERS,
    stream=st.text("abcd", max_size=60).map(str.encode),
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_any_stream_in_any_pieces(
    eom: bytes, eop: bytes | None, boundary: bytes | None, stream: bytes, cuts: list[int]
) -> None:
    markers = {"end_of_message": eom, "end_of_process": eop, "at_boundary": boundary}
    try:
        _core.MarkerDecoder(**markers)
    except ValueError:
        assume(False)
    pieces, at = [], 0
    while at < len(stream):
        cut = cuts[len(pieces) % len(cuts)]
        pieces.append(stream[at : at + cut])
        at += cut
    assert decoded(markers, pieces) == list(reference(stream, eom, eop, boundary))


def test_a_marker_is_told_before_anything_follows() -> None:
    """Who sends EOB and waits must be answered."""
    decoder = _core.MarkerDecoder(end_of_message=b"\n", at_boundary=b"EOB")
    decoder.feed(b"a\nEO")
    assert [event.kind for event in decoder] == ["message"]
    decoder.feed(b"B")
    assert [event.kind for event in decoder] == ["at_boundary"]


@pytest.mark.parametrize("piece", [1, 1000])
def test_a_message_that_is_too_long(piece: int) -> None:
    decoder = _core.MarkerDecoder(end_of_message=b"EOM", max_message_bytes=10)
    for message in (b"0123456789", b"0123456789X"):
        stream = message + b"EOM"
        for at in range(0, len(stream), piece):
            decoder.feed(stream[at : at + piece])
            if len(message) == 10:
                assert [event.data for event in decoder] == [message][: at + piece >= len(stream)]
    with pytest.raises(DecodeError, match="message_too_long: a message is longer than max_message_bytes=10") as caught:
        next(iter(decoder))
    assert (caught.value.kind, caught.value.context[:11]) == ("message_too_long", b"0123456789X")
    assert list(decoder) == []


@pytest.mark.parametrize(
    ("markers", "says"),
    [
        ({"end_of_message": b""}, "1 to 16 bytes"),
        ({"end_of_message": b"x" * 17}, "1 to 16 bytes"),
        ({"end_of_message": b"EO", "end_of_process": b"EOP"}, '"EO" is a prefix of "EOP"'),
        ({"end_of_message": b"\n", "at_boundary": b"\n"}, "is a prefix of"),
        ({"end_of_message": b"\n", "max_message_bytes": 0}, "max_message_bytes must be from 1"),
    ],
)
def test_markers_that_cannot_be_told_apart(markers: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _core.MarkerDecoder(**markers)


def test_decoders_wherever_they_are_in_memory() -> None:
    """Vectors of a search are aligned to 32 bytes, and objects of Python to 16."""
    decoders = [_core.MarkerDecoder(end_of_message=b"EOM") for _ in range(64)]
    for decoder in decoders:
        decoder.feed(b"x" * 1000 + b"EOM")
        assert [len(event.data or b"") for event in decoder] == [1000]


class TestColumns:
    def test_a_run_goes_to_columns(self) -> None:
        read_fd, write_fd = os.pipe()
        reader = _core.MarkerReader(read_fd, end_of_message=b"\n", at_boundary=b"\x17")
        os.write(write_fd, b"a\n\nb\n\x17c\n\xff\nrest")
        os.close(write_fd)
        event = reader.read_run(2)
        assert event is not None
        assert (event.kind, event.count, reader.collected) == ("collected", 2, 2)
        event = reader.read_run(100)
        assert event is not None
        assert (event.kind, reader.collected) == ("at_boundary", 3)
        first = pa.record_batch(reader.take_batch())
        event = reader.read_run(100)
        assert event is not None
        assert (event.kind, event.data, reader.collected) == ("truncated", b"rest", 2)
        assert reader.read_run(100) is None
        second = pa.record_batch(reader.take_batch())
        os.close(read_fd)
        assert first.schema == pa.schema({"data": pa.binary(), "number": pa.int64()})
        assert first.to_pydict() == {"data": [b"a", b"", b"b"], "number": [0, 1, 2]}
        assert second.to_pydict() == {"data": [b"c", b"\xff"], "number": [3, 4]}

    def test_messages_at_hand(self) -> None:
        batch = _core.message_batch([b"a", bytearray(b"bc")], first_number=7)
        assert (len(batch), batch.num_rows) == (2, 2)
        assert pa.record_batch(batch.slice(1)).to_pydict() == {"data": [b"bc"], "number": [8]}
        assert batch.capacity_bytes >= batch.nbytes >= 2 * 8 + 3
        assert batch.slice(0, 0).num_rows == 0
        with pytest.raises(IndexError, match="slice at 1, length 2 is outside of a batch of 2 messages"):
            batch.slice(1, 2)

    def test_numbers_have_64_bits(self) -> None:
        last = _core.message_batch([b"a"], first_number=2**63 - 2)
        assert pa.record_batch(last)["number"].to_pylist() == [2**63 - 2]
        for messages, first_number in (([b"a"], 2**63 - 1), ([b"", b""], 2**63 - 2)):
            with pytest.raises(ValueError, match="64 bits"):
                _core.message_batch(messages, first_number=first_number)
