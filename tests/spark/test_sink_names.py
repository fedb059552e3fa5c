"""How names are spelled in a table's folders: Spark, polars, DuckDB and Arrow read the same string back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable as DeltaHandle
from fastkcl.spark.sinks import DeltaSink, ParquetSink, Shard
from fastkcl.tables import DeltaTable
from fastkcl.tables.folders import NULL, quoted, spelled, unspelled
from hypothesis import given
from hypothesis import strategies as st
from sink_helpers import FakeSession, delta_rows, rows
from table_helpers import arrived, as_they_are

PLAIN = ["clicks", "clicks-eu.1", "a_b", "E5", "T12", "x1e5", "shardId-000000000000"]
OTHERS = [
    *("007", "7", "-7", "1e5", "1.5", "0x1F", "1_000", "1d", "9223372036854775808", "12:30", "2026-11-23", "2026-11"),
    *("NaN", "nan", "inf", "Infinity", "-inf", "true", "False", "null", "NULL", "None", "epoch", "today", "now"),
    *("__HIVE_DEFAULT_PARTITION__", "_x", ".x", "..", "-", "@007", "@", "a@b", "a@40b"),
    *(
        "ü",
        "日本",
        "a b",
        " a",
        "a+b",
        "a=b",
        "a/b",
        "%20",
        "a%2Fb",
        "a'b",
        'a"b',
        "a\\b",
        "a:b",
        "a*?[b]{c}",
        "~",
        "\n",
    ),
]
SESSION: Any = FakeSession()
FILES = "stream=*/shard=*/*.parquet"
"""As docs/sinks.md has them."""


@pytest.mark.parametrize("name", PLAIN)
def test_names_that_are_spelled_as_they_are(name: str) -> None:
    assert spelled(name) == unspelled(name) == name


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_spelling_is_one_names_alone(name: str) -> None:
    assert unspelled(spelled(name)) == name
    assert spelled(name).isascii()
    if spelled(name) != name:
        assert spelled(name).startswith("@")
    assert unspelled(quoted(name)) == name  # that of earlier versions


@pytest.mark.parametrize("text", ["@clicks", "@%20", "@@c3@bc", "@ü", "@@C3", "@a b"])
def test_what_is_no_spelling(text: str) -> None:
    with pytest.raises(ValueError, match="no spelling|utf-8"):
        unspelled(text)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A table for each name, so that no other name helps a reader to see that they are strings."""
    root = tmp_path_factory.mktemp("names")
    found = {}
    for number, name in enumerate((*PLAIN, *OTHERS)):
        sink = ParquetSink(table := root / str(number))
        sink.open(Shard(name, name))
        sink.write(rows(1, 2), SESSION)
        staged = table / "_staging" / spelled(name) / spelled(name) / "start"
        staged.mkdir()
        for file in table.glob(FILES):
            shutil.copy(file, staged)  # of a write that goes on
        found[name] = table
    return found


def by_arrow(table: Path) -> set[tuple[Any, Any]]:
    read = pa.dataset.dataset(table, format="parquet", partitioning="hive").to_table()
    return set(zip(read["stream"].to_pylist(), read["shard"].to_pylist(), strict=True))


def by_polars(table: Path) -> set[tuple[Any, Any]]:
    read = polars.read_parquet(f"{table}/{FILES}", hive_partitioning=True)
    return set(zip(read["stream"].to_list(), read["shard"].to_list(), strict=True))


def by_duckdb(table: Path) -> set[tuple[Any, Any]]:
    with duckdb.connect() as connection:
        files = f"{table}/{FILES}"
        query = "SELECT DISTINCT stream, shard FROM read_parquet(?, hive_partitioning = true)"
        return set(connection.execute(query, [files]).fetchall())


@pytest.mark.parametrize("reader", [by_arrow, by_polars, by_duckdb])
def test_each_reader_reads_it_back(tables: dict[str, Path], reader: Any) -> None:
    assert {name: reader(table) for name, table in tables.items()} == {
        name: {(spelled(name), spelled(name))} for name in tables
    }


def test_spark_reads_it_back(tables: dict[str, Path], spark: Any) -> None:
    read = {}
    for name, table in tables.items():
        found = spark.session.read.parquet(str(table)).select("stream", "shard").distinct().collect()
        read[name] = {tuple(row) for row in found}
    assert read == {name: {(spelled(name), spelled(name))} for name in tables}


@pytest.mark.parametrize("name", ["007", "ü", "a/b", "2026-11-23", "@x", "a b"])
def test_a_delta_table_has_the_names_themselves(tmp_path: Path, name: str) -> None:
    sink = DeltaSink(tmp_path)
    sink.open(Shard(name, name))
    sink.write(rows(1, 2), SESSION)
    assert set(delta_rows(tmp_path)["stream"].to_pylist()) == {name}
    assert set(polars.read_delta(str(tmp_path))["stream"].to_list()) == {name}
    assert DeltaHandle(tmp_path).partitions() == [{"stream": name, "shard": name}]


@pytest.mark.parametrize("name", ["clicks", "007", "1e5", "true", "ü", "a/b", "2026-11-23", "@x", "a b", "%2F", ".."])
def test_a_delta_table_without_spark_has_them_too(tmp_path: Path, name: str) -> None:
    """polars reads the values of partitions from the folders' names."""
    table = DeltaTable(tmp_path, partition_by=("stream", "shard", "date"))
    table.open(Shard(name, name))
    table.append(arrived([1, 2]), as_they_are)
    assert polars.scan_delta(str(tmp_path)).filter(stream=name, shard=name).collect().height == 2
    assert set(delta_rows(tmp_path)["stream"].to_pylist()) == {name}


def test_a_delta_table_does_not_take_the_name_of_null(tmp_path: Path) -> None:
    """polars reads it as null from a folder, however its characters are escaped."""
    for shard, column in ((Shard(NULL, "s"), "stream"), (Shard("clicks", NULL), "shard")):
        said = f"polars reads the {column} {NULL} as null: a table by {column} cannot have it"
        with pytest.raises(ValueError, match=f"DeltaSink: {said}"):
            DeltaSink(tmp_path / "sink").open(shard)
        for columns in ((column,), (column, "date")):
            with pytest.raises(ValueError, match=f"DeltaTable: {said}"):
                DeltaTable(tmp_path / "new", partition_by=columns).open(shard)
        made = DeltaTable(tmp_path / column, partition_by=(column,))
        made.open(Shard("a", "b"))
        made.append(arrived([1]), as_they_are)
        with pytest.raises(ValueError, match=said):
            DeltaTable(tmp_path / column).open(shard)
    table = DeltaTable(tmp_path / "days")
    table.open(Shard(NULL, NULL))
    table.append(arrived([1, 2]), as_they_are)
    assert polars.scan_delta(str(tmp_path / "days")).filter(stream=NULL, shard=NULL).collect().height == 2
    assert set(delta_rows(tmp_path / "days")["stream"].to_pylist()) == {NULL}
