"""The Spark source beside other ways to read a stream with Spark: CPU of a gigabyte and of a batch, latency, plans.

Each measured run is a Spark of its own (children/source_query.py) over one local AWS, whose CPU does not count. CPU of
a gigabyte is marginal: a warm JVM reads a small stream, then a large one, and the difference counts. The rows of each
table are counted, and the two ways to open JSON, and Avro, have to give one table.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from botocore.config import Config
from clicks import AVRO, DDL, avro_payloads, clicks
from fastkcl.kinesis.access import Access
from fastkcl.kinesis.read.plan import TRIM, Offset, PlanOptions
from fastkcl.kinesis.read.plan.driver import PlanDriver
from fastkcl.local_aws import LocalAws
from fastkcl.spark.source.tasks import service_of
from foreign_packages import CACHE
from suites import CHILDREN, Way, payload, take_turns

ROUNDS = int(os.environ.get("BENCH_SOURCE_ROUNDS", "3"))
SHARDS = 4
SIZES = {"100 B": 100, "500 B": 500, "12.5 kB": 12_500}
CLICKS = "clicks of 300 B"
SMALL, MEDIUM, LARGE = "small", "medium", "large"
MEGABYTES = {"100 B": (20, 80, 300), "500 B": (40, 160, 600), "12.5 kB": (100, 500, 1500), CLICKS: (40, 160, 600)}
"""Payloads of the small stream, of the medium one, for the slow ways, and of the large one."""
QUICK_MEGABYTES = (0.2, 0.3, 0.5)
WAYS = {
    "fastkcl": ("fastkcl", LARGE),
    "ready batches": ("ready", LARGE),
    "run_processors and Connect": ("connect", MEDIUM),
    "boto3 in mapInPandas": ("map_in_pandas", MEDIUM),
}
AWSLABS_JAR = os.environ.get("BENCH_AWSLABS_JAR")
"""awslabs' connector, built from its source: no index has it (README.md says how)."""
if AWSLABS_JAR:
    WAYS["awslabs' connector"] = ("awslabs", LARGE)
AVRO_WAYS = {"payload=avro": "avro", "from_avro": "from_avro", "ready columns": "ready_clicks", "binary": "binary"}
SPARK_AVRO = "4.2.0"
"""The newest that could be fetched, and Spark 4.3 takes it. No version of spark-protobuf could be."""
JSON_WAYS = {"payload=json": "typed", "from_json": "from_json", "binary": "binary"}
SCHEMA = "id bigint, user string, at timestamp, price double, ok boolean, text string"
PAUSE = 0.2
QUIET = 5.0
PATIENCE = 1800


class Streams:
    """The streams of the suite, filled when they are first asked for."""

    def __init__(self, aws: LocalAws, quick: bool) -> None:
        self.aws, self.quick = aws, quick
        self._filled: dict[str, dict[str, Any]] = {}

    def get(self, profile: str, which: str) -> dict[str, Any]:
        """Name, rows and bytes of payloads of a stream."""
        name = f"{profile}-{which}".replace(" ", "-")
        if name not in self._filled:
            size = SIZES.get(profile, 300 if profile == CLICKS else 500)
            megabytes = MEGABYTES["500 B" if profile == "JSON" else profile]
            wanted = (QUICK_MEGABYTES if self.quick else megabytes)[(SMALL, MEDIUM, LARGE).index(which)]
            rows = max(20, int(wanted * 1e6 / size))
            self._filled[name] = fill(self.aws, name, size, rows, self._payloads(profile, size))
        return self._filled[name]

    def _payloads(self, profile: str, size: int) -> Callable[[int], bytes]:
        """The payload of each row."""
        if profile != CLICKS:
            return lambda number: payload(number, size, profile == "JSON")
        made = avro_payloads(clicks(200 if self.quick else 20_000))
        return lambda number: made[number % len(made)]


