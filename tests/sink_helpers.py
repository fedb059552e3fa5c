"""Sinks without Spark: a session whose DataFrames pyarrow writes, and rows by their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fastkcl import _core
from fastkcl.spark.sinks.rows import ShardRows


class FakeWriter:
    def __init__(self, table: pa.Table, files: int) -> None:
        self.table = table
        self.files = files

    def parquet(self, url: str) -> None:
        folder = Path(url.removeprefix("file://"))
        folder.mkdir()
        size = -(-len(self.table) // self.files)
        for index in range(self.files):
            part = self.table.slice(index * size, size)
            pq.write_table(part, folder / f"part-{index:05d}-x.snappy.parquet")
        (folder / "_SUCCESS").touch()


class FakeFrame:
    def __init__(self, table: pa.Table, files: int) -> None:
        self.table = table
        self.write = FakeWriter(table, files)


class FakeSession:
    """createDataFrame as Spark has it; each write makes `files` files."""

    def __init__(self, files: int = 2) -> None:
        self.files = files

    def createDataFrame(self, table: pa.Table, schema: Any) -> FakeFrame:  # noqa: N802 - Spark's name
        return FakeFrame(table, self.files)


def rows(first: int, last: int, *, per_batch: int = 3, legacy: bool = False) -> ShardRows:
    """Records with the sequence numbers first to last, cut into batches."""
    numbers = list(range(first, last + 1))
    pieces = [numbers[start : start + per_batch] for start in range(0, len(numbers), per_batch)]
    return ShardRows([batch([(number, None if legacy else 0) for number in piece]) for piece in pieces], legacy=legacy)


def batch(places: list[tuple[int, int | None]]) -> _core.RecordBatch:
    line = _core.encode_process_records(
        [str(number).encode() for number, _ in places],
        ["key"] * len(places),
        [str(number) for number, _ in places],
        [sub or 0 for _, sub in places],
        None,
    )
    message = _core.decode_line(line)
    assert isinstance(message, _core.ProcessRecords)
    return message.batch


def stored(folder: Path) -> list[int]:
    """The sequence numbers that a reader of the table sees, in order."""
    table = pa.dataset.dataset(folder, format="parquet", partitioning="hive").to_table(columns=["sequenceNumber"])
    return sorted(map(int, table["sequenceNumber"].to_pylist()))
