"""Options of commands that write or read payloads with a schema."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fastkcl import ConfigurationError
from fastkcl.cli.numbers import MOST_SECONDS, FiniteRange
from fastkcl.payloads.options import SCHEMA_FORMATS
from fastkcl.replay import Source, SourceError, encoded

if TYPE_CHECKING:
    from fastkcl.payloads.options import Compression, Payload
    from fastkcl.payloads.writing import PayloadWriter

__all__ = ["READ_OPTIONS", "SCHEMA_OPTIONS", "encoded_source", "payload_to_read", "read_options", "write_options"]

F = TypeVar("F", bound=Callable[..., Any])

_OPTION_OF: Mapping[str, str] = {"name": "schema-name", "schema_id": "schema-id"}
_ARGUMENT = re.compile(r"\b(schema|message|framing|registry|name|schema_id)=(?:'([^']*)')?")


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
READ_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--cast",
        "casts",
        metavar="FIELD=string|drop",
        multiple=True,
        help="avro, protobuf: a field without a table's type as string, or left out. Repeatable.",
    ),
    click.option(
        "--keep-payload",
        is_flag=True,
        help="avro, protobuf: keep the payload in the column data beside the typed ones.",
    ),
    click.option(
        "--max-outage",
        type=FiniteRange(0, MOST_SECONDS),
        help="Seconds for which records wait for a registry that is away: 600, unless it is given.",
    ),
)
"""The options of payloads that are read."""
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
        *READ_OPTIONS,
    )


def encoded_source(
    source: Source, options: dict[str, Any], endpoint_url: str | None = None, region: str | None = None
) -> Source:
    """A source with the payloads that the options ask for. Takes them out of `options`.

    A schema is registered when a record has fitted it: a version that came by mistake is there for all readers.

    Args:
        source: of the records.
        options: of the command.
        endpoint_url: of Glue.
        region: of Glue.

    Raises:
        UsageError: they do not fit together.
        SourceError: the first record does not fit; nothing was registered.
    """
    names = ("payload", "schema", "message", "framing", "registry", "schema_name", "schema_id", "compress")
    payload, schema, message, framing, registry, name, schema_id, compress = (options.pop(each) for each in names)
    if payload is None:
        if schema or message or framing != "none" or registry or name or schema_id or compress:
            raise click.UsageError("--schema and the options of headers are for --payload avro or protobuf")
        return source
    if schema is None:
        raise click.UsageError(f"--payload {payload} needs --schema")
    from fastkcl.payloads.writing import AvroWriter, HeaderOptions, ProtobufWriter

    known: HeaderOptions = {
        "registry": _registry(registry, endpoint_url, region),
        "name": name,
        "schema_id": schema_id,
        "compress": compress,
    }
    if message is not None and payload != "protobuf":
        raise click.UsageError("--message is for --payload protobuf")
    of_schema: Callable[..., AvroWriter | ProtobufWriter] = (
        partial(ProtobufWriter, _file(schema), message) if payload == "protobuf" else partial(AvroWriter, _file(schema))
    )
    registers = framing in ("glue", "confluent") and schema_id is None and not schema.startswith("latest:")
    try:
        if registers:
            _open_first(encoded(source, of_schema("none").of_json))
        writer = of_schema(framing, **known)
    except SourceError:
        raise
    except (ConfigurationError, ValueError) as error:
        raise click.UsageError(as_options(str(error))) from None
    return encoded(source, _naming_the_version(writer, name) if registers else writer.of_json)


def _open_first(source: Source) -> None:
    """Make the first record of a source, to see whether it can be made."""
    for shard in source.shards():
        if len(shard.records):
            shard.records.columns(0, 1)
            return


def _naming_the_version(writer: PayloadWriter, name: str) -> Callable[[bytes], bytes]:
    """Makes payloads; an error says that the schema is registered by now."""

    def of_json(text: bytes) -> bytes:
        try:
            return writer.of_json(text)
        except ValueError as error:
            there = f"the registry has the schema, under {name} with the id {writer.schema_id}"
            raise ValueError(f"{error}; {there}") from error

    return of_json


def payload_to_read(
    payload: str | None,
    options: Mapping[str, Any],
    compression: Compression = "auto",
    endpoint_url: str | None = None,
    region: str | None = None,
) -> Payload | None:
    """The payload that the options describe.

    Args:
        payload: its kind; None if it stays as it is.
        options: of the command: schema, message, framing, registry, casts, keep_payload and max_outage.
        compression: outside of the header.
        endpoint_url: of Glue.
        region: of Glue.

    Raises:
        UsageError: they do not fit together.
    """
    schema, message, framing, registry = (options[each] for each in ("schema", "message", "framing", "registry"))
    typed: dict[str, Any] = {"casts": options["casts"], "keep_payload": options["keep_payload"]}
    outage = options["max_outage"]
    if payload is None:
        if schema or message or registry or framing != "none" or outage is not None or any(typed.values()):
            raise click.UsageError("--schema and the options of headers are for --payload")
        return None
    if schema is None:
        raise click.UsageError(f"--payload {payload} needs --schema")
    if message is not None and payload != "protobuf":
        raise click.UsageError("--message is for --payload protobuf")
    if payload == "json" and any(typed.values()):
        raise click.UsageError("--cast and --keep-payload are for --payload avro or protobuf")
    if outage is not None and registry is None:
        raise click.UsageError("--max-outage is for --registry")
    from fastkcl.payloads.options import AvroPayload, JsonPayload, ProtobufPayload, casts_of

    header: dict[str, Any] = {"framing": framing, "registry": _registry(registry, endpoint_url, region)}
    if outage is not None:
        header["max_outage"] = outage
    try:
        typed["casts"] = casts_of(typed["casts"]) or None
        match payload:
            case "avro":
                return AvroPayload(schema=_file(schema), compression=compression, **header, **typed)
            case "protobuf":
                return ProtobufPayload(
                    schema=_file(schema), message=message, compression=compression, **header, **typed
                )
            case _:
                return JsonPayload(schema, compression, **header)
    except (TypeError, ValueError) as error:
        raise click.UsageError(as_options(str(error))) from None


def as_options(message: str) -> str:
    """A message about arguments of Python, about the options of the command that have given them."""
    return _ARGUMENT.sub(
        lambda found: f"--{_OPTION_OF.get(found[1], found[1])}" + (f" {found[2]}" if found[2] else ""), message
    )


def _registry(registry: str | None, endpoint_url: str | None, region: str | None) -> Any:  # noqa: ANN401 - as payloads take it
    """The registry; Glue's is called where the command's other services are, unless the environment names its own."""
    if registry != "glue":
        return registry
    from fastkcl.cli.storage import has_credentials
    from fastkcl.payloads.registries.options import GlueRegistry

    has_credentials()  # or the error that says why they do not come
    own = os.environ.get("AWS_ENDPOINT_URL_GLUE")
    try:
        return GlueRegistry(endpoint_url=own or endpoint_url, region=region)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _file(schema: str) -> str | Path:
    """A file, unless the text names the newest schema of a registry."""
    return schema if schema.startswith("latest:") else Path(schema)
