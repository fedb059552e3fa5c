"""The whole way of tables that the child writes itself, beside Spark: from the daemon's line to a committed file.

    records of 4 shards ──▶ replayer ═ pipe ═▶ 4 children ──▶ a disk, or S3 (local AWS)
                                                   └────────▶ one Connect server ──▶ a disk        (beside them)

The ways take turns in each round. CPU is the children's, and for Connect the server's too, from the word to go until
everything is committed and checkpointed, for a GB of payloads. The replayer, which plays the daemon, and local AWS do
not count. After each run all records are read back, by pyarrow, and compared; typed rows by their count and the sum of
a column.

*Many writers* are 32 processes that append to one table at once, each three rows of its shard at a time; on S3 eight.
Two hosts are two folders of locks. A write is one call of `append`, with its file synced.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.fs
import pytest
from contention import ROWS, contend
from fastkcl.bench.pipes import CPUS, INITIALIZE, Child
from fastkcl.local_aws import LocalAws
from fastkcl.replay.columns import Columns, StoredRecords
from fastkcl.replay.profiles import EPOCH_MILLIS, timestamps
from fastkcl.replay.sources import Shard
from fastkcl.shard import sequence_numbers
from fastkcl.tables import Shard as TableShard
from iceberg_helpers import sql_posix
from spark_bench import Peer, Records, Server, run, server
from suites import CHILDREN, Way, line, payload, take_turns

ROUNDS = int(os.environ.get("BENCH_TABLES_ROUNDS", "3"))
STARTS = 10
SHARDS = 4
SIZES = {"100 B": 100, "500 B": 500, "12.5 kB": 12_500}
MEGABYTES = {"100 B": 480, "500 B": 960, "12.5 kB": 1920}
"""Of payloads; each child writes a quarter. A child writes for days, so its first write must not count for much."""
JSON = "JSON of 500 B"
QUICK_RECORDS = 60  # of a shard
SCHEMA = "id bigint, user string, at timestamp, price double, ok boolean, text string"
CONNECT = "SparkProcessor and ParquetSink over Connect"
BUCKET = "bench-tables"
COLUMNS = ("shard", "sequenceNumber", "data")


@dataclass(frozen=True)
class Kind:
    """A way, and where its table is."""

    name: str
    peer: Peer
    table: str
    """ParquetTable, DeltaTable or ParquetSink."""
    on_s3: bool = False
    typed: bool = False

    @property
    def partitions(self) -> list[str]:
        """Of the folders."""
        return ["date"] if self.table == "DeltaTable" else ["stream", "shard", "date"]


def table_kind(table: str, *, on_s3: bool, typed: bool = False) -> Kind:
    """TableProcessor's."""
    name = f"{table}, {'S3' if on_s3 else 'disk'}"
    variables = (("FASTKCL_BENCH_KIND", table), *([("FASTKCL_BENCH_SCHEMA", SCHEMA)] if typed else []))
    name += ", typed" if typed else ""
    return Kind(name, Peer(name, "table_child.py", None, variables), table, on_s3, typed)


