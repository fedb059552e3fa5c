"""Whether the log contradicts a checkpoint of it.

A checkpoint that can be read may still be wrong: without the column of transactions each shard would begin anew, and
without files readers would see none. So the newest checkpoint is compared with its own entry and those before it, and
with the checkpoint before it if the entries go back to that:

    positions    those that the log has, or tells of, are there; on a disk those of older entries, too
    files        each one that the entries add, and do not remove, is there; on a disk those of older entries, too. With
                 those of the checkpoint before it no other ones are
    metadata     schema, partition columns and properties are those of the newest entry that has them, on a disk also
                 of an older one
    entries      each one of ours continues from the position of those before it: a copy of an older one does not, and
                 a checkpoint that was made of it has set the shard back. On a disk this is looked at in older entries
                 too: the checkpoint before the newest one may have been made of a copy
    nothing      an entry of 0 bytes counts as damaged before the checkpoint if that has just what the other entries
                 have. It may have been sound, and done nothing, or nothing that later entries did not do again
    mended       beside an entry that somebody has replaced by one that does nothing, the checkpoint may have more

If they disagree, an entry or the older checkpoint may as well be damaged: nobody can know. A sound checkpoint that was
set aside for them would lose records, so a writer stops. Only a checkpoint that contradicts itself is done without.

A version can have several whole checkpoints, by several schemes. Each of them is compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import unquote

from fastkcl import Position
from fastkcl.tables.base import RECOVERY, Shard, SinkError, parse_json
from fastkcl.tables.delta.actions import Json, position_by
from fastkcl.tables.delta.checkpoint_content import Content, DamageError, content
from fastkcl.tables.delta.checkpoint_files import FileCount, counted, counted_without
from fastkcl.tables.delta.entry_content import fault, positions_left, told_positions
from fastkcl.tables.delta.log import (
    LOG,
    MOST_BYTES,
    checkpoint_version,
    entry_key,
    versions,
    whole_checkpoint,
    whole_checkpoints,
)
from fastkcl.tables.delta.sidecars import ElsewhereError
from fastkcl.tables.delta.snapshot import OURS, checked_metadata, checked_protocol, continues, does_nothing, whole
from fastkcl.tables.folders import position_text
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store

__all__ = ["Contradiction", "CopyError", "checkpoint_fault", "contradiction", "refuse_copies"]

_MOST_ENTRIES: Final = 1000
"""Before a checkpoint, which are compared with it. deltalake makes one after 100 commits, Spark after 10."""
_COMPARED: Final = (b'"txn"', b'"fastkcl"', b'"add"', b'"remove"', b'"metaData"')
"""What lines of older entries have that count."""
_FORGETS: Final = "delta.setTransactionRetentionDuration"


class CopyError(SinkError):
    """An entry of the log is a copy of another one, or has 0 bytes. `str()` says which."""


class Contradiction(NamedTuple):
    """What a checkpoint has otherwise than the log."""

    why: str
    is_certain: bool
    """False: the log before it may be what is wrong."""
    files: Sequence[str] = ()
    """Of the checkpoint that has it so."""
    is_of_nothing: bool = False
    """Whether it was made over an entry of 0 bytes."""


def contradiction(
    store: Store, names: Sequence[str], shard: Shard | None = None, now: Content | None = None
) -> Contradiction | None:
    """What the newest checkpoint has otherwise than the log that it stands for.

    Args:
        store: the table's.
        names: of all files in the log that have content, or are entries.
        shard: whose position is wanted; its files without a position are a contradiction, too.
        now: the newest checkpoint's content, if it was read before; of several, the first one's.

    Returns:
        None if it is as the log has it; or if that is not left, or damaged itself.

    Raises:
        FileNotFoundError: a file of the checkpoint is not there.
        DamageError: one is damaged.
        OSError: a file cannot be read.
    """
    version, wholes = whole_checkpoints(names)
    span = _Span.of(names, version)
    each_now = [content(store, files) if now is None or index else now for index, files in enumerate(wholes)]
    try:
        before = span.before(store)
        earlier = _entries_before(store, names, span.there[0] if span.there else version + 1, len(span.there))
        window = _Window.of(store, span.there, before, earlier.sure)
        window.copied = earlier.copied or window.copied
        if earlier.metadata and not window.has_metadata:
            window.metadata = earlier.metadata
        files_before = None if before is None else counted(store, span.older_files, window.files)
    except (FileNotFoundError, ValueError, SinkError):  # that is damaged itself, and nobody relies on it
        chain = _entries_before(store, names, version + 1, 0)
        copied = None if chain.copied is None else Contradiction(chain.copied, is_certain=False)
        sure, found = _Window(None, chain.sure), each_now[0]
        wrong = copied or sure.of_positions(found, store.url) or chain.of_metadata(found)
        wrong = wrong or _of_files(store, wholes[0], sure, None, chain)
        return None if wrong is None else wrong._replace(files=wholes[0])
    for files, found in zip(wholes, each_now, strict=True):
        if window.copied is not None:
            return Contradiction(window.copied, is_certain=False, files=files)
        if window.emptied:
            if _has_nothing(store, files, found, window, files_before):
                return _of_nothing(window.emptied[-1], files)
            continue
        wrong = window.of_positions(found, store.url) or window.of_metadata(found)
        if wrong is not None and (wrong.is_certain or not window.is_mended):
            return wrong._replace(files=files)
        without = shard if shard is not None and position_by(found.transactions.get, shard, store.url) is None else None
        wrong = _of_files(store, files, window, files_before, earlier, without)
        if wrong is not None and (wrong.is_certain or not window.is_mended):
            return wrong._replace(files=files)
    made_over = _made_over_nothing(store, names, earlier.emptied)
    return None if made_over is None else _of_nothing(made_over, wholes[0])


def _of_nothing(entry: int, files: Sequence[str]) -> Contradiction:
    why = f"{entry_key(entry)} has 0 bytes, and the checkpoint has nothing of it"
    return Contradiction(why, is_certain=False, files=files, is_of_nothing=True)


def _made_over_nothing(store: Store, names: Sequence[str], emptied: Sequence[int]) -> int | None:
    """The newest of these entries of 0 bytes of which a checkpoint has nothing; the checkpoints after it have no more.

    Args:
        store: the table's.
        names: of all files in the log that have content, or are entries.
        emptied: versions, in order.
    """
    checkpoints: dict[int, list[str]] = {}
    for name in names:
        if (version := checkpoint_version(name)) >= 0:
            checkpoints.setdefault(version, []).append(name)
    whole = sorted(each for each, files in checkpoints.items() if whole_checkpoint(files)[0] == each)
    after = len(whole)
    for entry in reversed(emptied):
        first = bisect_left(whole, entry)
        if first >= after:  # it was looked at for a later entry
            continue
        after, version = first, whole[first]
        _, wholes = whole_checkpoints(checkpoints[version])
        span = _Span.of(names, version)
        with suppress(FileNotFoundError, ValueError, SinkError):  # damaged, and nobody relies on it
            before = span.before(store)
            window = _Window.of(store, span.there, before)
            files_before = None if before is None else counted(store, span.older_files, window.files)
            if any(_has_nothing(store, files, content(store, files), window, files_before) for files in wholes):
                return entry
    return None


def refuse_copies(store: Store, before: int, files: Sequence[str], version: int) -> None:
    """See that a checkpoint that is to be made would set no shard back, nor pass over an entry of 0 bytes.

    Args:
        store: of the log.
        before: version of the previous checkpoint; negative without one.
        files: the names of the previous checkpoint's files.
        version: the new checkpoint is of this one.

    Raises:
        CopyError: an entry between the two is a copy of another one, or empty.
        OSError: a file cannot be read.
    """
    try:
        known = content(store, files) if before >= 0 else Content({}, {}, {})
        window = _Window.of(store, range(before + 1, version + 1), known)
    except (FileNotFoundError, ValueError):
        return  # it is damaged itself, which who reads it will say
    if window.copied is not None:
        raise CopyError(f"{window.copied}; {RECOVERY}")
    if window.emptied:
        raise CopyError(f"{entry_key(window.emptied[-1])} has 0 bytes; {RECOVERY}")


def checkpoint_fault(store: Store, names: Sequence[str]) -> str | None:
    """The newest checkpoint's damage, or its contradiction to the log, in words; None where it is sound.

    Args:
        store: the table's.
        names: of all files in the log that have content.

    Raises:
        FileNotFoundError: a file of the checkpoint is not there.
        OSError: a file cannot be read.
    """
    try:
        found = contradiction(store, names)
    except DamageError as error:
        return f"{store.url}/{LOG}/{error.name}: a damaged checkpoint: {error}"
    return None if found is None else f"{store.url}/{LOG}/{found.files[0]}: a damaged checkpoint: {found.why}"


def _up_to(version: int, there: Sequence[int], most: int = _MOST_ENTRIES) -> list[int]:
    """The versions without a gap that end with this one, at most so many."""
    found: list[int] = []
    for each in reversed(there[-most:] if most > 0 else ()):
        if each != version - len(found):
            break
        found.append(each)
    return found[::-1]


def _entries_before(store: Store, names: Sequence[str], first: int, count: int) -> _Window:
    """Positions and files in the entries that end before a version, up to one that continues from no other; on a disk.

    Args:
        store: the table's.
        names: of all files in the log.
        first: the version.
        count: of the entries from there on, which were looked at.
    """
    found, emptied = _Window(None), list[int]()
    if not isinstance(store, PosixStore):  # elsewhere each one is a request
        return found
    for version in _up_to(first - 1, [each for each in versions(names) if each < first], _MOST_ENTRIES - count):
        text = store.read(entry_key(version), MOST_BYTES)
        try:
            if text is None or (text and fault(text)):
                raise ValueError("a clean-up, or damage")
            if not text:
                emptied.append(version)
            if is_mended := not text or does_nothing(text):
                found.sure.clear()
                found.files.clear()
                found.metadata = {}
            lines = [line for line in text.splitlines() if any(key in line for key in _COMPARED)]
            found._take_entry(lines, entry_key(version), is_mended=is_mended)
        except (ValueError, SinkError):
            # What was before is not wanted any more; the next ones are looked at by themselves.
            found = _Window(None, sure={} if text is None else positions_left(text))
        if found.copied is not None:
            break
    found.emptied = emptied
    return found


class _Span(NamedTuple):
    """The entries that a checkpoint stands for."""

    older_files: Sequence[str]
    """Of the checkpoint before it."""
    there: Sequence[int]
    """Versions without a gap, after that checkpoint and up to this one."""
    goes_back: bool
    """Whether that is all of them."""

    @classmethod
    def of(cls, names: Sequence[str], version: int) -> _Span:
        """Of the checkpoint of a version; `names` are of all files in the log."""
        older, older_files = whole_checkpoint([name for name in names if -1 < checkpoint_version(name) < version])
        there = _up_to(version, [each for each in versions(names) if older < each <= version])
        goes_back = len(there) == version - older if older_files else there[:1] == [0]
        return cls(older_files, there, goes_back)

    def before(self, store: Store) -> Content | None:
        """What the table was before these entries; None if they do not go back to a checkpoint or the beginning.

        Raises:
            FileNotFoundError: a file of the checkpoint is not there.
            DamageError: one is damaged.
        """
        if not self.goes_back:
            return None
        return content(store, self.older_files) if self.older_files else Content({}, {}, {})


@dataclass(slots=True)
class _Window:
    """What entries do together, after the checkpoint before them if they go back to it."""

    before: Content | None
    earlier: Mapping[str, int] = field(default_factory=dict)
    """Transactions of still earlier entries, which the checkpoint before them should have."""
    transactions: dict[str, int] = field(default_factory=dict)
    sure: dict[str, int] = field(default_factory=dict)
    """Those since the newest entry whose content may be gone."""
    protocol: Mapping[str, Json] = field(default_factory=dict)
    files: dict[str, bool] = field(default_factory=dict)
    """Whether the last entry that names a file adds it."""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    has_metadata: bool = False
    """Whether an entry has it."""
    copied: str | None = None
    """The entry that does not continue from those before it, in words."""
    emptied: list[int] = field(default_factory=list)
    """The entries of 0 bytes, in order; deltalake and others take them for ones that do nothing."""
    is_mended: bool = False

    @classmethod
    def of(
        cls, store: Store, there: Sequence[int], before: Content | None, earlier: Mapping[str, int] | None = None
    ) -> _Window:
        """Of the entries of these versions.

        Args:
            store: the table's.
            there: versions without a gap.
            before: what the table was before them; None if they do not go back to a checkpoint or the beginning.
            earlier: transactions of entries before them.

        Raises:
            FileNotFoundError: one is not there.
            ValueError: one is damaged.
        """
        found = cls(before, earlier or {})
        if before is not None:
            found.metadata, found.protocol = before.metadata, before.protocol
        for version in there:
            text = store.read(entry_key(version), MOST_BYTES)
            if text is None:
                raise FileNotFoundError(entry_key(version))
            if not text:
                found.emptied.append(version)
            elif why := fault(text):
                raise ValueError(why)
            found._take_entry(text.splitlines(), entry_key(version), is_mended=not text or does_nothing(text))
        return found

    def _take_entry(self, lines: Sequence[bytes], name: str, *, is_mended: bool) -> None:
        """Take in an entry, or those of its lines that count.

        Args:
            lines: of the entry.
            name: the entry's.
            is_mended: whether what it did may be gone.

        Raises:
            ValueError: it is damaged.
        """
        files: dict[str, bool] = {}
        try:
            actions = [parse_json(line) if line else {} for line in lines]
            self.copied = self.copied or self._copied(actions, name)
            self.is_mended = self.is_mended or is_mended
            for action in actions:
                self._take(action, files)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(repr(error)) from error
        self.files |= files

    def _copied(self, actions: Sequence[Json], name: str) -> str | None:
        """What is wrong with the place of an entry that is about to be taken in."""
        told = [(action.get("commitInfo") or {}).get("fastkcl") for action in actions]
        for each in (one for found in told for one in (found if isinstance(found, list) else [found])):
            match each:
                case {"stream": str(stream), "shard": str(shard_id), "after": str(after)}:
                    try:
                        at = self._position(Shard(stream, shard_id))
                    except SinkError:  # a part of it is before these entries
                        continue
                    if not continues(each, at, is_mended=self.is_mended):
                        return (
                            f"{name} continues {stream}, {shard_id} from {after[:200]}, and the entries before it"
                            f" end at {position_text(at)}: it is a copy of another entry"
                        )
        return None

    def _take(self, action: Json, files: dict[str, bool]) -> None:
        """Take in an action of an entry; the file whose rows it deletes may be removed and added in any order."""
        if found := (action.get("commitInfo") or {}).get("fastkcl"):  # a transaction of it may be lost
            self.transactions |= (told := told_positions(found))
            self.sure |= told
        if (found := action.get("txn")) and found["appId"].startswith(OURS):
            self.transactions[found["appId"]] = self.sure[found["appId"]] = whole(found["version"])
        if found := action.get("add"):
            files[unquote(found["path"])] = True
        if found := action.get("remove"):
            files.setdefault(unquote(str(found["path"])), False)
        if found := action.get("metaData"):
            self.metadata, self.has_metadata = checked_metadata(found), True
        if found := action.get("protocol"):
            self.protocol = checked_protocol(found)

    def _position(self, shard: Shard) -> Position | None:
        before = {} if self.before is None else self.before.transactions
        return position_by({**before, **self.earlier, **self.transactions}.get, shard, "")

    def shards(self) -> set[Shard]:
        """Those that have a position, or a part of it."""
        before = {} if self.before is None else self.before.transactions
        return _shards({**before, **self.earlier, **self.transactions})

    def of_positions(self, found: Content, where: str) -> Contradiction | None:
        """Which position a checkpoint has otherwise."""
        if _FORGETS in (found.metadata.get("configuration") or {}):
            return None
        for shard in sorted(self.shards(), key=lambda each: (each.stream, each.shard_id)):
            name = f"the position of {shard.stream}, {shard.shard_id}"
            try:
                wanted = self._position(shard)
            except SinkError:  # of the older checkpoint
                continue
            try:
                there = position_by(found.transactions.get, shard, where)
            except SinkError:
                return Contradiction(f"it has a part of {name}", is_certain=True)
            if wanted is None or there == wanted:
                continue
            why = f"{name} is {position_text(there)} in it, and {position_text(wanted)} in the log before it"
            return Contradiction(why, is_certain=False)
        return None

    def of_metadata(self, found: Content) -> Contradiction | None:
        """What of the metadata a checkpoint has otherwise."""
        for name in ("schemaString", "partitionColumns", "configuration") if self.metadata else ():
            if _comparable(self.metadata, name) != _comparable(found.metadata, name):
                return Contradiction(f"its {name} is another one than in the log before it", is_certain=False)
        return None


def _comparable(metadata: Mapping[str, Json], name: str) -> Json:
    return parse_json(metadata[name]) if name == "schemaString" else metadata.get(name) or None


def _has_nothing(store: Store, files: Sequence[str], found: Content, window: _Window, before: FileCount | None) -> bool:
    """Whether a checkpoint has just what a window with entries of 0 bytes has, and nothing of theirs.

    Not judged is a window that does not go back to the checkpoint before it, or to the entry that makes the table.
    """
    if before is None or not window.metadata:
        return False
    if _shards(found.transactions) - window.shards():  # it was made when the entry was whole
        return False
    return not (
        window.of_positions(found, store.url)
        or window.of_metadata(found)
        or _asked(window.protocol) != _asked(found.protocol)
        or _of_files(store, files, window, before)
    )


def _asked(protocol: Mapping[str, Json]) -> tuple[Json, ...]:
    """What a protocol asks of readers and writers."""
    features = [frozenset(protocol.get(name) or ()) for name in ("readerFeatures", "writerFeatures")]
    return (protocol.get("minReaderVersion"), protocol.get("minWriterVersion"), *features)


def _of_files(
    store: Store,
    files: Sequence[str],
    window: _Window,
    before: FileCount | None,
    earlier: _Window | None = None,
    without: Shard | None = None,
) -> Contradiction | None:
    """Which files a checkpoint has otherwise.

    `before` are those that no entry of the window names, `earlier` the entries before these; None if that is not known.
    """
    added = {name for name, is_added in window.files.items() if is_added}
    expected = None if before is None else FileCount(before.count, before.sum)
    if expected is not None:
        for name in added:
            expected.add(name)
    older = {} if earlier is None else earlier.files
    missing = added | {name for name, is_added in older.items() if is_added and name not in window.files}
    try:
        there, why = counted_without(store, files, missing, without)
    except ElsewhereError:
        return None
    if why is not None:
        return Contradiction(why, is_certain=True)
    if expected is not None and there != expected and added.isdisjoint(missing):
        why = f"it has {there.count} files, and the log before it {expected.count}"
        if there.count == expected.count:
            why = f"some of its {there.count} files have other names than in the log before it"
        return Contradiction(why, is_certain=False)
    if missing:
        why = f"it lacks {len(missing)} files that the log has, {min(missing)[:200]!r} for one"
        return Contradiction(why, is_certain=False)
    return None


def _shards(transactions: Mapping[str, int]) -> set[Shard]:
    """Of which transactions have a position, or a part of it."""
    found = set()
    for name in transactions:
        match name.removeprefix(OURS).split("/"):
            case [stream, shard_id, *_]:
                found.add(Shard(unquote(stream), unquote(shard_id)))
    return found
