"""Parquet files in a folder, each record exactly once.

    table/
      stream=clicks/shard=shardId-000000000000/start-00000.parquet   visible to readers
      _commits/clicks/shardId-000000000000/after-start               one small file for each commit
      _staging/clicks/shardId-000000000000/after-start-<random>/     written, not yet committed
      _table                                                         the table's id

Spark and Arrow leave out folders whose names begin with ``_``; `folders` has the spelling of names. The steps of
one write, P being the position up to which the table has the shard:

    stage     Parquet files are written into a new staging folder and synced
    commit    a finished temporary file is linked to ``after-<P>``: an exclusive creation, which fails if that exists.
              It names the staged files, and L, the position of their last record
    publish   the files are linked to names made from P, which replaces nothing and can be done again without harm.
              When these names are synced, the staging folder goes

Each step is synced before the next, and a writer that relies on another's step syncs it first: the other may have died
before its own sync. So a power cut takes back the last steps of a write, and none before.

The commit files of a shard are a chain, from ``after-start`` over ``after-<L>``; the end of the chain is the table's
position. They fence off a child that has lost its lease and does not know it, for ever: nothing may remove or rewrite
them. A commit is a few hundred bytes with a checksum of them: whoever goes on believes its end.

For POSIX file systems, local or shared by all of Spark's machines under one path. On object stores there is no
exclusive creation and rename that this could trust.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastkcl import Position
from fastkcl.stdio.log import logger
from fastkcl.tables import storage
from fastkcl.tables.appender import Appender
from fastkcl.tables.base import RECOVERY, Files, Rows, Shard, SinkError, parse_own_json, parse_sealed, sealed
from fastkcl.tables.folders import (
    can_exist,
    check_names,
    data_folder,
    local_folder,
    parse_position,
    position_of,
    position_text,
    quoted,
    shard_folders,
    unspelled,
)
from fastkcl.tables.given_up import NOTES, given_up, keep_in, upto_of
from fastkcl.tables.position import report_other
from fastkcl.tables.posix_store import PosixStore

__all__ = ["Commit", "ParquetAppender", "check_staging", "commit_file", "commits", "read_id", "removed", "shards"]

_COMMITS = "_commits"
_STAGING = "_staging"
_TABLE = "_table"
_AFTER = "after-"
_RANDOM = re.compile(r"[0-9a-f]{16}")
_PUBLISHED = re.compile(r"(start|[0-9]+(?:\.[0-9]+)?)-[0-9]{5,}\.parquet", re.ASCII)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit file."""

    after: Position | None
    """Position that it continues from; None for the shard's first."""
    upto: Position
    """Position of its last record."""
    rows: int
    """Records, before any transformation."""
    staging: str
    """Staging folder, from the table's folder on."""
    files: tuple[str, ...]
    """Names of the files in it."""
    has_checksum: bool = field(default=True, compare=False)
    """Those of earlier versions have none."""

    def published(self, folders: str) -> list[str]:
        """Where its files end up, from the table's folder on; `folders` are the shard's."""
        return [
            f"{data_folder(folders)}/{position_text(self.after)}-{index:05d}.parquet"
            for index in range(len(self.files))
        ]


