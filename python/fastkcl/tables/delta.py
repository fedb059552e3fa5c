"""A Delta table, each record exactly once.

    table/
      _delta_log/00000000000000000007.json                        one commit: files, and the position that they reach
      stream=clicks/shard=shardId-000000000000/after-start-<random>/part-….parquet

A reader of a Delta table sees the files that its log names, and no others of its folders. The steps of one write,
P being the position up to which the table has the shard:

    stage        Parquet files are written into a new folder of the shard and synced
    commit       deltalake opens the log and reads P from it once more, at version V. The entry V + 1, with the files
                 and the new position, is linked to its name when it is synced: an exclusive creation
    checkpoint   each hundredth commit. deltalake makes it elsewhere, of links to the log; it is renamed to its name
                 when it is synced, and only then `_last_checkpoint` names it

A writer that commits after an entry, or relies on a position in it, syncs it first: the entry's own writer may have
died before that, or never sync. So each entry and checkpoint of a sink that a power cut leaves is whole, and those
that others rely on stay.

The position is in the table's application transactions, of which a commit can set several: a sequence number in pieces
of 62 bits (a transaction's version is a signed 64-bit number), and the sub-sequence number. Nobody compares these
versions. A second entry V + 1 fails, and that is the comparison: nobody else has continued from the P that was read.
After a commit of another shard the next version is tried. Checkpoints and the clean-up of the log keep transactions,
and drop old commits' metadata.

A file that was staged and never committed is in nobody's way, and goes with the table's next VACUUM.

For POSIX file systems, local or shared by all of Spark's machines under one path.
"""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from fastkcl import Position
from fastkcl._core import __version__
from fastkcl.stdio.log import logger
from fastkcl.tables import storage
from fastkcl.tables.appender import Appender, R
from fastkcl.tables.base import RECOVERY, Files, Rows, Shard, SinkError
from fastkcl.tables.delta_log import (
    ASIDE,
    LAST_CHECKPOINT,
    entry,
    entry_damage,
    last_checkpoint,
    log_damage,
    log_folder,
    newest_checkpoint,
    set_damage_aside,
    versions,
)
from fastkcl.tables.folders import check_names, data_folder, local_folder, position_text, quoted, shard_folders
from fastkcl.tables.given_up import give_up, given_up

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

__all__ = ["DeltaAppender", "position", "shards"]

_Json: TypeAlias = Any

_PARTITIONS = ["stream", "shard"]
_REPLACED = "the table was replaced. Restore it, or start the child again to continue with this one"
# The protocol's, except variant, which is a separate feature.
_TYPES = {
    *("string", "long", "integer", "short", "byte", "float", "double", "decimal", "boolean", "binary"),
    *("date", "timestamp", "timestamp_ntz"),
}
_BITS = 62
_PIECES = 7  # of the 129 digits that a sequence number has at the most
_ENGINE = f"fastkcl:{__version__}"
# A commit that lost against one of another shard, or of another kind, is tried again after it.
_ATTEMPTS = 100
_PAUSE = 0.05  # seconds, at the most, before that
_RANDOM = re.compile(r"[0-9a-f]{16}")  # names there
_ASIDE_SECONDS = 3600  # after which a file there is of a process that has died
_CHECKPOINT_INTERVAL = 100  # delta.checkpointInterval, where the table has none
# Features of a table that an append of whole files keeps to by itself, or that are looked for one by one.
_SAFE_FEATURES = {
    *("appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns", "columnMapping"),
    *("changeDataFeed", "deletionVectors", "domainMetadata", "timestampNtz", "v2Checkpoint"),
}


