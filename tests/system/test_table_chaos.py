"""Writers that are killed, and woken beside their successors, before an object store that fails: each record once.

TABLE_CHAOS_SECONDS is how long each format is troubled. VERSITYGW names the server, as `make test-chaos` has it; else
local AWS is the store. A `fault_proxy` is before the store, and before a catalog that is a server. The table is read
without the proxies, inspected, and read again when the leftovers of the dead were deleted.
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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from delta_table_helpers import DeltaPlace
from fastkcl.local_aws import LocalAws
from fastkcl.tables import S3Storage, orphans
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.orphans import LEAST_AGE, Orphans, find_orphans
from fault_proxy import FAULTS, fault_proxy
from iceberg_helpers import GluePlace, IcebergPlace, rest_catalog
from paths import PROGRAMS
from sink_helpers import Record
from table_helpers import Place
from waiting import wait_until

SECONDS = float(os.environ.get("TABLE_CHAOS_SECONDS", "60"))
SHARE = 0.08
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


@dataclass(frozen=True)
class Troubled:
    """A format in its catalog; how many writers share commits."""

    kind: str
    catalog: str = ""
    shards: int = 3
    pace: float = 2
    """Seconds that a writer lives, so that some commit."""

    @property
    def options(self) -> dict[str, Any]:
        return {} if self.kind == "ParquetTable" else {"share_commits": self.shards > 3}

    def __str__(self) -> str:
        return "-".join(filter(None, (self.kind, self.catalog, "shared" if self.shards > 3 else "")))


ALL = (
    Troubled("ParquetTable", pace=1),
    Troubled("DeltaTable"),
    Troubled("DeltaTable", shards=6),
    Troubled("IcebergTable", "sql", pace=4),
    Troubled("IcebergTable", "sql", shards=6, pace=4),
    Troubled("IcebergTable", "rest", pace=4),
    Troubled("IcebergTable", "glue", pace=4),
)


@dataclass(frozen=True)
class Servers:
    """Addresses of an S3 server, of a REST catalog, and of Glue."""

    s3: str
    rest: str = ""
    glue: str = ""


def place_at(servers: Servers, each: Troubled, folder: Path) -> Place | IcebergPlace:
    """A table's place, reached at these addresses."""
    storage = S3Storage(endpoint=servers.s3, access_key=KEY, secret_key=SECRET)
    if each.kind == "ParquetTable":
        return Place("s3://lake/team/clicks", storage)
    if each.kind == "DeltaTable":
        return DeltaPlace("s3://lake/team/clicks", storage)
    files = {"s3.endpoint": servers.s3, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET}
    files |= {"s3.region": "us-east-1", "warehouse": "s3://lake/warehouse"}
    match each.catalog:
        case "rest":
            return IcebergPlace({"type": "rest", "uri": servers.rest} | files)
        case "glue":
            own = {"glue.endpoint": servers.glue, "glue.region": "us-east-1"}
            own |= {"glue.access-key-id": KEY, "glue.secret-access-key": SECRET}
            return GluePlace({"type": "glue"} | own | files, "chaos")
        case _:
            return IcebergPlace({"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"} | files)


@contextmanager
def catalogs(s3: str, each: Troubled, folder: Path, request: pytest.FixtureRequest) -> Iterator[Servers]:
    """The catalog, if it is a server; it reaches the store without the proxy."""
    if each.catalog == "rest":
        behind = place_at(Servers(s3), Troubled("IcebergTable", "sql"), folder)
        assert isinstance(behind, IcebergPlace)
        with rest_catalog(behind.theirs()) as address:
            yield Servers(s3, rest=address)
    elif each.catalog == "glue":
        aws: LocalAws = request.getfixturevalue("own_aws")
        yield Servers(s3, glue=aws.url)
    else:
        yield Servers(s3)


def trouble(each: Troubled, place: Place | IcebergPlace, folder: Path, seed: int) -> dict[str, Any]:
    """What the writers report, at their end."""
    shared = folder / "shared"
    shared.mkdir(mode=0o700)
    known = place.environment
    options = json.dumps(json.loads(known.get("TABLE_OPTIONS", "{}")) | each.options)
    program = PROGRAMS / "table_chaos.py"
    process = subprocess.Popen(
        [sys.executable, str(program), str(SECONDS), str(each.pace), str(seed), str(each.shards)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ
        | {**known, **KEYS, "TABLE_KIND": each.kind, "TABLE_OPTIONS": options}
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


@pytest.mark.parametrize("each", ALL, ids=str)
def test_each_record_is_there_once(
    each: Troubled, server: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    boto3.client(
        "s3", endpoint_url=server, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
    ).create_bucket(Bucket="lake")
    with catalogs(server, each, tmp_path, request) as servers:
        trial(each, servers, tmp_path, monkeypatch)


def trial(each: Troubled, servers: Servers, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        proxies = {
            name: stack.enter_context(fault_proxy(address, SHARE, seed=1))
            for name, address in asdict(servers).items()
            if address
        }
        harmed = Servers(**{name: proxy.url for name, proxy in proxies.items()})
        report = trouble(each, place_at(harmed, each, folder), folder, seed=1)
    faults = {name: proxy.faults for name, proxy in proxies.items()}
    report |= {"requests": {name: proxy.requests for name, proxy in proxies.items()}, "faults": faults}
    report |= {"of the network": sum(found.total() for found in faults.values())}
    print(each, json.dumps(report, indent=2))
    assert report["refused"] == []
    assert set(report["codes"].values()) == {0}
    place = place_at(servers, each, folder)
    records = place.records()
    check(records, report["ends"])
    look = (place.name, None, place.catalog) if isinstance(place, IcebergPlace) else (place.url, place.storage, None)
    found = inspect_table(*look)
    assert found.ok, found
    assert {shard.shard_id: shard.rows for shard in found.shards} == Counter(shard for _, shard, *_ in records)
    left = orphans_of_days_ago(*look, monkeypatch)
    print(each, len(left.files), "orphans")
    left.delete()
    assert orphans_of_days_ago(*look, monkeypatch).files == ()
    assert place.records() == records
    if SECONDS >= 60:
        assert report["kills"] + report["stops"] >= SECONDS / 4
        assert set(faults["s3"]) == set(FAULTS)


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
