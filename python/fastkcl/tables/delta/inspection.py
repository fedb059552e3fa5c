"""What a Delta table of a DeltaSink or a DeltaTable holds, by its log as far as it is left; on POSIX and on S3.

partitioned by stream and shard    a file's shard is in the log
by anything else                   it is in the file's footer; of a file that somebody has rewritten (OPTIMIZE), in
the columns stream and shard: each shard's rows are looked through by themselves
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple
from urllib.parse import unquote

from fastkcl import Position
from fastkcl.tables import storage
from fastkcl.tables.base import Shard, SinkError, parse_json, place
from fastkcl.tables.delta.log import (
    ASIDE,
    LOG,
    MOST_BYTES,
    checkpoint_damage,
    entry_key,
    fault,
    log_damage,
    log_folder,
    newest_checkpoint,
    no_files,
    versions,
    whole_checkpoint,
)
from fastkcl.tables.delta.sink import position
from fastkcl.tables.folders import parse_position, shard_folders
from fastkcl.tables.given_up import NOTES, noted
from fastkcl.tables.inspection import NO_POSITIONS, ShardState, TableState, check_note, check_rows
from fastkcl.tables.parquet_file import FOOTER_KEY
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store

if TYPE_CHECKING:
    from fastkcl.tables.object_store import ObjectStore

__all__ = ["inspect_delta", "inspect_delta_objects"]

_REWRITTEN = -1  # in place of a commit
_OF_SINKS: Final = ("stream", "shard")
_KEYS: Final = ("sequenceNumber", "subSequenceNumber")


def inspect_delta(root: Path) -> TableState:
    """Look into the table in a folder."""
    log = log_folder(root)
    damage = log_damage(log)
    checkpoints = checkpoint_damage(log)
    damage += [f"{path}: a damaged checkpoint: {why}" for path, why in checkpoints]
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
    for version in versions(_log_names(store)):
        text = store.read(entry_key(version), MOST_BYTES)
        if text is not None and (why := fault(text)):
            damage.append(f"{store.url}/{entry_key(version)}: {why}")
    return _inspect_log(store, lambda: DeltaTable(store.url, storage_options=store.library_options()), damage)


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
    files = _Files(store, exists=_existing(store))
    for action in actions.to_pylist():
        stream, shard_id = (action.get(f"partition.{name}") for name in _OF_SINKS)
        files.take(unquote(action["path"]), stream, shard_id, by_log=set(_OF_SINKS) <= set(columns))
    damage += [f"{store.url}/{name}: the log names it, and it is missing" for name in sorted(files.missing)]
    about: dict[Shard, list[_Commit]] = {shard: [] for shard in files.of}
    log = _infos(store, table.version(), damage)
    for version, info in log.items():
        told = info.get("fastkcl")
        for each in [] if told is None else told if isinstance(told, list) else [told]:
            try:
                commit = _Commit.of(each)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                damage.append(f"{store.url}/{entry_key(version)}: its part of a {writer} is damaged: {error!r}")
            else:
                about.setdefault(commit.shard, []).append(commit)
    if not about and writer == "DeltaTable":
        raise SinkError(f"{store.url}: a Delta table without commits of a DeltaTable or a DeltaSink; {NO_POSITIONS}")
    states = []
    for shard in sorted(about, key=lambda shard: (shard.stream, shard.shard_id)):
        state = ShardState(shard.stream, shard.shard_id, all_commits=0 in log, position=position(table, shard))
        _check_note(store, shard, state)
        _check_commits(about[shard], state)
        _check_files(files, shard, state, deletes=deletes)
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


class _Files:
    """The files of a version, by shard.

    Args:
        store: the table's.
        exists: whether a file is there.
    """

    def __init__(self, store: Store, exists: Callable[[str], bool]) -> None:
        self._store = store
        self.exists = exists
        self.of: dict[Shard, list[str]] = {}
        self.unknown: list[str] = []
        self.missing: list[str] = []
        """Of a shard that the log does not name."""
        self._parts: dict[str, tuple[str, Shard]] = {}

    def take(self, name: str, stream: str | None, shard_id: str | None, *, by_log: bool) -> None:
        """Take in a file.

        Args:
            name: from the table's folder on.
            stream: by its partition; None if it has none.
            shard_id: likewise.
            by_log: whether the table is partitioned by both.
        """
        if stream is not None and shard_id is not None:
            self.of.setdefault(Shard(stream, shard_id), []).append(name)
            return
        if not self.exists(name):
            self.missing.append(name)
            return
        shards = [] if by_log else self._shards_of(name)
        if not shards:
            self.unknown.append(name)
        elif isinstance(shards, Shard):
            self.of.setdefault(shards, []).append(name)
        else:
            for index, shard in enumerate(shards):
                part = f"{name}#{index}"
                self._parts[part] = name, shard
                self.of.setdefault(shard, []).append(part)

    def is_rewritten(self, name: str) -> bool:
        """Whether a file, or a part of one, is not as a child has made it."""
        return name in self._parts or not os.path.basename(name).startswith("after-")  # noqa: PTH119

    def is_there(self, name: str) -> bool:
        """Whether a file, or that of a part, is there."""
        return name in self._parts or self.exists(name)

    def opened(self, name: str) -> BinaryIO:
        """A file, or the rows of a shard in it.

        Raises:
            FileNotFoundError: it is gone.
        """
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        whole, shard = self._parts.get(name, (name, None))
        file = self._store.open(whole)
        if file is None:
            raise FileNotFoundError(f"{whole}: it was there, and is gone")
        if shard is None:
            return file
        with file:
            there = pq.read_schema(file).names
            rows = pq.read_table(
                file, columns=[each for each in (*_OF_SINKS, *_KEYS) if each in there], partitioning=None
            )
        mine = pc.and_(pc.equal(rows["stream"], shard.stream), pc.equal(rows["shard"], shard.shard_id))
        body = io.BytesIO()
        pq.write_table(rows.filter(mine), body)
        body.seek(0)
        return body

    def _shards_of(self, name: str) -> Shard | list[Shard]:
        """The shard that a file's footer names; else all that its rows are of. Of a damaged one none."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = self._store.open(name)
            if file is None:
                return []
            with file, pq.ParquetFile(file) as parquet:
                footer = (parquet.metadata.metadata or {}).get(FOOTER_KEY)
                if footer is not None:
                    told = parse_json(footer)
                    return Shard(str(told["stream"]), str(told["shard"]))
                rows = parquet.read(columns=list(_OF_SINKS))
                pairs = rows.group_by(list(_OF_SINKS)).aggregate([]).to_pylist()
                return [Shard(each["stream"], each["shard"]) for each in pairs]
        except (pa.ArrowException, ValueError, KeyError, TypeError, OSError, SinkError):
            return []


def _log_names(store: Store) -> list[str]:
    return [each.key.rpartition("/")[2] for each in store.files(LOG)]


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


def _check_files(table: _Files, shard: Shard, state: ShardState, *, deletes: bool) -> None:
    units: dict[str, list[str]] = {}
    there = []
    for name in sorted(table.of.get(shard, [])):
        if table.is_there(name):
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
        elif table.is_rewritten(name):
            rewritten.append(name)
        else:
            units[name] = [name]
    check_rows(table.opened, [*enumerate(units.values()), *((_REWRITTEN, [name]) for name in rewritten)], state)
