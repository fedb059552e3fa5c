"""Bad rows in every format and framing: ``_corrupt`` has exactly those, and the others are right.

Each bad payload comes first, in the middle and last among good ones, next to another bad one, and all of them together.
"""

from __future__ import annotations

import json
import random
import uuid
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pytest
from fastkcl._core import avro_fingerprint
from fastkcl.payloads.framed import FramedReader
from fastkcl.payloads.options import AvroPayload, JsonPayload, ProtobufPayload
from fastkcl.payloads.table import opener_of
from fastkcl.payloads.writing import AvroWriter, ProtobufWriter, frame
from opened_payloads import batch_of
from proto_helpers import varint

ID = "5a1f6c3e-1111-4222-8333-abcdefabcdef"
NUMBER = "7"
MOST = 10_000
"""Bytes of one payload."""
AVRO = json.dumps({"type": "record", "name": "R", "fields": [
    {"name": "s", "type": "string"}, {"name": "n", "type": ["null", "long"]},
    {"name": "a", "type": {"type": "array", "items": "string"}}]})  # fmt: skip
PROTO = """syntax = "proto3"; message R { string s = 1; optional int64 n = 2; repeated string a = 3; Deep d = 4; }
message Deep { int64 x = 1; }"""
COLUMNS = "s string, n bigint, a array<string>"
ROWS = [{"s": f"é{number}", "n": None if number == 1 else -number, "a": ["x", ""] * number} for number in range(3)]

Format: TypeAlias = Literal["avro", "protobuf", "json"]
CASES: list[tuple[Format, str]] = [
    *(("avro", framing) for framing in ("none", "glue", "zlib", "confluent", "single-object")),
    *(("protobuf", framing) for framing in ("none", "glue", "zlib", "confluent")),
    *(("json", framing) for framing in ("none", "glue", "zlib", "confluent")),
]  # fmt: skip
HUGE = (2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**62, 2**63, 2**64 - 2, 2**64 - 1)
"""Lengths, of Avro as the varints that they are: each second one is below zero."""


@cache
def message_writer() -> ProtobufWriter:
    return ProtobufWriter(PROTO, "R")


def body_of(kind: Format, row: dict[str, Any]) -> bytes:
    """A good payload without a header."""
    if kind == "avro":
        return AvroWriter(AVRO).write(row)
    if kind == "protobuf":
        return message_writer().of_json(json.dumps(row).encode())
    return json.dumps(row, ensure_ascii=False).encode()


def framed(kind: Format, framing: str, body: bytes) -> bytes:
    """With a header."""
    index = b"" if kind != "protobuf" else {"glue": b"\x01", "zlib": b"\x01", "confluent": b"\0"}.get(framing, b"")
    ids = {"confluent": NUMBER, "glue": ID, "zlib": ID, "single-object": avro_fingerprint(AVRO), "none": None}
    name: Any = "glue" if framing == "zlib" else framing
    return frame(name, ids[framing], index + body, compress=framing == "zlib")


def bad_bodies(kind: Format, whole: bytes) -> list[bytes]:
    """What is no value of the schema; that some cuts of Protobuf are one is known from protobuf itself."""
    cuts = [whole[:end] for end in range(len(whole))]
    chance = random.Random(23)  # noqa: S311 - the same each time
    garbage = [b"\xff" * size for size in (1, 9, 200)] + [b"\xff" + chance.randbytes(size) for size in (1, 20, 500)]
    if kind == "avro":
        tails = [whole + b"\0", whole + whole, whole + b"\xff"]
        lengths = [varint(size) + b"abc" for size in HUGE]
        blocks = [b"\x02s\0" + varint(count) for count in HUGE]  # many items, and none of them
        return [*cuts, *garbage, *tails, *lengths, *blocks]
    if kind == "protobuf":
        whole_values = {whole[:end] for end in range(len(whole)) if parses(whole[:end])}
        cuts = [cut for cut in cuts if cut not in whole_values]
        tails = [whole + b"\x0a", whole + b"\x07", whole + b"\0\0"]
        lengths = [b"\x0a" + varint(size) + b"abc" for size in HUGE]
        groups = [b"\x5b" * 10_000, b"\x5b" * 5_000 + b"\x5c" * 5_000]  # of an unknown field, in each other
        return [*cuts, *garbage, *tails, *lengths, *groups, b"\x22\x05\x08\x01"]
    deep = [b'{"s":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a":' * 5_000, b"[" * 200]
    tails = [whole + b"}", whole + whole, whole + b"\0", whole + b",", b"[" + whole + b"]"]
    numbers = [b'{"s": "x", "n": %d}' % (2**64), b'{"n": 1e400}', b'{"s": 7}']
    return [*cuts, *garbage, *tails, *deep, *numbers]


def parses(body: bytes) -> bool:
    """Whether protobuf's own library takes it."""
    try:
        message_writer().read(body)
    except ValueError:
        return False
    return True


