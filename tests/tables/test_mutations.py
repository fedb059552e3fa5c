"""Everything read of a table is checked before it is believed: files are changed in their values, shapes and bytes.

A reader gives the error that it is documented to give, or the result for the file as it was: never another exception,
and never another position.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastkcl import Position
from fastkcl.spark.sinks import ParquetSink
from fastkcl.tables import SinkError
from fastkcl.tables.delta.actions import about, beginning, information, lines, transactions
from fastkcl.tables.delta.log import version_named
from fastkcl.tables.delta.snapshot import NOTHING
from fastkcl.tables.folders import parse_position
from fastkcl.tables.given_up import GivenUp, noted, text_of
from fastkcl.tables.group import Answer, Outcome, Request
from fastkcl.tables.group_folder import PosixFolder, _sealed, answer_of, bytes_of, request_of
from fastkcl.tables.iceberg.state import POSITION, Seen, position_value
from fastkcl.tables.parquet.chain import Footer, State, position_in
from fastkcl.tables.parquet.claim import parse_claim
from fastkcl.tables.parquet.footers import check_footer
from fastkcl.tables.parquet.sink import _read, read_id
from sink_helpers import SHARD, FakeSession, rows

UPTO = Position("49590338271490256608559692538361571095921575989136588898", 0)
AFTER = Position("49590338271490256608559692538361571095921575989136588801", 0)
NAMES = "clicks/shardId-000000000000"

BAD: list[Any] = [
    *(None, True, False, -1, 1.5, 1e308, float("nan"), float("inf"), 2**63, 10**400),
    *("", "x", "٣", "²", "\ud800", "9" * 130, "7 ", "1_0", "start"),
    *(
        [],
        {},
        [[]],
        [None, None],
        ["7"],
        ["7", True],
        ["7", -1],
        ["7", 1.0],
        ["7", 2**63],
        ["7", 0, 0],
        {"7": 0, "8": 1},
    ),
]
"""In the place of a value."""


def with_each(value: Any, there: Any) -> Iterator[Any]:
    """A JSON value with one part of it replaced, or left out."""
    yield there
    if isinstance(value, dict):
        for key, part in value.items():
            for changed in with_each(part, there):
                yield {**value, key: changed}
            yield {name: each for name, each in value.items() if name != key}
    if isinstance(value, list):
        for index, part in enumerate(value):
            for changed in with_each(part, there):
                yield [*value[:index], changed, *value[index + 1 :]]
            yield value[:index] + value[index + 1 :]


def values_of(text: bytes) -> Iterator[bytes]:
    """JSON lines with one value of one line replaced."""
    there = text.splitlines(keepends=True)
    for index, line in enumerate(there):
        for bad in BAD:
            for changed in with_each(json.loads(line), bad):
                yield b"".join([*there[:index], json.dumps(changed).encode() + b"\n", *there[index + 1 :]])


def bytes_changed(text: bytes) -> Iterator[bytes]:
    """Cut off, empty, no UTF-8, too deep, with endless digits, and with keys that are named twice."""
    chance = random.Random(7)
    yield from (text[:end] for end in {0, 1, len(text) - 3, len(text) // 2, *chance.sample(range(len(text)), 10)})
    yield from (text[:at] + b"\xff" + text[at:] for at in chance.sample(range(len(text)), 10))
    yield from (bytes(len(text)), b"[" * 200_000, b'{"a":' * 200_000, b"9" * 1_000_000)
    for at in [at for at in range(len(text)) if text[at : at + 1] == b":"][:12]:
        yield text[: at + 1] + b"9" * 10_000 + b"," + text[at + 1 :]
    if text.startswith(b"{") and text.count(b"\n") < 2:
        for key in json.loads(text):
            yield b'{"%s":["7",0],' % key.encode() + text[1:]
            yield text.rstrip()[:-1] + b',"%s":["7",0]}' % key.encode()


def bits_flipped(text: bytes) -> Iterator[bytes]:
    for at, byte in enumerate(text):
        yield from (text[:at] + bytes([byte ^ 1 << bit]) + text[at + 1 :] for bit in range(8))


def without_checksum(text: bytes) -> bytes:
    """As an earlier version has written it."""
    members = json.loads(text)
    del members["sha256"]
    return json.dumps(members).encode()


class Reader(NamedTuple):
    text: bytes
    read: Callable[[bytes], Any]
    error: type[Exception]


FOOTER = Footer("id", SHARD, AFTER, UPTO, 3, date(2026, 11, 22), "ab")
REQUEST = Request("0" * 24, "id", SHARD, AFTER, UPTO, 3, {"adds": []})
FIELD = {"name": "a", "type": {"type": "array", "elementType": "string", "containsNull": True}}
SCHEMA = json.dumps({"type": "struct", "fields": [{**FIELD, "nullable": True, "metadata": {}}]})
ENTRY = lines([information([], about(SHARD, AFTER, UPTO, 3)), *transactions(SHARD, UPTO)])


def footer(text: bytes) -> Any:
    found = Footer.parse(text)
    key = f"stream=clicks/shard=shardId-000000000000/{State(AFTER, date(2026, 11, 21)).key}"
    check_footer(found, key, "id", SHARD, "date")
    return found.upto


def entry(text: bytes) -> Any:
    start = NOTHING.moved(beginning(SCHEMA, ["date"]), "0.json")
    return start.moved(text, "1.json").position(SHARD, "table")


def metadata(text: bytes) -> Any:
    found = NOTHING.moved(text, "0.json")
    if found.metadata and found.protocol:
        found.rules("table", "DeltaTable").check(None)
    return None


def request(text: bytes) -> Any:
    found = request_of(_sealed(json.loads(text)))[1]
    return (found.shard.stream.encode() and found.after, found.upto)


EARLIER_NOTE = json.dumps({"upto": [UPTO.sequence_number, UPTO.sub_sequence_number]}).encode()

READERS = {
    "a note": Reader(text_of(GivenUp(AFTER, UPTO)), lambda text: noted(text, "note"), SinkError),
    "an earlier note": Reader(EARLIER_NOTE, lambda text: noted(text, "note"), SinkError),
    "a footer": Reader(FOOTER.text(), footer, ValueError),
    "an earlier footer": Reader(without_checksum(FOOTER.text()), footer, ValueError),
    "a claim": Reader(
        b'{"format":1,"id":"id","partition":"date"}',
        lambda text: parse_claim(text.decode(errors="surrogateescape"), "table")["format"],
        SinkError,
    ),
    "an entry of a log": Reader(ENTRY, entry, SinkError),
    "the first entry of a log": Reader(beginning(SCHEMA, ["date"]), metadata, SinkError),
    "_last_checkpoint": Reader(b'{"version":100,"size":7}', version_named, SinkError),
    "an answer": Reader(
        json.dumps({"outcome": "passed", "why": ""}).encode(),
        lambda text: answer_of("0" * 24, _sealed(json.loads(text))).outcome,
        ValueError,
    ),
    "a request": Reader(bytes_of(REQUEST).partition(b"\n")[2], request, ValueError),
}


def look(reader: Reader, text: bytes, *, also: tuple[Any, ...] = ()) -> None:
    expected = reader.read(reader.text)
    try:
        found = reader.read(text)
    except reader.error:
        return
    assert found == expected or found in also, text[:2000]


@pytest.mark.parametrize("name", list(READERS))
def test_values(name: str) -> None:
    reader = READERS[name]
    also: tuple[Any, ...] = {"a request": ((None, UPTO),), "_last_checkpoint": (-1, 2**63, 10**400)}.get(name, ())
    also = (*Outcome,) if name == "an answer" else also
    for text in values_of(reader.text):
        look(reader, text, also=also)


@pytest.mark.parametrize("name", [name for name in READERS if name not in ("an answer", "a request")])
def test_bytes(name: str) -> None:
    reader = READERS[name]
    for text in bytes_changed(reader.text):
        if name == "an entry of a log" and text.count(b'"txn"') < 4:
            continue  # cut off at the end of a line: `fault` knows that, by what the entry says of itself
        look(reader, text, also=(-1, None))


@pytest.mark.parametrize("name", ["a note", "a footer"])
def test_bits(name: str) -> None:
    """The file's checksum shows it: one bit of a digit makes another position of the same form."""
    reader = READERS[name]
    for text in bits_flipped(reader.text):
        look(reader, text)


