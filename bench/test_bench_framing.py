"""Messages between markers, 1 KiB each, in pieces of 256 KiB as a pipe gives them: fastkcl beside framers in Python.

*pure Python* looks at each byte, as one writes it for markers of any length that a read may cut; *pure Python, find*
leaves the search to bytes.find, which is C. The ratio to a memchr pass over the same bytes: rust/bench, --bin framing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from fastkcl import _core
from suites import one_core, take_turns, timed

ROUNDS = 11
MESSAGE_BYTES = 1024
PIECE_BYTES = 256 * 1024
MARKERS = {"EOM of 1 byte": b"\n", "EOM of 3 bytes": b"EOM"}

Frame = Callable[[list[bytes]], list[bytes]]


def columns(eom: bytes) -> Callable[[list[bytes]], list[_core.MessageBatch]]:
    """To Arrow, a batch a piece."""

    def frame(pieces: list[bytes]) -> list[_core.MessageBatch]:
        decoder = _core.MarkerDecoder(end_of_message=eom)
        decoder.collect(2**62)
        batches = []
        for piece in pieces:
            decoder.feed(piece)
            assert next(decoder, None) is None
            batches.append(decoder.take_batch())
        return batches

    return frame


def messages(eom: bytes) -> Frame:
    """To bytes objects, one a message."""

    def frame(pieces: list[bytes]) -> list[bytes]:
        decoder = _core.MarkerDecoder(end_of_message=eom)
        found = []
        for piece in pieces:
            decoder.feed(piece)
            found += [event.data for event in decoder]
        return found

    return frame


def byte_by_byte(eom: bytes) -> Frame:
    """A marker of any length, wherever a read cuts it."""

    def frame(pieces: list[bytes]) -> list[bytes]:
        found: list[bytes] = []
        message = bytearray()
        last, length = eom[-1], len(eom)
        for piece in pieces:
            for byte in piece:
                message.append(byte)
                if byte == last and message.endswith(eom):
                    found.append(bytes(message[:-length]))
                    message.clear()
        return found

    return frame


def by_find(eom: bytes) -> Frame:
    """The same with bytes.find."""

    def split(pieces: list[bytes]) -> Iterator[bytes]:
        rest = b""
        for piece in pieces:
            data, start = rest + piece, 0
            while (end := data.find(eom, start)) >= 0:
                yield data[start:end]
                start = end + len(eom)
            rest = data[start:]

    return lambda pieces: list(split(pieces))


@pytest.mark.parametrize("profile", MARKERS)
def test_framing(benchmark, profile: str) -> None:
    """Equal messages from all, whatever the pieces; then timed in turn."""
    eom = MARKERS[profile]
    count = 8192 if benchmark.enabled else 600
    stream = b"".join(b"%0*d" % (MESSAGE_BYTES - len(eom), number) + eom for number in range(count))
    pieces = [stream[at : at + PIECE_BYTES] for at in range(0, len(stream), PIECE_BYTES)]
    odd = [stream[at : at + 1000] for at in range(0, len(stream), 1000)]
    ways = {"fastkcl, messages": messages(eom), "pure Python, find": by_find(eom), "pure Python": byte_by_byte(eom)}
    expected = stream.split(eom)[:-1]
    for cut in (pieces, odd):
        for name, frame in ways.items():
            assert frame(cut) == expected, name
        table = pa.Table.from_batches([pa.record_batch(batch) for batch in columns(eom)(cut)])
        assert table["data"].to_pylist() == expected
    with one_core():
        timed_ways = {"fastkcl, columns": timed(columns(eom), pieces)} | {
            name: timed(frame, pieces) for name, frame in ways.items()
        }
        take_turns(benchmark, "framing in Python", profile, timed_ways, ROUNDS, line_bytes=len(stream), records=count)
