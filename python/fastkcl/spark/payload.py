"""Opens payloads before Spark gets them: gzip is unpacked, JSON objects become typed columns.

    RecordBatch ──▶ PayloadReader (Rust, no GIL) ──▶ typed columns · keys · _corrupt ──▶ createDataFrame
                                  │                                                           │
                                  └─ objects with something that needs a rule ─▶ _unparsed ───┴▶ from_json

A payload is opened in the process that received it, which takes less time than to have Spark parse it, and sends Spark
typed columns instead of text. The reader itself takes only values with one possible reading: an integer in range, a
number for a double, a string for a string, dates and times in the full form of ISO 8601. An object with anything else
(a number for a string, a fraction for an integer, a key that comes twice) is left to Spark's ``from_json`` as a whole,
and so is every object if the schema has a type that the reader does not know. Hence there is one set of rules, Spark's;
tests compare the two.

Rules:

- A row for each record, with all its columns. ``_corrupt`` has the payload as it came (packed, if it was) if it cannot
  be unpacked, is larger than `max_payload_bytes` when unpacked, is not one JSON object in valid UTF-8 (RFC 8259), or
  has a value that does not fit the schema. It is NULL otherwise.
- A payload that is not an object has NULL in all columns of the schema. An object with a value that does not fit has
  its other values, and ``_corrupt``. A payload that the daemon sent as null is NULL everywhere.
- from_json changes some values that do not fit, without an error: 200 for a tinyint, 1e400, half of a
  surrogate pair, a key's first value (all of them: ``payload/loss.rs``). The reader does. Such an object has the values
  that from_json makes of it, and ``_corrupt``.
- from_json itself takes the first of several objects, replaces invalid UTF-8, and knows single quotes and NaN. None
  of that gets there: it would be a silent loss.
- A table is cut by the size of its opened payloads; see `Payloads.open`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypedDict, get_args

from fastkcl import ConfigurationError, RecordBatch
from fastkcl._core import PayloadReader
from fastkcl.payloads.framed import FramedReader
from fastkcl.payloads.opener import PayloadOpener
from fastkcl.payloads.options import (
    CORRUPT,
    DEFAULT_MAX_PAYLOAD_BYTES,
    FORMATS,
    OWN_COLUMNS,
    PACKED,
    UNPARSED,
    BinaryPayload,
    Compression,
    Framing,
    JsonPayload,
    Payload,
    check_names,
    largest_payload,
)
from fastkcl.spark.frame import data_frame
from fastkcl.spark.server.settings import without_frames

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from fastkcl.payloads.registries.options import RegistryOptions
    from fastkcl.write_after import Run

__all__ = [
    "DEFAULT_MAX_PAYLOAD_BYTES",
    "BinaryPayload",
    "Compression",
    "JsonPayload",
    "OpenedRows",
    "PayloadFormat",
    "Payloads",
    "SinglePayload",
    "arrow_schema",
    "parse_schema",
    "parsed_frame",
    "payload_of",
    "sql_text",
]

PayloadFormat: TypeAlias = Literal["binary", "json", "avro", "protobuf"]

_PARSED: Final = "_parsed"  # a struct, between from_json and the columns
_RESERVED: Final = (*OWN_COLUMNS, _PARSED)

# Types of Spark that the reader knows, by their simple names; arrays, structs and maps of them as well.
_ARROW_TYPES: Final = {
    "boolean": "bool_",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "date": "date32",
    "string": "string",
}


class SinglePayload(TypedDict, total=False):
    """What a payload of `fastkcl.payloads.options` has, one by one, beside ``payload="json"`` and the like."""

    schema: str | bytes | os.PathLike[str] | StructType | None
    compression: Compression
    max_payload_bytes: int | None
    framing: Framing
    registry: str | os.PathLike[str] | RegistryOptions | None
    max_outage: float
    message: str | None
    keep_payload: bool
    casts: Mapping[str, Literal["string", "drop"]] | None


def payload_of(payload: PayloadFormat | Payload, single: Mapping[str, Any]) -> Payload:
    """What payloads are, whose options are given together or one by one.

    Raises:
        TypeError: they are given both ways, or one does not exist.
        ValueError: they do not fit together, or there is no such payload.
    """
    if isinstance(payload, Payload):
        if single:
            name, group = next(iter(single)), type(payload).__name__
            raise TypeError(f"{name}= beside payload={group}(…): give it as {group}({name}=…)")
        return payload
    if payload not in FORMATS:
        raise ValueError(f"payload={payload!r}: must be {' or '.join(map(repr, FORMATS))}")
    given = {name: value for name, value in single.items() if not (name == "schema" and value is None)}
    if payload != "binary" and "schema" not in given:
        of = {"json": 'the columns of the objects: schema="id string, at timestamp"'}
        raise ValueError(f'payload="{payload}" needs schema=, {of.get(payload, "a file, its text or latest:NAME")}')
    if payload == "binary" and "schema" in given:
        raise ValueError('schema= is for payload="json", "avro" or "protobuf"; binary payloads have the column data')
    kind = FORMATS[payload]
    known = kind.__dataclass_fields__
    for name in given:
        if name not in known:
            raise TypeError(f'{name}= is not an option of payload="{payload}", whose options are {", ".join(known)}')
    return kind(**given)


class Payloads:
    """How a shard's binary or JSON payloads are opened.

    Args:
        payload: bytes in the column ``data``, or objects with the columns of a schema: a StructType, or in Spark's DDL.
            Every column is nullable, whatever it says.
        max_bytes: cut tables here, unless their batches came larger; one row may be larger.
        max_table_bytes: cut tables here in any case.

    Raises:
        TypeError: a schema that is something else.
        ValueError: no such compression, a name that is taken, or a bound out of range.
    """

    def __init__(self, payload: BinaryPayload | JsonPayload, *, max_bytes: int, max_table_bytes: int) -> None:
        if payload.compression not in get_args(Compression):
            known = " or ".join(map(repr, get_args(Compression)))
            raise ValueError(f"compression={payload.compression!r}: must be {known}")
        self._json = payload if isinstance(payload, JsonPayload) else None
        self._ddl = ""
        if self._json is not None:
            schema: Any = self._json.schema
            if not (isinstance(schema, str) or hasattr(schema, "fields")):
                raise TypeError(f"schema must be a StructType or a text in Spark's DDL, not {schema!r}")
            self._ddl = schema if isinstance(schema, str) else _ddl(schema)
            if not isinstance(schema, str):
                _check_names(schema)
        self._compression: Compression = payload.compression
        self._max_payload_bytes = largest_payload(payload.max_payload_bytes, max_table_bytes)
        self._max_bytes = max_bytes
        self._max_table_bytes = max_table_bytes
        self._opener: PayloadOpener[OpenedRows] | None = None

    @property
    def needed(self) -> bool:
        """Whether there is anything to open."""
        return self._json is not None or self._compression != "none"

    def prepare(self, session: SparkSession) -> None:
        """Find out, with Spark's help, the meaning of the schema.

        Raises:
            ConfigurationError: it is not a schema, or has a type that ``from_json`` does not parse, or a reserved name.
        """
        fields = None if self._json is None else _parse(self._ddl, session)
        schema = None if fields is None else arrow_schema(fields).serialize().to_pybytes()
        plain = PayloadReader(
            json=fields is not None,
            schema=schema,
            compression=self._compression,
            max_payload_bytes=self._max_payload_bytes,
        )
        frames = _Frames(fields, typed=plain.typed)
        reader: PayloadReader | FramedReader = plain
        if self._json is not None and self._json.framing != "none":
            if not plain.typed:
                raise ConfigurationError(
                    f"schema={self._ddl!r}: JSON after a registry's header is read as boolean, tinyint, smallint, int,"
                    " bigint, float, double, date, timestamp, string, and arrays, structs and maps of these"
                )
            reader = FramedReader(self._json, schema, max_payload_bytes=self._max_payload_bytes)
        self._opener = PayloadOpener(
            reader, frames.opened, max_bytes=self._max_bytes, max_table_bytes=self._max_table_bytes
        )

    def open(self, batches: Sequence[RecordBatch]) -> OpenedRows:
        """Open payloads from the first row on: as many as make one table, and at least one.

        Args:
            batches: none of them empty.
        """
        return self._prepared.open(batches)

    def open_all(self, batches: Sequence[RecordBatch]) -> OpenedRows:
        """Open all payloads, however large the table.

        Raises:
            ValueError: they are more than Arrow's columns take.
        """
        return self._prepared.open_all(batches)

    def exactly(self, run: Run[RecordBatch, Any]) -> OpenedRows:
        """The rows of a run, of which `open` has opened some, or more."""
        return self._prepared.exactly(run)

    @property
    def _prepared(self) -> PayloadOpener[OpenedRows]:
        assert self._opener is not None
        return self._opener


class Frames(Protocol):
    """Makes DataFrames of tables of opened payloads."""

    def data_frame(self, table: pa.Table, session: SparkSession) -> DataFrame:
        """The columns of the payloads, those of the records, and ``_corrupt``."""


class OpenedRows:
    """Records whose payloads are opened."""

    def __init__(self, table: pa.Table, frames: Frames) -> None:
        self._table = table
        self._frames = frames

    @property
    def num_rows(self) -> int:
        """Records."""
        return int(self._table.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the Arrow columns."""
        return int(self._table.nbytes)

    @property
    def corrupt(self) -> int:
        """Records with something in ``_corrupt`` already; ``from_json`` may find more."""
        return self.num_rows - int(self._table[CORRUPT].null_count)

    @property
    def table(self) -> pa.Table:
        """The columns as the reader has left them."""
        return self._table

    def slice(self, offset: int, length: int | None = None) -> OpenedRows:
        """Rows [offset, offset + length) without a copy."""
        return OpenedRows(self._table.slice(offset, length), self._frames)

    def data_frame(self, session: SparkSession) -> DataFrame:
        """The columns of the payloads, those of the records, and ``_corrupt``."""
        return self._frames.data_frame(self._table, session)