BINARY = [
    *(table_kind(table, on_s3=on_s3) for on_s3 in (False, True) for table in ("ParquetTable", "DeltaTable")),
    Kind(CONNECT, Peer(CONNECT, "spark_child.py"), "ParquetSink"),
]
TYPED = [
    *(
        table_kind(table, on_s3=False, typed=typed)
        for typed in (True, False)
        for table in ("ParquetTable", "DeltaTable")
    )
]


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    """S3, whose CPU does not count."""
    with LocalAws() as started:
        started.client("s3").create_bucket(Bucket=BUCKET)
        yield started


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all rounds."""
    with server(tmp_path_factory.mktemp("server")) as started:
        yield started


def records_of(profile: str, folder: Path, *, quick: bool) -> Records:
    """What everybody writes: equal for all ways."""
    size, is_json = (500, True) if profile == JSON else (SIZES[profile], False)
    count = QUICK_RECORDS if quick else int(MEGABYTES["500 B" if is_json else profile] * 1e6) // size // SHARDS
    shards = []
    for number in range(SHARDS):
        numbers = sequence_numbers(0, count, shard=number, created=EPOCH_MILLIS // 1000, arrival=EPOCH_MILLIS // 1000)
        columns = Columns(
            [payload(number * count + row, size, is_json) for row in range(count)],
            [f"key-{row % 1000:05}" for row in range(count)],
            numbers,
            [0] * count,
            timestamps(0, count),
        )
        name = f"shardId-{number:012}"
        shards.append(Shard(name, name, StoredRecords(columns), batch_records=min(10_000, 5_000_000 // size)))
    return Records(profile, SHARDS, count, folder, shards)


def stored(kind: Kind, url: str, aws: LocalAws) -> pa.Table:
    """All rows of a table, as pyarrow reads them."""
    files: Any = pa.fs.LocalFileSystem()
    if kind.on_s3:
        files = pa.fs.S3FileSystem(
            endpoint_override=aws.url, access_key="local", secret_key="local", region="us-east-1"
        )
    root = url.removeprefix("s3://")
    if kind.table == "DeltaTable":
        import deltalake

        options = {"AWS_ENDPOINT_URL": aws.url, "AWS_ALLOW_HTTP": "true", **aws.environment} if kind.on_s3 else None
        handle = deltalake.DeltaTable(url, storage_options=options)
        return handle.to_pyarrow_dataset(filesystem=pa.fs.SubTreeFileSystem(root, files)).to_table()
    names = pa.schema([(name, pa.string()) for name in kind.partitions])
    partitioning = pa.dataset.partitioning(names, flavor="hive")
    return pa.dataset.dataset(root, filesystem=files, format="parquet", partitioning=partitioning).to_table()


def assert_stored(kind: Kind, url: str, records: Records, aws: LocalAws) -> None:
    """Each record is there once, with its content."""
    table = stored(kind, url, aws)
    assert table.num_rows == records.rows, f"{kind.name}: rows are missing, or there are too many"
    if kind.typed:
        assert pc.sum(table["id"]).as_py() == records.rows * (records.rows - 1) // 2
        return
    sent = []
    for shard in records.shards():
        with pa.memory_map(str(records.path(shard.shard_id))) as file:
            rows = pa.ipc.open_file(file).read_all()
            sent.append(rows.append_column("shard", pa.repeat(pa.scalar(shard.shard_id), rows.num_rows)))
    order = [("shard", "ascending"), ("sequenceNumber", "ascending")]
    expected = pa.concat_tables(sent).select(COLUMNS).sort_by(order)
    found = table.select(COLUMNS).sort_by(order).cast(expected.schema)
    assert found.combine_chunks().equals(expected.combine_chunks()), f"{kind.name}: records have changed"


def way(kind: Kind, records: Records, spark: Server, aws: LocalAws, folder: Path) -> Way:
    """A table of its own each time."""
    number = iter(range(1000))

    def call() -> dict[str, float]:
        name = f"{kind.name.replace(', ', '-')}-{records.rows}-{next(number)}".replace(" ", "-")
        url = f"s3://{BUCKET}/{name}" if kind.on_s3 else str(folder / name)
        peer = kind.peer
        variables = [*peer.variables, ("FASTKCL_BENCH_TABLE", url)]
        variables += aws.environment.items() if kind.on_s3 else []
        done = run(replace(peer, variables=tuple(variables)), records, spark, None, folder)
        assert_stored(kind, url, records, aws)
        if kind.on_s3:
            empty(aws, f"{name}/")
        else:
            shutil.rmtree(url)
        cpu = done.client_cpu + (done.server_cpu if kind.name == CONNECT else 0.0)
        return {"seconds": done.seconds, "cpu_per_gb": cpu / records.payload_bytes * 1e9}

    return call


def empty(aws: LocalAws, prefix: str) -> None:
    """Local AWS has its objects in memory."""
    client = aws.client("s3")
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix):
        for each in page.get("Contents", ()):
            client.delete_object(Bucket=BUCKET, Key=each["Key"])


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("profile", [*SIZES, JSON])
def test_tables(benchmark: Any, profile: str, spark: Server, aws: LocalAws, tmp_path: Path) -> None:
    """The first round warms up."""
    (tmp_path / "records").mkdir()
    records = records_of(profile, tmp_path / "records", quick=not benchmark.enabled)
    kinds = TYPED if profile == JSON else BINARY
    ways = {kind.name: way(kind, records, spark, aws, tmp_path) for kind in kinds}
    take_turns(benchmark, "tables", profile, ways, ROUNDS, line_bytes=records.payload_bytes, records=records.rows)


@pytest.mark.timeout(1200)
def test_start_up(benchmark: Any, spark: Server, tmp_path: Path) -> None:
    """From before the fork to the status of initialize, and of the first batch; the server runs already."""
    number = iter(range(1000))
    first = line("clickstream", quick=True)

    def start(peer: Peer) -> dict[str, float]:
        variables = {**dict(peer.variables), "FASTKCL_BENCH_TABLE": str(tmp_path / f"started-{next(number)}")}
        variables |= {"FASTKCL_SPARK": spark.url, "FASTKCL_STREAM": "bench"}
        begun = time.perf_counter()
        with Child([sys.executable, CHILDREN / peer.program], CPUS[0], environment=variables) as child:
            child.ask(INITIALIZE, "initialize")
            seconds = time.perf_counter() - begun
            child.ask(first, "processRecords")
            first_batch = time.perf_counter() - begun
            child.end()
        return {"seconds": seconds, "first_batch_seconds": first_batch}

    kinds = [kind for kind in BINARY if not kind.on_s3]
    ways: dict[str, Way] = {kind.name: lambda peer=kind.peer: start(peer) for kind in kinds}  # type: ignore[misc]
    take_turns(benchmark, "tables, start-up", "until initialized", ways, STARTS if benchmark.enabled else 1)


CONTENTION = {
    "Delta, one host": ("DeltaTable", 1, False),
    "Delta, two hosts": ("DeltaTable", 2, False),
    "Delta on S3, one host": ("DeltaTable", 1, True),
    "Iceberg, one host": ("IcebergTable", 1, False),
    "Iceberg, two hosts": ("IcebergTable", 2, False),
    "Parquet": ("ParquetTable", 1, False),
}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("profile", CONTENTION)
def test_contention(benchmark: Any, profile: str, aws: LocalAws, tmp_path: Path) -> None:
    """32 processes write one table as fast as they can, each its shard; on S3 eight."""
    kind, hosts, on_s3 = CONTENTION[profile]
    writers = 3 if not benchmark.enabled else 8 if on_s3 else 32
    writes = 20 if benchmark.enabled else 2
    number = iter(range(1000))

    def call() -> dict[str, float]:
        name = f"contention-{next(number)}"
        url = f"s3://{BUCKET}/{name}" if on_s3 else str(tmp_path / name)
        folders = [tmp_path / f"host-{host}" for host in range(hosts)]
        if kind == "IcebergTable":
            (tmp_path / name).mkdir()
            place = sql_posix(tmp_path / name)
            place.table().open(TableShard("clicks", "shardId-0"))  # pyiceberg makes the catalog's own tables
            done = contend(kind, place.environment["TABLE_URL"], writers, writes, folders, place.environment)
            rows = place.read().num_rows
        else:
            done = contend(kind, url, writers, writes, folders, aws.environment if on_s3 else {})
            rows = stored(Kind(profile, Peer(profile, ""), kind, on_s3), url, aws).num_rows
        assert rows == writers * writes * ROWS
        return {
            "seconds": done.seconds,
            "writes_a_second": done.writes_a_second,
            "seconds_of_95_percent": done.seconds_of_95_percent,
            "longest_seconds": done.longest,
        }

    take_turns(benchmark, "tables, many writers", profile, {"fastkcl": call}, ROUNDS, warm_up=False)