class ParquetAppender(Appender):
    """Writes a shard's records into a folder of Parquet files: exactly once, in order, with a zombie fenced off.

    Args:
        path: folder of the table, on a POSIX file system that the writer of its files sees under the same path.

    Raises:
        ValueError: `path` is a URL of something else.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(local_folder(path, "ParquetSink"))
        self._folders = ""
        self._id: str | None = None
        self._last: Commit | None = None  # that ends there

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard: publish commits that a death has left, remove files that can never be committed.

        Raises:
            ValueError: the stream or the shard has no name.
            SinkError: a commit file is damaged or missing, its data are gone, or since it was opened before the table
                has been replaced.
            OSError: the table's folder cannot be read or written.
        """
        check_names(shard, "ParquetSink")
        if shard != self._shard:
            self._shard, self._folders = shard, _folders_of(self._root, shard)
            self._id = self._position = self._last = None
        if self._id is not None:  # before a folder is made in the place of a table that is gone
            self._check_identity()
        for folder in (self._data_folder, self._commit_folder, self._staging_folder):
            storage.make_folder(folder)  # in this order, by which `removed` knows what was removed
        check_staging(self._root, self._folders)
        if self._id is None:
            self._id = _identify(self._root)
        # First the published files: their commits are seen below. Once, before anything else: a later commit from
        # here on is his to publish.
        published = storage.names(self._data_folder)
        afters = list(_afters(self._commit_folder))
        _check_published(self._data_folder, published, afters)
        last = self._last_of(afters)
        if last is not None:
            self._adopt(last)
        self._remove_dead_staging({position_text(after) for after in afters})
        return self._position

    def give_up(self, upto: Position) -> None:
        """Note that records up to a position have been given up: a checkpoint there is no sign of a loss."""
        self._keep_note(upto)

    def gone_on(self) -> bool:
        """See `KeepsPositions.gone_on`."""
        return self._keep_note(None)

    def given_up(self) -> Position | None:
        """Up to where records have been given up; None if none have."""
        return upto_of(given_up(PosixStore(self._root), f"{NOTES}/{self._folders}"), self._position)

    def _keep_note(self, upto: Position | None) -> bool:
        store, key = PosixStore(self._root), f"{NOTES}/{self._folders}"
        return keep_in(store, key, given_up(store, key), upto, self._position)

    def _append(self, rows: Rows, files: Files) -> None:
        after = self._position
        staging = self._staging_folder / f"{_AFTER}{position_text(after)}-{secrets.token_hex(8)}"
        tried = committed = False
        try:
            names = self._stage(staging, files)
            rows.check_wanted()
            self._check_identity()
            if names is not None:
                commit = Commit(
                    after=after,
                    upto=rows.last_position,
                    rows=rows.num_rows,
                    staging=str(staging.relative_to(self._root)),
                    files=names,
                )
                tried = True
                committed = self._commit(commit)
                self._check_identity()
        except BaseException:
            # Unless the commit names it: then the next writer publishes it.
            if not tried or self._has_no_commit(after):
                storage.remove(staging)
            raise
        if not committed:
            storage.remove(staging)
            found = self._last_of(_afters(self._commit_folder))
            if found is None or (after is not None and found.upto <= after):
                raise SinkError(
                    f"{self._name}: a commit after {position_text(after)} was there, and is gone: {_REPLACED}"
                )
            commit = found
            report_other(self._name, after, commit.upto)
        self._adopt(commit, kept=committed)

    def _stage(self, staging: Path, files: Files) -> tuple[str, ...] | None:
        """Write and sync files; their names, or None if a successor has removed them with its commit in their place.

        Raises:
            FileNotFoundError: they are gone, and there is no such commit.
        """
        try:
            files.write(staging)
            names = tuple(name for name in storage.names(staging) if name.endswith(".parquet"))
            for file in names:
                storage.sync_file(staging / file)
            storage.sync_folder(staging)
            storage.sync_folder(staging.parent)
        except FileNotFoundError:
            if storage.file_status(self._commit_file(self._position)) is None:
                raise
            return None
        return names

    def _has_no_commit(self, after: Position | None) -> bool:
        """Whether that is sure."""
        try:
            return storage.file_status(self._commit_file(after)) is None
        except (OSError, SinkError):
            return False

    def _commit(self, commit: Commit) -> bool:
        """Link the commit file into its place; false if there is one."""
        content = {
            "after": _numbers(commit.after),
            "upto": _numbers(commit.upto),
            "rows": commit.rows,
            "staging": commit.staging,
            "files": commit.files,
        }
        return storage.create(self._commit_file(commit.after), sealed(content))

    def _adopt(self, commit: Commit, *, kept: bool = False) -> None:
        """Continue from a commit's end, when it is kept and published, from any writer.

        Args:
            commit: the last one.
            kept: it is synced.

        Raises:
            SinkError: its data are gone, or the table has gone back.
        """
        if self._position is not None and commit.upto < self._position:
            raise SinkError(
                f"{self._name}: its position was {position_text(self._position)}, and now is"
                f" {position_text(commit.upto)}: {_REPLACED}"
            )
        if not kept:
            file = self._commit_file(commit.after)
            storage.sync_file(file)
            storage.sync_folder(file.parent)
        self._publish(commit)
        self._position, self._last = commit.upto, commit

    def _publish(self, commit: Commit) -> None:
        """Link a commit's files to where readers see them, unless that is done.

        Raises:
            SinkError: a file is neither there nor in its staging folder, or another one is in its place.
        """
        staging = self._root / commit.staging
        for name, published in zip(commit.files, commit.published(self._folders), strict=True):
            source, target = staging / name, self._root / published
            try:
                storage.link(source, target)
            except FileNotFoundError:
                if storage.file_status(target) is None:
                    raise SinkError(
                        f"{target}: committed (after {position_text(commit.after)}, up to"
                        f" {position_text(commit.upto)}) and gone, as is {source}: restore one of them, or its records"
                        " are lost"
                    ) from None
            except FileExistsError:
                there, staged = storage.file_status(target), storage.file_status(source)
                if there is None or staged is None or os.path.samestat(there, staged):
                    continue
                if not storage.are_equal(target, source):
                    raise SinkError(
                        f"{target}: there is another file in the place of {source}, which is committed after"
                        f" {position_text(commit.after)}: a commit file was lost or removed; {RECOVERY}"
                    ) from None
                storage.sync_file(target)  # by a copy of the table that made two files of one
        storage.sync_folder(self._data_folder)
        storage.remove(staging)

    def _check_identity(self) -> None:
        """See that it is the table that was opened, and has the commit that the position is from.

        Raises:
            SinkError: it is not.
        """
        if (found := read_id(self._root)) != self._id:
            raise SinkError(f"{self._name}: its id was {self._id}, and now is {found or 'gone'}: {_REPLACED}")
        if self._last is not None:
            file = self._commit_file(self._last.after)
            if _read(file, self._folders) != self._last:
                raise SinkError(
                    f"{file}: is another commit than the one that this writer has seen, as if an older copy had been"
                    f" continued: {_REPLACED}"
                )

    def _last_of(self, afters: Iterable[Position | None]) -> Commit | None:
        """The end of the chain. Each commit before it has been published by who made the next one."""
        last = max(afters, key=lambda after: (after is not None, after), default=_NOTHING)
        return None if last is _NOTHING else _read(self._commit_file(last), self._folders)

    def _remove_dead_staging(self, committed: Set[str]) -> None:
        """Remove staging folders whose commit can no longer succeed, because another commit is published."""
        for name in storage.names(self._staging_folder):
            after, _, random = name.removeprefix(_AFTER).rpartition("-")
            if name.startswith(_AFTER) and after in committed and _RANDOM.fullmatch(random):
                storage.remove(self._staging_folder / name)

    @property
    def _name(self) -> str:
        assert self._shard is not None
        return f"{self._root} ({self._shard.stream}, {self._shard.shard_id})"

    @property
    def _commit_folder(self) -> Path:
        return self._root / _COMMITS / self._folders

    def _commit_file(self, after: Position | None) -> Path:
        return commit_file(self._root, self._folders, after)

    @property
    def _staging_folder(self) -> Path:
        return self._root / _STAGING / self._folders

    @property
    def _data_folder(self) -> Path:
        return self._root / data_folder(self._folders)


