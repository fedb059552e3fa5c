"""Tables of each format on a store with TLS of a private authority, keys that expire, and rights that are lacking."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastkcl.local_aws import LocalAws
from fastkcl.tables import DeltaTable, IcebergTable, ParquetTable, S3Storage
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.iceberg.inspection import inspect_iceberg
from fastkcl.tables.inspection import TableState
from fastkcl.tables.store import StoreError
from guarded_store import SECRET, GuardedStore, guarded_store
from local_aws_helpers import new_name
from sink_helpers import SHARD
from table_helpers import arrived, as_they_are
from waiting import PATIENCE

FORMATS = ("parquet", "delta", "iceberg")


class AnyTable:
    """A table of a format in a bucket, and what its readers see.

    Args:
        kind: the format.
        bucket: its name.
        folder: for a catalog.
    """

    def __init__(self, kind: str, bucket: str, folder: Path) -> None:
        self.kind = kind
        self.url = f"s3://{bucket}/lake/clicks"
        self._catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"s3://{bucket}/lake"}

    def writer(self, storage: S3Storage) -> Any:
        """One that has opened its shard."""
        options: dict[str, Any] = {"storage": storage}
        if self.kind == "iceberg":
            table: Any = IcebergTable("db.clicks", self._catalog, share_commits=False, **options)
        elif self.kind == "delta":
            table = DeltaTable(self.url, share_commits=False, **options)
        else:
            table = ParquetTable(self.url, **options)
        table.open(SHARD)
        return table

    def inspected(self, storage: S3Storage) -> TableState:
        """By `fastkcl sink inspect`."""
        if self.kind == "iceberg":
            return inspect_iceberg("db.clicks", self._catalog, storage)
        return inspect_table(self.url, storage)


@pytest.fixture
def store(aws: LocalAws, tmp_path: Path) -> Iterator[GuardedStore]:
    with guarded_store(aws.url, tmp_path) as made:
        yield made


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, aws: LocalAws, tmp_path: Path) -> AnyTable:
    bucket = new_name("lake")
    aws.client("s3").create_bucket(Bucket=bucket)
    return AnyTable(request.param, bucket, tmp_path)


def rows(table: AnyTable, store: GuardedStore) -> int:
    """Those that readers see; the table is sound."""
    found = table.inspected(S3Storage(endpoint=store.upstream, access_key="local", secret_key="local"))
    assert found.ok, found
    return sum(shard.rows for shard in found.shards)


def test_a_private_authority(table: AnyTable, store: GuardedStore) -> None:
    with pytest.raises(StoreError) as e:
        table.writer(store.storage(ca=None)).append(arrived([1]), as_they_are)
    assert "its certificate is of an unknown authority: give S3Storage(ca=…)" in str(e.value)
    assert table.url.rpartition("/lake")[0] in str(e.value)
    assert SECRET not in str(e.value)
    writer = table.writer(store.storage())
    for number in range(1, 4):
        writer.append(arrived([number]), as_they_are)
    assert rows(table, store) == 3


def test_keys_that_are_new_each_minute(table: AnyTable, store: GuardedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer asks for them again; those that have expired are never used."""
    store.use_profile(monkeypatch)
    writer = table.writer(store.storage(access_key=None, secret_key=None))
    number = 0
    for _ in range(4):
        store.renew()
        end = time.monotonic() + PATIENCE
        while store.last != store.key:
            assert time.monotonic() < end
            number += 1
            writer.append(arrived([number]), as_they_are)
        store.expire()
    assert store.refused == []
    assert rows(table, store) == number


def test_keys_that_have_expired(table: AnyTable, store: GuardedStore) -> None:
    """They were given as they are, so nobody can ask for new ones."""
    writer = table.writer(store.storage())
    writer.append(arrived([1]), as_they_are)
    store.renew()
    store.expire()
    with pytest.raises(StoreError) as e:
        writer.append(arrived([2]), as_they_are)
    assert "the credentials have expired: have them renewed" in str(e.value)
    assert SECRET not in str(e.value)
    again = table.writer(store.storage())
    again.append(arrived([2]), as_they_are)
    assert rows(table, store) == 2


def test_without_the_right_to_delete(table: AnyTable, store: GuardedStore) -> None:
    """No format needs it: what could be removed stays."""
    store.denied.add("DELETE")
    writer = table.writer(store.storage())
    for number in range(1, 4):
        writer.append(arrived([number]), as_they_are)
    assert rows(table, store) == 3


def test_without_the_right_to_write(table: AnyTable, store: GuardedStore) -> None:
    writer = table.writer(store.storage())
    writer.append(arrived([1]), as_they_are)
    store.denied.add("PUT")
    with pytest.raises(StoreError) as e:
        writer.append(arrived([2]), as_they_are)
    assert "PUT s3://" in str(e.value)
    assert "the credentials lack a right: a table needs s3:PutObject, s3:GetObject and s3:ListBucket" in str(e.value)
    assert SECRET not in str(e.value)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_bucket_that_is_absent(kind: str, store: GuardedStore, tmp_path: Path) -> None:
    table = AnyTable(kind, "absent-bucket", tmp_path)
    with pytest.raises(StoreError) as e:
        table.writer(store.storage()).append(arrived([1]), as_they_are)
    assert "s3://absent-bucket/lake" in str(e.value)
    assert "there is no bucket absent-bucket at https://localhost" in str(e.value)
    assert SECRET not in str(e.value)
