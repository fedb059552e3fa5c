"""Compaction of a Delta table: many small files become few large ones, one closed day at a time.

deltalake does it (OPTIMIZE): one commit removes the small files and adds the large ones, without a change of rows.
Writers can append at the same time, and readers see either the small files or the large ones. An open day would have to
be compacted again later. So only the days before a given one are compacted, by default those before today.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import NoReturn
from urllib.parse import unquote

from fastkcl import ConfigurationError
from fastkcl.tables.base import RECOVERY, SinkError
from fastkcl.tables.delta.head import DeltaHead
from fastkcl.tables.delta.log import log_damage
from fastkcl.tables.formats import format_of
from fastkcl.tables.object_store import ObjectStore, S3Storage
from fastkcl.tables.parquet.table import store_of
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.storage import file_status

__all__ = ["Compacted", "compact_delta", "refuse_iceberg"]

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
        OSError: it cannot be read.
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
    DeltaHead(store).open()  # as a writer, which stops for damage under a checkpoint, too
    options = store.library_options() if isinstance(store, ObjectStore) else None
    done = []
    try:
        table = DeltaTable(store.url, storage_options=options)
        if isinstance(store, PosixStore):
            for path in table.get_add_actions().column("path").to_pylist():
                file = store.folder / unquote(path)
                if file_status(file) is None:
                    raise SinkError(f"{file}: the log names it, and it is missing: restore it from a copy")
        if "date" not in table.metadata().partition_columns:
            if before is not None:
                raise SinkError(
                    f"{store.url}: is not partitioned by date, so it has no days before {before}: leave --before"
                )
            metrics = table.optimize.compact()
            done.append(Compacted("the table", metrics["numFilesRemoved"], metrics["numFilesAdded"]))
        else:
            end = str(min(before or today, today))
            days = {str(each["date"]) for each in table.partitions() if each.get("date") is not None}
            for day in sorted(day for day in days if day < end):
                metrics = table.optimize.compact(partition_filters=[("date", "=", day)])
                done.append(Compacted(f"date={day}", metrics["numFilesRemoved"], metrics["numFilesAdded"]))
    except DeltaError as error:
        raise SinkError(f"{store.url}: {str(error).partition(chr(10))[0]}") from error
    return [each for each in done if each.removed]
