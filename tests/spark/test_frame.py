"""DataFrames of tables: the same rows, columns and order, whatever way they go to Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from fastkcl.spark.frame import data_frame, trimmed
from fastkcl.spark.schema import SCHEMA
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)
from spark_helpers import record_batch


def records(*counts: int, size: int = 100) -> pa.Table:
    """A batch of each count of records."""
    batches = []
    for index, count in enumerate(counts):
        first = 10_000 * (index + 1)
        numbers = range(first, first + count)
        batches.append(
            pa.record_batch(record_batch(numbers, data=[bytes([number % 256]) * size for number in numbers]))
        )
    return pa.Table.from_batches(batches, schema=batches[0].schema)


def slices(table: pa.Table) -> pa.Table:
    """Its batches without their first and last rows."""
    return pa.Table.from_batches([batch.slice(1, batch.num_rows - 2) for batch in table.to_batches()])


ITEM = StructType().add("price", DoubleType()).add("seen", TimestampType())
NESTED = (
    StructType()
    .add("at", TimestampType())
    .add("day", DateType())
    .add("tags", ArrayType(StringType()))
    .add("item", ITEM)
    .add("odd name", MapType(StringType(), IntegerType()))
)
NESTED_ROWS = [
    {
        "at": datetime(2025, 6, 1, 12, tzinfo=UTC),
        "day": date(1969, 12, 31),
        "tags": ["a", None, ""],
        "item": {"price": 1.5, "seen": datetime(1883, 1, 1, tzinfo=UTC)},
        "odd name": [("k", 1), ("l", None)],
    },
    {"at": None, "day": None, "tags": [], "item": {"price": None, "seen": None}, "odd name": []},
    {"at": None, "day": None, "tags": None, "item": None, "odd name": None},
]
NESTED_ARROW = pa.schema(
    {
        "at": pa.timestamp("us", tz="UTC"),
        "day": pa.date32(),
        "tags": pa.list_(pa.string()),
        "item": pa.struct({"price": pa.float64(), "seen": pa.timestamp("us", tz="UTC")}),
        "odd name": pa.map_(pa.string(), pa.int32()),
    }
)


@pytest.mark.parametrize(
    ("table", "schema"),
    [
        pytest.param(records(1), SCHEMA, id="one record"),
        pytest.param(records(3000, 1, 2000), SCHEMA, id="several batches"),
        pytest.param(slices(records(3000, 4000)), SCHEMA, id="slices"),
        pytest.param(records(4, 3, size=300_000), SCHEMA, id="records larger than a group"),
        pytest.param(records(2000, size=0), SCHEMA, id="empty payloads"),
        pytest.param(pa.Table.from_pylist(NESTED_ROWS * 500, schema=NESTED_ARROW), NESTED, id="nested columns"),
    ],
)
def test_it_has_the_tables_rows(session: Any, table: pa.Table, schema: StructType) -> None:
    df = data_frame(session, table, schema)
    assert df.schema == schema
    assert df.toArrow().cast(table.schema).equals(table)


def test_rows_go_to_connect_in_groups(connect_mode: None, session: Any, way: str) -> None:
    """5,000 rows of some 200 bytes: a plan with a row for each would have each rule walk over all of them."""
    made: list[pa.Table] = []

    class Watched(type(session)):  # type: ignore[misc]  # the type of the session is what counts
        __module__ = type(session).__module__

        def __init__(self) -> None:
            pass

        def createDataFrame(self, table: pa.Table, schema: StructType) -> Any:  # noqa: N802 - Spark's name
            made.append(table)
            return session.createDataFrame(table, schema=schema)

    table = records(3000, 2000)
    assert data_frame(Watched(), table, SCHEMA).count() == 5000
    assert made[0].num_rows < 20 if way == "connect" else made[0] is table


@pytest.mark.parametrize("version", [None, "17.0.0", "20.0.0"])
def test_a_piece_is_sent_without_the_rest_of_its_batch(version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the extension cuts one: its first value does not begin where the data do."""
    whole = pa.RecordBatch.from_pydict({"data": [bytes([number]) * 1000 for number in range(100)]})
    _, offsets, data = whole.column(0).buffers()
    cut = pa.Array.from_buffers(pa.binary(), 20, [None, offsets.slice(80 * 4), data])
    table = pa.Table.from_arrays([cut], ["data"])
    if version is not None:
        monkeypatch.setattr(pa, "__version__", version)
    sent = trimmed(table)
    assert sent.equals(pa.Table.from_batches([whole.slice(80)]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, sent.schema) as writer:
        writer.write_table(sent)
    assert len(sink.getvalue()) < 21_000
    if version is not None:
        assert sent.get_total_buffer_size() < 21_000
