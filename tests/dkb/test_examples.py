"""The stages in examples/dkb: by hand, and as a pipeline that fills a Spark table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import EXAMPLES, ROOT
from spark_fixtures import SharedSpark


def by_hand(name: str, data: bytes, *arguments: str) -> bytes:
    command = [sys.executable, str(EXAMPLES / "dkb" / name), "-m", "s", *arguments]
    return subprocess.run(command, input=data, capture_output=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def page() -> bytes:
    out = by_hand("extract.py", b"\n")
    assert out.endswith(b"\n\0")
    return out[:-1]


@pytest.mark.parametrize("size", [0, 1, 2, 100])
def test_what_comes_out_is_the_same_for_each_batch_size(page: bytes, size: int) -> None:
    out = by_hand("transform.py", page + (b'{"order": -1, "country": "??", "cents": 1}\n'), "-b", str(size))
    orders = [json.loads(line) for line in out.replace(b"\0", b"").replace(b"BNC", b"").splitlines()]
    assert [order["order"] for order in orders] == [*range(500), -1]
    assert [order["tax"] for order in orders[:3]] == [19, 20, 22]
    assert orders[-1]["_incomplete"] is True
    assert out.count(b"\0") == {0: 1, 1: 501, 2: 251, 100: 6}[size]


def test_the_pipeline_fills_a_spark_table(spark: SharedSpark, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "FASTKCL_SPARK": spark.url,
        "ORDERS": str(tmp_path / "orders"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "fastkcl", "dkb", "run", "examples/dkb/pipeline.toml"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert "load: done, 2,000 messages in " in done.stderr
    rows = spark.session.read.parquet(str(tmp_path / "orders")).orderBy("order").collect()
    assert [row["order"] for row in rows] == list(range(2000))
    assert [(row["cents"], row["tax"]) for row in rows[:4]] == [(100, 19), (101, 20), (102, 22), (103, 19)]
