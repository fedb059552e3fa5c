"""Files of a table that nobody reads: a writer staged them and died before its commit.

    Delta          data files that no entry of the log and no checkpoint names, of names that our writers give:
                   after-<position>-<random>.parquet, and all in after-<position>-<random>/, where Spark stages. A
                   log's folder does not matter: names have random bits, and a log may spell one folder in several ways
    Iceberg        `iceberg.orphans`: files that no metadata names which the table still has
    ParquetTable   none, because the data file is the commit; on POSIX, files whose writing was not finished

A version of a Delta table names the files that it removes; these belong to VACUUM. Files are listed before the log is
read, and entries before the checkpoint that may replace them. So files that are committed in the meantime are named.

Rules: a file younger than a day is never an orphan. A writer stages files again that are older than 23 hours before
their commit. A DeltaSink also looks whether they are there. Only Parquet data files count; deletion vectors have other
names. A file in another table below is that one's (`nested`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from fastkcl.tables.base import RECOVERY, SinkError, parse_json
from fastkcl.tables.delta.checkpoint_comparison import checkpoint_fault
from fastkcl.tables.delta.entry_content import fault
from fastkcl.tables.delta.head import DeltaHead
from fastkcl.tables.delta.log import LOG, MOST_BYTES, gaps, versions, whole_checkpoint
from fastkcl.tables.folders import START, own_name
from fastkcl.tables.formats import format_of
from fastkcl.tables.nested import iceberg_tables, not_in
from fastkcl.tables.object_store import S3Storage
from fastkcl.tables.parquet.table import store_of
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Found, Store

__all__ = ["LEAST_AGE", "Orphans", "find_orphans"]

LEAST_AGE: Final = 86_400.0
"""Seconds: no younger file is an orphan."""
_DATA: Final = re.compile(
    rf"(?:(?:stream|shard|date)=[^/]+/)*after-(?:{START}|[0-9]+(?:\.[0-9]+)?)-"
    r"(?:[0-9a-f]{24}\.parquet|[0-9a-f]{16}/[^/]+\.parquet)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Orphans:
    """Files that nobody reads."""

    store: Store
    files: tuple[Found, ...]

    def delete(self) -> None:
        """Delete them.

        Raises:
            OSError: one cannot be deleted.
        """
        for each in self.files:
            self.store.remove(each.key)


def find_orphans(
    url: str,
    storage: S3Storage | None = None,
    *,
    older_than: float = 3 * LEAST_AGE,
    catalog: Mapping[str, str] | None = None,
) -> Orphans:
    """The files of a table that nobody reads.

    Args:
        url: its folder, or ``s3://bucket/table``; the name of a table in a catalog.
        storage: how S3 is reached.
        older_than: seconds, a day at least.
        catalog: of an Iceberg table; None for others.

    Raises:
        SinkError: there is no table of a format that can have some, or its log is damaged.
        ValueError: `older_than` is less than a day, or the URL is none of a table.
        ConfigurationError: pyiceberg's own file cannot be read, or a package of the catalog is missing.
        OSError: it cannot be read.
    """
    if not older_than >= LEAST_AGE:
        raise ValueError(f"older_than={older_than}: at least a day: a younger file may be one that is being committed")
    before = time.time() - older_than
    if catalog is not None:
        from fastkcl.tables.iceberg.catalog import check_configuration

        check_configuration(catalog)
        from fastkcl.tables.iceberg.orphans import iceberg_orphans

        where, found = iceberg_orphans(url, catalog, storage, before=before)
        return Orphans(where, tuple(found))
    store = store_of(url, storage)
    form = format_of(store).writer
    if form == "ParquetTable":
        dead = store.dead() if isinstance(store, PosixStore) else []
        return Orphans(store, tuple(each for each in dead if each.modified < before))
    if form != "DeltaTable":
        raise SinkError(
            f"{store.url}: a table of a {form}, whose next writer publishes or drops what was staged; `fastkcl sink"
            " inspect` lists files of no commit"
        )
    there = store.walk()
    others = iceberg_tables(store, there)
    files = [each for each in there if each.modified < before and _DATA.fullmatch(each.key)]
    named = _named(store)
    left = [each for each in files if own_name(each.key) not in named]
    return Orphans(store, tuple(not_in(store, left, others)))


def _named(store: Store) -> set[str]:
    """The files that the log names, now or as removed, by their own names.

    Raises:
        SinkError: a part of the log is missing or damaged: what it names is no orphan.
    """
    found: set[str] = set()
    listed = versions([each.key.rpartition("/")[2] for each in store.files(LOG)])
    there = []
    for version in listed:
        key = f"{LOG}/{version:020d}.json"
        text = store.read(key, MOST_BYTES)
        if text is None:  # a clean-up: a checkpoint has it
            continue
        there.append(version)
        if why := fault(text):
            raise SinkError(f"{store.url}/{key}: {why}, so nothing is called an orphan. {RECOVERY}")
        try:
            for line in text.splitlines():
                if line:
                    found.update(_paths(parse_json(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SinkError(f"{store.url}/{key}: no entry of a Delta log: {error!r}") from error
    newest, names = whole_checkpoint([each.key.rpartition("/")[2] for each in store.files(LOG) if each.size])
    if missing := gaps(newest + 1, [version for version in there if version > newest]):
        raise SinkError(
            f"{store.url}/{LOG}/{missing[0]:020d}.json: missing, and no whole checkpoint has it, so nothing is called"
            f" an orphan. {RECOVERY}"
        )
    if any(version > newest for version in set(listed) - set(there)):
        raise SinkError(f"{store.url}/{LOG}: its newest entry went while it was read: try again")
    for name in names:
        found |= _in_checkpoint(store, f"{LOG}/{name}")
    files = [(each.key.rpartition("/")[2], each.size) for each in store.files(LOG)]
    if why := checkpoint_fault(store, [name for name, size in files if size or versions([name])]):
        raise SinkError(f"{why}: nothing is called an orphan")
    try:
        DeltaHead(store).open()  # as a writer: an entry may be a copy of another one, in whose place files are missing
    except SinkError as error:
        raise SinkError(f"{error}: nothing is called an orphan") from None
    return found


def _paths(action: dict[str, Any]) -> list[str]:
    return [own_name(unquote(action[kind]["path"])) for kind in ("add", "remove") if action.get(kind) is not None]


def _in_checkpoint(store: Store, key: str) -> set[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = store.open(key) if key.endswith(".parquet") else None
    if file is None:
        raise SinkError(f"{store.url}/{key}: a checkpoint that this does not read, so nothing is called an orphan")
    found: set[str] = set()
    with file:
        try:
            with pq.ParquetFile(file) as checkpoint:
                kinds = [kind for kind in ("add", "remove", "sidecar") if kind in checkpoint.schema_arrow.names]
                if "add" not in kinds:
                    raise ValueError("it has no column add")
                for batch in checkpoint.iter_batches(columns=[f"{kind}.path" for kind in kinds]):
                    for kind in kinds:
                        paths = batch.column(kind).field("path").to_pylist()
                        if kind == "sidecar" and any(paths):
                            raise SinkError(
                                f"{store.url}/{key}: a checkpoint with sidecars, which this does not read: nothing is"
                                " called an orphan"
                            )
                        found.update(own_name(unquote(path)) for path in paths if path is not None)
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SinkError(f"{store.url}/{key}: a damaged checkpoint: {error}") from error
    return found
