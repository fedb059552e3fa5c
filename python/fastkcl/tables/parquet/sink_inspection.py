"""Inspects a table of a ParquetSink by its commit files and published files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastkcl import Position
from fastkcl.tables import storage
from fastkcl.tables.base import RECOVERY, Shard, SinkError
from fastkcl.tables.folders import data_folder
from fastkcl.tables.given_up import NOTES, given_up
from fastkcl.tables.inspection import ShardState, TableState, check_rows, judge_note, note_of, rows_after, span
from fastkcl.tables.parquet.sink import Commit, check_staging, commit_file, read_id, removed, shards
from fastkcl.tables.parquet.sink import commits as commits_of
from fastkcl.tables.posix_store import PosixStore

__all__ = ["inspect_parquet"]


def inspect_parquet(root: Path) -> TableState:
    """Look into the table in a folder."""
    damage = list(_linked_folders(root))
    try:
        read_id(root)
    except SinkError as error:
        damage.append(str(error))
    damage += removed(root)
    found, faults = shards(root)
    damage += faults
    # Before the commits, so that nothing is seen here whose commit is not seen below.
    visible: dict[str, set[str]] = {}
    for name in _visible_files(root):
        visible.setdefault("/".join(name.split("/")[:2]), set()).add(name)
    states = tuple(
        _inspect_shard(root, shard, folders, visible.pop(data_folder(folders), set()))
        for shard, folders in found.items()
    )
    return TableState(str(root), "ParquetSink", states, tuple(sorted(set().union(*visible.values()))), tuple(damage))


def _visible_files(root: Path) -> Iterator[str]:
    """The files that Spark and Arrow read, from the table's folder on."""

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(root, onerror=fail):
        folders[:] = [name for name in folders if name[0] not in "_."]
        yield from (str(Path(folder, name).relative_to(root)) for name in files if name[0] not in "_.")


def _linked_folders(root: Path) -> Iterator[str]:
    """The faults of links to folders, which Spark and Arrow follow, and `_visible_files` does not."""
    for folder, folders, _ in os.walk(root):
        folders[:] = [name for name in folders if name[0] not in "_."]
        for path in (Path(folder, name) for name in folders):
            if path.is_symlink():
                yield f"{path}: leads elsewhere, which readers follow and this does not: make it a folder"


def _inspect_shard(root: Path, shard: Shard, folders: str, visible: set[str]) -> ShardState:
    state = ShardState(shard.stream, shard.shard_id)
    note = note_of(lambda: given_up(PosixStore(root), f"{NOTES}/{folders}"), state)
    try:
        check_staging(root, folders)
    except SinkError as error:
        state.damage.append(str(error))
    try:
        commits = commits_of(root, folders)
    except SinkError as error:
        state.damage.append(str(error))
        return state
    state.commits = len(commits)
    state.records = sum(commit.rows for commit in commits)
    state.position = commits[-1].upto if commits else None
    judge_note(note, state)
    if not commits and storage.status(root / data_folder(folders)) is None:
        state.damage.append(
            f"{root / data_folder(folders)}: gone, and a sink makes it before the folder of the commits, which is"
            f" empty: data and commits were removed; {RECOVERY}"
        )
    _check_chain([(commit.after, commit.upto) for commit in commits], state)
    units: list[list[str]] = []
    named: set[str] = set()
    for commit in commits:
        published = commit.published(folders)
        units.append([name for name in _check_files(root, commit, published, state) if name not in named])
        named.update(published)
    for after, upto in state.unpublished:
        if upto != state.position:  # the writer of the next commit had published this one
            state.damage.append(f"the commit {span(after, upto)} is not published, nor the last: no writer will do it")
    state.unknown = sorted(visible - named)
    units += [[name] for name in state.unknown]
    check_rows(root, list(enumerate(units)), state)
    is_sure = bool(commits) and commits[-1].has_checksum
    if commits and not (is_sure and state.damage) and (fault := rows_after(state)):
        file = commit_file(root, folders, commits[-1].after)
        what = f"{file}: a damaged commit file"
        if is_sure:
            what = f"{root}: a file of {shard.stream}, {shard.shard_id} is another one than was committed"
        state.damage.append(f"{what} ({fault}): restore it from a copy; {RECOVERY}")
    return state


def _check_chain(commits: Sequence[tuple[Position | None, Position]], state: ShardState) -> None:
    ends = {upto for _, upto in commits}
    befores: set[Position | None] = set()
    for after, upto in commits:
        # Commits that pass all three are one chain from the start.
        if after is not None and after not in ends:
            state.gaps.append((after, upto))
        if after is not None and upto <= after:
            state.damage.append(f"the commit {span(after, upto)} ends before it begins")
        if after in befores:
            state.damage.append(f"the commit {span(after, upto)} is not the only one that begins there")
        befores.add(after)


def _check_files(root: Path, commit: Commit, published: Sequence[str], state: ShardState) -> list[str]:
    """The files of a commit that readers see."""
    seen, waiting = [], False
    for name, target in zip(commit.files, published, strict=True):
        try:
            if storage.file_status(root / target) is not None:
                seen.append(target)
            elif storage.file_status(root / commit.staging / name) is not None:
                waiting = True
            elif storage.file_status(root / target) is not None:  # published since the first look
                seen.append(target)
            else:
                state.missing.append(target)
        except SinkError as error:
            state.damage.append(str(error))
    if waiting:
        state.unpublished.append((commit.after, commit.upto))
    return seen
