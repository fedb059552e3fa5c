"""Inspects a table that has a log, in any format: the runs in the log, and the files of each shard.

runs     each run continues from the end of the run before it, and the last one ends at the shard's position
files    the log names a file's shard, otherwise the file's footer does. If somebody has rewritten the file, its
         columns stream and shard are read, and each shard's rows are checked separately
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias, TypeVar

from fastkcl import Position
from fastkcl.tables.base import Shard, SinkError, parse_json, place
from fastkcl.tables.folders import can_exist, own_name, parse_position
from fastkcl.tables.inspection import NO_POSITIONS, ShardState, check_rows
from fastkcl.tables.parquet_file import FOOTER_KEY
from fastkcl.tables.storage import InTheWayError

__all__ = ["Commit", "FilesByShard", "check_commits", "check_files", "commits_of", "of_any_name"]

_REWRITTEN: Final = -1  # in place of a commit
_OF_SINKS: Final = ("stream", "shard")
_KEYS: Final = ("sequenceNumber", "subSequenceNumber")

Finds: TypeAlias = "Callable[[str], BinaryIO | None]"
"""Opens a file by its name, None if there is none."""
T = TypeVar("T")


def of_any_name(
    look: Callable[[str], T | None], damage: list[str], may_exist: Callable[[str], bool] = can_exist
) -> Callable[[str], T | None]:
    """`look`, for files on a disk, of whatever name a log may have: None for one that no file there can have.

    Args:
        look: what it finds of a file; None if that is missing.
        damage: gets what is in the place of a file, or why a place can have none.
        may_exist: whether a file can have a name.
    """

    def look_safely(name: str) -> T | None:
        if not may_exist(name):
            return None
        try:
            return look(name)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
        except InTheWayError as error:
            if error.path.name == own_name(name):
                tell(str(error))
            elif "=" in error.path.name:  # a file is in the place of a partition's folder, and hides all of it
                raise
        except (SinkError, ValueError) as error:
            tell(f"{name[:200]}: {error}")
        return None

    def tell(why: str) -> None:
        if why not in damage:
            damage.append(why)

    return look_safely


class FilesByShard:
    """The files of a version, by shard.

    Args:
        find: opens a file.
        exists: whether a file is there.
    """

    def __init__(self, find: Finds, exists: Callable[[str], bool]) -> None:
        self._find = find
        self.exists = exists
        self.of: dict[Shard, list[str]] = {}
        self.unknown: list[str] = []
        self.missing: list[str] = []
        """Of a shard that the log does not name."""
        self._parts: dict[str, tuple[str, Shard]] = {}

    def take(self, name: str, stream: str | None, shard_id: str | None, *, by_log: bool) -> None:
        """Take in a file.

        Args:
            name: from the table's folder on.
            stream: by its partition; None if it has none.
            shard_id: likewise.
            by_log: whether the table is partitioned by both.
        """
        if stream is not None and shard_id is not None:
            self.of.setdefault(Shard(stream, shard_id), []).append(name)
            return
        if not self.exists(name):
            self.missing.append(name)
            return
        shards = [] if by_log else self._shards_of(name, stream, shard_id)
        if not shards:
            self.unknown.append(name)
        elif isinstance(shards, Shard):
            self.of.setdefault(shards, []).append(name)
        else:
            for index, shard in enumerate(shards):
                part = f"{name}#{index}"
                self._parts[part] = name, shard
                self.of.setdefault(shard, []).append(part)

    def is_rewritten(self, name: str) -> bool:
        """Whether a file, or a part of one, is not as a child has made it."""
        return name in self._parts or not os.path.basename(name).startswith("after-")  # noqa: PTH119

    def is_there(self, name: str) -> bool:
        """Whether a file, or that of a part, is there."""
        return name in self._parts or self.exists(name)

    def opened(self, name: str) -> BinaryIO:
        """A file, or the rows of a shard in it.

        Raises:
            FileNotFoundError: it is gone.
        """
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        whole, shard = self._parts.get(name, (name, None))
        file = self._find(whole)
        if file is None:
            raise FileNotFoundError(f"{whole}: it was there, and is gone")
        if shard is None:
            return file
        with file:
            there = pq.read_schema(file).names
            columns = [each for each in (*_OF_SINKS, *_KEYS) if each in there]
            rows = _without_views(pq.read_table(file, columns=columns, partitioning=None))
        for column, value in zip(_OF_SINKS, (shard.stream, shard.shard_id), strict=True):
            if column in there:  # otherwise the table is partitioned by it, and all rows of the file have it
                rows = rows.filter(pc.equal(rows[column], value))
        body = io.BytesIO()
        pq.write_table(rows, body)
        body.seek(0)
        return body

    def _shards_of(self, name: str, stream: str | None, shard_id: str | None) -> Shard | list[Shard]:
        """The shard that a file's footer names; else all that its rows are of. Of a damaged one none.

        `stream` or `shard_id` is given if the table is partitioned by it: files that others rewrite lack that column.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = self._find(name)
            if file is None:
                return []
            with file, pq.ParquetFile(file) as parquet:
                footer = (parquet.metadata.metadata or {}).get(FOOTER_KEY)
                if footer is not None:
                    told = parse_json(footer)
                    return Shard(str(told["stream"]), str(told["shard"]))
                given = {
                    name: value for name, value in zip(_OF_SINKS, (stream, shard_id), strict=True) if value is not None
                }
                columns = [each for each in _OF_SINKS if each not in given]
                rows = _without_views(parquet.read(columns=columns))
                pairs = [given | each for each in rows.group_by(columns).aggregate([]).to_pylist()]
                return [Shard(each["stream"], each["shard"]) for each in pairs]
        except (pa.ArrowException, ValueError, KeyError, TypeError, OSError, SinkError):
            return []


