"""SparkWriter: Spark makes the files, the child commits them; the table is the one that the direct writer makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_table_helpers import DeltaPlace, delta_posix
from fastkcl import Position
from fastkcl.spark import SparkWriter
from fastkcl.tables import (
    DeltaTable,
    IcebergTable,
    JsonPayload,
    ParquetTable,
    SinkError,
    TableProcessor,
    WriteCancelledError,
)
from fastkcl.tables.delta.group import checked
from pyspark.errors import PySparkException
from sink_helpers import SHARD
from spark_fixtures import SharedSpark
from spark_helpers import FakeCheckpointer, record_batch, shard_context
from table_helpers import DAY, NOON, arrived, as_they_are


@pytest.fixture
def place(tmp_path: Path) -> DeltaPlace:
    return delta_posix(tmp_path)


Write = Callable[..., Position]


def writer_of(
    place: DeltaPlace, given: Any, transform: Callable[[Any], Any], **options: Any
) -> tuple[DeltaTable, Write]:
    """An opened table, and what appends rows to it by Spark."""
    writer = SparkWriter(transform, spark=given)
    writer.open(lambda: True)
    table = place.table(**options)
    table.open(SHARD)
    return table, lambda rows: writer.append(table, rows, 1)


def unchanged(df: Any) -> Any:
    return df


def lengths(df: Any) -> Any:
    return df.selectExpr("*", "length(data) AS bytes").where("sequenceNumber != '2'").drop("partitionKey")


def files_below(place: DeltaPlace) -> list[str]:
    """All Parquet files in the table's folder, without those of its log."""
    root = Path(place.url)
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if path.parts[0] not in ("_delta_log", "_fastkcl"))


def test_a_transformation(place: DeltaPlace, given: Any) -> None:
    """Two days, one row dropped, a column more; a table that the direct writer continues, and Spark after that."""
    table, write = writer_of(place, given, lengths, evolve="add")
    assert write(arrived([1, 2, 3, 4], [NOON, NOON, NOON, NOON + DAY])) == Position("4", 0)
    found = place.read().sort_by("sequenceNumber").to_pylist()
    assert [(row["sequenceNumber"], row["data"], row["bytes"]) for row in found] == [
        ("1", b"1", 1),
        ("3", b"3", 1),
        ("4", b"4", 1),
    ]
    assert {(row["stream"], row["shard"]) for row in found} == {(SHARD.stream, SHARD.shard_id)}
    assert place.days() == {"2026-11-22": [1, 3], "2026-11-23": [4]}
    assert len(place.entries()) == 2
    assert files_below(place) == place.files(), "only committed files are left, named as the direct writer's"
    other = place.table()
    other.open(SHARD)
    with pytest.raises(SinkError, match=r'no column partitionKey: evolve="add"'):
        other.append(arrived([5]), as_they_are)
    table.append(arrived([3, 4, 5]), as_they_are)
    assert write(arrived([4, 5, 6])) == Position("6", 0)
    assert place.numbers() == [1, 3, 4, 5, 6]


@pytest.mark.parametrize("columns", [["date"], ["stream", "shard"], []])
def test_the_table_is_the_direct_writers(tmp_path: Path, spark: SharedSpark, columns: list[str]) -> None:
    tables = []
    for name in ("direct", "spark"):
        place = delta_posix(tmp_path / name)
        table, write = writer_of(place, spark.session, unchanged, partition_by=columns)
        rows = arrived([1, 2, 3], [NOON, None, NOON + DAY], subs=[0, 4, 0])
        write(rows) if name == "spark" else table.append(rows, as_they_are)
        tables.append((place.handle().schema(), place.read().sort_by("sequenceNumber").to_pylist(), place.handle()))
    assert tables[0][0] == tables[1][0]
    assert tables[0][1] == tables[1][1]
    partitions = [each[2].metadata().partition_columns for each in tables]
    assert partitions == [columns, columns]


def test_rows_that_a_transformation_leaves_nothing_of(place: DeltaPlace, spark: SharedSpark) -> None:
    _, write = writer_of(place, spark.session, lambda df: df.where("false"))
    assert write(arrived([1, 2, 3])) == Position("3", 0)
    assert place.table().open(SHARD) == Position("3", 0)
    assert place.numbers() == []
    assert files_below(place) == []


