"""Compaction of a Delta table: many small files become few large ones, one closed day at a time.

deltalake does it (OPTIMIZE): one commit removes the small files and adds the large ones, without a change of rows.
Writers can append at the same time, and readers see either the small files or the large ones. An open day would have to
be compacted again later. So only the days before a given one are compacted, by default those before today.

deltalake syncs nothing. So on POSIX each day's large files are synced after its commit, and then its entry. A power cut
before that can leave an entry whose files are empty.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote

from fastkcl import ConfigurationError
from fastkcl.tables.base import RECOVERY, SinkError
from fastkcl.tables.delta.head import DeltaHead
from fastkcl.tables.delta.log import LOG, checkpoint_version, entry_key, log_damage, versions
from fastkcl.tables.formats import format_of
from fastkcl.tables.object_store import ObjectStore, S3Storage
from fastkcl.tables.parquet.table import store_of
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.storage import file_status
from fastkcl.tables.store import StoreError

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["Compacted", "compact_delta", "refuse_iceberg"]

_LOOKS = 5
"""At a log that is cleaned up meanwhile."""
_PAUSE = 0.2  # seconds, after the first of them
_REFUSED = {
    "ParquetTable": "its readers list its files, so they would see the small ones and the large one: write a DeltaTable"
    " to have them compacted, or larger files by a larger max_age",
    "ParquetSink": "its readers list its files, so they would see the small ones and the large one: use a DeltaSink",
}


def refuse_iceberg(name: str) -> NoReturn:
    """An Iceberg table is compacted by an engine: pyiceberg does not rewrite files.

    Raises:
        SinkError: always; it has the statement.
    """
    raise SinkError(
        f"{name}: an Iceberg table is compacted by an engine, and writers go on meanwhile. In Spark:"
        f" CALL <catalog>.system.rewrite_data_files(table => '{name}')"
    )


@dataclass(frozen=True, slots=True)
class Compacted:
    """A part of a table."""

    part: str
    """``date=2026-11-22``, or the whole table."""
    removed: int
    """Files that readers no longer see."""
    added: int
    """Files in their place."""


def compact_delta(
    url: str, storage: S3Storage | None = None, *, before: date | None = None, today: date
) -> list[Compacted]:
    """Compact the days of a table before one.

    Args:
        url: its folder, or ``s3://bucket/table``.
        storage: how S3 is reached.
        before: this day and later ones are left; today if None.
        today: in UTC.

    Returns:
        The parts in which something was to be done.

    Raises:
        SinkError: it is not a Delta table, has no days and `before` is given, or was not committed; its log is damaged,
            so that a writer would stop, too; or something else is in the place of a file, such as a FIFO, which
            deltalake would wait for without end.
        ConfigurationError: deltalake is not installed.
        OSError: it cannot be read, or not be synced.
    """
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise ConfigurationError("deltalake is not installed: pip install 'fastkcl[delta]'") from error
    store = store_of(url, storage)
    form = format_of(store).writer
    if form in _REFUSED:
        raise SinkError(f"{store.url}: a table of a {form} is not compacted: {_REFUSED[form]}")
    if damage := log_damage(store):
        raise SinkError(f"{damage[0]}. {RECOVERY}")
    head = DeltaHead(store)
    head.open()  # as a writer, which stops for damage under a checkpoint, too
    options = store.library_options() if isinstance(store, ObjectStore) else None
    done = []
    try:
        table = DeltaTable(store.url, storage_options=options)
        kept = _Kept(store) if isinstance(store, PosixStore) else None
        if kept is not None:
            kept.check(table)
            kept.keep(table)
        for part, filters in _parts(store.url, table, before, today):
            metrics = table.optimize.compact(partition_filters=filters)
            done.append(Compacted(part, metrics["numFilesRemoved"], metrics["numFilesAdded"]))
            if kept is not None:
                kept.keep(table)
    except DeltaError as error:
        raise SinkError(f"{store.url}: {str(error).partition(chr(10))[0]}") from error
    if kept is not None:
        head.open()  # syncs what names the newest checkpoint
    return [each for each in done if each.removed]


def _parts(
    url: str, table: DeltaTable, before: date | None, today: date
) -> list[tuple[str, list[tuple[str, str, str]] | None]]:
    """The parts of a table that are compacted, and deltalake's filters of them.

    Raises:
        SinkError: it has no days, and `before` is given.
    """
    if "date" not in table.metadata().partition_columns:
        if before is not None:
            raise SinkError(f"{url}: is not partitioned by date, so it has no days before {before}: leave --before")
        return [("the table", None)]
    end = str(min(before or today, today))
    days = {str(each["date"]) for each in table.partitions() if each.get("date") is not None}
    return [(f"date={day}", [("date", "=", day)]) for day in sorted(day for day in days if day < end)]


class _Kept:
    """What is synced of a table on POSIX.

    Args:
        store: the table's.
    """

    def __init__(self, store: PosixStore) -> None:
        self._store = store
        self._version = -1  # up to which the entries are synced
        self._paths: set[str] = set()

    def check(self, table: DeltaTable) -> None:
        """See that each file that a table names is there, and is a file.

        Raises:
            SinkError: it is not.
        """
        for path in _paths(table):
            file = self._store.folder / path
            if file_status(file) is None:
                raise SinkError(f"{file}: the log names it, and it is missing: restore it from a copy")
            if path.startswith("after-") or "/after-" in path:  # a writer of ours syncs before its entry
                self._paths.add(path)

    def keep(self, table: DeltaTable) -> None:
        """Sync the files that are new in a table, their folders, and then the entries and checkpoints that name them.

        An earlier run, or another program's, may have died before the sync of its own.
        """
        new = _paths(table) - self._paths
        for _, paths in groupby(sorted(new), key=lambda path: path.rpartition("/")[0]):
            self._store.settle(*paths)
        self._paths |= new
        for look in range(1, _LOOKS + 1):
            try:
                self._keep_log(table)
            except FileNotFoundError as error:  # cleaned up between the look and the sync
                if look == _LOOKS:
                    raise StoreError(
                        f"{error.filename}: the log's files go while they are synced: is it cleaned up? Try again"
                    ) from None
                time.sleep(_PAUSE * look)
            else:
                break

    def _keep_log(self, table: DeltaTable) -> None:
        names = [each.key.rpartition("/")[2] for each in self._store.files(LOG)]
        if there := [entry_key(version) for version in versions(names) if self._version < version <= table.version()]:
            self._store.settle(*there)
        if made := [f"{LOG}/{name}" for name in names if self._version < checkpoint_version(name) <= table.version()]:
            self._store.settle(*made)
        self._version = table.version()


def _paths(table: DeltaTable) -> set[str]:
    return {unquote(path) for path in table.get_add_actions().column("path").to_pylist()}
