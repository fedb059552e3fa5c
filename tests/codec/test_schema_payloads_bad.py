"""Bad payloads cost no other record: cut, garbage, tails, depths, lengths and bombs, at every place of a batch."""

import gzip
import json
import random
import uuid
import zlib
from typing import Any

import fastavro
import pytest
from fastkcl import _core
from proto_helpers import Protos, compiled, message_class, proto_reader, varint
from schema_helpers import MOST, Schemas, avro_reader, encoded, glue, opened, read

SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "s", "type": "string"},
        {"name": "n", "type": ["null", "double"]},
        {"name": "a", "type": {"type": "array", "items": {"type": "map", "values": "long"}}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "b", "type": "boolean"},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
    ],
}
PROTO = """syntax = "proto3";
message M { string s = 1; repeated int32 r = 2; M2 m = 3; map<string, int64> p = 4; }
message M2 { double d = 1; M3 m = 2; }
message M3 { bytes b = 1; }"""


def good_avro(index: int) -> bytes:
    value = {
        "s": f"é{index}",
        "n": None if index % 2 else 0.5,
        "a": [{"k": 1}, {}],
        "e": "Y",
        "b": True,
        "t": 5,
        "d": 1,
    }
    plain = json.loads(json.dumps(SCHEMA).replace('"logicalType"', '"x"'))
    return encoded(plain, value | {"d": b"\x01"})


def good_proto(index: int) -> bytes:
    kind: Any = message_class(compiled(PROTO), "M")
    message = kind(s=f"é{index}", r=[1, 2, 300], p={"a": 1})
    message.m.m.b = b"bytes"
    return message.SerializeToString()


def check(reader: _core.SchemaReader, good: list[bytes], bad: list[bytes]) -> None:
    """Each bad one at each place among the good ones, all together, and alone."""
    expected = opened(reader, good).to_pylist()
    assert all(row["_corrupt"] is None for row in expected)
    alone = opened(reader, bad)
    assert alone["_corrupt"].to_pylist() == bad
    assert all(value is None for name in alone.schema.names[:1] for value in alone[name].to_pylist())
    for place in range(len(good) + 1):
        one = bad[place % len(bad)]
        rows = opened(reader, [*good[:place], one, *good[place:]]).to_pylist()
        assert rows[place]["_corrupt"] == one
        kept = [row | {"partitionKey": "", "sequenceNumber": ""} for row in rows[:place] + rows[place + 1 :]]
        assert kept == [row | {"partitionKey": "", "sequenceNumber": ""} for row in expected]
    mixed = [payload for pair in zip(good * len(bad), bad * len(good), strict=True) for payload in pair]
    batch = opened(reader, mixed)
    assert batch["_corrupt"].to_pylist()[1::2] == bad * len(good)
    assert batch["_corrupt"].to_pylist()[::2] == [None] * len(good) * len(bad)
    assert batch["s"].to_pylist()[::2] == [row["s"] for row in expected] * len(bad)


def long(value: int) -> bytes:
    """Avro's."""
    return varint((value << 1) ^ (value >> 63))


HUGE = [long(2**31), long(2**62), long(-1), long(-(2**63)), b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\x80" * 20]


def test_avro() -> None:
    good = [good_avro(index) for index in range(7)]
    whole = good[0]
    head = encoded({"type": "record", "name": "H", "fields": SCHEMA["fields"][:2]}, {"s": "x", "n": 1.0})
    bad = [whole[:end] for end in range(len(whole))]  # cut at every byte
    bad += [whole + tail for tail in (b"\0", b"\x02", whole)]  # more than one value
    bad += [b"\x04\xff\xff" + whole[5:], b"\x02\xc3" + whole[5:]]  # no UTF-8
    bad += [length + whole for length in HUGE]
    bad += [head[:2] + tag + head[3:] + b"\0\0\x01\0\0" for tag in (b"\x04", b"\x01", b"\x80")]  # no such branch
    tail = whole.rindex(b"\x02\x01\x0a\x02\x01")
    bad += [whole[:tail] + end for end in (b"\x04\x01\x0a\x02\x01", b"\x01\x01\x0a\x02\x01", b"\x02\x02\x0a\x02\x01")]
    bad += [whole[:tail] + b"\x02\x01" + long(2**62) + b"\x02\x01"]  # milliseconds beyond microseconds
    bad += [whole[:tail] + b"\x02\x01\x0a" + long(size) + bytes([0x7F] * size) for size in (2, 17)]  # too many digits
    bad += [
        head + block + b"\0\x02\x01\x0a\x02\x01" for block in (long(-1) + long(2) + b"\0", long(-1) + long(0) + b"\0")
    ]
    bad += [random.Random(seed).randbytes(seed) for seed in range(10, 60)]  # noqa: S311 - the same each time
    check(avro_reader(SCHEMA), good, [payload for payload in bad if payload not in good])


def test_protobuf() -> None:
    good = [good_proto(index) for index in range(7)]
    kind = message_class(compiled(PROTO), "M")
    bad = []
    for whole in good[:1]:
        for end in range(1, len(whole)):
            try:
                kind.FromString(whole[:end])
            except Exception:  # noqa: BLE001 - DecodeError of whichever implementation
                bad.append(whole[:end])
    assert len(bad) > 10
    bad += [b"\x0a" + varint(size) + b"x" for size in (2, 2**31, 2**32, 2**63, 2**64 - 1)]
    bad += [b"\x0a\x02\xff\xff", b"\x00\x00", b"\x0c", b"\x0b", b"\x0e\0", b"\x80" * 11, b"\x08" + b"\xff" * 11]
    bad += [
        b"\x5b" * 200 + b"\x5c" * 200,
        b"\x5b\x64",
        b"\x5b" * 1_000_000,
    ]  # deep groups, and one that ends as another
    bad += [b"\x08\x05", b"\x15\0\0\0\0", b"\x1d\0\0\0\0", b"\x1a\x02\x08\x01"]  # fields of another type
    bad += [b"\x1a\x03\x12\x05\0", b"\x12\x01\x80", b"\x22\x02\x0a\x05", b"\xf8\xff\xff\xff\xff\x01\x00"]
    check(proto_reader(compiled(PROTO), message="M"), good, bad)


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        ("google.protobuf.Timestamp x = 2;", b"\x08" + varint(253402300800)),
        ("google.protobuf.Timestamp x = 2;", b"\x10" + varint(1_000_000_000)),
        ("repeated google.protobuf.Timestamp x = 2;", b"\x08" + varint(2**64 - 2**62)),
        ("repeated fixed32 x = 2;", b"\0\0\0"),
        ("repeated double x = 2;", b"\0\0\0\0\0\0\0\0\0"),
    ],
)
def test_values_that_no_column_holds(body: str, payload: bytes) -> None:
    text = f'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M {{ string s = 1; {body} }}'
    bad = [b"\x12" + varint(len(payload)) + payload]
    check(proto_reader(compiled(text), message="M"), [b"\x0a\x01a", b"\x0a\x01b\x12\0"], bad)


