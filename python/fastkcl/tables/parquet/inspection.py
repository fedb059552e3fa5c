"""Inspects a ParquetTable: each shard's chain of files, by their footers, and the keys of their rows.

    files of a shard, in order    each continues from where the one before it ends, and lies in the day that it names
    the first of them             begins at the shard's start, unless older files were deleted, which users may do
    files with other names        readers see them, and no writer has made them

Works by the verbs of `store` alone: on POSIX and on S3. Old files are read by their ends and key columns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Final

from fastkcl.tables.base import RECOVERY, Shard, SinkError
from fastkcl.tables.folders import unspelled
from fastkcl.tables.inspection import ShardState, TableState, check_rows, judge_note, note_of, rows_after
from fastkcl.tables.parquet.chain import BEGINNING, Footer, State
from fastkcl.tables.parquet.claim import CLAIM, check_not_lost, parse_claim
from fastkcl.tables.parquet.footers import check_footer, read_footer
from fastkcl.tables.parquet.table import read_note
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store

__all__ = ["inspect_parquet_table"]

_FILE: Final = re.compile(r"(stream=([^/]+)/shard=([^/]+))/(?:date=(\d{4}-\d\d-\d\d)/)?(after-[^/]*)")
_AT_ONCE: Final = 8  # footers that are read, of which each takes a store some time


def inspect_parquet_table(store: Store) -> TableState:
    """Look into a table.

    Raises:
        SinkError: there is no ParquetTable, or one of a newer version, or its claim is lost.
        OSError: it cannot be read.
    """
    text = store.claimed(CLAIM)
    if not text:
        check_not_lost(store)
    if text is None:
        raise SinkError(f"{store.url}: no ParquetTable: it has no {CLAIM}: restore it from a copy")
    claim = parse_claim(text, store.url)
    shards: dict[str, _Files] = {}
    unknown = []
    for key, _, _ in store.walk():
        found = _FILE.fullmatch(key)
        if found is None:
            unknown.append(key)
        else:
            folder, stream, shard_id = found[1], found[2], found[3]
            shard = Shard(unspelled(stream), unspelled(shard_id))
            shards.setdefault(folder, _Files(folder, shard)).keys.append(key)
    states = []
    for folder, files in sorted(shards.items()):
        files.unknown = [key for key in unknown if key.startswith(f"{folder}/")]
        states.append(_inspect_shard(store, claim, files))
    inside = {key for files in shards.values() for key in files.unknown}
    left = tuple(key for key in unknown if key not in inside)
    return TableState(store.url, "ParquetTable", tuple(states), left, (*_folders_of_files(store), *_obstacles(store)))


def _obstacles(store: Store) -> list[str]:
    return store.obstacles() if isinstance(store, PosixStore) else []


def _folders_of_files(store: Store) -> Iterator[str]:
    """Names folders in the places of files: a chain does not miss its newest file. Object stores have no folders."""
    if not isinstance(store, PosixStore):
        return
    for folder, folders, _ in os.walk(store.folder):
        folders[:] = [name for name in folders if name[0] not in "_."]
        for name in folders:
            key = Path(folder, name).relative_to(store.folder).as_posix()
            if _FILE.fullmatch(key):
                yield f"{key}: a folder is in the place of a file: restore the file from a copy; {RECOVERY}"


class _Files:
    """Of a shard."""

    def __init__(self, folder: str, shard: Shard) -> None:
        self.folder = folder
        self.shard = shard
        self.keys: list[str] = []
        """In the order of the chain."""
        self.unknown: list[str] = []


def _inspect_shard(store: Store, claim: dict[str, Any], files: _Files) -> ShardState:
    state = ShardState(files.shard.stream, files.shard.shard_id, unknown=files.unknown)
    note = note_of(lambda: read_note(store, files.folder), state)

    def read(key: str) -> Footer | str:
        """A footer, or its fault."""
        try:
            footer = read_footer(store, key)
            if footer is None:
                return f"{key}: it was there, and is gone"
            check_footer(footer, key, claim["id"], files.shard, claim.get("partition", ""))
        except ValueError as error:
            return f"{key}: not written by this table's writers, or damaged: {error}"
        except SinkError as error:
            return str(error)
        return footer

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        footers = list(pool.map(read, files.keys))
    chain = []
    for key, footer in zip(files.keys, footers, strict=True):
        if isinstance(footer, str):
            state.damage.append(footer)
        else:
            chain.append((key, footer))
    _check_chain(
        files.folder, chain, state, beginning=BEGINNING if claim.get("partition") == "date" else State(None, None)
    )
    judge_note(note, state)

    def opened(name: str) -> BinaryIO:
        file = store.open(name)
        if file is None:
            raise FileNotFoundError(f"{name}: it was there, and is gone")
        return file

    units = [[key] for key, footer in chain if footer.rows] + [[key] for key in files.unknown]
    check_rows(opened, list(enumerate(units)), state)
    if chain and not chain[-1][1].has_checksum and (fault := rows_after(state)):
        state.damage.append(f"{chain[-1][0]}: not written by this table's writers, or damaged: {fault}")
    return state


def _check_chain(folder: str, chain: Sequence[tuple[str, Footer]], state: ShardState, *, beginning: State) -> None:
    """See that each file continues from the one before it."""
    before: State | None = None
    for key, footer in chain:
        expected = beginning if before is None else before
        if key != f"{folder}/{expected.key}":
            if before is None:
                state.all_commits = False
            elif footer.after != before.position:
                state.gaps.append((footer.after, footer.upto or footer.after))  # type: ignore[arg-type]  # not the first
            else:
                state.damage.append(f"{key}: lies in another day than the file before it names: {expected.key}")
        before = footer.state
        state.records += footer.rows
        state.commits += bool(footer.rows)
    if before is not None:
        state.position = before.position
