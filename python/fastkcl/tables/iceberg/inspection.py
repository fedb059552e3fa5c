"""The content of an Iceberg table of an IcebergTable, by the branch ``main`` as far as its snapshots are left.

    runs       the summaries of the snapshots that lead to the head of ``main``, the oldest first
    files      those of the head; a file's shard is in its statistics, else `log_inspection` finds it
    position   the table's property; a rollback leaves it as it was, which is named
    damage     metadata, manifest lists and manifests that are gone or damaged; a snapshot that lacks its list

Writers and engines go on meanwhile, and may remove a file that was named a moment ago. So a fault counts only if the
table is still as it was when it was loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from pyiceberg.manifest import DataFileContent, ManifestEntryStatus

from fastkcl import Position
from fastkcl.tables.base import Shard, SinkError
from fastkcl.tables.folders import can_exist, parse_position, shard_folders, unspelled
from fastkcl.tables.given_up import noted
from fastkcl.tables.iceberg.catalog import load_table
from fastkcl.tables.iceberg.head import KEPT, seen_of
from fastkcl.tables.iceberg.io import (
    DamagedError,
    MissingError,
    check_locations,
    locations_of,
    storage_of,
    store_and_key,
    table_store,
)
from fastkcl.tables.iceberg.manifests import entries_of, manifests_of
from fastkcl.tables.iceberg.state import GIVEN_UP, POSITION
from fastkcl.tables.inspection import NO_POSITIONS, ShardState, TableState, judge_note, note_of
from fastkcl.tables.log_inspection import Commit, FilesByShard, check_commits, check_files, commits_of, of_any_name
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.storage import status
from fastkcl.tables.store import StoreError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from fastkcl.tables.object_store import S3Storage

__all__ = ["inspect_iceberg"]

_WRITER: Final = "IcebergTable"
_LOOKS: Final = 3
_AT_ONCE: Final = 8  # requests
_CUT: Final = 64  # bytes; a bound may be cut to so many characters
_DELETES: Final = "delete files"


def inspect_iceberg(name: str, catalog: Mapping[str, str], storage: S3Storage | None = None) -> TableState:
    """Look into a table.

    Args:
        name: ``db.clicks``.
        catalog: as an `IcebergTable` has it.
        storage: how S3 is reached, instead of the catalog's ``s3.*`` properties.

    Raises:
        SinkError: there is no such table, or it is none of an IcebergTable.
        ValueError, TypeError: no catalog that a table may be in.
        OSError: the catalog or the store does not answer.
        ConfigurationError: pyiceberg is missing, or a package of the catalog.
    """
    url = f"{catalog.get('name', 'default')}:{name}"
    seen = None
    for _ in range(_LOOKS):
        try:
            table = load_table(name, catalog, storage)
        except DamagedError as error:
            return TableState(url, _WRITER, (), (), (str(error),))
        now = table.metadata_location, table.metadata.last_updated_ms  # a REST catalog need not have the first
        if now == seen:
            break
        seen = now
        state = _Look(table, url).state()
        if state.ok:
            break
    return state


class _Look:
    """One look at a table.

    Args:
        table: as it was loaded.
        url: for people.
    """

    def __init__(self, table: Table, url: str) -> None:
        self._table = table
        self._metadata = table.metadata
        self._url = url
        self._damage: list[str] = []
        self._deletes = False

    def state(self) -> TableState:
        """What it has."""
        metadata = self._metadata
        line = self._line()
        manifests = self._manifests(line)
        about: dict[Shard, list[Commit]] = {shard: [] for shard in self._positions()}
        for snapshot in line:
            where = f"{self._url}: snapshot {snapshot.snapshot_id}: its part of an {_WRITER}"
            for commit in commits_of(self._told(snapshot, where), where, self._damage):
                about.setdefault(commit.shard, []).append(commit)
        if not about and KEPT not in metadata.properties:
            raise SinkError(f"{self._url}: an Iceberg table without commits of an {_WRITER}; {NO_POSITIONS}")
        files = self._files(manifests)
        for shard in files.of:
            about.setdefault(shard, [])
        whole = not line or (line[0].parent_snapshot_id is None and line[0].sequence_number == 1)
        states = [
            self._shard(shard, about[shard], files, whole=whole)
            for shard in sorted(about, key=lambda shard: (shard.stream, shard.shard_id))
        ]
        self._damage += [f"{name}: a manifest names it, and it is missing" for name in sorted(files.missing)]
        return TableState(self._url, _WRITER, tuple(states), tuple(sorted(files.unknown)), tuple(self._damage))

    def _line(self) -> list[Snapshot]:
        """The snapshots of ``main`` that are left, the oldest first."""
        by_id = {each.snapshot_id: each for each in self._metadata.snapshots}
        main = self._metadata.refs.get("main")
        at = None if main is None else main.snapshot_id
        line: list[Snapshot] = []
        if at is not None and at not in by_id:
            self._damage.append(f"{self._url}: main is at snapshot {at}, which its metadata does not have")
        while at is not None and at in by_id and len(line) < len(by_id):
            line.append(by_id[at])
            at = by_id[at].parent_snapshot_id
        return line[::-1]

    def _manifests(self, line: Sequence[Snapshot]) -> list[ManifestFile]:
        """Those of the newest of these snapshots; see that each one of the table has its manifest list."""
        manifests: list[ManifestFile] = []

        def read(snapshot: Snapshot) -> list[ManifestFile] | str:
            """The manifests, or why there are none."""
            try:
                return manifests_of(snapshot, self._table.io)
            except MissingError:
                return f"{snapshot.manifest_list}: the manifest list of snapshot {snapshot.snapshot_id} is gone"
            except SinkError as error:
                return str(error)

        head = None if not line else line[-1].snapshot_id
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            snapshots = self._metadata.snapshots
            for snapshot, found in zip(snapshots, pool.map(read, snapshots), strict=True):
                if isinstance(found, str):
                    self._damage.append(found)
                elif snapshot.snapshot_id == head:
                    manifests = found
        return manifests

    def _told(self, snapshot: Snapshot, where: str) -> Any:  # noqa: ANN401 - of a summary
        text = None if snapshot.summary is None else snapshot.summary["fastkcl"]
        try:
            return None if text is None else json.loads(text)
        except (ValueError, TypeError) as error:
            self._damage.append(f"{where} is damaged: {error}")
            return None

    def _positions(self) -> list[Shard]:
        """The shards that have one."""
        found = []
        for name in self._metadata.properties:
            if name.startswith(POSITION):
                stream, _, shard_id = name.removeprefix(POSITION).partition("/")
                try:
                    found.append(Shard(unspelled(stream), unspelled(shard_id)))
                except ValueError as error:
                    self._damage.append(f"{self._url}: its property {name} names no shard: {error}")
        return found

    # ---- files ----------------------------------------------------------------------------------------------------

    def _files(self, manifests: Sequence[ManifestFile]) -> FilesByShard:
        """The files of these manifests, by shard."""
        location = self._table.location().rstrip("/")
        storage = storage_of(self._table.io.properties)

        def place(name: str) -> str:
            return name if "://" in name or name.startswith(("/", "file:")) else f"{location}/{name}"

        def find(name: str) -> BinaryIO | None:
            there, key = store_and_key(place(name), storage)
            return there.open(key)

        def last_byte(name: str) -> bytes | None:
            there, key = store_and_key(place(name), storage)
            return there.tail(key, 1)

        def may_exist(name: str) -> bool:
            return place(name).startswith("s3") or can_exist(name)

        data_files = [(file, file.file_path.removeprefix(f"{location}/")) for file in self._data_files(manifests)]
        finds = of_any_name(find, self._damage, may_exist)
        looks = of_any_name(last_byte, self._damage, may_exist)
        listed = self._listed(storage)
        files = FilesByShard(finds, lambda name: name in listed or looks(name) is not None)
        ids = self._ids()
        for file, name in data_files:
            shard = _shard_of(file, ids)
            files.take(name, *((None, None) if shard is None else (shard.stream, shard.shard_id)), by_log=False)
        return files

    def _listed(self, storage: S3Storage) -> set[str]:
        """The files in the table's location."""
        location = self._table.location()
        try:
            check_locations(self._metadata, storage)
            for place in locations_of(self._metadata).values():
                if isinstance(there := table_store(place, storage), PosixStore):
                    self._damage += [each for each in there.obstacles() if each not in self._damage]
            store = table_store(location, storage)
            if isinstance(store, PosixStore) and status(store.folder) is None:  # writers make it
                return set()
            return {each.key for each in store.walk()}
        except StoreError:
            raise
        except ValueError:  # on S3, of a name that other tables must not have
            return set()
        except (SinkError, OSError) as error:
            told = f"{location[:200]}: {error.strerror or error}" if isinstance(error, OSError) else error
            self._damage.append(f"the table's location cannot be read: {told}")
            return set()

    def _ids(self) -> list[int]:
        """Of the columns with stream and shard."""
        schema = self._table.schema()
        return [field.field_id for name in ("stream", "shard") for field in schema.fields if field.name == name]

    def _data_files(self, manifests: Sequence[ManifestFile]) -> list[DataFile]:
        found: list[DataFile] = []
        for manifest in manifests:
            try:
                entries = entries_of(manifest, self._table.io)
            except SinkError as error:
                self._damage.append(str(error))
                continue
            for entry in entries:
                if entry.status == ManifestEntryStatus.DELETED:
                    continue
                if entry.data_file.content == DataFileContent.DATA:
                    found.append(entry.data_file)
                else:
                    self._deletes = True
        return found

    # ---- a shard --------------------------------------------------------------------------------------------------

    def _shard(self, shard: Shard, commits: Sequence[Commit], files: FilesByShard, *, whole: bool) -> ShardState:
        state = ShardState(shard.stream, shard.shard_id, all_commits=whole)
        try:
            state.position = seen_of(self._url, self._metadata).position(shard)
        except SinkError as error:  # a writer stops for it
            state.damage.append(str(error))
            state.position = _written(self._metadata, shard)
        check_commits(commits, state, _WRITER)
        self._check_note(shard, state)
        check_files(files, shard, state, deletes=_DELETES if self._deletes else None)
        return state

    def _check_note(self, shard: Shard, state: ShardState) -> None:
        name = f"{GIVEN_UP}{shard_folders(shard)}"
        note = self._metadata.properties.get(name)
        if note is not None:
            where = f"{self._url}, property {name}"
            judge_note(note_of(lambda: noted(note.encode(), where), state), state)


def _written(metadata: TableMetadata, shard: Shard) -> Position | None:
    """A position as the property has it, whatever has become of its snapshot."""
    try:
        return parse_position(metadata.properties.get(f"{POSITION}{shard_folders(shard)}", "").partition(" ")[0])
    except (ValueError, OverflowError):
        return None


def _shard_of(file: DataFile, ids: Sequence[int]) -> Shard | None:
    """The one shard that all rows of a file are of, by its statistics; None if they do not tell."""
    lower, upper, nulls = file.lower_bounds or {}, file.upper_bounds or {}, file.null_value_counts or {}
    texts = []
    for number in ids:
        least = lower.get(number)
        if least is None or least != upper.get(number) or len(least) >= _CUT or nulls.get(number) != 0:
            return None
        texts.append(least.decode())
    return Shard(*texts) if len(texts) == 2 else None
