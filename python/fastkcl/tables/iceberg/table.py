"""An Iceberg table that a worker writes itself, each record exactly once; in a REST, SQL or Glue catalog.

    append(rows)
      1. compare    rows that the table has are dropped
      2. stage      a Parquet file for each partition, under a name with 96 random bits; no reader sees it
      3. compare    is it still that table, and at that position?
      4. commit     one `commit_table` on the metadata that was compared: files, and the position as a property;
                    together with those of this host's other workers that write the table

A commit that meets another one is made again after it: `iceberg.state` decides. `iceberg.head` has 3 and 4, and
`iceberg.group` a commit of several workers. A refused commit leaves files that no snapshot names: `fastkcl sink
orphans`, pyiceberg's and the engines' own clean-ups find them.

Rules: pyiceberg is imported at `open`; nothing of it is needed to make an `IcebergTable`.
"""

from __future__ import annotations

import json
import random
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fastkcl import Position
from fastkcl.stdio.log import logger
from fastkcl.tables.base import Shard, SinkError, in_one_line
from fastkcl.tables.clock import running_seconds
from fastkcl.tables.combiner import Combiner
from fastkcl.tables.folders import check_names, position_text, shard_folders
from fastkcl.tables.given_up import GivenUp, after_more, noted, text_of, upto_of
from fastkcl.tables.group import Answer, Outcome, Request
from fastkcl.tables.group_folder import HAS_LOCKS, PosixFolder
from fastkcl.tables.iceberg.catalog import check_options, open_catalog, storage_properties
from fastkcl.tables.iceberg.group import IcebergCommitter, about, place_of
from fastkcl.tables.iceberg.state import GIVEN_UP, Append, Do, Seen, pause
from fastkcl.tables.object_store import S3Storage
from fastkcl.tables.parquet_file import parquet_bytes
from fastkcl.tables.position import check_forward, report_other
from fastkcl.tables.rows import ShardRows
from fastkcl.tables.store import DeniedError, StoreError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table, Transaction

    from fastkcl.tables.delta.table import Evolve
    from fastkcl.tables.iceberg.head import IcebergHead

__all__ = ["IcebergTable"]

_NAME: Final = re.compile(r"[^.\s]+(\.[^.\s]+)+")
_PUTS: Final = 3
_NOTES: Final = 30

_Columns: TypeAlias = tuple[int, tuple[tuple[int, str, str], ...]]
"""Number of the partition spec; ids, names and types of a file's columns."""


