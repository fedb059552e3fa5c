"""From a put to a row that readers see, by `fastkcl load` at several ages of a commit.

    put ──▶ local AWS ──▶ fastkcl load, one for each table ──▶ its files ──▶ a reader that looks 20 times a second

A row is readable when the table's own reader (pyarrow, deltalake, pyiceberg) has returned it. Tables run beside each
other, each with a stream of one shard and ten records a second; at that pace they mostly wait. A run lasts for several
commits. At its end each record is in each table once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest
from fastkcl.local_aws import LocalAws
from suites import Way, take_turns

AGES = (1, 10, 60)
COMMITS = 3
LEAST_SECONDS = 30
QUICK_SECONDS = 2
PUT_PAUSE, LOOK_PAUSE = 0.1, 0.05
START_SECONDS = 60
BUCKET = "bench-readable"


@dataclass(frozen=True)
class Table:
    """A table, the options of `fastkcl load` that write it, and a way to look for files that are new in it."""

    name: str
    url: str
    options: list[str]
    files: Callable[[], set[str]]
    filesystem: Any

    def rows(self, file: str) -> list[str]:
        """The payloads of a file: a number and the time of its put."""
        table = pyarrow.parquet.read_table(file, columns=["data"], filesystem=self.filesystem, partitioning=None)
        return [data.decode() for data in table["data"].to_pylist()]


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    """For all runs."""
    with LocalAws() as started:
        started.client("s3").create_bucket(Bucket=BUCKET)
        yield started


def parquet_table(name: str, root: str, url: str, filesystem: Any) -> Table:
    """Its files are its commits."""
    selector = pyarrow.fs.FileSelector(root, recursive=True, allow_not_found=True)

    def files() -> set[str]:
        found = filesystem.get_file_info(selector)
        return {info.path for info in found if info.is_file and info.path.endswith(".parquet")}

    return Table(name, url, ["--format", "parquet"], files, filesystem)


def delta_table(name: str, url: str, filesystem: Any, options: dict[str, str] | None) -> Table:
    """Its files are those of its log."""
    import deltalake
    from deltalake.exceptions import TableNotFoundError

    def files() -> set[str]:
        try:
            table = deltalake.DeltaTable(url, storage_options=options)
        except TableNotFoundError:
            return set()
        return {uri.removeprefix("s3://") for uri in table.file_uris()}

    return Table(name, url, ["--format", "delta"], files, filesystem)


def iceberg_table(name: str, folder: Path) -> Table:
    """Its files are those of its newest snapshot."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    folder.mkdir()
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    catalog = load_catalog("default", **properties)
    catalog.create_namespace("bench")

    def files() -> set[str]:
        try:
            scan = catalog.load_table("bench.rows").scan()
        except NoSuchTableError:
            return set()
        return {task.file.file_path.removeprefix("file://") for task in scan.plan_files()}

    options = [option for key, value in properties.items() for option in ("--catalog", f"{key}={value}")]
    return Table(name, "bench.rows", ["--format", "iceberg", *options], files, pyarrow.fs.LocalFileSystem())


def tables(aws: LocalAws, folder: Path) -> list[Table]:
    """One of each kind, new."""
    local = pyarrow.fs.LocalFileSystem()
    s3 = pyarrow.fs.S3FileSystem(endpoint_override=aws.url, access_key="local", secret_key="local", region="us-east-1")
    stored = {"AWS_ENDPOINT_URL": aws.url, "AWS_ALLOW_HTTP": "true", **aws.environment}
    prefix = f"{BUCKET}/{folder.name}"
    return [
        parquet_table("ParquetTable, disk", str(folder / "parquet"), str(folder / "parquet"), local),
        parquet_table("ParquetTable, S3", f"{prefix}/parquet", f"s3://{prefix}/parquet", s3),
        delta_table("DeltaTable, disk", str(folder / "delta"), local, None),
        delta_table("DeltaTable, S3", f"s3://{prefix}/delta", s3, stored),
        iceberg_table("IcebergTable, disk", folder / "iceberg"),
    ]


