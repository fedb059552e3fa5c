"""Inspects a table: the records of each shard, and doubles. It reads the table alone and changes nothing.

    commits of a shard     a chain of runs (after, upto], from the start to the position of the next writer
    files of a commit      published (readers see them), staged (the next writer publishes them), or missing
    rows of those files    their keys (stream, shard, sequence number, sub-sequence number) are there once

Keys are compared without holding all of them. The rows of one commit are a unit; so is a file that no commit names.
Units lie side by side in a sound table, so each is looked through by itself; only units whose positions overlap are
read a second time, together. A table that is being written to can be inspected.

A Delta table forgets old commits when its log is cleaned up, and anybody may rewrite its files (OPTIMIZE). So there the
chain is that of the log that is left, and files outside of a commit's folder are no fault.

Rules: no Spark here, and pyarrow and deltalake only when a table is inspected.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from fastkcl import Position
from fastkcl.spark.sinks import storage
from fastkcl.spark.sinks.base import Shard, SinkError, parse_json, place
from fastkcl.spark.sinks.delta_log import (
    ASIDE,
    checkpoint_damage,
    entry,
    log_damage,
    log_folder,
    newest_checkpoint,
    no_files,
)
from fastkcl.spark.sinks.folders import parse_position, shard_folders
from fastkcl.spark.sinks.given_up import given_up

if TYPE_CHECKING:
    import pyarrow as pa

    from fastkcl.spark.sinks.parquet import Commit

__all__ = ["Doubles", "ShardState", "TableState", "inspect_table", "span"]

_NUMBER, _SUB = "sequenceNumber", "subSequenceNumber"
_BATCH_ROWS = 65_536
_EXAMPLES = 3
_COMMITS, _DELTA_LOG = "_commits", "_delta_log"
_NO_POSITIONS = (
    "a TableSink keeps no position and may store a record twice: look for doubles by stream, shard, sequenceNumber and"
    " subSequenceNumber"
)
_REWRITTEN = -1  # in place of a commit
_NO_SUB = -1  # legacy: no sub-sequence number


@dataclass(frozen=True, slots=True)
class Doubles:
    """Rows whose key is there already."""

    rows: int
    examples: tuple[str, ...]
    """Some of their positions, ``sequence number/sub-sequence number``."""


@dataclass(slots=True)
class ShardState:
    """A shard's part of a table."""

    stream: str
    shard_id: str
    commits: int = 0
    """Of a Delta table those in the log that is left."""
    all_commits: bool = True
    """Whether there cannot have been older ones."""
    records: int = 0
    """Committed, before any transformation."""
    rows: int = 0
    """That readers see."""
    first: Position | None = None
    """Of the rows that readers see; None if there are none, or none with a key."""
    last: Position | None = None
    position: Position | None = None
    """The next writer continues from here; None for the shard's start."""
    gaps: list[tuple[Position | None, Position]] = field(default_factory=list)
    """(after, upto) of commits that continue from where no other ends."""
    unpublished: list[tuple[Position | None, Position]] = field(default_factory=list)
    """(after, upto) of commits with files that readers do not see yet: the last one only, in a sound table."""
    missing: list[str] = field(default_factory=list)
    """Committed files that are nowhere, from the table's folder on."""
    unknown: list[str] = field(default_factory=list)
    """Files that readers see in the shard's folder, and that no commit names."""
    doubles: Doubles | None = None
    """None if no row could be looked at."""
    unkeyed: dict[str, int] = field(default_factory=dict)
    """Why doubles could not be looked for, and in how many files."""
    damage: list[str] = field(default_factory=list)
    """Other faults."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong. A commit that is yet to be published is not."""
        doubled = self.doubles is not None and self.doubles.rows > 0
        return not (self.gaps or self.missing or self.unknown or self.damage or doubled)


