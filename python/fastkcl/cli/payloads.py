"""Options of commands that write or read payloads with a schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fastkcl import ConfigurationError
from fastkcl.replay import Source, encoded

__all__ = ["SCHEMA_OPTIONS", "encoded_source", "payload_to_read", "read_options", "write_options"]
from fastkcl.payloads.options import SCHEMA_FORMATS

if TYPE_CHECKING:
    from fastkcl.payloads.options import Compression, Payload

F = TypeVar("F", bound=Callable[..., Any])


def _options(command: F, *options: Callable[[Any], Any]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


SCHEMA_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--message", help="Full name of the Protobuf message."),
    click.option(
        "--framing",
        type=click.Choice(["none", "glue", "confluent", "single-object"]),
        default="none",
        show_default=True,
        help="The header of a payload.",
    ),
    click.option("--registry", help="glue, confluent, a URL, or a folder of schemas by id."),
)
"""The options for headers and messages."""
_COMMON: tuple[Callable[[Any], Any], ...] = (
    click.option("--schema", help="A file (.avsc, .proto, descriptor set), or latest:NAME of the registry."),
    *SCHEMA_OPTIONS,
)


def write_options(command: F) -> F:
    """The options for putting or playing JSON objects as Avro or Protobuf."""
    return _options(
        command,
        click.option(
            "--payload",
            type=click.Choice(SCHEMA_FORMATS),
            help="Write the JSON objects in this format.",
        ),
        *_COMMON,
        click.option("--schema-name", help="REGISTRY/NAME or subject, under which the schema is registered."),
        click.option("--schema-id", help="The schema's id, if you know it; then no registry is needed."),
        click.option("--compress", is_flag=True, help="Compress with zlib, as Glue's header notes."),
    )


def read_options(command: F) -> F:
    """The options for showing decoded payloads."""
    return _options(
        command,
        click.option(
            "--payload",
            type=click.Choice([*SCHEMA_FORMATS, "json"]),
            help="Decode payloads of this kind.",
        ),
        *_COMMON,
    )


def encoded_source(
    source: Source, options: dict[str, Any], endpoint_url: str | None = None, region: str | None = None
) -> Source:
    """A source with the payloads that the options ask for. Takes them out of `options`.

    Args:
        source: of the records.
        options: of the command.
        endpoint_url: of Glue.
        region: of Glue.

    Raises:
        UsageError: they do not fit together.
    """
    names = ("payload", "schema", "message", "framing", "registry", "schema_name", "schema_id", "compress")
    payload, schema, message, framing, registry, name, schema_id, compress = (options.pop(each) for each in names)
    if payload is None:
        if schema or message or framing != "none" or registry or name or schema_id or compress:
            raise click.UsageError("--schema and the options of headers are for --payload avro or protobuf")
        return source
    if schema is None:
        raise click.UsageError(f"--payload {payload} needs --schema")
    from fastkcl.payloads.registries.options import GlueRegistry
    from fastkcl.payloads.writing import AvroWriter, HeaderOptions, ProtobufWriter

    if registry == "glue":
        registry = GlueRegistry(endpoint_url=endpoint_url, region=region)
    known: HeaderOptions = {"registry": registry, "name": name, "schema_id": schema_id, "compress": compress}
    try:
        if payload == "protobuf":
            return encoded(source, ProtobufWriter(_file(schema), message, framing, **known).of_json)
        if message is not None:
            raise click.UsageError("--message is for --payload protobuf")
        return encoded(source, AvroWriter(_file(schema), framing, **known).of_json)
    except (ConfigurationError, ValueError) as error:
        raise click.UsageError(str(error)) from None


def payload_to_read(
    payload: str | None, options: Mapping[str, Any], compression: Compression = "auto"
) -> Payload | None:
    """The payload that the options describe.

    Raises:
        UsageError: they do not fit together.
    """
    schema, message, framing, registry = (options[each] for each in ("schema", "message", "framing", "registry"))
    if payload is None:
        if schema or message or registry or framing != "none":
            raise click.UsageError("--schema and the options of headers are for --payload")
        return None
    if schema is None:
        raise click.UsageError(f"--payload {payload} needs --schema")
    if message is not None and payload != "protobuf":
        raise click.UsageError("--message is for --payload protobuf")
    from fastkcl.payloads.options import AvroPayload, JsonPayload, ProtobufPayload

    header: dict[str, Any] = {"framing": framing, "registry": registry}
    try:
        match payload:
            case "avro":
                return AvroPayload(schema=_file(schema), compression=compression, **header)
            case "protobuf":
                return ProtobufPayload(schema=_file(schema), message=message, compression=compression, **header)
            case _:
                return JsonPayload(schema, compression, **header)
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from None


def _file(schema: str) -> str | Path:
    """A file, unless the text names the newest schema of a registry."""
    return schema if schema.startswith("latest:") else Path(schema)
