"""TableSink: at least once in a table of the catalog, and once for who reads it as its documentation says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastkcl import Position
from fastkcl.replay import generate
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import Shard, SinkError, TableSink, WriteCancelledError
from fastkcl.spark.sinks import table as table_module
from fastkcl.spark.sinks.rows import ShardRows
from paths import PROGRAMS, ROOT
from sink_replay import delivered, play
from spark_fixtures import SharedSpark
from spark_helpers import FakeCheckpointer, record_batch, shard_context

CONNECT_CHILD = PROGRAMS / "connect_child.py"
DOCS = ROOT / "docs" / "sinks.md"
COLUMNS = [
    *("data", "partitionKey", "sequenceNumber", "subSequenceNumber", "approximateArrivalTimestamp"),
    *("stream", "shard"),
]


def statement(begin: str) -> str:
    """A statement of the documentation, which says the same as the module's."""
    (found,) = re.findall(rf"```sql\n({begin}.*?)```", DOCS.read_text(), flags=re.DOTALL)
    assert "".join(found.split()) in "".join((table_module.__doc__ or "").split())
    return found


@pytest.fixture
def made(spark: SharedSpark, new_table: Callable[[], str]) -> Iterator[Callable[..., str]]:
    """Makes tables, as the documentation says, but of plain files."""
    names: list[str] = []

    def make(create: str = "") -> str:
        create = create or statement("CREATE TABLE").replace("USING iceberg", "USING parquet")
        name = new_table()
        spark.session.sql(create.replace("db.events", name))
        names.append(name)
        return name

    yield make
    for name in names:
        spark.session.sql(f"DROP TABLE {name}")


def fill(table: str, given: Any, *numbers: list[int], stream: str = "events", **options: Any) -> SparkProcessor:
    processor = SparkProcessor(TableSink(table, only_writer=True, **options), spark=given, stream=stream)
    processor.initialize(shard_context())
    for run in numbers:
        processor.process_batch(record_batch(run), FakeCheckpointer())
    processor.shard_ended(FakeCheckpointer())
    return processor


def stored(spark: SharedSpark, query: str) -> list[tuple[str, str, int]]:
    rows = spark.session.sql(f"SELECT stream, shard, sequenceNumber FROM ({query})").collect()
    return sorted((row[0], row[1][-2:], int(row[2])) for row in rows)


def test_what_is_delivered_again_is_there_twice_and_read_once(
    spark: SharedSpark, given: Any, made: Callable[..., str]
) -> None:
    """Two streams with a shard of one name, and children that begin where their last checkpoint was."""
    table = made()
    for stream in ("a", "it's b"):
        first = fill(table, given, [1, 2, 3, 4], stream=stream)
        again = fill(table, given, [3, 4], [5, 6], stream=stream)
        assert (first.dropped_records, again.dropped_records) == (0, 0)
    sent = [(stream, "07", number) for stream in ("a", "it's b") for number in range(1, 7)]
    twice = [(stream, "07", number) for stream in ("a", "it's b") for number in (3, 4)]
    assert stored(spark, f"SELECT * FROM {table}") == sorted(sent + twice)
    once = statement("SELECT").replace("db.events", table)
    assert stored(spark, once) == sent
    frame = spark.session.sql(once)
    assert frame.columns == COLUMNS
    key = ["stream", "shard", "sequenceNumber", "subSequenceNumber"]
    assert sorted(frame.select("data").distinct().collect()) == sorted(
        spark.session.table(table).dropDuplicates(key).select("data").distinct().collect()
    )
    assert bytes(frame.where("sequenceNumber = '3'").first()["data"]) == b"payload 3"


