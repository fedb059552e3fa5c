"""The options with which users describe payloads, and the rules that all kinds share."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from fastkcl._core import CANONICAL_COLUMNS
from fastkcl.payloads.registries.options import (
    ConfluentRegistry,
    FolderRegistry,
    GlueRegistry,
    RegistryOptions,
    registry_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CORRUPT",
    "DEFAULT_MAX_OUTAGE",
    "DEFAULT_MAX_PAYLOAD_BYTES",
    "FORMATS",
    "OWN_COLUMNS",
    "PACKED",
    "SCHEMA_FORMATS",
    "UNPARSED",
    "AvroPayload",
    "BinaryPayload",
    "Compression",
    "Framing",
    "JsonPayload",
    "Payload",
    "ProtobufPayload",
    "SchemaPayload",
    "StructType",
    "casts_of",
    "check_names",
    "largest_payload",
]

Compression: TypeAlias = Literal["none", "gzip", "auto"]
Framing: TypeAlias = Literal["none", "glue", "confluent", "single-object"]
Registry: TypeAlias = "str | os.PathLike[str] | RegistryOptions"

DEFAULT_MAX_PAYLOAD_BYTES: Final = 32 * 1024 * 1024
"""Of one unpacked payload. The service takes records of up to 10 MiB, packed."""

DEFAULT_MAX_OUTAGE: Final = 600.0
"""Seconds for which records wait for a registry."""

CORRUPT: Final = "_corrupt"
"""Column of payloads that could not be opened, as they came."""
UNPARSED: Final = "_unparsed"
"""Column of JSON objects that the reader has left, unpacked."""
PACKED: Final = "_packed"
"""Column of the same payloads as they came, if they were unpacked."""
OWN_COLUMNS: Final = (*(name for name in CANONICAL_COLUMNS if name != "data"), CORRUPT, UNPARSED, PACKED)
"""Columns that a table of opened payloads has of its own."""


class StructType(Protocol):
    """Spark's StructType, of which this room knows only that it has fields."""

    @property
    def fields(self) -> list[Any]:
        """Its StructFields."""


@dataclass(frozen=True, slots=True)
class BinaryPayload:
    """Payloads as bytes in the column ``data``."""

    compression: Compression = "none"
    """``"gzip"`` or ``"auto"`` (by gzip's magic number) to unpack them; then there is a column ``_corrupt``."""
    max_payload_bytes: int | None = None
    """Larger ones are corrupt when unpacked; `DEFAULT_MAX_PAYLOAD_BYTES`, or `max_table_bytes` if that is less."""


