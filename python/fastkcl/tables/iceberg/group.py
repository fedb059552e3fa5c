"""Commits of an Iceberg table: of a child's own request, or of several children's together.

    requests ──▶ chosen: one a shard, after its position ──▶ one `commit_table`: one snapshot with all their files,
                 at the metadata that was seen               and a property with the new position of each shard

The lock of `fastkcl.tables.combiner` only saves work. The assertion about the snapshot of ``main`` decides: it names
the snapshot of the very metadata whose positions were compared.

Rules: of another child's request only parts that can be checked are taken. Each file has to be exactly as the child
describes it: at the place that the table gives to its partition, under the name of the position. A commit that adds
columns is made alone. pyiceberg is imported when something is committed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from fastkcl.tables.base import SinkError, in_one_line
from fastkcl.tables.folders import position_text
from fastkcl.tables.group import Answer, Outcome, Request, choose, gone

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction

    from fastkcl.tables.iceberg.head import IcebergHead

__all__ = ["IcebergCommitter", "about", "place_of"]

_MOST_FILES: Final = 4096  # of a request: one for each partition
_MOST_SIZE: Final = 5 << 30  # bytes, of one PUT
_FILE: Final = re.compile(r"after-(.+)-[0-9a-f]{24}\.parquet", re.ASCII)


class IcebergCommitter:
    """One try of a commit on the metadata that was seen last.

    Args:
        head: of the table. The child has compared its position there.
        wanted: called right before the commit of the child's own request; raises if it is not wanted any more.
        evolve: adds the columns that the table lacks for it; None if it lacks none.
    """

    def __init__(
        self,
        head: IcebergHead,
        wanted: Callable[[], None],
        evolve: Callable[[Transaction], None] | None = None,
    ) -> None:
        self._head = head
        self._wanted = wanted
        self._evolve = evolve
        self._is_fresh = True

    def forget(self) -> None:
        """Others may have committed since the metadata was seen."""
        self._is_fresh = False

    def commit(self, requests: Sequence[Request]) -> list[Answer]:
        """See `fastkcl.tables.group.Committer.commit`.

        Raises:
            SinkError: it is another table now.
            StoreError: nobody knows whether they were committed.
            WriteCancelledError: the own request is not wanted any more.
        """
        head = self._head
        seen = head.seen if self._is_fresh else head.load()
        self._is_fresh = False
        own = requests[0]
        if seen is None:
            return [Answer(each.id, Outcome.AGAIN) for each in requests]
        files, answers = self._files(requests)
        sound = [each for each in requests if each.id in files]
        chosen, passed = choose(sound, seen.uuid, seen.position)
        answers += passed + (lost := self.gone([each for each in chosen if each is not own]))
        chosen = [each for each in chosen if each.id not in {answer.id for answer in lost}]
        if chosen:
            if own in chosen:
                self._wanted()
            done = head.commit(
                {each.shard: each.upto for each in chosen},
                [file for each in chosen for file in files[each.id]],
                {"fastkcl": json.dumps([about(each) for each in chosen])},
                self._evolve if own in chosen else None,
            )
            outcome = Outcome.COMMITTED if done else Outcome.AGAIN
            answers += [Answer(each.id, outcome) for each in chosen]
        by_id = {each.id: each for each in answers}
        return [by_id[each.id] for each in requests]

    def gone(self, requests: Sequence[Request]) -> list[Answer]:
        """Refusals of requests whose files are not there.

        Raises:
            StoreError: nobody knows.
        """
        from fastkcl.tables.iceberg.io import sizes, storage_of

        table = self._head.table
        assert table is not None
        storage, root = storage_of(table.io.properties), table.location()
        return gone(requests, sizes_of, lambda locations: sizes(locations, storage, root))

    def _files(self, requests: Sequence[Request]) -> tuple[dict[str, list[DataFile]], list[Answer]]:
        """The files of each request that can be committed, and answers to the others."""
        table = self._head.table
        assert table is not None
        transaction = self._head.transaction()
        if self._evolve is not None:
            self._evolve(transaction)
        schema, spec = transaction.table_metadata.schema(), table.spec()
        found, answers = {}, []
        for number, request in enumerate(requests):
            try:
                files = _files_of(request, schema, spec)
                if number:
                    _check(request, files, schema, table)
                found[request.id] = files
            except (SinkError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                answers.append(Answer(request.id, Outcome.REFUSED, in_one_line(error)))
        return found, answers


def about(request: Request) -> dict[str, Any]:
    """What a snapshot's summary and a file's footer have of a run."""
    return {
        "stream": request.shard.stream,
        "shard": request.shard.shard_id,
        "after": position_text(request.after),
        "upto": position_text(request.upto),
        "rows": request.rows,
    }


def sizes_of(request: Request) -> dict[str, int]:
    """The files of a request that was checked, by their locations, and their bytes."""
    return {each["path"]: each["size"] for each in request.files["files"]}


def _files_of(request: Request, schema: Schema, spec: PartitionSpec) -> list[DataFile]:
    """The files of a request, for a table with these columns and partitions.

    Raises:
        ValueError: they have other ones, or it has no files.
    """
    from fastkcl.tables.iceberg.file import of_json

    there = {field.field_id: [field.field_id, field.name, str(field.field_type)] for field in schema.fields}
    try:
        columns, files = request.files["columns"], request.files["files"]
        if request.files["spec"] != spec.spec_id or not all(there.get(each[0]) == list(each) for each in columns):
            raise ValueError("its files have columns or partitions that the table does not have")
        if not isinstance(files, list) or len(files) > _MOST_FILES:
            raise ValueError("no list of files")
        return [of_json(each, spec, schema) for each in files]
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"no request of this table: {error!r}") from error


def place_of(table: Table, folder: str, name: str) -> str:
    """Where a data file lies.

    Args:
        table: the provider of its locations decides.
        folder: of the file's partition.
        name: of the file.
    """
    location: str = table.location_provider().new_data_location(f"{folder}/{name}" if folder else name)
    return location


def _check(request: Request, files: Sequence[DataFile], schema: Schema, table: Table) -> None:
    """See that another child's files are such as a child stages.

    Raises:
        ValueError: one of them is not.
    """
    from fastkcl.tables.iceberg.file import as_json, folder_of

    given = request.files["files"]
    if {field.name for field in schema.fields if field.required} - {each[1] for each in request.files["columns"]}:
        raise ValueError("its files lack a column that the table requires")
    if len({file.file_path for file in files}) < len(files):
        raise ValueError("a file is named twice")
    spec = table.spec()
    for value, file in zip(given, files, strict=True):
        name = file.file_path.rpartition("/")[2]
        match = _FILE.fullmatch(name)
        folder = folder_of(file.partition, spec, schema)
        if match is None or match[1] != position_text(request.after) or place_of(table, folder, name) != file.file_path:
            raise ValueError(f"{file.file_path}: not a file that a child stages")
        if not 0 < file.file_size_in_bytes <= _MOST_SIZE or not 0 < file.record_count < 1 << 40:
            raise ValueError(f"{file.file_path}: {file.file_size_in_bytes} bytes, {file.record_count} rows")
        if json.dumps(value) != json.dumps(as_json(file, spec, schema)):
            raise ValueError(f"{file.file_path}: not what a child says of a file")
