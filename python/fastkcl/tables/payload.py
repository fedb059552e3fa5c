"""Opens payloads for tables that are written without Spark: gzip is unpacked, JSON objects become typed columns.

The reader (Rust) takes values with one possible reading alone: an integer in range, a number for a double, a string for
a string, dates and times in the full form of ISO 8601. There is no Spark here to find a rule for others. So an object
with anything else (a number for a string, a key that comes twice) has NULL in all columns of the schema, and its
payload as it came in ``_corrupt``; nothing is changed, and nothing is lost.

Rules otherwise as in `fastkcl.spark.payload`: a row for each record, with all its columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from fastkcl import ConfigurationError
from fastkcl._core import CANONICAL_COLUMNS, PayloadReader
from fastkcl.tables.bounds import Bounds
from fastkcl.tables.opener import PayloadOpener
from fastkcl.tables.schema_text import parse_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CORRUPT", "BinaryPayload", "Compression", "JsonPayload", "OpenedTable", "opener_of"]

Compression: TypeAlias = Literal["none", "gzip", "auto"]

CORRUPT: Final = "_corrupt"
"""Column of payloads that could not be opened."""
_UNPARSED: Final = "_unparsed"
_PACKED: Final = "_packed"
_OWN: Final = (*(name for name in CANONICAL_COLUMNS if name != "data"), CORRUPT, _UNPARSED, _PACKED)
_PARTITIONS: Final = ("stream", "shard", "date")
_MAX_PAYLOAD_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BinaryPayload:
    """Payloads as bytes in the column ``data``."""

    compression: Compression = "none"
    """``"gzip"`` or ``"auto"`` (by gzip's magic number) to unpack them; then there is a column ``_corrupt``."""
    max_payload_bytes: int | None = None
    """Larger ones are corrupt when unpacked; 32 MiB, or `max_table_bytes` if that is less."""


@dataclass(frozen=True, slots=True)
class JsonPayload:
    """Payloads as JSON objects, with typed columns in the place of ``data``, and ``_corrupt``."""

    schema: str | pa.Schema
    """The columns: a pyarrow schema, or text as ``"id string, at timestamp, tags array<string>"``."""
    compression: Compression = "none"
    """``"gzip"`` or ``"auto"`` to unpack them."""
    max_payload_bytes: int | None = None
    """Larger ones are corrupt when unpacked; 32 MiB, or `max_table_bytes` if that is less."""


class OpenedTable:
    """Records whose payloads are opened."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        """The columns of the payloads, those of the records, and ``_corrupt``."""

    @property
    def num_rows(self) -> int:
        """Records."""
        return int(self.table.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the Arrow columns."""
        return int(self.table.nbytes)

    @property
    def corrupt(self) -> int:
        """Records with something in ``_corrupt``."""
        return self.num_rows - int(self.table[CORRUPT].null_count)

    def slice(self, offset: int, length: int | None = None) -> OpenedTable:
        """Rows [offset, offset + length) without a copy."""
        return OpenedTable(self.table.slice(offset, length))


def opener_of(payload: BinaryPayload | JsonPayload, bounds: Bounds) -> PayloadOpener[OpenedTable] | None:
    """What opens payloads; None if there is nothing to open.

    Raises:
        ValueError: an option that is none, or a schema with a name that is taken.
        TypeError: a schema that is neither text nor one of pyarrow.
        ConfigurationError: pyarrow is missing, or the schema has a type that JSON is not read as.
    """
    if payload.compression not in ("none", "gzip", "auto"):
        raise ValueError(f"compression={payload.compression!r}: must be 'none' or 'gzip' or 'auto'")
    most = payload.max_payload_bytes
    if most is None:
        most = min(_MAX_PAYLOAD_BYTES, bounds.max_table_bytes)
    if not 1 <= most <= bounds.max_table_bytes:
        raise ValueError(f"max_payload_bytes={most}: must be 1 to max_table_bytes, {bounds.max_table_bytes}")
    schema = None
    if isinstance(payload, JsonPayload):
        schema = _schema_of(payload.schema)
    elif payload.compression == "none":
        return None
    reader = PayloadReader(
        json=schema is not None,
        schema=None if schema is None else schema.serialize().to_pybytes(),
        compression=payload.compression,
        max_payload_bytes=most,
    )
    if schema is not None and not reader.typed:
        raise ConfigurationError(
            f"schema {', '.join(f'{field.name} {field.type}' for field in schema)}: JSON is read as boolean, tinyint,"
            " smallint, int, bigint, float, double, date, timestamp, string, and arrays, structs and maps of these"
        )
    return PayloadOpener(reader, _opened, max_bytes=bounds.max_bytes, max_table_bytes=bounds.max_table_bytes)


def _opened(table: pa.Table, unparsed: bool) -> OpenedTable:
    """What the reader has left goes to ``_corrupt``, as it came."""
    import pyarrow.compute as pc

    names = table.column_names
    if _UNPARSED not in names:
        return OpenedTable(table)
    if unparsed:
        binary = table.schema.field(CORRUPT).type
        left = [table[name].cast(binary) for name in (_PACKED, _UNPARSED)]
        at = names.index(CORRUPT)
        table = table.set_column(at, CORRUPT, pc.coalesce(table[CORRUPT], *left))
    return OpenedTable(table.drop_columns([_UNPARSED, _PACKED]))


def _schema_of(schema: Any) -> pa.Schema:  # noqa: ANN401 - checked here
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ConfigurationError("pyarrow is not installed: pip install 'fastkcl[arrow]'") from error
    if isinstance(schema, str):
        schema = parse_schema(schema)
    elif not isinstance(schema, pa.Schema):
        raise TypeError(f"schema must be a pyarrow.Schema or text, not {schema!r}")
    if not len(schema):
        raise ValueError("schema has no columns: name those that the objects have, as in 'id string, at timestamp'")
    taken = {name.casefold() for name in (*_OWN, *_PARTITIONS)}
    for field in schema:
        name = field.name.casefold()
        if name in taken:
            raise ValueError(
                f"schema: a second column {field.name!r}. Columns of the records are {', '.join(_OWN)}, and folders"
                f" give {', '.join(_PARTITIONS)}. Rename it in the objects, or take it as a part of another column"
            )
        taken.add(name)
    return schema
