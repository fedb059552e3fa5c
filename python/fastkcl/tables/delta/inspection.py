"""Inspects the Delta table of a DeltaSink or a DeltaTable by its remaining log; on POSIX and on S3.

If a table is partitioned by stream and shard, its log has a file's shard. Otherwise `log_inspection` finds it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from fastkcl.tables import storage
from fastkcl.tables.base import Shard, SinkError, parse_json
from fastkcl.tables.delta.checkpoint_content import checkpoint_fault
from fastkcl.tables.delta.checkpoint_damage import checkpoint_damage, checkpoint_doubt
from fastkcl.tables.delta.log import (
    ASIDE,
    KEPT,
    LAST_CHECKPOINT,
    LOG,
    LOST,
    MOST_BYTES,
    entry_key,
    fault,
    gaps,
    log_damage,
    log_folder,
    newest_checkpoint,
    no_files,
    version_named,
    versions,
    whole_checkpoint,
)
from fastkcl.tables.delta.sink import position
from fastkcl.tables.folders import shard_folders
from fastkcl.tables.given_up import NOTES, noted
from fastkcl.tables.inspection import NO_POSITIONS, ShardState, TableState, check_note
from fastkcl.tables.log_inspection import Commit, FilesByShard, check_commits, check_files, commits_of
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store

if TYPE_CHECKING:
    from fastkcl.tables.object_store import ObjectStore

__all__ = ["inspect_delta", "inspect_delta_objects"]

_OF_SINKS: Final = ("stream", "shard")


def inspect_delta(root: Path) -> TableState:
    """Look into the table in a folder."""
    log = log_folder(root)
    damage = log_damage(log, also_before=True)
    checkpoints = checkpoint_damage(log)
    damage += [f"{path}: a damaged checkpoint: {why}" for path, why in checkpoints]
    if doubt := checkpoint_doubt(log):
        damage.append(f"{log}: the newest checkpoint is damaged, or the older one: {doubt}")
    if (aside := root / ASIDE).is_symlink():
        damage.append(f"{aside}: leads elsewhere, so that no checkpoint is made: make it a folder")
    from deltalake import DeltaTable

    with tempfile.TemporaryDirectory(prefix="fastkcl-") as folder:
        shown = root
        without = {path.name for path in (*(path for path, _ in checkpoints), *no_files(log))}
        if without:  # as the next writer opens it
            shown = Path(folder)
            log_folder(shown).mkdir()
            for name in set(storage.names(log)) - without:
                (log_folder(shown) / name).symlink_to(log.absolute() / name)
        return _inspect_log(PosixStore(root), lambda: DeltaTable(shown), damage)


def inspect_delta_objects(store: ObjectStore) -> TableState:
    """Look into the table on an object store."""
    from deltalake import DeltaTable

    damage = []
    kept, _ = whole_checkpoint(_names_with_content(store))
    there = versions(_log_names(store))
    for version in gaps(kept + 1, [version for version in there if version > kept]):
        damage.append(f"{store.url}/{entry_key(version)}: missing, and there are later ones")
    for version in there:
        text = store.read(entry_key(version), MOST_BYTES)
        if text is not None and (why := fault(text)):
            damage.append(f"{store.url}/{entry_key(version)}: {why}: {KEPT if version <= kept else LOST}")
    with suppress(FileNotFoundError):  # a clean-up
        if why := checkpoint_fault(store, _names_with_content(store)):
            damage.append(why)
    damage += _named_fault(store)
    return _inspect_log(store, lambda: DeltaTable(store.url, storage_options=store.library_options()), damage)


def _named_fault(store: Store) -> list[str]:
    """What is wrong with `_last_checkpoint` on an object store: a reader looks for the checkpoint that it names."""
    text = store.read(f"{LOG}/{LAST_CHECKPOINT}", MOST_BYTES)
    if text is None:
        return []
    named = f"{version_named(text):020d}.checkpoint."
    if version_named(text) < 0:
        why = "it names no version"
    elif whole_checkpoint([name for name in _names_with_content(store) if name.startswith(named)])[0] < 0:
        why = f"it names {named}parquet, which is damaged or missing"
    else:
        return []
    return [f"{store.url}/{LOG}/{LAST_CHECKPOINT}: a damaged checkpoint: {why}"]


def _inspect_log(store: Store, opened: Callable[[], Any], damage: list[str]) -> TableState:
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    writer = "DeltaTable"
    try:
        table = opened()
        columns = table.metadata().partition_columns
        if columns == list(_OF_SINKS):
            writer = "DeltaSink"
        actions = pa.table(table.get_add_actions(flatten=True))
        deletes = "deletionVectors" in (table.protocol().reader_features or ())
    except DeltaError as error:
        if damage:
            return TableState(store.url, writer, (), (), tuple(damage))
        raise SinkError(f"{store.url}: {str(error).partition(chr(10))[0]}") from error
    files = FilesByShard(store.open, exists=_existing(store))
    for action in actions.to_pylist():
        stream, shard_id = (action.get(f"partition.{name}") for name in _OF_SINKS)
        files.take(unquote(action["path"]), stream, shard_id, by_log=set(_OF_SINKS) <= set(columns))
    damage += [f"{store.url}/{name}: the log names it, and it is missing" for name in sorted(files.missing)]
    about: dict[Shard, list[Commit]] = {shard: [] for shard in files.of}
    log = _infos(store, table.version(), damage)
    for version, info in log.items():
        where = f"{store.url}/{entry_key(version)}: its part of a {writer}"
        for commit in commits_of(info.get("fastkcl"), where, damage):
            about.setdefault(commit.shard, []).append(commit)
    if not about and writer == "DeltaTable":
        raise SinkError(f"{store.url}: a Delta table without commits of a DeltaTable or a DeltaSink; {NO_POSITIONS}")
    states = []
    for shard in sorted(about, key=lambda shard: (shard.stream, shard.shard_id)):
        state = ShardState(shard.stream, shard.shard_id, all_commits=0 in log, position=position(table, shard))
        check_commits(about[shard], state, "DeltaSink")
        _check_note(store, shard, state)
        check_files(files, shard, state, deletes="vectors" if deletes else None)
        states.append(state)
    return TableState(store.url, writer, tuple(states), tuple(sorted(files.unknown)), tuple(damage))


def _check_note(store: Store, shard: Shard, state: ShardState) -> None:
    if isinstance(store, PosixStore):
        check_note(store.folder, shard_folders(shard), state)
        return
    key = f"{NOTES}/{shard_folders(shard)}"
    try:
        text = store.read(key, 1 << 20)
        if text is not None:
            noted(text, f"{store.url}/{key}")
    except (SinkError, OSError) as error:
        state.damage.append(str(error))


def _existing(store: Store) -> Callable[[str], bool]:
    """Whether a file is there; on an object store by one list of all."""
    if isinstance(store, PosixStore):
        folder = store.folder
        return lambda name: storage.status(folder / name) is not None
    return {found.key for found in store.walk()}.__contains__


def _names_with_content(store: Store) -> list[str]:
    return [each.key.rpartition("/")[2] for each in store.files(LOG) if each.size]


def _log_names(store: Store) -> list[str]:
    return [each.key.rpartition("/")[2] for each in store.files(LOG)]


def _infos(store: Store, last: int, damage: list[str]) -> dict[int, dict[str, Any]]:
    """The commits' descriptions, by version, as far as the log is left.

    A clean-up that a power cut has interrupted leaves entries before others that are gone: these are not the log any
    more. deltalake's `history()` counts versions down from the handle's, and begins with commits that are newer than
    that.
    """
    log: dict[int, dict[str, Any]] = {}
    names = _log_names(store)
    for version in versions(names):
        if version > last:
            continue
        key = entry_key(version)
        try:
            text = store.read(key, MOST_BYTES)
            if text is None:  # a clean-up
                continue
            lines = [parse_json(line) for line in text.splitlines() if line]
            log[version] = {name: value for line in lines for name, value in line.get("commitInfo", {}).items()}
        except (SinkError, ValueError, AttributeError) as error:
            if not any(each.startswith(f"{store.url}/{key}:") for each in damage):
                raise SinkError(f"{store.url}/{key}: no commit of a Delta table: {error}") from error
    if isinstance(store, PosixStore):
        checkpoint, _ = newest_checkpoint(log_folder(store.folder), names)
    else:
        checkpoint, _ = whole_checkpoint([each.key.rpartition("/")[2] for each in store.files(LOG) if each.size])
    first = max((version for version in log if version - 1 not in log and version - 1 <= checkpoint), default=0)
    return {version: info for version, info in log.items() if version >= first}