class Reader:
    """Looks at a table until all that was put is there, and notes when each row came."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.ages: dict[int, float] = {}
        self.error: BaseException | None = None
        self.expected: int | None = None
        self._known: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join(60)

    def has_all(self, seconds: float) -> None:
        """Wait until the expected rows are there.

        Raises:
            AssertionError: they are not, in time.
        """
        self._thread.join(seconds)
        if self.error is not None:
            raise self.error
        assert not self._thread.is_alive(), f"{self.table.name}: {len(self.ages)} of {self.expected} rows"

    def _run(self) -> None:
        try:
            while len(self.ages) != self.expected and not self._ended.wait(LOOK_PAUSE):
                for file in self.table.files() - self._known:
                    self._known.add(file)
                    self._note(self.table.rows(file))
        except BaseException as error:
            self.error = error

    def _note(self, rows: list[str]) -> None:
        now = time.time()
        for row in rows:
            number, put = row.split()
            assert int(number) not in self.ages, f"{self.table.name}: row {number} is there twice"
            self.ages[int(number)] = now - float(put)


@contextmanager
def loading(table: Table, stream: str, age: float, aws: LocalAws, log: Path) -> Iterator[None]:
    """`fastkcl load`, until it is stopped."""
    command = [sys.executable, "-m", "fastkcl", "load", stream, table.url, "--max-age", str(age), *table.options]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **aws.environment}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            yield
            assert process.poll() is None, log.read_text()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


def put_for(seconds: float, kinesis: Any, streams: list[str], first: int = 0) -> int:
    """One record after the other into each stream; how many each has then."""
    end, number = time.monotonic() + seconds, first
    while time.monotonic() < end:
        begun = time.monotonic()
        for stream in streams:
            kinesis.put_record(StreamName=stream, Data=f"{number} {time.time()!r}".encode(), PartitionKey="key")
        number += 1
        time.sleep(max(0.0, PUT_PAUSE - (time.monotonic() - begun)))
    return number


def run(aws: LocalAws, age: float, seconds: float, folder: Path) -> dict[str, dict[str, float]]:
    """All tables beside each other; by table."""
    kinesis = aws.client("kinesis")
    chosen = tables(aws, folder)
    streams = [f"readable-{folder.name}-{number}" for number in range(len(chosen))]
    for stream in streams:
        kinesis.create_stream(StreamName=stream, ShardCount=1)
    with ExitStack() as stack:
        readers = [stack.enter_context(Reader(table)) for table in chosen]
        for table, stream in zip(chosen, streams, strict=True):
            log = folder / f"{stream}.log"
            stack.enter_context(loading(table, stream, age, aws, log))
        warm = put_for(age, kinesis, streams)
        deadline = time.monotonic() + START_SECONDS + age
        while not all(reader.ages for reader in readers):
            failed = [reader.error for reader in readers if reader.error is not None]
            if failed:
                raise failed[0]
            assert time.monotonic() < deadline, [reader.table.name for reader in readers if not reader.ages]
            time.sleep(LOOK_PAUSE)
        count = put_for(seconds, kinesis, streams, warm)
        for reader in readers:
            reader.expected = count
        for reader in readers:
            reader.has_all(age + 60)
    figures = {}
    for reader in readers:
        assert set(reader.ages) == set(range(count)), f"{reader.table.name}: rows are missing"
        hundredths = quantiles([reader.ages[number] for number in range(warm, count)], n=100, method="inclusive")
        figures[reader.table.name] = {
            "seconds": hundredths[49],
            "put_to_row_seconds": hundredths[49],
            "put_to_row_99_percent": hundredths[98],
        }
    return figures


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Where only results count, one age is enough."""
    if "age" in metafunc.fixturenames:
        metafunc.parametrize("age", AGES[:1] if metafunc.config.getoption("benchmark_disable") else AGES)


@pytest.mark.timeout(1200)
def test_readable(benchmark: Any, age: int, aws: LocalAws, tmp_path: Path) -> None:
    """The median and the 99th percentile of ten records a second; the tables' first commits do not count."""
    folder = tmp_path / f"age-{age}"
    folder.mkdir()
    seconds = max(LEAST_SECONDS, COMMITS * age) if benchmark.enabled else QUICK_SECONDS
    measured = run(aws, age, seconds, folder)

    def way(name: str) -> Way:
        return lambda: measured[name]

    ways = {name: way(name) for name in measured}
    take_turns(benchmark, "tables, put to row", f"max_age {age} s", ways, 1, warm_up=False)
