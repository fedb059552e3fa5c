"""Protobuf messages by chance: .proto texts, messages of Protobuf's own library, and their expected columns."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from fastkcl import _core
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCALARS = (
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "float",
    "double",
    "bool",
    "string",
    "bytes",
)
KNOWN = (
    "Timestamp",
    "DoubleValue",
    "FloatValue",
    "Int64Value",
    "UInt64Value",
    "Int32Value",
    "UInt32Value",
    "BoolValue",
    "StringValue",
    "BytesValue",
)
_IMPORTS = "".join(f'import "google/protobuf/{name}.proto";\n' for name in ("timestamp", "wrappers", "duration"))

_ENUM = "enum E { ZERO = 0; ONE = 1; BIG = 100000; LOW = -1; }\n"


def message_class(descriptor_set: bytes, name: str) -> type[Message]:
    """The class of Protobuf's own library."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def proto_reader(descriptor_set: bytes, **options: Any) -> _core.SchemaReader:
    """Without a header."""
    options = {"framing": "none", "max_payload_bytes": 1 << 26} | options
    return _core.SchemaReader(format="protobuf", schema=descriptor_set, **options)


def compiled(text: str) -> bytes:
    """One text."""
    return _core.compile_proto({"a.proto": text}, "a.proto")


class Protos:
    """Texts and messages by chance, the same for a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.proto2 = self.chance.random() < 0.2
        self.names = 0

    def text(self) -> str:
        """A file with the message p.M."""
        body = self.message("M", 0)
        syntax = "proto2" if self.proto2 else "proto3"
        return f'syntax = "{syntax}";\npackage p;\n{_IMPORTS}{_ENUM}{body}'

    def message(self, name: str, depth: int) -> str:
        """A message of up to ten fields, with those that it has inside."""
        lines, numbers = [], self.chance.sample(range(1, 3000 if self.chance.random() < 0.2 else 40), 10)
        for index in range(self.chance.randint(1, 10)):
            number = numbers[index]
            lines += self.field(f"f{index}", number, depth)
        return f"message {name} {{ {' '.join(lines)} }}\n"

    def kind(self, depth: int) -> tuple[str, str]:
        """A field's type, and what has to be written before it."""
        dice = self.chance.random()
        if dice < 0.6 or depth > 2:
            return self.chance.choice(SCALARS), ""
        if dice < 0.7:
            return "E", ""
        if dice < 0.85:
            return f"google.protobuf.{self.chance.choice(KNOWN)}", ""
        self.names += 1
        return f"N{self.names}", self.message(f"N{self.names}", depth + 1)

    def field(self, name: str, number: int, depth: int) -> list[str]:
        """A field: plain, optional, repeated, a map, or a oneof of two."""
        kind, before = self.kind(depth)
        dice = self.chance.random()
        single = "optional " if self.proto2 else ""
        if dice < 0.2:
            return [before, f"repeated {kind} {name} = {number};"]
        if dice < 0.3:
            key = self.chance.choice(("string", "int32", "uint64", "bool", "sint64", "fixed32"))
            return [before, f"map<{key}, {kind}> {name} = {number};"]
        if dice < 0.4:
            return [before, f"oneof o{name} {{ {kind} {name} = {number}; int32 {name}b = {number + 5000}; }}"]
        if dice < 0.6:
            single = "optional "
        return [before, f"{single}{kind} {name} = {number};"]

    def fill(self, message: Any) -> Any:
        """Values for some of the fields."""
        for field in message.DESCRIPTOR.fields:
            if self.chance.random() < 0.3:
                continue
            value = getattr(message, field.name)
            if is_map(field):
                inner = field.message_type.fields_by_name
                for _ in range(self.chance.randint(0, 3)):
                    key = self.value(inner["key"])
                    if inner["value"].message_type:
                        self.fill_one(value[key])
                    else:
                        value[key] = self.value(inner["value"])
            elif field.is_repeated:
                for _ in range(self.chance.randint(0, 3)):
                    if field.message_type:
                        self.fill_one(value.add())
                    else:
                        value.append(self.value(field))
            elif field.message_type:
                value.SetInParent()
                self.fill_one(value)
            else:
                setattr(message, field.name, self.value(field))
        return message

    def fill_one(self, message: Any) -> None:
        """A message, or a time."""
        if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
            message.seconds = self.chance.randint(-62135596800, 253402300799)
            message.nanos = self.chance.randint(0, 999_999_999)
        else:
            self.fill(message)

    def value(self, field: FieldDescriptor) -> Any:
        """A scalar."""
        chance = self.chance
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_BOOL:
                return chance.random() < 0.5
            case FieldDescriptor.CPPTYPE_FLOAT:
                return struct.unpack("f", struct.pack("f", chance.gauss(0, 1e6)))[0]
            case FieldDescriptor.CPPTYPE_DOUBLE:
                return chance.gauss(0, 1e100)
            case FieldDescriptor.CPPTYPE_ENUM:
                return chance.choice((0, 1, 100000, -1) if self.proto2 else (0, 1, 100000, -1, 77))
            case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_STRING:
                return "".join(chance.choice("aé√😀\0") for _ in range(chance.choice((0, 1, 20))))
            case FieldDescriptor.CPPTYPE_STRING:
                return chance.randbytes(chance.choice((0, 1, 20)))
            case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
                return chance.getrandbits(chance.choice((1, 31, WIDTHS[field.cpp_type])))
        bits = chance.choice((1, 20, WIDTHS[field.cpp_type] - 1))
        return chance.randint(-(2**bits), 2**bits - 1)


