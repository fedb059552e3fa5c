"""A file of records: JSON lines or Parquet in the canonical schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fastkcl import _core
from fastkcl.replay.columns import StoredRecords
from fastkcl.replay.profiles import EPOCH_MILLIS
from fastkcl.replay.sources.base import Shard, Source, SourceError
from fastkcl.replay.sources.lines import bounded_lines, open_lines, reading, regular_file
from fastkcl.replay.sources.rows import COLUMN_NAMES, Row, columns_of, table_rows
from fastkcl.shard import sequence_numbers, shard_name

_PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class _RecordFile:
    path: Path
    shard_count: int
    batch_records: int

    @property
    def description(self) -> str:
        return f"records of {self.path.name}"

    def shards(self) -> Sequence[Shard]:
        with reading(self.path):
            with self.path.open("rb") as file:
                parquet = file.read(4) == _PARQUET_MAGIC
            rows = list(_read_parquet(self.path) if parquet else _read_json_lines(self.path))
        if not rows:
            raise SourceError(f"{self.path}: no record in it")
        if len(rows) < self.shard_count:
            raise SourceError(f"{self.path}: {len(rows)} records are too few for {self.shard_count} shards")
        # Contiguous parts, so that the order within each shard is that of the file.
        cuts = [len(rows) * number // self.shard_count for number in range(self.shard_count + 1)]
        return [self._shard(number, rows[cuts[number] : cuts[number + 1]]) for number in range(self.shard_count)]

    def _shard(self, number: int, rows: Sequence[Row]) -> Shard:
        created = EPOCH_MILLIS // 1000
        missing = [row.sequence_number is None for row in rows]
        if any(missing) and not all(missing):
            raise SourceError(f"{self.path}: some records have a sequenceNumber and some have none; give all or none")
        if any(missing):
            numbers = sequence_numbers(0, len(rows), shard=number, created=created, arrival=created)
        else:
            numbers = [row.sequence_number or "" for row in rows]
        try:
            records = StoredRecords(columns_of(rows, numbers))
        except ValueError as error:
            raise SourceError(f"{self.path}: {error}") from None
        return Shard(shard_name(number), shard_name(number), records, batch_records=self.batch_records)


def from_records(path: str | Path, *, shards: int = 1, batch_records: int = 1000) -> Source:
    """A source of records from a JSON lines or Parquet file (which of them is seen from its first bytes).

    Both hold the canonical columns: data (base64 in JSON lines, binary in Parquet), partitionKey,
    sequenceNumber, subSequenceNumber, approximateArrivalTimestamp (ms since the epoch in JSON lines, a
    timestamp in Parquet). All but data and partitionKey may be left out; sequence numbers are then made up.
    `fastkcl inspect` writes both forms. JSON lines may be packed (``.gz``).

    Args:
        path: the file.
        shards: the file is cut into as many parts of equal length (give or take a record), in order.
        batch_records: records of one batch.

    Raises:
        ValueError: a number out of range.
        SourceError: no such file.
    """
    if shards < 1 or batch_records < 1:
        raise ValueError("shards and batch_records must be at least 1")
    place = Path(path)
    return _RecordFile(regular_file(place), shards, batch_records)


def _read_json_lines(path: Path) -> Iterator[Row]:
    with open_lines(path) as lines:
        for number, line in enumerate(bounded_lines(lines), 1):
            if not line.strip():
                continue
            try:
                yield _json_row(json.loads(line))
            except json.JSONDecodeError as error:
                raise SourceError(f"{path}:{number}: no JSON: {error.msg} (column {error.colno})") from None
            except RecursionError:
                raise SourceError(f"{path}:{number}: nested too deep for a record") from None
            except ValueError as error:
                raise SourceError(f"{path}:{number}: {error}") from None


def _json_row(row: object) -> Row:
    if not isinstance(row, dict):
        raise ValueError("a JSON object expected, one record a line")
    unknown = sorted(set(row) - set(COLUMN_NAMES) - {"shardId"})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; a record has {', '.join(COLUMN_NAMES)}")
    if "data" not in row:
        raise ValueError("no data; give base64 text, or null")
    data = _typed(row, "data", str)
    key = _typed(row, "partitionKey", str)
    if key is None:
        raise ValueError("no partitionKey; give a text")
    return Row(
        data=None if data is None else _core.decode_base64(data.encode(errors="replace")),
        partition_key=key,
        sequence_number=_typed(row, "sequenceNumber", str),
        sub_sequence_number=_typed(row, "subSequenceNumber", int),
        timestamp_millis=_typed(row, "approximateArrivalTimestamp", int),
    )


_Value = TypeVar("_Value", str, int)


def _typed(row: dict[str, object], key: str, kind: type[_Value]) -> _Value | None:
    value = row.get(key)
    if value is None:
        return None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{key}: {'text' if kind is str else 'an integer'} expected, not {type(value).__name__}")
    return value


def _read_parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise SourceError(f"{path}: Parquet needs pyarrow: pip install 'fastkcl[arrow]'") from None
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, ValueError) as error:
        raise SourceError(f"{path}: {error}") from None
    return table_rows(table, path)
