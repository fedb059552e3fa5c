"""A Delta table, each record exactly once.

    table/
      _delta_log/00000000000000000007.json                        one commit: files, and the position that they reach
      stream=clicks/shard=shardId-000000000000/after-start-<random>/part-….parquet

A reader of a Delta table sees the files that its log names, whatever else is in its folders. The steps of one write,
P being the position up to which the table has the shard:

    stage     Spark writes Parquet files into a new folder of the shard; they are synced
    commit    deltalake opens the log and reads P from it once more, then adds the files and the new position in one
              commit **through the same handle**

The position is in the table's application transactions, of which a commit can set several: a sequence number in pieces
of 62 bits (a transaction's version is a signed 64-bit number), and the sub-sequence number. deltalake does not compare
these versions. What it refuses is a commit by a handle that is older than another commit of the same application id,
and that is the comparison: the handle that P was read from cannot commit when P has been left since. Commits of other
shards do not matter to it. Checkpoints and the clean-up of the log keep transactions, and drop old commits' metadata.

A file that was staged and never committed is in nobody's way, and goes with the table's next VACUUM.

For POSIX file systems, local or shared by all of Spark's machines under one path.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from fastkcl import Position
from fastkcl.spark.sinks.base import Rows, Shard, SinkError, Transform
from fastkcl.spark.sinks.folders import data_folder, local_folder, make_folder, position_text, sync
from fastkcl.stdio.log import logger

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema, Transaction
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DeltaSink", "position", "shards"]

_Json: TypeAlias = Any

_PARTITIONS = ["stream", "shard"]
# The protocol's, but variant, which is a feature of its own.
_TYPES = {
    *("string", "long", "integer", "short", "byte", "float", "double", "decimal", "boolean", "binary"),
    *("date", "timestamp", "timestamp_ntz"),
}
_BITS = 62
# A commit that lost against one of another kind (new table properties, DELETE) may be tried again at once.
_ATTEMPTS = 20
# Features of a table that an append of whole files keeps to by itself, or that are looked for one by one.
_SAFE_FEATURES = {
    *("appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns", "columnMapping"),
    *("changeDataFeed", "deletionVectors", "domainMetadata", "timestampNtz", "v2Checkpoint"),
}


class DeltaSink:
    """Writes a shard's records into a Delta table: exactly once, in order, with a zombie fenced off.

    The table has the DataFrame's columns and two more, by which it is partitioned: `stream` and `shard`. It is made at
    the first write, unless it is there. Needs deltalake: ``pip install 'fastkcl[delta]'``.

    Args:
        path: folder of the table, on a POSIX file system that Spark sees under the same path.
        transform: makes of a DataFrame in the canonical schema (`fastkcl.spark.schema.SCHEMA`) the one that is
            written. It may be called more than once for the same records.

    Raises:
        ValueError: `path` is a URL of something else, or has a ``%`` in it.
        ImportError: deltalake is not installed.
    """

    def __init__(self, path: str | os.PathLike[str], *, transform: Transform | None = None) -> None:
        try:
            import deltalake  # noqa: F401 - before a shard is opened
        except ImportError as error:
            raise ImportError("DeltaSink needs deltalake: pip install 'fastkcl[delta]'") from error
        self._root = local_folder(path, "DeltaSink")
        if "%" in str(self._root):
            raise ValueError(f"{self._root}: deltalake would take the % for an escape: choose a path without")
        self._transform = transform
        self._shard: Shard | None = None
        self._position: Position | None = None
        self._schema: Schema | None = None

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard: see how far the table has it.

        Raises:
            ValueError: the stream or the shard has no name, which Delta cannot tell from null.
            SinkError: the table is not one that this sink can write to.
            Exception: what deltalake raised.
        """
        if not (shard.stream and shard.shard_id):
            raise ValueError(f"DeltaSink needs the name of a stream and of a shard, not {shard}")
        self._shard = shard
        table = _open(self._root)
        if table is not None:
            _check(table)
        self._position = None if table is None else position(table, shard)
        return self._position

    def write(self, rows: Rows, session: SparkSession) -> Position:
        """Make rows durable and visible; see `base.Sink.write`.

        Raises:
            SinkError: the table is not one that this sink can write to, or has lost a commit.
            WriteCancelledError: the lease has gone before the commit.
            Exception: what Spark, `transform`, deltalake or the file system raised. Whether the rows are in the table
                shows at the next write, which drops them then.
        """
        remaining: Rows | None = rows
        self._moved_to(_open(self._root))
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
        from deltalake.exceptions import CommitFailedError

        assert self._shard is not None
        after = self._position
        df = rows.data_frame(session)
        if self._transform is not None:
            df = self._transform(df)
        # Without a transformation it is always the same, and asking Connect for it costs as much as sending the rows.
        schema = _schema(df) if self._schema is None else self._schema
        if self._transform is None:
            self._schema = schema
        if (there := _open(self._root)) is not None:  # the table is made when there are files for it
            _check(there, schema)
        staging = self._root / data_folder(self._shard) / f"after-{position_text(after)}-{secrets.token_hex(8)}"
        make_folder(staging.parent)
        tried = False
        try:
            df.write.parquet(f"file://{staging}")  # Spark takes the path as it is, without escapes
            files = self._files(staging)
            failure: CommitFailedError | None = None
            for _ in range(_ATTEMPTS):
                table = self._made(schema)
                self._moved_to(table)
                if self._position != after:
                    self._report_other(after)
                    if not tried:
                        rmtree(staging, ignore_errors=True)
                    return
                _check(table, schema)
                rows.check_wanted()
                tried = True
                try:
                    self._commit(table, schema, files, rows)
                except CommitFailedError as error:
                    failure = error
                    continue
                self._confirm(rows.last_position, table.version())
                return
            raise SinkError(f"{self._name}: {_ATTEMPTS} commits have failed, the last one so: {failure}") from failure
        except BaseException:
            if not tried:  # else the table may have the files
                rmtree(staging, ignore_errors=True)
            raise

    def _made(self, schema: Schema) -> DeltaTable:
        """A new handle of the table, which is made if it is not there."""
        from deltalake import CommitProperties, DeltaTable
        from deltalake.exceptions import DeltaError

        table = _open(self._root)
        if table is None:
            make_folder(self._root)
            try:
                # No second attempt: it would put a second beginning behind the one of somebody else.
                DeltaTable.create(
                    self._root,
                    schema,
                    mode="error",
                    partition_by=_PARTITIONS,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
            except DeltaError:
                table = _open(self._root)
                if table is None:
                    raise
            else:
                sync(self._root)
                self._sync_log(-1, 0)
                table = DeltaTable(self._root)
        return table

    def _files(self, staging: Path) -> list[AddAction]:
        """The Parquet files with records in a staging folder, synced; what else Spark has left there is removed."""
        import pyarrow.parquet as pq
        from deltalake.transaction import AddAction

        assert self._shard is not None
        actions = []
        for file in sorted(staging.iterdir()):
            rows = pq.read_metadata(file).num_rows if file.suffix == ".parquet" and file.name[0] not in "._" else 0
            if rows == 0:
                file.unlink()
                continue
            sync(file)
            status = file.stat()
            actions.append(
                AddAction(
                    path=str(file.relative_to(self._root)),
                    size=status.st_size,
                    partition_values=dict(zip(_PARTITIONS, (self._shard.stream, self._shard.shard_id), strict=True)),
                    modification_time=status.st_mtime_ns // 1_000_000,
                    data_change=True,
                    stats=json.dumps({"numRecords": rows}),
                )
            )
        sync(staging)
        sync(staging.parent)
        return actions

    def _commit(self, table: DeltaTable, schema: Schema, files: list[AddAction], rows: Rows) -> None:
        """Add files and set the position, if the position is still the one that this handle shows."""
        from deltalake import CommitProperties

        assert self._shard is not None
        about = {
            "stream": self._shard.stream,
            "shard": self._shard.shard_id,
            "after": position_text(self._position),
            "upto": position_text(rows.last_position),
            "rows": rows.num_rows,
        }
        table.create_write_transaction(
            list(files),
            "append",
            schema,
            partition_by=_PARTITIONS,
            commit_properties=CommitProperties(
                custom_metadata={"fastkcl": about}, app_transactions=_transactions(self._shard, rows.last_position)
            ),
        )

    def _confirm(self, upto: Position, version: int) -> None:
        """See that the table has what was committed, and have the file system keep it."""
        table = _open(self._root)
        self._moved_to(table)
        if table is None or self._position is None or self._position < upto:
            raise SinkError(
                f"{self._name}: committed up to {position_text(upto)}, but the table has"
                f" {position_text(self._position)}: was it removed, or its log cleaned up without a retention time?"
            )
        self._sync_log(version, table.version())

    def _sync_log(self, after: int, upto: int) -> None:
        log = self._root / "_delta_log"
        for version in range(after + 1, upto + 1):
            with suppress(FileNotFoundError):  # a clean-up: a checkpoint has it
                sync(log / f"{version:020d}.json")
        sync(log)

    def _moved_to(self, table: DeltaTable | None) -> None:
        """Take over the position that a handle shows, which never goes back."""
        assert self._shard is not None
        found = None if table is None else position(table, self._shard)
        if self._position is not None and (found is None or found < self._position):
            raise SinkError(
                f"{self._name}: its position was {position_text(self._position)}, and now is {position_text(found)}:"
                " somebody has replaced the table. Restore it, or start the child again to go on with this one"
            )
        self._position = found

    def _report_other(self, after: Position | None) -> None:
        logger().warning(
            "%s: another writer has continued from %s up to %s; dropping what it has written",
            self._name,
            position_text(after),
            position_text(self._position),
        )

    @property
    def _name(self) -> str:
        assert self._shard is not None
        return f"{self._root} ({self._shard.stream}, {self._shard.shard_id})"


def position(table: DeltaTable, shard: Shard) -> Position | None:
    """The position up to which a table has a shard's records, at the version of the handle; None if it has none."""
    number = 0
    pieces = 0
    while (piece := table.transaction_version(_application_id(shard, f"sequence-number/{pieces}"))) is not None:
        number |= piece << (_BITS * pieces)
        pieces += 1
    if pieces == 0:
        return None
    sub = table.transaction_version(_application_id(shard, "sub-sequence-number"))
    return Position(str(number), None if sub is None or sub < 0 else sub)


def shards(table: DeltaTable) -> list[Shard]:
    """The shards that a table has records of, in order."""
    found = {(partition["stream"], partition["shard"]) for partition in table.partitions()}
    return [Shard(stream, shard) for stream, shard in sorted(found)]


def _transactions(shard: Shard, position: Position) -> list[Transaction]:
    """A position as application transactions, without a time: deltalake drops none of these, however old.

    Sequence numbers only grow, so a piece that was set is set by each later commit. Nothing writes a legacy position's
    absent sub-sequence number but -1.
    """
    from deltalake import Transaction

    number, sub = int(position.sequence_number), position.sub_sequence_number
    pieces = max(1, -(-number.bit_length() // _BITS))
    versions = {f"sequence-number/{index}": (number >> (_BITS * index)) % 2**_BITS for index in range(pieces)}
    versions["sub-sequence-number"] = -1 if sub is None else sub
    return [Transaction(_application_id(shard, name), version) for name, version in versions.items()]


def _application_id(shard: Shard, name: str) -> str:
    return f"fastkcl/{quote(shard.stream, safe='')}/{quote(shard.shard_id, safe='')}/{name}"


def _open(root: Path) -> DeltaTable | None:
    from deltalake import DeltaTable

    return DeltaTable(root) if DeltaTable.is_deltatable(str(root)) else None


def _schema(df: DataFrame) -> Schema:
    """A DataFrame's schema as that of the table: Delta writes it as Spark does.

    Raises:
        SinkError: it has a column that the table has already, or a type that Delta has not.
    """
    from deltalake import Schema

    fields = [_nullable(field) for field in df.schema.jsonValue()["fields"]]
    if taken := {field["name"] for field in fields if field["name"].lower() in _PARTITIONS}:
        raise SinkError(f"column {taken.pop()}: the table has it already, with the record's origin: name it otherwise")
    for field in fields:
        if unknown := {kind for kind in _primitives(field["type"]) if kind.partition("(")[0] not in _TYPES}:
            raise SinkError(
                f"column {field['name']}: its type {unknown.pop()} is none of Delta's: cast it in transform"
            )
    fields += [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in _PARTITIONS]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def _primitives(kind: _Json) -> Iterator[str]:
    """The types that a type in a schema's JSON is made of."""
    match kind:
        case {"type": "struct", "fields": fields}:
            for field in fields:
                yield from _primitives(field["type"])
        case {"type": "array", "elementType": element}:
            yield from _primitives(element)
        case {"type": "map", "keyType": key, "valueType": value}:
            yield from _primitives(key)
            yield from _primitives(value)
        case {"type": other}:
            yield other
        case _:
            yield kind


def _nullable(part: _Json) -> _Json:
    """A part of a schema's JSON as Spark writes it into files: each value may be null, and there is no metadata."""
    if isinstance(part, list):
        return [_nullable(item) for item in part]
    if not isinstance(part, dict):
        return part
    nullable = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}
    return {name: nullable.get(name, _nullable(item)) for name, item in part.items()}


def _check(table: DeltaTable, schema: Schema | None = None) -> None:
    """See that Spark's files can be added to a table as they are; without a schema, to its shape.

    Raises:
        SinkError: they cannot: what is in the way.
    """

    def refuse(why: str) -> SinkError:
        return SinkError(f"{table.table_uri}: DeltaSink cannot write to this table: {why}")

    metadata, protocol = table.metadata(), table.protocol()
    if metadata.partition_columns != _PARTITIONS:
        raise refuse(f"it is partitioned by {metadata.partition_columns}, not by {_PARTITIONS}")
    if unsafe := set(protocol.writer_features or ()) - _SAFE_FEATURES:
        raise refuse(f"it has features that are unknown here: {', '.join(sorted(unsafe))}")
    for key, value in metadata.configuration.items():
        if key.startswith("delta.constraints."):
            raise refuse(f"nobody would check its constraint {key.removeprefix('delta.constraints.')}")
        if key == "delta.columnMapping.mode" and value != "none":
            raise refuse("its columns have other names in its files (delta.columnMapping.mode)")
        if key == "delta.setTransactionRetentionDuration":
            raise refuse(f"{key} would make it forget the positions of its shards: unset it")
    there = {field["name"]: field for field in json.loads(table.schema().to_json())["fields"]}
    for name, field in there.items():
        if not field["nullable"]:
            raise refuse(f"its column {name} is NOT NULL, and nobody would check it")
        if kinds := [key for key in field["metadata"] if key.startswith("delta.") and "columnMapping" not in key]:
            raise refuse(f"nobody would keep to {kinds[0]} of its column {name}")
    for field in json.loads(schema.to_json())["fields"] if schema is not None else ():
        name = field["name"]
        if name not in there:
            raise refuse(f"it has no column {name}: add it to the table, or drop it in transform")
        if _nullable(there[name]["type"]) != field["type"]:
            raise refuse(f"its column {name} is {there[name]['type']}, and {field['type']} was to be written")
