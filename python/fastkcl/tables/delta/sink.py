"""A Delta table, each record exactly once.

    table/
      _delta_log/00000000000000000007.json                        one commit: files, and the position that they reach
      stream=clicks/shard=shardId-000000000000/after-start-<random>/part-….parquet

A reader of a Delta table sees the files that its log names, and no others of its folders. The steps of one write,
P being the position up to which the table has the shard:

    stage        Parquet files are written into a new folder of the shard and synced
    commit       the entries that others have added to the log are read, up to version V: P once more. The entry V + 1,
                 with the files and the new position, is linked to its name when it is synced: an exclusive creation
    checkpoint   each hundredth commit. deltalake makes it elsewhere, of links to the log; it is renamed to its name
                 when it is synced, and only then `_last_checkpoint` names it

A writer that commits after an entry, or relies on a position in it, syncs it first: the entry's own writer may have
died before that, or never sync. So each entry and checkpoint of a sink that a power cut leaves is whole, and those
that others rely on stay.

The position is in the table's application transactions (`delta.actions`), whose versions nobody compares.
A second entry V + 1 fails, and that is the comparison: nobody else has continued from the P that was read.
After a commit of another shard the next version is tried. The log is opened once, and moved on (`delta.head`): a write
costs the same at any version.

A file that was staged and never committed is in nobody's way, and goes with the table's next VACUUM. A writer that has
slept so long that its own files may be gone writes them again.

For POSIX file systems, local or shared by all of Spark's machines under one path.
"""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from fastkcl import Position
from fastkcl.stdio.log import logger
from fastkcl.tables import storage
from fastkcl.tables.appender import Appender, R
from fastkcl.tables.base import RECOVERY, Files, Rows, Shard, SinkError
from fastkcl.tables.clock import running_seconds
from fastkcl.tables.delta.actions import Json, about, beginning, information, position_by, transactions
from fastkcl.tables.delta.checkpoint_comparison import EntryError, check_entries
from fastkcl.tables.delta.found_files import found_files
from fastkcl.tables.delta.group import add_action
from fastkcl.tables.delta.head import DeltaHead
from fastkcl.tables.delta.log import (
    ASIDE,
    LAST_CHECKPOINT,
    delta_folder,
    entry,
    last_checkpoint,
    log_damage,
    log_folder,
    newest_checkpoint,
)
from fastkcl.tables.delta.rules import checked_fields
from fastkcl.tables.delta.snapshot import Snapshot
from fastkcl.tables.delta.staged import MOST_AGE
from fastkcl.tables.folders import check_names, data_folder, position_text, quoted, shard_folders
from fastkcl.tables.given_up import NOTES, given_up, keep_in, upto_of
from fastkcl.tables.position import check_forward, report_other
from fastkcl.tables.posix_store import PosixStore

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["DeltaAppender", "position", "shards"]

_PARTITIONS: Final = ["stream", "shard"]
_SINK: Final = "DeltaSink"
# A commit that lost against one of another shard, or of another kind, is tried again after it.
_ATTEMPTS = 100
_PAUSE = 0.05  # seconds, at the most, before that
_RANDOM = re.compile(r"[0-9a-f]{16}")  # names there
_ASIDE_SECONDS = 3600  # after which a file there is of a process that has died
_CHECKPOINT_INTERVAL = 100  # delta.checkpointInterval, where the table has none