def test_sealed_files() -> None:
    for body in bytes_changed(bytes_of(REQUEST)):
        with pytest.raises(ValueError):  # noqa: PT011 - any will do: the file is removed
            request_of(body)
        with pytest.raises(ValueError):  # noqa: PT011
            answer_of("0" * 24, body)
    assert answer_of("0" * 24, _sealed({"outcome": "passed", "why": ""})) == Answer("0" * 24, Outcome.PASSED)


@pytest.fixture(scope="module")
def sinks_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mutations") / "table"
    sink = ParquetSink(root)
    sink.open(SHARD)
    session: Any = FakeSession()
    sink.write(rows(1, 3), session)
    sink.write(rows(4, 6), session)
    return root


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("name", [f"_commits/{NAMES}/after-3.0", "_table"])
def test_files_of_a_parquet_sink(sinks_table: Path, name: str, earlier: bool) -> None:
    path = sinks_table / name
    sound = path.read_bytes()
    has_checksum = not earlier and name != "_table"
    text = without_checksum(sound) if earlier and name != "_table" else sound

    def read(changed: bytes) -> Any:
        path.write_bytes(changed)
        if name == "_table":
            return read_id(sinks_table)
        found = _read(path, NAMES)
        return found.after, found.upto, len(found.files)

    reader = Reader(text, read, SinkError)
    also: tuple[Any, ...] = tuple(bad for bad in BAD if isinstance(bad, str)) if name == "_table" else ()
    flipped = bits_flipped(text) if has_checksum else ()
    for changed in (*values_of(text), *bytes_changed(text), *flipped):
        try:
            found = read(changed)
        except SinkError:
            continue
        expected = (Position("3", 0), Position("6", 0), 1), (Position("3", 0), Position("6", 0), 0)
        lost_a_name = found == expected[1] and not has_checksum
        assert found == expected[0] or lost_a_name or found in also or found == reader.read(text), changed[:2000]
    path.write_bytes(sound)


