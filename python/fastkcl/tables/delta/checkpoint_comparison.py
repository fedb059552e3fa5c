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
    nothing      an entry of 0 bytes, or one that has lost what readers do not miss, was damaged before the
                 checkpoint if that has just what is left. The first may have been sound, and done nothing, or nothing
                 that later entries did not do again
    mended       beside an entry that somebody has replaced by one that does nothing, the checkpoint may have more

If they disagree, an entry or the older checkpoint may as well be damaged: nobody can know. A sound checkpoint that was
set aside for them would lose records, so a writer stops. Only a checkpoint that contradicts itself is done without.

A version can have several whole checkpoints, by several schemes. Each of them is compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from fastkcl.tables.base import RECOVERY, Shard, SinkError
from fastkcl.tables.delta.actions import Json, position_by
from fastkcl.tables.delta.checkpoint_content import Content, DamageError, content
from fastkcl.tables.delta.checkpoint_files import FileCount, counted, counted_without
from fastkcl.tables.delta.entry_content import Lost
from fastkcl.tables.delta.log import (
    LOG,
    checkpoint_version,
    entry_key,
    whole_checkpoint,
    whole_checkpoints,
)
from fastkcl.tables.delta.sidecars import ElsewhereError
from fastkcl.tables.delta.window import Contradiction, Span, Window, entries_before, shards_of
from fastkcl.tables.store import Store

__all__ = ["EntryError", "check_entries", "checkpoint_fault", "contradiction"]


class EntryError(SinkError):
    """An entry of the log is a copy of another one, or damaged. `str()` says which."""


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
    span = Span.of(names, version)
    each_now = [content(store, files) if now is None or index else now for index, files in enumerate(wholes)]
    try:
        before = span.before(store)
        earlier = entries_before(store, names, span.there[0] if span.there else version + 1, len(span.there))
        window = Window.of(store, span.there, before, earlier.sure)
        window.copied = earlier.copied or window.copied
        if earlier.metadata and not window.has_metadata:
            window.metadata = earlier.metadata
        files_before = None if before is None else counted(store, span.older_files, window.files)
    except (FileNotFoundError, ValueError, SinkError):  # that is damaged itself, and nobody relies on it
        chain = entries_before(store, names, version + 1, 0)
        copied = None if chain.copied is None else Contradiction(chain.copied, is_certain=False)
        sure, found = Window(None, chain.sure), each_now[0]
        wrong = copied or sure.of_positions(found, store.url) or chain.of_metadata(found)
        wrong = wrong or _of_files(store, wholes[0], sure, None, chain)
        if wrong is not None:
            return wrong._replace(files=wholes[0])
        return _made_over_nothing(store, names, chain.hollow, wholes)
    for files, found in zip(wholes, each_now, strict=True):
        if window.copied is not None:
            return Contradiction(window.copied, is_certain=False, files=files)
        if window.hollow and _has_nothing(store, files, found, window, files_before):
            return _of_nothing(window.hollow, files)
        if window.is_emptied:
            continue
        wrong = window.of_positions(found, store.url) or window.of_metadata(found)
        if wrong is not None and (wrong.is_certain or not window.is_mended):
            return wrong._replace(files=files)
        without = shard if shard is not None and position_by(found.transactions.get, shard, store.url) is None else None
        known_before = None if window.hollow else files_before
        wrong = _of_files(store, files, window, known_before, earlier, without)
        if wrong is not None and (wrong.is_certain or not window.is_mended):
            return wrong._replace(files=files)
    return _made_over_nothing(store, names, earlier.hollow, wholes)


def _of_nothing(hollow: dict[int, Lost], files: Sequence[str]) -> Contradiction:
    """Of the newest of these entries."""
    entry = next(reversed(hollow))
    told = f"{_in_words(entry, hollow[entry])}, and the checkpoint has nothing of it"
    return Contradiction(told, is_certain=False, files=files, is_of_nothing=True)


def _in_words(entry: int, why: Lost) -> str:
    return f"{entry_key(entry)} has 0 bytes" if why == "0 bytes" else f"{entry_key(entry)} is damaged, {why}"


def _made_over_nothing(
    store: Store, names: Sequence[str], hollow: dict[int, Lost], newest: Sequence[Sequence[str]]
) -> Contradiction | None:
    """The newest of these entries of which a checkpoint has nothing; the checkpoints after it have no more.

    Args:
        store: the table's.
        names: of all files in the log that have content, or are entries.
        hollow: versions, in order, with what is wrong.
        newest: the files of the newest checkpoints, which are of one version.
    """
    checkpoints: dict[int, list[str]] = {}
    for name in names:
        if (version := checkpoint_version(name)) >= 0:
            checkpoints.setdefault(version, []).append(name)
    whole = sorted(each for each, files in checkpoints.items() if whole_checkpoint(files)[0] == each)
    after = len(whole)
    for entry in reversed(hollow):
        first = bisect_left(whole, entry)
        if first >= after:  # it was looked at for a later entry
            continue
        after, version = first, whole[first]
        _, wholes = whole_checkpoints(checkpoints[version])
        span = Span.of(names, version)
        with suppress(FileNotFoundError, ValueError, SinkError):  # damaged, and nobody relies on it
            before = span.before(store)
            window = Window.of(store, span.there, before)
            files_before = None if before is None else counted(store, span.older_files, window.files)
            if any(_has_nothing(store, files, content(store, files), window, files_before) for files in wholes):
                return _of_nothing({entry: hollow[entry]}, newest[0])
    return None


def check_entries(store: Store, before: int, files: Sequence[str], version: int) -> None:
    """See that a checkpoint that is to be made would set no shard back, nor pass over what an entry has lost.

    Args:
        store: of the log.
        before: version of the previous checkpoint; negative without one.
        files: the names of the previous checkpoint's files.
        version: the new checkpoint is of this one.

    Raises:
        EntryError: an entry between the two is a copy of another one, or damaged.
        OSError: a file cannot be read.
    """
    try:
        known = content(store, files) if before >= 0 else Content({}, {}, {})
    except (FileNotFoundError, DamageError):
        return  # who reads it will say so
    try:
        window = Window.of(store, range(before + 1, version + 1), known)
    except FileNotFoundError:
        return
    except ValueError as error:
        raise EntryError(f"{error}; {RECOVERY}") from error
    if window.copied is not None:
        raise EntryError(f"{window.copied}; {RECOVERY}")
    if window.torn is not None:
        raise EntryError(f"{window.torn}; {RECOVERY}")
    for entry, why in window.hollow.items():
        raise EntryError(f"{_in_words(entry, why)}; {RECOVERY}")


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


def _has_nothing(store: Store, files: Sequence[str], found: Content, window: Window, before: FileCount | None) -> bool:
    """Whether a checkpoint has just what a window with hollow entries has, and nothing that these have lost.

    Not judged is a window that does not go back to the checkpoint before it, or to the entry that makes the table.
    """
    if before is None or not window.metadata:
        return False
    if shards_of(found.transactions) - window.shards():  # it was made when the entry was whole
        return False
    as_kept = replace(window, transactions=window.kept)
    return not (
        (window.of_positions(found, store.url) and as_kept.of_positions(found, store.url))
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
    window: Window,
    before: FileCount | None,
    earlier: Window | None = None,
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