def test_bombs() -> None:
    name = uuid.UUID(int=1)
    limit = 10_000
    reader = avro_reader(SCHEMA, framing="glue", max_payload_bytes=limit)
    reader.add(str(name), json.dumps(SCHEMA).encode())
    good = [glue(name, good_avro(index), compress=bool(index % 2)) for index in range(4)]
    large = good_avro(0).replace(b"\x06\xc3\xa90", long(20_000) + b"x" * 20_000)
    bad = [glue(name, large), glue(name, large, compress=True), glue(name, bytes(100 << 20), compress=True)]
    packed = zlib.compress(good_avro(1))
    header = bytes([3, 5]) + name.bytes
    bad += [header + packed[:end] for end in range(len(packed))] + [header + packed + b"x", header + packed + packed]
    bad += [bytes([3, 1]) + name.bytes, bytes([4, 0]) + name.bytes, header[:17], b"", b"\x03"]
    check(reader, good, bad)
    reader = avro_reader(SCHEMA, compression="gzip", max_payload_bytes=limit)
    bad = [gzip.compress(bytes(100 << 20)), gzip.compress(good_avro(0))[:-1], good_avro(0)]
    check(reader, [gzip.compress(good_avro(index)) for index in range(3)], bad)


def test_few_bytes_that_would_become_many() -> None:
    """Items without a byte, and items whose columns are filled by the reader's defaults."""
    writer = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "s", "type": "string"},
            {
                "name": "l",
                "type": {
                    "type": "array",
                    "items": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]},
                },
            },
            {"name": "skip", "type": {"type": "array", "items": "null"}},
        ],
    }
    wanted = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "s", "type": "string"},
            {
                "name": "l",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "I",
                        "fields": [{"name": "d", "type": "string", "default": "x" * 10_000}],
                    },
                },
            },
        ],
    }
    reader = avro_reader(wanted, framing="confluent", max_payload_bytes=1 << 20)
    assert reader.add("0", json.dumps(writer).encode()) == ["l.element.x", "skip"]
    header = bytes(5)
    bad = [header + b"\x02a" + long(1000) + bytes(1000) + b"\0\0", header + b"\x02a\0" + long(2**40) + b"\0"]
    bad.append(header + b"\x02a\0" + long(-(2**40)) + b"\0\0")
    check(reader, [header + b"\x02a\x02\0\0\0", header + b"\x02b\0" + long(1000) + b"\0"], bad)


def test_wherever_it_is_cut_or_changed_the_two_agree() -> None:
    """fastavro takes what is taken here, with the same values; what is refused here, it takes only where it is lax."""
    for seed in range(40):
        schemas = Schemas(seed)
        schema = schemas.record()
        parsed = fastavro.parse_schema(schema)
        reader = avro_reader(schema)
        for _ in range(5):
            whole = bytearray(encoded(parsed, schemas.value(schema)))
            for _ in range(schemas.chance.randint(0, 3)):
                if whole:
                    whole[schemas.chance.randrange(len(whole))] = schemas.chance.getrandbits(8)
            payload = bytes(whole[: schemas.chance.randint(0, len(whole))])
            batch = opened(reader, [payload])
            if batch["_corrupt"].null_count:
                try:
                    read(payload, parsed)
                except (OverflowError, ValueError):
                    continue  # a time that Python does not have


def test_random_bytes_for_any_message() -> None:
    for seed in range(60):
        protos = Protos(seed)
        schema = compiled(protos.text())
        kind = message_class(schema, "p.M")
        payloads = []
        for _ in range(20):
            whole = bytearray(protos.fill(kind()).SerializeToString())
            for _ in range(protos.chance.randint(1, 3)):
                if whole:
                    whole[protos.chance.randrange(len(whole))] = protos.chance.getrandbits(8)
            payloads.append(bytes(whole))
        batch = opened(proto_reader(schema, message="p.M"), payloads)
        for payload, corrupt in zip(payloads, batch["_corrupt"].to_pylist(), strict=True):
            if corrupt is None:
                kind.FromString(payload)


def test_the_bound_of_memory_is_that_of_the_options() -> None:
    assert opened(avro_reader(SCHEMA, max_payload_bytes=MOST), [good_avro(0)])["_corrupt"].null_count == 1
    for bad in (0, -1, 1 << 31):
        with pytest.raises(ValueError, match="max_payload_bytes must be"):
            avro_reader(SCHEMA, max_payload_bytes=bad)
