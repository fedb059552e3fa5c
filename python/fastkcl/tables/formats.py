"""The formats of tables; each is recognized by a folder that only its tables have."""

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
from fastkcl.tables.parquet.inspection import inspect_parquet_table
from fastkcl.tables.parquet.sink_inspection import inspect_parquet
from fastkcl.tables.parquet.table import CLAIM, store_of
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store

__all__ = ["FORMATS", "Format", "format_of", "inspect_table"]


class Format(NamedTuple):
    """A format of tables."""

    folder: str
    """Only tables of this format have it; of those that have several, the first one counts."""
    sink: str
    """The class that writes them."""
    inspect: Callable[[Path], TableState]


FORMATS: Final = (
    Format("_commits", "ParquetSink", inspect_parquet),
    Format("_delta_log", "DeltaSink", inspect_delta),
    Format(CLAIM, "ParquetTable", lambda root: inspect_parquet_table(PosixStore(root))),
)


def inspect_table(
    url: str | os.PathLike[str], storage: S3Storage | None = None, catalog: Mapping[str, str] | None = None
) -> TableState:
    """Inspect a table.

    Args:
        url: its folder, or ``s3://bucket/table``; the name of a table in a catalog.
        storage: how S3 is reached.
        catalog: of an Iceberg table; None for others.

    Raises:
        SinkError: there is no table of a sink, or of a format that is not inspected there.
        ValueError: the URL is none of a table.
        OSError: it cannot be read.
        ModuleNotFoundError: pyarrow is missing.
    """
    import pyarrow.parquet  # noqa: F401 - before any work

    if catalog is not None:
        from fastkcl.tables.iceberg.inspection import inspect_iceberg

        return inspect_iceberg(os.fspath(url), catalog, storage)
    if os.fspath(url).startswith("s3://"):
        return _inspect_objects(store_of(url, storage))
    root = Path(url)
    for each in FORMATS:
        if files.status(root / each.folder) is not None:
            return each.inspect(root)
    folders = " nor ".join(f"{each.folder} ({each.sink})" for each in FORMATS)
    raise SinkError(f"{root}: no table of a sink; it has neither a folder {folders}; {NO_POSITIONS}")


def _inspect_objects(store: Store) -> TableState:
    found = format_of(store)
    if found == "ParquetTable":
        return inspect_parquet_table(store)
    if found == "DeltaTable" and isinstance(store, ObjectStore):
        return inspect_delta_objects(store)
    raise SinkError(f"{store.url}: a {found}'s table on an object store; {found} writes none there")


def format_of(store: Store) -> str:
    """The class that writes a table: ``ParquetSink``, ``DeltaTable`` (for DeltaSink's, too), ``ParquetTable``.

    Raises:
        SinkError: there is no table.
        OSError: it cannot be read.
    """
    folders = store.folders("")
    if "_commits" in folders:
        return "ParquetSink"
    if "_delta_log" in folders:
        return "DeltaTable"
    if store.claimed(CLAIM) is not None:
        return "ParquetTable"
    raise SinkError(
        f"{store.url}: no table of a worker; it has neither _commits (ParquetSink), _delta_log (Delta) nor {CLAIM}"
        " (ParquetTable)"
    )
