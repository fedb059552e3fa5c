"""The Spark source on clusters, with speculation on: an executor is killed in the middle of a batch.

The slow shard makes a straggler of one task of each batch, so that Spark starts a second attempt beside it. Whichever
ends first counts, and both have the same rows.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
from fastkcl.local_aws import LocalAws
from local_aws_helpers import client, make_stream
from paths import PROGRAMS
from source_queries import START, batches_of, check_numbers, log_of, processes_of, put_numbers, rows_in, spark_process
from waiting import wait_until

RECORDS = 600
KILLS = 2
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.task.duration.threshold": "300ms",  # where a batch has one task
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.deploy.maxExecutorRetries": "-1",
}


def spark_home(folder: Path) -> Path:
    """Spark's folder with a place for the files of workers, which they make in it."""
    home = folder / "home"
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name in ("bin", "jars", "sbin"):
            (home / path.name).symlink_to(path)
    return home


@contextmanager
def master_with_workers(folder: Path, aws: LocalAws, home: Path) -> Iterator[tuple[str, list[psutil.Popen]]]:
    """A master and two workers, each a process: the master's URL, and the workers."""
    java = [home / "bin" / "spark-class"]
    with ExitStack() as stack:
        places = [folder / name for name in ("master", "worker-0", "worker-1")]
        for place in places:
            place.mkdir()
        ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        settings = {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
        program = [*java, "org.apache.spark.deploy.master.Master", *ports]
        stack.enter_context(spark_process(program, places[0], aws, settings))
        log = places[0] / "log"
        found = wait_until(
            lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text("utf-8", "replace")),
            "the master",
            seconds=START,
        )
        workers = []
        for place in places[1:]:
            program = [*java, "org.apache.spark.deploy.worker.Worker", *ports, "--cores", "1", "--memory", "1g"]
            program += ["--work-dir", place / "work", found[1]]
            workers.append(stack.enter_context(spark_process(program, place, aws, settings)))
        wait_until(lambda: log.read_text().count("Registering worker") == 2, "two workers", seconds=START)
        yield found[1], workers


@pytest.mark.parametrize("cluster", ["local-cluster[2,1,1024]", pytest.param("two workers", marks=pytest.mark.long)])
def test_an_executor_that_dies_in_a_batch_changes_no_row(own_aws: LocalAws, tmp_path: Path, cluster: str) -> None:
    stream = make_stream(own_aws, 2)
    count = 0
    while count < RECORDS:
        count = put_numbers(client(own_aws), stream, count, 200)
    (tmp_path / "last").touch()
    (tmp_path / "events").mkdir()
    home = spark_home(tmp_path)
    with ExitStack() as stack:
        master, hosts = cluster, []
        if cluster == "two workers":
            master, hosts = stack.enter_context(master_with_workers(tmp_path, own_aws, home))
        options = ["inlineBytes=0", "shardsPerTask=1", "maxRecordsPerTrigger=100"]
        program = [sys.executable, PROGRAMS / "spark_source_query.py", own_aws.url, stream, tmp_path, *options]
        temporary = f"-Djava.io.tmpdir={tmp_path / 'tmp'}"
        environment = {
            "SPARK_HOME": str(home),
            "QUERY_MASTER": master,
            "QUERY_SLOW": "15",
            "QUERY_SETTINGS": json.dumps(
                {
                    **SETTINGS,
                    "spark.executor.extraJavaOptions": temporary,
                    "spark.eventLog.dir": (tmp_path / "events").as_uri(),
                }
            ),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        query = stack.enter_context(spark_process(program, tmp_path, own_aws, environment))
        killed = 0
        while killed < KILLS:
            before = rows_in(tmp_path)
            wait_until(
                lambda least=before: rows_in(tmp_path) > least or query.poll() is not None,  # type: ignore[misc]
                "a batch that is whole",
                seconds=START,
                seen=lambda: log_of(tmp_path),
                step=0.05,
            )
            wait_until(lambda: is_in_a_batch(tmp_path) or query.poll() is not None, "a batch that is written")
            assert query.poll() is None, f"the query ended after {killed} kills: {log_of(tmp_path)}"
            executors = [
                found for host in [query, *hosts] for found in processes_of(host, "CoarseGrainedExecutorBackend")
            ]
            for executor in executors[:1]:
                with suppress(psutil.NoSuchProcess):
                    executor.send_signal(signal.SIGKILL)
                    killed += 1
        assert query.wait(START) == 0, log_of(tmp_path)
    batches = batches_of(tmp_path)
    check_numbers(batches, RECORDS)
    assert len(batches) >= RECORDS // 100 - 1
    events = events_of(tmp_path / "events")
    assert any(event["Event"] == "SparkListenerTaskStart" and event["Task Info"]["Speculative"] for event in events)
    assert sum(event["Event"] == "SparkListenerExecutorRemoved" for event in events) >= KILLS


def events_of(folder: Path) -> list[dict[str, Any]]:
    """Of Spark's event log."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name.startswith(("events", "app", "local"))
    ]
    return [json.loads(line) for path in files for line in path.read_text().splitlines() if line.startswith("{")]


def is_in_a_batch(folder: Path) -> bool:
    """Whether tasks write files that are not committed yet."""
    return any((folder / "table").glob("batch=*/_temporary"))