def fill(aws: LocalAws, name: str, size: int, rows: int, payload_of: Callable[[int], bytes]) -> dict[str, Any]:
    """Make a stream and put its rows, of about `size` bytes.

    The last row of each shard comes some seconds after the others. A plan knows a shard's end to a second, and takes
    what is left by 1,000 records: all that a shard of the service takes in a second, but no second's worth of these.
    """
    kinesis = aws.client("kinesis", config=Config(retries={"max_attempts": 0}, read_timeout=120))
    kinesis.create_stream(StreamName=name, ShardCount=SHARDS)
    step = max(1, min(500, 4_000_000 // size))

    def put(begin: int) -> int:
        numbers = range(begin, min(begin + step, rows - SHARDS))
        records = [{"Data": payload_of(n), "PartitionKey": f"key-{n % 1000:05}"} for n in numbers]
        answer = kinesis.put_records(StreamName=name, Records=records)
        assert answer["FailedRecordCount"] == 0
        return sum(len(record["Data"]) for record in records)

    with ThreadPoolExecutor(2) as pool:
        total = sum(pool.map(put, range(0, rows - SHARDS, step)))
    time.sleep(QUIET)
    for shard in range(SHARDS):
        last = payload_of(rows - SHARDS + shard)
        hash_key = str(2**128 // SHARDS * shard)
        kinesis.put_record(StreamName=name, Data=last, PartitionKey="key-00000", ExplicitHashKey=hash_key)
        total += len(last)
    return {"name": name, "rows": rows, "bytes": total}


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    """For all of the suite."""
    with LocalAws() as server:
        yield server


@pytest.fixture(scope="module")
def streams(aws: LocalAws, request: pytest.FixtureRequest) -> Streams:
    """What is read."""
    return Streams(aws, request.config.getoption("benchmark_disable"))


def child(aws: LocalAws, what: str, folder: Path, **options: Any) -> dict[str, float]:
    """The figures of one run, in a Spark of its own, whose folder is gone afterwards."""
    begun = time.monotonic()
    with running(aws, what, folder, **options) as process:
        figures = figures_of(process)
    return {"seconds": time.monotonic() - begun, **figures}


class running:  # noqa: N801 - a context
    """A child: its process."""

    def __init__(self, aws: LocalAws, what: str, folder: Path, **options: Any) -> None:
        folder.mkdir()
        self._folder = folder
        text = json.dumps({"endpoint": aws.url, "folder": str(folder), **options})
        self._log = (folder.parent / f"{folder.name}.log").open("wb")
        environment = {**os.environ, **aws.environment, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(folder)}
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYSPARK_PYTHON": sys.executable}
        self.process = subprocess.Popen(
            [sys.executable, CHILDREN / "source_query.py", what, text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )

    def __enter__(self) -> subprocess.Popen[str]:
        return self.process

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()
        if exception[0] is not None:
            print(Path(self._log.name).read_text("utf-8", "replace")[-3000:], file=sys.stderr)
        shutil.rmtree(self._folder, ignore_errors=True)


def figures_of(process: subprocess.Popen[str]) -> dict[str, float]:
    """What a child writes at its end."""
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, text
    return dict(json.loads(text.splitlines()[-1]))


def reads(streams: Streams, profile: str, way: str, which: str, sink: str, folder: Path, **options: Any) -> Way:
    """A way to read the small stream, then a larger one; the tables have all their rows."""
    small, large = streams.get(profile, SMALL), streams.get(profile, which)

    def run() -> dict[str, float]:
        given = {
            "way": way,
            "sink": sink,
            "warm": [large["name"]],  # what a JVM has still to compile would count for the small stream
            "streams": [small, large],
            "ready": {
                each["name"]: {"rows": each["rows"], "bytes": each["bytes"] // each["rows"]} for each in (small, large)
            },
            **options,
        }
        if way == "awslabs":
            given["jars"] = AWSLABS_JAR
        if sink == "parquet":
            given["expected"] = [large["rows"], small["rows"], large["rows"]]
        return child(streams.aws, "backlog", folder / f"{way}-{time.monotonic_ns()}", **given)

    return run


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("profile", SIZES)
def test_parquet(benchmark: Any, profile: str, streams: Streams, tmp_path: Path) -> None:
    """CPU of a gigabyte into Parquet."""
    ways = {name: reads(streams, profile, way, which, "parquet", tmp_path) for name, (way, which) in WAYS.items()}
    take_turns(benchmark, "source, Parquet", profile, ways, ROUNDS, warm_up=False)


@pytest.mark.timeout(4 * 3600)
def test_json(benchmark: Any, streams: Streams, tmp_path: Path) -> None:
    """CPU of a gigabyte of JSON into typed columns, to noop; both ways have the same table first."""
    compare_json(streams, tmp_path)
    ways = {
        name: reads(streams, "JSON", way, LARGE, "noop", tmp_path, schema=SCHEMA) for name, way in JSON_WAYS.items()
    }
    take_turns(benchmark, "source, JSON of 500 B", "noop", ways, ROUNDS, warm_up=False)


def compare_json(streams: Streams, folder: Path) -> None:
    """See that `payload=json` and `from_json` give the same rows."""
    columns = [name.split()[0] for name in SCHEMA.split(", ")]
    small = streams.get("JSON", SMALL)
    tables = [stored(streams, folder, small, way, columns, schema=SCHEMA) for way in ("typed", "from_json")]
    assert tables[0].num_rows == small["rows"]
    assert tables[0].equals(tables[1].cast(tables[0].schema))
    assert tables[0]["price"].to_pylist() == [number / 8 for number in range(small["rows"])]


def stored(
    streams: Streams, folder: Path, stream: dict[str, Any], way: str, columns: list[str], **options: Any
) -> pyarrow.Table:
    """The rows that a way makes of a stream, by their id."""
    options |= {
        "way": way,
        "sink": "parquet",
        "warm": [],
        "streams": [stream, {**stream, "bytes": stream["bytes"] + 1}],
    }
    kept = folder / f"kept-{way}"
    child(streams.aws, "backlog", folder / way, keep=str(kept), **options)
    return pyarrow.dataset.dataset(kept, format="parquet").to_table(columns=columns).sort_by("id")


@pytest.mark.timeout(4 * 3600)
def test_avro(benchmark: Any, streams: Streams, tmp_path: Path) -> None:
    """CPU of a gigabyte of Avro into typed columns, to noop; both ways have the same table first."""
    options = {"schema": DDL, "avro": json.dumps(AVRO), "jars": str(spark_avro())}
    names = [field["name"] for field in AVRO["fields"]]
    small = streams.get(CLICKS, SMALL)
    tables = [stored(streams, tmp_path, small, way, names, **options) for way in ("avro", "from_avro")]
    assert tables[0].num_rows == small["rows"]
    assert tables[0].to_pylist() == tables[1].to_pylist()
    expected = {each["id"]: each for each in clicks(200 if streams.quick else 20_000)}
    assert all(row == expected[row["id"]] for row in tables[0].to_pylist())
    ways = {name: reads(streams, CLICKS, way, LARGE, "noop", tmp_path, **options) for name, way in AVRO_WAYS.items()}
    take_turns(benchmark, f"source, Avro, {CLICKS}", "noop", ways, ROUNDS, warm_up=False)


def spark_avro() -> Path:
    """The jar with `from_avro`; Maven fetches it once."""
    jar = CACHE / "spark-avro" / f"spark-avro_2.13-{SPARK_AVRO}.jar"
    if not jar.is_file():
        plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        artifact = f"-Dartifact=org.apache.spark:spark-avro_2.13:{SPARK_AVRO}"
        command = ["mvn", "-B", "-q", plugin, artifact, f"-DoutputDirectory={jar.parent}"]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=300)
    return jar


@pytest.mark.timeout(3600)
def test_batch_of_16_shards(benchmark: Any, aws: LocalAws, tmp_path: Path) -> None:
    """CPU of a batch of some 900 small rows, beside Spark's rate source with two tasks."""
    stream = f"paced-{time.monotonic_ns()}"
    aws.client("kinesis").create_stream(StreamName=stream, ShardCount=16)
    batches = 15 if benchmark.enabled else 1

    def paced(**options: Any) -> Way:
        def run() -> dict[str, float]:
            with writing(aws, stream, rows=90, pause=PAUSE):
                folder = tmp_path / f"paced-{time.monotonic_ns()}"
                return child(aws, "paced", folder, stream=stream, batches=batches, **options)

        return run

    ways = {
        "inline": paced(way="source", more={"initialPosition": "latest"}),
        "by range": paced(way="source", more={"initialPosition": "latest", "inlineBytes": "0"}),
        "rate, 2 tasks": paced(way="rate"),
    }
    take_turns(benchmark, "source, batch", "16 shards", ways, max(1, ROUNDS - 1), warm_up=False)


@pytest.mark.timeout(3600)
def test_latency(benchmark: Any, aws: LocalAws, tmp_path: Path) -> None:
    """From a put to the row in a batch function, at the default trigger with 4 shards."""

    def run() -> dict[str, float]:
        stream = f"latency-{time.monotonic_ns()}"
        aws.client("kinesis").create_stream(StreamName=stream, ShardCount=4)
        folder = tmp_path / stream
        with running(aws, "latency", folder, stream=stream, records=60 if benchmark.enabled else 3) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            begun = time.monotonic()
            with writing(aws, stream, rows=1, pause=PAUSE):
                figures = figures_of(process)
        return {"seconds": time.monotonic() - begun, **figures}

    take_turns(benchmark, "source, latency", "4 shards", {"fastkcl": run}, max(1, ROUNDS - 1), warm_up=False)


class writing:  # noqa: N801 - a context
    """A thread that puts rows: each has the time as its payload."""

    def __init__(self, aws: LocalAws, stream: str, *, rows: int, pause: float) -> None:
        self._kinesis, self._stream, self._rows, self._pause = aws.client("kinesis"), stream, rows, pause
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join(60)

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(self._pause):
            now = repr(time.time()).encode()
            keys = [f"key-{(number + index) * 7919 % 100_003}" for index in range(self._rows)]
            number += self._rows
            self._kinesis.put_records(
                StreamName=self._stream, Records=[{"Data": now, "PartitionKey": key} for key in keys]
            )


@pytest.mark.timeout(3600)
def test_idle(benchmark: Any, aws: LocalAws, tmp_path: Path) -> None:
    """Share of a core of a query of 8 shards that has nothing to do, at the default trigger, Spark included."""
    stream = f"idle-{time.monotonic_ns()}"
    aws.client("kinesis").create_stream(StreamName=stream, ShardCount=8)
    settle, seconds = (30, 30) if benchmark.enabled else (5, 1)

    def run() -> dict[str, float]:
        folder = tmp_path / f"idle-{time.monotonic_ns()}"
        return child(aws, "idle", folder, stream=stream, settle=settle, seconds=seconds)

    take_turns(benchmark, "source, idle", "8 shards", {"fastkcl": run}, max(1, ROUNDS - 1), warm_up=False)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shards", [4, 64, 1000])
def test_plan(benchmark: Any, aws: LocalAws, shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's plans, without Spark: the first, which has a record of each shard, and the next one."""
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    stream = f"plan-{shards}-{time.monotonic_ns()}"
    kinesis = aws.client("kinesis")
    kinesis.create_stream(StreamName=stream, ShardCount=shards)
    width = 2**128 // shards

    def put() -> None:
        keys = [str(number * width + width // 2) for number in range(shards)]
        for begin in range(0, shards, 500):
            records = [
                {"Data": b"x" * 100, "PartitionKey": "k", "ExplicitHashKey": key} for key in keys[begin : begin + 500]
            ]
            assert kinesis.put_records(StreamName=stream, Records=records)["FailedRecordCount"] == 0

    def run() -> dict[str, float]:
        started = time.perf_counter()
        put()
        service = service_of(Access(endpoint_url=aws.url, region="us-east-1"))
        driver = PlanDriver(
            PlanOptions(streams=(stream,), initial=TRIM), {stream: service}, threads=32, log=logging.getLogger("bench")
        )
        try:
            begun, cpu = time.perf_counter(), time.process_time()
            plan = driver.latest(Offset())
            first, first_cpu = time.perf_counter() - begun, time.process_time() - cpu
            calls = driver.calls["GetRecords"]
            offset = plan.offset
            for _ in range(20):  # what a slow shard brings later is in a later plan
                if len(offset.streams[stream].shards) == shards and driver.calls["GetRecords"] >= shards:
                    break
                offset = driver.latest(offset).offset
            put()
            before, begun, cpu = driver.calls["GetRecords"], time.perf_counter(), time.process_time()
            driver.latest(offset)
            return {
                "seconds": time.perf_counter() - started,
                "first_plan_seconds": first,
                "first_plan_cpu_seconds": first_cpu,
                "first_calls_a_shard": calls / shards,
                "next_plan_seconds": time.perf_counter() - begun,
                "next_plan_cpu_seconds": time.process_time() - cpu,
                "next_calls_a_shard": (driver.calls["GetRecords"] - before) / shards,
            }
        finally:
            driver.close()

    take_turns(benchmark, "source, plan", f"{shards} shards", {"fastkcl": run}, ROUNDS, warm_up=False)
