"""The files of a checkpoint, without their names: there may be millions."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from fastkcl.tables.base import Shard
from fastkcl.tables.delta.checkpoint_content import DamageError
from fastkcl.tables.delta.sidecars import ElsewhereError, files_in
from fastkcl.tables.folders import data_folder, quoted, spelled
from fastkcl.tables.store import Store

__all__ = ["FileCount", "counted", "counted_without"]


@dataclass(slots=True)
class FileCount:
    """Files of a checkpoint, without their names: there may be millions."""

    count: int = 0
    sum: int = 0
    """Of the hashes of their names."""

    def add(self, name: str) -> None:
        """Take in one."""
        self.count += 1
        self.sum += hash(name)


def counted(store: Store, names: Sequence[str], others: Container[str]) -> FileCount:
    """Of a checkpoint, but for others.

    Raises:
        FileNotFoundError: a file of it is not there.
        ValueError: one is damaged, or it has files elsewhere.
    """
    import pyarrow as pa

    found = FileCount()
    try:
        for name in names:
            for paths in files_in(store, name):
                for path in map(unquote, paths):
                    if path not in others:
                        found.add(path)
    except (pa.ArrowException, KeyError, TypeError, AttributeError) as error:
        raise ValueError(repr(error)) from error
    return found


def counted_without(
    store: Store, names: Sequence[str], missing: set[str], without: Shard | None = None
) -> tuple[FileCount, str | None]:
    """Take away from `missing` what a checkpoint has; its files, and what is wrong with a path.

    A file that a writer made for the shard `without`, which has no position, is wrong.

    Raises:
        FileNotFoundError: a file of it is not there.
        DamageError: one is damaged.
        ElsewhereError: it has files elsewhere.
    """
    folders = () if without is None else tuple(f"{each}/after-" for each in _folders(without))
    import pyarrow as pa

    found = FileCount()
    for name in names:
        try:
            for paths in files_in(store, name):
                if not all(path and "\0" not in path for path in paths):
                    return found, "the path of a file in it is damaged"
                names_there = list(map(unquote, paths))
                if without is not None and any(path.startswith(folders) for path in names_there):
                    return found, f"it has files of {without.stream}, {without.shard_id}, and no position"
                for path in names_there:
                    found.add(path)
                missing.difference_update(names_there)
        except ElsewhereError:
            raise
        except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamageError(name, str(error).partition("\n")[0][:300]) from error
    return found, None


def _folders(shard: Shard) -> tuple[str, str]:
    """Where the files of a shard are, if the table is partitioned by both; and where an earlier DeltaTable put them."""
    return (
        data_folder(f"{quoted(shard.stream)}/{quoted(shard.shard_id)}"),
        data_folder(f"{spelled(shard.stream)}/{spelled(shard.shard_id)}"),
    )