def shards(path: str | os.PathLike[str]) -> tuple[dict[Shard, str], list[str]]:
    """The shards that a table has commits of, in order, with their folders; and the faults of others' files there.

    Raises:
        SinkError: `path` is not a table of a ParquetSink.
    """
    root = Path(path, _COMMITS)
    if storage.status(root) is None:
        raise SinkError(f"{os.fspath(path)}: no table of a ParquetSink, it has no folder {_COMMITS}")
    found: dict[Shard, str] = {}
    faults: list[str] = []
    for folders in _two_levels(root, faults):
        try:
            shard = Shard(*map(unspelled, folders.split("/")))
            check_names(shard, "ParquetSink")
        except ValueError as error:
            faults.append(f"{root / folders}: no name of a shard's folder: {error}")
            continue
        if shard in found:
            faults.append(str(_two_spellings(root.parent, shard, [found[shard], folders])))
        else:
            found[shard] = folders
    return dict(sorted(found.items(), key=lambda item: (item[0].stream, item[0].shard_id))), faults


def removed(path: str | os.PathLike[str]) -> list[str]:
    """Faults of shards whose commits somebody has removed with their folder.

    A sink makes the folder of a shard's data, then that of its commits, then its staging folder: a later one shows
    that the earlier ones were there. Where all three are gone, nothing in the table shows it.
    """
    root = Path(path)
    found: list[str] = []
    # Before the commits, so that nothing is seen here whose commits are made meanwhile.
    later = {folders: where for where in (NOTES, _STAGING) for folders in _pairs(root / where, found)}
    for folders, where in sorted(later.items()):
        with suppress(
            OSError, ValueError, SinkError
        ):  # of another thing in the place of a folder, which `shards` names
            Shard(*map(unspelled, folders.split("/")))
            if storage.status(root / _COMMITS / folders) is None:
                found.append(
                    f"{root / _COMMITS / folders}: gone, and {root / where / folders} shows that it was there. A new"
                    f" writer would begin this shard again: restore the shard's commits and data; {RECOVERY}"
                )
    return found


