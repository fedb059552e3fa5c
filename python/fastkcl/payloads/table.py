"""Opens payloads for tables that are written without Spark: gzip is unpacked, JSON objects become typed columns.

The reader (Rust) takes only values with one possible meaning: an integer in range, a number for a double, a string for
a string, dates and times in the full form of ISO 8601. Without Spark, no other rules apply. If an object has any other
value (a number for a string, a key that occurs twice), all columns of the schema are NULL, and ``_corrupt`` has the
unchanged payload. So nothing is changed, and nothing is lost.

Rules otherwise as in `fastkcl.spark.payload`: a row for each record, with all its columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastkcl import ConfigurationError
from fastkcl._core import PayloadReader
from fastkcl.payloads.framed import FramedReader
from fastkcl.payloads.opened import OpenedTable
from fastkcl.payloads.opener import PayloadOpener
from fastkcl.payloads.options import (
    CORRUPT,
    OWN_COLUMNS,
    PACKED,
    UNPARSED,
    JsonPayload,
    Payload,
    SchemaPayload,
    check_names,
    largest_payload,
)
from fastkcl.payloads.schema_text import parse_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["opener_of", "pa_schema"]

_PARTITIONS: Final = ("stream", "shard", "date")


def opener_of(payload: Payload, *, max_bytes: int, max_table_bytes: int) -> PayloadOpener[OpenedTable] | None:
    """What opens payloads; None if there is nothing to open.

    Args:
        payload: what they are.
        max_bytes: cut tables here, unless their batches came larger; one row may be larger.
        max_table_bytes: cut tables here in any case.

    Raises:
        ValueError: an option that is none, or a schema with a name that is taken.
        TypeError: a schema that is neither text nor one of pyarrow.
        ConfigurationError: pyarrow is missing, the schema has a type that JSON is not read as, or it is none.
        RegistryAwayError: the registry did not answer for `max_outage`.
    """
    if payload.compression not in ("none", "gzip", "auto"):
        raise ValueError(f"compression={payload.compression!r}: must be 'none' or 'gzip' or 'auto'")
    most = largest_payload(payload.max_payload_bytes, max_table_bytes)
    if isinstance(payload, SchemaPayload):
        framed = FramedReader(payload, max_payload_bytes=most)
        _check_columns(pa_schema(framed), keeps_payload=payload.keep_payload)
        return PayloadOpener(framed, _opened, max_bytes=max_bytes, max_table_bytes=max_table_bytes)
    schema = None
    if isinstance(payload, JsonPayload):
        schema = _schema_of(payload.schema)
    elif payload.compression == "none":
        return None
    reader: PayloadReader | FramedReader
    if isinstance(payload, JsonPayload) and payload.framing != "none":
        assert schema is not None
        reader = FramedReader(payload, schema.serialize().to_pybytes(), max_payload_bytes=most)
    else:
        reader = PayloadReader(
            json=schema is not None,
            schema=None if schema is None else schema.serialize().to_pybytes(),
            compression=payload.compression,
            max_payload_bytes=most,
        )
        if schema is not None and not reader.typed:
            raise ConfigurationError(
                f"schema {', '.join(f'{field.name} {field.type}' for field in schema)}: JSON is read as boolean,"
                " tinyint, smallint, int, bigint, float, double, date, timestamp, string, and arrays, structs and maps"
                " of these"
            )
    return PayloadOpener(reader, _opened, max_bytes=max_bytes, max_table_bytes=max_table_bytes)


def pa_schema(reader: FramedReader) -> pa.Schema:
    """The columns that a reader makes.

    Raises:
        ConfigurationError: pyarrow is missing.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ConfigurationError("pyarrow is not installed: pip install 'fastkcl[arrow]'") from error
    return pa.schema(reader.columns)


def _check_columns(schema: pa.Schema, *, keeps_payload: bool) -> None:
    """Refuses columns of payloads whose names are taken.

    Raises:
        ValueError: there is one.
    """
    own = [name for name in OWN_COLUMNS if name not in (UNPARSED, PACKED)] + (["data"] if keeps_payload else [])
    names = list(schema.names)
    for name in own:
        names.remove(name)
    taken = f"Columns of the records are {', '.join(own)}, and folders give {', '.join(_PARTITIONS)}"
    check_names(names, (*own, *_PARTITIONS), taken)


def _opened(table: pa.Table, unparsed: bool) -> OpenedTable:
    """What the reader has left goes to ``_corrupt``, as it came."""
    import pyarrow.compute as pc

    names = table.column_names
    if UNPARSED not in names:
        return OpenedTable(table)
    if unparsed:
        binary = table.schema.field(CORRUPT).type
        left = [table[name].cast(binary) for name in (PACKED, UNPARSED)]
        at = names.index(CORRUPT)
        table = table.set_column(at, CORRUPT, pc.coalesce(table[CORRUPT], *left))
    return OpenedTable(table.drop_columns([UNPARSED, PACKED]))


def _schema_of(schema: Any) -> pa.Schema:  # noqa: ANN401 - checked here
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ConfigurationError("pyarrow is not installed: pip install 'fastkcl[arrow]'") from error
    if isinstance(schema, str):
        schema = parse_schema(schema)
    elif not isinstance(schema, pa.Schema):
        raise TypeError(f"schema must be a pyarrow.Schema or text, not {schema!r}")
    taken = f"Columns of the records are {', '.join(OWN_COLUMNS)}, and folders give {', '.join(_PARTITIONS)}"
    check_names((field.name for field in schema), (*OWN_COLUMNS, *_PARTITIONS), taken)
    return schema