@pytest.mark.parametrize(
    "place", ["", "x", "start", "7.", "7.-1", f"7.{2**63}", "9" * 130, "٣", "7.0.0", "+7", "7.1_0"]
)
@pytest.mark.parametrize("snapshot", ["12", "", " 12", "1_2", "٣", "9" * 10_000])
def test_properties_of_an_iceberg_table(place: str, snapshot: str) -> None:
    text = f"{place} {snapshot}"
    name = f"{POSITION}{NAMES}"
    sound = Seen("db.clicks", "uuid", {name: position_value(UPTO, 12)}, 12, {12: None})
    assert sound.position(SHARD) == UPTO
    with pytest.raises(SinkError, match=r"its property fastkcl.position.* is damaged"):
        Seen("db.clicks", "uuid", {name: text}, 12, {12: None}).position(SHARD)


@pytest.mark.parametrize(
    "name",
    ["after-001.7.20.99999999999999999999", "after-001.7.02.-1", "after-130." + "9" * 130 + ".zz", "after-001.٣.zz"],
)
def test_names(name: str) -> None:
    with pytest.raises(ValueError, match=r"no file of this table|no position"):
        position_in(f"{name}.parquet")
    with pytest.raises(ValueError, match="no position"):
        parse_position(name.removeprefix("after-"))


def test_a_folder_in_the_place_of_a_request_keeps_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be removed as a file is, and was left open at each look."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with PosixFolder("table").opened() as meeting:
        (folder,) = tmp_path.glob("fastkcl/table-*")
        (folder / f"{'0' * 24}.request").mkdir()
        there = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(20):
            assert meeting.requests() == []
        assert len(list(Path("/proc/self/fd").iterdir())) == there