class _Frames:
    """Makes DataFrames of tables of opened payloads.

    Args:
        fields: of JSON objects; None for binary payloads.
        typed: the tables have columns for them.
    """

    def __init__(self, fields: StructType | None, *, typed: bool) -> None:
        from pyspark.sql.types import BinaryType, StructField, StructType

        from fastkcl.spark.schema import SCHEMA

        data, *own = SCHEMA.fields
        columns = [data] if fields is None else fields.fields if typed else []
        self._schema = StructType([*columns, *own, StructField(CORRUPT, BinaryType())])
        left = [StructField(name, BinaryType()) for name in (UNPARSED, PACKED)]
        self._schema_with_unparsed = StructType([*self._schema.fields, *left])
        self.complete = fields is None or typed
        self._fields = fields
        self._typed = typed
        self._own = [field.name for field in own]

    def opened(self, table: pa.Table, unparsed: bool) -> OpenedRows:
        if self.complete and not unparsed:
            table = table.drop_columns([UNPARSED, PACKED])
        return OpenedRows(table, self)

    def data_frame(self, table: pa.Table, session: SparkSession) -> DataFrame:
        if UNPARSED not in table.column_names:
            return data_frame(session, table, self._schema)
        df = data_frame(session, table, self._schema_with_unparsed)
        assert self._fields is not None
        return parsed_frame(df, self._fields, self._own, typed=self._typed)


