"""Files of an Iceberg table that no metadata names: left by refused commits, and by snapshots that are expired.

    data             after-<position>-<random>.parquet below the data folder: names that our writer alone gives
    manifests        snap-<snapshot>-….avro and <uuid>-m<n>.avro, in tables that our writer has made, and expires
    metadata files   <version>-<uuid>.metadata.json, in those tables, where the catalog leaves them to the writer

A file is named if its own name occurs in the current metadata or in one of the log that it holds, in a manifest list
of their snapshots, or in a manifest of these, as removed too. The folder does not matter: a name has random bits, and
engines spell one folder in several ways.

Rules: files are listed before the metadata is loaded, so files that are committed meanwhile are named. A manifest of a
snapshot that cannot be read ends it all, and so does metadata of another table with data in the same folder. A file in
a table of another format below is that one's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.serializers import FromInputFile

from fastkcl.tables.base import SinkError, in_one_line
from fastkcl.tables.folders import own_name
from fastkcl.tables.iceberg.catalog import load_table
from fastkcl.tables.iceberg.head import KEPT
from fastkcl.tables.iceberg.io import MissingError, storage_of, table_store
from fastkcl.tables.iceberg.manifests import entries_of, manifests_of
from fastkcl.tables.nested import not_in
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Found, Store

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from fastkcl.tables.object_store import S3Storage

__all__ = ["iceberg_orphans"]

_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DATA: Final = re.compile(r"after-[0-9a-z.]+-[0-9a-f]{24}\.parquet")
_MANIFEST: Final = re.compile(rf"snap-\d+-\d+-{_UUID}\.avro|{_UUID}-m\d+\.avro")
_METADATA: Final = re.compile(rf"\d+-{_UUID}\.metadata\.json")
_WRITES_METADATA: Final = ("SqlCatalog", "GlueCatalog")
_OTHERS: Final = ("_delta_log", "_commits")  # not _fastkcl, which this table may have below, beside its metadata
_MOST_BYTES: Final = 512 << 20
_AT_ONCE: Final = 8  # requests


def iceberg_orphans(
    name: str, catalog: Mapping[str, str], storage: S3Storage | None, *, before: float
) -> tuple[Store, list[Found]]:
    """The files that no metadata names, and the storage that has them.

    Args:
        name: ``db.clicks``.
        catalog: as an `IcebergTable` has it.
        storage: likewise.
        before: seconds since the epoch; later files are left out.

    Raises:
        SinkError: there is no such table, its metadata is damaged, or another table lies in its folder.
        ValueError, TypeError: no catalog that a table may be in.
        OSError: it cannot be read.
        ConfigurationError: pyiceberg is missing, or a package of the catalog.
    """
    table = load_table(name, catalog, storage)
    store = table_store(table.location(), storage_of(table.io.properties))
    there = store.walk()
    aside = store.dead() if isinstance(store, PosixStore) else []
    now = load_table(name, catalog, storage)
    if (now.metadata.table_uuid, now.location()) != (table.metadata.table_uuid, table.location()):
        raise SinkError(f"{name}: has become another table meanwhile: look again")
    named = _Names(now)
    others = _of_others(store, there, named.logged, now)
    ours = _ours(now)
    old = [each for each in there if each.modified < before and each.key not in others and ours.fullmatch(each.key)]
    if any(own_name(each.key) not in named.logged for each in old):
        named.read()
    left = not_in(store, [each for each in old if own_name(each.key) not in named.all], marks=_OTHERS)
    return store, sorted([*left, *(each for each in aside if each.modified < before)])


def _ours(table: Table) -> re.Pattern[str]:
    """Keys of the files that our writer may have made."""
    location, properties = table.location().rstrip("/"), table.properties
    data, metadata = (
        re.escape(properties.get(f"write.{kind}.path", f"{location}/{kind}").rstrip("/").removeprefix(f"{location}/"))
        for kind in ("data", "metadata")
    )
    kinds = [f"{data}/(?:.*/)?{_DATA.pattern}"]
    if KEPT in properties:
        kinds.append(f"{metadata}/(?:{_MANIFEST.pattern})")
        if type(table.catalog).__name__ in _WRITES_METADATA:
            kinds.append(f"{metadata}/{_METADATA.pattern}")
    return re.compile("|".join(kinds), re.ASCII)


def _of_others(store: Store, there: Iterable[Found], logged: set[str], table: Table) -> set[str]:
    """Metadata in a table's folder that is of another one without data: as writers leave that made it at once.

    Raises:
        SinkError: some is of another one with data, whose files nobody here knows.
    """
    others = set()
    for key in (each.key for each in there if each.key.endswith(".metadata.json")):
        if own_name(key) in logged:
            continue
        body = store.read(key, _MOST_BYTES)
        if body is None:  # an old one, which a commit has removed
            continue
        try:
            metadata = json.loads(body)
            found, data = metadata.get("table-uuid"), metadata.get("snapshots")
        except (ValueError, AttributeError) as error:
            raise SinkError(
                f"{store.url}/{key}: metadata that cannot be read ({in_one_line(error)[:100]}), perhaps of another"
                " table, so nothing is called an orphan"
            ) from error
        if found == str(table.metadata.table_uuid):
            continue
        others.add(key)
        if data:
            raise SinkError(
                f"{store.url}/{key}: metadata of another table ({found}) lies in the folder of this one"
                f" ({table.metadata.table_uuid}), so nothing is called an orphan: its files may be needed yet"
            )
    return others


class _Names:
    """Names of files that metadata mentions.

    Args:
        table: with its current metadata.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._io: FileIO = table.io
        # A REST catalog need not tell the first.
        files = [table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)]
        self.logged = {own_name(location) for location in files if location}
        """Those of the metadata files."""
        self.all = set(self.logged)
        """All that are known so far."""

    def read(self) -> None:
        """Get to know all.

        Raises:
            SinkError: something of the current metadata is gone, or something is damaged.
            OSError: it cannot be read.
        """
        metadata = self._table.metadata
        snapshots = {each.manifest_list: each for each in metadata.snapshots}
        current = set(snapshots)
        self._take_statistics(metadata)
        for each in metadata.metadata_log:
            try:
                older = FromInputFile.table_metadata(self._io.new_input(each.metadata_file))
            except MissingError:  # so nobody goes back to it
                continue
            self._take_statistics(older)
            for snapshot in older.snapshots:
                snapshots.setdefault(snapshot.manifest_list, snapshot)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            manifests: dict[str, tuple[ManifestFile, bool]] = {}
            for location, found in pool.map(
                lambda item: (item[0], self._manifests(item[1], item[0] in current)), snapshots.items()
            ):
                self.all.add(own_name(location))
                for manifest in found:
                    _, needed = manifests.get(manifest.manifest_path, (manifest, False))
                    manifests[manifest.manifest_path] = manifest, needed or location in current
            for names in pool.map(lambda item: self._files(*item), manifests.values()):
                self.all |= names

    def _manifests(self, snapshot: Snapshot, needed: bool) -> list[ManifestFile]:
        try:
            return manifests_of(snapshot, self._io)
        except MissingError:
            if needed:
                raise
            return []  # of an expired snapshot

    def _files(self, manifest: ManifestFile, needed: bool) -> set[str]:
        names = {own_name(manifest.manifest_path)}
        try:
            names |= {own_name(each.data_file.file_path) for each in entries_of(manifest, self._io)}
        except MissingError:
            if needed:
                raise
        return names

    def _take_statistics(self, metadata: TableMetadata) -> None:
        files: list[Any] = [*metadata.statistics, *metadata.partition_statistics]
        self.all |= {own_name(each.statistics_path) for each in files}
