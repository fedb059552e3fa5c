"""Writes all payloads with a schema: the header of a framing, then the body by fastavro or protobuf.

    item ─▶ fastavro, or a Protobuf message ─▶ message index ─▶ zlib (Glue) ─▶ header ─▶ payload

    none            body
    glue            03, 00 or 05 (zlib), UUID of the schema version (16 bytes, big-endian), body
    confluent       00, schema id (4 bytes, big-endian), body
    single-object   C3 01, CRC-64-AVRO of the schema (8 bytes, little-endian), body

Before a Protobuf body, Confluent's framing has the path to the message as zig-zag varints, with their number first, or
one 00 for the first message. Glue's has a varint: the index of the message among all of the file, sorted by full names,
as AWS's Java serialiser writes it.

Rules: the schema's id is found once, at the start; nothing is looked up while items are written.
"""

from __future__ import annotations

import io
import json
import os
import uuid
import zlib
from typing import Any, Final, Protocol, TypedDict, Unpack

from fastkcl import ConfigurationError
from fastkcl._core import avro_fingerprint
from fastkcl.payloads.options import DEFAULT_MAX_PAYLOAD_BYTES, AvroPayload, Framing, ProtobufPayload, Registry
from fastkcl.payloads.registries.answers import AwayError, MissingError, SchemaFormat, UnusableError
from fastkcl.payloads.registries.options import registry_of
from fastkcl.payloads.registries.registry import client_of
from fastkcl.payloads.schemas import reader_schema, schema_text

__all__ = ["AvroWriter", "HeaderOptions", "PayloadWriter", "ProtobufWriter", "frame"]

_MOST_ID: Final = (1 << 32) - 1


def frame(framing: Framing, schema_id: str | None, body: bytes, *, compress: bool = False) -> bytes:
    """A body with its header.

    Args:
        framing: of the header.
        schema_id: as `SchemaReader.unknown` writes it; None for framing "none".
        body: as it is, with its message index.
        compress: by zlib, which only Glue's header can say.

    Raises:
        ValueError: no id of the framing, or `compress` with another one.
    """
    _check_compress(framing, compress)
    if framing == "none":
        return body
    assert schema_id is not None
    if framing == "glue":
        body = zlib.compress(body) if compress else body
        return bytes((3, 5 if compress else 0)) + uuid.UUID(schema_id).bytes + body
    if framing == "confluent":
        if not schema_id.isdecimal() or int(schema_id) > _MOST_ID:
            raise ValueError(f"schema id {schema_id!r}: must be a number of 4 bytes")
        return b"\x00" + int(schema_id).to_bytes(4, "big") + body
    return b"\xc3\x01" + int(schema_id, 16).to_bytes(8, "little") + body


def _check_compress(framing: Framing, compress: bool) -> None:
    if compress and framing != "glue":
        raise ValueError(f"framing={framing!r} has no compression; only Glue's header can say that there is one")


class HeaderOptions(TypedDict, total=False):
    """Options of the header that a framing has, by their names: of the writers here, and of the processors of items."""

    registry: Registry | None
    """Gives the schema's id: ``"glue"``, ``"confluent"``, a URL or a registry of `fastkcl.payloads`."""
    name: str | None
    """``registry/name`` or subject under which the schema is registered, if it is not yet: of Protobuf a .proto without
    imports."""
    schema_id: str | None
    """The id, where it is known; then no registry is asked."""
    compress: bool
    """By zlib, in Glue's header."""


class _Header:
    """The header of one schema's payloads. Its id is looked up here, or the schema registered.

    Raises:
        ValueError: options that do not fit together.
        ConfigurationError: the registry does not take the schema, or has none.
    """

    def __init__(
        self,
        framing: Framing,
        format: SchemaFormat,  # noqa: A002 - the registries' word
        text: str,
        known_id: str | None,
        *,
        registry: Registry | None = None,
        name: str | None = None,
        schema_id: str | None = None,
        compress: bool = False,
    ) -> None:
        _check_compress(framing, compress)  # before anything is registered
        self._framing, self._compress = framing, compress
        self.schema_id = _id_for(framing, format, text, schema_id or known_id, registry, name)
        self.before(b"")  # refuses an id that does not fit

    def before(self, body: bytes) -> bytes:
        """The payload of a body."""
        return frame(self._framing, self.schema_id, body, compress=self._compress)

    def body(self, payload: bytes) -> bytes:
        """The body of a payload.

        Raises:
            ValueError: it has another header, or cannot be unpacked.
        """
        return _body_of(payload, self._framing, self.schema_id)


class PayloadWriter(Protocol):
    """Makes payloads of items."""

    def write(self, item: Any) -> bytes:  # noqa: ANN401 - a dict, or a message
        """The payload of an item."""

    def of_json(self, text: bytes) -> bytes:
        """The payload of an item that is given as a JSON object."""

    @property
    def schema_id(self) -> str | None:
        """As `SchemaReader.unknown` writes it; None for framing "none"."""