@dataclass(frozen=True, slots=True)
class TableState:
    """A table."""

    path: str
    sink: str
    """The class that writes such tables."""
    shards: tuple[ShardState, ...]
    unknown: tuple[str, ...]
    """Files that readers see and that belong to no shard with commits."""
    damage: tuple[str, ...] = ()
    """Faults of the table as a whole: a Delta table's entries and checkpoints, the id of a ParquetSink's table."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.unknown or self.damage) and all(shard.ok for shard in self.shards)


def inspect_table(path: str | os.PathLike[str]) -> TableState:
    """Look into a table.

    Raises:
        SinkError: `path` is no table of a sink.
        OSError: it cannot be read.
        ModuleNotFoundError: pyarrow is missing.
    """
    import pyarrow.parquet  # noqa: F401 - before any work

    root = Path(path)
    if storage.status(root / _COMMITS) is not None:
        return _inspect_parquet(root)
    if storage.status(root / _DELTA_LOG) is not None:
        return _inspect_delta(root)
    raise SinkError(
        f"{root}: no table of a sink; it has neither a folder {_COMMITS} (ParquetSink) nor {_DELTA_LOG} (DeltaSink);"
        f" {_NO_POSITIONS}"
    )


# Tables of a ParquetSink.


def _inspect_parquet(root: Path) -> TableState:
    from fastkcl.spark.sinks.folders import data_folder
    from fastkcl.spark.sinks.parquet import read_id, shards

    damage = list(_linked_folders(root))
    try:
        read_id(root)
    except SinkError as error:
        damage.append(str(error))
    # Before the commits, so that nothing is seen here whose commit is not seen below.
    visible: dict[str, set[str]] = {}
    for name in _visible_files(root):
        visible.setdefault("/".join(name.split("/")[:2]), set()).add(name)
    states = tuple(
        _inspect_parquet_shard(root, shard, folders, visible.pop(data_folder(folders), set()))
        for shard, folders in shards(root).items()
    )
    return TableState(str(root), "ParquetSink", states, tuple(sorted(set().union(*visible.values()))), tuple(damage))


def _visible_files(root: Path) -> Iterator[str]:
    """The files that Spark and Arrow read, from the table's folder on."""

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(root, onerror=fail):
        folders[:] = [name for name in folders if name[0] not in "_."]
        yield from (str(Path(folder, name).relative_to(root)) for name in files if name[0] not in "_.")


def _linked_folders(root: Path) -> Iterator[str]:
    """The faults of links to folders, which Spark and Arrow follow, and `_visible_files` does not."""
    for folder, folders, _ in os.walk(root):
        folders[:] = [name for name in folders if name[0] not in "_."]
        for path in (Path(folder, name) for name in folders):
            if path.is_symlink():
                yield f"{path}: leads elsewhere, which readers follow and this does not: make it a folder"


def _inspect_parquet_shard(root: Path, shard: Shard, folders: str, visible: set[str]) -> ShardState:
    from fastkcl.spark.sinks.parquet import check_staging
    from fastkcl.spark.sinks.parquet import commits as commits_of

    state = ShardState(shard.stream, shard.shard_id)
    _check_beside(root, folders, state)
    try:
        check_staging(root, folders)
    except SinkError as error:
        state.damage.append(str(error))
    try:
        commits = commits_of(root, folders)
    except SinkError as error:
        state.damage.append(str(error))
        return state
    state.commits = len(commits)
    state.records = sum(commit.rows for commit in commits)
    state.position = commits[-1].upto if commits else None
    _check_chain([(commit.after, commit.upto) for commit in commits], state)
    units: list[list[str]] = []
    named: set[str] = set()
    for commit in commits:
        published = commit.published(folders)
        units.append([name for name in _check_files(root, commit, published, state) if name not in named])
        named.update(published)
    for after, upto in state.unpublished:
        if upto != state.position:  # the writer of the next commit had published this one
            state.damage.append(f"the commit {span(after, upto)} is not published, nor the last: no writer will do it")
    state.unknown = sorted(visible - named)
    units += [[name] for name in state.unknown]
    _check_rows(root, list(enumerate(units)), state)
    return state


def _check_beside(root: Path, folders: str, state: ShardState) -> None:
    """See that the note of records given up can be read, which the next writer may need."""
    try:
        given_up(root, folders)
    except (SinkError, OSError) as error:
        state.damage.append(str(error))


def _check_chain(commits: Sequence[tuple[Position | None, Position]], state: ShardState) -> None:
    ends = {upto for _, upto in commits}
    befores: set[Position | None] = set()
    for after, upto in commits:
        # Commits that pass all three are one chain from the start.
        if after is not None and after not in ends:
            state.gaps.append((after, upto))
        if after is not None and upto <= after:
            state.damage.append(f"the commit {span(after, upto)} ends before it begins")
        if after in befores:
            state.damage.append(f"the commit {span(after, upto)} is not the only one that begins there")
        befores.add(after)