def _pairs(root: Path, faults: list[str]) -> Iterator[str]:
    """The names in a folder's folders; other things in the place of one are faults."""
    try:
        for first in storage.names(root):
            names = storage.names(root / first)
            # Without notes whose writer has died, and .DS_Store.
            yield from (f"{first}/{second}" for second in names if not second.startswith("."))
    except SinkError as error:
        faults.append(str(error))


def _two_levels(root: Path, faults: list[str]) -> Iterator[str]:
    """The folders in a folder's folders; other things are faults."""
    for first in storage.names(root):
        if not _is_folder(root / first, faults):
            continue
        for second in storage.names(root / first):
            if _is_folder(root / first / second, faults):
                yield f"{first}/{second}"


def _is_folder(path: Path, faults: list[str]) -> bool:
    try:
        found = storage.status(path)
    except SinkError as error:
        faults.append(str(error))
        return False
    except OSError as error:
        faults.append(f"{path}: {error.strerror}; {RECOVERY}")
        return False
    if found is not None and stat.S_ISDIR(found.st_mode):
        return True
    if found is not None or path.is_symlink():  # else it is gone since it was listed
        faults.append(
            f"{path}: a file, or a link that leads nowhere, is in the place of a folder: move it away; {RECOVERY}"
        )
    return False


def commit_file(root: Path, folders: str, after: Position | None) -> Path:
    """The one commit file that continues from a position, of the shard with these folders."""
    return root / _COMMITS / folders / f"{_AFTER}{position_text(after)}"


def commits(path: str | os.PathLike[str], folders: str) -> list[Commit]:
    """The commits in a shard's folders, in the order of the positions that they continue from; they may be no chain.

    Raises:
        SinkError: a commit file is damaged.
    """
    folder = Path(path, _COMMITS, folders)
    afters = sorted(_afters(folder), key=lambda after: (after is not None, after))
    return [_read(commit_file(Path(path), folders, after), folders, in_chain=False) for after in afters]


_NOTHING: Any = object()
_REPLACED = "the table was replaced. Restore it, or start the child again to continue with this one"


def check_staging(root: Path, folders: str) -> None:
    """See that a shard's staging folder is where its name says: a sink removes folders in it.

    Raises:
        SinkError: it leads elsewhere, or something else is in its place.
    """
    staging = root / _STAGING / folders
    # Path.resolve raises a RuntimeError for links in a circle, up to Python 3.12.
    if any(path.is_symlink() for path in (staging, staging.parent, root / _STAGING)):
        raise SinkError(f"{staging}: leads elsewhere, and a sink removes folders there: make it a folder; {RECOVERY}")
    storage.names(staging)


def _folders_of(root: Path, shard: Shard) -> str:
    """The folders of a shard: as they are spelled now, or as an earlier version has spelled those that are there.

    Raises:
        SinkError: it has both, or others; or a file is in the place of one.
    """
    folders = shard_folders(shard)
    there = []
    for stream in storage.names(root / _COMMITS):
        for shard_id in storage.names(root / _COMMITS / stream):
            with suppress(ValueError):
                if Shard(unspelled(stream), unspelled(shard_id)) == shard:
                    there.append(f"{stream}/{shard_id}")
    old = f"{quoted(shard.stream)}/{quoted(shard.shard_id)}"
    if there in ([], [folders]):
        return folders
    if there != [old]:
        raise _two_spellings(root, shard, there)
    logger().warning(
        "%s: the commits of %s, %s are in %s, as an earlier version has spelled it, and go on there: Spark reads such"
        " names differently (007 as 7); a new table has %s",
        root,
        shard.stream,
        shard.shard_id,
        f"{_COMMITS}/{old}",
        data_folder(folders),
    )
    return old


def _two_spellings(root: Path, shard: Shard, there: list[str]) -> SinkError:
    places = " and ".join(f"{_COMMITS}/{each}" for each in there)
    return SinkError(
        f"{root}: the commits of stream {shard.stream}, shard {shard.shard_id} are in {places}, and belong into"
        f" {_COMMITS}/{shard_folders(shard)} alone: {RECOVERY}"
    )


