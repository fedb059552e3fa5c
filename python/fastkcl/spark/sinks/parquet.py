"""Parquet files in a folder, each record exactly once.

    table/
      stream=clicks/shard=shardId-000000000000/0-00000.parquet       what readers see
      _commits/clicks/shardId-000000000000/after-start               one small file for each commit
      _staging/clicks/shardId-000000000000/after-start-<random>/     written, not yet committed

Spark and Arrow leave out folders whose names begin with ``_``. The steps of one write, P being the position up to
which the table has the shard:

    stage     Spark writes Parquet files into a new staging folder; they are synced
    commit    a finished temporary file is linked to ``after-<P>``: an exclusive creation, which fails if that exists.
              It names the staged files, and L, the position of their last record
    publish   the files are renamed to names made from P, which can be done again without harm

The commit files of a shard are a chain, from ``after-start`` over ``after-<L>``; the end of the chain is the table's
position. They fence off a child that has lost its lease and does not know it, for ever: nothing may remove or rewrite
them. A commit is a few hundred bytes.

For POSIX file systems, local or shared by all of Spark's machines under one path. On object stores there is no
exclusive creation and rename that this could trust.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fastkcl import Position
from fastkcl.spark.sinks.base import Rows, Shard, SinkError, Transform
from fastkcl.spark.sinks.folders import START, data_folder, local_folder, make_folder, position_text, quoted, sync
from fastkcl.stdio.log import logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Commit", "ParquetSink", "commits", "shards"]

_COMMITS = "_commits"
_STAGING = "_staging"
_AFTER = "after-"


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

    def published(self, shard: Shard) -> list[str]:
        """Where its files end up, from the table's folder on."""
        return [
            f"{data_folder(shard)}/{position_text(self.after)}-{index:05d}.parquet" for index in range(len(self.files))
        ]


class ParquetSink:
    """Writes a shard's records into a folder of Parquet files: exactly once, in order, with a zombie fenced off.

    Args:
        path: folder of the table, on a POSIX file system that Spark sees under the same path.
        transform: makes of a DataFrame in the canonical schema (`fastkcl.spark.schema.SCHEMA`) the one that is
            written. It may be called more than once for the same records.

    Raises:
        ValueError: `path` is a URL of something else.
    """

    def __init__(self, path: str | os.PathLike[str], *, transform: Transform | None = None) -> None:
        self._root = local_folder(path, "ParquetSink")
        self._transform = transform
        self._shard: Shard | None = None
        self._position: Position | None = None

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard: publish what a death has left committed, remove what can never be committed.

        Raises:
            SinkError: a commit file is damaged, or its data are gone.
            OSError: the table's folder cannot be read or written.
        """
        self._shard = shard
        for folder in (self._commit_folder, self._staging_folder, self._root / data_folder(shard)):
            make_folder(folder)
        # Once, before anything else: what somebody commits from here on is his to publish.
        afters = list(_afters(self._commit_folder))
        last = self._last_of(afters)
        self._position = None
        if last is not None:
            self._publish(last)
            self._position = last.upto
        self._remove_dead_staging({position_text(after) for after in afters})
        return self._position

    def write(self, rows: Rows, session: SparkSession) -> Position:
        """Make rows durable and visible; see `base.Sink.write`.

        Raises:
            SinkError: the table is damaged.
            WriteCancelledError: the lease has gone before the commit.
            Exception: what Spark, `transform` or the file system raised.
        """
        remaining: Rows | None = rows
        while remaining is not None:
            if self._position is not None:
                remaining = remaining.behind(self._position)
                if remaining is None:
                    break
            self._write_behind(remaining, session)
        assert self._position is not None
        return self._position

    def _write_behind(self, rows: Rows, session: SparkSession) -> None:
        """Write rows that are all behind the position, or learn that somebody else has continued from there."""
        after = self._position
        staging = self._staging_folder / f"{_AFTER}{position_text(after)}-{secrets.token_hex(8)}"
        df = rows.data_frame(session)
        if self._transform is not None:
            df = self._transform(df)
        try:
            df.write.parquet(f"file://{staging}")  # Spark takes the path as it is, without escapes
            files = tuple(sorted(file.name for file in staging.iterdir() if file.name.endswith(".parquet")))
            for file in files:
                sync(staging / file)
            sync(staging)
            sync(staging.parent)
            commit = Commit(
                after=after,
                upto=rows.last_position,
                rows=rows.num_rows,
                staging=str(staging.relative_to(self._root)),
                files=files,
            )
            rows.check_wanted()
            committed = self._commit(commit)
        except BaseException:
            # Unless the commit names it: then it is published by whoever comes next.
            if self._committed_after(after) is None:
                rmtree(staging, ignore_errors=True)
            raise
        if not committed:
            rmtree(staging, ignore_errors=True)
            found = self._last_of(_afters(self._commit_folder))
            assert found is not None  # the one that was in our way
            commit = found
            logger().warning(
                "%s: another writer has continued from %s up to %s; dropping what it has written",
                self._name,
                position_text(after),
                position_text(commit.upto),
            )
        self._publish(commit)
        self._position = commit.upto

    def _commit(self, commit: Commit) -> bool:
        """Link the commit file into its place; false if there is one."""
        folder = self._commit_folder
        temporary = folder / f".{secrets.token_hex(8)}"
        content = {
            "after": _numbers(commit.after),
            "upto": _numbers(commit.upto),
            "rows": commit.rows,
            "staging": commit.staging,
            "files": commit.files,
        }
        try:
            with temporary.open("x", encoding="utf-8") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            place = folder / f"{_AFTER}{position_text(commit.after)}"
            try:
                place.hardlink_to(temporary)
            except FileExistsError:
                if not place.samefile(temporary):  # a network file system can do it and lose the answer
                    return False
        finally:
            temporary.unlink(missing_ok=True)
        sync(folder)
        return True

    def _publish(self, commit: Commit) -> None:
        """Rename a commit's files to where readers see them, unless that is done.

        Raises:
            SinkError: a file is neither there nor in its staging folder.
        """
        assert self._shard is not None
        moved = False
        for name, published in zip(commit.files, commit.published(self._shard), strict=True):
            source, target = self._root / commit.staging / name, self._root / published
            try:
                source.rename(target)
                moved = True
            except FileNotFoundError:
                if not target.exists():
                    raise SinkError(
                        f"{target}: committed (after {position_text(commit.after)}, up to"
                        f" {position_text(commit.upto)}) and gone, as is {source}: restore one of them, or its records"
                        " are lost"
                    ) from None
        if moved:
            sync(self._root / data_folder(self._shard))
        rmtree(self._root / commit.staging, ignore_errors=True)

    def _last_of(self, afters: Iterable[Position | None]) -> Commit | None:
        """The end of the chain. Each commit before it has been published by who made the next one."""
        last = max(afters, key=lambda after: (after is not None, after), default=_NOTHING)
        return None if last is _NOTHING else _read(self._commit_folder / f"{_AFTER}{position_text(last)}")

    def _committed_after(self, after: Position | None) -> Path | None:
        path = self._commit_folder / f"{_AFTER}{position_text(after)}"
        return path if path.exists() else None

    def _remove_dead_staging(self, published: Set[str]) -> None:
        """Remove staging folders whose commit can't succeed any more, as that of somebody else is published."""
        for folder in self._staging_folder.iterdir():
            if folder.name.removeprefix(_AFTER).rpartition("-")[0] in published:
                rmtree(folder, ignore_errors=True)

    @property
    def _name(self) -> str:
        assert self._shard is not None
        return f"{self._root} ({self._shard.stream}, {self._shard.shard_id})"

    @property
    def _commit_folder(self) -> Path:
        return self._root / _COMMITS / self._folders

    @property
    def _staging_folder(self) -> Path:
        return self._root / _STAGING / self._folders

    @property
    def _folders(self) -> str:
        assert self._shard is not None
        return f"{quoted(self._shard.stream)}/{quoted(self._shard.shard_id)}"


