"""The sample application of amazon_kclpy, with its own properties, under a daemon of KCL 3: by `fastkcl run`.

Nothing of it is changed: program and properties file are those of the package. For 3.1.3 the jars are, too, and the
environment is one that has the package; of 3.2.0 there are the sources.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import fastkcl
import pytest
from daemon_helpers import Daemon, jars_of, put
from daemon_records import ends, in_stream, put_aggregate
from fastkcl.daemon.keys import Generation
from fastkcl.kinesis import UserRecord
from fastkcl.local_aws import LocalAws
from fastkcl.local_aws.leases import checkpoints, seed_leases

OURS = Path(fastkcl.__file__).parents[1]
STREAM, APPLICATION = "kclpysample", "PythonKCLSample"  # as sample.properties has them
# What it logs of a record. There is no line feed, so the next one begins right after it.
LOGGED = re.compile(
    r"Record \(Partition Key: (.*?), Sequence Number: (\d+), Subsequence Number: (\d+), Data Size: (\d+)(?!\d)"
)

pytestmark = pytest.mark.timeout(900)


def taken(daemon: Daemon) -> int:
    """How many records its children have answered for."""
    return sum(int(number) for number in re.findall(r"batch of (\d+) record", daemon.text))


def test_the_sample_application(original_python: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    (packages,) = original_python.parents[1].glob("lib/python3*/site-packages")
    check_sample(original_python, packages / "samples", jars_of(Generation.KCL_3, request), tmp_path)


def test_the_newest_sample_application(newest_source: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    check_sample(Path(sys.executable), newest_source / "samples", jars_of(Generation.KCL_3, request), tmp_path)


def check_sample(python: Path, samples: Path, jars: Path, folder: Path) -> None:
    with LocalAws(streams={STREAM: 2}) as aws:
        kinesis, dynamodb = aws.client("kinesis"), aws.client("dynamodb")
        put(aws, STREAM, *(f"word {n}" for n in range(50)), keys=[f"clé {n} \N{PARTY POPPER}" for n in range(50)])
        put_aggregate(aws, STREAM, *(UserRecord(f"user-{n % 7}", bytes(n)) for n in range(30)))
        seed_leases(kinesis, dynamodb, application=APPLICATION, stream=STREAM)
        with Daemon(
            aws,
            jars,
            Generation.KCL_3,
            None,
            [str(python), "-m", "fastkcl", "run", str(samples / "sample_kclpy_app.py")],
            folder,
            f"--properties={samples / 'sample.properties'}",
            environment={"PYTHONPATH": str(OURS)},  # an environment of amazon_kclpy has nothing of ours
        ) as daemon:
            daemon.wait_for("the first records", lambda: taken(daemon) == 80)
            shard = "shardId-000000000000"
            kinesis.split_shard(StreamName=STREAM, ShardToSplit=shard, NewStartingHashKey=str(1 << 126))
            put(aws, STREAM, *(f"after {n}" for n in range(50)))
            daemon.wait_for("the end of a shard", lambda: f"{shard}  shard ended" in daemon.text)
            daemon.wait_for("all records", lambda: taken(daemon) == 130)
            assert daemon.end() == 0, daemon.text
        sent = in_stream(kinesis, STREAM, Generation.KCL_3)
        due = ends(kinesis, STREAM, Generation.KCL_3)
        stored = checkpoints(dynamodb, application=APPLICATION)
    logged = [
        (key, int(number), int(sub), int(size))
        for line in daemon.lines
        for key, number, sub, size in LOGGED.findall(line)
    ]
    assert sorted(logged) == sorted(
        (record.partition_key, int(record.sequence_number), record.sub_sequence_number, len(record.data or b""))
        for record in sent
    ), daemon.text
    assert daemon.text.count("Shard has ended checkpointing") == 1
    assert daemon.text.count("Shutdown has been requested, checkpointing.") == 3
    # It checkpoints once in a while, at a shard's end, and when it is asked to stop.
    assert {shard: stored.get(shard, (None, 0))[0] in places for shard, places in due.items()} == dict.fromkeys(
        due, True
    )
