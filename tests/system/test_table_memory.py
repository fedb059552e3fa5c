"""Memory of a child that writes a table on S3, also while the store is down: it holds what it may, and waits."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from delta_table_helpers import DeltaPlace
from fastkcl.local_aws import LocalAws
from fastkcl.replay import ReplayOptions, Report, generate, replay
from fastkcl.tables import S3Storage
from fault_proxy import FaultProxy, fault_proxy
from iceberg_helpers import IcebergPlace, sql_s3
from local_aws_helpers import new_name
from paths import PROGRAMS
from sink_replay import STREAM
from table_helpers import Place
from waiting import PATIENCE

MAX_BYTES = 16 << 20
BOUND = 160_000_000 + 4 * MAX_BYTES
ABSENT = "numpy pandas"
"""The extras `s3`, `delta` and `iceberg` bring neither; pyarrow imports them wherever they are: 11 and 40 MB."""
RECORDS = 300_000  # of about 500 bytes: more than may be held
DOWN_SECONDS = float(os.environ.get("FASTKCL_DOWN_SECONDS", "10"))


def place_of(kind: str, aws: LocalAws, proxy: FaultProxy, folder: Path) -> Place | IcebergPlace:
    """A table that its writer reaches by the proxy alone."""
    if kind == "IcebergTable":
        place = sql_s3(aws, folder)
        return IcebergPlace({**place.catalog, "s3.endpoint": proxy.url})
    bucket = new_name("lake")
    aws.client("s3").create_bucket(Bucket=bucket)
    storage = S3Storage(endpoint=proxy.url, access_key="local", secret_key="local", region="us-east-1")
    made = DeltaPlace if kind == "DeltaTable" else Place
    return made(f"s3://{bucket}/team/clicks", storage)


def stop_the_store(proxy: FaultProxy, done: threading.Event) -> None:
    """When the first files are there: for so long, and until writes have failed again and again."""
    end = time.monotonic() + PATIENCE
    while proxy.requests < 12 and time.monotonic() < end and not done.wait(0.02):
        pass
    proxy.is_down = True
    end = time.monotonic() + max(DOWN_SECONDS, PATIENCE)
    begun = time.monotonic()
    while time.monotonic() < end and (time.monotonic() < begun + DOWN_SECONDS or proxy.faults["down"] < 12):
        if done.wait(0.1):
            break
    proxy.is_down = False


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "outage", [pytest.param(False, marks=pytest.mark.long, id="at work"), pytest.param(True, id="the store is down")]
)
@pytest.mark.parametrize("kind", ["ParquetTable", "DeltaTable", "IcebergTable"])
def test_memory_of_a_child(aws: LocalAws, tmp_path: Path, kind: str, *, outage: bool) -> None:
    noise: list[str] = []
    done = threading.Event()
    with fault_proxy(aws.url, 0, 1) as proxy:
        place = place_of(kind, aws, proxy, tmp_path)
        if outage:
            trouble = threading.Thread(target=stop_the_store, args=(proxy, done))
            trouble.start()
        try:
            report: Report = replay(
                [sys.executable, str(PROGRAMS / "table_memory.py")],
                generate("clickstream", records=RECORDS),
                ReplayOptions(
                    stream=STREAM,
                    environment={
                        "OPTIONS": json.dumps({"max_bytes": MAX_BYTES}),
                        "TABLE_KIND": kind,
                        "ABSENT": ABSENT,
                        **place.environment,
                    },
                    on_stderr=lambda _shard, line: noise.append(line.decode()),
                    answer_timeout=DOWN_SECONDS + 600,
                    restarts=0,
                ),
            )
        finally:
            done.set()
            if outage:
                trouble.join()
        assert [problem for shard in report.shards for problem in shard.problems] == [], noise
        assert len(place.numbers()) == len(set(place.numbers())) == RECORDS
        failed = proxy.faults["down"]
    (peak,) = (int(line.split()[1]) for line in noise if line.startswith("peak "))
    figures: dict[str, Any] = {"kind": kind, "peak MB": peak // 1_000_000, "requests that failed": failed}
    print(json.dumps(figures))
    assert failed >= 12 or not outage
    assert peak <= BOUND, figures
