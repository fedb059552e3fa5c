"""Structured Streaming reads the tables of children: each statement of docs/streaming.md, with a real query."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from fastkcl.replay import ReplayOptions, Report, generate, parse_fault, replay
from fastkcl.spark.sinks import DeltaSink, ParquetSink, SinkError
from paths import PROGRAMS
from pyspark.sql.utils import AnalysisException
from sink_helpers import SHARD, FakeSession, rows
from sink_replay import STREAM, delivered
from spark_fixtures import SharedSpark
from waiting import PATIENCE, wait_until

SCHEMA = (
    "data BINARY, partitionKey STRING, sequenceNumber STRING, subSequenceNumber BIGINT,"
    " approximateArrivalTimestamp TIMESTAMP, stream STRING, shard STRING"
)
"""The partition's columns come last, as Spark has them: a query that begins with an empty folder knows no partitions,
takes the order as it is, and mixes the columns up when it meets the first files (Spark 4.3)."""
FAKE: Any = FakeSession()
"""Writes files as Spark does, in a moment."""


@contextmanager
def query(
    session: Any, table: Path, out: Path, *, schema: str = SCHEMA, to_the_end: bool = True, **options: Any
) -> Iterator[Any]:
    """A query that copies the table into `out`, and remembers how far it is in a folder beside it."""
    trigger = options.pop("trigger", {"availableNow": True})
    read = session.readStream.schema(schema).option("__globPaths__", "false").options(**options).parquet(str(table))
    running = (
        read.writeStream.format("parquet")
        .option("checkpointLocation", f"{out}-checkpoint")
        .trigger(**trigger)
        .start(str(out))
    )
    try:
        yield running
        if "availableNow" in trigger:
            assert running.awaitTermination(120)
        elif to_the_end:
            running.processAllAvailable()
    finally:
        running.stop()


def numbers(session: Any, out: Path) -> list[int]:
    """The sequence numbers that a query has copied, in order."""
    if not any(out.glob("*.parquet")):
        return []
    return sorted(int(row["sequenceNumber"]) for row in session.read.parquet(str(out)).collect())


def test_a_stream_has_each_record_once_while_children_write_and_die(
    spark: SharedSpark, session: Any, tmp_path: Path
) -> None:
    """A child is killed, a zombie goes on, a shard is split; the query is stopped on the way and goes on as well."""
    table, out = tmp_path / "table", tmp_path / "out"
    table.mkdir()
    source = generate("tiny", records=1500, shards=2, batch_records=100)
    settings = {"split_at": 5, "split_shards": (1,)}
    reports: list[Report] = []
    noise: list[bytes] = []

    def children() -> None:
        options = ReplayOptions(
            stream=STREAM,
            faults=(parse_fault("kill@4#0"), parse_fault("stop@9#0=0.5")),
            environment={"SINK": "ParquetSink", "FASTKCL_SPARK": spark.url, "TABLE_PATH": str(table)},
            on_stderr=lambda _shard, line: noise.append(line),
            **settings,  # type: ignore[arg-type]
        )
        child = [sys.executable, str(PROGRAMS / "spark_child.py")]
        reports.append(replay(child, source, options))

    writing = threading.Thread(target=children)
    writing.start()
    soon = {"processingTime": "100 milliseconds"}
    with query(session, table, out, trigger=soon, maxFilesPerTrigger=1, to_the_end=False) as running:
        wait_until(
            lambda: any(out.glob("*.parquet")) or running.exception(),
            "something that has come through",
            seconds=2 * PATIENCE,
            seen=lambda: noise,
        )
        assert running.exception() is None
    with query(session, table, out, trigger=soon):
        writing.join()
    (report,) = reports
    assert report.ok, ([shard.problems for shard in report.shards], noise)
    found = Counter(
        (row["stream"], row["shard"], row["sequenceNumber"], row["subSequenceNumber"], bytes(row["data"]))
        for row in session.read.parquet(str(out)).collect()
    )
    assert found == delivered(source, **settings)


def test_what_is_staged_and_not_committed_is_not_read(session: Any, tmp_path: Path) -> None:
    table, out = tmp_path / "table", tmp_path / "out"
    sink = ParquetSink(table)
    sink.open(SHARD)
    sink.write(rows(1, 6), FAKE)

    class Late(FakeSession):
        """Reads when everything is staged and nothing committed."""

        def createDataFrame(self, rows: Any, schema: Any) -> Any:  # noqa: N802
            frame = super().createDataFrame(rows, schema)
            stage = frame.write.parquet

            def parquet(url: str) -> None:
                stage(url)
                with query(session, table, out):
                    pass

            frame.write.parquet = parquet  # type: ignore[method-assign]
            return frame

    sink.write(rows(7, 9), Late())  # type: ignore[arg-type]
    assert numbers(session, out) == list(range(1, 7))
    with query(session, table, out):
        pass
    assert numbers(session, out) == list(range(1, 10))


def test_the_folder_has_to_be_there_and_may_be_empty(session: Any, tmp_path: Path) -> None:
    table, out = tmp_path / "table", tmp_path / "out"
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"), query(session, table, out):
        pass
    table.mkdir()
    with query(session, table, out):
        pass
    sink = ParquetSink(table)
    sink.open(SHARD)
    sink.write(rows(1, 3), FAKE)
    with query(session, table, out):
        pass
    (shard,) = {(row["stream"], row["shard"]) for row in session.read.parquet(str(out)).collect()}
    assert shard == (SHARD.stream, SHARD.shard_id)


def test_a_column_that_older_files_lack_is_null(session: Any, tmp_path: Path) -> None:
    table, out = tmp_path / "table", tmp_path / "out"
    sink = ParquetSink(table)
    sink.open(SHARD)
    sink.write(rows(1, 3), FAKE)
    with query(session, table, out, schema=f"country STRING, {SCHEMA}"):
        pass
    assert [row["country"] for row in session.read.parquet(str(out)).collect()] == [None] * 3


def test_a_commit_that_is_published_late_needs_a_larger_max_file_age(session: Any, tmp_path: Path) -> None:
    """Files keep the time at which they were staged; a query leaves out what is a week older than what it has seen."""
    table = tmp_path / "table"
    sink = ParquetSink(table)
    sink.open(SHARD)
    sink.write(rows(1, 3), FAKE)
    kept, left_out = tmp_path / "kept", tmp_path / "left-out"
    longer = {"maxFileAge": "365d"}
    for out, options in ((kept, longer), (left_out, {})):
        with query(session, table, out, **options):
            pass
    sink.write(rows(4, 6), FAKE)
    staged = time.time() - 8 * 24 * 3600
    late = list(table.glob("stream=*/*/3.0-*.parquet"))
    assert len(late) == 2
    for path in late:
        os.utime(path, (staged, staged))
    for out, options in ((kept, longer), (left_out, {})):
        with query(session, table, out, **options):
            pass
    assert numbers(session, kept) == list(range(1, 7))
    assert numbers(session, left_out) == list(range(1, 4))


def test_source_files_that_a_query_removes_are_missed_by_the_sink(session: Any, tmp_path: Path) -> None:
    table, out = tmp_path / "table", tmp_path / "out"
    sink = ParquetSink(table)
    sink.open(SHARD)
    sink.write(rows(1, 3), FAKE)
    for _ in range(2):  # the second one cleans up after the first
        with query(session, table, out, cleanSource="delete"):
            pass
        sink.write(rows(4, 4), FAKE)
    first = "stream=*/*/start-*.parquet"
    wait_until(lambda: not any(table.glob(first)), "the end of its files", seen=lambda: [*table.glob(first)])
    for path in table.glob("stream=*/*/3.0-*.parquet"):
        path.unlink()  # as the next turn would
    with pytest.raises(SinkError, match="committed .* and gone"):
        ParquetSink(table).open(SHARD)


def test_doubles_are_dropped_by_their_key(session: Any, tmp_path: Path) -> None:
    table, out = tmp_path / "table", tmp_path / "out"
    sink = ParquetSink(table)
    sink.open(SHARD)
    sink.write(rows(1, 6), FAKE)
    for path in list(table.glob("stream=*/*/*.parquet")):  # as a write that was repeated
        path.with_name(f"again-{path.name}").write_bytes(path.read_bytes())
    session.conf.set("spark.sql.shuffle.partitions", "2")
    running = (
        session.readStream.schema(SCHEMA)
        .parquet(str(table))
        .withWatermark("approximateArrivalTimestamp", "1 hour")
        .dropDuplicatesWithinWatermark(["stream", "shard", "sequenceNumber", "subSequenceNumber"])
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{out}-checkpoint")
        .trigger(availableNow=True)
        .start(str(out))
    )
    try:
        assert running.awaitTermination(120)
    finally:
        running.stop()
    assert numbers(session, out) == list(range(1, 7))


def new_files(table: Path, after: int | None, upto: int) -> list[str]:
    """What docs/streaming.md shows."""
    before = set() if after is None else set(DeltaTable(table, version=after).file_uris())
    return sorted(set(DeltaTable(table, version=upto).file_uris()) - before)


def test_a_delta_table_is_read_by_version(session: Any, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = DeltaSink(table)
    sink.open(SHARD)
    seen: list[int] = []
    version: int | None = None
    for first in (1, 4, 7):
        sink.write(rows(first, first + 2), FAKE)
        latest = DeltaTable(table).version()
        files = new_files(table, version, latest)
        frame = session.read.schema(SCHEMA).option("basePath", str(table)).parquet(*files)
        found = frame.select("sequenceNumber", "stream", "shard").collect()
        assert {(row["stream"], row["shard"]) for row in found} == {(SHARD.stream, SHARD.shard_id)}
        seen += sorted(int(row["sequenceNumber"]) for row in found)
        version = latest
    assert seen == list(range(1, 10))


def test_a_delta_tables_folder_shows_what_was_never_committed(session: Any, tmp_path: Path) -> None:
    table, out = tmp_path / "table", tmp_path / "out"
    sink = DeltaSink(table)
    sink.open(SHARD)
    sink.write(rows(1, 3), FAKE)
    (committed,) = {path.parent for path in table.rglob("*.parquet")}
    staged = committed.with_name("after-3-dead")
    staged.mkdir()
    for path in committed.glob("*.parquet"):
        (staged / path.name).write_bytes(path.read_bytes())
    with query(session, table, out):
        pass
    assert numbers(session, out) == [1, 1, 2, 2, 3, 3]
    assert len(DeltaTable(table).file_uris()) == 2