def test_children_that_die_and_lose_their_lease_lose_nothing(
    spark: SharedSpark, tmp_path: Path, made: Callable[..., str]
) -> None:
    """By key and payload: all is there, some of it twice, and the query gives each once."""
    table, source = made(), generate("tiny", records=600, batch_records=20, aggregate=3)
    report, noise = play(
        tmp_path,
        *("kill@5", "kill@11=half", "lease-lost@20=mid-batch", "checkpoint-error@3"),
        source=source,
        child=CONNECT_CHILD,
        environment={"FASTKCL_SPARK": spark.url, "TABLE": table},
        rate=200,
    )
    (shard,) = report.shards
    assert report.ok, (shard.problems, noise)
    assert shard.last_checkpoint == ("SHARD_END", 0)
    sent = delivered(source)
    for query, most in ((f"SELECT * FROM {table}", 4), (statement("SELECT").replace("db.events", table), 1)):
        columns = ("stream", "shard", "sequenceNumber", "subSequenceNumber", "data")
        rows = spark.session.sql(query).select(*columns).collect()
        found = Counter((*key, bytes(data)) for *key, data in rows)
        assert dict.fromkeys(found, 1) == sent
        assert max(found.values()) <= most


def test_columns_go_by_their_names(spark: SharedSpark, given: Any, made: Callable[..., str]) -> None:
    table = made(
        create="CREATE TABLE db.events (shard STRING, more BIGINT, stream STRING, subSequenceNumber BIGINT,"
        " sequenceNumber STRING) USING parquet",
    )

    def transform(df: Any) -> Any:
        return df.selectExpr("sequenceNumber", "subSequenceNumber", "length(data) + 0L AS more")

    fill(table, given, [1, 2], transform=transform)
    assert sorted(map(tuple, spark.session.table(table).collect())) == [
        ("shardId-000000000007", 9, "events", 0, "1"),
        ("shardId-000000000007", 9, "events", 0, "2"),
    ]


class TestRefused:
    def write(self, table: str, session: Any, cancelled: bool = False, **options: Any) -> Position:
        sink = TableSink(table, **options)
        assert sink.open(Shard("s", "h")) is None
        return sink.write(ShardRows([record_batch([1, 2])], legacy=False, cancelled=lambda: cancelled), session)

    def test_a_table_that_is_not_there(self, spark: SharedSpark, session: Any, new_table: Callable[[], str]) -> None:
        table = new_table()
        with pytest.raises(SinkError, match=f"{table}: no such table. Make it: CREATE TABLE") as told:
            self.write(table, session)
        create = str(told.value).partition("Make it: ")[2]
        spark.session.sql(create.replace("USING ...", "USING parquet"))
        try:
            self.write(table, session, only_writer=True)
            assert spark.session.table(table).columns == COLUMNS
            assert spark.session.table(table).count() == 2
        finally:
            spark.session.sql(f"DROP TABLE {table}")

    @pytest.mark.parametrize("provider", ["parquet", "orc", "json"])
    def test_plain_files(self, spark: SharedSpark, session: Any, made: Callable[..., str], provider: str) -> None:
        create = f"CREATE TABLE db.events (sequenceNumber STRING, stream STRING) USING {provider}"
        with pytest.raises(SinkError, match=f"(?i)a table of plain {provider} files.*only_writer=True"):
            self.write(table := made(create=create), session)
        assert spark.session.table(table).count() == 0

    def test_a_view(
        self, spark: SharedSpark, session: Any, made: Callable[..., str], new_table: Callable[[], str]
    ) -> None:
        table, view = made(), new_table()
        spark.session.sql(f"CREATE VIEW {view} AS SELECT * FROM {table}")
        try:
            with pytest.raises(SinkError, match=f"{view}: a view"):
                self.write(view, session)
        finally:
            spark.session.sql(f"DROP VIEW {view}")

    def test_a_transformation_without_the_key(self, session: Any) -> None:
        with pytest.raises(SinkError, match="removed the column subSequenceNumber"):
            self.write("default.events", session, transform=lambda df: df.drop("subSequenceNumber"))
        with pytest.raises(SinkError, match="column shard: the sink adds it"):
            self.write("default.events", session, transform=lambda df: df.selectExpr("*", "1 AS Shard"))

    def test_a_lease_that_has_gone(self, spark: SharedSpark, session: Any, made: Callable[..., str]) -> None:
        with pytest.raises(WriteCancelledError):
            self.write(table := made(), session, cancelled=True, only_writer=True)
        assert spark.session.table(table).count() == 0

    def test_no_name(self) -> None:
        with pytest.raises(ValueError, match="needs the name of a table"):
            TableSink(" ")
