"""Ways to decode one line, and their results in a form that can be compared.

Every way must give the same `Outcome`: the message as the case files write it (kind decode, field
``expect``), or the error's kind, field, record, offset and reason.
"""

import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fastkcl import _core

ALL_ISAS = ("avx512", "avx2", "neon", "portable")
"""Every backend that the codec may have on some CPU."""

REQUIRED_ISAS = tuple(name.strip() for name in os.environ.get("FASTKCL_REQUIRE_ISA", "").split(",") if name.strip())
"""Backends whose absence is a failure in this run."""

Message = (
    _core.Initialize
    | _core.ProcessRecords
    | _core.LeaseLost
    | _core.ShardEnded
    | _core.ShutdownRequested
    | _core.Shutdown
    | _core.Checkpoint
)
"""What the decoder hands out (the stub's alias does not exist at run time)."""

Error = tuple[str, str | None, int | None, int | None, str | None]
"""kind, field, record, offset, reason"""

Outcome = dict[str, Any] | Error | None
"""Message, error, or None for a line that is ignored."""

_SENTINEL = b'{"action":"leaseLost"}\n'


def unsupported_isas() -> list[str]:
    """Backends that cannot run here, so that no test of this run covered them."""
    supported = _core.supported_isas()
    return [name for name in ALL_ISAS if name not in supported]


def error_tuple(error: _core.DecodeError) -> Error:
    return (error.kind, error.field, error.record, error.offset, error.reason)


def to_dict(message: Message | None) -> Outcome:
    """A message as the case files write it; payloads in hex, times in milliseconds."""
    match message:
        case None:
            return None
        case _core.Initialize():
            return {
                "action": "initialize",
                "shardId": message.shard_id,
                "sequenceNumber": message.sequence_number,
                "subSequenceNumber": message.sub_sequence_number,
                "dialect": message.dialect,
            }
        case _core.ProcessRecords():
            assert message.batch.millis_behind_latest == message.millis_behind_latest
            return {
                "action": "processRecords",
                "records": [record_dict(record) for record in message.batch],
                "millisBehindLatest": message.millis_behind_latest,
            }
        case _core.Shutdown():
            return {"action": "shutdown", "reason": message.reason}
        case _core.Checkpoint():
            return {
                "action": "checkpoint",
                "sequenceNumber": message.sequence_number,
                "subSequenceNumber": message.sub_sequence_number,
                "error": message.error,
            }
        case _core.LeaseLost() | _core.ShardEnded() | _core.ShutdownRequested():
            return {"action": message.action}
    raise AssertionError(f"no message: {message!r}")


def record_dict(record: _core.Record) -> dict[str, Any]:
    data = record.data
    return {
        "data": None if data is None else data.hex(),
        "partitionKey": record.partition_key,
        "sequenceNumber": record.sequence_number,
        "subSequenceNumber": record.sub_sequence_number,
        "approximateArrivalTimestamp": record.timestamp_millis,
    }


def whole(line: bytes) -> Outcome:
    """`decode_line` on the line without its line feed."""
    try:
        return to_dict(_core.decode_line(line))
    except _core.DecodeError as error:
        return error_tuple(error)


def whole_with_line_feed(line: bytes) -> Outcome:
    try:
        return to_dict(_core.decode_line(memoryview(line + b"\n")))
    except _core.DecodeError as error:
        return error_tuple(error)


def stream(line: bytes, cuts: Iterable[int]) -> Outcome:
    """One `Decoder`, the line cut at `cuts`, after another line and before one more.

    The neighbours show that offsets count from the start of the line and that decoding goes on after
    an error; nothing may come out of the line before it is complete.
    """
    decoder = _core.Decoder()
    decoder.feed(_SENTINEL)
    assert list(decoder) == [_core.LeaseLost()]
    error: Error | None = None
    message: Message | None = None
    start = 0
    for end in [*cuts, len(line)]:
        decoder.feed(line[start:end])
        try:
            early = list(decoder)
        except _core.DecodeError as raised:
            assert error is None, "two errors out of one line"
            error = error_tuple(raised)
        else:
            assert early == [], "a message out of an unfinished line"
        start = end
    decoder.feed(b"\n" + _SENTINEL)
    if error is None:
        try:
            message = next(decoder)
        except _core.DecodeError as raised:
            error = error_tuple(raised)
    if error is not None or not is_blank(line):
        rest = list(decoder)
    else:
        rest, message = [message, *decoder], None  # a blank line gives nothing: this is the neighbour
    assert rest == [_core.LeaseLost()], f"the next line was lost: {rest!r}"
    assert decoder.finish() is None
    return to_dict(message) if error is None else error


