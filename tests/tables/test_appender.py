"""A table whose files are not Spark's: the demands of `fastkcl.tables` on their writers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import Schema
from fastkcl import Position
from fastkcl.tables.delta.sink import DeltaAppender
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.parquet.sink import ParquetAppender
from sink_helpers import SHARD, position_of, records_of, rows


class ArrowFiles:
    """Rows that pyarrow writes."""

    def __init__(self, rows: Any) -> None:
        self.table = pa.Table.from_batches([pa.record_batch(batch) for batch in rows.batches])

    def columns(self) -> list[Any]:
        fields: list[Any] = json.loads(Schema.from_arrow(self.table.schema).to_json())["fields"]
        return fields

    def write(self, folder: Path) -> None:
        folder.mkdir()
        pq.write_table(self.table, folder / "part-0.parquet")


@pytest.mark.parametrize("appender", [ParquetAppender, DeltaAppender])
def test_each_record_is_there_once(tmp_path: Path, appender: Any) -> None:
    made, zombie = appender(tmp_path), appender(tmp_path)
    assert (made.open(SHARD), zombie.open(SHARD)) == (None, None)
    assert made.append_run(rows(1, 4), ArrowFiles) == Position("4", 0)
    assert made.append_run(rows(3, 6), ArrowFiles) == Position("6", 0)
    assert zombie.append_run(rows(1, 7), ArrowFiles) == Position("7", 0)
    assert position_of(tmp_path, SHARD) == Position("7", 0)
    numbers = [number for _, _, number, _, _ in records_of(tmp_path).elements()]
    assert sorted(map(int, numbers)) == [1, 2, 3, 4, 5, 6, 7]
    assert inspect_table(tmp_path).ok
