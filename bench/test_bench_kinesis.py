"""Consumer and producer beside async-kinesis: the cost of a record for a program that calls Kinesis itself.

Each measured run is a process of its own on one core. *stub*: calls are answered at once in the same process, between
aiobotocore's serialisers and its parsers, so only the client's own work is left. *local AWS*: a server on the other
core, which needs longer for a record than either of our outputs. Times are scaled to RECORDS records.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fastkcl
import pytest
from answers import answer, records_of
from fastkcl.bench.pipes import CPUS
from fastkcl.local_aws import LocalAws
from fastkcl.replay import profiles
from suites import CHILDREN, Way, take_turns

ROUNDS = 5
RECORDS = 10_000
"""Of an answer, and what figures are scaled to."""
SHARDS = 200
"""With the stub: so many that five calls a second to each are no limit. async-kinesis parses an answer of every shard
before it gives the first item: it has fewer, which are no limit to it either."""
SHARDS_OF_ASYNC_KINESIS = 8
ITEM_BYTES = 256
OURS = Path(fastkcl.__file__).parents[1]


def client(python: Path | str, what: str, package: str, **options: Any) -> Way:
    """One run of a program, its figures those of RECORDS records."""
    text = json.dumps({"core": CPUS[0], **options})

    def run() -> dict[str, float]:
        done = subprocess.run(
            [python, CHILDREN / "kinesis_client.py", what, package, text],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(OURS), *sys.path] if package != "kinesis" else [])},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        scale = RECORDS / found.pop("records")
        return {name: value * scale for name, value in found.items()}

    return run


@pytest.mark.parametrize("profile", ["iot"])
def test_consumer_stub(benchmark: Any, profile: str, async_kinesis_python: Path, tmp_path: Path) -> None:
    """Answers of 10,000 records, as many as wanted."""
    file = tmp_path / "records.json"
    file.write_bytes(records_of(profile, RECORDS))
    whole = benchmark.enabled
    options = {"stream": "bench", "endpoint": None, "records_file": str(file)}
    ours, theirs = (sys.executable, "consume", "fastkcl.kinesis"), (async_kinesis_python, "consume", "kinesis")
    ways = {
        "fastkcl, items": client(*ours, output="items", shards=SHARDS, records=400_000 if whole else 20_000, **options),
        "fastkcl, records": client(
            *ours, output="records", shards=SHARDS, records=400_000 if whole else 20_000, **options
        ),
        "fastkcl, batches": client(
            *ours, output="batches", shards=SHARDS, records=8_000_000 if whole else 20_000, **options
        ),
        "async-kinesis": client(
            *theirs, output=None, shards=SHARDS_OF_ASYNC_KINESIS, records=60_000 if whole else 2_000, **options
        ),
    }
    size = len(answer(profile, RECORDS))
    take_turns(benchmark, "consumer, stub", profile, ways, ROUNDS, warm_up=False, line_bytes=size, records=RECORDS)


@pytest.mark.parametrize("profile", ["iot"])
def test_consumer_local_aws(benchmark: Any, profile: str, async_kinesis_python: Path) -> None:
    """Sixteen shards on a server of the other core, from the open consumer to the last record.

    Each shard gives its records in one answer: a second call would wait for its turn, a fifth of a second.
    """
    records = 144_000 if benchmark.enabled else 2_000
    payloads = profiles.PROFILES[profile]
    with LocalAws(streams={"bench": 16}) as aws:
        kinesis = aws.client("kinesis")
        entries = [
            {"Data": data, "PartitionKey": key}
            for data, key in zip(payloads.payloads(records), payloads.partition_keys(records), strict=True)
        ]
        for start in range(0, records, 500):
            assert not kinesis.put_records(StreamName="bench", Records=entries[start : start + 500])[
                "FailedRecordCount"
            ]
        os.sched_setaffinity(aws.pid, {CPUS[-1]})
        options = {"stream": "bench", "endpoint": aws.url, "records": records, "from_nothing": True}
        ours, theirs = (sys.executable, "consume", "fastkcl.kinesis"), (async_kinesis_python, "consume", "kinesis")
        ways = {
            "fastkcl, items": client(*ours, output="items", **options),
            "fastkcl, batches": client(*ours, output="batches", **options),
            "async-kinesis": client(*theirs, output=None, **options),
        }
        size = len(answer(profile, RECORDS))
        take_turns(
            benchmark, "consumer, local AWS", profile, ways, ROUNDS, warm_up=False, line_bytes=size, records=RECORDS
        )


@pytest.mark.parametrize("processor", ["StringProcessor", "JsonLineProcessor", "KPLStringProcessor"])
def test_producer_stub(benchmark: Any, processor: str, async_kinesis_python: Path) -> None:
    """Items of 256 bytes, one a record, or as many as fit into one."""
    options = {"stream": "bench", "endpoint": None, "shards": SHARDS, "processor": processor, "item_bytes": ITEM_BYTES}
    records = 100_000 if benchmark.enabled else 2_000
    ways = {
        "fastkcl": client(sys.executable, "produce", "fastkcl.kinesis", records=records, **options),
        "async-kinesis": client(async_kinesis_python, "produce", "kinesis", records=records, **options),
    }
    size = RECORDS * ITEM_BYTES
    take_turns(benchmark, "producer, stub", processor, ways, ROUNDS, warm_up=False, line_bytes=size, records=RECORDS)
