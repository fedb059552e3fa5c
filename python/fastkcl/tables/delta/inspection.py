"""Inspects the Delta table of a DeltaSink or a DeltaTable by its remaining log; on POSIX and on S3.

If a table is partitioned by stream and shard, its log has a file's shard. Otherwise `log_inspection` finds it.
"""

from __future__ import annotations

import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import unquote

from fastkcl.tables import storage
from fastkcl.tables.base import RECOVERY, Shard, SinkError, parse_json, place
from fastkcl.tables.delta.checkpoint_content import DamageError, content
from fastkcl.tables.delta.checkpoint_damage import CheckpointDamage
from fastkcl.tables.delta.entry_content import fault
from fastkcl.tables.delta.log import (
    ASIDE,
    KEPT,
    LOG,
    LOST,
    MOST_BYTES,
    LogFiles,
    entry_key,
    is_cleaned_up,
    log_folder,
    versions,
    whole_checkpoint,
)
from fastkcl.tables.delta.refusals import RefusalError, opened
from fastkcl.tables.delta.sidecars import SIDECARS
from fastkcl.tables.delta.sink import position
from fastkcl.tables.delta.snapshot import NOTHING, digest, does_nothing
from fastkcl.tables.delta.window import shards_of
from fastkcl.tables.folders import NULL, shard_folders
from fastkcl.tables.given_up import NOTES, given_up
from fastkcl.tables.inspection import NO_POSITIONS, ShardState, TableState, judge_note, note_of
from fastkcl.tables.log_inspection import Commit, FilesByShard, check_commits, check_files, commits_of, of_any_name
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store, StoreError

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from fastkcl.tables.object_store import ObjectStore

__all__ = ["inspect_delta", "inspect_delta_objects"]

_OF_SINKS: Final = ("stream", "shard")
_LOOKS: Final = 20  # at a log that is cleaned up meanwhile


def inspect_delta(root: Path) -> TableState:
    """Look into the table in a folder."""
    aside = root / ASIDE
    others = []
    if aside.is_symlink():
        others.append(f"{aside}: leads elsewhere, so that no checkpoint is made: make it a folder")
    store = PosixStore(root)
    return _inspect(store, [*others, *store.obstacles()])


def inspect_delta_objects(store: ObjectStore) -> TableState:
    """Look into the table on an object store."""
    return _inspect(store, [])


def _inspect(store: PosixStore | ObjectStore, others: list[str]) -> TableState:
    """Look into a table, again where files of its log went before they were read."""
    for _ in range(_LOOKS):
        with suppress(_CleanedUpError):
            return _inspect_once(store, others)
    raise StoreError(f"{store.url}/{LOG}: its files go while they are read: is it cleaned up? Try again")


class _CleanedUpError(Exception):
    """The log was cleaned up while it was read."""


class _Look:
    """One look at a log.

    Args:
        store: the table's.
        names: of the log's files when it began.
    """

    def __init__(self, store: Store, names: Sequence[str]) -> None:
        self._store = store
        self._names = names

    def check(self) -> None:
        """See that what is missing or cannot be read is not what a clean-up has removed.

        Raises:
            _CleanedUpError: it may be.
        """
        if is_cleaned_up(self._names, LogFiles.of(self._store).names):
            raise _CleanedUpError


def _inspect_once(store: PosixStore | ObjectStore, others: list[str]) -> TableState:
    from deltalake import DeltaTable

    checkpoints = CheckpointDamage(store)
    files = checkpoints.files
    damage = [*files.others.values(), *files.missing_entries()]
    if not files.names:
        raise SinkError(
            f"{store.url}/{LOG}: it has no entry, and no checkpoint: if nothing was written yet, a writer goes on here;"
            f" else restore it from a copy; {RECOVERY}"
        )
    log = _Entries(store, files.checkpoint, damage, _Look(store, files.names))
    for version in versions([name for name in files.names if name not in files.others]):
        log.read(version)
    url = f"{store.url}/{LOG}"
    damage += [f"{url}/{name}: a damaged checkpoint: {why}" for name, why in checkpoints.found.items()]
    if doubt := checkpoints.doubt:
        damage.append(f"{url}: the newest checkpoint is damaged, or the log before it: {doubt}")
    damage += others
    without = {*checkpoints.found, *files.others}
    _, checkpoint_files = whole_checkpoint([name for name in files.names if name not in without])
    if checkpoint_files:
        with suppress(DamageError, FileNotFoundError):  # damage is reported already, and a missing file is a clean-up's
            log.transactions |= content(store, checkpoint_files).transactions
    with tempfile.TemporaryDirectory(prefix="fastkcl-") as folder:
        if without:  # as the next writer opens it
            _bring(store, [name for name in files.names if name not in without], Path(folder))
            return _inspect_log(store, lambda: DeltaTable(folder), log, damage)
        if isinstance(store, PosixStore):
            return _inspect_log(store, lambda: DeltaTable(store.folder), log, damage)
        options = store.library_options()
        return _inspect_log(store, lambda: DeltaTable(store.url, storage_options=options), log, damage)