def _without_views(rows: Any) -> Any:  # noqa: ANN401 - a pyarrow.Table
    """Text that is a view, as files have it that deltalake rewrites, in the type that can be compared and grouped."""
    import pyarrow as pa

    for index, field in enumerate(rows.schema):
        if pa.types.is_string_view(field.type):
            rows = rows.set_column(index, field.name, rows.column(index).cast(pa.string()))
    return rows


class Commit(NamedTuple):
    """A commit of one shard, as the log describes it."""

    shard: Shard
    after: Position | None
    upto: Position
    rows: int

    @classmethod
    def of(cls, told: dict[str, Any]) -> Commit:
        """Of its description.

        Raises:
            KeyError, TypeError, ValueError, OverflowError: it is none of a writer.
        """
        stream, shard_id, after, upto = texts = [told[name] for name in ("stream", "shard", "after", "upto")]
        if not all(isinstance(text, str) for text in texts) or type(told["rows"]) is not int:
            raise TypeError(told)
        "".join(texts).encode()  # no half of a pair of surrogates
        end = parse_position(upto)
        if end is None:
            raise ValueError("it ends at the start")
        return cls(Shard(stream, shard_id), parse_position(after), end, told["rows"])


def commits_of(told: Any, where: str, damage: list[str]) -> Iterator[Commit]:  # noqa: ANN401 - of a log
    """The commits that one entry of a log describes; what is damaged there is added to the table's damage."""
    for each in [] if told is None else told if isinstance(told, list) else [told]:
        try:
            yield Commit.of(each)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            damage.append(f"{where} is damaged: {error!r}")


def check_commits(about: Sequence[Commit], state: ShardState, writer: str) -> None:
    """See that commits follow each other in the log, up to the shard's position."""
    state.commits = len(about)
    state.records = sum(commit.rows for commit in about)
    end: Position | None = None
    for index, commit in enumerate(about):
        if commit.after != end and (index > 0 or state.all_commits):
            state.gaps.append((commit.after, commit.upto))
        end = commit.upto
    if state.damage:  # of the position, which is reported already
        return
    if about and end != state.position:
        told = "gone" if state.position is None else place(state.position)
        state.damage.append(f"the position is {told}, and the last commit ends elsewhere")
    elif state.position is None:
        state.damage.append(f"it has no position: no {writer} has written its rows; {NO_POSITIONS}")


def check_files(table: FilesByShard, shard: Shard, state: ShardState, *, deletes: str | None) -> None:
    """Look through a shard's files.

    Args:
        table: has them.
        shard: its name.
        state: gets what is found.
        deletes: by what rows of them may be deleted that is not read here; None for nothing.
    """
    there = []
    for name in sorted(table.of.get(shard, [])):
        if table.is_there(name):
            there.append(name)
        else:
            state.missing.append(name)
    if deletes is not None:
        state.unkeyed[f"rows of this table may be deleted by {deletes}, which are not read here"] = len(there)
        return
    folders: dict[str, list[str]] = {}
    alone, rewritten = [], []
    for name in there:
        folder = os.path.dirname(name)  # noqa: PTH120 - there can be very many
        if os.path.basename(folder).startswith("after-"):  # noqa: PTH119
            folders.setdefault(folder, []).append(name)
        elif table.is_rewritten(name):
            rewritten.append(name)
        else:
            alone.append([name])
    units = [*enumerate([*folders.values(), *alone]), *((_REWRITTEN, [name]) for name in rewritten)]
    check_rows(table.opened, units, state)