def test_its_requests_are_shared(place: DeltaPlace, spark: SharedSpark) -> None:
    """Another worker of this host takes them for what they are."""
    writer = SparkWriter(lambda df: df.repartition(2), spark=spark.session)
    writer.open(lambda: True)
    table = place.table()
    table.open(SHARD)
    staged = table._stage(arrived([1, 2, 3]), lambda rows: writer._files(spark.session, rows))
    assert len(staged.adds) == 2
    assert checked(staged.request("id", SHARD), ["date"]) == staged.fields


def test_a_job_that_fails_leaves_nothing(place: DeltaPlace, spark: SharedSpark) -> None:
    _, write = writer_of(place, spark.session, lambda df: df.selectExpr("*", "raise_error('no') AS x"))
    with pytest.raises(Exception, match=r"no|void|NULL") as raised:
        write(arrived([1, 2, 3]))
    assert isinstance(raised.value, SinkError | PySparkException)
    assert place.table().open(SHARD) is None
    assert files_below(place) == []


def test_what_is_not_wanted_is_not_committed(place: DeltaPlace, spark: SharedSpark) -> None:
    _, write = writer_of(place, spark.session, unchanged)
    rows = arrived([1, 2])
    rows._cancelled = lambda: True
    with pytest.raises(WriteCancelledError):
        write(rows)
    assert place.table().open(SHARD) is None


@pytest.mark.parametrize(
    ("transform", "error"),
    [
        (lambda df: df.selectExpr("*", "1 AS Stream"), "column 'Stream', which is given by the folders"),
        (lambda df: df.selectExpr("*", "1 AS _corrupt"), "column '_corrupt', which is fastkcl's"),
        (lambda df: df.selectExpr("*", "1 AS DATA"), "a second column"),
        (lambda _: 7, "must return a DataFrame, not int"),
        (lambda _: pa.table({}), "must return a DataFrame, not Table"),
        (lambda df: df.selectExpr("INTERVAL 1 DAY AS gap"), "none of Delta's"),
    ],
)
def test_what_a_transformation_may_not_make(
    place: DeltaPlace, spark: SharedSpark, transform: Callable[[Any], Any], error: str
) -> None:
    _, write = writer_of(place, spark.session, transform)
    with pytest.raises((ValueError, TypeError, SinkError), match=error):
        write(arrived([1]))


def test_a_processor_with_payloads(place: DeltaPlace, given: Any) -> None:
    """They are opened in the child; the transformation sees their columns."""

    def doubled(df: Any) -> Any:
        return df.selectExpr("id", "id * 2 AS twice", "sequenceNumber", "_corrupt")

    processor = TableProcessor(
        place.table(), writer=SparkWriter(doubled, spark=given), payload=JsonPayload("id bigint"), report_interval=None
    )
    processor.initialize(shard_context())
    checkpointer = FakeCheckpointer()
    processor.process_batch(record_batch([1, 2, 3], data=[b'{"id": 5}', b"{", b'{"id": null}']), checkpointer)
    processor.shard_ended(checkpointer)
    found = place.read().sort_by("sequenceNumber").to_pylist()
    assert [(row["id"], row["twice"], row["_corrupt"]) for row in found] == [
        (5, 10, None),
        (None, None, b"{"),
        (None, None, None),
    ]


# ---- what is refused --------------------------------------------------------------------------------------------


def test_tables_that_take_no_files_of_spark(tmp_path: Path) -> None:
    writer = SparkWriter(unchanged, spark="local[1]")
    catalog = {"type": "sql", "uri": "sqlite://"}
    tables: list[tuple[Any, str]] = [
        (ParquetTable(tmp_path), r"ParquetTable, .*: the file is the commit, so this process makes it: .*ParquetSink"),
        (IcebergTable("db.t", catalog), r"IcebergTable, default:db\.t: its files need the ids of the table's columns"),
        (DeltaTable("s3://bucket/table"), r"DeltaTable, s3://bucket/table: files that Spark writes .* on S3"),
    ]
    for table, error in tables:
        with pytest.raises(ValueError, match=error):
            TableProcessor(table, writer=writer)


def test_a_transformation_has_one_place(tmp_path: Path) -> None:
    table = DeltaTable(tmp_path)
    with pytest.raises(TypeError, match=r"transform= beside writer=SparkWriter"):
        TableProcessor(table, writer=SparkWriter(unchanged), transform=unchanged)
    with pytest.raises(TypeError, match=r"must be a writer, as SparkWriter"):
        TableProcessor(table, writer=SparkWriter)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must be a function of a DataFrame"):
        SparkWriter("df")  # type: ignore[arg-type]