def _bring(store: Store, names: Sequence[str], folder: Path) -> None:
    """Have a table with the log's files, of these names, in a folder on a disk: links, or copies of those needed."""
    log = log_folder(folder)
    log.mkdir()
    if isinstance(store, PosixStore):
        there = log_folder(store.folder).absolute()
        for name in names:
            if not (there / name).is_dir():
                (log / name).symlink_to(there / name)
        (log / SIDECARS).mkdir()
        for each in store.files(f"{LOG}/{SIDECARS}"):
            (folder / each.key).symlink_to(store.folder.absolute() / each.key)
        return
    checkpoint, files = whole_checkpoint(names)
    keys = [f"{LOG}/{name}" for name in files]
    keys += [entry_key(version) for version in versions(names) if version > checkpoint]
    if files:
        (log / SIDECARS).mkdir()
        keys += [each.key for each in store.files(f"{LOG}/{SIDECARS}")]
    for key in keys:
        file = store.open(key)
        if file is not None:  # else a clean-up, and deltalake says so
            with file, (folder / key).open("wb") as copy:
                shutil.copyfileobj(file, copy)


class _Entries:
    """The commits' descriptions in a log's entries, each of which is read once.

    Args:
        store: the table's.
        checkpoint: the newest one's version.
        damage: gets the faults of entries.
        look: to which they belong.
    """

    def __init__(self, store: Store, checkpoint: int, damage: list[str], look: _Look) -> None:
        self.look = look
        self._store = store
        self._checkpoint = checkpoint
        self._damage = damage
        self._infos: dict[int, dict[str, Any]] = {}
        self._versions: dict[bytes, int] = {}
        self.transactions: dict[str, int] = {}
        """Those of ours in the entries and in the newest checkpoint, in no order: for their names."""
        self.is_mended = False
        """Whether one is empty, as the page on recovery has it in the place of one that was lost."""
        self._next = checkpoint + 1

    def read(self, version: int) -> None:
        """Take in the entry of a version, if it is there."""
        self._next = max(self._next, version + 1)
        url = f"{self._store.url}/{entry_key(version)}"
        try:
            text = self._store.read(entry_key(version), MOST_BYTES)
        except SinkError as error:
            self._damage.append(str(error).removesuffix(f"; {RECOVERY}"))
            return
        if text is None:  # a clean-up
            return
        if why := fault(text):
            self._damage.append(f"{url}: {why}: {KEPT if version <= self._checkpoint else LOST}")
            return
        try:
            self.transactions |= replace(NOTHING, version=version - 1).moved(text, url).transactions
        except SinkError as error:
            self._damage.append(str(error).removesuffix(f"; {RECOVERY}"))
        # Those of a mended log are equal, and others may set a position twice.
        self.is_mended |= does_nothing(text)
        is_told = b'"commitInfo"' in text and not does_nothing(text)
        if is_told and (other := self._versions.setdefault(digest(text), version)) != version:
            self._damage.append(f"{url}: damaged, it is a copy of {entry_key(other)}: its own content is lost")
        infos = [parse_json(line).get("commitInfo") or {} for line in text.splitlines() if b'"commitInfo"' in line]
        self._infos[version] = {name: value for info in infos for name, value in info.items()}

    def up_to(self, last: int) -> dict[int, dict[str, Any]]:
        """Those of a table at a version, as far as its log is left.

        A clean-up that a power cut has interrupted leaves entries before others that are gone: these are not the log
        any more. deltalake's `history()` counts versions down from the handle's, and begins with commits that are newer
        than that.
        """
        for version in range(self._next, last + 1):  # since the log was listed
            self.read(version)
        if any(version not in self._infos for version in range(self._checkpoint + 1, last + 1)):
            self.look.check()
        log = {version: info for version, info in self._infos.items() if version <= last}
        first = max(
            (version for version in log if version - 1 not in log and version - 1 <= self._checkpoint), default=0
        )
        return {version: info for version, info in log.items() if version >= first}


def _inspect_log(store: Store, handle: Callable[[], DeltaTable], entries: _Entries, damage: list[str]) -> TableState:
    """Look into a table with this handle of deltalake's, and its files.

    Raises:
        SinkError: deltalake cannot read it, and no damage was found; or the table is not one of our writers'.
    """
    try:
        table = opened(handle)
        is_of_sink = opened(table.metadata).partition_columns == list(_OF_SINKS)
    except RefusalError as error:
        entries.look.check()
        return _unreadable(store, "DeltaTable", damage or _refused(store), error)
    writer = "DeltaSink" if is_of_sink else "DeltaTable"
    try:
        return opened(lambda: _look(store, table, writer, entries, damage))
    except RefusalError as error:
        entries.look.check()
        return _unreadable(store, writer, damage or _refused(store), error)


