"""The Spark source where others start the program: ``spark-submit``, and a declarative pipeline.

The files of such a run (checkpoint, event log, logs, plans, metrics) hold no secret, and no payload.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest
from fastkcl.local_aws import LocalAws
from local_aws_helpers import client, make_stream
from paths import PROGRAMS
from source_queries import START, log_of, spark_process

ROWS = 40
KEY = "AKIDOFASUBMITTEDRUN"
SECRET = "secret/of+a/submitted+run0000000000000000"
TOKEN = "token-of-a-submitted-run-0000000000000000"
PAYLOAD = b"payload-of-a-submitted-run"
BIN = Path(pyspark.__file__).parent / "bin"
PYTHONPATH = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def stream_with_rows(aws: LocalAws) -> str:
    stream = make_stream(aws, 2)
    records = [{"Data": PAYLOAD + f"-{n}".encode(), "PartitionKey": f"k{n}"} for n in range(ROWS)]
    assert client(aws).put_records(StreamName=stream, Records=records)["FailedRecordCount"] == 0
    return stream


def payloads_in(folder: Path) -> list[bytes]:
    return sorted(row for file in folder.rglob("*.parquet") for row in pq.read_table(file)["data"].to_pylist())


EXPECTED = sorted(PAYLOAD + f"-{n}".encode() for n in range(ROWS))


@dataclass(frozen=True)
class Run:
    folder: Path
    code: int


@pytest.fixture(scope="module")
def submitted(_aws_of_this_worker: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A program under ``spark-submit``, with an event log, all changes of plans in its log, and Python's at DEBUG."""
    folder = tmp_path_factory.mktemp("submitted")
    (folder / "events").mkdir()
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.log.level": "INFO",
        "spark.sql.planChangeLog.level": "WARN",
    }
    command: list[str | Path] = [BIN / "spark-submit", "--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += [PROGRAMS / "spark_source_submitted.py", _aws_of_this_worker.url, stream_with_rows(_aws_of_this_worker)]
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}
    command += [folder, str(ROWS)]
    with spark_process(command, folder, _aws_of_this_worker, {**PYTHONPATH, **keys}) as process:
        yield Run(folder, process.wait(2 * START))


def test_a_submitted_program_has_each_row(submitted: Run) -> None:
    assert submitted.code == 0, log_of(submitted.folder)
    assert payloads_in(submitted.folder / "table") == EXPECTED


def test_a_listener_of_a_classic_session_reports(submitted: Run) -> None:
    text = (submitted.folder / "seen.prom").read_text()
    assert 'fastkcl_source_shards{query="orders",source="0"} 2\n' in text
    assert 'fastkcl_source_slowest_shard_info{query="orders",source="0",shard="' in text
    assert list((submitted.folder / "metrics").iterdir()) == []


def forms(secret: bytes) -> set[bytes]:
    """How a text can stand in a file: as it is, in hexadecimal, and in base64, wherever it begins."""
    found = {secret, secret.hex().encode(), secret.hex().upper().encode()}
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret)
        found.add(encoded[(before * 8 + 5) // 6 + (1 if before else 0) : (before + len(secret)) // 3 * 4 - 1])
    return found


def found_in(folder: Path, secret: str | bytes) -> list[str]:
    """The files with it, but for the table, which has the payloads, and temporary ones."""
    wanted = forms(secret.encode() if isinstance(secret, str) else secret)
    return [
        f"{path.relative_to(folder)}: {form!r}"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] not in ("table", "tmp")
        for form in wanted
        if form in path.read_bytes()
    ]


@pytest.mark.parametrize("secret", [KEY, SECRET, TOKEN, PAYLOAD], ids=["key", "secret", "token", "payload"])
def test_what_a_run_leaves_has_no_secret(submitted: Run, secret: str | bytes) -> None:
    folder = submitted.folder
    assert found_in(folder, secret) == []
    kinds = {path.relative_to(folder).parts[0] for path in folder.rglob("*") if path.is_file()}
    assert kinds - {"table", "tmp"} == {"checkpoint", "events", "log", "seen.prom"}


def test_the_log_and_the_event_log_have_what_is_searched(submitted: Run) -> None:
    """Otherwise nothing could be found in them."""
    log = (submitted.folder / "log").read_text("utf-8", "replace")
    for word in ("== Optimized Logical Plan ==", "Applying Rule", "initialPosition=", "fastkcl: metrics ", "behindMs"):
        assert word in log
    events = b"".join(path.read_bytes() for path in (submitted.folder / "events").rglob("*") if path.is_file())
    for event in (b"SparkListenerTaskEnd", b"SparkListenerSQLExecutionStart", b"QueryProgressEvent"):
        assert event in events


@pytest.mark.parametrize("lead", range(4))
@pytest.mark.parametrize(
    "encode", [bytes, lambda data: data.hex().encode(), base64.b64encode], ids=["raw", "hex", "base64"]
)
def test_a_secret_that_is_there_is_found(tmp_path: Path, encode: Any, lead: int) -> None:
    (tmp_path / "log").write_bytes(b"before " + encode(b"x" * lead + SECRET.encode() + b" after") + b"\n")
    assert found_in(tmp_path, SECRET)


PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def orders():
    options = dict(streamName={stream!r}, endpoint={endpoint!r}, region="us-east-1", initialPosition="trim_horizon")
    return spark.readStream.format("kinesis").options(**options).load()


@dp.materialized_view
def keys():
    return spark.read.table("orders").groupBy("partitionKey").count()
"""
SPEC = """
name: orders
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""


def test_a_declarative_pipeline_has_each_row(own_aws: LocalAws, tmp_path: Path) -> None:
    stream = stream_with_rows(own_aws)
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(PIPELINE.format(stream=stream, endpoint=own_aws.url))
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(storage=(tmp_path / "storage").as_uri()))
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": (tmp_path / "warehouse").as_uri(),
    }
    command: list[str | Path] = [BIN / "spark-pipelines", "--remote", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["run", "--spec", tmp_path / "spark-pipeline.yml"]
    with spark_process(command, tmp_path, own_aws, PYTHONPATH) as process:
        assert process.wait(2 * START) == 0, log_of(tmp_path)
    assert payloads_in(tmp_path / "warehouse" / "orders") == EXPECTED
    counts = list((tmp_path / "warehouse" / "keys").rglob("*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in counts) == ROWS