@dataclass(frozen=True, slots=True)
class JsonPayload:
    """Payloads as JSON objects, with typed columns in the place of ``data``, and ``_corrupt``."""

    schema: str | pa.Schema | StructType
    """The columns: text as ``"id string, at timestamp, tags array<string>"``; a pyarrow schema, for tables that are
    written without Spark; a StructType, or any text in Spark's DDL, for those that are written through Spark."""
    compression: Compression = "none"
    """``"gzip"`` or ``"auto"`` to unpack them."""
    max_payload_bytes: int | None = None
    """Larger ones are corrupt when unpacked; `DEFAULT_MAX_PAYLOAD_BYTES`, or `max_table_bytes` if that is less."""
    framing: Framing = "none"
    """``"glue"`` or ``"confluent"``: the objects come after a registry's header, whose id has to be one of JSON."""
    registry: Registry | None = None
    """Looks up the ids of headers: see `AvroPayload`."""
    max_outage: float = DEFAULT_MAX_OUTAGE
    """Seconds for which records wait for the registry; then it is an error."""

    def __post_init__(self) -> None:
        _check_framing("JSON", self.framing, ("none", "glue", "confluent"), self.registry, self.max_outage)
        if self.framing == "none" and self.registry is not None:
            raise ValueError(_NO_HEADER)


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroPayload:
    """Payloads in Avro, with the columns of the reader's schema in the place of ``data``, and ``_corrupt``.

    Raises:
        TypeError: an option of another type.
        ValueError: an option without a meaning, or two that do not fit together.
    """

    schema: str | os.PathLike[str]
    """The reader's schema: a file (.avsc), its text, or ``"latest:<subject or registry/name>"`` of the registry."""
    framing: Framing = "none"
    """The header of a payload: ``"none"``, ``"glue"``, ``"confluent"`` or ``"single-object"``."""
    registry: Registry | None = None
    """Looks up the ids of headers: ``"glue"``, ``"confluent"``, a URL, a folder, or a registry of
    `fastkcl.payloads`."""
    compression: Compression = "none"
    """Outside of the header: ``"gzip"`` or ``"auto"``. What Glue's header says is always done."""
    max_payload_bytes: int | None = None
    """Larger ones are corrupt when unpacked; `DEFAULT_MAX_PAYLOAD_BYTES`, or `max_table_bytes` if that is less."""
    keep_payload: bool = False
    """Whether the column ``data`` stays beside the typed ones."""
    casts: Mapping[str, Literal["string", "drop"]] | None = field(default=None, hash=False)
    """Fields without a Spark type, by their paths: as ``"string"``, or ``"drop"`` to leave them out."""
    max_outage: float = DEFAULT_MAX_OUTAGE
    """Seconds for which records wait for the registry; then it is an error."""

    def __post_init__(self) -> None:
        known: tuple[Framing, ...] = ("none", "glue", "confluent", "single-object")
        _check_framing("Avro", self.framing, known, self.registry, self.max_outage)
        _check_schema(self.schema, self.framing, self.registry, str | os.PathLike)
        _check_columns(self.casts, self.keep_payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufPayload:
    """Payloads as Protobuf messages, with the message's fields in the place of ``data``, and ``_corrupt``.

    Raises:
        TypeError: an option of another type.
        ValueError: an option without a meaning, or two that do not fit together.
    """

    schema: str | bytes | os.PathLike[str]
    """A .proto file (imports are looked for beside it) or its text; a FileDescriptorSet, or the file of one; or
    ``"latest:<subject or registry/name>"`` of the registry."""
    message: str | None = None
    """Full name of the message; not needed if the schema has one at its top."""
    framing: Framing = "none"
    """The header of a payload: ``"none"``, ``"glue"`` or ``"confluent"``."""
    registry: Registry | None = None
    """Looks up the ids of headers: see `AvroPayload`."""
    compression: Compression = "none"
    """Outside of the header: ``"gzip"`` or ``"auto"``. What Glue's header says is always done."""
    max_payload_bytes: int | None = None
    """Larger ones are corrupt when unpacked; `DEFAULT_MAX_PAYLOAD_BYTES`, or `max_table_bytes` if that is less."""
    keep_payload: bool = False
    """Whether the column ``data`` stays beside the typed ones."""
    casts: Mapping[str, Literal["string", "drop"]] | None = field(default=None, hash=False)
    """Fields without a Spark type, by their paths: as ``"string"``, or ``"drop"`` to leave them out."""
    max_outage: float = DEFAULT_MAX_OUTAGE
    """Seconds for which records wait for the registry; then it is an error."""

    def __post_init__(self) -> None:
        _check_framing("Protobuf", self.framing, ("none", "glue", "confluent"), self.registry, self.max_outage)
        _check_schema(self.schema, self.framing, self.registry, str | bytes | os.PathLike)
        _check_columns(self.casts, self.keep_payload)


SchemaPayload: TypeAlias = AvroPayload | ProtobufPayload
"""Payloads whose format needs a schema."""
Payload: TypeAlias = BinaryPayload | JsonPayload | SchemaPayload
"""Any kind of payload."""

FORMATS: Final[Mapping[str, type[Payload]]] = {
    "binary": BinaryPayload,
    "json": JsonPayload,
    "avro": AvroPayload,
    "protobuf": ProtobufPayload,
}
"""Each kind of payload by the name that options of the Spark source and of commands have for it."""
SCHEMA_FORMATS: Final = ("avro", "protobuf")
"""The names of those whose format needs a schema."""

_NO_HEADER: Final = (
    "framing='none' has no ids that registry= could look up: name the header that the producer writes, as"
    " framing='glue', or leave the registry out"
)


def _check_framing(
    what: str, framing: Framing, known: tuple[Framing, ...], registry: Registry | None, max_outage: float
) -> None:
    """Refuses framings and registries that do not fit together.

    Raises:
        ValueError: they do not.
        TypeError: a registry is something else, or the seconds are no number.
    """
    if framing not in known:
        raise ValueError(f"framing={framing!r}: {what} comes with {' or '.join(map(repr, known))}")
    if not isinstance(max_outage, int | float):
        raise TypeError(f"max_outage={max_outage!r}: must be seconds, as a number")
    if not max_outage >= 0:
        raise ValueError(f"max_outage={max_outage!r}: must be seconds, 0 or more")
    if framing in ("glue", "confluent") and registry is None:
        raise ValueError(f"framing={framing!r} needs registry=, which has the schemas of the ids in the headers")
    found = None if registry is None else registry_of(registry)
    if framing == "glue" and isinstance(found, ConfluentRegistry):
        raise ValueError("framing='glue' has UUIDs, which Confluent's registry does not know: give registry='glue'")
    if framing == "confluent" and isinstance(found, GlueRegistry):
        raise ValueError("framing='confluent' has numbers, which Glue's registry does not know: give its URL")
    if framing == "single-object" and isinstance(found, GlueRegistry | ConfluentRegistry):
        raise ValueError("framing='single-object' has fingerprints: give registry= a folder of schemas, or none")


def _check_schema(schema: object, framing: Framing, registry: Registry | None, kinds: Any) -> None:  # noqa: ANN401 - a union of types
    if not isinstance(schema, kinds):
        raise TypeError(f"schema must be a file, a text or 'latest:NAME', not {type(schema).__name__}")
    is_latest = isinstance(schema, str) and schema.startswith("latest:")
    if is_latest:
        if registry is None:
            raise ValueError(f"schema={schema!r} needs registry=, which knows the newest version")
        if isinstance(registry_of(registry), FolderRegistry):
            raise ValueError(f"schema={schema!r}: a folder has no versions; give the file itself")
    elif framing == "none" and registry is not None:
        raise ValueError(_NO_HEADER)


def _check_columns(casts: object, keep_payload: object) -> None:
    """Refuses what does not say which columns there are.

    Raises:
        TypeError: one is something else.
        ValueError: a cast that there is not.
    """
    if not isinstance(casts, Mapping | None):
        raise TypeError(f'casts={casts!r}: must be a mapping by path, as {{"at": "string"}}')
    for path, cast in (casts or {}).items():
        if cast not in ("string", "drop"):
            raise ValueError(f'casts={{{path!r}: {cast!r}}}: must be "string" or "drop"')
    if not isinstance(keep_payload, bool):
        raise TypeError(f"keep_payload={keep_payload!r}: must be True or False")


def casts_of(texts: Iterable[str]) -> dict[str, Literal["string", "drop"]]:
    """Casts by path, of texts as ``at.time=string``: for options that are texts.

    Raises:
        ValueError: a text has another form, or a path comes twice.
    """
    casts: dict[str, Literal["string", "drop"]] = {}
    for text in texts:
        path, _, cast = text.strip().partition("=")
        if not path or path in casts or cast not in ("string", "drop"):
            raise ValueError(f"{text.strip()!r} must be PATH=string or PATH=drop, with each path once")
        casts[path] = "string" if cast == "string" else "drop"
    return casts


def largest_payload(max_payload_bytes: int | None, max_table_bytes: int) -> int:
    """The bound of one unpacked payload.

    Raises:
        ValueError: it is out of range.
    """
    if max_payload_bytes is None:
        return min(DEFAULT_MAX_PAYLOAD_BYTES, max_table_bytes)
    if not 1 <= max_payload_bytes <= max_table_bytes:
        raise ValueError(f"max_payload_bytes={max_payload_bytes}: must be 1 to max_table_bytes, {max_table_bytes}")
    return max_payload_bytes


def check_names(names: Iterable[str], reserved: Collection[str], taken: str) -> None:
    """Refuses columns with one name. Spark does not distinguish names that differ in case only, so none may.

    Args:
        names: of the payloads' columns.
        reserved: names that other columns have.
        taken: says so, for the message.

    Raises:
        ValueError: there are no columns, or a name is there twice or taken.
    """
    names = list(names)
    if not names:
        raise ValueError("schema has no columns: name those that the objects have, as in 'id string, at timestamp'")
    folded = {name.casefold() for name in reserved}
    for name in names:
        if name.casefold() in folded:
            raise ValueError(
                f"schema: a second column {name!r}. {taken}. Rename it in the objects, or take it as a part of another"
                " column"
            )
        folded.add(name.casefold())
