"""A DeltaTable of both kinds of storage, as a reader sees it; and one that is called as sinks are."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import deltalake
import pyarrow as pa
import pyarrow.dataset
from fastkcl import Position
from fastkcl.local_aws import LocalAws
from fastkcl.tables import DeltaTable, Shard
from fastkcl.tables.delta.file import storable
from fastkcl.tables.object_store import ObjectStore
from fastkcl.tables.rows import ShardRows
from fastkcl.tables.store import Store
from http_servers import server
from sink_helpers import SHARD, STEPS, FakeWriter, Kind, Record
from table_helpers import DAY, NOON, Place, arrived, as_they_are, posix_place, s3_place


class DeltaPlace(Place):
    """Somewhere for a Delta table."""

    def table(self, **options: Any) -> DeltaTable:  # type: ignore[override]
        """A writer that commits alone, unless told otherwise: a test that stops one in its commit stops no others."""
        options.setdefault("share_commits", False)
        return DeltaTable(self.url, storage=self.storage, **options)

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"TABLE_KIND": "DeltaTable"}

    def handle(self) -> deltalake.DeltaTable:
        """deltalake's own."""
        store = self.store
        options = store.library_options() if isinstance(store, ObjectStore) else None
        return deltalake.DeltaTable(self.url, storage_options=options)

    def there(self) -> bool:
        return bool(self.store.files("_delta_log"))

    def files(self) -> list[str]:
        """Those that the table has, from its folder on."""
        return sorted(uri.partition(f"{self.url}/")[2] for uri in self.handle().file_uris())

    def entries(self) -> list[str]:
        names = [each.key.rpartition("/")[2] for each in self.store.files("_delta_log")]
        return [name for name in names if name.endswith(".json")]

    def read(self) -> pa.Table:
        if not self.there():
            return pa.table({})
        handle = self.handle()
        files = pa.fs.SubTreeFileSystem(self._root(), self._system())
        return handle.to_pyarrow_dataset(filesystem=files).to_table()

    def records(self) -> Counter[Record]:
        table = self.read()
        if not table.num_columns:
            return Counter()
        names = ("stream", "shard", "sequenceNumber", "subSequenceNumber", "data")
        return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))

    def days(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        table = self.read()
        for day, number in zip(table["date"].to_pylist(), table["sequenceNumber"].to_pylist(), strict=True):
            found.setdefault(str(day), []).append(int(number))
        return {day: sorted(numbers) for day, numbers in sorted(found.items())}


def delta_posix(folder: Path) -> DeltaPlace:
    return DeltaPlace(posix_place(folder).url)


def delta_s3(aws: LocalAws) -> DeltaPlace:
    place = s3_place(aws)
    return DeltaPlace(place.url, place.storage)


def written(place: DeltaPlace, *runs: tuple[int, int], shard: Shard = SHARD, **options: Any) -> DeltaTable:
    """A table that a writer has opened, and has given these runs."""
    table = place.table(**options)
    table.open(shard)
    for first, last in runs:
        table.append(arrived(range(first, last + 1)), as_they_are)
    return table


def calls_of(store: Store, monkeypatch: Any) -> list[str]:
    """The store's requests from now on."""
    calls: list[str] = []
    for name in ("create", "claimed", "claim", "tail", "files", "folders", "replace", "remove", "read", "open"):
        function = getattr(store, name)
        monkeypatch.setattr(
            store, name, lambda *values, name=name, function=function: (calls.append(name), function(*values))[1]
        )
    return calls


@contextmanager
def counted(url: str) -> Iterator[tuple[str, list[str]]]:
    """A proxy before a server of HTTP/1.1: its address, and the requests that have come by (``GET /bucket/key``)."""
    requests: list[str] = []
    there = urlsplit(url)

    def talk(link: socket.socket, _number: int) -> None:
        with socket.create_connection((str(there.hostname), int(there.port or 80))) as upstream:
            back = threading.Thread(target=_pump, args=(upstream, link))
            back.start()
            with link.makefile("rb") as stream:
                while line := stream.readline():
                    requests.append(line.decode().rpartition(" ")[0])
                    head = line
                    length = 0
                    while (line := stream.readline()) not in (b"\r\n", b""):
                        head += line
                        if line.lower().startswith(b"content-length:"):
                            length = int(line.partition(b":")[2])
                    upstream.sendall(head + b"\r\n" + stream.read(length))
            upstream.shutdown(socket.SHUT_WR)
            back.join()

    with server(talk) as address:
        yield f"http://{address}", requests


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)


class DeltaTableSink:
    """A DeltaTable, called as sinks are.

    Args:
        folder: of the table.
    """

    def __init__(self, folder: Path) -> None:
        self.table = DeltaTable(folder)
        self._head = self.table._head

    def open(self, shard: Shard) -> Position | None:
        try:
            return self.table.open(shard)
        finally:
            self._head = self.table._head

    def write(self, rows: ShardRows, _: object) -> Position:
        return self.table.append(rows, as_they_are)


DELTA_TABLE = Kind(
    DeltaTableSink,
    STEPS,
    rows=lambda first, last: arrived(
        range(first, last + 1), [NOON + number // 4 * DAY for number in range(first, last + 1)]
    ),
    records=lambda folder: delta_posix(folder.parent).records(),
    inspect=None,
    is_delta=True,
)
"""Four records a day, so that runs cross into another one."""


class SparkFiles:
    """Rows whose files somebody else makes, as Spark does: several in a folder, none synced."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def columns(self) -> list[Any]:
        return storable(self.table)[1]

    def with_columns(self, values: Mapping[str, str]) -> SparkFiles:
        table = self.table
        for name, text in values.items():
            table = table.append_column(name, pa.array([text] * len(table)))
        return SparkFiles(table)

    def write(self, folder: Path) -> None:
        FakeWriter(self.table, 2).parquet(f"file://{folder}")


class SparkTableSink(DeltaTableSink):
    """The same, with files that Spark makes."""

    def write(self, rows: ShardRows, _: object) -> Position:
        return self.table.append(rows, lambda part: SparkFiles(storable(as_they_are(part))[0]))


SPARK_TABLE = replace(DELTA_TABLE, sink=SparkTableSink, places=(*STEPS, (FakeWriter, "parquet")))
"""A DeltaTable with `SparkWriter`."""


def without_digest(entry: bytes) -> bytes:
    """An entry as earlier versions wrote it, whose damage is seen by what it says alone."""
    return re.sub(rb', "sha256": "[0-9a-f]{64}"', b"", entry)
