"""Eight shards to one Spark Connect server, 500 MB of payloads: children of fastkcl.spark beside the alternatives.

The clients of one kind write at the same time, the kinds one after another, in turn: a round is each of them once.
Into Spark's noop, which takes all rows and stores nothing, and into Parquet: ours through the exactly-once sink, the
others by an append to a folder for each shard.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from original_kclpy import VERSION
from spark_bench import HEAP, PLACEMENTS, Peer, Records, Run, Server, peak_bytes, placed, run, server

PROFILE = "clickstream"
SHARDS = 8
RECORDS_OF_500_MB = 124_000
QUICK_SHARDS = 2
QUICK_RECORDS = 12_000  # more than one batch of the daemon
ROUNDS = 4
SLOW_ROUNDS = 2
BEST_PIECES = (16, 32)
"""MiB; smaller and larger ones are slower."""
TARGETS = ("noop", "Parquet")


@pytest.fixture(scope="module")
def peers(original_python: Path) -> dict[Peer, int]:
    """All kinds of clients, with the number of rounds."""
    (packages,) = (original_python.parent.parent / "lib").glob("python3*/site-packages")
    best = (
        Peer(f"pa.Table in memory, {size} MiB pieces", "spark_client.py", ("tables", str(size * 1024 * 1024)))
        for size in BEST_PIECES
    )
    original = {"FASTKCL_BENCH_KCLPY": str(packages)}
    return {
        Peer("fastkcl.spark", "spark_child.py"): ROUNDS,
        **dict.fromkeys(best, ROUNDS),
        Peer("tuples in memory", "spark_client.py", ("tuples",)): SLOW_ROUNDS,
        Peer(f"amazon_kclpy {VERSION}, tuples", "spark_kclpy_child.py", None, tuple(original.items())): SLOW_ROUNDS,
    }


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all of them."""
    with server(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture(scope="module")
def records(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Records:
    """What everybody writes."""
    quick = request.config.getoption("benchmark_disable")
    shards, count = (QUICK_SHARDS, QUICK_RECORDS) if quick else (SHARDS, RECORDS_OF_500_MB)
    return Records(PROFILE, shards, count, tmp_path_factory.mktemp("records"))


def write(peer: Peer, records: Records, spark: Server, target: str, folder: Path, *, content: bool) -> Run:
    """All clients of one kind, once; then what is stored is compared with what was sent."""
    table = folder / "table" if target == "Parquet" else None
    done = run(peer, records, spark, table, folder)
    if table is not None:
        records.assert_stored(table, content=content)
        shutil.rmtree(table)
    return done


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Where everything runs; equal results need one place only."""
    places = list(PLACEMENTS)[: 1 if metafunc.config.getoption("benchmark_disable") else None]
    metafunc.parametrize("placement", places, ids=lambda name: name.replace(" ", "_"))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target", TARGETS)
def test_spark(
    benchmark, target: str, placement: str, peers: dict[Peer, int], records: Records, spark: Server, tmp_path: Path
) -> None:
    """The first round warms up; in it all columns of all records are compared, later the rows are counted."""
    measured: dict[str, list[Run]] = {peer.name: [] for peer in peers}

    def play() -> None:
        for number in range(1 + ROUNDS if benchmark.enabled else 1):
            for peer, rounds in peers.items():
                if number <= rounds:
                    done = write(peer, records, spark, target, tmp_path, content=number == 0)
                    measured[peer.name].append(done)

    with placed(spark.pid, placement):
        benchmark.pedantic(play)
    benchmark.group = f"Spark, {target}, {placement}"
    benchmark.extra_info |= {
        "suite": benchmark.group,
        "shards": len(records.shards()),
        "payload_bytes": records.payload_bytes,
        "arrow_bytes": records.nbytes,
        "spark": {name: [asdict(done) for done in runs[1:]] for name, runs in measured.items()},
    }
    if benchmark.enabled and placement == next(iter(PLACEMENTS)):
        benchmark.extra_info |= {
            "heap": HEAP,
            "server_peak_bytes": {peer.name: server_memory(peer, records, target, tmp_path) for peer in peers},
        }


def server_memory(peer: Peer, records: Records, target: str, folder: Path) -> int:
    """The most that a server of its own takes; a JVM gives nothing back."""
    with server(folder) as spark:
        write(peer, records, spark, target, folder, content=False)
        return peak_bytes(spark.pid)