class DeltaAppender(Appender):
    """Writes a shard's records into a Delta table: exactly once, in order, with a zombie fenced off.

    The table has the columns of the files and two more, by which it is partitioned: `stream` and `shard`. It is made at
    the first write, unless it is there. Needs deltalake: ``pip install 'fastkcl[delta]'``.

    Args:
        path: folder of the table, on a POSIX file system that the writer of its files sees under the same path.

    Raises:
        ValueError: `path` is a URL of something else, or has a ``%`` in it.
        ImportError: deltalake is not installed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            import deltalake  # noqa: F401 - before a shard is opened
        except ImportError as error:
            raise ImportError("DeltaSink needs deltalake: pip install 'fastkcl[delta]'") from error
        super().__init__(local_folder(path, "DeltaSink"))
        if "%" in str(self._root):
            raise ValueError(f"{self._root}: deltalake would take the % for an escape: choose a path without")
        self._id: str | None = None  # of the table
        self._kept = -1  # version up to which the log is synced

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard: see how far the table has it.

        Raises:
            ValueError: the stream or the shard has no name, which Delta cannot tell from null.
            SinkError: the table is not one that this sink can write to, its log is damaged, or since it was opened
                before the table has been replaced.
            OSError: its log cannot be synced.
            Exception: deltalake's error.
        """
        check_names(shard, "DeltaSink")
        if shard != self._shard:
            self._shard = shard
            self._id = self._position = None
        self._kept = -1
        table = self._opened()
        if table is not None:
            _check(table)
        self._move_to(table)
        return self._position

    def append_run(self, rows: R, files: Callable[[R], Files]) -> Position:
        """Make rows durable and visible; see `Appender.append_run`.

        Raises:
            SinkError: the table is not one that this sink can write to, or has lost a commit.
            WriteCancelledError: the rows are not wanted any more.
            Exception: what `files`, deltalake or the file system raised. Whether the rows are in the table shows at the
                next write, which drops them then.
        """
        self._move_to(self._opened())
        return super().append_run(rows, files)

    def give_up(self, upto: Position) -> None:
        """Note that records up to a position have been given up: a checkpoint there is no sign of a loss."""
        assert self._shard is not None
        give_up(self._root, shard_folders(self._shard), upto)

    def given_up(self) -> Position | None:
        """Up to where records have been given up; None if none have."""
        assert self._shard is not None
        return given_up(self._root, shard_folders(self._shard))

    def _append(self, rows: Rows, files: Files) -> None:
        assert self._shard is not None
        after = self._position
        schema = _schema(files.columns())
        if (there := _open(self._root)) is not None:  # the table is made when there are files for it
            _check(there, schema)
        folder = self._root / data_folder(f"{quoted(self._shard.stream)}/{quoted(self._shard.shard_id)}")
        staging = folder / f"after-{position_text(after)}-{secrets.token_hex(8)}"
        storage.make_folder(folder)
        tried = False
        try:
            files.write(staging)
            actions = self._files(staging)
            for attempt in range(_ATTEMPTS):
                if attempt:
                    time.sleep(random.uniform(0, _PAUSE))
                table = self._made(schema)
                self._move_to(table)
                if self._position != after:
                    self._report_other(after)
                    if not tried:
                        storage.remove(staging)
                    return
                _check(table, schema)
                rows.check_wanted()
                tried = True
                if self._commit(table, actions, rows) and self._confirm(rows.last_position, table.version() + 1):
                    return
            raise SinkError(
                f"{self._name}: {_ATTEMPTS} commits have met others: write less often, or from fewer shards"
            )
        except BaseException:
            if not tried:  # else the table may have the files
                storage.remove(staging)
            raise

    def _opened(self) -> DeltaTable | None:
        """A new handle of the table, whose log is looked through and synced up to there.

        Raises:
            SinkError: an entry is damaged, or a checkpoint that cannot be done without.
        """
        log = log_folder(self._root)
        self._check_log(log)
        try:
            table = _open(self._root)
        except Exception:
            if not set_damage_aside(log):
                raise
            self._kept = -1
            self._check_log(log)
            table = _open(self._root)
        if table is not None:
            self._keep(log, table.version())
        return table

    def _keep(self, log: Path, version: int) -> None:
        """Sync the log up to a version: who has made an entry may have died before that."""
        if self._kept >= version:
            return
        before = self._kept
        if before < 0:
            storage.make_folder(log)
            before, files = newest_checkpoint(log, storage.names(log))
            for name in (*files, LAST_CHECKPOINT):
                if storage.status(log / name) is not None:
                    storage.sync_file(log / name)
        for number in range(before + 1, version + 1):
            if damage := entry_damage(log, number):
                raise SinkError(f"{damage}. {RECOVERY}")
            if storage.status(path := entry(log, number)) is not None:  # else a clean-up: a checkpoint has it
                storage.sync_file(path)
        storage.sync_folder(log)
        self._kept = version

    def _check_log(self, log: Path) -> None:
        """See that a log that nothing was seen of yet is whole: deltalake takes a damaged log for none."""
        if self._kept < 0 and (damage := log_damage(log)):
            raise SinkError(f"{damage[0]}. {RECOVERY}")

    def _made(self, schema: Schema) -> DeltaTable:
        """A new handle of the table, which is made if it is not there."""
        table = self._opened()
        if table is None:
            log = log_folder(self._root)
            storage.make_folder(log)
            storage.create(entry(log, 0), _beginning(schema))  # or somebody else's is there
            table = self._opened()
            assert table is not None
        return table

    def _files(self, staging: Path) -> list[_Json]:
        """The Parquet files with records in a staging folder, synced; other files of Spark there are removed."""
        import pyarrow.parquet as pq

        assert self._shard is not None
        actions = []
        for name in storage.names(staging):
            file = staging / name
            rows = pq.read_metadata(file).num_rows if name.endswith(".parquet") and name[0] not in "._" else 0
            if rows == 0:
                storage.unlink(file)
                continue
            storage.sync_file(file)
            status = file.stat()
            add = {
                "path": quote(str(file.relative_to(self._root)), safe="/="),
                "partitionValues": dict(zip(_PARTITIONS, (self._shard.stream, self._shard.shard_id), strict=True)),
                "size": status.st_size,
                "modificationTime": status.st_mtime_ns // 1_000_000,
                "dataChange": True,
                "stats": json.dumps({"numRecords": rows}),
            }
            actions.append({"add": add})
        storage.sync_folder(staging)
        storage.sync_folder(staging.parent)
        return actions

    def _commit(self, table: DeltaTable, files: Sequence[_Json], rows: Rows) -> bool:
        """Add files and set the position, if nobody has committed since this handle's version."""
        assert self._shard is not None
        about = {
            "stream": self._shard.stream,
            "shard": self._shard.shard_id,
            "after": position_text(self._position),
            "upto": position_text(rows.last_position),
            "rows": rows.num_rows,
        }
        info = {
            "timestamp": time.time_ns() // 1_000_000,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": json.dumps(_PARTITIONS)},
            "engineInfo": _ENGINE,
            "isBlindAppend": True,
            "fastkcl": about,
        }
        actions = [{"commitInfo": info}, *files, *_transactions(self._shard, rows.last_position)]
        version = table.version() + 1
        if not storage.create(entry(log_folder(self._root), version), _lines(actions)):
            return False
        self._kept = version
        return True

    def _confirm(self, upto: Position, version: int) -> bool:
        """See that the table has the commit, and make the checkpoint that is due.

        Returns:
            False if it has not: the log was cleaned up since the handle was opened, and begins after this commit.
        """
        log = log_folder(self._root)
        table = self._opened()
        found = None if table is None else position(table, self._shard_opened)
        cleaned_up = storage.status(entry(log, version - 1)) is None  # as far as the handle's version at least
        if cleaned_up and last_checkpoint(log) >= version and found != upto:
            storage.unlink(entry(log, version))
            self._move_to(table)
            return found is not None and found >= upto
        if table is None or found is None or found < upto:
            raise SinkError(
                f"{self._name}: committed up to {position_text(upto)}, but the table has {position_text(found)}: was it"
                " removed, or its log cleaned up without a retention time?"
            )
        self._move_to(table)
        try:
            self._make_checkpoint(table, version)
        except Exception as error:
            logger().warning("%s: no checkpoint of its log was made; the log has everything: %s", self._name, error)
        return True

    def _make_checkpoint(self, table: DeltaTable, since: int) -> None:
        """Make a checkpoint of the log if one has become due from a version on; whole before it has its name."""
        from deltalake import DeltaTable

        options = table.metadata().configuration
        interval = int(options.get("delta.checkpointInterval") or _CHECKPOINT_INTERVAL)
        if table.version() // interval == (since - 1) // interval:
            return
        log = log_folder(self._root)
        before, files = newest_checkpoint(log, storage.names(log))
        if not all(name.endswith(".checkpoint.parquet") for name in files):
            return  # in parts or by another scheme: the engine that does so goes on with it
        aside = self._root / ASIDE
        if aside.is_symlink():
            raise SinkError(f"{aside}: leads elsewhere, and a sink removes folders there: make it a folder")
        for name in storage.names(aside):
            left = storage.status(aside / name)
            if _RANDOM.fullmatch(name) and left is not None and left.st_mtime < time.time() - _ASIDE_SECONDS:
                storage.remove(aside / name)
        folder = aside / secrets.token_hex(8)
        links = log_folder(folder)
        links.mkdir(parents=True)
        try:
            entries = [entry(log, number).name for number in range(before + 1, table.version() + 1)]
            for name in (*files, *entries):
                (links / name).symlink_to(log / name)
            made = DeltaTable(folder)
            made.create_checkpoint()
            for path in sorted(path for path in links.rglob("*") if path.is_file() and not path.is_symlink()):
                if path.name != LAST_CHECKPOINT:
                    target = log / path.relative_to(links)
                    storage.make_folder(target.parent)
                    storage.replace(target, path.read_bytes())  # an existing one has the same content, or is damaged
            if last_checkpoint(log) < made.version():
                storage.replace(log / LAST_CHECKPOINT, (links / LAST_CHECKPOINT).read_bytes())
        finally:
            storage.remove(folder)
        if options.get("delta.enableExpiredLogCleanup") != "false":
            DeltaTable(self._root).cleanup_metadata()

    def _move_to(self, table: DeltaTable | None) -> None:
        """Take over the position that a handle shows, which never goes back, and only in one table.

        Raises:
            SinkError: it has gone back, or it is another table.
        """
        found = None if table is None else position(table, self._shard_opened)
        if self._position is not None and (found is None or found < self._position):
            raise SinkError(
                f"{self._name}: its position was {position_text(self._position)}, and now is {position_text(found)}:"
                f" {_REPLACED}"
            )
        if table is not None:
            metadata = table.metadata()
            if self._id is not None and str(metadata.id) != self._id:
                raise SinkError(f"{self._name}: its id was {self._id}, and now is {metadata.id}: {_REPLACED}")
            self._id = str(metadata.id)
        self._position = found

    def _report_other(self, after: Position | None) -> None:
        logger().warning(
            "%s: another writer has continued from %s up to %s; dropping the records that it has written",
            self._name,
            position_text(after),
            position_text(self._position),
        )

    @property
    def _shard_opened(self) -> Shard:
        assert self._shard is not None
        return self._shard

    @property
    def _name(self) -> str:
        return f"{self._root} ({self._shard_opened.stream}, {self._shard_opened.shard_id})"


