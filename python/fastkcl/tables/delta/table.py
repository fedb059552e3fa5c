"""A Delta table that a worker writes itself, each record exactly once; on POSIX and on S3.

    table/
      _delta_log/00000000000000000007.json                  one commit: files, and the position that they reach
      date=2026-11-22/after-4959….0-<random>.parquet

    append(rows)
      1. compare    rows that the table has are dropped
      2. stage      a Parquet file for each day, under a name with 96 random bits; no reader sees it
      3. move on    read the entries that others have added: is it still that table, and at that position?
      4. commit     the next entry of the log is created exclusively: files, and the new position in application
                    transactions. False: another writer was first; repeat 3
      5. checkpoint each hundredth version

A commit is five requests at any version: a PUT of the file, a GET of the head's entry and one of the next, which is not
there, a PUT of the entry, and a GET of `_last_checkpoint`; a shared one has a HEAD of each other child's file, too.
`delta.head` has 3 and 4, `delta.actions` the position.

A zombie continues from an old position. The entries that it reads in step 3 show this, and its file is left for the
table's next VACUUM. DeltaSink writes the same positions, so that both can write to one table.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from fastkcl import ConfigurationError, Position
from fastkcl.stdio.log import logger
from fastkcl.tables.base import MadeFiles, Shard, SinkError, in_one_line
from fastkcl.tables.clock import running_seconds
from fastkcl.tables.combiner import Combiner
from fastkcl.tables.delta.actions import about, beginning
from fastkcl.tables.delta.checkpoint import is_due, make_checkpoint
from fastkcl.tables.delta.checkpoint_comparison import EntryError
from fastkcl.tables.delta.file import ORIGIN, folder_of, origin_fields, partition_values, storable, with_origin
from fastkcl.tables.delta.found_files import moved_in
from fastkcl.tables.delta.group import add_action, checked, entry_of, sizes_of
from fastkcl.tables.delta.head import DeltaHead
from fastkcl.tables.delta.log import delta_folder
from fastkcl.tables.delta.rules import Rules, checked_fields
from fastkcl.tables.delta.snapshot import Snapshot
from fastkcl.tables.delta.staged import MOST_AGE, Staged, days
from fastkcl.tables.folders import check_names, position_text, shard_folders
from fastkcl.tables.given_up import NOTES, given_up, keep_in, upto_of
from fastkcl.tables.group import Answer, Outcome, Request, choose, gone
from fastkcl.tables.group_folder import HAS_LOCKS, PosixFolder
from fastkcl.tables.object_store import ObjectStore, S3Storage
from fastkcl.tables.parquet_file import parquet_bytes
from fastkcl.tables.position import check_forward, report_other
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.rows import ShardRows
from fastkcl.tables.store import Store, StoreError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DeltaTable", "Evolve", "PartitionColumn"]

PartitionColumn: TypeAlias = Literal["stream", "shard", "date"]
Evolve: TypeAlias = Literal["refuse", "add"]

_NEW: Final = ("date",)
_UNSAFE: Final = "AWS_S3_ALLOW_UNSAFE_RENAME"
_CLAIM: Final = "_fastkcl/table"
_TRIES: Final = 100  # of a commit that meets others
_REFUSALS: Final = 30  # of an entry that is refused although there is nothing
_PUTS: Final = 3
_PAUSE: Final = 0.02  # seconds, at the most, before the second try
_MOST_PAUSE: Final = 2.0


class DeltaTable:
    """A Delta table in a folder, or below a prefix of a bucket: each record exactly once, a zombie is fenced off.

    The table has the columns of what is written, and ``stream`` and ``shard``, and ``date`` (day of arrival, UTC) if it
    is partitioned by that. It is made at the first write, unless it is there. Needs ``pip install 'fastkcl[delta]'``.

    Args:
        url: a path on a POSIX file system, or ``s3://bucket/table``, which needs ``pip install 'fastkcl[delta,s3]'``.
        partition_by: of a new table: any of ``"stream"``, ``"shard"`` and ``"date"``; ``("date",)`` if None. A table
            that is there goes on with its own, a DeltaSink's by stream and shard too; if another is given, it is
            refused.
        evolve: for a column that the table does not have: ``"refuse"`` raises SinkError, ``"add"`` adds it.
        storage: how S3 is reached.
        share_commits: combine commits with those of this user's other workers on this host that write this table.

    Raises:
        ValueError: `url` is something else, or an option; or AWS_S3_ALLOW_UNSAFE_RENAME is set.
        TypeError: `storage` beside a path.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        partition_by: Sequence[PartitionColumn] | None = None,
        evolve: Evolve = "refuse",
        storage: S3Storage | None = None,
        share_commits: bool = True,
    ) -> None:
        if partition_by is not None and (
            isinstance(partition_by, str)
            or not set(partition_by) <= set(ORIGIN)
            or len(set(partition_by)) != len(partition_by)
        ):
            raise ValueError(f"partition_by={partition_by!r}: must be some of {', '.join(ORIGIN)}, each once")
        if evolve not in ("refuse", "add"):
            raise ValueError(f"evolve={evolve!r}: must be 'refuse' or 'add'")
        self._partition_by: list[str] | None = None if partition_by is None else list(partition_by)
        self._evolve = evolve
        self._store = _store_of(url, storage)
        self._head = DeltaHead(self._store)
        self._combiner: Combiner | None = None
        if share_commits and HAS_LOCKS:
            self._combiner = Combiner(PosixFolder(self._store.identity), self._store.url)
        self._shard: Shard | None = None
        self._position: Position | None = None
        self._restored = -1  # version that has set the table back, as far as it was accepted
        self._pause: Callable[[float], None] = time.sleep

    @property
    def url(self) -> str:
        """Where it is."""
        return self._store.url

    @property
    def refuses_files(self) -> str | None:
        """Why it takes no files of another writer, as `fastkcl.spark.SparkWriter`; None if it takes some."""
        if isinstance(self._store, PosixStore):
            return None
        return "files that Spark writes are committed in a folder alone; on S3 this process makes them"

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard, or look again.

        Returns:
            The position up to which the table has the shard's records, None if it has none.

        Raises:
            SinkError: it is not a table that files can be added to, its log is damaged, it is another table than
                before or has gone back, or its store ignores conditions.
            OSError: it cannot be read.
            ConfigurationError: deltalake or obstore is missing, or there are no credentials.
        """
        try:
            import deltalake  # noqa: F401 - before any work
        except ImportError as error:
            raise ConfigurationError("deltalake is not installed: pip install 'fastkcl[delta]'") from error
        check_names(shard, "DeltaTable")
        if shard != self._shard:
            self._shard, self._position, self._restored = shard, None, -1
            self._head = DeltaHead(self._store, shard)
        self._store.prove()
        first = self._head.snapshot is None
        snapshot = self._head.open()
        check_names(shard, "DeltaTable", self._columns(snapshot))
        if snapshot is None:
            self._refuse_others()
        else:
            self._rules(snapshot).check(self._partition_by)
            if first and snapshot.restored is not None:
                self._restored = snapshot.restored
            self._move_to(snapshot)
        return self._position

    def append(self, rows: ShardRows, make: Callable[[ShardRows], pa.Table | MadeFiles]) -> Position:
        """Make rows durable and visible. Rows that the table has already are dropped.

        Args:
            rows: the next run of the shard.
            make: makes the table of rows that is written, or the files; called for the rows of each day, and again
                when it is cut otherwise.

        Returns:
            The position up to which the table has the shard's records now, at least the last one's of `rows`.

        Raises:
            SinkError: the table is damaged, another one, or not one that these rows can be added to.
            WriteCancelledError: the rows are not wanted any more. They are not in the table.
            OSError: the store refuses, or does not answer: look again.
        """
        remaining = rows
        staged: Staged | None = None
        met = refused = 0
        while met < _TRIES and refused < _REFUSALS:
            if self._position is not None:
                left = remaining.after(self._position)
                if left is None:
                    return self._position
                remaining = left
            if staged is None or not self._fits(staged):
                staged = self._stage(remaining, make)
            snapshot = self._moved_on(staged.fields)
            if not self._fits(staged):
                report_other(self._name, staged.after, self._position)
                continue
            if self._share(staged, snapshot):
                continue
            snapshot = self._head.snapshot or snapshot  # the one whose position was compared last
            if self._commit(staged, snapshot):
                self._make_checkpoint()
                continue
            now = self._moved_on(staged.fields)
            met, refused = (met + 1, 0) if now.version != snapshot.version else (met, refused + 1)
            self._pause(random.uniform(0, min(_MOST_PAUSE, _PAUSE * 2 ** min(met + refused, 8))))
        if refused:
            raise StoreError(
                f"{self.url}: the store refuses to create an entry of the log {refused} times, and there is nothing:"
                " try again later, or ask who else writes there"
            )
        raise StoreError(f"{self.url}: {met} commits have met others: write less often, or from fewer shards")

    def give_up(self, upto: Position) -> None:
        """Note that records up to a position have been given up: a checkpoint there is no sign of a loss."""
        self._keep_note(upto)

    def gone_on(self) -> bool:
        """See `KeepsPositions.gone_on`."""
        return self._keep_note(None)

    def given_up(self) -> Position | None:
        """Up to where records have been given up; None if none have."""
        return upto_of(given_up(self._store, self._note), self._position)

    def _keep_note(self, upto: Position | None) -> bool:
        return keep_in(self._store, self._note, given_up(self._store, self._note), upto, self._position)

    # ---- one commit ---------------------------------------------------------------------------------------------

    def _stage(self, rows: ShardRows, make: Callable[[ShardRows], pa.Table | MadeFiles]) -> Staged:
        """Put files that no entry names yet: one for each day, or one."""
        snapshot = self._head.snapshot
        staged = Staged(
            upto=rows.last_position,
            rows=rows,
            after=self._position,
            partition_columns=self._columns(snapshot),
            at=running_seconds(),
        )
        for day, part in days(rows) if "date" in staged.partition_columns else [(None, rows)]:
            made = make(part)
            if isinstance(made, MadeFiles):
                staged.take_fields(checked_fields(made.columns(), ORIGIN), self.url)
            else:
                made, fields = storable(made)
                staged.take_fields(fields, self.url)
            if snapshot is not None:
                self._evolved(snapshot, staged.fields)  # refused before anything is put
            if isinstance(made, MadeFiles):
                staged.adds += self._have_written(made, staged, day)
            elif made.num_rows:
                staged.adds.append(self._put(made, staged, day))
        return staged

    def _have_written(self, files: MadeFiles, staged: Staged, day: date | None) -> list[Any]:
        """Have another writer make files; the actions that add them."""
        assert isinstance(self._store, PosixStore)
        values = partition_values(self._shard_opened, day, staged.partition_columns)
        origin = {"stream": self._shard_opened.stream, "shard": self._shard_opened.shard_id}
        more = {name: value for name, value in origin.items() if name not in values}
        return moved_in(self._store.folder, files.with_columns(more), folder_of(values), staged.after, values)

    def _put(self, table: pa.Table, staged: Staged, day: date | None) -> Any:  # noqa: ANN401 - an action
        """Put a file; the action that adds it."""
        shard = self._shard_opened
        columns = staged.partition_columns
        values = partition_values(shard, day, columns)
        folder = folder_of(values)
        told = about(shard, staged.after, staged.upto, staged.rows.num_rows)
        body = parquet_bytes(with_origin(table, shard, columns), json.dumps(told).encode())
        for _ in range(_PUTS):
            key = f"{folder}after-{position_text(staged.after)}-{secrets.token_hex(12)}.parquet"
            if self._store.create(key, body) or self._store.tail(key, 8) is not None:  # its answer was lost
                break
        else:
            raise StoreError(f"{self.url}/{key}: the store refuses to create it, and there is nothing: try again later")
        return add_action(key, values, len(body), table.num_rows, time.time_ns() // 1_000_000)

    def _fits(self, staged: Staged) -> bool:
        """Whether files can still be committed: they follow the position, and VACUUM has not taken them."""
        return (
            staged.after == self._position
            and not staged.is_gone
            and staged.partition_columns == self._columns(self._head.snapshot)
            and running_seconds() - staged.at < MOST_AGE
        )

    def _moved_on(self, fields: Sequence[Any]) -> Snapshot:
        """The table with the entries that others have added; it is made if it is not there."""
        snapshot = self._head.move_on()
        if snapshot is None:
            columns = self._columns(None)
            schema = {"type": "struct", "fields": [*fields, *origin_fields(columns)]}
            self._head.begin(beginning(json.dumps(schema), columns))
            snapshot = self._head.open()
            if snapshot is None:
                raise StoreError(f"{self.url}: the store refuses to create the table, and there is none: try again")
        self._move_to(snapshot)
        return snapshot

    def _commit(self, staged: Staged, snapshot: Snapshot) -> bool:
        """Add the entry that follows a snapshot, whose position was compared."""
        metadata = self._evolved(snapshot, staged.fields)
        if metadata is not None:
            logger().info("%s: adding columns, of %s", self.url, ", ".join(each["name"] for each in staged.fields))
        request = staged.request(snapshot.id, self._shard_opened)
        staged.rows.check_wanted()
        return self._add([request], snapshot, metadata)

    def _add(self, requests: Sequence[Request], snapshot: Snapshot, metadata: Any = None) -> bool:  # noqa: ANN401
        """Add the entry that follows a snapshot, which has the positions that the requests continue from."""

        def counts(found: Snapshot) -> bool:
            ends = [(found.position(each.shard, self.url), each.upto) for each in requests]
            return all(position is not None and position >= upto for position, upto in ends)

        done = self._head.commit(entry_of(requests, snapshot.partition_columns, metadata), counts)
        if (now := self._head.snapshot) is not None:
            self._move_to(now)
        return done

    def _share(self, staged: Staged, snapshot: Snapshot) -> bool:
        """Have files committed together with those of this host's other writers.

        Returns:
            Whether they were, or the position has moved: go on from it. False: commit alone.
        """
        if self._combiner is None or self._evolved(snapshot, staged.fields) is not None:
            return False
        staged.rows.check_wanted()
        committer = _Committer(self, staged, snapshot)
        request = staged.request(snapshot.id, self._shard_opened)
        if not self._combiner.commit(request, committer, committer.forget):
            self._moved_on(staged.fields)
            staged.is_gone = bool(self._gone([request]))  # seconds have passed, or another child has said so
            return not self._fits(staged)
        if self._fits(staged):
            self._moved_on(staged.fields)
        return not self._fits(staged)

    def _gone(self, requests: Sequence[Request]) -> list[Answer]:
        """Refusals of requests whose files are not there."""
        return gone(requests, sizes_of, self._store.sizes)

    def _evolved(self, snapshot: Snapshot, fields: Sequence[Any]) -> Any:  # noqa: ANN401 - an action
        """The table's metadata with the columns that it lacks; None if it lacks none.

        Raises:
            SinkError: it lacks some, and must not get them; or files of these columns cannot be added to it.
        """
        rules = self._rules(snapshot)
        columns = snapshot.partition_columns
        wanted = [*fields, *origin_fields(columns)]
        new = rules.new(wanted) if self._evolve == "add" else []
        rules = replace(rules, fields=[*rules.fields, *new])
        if not set(columns) <= set(ORIGIN):
            raise rules.refused(f"it is partitioned by {columns}, and not only by {', '.join(ORIGIN)}")
        rules.check(self._partition_by, wanted)
        if not new:
            return None
        schema = {"type": "struct", "fields": rules.fields}
        return {**snapshot.metadata, "schemaString": json.dumps(schema)}

    def _make_checkpoint(self) -> None:
        snapshot = self._head.snapshot
        assert snapshot is not None
        try:
            if is_due(snapshot.version, snapshot.configuration):
                make_checkpoint(self._store, snapshot.version, snapshot.configuration)
        except EntryError as error:
            logger().error("%s: no checkpoint of its log is made: %s", self.url, error)
        except Exception as error:
            logger().warning("%s: no checkpoint of its log was made; the log has everything: %s", self.url, error)

    # ---- what the table is --------------------------------------------------------------------------------------

    def _move_to(self, snapshot: Snapshot) -> None:
        """Take over the position at a snapshot, which never goes back.

        Raises:
            SinkError: it has gone back, or the table was restored to an older version.
        """
        found = snapshot.position(self._shard_opened, self.url)
        check_forward(self._name, self._position, found)
        if snapshot.restored is not None and snapshot.restored > self._restored:
            raise SinkError(
                f"{self._name}: version {snapshot.restored} has set the table back to an older one (RESTORE); records"
                " that were written after that are gone, and are not delivered again: start again to go on after"
                f" {position_text(found)}, or have them read again"
            )
        self._position = found

    def _rules(self, snapshot: Snapshot) -> Rules:
        return replace(snapshot.rules(self.url, "DeltaTable"), remedy='evolve="add"')

    def _columns(self, snapshot: Snapshot | None) -> list[str]:
        """Those that the table is partitioned by, or that a new one will be."""
        if snapshot is not None:
            return snapshot.partition_columns
        return list(_NEW if self._partition_by is None else self._partition_by)

    def _refuse_others(self) -> None:
        what = "a ParquetSink" if "_commits" in self._store.folders("") else None
        if what is None and self._store.claimed(_CLAIM) is not None:
            what = "a ParquetTable"
        if what is not None:
            raise SinkError(f"{self.url}: is {what}'s: give DeltaTable another folder")

    @property
    def _note(self) -> str:
        return f"{NOTES}/{shard_folders(self._shard_opened)}"

    @property
    def _shard_opened(self) -> Shard:
        assert self._shard is not None
        return self._shard

    @property
    def _name(self) -> str:
        return f"{self.url} ({self._shard_opened.stream}, {self._shard_opened.shard_id})"


class _Committer:
    """One try of a shared commit, by the child that has the lock.

    Args:
        table: the child's.
        staged: the child's files, without new columns.
        snapshot: whose position the child has compared.
    """

    def __init__(self, table: DeltaTable, staged: Staged, snapshot: Snapshot) -> None:
        self._table = table
        self._staged = staged
        self._snapshot: Snapshot | None = snapshot

    def forget(self) -> None:
        """Others may have committed since the snapshot."""
        self._snapshot = None

    def commit(self, requests: Sequence[Request]) -> list[Answer]:
        """See `Committer.commit`."""
        table = self._table
        snapshot = self._snapshot or table._moved_on(self._staged.fields)
        self._snapshot = None
        own, *others = requests
        refused = [answer for each in others if (answer := self._refusal(each, snapshot)) is not None]
        ids = {answer.id for answer in refused}
        sound = [own, *(each for each in others if each.id not in ids)]
        chosen, answers = choose(sound, snapshot.id, lambda shard: snapshot.position(shard, table.url))
        answers += table._gone([each for each in chosen if each is not own])
        ids = {answer.id for answer in answers}
        chosen = [each for each in chosen if each.id not in ids]
        if not chosen:
            return [*refused, *answers]
        if own in chosen:
            self._staged.rows.check_wanted()
        done = table._add(chosen, snapshot)
        if done:
            table._make_checkpoint()
        outcome = Outcome.COMMITTED if done else Outcome.AGAIN
        return [*refused, *answers, *(Answer(each.id, outcome) for each in chosen)]

    def _refusal(self, request: Request, snapshot: Snapshot) -> Answer | None:
        """Why another child's request cannot be committed here; None if it can."""
        try:
            fields = checked(request, snapshot.partition_columns)
            if self._table._evolved(snapshot, fields) is not None:
                raise ValueError("it has new columns")
        except (SinkError, ValueError, KeyError, TypeError, AttributeError) as error:
            return Answer(request.id, Outcome.REFUSED, in_one_line(error))
        return None


def _store_of(url: str | os.PathLike[str], storage: S3Storage | None) -> Store:
    text = os.fspath(url)
    if text.startswith("s3://"):
        if os.environ.get(_UNSAFE):
            raise ValueError(f"{_UNSAFE} is set: two writers of a Delta table would both succeed. Unset it")
        return ObjectStore(text, storage or S3Storage())
    if storage is not None:
        raise TypeError(f"storage= is for s3:// URLs, and {text} is none")
    return PosixStore(delta_folder(url, "DeltaTable"))