class DeltaAppender(Appender):
    """Writes a shard's records into a Delta table: exactly once, in order, with a zombie fenced off.

    The table has the columns of the files and two more, by which it is partitioned: `stream` and `shard`. It is made at
    the first write, unless it is there. Needs deltalake: ``pip install 'fastkcl[delta]'``.

    Args:
        path: folder of the table, on a POSIX file system that the writer of its files sees under the same path.

    Raises:
        ValueError: `path` is a URL of something else, or has a ``%`` in it.
        ImportError: deltalake is not installed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            import deltalake  # noqa: F401 - before a shard is opened
        except ImportError as error:
            raise ImportError("DeltaSink needs deltalake: pip install 'fastkcl[delta]'") from error
        super().__init__(delta_folder(path, "DeltaSink"))
        self._store = PosixStore(self._root)
        self._head = DeltaHead(self._store)

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard: see how far the table has it.

        Raises:
            ValueError: the stream or the shard has no name, which Delta cannot tell from null.
            SinkError: the table is not one that this sink can write to, its log is damaged, or since it was opened
                before the table has been replaced.
            OSError: its log cannot be synced.
            Exception: deltalake's error.
        """
        check_names(shard, _SINK, ("stream", "shard"))
        if shard != self._shard:
            self._shard, self._position = shard, None
            self._head = DeltaHead(self._store, shard)
        if damage := log_damage(self._store):
            raise SinkError(f"{damage[0]}. {RECOVERY}")
        self._store.check_aside()
        snapshot = self._head.open()
        if snapshot is not None:
            self._check(snapshot)
        self._move_to(snapshot)
        return self._position

    def append_run(self, rows: R, files: Callable[[R], Files]) -> Position:
        """Make rows durable and visible; see `Appender.append_run`.

        Raises:
            SinkError: the table is not one that this sink can write to, or has lost a commit.
            WriteCancelledError: the rows are not wanted any more.
            Exception: what `files`, deltalake or the file system raised. Whether the rows are in the table shows at the
                next write, which drops them then.
        """
        self._move_to(self._head.move_on())
        return super().append_run(rows, files)

    def give_up(self, upto: Position) -> None:
        """Note that records up to a position have been given up: a checkpoint there is no sign of a loss."""
        self._keep_note(upto)

    def gone_on(self) -> bool:
        """See `KeepsPositions.gone_on`."""
        return self._keep_note(None)

    def given_up(self) -> Position | None:
        """Up to where records have been given up; None if none have."""
        assert self._shard is not None
        return upto_of(given_up(self._store, f"{NOTES}/{shard_folders(self._shard)}"), self._position)

    def _keep_note(self, upto: Position | None) -> bool:
        assert self._shard is not None
        store, key = self._store, f"{NOTES}/{shard_folders(self._shard)}"
        return keep_in(store, key, given_up(store, key), upto, self._position)

    def _append(self, rows: Rows, files: Files) -> None:
        assert self._shard is not None
        after = self._position
        fields = checked_fields(files.columns(), _PARTITIONS)
        if (there := self._head.snapshot) is not None:  # the table is made when there are files for it
            self._check(there, fields)
        folder = self._root / data_folder(f"{quoted(self._shard.stream)}/{quoted(self._shard.shard_id)}")
        staging = folder / f"after-{position_text(after)}-{secrets.token_hex(8)}"
        storage.make_folder(folder)
        tried = False
        began = running_seconds()
        try:
            files.write(staging)
            adds = self._files(staging)
            for attempt in range(_ATTEMPTS):
                if attempt:
                    time.sleep(random.uniform(0, _PAUSE))
                snapshot = self._moved_on(fields)
                if self._position != after:
                    report_other(self._name, after, self._position)
                    if not tried:
                        storage.remove(staging)
                    return
                self._check(snapshot, fields)
                rows.check_wanted()
                if running_seconds() - began >= MOST_AGE or self._is_gone(adds):
                    logger().warning("%s: has slept since its files were written, and writes them again", self._name)
                    if not tried:
                        storage.remove(staging)
                    return  # who calls has these rows written again, as they are not in the table
                tried = True
                if self._commit(adds, rows):
                    self._made_checkpoint()
                    return
            raise SinkError(
                f"{self._name}: {_ATTEMPTS} commits have met others: write less often, or from fewer shards"
            )
        except BaseException:
            if not tried:  # else the table may have the files
                storage.remove(staging)
            raise

    def _moved_on(self, fields: Sequence[Json]) -> Snapshot:
        """The table with the entries that others have added; it is made if it is not there."""
        snapshot = self._head.move_on()
        if snapshot is None:
            origin = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in _PARTITIONS]
            schema = json.dumps({"type": "struct", "fields": [*fields, *origin]})
            self._head.begin(beginning(schema, _PARTITIONS))  # or somebody else's is there
            snapshot = self._head.open()
            assert snapshot is not None
        self._move_to(snapshot)
        return snapshot

    def _files(self, staging: Path) -> list[Json]:
        """The Parquet files with records in a staging folder, synced; other files of Spark there are removed."""
        assert self._shard is not None
        actions = []
        for each in found_files(staging):
            key = str(each.path.relative_to(self._root))
            values: dict[str, str | None] = {"stream": self._shard.stream, "shard": self._shard.shard_id}
            actions.append(add_action(key, values, each.size, each.rows, each.modified))
        storage.sync_folder(staging)
        storage.sync_folder(staging.parent)
        return actions

    def _is_gone(self, adds: Sequence[Json]) -> bool:
        """Whether one of the files is not there any more: it was taken from a sleeper, by VACUUM or as an orphan."""
        there = {unquote(each["add"]["path"]): each["add"]["size"] for each in adds}
        return self._store.sizes(list(there)) != list(there.values())

    def _commit(self, adds: Sequence[Json], rows: Rows) -> bool:
        """Add files and set the position, if nobody has committed since the head's version, and the files are there."""
        if self._is_gone(adds):
            return False
        shard, upto = self._shard_opened, rows.last_position
        told = about(shard, self._position, upto, rows.num_rows, len(adds))
        actions = [information(_PARTITIONS, told), *adds, *transactions(shard, upto)]

        def counts(found: Snapshot) -> bool:
            there = found.position(shard, self._name)
            return there is not None and there >= upto

        return self._head.commit(actions, counts)

    def _made_checkpoint(self) -> None:
        """Take over the position of a commit, and make the checkpoint that is due."""
        snapshot = self._head.snapshot
        self._move_to(snapshot)
        assert snapshot is not None
        try:
            interval = int(snapshot.configuration.get("delta.checkpointInterval") or _CHECKPOINT_INTERVAL)
            if snapshot.version % interval == 0:
                self._make_checkpoint(snapshot)
        except EntryError as error:
            logger().error("%s: no checkpoint of its log is made: %s", self._name, error)
        except Exception as error:
            logger().warning("%s: no checkpoint of its log was made; the log has everything: %s", self._name, error)

    def _make_checkpoint(self, snapshot: Snapshot) -> None:
        """Make a checkpoint of the log up to a version; whole before it has its name."""
        from deltalake import DeltaTable

        log = log_folder(self._root)
        before, files = newest_checkpoint(log, storage.names(log))
        if before >= snapshot.version or not all(name.endswith(".checkpoint.parquet") for name in files):
            return  # in parts or by another scheme: the engine that does so goes on with it
        check_entries(PosixStore(self._root), before, files, snapshot.version)
        aside = self._root / ASIDE
        if aside.is_symlink():
            raise SinkError(f"{aside}: leads elsewhere, and a sink removes folders there: make it a folder; {RECOVERY}")
        for name in storage.names(aside):
            left = storage.status(aside / name)
            if _RANDOM.fullmatch(name) and left is not None and left.st_mtime < time.time() - _ASIDE_SECONDS:
                storage.remove(aside / name)
        folder = aside / secrets.token_hex(8)
        links = log_folder(folder)
        links.mkdir(parents=True)
        try:
            entries = [entry(log, number).name for number in range(before + 1, snapshot.version + 1)]
            for name in (*files, *entries):
                (links / name).symlink_to(log / name)
            made = DeltaTable(folder)
            made.create_checkpoint()
            for path in sorted(path for path in links.rglob("*") if path.is_file() and not path.is_symlink()):
                if path.name != LAST_CHECKPOINT:
                    target = log / path.relative_to(links)
                    storage.make_folder(target.parent)
                    storage.replace(target, path.read_bytes())  # an existing one has the same content, or is damaged
            if last_checkpoint(log) < made.version():
                storage.replace(log / LAST_CHECKPOINT, (links / LAST_CHECKPOINT).read_bytes())
        finally:
            storage.remove(folder)
        if snapshot.configuration.get("delta.enableExpiredLogCleanup") != "false":
            DeltaTable(self._root).cleanup_metadata()

    def _move_to(self, snapshot: Snapshot | None) -> None:
        """Take over the position that a snapshot shows, which never goes back.

        Raises:
            SinkError: it has gone back.
        """
        found = None if snapshot is None else snapshot.position(self._shard_opened, self._name)
        check_forward(self._name, self._position, found)
        self._position = found

    def _check(self, snapshot: Snapshot, fields: Sequence[Json] = ()) -> None:
        """See that Spark's files can be added to the table as they are; without columns, to its shape.

        Raises:
            SinkError: they cannot; it names the obstacle.
        """
        snapshot.rules(str(self._root), _SINK).check(_PARTITIONS, fields)

    @property
    def _shard_opened(self) -> Shard:
        assert self._shard is not None
        return self._shard

    @property
    def _name(self) -> str:
        return f"{self._root} ({self._shard_opened.stream}, {self._shard_opened.shard_id})"


def position(table: DeltaTable, shard: Shard) -> Position | None:
    """The position up to which a table has a shard's records, at the version of the handle; None if it has none.

    Raises:
        SinkError: its transactions are no position.
    """
    return position_by(table.transaction_version, shard, str(table.table_uri))


def shards(table: DeltaTable) -> list[Shard]:
    """The shards that a table has records of, in order."""
    found = {(partition["stream"], partition["shard"]) for partition in table.partitions()}
    return [Shard(stream, shard) for stream, shard in sorted(found)]
