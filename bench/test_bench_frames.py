"""Frames of ProcessV1: 1 KiB messages in pieces of 64 KiB, as a pipe gives them.

*pure Python* looks at each byte; *pure Python, split* leaves the lines to str.split, which is C. *frames* and
*messages* are fastkcl's. All make an object of Python for each frame; the framer without objects is measured by
rust/bench, --bin framing.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator

from fastkcl import _core
from suites import Way, one_core, take_turns, timed

PIECE = 64 * 1024
ROUNDS = 15
WHITE_SPACE = "".join(chr(point) for point in range(0x3001) if chr(point).isspace() and point not in range(0x1C, 0x20))


def frames(count: int) -> bytes:
    """Messages of 1 KiB each."""
    texts = (f'{{"Id":{number},"ChannelName":"c","Data":"' for number in range(count))
    return b"".join((text + "x" * (1024 - len(text) - 7) + '"}\nend\n').encode() for text in texts)


def plain_python(data: bytes) -> Iterator[str]:
    """The frames' texts, as the protocol cuts them."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    newlines = io.IncrementalNewlineDecoder(decoder, translate=True)
    rest, lines = "", []
    for start in range(0, len(data), PIECE):
        *complete, rest = (rest + newlines.decode(data[start : start + PIECE])).split("\n")
        for line in complete:
            if line.strip(WHITE_SPACE) == "end":
                yield "\n".join(lines)
                lines.clear()
            else:
                lines.append(line)


def byte_by_byte(data: bytes) -> Iterator[str]:
    """The same, a byte at a time, for input without CR."""
    frame, line = bytearray(), bytearray()
    for start in range(0, len(data), PIECE):
        for byte in data[start : start + PIECE]:
            line.append(byte)
            if byte == 10:
                if line.decode().strip(WHITE_SPACE + "\n") == "end":
                    yield frame[:-1].decode()
                    frame.clear()
                else:
                    frame += line
                line.clear()


def rust_frames(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """The same from the extension's framer."""
    framer = _core.EndLineFramer()
    for start in range(0, len(data), PIECE):
        framer.feed(data[start : start + PIECE])
        yield from framer


def rust_messages(data: bytes) -> Iterator[object]:
    """The frames' messages."""
    decoder = _core.StitchDecoder()
    for start in range(0, len(data), PIECE):
        decoder.feed(data[start : start + PIECE])
        yield from decoder


def counted(way: Callable[[bytes], Iterator[object]]) -> Callable[[bytes], int]:
    """A way through all frames that keeps none."""
    return lambda data: sum(1 for _ in way(data))


def test_frames(benchmark) -> None:
    """Equal frames; then timed in turn."""
    count = 20_000 if benchmark.enabled else 200
    data = frames(count)
    assert len(data) == count * 1024
    expected = list(plain_python(data))
    assert [text.decode() for text, terminated in rust_frames(data) if terminated] == expected
    assert [getattr(message, "id", None) for message in rust_messages(data)] == list(range(count))
    assert list(byte_by_byte(data[: 100 * 1024])) == expected[:100]
    peers = {
        "pure Python": byte_by_byte,
        "pure Python, split": plain_python,
        "frames": rust_frames,
        "messages": rust_messages,
    }
    ways: dict[str, Way] = {name: timed(counted(way), data) for name, way in peers.items()}
    with one_core():
        take_turns(benchmark, "frames", "1 KiB", ways, ROUNDS, line_bytes=len(data), records=count)
