"""A stitch that fills a Spark table, end to end: payloads of the replayer through examples/processv1/to_spark.py."""

from __future__ import annotations

import sys
from collections.abc import Callable

from fastkcl.processv1.core import StitchSpec
from fastkcl.replay.profiles import PROFILES
from fastkcl.replay.stitches import StitchesOptions, play_stitches
from paths import EXAMPLES
from spark_fixtures import SharedSpark

EXAMPLE = EXAMPLES / "processv1" / "to_spark.py"


def test_a_stitch_fills_a_spark_table(spark: SharedSpark, new_table: Callable[[], str]) -> None:
    table = new_table()
    columns = "id bigint, channel string, sender string, node string, data binary"
    spark.session.sql(f"CREATE TABLE {table} ({columns}) USING parquet")
    logged: list[tuple[str, str]] = []
    stitch = StitchSpec([sys.executable, str(EXAMPLE)], "stitch1", custom_arguments=[table, spark.url])
    options = StitchesOptions(node="n", messages=1500, profile="tiny", exit_seconds=60.0)
    report = play_stitches([stitch], options, lambda name, line: logged.append((name, line)))
    assert report.problems == (), logged
    assert report.stitches[0].acknowledged == 1500
    spark.session.catalog.refreshTable(table)  # another session has written to it
    rows = spark.session.table(table).orderBy("id").collect()
    assert [row["data"] for row in rows] == [bytearray(each) for each in PROFILES["tiny"].payloads(1500, 0)]
    assert {(row["channel"], row["sender"], row["node"]) for row in rows} == {("replay", None, "n")}
    assert spark.session.table(table).dtypes == [
        ("id", "bigint"),
        ("channel", "string"),
        ("sender", "string"),
        ("node", "string"),
        ("data", "binary"),
    ]
    spark.session.sql(f"DROP TABLE {table}")