WIDTHS = {
    FieldDescriptor.CPPTYPE_INT32: 32,
    FieldDescriptor.CPPTYPE_UINT32: 32,
    FieldDescriptor.CPPTYPE_INT64: 64,
    FieldDescriptor.CPPTYPE_UINT64: 64,
}


def is_map(field: FieldDescriptor) -> bool:
    """Whether it is a map."""
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


Wire = list[tuple[int, int, bytes]]
"""Fields in their order: number, wire type, and the value without its length."""


def _fields(body: bytes) -> Wire:
    """The fields of a message without groups."""
    place, fields = 0, []

    def number() -> int:
        nonlocal place
        begin = place
        while body[place] > 127:
            place += 1
        place += 1
        return sum((byte & 127) << 7 * index for index, byte in enumerate(body[begin:place]))

    while place < len(body):
        tag = number()
        begin = place
        if tag & 7 == 0:
            number()
        elif tag & 7 == 2:
            size = number()
            begin, place = place, place + size
        else:
            place += 8 if tag & 7 == 1 else 4
        fields.append((tag >> 3, tag & 7, body[begin:place]))
    return fields


def _written(fields: Wire) -> bytes:
    return b"".join(
        varint(number << 3 | wire) + (varint(len(value)) + value if wire == 2 else value)
        for number, wire, value in fields
    )


def unusual(body: bytes, descriptor: Any, chance: random.Random) -> bytes:
    """A message with fields left out, repeated and in another order, at each depth: bytes that are a message again."""
    fields: Wire = []
    for number, wire, value in _fields(body):
        field = descriptor.fields_by_number.get(number)
        inner = field.message_type if field and wire == 2 else None
        dice = chance.random()
        if dice > 0.12:
            fields += [(number, wire, unusual(value, inner, chance) if inner else value)] * (1 + (dice > 0.9))
    dice = chance.random()
    if dice < 0.15:
        chance.shuffle(fields)
    elif dice < 0.25:
        fields += fields[: chance.randint(0, len(fields))]
    elif dice > 0.95 and not descriptor.GetOptions().map_entry:
        fields.insert(chance.randint(0, len(fields)), (4000, 0, b"\x05"))
    return _written(fields)


def expected(message: Any) -> Any:
    """The row of a message, of the types of pyarrow."""
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if is_map(field):
        inner = field.message_type.fields_by_name
        return {_one(key, inner["key"]): _one(item, inner["value"]) for key, item in value.items()}
    if field.is_repeated:
        return [_one(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(value, field)


def _one(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            return EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        if field.message_type.full_name.startswith("google.protobuf."):
            return _one(value.value, value.DESCRIPTOR.fields_by_name["value"])
        return expected(value)
    if field.enum_type:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    return Decimal(value) if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else value


def row_of(row: Any, descriptor: Any) -> Any:
    """A row of pyarrow with dictionaries for maps."""
    return {field.name: _column(row[field.name], field) for field in descriptor.fields}


def _column(value: Any, field: FieldDescriptor) -> Any:
    if value is None:
        return None
    inner = field.message_type
    if is_map(field):
        kinds = inner.fields_by_name
        pairs = [(key, _item(item, kinds["value"])) for key, item in value]
        assert len(dict(pairs)) == len(pairs), pairs
        return dict(pairs)
    return [_item(item, field) for item in value] if field.is_repeated else _item(value, field)


def _item(value: Any, field: FieldDescriptor) -> Any:
    inner = field.message_type
    return row_of(value, inner) if inner and not inner.full_name.startswith("google.") and value is not None else value


def varint(value: int) -> bytes:
    """A number on the wire."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def indexes(numbers: Sequence[int]) -> bytes:
    """Confluent's message indexes: zig-zag, their number first; the first message is one zero byte."""
    return b"\0" if list(numbers) == [0] else b"".join(varint(2 * each) for each in (len(numbers), *numbers))