def position(table: DeltaTable, shard: Shard) -> Position | None:
    """The position up to which a table has a shard's records, at the version of the handle; None if it has none.

    Raises:
        SinkError: its transactions are no position.
    """
    number = 0
    pieces = 0
    while (piece := table.transaction_version(_application_id(shard, f"sequence-number/{pieces}"))) is not None:
        if not 0 <= piece < 2**_BITS or pieces == _PIECES:
            raise SinkError(f"{table.table_uri}: the position of {shard.stream}, {shard.shard_id} is damaged: {piece}")
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


def _transactions(shard: Shard, position: Position) -> list[_Json]:
    """A position as application transactions, without a time: deltalake drops none of these, however old.

    Sequence numbers only grow, so a piece that was set is set by each later commit. Nothing writes a legacy position's
    absent sub-sequence number but -1.
    """
    number, sub = int(position.sequence_number), position.sub_sequence_number
    pieces = max(1, -(-number.bit_length() // _BITS))
    versions = {f"sequence-number/{index}": (number >> (_BITS * index)) % 2**_BITS for index in range(pieces)}
    versions["sub-sequence-number"] = -1 if sub is None else sub
    return [{"txn": {"appId": _application_id(shard, name), "version": version}} for name, version in versions.items()]


def _lines(actions: Sequence[_Json]) -> bytes:
    """Actions as an entry of the log has them."""
    return b"".join(json.dumps(action).encode() + b"\n" for action in actions)


def _beginning(schema: Schema) -> bytes:
    """The first entry of a log."""
    now = time.time_ns() // 1_000_000
    text = schema.to_json()
    protocol: _Json = {"minReaderVersion": 1, "minWriterVersion": 2}
    if "timestamp_ntz" in {kind for field in json.loads(text)["fields"] for kind in _primitives(field["type"])}:
        features = ["timestampNtz"]
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": text,
        "partitionColumns": _PARTITIONS,
        "configuration": {},
        "createdTime": now,
    }
    info = {"timestamp": now, "operation": "CREATE TABLE", "operationParameters": {}, "engineInfo": _ENGINE}
    return _lines([{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}])


def _application_id(shard: Shard, name: str) -> str:
    return f"fastkcl/{quote(shard.stream, safe='')}/{quote(shard.shard_id, safe='')}/{name}"


def _open(root: Path) -> DeltaTable | None:
    """A new handle; None if there is no table.

    Raises:
        OSError: nobody knows, as its log cannot be read.
        Exception: deltalake's error.
    """
    from deltalake import DeltaTable

    if DeltaTable.is_deltatable(str(root)):
        return DeltaTable(root)
    if not versions(storage.names(log_folder(root))):
        return None
    if DeltaTable.is_deltatable(str(root)):  # made by somebody else meanwhile
        return DeltaTable(root)
    raise OSError(f"{log_folder(root)}: deltalake finds no table there")  # an error is no absence


def _schema(columns: Sequence[_Json]) -> Schema:
    """Columns as the schema of the table.

    Raises:
        SinkError: it has a column that the table has already, or a type that Delta has not.
    """
    from deltalake import Schema

    fields = [_nullable(field) for field in columns]
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
        SinkError: they cannot; it names the obstacle.
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
