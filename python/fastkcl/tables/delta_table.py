"""A Delta table that a worker writes itself, each record exactly once; on POSIX and on S3."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from fastkcl.tables.folders import local_folder
from fastkcl.tables.object_store import ObjectStore, S3Storage
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store

__all__ = ["DeltaTable", "Evolve", "PartitionColumn"]

PartitionColumn: TypeAlias = Literal["stream", "shard", "date"]
Evolve: TypeAlias = Literal["refuse", "add"]

_COLUMNS: Final = ("stream", "shard", "date")
_UNSAFE: Final = "AWS_S3_ALLOW_UNSAFE_RENAME"


class DeltaTable:
    """A Delta table in a folder, or below a prefix of a bucket: each record exactly once, a zombie is fenced off.

    The table has the columns of what is written, and ``stream`` and ``shard``, and ``date`` (day of arrival, UTC) if it
    is partitioned by that. It is made at the first write, unless it is there. Needs ``pip install 'fastkcl[delta]'``.

    Args:
        url: a path on a POSIX file system, or ``s3://bucket/table``, which needs ``pip install 'fastkcl[delta,s3]'``.
        partition_by: of a new table: any of ``"stream"``, ``"shard"`` and ``"date"``; ``("date",)`` if None. A table
            that is there goes on with its own, a DeltaSink's by stream and shard too; another one given here is refused.
        evolve: for a column that the table does not have: ``"refuse"`` raises SinkError, ``"add"`` adds it.
        storage: how S3 is reached.

    Raises:
        ValueError: `url` is something else, or an option; or AWS_S3_ALLOW_UNSAFE_RENAME is set.
        TypeError: `storage` beside a path.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        partition_by: Sequence[PartitionColumn] | None = None,
        evolve: Evolve = "refuse",
        storage: S3Storage | None = None,
    ) -> None:
        if partition_by is not None and (
            isinstance(partition_by, str)
            or not set(partition_by) <= set(_COLUMNS)
            or len(set(partition_by)) != len(partition_by)
        ):
            raise ValueError(f"partition_by={partition_by!r}: must be some of {', '.join(_COLUMNS)}, each once")
        if evolve not in ("refuse", "add"):
            raise ValueError(f"evolve={evolve!r}: must be 'refuse' or 'add'")
        self._partition_by = None if partition_by is None else list(partition_by)
        self._evolve = evolve
        self._store = _store_of(url, storage)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._store.url


def _store_of(url: str | os.PathLike[str], storage: S3Storage | None) -> Store:
    text = os.fspath(url)
    if text.startswith("s3://"):
        if os.environ.get(_UNSAFE):
            raise ValueError(f"{_UNSAFE} is set: two writers of a Delta table would both succeed. Unset it")
        return ObjectStore(text, storage or S3Storage())
    if storage is not None:
        raise TypeError(f"storage= is for s3:// URLs, and {text} is none")
    root = local_folder(url, "DeltaTable")
    if "%" in str(root):
        raise ValueError(f"{root}: deltalake would take the % for an escape: choose a path without")
    return PosixStore(root)
