"""Whether the log contradicts a checkpoint of it.

A checkpoint that can be read may still be wrong: without the column of transactions each shard would begin anew, and
without files readers would see none. So the newest checkpoint is compared with its own entry and those before it, and
with the checkpoint before it if the entries go back to that:

    positions    each one that the log has is there. A later one is only believed if no entry says otherwise
    files        each one that the entries add, and do not remove, is there; if they remove none, as many as before

A version can have several whole checkpoints, by several schemes. Each of them is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import unquote

from fastkcl.tables.base import Shard, SinkError, parse_json
from fastkcl.tables.delta.actions import Json, position_by
from fastkcl.tables.delta.checkpoint_content import Content, DamageError, content
from fastkcl.tables.delta.entry_content import fault
from fastkcl.tables.delta.log import (
    LOG,
    MOST_BYTES,
    checkpoint_version,
    entry_key,
    versions,
    whole_checkpoint,
    whole_checkpoints,
)
from fastkcl.tables.delta.sidecars import ElsewhereError, files_in
from fastkcl.tables.delta.snapshot import OURS, whole
from fastkcl.tables.folders import data_folder, position_text, quoted, spelled
from fastkcl.tables.store import Store

__all__ = ["Contradiction", "checkpoint_fault", "contradiction"]

_MOST_ENTRIES: Final = 1000
"""Before a checkpoint, which are compared with it. deltalake makes one after 100 commits, Spark after 10."""
_FORGETS: Final = "delta.setTransactionRetentionDuration"


class Contradiction(NamedTuple):
    """What a checkpoint has otherwise than the log."""

    why: str
    is_certain: bool
    """False: the older checkpoint may be the one that is wrong."""
    files: Sequence[str] = ()
    """Of the checkpoint that has it so."""


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
    older, older_files = whole_checkpoint([name for name in names if -1 < checkpoint_version(name) < version])
    there = _up_to(version, [each for each in versions(names) if older < each <= version][-_MOST_ENTRIES:])
    each_now = [content(store, files) if now is None or index else now for index, files in enumerate(wholes)]
    try:
        window = _Window.of(store, there)
        before, count = Content({}, {}, {}), 0
        if older_files and len(there) == version - older:
            before = content(store, older_files)
            count = _files_missing(store, older_files, set())[0]
    except (FileNotFoundError, ValueError, SinkError):
        return None  # that is damaged itself, and nobody relies on it
    for files, found in zip(wholes, each_now, strict=True):
        if _FORGETS not in (found.metadata.get("configuration") or {}) and (
            wrong := _of_positions(before.transactions, window.transactions, found.transactions, store.url)
        ):
            return wrong._replace(files=files)
        without = shard if shard is not None and position_by(found.transactions.get, shard, store.url) is None else None
        if wrong := _of_files(store, files, window, count, without):
            return wrong._replace(files=files)
    return None


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


def _up_to(version: int, there: Sequence[int]) -> list[int]:
    """The versions without a gap that end with this one."""
    found: list[int] = []
    for each in reversed(there):
        if each != version - len(found):
            break
        found.insert(0, each)
    return found


@dataclass
class _Window:
    """What entries do together."""

    transactions: dict[str, int] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)
    removes: bool = False

    @classmethod
    def of(cls, store: Store, there: Sequence[int]) -> _Window:
        """Of the entries of these versions.

        Raises:
            FileNotFoundError: one is not there.
            ValueError: one is damaged.
        """
        found = cls()
        for version in there:
            text = store.read(entry_key(version), MOST_BYTES)
            if text is None:
                raise FileNotFoundError(entry_key(version))
            if why := fault(text):
                raise ValueError(why)
            try:
                for line in text.splitlines():
                    found._take(parse_json(line) if line else {})
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(repr(error)) from error
        return found

    def _take(self, action: Json) -> None:
        if (found := action.get("txn")) and found["appId"].startswith(OURS):
            self.transactions[found["appId"]] = whole(found["version"])
        if found := action.get("add"):
            self.added.add(unquote(found["path"]))
        if found := action.get("remove"):
            self.added.discard(unquote(found["path"]))
            self.removes = True


def _of_positions(
    before: Mapping[str, int], window: Mapping[str, int], now: Mapping[str, int], where: str
) -> Contradiction | None:
    expected = {**before, **window}
    in_entries = _shards(window)
    for shard in sorted(_shards(expected), key=lambda each: (each.stream, each.shard_id)):
        name = f"the position of {shard.stream}, {shard.shard_id}"
        try:
            wanted = position_by(expected.get, shard, where)
        except SinkError:  # of the older checkpoint
            continue
        try:
            there = position_by(now.get, shard, where)
        except SinkError:
            return Contradiction(f"it has a part of {name}", is_certain=True)
        if wanted is None or there == wanted:
            continue
        why = f"{name} is {position_text(there)} in it, and {position_text(wanted)} in the log before it"
        return Contradiction(why, is_certain=there is None or there < wanted or shard in in_entries)
    return None


def _of_files(
    store: Store, files: Sequence[str], window: _Window, before: int, without: Shard | None
) -> Contradiction | None:
    missing = set(window.added)
    try:
        count, why = _files_missing(store, files, missing, without)
    except ElsewhereError:
        return None
    if why is None and missing:
        why = f"it lacks {len(missing)} files that the log has, {min(missing)[:200]!r} for one"
    if why is None and not window.removes and count < before:
        why = f"it has {count} files, and there were {before} in the checkpoint before it, of which none was removed"
    return None if why is None else Contradiction(why, is_certain=True)


def _files_missing(
    store: Store, names: Sequence[str], missing: set[str], without: Shard | None = None
) -> tuple[int, str | None]:
    """Take away from `missing` what a checkpoint has; how many files it has, and what is wrong with a path.

    A file that a writer made for the shard `without`, which has no position, is wrong.

    Raises:
        FileNotFoundError: a file of it is not there.
        DamageError: one is damaged.
        ElsewhereError: it has files elsewhere.
    """
    folders = () if without is None else tuple(f"{each}/after-" for each in _folders(without))
    import pyarrow as pa

    count = 0
    for name in names:
        try:
            for paths in files_in(store, name):
                if not all(path and "\0" not in path for path in paths):
                    return count, "the path of a file in it is damaged"
                names_there = list(map(unquote, paths))
                if without is not None and any(path.startswith(folders) for path in names_there):
                    return count, f"it has files of {without.stream}, {without.shard_id}, and no position"
                count += len(names_there)
                missing.difference_update(names_there)
        except ElsewhereError:
            raise
        except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamageError(name, str(error).partition("\n")[0][:300]) from error
    return count, None


def _folders(shard: Shard) -> tuple[str, str]:
    """Where the files of a shard are, if the table is partitioned by both; and where an earlier DeltaTable put them."""
    return (
        data_folder(f"{quoted(shard.stream)}/{quoted(shard.shard_id)}"),
        data_folder(f"{spelled(shard.stream)}/{spelled(shard.shard_id)}"),
    )


def _shards(transactions: Mapping[str, int]) -> set[Shard]:
    """Of which transactions have a position, or a part of it."""
    found = set()
    for name in transactions:
        match name.removeprefix(OURS).split("/"):
            case [stream, shard_id, *_]:
                found.add(Shard(unquote(stream), unquote(shard_id)))
    return found