def is_blank(line: bytes) -> bool:
    return not line.strip(b" \t\r\n")


def stream_whole(line: bytes) -> Outcome:
    return stream(line, [])


def stream_bytewise(line: bytes) -> Outcome:
    return stream(line, range(1, len(line)))


def stream_chunked(line: bytes) -> Outcome:
    """Cut at random places, the same for the same line."""
    chooser = random.Random(line)
    mean = chooser.choice((2, 7, 64, 500, 4096))
    return stream(line, random_cuts(chooser, len(line), mean))


def random_cuts(chooser: random.Random, length: int, mean: float) -> list[int]:
    """Rising places in a text of `length` bytes, `mean` bytes apart on average."""
    cuts = []
    at = 0
    while (at := at + 1 + int(chooser.expovariate(1 / mean))) < length:
        cuts.append(at)
    return cuts


def without_line_feed(line: bytes) -> Outcome:
    """The line is the last of the input and its line feed is missing."""
    decoder = _core.Decoder()
    decoder.feed(line)
    try:
        assert list(decoder) == []
        return to_dict(decoder.finish())
    except _core.DecodeError as error:
        return error_tuple(error)


def read_from_descriptor(line: bytes) -> Outcome:
    """`Reader` on a file descriptor, with a neighbour before and after."""
    fd = os.memfd_create("line")
    try:
        os.write(fd, _SENTINEL + line + b"\n" + _SENTINEL)
        os.lseek(fd, 0, os.SEEK_SET)
        reader = _core.Reader(fd)
        assert reader.read() == _core.LeaseLost()
        outcome: Outcome = None
        if not is_blank(line):
            try:
                outcome = to_dict(reader.read())
            except _core.DecodeError as error:
                outcome = error_tuple(error)
        assert reader.read() == _core.LeaseLost(), "the next line was lost"
        assert reader.read() is None
        assert reader.bytes_read == 2 * len(_SENTINEL) + len(line) + 1
        return outcome
    finally:
        os.close(fd)


WAYS: dict[str, Callable[[bytes], Outcome]] = {
    "whole": whole,
    "whole_with_line_feed": whole_with_line_feed,
    "stream_whole": stream_whole,
    "stream_chunked": stream_chunked,
    "stream_bytewise": stream_bytewise,
    "without_line_feed": without_line_feed,
    "read_from_descriptor": read_from_descriptor,
}

BYTEWISE_LIMIT = 64 * 1024
"""Bytes of a line above which one byte at a time is left to the shorter lines."""


def ways_for(line: bytes) -> dict[str, Callable[[bytes], Outcome]]:
    """The ways to decode a line; the slow one only for lines up to `BYTEWISE_LIMIT`."""
    return {name: way for name, way in WAYS.items() if name != "stream_bytewise" or len(line) <= BYTEWISE_LIMIT}


def agreed(line: bytes, ways: Sequence[str] | None = None) -> Outcome:
    """The outcome of a line, which has to be the same in every way.

    Raises:
        AssertionError: two ways differ.
    """
    chosen = ways_for(line) if ways is None else {name: WAYS[name] for name in ways}
    outcomes = {name: way(line) for name, way in chosen.items()}
    first_name, first = next(iter(outcomes.items()))
    for name, outcome in outcomes.items():
        assert outcome == first, f"{name} gives {outcome!r}, {first_name} gives {first!r}, line {line[:300]!r}"
    return first


def batch_line(records: int, payload_bytes: int, *, seed: int = 0, first: int = 0) -> bytes:
    """A processRecords line as a modern daemon writes it, with its line feed; random payloads, rising numbers."""
    chooser = random.Random(seed)
    return _core.encode_process_records(
        [chooser.randbytes(payload_bytes) for _ in range(records)],
        [f"key-{index}" for index in range(records)],
        [str(first + index) for index in range(records)],
        [0] * records,
        [1_700_000_000_000 + index for index in range(records)],
        millis_behind_latest=0,
    )


def batch_of(line: bytes) -> _core.RecordBatch:
    """The batch of a processRecords line."""
    message = _core.decode_line(line)
    assert isinstance(message, _core.ProcessRecords)
    return message.batch
