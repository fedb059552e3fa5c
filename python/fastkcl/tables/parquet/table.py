"""Parquet files in a folder or a bucket, each record exactly once; the data file itself is the commit.

    table/
      _fastkcl/table                                                  claimed: the table's id, and its partition
      stream=clicks/shard=shardId-000000000000/date=2026-11-22/after-056.<56 digits>.01.7.parquet

A file is created exclusively, under the name of the position that it continues from: `chain` has the rules, `store`
the verbs. So a file is there as a whole or not at all, each file that is there is committed, and there are no orphans.

    append(rows)
      1. compare    rows that the table has are dropped
      2. step       up to the first row of a newer day; or an empty file, which turns to that day
      3. identity   the claim is read again: another table's files would look like these. On POSIX the newest file, too
      4. create     True: done. False: look. It is one's own file whose answer was lost, or somebody else's, whose
                    rows are dropped in 1; or nothing, where another request for it is under way: again

A zombie continues from an old state, whose file is there: it is refused, whatever it believes of its lease.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from fastkcl import Position
from fastkcl.stdio.log import logger
from fastkcl.tables.base import RECOVERY, Shard, SinkError
from fastkcl.tables.clock import running_seconds
from fastkcl.tables.folders import check_names, data_folder, local_folder, shard_folders
from fastkcl.tables.given_up import GivenUp, given_up, keep_in, upto_of
from fastkcl.tables.object_store import ObjectStore, S3Storage
from fastkcl.tables.parquet.chain import BEGINNING, Footer, State, position_in, step
from fastkcl.tables.parquet.claim import CLAIM, check_is_of_files, check_not_lost, claim_text, parse_claim
from fastkcl.tables.parquet.footers import check_footer, read_footer
from fastkcl.tables.parquet_file import parquet_bytes
from fastkcl.tables.position import report_other, went_back
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.rows import ShardRows
from fastkcl.tables.store import Store, StoreError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ParquetTable", "Partition", "read_note", "store_of"]

Partition: TypeAlias = Literal["date", "none"]

_GIVEN_UP: Final = "_fastkcl/given_up"
_TRIES: Final = 30  # of a creation that is refused although there is nothing
_MOST_PAUSE: Final = 2.0
_LOOK_AGAIN: Final = 3600.0  # seconds; users may delete files that are older than a day
_OTHERS: Final = {"_commits": "a ParquetSink", "_delta_log": "a Delta table"}


class ParquetTable:
    """Parquet files below a folder, or below a prefix of a bucket: each record exactly once, a zombie is fenced off.

    Args:
        url: a path on a POSIX file system, or ``s3://bucket/table``, which needs ``pip install 'fastkcl[s3]'``.
        partition: ``"date"``: files lie in folders by the day (UTC) of arrival, which never goes back; ``"none"``.
        storage: how S3 is reached.

    Raises:
        ValueError: `url` is something else, or `partition`.
        TypeError: `storage` beside a path.
    """

    def __init__(
        self, url: str | os.PathLike[str], *, partition: Partition = "date", storage: S3Storage | None = None
    ) -> None:
        if partition not in ("date", "none"):
            raise ValueError(f"partition={partition!r}: must be 'date' or 'none'")
        self._partition: Partition = partition
        self._store = store_of(url, storage)
        self._shard: Shard | None = None
        self._folder = ""
        self._id: str | None = None
        self._state: State | None = None
        self._newest: tuple[str, str] | None = None  # the file that the state is from, and its writer
        self._looked_at = 0.0
        self._pause: Callable[[float], None] = time.sleep

    @property
    def url(self) -> str:
        """Where it is."""
        return self._store.url

    refuses_files: Final = (
        "the file is the commit, so this process makes it: SparkProcessor with a ParquetSink writes by Spark"
    )
    """Why it takes no files of another writer, as `fastkcl.spark.SparkWriter`."""

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard, or look again: where its chain of files ends.

        Returns:
            The position up to which the table has the shard's records, None if it has none.

        Raises:
            SinkError: the table is damaged, another one, of another format, or its store ignores conditions.
            OSError: it cannot be read or written.
            ConfigurationError: obstore is missing, or there are no credentials.
        """
        check_names(shard, "ParquetTable")
        if shard != self._shard:
            self._shard, self._folder = shard, data_folder(shard_folders(shard))
            self._id = self._state = self._newest = None
        first = self._id is None
        if self._id is None:
            self._id = self._identify()
        else:
            self._check_identity()
        position = self._look().position
        if first and self._newest is None:  # else the shard's own file has told
            check_is_of_files(self._store, self._id)
        return position

    def append(self, rows: ShardRows, make: Callable[[ShardRows], pa.Table]) -> Position:
        """Make rows durable and visible. Rows that the table has already are dropped.

        Args:
            rows: the next run of the shard.
            make: makes the table of rows that is written; called again when it is cut otherwise.

        Returns:
            The position up to which the table has the shard's records now, at least the last one's of `rows`.

        Raises:
            SinkError: the table is damaged, or another one.
            WriteCancelledError: the rows are not wanted any more. Some of them can be in the table.
            OSError: the store refuses, or does not answer: look again.
        """
        if self._state is None or running_seconds() - self._looked_at > _LOOK_AGAIN:
            self._look()
        remaining: ShardRows | None = rows
        refusals = 0
        while remaining is not None:
            state = self._state
            assert state is not None
            if state.position is not None:
                remaining = remaining.after(state.position)
                if remaining is None:
                    break
            if self._create(state, remaining, make):
                refusals = 0
                continue
            found = self._look()
            refusals = 0 if found != state else refusals + 1
            if refusals == _TRIES:
                raise StoreError(
                    f"{self._file(state)}: the store refuses to create it {_TRIES} times, and there is nothing: try"
                    " again later, or ask who else writes there"
                )
            if refusals:
                self._pause(min(_MOST_PAUSE, 0.01 * 2**refusals))
            else:
                report_other(self._name, state.position, found.position)
        assert self._state is not None
        assert self._state.position is not None
        return self._state.position

    def give_up(self, upto: Position) -> None:
        """Note that records up to a position have been given up: a checkpoint there is no sign of a loss."""
        self._keep_note(upto)

    def gone_on(self) -> bool:
        """See `KeepsPositions.gone_on`."""
        return self._keep_note(None)

    def given_up(self) -> Position | None:
        """Up to where records have been given up; None if none have."""
        position = None if self._state is None else self._state.position
        return upto_of(read_note(self._store, self._folder), position)

    def _keep_note(self, upto: Position | None) -> bool:
        position = None if self._state is None else self._state.position
        store, folder = self._store, self._folder
        return keep_in(store, note_key(folder), read_note(store, folder), upto, position)

    def _create(self, state: State, rows: ShardRows, make: Callable[[ShardRows], pa.Table]) -> bool:
        """Create the file that follows a state, for the first of these rows; false if it is refused."""
        assert self._shard is not None
        assert self._id is not None
        next_step = step(state, rows.num_rows, None if state.day is None else rows.newer_than(state.day))
        part = rows.first(next_step.rows) if next_step.rows else None
        footer = Footer(
            table=self._id,
            shard=self._shard,
            after=state.position,
            upto=state.position if part is None else part.last_position,
            rows=0 if part is None else part.num_rows,
            next_day=next_step.day,
            writer=secrets.token_hex(12),
        )
        body = parquet_bytes(make(rows.first(1)).slice(0, 0) if part is None else make(part), footer.text())
        rows.check_wanted()
        self._check_identity()
        if not self._has_newest():
            return False
        key = f"{self._folder}/{state.key}"
        if not self._store.create(key, body):
            found = self._footer(key)
            if found is None or found.writer != footer.writer:
                return False
            logger().info("%s: its answer was lost; the file is there", self._file(state))
        self._state, self._newest = footer.state, (key, footer.writer)
        return True

    def _look(self) -> State:
        """Where the shard's chain ends, as it is kept.

        Raises:
            SinkError: it is damaged, or has gone back.
        """
        self._has_newest()
        before, newest = self._state, self._newest
        found = self._last()
        if before is not None and _order(found) < _order(before):
            self._newest = newest
            raise went_back(self._name, before.position, found.position, "files")
        self._state, self._looked_at = found, running_seconds()
        return found

    def _has_newest(self) -> bool:
        """See on POSIX that the file which the state is from is there: a folder can be replaced by an older copy of it.

        On an object store nobody replaces a table by a move, and each look is a request.

        Returns:
            False if it is gone: look again.

        Raises:
            SinkError: it is another file, or damaged.
        """
        if self._newest is None or not isinstance(self._store, PosixStore):
            return True
        key, writer = self._newest
        found = self._footer(key)
        if found is not None and found.writer != writer:
            raise SinkError(
                f"{self.url}/{key}: is another file than the one that this writer has seen: the table went back to an"
                f" older state, and was continued from there; {RECOVERY}"
            )
        return found is not None

    def _last(self) -> State:
        """The end of the chain, by the last file."""
        folders = [self._folder]
        if self._partition == "date":
            days = [name for name in self._store.folders(self._folder) if name.startswith("date=")]
            folders = [f"{self._folder}/{name}" for name in reversed(days)]
        for folder in folders:
            files = [entry.key for entry in self._store.files(folder) if _name_in(entry.key).startswith("after-")]
            if files:
                footer = self._footer(files[-1])
                if footer is None:
                    raise SinkError(f"{self.url}/{files[-1]}: this file was there, and is gone; {RECOVERY}")
                self._store.settle(files[-1])
                self._newest = files[-1], footer.writer
                return footer.state
        self._newest = None
        return BEGINNING if self._partition == "date" else State(None, None)

    def _footer(self, key: str) -> Footer | None:
        """What a file says of itself; None if it is not there.

        Raises:
            SinkError: it is damaged, or not of this shard's chain.
        """
        try:
            footer = read_footer(self._store, key)
            if footer is None:
                return None
            assert self._id is not None
            assert self._shard is not None
            check_footer(footer, key, self._id, self._shard, self._partition)
        except ValueError as error:
            raise SinkError(
                f"{self.url}/{key}: not written by this table's writers, or damaged ({error}): restore the file from a"
                f" copy, or take it away if it is another table's; {RECOVERY}"
            ) from error
        return footer

    def _identify(self) -> str:
        """The table's id; it is made here if there is none.

        Raises:
            SinkError: it is another format's table, another partition's, its claim is lost, or its store ignores
                conditions.
        """
        text = self._store.claimed(CLAIM)
        self._refuse_others()
        self._store.prove()
        if not text:
            check_not_lost(self._store)
        if text is None:
            text = self._store.claim(CLAIM, claim_text(secrets.token_hex(16), self._partition))
        else:
            self._store.settle(CLAIM)
        value = parse_claim(text, self.url)
        if value.get("partition") != self._partition:
            raise SinkError(
                f"{self.url}: this table has partition={value.get('partition')!r}, and is opened with"
                f" {self._partition!r}: give ParquetTable(partition={value.get('partition')!r})"
            )
        return str(value["id"])

    def _refuse_others(self) -> None:
        for name in self._store.folders(""):
            if name in _OTHERS:
                raise SinkError(
                    f"{self.url}: has a folder {name}, so it is {_OTHERS[name]}: give ParquetTable another folder"
                )

    def _check_identity(self) -> None:
        """See that it is the table that was opened.

        Raises:
            SinkError: it is another one.
        """
        text = self._store.claimed(CLAIM)
        found = None if text is None else parse_claim(text, self.url)["id"]
        if found != self._id:
            raise SinkError(
                f"{self.url}: is another table now (id {found or 'gone'}, was {self._id}): start again to go on with"
                " this one"
            )

    @property
    def _name(self) -> str:
        assert self._shard is not None
        return f"{self.url} ({self._shard.stream}, {self._shard.shard_id})"

    def _file(self, state: State) -> str:
        return f"{self.url}/{self._folder}/{state.key}"


