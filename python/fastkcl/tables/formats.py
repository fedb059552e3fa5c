"""The formats of tables; each is recognized by a mark that only its tables have."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from fastkcl.tables import storage as files
from fastkcl.tables.base import SinkError
from fastkcl.tables.delta.inspection import inspect_delta, inspect_delta_objects
from fastkcl.tables.inspection import NO_POSITIONS, TableState
from fastkcl.tables.object_store import ObjectStore, S3Storage
from fastkcl.tables.parquet.claim import CLAIM, check_not_lost
from fastkcl.tables.parquet.inspection import inspect_parquet_table
from fastkcl.tables.parquet.sink_inspection import inspect_parquet
from fastkcl.tables.parquet.table import store_of
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store

__all__ = ["FORMATS", "Format", "format_of", "inspect_table"]


class Format(NamedTuple):
    """A format of tables."""

    mark: str
    """A folder, or the claim; of the formats whose mark a table has, the first one counts."""
    writer: str
    """The class that writes them; DeltaSink's tables are DeltaTable's, too."""
    inspect: Callable[[Path], TableState]
    """On a disk."""
    inspect_objects: Callable[[ObjectStore], TableState] | None
    """On an object store; None where the class writes none there."""


FORMATS: Final = (
    Format("_commits", "ParquetSink", inspect_parquet, None),
    Format("_delta_log", "DeltaTable", inspect_delta, inspect_delta_objects),
    Format(CLAIM, "ParquetTable", lambda root: inspect_parquet_table(PosixStore(root)), inspect_parquet_table),
)
_MARKS: Final = " nor ".join(f"{each.mark} ({each.writer})" for each in FORMATS)


def inspect_table(
    url: str | os.PathLike[str], storage: S3Storage | None = None, catalog: Mapping[str, str] | None = None
) -> TableState:
    """Inspect a table.

    Args:
        url: its folder, or ``s3://bucket/table``; the name of a table in a catalog.
        storage: how S3 is reached.
        catalog: of an Iceberg table; None for others.

    Raises:
        SinkError: there is no table of a sink, or of a format that is not inspected there, or its mark is lost.
        ValueError: the URL is none of a table.
        ConfigurationError: pyiceberg's own file cannot be read, or a package of the catalog is missing.
        OSError: it cannot be read.
        ModuleNotFoundError: pyarrow is missing.
    """
    import pyarrow.parquet  # noqa: F401 - before any work

    if catalog is not None:
        from fastkcl.tables.iceberg.catalog import check_configuration

        check_configuration(catalog)
        from fastkcl.tables.iceberg.inspection import inspect_iceberg

        return inspect_iceberg(os.fspath(url), catalog, storage)
    if os.fspath(url).startswith("s3://"):
        return _inspect_objects(store_of(url, storage))
    root = Path(url)
    for each in FORMATS:
        if files.status(root / each.mark) is not None:
            return each.inspect(root)
    for folder in (folder for each in FORMATS for folder in (*Path(each.mark).parents, Path(each.mark))):
        files.names(root / folder)  # a link that leads nowhere is an error of its own
    check_not_lost(PosixStore(root))
    raise SinkError(f"{root}: no table of a sink; it has neither {_MARKS}; {NO_POSITIONS}")


def _inspect_objects(store: Store) -> TableState:
    found = format_of(store)
    if found.inspect_objects is None or not isinstance(store, ObjectStore):
        raise SinkError(f"{store.url}: a {found.writer}'s table on an object store; {found.writer} writes none there")
    return found.inspect_objects(store)


def format_of(store: Store) -> Format:
    """The format of a table.

    Raises:
        SinkError: there is no table, or its mark is lost.
        OSError: it cannot be read.
    """
    folders = store.folders("")
    for each in FORMATS:
        if each.mark in folders or (each.mark == CLAIM and store.claimed(CLAIM) is not None):
            return each
    check_not_lost(store)
    raise SinkError(f"{store.url}: no table of a worker; it has neither {_MARKS}")
