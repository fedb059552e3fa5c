"""MessageWriter: batches of messages without positions into Spark, at least once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastkcl._core import message_batch
from fastkcl.spark import MessageContext, MessageWriter
from fastkcl.spark.sinks import DeltaSink, ParquetSink, SinkError, TableSink
from spark_fixtures import SharedSpark


@pytest.fixture
def table(spark: SharedSpark, new_table: Callable[[], str]) -> Iterator[str]:
    name = new_table()
    spark.session.sql(f"CREATE TABLE {name} (number BIGINT, data BINARY) USING parquet")
    yield name
    spark.session.sql(f"DROP TABLE {name}")


def stored(spark: SharedSpark, table: str) -> list[tuple[int, bytes]]:
    spark.session.catalog.refreshTable(table)  # another session has written to it
    return sorted((row["number"], bytes(row["data"])) for row in spark.session.table(table).collect())


def test_a_function_gets_the_columns(given: Any) -> None:
    seen: list[tuple[MessageContext, list[Any]]] = []

    def write(df: Any, context: MessageContext) -> None:
        assert df.columns == ["data", "number"]
        seen.append((context, [(bytes(row["data"]), row["number"]) for row in df.collect()]))

    with MessageWriter(write, spark=given, source="load") as writer:
        writer.add(message_batch([b"a", b""]))
        writer.add(message_batch([b"\xff"], first_number=2))
        assert writer.flush()
    ((context, rows),) = seen
    assert rows == [(b"a", 0), (b"", 1), (b"\xff", 2)]
    assert (context.source, context.rows, context.attempt) == ("load", 3, 1)


def test_a_table_gets_them_by_name(spark: SharedSpark, given: Any, table: str) -> None:
    with MessageWriter(TableSink(table, only_writer=True), spark=given) as writer:
        for number in range(3):
            writer.add(message_batch([b"x%d" % number], first_number=number))
            assert writer.flush()
            assert stored(spark, table)[-1] == (number, b"x%d" % number)


def test_what_is_sent_again_is_there_twice(spark: SharedSpark, given: Any, table: str) -> None:
    """There is no position by which it could be known."""
    for _ in range(2):
        with MessageWriter(TableSink(table, only_writer=True), spark=given) as writer:
            writer.add(message_batch([b"a"]))
    assert stored(spark, table) == [(0, b"a"), (0, b"a")]


def test_a_failing_write_is_raised_and_tried_again(given: Any) -> None:
    attempts: list[int] = []

    def write(df: Any, context: MessageContext) -> None:
        attempts.append(context.attempt)
        if len(attempts) == 1:
            raise RuntimeError("the disk is full")
        assert df.count() == 1

    writer = MessageWriter(write, spark=given)
    writer.add(message_batch([b"a"]))
    with pytest.raises(RuntimeError, match="the disk is full"):
        writer.flush()
    assert writer.flush()
    assert writer.close() == 0
    assert attempts == [1, 2]


def test_a_run_of_any_size(spark: SharedSpark, given: Any, table: str) -> None:
    """Batches are cut where a table would be too large."""
    with MessageWriter(
        TableSink(table, only_writer=True), spark=given, max_table_bytes=200_000, max_bytes=300_000
    ) as writer:
        for start in range(0, 1000, 100):
            writer.add(message_batch([b"%1000d" % number for number in range(start, start + 100)], first_number=start))
    assert [(number, int(data)) for number, data in stored(spark, table)] == [(n, n) for n in range(1000)]


class TestWithoutSpark:
    @pytest.mark.parametrize("make", [ParquetSink, DeltaSink])
    def test_a_sink_that_goes_by_positions(self, make: Callable[[str], Any], tmp_path: Path) -> None:
        with pytest.raises(TypeError, match="goes by the positions of a shard's records, and messages have none"):
            MessageWriter(make(str(tmp_path)))

    @pytest.mark.parametrize("sink", [TableSink, 1, None])
    def test_no_sink(self, sink: Any) -> None:
        with pytest.raises(TypeError, match="sink must be"):
            MessageWriter(sink)

    def test_bounds(self) -> None:
        with pytest.raises(ValueError, match="max_table_bytes=0"):
            MessageWriter(print, max_table_bytes=0)
        with pytest.raises(ValueError, match="max_bytes=0"):
            MessageWriter(print, max_bytes=0)
        with pytest.raises(TypeError, match=r"MessageWriter has no option maxAge=; did you mean max_age=\?"):
            MessageWriter(print, maxAge=5)  # type: ignore[call-arg]

    def test_what_is_not_stored_is_told(self, caplog: pytest.LogCaptureFixture) -> None:
        writer = MessageWriter(print, spark=lambda: None)  # type: ignore[arg-type, return-value]
        writer.add(message_batch([b"a", b"b"]))
        assert writer.close() == 2
        assert "2 messages were taken over and are not stored" in caplog.text


def test_a_table_that_is_not_there(given: Any, new_table: Callable[[], str]) -> None:
    table = new_table()
    writer = MessageWriter(TableSink(table), spark=given)
    writer.add(message_batch([b"a"]))
    with pytest.raises(SinkError, match=rf"CREATE TABLE {table} \(`data` binary, `number` bigint\) USING"):
        writer.flush()
    assert writer.close() == 1