class AvroWriter:
    """Makes Avro payloads of dicts. Needs the package fastavro, which the extra ``avro`` brings.

    Args:
        schema: a file (.avsc), its text, or ``"latest:<subject or registry/name>"`` of the registry.
        framing: of the payloads.
        header: see `HeaderOptions`.

    Raises:
        ValueError: options that do not fit together.
        ConfigurationError: fastavro is missing, the schema is none, or the registry does not take it.
    """

    def __init__(
        self,
        schema: str | os.PathLike[str],
        framing: Framing = "none",
        **header: Unpack[HeaderOptions],
    ) -> None:
        try:
            from fastavro import parse_schema, schemaless_reader, schemaless_writer
        except ImportError as error:
            raise ConfigurationError("fastavro is not installed: pip install 'fastkcl[avro]'") from error
        text, known_id = _schema_and_id(schema, "avro", header.get("registry"))
        self.text = text
        """The schema."""
        try:
            self._schema = parse_schema(json.loads(text))
        except Exception as error:  # fastavro has many
            raise ConfigurationError(f"no Avro schema: {type(error).__name__}: {error}") from error
        if framing == "single-object":
            header["schema_id"] = avro_fingerprint(text)
        self._header = _Header(framing, "avro", text, known_id, **header)
        self._to, self._from = schemaless_writer, schemaless_reader

    @property
    def schema_id(self) -> str | None:
        """As `SchemaReader.unknown` writes it; None for framing "none"."""
        return self._header.schema_id

    def write(self, item: Any) -> bytes:  # noqa: ANN401 - what the schema says
        """The payload of an item.

        Raises:
            ValueError: the item is not a value of the schema.
        """
        sink = io.BytesIO()
        try:
            self._to(sink, self._schema, item)
        except Exception as error:  # KeyError, TypeError, AttributeError, struct.error…, by what does not fit
            raise ValueError(f"the item does not fit the schema: {type(error).__name__}: {error}") from error
        return self._header.before(sink.getvalue())

    def of_json(self, text: bytes) -> bytes:
        """The payload of a JSON object.

        Raises:
            ValueError: it is none, or no value of the schema.
        """
        return self.write(json.loads(text))

    def read(self, payload: bytes) -> Any:  # noqa: ANN401 - what the schema says
        """The item of a payload that has this schema.

        Raises:
            ValueError: it has another header, or is not a value of the schema.
        """
        body = self._header.body(payload)
        source = io.BytesIO(body)
        try:
            item = self._from(source, self._schema, None)
        except Exception as error:  # EOFError, IndexError, UnicodeDecodeError…, by what does not fit
            raise ValueError(f"no value of the schema: {type(error).__name__}: {error}") from None
        if source.tell() != len(body):
            raise ValueError(f"{len(body) - source.tell()} bytes after the value")
        return item


class ProtobufWriter:
    """Makes payloads of Protobuf messages. Needs the package protobuf, which the extra ``protobuf`` brings.

    Args:
        schema: as of `ProtobufPayload`.
        message: full name; not needed if the schema has one at its top.
        framing: of the payloads.
        header: see `HeaderOptions`.

    Raises:
        ValueError: options that do not fit together.
        ConfigurationError: protobuf is missing, the schema is none, or the registry does not take it.
    """

    def __init__(
        self,
        schema: str | bytes | os.PathLike[str],
        message: str | None = None,
        framing: Framing = "none",
        **header: Unpack[HeaderOptions],
    ) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
        except ImportError as error:
            raise ConfigurationError("protobuf is not installed: pip install 'fastkcl[protobuf]'") from error
        needs_text = framing != "none" and header.get("schema_id") is None
        text, known_id = _schema_and_id(schema, "protobuf", header.get("registry")) if needs_text else ("", None)
        payload = ProtobufPayload(schema=text or schema)
        files = descriptor_pb2.FileDescriptorSet.FromString(reader_schema(payload, None))
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        last = files.file[-1]
        if message is None:
            if len(last.message_type) != 1:
                raise ValueError("message= is needed: the schema has not one message at its top")
            message = ".".join(filter(None, (last.package, last.message_type[0].name)))
        try:
            descriptor = pool.FindMessageTypeByName(message)
        except KeyError:
            raise ConfigurationError(f"the schema has no message {message}") from None
        self.kind: Any = message_factory.GetMessageClass(descriptor)
        """The class of the messages."""
        self._header = _Header(framing, "protobuf", text, known_id, **header)
        self._index = _index_of(descriptor, last, framing)
        self._parse = json_format.Parse

    @property
    def schema_id(self) -> str | None:
        """As `SchemaReader.unknown` writes it; None for framing "none"."""
        return self._header.schema_id

    def write(self, item: Any) -> bytes:  # noqa: ANN401 - a message, of a generated class or of `kind`
        """The payload of a message.

        Raises:
            ValueError: the item is no such message.
        """
        if getattr(getattr(item, "DESCRIPTOR", None), "full_name", None) != self.kind.DESCRIPTOR.full_name:
            raise ValueError(f"the item is not a message {self.kind.DESCRIPTOR.full_name}: {type(item).__name__}")
        return self._header.before(self._index + item.SerializeToString())

    def read(self, payload: bytes) -> Any:  # noqa: ANN401 - a message of `kind`
        """The message of a payload that has this schema.

        Raises:
            ValueError: it has another header, or is no such message.
        """
        from google.protobuf.message import DecodeError

        body = self._header.body(payload)
        if not body.startswith(self._index):
            raise ValueError(f"another message of the schema: its index is {body[:4].hex(' ')}")
        try:
            return self.kind.FromString(body[len(self._index) :])
        except DecodeError as error:
            raise ValueError(f"no such message: {error}") from None

    def of_json(self, text: bytes) -> bytes:
        """The payload of a JSON object, by Protobuf's own mapping.

        Raises:
            ValueError: it is none, or has fields that the message lacks.
        """
        from google.protobuf.json_format import ParseError

        try:
            return self.write(self._parse(text, self.kind()))
        except ParseError as error:
            raise ValueError(f"no such message: {error}") from None