def _check_files(root: Path, commit: Commit, published: Sequence[str], state: ShardState) -> list[str]:
    """The files of a commit that readers see."""
    seen, waiting = [], False
    for name, target in zip(commit.files, published, strict=True):
        try:
            if storage.file_status(root / target) is not None:
                seen.append(target)
            elif storage.file_status(root / commit.staging / name) is not None:
                waiting = True
            elif storage.file_status(root / target) is not None:  # published since the first look
                seen.append(target)
            else:
                state.missing.append(target)
        except SinkError as error:
            state.damage.append(str(error))
    if waiting:
        state.unpublished.append((commit.after, commit.upto))
    return seen


# Tables of a DeltaSink.


def _inspect_delta(root: Path) -> TableState:
    log = log_folder(root)
    damage = log_damage(log)
    checkpoints = checkpoint_damage(log)
    damage += [f"{path}: a damaged checkpoint: {why}" for path, why in checkpoints]
    if (aside := root / ASIDE).is_symlink():
        damage.append(f"{aside}: leads elsewhere, so that no checkpoint is made: make it a folder")
    with tempfile.TemporaryDirectory(prefix="fastkcl-") as folder:
        shown = root
        without = {path.name for path in (*(path for path, _ in checkpoints), *no_files(log))}
        if without:  # as the next writer opens it
            shown = Path(folder)
            log_folder(shown).mkdir()
            for name in set(storage.names(log)) - without:
                (log_folder(shown) / name).symlink_to(log.absolute() / name)
        return _inspect_delta_log(root, shown, damage)


def _inspect_delta_log(root: Path, shown: Path, damage: list[str]) -> TableState:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    from fastkcl.spark.sinks.delta import position

    try:
        table = DeltaTable(shown)
        if table.metadata().partition_columns != ["stream", "shard"]:
            raise SinkError(
                f"{root}: a Delta table, but none of a DeltaSink: it is not partitioned by stream and shard;"
                f" {_NO_POSITIONS}"
            )
        actions = pa.table(table.get_add_actions(flatten=True))
        deletes = "deletionVectors" in (table.protocol().reader_features or ())
    except DeltaError as error:
        if damage:
            return TableState(str(root), "DeltaSink", (), (), tuple(damage))
        raise SinkError(f"{root}: {str(error).partition(chr(10))[0]}") from error
    files: dict[Shard, list[str]] = {}
    unknown = []
    names = (actions[name].to_pylist() for name in ("path", "partition.stream", "partition.shard"))
    for name, stream, shard_id in zip(*names, strict=True):
        if stream is None or shard_id is None:
            unknown.append(unquote(name))
        else:
            files.setdefault(Shard(stream, shard_id), []).append(unquote(name))
    about: dict[Shard, list[_DeltaCommit]] = {shard: [] for shard in files}
    log = _delta_log(root, table.version(), damage)
    for version, info in log.items():
        if (told := info.get("fastkcl")) is not None:
            try:
                commit = _DeltaCommit.of(told)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                damage.append(f"{entry(log_folder(root), version)}: its part of a DeltaSink is damaged: {error!r}")
            else:
                about.setdefault(commit.shard, []).append(commit)
    states = []
    for shard in sorted(about, key=lambda shard: (shard.stream, shard.shard_id)):
        state = ShardState(shard.stream, shard.shard_id, all_commits=0 in log, position=position(table, shard))
        _check_beside(root, shard_folders(shard), state)
        _check_delta_commits(about[shard], state)
        _check_delta_files(root, files.get(shard, []), state, deletes=deletes)
        states.append(state)
    return TableState(str(root), "DeltaSink", tuple(states), tuple(sorted(unknown)), tuple(damage))


class _DeltaCommit(NamedTuple):
    """A DeltaSink's description of a commit in the log."""

    shard: Shard
    after: Position | None
    upto: Position
    rows: int

    @classmethod
    def of(cls, told: dict[str, Any]) -> _DeltaCommit:
        stream, shard_id, after, upto = texts = [told[name] for name in ("stream", "shard", "after", "upto")]
        if not all(isinstance(text, str) for text in texts) or type(told["rows"]) is not int:
            raise TypeError(told)
        end = parse_position(upto)
        if end is None:
            raise ValueError("it ends at the start")
        return cls(Shard(stream, shard_id), parse_position(after), end, told["rows"])


