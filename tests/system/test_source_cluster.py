"""The Spark source on clusters, with speculation on: executors are killed in the middle of a batch.

Half of the shards are slow, which makes stragglers of their tasks, so that Spark starts second attempts beside them.
Whichever ends first counts, and both have the same rows. Spark starts none on the host of the first attempt, and a
local cluster has one host: so only the two workers, which have an address each, see them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pyspark
import pytest
from fastkcl.local_aws import LocalAws
from local_aws_helpers import make_stream
from paths import PROGRAMS
from source_queries import (
    START,
    Writer,
    batches_of,
    check_numbers,
    log_of,
    processes_of,
    rows_in,
    spark_process,
)
from waiting import wait_until

KILLS = 2
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.task.duration.threshold": "300ms",  # where a batch has one task
    "spark.speculation.efficiency.enabled": "false",  # else a slow task is one that has read fewer rows a second
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
        ports = ["--port", "0", "--webui-port", "0"]
        settings = {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
        program = [*java, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", *ports]
        stack.enter_context(spark_process(program, places[0], aws, settings))
        log = places[0] / "log"
        found = wait_until(
            lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text("utf-8", "replace")),
            "the master",
            seconds=START,
        )
        workers = []
        for number, place in enumerate(places[1:], 1):
            program = [*java, "org.apache.spark.deploy.worker.Worker", "--host", f"127.0.0.{number}", *ports]
            program += ["--cores", "1", "--memory", "1g", "--work-dir", place / "work", found[1]]
            workers.append(stack.enter_context(spark_process(program, place, aws, settings)))
        wait_until(lambda: log.read_text().count("Registering worker") == 2, "two workers", seconds=START)
        yield found[1], workers


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("cluster", ["local-cluster[2,1,1024]", "two workers"])
def test_an_executor_that_dies_in_a_batch_changes_no_row(own_aws: LocalAws, tmp_path: Path, cluster: str) -> None:
    stream = make_stream(own_aws, 2)
    (tmp_path / "events").mkdir()
    home = spark_home(tmp_path)
    program = [sys.executable, PROGRAMS / "spark_source_query.py", own_aws.url, stream, tmp_path]
    options = ["inlineBytes=0", "shardsPerTask=1"]
    writer = Writer(own_aws, stream, Random(0))
    with ExitStack() as stack:
        master, hosts = cluster, []
        if cluster == "two workers":
            master, hosts = stack.enter_context(master_with_workers(tmp_path, own_aws, home))
        settings = {
            **SETTINGS,
            "spark.executor.extraJavaOptions": f"-Djava.io.tmpdir={tmp_path / 'tmp'}",
            "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        }
        environment = {
            "SPARK_HOME": str(home),
            "QUERY_MASTER": master,
            "QUERY_SLOW": "5",
            "QUERY_SETTINGS": json.dumps(settings),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        query = stack.enter_context(spark_process([*program, *options], tmp_path, own_aws, environment))
        writer.start()
        stack.callback(writer.end)
        for _ in range(KILLS):
            wait_for_rows(tmp_path, query)
            wait_until(lambda: is_in_a_batch(tmp_path) or query.poll() is not None, "a batch that is written")
            assert query.poll() is None, log_of(tmp_path)
            executors = [
                each for host in [query, *hosts] for each in processes_of(host, "CoarseGrainedExecutorBackend")
            ]
            executors[0].send_signal(signal.SIGKILL)
        wait_for_rows(tmp_path, query)
        if hosts:
            wait_until(
                lambda: has_second_attempts(tmp_path / "events") or query.poll() is not None,
                "a second attempt",
                seconds=START,
            )
            assert query.poll() is None, log_of(tmp_path)
    (tmp_path / "last").touch()
    with spark_process([*program, *options], tmp_path, own_aws) as query:  # on another machine
        assert query.wait(START) == 0, log_of(tmp_path)
    check_numbers(batches_of(tmp_path), writer.count)
    events = events_of(tmp_path / "events")
    assert sum(event["Event"] == "SparkListenerExecutorRemoved" for event in events) >= KILLS


def events_of(folder: Path) -> list[dict[str, Any]]:
    """Of Spark's event log; its last line may be half."""
    found = []
    for path in sorted(folder.rglob("events_*")):
        whole, _, _ = path.read_text().rpartition("\n")
        found += [json.loads(line) for line in whole.splitlines()]
    return found


def has_second_attempts(folder: Path) -> bool:
    """Whether tasks have begun beside others that still work."""
    starts = [event for event in events_of(folder) if event["Event"] == "SparkListenerTaskStart"]
    return any(start["Task Info"]["Speculative"] for start in starts)


def wait_for_rows(folder: Path, query: psutil.Popen) -> None:
    """For a batch that is whole after those that are there."""
    before = rows_in(folder)
    wait_until(
        lambda: rows_in(folder) > before or query.poll() is not None,
        "a batch that is whole",
        seconds=START,
        seen=lambda: log_of(folder),
        step=0.1,
    )
    assert query.poll() is None, log_of(folder)


def is_in_a_batch(folder: Path) -> bool:
    """Whether tasks write files that are not committed yet."""
    return any((folder / "table").glob("batch=*/_temporary"))
