"""Writers that are killed, and woken beside their successors, before an object store that fails: each record once.

TABLE_CHAOS_SECONDS is how long each format is troubled. VERSITYGW names the server, as `make test-chaos` has it; else
local AWS is the store. Between writers and store is `fault_proxy`. The table is read from the store itself, inspected,
and read again when the leftovers of the dead were deleted.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
import pytest
from delta_table_helpers import DeltaPlace
from fastkcl.local_aws import LocalAws
from fastkcl.tables import S3Storage, orphans
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.orphans import LEAST_AGE, Orphans, find_orphans
from fault_proxy import FAULTS, FaultProxy, fault_proxy
from iceberg_helpers import IcebergPlace
from paths import PROGRAMS
from sink_helpers import Record
from table_helpers import Place
from waiting import wait_until

SECONDS = float(os.environ.get("TABLE_CHAOS_SECONDS", "60"))
SHARE = 0.08
PACE = {"ParquetTable": 1, "DeltaTable": 2, "IcebergTable": 4}
"""How long a writer lives, so that some commit."""
KEY, SECRET = "local", "local-secret"
KEYS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}

pytestmark = [pytest.mark.long, pytest.mark.timeout(SECONDS + 1200)]


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an S3 server."""
    program = os.environ.get("VERSITYGW")
    if program is None:
        aws: LocalAws = request.getfixturevalue("own_aws")
        yield aws.url
    else:
        with versitygw(program, tmp_path / "gateway") as url:
            yield url


@contextmanager
def versitygw(program: str, folder: Path) -> Iterator[str]:
    """A gateway over a folder."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [program, "--access", KEY, "--secret", SECRET, "--port", f"127.0.0.1:{port}", "--quiet", "posix"]
    with subprocess.Popen([*command, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: listens(port), "the gateway")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def place_at(url: str, kind: str, folder: Path) -> Place | IcebergPlace:
    """A table's place, reached at an address."""
    storage = S3Storage(endpoint=url, access_key=KEY, secret_key=SECRET)
    if kind == "ParquetTable":
        return Place("s3://lake/team/clicks", storage)
    if kind == "DeltaTable":
        return DeltaPlace("s3://lake/team/clicks", storage)
    files = {"s3.endpoint": url, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET, "s3.region": "us-east-1"}
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": "s3://lake/warehouse"}
    return IcebergPlace(catalog | files)


def trouble(kind: str, proxy: FaultProxy, folder: Path, seed: int) -> dict[str, Any]:
    """What the writers report, at their end."""
    shared = folder / "shared"
    shared.mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "table_chaos.py"), str(SECONDS), str(PACE[kind]), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ
        | {"TABLE_KIND": kind, **place_at(proxy.url, kind, folder).environment, **KEYS}
        | {"CHAOS_FOLDER": str(folder), "XDG_RUNTIME_DIR": str(shared), "TMPDIR": str(shared)}
        | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        said, _ = process.communicate(timeout=SECONDS + 300)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    report: dict[str, Any] = json.loads(said)
    return report


@pytest.mark.parametrize("kind", ["ParquetTable", "DeltaTable", "IcebergTable"])
def test_each_record_is_there_once(kind: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boto3.client(
        "s3", endpoint_url=server, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
    ).create_bucket(Bucket="lake")
    with fault_proxy(server, SHARE, seed=1) as proxy:
        report = trouble(kind, proxy, tmp_path, seed=1)
    report |= {"requests": proxy.requests, "faults": dict(proxy.faults), "of the network": proxy.faults.total()}
    print(kind, json.dumps(report, indent=2))
    assert report["refused"] == []
    assert set(report["codes"].values()) == {0}
    place = place_at(server, kind, tmp_path)
    records = place.records()
    check(records, report["ends"])
    look = (place.name, None, place.catalog) if isinstance(place, IcebergPlace) else (place.url, place.storage, None)
    found = inspect_table(*look)
    assert found.ok, found
    assert {shard.shard_id: shard.rows for shard in found.shards} == Counter(shard for _, shard, *_ in records)
    left = orphans_of_days_ago(*look, monkeypatch)
    print(kind, len(left.files), "orphans")
    left.delete()
    assert orphans_of_days_ago(*look, monkeypatch).files == ()
    assert place.records() == records
    if SECONDS >= 60:
        assert report["kills"] + report["stops"] >= SECONDS / 4
        assert set(proxy.faults) == set(FAULTS)


def orphans_of_days_ago(
    name: str, storage: S3Storage | None, catalog: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> Orphans:
    """As if the writers had died long ago."""
    later = time.time() + 4 * LEAST_AGE
    monkeypatch.setattr(orphans, "time", type("Later", (), {"time": staticmethod(lambda: later)}))
    return find_orphans(name, storage, catalog=catalog)


def check(records: Counter[Record], ends: dict[str, int]) -> None:
    """See that each record is there, once."""
    assert max(records.values()) == 1, [record for record, count in records.items() if count > 1]
    assert all(data == number.encode() for _, _, number, _, data in records)
    for shard_id, end in ends.items():
        found = sorted(int(number) for _, shard, number, _, _ in records if shard == shard_id)
        assert found == list(range(1, len(found) + 1)), "some are lost"
        assert len(found) >= end
