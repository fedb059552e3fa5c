"""Lines of real daemons decode as the independent reference reads them, however the bytes arrive."""

import os
import random
import threading
from pathlib import Path

import captures
import codec_helpers
import pyarrow as pa
import pytest
import reference
from fastkcl import _core


def check(messages: list[codec_helpers.Message], wanted: list[reference.Message]) -> None:
    assert [codec_helpers.to_dict(message) for message in messages] == [reference.comparable(one) for one in wanted]


def fed(content: bytes, cuts: list[int]) -> list[codec_helpers.Message]:
    decoder = _core.Decoder()
    messages: list[codec_helpers.Message] = []
    start = 0
    for end in [*cuts, len(content)]:
        decoder.feed(content[start:end])
        messages += decoder
        start = end
    assert decoder.finish() is None
    return messages


def test_captures_are_all_there() -> None:
    assert len(captures.CAPTURES) == 33


@pytest.fixture(params=captures.CAPTURES, ids=captures.name_of)
def capture(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_capture_line_by_line(capture: Path) -> None:
    check([_core.decode_line(line) for line in captures.lines(capture)], captures.expected(capture))


def test_capture_in_one_piece(capture: Path) -> None:
    content = captures.read(capture)
    check(fed(content, []), captures.expected(capture))


@pytest.mark.parametrize("mean", [3, 64, 1000, 65536])
def test_capture_in_random_pieces(capture: Path, mean: int) -> None:
    content = captures.read(capture)
    check(fed(content, codec_helpers.random_cuts(random.Random(mean), len(content), mean)), captures.expected(capture))


def test_capture_one_byte_at_a_time(capture: Path) -> None:
    content = captures.read(capture)
    check(fed(content, list(range(1, len(content)))), captures.expected(capture))


def test_capture_with_crlf(capture: Path) -> None:
    """A JVM on Windows ends its lines with CR LF."""
    content = captures.read(capture)
    check(fed(content.replace(b"\n", b"\r\n"), []), captures.expected(capture))


def test_capture_through_a_pipe(capture: Path) -> None:
    content = captures.read(capture)
    read_end, write_end = os.pipe()

    def write() -> None:
        _core.write_all(write_end, content, write_size=8192)
        os.close(write_end)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reader = _core.Reader(read_end)
        messages = []
        while (message := reader.read()) is not None:
            messages.append(message)
        assert reader.bytes_read == len(content)
    finally:
        os.close(read_end)
        writer.join()
    check(messages, captures.expected(capture))


def test_capture_as_arrow(capture: Path) -> None:
    """Columns, types, nullability and nulls are those that pyarrow builds itself."""
    content = captures.read(capture)
    batches = [message.batch for message in fed(content, []) if isinstance(message, _core.ProcessRecords)]
    wanted = [message for message in captures.expected(capture) if message["action"] == "processRecords"]
    assert len(batches) == len(wanted)
    for batch, message in zip(batches, wanted, strict=True):
        arrow = pa.record_batch(batch)
        arrow.validate(full=True)
        assert arrow.schema.equals(reference.SCHEMA, check_metadata=True)
        assert arrow.equals(reference.record_batch(message["records"]))


def test_capture_knows_its_shard(capture: Path) -> None:
    """Every batch after initialize names the shard of that message."""
    messages = fed(captures.read(capture), [])
    first = messages[0]
    assert isinstance(first, _core.Initialize)
    batches = [message.batch for message in messages if isinstance(message, _core.ProcessRecords)]
    assert {batch.shard_id for batch in batches} <= {first.shard_id}