def parsed_frame(df: DataFrame, fields: StructType, own: Sequence[str], *, typed: bool) -> DataFrame:
    """Objects that the reader has left, parsed by Spark: ``_unparsed`` and ``_packed`` become columns and ``_corrupt``.

    Args:
        df: with ``_corrupt``, ``_unparsed``, ``_packed``, the columns `own`, and those of the objects if it is `typed`.
        fields: of the objects.
        own: columns that stay as they are, in the order of the result.
        typed: whether objects that the reader has parsed are in the columns of `fields`.
    """
    # SQL, not functions: those of pyspark make what the process is set to, Connect or classic, and not what this
    # session takes.
    names = [_quoted(field.name) for field in fields]
    parsed = [f"{_PARSED}.{name}" for name in names]
    if typed:
        parsed = [f"coalesce({name}, {value})" for name, value in zip(names, parsed, strict=True)]
    return df.selectExpr("*", f"{_from_json(UNPARSED, f'{_ddl(fields)}, _corrupt STRING')} AS {_PARSED}").selectExpr(
        *(f"{value} AS {name}" for name, value in zip(names, parsed, strict=True)),
        *own,
        f"CASE WHEN _corrupt IS NOT NULL OR {UNPARSED} IS NULL THEN _corrupt"
        f" WHEN {_PARSED} IS NULL OR {_PARSED}._corrupt IS NOT NULL THEN coalesce({PACKED}, {UNPARSED}) END"
        " AS _corrupt",
    )


