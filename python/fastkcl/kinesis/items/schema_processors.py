"""Processors of items with a schema: Avro and Protobuf, in the frames of schema registries.

    async with Producer("clicks", processor=AvroProcessor("clicks.avsc", "glue", registry="glue", name="web/clicks")):

Rules: the schema is registered, or its id is found, before the first item. This does not read items with the schemas of
other writers: `fastkcl.payloads.BatchOpener` opens whole batches, with all schemas of a registry.
"""

from __future__ import annotations

import os
from typing import Any, Unpack

from fastkcl.kinesis.exceptions import DeserializeError
from fastkcl.kinesis.items.aggregators import SimpleAggregator
from fastkcl.kinesis.items.processors import Processor
from fastkcl.kinesis.items.serializers import Serializer
from fastkcl.payloads.options import Framing
from fastkcl.payloads.writing import AvroWriter, HeaderOptions, ProtobufWriter

__all__ = ["AvroProcessor", "ProtobufProcessor"]


class _SchemaSerializer(Serializer):
    _writer: AvroWriter | ProtobufWriter

    def serialize(self, item: Any) -> bytes:  # noqa: ANN401 - a dict, or a message
        """The payload of an item.

        Raises:
            ValueError: it does not fit the schema.
        """
        return self._writer.write(item)

    def deserialize(self, data: bytes) -> Any:  # noqa: ANN401
        """The item of a payload of this processor's schema."""
        try:
            return self._writer.read(data)
        except ValueError as error:
            raise DeserializeError(str(error)) from error


class AvroProcessor(Processor, SimpleAggregator, _SchemaSerializer):
    """A dict a record, in Avro. Needs fastavro: ``pip install 'fastkcl[kinesis,avro]'``.

    Args:
        schema: a file (.avsc), its text, or ``"latest:<subject or registry/name>"`` of the registry.
        framing: the header: ``"none"``, ``"glue"``, ``"confluent"`` or ``"single-object"``.
        max_bytes: of a record.
        header: `registry`, which gives the schema's id: ``"glue"``, ``"confluent"``, a URL or a registry of
            `fastkcl.payloads`; `name`, the ``registry/name`` or subject under which the schema is registered, if it is
            not yet; `schema_id`, where it is known; `compress`, by zlib in Glue's header.

    Raises:
        ValueError: options that do not fit together.
        ConfigurationError: fastavro is missing, the schema is none, or the registry does not take it.
    """

    def __init__(
        self,
        schema: str | os.PathLike[str],
        framing: Framing = "none",
        *,
        max_bytes: int | None = None,
        **header: Unpack[HeaderOptions],
    ) -> None:
        super().__init__(max_bytes=max_bytes)
        self._writer = AvroWriter(schema, framing, **header)


class ProtobufProcessor(Processor, SimpleAggregator, _SchemaSerializer):
    """A Protobuf message a record. Needs protobuf: ``pip install 'fastkcl[kinesis,protobuf]'``.

    Args:
        schema: a .proto file or its text, a FileDescriptorSet or the file of one, or ``"latest:…"`` of the registry.
        message: full name; not needed if the schema has one at its top.
        framing: the header: ``"none"``, ``"glue"`` or ``"confluent"``.
        max_bytes: of a record.
        header: as of `AvroProcessor`.

    Raises:
        ValueError: options that do not fit together.
        ConfigurationError: protobuf is missing, the schema is none, or the registry does not take it.
    """

    def __init__(
        self,
        schema: str | bytes | os.PathLike[str],
        message: str | None = None,
        framing: Framing = "none",
        *,
        max_bytes: int | None = None,
        **header: Unpack[HeaderOptions],
    ) -> None:
        super().__init__(max_bytes=max_bytes)
        self._writer = ProtobufWriter(schema, message, framing, **header)