class IcebergTable:
    """A table of Apache Iceberg: each record exactly once, a zombie is fenced off.

    The table has the columns of what is written, and ``stream`` and ``shard``. It is made at the first write, unless it
    is there, and then partitioned by the day of ``approximateArrivalTimestamp``. Needs ``pip install
    'fastkcl[iceberg]'``.

    Args:
        name: namespace and table, ``"db.clicks"``.
        catalog: pyiceberg's properties of a catalog whose type is ``"rest"``, ``"sql"`` or ``"glue"``; its ``"name"``
            is ``"default"``, and also that of a section of ``.pyiceberg.yaml``.
        evolve: for a column that the table does not have: ``"refuse"`` raises SinkError, ``"add"`` adds it.
        storage: how S3 is reached, instead of the ``s3.*`` properties of `catalog`. A REST catalog that hands out
            credentials has the last word.
        share_commits: combine commits with those of this user's other workers on this host that write this table.

    Raises:
        ValueError: `name` has no namespace, the catalog is one of another type, or `evolve` is something else.
        TypeError: `catalog` is no dict of texts.
    """

    def __init__(
        self,
        name: str,
        catalog: Mapping[str, str],
        *,
        evolve: Evolve = "refuse",
        storage: S3Storage | None = None,
        share_commits: bool = True,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"name={name!r}: must be namespace and table, as 'db.clicks'")
        if evolve not in ("refuse", "add"):
            raise ValueError(f"evolve={evolve!r}: must be 'refuse' or 'add'")
        check_options(catalog)
        self._name = name
        self._options = {**catalog, **storage_properties(storage)}
        self._evolve = evolve
        self._opened: IcebergHead | None = None
        self._shard: Shard | None = None
        self._position: Position | None = None
        self._shares = share_commits and HAS_LOCKS
        self._meeting: Combiner | None = None
        self._pause: Callable[[float], None] = time.sleep

    @property
    def url(self) -> str:
        """Catalog and name."""
        return f"{self._options.get('name', 'default')}:{self._name}"

    refuses_files: Final = "its files need the ids of the table's columns, which files that Spark writes do not have"
    """Why it takes no files of another writer, as `fastkcl.spark.SparkWriter`."""

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard, or look again.

        Returns:
            The position up to which the table has the shard's records, None if it has none.

        Raises:
            SinkError: it is another table than before, was removed or rolled back, or is not one that files can be
                added to.
            OSError: the catalog or the store does not answer.
            ConfigurationError: pyiceberg is missing, or a package of the catalog's, or there are no credentials.
        """
        check_names(shard, "IcebergTable")
        if shard != self._shard:
            self._shard, self._position, self._opened, self._meeting = shard, None, None, None
        self._move_to(self._head.load())
        return self._position

    def append(self, rows: ShardRows, make: Callable[[ShardRows], pa.Table]) -> Position:
        """Make rows durable and visible. Rows that the table has already are dropped.

        Args:
            rows: the next run of the shard.
            make: makes the table of rows that is written; called again when some of them were dropped.

        Returns:
            The position up to which the table has the shard's records now, at least the last one's of `rows`.

        Raises:
            SinkError: it is another table than before, was rolled back, or is not one that these rows can be added to.
            WriteCancelledError: the rows are not wanted any more. They are not in the table.
            OSError: nobody knows whether they were committed: look again.
        """
        run: Append[_Columns] = Append(rows.last_position)
        remaining = rows
        made: pa.Table | None = None
        request: Request | None = None
        alone = False  # the next commit, as a shared one has come to nothing
        while True:
            if self._position is not None:
                left = remaining.after(self._position)
                if left is None:
                    return self._position
                if left.num_rows != remaining.num_rows:
                    made = None
                remaining = left
            if made is None:
                before, made = self._position, self._storable(make(remaining))
                if self._position != before:  # another writer has made the table meanwhile, and has some of the rows
                    continue
            columns = self._columns(made.schema)
            match run.do(self._position, columns, running_seconds()):
                case Do.STAGE:
                    began = running_seconds()
                    request = self._stage(remaining, made, columns)
                    run.staged(self._position, columns, began)
                case Do.COMMIT:
                    assert request is not None
                    evolve = self._adding(made.schema) if self._lacks(made.schema) else None
                    committer = IcebergCommitter(self._head, remaining.check_wanted, evolve)
                    remaining.check_wanted()
                    if self._combiner is None or alone or evolve is not None:
                        self._after(committer.commit([request])[0], run, request)
                        alone = False
                    else:
                        alone = not self._share(request, committer, self._combiner)
                        if alone and committer.gone([request]):  # seconds have passed, or another child has said so
                            run.lost()
                case Do.DONE:
                    raise AssertionError("its rows were after the position")
                case Do.GIVE_UP:
                    raise StoreError(
                        f"{self.url}: {run.conflicts} commits have met others: write less often, or from fewer shards"
                    )

    def give_up(self, upto: Position) -> None:
        """Note that records up to a position have been given up: a checkpoint there is no sign of a loss."""
        self._keep_note(upto)

    def gone_on(self) -> bool:
        """See `KeepsPositions.gone_on`."""
        return self._keep_note(None)

    def given_up(self) -> Position | None:
        """Up to where records have been given up; None if none have."""
        return upto_of(self._given_up()[0], self._position)

    def _keep_note(self, upto: Position | None) -> bool:
        head, name = self._head, self._note
        for tries in range(1, _NOTES + 1):
            before, is_of_namespace = self._given_up()
            now = after_more(before, upto, self._position)
            if now is None or (now == before and not (is_of_namespace and head.table)):
                return now is not None and now.is_live  # one that the catalog has is there for good
            text = text_of(now).decode()
            if is_of_namespace or head.table is None:  # the table may be dropped
                self._note_in_namespace(name, text)
            if head.table is None or head.set_property(name, text):
                return now.is_live
            self._pause(pause(tries, head.commit_seconds, random.random()))
            self._move_to(head.load())
        raise StoreError(f"{self.url}: the note of records given up has met other commits {_NOTES} times: try again")

    def _note_in_namespace(self, name: str, text: str) -> None:
        try:
            self._head.note_in_namespace(name, text)
        except DeniedError as error:
            if self._head.table is None:
                raise
            logger().warning("%s: the note is kept in the table alone: %s", self._label, in_one_line(error))

    def _given_up(self) -> tuple[GivenUp | None, bool]:
        """The note of the table; or, if it has none, the one from before it was made, and True."""
        head, name = self._head, self._note
        text = None if head.seen is None else head.seen.properties.get(name)
        is_of_namespace = text is None
        if text is None:
            try:
                text = head.namespace_note(name)
            except DeniedError:
                if self._position is None:
                    raise
                logger().debug("%s: the namespace's note cannot be read", self._label, exc_info=True)  # no right to
        found = None if text is None else noted(text.encode(), f"{self.url}, property {name}")
        return found, is_of_namespace and found is not None

    # ---- one commit ---------------------------------------------------------------------------------------------

    def _after(self, answer: Answer, run: Append[_Columns], request: Request) -> None:
        """Take in what became of a commit."""
        head = self._head
        if answer.outcome is Outcome.REFUSED:
            raise SinkError(f"{self.url}: {answer.why}")
        if answer.outcome is Outcome.COMMITTED:
            self._move_to(head.seen)
            return
        if answer.outcome is Outcome.AGAIN:
            run.refused()
            self._pause(pause(run.conflicts, head.commit_seconds, random.random()))
        self._move_to(head.load())
        report_other(self._label, request.after, self._position)

    def _share(self, request: Request, committer: IcebergCommitter, combiner: Combiner) -> bool:
        """Have a request committed together with those of this host's other writers.

        Returns:
            Whether the position has moved: go on from it. False: commit alone.
        """
        looks = combiner.commit(request, committer, committer.forget)
        self._move_to(self._head.seen)
        if not looks or self._position == request.after:
            self._move_to(self._head.load())
        if self._position is not None and self._position != request.upto:
            report_other(self._label, request.after, self._position)
        return self._position != request.after

    def _storable(self, table: pa.Table) -> pa.Table:
        from fastkcl.tables.iceberg.file import storable

        made = storable(table, self._shard_opened)
        if self._head.table is None:
            self._head.create(made.schema)
            if self._head.load() is None:
                raise StoreError(f"{self.url}: the catalog refuses to make the table, and there is none: try again")
            self._move_to(self._head.seen)
        return made

    def _columns(self, schema: pa.Schema) -> _Columns:
        """What a file of these columns depends on."""
        evolved, spec = self._evolved(schema)
        fields = (evolved.find_field(name) for name in schema.names)
        return spec.spec_id, tuple((field.field_id, field.name, str(field.field_type)) for field in fields)

    def _evolved(self, schema: pa.Schema | None) -> Any:  # noqa: ANN401 - a schema, and a partition spec
        """The table's schema with the columns that it lacks, and its partitions.

        Raises:
            SinkError: it lacks some, and must not get them; or one is of another type.
        """
        table = self._table
        spec = table.metadata.spec()
        if schema is None:
            return table.schema(), spec
        transaction = self._head.transaction()
        self._add_columns(transaction, schema)
        return transaction.table_metadata.schema(), spec

    def _adding(self, schema: pa.Schema) -> Callable[[Transaction], None]:
        return lambda transaction: self._add_columns(transaction, schema)

    def _lacks(self, schema: pa.Schema) -> list[str]:
        """The columns that the table does not have."""
        there = {field.name for field in self._table.schema().fields}
        return [name for name in schema.names if name not in there]

    def _add_columns(self, transaction: Transaction, schema: pa.Schema) -> None:
        if lacking := self._lacks(schema):
            if self._evolve == "refuse":
                raise SinkError(
                    f'{self.url}: has no column {", ".join(lacking)}: evolve="add", or drop it in transform'
                )
            folded = {field.name.casefold(): field.name for field in self._table.schema().fields}
            for name in lacking:
                if name.casefold() in folded:
                    there_as = folded[name.casefold()]
                    raise SinkError(f"{self.url}: columns {name} and {there_as} differ in capitals alone: rename one")
            import pyarrow as pa

            try:
                with transaction.update_schema() as update:
                    update.union_by_name(pa.schema([schema.field(name) for name in lacking]))
            except (ValueError, TypeError) as error:
                raise SinkError(f"{self.url}: cannot add {', '.join(lacking)}: {error}") from error

    def _stage(self, rows: ShardRows, table: pa.Table, columns: _Columns) -> Request:
        """Put files that no snapshot names yet."""
        from fastkcl.tables.iceberg.file import as_json, data_file, parts, with_ids

        schema, spec = self._evolved(table.schema)
        whole = with_ids(table, schema, self.url)
        request = Request(
            id=secrets.token_hex(12),
            table=str(self._table.metadata.table_uuid),
            shard=self._shard_opened,
            after=self._position,
            upto=rows.last_position,
            rows=rows.num_rows,
            files={"spec": columns[0], "columns": [list(each) for each in columns[1]], "files": []},
        )
        footer = json.dumps(about(request)).encode()
        if whole.num_rows:
            for part in parts(whole, spec, schema, self.url):
                body = parquet_bytes(part.rows, footer)
                location = self._put(part.folder, body)
                file = data_file(location, body, part.values, spec, schema)
                request.files["files"].append(as_json(file, spec, schema))
        return request

    def _put(self, folder: str, body: memoryview) -> str:
        """Put a file under a new name.

        Returns:
            Where it is.
        """
        from fastkcl.tables.iceberg.io import storage_of, store_and_key

        table = self._table
        for _ in range(_PUTS):
            name = f"after-{position_text(self._position)}-{secrets.token_hex(12)}.parquet"
            location = place_of(table, folder, name)
            store, key = store_and_key(location, storage_of(table.io.properties), table.location())
            if store.create(key, body):
                return location
            if (there := store.read(key, len(body))) is not None:
                if there != body:
                    raise SinkError(f"{location}: is there, and is another file")
                return location  # its answer was lost
        raise StoreError(f"{location}: the store refuses to create it, and there is nothing: try again later")

    # ---- what the table is --------------------------------------------------------------------------------------

    def _move_to(self, seen: Seen | None) -> None:
        """Take over the position that the metadata has, which never goes back.

        Raises:
            SinkError: it has gone back, or the table was rolled back before it.
        """
        found = None if seen is None else seen.position(self._shard_opened)
        check_forward(self._label, self._position, found)
        self._position = found

    @property
    def _head(self) -> IcebergHead:
        if self._opened is None:
            catalog = open_catalog(self._options)
            from fastkcl.tables.iceberg.head import IcebergHead

            self._opened = IcebergHead(catalog, self._name)
        return self._opened

    @property
    def _combiner(self) -> Combiner | None:
        """By which commits are shared; None if they are not."""
        if self._meeting is None and self._shares:
            self._meeting = Combiner(PosixFolder(self._head.identity), self.url)
        return self._meeting

    @property
    def _table(self) -> Table:
        table = self._head.table
        assert table is not None
        return table

    @property
    def _note(self) -> str:
        return f"{GIVEN_UP}{shard_folders(self._shard_opened)}"

    @property
    def _shard_opened(self) -> Shard:
        assert self._shard is not None
        return self._shard

    @property
    def _label(self) -> str:
        return f"{self.url} ({self._shard_opened.stream}, {self._shard_opened.shard_id})"