def parse_schema(schema: str | StructType, session: SparkSession, taken: Sequence[str]) -> StructType:
    """The columns of JSON objects, as Spark reads them, all nullable.

    Args:
        schema: as a StructType, or in Spark's DDL.
        session: parses it.
        taken: names of columns that the objects may not have.

    Raises:
        ConfigurationError: it is none, has a type that ``from_json`` does not parse, or a name that is taken.
    """
    parsed = _parse(schema if isinstance(schema, str) else _ddl(schema), session)
    folded = {name.casefold() for name in taken}
    for field in parsed.fields:
        if field.name.casefold() in folded:
            raise ConfigurationError(f"schema: a second column {field.name!r}: columns of the records are {taken}")
    return parsed


def _parse(ddl: str, session: SparkSession) -> StructType:
    """The schema as Spark reads it, all nullable, if ``from_json`` takes it.

    Raises:
        ConfigurationError: see `Payloads.prepare`.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import StructType

    try:
        parsed = session.sql(f"SELECT {_from_json('NULL', ddl)} AS {_PARSED}").schema[_PARSED].dataType
    except AnalysisException as error:
        raise ConfigurationError(
            f"schema={ddl!r} is not a schema by which Spark can parse JSON: {without_frames(error)}"
        ) from error
    if not isinstance(parsed, StructType):
        raise ConfigurationError(f"schema={ddl!r} must name columns, as in 'id string, at timestamp'")
    try:
        _check_names(parsed)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return parsed


def _check_names(schema: StructType) -> None:
    """Refuses names that are there twice or taken.

    Raises:
        ValueError: there are no columns, or such a name.
    """
    taken = f"Columns of the records are {', '.join(_RESERVED)}"
    check_names((field.name for field in schema.fields), _RESERVED, taken)


def _from_json(text: str, ddl: str) -> str:
    """The SQL that parses `text`, with a ``_corrupt`` in `ddl` for values that do not fit."""
    # Options keep Spark from parsing those columns only that are asked for, which would hide misfits in others.
    options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"
    return f"from_json(CAST({text} AS STRING), {sql_text(ddl)}, {options})"


def _ddl(schema: StructType) -> str:
    return ", ".join(f"{_quoted(field.name)} {_type_ddl(field.dataType)}" for field in schema.fields)


def _type_ddl(data_type: DataType) -> str:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(data_type, StructType):
        inner = (f"{_quoted(field.name)}: {_type_ddl(field.dataType)}" for field in data_type.fields)
        return f"STRUCT<{', '.join(inner)}>"
    if isinstance(data_type, ArrayType):
        return f"ARRAY<{_type_ddl(data_type.elementType)}>"
    if isinstance(data_type, MapType):
        return f"MAP<{_type_ddl(data_type.keyType)}, {_type_ddl(data_type.valueType)}>"
    return data_type.simpleString()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def sql_text(text: str) -> str:
    """A text as a literal of Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def arrow_schema(fields: StructType) -> pa.Schema:
    """With null for a type that the reader does not know; then it leaves every object to Spark."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, _arrow_type(field.dataType)) for field in fields.fields])


def _arrow_type(data_type: DataType) -> pa.DataType:
    import pyarrow as pa
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(data_type, StructType):
        distinct = {field.name.casefold() for field in data_type.fields}
        if not 0 < len(distinct) == len(data_type.fields):
            return pa.null()
        return pa.struct([(field.name, _arrow_type(field.dataType)) for field in data_type.fields])
    if isinstance(data_type, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(data_type.elementType)))
    if isinstance(data_type, MapType):
        return pa.map_(_arrow_type(data_type.keyType), _arrow_type(data_type.valueType))
    name = data_type.simpleString()
    if name == "timestamp":
        return pa.timestamp("us", "UTC")
    return getattr(pa, _ARROW_TYPES.get(name, "null"))()