def _delta_log(root: Path, last: int, damage: list[str]) -> dict[int, dict[str, Any]]:
    """The commits' descriptions, by version, as far as the log is left.

    A clean-up that a power cut has interrupted leaves entries before others that are gone: these are not the log any
    more. deltalake's `history()` counts versions down from the handle's, and begins with commits that are newer than
    that.
    """
    log: dict[int, dict[str, Any]] = {}
    for path in sorted((root / _DELTA_LOG).glob("*.json")):
        if not path.stem.isdecimal() or int(path.stem) > last:
            continue
        try:
            text = storage.read(path)
            if text is None:  # a clean-up
                continue
            lines = [parse_json(line) for line in text.splitlines() if line]
            log[int(path.stem)] = {name: value for line in lines for name, value in line.get("commitInfo", {}).items()}
        except (SinkError, ValueError, AttributeError) as error:
            if not any(each.startswith(f"{path}:") for each in damage):
                raise SinkError(f"{path}: no commit of a Delta table: {error}") from error
    folder = log_folder(root)
    checkpoint, _ = newest_checkpoint(folder, storage.names(folder))
    first = max((version for version in log if version - 1 not in log and version - 1 <= checkpoint), default=0)
    return {version: info for version, info in log.items() if version >= first}


def _check_delta_commits(about: Sequence[_DeltaCommit], state: ShardState) -> None:
    """Commits as they follow each other in the log."""
    state.commits = len(about)
    state.records = sum(commit.rows for commit in about)
    end: Position | None = None
    for index, commit in enumerate(about):
        if commit.after != end and (index > 0 or state.all_commits):
            state.gaps.append((commit.after, commit.upto))
        end = commit.upto
    if about and end != state.position:
        told = "gone" if state.position is None else place(state.position)
        state.damage.append(f"the position is {told}, and the last commit ends elsewhere")
    elif state.position is None:
        state.damage.append(f"it has no position: no DeltaSink has written its rows; {_NO_POSITIONS}")


def _check_delta_files(root: Path, files: Sequence[str], state: ShardState, *, deletes: bool) -> None:
    units: dict[str, list[str]] = {}
    there = []
    for name in sorted(files):
        if storage.status(root / name) is not None:
            there.append(name)
        else:
            state.missing.append(name)
    if deletes:
        state.unkeyed["rows of this table may be deleted by vectors, which are not read here"] = len(there)
        return
    rewritten = []
    for name in there:
        folder = os.path.dirname(name)  # noqa: PTH120 - there can be very many
        if os.path.basename(folder).startswith("after-"):  # noqa: PTH119
            units.setdefault(folder, []).append(name)
        else:
            rewritten.append(name)
    _check_rows(root, [*enumerate(units.values()), *((_REWRITTEN, [name]) for name in rewritten)], state)


# For people.


def span(after: Position | None, upto: Position) -> str:
    """A commit as people read it."""
    return f"{'from the start' if after is None else f'after {place(after)}'} up to {place(upto)}"


# The rows.


class _Key(NamedTuple):
    """Orders as positions do: decimal numbers without leading zeros by their length, then as text."""

    digits: int
    number: str
    sub: int

    @property
    def position(self) -> Position:
        return Position(self.number, None if self.sub == _NO_SUB else self.sub)


class _Unit(NamedTuple):
    commit: int
    files: list[str]
    first: _Key
    last: _Key
    doubles: Doubles


def _check_rows(root: Path, units: Sequence[tuple[int, list[str]]], state: ShardState) -> None:
    """Look through units: each with a number of its commit, which only files that were rewritten have in common."""
    found = []
    for commit, files in units:
        keys = _read_keys(root, files, state)
        if keys is not None and len(keys):
            first, last = _ends(keys)
            found.append(_Unit(commit, files, first, last, _doubles([(commit, keys)])))
    if not found:
        state.doubles = None if state.unkeyed or state.damage else Doubles(0, ())
        return
    found.sort(key=lambda unit: unit.first)
    doubles = []
    for cluster in _overlapping(found):
        if len(cluster) == 1:
            doubles.append(cluster[0].doubles)
        else:
            # A shard that could not be read is reported already.
            again = ShardState(state.stream, state.shard_id)
            tables = [(unit.commit, _read_keys(root, unit.files, again)) for unit in cluster]
            doubles.append(_doubles([(commit, keys) for commit, keys in tables if keys is not None]))
    examples = [place for each in doubles for place in each.examples]
    state.doubles = Doubles(sum(each.rows for each in doubles), tuple(examples[:_EXAMPLES]))
    with suppress(ValueError):  # a transformation has made other keys: they are there once or not, and no positions
        state.first, state.last = found[0].first.position, max(unit.last for unit in found).position


