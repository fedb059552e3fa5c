"""The demo's comparison finds the faults that it is there for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from fastkcl import RecordBatch
from fastkcl.demo.check import Delivered, SentShard, compare, countries, sent_shard
from fastkcl.demo.child import EVENT_SCHEMA
from fastkcl.demo.parts import PROFILE, DemoError, spark_errors_told
from fastkcl.replay import profiles
from fastkcl.replay.columns import Columns
from pyspark.sql import DataFrame
from spark_fixtures import SharedSpark
from spark_helpers import record_batch

DELIVERED = {"s": Delivered(again=4, checkpoints=5)}
EVERYTHING = (3, 0, 0, True)
CHANGED = (3, 0, 0, False)


def typed(spark: SharedSpark, batch: RecordBatch) -> DataFrame:
    """Records with their payloads as columns."""
    frame = spark.session.createDataFrame(pa.Table.from_batches([pa.record_batch(batch)]))
    event = f"from_json(cast(data AS string), '{EVENT_SCHEMA}') AS event"
    return frame.selectExpr("*", event).select("event.*", "*").drop("event", "data")


@pytest.mark.parametrize(
    ("where", "changed", "expected"),
    [
        ("true", {}, EVERYTHING),
        ("sequenceNumber != '2'", {}, (2, 1, 0, False)),
        ("true UNION ALL SELECT * FROM sent WHERE sequenceNumber = '2'", {}, (4, 0, 1, False)),
        ("true", {"subSequenceNumber": "cast(9 AS bigint)"}, CHANGED),
        ("true", {"partitionKey": "'key'"}, CHANGED),
        ("true", {"approximateArrivalTimestamp": "timestamp_millis(0)"}, CHANGED),
        ("true", {"country": "if(sequenceNumber = '3', 'XX', country)"}, CHANGED),
        ("true", {"country": "if(sequenceNumber = '3', null, country)"}, CHANGED),
        ("true", {"ts": "ts + 1"}, CHANGED),
        ("true", {"consent": "not consent"}, CHANGED),
        ("true", {"item": "named_struct('sku', item.sku, 'price', item.price + 0.01, 'quantity', 1)"}, CHANGED),
        ("true", {"page": "named_struct('path', page.path, 'referrer', page.referrer, 'load_ms', 1)"}, CHANGED),
        ("true", {"device": "cast(null AS struct<agent: string, width: int, height: int>)"}, CHANGED),
    ],
    ids=str,
)
def test_it_finds_what_is_wrong(
    spark: SharedSpark, tmp_path: Path, where: str, changed: dict[str, str], expected: tuple[int, int, int, bool]
) -> None:
    batch = record_batch([1, 2, 3], data=profiles.PROFILES[PROFILE].payloads(3, 0))
    frame = typed(spark, batch)
    frame.createOrReplaceTempView("sent")
    select = ", ".join(f"{changed.get(name, name)} AS {name}" for name in frame.columns)
    spark.session.sql(f"SELECT {select} FROM sent WHERE {where}").write.parquet(str(tmp_path / "shard=s"))
    sent = sent_shard(
        Columns(
            [record.data for record in batch],
            [record.partition_key for record in batch],
            [record.sequence_number for record in batch],
            [record.sub_sequence_number or 0 for record in batch],
            [record.timestamp_millis for record in batch],
        )
    )
    (found,) = compare(spark.session, tmp_path, {"s": sent}, DELIVERED)
    assert (found.stored, found.lost, found.doubled, found.same_content) == expected
    assert found.ok == (expected == EVERYTHING)
    assert (found.checkpoints, found.again) == (5, 4)
    assert sum(row.events for row in countries(spark.session)) == found.stored


@pytest.mark.parametrize("name", ["x[1]", "td{x}", "a*b?", "back\\slash", "per%20cent", "co:lon[1]"])
def test_a_path_is_no_pattern(spark: SharedSpark, tmp_path: Path, name: str) -> None:
    batch = record_batch([1, 2, 3], data=profiles.PROFILES[PROFILE].payloads(3, 0))
    frame = typed(spark, batch)
    table = tmp_path / name
    table.mkdir()
    frame.write.parquet(str(table / "shard=s"))
    (found,) = compare(spark.session, table, {"s": SentShard(3, 0)}, DELIVERED)
    assert (found.stored, found.lost) == (3, 0)


def test_an_error_of_spark_is_told_while_it_can_be(spark: SharedSpark) -> None:
    with pytest.raises(DemoError, match=r"^Spark: \[PATH_NOT_FOUND\].*/nowhere") as caught, spark_errors_told():
        spark.session.read.parquet("/nowhere")
    assert "\n" not in str(caught.value)


def test_nothing_stored_is_everything_lost(spark: SharedSpark, tmp_path: Path) -> None:
    (found,) = compare(spark.session, tmp_path, {"s": SentShard(3, 1)}, DELIVERED)
    assert (found.stored, found.lost, found.doubled, found.ok) == (0, 3, 0, False)
