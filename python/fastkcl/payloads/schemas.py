"""The reader's schema and the writers' schemas, in the form that `SchemaReader` takes.

    a file, a text, a descriptor set, latest:NAME ──▶ reader_schema ──▶ bytes
    a registry's schema for an id                 ──▶ definition    ──▶ bytes

Rules: the size of files is bounded. A .proto can import only files beside it, nothing else on the disk.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Final

from fastkcl import ConfigurationError
from fastkcl._core import compile_proto
from fastkcl.payloads.options import AvroPayload, JsonPayload, ProtobufPayload, SchemaPayload
from fastkcl.payloads.registries.answers import (
    MAX_REFERENCES,
    MAX_SCHEMA_BYTES,
    SchemaFormat,
    SchemaText,
    UnusableError,
)
from fastkcl.payloads.registries.references import inlined
from fastkcl.payloads.registries.registry import Registry
from fastkcl.stdio.given_files import read_given
from fastkcl.stdio.log import logger

__all__ = ["definition", "format_of", "reader_schema", "schema_text"]

_IMPORT: Final = re.compile(r"""(?:^|;)\s*import\s+(?:public\s+|weak\s+)?["']([^"']+)["']\s*(?=;)""", re.MULTILINE)
_MAIN: Final = "schema.proto"
"""Name of a text that has none."""


def format_of(payload: SchemaPayload | JsonPayload) -> SchemaFormat:
    """Of the payload's body."""
    if isinstance(payload, AvroPayload):
        return "avro"
    return "protobuf" if isinstance(payload, ProtobufPayload) else "json"


def reader_schema(payload: SchemaPayload, registry: Registry | None) -> bytes:
    """The schema that payloads are read by: Avro's JSON, or a FileDescriptorSet.

    Args:
        payload: which.
        registry: of its option, for ``latest:``.

    Raises:
        ConfigurationError: there is no such file, or what is there is no schema.
        RegistryAwayError: the registry did not answer for `max_outage`.
    """
    schema = payload.schema
    try:
        if isinstance(schema, str) and schema.startswith("latest:"):
            assert registry is not None
            name = schema.removeprefix("latest:")
            found = registry.latest(name)
            logger().info("schema %s: version %s, id %s", name, found.version, found.id)
            return definition(found, format_of(payload))
        if isinstance(schema, bytes):
            return schema
        if isinstance(payload, AvroPayload):
            return _avro(os.fspath(schema) if isinstance(schema, os.PathLike) else schema, payload.schema)
        return _protobuf(os.fspath(schema), isinstance(schema, os.PathLike))
    except OSError as error:
        if isinstance(error, ConnectionError):
            raise
        raise ConfigurationError(f"schema={str(schema)[:200]!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"schema={str(schema)[:200]!r}: {error}") from error


def schema_text(payload: SchemaPayload) -> str:
    """The text of a schema that is not a descriptor set, as a registry takes it.

    Raises:
        ConfigurationError: there is no such file, or it has no text.
    """
    schema = payload.schema
    try:
        if isinstance(payload, AvroPayload):
            return _avro(os.fspath(payload.schema), payload.schema).decode()
        if isinstance(schema, str) and re.search(r"[;{\n]", schema):
            return schema
        if isinstance(schema, bytes) or Path(schema).suffix != ".proto":
            raise ConfigurationError("a registry takes the text of a .proto, and no descriptor set: give schema_id=")
        return _bounded(Path(schema))
    except OSError as error:
        raise ConfigurationError(f"schema={str(schema)[:200]!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"schema={str(schema)[:200]!r}: {error}") from error


def definition(schema: SchemaText, format: SchemaFormat) -> bytes:  # noqa: A002 - the registries' word
    """What `SchemaReader.add` takes of a registry's schema.

    Raises:
        UnusableError: it is of another format, or none.
    """
    if schema.format != format:
        raise UnusableError(f"its schema is {schema.format.upper()}, and the payloads are read as {format.upper()}")
    if format == "json":
        return schema.text.encode()
    if format == "avro":
        return inlined(schema.text, schema.references).encode()
    names = {*schema.references, _MAIN}
    main = _MAIN if len(names) > len(schema.references) else f"_{_MAIN}"
    try:
        return compile_proto({**schema.references, main: schema.text}, main)
    except ValueError as error:
        raise UnusableError(str(error)) from None


def _avro(text: str, given: object) -> bytes:
    if isinstance(given, str) and text.lstrip()[:1] in ("{", "[", '"'):
        return text.encode()
    return _bounded(Path(text)).encode()


def _protobuf(text: str, is_path: bool) -> bytes:
    if not is_path and re.search(r"[;{\n]", text):
        return compile_proto({_MAIN: text}, _MAIN)
    path = Path(text)
    if path.suffix != ".proto":
        return _bytes(path)
    files = {path.name: _bounded(path)}
    left = [path.name]
    while left:
        for name in _IMPORT.findall(files[left.pop()]):
            beside = path.parent / name
            if name in files or name.startswith("google/protobuf/") or ".." in Path(name).parts or not beside.is_file():
                continue  # the compiler knows it, or says that it is missing
            if len(files) > MAX_REFERENCES:
                raise ValueError(f"it imports more than {MAX_REFERENCES} files")
            files[name] = _bounded(beside)
            left.append(name)
    return compile_proto(files, path.name)


def _bounded(path: Path) -> str:
    return _bytes(path).decode()


def _bytes(path: Path) -> bytes:
    try:
        return read_given(path, MAX_SCHEMA_BYTES)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise ValueError(f"{path} has more than {MAX_SCHEMA_BYTES} bytes") from None
