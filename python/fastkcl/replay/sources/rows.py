"""Rows in the canonical schema, as files of records and dead letters hold them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastkcl import _core
from fastkcl.replay.columns import Columns
from fastkcl.replay.sources.base import SourceError
from fastkcl.shard import is_sequence_number

if TYPE_CHECKING:
    import pyarrow as pa

_ATTRIBUTES: Final = {
    "data": "data",
    "partitionKey": "partition_key",
    "sequenceNumber": "sequence_number",
    "subSequenceNumber": "sub_sequence_number",
    "approximateArrivalTimestamp": "timestamp_millis",
}
"""The attribute of `Row` for each canonical column."""
COLUMN_NAMES: Final = tuple(_ATTRIBUTES)
_MOST_MILLIS = (2**63 - 1) // 1000  # a child keeps microseconds in 64 bits


@dataclass(slots=True)
class Row:
    """A record as a file holds it."""

    data: bytes | None
    partition_key: str
    sequence_number: str | None
    sub_sequence_number: int | None
    timestamp_millis: int | None

    def __post_init__(self) -> None:
        """Refuse rows that a daemon cannot write."""
        try:
            self.partition_key.encode()
        except UnicodeEncodeError:
            raise ValueError(f"partitionKey {self.partition_key[:60]!r}: half of a surrogate pair") from None
        if self.sequence_number is not None and not is_sequence_number(self.sequence_number):
            raise ValueError(f"sequenceNumber {self.sequence_number[:60]!r}: decimal digits expected")
        if self.sub_sequence_number is not None and not 0 <= self.sub_sequence_number < 2**63:
            raise ValueError(f"subSequenceNumber {str(self.sub_sequence_number)[:60]}: 0 to 2**63 - 1 expected")
        if self.timestamp_millis is not None and abs(self.timestamp_millis) > _MOST_MILLIS:
            raise ValueError(
                f"approximateArrivalTimestamp {str(self.timestamp_millis)[:60]}: milliseconds since the epoch "
                f"expected, {_MOST_MILLIS} at most"
            )


def sub_numbers(sequence_numbers_: Sequence[str], given: Sequence[int | None]) -> list[int]:
    """Sub-sequence numbers, counted within a run of equal sequence numbers where the line has none (legacy)."""
    subs: list[int] = []
    for index, sub in enumerate(given):
        if sub is None:
            follows = index > 0 and sequence_numbers_[index] == sequence_numbers_[index - 1]
            sub = subs[-1] + 1 if follows else 0
        subs.append(sub)
    return subs


def columns_of(rows: Sequence[Row] | Sequence[_core.Record], sequence_numbers_: Sequence[str]) -> Columns:
    """Rows, or records of a batch, as columns; the sequence numbers are given, because a row can have none."""
    return Columns(
        data=[row.data for row in rows],
        partition_keys=[row.partition_key for row in rows],
        sequence_numbers=sequence_numbers_,
        sub_sequence_numbers=sub_numbers(sequence_numbers_, [row.sub_sequence_number for row in rows]),
        timestamps_millis=[row.timestamp_millis for row in rows],
    )


def table_rows(table: pa.Table, path: Path) -> Iterator[Row]:
    """The rows of a table.

    Raises:
        SourceError: a column or a value is missing or wrong.
    """
    import pyarrow as pa

    try:
        columns = {attribute: _table_column(table, name) for name, attribute in _ATTRIBUTES.items()}
    except (pa.ArrowException, ValueError) as error:
        raise SourceError(f"{path}: {error}") from None
    for index, values in enumerate(zip(*columns.values(), strict=True)):
        fields = dict(zip(columns, values, strict=True))
        try:
            if fields["partition_key"] is None:
                raise ValueError("partitionKey is null")
            row = Row(**fields)
        except ValueError as error:
            raise SourceError(f"{path}: record {index}: {error}") from None
        yield row


def _table_column(table: pa.Table, name: str) -> list[Any]:
    import pyarrow as pa

    if name not in table.column_names:
        if name in ("data", "partitionKey"):
            raise ValueError(f"no column {name}; the canonical schema has {', '.join(COLUMN_NAMES)}")
        return [None] * table.num_rows
    if table.column_names.count(name) > 1:
        raise ValueError(f"several columns {name}")
    column = table.column(name)
    if name == "approximateArrivalTimestamp":
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
        return list(column.cast(pa.int64()).to_pylist())
    return list(column.cast(pa.type_for_alias(_core.CANONICAL_COLUMNS[name])).to_pylist())
