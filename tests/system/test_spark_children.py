"""Children that die, wake up and meet poison, into a Spark that runs; and the example of the documentation, whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastkcl.replay import ReplayOptions, generate, parse_fault, profiles, replay
from paths import EXAMPLES, PROGRAMS, ROOT
from sink_helpers import delta_rows
from sink_replay import numbers_and_data
from spark_fixtures import SharedSpark


@pytest.mark.timeout(400)
def test_the_example_fills_a_table_through_the_server_it_is_pointed_at(spark: SharedSpark, tmp_path: Path) -> None:
    """The command that its text tells, word for word: 400,000 records, on the heap that a LocalSpark has."""
    table = tmp_path / "clicks"
    command = "fastkcl replay --profile clickstream --shards 4 -- python examples/to_spark.py"
    assert command in (EXAMPLES / "to_spark.py").read_text()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command.replace(" -- ", " --json -- ").split(),
        cwd=ROOT,
        env=os.environ | {"PATH": path, "FASTKCL_SPARK": spark.url, "TABLE_PATH": str(table)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ok"]
    assert [shard["last_checkpoint"][0] for shard in report["shards"]] == ["SHARD_END"] * 4
    assert "Warning" not in done.stderr
    columns = ["shardId", "sequenceNumber", "crc32(data) AS crc", "length(event) > 0 AS event", "stream"]
    rows = spark.session.read.parquet(str(table)).selectExpr(*columns).toArrow()
    count = sum(shard["records_sent"] for shard in report["shards"])
    assert rows.num_rows == count == 400_000
    stored = set(zip(*(rows[name].to_pylist() for name in ("shardId", "sequenceNumber", "crc")), strict=True))
    assert stored == {
        (shard.shard_id, number, zlib.crc32(data))
        for shard in generate("clickstream", shards=4, records=count // 4).shards()
        for number, data in zip(*numbers_and_data(shard), strict=True)
    }
    assert rows["stream"].unique().to_pylist() == ["replay"]
    assert rows["event"].unique().to_pylist() == [True]


@pytest.mark.parametrize("sink", ["ParquetSink", "DeltaSink"])
@pytest.mark.parametrize("dialect", ["modern", "legacy"])
def test_a_sink_has_each_record_once_whoever_dies(spark: SharedSpark, tmp_path: Path, sink: str, dialect: Any) -> None:
    """A child killed twice and one that wakes up beside its successor; a lease lost and a checkpoint refused."""
    noise: list[bytes] = []
    source = generate("tiny", records=1000, batch_records=100)
    report = replay(
        [sys.executable, str(PROGRAMS / "spark_child.py")],
        source,
        ReplayOptions(
            dialect=dialect,
            environment={"FASTKCL_SPARK": spark.url, "TABLE_PATH": str(tmp_path / "table"), "SINK": sink},
            faults=tuple(
                map(parse_fault, ("kill@3", "stop@6=1", "kill@8=half", "lease-lost@11", "checkpoint-error@2"))
            ),
            on_stderr=lambda _shard, line: noise.append(line),
        ),
    )
    (shard,) = report.shards
    assert shard.problems == [], noise
    assert shard.restarts == 4
    assert shard.last_checkpoint == ("SHARD_END", 0)
    (played,) = source.shards()
    if sink == "DeltaSink":
        rows = delta_rows(tmp_path / "table").to_pylist()
    else:
        table = spark.session.read.parquet(str(tmp_path / "table"))
        rows = table.selectExpr("sequenceNumber", "stream", "shard").collect()
    assert sorted(row["sequenceNumber"] for row in rows) == sorted(numbers_and_data(played)[0])
    assert {(row["stream"], row["shard"]) for row in rows} == {("replay", shard.shard_id)}


@pytest.mark.parametrize(
    ("poison", "first"),
    [(130, 0), (420, 300), (990, 900)],
    ids=["in the first table", "in the second", "at the shard's end"],
)
@pytest.mark.parametrize("choice", ["dead_letter", "skip"])
def test_a_poison_record_takes_its_run_with_it_and_nothing_else(
    spark: SharedSpark, tmp_path: Path, poison: int, first: int, choice: str
) -> None:
    """The table and the letter together hold every record, once, and the shard goes on to its end.

    The run begins with the table that could not be written, and ends with the batch that met the failure.
    """
    table, letters = tmp_path / "table", tmp_path / "letters"
    chosen = {"DEAD_LETTER": str(letters)} if choice == "dead_letter" else {"ON_ERROR": "skip"}
    source = generate("tiny", records=1000, batch_records=100)
    (played,) = source.shards()
    numbers = list(numbers_and_data(played)[0])
    noise: list[bytes] = []
    report = replay(
        [sys.executable, str(PROGRAMS / "spark_child.py")],
        source,
        ReplayOptions(
            environment={"FASTKCL_SPARK": spark.url, "TABLE_PATH": str(table), "POISON": numbers[poison]} | chosen,
            on_stderr=lambda _shard, line: noise.append(line),
        ),
    )
    (shard,) = report.shards
    assert (shard.problems, shard.exit_codes) == ([], [0]), noise
    assert shard.last_checkpoint is not None
    assert shard.last_checkpoint[0] == "SHARD_END"
    stored = {row["sequenceNumber"]: 1 for row in spark.session.read.parquet(str(table)).collect()}
    assert spark.session.read.parquet(str(table)).count() == len(stored)
    given_up = [number for number in numbers if number not in stored]
    assert given_up == numbers[first : first + len(given_up)]
    assert (len(given_up) % 100, numbers[poison] in given_up) == (0, True)
    said = f"; {len(given_up)} records from {given_up[0]}/0 to {given_up[-1]}/0 are "
    said += "stored in " if choice == "dead_letter" else "reported as processed without having been"
    assert sum(said.encode() in line for line in noise) == 1
    if choice == "dead_letter":
        (letter,) = letters.iterdir()
        assert pa.ipc.open_file(letter).read_all()["sequenceNumber"].to_pylist() == given_up


def test_profiles_used_here_are_json() -> None:
    """The example looks into the payloads; if the profile changed its field names it would show nulls."""
    event = json.loads(profiles.PROFILES["clickstream"].payloads(1, 0)[0])
    assert {"type", "country", "item"} <= set(event)
