"""Arrow's types as Iceberg's, and the other way.

    iceberg_fields   the fields of an Arrow schema, with ids
    arrow_field      a field of a table, as a column of Arrow that has its id

pyiceberg has both in `pyiceberg.io.pyarrow`, which imports pyarrow.dataset and with it pandas: 50 MB in each child. The
tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from pyiceberg import types as its

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["arrow_field", "iceberg_fields"]

_UTC: Final = frozenset({"UTC", "+00:00", "Etc/UTC", "Z"})


def iceberg_fields(schema: pa.Schema) -> list[its.NestedField]:
    """The fields of a table for an Arrow schema; an id counts before those within it.

    Raises:
        TypeError: a column is of a type that Iceberg does not have; says which.
    """
    count = iter(range(1, 1 << 30))
    return [_iceberg_field(field, field.name, count) for field in schema]


def _iceberg_field(field: pa.Field, path: str, count: Iterator[int]) -> its.NestedField:
    number = next(count)
    return its.NestedField(number, field.name, _iceberg_type(field.type, path, count), required=not field.nullable)


def _iceberg_type(kind: pa.DataType, path: str, count: Iterator[int]) -> its.IcebergType:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return its.StructType(*(_iceberg_field(field, f"{path}.{field.name}", count) for field in fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        item = _iceberg_field(kind.value_field, f"{path}.element", count)
        return its.ListType(item.field_id, item.field_type, element_required=item.required)
    if pa.types.is_map(kind):
        key = _iceberg_field(kind.key_field, f"{path}.key", count)
        value = _iceberg_field(kind.item_field, f"{path}.value", count)
        return its.MapType(
            key.field_id, key.field_type, value.field_id, value.field_type, value_required=value.required
        )
    if pa.types.is_dictionary(kind):
        return _iceberg_type(kind.value_type, path, count)
    made = _primitive(kind)
    if made is None:
        raise TypeError(f"column {path}: Iceberg has no type for {kind}")
    return made


def _primitive(kind: pa.DataType) -> its.PrimitiveType | None:
    """None for a type that Iceberg does not have."""
    import pyarrow as pa

    if pa.types.is_integer(kind):
        return its.IntegerType() if kind.bit_width <= 32 else its.LongType()
    if pa.types.is_decimal128(kind):
        return its.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return its.FixedType(kind.byte_width)
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns" or kind.tz not in {None, *_UTC}:
            return None
        return its.TimestampType() if kind.tz is None else its.TimestamptzType()
    if isinstance(kind, pa.UuidType):
        return its.UUIDType()
    for is_one, made in _SIMPLE:
        if getattr(pa.types, is_one)(kind):
            return made()
    return its.TimeType() if kind == pa.time64("us") else None


_SIMPLE: Final[tuple[tuple[str, Callable[[], its.PrimitiveType]], ...]] = (
    ("is_boolean", its.BooleanType),
    ("is_float16", its.FloatType),
    ("is_float32", its.FloatType),
    ("is_float64", its.DoubleType),
    ("is_date32", its.DateType),
    ("is_string", its.StringType),
    ("is_large_string", its.StringType),
    ("is_string_view", its.StringType),
    ("is_binary", its.BinaryType),
    ("is_large_binary", its.BinaryType),
    ("is_binary_view", its.BinaryType),
)


def arrow_field(field: its.NestedField) -> pa.Field:
    """A column that a file of the table has for a field, with its id.

    Raises:
        TypeError: Arrow has no type for it; says for which field.
    """
    import pyarrow as pa

    metadata = {b"PARQUET:field_id": str(field.field_id).encode()}
    if field.doc:
        metadata[b"doc"] = field.doc.encode()
    return pa.field(field.name, _arrow_type(field.field_type, field.name), field.optional, metadata)


def _arrow_type(kind: its.IcebergType, path: str) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, its.StructType):
        return pa.struct([arrow_field(each) for each in kind.fields])
    if isinstance(kind, its.ListType):
        return pa.list_(arrow_field(kind.element_field))
    if isinstance(kind, its.MapType):
        return pa.map_(arrow_field(kind.key_field), arrow_field(kind.value_field))
    if isinstance(kind, its.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, its.FixedType):
        return pa.binary(len(kind))
    simple: dict[type[its.IcebergType], pa.DataType] = {
        its.BooleanType: pa.bool_(),
        its.IntegerType: pa.int32(),
        its.LongType: pa.int64(),
        its.FloatType: pa.float32(),
        its.DoubleType: pa.float64(),
        its.DateType: pa.date32(),
        its.TimeType: pa.time64("us"),
        its.TimestampType: pa.timestamp("us"),
        its.TimestamptzType: pa.timestamp("us", "UTC"),
        its.TimestampNanoType: pa.timestamp("ns"),
        its.TimestamptzNanoType: pa.timestamp("ns", "UTC"),
        its.StringType: pa.string(),
        its.BinaryType: pa.binary(),
        its.UUIDType: pa.uuid(),
        its.UnknownType: pa.null(),
        its.GeometryType: pa.binary(),  # as WKB
        its.GeographyType: pa.binary(),
    }
    made = simple.get(type(kind))
    if made is None:
        raise TypeError(f"column {path}: this writer has no type for {kind}")
    return made
