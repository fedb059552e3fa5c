"""The head of an Iceberg table: loaded, compared, and moved on by a commit whose answer is the next one's base.

    load      the catalog's metadata: is it still that table?
    commit    positions as properties, data files, and expired snapshots, in one `commit_table`

`commit_table` alone: `commit_transaction` would commit again on a newer snapshot, past the comparison, and delete the
manifests of a commit whose answer was lost. The fence is the assertion about the snapshot of ``main``, which each
append has, one without files too. A commit of properties alone moves no branch, and fences nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate, TableRequirement

from fastkcl import Position
from fastkcl.stdio.log import logger
from fastkcl.tables.base import RECOVERY, Shard, SinkError, in_one_line
from fastkcl.tables.folders import shard_folders
from fastkcl.tables.iceberg.catalog import asked, loaded
from fastkcl.tables.iceberg.file import new_schema
from fastkcl.tables.iceberg.io import DamagedError, MissingError, check_locations, storage_of
from fastkcl.tables.iceberg.sqlite import settle
from fastkcl.tables.iceberg.state import POSITION, Seen, position_value
from fastkcl.tables.store import StoreError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate

__all__ = ["KEPT", "OURS", "IcebergHead", "seen_of"]

KEPT: Final = "fastkcl.snapshots"
"""Property: how many snapshots are kept. A table without it is not ours, and its snapshots are left alone."""
OURS: Final[Mapping[str, str]] = {
    KEPT: "100",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "50",
}
"""Properties of tables that a writer makes: without them each commit reads and writes more than the one before."""
_MERGE_EACH: Final = 100  # commits
_MANY: Final = 1000  # snapshots, of somebody else's table
_COUNT: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_FORMATS: Final = (1, 2)
_WHERE: Final = ("uri", "warehouse", "glue.id", "glue.region", "glue.endpoint", "client.region")
"""Properties that say which catalog it is. A table's copy has its UUID too."""


