"""What a Delta table of a DeltaSink holds, by its log as far as it is left."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from fastkcl import Position
from fastkcl.tables import storage
from fastkcl.tables.base import Shard, SinkError, parse_json, place
from fastkcl.tables.delta import position
from fastkcl.tables.delta_log import (
    ASIDE,
    MOST_BYTES,
    checkpoint_damage,
    entry,
    log_damage,
    log_folder,
    newest_checkpoint,
    no_files,
)
from fastkcl.tables.folders import parse_position, shard_folders
from fastkcl.tables.inspection import NO_POSITIONS, ShardState, TableState, check_note, check_rows

__all__ = ["inspect_delta"]

_REWRITTEN = -1  # in place of a commit


def inspect_delta(root: Path) -> TableState:
    """Look into the table in a folder."""
    log = log_folder(root)
    damage = log_damage(log)
    checkpoints = checkpoint_damage(log)
    damage += [f"{path}: a damaged checkpoint: {why}" for path, why in checkpoints]
    if (aside := root / ASIDE).is_symlink():
        damage.append(f"{aside}: leads elsewhere, so that no checkpoint is made: make it a folder")
    with tempfile.TemporaryDirectory(prefix="fastkcl-") as folder:
        shown = root
        without = {path.name for path in (*(path for path, _ in checkpoints), *no_files(log))}
        if without:  # as the next writer opens it
            shown = Path(folder)
            log_folder(shown).mkdir()
            for name in set(storage.names(log)) - without:
                (log_folder(shown) / name).symlink_to(log.absolute() / name)
        return _inspect_log(root, shown, damage)


def _inspect_log(root: Path, shown: Path, damage: list[str]) -> TableState:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(shown)
        if table.metadata().partition_columns != ["stream", "shard"]:
            raise SinkError(
                f"{root}: a Delta table, but none of a DeltaSink: it is not partitioned by stream and shard, and this"
                f" version looks into no others; {NO_POSITIONS}"
            )
        actions = pa.table(table.get_add_actions(flatten=True))
        deletes = "deletionVectors" in (table.protocol().reader_features or ())
    except DeltaError as error:
        if damage:
            return TableState(str(root), "DeltaSink", (), (), tuple(damage))
        raise SinkError(f"{root}: {str(error).partition(chr(10))[0]}") from error
    files: dict[Shard, list[str]] = {}
    unknown = []
    names = (actions[name].to_pylist() for name in ("path", "partition.stream", "partition.shard"))
    for name, stream, shard_id in zip(*names, strict=True):
        if stream is None or shard_id is None:
            unknown.append(unquote(name))
        else:
            files.setdefault(Shard(stream, shard_id), []).append(unquote(name))
    about: dict[Shard, list[_Commit]] = {shard: [] for shard in files}
    log = _infos(root, table.version(), damage)
    for version, info in log.items():
        if (told := info.get("fastkcl")) is not None:
            try:
                commit = _Commit.of(told)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                damage.append(f"{entry(log_folder(root), version)}: its part of a DeltaSink is damaged: {error!r}")
            else:
                about.setdefault(commit.shard, []).append(commit)
    states = []
    for shard in sorted(about, key=lambda shard: (shard.stream, shard.shard_id)):
        state = ShardState(shard.stream, shard.shard_id, all_commits=0 in log, position=position(table, shard))
        check_note(root, shard_folders(shard), state)
        _check_commits(about[shard], state)
        _check_files(root, files.get(shard, []), state, deletes=deletes)
        states.append(state)
    return TableState(str(root), "DeltaSink", tuple(states), tuple(sorted(unknown)), tuple(damage))


class _Commit(NamedTuple):
    """A DeltaSink's description of a commit in the log."""

    shard: Shard
    after: Position | None
    upto: Position
    rows: int

    @classmethod
    def of(cls, told: dict[str, Any]) -> _Commit:
        stream, shard_id, after, upto = texts = [told[name] for name in ("stream", "shard", "after", "upto")]
        if not all(isinstance(text, str) for text in texts) or type(told["rows"]) is not int:
            raise TypeError(told)
        end = parse_position(upto)
        if end is None:
            raise ValueError("it ends at the start")
        return cls(Shard(stream, shard_id), parse_position(after), end, told["rows"])


def _infos(root: Path, last: int, damage: list[str]) -> dict[int, dict[str, Any]]:
    """The commits' descriptions, by version, as far as the log is left.

    A clean-up that a power cut has interrupted leaves entries before others that are gone: these are not the log any
    more. deltalake's `history()` counts versions down from the handle's, and begins with commits that are newer than
    that.
    """
    log: dict[int, dict[str, Any]] = {}
    for path in sorted(log_folder(root).glob("*.json")):
        if not path.stem.isdecimal() or int(path.stem) > last:
            continue
        try:
            text = storage.read(path, MOST_BYTES)
            if text is None:  # a clean-up
                continue
            lines = [parse_json(line) for line in text.splitlines() if line]
            log[int(path.stem)] = {name: value for line in lines for name, value in line.get("commitInfo", {}).items()}
        except (SinkError, ValueError, AttributeError) as error:
            if not any(each.startswith(f"{path}:") for each in damage):
                raise SinkError(f"{path}: no commit of a Delta table: {error}") from error
    folder = log_folder(root)
    checkpoint, _ = newest_checkpoint(folder, storage.names(folder))
    first = max((version for version in log if version - 1 not in log and version - 1 <= checkpoint), default=0)
    return {version: info for version, info in log.items() if version >= first}


def _check_commits(about: Sequence[_Commit], state: ShardState) -> None:
    """Commits as they follow each other in the log."""
    state.commits = len(about)
    state.records = sum(commit.rows for commit in about)
    end: Position | None = None
    for index, commit in enumerate(about):
        if commit.after != end and (index > 0 or state.all_commits):
            state.gaps.append((commit.after, commit.upto))
        end = commit.upto
    if about and end != state.position:
        told = "gone" if state.position is None else place(state.position)
        state.damage.append(f"the position is {told}, and the last commit ends elsewhere")
    elif state.position is None:
        state.damage.append(f"it has no position: no DeltaSink has written its rows; {NO_POSITIONS}")


def _check_files(root: Path, files: Sequence[str], state: ShardState, *, deletes: bool) -> None:
    units: dict[str, list[str]] = {}
    there = []
    for name in sorted(files):
        if storage.status(root / name) is not None:
            there.append(name)
        else:
            state.missing.append(name)
    if deletes:
        state.unkeyed["rows of this table may be deleted by vectors, which are not read here"] = len(there)
        return
    rewritten = []
    for name in there:
        folder = os.path.dirname(name)  # noqa: PTH120 - there can be very many
        if os.path.basename(folder).startswith("after-"):  # noqa: PTH119
            units.setdefault(folder, []).append(name)
        else:
            rewritten.append(name)
    check_rows(root, [*enumerate(units.values()), *((_REWRITTEN, [name]) for name in rewritten)], state)
