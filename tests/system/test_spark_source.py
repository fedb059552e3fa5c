"""The Spark source under deaths: driver, JVM and workers are killed while shards split and merge.

CHAOS_SOURCE_KILLS=8 and CHAOS_SOURCE_RUNS=8 are the counts of `make test-long`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from fastkcl.local_aws import LocalAws
from local_aws_helpers import client, is_open, make_stream, shards
from paths import PROGRAMS
from run_folder import spark_options
from waiting import wait_until

KILLS = int(os.environ.get("CHAOS_SOURCE_KILLS", "2"))
RUNS = int(os.environ.get("CHAOS_SOURCE_RUNS", "1"))
LONG = [pytest.param(run, marks=pytest.mark.long) for run in range(1, max(RUNS, 2))]
KEYS = 24
START = 120.0


class Writer(threading.Thread):
    """Puts numbered records, and splits and merges shards meanwhile, until it is told to end."""

    def __init__(self, aws: LocalAws, stream: str, random: Random) -> None:
        super().__init__()
        self._kinesis, self._stream, self._random = client(aws), stream, random
        self._ended = threading.Event()
        self.count = self.reshards = 0

    def end(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.wait(0.15):
            numbers = range(self.count, self.count + self._random.randint(1, 60))
            records = [{"Data": str(n).encode(), "PartitionKey": f"k{n % KEYS}"} for n in numbers]
            answer = self._kinesis.put_records(StreamName=self._stream, Records=records)
            assert answer["FailedRecordCount"] == 0
            self.count = numbers.stop
            if self._random.random() < 0.25:
                with suppress(self._kinesis.exceptions.ResourceInUseException):
                    self._reshard()

    def _reshard(self) -> None:
        is_ours = lambda shard: int(shard["HashKeyRange"]["StartingHashKey"])  # noqa: E731
        opened = sorted(filter(is_open, shards(self._kinesis, self._stream)), key=is_ours)
        at = self._random.randrange(len(opened))
        if len(opened) > 3:
            left, right = opened[at - 1 if at else 0], opened[at if at else 1]
            self._kinesis.merge_shards(
                StreamName=self._stream, ShardToMerge=left["ShardId"], AdjacentShardToMerge=right["ShardId"]
            )
        else:
            low, high = (int(opened[at]["HashKeyRange"][f"{side}HashKey"]) for side in ("Starting", "Ending"))
            self._kinesis.split_shard(
                StreamName=self._stream,
                ShardToSplit=opened[at]["ShardId"],
                NewStartingHashKey=str((low + high) // 2 + 1),
            )
        self.reshards += 1


@contextmanager
def query(aws: LocalAws, stream: str, folder: Path, *options: str) -> Iterator[psutil.Popen]:
    """The query, as a process with a Spark of its own: a JVM that is killed leaves its files, here in the folder."""
    (folder / "begun").unlink(missing_ok=True)
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        **aws.environment,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": spark_options(temporary),
        "TMPDIR": str(temporary),
    }
    with (folder / "log").open("ab") as log:
        process = psutil.Popen(
            [sys.executable, PROGRAMS / "spark_source_query.py", aws.url, stream, folder, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for each in [*process.children(recursive=True), process] if process.is_running() else []:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait(30)


def workers_of(process: psutil.Popen) -> list[psutil.Process]:
    found = []
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie too
            if "pyspark" in " ".join(child.cmdline()):
                found.append(child)
    return found


def log_of(folder: Path) -> str:
    return (folder / "log").read_text("utf-8", "replace")[-3000:]


def batches_of(folder: Path) -> list[list[dict[str, Any]]]:
    """The rows of each batch that is whole."""
    table = folder / "table"
    numbers = sorted(int(path.name.partition("=")[2]) for path in table.glob("batch=*")) if table.exists() else []
    found = []
    for number in numbers:
        files = sorted((table / f"batch={number}").glob("*.parquet"))
        found.append([row for file in files for row in pq.ParquetFile(file).read().to_pylist()])
    return found


def rows_in(folder: Path) -> int:
    with suppress(OSError):  # a batch is being replaced
        return sum(map(len, batches_of(folder)))
    return -1


def check(batches: list[list[dict[str, Any]]], count: int) -> None:
    """Each number once, and each key in its order: by batches, and within one by sequence numbers."""
    seen = Counter(int(row["number"]) for rows in batches for row in rows)
    assert seen == Counter(range(count))
    last: dict[str, int] = {}
    for rows in batches:
        for row in sorted(rows, key=lambda row: int(row["sequenceNumber"])):
            number = int(row["number"])
            assert last.get(row["key"], -1) < number, f"{row} comes after {last[row['key']]}"
            last[row["key"]] = number


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
                    workers = workers_of(process)
                    for worker in random.sample(workers, min(2, len(workers))):
                        with suppress(psutil.NoSuchProcess):
                            worker.send_signal(signal.SIGKILL)
    finally:
        writer.end()
    (tmp_path / "last").touch()
    with query(own_aws, stream, tmp_path, *options) as process:
        assert process.wait(START) == 0, log_of(tmp_path)
    assert writer.reshards >= 2
    check(batches_of(tmp_path), writer.count)