def _overlapping(units: Sequence[_Unit]) -> Iterator[list[_Unit]]:
    """Groups of units, sorted by their first keys, that have positions in common."""
    cluster: list[_Unit] = []
    for unit in units:
        if cluster and unit.first > max(each.last for each in cluster):
            yield cluster
            cluster = []
        cluster.append(unit)
    yield cluster


def _read_keys(root: Path, files: Sequence[str], state: ShardState) -> pa.Table | None:
    """The keys of a unit; None if it has none. Rows and troubles are put into the state."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    schema = pa.schema([(_NUMBER, pa.string()), (_SUB, pa.int64())])
    batches: list[pa.RecordBatch] = []
    for name in files:
        try:
            storage.file_status(root / name)  # to open a FIFO would never end
            with pq.ParquetFile(root / name) as file:
                state.rows += file.metadata.num_rows
                why = _unkeyed(file.schema_arrow)
                if why is not None:
                    state.unkeyed[why] = state.unkeyed.get(why, 0) + 1
                    continue
                nulls = 0
                for batch in file.iter_batches(_BATCH_ROWS, columns=[_NUMBER, _SUB]):
                    numbers = batch.column(_NUMBER).cast(pa.string())
                    subs = pc.fill_null(batch.column(_SUB).cast(pa.int64()), _NO_SUB)
                    part = pa.record_batch([numbers, subs], schema=schema)
                    part.validate(full=True)
                    nulls += numbers.null_count
                    batches.append(part.filter(pc.is_valid(numbers)) if numbers.null_count else part)
                if nulls:
                    why = f"rows without a {_NUMBER}"
                    state.unkeyed[why] = state.unkeyed.get(why, 0) + 1
        except (pa.ArrowException, ValueError, OSError, SinkError) as error:
            state.damage.append(f"{name}: cannot be read: {str(error).partition(chr(10))[0]}")
    return pa.Table.from_batches(batches, schema) if batches else None


def _unkeyed(schema: pa.Schema) -> str | None:
    """Why a file has no keys."""
    import pyarrow as pa

    for name, wanted in ((_NUMBER, (pa.types.is_string, pa.types.is_large_string)), (_SUB, (pa.types.is_integer,))):
        if name not in schema.names:
            return f"no column {name}"
        kind = schema.field(name).type
        if not any(is_wanted(kind) for is_wanted in wanted):
            return f"{name} is {kind}"
    return None


def _ends(keys: pa.Table) -> tuple[_Key, _Key]:
    import pyarrow.compute as pc

    lengths = pc.binary_length(keys[_NUMBER])
    ends = []
    for name in ("min", "max"):
        digits = pc.min_max(lengths)[name]
        rows = keys.filter(pc.equal(lengths, digits))
        number = pc.min_max(rows[_NUMBER])[name]
        sub = pc.min_max(rows.filter(pc.equal(rows[_NUMBER], number))[_SUB])[name]
        ends.append(_Key(digits.as_py(), number.as_py(), sub.as_py()))
    return ends[0], ends[1]


def _doubles(units: Sequence[tuple[int, pa.Table]]) -> Doubles:
    """Rows too many in units together.

    Legacy records of an aggregate have one key and are no doubles: only what other commits have of it, too, is.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    marked = [
        keys.append_column("commit", pa.repeat(pa.scalar(commit, pa.int64()), len(keys))) for commit, keys in units
    ]
    keys = pa.concat_tables(marked)
    modern = pc.not_equal(keys[_SUB], _NO_SUB)
    counted = keys.filter(modern).group_by([_NUMBER, _SUB]).aggregate([([], "count_all")])
    counted = counted.filter(pc.greater(counted["count_all"], 1))
    rows = (pc.sum(counted["count_all"]).as_py() or 0) - len(counted)
    examples = [f"{row[_NUMBER]}/{row[_SUB]}" for row in counted.slice(0, _EXAMPLES).to_pylist()]
    runs = keys.filter(pc.invert(modern)).group_by([_NUMBER, "commit"]).aggregate([([], "count_all")])
    totals = runs.group_by(_NUMBER).aggregate([("count_all", "sum"), ("count_all", "max")])
    totals = totals.filter(pc.greater(totals["count_all_sum"], totals["count_all_max"]))
    rows += pc.sum(pc.subtract(totals["count_all_sum"], totals["count_all_max"])).as_py() or 0
    examples += [row[_NUMBER] for row in totals.slice(0, _EXAMPLES).to_pylist()]
    return Doubles(rows, tuple(examples[:_EXAMPLES]))