def note_key(folder: str) -> str:
    """Where the note of a shard's records that were given up is."""
    return f"{_GIVEN_UP}/{folder}/note"


def read_note(store: Store, folder: str) -> GivenUp | None:
    """The note about records of this folder's shard that were given up; None without one.

    Early versions made an empty file for each, whose name has what the note has.

    Raises:
        SinkError: it is damaged.
    """
    # What lies beside it is older than the note, and would take its place.
    found = given_up(store, note_key(folder), "remove it, with its folder")
    if found is not None:
        return found
    names = [_name_in(entry.key) for entry in store.files(f"{_GIVEN_UP}/{folder}")]
    names = [name for name in names if not name.startswith(".")]  # of a note whose writer has died
    if not names:
        return None
    try:
        upto, has_after, after = names[-1].partition(".after-")
        position = position_in(f"{upto}.parquet")
        if position is None:
            raise ValueError("no position")
        return GivenUp(position_in(f"after-{after}.parquet") if has_after else None, position)
    except ValueError as error:
        name = f"{store.url}/{_GIVEN_UP}/{folder}/{names[-1]}"
        raise SinkError(f"{name}: no note of this table's writers: remove it") from error


def store_of(url: str | os.PathLike[str], storage: S3Storage | None) -> Store:
    """The files of a table.

    Raises:
        ValueError: the URL is none of a table.
        TypeError: `storage` beside a path.
    """
    text = os.fspath(url)
    if text.startswith("s3://"):
        return ObjectStore(text, storage or S3Storage())
    if storage is not None:
        raise TypeError(f"storage= is for s3:// URLs, and {text} is none")
    return PosixStore(local_folder(url, "ParquetTable"))


def _order(state: State) -> tuple[str, str]:
    return ("" if state.day is None else state.day.isoformat(), state.key)


def _name_in(key: str) -> str:
    return key.rpartition("/")[2]
