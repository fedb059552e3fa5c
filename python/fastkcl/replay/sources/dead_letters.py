"""Dead letters, put together again shard by shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from fastkcl._core import Position
from fastkcl.replay.columns import StoredRecords
from fastkcl.replay.sources.base import Shard, Source, SourceError
from fastkcl.replay.sources.lines import reading, regular_file
from fastkcl.replay.sources.rows import Row, columns_of, table_rows

_LETTERS = "*.arrow"


@dataclass(frozen=True, slots=True)
class _Letter:
    path: Path
    stream: str | None
    shard_id: str
    rows: tuple[Row, ...]
    most_of_a_batch: int


@dataclass(frozen=True, slots=True)
class _DeadLetters:
    paths: tuple[Path, ...]
    stream: str | None

    @property
    def description(self) -> str:
        return f"{len(self.paths)} dead letter{'s' * (len(self.paths) > 1)}"

    def shards(self) -> Sequence[Shard]:
        shards: dict[tuple[str, str], list[_Letter]] = {}
        for path in self.paths:
            letter = _read_letter(path)
            stream = self._stream_of(letter)
            if letter.rows:
                shards.setdefault((stream, letter.shard_id), []).append(letter)
        if not shards:
            raise SourceError(f"{self.paths[0].parent}: no record in its dead letters")
        several = len({stream for stream, _ in shards}) > 1
        return [
            _letter_shard(stream, shard_id, f"{stream} {shard_id}" if several else shard_id, letters)
            for (stream, shard_id), letters in sorted(shards.items())
        ]

    def _stream_of(self, letter: _Letter) -> str:
        if letter.stream is None:
            if self.stream is None:
                raise SourceError(f"{letter.path}: it does not name its stream; give the stream (--stream)")
            return self.stream
        if self.stream not in (None, letter.stream):
            raise SourceError(
                f"{letter.path}: it is of the stream {letter.stream!r}, not {self.stream!r}; name a stream only"
                " for letters without one"
            )
        return letter.stream


def from_dead_letters(path: str | Path, *, stream: str | None = None) -> Source:
    """A source of dead letters, as `fastkcl.run(..., dead_letter=)` has written them.

    Each shard has the records of all its letters in the order of their positions, however often they failed: one
    that is in several letters comes once. In the legacy dialect nothing distinguishes the records of an aggregate; so
    of equal runs of a sequence number one is left out only if they cannot be two ends of one aggregate. Letters of
    several streams make one shard for each stream and shard, and each child gets the name of its own stream.

    Args:
        path: the folder, whose ``*.arrow`` are taken, or one letter.
        stream: of letters that do not name it.

    Raises:
        SourceError: there is no letter, or one that is no regular file.
    """
    place = Path(path)
    if place.is_dir():
        found = sorted(file for file in place.glob(_LETTERS) if not file.name.startswith("."))
        if not found:
            raise SourceError(f"{place}: no dead letters ({_LETTERS}) in this folder")
        return _DeadLetters(tuple(map(regular_file, found)), stream)
    return _DeadLetters((regular_file(place),), stream)


def _read_letter(path: Path) -> _Letter:
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise SourceError(f"{path}: dead letters need pyarrow: pip install 'fastkcl[arrow]'") from None
    with reading(path):
        try:
            # Arrow opens the file itself: it reads in a thread, and one that is left with an object of Python's while
            # the interpreter ends aborts the process.
            with path.open("rb"), pa.ipc.open_file(path) as reader:
                batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
                table = pa.Table.from_batches(batches, reader.schema)
                table.validate(full=True)
        except (pa.ArrowException, ValueError) as error:
            raise SourceError(f"{path}: no dead letter: {str(error).partition(chr(10))[0]}") from None
        metadata = table.schema.metadata or {}
        shard_id = metadata.get(b"fastkcl.shard_id", b"").decode(errors="replace")
        if not shard_id:
            raise SourceError(f"{path}: no dead letter of fastkcl: its metadata name no shard")
        stream = metadata.get(b"fastkcl.stream", b"").decode(errors="replace") or None
        if "\0" in shard_id or "\0" in (stream or ""):
            raise SourceError(f"{path}: {stream!r}, {shard_id!r} cannot be put into a child's environment")
        rows = tuple(table_rows(table, path))
    for index, row in enumerate(rows):
        if row.sequence_number is None:
            raise SourceError(f"{path}: record {index}: sequenceNumber is null")
    return _Letter(path, stream, shard_id, rows, max((batch.num_rows for batch in batches), default=0))


def _letter_shard(stream: str, shard_id: str, label: str, letters: Sequence[_Letter]) -> Shard:
    without = [letter for letter in letters for row in letter.rows if row.sub_sequence_number is None]
    legacy = bool(without)
    if legacy and len(without) < sum(len(letter.rows) for letter in letters):
        raise SourceError(
            f"{without[0].path}: it has no sub-sequence numbers (KCL 1.x), and other records of {label} have them;"
            " put such letters into a separate folder"
        )
    rows = _aggregates_once(letters) if legacy else _records_once(letters)
    numbers = [row.sequence_number or "" for row in rows]
    return Shard(
        shard_id,
        label,
        StoredRecords(columns_of(rows, numbers)),
        batch_records=max(letter.most_of_a_batch for letter in letters),
        dialect="legacy" if legacy else None,
        stream=stream,
    )


def _records_once(letters: Sequence[_Letter]) -> list[Row]:
    rows = {
        Position(row.sequence_number or "", row.sub_sequence_number or 0): row
        for letter in letters
        for row in letter.rows
    }
    return [rows[position] for position in sorted(rows)]


@dataclass(frozen=True, slots=True)
class _Run:
    """Records of one sequence number in one letter, and whether they stand at an end of it."""

    rows: tuple[Row, ...]
    first: bool
    last: bool

    def repeats(self, other: _Run) -> bool:
        """Whether it is the same again. A batch can end in an aggregate, whose rest then begins the next letter."""
        halves = (self.first and other.last) or (self.last and other.first)
        return self.rows == other.rows and not halves


def _aggregates_once(letters: Sequence[_Letter]) -> list[Row]:
    taken: dict[int, list[_Run]] = {}
    for letter in letters:
        runs = [
            (number, tuple(rows)) for number, rows in groupby(letter.rows, lambda row: int(row.sequence_number or 0))
        ]
        for index, (number, rows) in enumerate(runs):
            run = _Run(rows, index == 0, index == len(runs) - 1)
            others = taken.setdefault(number, [])
            if not any(run.repeats(other) for other in others):
                others.append(run)
    return [row for number in sorted(taken) for run in taken[number] for row in run.rows]
