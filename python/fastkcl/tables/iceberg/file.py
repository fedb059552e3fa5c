"""Arrow on its way into an Iceberg table's data files: types, ids of columns, partitions, statistics.

    storable     in Iceberg's types, with ``stream`` and ``shard``
    new_schema   the schema of a new table, and how it is partitioned
    parts        rows by the values of the table's partitions; each of these becomes a file
    data_file    a file's entry in a manifest; its statistics are those of the Parquet footer
    as_json      the same as JSON, as requests of shared commits have it; `of_json` reads it

Rules: all rows of a file are in one partition by their own values, so a record that arrives late lies in its own day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, TimeTransform, Transform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, PrimitiveType

from fastkcl.tables.base import Shard, SinkError
from fastkcl.tables.columns import integers, repeated_text
from fastkcl.tables.iceberg.statistics import statistics
from fastkcl.tables.iceberg.types import arrow_field, iceberg_fields

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ARRIVAL",
    "Part",
    "as_json",
    "data_file",
    "folder_of",
    "new_schema",
    "of_json",
    "parts",
    "storable",
    "with_ids",
]

ARRIVAL: Final = "approximateArrivalTimestamp"
_STATISTICS: Final = ("sequenceNumber", "subSequenceNumber", ARRIVAL, "stream", "shard")
_ORIGIN: Final = ("stream", "shard")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.=/-]*", re.ASCII)
_BOUNDS: Final = ("lower_bounds", "upper_bounds")
_COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")


def storable(table: pa.Table, shard: Shard) -> pa.Table:
    """A table in types that Iceberg has, with the columns that say where a row is from.

    Raises:
        SinkError: a column has another type, a value that does not fit, or a name of those.
    """
    import pyarrow as pa

    made, names = [], []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name.casefold() in _ORIGIN:
            raise SinkError(f"column {name}: the table has one of its own: give it another name in transform")
        target = _iceberg_type(name, column.type)
        try:
            made.append(column if column.type == target else column.cast(target))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SinkError(f"column {name}: {column.type} as Iceberg's {target}: {error}") from error
        names.append(name)
    for name, value in zip(_ORIGIN, (shard.stream, shard.shard_id), strict=True):
        made.append(repeated_text(value, table.num_rows))
        names.append(name)
    return pa.table(made, names=names)


def _iceberg_type(name: str, kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _iceberg_type(name, kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_unsigned_integer(kind):
        return pa.int32() if kind.bit_width < 32 else pa.int64()
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_null(kind) or pa.types.is_duration(kind) or pa.types.is_union(kind):
        raise SinkError(f"column {name}: Iceberg has no type for {kind}: cast it in transform")
    return kind


def new_schema(schema: pa.Schema) -> tuple[Schema, PartitionSpec]:
    """The schema of a new table, and its partitions: the day of arrival, if it has that.

    Raises:
        SinkError: a column is of a type that Iceberg does not have.
    """
    import pyarrow as pa

    try:
        made = Schema(*iceberg_fields(schema))
    except (TypeError, ValueError) as error:
        raise SinkError(f"{error}; cast it in transform") from error
    if ARRIVAL not in schema.names or not pa.types.is_timestamp(schema.field(ARRIVAL).type):
        return made, PartitionSpec()
    source = made.find_field(ARRIVAL).field_id
    return made, PartitionSpec(
        PartitionField(
            source_id=source, field_id=PARTITION_FIELD_ID_START, transform=DayTransform(), name="arrival_day"
        )
    )


def with_ids(table: pa.Table, schema: Schema, where: str) -> pa.Table:
    """A table in the types of a schema that has its columns, with their ids.

    Raises:
        SinkError: a column is not as the schema has it, or lacks one that it requires.
    """
    import pyarrow as pa

    for field in schema.fields:
        if field.required and field.name not in table.column_names:
            raise SinkError(f"{where}: requires column {field.name}, which these rows do not have")
    try:
        wanted = [arrow_field(schema.find_field(name)) for name in table.column_names]
    except TypeError as error:
        raise SinkError(f"{where}: {error}: let transform drop it") from error
    made = []
    for field, column in zip(wanted, table.columns, strict=True):
        kind = field.type
        if not field.nullable and column.null_count:
            raise SinkError(f"{where}: requires column {field.name}, and {column.null_count} rows have null there")
        try:
            made.append(column if column.type == kind else column.cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SinkError(f"{where}: column {field.name} is {column.type}, and {kind} there: {error}") from error
    return pa.table(made, schema=pa.schema(wanted))


class Part(NamedTuple):
    """Rows of one partition."""

    rows: pa.Table
    values: Record
    folder: str
    """The folder of a partition's files: ``arrival_day=2026-11-22``.

    Empty where the table has no partitions, or where readers would decode the folder's name.
    """


def parts(table: pa.Table, spec: PartitionSpec, schema: Schema, where: str) -> Iterator[Part]:
    """Rows by their partitions, in their order within each.

    Raises:
        SinkError: a column is missing, or is inside of another one; or a time is beyond the years 1 to 9999.
    """
    import pyarrow.compute as pc

    if not table.num_rows:
        return
    codes: pa.Array | None = None
    values: list[tuple[Any, ...]] = [()]
    for each in spec.fields:
        if "." in (schema.find_column_name(each.source_id) or "."):
            raise SinkError(f"{where}: is partitioned by a field within a column, which this writer does not do")
        with _years(where):
            of, there = _values(table, schema.find_field(each.source_id), each.transform)
        values = [(*before, value) for before in values for value in there]
        if len(there) > 1:
            codes = of if codes is None else pc.add(pc.multiply(codes, integers([len(there)])[0]), of)
    for code in [None] if codes is None else pc.unique(codes):
        record = Record(*values[0 if code is None else code.as_py()])
        with _years(where):
            folder = folder_of(record, spec, schema)
        yield Part(table if code is None else table.filter(pc.equal(codes, code)), record, folder)


@contextmanager
def _years(where: str) -> Iterator[None]:
    """Name a time that Python's calendar does not have.

    Raises:
        SinkError: for it.
    """
    try:
        yield
    except OverflowError as error:
        raise SinkError(
            f"{where}: a row's time is before the year 1 or after 9999, for which pyiceberg makes no partition: let"
            " transform make it null"
        ) from error


def folder_of(values: Record, spec: PartitionSpec, schema: Schema) -> str:
    """`Part.folder` of a partition."""
    path = spec.partition_to_path(values, schema) if spec.fields else ""
    return path if _PLAIN.fullmatch(path) else ""


def _values(table: pa.Table, field: NestedField, transform: Transform[Any, Any]) -> tuple[pa.Array, list[Any]]:
    """For each row the index of its value of a partition, and these values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(transform, VoidTransform) or field.name not in table.column_names:
        return pa.repeat(integers([0])[0], table.num_rows), [None]
    column = table[field.name]
    if isinstance(transform, TimeTransform) and pa.types.is_timestamp(column.type):
        column = pc.floor_temporal(column, unit="hour")  # enough for all of them
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    make = transform.transform(field.field_type)
    made = [None if value is None else make(value) for value in encoded.dictionary.to_pylist()]
    there = list(dict.fromkeys(made))
    return integers(map(there.index, made)).take(encoded.indices), there