def _unreadable(store: Store, writer: str, damage: list[str], error: Exception) -> TableState:
    if not damage:
        raise SinkError(f"{store.url}: {error}") from error
    return TableState(store.url, writer, (), (), tuple(damage))


def _refused(store: Store) -> list[str]:
    """The first entry since the newest checkpoint with which deltalake refuses the table, and why; or none.

    Our own checks do not have all that readers ask for: values of the types of their partition columns, for instance.
    """
    from deltalake import DeltaTable

    with tempfile.TemporaryDirectory(prefix="fastkcl-") as folder:  # where only the content can be at fault
        names = LogFiles.of(store).names
        _bring(store, names, Path(folder))
        errors = dict[int, str]()

        def is_refused(version: int) -> bool:
            try:
                opened(lambda: DeltaTable(folder, version=version).get_add_actions())
            except RefusalError as error:
                errors[version] = str(error)
            return version in errors

        checkpoint, files = whole_checkpoint(names)
        if files and is_refused(checkpoint):
            return [
                f"{store.url}/{LOG}/{files[0]}: a damaged checkpoint: deltalake cannot read it: {errors[checkpoint]}"
            ]
        later = [version for version in versions(names) if version > checkpoint]
        first = bisect_left(later, True, key=is_refused)
        return [
            f"{store.url}/{entry_key(version)}: damaged, deltalake cannot read it: {errors[version]}: {LOST}"
            for version in later[first : first + 1]
        ]


def _look(store: Store, table: DeltaTable, writer: str, entries: _Entries, damage: list[str]) -> TableState:
    import pyarrow as pa

    log = entries.up_to(table.version())
    columns = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    deletes = "deletionVectors" in (table.protocol().reader_features or ())
    size_of = _sizes(store, damage)
    files = FilesByShard(_opener(store, damage), exists=lambda name: size_of(name) is not None)
    for action in actions:
        stream, shard_id = (action.get(f"partition.{name}") for name in _OF_SINKS)
        name = unquote(action["path"])
        files.take(name, stream, shard_id, by_log=set(_OF_SINKS) <= set(columns))
        if (size := size_of(name)) is not None and size != action["size_bytes"]:
            damage.append(f"{store.url}/{name}: it has {size} bytes, and the log says {action['size_bytes']}")
        day, folders = action.get("partition.date"), name.split("/")
        if "date" in columns and folders[-1].startswith("after-") and f"date={day or NULL}" not in folders:
            damage.append(f"{store.url}/{name}: its date in the log is {day}")
    damage += [f"{store.url}/{name}: the log names it, and it is missing" for name in sorted(files.missing)]
    about: dict[Shard, list[Commit]] = {shard: [] for shard in {*files.of, *shards_of(entries.transactions)}}
    for version, info in log.items():
        where = f"{store.url}/{entry_key(version)}: its part of a {writer}"
        for commit in commits_of(info.get("fastkcl"), where, damage):
            about.setdefault(commit.shard, []).append(commit)
    if not about and not damage and writer == "DeltaTable":
        raise SinkError(
            f"{store.url}: a Delta table without commits of a DeltaTable or a DeltaSink: nothing was written yet, or by"
            f" others; {NO_POSITIONS}"
        )
    states = []
    for shard in sorted(about, key=lambda shard: (shard.stream, shard.shard_id)):
        state = ShardState(shard.stream, shard.shard_id, all_commits=0 in log)
        try:
            state.position = position(table, shard)
        except SinkError as error:
            state.damage.append(str(error).removesuffix(f"; {RECOVERY}"))
        check_commits(about[shard], state, "DeltaSink")
        if not (about[shard] or state.damage or entries.is_mended) and state.all_commits and state.position is not None:
            state.damage.append(f"the position is {place(state.position)}, and no commit in the log leads to it")
        _check_note(store, shard, state)
        check_files(files, shard, state, deletes="vectors" if deletes else None)
        states.append(state)
    return TableState(store.url, writer, tuple(states), tuple(sorted(files.unknown)), tuple(damage))


def _check_note(store: Store, shard: Shard, state: ShardState) -> None:
    judge_note(note_of(lambda: given_up(store, f"{NOTES}/{shard_folders(shard)}"), state), state)


def _opener(store: Store, damage: list[str]) -> Callable[[str], BinaryIO | None]:
    """Opens a file by its name; None for a missing one."""
    return of_any_name(store.open, damage) if isinstance(store, PosixStore) else store.open


def _sizes(store: Store, damage: list[str]) -> Callable[[str], int | None]:
    """Bytes of a file by its name, None for a missing one; on an object store by one list of all."""
    if isinstance(store, PosixStore):
        folder = store.folder

        def size_of(name: str) -> int | None:
            status = storage.file_status(folder / name)
            return None if status is None else status.st_size

        return of_any_name(size_of, damage)
    return {found.key: found.size for found in store.walk()}.get
