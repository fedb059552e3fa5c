"""Protobuf payloads opened in Rust beside Protobuf's own library: types, presence, headers, odd and refused
payloads."""

import datetime
import os
import random
import uuid
from typing import Any

import pyarrow as pa
import pytest
from fastkcl import _core
from proto_helpers import Protos, compiled, expected, indexes, message_class, proto_reader, row_of, unusual, varint
from schema_helpers import batch_of, confluent, glue, opened

RECORDS = int(os.environ.get("FASTKCL_SCHEMA_RECORDS", "3000"))
"""`make test-long` has 10^5."""
EACH = 20
PROTO = """
syntax = "proto3";
package shop;
message Basket {
  message Item { string name = 1; uint32 count = 2; }
  repeated Item items = 5;
  optional int64 id = 1;
  map<string, double> prices = 3;
  oneof who { string user = 8; int32 guest = 9; Item gift = 10; }
}
message Another { int32 x = 1; }
"""


@pytest.mark.parametrize("part", range(5))
def test_random_messages_are_protobufs(part: int) -> None:
    for seed in range(part, RECORDS // EACH, 5):
        protos = Protos(seed)
        text = protos.text()
        schema = compiled(text)
        kind = message_class(schema, "p.M")
        messages = [protos.fill(kind()) for _ in range(EACH)]
        # One after another is merged: the same field twice, both members of a oneof.
        payloads = [message.SerializeToString() for message in messages]
        payloads += [payloads[index] + payloads[index + 1] for index in range(0, EACH, 2)]
        batch = opened(proto_reader(schema, message="p.M"), payloads)
        assert batch["_corrupt"].null_count == len(payloads), (seed, text)
        for row, payload in zip(batch.to_pylist(), payloads, strict=True):
            assert row_of(row, kind.DESCRIPTOR) == expected(kind.FromString(payload)), (seed, text, payload)


@pytest.mark.parametrize("part", range(5))
def test_random_messages_that_are_written_in_unusual_ways_are_protobufs(part: int) -> None:
    for seed in range(part, RECORDS // EACH, 5):
        protos, chance = Protos(seed), random.Random(seed)  # noqa: S311 - no secret
        text = protos.text()
        schema = compiled(text)
        kind = message_class(schema, "p.M")
        payloads = [unusual(protos.fill(kind()).SerializeToString(), kind.DESCRIPTOR, chance) for _ in range(EACH)]
        batch = opened(proto_reader(schema, message="p.M"), payloads)
        assert batch["_corrupt"].null_count == len(payloads), (seed, text)
        for row, payload in zip(batch.to_pylist(), payloads, strict=True):
            assert row_of(row, kind.DESCRIPTOR) == expected(kind.FromString(payload)), (seed, text, payload)


def test_columns_are_in_the_order_of_the_text() -> None:
    reader = proto_reader(compiled(PROTO), message="shop.Basket")
    schema = pa.schema(reader)
    assert schema.names[:6] == ["items", "id", "prices", "user", "guest", "gift"]
    item = pa.struct([("name", pa.string()), ("count", pa.int64())])
    assert schema.field("items").type == pa.list_(pa.field("element", item))
    assert schema.field("prices").type == pa.map_(pa.string(), pa.float64())
    assert all(field.nullable for field in schema)
    batch = opened(reader, [b"", None])
    assert batch.to_pylist()[0] | {"partitionKey": ""} == {
        "items": [],
        "id": None,
        "prices": [],
        "user": None,
        "guest": None,
        "gift": None,
        "partitionKey": "",
        "sequenceNumber": "0",
        "subSequenceNumber": None,
        "approximateArrivalTimestamp": None,
        "_corrupt": None,
    }
    assert batch.to_pylist()[1]["items"] is None


@pytest.mark.parametrize(
    ("message", "index", "glues"),
    [("shop.Basket", [0], 1), ("shop.Basket.Item", [0, 0], 2), ("shop.Another", [1], 0)],
)
def test_message_indexes(message: str, index: list[int], glues: int) -> None:
    # Glue: sorted by full name, with those inside, and with the entries of maps: Another, Basket, Basket.Item, …
    schema = compiled(PROTO)
    body = message_class(schema, message)().SerializeToString() + b"\x78\x05"
    spelled = [
        confluent(3, indexes(index) + body),
        confluent(3, b"".join(varint(2 * each) for each in (len(index), *index)) + body),
    ]
    wrong = [
        confluent(3, indexes([2]) + body),
        confluent(3, b""),
        confluent(3, b"\x01" + body),
        confluent(3, b"\xff" * 9),
    ]
    wrong += [confluent(3, indexes([7, 7]) + body), body]
    reader = proto_reader(schema, message=message, framing="confluent")
    assert reader.add("3", schema) == []
    corrupt = opened(reader, spelled + wrong)["_corrupt"].to_pylist()
    assert corrupt == [None, None, *wrong]
    own = uuid.UUID(int=3)
    reader = proto_reader(schema, message=message, framing="glue")
    assert reader.add(str(own), schema) == []
    payloads = [
        glue(own, varint(glues) + body),
        glue(own, varint(glues) + body, compress=True),
        glue(own, b"\x09" + body),
    ]
    assert opened(reader, payloads)["_corrupt"].to_pylist() == [None, None, payloads[2]]


def test_new_fields_of_a_writer_are_named_and_what_cannot_be_read_is_refused() -> None:
    reader = proto_reader(compiled(PROTO), message="shop.Basket", framing="confluent")
    newer = PROTO.replace("string name = 1;", "string name = 1; bool new = 3;").replace(
        "optional int64", "bytes b = 20; optional int64"
    )
    assert sorted(reader.add("1", compiled(newer))) == ["b", "items.new"]
    for old, new in (("optional int64 id", "optional double id"), ("repeated Item items", "map<int32, Item> items")):
        with pytest.raises(ValueError, match="cannot be read as"):
            reader.add("2", compiled(PROTO.replace(old, new)))
    with pytest.raises(ValueError, match=r"no message shop\.Basket"):
        reader.add("2", compiled(PROTO.replace("Basket", "Trolley")))
    with pytest.raises(ValueError, match="no FileDescriptorSet"):
        reader.add("2", b"garbage")
    assert reader.unknown(batch_of([confluent(2, b""), confluent(1, b"")])) == ["2"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("message M { M m = 1; int32 x = 2; }", "m: M contains itself"),
        (
            "message A { B b = 1; } message B { repeated A a = 1; } message M { A a = 1; }",
            r"a\.b\.a\.element: A contains itself",
        ),
        ("import 'google/protobuf/struct.proto'; message M { google.protobuf.Struct s = 1; }", "contains itself"),
        (
            "import 'google/protobuf/duration.proto'; message M { google.protobuf.Duration d = 1; }",
            'd: .*"string" or "drop"',
        ),
        ("message E {} message M { E e = 1; }", "e: E has no fields"),
        ("message M { int32 x = 536870911; }", "x: number 536870911"),
        ("message M { }", "M has no fields"),
        ("message M { string sequenceNumber = 1; }", "every record has a column of this name"),
    ],
)
def test_what_has_no_column_is_refused(body: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        proto_reader(compiled(f'syntax = "proto3"; {body}'), message="M")


def test_casts() -> None:
    text = """syntax = "proto3"; import "google/protobuf/duration.proto";
    message M { google.protobuf.Duration d = 1; repeated google.protobuf.Duration ds = 2; M m = 3; int32 x = 4; }"""
    schema = compiled(text)
    kind: Any = message_class(schema, "M")
    message = kind(x=5)
    message.d.FromMilliseconds(-1500)
    message.ds.add().FromNanoseconds(3_000_001_000)
    message.m.x = 7
    reader = proto_reader(schema, casts={"d": "string", "ds.element": "string", "m": "drop"})
    batch = opened(reader, [message.SerializeToString(), b""])
    assert batch.schema.names[:3] == ["d", "ds", "x"]
    assert batch.to_pylist()[0] | {"d": "-1.500000s", "ds": ["3.000001s"], "x": 5} == batch.to_pylist()[0]
    assert batch["d"].to_pylist()[1] is None
    with pytest.raises(ValueError, match="no field 'y'|no field \"y\""):
        proto_reader(schema, casts={"y": "drop"})
    with pytest.raises(ValueError, match="must be 'string' or 'drop'"):
        proto_reader(schema, casts={"d": "date"})


def test_texts_are_compiled_with_what_they_import() -> None:
    files = {
        "a/main.proto": 'syntax = "proto3"; import "b.proto"; import "google/protobuf/timestamp.proto"; '
        "message M { B b = 1; google.protobuf.Timestamp at = 2; }",
        "b.proto": 'syntax = "proto3"; message B { int32 x = 1; }',
        "unused.proto": "no protobuf",
    }
    schema = _core.compile_proto(files, "a/main.proto")
    reader = proto_reader(schema)  # the last file has one message
    assert pa.schema(reader).names[:2] == ["b", "at"]
    for main, text, message in (
        ("x.proto", None, "x.proto: there is no text"),
        ("y.proto", "message M { int32 x = ; }", "y.proto:1:"),
        ("z.proto", 'import "gone.proto";', "gone.proto"),
        ("w.proto", "message M { optional Nope x = 1; }", "Nope"),
    ):
        with pytest.raises(ValueError, match=message):
            _core.compile_proto(files | ({} if text is None else {main: text}), main)
    with pytest.raises(ValueError, match="not one message at its top"):
        proto_reader(compiled(PROTO))
    with pytest.raises(ValueError, match="message is an option of protobuf"):
        _core.SchemaReader(format="avro", framing="none", schema=b"{}", message="M", max_payload_bytes=1)


@pytest.mark.parametrize(("opened", "closed"), [("message M { ", " }"), ("option (x) = { a: [ ", "] };")])
@pytest.mark.parametrize("depth", [100, 100_000])
def test_a_text_that_is_too_deep_is_refused(opened: str, closed: str, depth: int) -> None:
    # protox panics at 100 messages within each other, and a thousand overflow the stack.
    text = f'syntax = "proto3"; {opened * depth}int32 x = 1;{closed * depth}'
    with pytest.raises(ValueError, match=r"deep\.proto: brackets are deeper than 64"):
        _core.compile_proto({"deep.proto": text}, "deep.proto")
    nested = 60
    text = f'syntax = "proto3"; {"message M { " * nested}int32 x = 1;{" }" * nested}'
    assert _core.compile_proto({"deep.proto": text}, "deep.proto")


def test_odd_messages_are_those_of_protobuf() -> None:
    schema = compiled(PROTO)
    kind: Any = message_class(schema, "shop.Basket")
    one, two = kind(user="u"), kind(guest=5)
    one.gift.name, two.gift.count = "n", 7
    parts = [
        message.SerializeToString()
        for message in (one, two, kind(user="v"), kind(guest=0), kind(prices={"a": 1, "b": 2}))
    ]
    parts.append(kind(prices={"a": 3}).SerializeToString())
    parts += [
        b"\x1a\x00",
        b"\x1a\x03\x0a\x01a",
        b"\x1a\x0b\x11" + bytes(8) + b"\x0a\x00",
        b"\x2a\x00",
    ]
    parts += [b"\xa3\x06\x08\x01\xa4\x06"]  # a group that nobody knows
    payloads = [left + right for left in parts for right in parts]
    batch = opened(proto_reader(schema, message="shop.Basket"), payloads)
    assert batch["_corrupt"].null_count == len(payloads)
    for row, payload in zip(batch.to_pylist(), payloads, strict=True):
        assert row_of(row, kind.DESCRIPTOR) == expected(kind.FromString(payload)), payload


@pytest.mark.parametrize(
    "value", ["Item", "google.protobuf.Timestamp", "google.protobuf.StringValue", "google.protobuf.UInt64Value", "E"]
)
@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
@pytest.mark.parametrize("key", ["int32", "string", "bool", "fixed64"])
def test_an_entry_of_a_map_without_a_value_has_the_default_one(key: str, value: str, syntax: str) -> None:
    text = f"""syntax = "{syntax}"; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
    message Item {{ map<int32, Item2> inner = 1; optional string name = 2; }} message Item2 {{ optional int32 x = 1; }}
    enum E {{ A = 0; B = 1; }}
    message M {{ map<{key}, {value}> entries = 1; repeated Item items = 2; }}"""
    schema = compiled(text)
    kind: Any = message_class(schema, "M")
    number = b"\x09" + bytes(8) if key == "fixed64" else b"\x0a\x00" if key == "string" else b"\x08\x00"
    unset, item = b"\x0a" + varint(len(number)) + number, b"\x12\x04\x0a\x02\x08\x07"
    # Fields that nobody knows, which Python's library takes for an unknown entry, and Java's for one without a value.
    unknown = [b"\x0a\x02\x18\x05", b"\x0a" + varint(len(number) + 2) + number + b"\x18\x05"]
    payloads = [unset, b"\x0a\x00", item, unset + item, item + item]
    batch = opened(proto_reader(schema, message="M"), payloads + unknown)
    assert batch["_corrupt"].null_count == batch.num_rows
    rows = [row_of(row, kind.DESCRIPTOR) for row in batch.to_pylist()]
    assert rows == [expected(kind.FromString(payload)) for payload in [*payloads, unset, unset]]


def test_an_entry_of_a_map_without_its_date_is_corrupt() -> None:
    files = {
        "google/type/date.proto": 'syntax = "proto3"; package google.type; '
        "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
        "a.proto": 'syntax = "proto3"; import "google/type/date.proto"; '
        "message M { map<int32, google.type.Date> days = 1; }",
    }
    reader = proto_reader(_core.compile_proto(files, "a.proto"), message="M")
    whole = b"\x0a\x0b\x08\x01\x12\x07\x08\xe8\x0f\x10\x02\x18\x1d"
    payloads = [b"\x0a\x02\x08\x01", whole, b"\x0a\x00", whole + b"\x0a\x02\x08\x01"]
    batch = opened(reader, payloads)
    assert batch["_corrupt"].to_pylist() == [payloads[0], None, payloads[2], payloads[3]]
    assert batch["days"].to_pylist()[1] == [(1, datetime.date(2024, 2, 29))]


@pytest.mark.parametrize("repeat", [1, 2])
def test_numbers_of_more_than_64_bits_and_times_of_other_wire_types_are_corrupt(repeat: int) -> None:
    # Twice makes them odd: they are written once more by another decoder, which must not have another mind.
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; message N { int64 x = 1; }
    message M { N n = 1; google.protobuf.Timestamp at = 2; int64 y = 3; }"""
    most, more = b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x02"
    payloads = [b"\x0a\x0b\x08" + most, b"\x0a\x0b\x08" + more, b"\x18" + more, b"\x28" + more]
    payloads += [b"\x12\x02\x0a\x00", b"\x12\x05\x15" + bytes(4), b"\x12\x02\x08\x07", b"\x12\x02\x18\x07"]
    payloads = [b"\x0a\x00" * repeat + payload for payload in payloads]
    batch = opened(proto_reader(compiled(text), message="M"), payloads)
    good = [0, 6, 7]
    assert [row for row, corrupt in enumerate(batch["_corrupt"].to_pylist()) if corrupt is None] == good
    rows = [{name: row[name] for name in ("n", "at", "y")} for row in batch.take(good).to_pylist()]
    epoch = datetime.datetime.fromtimestamp(0, datetime.UTC)
    assert rows == [
        {"n": {"x": -1}, "at": None, "y": 0},
        {"n": {"x": 0}, "at": epoch + datetime.timedelta(seconds=7), "y": 0},
        {"n": {"x": 0}, "at": epoch, "y": 0},
    ]
