"""The Spark source under deaths: driver, JVM and workers are killed while shards split and merge.

CHAOS_SOURCE_KILLS=8 and CHAOS_SOURCE_RUNS=8 are the counts of `make test-long`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import psutil
import pytest
from fastkcl.local_aws import LocalAws
from local_aws_helpers import make_stream
from paths import PROGRAMS
from source_queries import START, Writer, batches_of, check_numbers, log_of, processes_of, rows_in, spark_process
from waiting import wait_until

KILLS = int(os.environ.get("CHAOS_SOURCE_KILLS", "2"))
RUNS = int(os.environ.get("CHAOS_SOURCE_RUNS", "1"))
LONG = [pytest.param(run, marks=pytest.mark.long) for run in range(1, max(RUNS, 2))]


@contextmanager
def query(aws: LocalAws, stream: str, folder: Path, *options: str) -> Iterator[psutil.Popen]:
    """The query, as a process with a Spark of its own."""
    program = [sys.executable, PROGRAMS / "spark_source_query.py", aws.url, stream, folder, *options]
    with spark_process(program, folder, aws) as process:
        yield process


@pytest.mark.timeout(START * (KILLS + 1))
@pytest.mark.parametrize("run", [0, *LONG])
def test_deaths_and_reshards_lose_and_double_nothing(own_aws: LocalAws, tmp_path: Path, run: int) -> None:
    random = Random(run)
    stream = make_stream(own_aws, 2)
    options = ["inlineBytes=0"] if run % 2 else []
    writer = Writer(own_aws, stream, random)
    writer.start()
    try:
        for kill in range(KILLS):
            before = rows_in(tmp_path)
            with query(own_aws, stream, tmp_path, *options) as process:
                wait_until(
                    lambda least=before + 50: rows_in(tmp_path) > least or process.poll() is not None,  # type: ignore[misc]
                    "rows of this start",
                    seconds=START,
                    seen=lambda: log_of(tmp_path),
                    step=0.1,
                )
                assert process.poll() is None, log_of(tmp_path)
                if kill % 2:  # a worker first: Spark makes the task again, or ends the query
                    workers = processes_of(process, "pyspark")
                    for worker in random.sample(workers, min(2, len(workers))):
                        with suppress(psutil.NoSuchProcess):
                            worker.send_signal(signal.SIGKILL)
    finally:
        writer.end()
    (tmp_path / "last").touch()
    with query(own_aws, stream, tmp_path, *options) as process:
        assert process.wait(START) == 0, log_of(tmp_path)
    assert writer.reshards >= max(2, 10 * KILLS // 8)
    check_numbers(batches_of(tmp_path), writer.count)