def bad_frames(kind: Format, framing: str, body: bytes) -> list[bytes]:
    """What no header is, and what only its unpacking shows."""
    if framing == "none":
        return []
    whole = framed(kind, framing.replace("zlib", "glue"), body)
    header = len(framed(kind, framing.replace("zlib", "glue"), b"")) - (kind == "protobuf")
    bad = [whole[:end] for end in range(header)] + [bytes([whole[0] ^ 0x80]) + whole[1:], whole[1:], b"\0" + whole]
    if framing in ("glue", "zlib"):
        head = b"\x03\x05" + uuid.UUID(ID).bytes
        packed = zlib.compress(whole[header:])
        bombs = [zlib.compress(bytes(MOST + 1)), zlib.compress(bytes(30 << 20), 9)]
        bad += [head + packed[:end] for end in range(len(packed))]
        bad += [head + packed + b"x", head + packed + packed, head + whole[header:], *(head + each for each in bombs)]
        bad += [bytes((3, code)) + whole[2:] for code in (1, 4, 6, 0xFF)]
    if framing == "confluent":
        bad.append(whole[:1] + b"\0\0\0\x09" + whole[5:])  # an id that is not there
    if framing == "single-object":
        bad.append(whole[:2] + bytes(8) + whole[10:])
    return bad


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For each kind a registry of its schema, under all ids."""
    path = tmp_path_factory.mktemp("registries")
    for kind, suffix, text in (("avro", "avsc", AVRO), ("protobuf", "proto", PROTO), ("json", "json", "{}")):
        (path / kind).mkdir()
        for id_ in (ID, NUMBER):
            (path / kind / f"{id_}.{suffix}").write_text(text)
    return path


def opener(kind: Format, framing: str, folder: Path) -> Callable[[list[bytes]], list[dict[str, Any]]]:
    """Opens payloads, as tables do."""
    name: Any = "glue" if framing == "zlib" else framing
    options: dict[str, Any] = {"framing": name, "registry": None if name == "none" else folder / kind}
    options["max_payload_bytes"] = MOST
    if kind == "avro":
        payload: Any = AvroPayload(schema=AVRO, **options)
    elif kind == "protobuf":
        payload = ProtobufPayload(schema=PROTO, message="R", **options)
    else:
        payload = JsonPayload(COLUMNS, **options)
    made = opener_of(payload, max_bytes=1 << 28, max_table_bytes=1 << 28)
    assert made is not None

    def rows(data: list[bytes]) -> list[dict[str, Any]]:
        table: pa.Table = made.open_all([batch_of([*data])]).table
        return table.select(["s", "n", "a", "_corrupt"]).to_pylist()

    return rows


@pytest.fixture
def quick_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that are missing are looked up again at once."""
    monkeypatch.setattr("fastkcl.payloads.registries.lookups.SECOND_LOOK", 0.0)
    monkeypatch.setattr("fastkcl.payloads.registries.lookups.SPREAD", 0.0)


@pytest.mark.usefixtures("quick_second_look")
@pytest.mark.parametrize(("kind", "framing"), CASES)
def test_bad_rows_cost_no_other(kind: Format, framing: str, folder: Path) -> None:
    rows = opener(kind, framing, folder)
    fine = [framed(kind, framing, body_of(kind, row)) for row in ROWS]
    right = [{**row, "_corrupt": None} for row in ROWS]
    assert rows(fine) == right
    whole = body_of(kind, ROWS[2])
    bad = [framed(kind, framing, body) for body in bad_bodies(kind, whole)] + bad_frames(kind, framing, whole)
    assert len(bad) > 30
    wrong = [{"s": None, "n": None, "a": None, "_corrupt": payload} for payload in bad]
    assert rows(bad) == wrong
    for place in (0, 1, 3):  # first, in the middle, last
        data, wanted = [], []
        for number, payload in enumerate(bad):
            data += [*fine[:place], payload, *fine[place:]]
            wanted += [*right[:place], wrong[number], *right[place:]]
        assert rows(data) == wanted
    for number in (0, len(bad) // 2, len(bad) - 1):  # a batch of its own each
        for place in (0, 1, 3):
            data = [*fine[:place], bad[number], *fine[place:]]
            assert rows(data) == [*right[:place], wrong[number], *right[place:]]


def test_a_reader_without_a_registry_takes_the_readers_schema_alone() -> None:
    """Of single objects: another fingerprint is corrupt, and its neighbours are right."""
    reader = FramedReader(AvroPayload(schema=AVRO, framing="single-object"), max_payload_bytes=MOST)
    fine = framed("avro", "single-object", body_of("avro", ROWS[0]))
    other = fine[:2] + bytes(8) + fine[10:]
    opened = pa.record_batch(reader.open(batch_of([other, fine, other]), 0, 1 << 20))
    assert opened["_corrupt"].to_pylist() == [other, None, other]
    assert opened["s"].to_pylist() == [None, "é0", None]
