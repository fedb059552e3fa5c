"""Several shards into a table by a Spark of the process itself, as a laptop runs it."""

import os
import subprocess
import sys
from pathlib import Path

from fastkcl.local_aws import LocalAws
from kinesis_helpers import numbered, put
from local_aws_helpers import make_stream
from paths import PROGRAMS
from services import START_SECONDS
from sink_helpers import records_of
from waiting import wait_until


def test_one_spark_for_all_shards(aws: LocalAws, tmp_path: Path) -> None:
    """The second shard finds the JVM of the first, and none of them ends it before the last."""
    stream = make_stream(aws, 3)
    put(aws, stream, numbered(20, 5))
    command = [sys.executable, str(PROGRAMS / "kinesis_local_spark.py"), stream, str(tmp_path / "table")]
    table = tmp_path / "table"
    with subprocess.Popen(
        command, env={**os.environ, **aws.environment}, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            wait_until(
                lambda: sum(records_of(table).values()) >= 100 or running.poll() is not None,
                "all records in the table",
                seconds=START_SECONDS,
                seen=lambda: sum(records_of(table).values()),
                step=0.2,
            )
            _, errors = running.communicate(timeout=120)
        finally:
            running.kill()
    assert running.returncode == 0, errors
    records = records_of(table)
    assert len({shard for _, shard, *_ in records}) == 3
    assert sum(records.values()) == len(records) == 100