def _identify(root: Path) -> str:
    """The table's id, which is made if it has none."""
    found = read_id(root)
    if found is None:
        storage.create(root / _TABLE, json.dumps({"format": 1, "id": secrets.token_hex(16)}).encode())
        found = read_id(root)
    else:
        storage.sync_file(root / _TABLE)  # who has made it may have died
        storage.sync_folder(root)
    if found is None:
        raise SinkError(f"{root / _TABLE}: made, and gone: {_REPLACED}")
    return found


def read_id(root: Path) -> str | None:
    """The table's id; None if it has none, as those of earlier versions.

    Raises:
        SinkError: it is damaged.
    """
    text = storage.read(root / _TABLE)
    if text is None:
        return None
    try:
        content = parse_own_json(text)
        if type(content["format"]) is int and content["format"] == 1 and isinstance(content["id"], str):
            return content["id"]
    except (ValueError, KeyError, TypeError):
        pass
    raise SinkError(f"{root / _TABLE}: damaged, or of a newer version: restore it from a copy; {RECOVERY}")


def _uncommitted(published: Iterable[str], afters: Iterable[Position | None]) -> list[str]:
    """Names of files that a sink has published, of commits that are not there."""
    committed = {position_text(after) for after in afters}
    return [name for name in published if (match := _PUBLISHED.fullmatch(name)) and match[1] not in committed]


def _check_published(folder: Path, published: Iterable[str], afters: Iterable[Position | None]) -> None:
    """See that no commit file is missing, by the published files: the next writer would commit in its place.

    Raises:
        SinkError: one is.
    """
    if lost := _uncommitted(published, afters):
        raise SinkError(
            f"{folder / lost[0]}: published ({len(lost)} files), and its commit file is gone. Its records are in the"
            f" table, and nobody knows up to where: restore the commit file; {RECOVERY}"
        )


def _afters(folder: Path) -> Iterator[Position | None]:
    for name in storage.names(folder):
        if name.startswith(_AFTER):
            try:
                yield parse_position(name.removeprefix(_AFTER))
            except (ValueError, OverflowError) as error:
                raise SinkError(
                    f"{folder / name}: no name of a commit file: remove files that do not belong there"
                ) from error


def _read(path: Path, folders: str, *, in_chain: bool = True) -> Commit:
    """A commit file of a shard with these folders, looked through before anything is done by it.

    Args:
        path: of the file.
        folders: the shard's.
        in_chain: see also that it begins where its name says, and goes on.

    Raises:
        SinkError: it is gone or damaged: a commit names its own staging folder, plain files in it, and goes on.
    """
    text = storage.read(path)
    if text is None:
        raise SinkError(f"{path}: this commit was there, and is gone: {_REPLACED}")
    try:
        content, has_checksum = parse_sealed(text)
        if not (isinstance(content["staging"], str) and isinstance(content["files"], list)):
            raise TypeError("its staging is not text, or its files are no list")
        commit = Commit(
            after=None if content["after"] is None else position_of(content["after"]),
            upto=position_of(content["upto"]),
            rows=content["rows"],
            staging=content["staging"],
            files=tuple(content["files"]),
            has_checksum=has_checksum,
        )
        _check(commit, path.name, folders)
        if in_chain:
            _check_place(commit, path.name)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise SinkError(f"{path}: a damaged commit file ({error!r}): restore it from a copy; {RECOVERY}") from error
    return commit


def _check(commit: Commit, name: str, folders: str) -> None:
    staging = f"{_STAGING}/{folders}/{name}-"
    if type(commit.rows) is not int or not 0 <= commit.rows < 1 << 53:
        raise ValueError(f"it has {str(commit.rows)[:40]} rows")
    if not (commit.staging.startswith(staging) and _RANDOM.fullmatch(commit.staging[len(staging) :])):
        raise ValueError(f"{commit.staging!r} is not a staging folder of it")
    for file in commit.files:
        if not (isinstance(file, str) and file.isprintable() and file.endswith(".parquet")) or (
            "/" in file or not can_exist(file)
        ):
            raise ValueError(f"{file!r} is not a name of a staged file")
    if len(set(commit.files)) != len(commit.files):
        raise ValueError("it names a file twice")


def _check_place(commit: Commit, name: str) -> None:
    if name != f"{_AFTER}{position_text(commit.after)}":
        raise ValueError(f"it is the commit after {position_text(commit.after)}")
    if commit.after is not None and commit.upto <= commit.after:
        raise ValueError(f"it ends at {position_text(commit.upto)}, before it begins")


def _numbers(position: Position | None) -> tuple[str, int | None] | None:
    return None if position is None else (position.sequence_number, position.sub_sequence_number)
