"""Inspects a table: the records of each shard, and doubles. It reads only the table, and changes nothing.

    commits of a shard     a chain of runs (after, upto], from the start to the position of the next writer
    files of a commit      published (readers see them), staged (the next writer publishes them), or missing
    rows of those files    their keys (stream, shard, sequence number, sub-sequence number) are there once

Keys are compared without holding all of them in memory. The rows of one commit are a unit; so is a file that no commit
names. In a sound table the units do not overlap, so each is checked by itself. Only units whose positions overlap are
read a second time, together. A table may be inspected while it is being written.

A Delta table loses old commits when its log is cleaned up, and anybody may rewrite its files (OPTIMIZE). So for these
tables the chain covers only the remaining log, and files outside a commit's folder are not a fault.

Rules: no Spark here, and pyarrow and deltalake only when a table is inspected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeAlias

from fastkcl import Position
from fastkcl.tables import storage
from fastkcl.tables.base import SinkError, parse_json, place
from fastkcl.tables.given_up import GivenUp
from fastkcl.tables.parquet_file import FOOTER_KEY

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "NO_POSITIONS",
    "Doubles",
    "ShardState",
    "TableState",
    "check_rows",
    "judge_note",
    "note_of",
    "rows_after",
    "span",
]

NO_POSITIONS = (
    "a TableSink keeps no position and may store a record twice: look for doubles by stream, shard, sequenceNumber and"
    " subSequenceNumber"
)
"""Said of a table that no sink with positions has written."""
_NUMBER, _SUB = "sequenceNumber", "subSequenceNumber"
_BATCH_ROWS = 65_536
_EXAMPLES = 3
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


def note_of(read: Callable[[], GivenUp | None], state: ShardState) -> GivenUp | None:
    """The note of records given up, which the next writer may need; None also if it cannot be read."""
    try:
        return read()
    except (SinkError, OSError) as error:
        state.damage.append(str(error))
        return None


def judge_note(found: GivenUp | None, state: ShardState) -> None:
    """Name the loss that a note shows."""
    if found is not None and (fault := found.fault(state.position)):
        state.damage.append(fault)


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


Opens: TypeAlias = "Callable[[str], BinaryIO]"
"""Opens a file of a table by its name, to read parts of it."""


def check_rows(root: Path | Opens, units: Sequence[tuple[int, list[str]]], state: ShardState) -> None:
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


def rows_after(state: ShardState) -> str | None:
    """The fault of a position that lies before a row of a commit, None if it does not; after `check_rows`.

    Of files that no commit names, nothing is known: they are a fault of their own.
    """
    if state.position is None or state.last is None or state.last <= state.position or state.unknown:
        return None
    return f"it ends at {place(state.position)}, and the table has a row of {place(state.last)}"


def _overlapping(units: Sequence[_Unit]) -> Iterator[list[_Unit]]:
    """Groups of units, sorted by their first keys, that have positions in common."""
    cluster: list[_Unit] = []
    for unit in units:
        if cluster and unit.first > max(each.last for each in cluster):
            yield cluster
            cluster = []
        cluster.append(unit)
    yield cluster


def _opened(root: Path | Opens, name: str) -> AbstractContextManager[Path | BinaryIO]:
    if not isinstance(root, Path):
        return root(name)
    storage.file_status(root / name)  # to open a FIFO would never end
    return nullcontext(root / name)


def _read_keys(root: Path | Opens, files: Sequence[str], state: ShardState) -> pa.Table | None:
    """The keys of a unit; None if it has none. Rows and troubles are put into the state."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    schema = pa.schema([(_NUMBER, pa.string()), (_SUB, pa.int64())])
    batches: list[pa.RecordBatch] = []
    for name in files:
        try:
            with _opened(root, name) as found, pq.ParquetFile(found) as file:
                state.rows += file.metadata.num_rows
                if (other := _another_file(file.metadata.metadata or {}, state)) is not None:
                    state.damage.append(f"{name}: {other}")
                    continue
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


def _another_file(footer: Mapping[bytes, bytes], state: ShardState) -> str | None:
    """Whose file is in the place of a shard's, by its own footer; None if that is the shard."""
    try:
        told = parse_json(footer[FOOTER_KEY])
        stream, shard_id = str(told["stream"]), str(told["shard"])
    except (KeyError, ValueError, TypeError):
        return None
    if (stream, shard_id) == (state.stream, state.shard_id):
        return None
    return f"a file of {stream[:200]}, {shard_id[:200]} is in its place"


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