class IcebergHead:
    """The newest metadata of a table that a writer knows.

    Args:
        catalog: it is in this one.
        name: ``db.clicks``.
    """

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog = catalog
        self._name = name
        self._table: Table | None = None
        self._seen: Seen | None = None
        self._warned = False
        self.commit_seconds = 0.05
        """What the last commit has taken."""

    @property
    def table(self) -> Table | None:
        """The table at that metadata; None if there was none."""
        return self._table

    @property
    def seen(self) -> Seen | None:
        """What appends need of it."""
        return self._seen

    @property
    def identity(self) -> str:
        """What tells the table from all others, for those that write it together."""
        assert self._seen is not None
        there = [self._catalog.properties.get(name) for name in _WHERE]
        return json.dumps(["iceberg", self._name, self._seen.uuid, *there])

    def load(self) -> Seen | None:
        """Load the table.

        Returns:
            None if there is none.

        Raises:
            SinkError: it is another table than before, was removed, or is of a format that is not written.
            StoreError: the catalog does not answer.
        """
        try:
            table = loaded(self._name, self._catalog)
            asked(f"sync the catalog of {self._name}", lambda: settle(self._catalog))
        except (NoSuchTableError, NoSuchNamespaceError):
            if self._seen is not None:
                raise SinkError(
                    f"{self._name}: the table was removed: restore it, or start again to make a new one"
                ) from None
            self._check_place()
            return None
        self._take(table)
        return self._seen

    def _check_place(self) -> None:
        """See that a new table would have a location; a REST catalog gives it one itself.

        Raises:
            SinkError: it has not.
            StoreError: the catalog does not answer.
        """
        if not isinstance(self._catalog, MetastoreCatalog) or self._catalog.properties.get("warehouse"):
            return
        namespace = self._name.rpartition(".")[0]
        try:
            about = asked(f"read the namespace {namespace}", lambda: self._catalog.load_namespace_properties(namespace))
        except NoSuchNamespaceError:
            about = {}
        if not about.get("location"):
            raise SinkError(
                f"{self._name}: a new table has no place, as neither the catalog has a warehouse nor its namespace"
                " a location: give the catalog warehouse=s3://…"
            )

    def create(self, schema: pa.Schema) -> None:
        """Make the table, unless somebody else has."""
        made, spec = new_schema(schema)
        namespace = self._name.rpartition(".")[0]

        def create() -> None:
            with suppress(TableAlreadyExistsError):
                self._catalog.create_table(self._name, made, partition_spec=spec, properties=dict(OURS))

        try:
            asked(f"make {self._name}", create)
        except NoSuchNamespaceError:
            self._make_namespace(namespace)
            asked(f"make {self._name}", create)

    def _make_namespace(self, namespace: str) -> None:
        """Make the table's namespace, unless somebody else has."""
        try:
            with suppress(NamespaceAlreadyExistsError):
                asked(f"make the namespace {namespace}", lambda: self._catalog.create_namespace(namespace))
        except StoreError as error:  # a SQL catalog says so of one that was made at the same moment
            try:
                asked(f"read the namespace {namespace}", lambda: self._catalog.load_namespace_properties(namespace))
            except NoSuchNamespaceError:
                raise error from None

    def transaction(self) -> Transaction:
        """Changes that are gathered on the head's metadata, and committed by `commit` alone."""
        assert self._table is not None
        return Transaction(self._table)

    def commit(
        self,
        positions: Mapping[Shard, Position],
        files: Sequence[DataFile],
        about: Mapping[str, str],
        evolve: Callable[[Transaction], None] | None = None,
    ) -> bool:
        """Add files and move positions, on the metadata that was seen, or not at all.

        Args:
            positions: of the shards whose rows the files have.
            files: none for rows that a transformation has left nothing of.
            about: for the snapshot's summary.
            evolve: adds columns.

        Returns:
            False if somebody else's commit came first: load, and compare.

        Raises:
            SinkError: it is another table now.
            StoreError: nobody knows whether it was committed: load, and look.
        """
        table = self._table
        assert table is not None
        began = time.monotonic()
        try:
            response = asked(f"commit to {self._name}", lambda: self._commit(table, positions, files, about, evolve))
        except CommitFailedException:
            return False
        except (NoSuchTableError, NoSuchNamespaceError):
            return False  # loading says why
        except MissingError:
            if self.load() is None or self._table is None or self._table.metadata_location == table.metadata_location:
                raise
            return False  # others have gone on, and have removed what the old snapshot needs
        self.commit_seconds = time.monotonic() - began
        self._take(response)
        self._remove_old(table.metadata, response)
        return True

    def _commit(
        self,
        table: Table,
        positions: Mapping[Shard, Position],
        files: Sequence[DataFile],
        about: Mapping[str, str],
        evolve: Callable[[Transaction], None] | None,
    ) -> Table:
        transaction = Transaction(table)
        if evolve is not None:
            evolve(transaction)
        update = transaction.update_snapshot(snapshot_properties=dict(about))
        append = update.merge_append() if self._is_merge_due(table.metadata) else update.fast_append()
        snapshot = append.snapshot_id
        transaction.set_properties(
            {f"{POSITION}{shard_folders(shard)}": position_value(upto, snapshot) for shard, upto in positions.items()}
        )
        for each in files:
            append.append_data_file(each)
        try:
            append.commit()
        except (SinkError, OSError):
            raise
        except Exception as error:  # of a reader of Avro, which meets any bytes
            current = table.current_snapshot()
            where = self._name if current is None else current.manifest_list
            raise DamagedError(
                f"{where}: a manifest list, or a manifest that it names, is damaged: {in_one_line(error)[:200]}:"
                f" restore it from a copy, or roll the table back to an older snapshot; {RECOVERY}"
            ) from error
        return self._send(table, transaction, self._expired(table.metadata))

    def set_property(self, name: str, value: str) -> bool:
        """Set a property that no append relies on.

        Returns:
            False if somebody else's commit came first.
        """
        table = self._table
        assert table is not None
        transaction = Transaction(table)
        transaction.set_properties({name: value})
        try:
            self._take(asked(f"commit to {self._name}", lambda: self._send(table, transaction, ())))
        except CommitFailedException:
            return False
        return True

    def note_in_namespace(self, name: str, value: str) -> None:
        """Keep a property for a table that is not made yet."""
        namespace, _, table = self._name.rpartition(".")
        self._make_namespace(namespace)
        asked(
            f"note in the namespace {namespace}",
            lambda: self._catalog.update_namespace_properties(namespace, updates={f"{name}/{table}": value}),
        )

    def namespace_note(self, name: str) -> str | None:
        """What `note_in_namespace` has kept."""
        namespace, _, table = self._name.rpartition(".")
        try:
            found = asked(f"read the namespace {namespace}", lambda: self._catalog.load_namespace_properties(namespace))
        except NoSuchNamespaceError:
            return None
        value = found.get(f"{name}/{table}")
        return None if value is None else str(value)

    def _send(self, table: Table, transaction: Transaction, more: Sequence[TableUpdate]) -> Table:
        # `Transaction` has no other way to what it has gathered than its own commit, which must not be called.
        requirements: tuple[TableRequirement, ...] = (
            *transaction._requirements,
            AssertTableUUID(uuid=table.metadata.table_uuid),
        )
        response = self._catalog.commit_table(table, requirements, (*transaction._updates, *more))
        return Table(table.name(), response.metadata, response.metadata_location, table.io, self._catalog, table.config)

    def _take(self, table: Table) -> None:
        """Take over a table's metadata.

        Raises:
            SinkError: it is not what was there before.
        """
        metadata = table.metadata
        seen = seen_of(self._name, metadata)
        before = self._seen
        if before is not None and before.uuid != seen.uuid:
            raise SinkError(
                f"{self._name}: is another table now (UUID {seen.uuid}, was {before.uuid}): start again to go on with"
                " this one"
            )
        try:
            check_locations(metadata, storage_of(table.io.properties))
        except SinkError as error:
            raise SinkError(f"{self._name}: {error}") from None
        if metadata.format_version not in _FORMATS:
            raise SinkError(
                f"{self._name}: is of format version {metadata.format_version}; this writer makes files of 1 and 2"
            )
        if KEPT not in metadata.properties and len(metadata.snapshots) >= _MANY and not self._warned:
            self._warned = True
            logger().warning(
                "%s: has %d snapshots, which each commit reads and writes: expire some, or have the writer do it by"
                " the table property %s=100",
                self._name,
                len(metadata.snapshots),
                KEPT,
            )
        self._table, self._seen = table, seen

    def _is_merge_due(self, metadata: TableMetadata) -> bool:
        number: int | None = getattr(metadata, "last_sequence_number", None)  # format 1 has none
        return number is not None and (number + 1) % _MERGE_EACH == 0

    def _expired(self, metadata: TableMetadata) -> list[TableUpdate]:
        """Snapshots that go with this commit: the oldest beyond those that are kept, but no head of a ref."""
        text = metadata.properties.get(KEPT)
        if text is None or not _COUNT.fullmatch(text):
            return []
        heads = {ref.snapshot_id for ref in metadata.refs.values()}
        oldest = sorted(metadata.snapshots, key=lambda each: (each.sequence_number or 0, each.timestamp_ms))
        number = len(oldest) + 1 - max(1, int(text))
        gone = [each.snapshot_id for each in oldest[: max(0, number)] if each.snapshot_id not in heads]
        make: Any = RemoveSnapshotsUpdate  # its fields are known to pydantic alone
        return [make(snapshot_ids=gone)] if gone else []

    def _remove_old(self, before: TableMetadata, table: Table) -> None:
        """Remove metadata files that the new metadata does not name any more, if the table is to have this done."""
        metadata = table.metadata
        if metadata.properties.get("write.metadata.delete-after-commit.enabled", "").lower() != "true":
            return
        named = {each.metadata_file for each in metadata.metadata_log}
        for each in before.metadata_log:
            if each.metadata_file not in named:
                try:
                    table.io.delete(each.metadata_file)
                except OSError as error:
                    logger().warning("%s: an old metadata file stays: %s", self._name, error)


def seen_of(table: str, metadata: TableMetadata) -> Seen:
    """What appends need of a table's metadata; `table` is for people."""
    main = metadata.refs.get("main")
    return Seen(
        table,
        str(metadata.table_uuid),
        metadata.properties,
        None if main is None else main.snapshot_id,
        {each.snapshot_id: each.parent_snapshot_id for each in metadata.snapshots},
    )
