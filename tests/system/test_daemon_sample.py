"""The sample application of amazon_kclpy, with its own properties, under the daemon of its own jars: by `fastkcl run`.

Nothing of it is changed: program, properties file and jars are those of the package, in an environment that has it.
"""

from __future__ import annotations

import re
from pathlib import Path

import fastkcl
import pytest
from daemon_helpers import Daemon, put
from daemon_records import ends, in_stream, put_aggregate
from fastkcl.daemon.keys import Generation
from fastkcl.kinesis import UserRecord
from fastkcl.local_aws import LocalAws
from fastkcl.local_aws.leases import checkpoints, seed_leases

OURS = Path(fastkcl.__file__).parents[1]
STREAM, APPLICATION = "kclpysample", "PythonKCLSample"  # as sample.properties has them
# What it logs of a record. There is no line feed, so the next one begins right behind it.
LOGGED = re.compile(
    r"Record \(Partition Key: (.*?), Sequence Number: (\d+), Subsequence Number: (\d+), Data Size: (\d+)(?!\d)"
)

pytestmark = pytest.mark.timeout(900)


def taken(daemon: Daemon) -> int:
    """How many records its children have answered for."""
    return sum(int(number) for number in re.findall(r"batch of (\d+) record", daemon.text))


def test_the_sample_application(original_python: Path, tmp_path: Path) -> None:
    scripts = original_python.parent
    (packages,) = scripts.parent.glob("lib/python3*/site-packages")
    with LocalAws(streams={STREAM: 2}) as aws:
        kinesis, dynamodb = aws.client("kinesis"), aws.client("dynamodb")
        put(aws, STREAM, *(f"word {n}" for n in range(50)), keys=[f"clé {n} \N{PARTY POPPER}" for n in range(50)])
        put_aggregate(aws, STREAM, *(UserRecord(f"user-{n % 7}", bytes(n)) for n in range(30)))
        seed_leases(kinesis, dynamodb, application=APPLICATION, stream=STREAM)
        with Daemon(
            aws,
            packages / "amazon_kclpy" / "jars",
            Generation.KCL_3,
            None,
            [str(original_python), "-m", "fastkcl", "run", str(scripts / "sample_kclpy_app.py")],
            tmp_path,
            f"--properties={packages / 'samples' / 'sample.properties'}",
            environment={"PYTHONPATH": str(OURS)},  # its environment has amazon_kclpy and nothing of ours
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
    # It checkpoints once a minute, at a shard's end, and when it is asked to stop.
    assert {shard: stored.get(shard, (None, 0))[0] in places for shard, places in due.items()} == dict.fromkeys(
        due, True
    )