def _body_of(payload: bytes, framing: Framing, schema_id: str | None) -> bytes:
    """The body after a header of this schema, unpacked.

    Raises:
        ValueError: it is another header, or cannot be unpacked.
    """
    head = frame(framing, schema_id, b"")
    if payload.startswith(head):
        return payload[len(head) :]
    if framing == "glue" and payload[:2] == b"\x03\x05" and payload[2:18] == head[2:]:
        unpacking = zlib.decompressobj()
        try:
            body = unpacking.decompress(payload[18:], DEFAULT_MAX_PAYLOAD_BYTES)
        except zlib.error as error:
            raise ValueError(f"no zlib after the header: {error}") from None
        if not unpacking.eof:
            raise ValueError(f"cut short, or more than {DEFAULT_MAX_PAYLOAD_BYTES} bytes when it is unpacked")
        return body
    raise ValueError(f"no payload of the schema {schema_id}: it begins with {payload[:18].hex(' ')}")


def _schema_and_id(
    schema: str | bytes | os.PathLike[str],
    format: SchemaFormat,  # noqa: A002 - the registries' word
    registry: Registry | None,
) -> tuple[str, str | None]:
    """A schema's text, and its id if it is the newest of a registry."""
    if isinstance(schema, str) and schema.startswith("latest:"):
        if registry is None:
            raise ValueError(f"schema={schema!r} needs registry=, which knows the newest version")
        try:
            found = client_of(registry_of(registry)).latest(schema.removeprefix("latest:"))
        except (AwayError, MissingError, UnusableError) as error:
            raise ConfigurationError(str(error)) from error
        if found.format != format:
            raise ConfigurationError(f"{schema.removeprefix('latest:')}: its schema is {found.format.upper()}")
        return found.text, found.id
    return schema_text(AvroPayload(schema=schema) if format == "avro" else ProtobufPayload(schema=schema)), None  # type: ignore[arg-type]


def _id_for(
    framing: Framing,
    format: SchemaFormat,  # noqa: A002
    text: str,
    schema_id: str | None,
    registry: Registry | None,
    name: str | None,
) -> str | None:
    """The id that headers have."""
    if framing == "none":
        return None
    if schema_id is not None:
        return schema_id
    if registry is None or name is None:
        raise ValueError(f"framing={framing!r} needs schema_id=, or registry= and name=, under which it is registered")
    try:
        return client_of(registry_of(registry)).register(name, format, text)
    except (AwayError, MissingError, UnusableError) as error:
        raise ConfigurationError(f"the schema cannot be registered as {name}: {error}") from error


def _index_of(descriptor: Any, file: Any, framing: Framing) -> bytes:  # noqa: ANN401 - of protobuf
    """The bytes that name a message within its file, a FileDescriptorProto."""
    if framing == "confluent":
        names, path = descriptor.full_name.removeprefix(f"{file.package}.").split("."), []
        level = file.message_type
        for name in names:
            path.append([message.name for message in level].index(name))
            level = level[path[-1]].nested_type
        return b"\x00" if path == [0] else b"".join(_varint(2 * number) for number in (len(path), *path))
    if framing == "glue":
        found, left = [], [(file.package, message) for message in file.message_type]
        while left:
            outer, message = left.pop()
            found.append(".".join(filter(None, (outer, message.name))))
            left += [(found[-1], inner) for inner in message.nested_type]
        return _varint(sorted(found).index(descriptor.full_name))
    return b""


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))
