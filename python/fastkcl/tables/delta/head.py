"""The head of a Delta table's log: opened once, moved on by the new entries, and continued by exclusive creations.

    open       the newest checkpoint's positions, metadata and protocol, then the entries after it
    move_on    the head's own entry again: is it still that table? Then each entry after it
    commit     the entry after the head's, created exclusively. False: somebody else's is there; move on, and compare
    stands     the new entry counts: no clean-up of the log has passed it

So a commit costs the same at any version. The new entry follows exactly the snapshot that the caller has compared. If
the head were opened or moved on after the comparison, a zombie could commit.

Rules: entries and checkpoints are read from the storage itself, on POSIX and on S3 alike. They are synced
(`Store.settle`) before anything relies on them, because the writer of an entry may have died before it was durable.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from fastkcl.stdio.log import logger
from fastkcl.tables.base import RECOVERY, Shard, SinkError
from fastkcl.tables.delta.actions import Json, lines, position_by, removed, written_at
from fastkcl.tables.delta.checkpoint_comparison import contradiction
from fastkcl.tables.delta.checkpoint_content import Content, DamageError, content
from fastkcl.tables.delta.checkpoint_damage import set_damage_aside
from fastkcl.tables.delta.checkpoint_files import counted_without
from fastkcl.tables.delta.entry_content import fault
from fastkcl.tables.delta.log import (
    LAST_CHECKPOINT,
    LOG,
    LOST,
    MOST_BYTES,
    LogFiles,
    checkpoint_version,
    entry_key,
    gaps,
    is_cleaned_up,
    log_folder,
    version_named,
    versions,
    whole_checkpoint,
)
from fastkcl.tables.delta.refusals import RefusalError, opened
from fastkcl.tables.delta.snapshot import NOTHING, Snapshot, digest
from fastkcl.tables.delta.window import Contradiction
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DeltaHead"]

_LAST: Final = f"{LOG}/{LAST_CHECKPOINT}"
_SMALL: Final = 64 << 20  # bytes
_CLOCKS: Final = 60.0  # seconds that two hosts' clocks may differ by
_LOOKS: Final = 5  # at a log that is cleaned up meanwhile


class DeltaHead:
    """The newest version of a table that a writer knows.

    Args:
        store: the table's.
        shard: whose position is wanted.
    """

    def __init__(self, store: Store, shard: Shard | None = None) -> None:
        self._store = store
        self._shard = shard
        self._snapshot: Snapshot | None = None

    @property
    def snapshot(self) -> Snapshot | None:
        """The table at that version; None if there was none."""
        return self._snapshot

    def open(self) -> Snapshot | None:
        """Read the log from its newest checkpoint on.

        Returns:
            The table at its newest version; None if there is none.

        Raises:
            SinkError: the log is damaged; or it is not the one that was opened before.
            OSError: it cannot be read.
        """
        found = self._read()
        self._compare(found)
        if self._snapshot is not None and (text := self._entry(self._snapshot.version)) is not None:
            self._check_entry(self._snapshot, text)
        self._snapshot = found
        return found

    def begin(self, entry: bytes) -> None:
        """Make the table, unless somebody else has; its first entry is created exclusively."""
        self._store.create(entry_key(0), entry)

    def move_on(self) -> Snapshot | None:
        """Take in the entries that others have added.

        Raises:
            SinkError: it is another table now, its log has gone back, or an entry is damaged.
            OSError: it cannot be read.
        """
        snapshot = self._snapshot
        if snapshot is None:
            return self.open()
        text = self._entry(snapshot.version)
        if text is None:
            return self.open()  # the log was cleaned up, or the table was replaced
        if snapshot.entry and digest(text) != snapshot.entry:
            self._compare(self._read())
        self._check_entry(snapshot, text)
        new = []
        while (text := self._entry(snapshot.version + 1)) is not None:
            snapshot = self._moved(snapshot, text)
            new.append(entry_key(snapshot.version))
        try:
            if new:
                self._store.settle(*new)
        except FileNotFoundError:
            return self.open()  # as above
        self._compare(snapshot)
        self._snapshot = snapshot
        return snapshot

    def commit(self, actions: Sequence[Json], counts: Callable[[Snapshot], bool]) -> bool:
        """Add the entry after the head's.

        Args:
            actions: of the entry.
            counts: whether a snapshot has what the entry says, by this or by another one.

        Returns:
            False if that is not in the log now; move on, and look.

        Raises:
            OSError: nobody knows whether it is there.
        """
        before = self._snapshot
        assert before is not None
        text = lines(actions)
        version = before.version + 1
        if not self._store.create(entry_key(version), text):
            if self._entry(version) != text:
                return False
            logger().info("%s: its answer was lost; the entry is there", self._name(version))
            self._store.settle(entry_key(version))
        named = version_named(self._store.read(_LAST, _SMALL))
        # The file may be gone, or older than the newest checkpoint; on an object store a second look costs a request.
        is_enough = not isinstance(self._store, PosixStore)
        if named < version and (is_enough or self._entry(before.version) is not None):
            self._snapshot = self._moved(before, text)
            return True
        if self._is_passed(version, actions, counts):
            self._store.remove(entry_key(version))  # nobody would read it, and who compares would
        found = self._read()
        self._compare(found)
        self._snapshot = found
        return found is not None and counts(found)

    def _is_passed(self, version: int, actions: Sequence[Json], counts: Callable[[Snapshot], bool]) -> bool:
        """Whether the checkpoint of a new entry's version, or of a later one, was made without it.

        A clean-up removes entries that a checkpoint has. A writer that has slept over one finds the next version's name
        free, before all that readers look at.
        """
        newest, files = whole_checkpoint(self._names(""))
        if newest < version:
            return False
        missing = {unquote(action["add"]["path"]) for action in actions if "add" in action}
        try:
            if not counts(Snapshot(newest, b"", *content(self._store, files))):
                return True
            if not missing:  # it does nothing that the checkpoint lacks: is the next one older?
                following = written_at(self._entry(version + 1) or b"")
                is_older = following is not None and following < time.time() - _CLOCKS
                return is_older or self._entry(version - 1) is None
            counted_without(self._store, files, missing)
            for later in range(version + 1, newest + 1) if missing else ():
                missing -= removed(self._entry(later) or b"")  # by OPTIMIZE, meanwhile
        except (FileNotFoundError, ValueError, SinkError):  # who reads it says so
            return False
        return bool(missing)

    def _moved(self, snapshot: Snapshot, text: bytes) -> Snapshot:
        name = self._name(snapshot.version + 1)
        if why := fault(text):
            raise SinkError(f"{name}: {why}: {LOST}. {RECOVERY}")
        return snapshot.moved(text, name)

    def _compare(self, found: Snapshot | None) -> None:
        """Check that the new state follows the old one.

        Raises:
            SinkError: it does not.
        """
        before = self._snapshot
        if before is None:
            return
        if found is None:
            raise SinkError(f"{self._store.url}: the table was removed: restore it, or start again to make a new one")
        if found.id != before.id:
            raise SinkError(
                f"{self._store.url}: is another table now (id {found.id}, was {before.id}): start again to go on with"
                " this one"
            )
        if found.version < before.version:
            raise SinkError(
                f"{self._store.url}: its log had the version {before.version}, and ends at {found.version} now: entries"
                f" are gone, or it was replaced by an older copy; {RECOVERY}"
            )

    def _check_entry(self, before: Snapshot, text: bytes) -> None:
        """Check that a snapshot's entry is the one that this writer has seen.

        Raises:
            SinkError: it is not.
        """
        if before.entry and digest(text) != before.entry:
            raise SinkError(
                f"{self._name(before.version)}: is another entry than the one that this writer has seen: the log"
                f" went back to an older state, and was continued from there; {RECOVERY}"
            )

    # ---- reading a log ------------------------------------------------------------------------------------------

    def _read(self) -> Snapshot | None:
        for _ in range(_LOOKS):
            found = self._read_once()
            if found is not NOTHING and self._is_open_to_readers(found):
                return found
        raise StoreError(f"{self._store.url}/{LOG}: its files go while they are read: is it cleaned up? Try again")

    def _read_once(self) -> Snapshot | None:
        """The table at its newest version; None if there is none; `NOTHING` if files have gone meanwhile."""
        hint = version_named(self._store.read(_LAST, _SMALL))
        names = self._names(f"{hint:020d}" if hint > 0 else "")
        checkpoint, files = whole_checkpoint(names)
        if hint > 0 and checkpoint < hint:
            names = self._names("")
            checkpoint, files = whole_checkpoint(names)
        there = [version for version in versions(names) if version > checkpoint]
        if not there and checkpoint < 0:
            return None
        if missing := gaps(checkpoint + 1, there):
            raise SinkError(f"{self._name(missing[0])}: missing, and there are later ones. {RECOVERY}")
        snapshot = NOTHING if checkpoint < 0 else self._checkpointed(checkpoint, files)
        if snapshot is None:
            return NOTHING
        for version in there:
            text = self._entry(version)
            if text is None:
                return NOTHING
            snapshot = self._moved(snapshot, text)
        if not snapshot.metadata or not snapshot.protocol:
            raise SinkError(f"{self._store.url}/{LOG}: it names no schema, or no protocol; {RECOVERY}")
        settled = [f"{LOG}/{name}" for name in files] + [entry_key(version) for version in there]
        if files and LAST_CHECKPOINT in names:
            settled.append(_LAST)
        try:
            self._store.settle(*settled)
        except FileNotFoundError:
            return NOTHING
        return snapshot

    def _is_open_to_readers(self, snapshot: Snapshot | None) -> bool:
        """See on POSIX that deltalake opens the log: a power cut can have damaged the checkpoint that it wants.

        Returns:
            False if that was set aside, or the log was cleaned up meanwhile: it is to be read again.

        Raises:
            SinkError: the log does not go back to a checkpoint that is whole; or deltalake cannot open it otherwise.
            Exception: deltalake's, of a file that cannot be read.
        """
        if snapshot is None or not isinstance(self._store, PosixStore):
            return True
        names = self._all_names()
        if not any("checkpoint" in name for name in names):
            return True
        from deltalake import DeltaTable

        folder = self._store.folder
        try:
            opened(lambda: DeltaTable(folder))
        except RefusalError as error:
            if is_cleaned_up(names, self._all_names()):
                return False
            if set_damage_aside(log_folder(folder)):
                return False
            raise SinkError(
                f"{self._store.url}: deltalake cannot open it: {error}: fastkcl sink inspect names the file; {RECOVERY}"
            ) from error
        except Exception as error:
            if others := LogFiles.of(self._store).others:
                raise SinkError(f"{next(iter(others.values()))}; {RECOVERY}") from error
            if not set_damage_aside(log_folder(folder)):
                raise
            return False
        return True

    def _all_names(self) -> list[str]:
        return [each.key.rpartition("/")[2] for each in self._store.files(LOG)]

    def _names(self, after: str) -> list[str]:
        """Of the files in the log that have content, or are entries."""
        files = [(each.key.rpartition("/")[2], each.size) for each in self._store.files(LOG, after)]
        return [name for name, size in files if size or versions([name])]

    def _checkpointed(self, version: int, files: Sequence[str]) -> Snapshot | None:
        """What a checkpoint has; None if it goes while it is read.

        Raises:
            SinkError: it is damaged.
        """
        try:
            found = content(self._store, files)
            wrong = self._contradiction(version, found) if self._is_to_compare(found) else None
        except FileNotFoundError:
            return None
        except DamageError as error:
            self._do_without(error.name, Contradiction(str(error), is_certain=True))
            return None
        if wrong is not None:
            self._do_without((wrong.files or files)[0], wrong)
            return None
        text = self._entry(version)
        return Snapshot(version, b"" if text is None else digest(text), *found)

    def _contradiction(self, version: int, found: Content) -> Contradiction | None:
        """What a checkpoint has otherwise than the log before it.

        Raises:
            FileNotFoundError: the checkpoint has gone meanwhile.
        """
        names = [name for name in self._names("") if checkpoint_version(name) <= version]
        if whole_checkpoint(names)[0] != version:
            raise FileNotFoundError(f"{self._store.url}/{LOG}: checkpoint {version}")
        return contradiction(self._store, names, self._shard, found)

    def _do_without(self, name: str, wrong: Contradiction) -> None:
        """Set a damaged checkpoint aside, on POSIX.

        Raises:
            SinkError: it cannot be done without.
        """
        if (
            isinstance(self._store, PosixStore)
            and wrong.is_certain
            and set_damage_aside(log_folder(self._store.folder))
        ):
            return
        if wrong.is_of_nothing:
            raise SinkError(
                f"{self._store.url}: {wrong.why}: restore the entry from a copy, and remove the checkpoint {name} with"
                f" {LAST_CHECKPOINT}; {RECOVERY}"
            )
        or_log = "" if wrong.is_certain else ", or the log before it is"
        raise SinkError(
            f"{self._store.url}/{LOG}/{name}: a damaged checkpoint{or_log}"
            f" ({wrong.why}): restore it from a copy, or remove it with {LAST_CHECKPOINT} if the log goes back to an"
            f" older one; {RECOVERY}"
        )

    def _is_to_compare(self, found: Content) -> bool:
        """Whether a checkpoint is compared with the log before it; on an object store if it does not know the shard.

        Nothing cuts off an object, and each entry is a request.
        """
        if isinstance(self._store, PosixStore):
            return True
        return self._shard is not None and position_by(found.transactions.get, self._shard, self._store.url) is None

    def _entry(self, version: int) -> bytes | None:
        return self._store.read(entry_key(version), MOST_BYTES)

    def _name(self, version: int) -> str:
        return f"{self._store.url}/{entry_key(version)}"