def shards(path: str | os.PathLike[str]) -> list[Shard]:
    """The shards that a table has commits of, in order.

    Raises:
        SinkError: `path` is no table of a ParquetSink.
    """
    folder = Path(path, _COMMITS)
    if not folder.is_dir():
        raise SinkError(f"{os.fspath(path)}: no table of a ParquetSink, it has no folder {_COMMITS}")
    return [
        Shard(unquote(stream.name), unquote(shard.name))
        for stream in sorted(folder.iterdir())
        for shard in sorted(stream.iterdir())
    ]


def commits(path: str | os.PathLike[str], shard: Shard) -> list[Commit]:
    """The commits of a shard, in the order of the positions that they continue from.

    Raises:
        SinkError: a commit file is damaged.
    """
    folder = Path(path, _COMMITS, quoted(shard.stream), quoted(shard.shard_id))
    afters = sorted(_afters(folder), key=lambda after: (after is not None, after))
    return [_read(folder / f"{_AFTER}{position_text(after)}") for after in afters]


_NOTHING: Any = object()


def _afters(folder: Path) -> Iterator[Position | None]:
    for name in os.listdir(folder):  # noqa: PTH208 - there can be very many
        if name.startswith(_AFTER):
            yield _position(name.removeprefix(_AFTER), folder / name)


def _read(path: Path) -> Commit:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        after = content["after"]
        return Commit(
            after=None if after is None else Position(*after),
            upto=Position(*content["upto"]),
            rows=content["rows"],
            staging=content["staging"],
            files=tuple(content["files"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise SinkError(f"{path}: a damaged commit file ({error!r}): restore it from a copy") from error


def _numbers(position: Position | None) -> tuple[str, int | None] | None:
    return None if position is None else (position.sequence_number, position.sub_sequence_number)


def _position(text: str, path: Path) -> Position | None:
    if text == START:
        return None
    number, _, sub = text.partition(".")
    try:
        return Position(number, int(sub) if sub else None)
    except ValueError as error:
        raise SinkError(f"{path}: no name of a commit file: remove what does not belong there") from error