def data_file(location: str, body: memoryview, values: Record, spec: PartitionSpec, schema: Schema) -> DataFile:
    """What a manifest says of a file that has these bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    footer = pq.read_metadata(pa.BufferReader(body))
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=values,
        file_size_in_bytes=len(body),
        sort_order_id=None,
        spec_id=spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics(footer, schema, _STATISTICS),
    )


def as_json(file: DataFile, spec: PartitionSpec, schema: Schema) -> dict[str, Any]:
    """A data file as JSON."""
    kinds = _partition_types(spec, schema)
    values = [file.partition[index] for index in range(len(kinds))]
    return {
        "path": file.file_path,
        "size": file.file_size_in_bytes,
        "records": file.record_count,
        "split": list(file.split_offsets or ()),
        "partition": [
            None if value is None else to_bytes(kind, value).hex() for kind, value in zip(kinds, values, strict=True)
        ],
        **{name: _pairs(getattr(file, name)) for name in _COUNTS},
        **{name: [[key, value.hex()] for key, value in (getattr(file, name) or {}).items()] for name in _BOUNDS},
    }


def of_json(value: Any, spec: PartitionSpec, schema: Schema) -> DataFile:  # noqa: ANN401 - as somebody has written it
    """The data file that `as_json` has written.

    Raises:
        ValueError: it has not.
    """
    try:
        kinds = _partition_types(spec, schema)
        texts = value["partition"]
        if len(texts) != len(kinds) or not isinstance(value["path"], str):
            raise ValueError(f"{value!r}: no file of this table")
        values = [
            None if text is None else from_bytes(kind, bytes.fromhex(text))
            for kind, text in zip(kinds, texts, strict=True)
        ]
        counts: dict[str, Any] = {name: {int(key): int(count) for key, count in value[name]} for name in _COUNTS}
        bounds: dict[str, Any] = {
            name: {int(key): bytes.fromhex(text) for key, text in value[name]} for name in _BOUNDS
        }
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=value["path"],
            file_format=FileFormat.PARQUET,
            partition=Record(*values),
            file_size_in_bytes=int(value["size"]),
            record_count=int(value["records"]),
            split_offsets=[int(each) for each in value["split"]],
            sort_order_id=None,
            spec_id=spec.spec_id,
            equality_ids=None,
            key_metadata=None,
            **counts,
            **bounds,
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no file of this table: {error!r}") from error


def _partition_types(spec: PartitionSpec, schema: Schema) -> list[PrimitiveType]:
    return [field.field_type for field in spec.partition_type(schema).fields]  # type: ignore[misc]


def _pairs(counts: Mapping[int, int] | None) -> list[list[int]]:
    return [[key, count] for key, count in (counts or {}).items()]
