"""Shared by system tests of the Spark source: a writer that reshards, queries as processes, and a check of rows."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pyarrow.parquet as pq
from fastkcl.local_aws import LocalAws
from local_aws_helpers import client, reshard
from run_folder import spark_options

KEYS = 24
START = 240.0
"""Seconds for a JVM and its first rows, on a machine that has other work."""


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
            self.count = put_numbers(self._kinesis, self._stream, self.count, self._random.randint(1, 60))
            if self._random.random() < 0.25:
                with suppress(self._kinesis.exceptions.ResourceInUseException):
                    reshard(self._kinesis, self._stream, self._random)
                    self.reshards += 1


def put_numbers(kinesis: Any, stream: str, first: int, count: int) -> int:
    """Put the numbers from `first` on, at most 500, each with its key; the next number."""
    numbers = range(first, first + count)
    records = [{"Data": str(n).encode(), "PartitionKey": f"k{n % KEYS}"} for n in numbers]
    answer = kinesis.put_records(StreamName=stream, Records=records)
    assert answer["FailedRecordCount"] == 0
    return numbers.stop


@contextmanager
def spark_process(
    command: Sequence[str | Path], folder: Path, aws: LocalAws, environment: Mapping[str, str] | None = None
) -> Iterator[psutil.Popen]:
    """A program with a Spark of its own: what is left when it is killed is in the folder, and so is its log."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    variables = {
        **os.environ,
        **aws.environment,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": spark_options(temporary),
        "SPARK_LOCAL_DIRS": str(temporary),
        "TMPDIR": str(temporary),
        **(environment or {}),
    }
    with (folder / "log").open("ab") as log:
        process = psutil.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=variables,
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for each in [*process.children(recursive=True), process] if process.is_running() else []:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait(30)


def processes_of(process: psutil.Popen, word: str) -> list[psutil.Process]:
    """Those below it with this word in their command."""
    found = []
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie too
            if word in " ".join(child.cmdline()):
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


def check_numbers(batches: list[list[dict[str, Any]]], count: int) -> None:
    """Each number once, and each key in its order: by batches, and within one by sequence numbers."""
    seen = Counter(int(row["number"]) for rows in batches for row in rows)
    assert seen == Counter(range(count))
    last: dict[str, int] = {}
    for rows in batches:
        for row in sorted(rows, key=lambda row: int(row["sequenceNumber"])):
            number = int(row["number"])
            assert last.get(row["key"], -1) < number, f"{row} comes after {last[row['key']]}"
            last[row["key"]] = number
