"""What a manifest says of a data file's columns, of its Parquet footer.

`statistics` has the size of every column; and of those that are named, how many values and nulls, and bounds, by which
readers pass over files. A text's bound has at most 64 characters. pyiceberg has the same in `pyiceberg.io.pyarrow`
(`types` says why that is not imported); the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyiceberg import types as its
from pyiceberg.conversions import to_bytes
from pyiceberg.utils.truncate import truncate_upper_bound_text_string

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyiceberg.schema import Schema

__all__ = ["statistics"]

_LENGTH: Final = 64
_TIMES: Final = (its.TimestampType, its.TimestamptzType)
_BOUNDED: Final = (its.StringType, its.IntegerType, its.LongType, its.DateType, *_TIMES)
_FIRST: Final = -62_135_596_800_000_000
_LAST: Final = 253_402_300_799_999_999
"""The times that Python has, in microseconds: pyiceberg cannot show others."""


def statistics(footer: pq.FileMetaData, schema: Schema, names: Collection[str]) -> dict[str, Any]:
    """`pyiceberg.manifest.DataFile`'s arguments; counts and bounds of the columns of these names."""
    numbers = dict(_leaves(schema.as_struct(), ()))
    sizes: dict[int, int] = {}
    counted = {
        each.field_id: _Counted(each.field_type)
        for each in schema.fields
        if each.name in names and isinstance(each.field_type, its.PrimitiveType)
    }
    offsets = []
    for group in (footer.row_group(index) for index in range(footer.num_row_groups)):
        first = group.column(0)
        offsets.append(min(first.data_page_offset, first.dictionary_page_offset or first.data_page_offset))
        for column in (group.column(index) for index in range(footer.num_columns)):
            number = numbers[column.path_in_schema]
            sizes[number] = sizes.get(number, 0) + column.total_compressed_size
            if number in counted:
                counted[number].add(column)
    counted = {number: each for number, each in counted.items() if number in sizes}
    bounds = {number: each.bounds() for number, each in counted.items()}
    return {
        "record_count": footer.num_rows,
        "column_sizes": sizes,
        "value_counts": {number: each.values for number, each in counted.items()},
        "null_value_counts": {number: each.nulls for number, each in counted.items() if each.nulls is not None},
        "nan_value_counts": {},
        "lower_bounds": {number: lower for number, (lower, _) in bounds.items() if lower is not None},
        "upper_bounds": {number: upper for number, (_, upper) in bounds.items() if upper is not None},
        "split_offsets": sorted(offsets),
    }


@dataclass
class _Counted:
    """A column, over all row groups."""

    kind: its.PrimitiveType
    values: int = 0
    nulls: int | None = 0
    """None where a row group does not say it."""
    ends: list[Any] | None = field(default_factory=list)
    """The least and the greatest value of each row group; None where one does not say it."""

    def add(self, column: pq.ColumnChunkMetaData) -> None:
        """Of one more row group."""
        found = column.statistics
        self.values += column.num_values
        if found is None or not found.has_null_count:
            self.nulls = self.ends = None
        if self.nulls is None:
            return
        self.nulls += found.null_count
        if self.ends is None or found.null_count == column.num_values:
            return
        # `min` of a time would import pandas, where it is installed
        self.ends = [*self.ends, found.min_raw, found.max_raw] if found.has_min_max else None

    def bounds(self) -> tuple[bytes | None, bytes | None]:
        """The lower and the upper one, as Iceberg writes values."""
        if not self.ends or not isinstance(self.kind, _BOUNDED):
            return None, None
        below, above = min(self.ends), max(self.ends)
        if isinstance(self.kind, its.StringType):
            below, above = below.decode()[:_LENGTH], _above(above.decode())
        elif isinstance(self.kind, _TIMES) and not _FIRST <= below <= above <= _LAST:
            return None, None
        return to_bytes(self.kind, below), None if above is None else to_bytes(self.kind, above)


def _above(text: str) -> str | None:
    """A text of bounded length that is not less; None where no text is."""
    made = truncate_upper_bound_text_string(text, _LENGTH)
    if made is not None and any("\ud800" <= character <= "\udfff" for character in made):
        return None  # after U+D7FF comes what is no character
    return made


def _leaves(kind: its.IcebergType, path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """The columns within a type: each one's path in a Parquet file, and its id."""
    within: list[tuple[tuple[str, ...], its.NestedField]] = []
    if isinstance(kind, its.StructType):
        within = [((*path, each.name), each) for each in kind.fields]
    elif isinstance(kind, its.ListType):
        within = [((*path, "list", "element"), kind.element_field)]
    elif isinstance(kind, its.MapType):
        within = [((*path, "key_value", "key"), kind.key_field), ((*path, "key_value", "value"), kind.value_field)]
    for inner, each in within:
        if isinstance(each.field_type, its.PrimitiveType):
            yield ".".join(inner), each.field_id
        else:
            yield from _leaves(each.field_type, inner)
