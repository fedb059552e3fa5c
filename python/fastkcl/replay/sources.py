r"""Where the records of a replay come from: a profile, captured lines of a daemon, a file of records, dead letters.

A `Source` opens to shards. Each shard has records and a script: the requests that a daemon makes, in order.

- `generate`: a profile's payloads; the script is the batches, one after the other.
- `from_records`: JSON lines or Parquet in the canonical schema; the same script.
- `from_dead_letters`: what a child could not write (``dead_letter=``), put together again shard by shard.
- `from_captures`: what a child once read on standard input, line by line (``.in.jsonl``, ``.gz`` too). The
  file is the script. Its processRecords lines are written byte for byte, its ``leaseLost``, ``shardEnded``,
  ``shutdownRequested`` and ``shutdown`` lines ask for the same again, and its end is the end of input.

The *replies* to checkpoints in a capture answered another child, which asked in other places. So they are not
played back: each reply is worked out anew by the daemon's rules from what this child asks. One thing is taken
over, as it depended on the world and not on the question: where the captured child met an error of the lease
table or of a lost lease (ThrottlingException, ShutdownException, ...; not IllegalArgumentException and
InvalidStateException), the checkpoint of the same rank within the same request meets it again.

Rules: what a file says wrong is reported with its name and line number and what to do; nothing is guessed.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from fastkcl import _core
from fastkcl.replay.child_lines import ReplayDialect
from fastkcl.replay.columns import Columns, GeneratedRecords, RecordSequence, StoredRecords
from fastkcl.replay.options import COUNT
from fastkcl.replay.positions import TRIM_HORIZON, Place, is_decimal, is_sentinel, sequence_numbers
from fastkcl.replay.profiles import EPOCH_MILLIS, PROFILES

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "READ_ERRORS",
    "Ask",
    "Deliver",
    "Shard",
    "Source",
    "SourceError",
    "bounded_lines",
    "from_captures",
    "from_dead_letters",
    "from_records",
    "generate",
    "open_lines",
]

READ_ERRORS = (OSError, EOFError, zlib.error)
"""What reading `open_lines` raises for a file that cannot be read, or unpacked."""
_LONGEST_LINE = _core.DEFAULT_MAX_LINE_BYTES
"""The bound of a child. A few kilobytes of ``.gz`` can be a line of any length."""


class SourceError(ValueError):
    """The input of a replay cannot be used; the message says where it is wrong."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """A processRecords request with records `start` up to `stop` of the shard.

    Attributes:
        line: the captured bytes, LF included; None to encode it.
        millis_behind_latest: None to work it out.
        errors: errors for the checkpoints asked for in it, by rank; None where there is none.
    """

    start: int
    stop: int
    line: bytes | None = None
    millis_behind_latest: int | None = None
    errors: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """A request without records. `errors` as in `Deliver`."""

    request: Literal["leaseLost", "shardEnded", "shutdownRequested"]
    errors: tuple[str | None, ...] = ()


Step: TypeAlias = Deliver | Ask


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard to be played.

    Attributes:
        shard_id: e.g. ``shardId-000000000000``.
        label: what reports call it: the shard id, or the captured file's name.
        records: all of its records.
        steps: the script; None for "all records in batches, and an end as the options say".
        batch_records: records of one batch where the script is None.
        start: where the lease stands at first.
        dialect: of a captured script, None if any will do.
        stream: whose shard it is; None for what the options say.
    """

    shard_id: str
    label: str
    records: RecordSequence
    steps: tuple[Step, ...] | None = None
    batch_records: int = 1000
    start: Place = TRIM_HORIZON
    dialect: ReplayDialect | None = None
    stream: str | None = None


class Source(Protocol):
    """Something that has shards to play."""

    @property
    def description(self) -> str:
        """For people, e.g. ``profile clickstream``."""
        ...

    def shards(self) -> Sequence[Shard]:
        """Open it.

        Raises:
            SourceError: it cannot be used.
        """
        ...


def shard_name(number: int) -> str:
    """Amazon's name of shard `number`."""
    return f"shardId-{number:012d}"


# A profile.


@dataclass(frozen=True, slots=True)
class _Generated:
    profile: str
    shard_count: int
    records: int
    batch_records: int
    seed: int
    aggregate: int

    @property
    def description(self) -> str:
        together = f", {self.aggregate} of one sequence number" if self.aggregate > 1 else ""
        return f"profile {self.profile}, seed {self.seed}{together}"

    def shards(self) -> Sequence[Shard]:
        return [
            Shard(
                shard_name(number),
                shard_name(number),
                GeneratedRecords(
                    PROFILES[self.profile], self.records, shard=number, seed=self.seed, aggregate=self.aggregate
                ),
                batch_records=self.batch_records,
            )
            for number in range(self.shard_count)
        ]


def generate(
    profile: str,
    *,
    shards: int = 1,
    records: int,
    batch_records: int | None = None,
    seed: int = 0,
    aggregate: int = 1,
) -> Source:
    """A source of generated records.

    Args:
        profile: name in `fastkcl.replay.profiles.PROFILES`.
        shards: how many.
        records: records of **each** shard.
        batch_records: records of one batch; the profile's own number without it.
        seed: equal seeds give equal records.
        aggregate: user records of one sequence number, as the daemon delivers a KPL aggregate: sub-sequence numbers
            count them from 0, and the legacy dialect does not show those. Batches are cut without regard to it.

    Raises:
        ValueError: no such profile, or a number out of range.
    """
    if profile not in PROFILES:
        raise ValueError(f"no profile {profile!r}; there are: {', '.join(PROFILES)}")
    if shards < 1 or records < 0 or aggregate < 1 or (batch_records is not None and batch_records < 1):
        raise ValueError("shards, batch_records and aggregate must be at least 1, records at least 0")
    if records > COUNT:
        raise ValueError(f"at most {COUNT:,} records")
    return _Generated(profile, shards, records, batch_records or PROFILES[profile].records, seed, aggregate)


# Captured lines.

_ENVIRONMENT_FREE = frozenset({"IllegalArgumentException", "InvalidStateException"})
"""Errors that followed from what the captured child asked; every other one came from the world around it."""

CAPTURE_PATTERNS = ("*.in.jsonl", "*.in.jsonl.gz")


@dataclass(frozen=True, slots=True)
class _Captures:
    paths: tuple[Path, ...]

    @property
    def description(self) -> str:
        return f"{len(self.paths)} captured file{'s' if len(self.paths) > 1 else ''}"

    def shards(self) -> Sequence[Shard]:
        return [_read_capture(path) for path in self.paths]


def from_captures(paths: str | Path | Iterable[str | Path]) -> Source:
    """A source of captured lines: one file for each child of a real daemon.

    Args:
        paths: files, or folders whose ``*.in.jsonl`` and ``*.in.jsonl.gz`` are taken in the order of their names.

    Raises:
        SourceError: a path does not exist, or a folder holds no capture.
    """
    files: list[Path] = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        place = Path(path)
        if place.is_dir():
            found = sorted(file for pattern in CAPTURE_PATTERNS for file in place.glob(pattern))
            if not found:
                raise SourceError(f"{place}: no captures ({' or '.join(CAPTURE_PATTERNS)}) in this folder")
            files += found
        elif place.is_file():
            files.append(place)
        else:
            raise SourceError(f"{place}: no such file")
    if not files:
        raise SourceError("no captured file was given")
    return _Captures(tuple(files))


def open_lines(path: Path) -> BufferedIOBase:
    """Open a file of lines for reading, unpacking ``.gz``."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def bounded_lines(lines: BufferedIOBase) -> Iterator[bytes]:
    """Lines, cut at LF only, one in memory at a time.

    Raises:
        OSError: a line of more than 256 MiB, or one of `READ_ERRORS`.
    """
    while line := lines.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise OSError(f"a line of more than {_LONGEST_LINE} bytes: no lines of a daemon, or of a child")
        yield line


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except READ_ERRORS as error:
        raise SourceError(f"{path}: {(isinstance(error, OSError) and error.strerror) or error}") from None


class _CaptureReader:
    """Turns captured lines into a script; see the module's documentation for the rules."""

    def __init__(self) -> None:
        self.initialize: _core.Initialize | None = None
        self.steps: list[Step] = []
        self.batches: list[_core.RecordBatch] = []
        self.delivered = 0
        self.old_ends = False
        self._errors: list[str | None] = []

    def read(self, line: bytes) -> None:
        message = _core.decode_line(line)
        if message is None:
            return
        if isinstance(message, _core.Checkpoint):
            if self.initialize is None:
                raise SourceError("a checkpoint reply before initialize: not what a daemon wrote to a child")
            environment = None if message.error in _ENVIRONMENT_FREE else message.error
            self._errors.append(environment)
            return
        self._close_request()
        if isinstance(message, _core.Initialize):
            if self.initialize is not None:
                raise SourceError("a second initialize: a capture is what one child has read; cut the file here")
            self.initialize = message
            return
        if self.initialize is None:
            raise SourceError(f"{message.action} before initialize: a capture starts with initialize")
        self.steps.append(self._step(message, line))

    def _step(self, message: _core.Message, line: bytes) -> Step:
        match message:
            case _core.ProcessRecords():
                start, self.delivered = self.delivered, self.delivered + len(message.batch)
                self.batches.append(message.batch)
                whole = line if line.endswith(b"\n") else line + b"\n"
                return Deliver(start, self.delivered, whole, message.millis_behind_latest)
            case _core.Shutdown():
                self.old_ends = True
                return Ask("shardEnded" if message.reason == "TERMINATE" else "leaseLost")
            case _core.LeaseLost():
                return Ask("leaseLost")
            case _core.ShardEnded():
                return Ask("shardEnded")
            case _core.ShutdownRequested():
                return Ask("shutdownRequested")
            case _:
                raise SourceError(f"unexpected message {message!r}")

    def _close_request(self) -> None:
        """The errors met since the last request belong to it."""
        errors, self._errors = tuple(self._errors), []
        if not self.steps or not any(errors):
            return
        match self.steps[-1]:
            case Deliver(start, stop, line, behind):
                self.steps[-1] = Deliver(start, stop, line, behind, errors)
            case Ask(request):
                self.steps[-1] = Ask(request, errors)

    def finish(self) -> None:
        self._close_request()
        if self.initialize is None:
            raise SourceError("no initialize message in it: not what a daemon wrote to a child")


def _read_capture(path: Path) -> Shard:
    reader = _CaptureReader()
    number = 0
    with _reading(path):
        try:
            with open_lines(path) as lines:
                for number, line in enumerate(bounded_lines(lines), 1):  # noqa: B007 - named in the error below
                    reader.read(line)
            reader.finish()
            records = StoredRecords(_captured_columns(reader.batches))
        except (_core.DecodeError, SourceError) as error:
            raise SourceError(f"{path}:{number}: {error}") from None
        except ValueError as error:
            raise SourceError(f"{path}: {error}") from None
    initialize = reader.initialize
    assert initialize is not None
    if "\0" in initialize.shard_id:
        raise SourceError(f"{path}:1: {initialize.shard_id!r} cannot be put into a child's environment")
    dialect: ReplayDialect = initialize.dialect
    if _core.DIALECTS[dialect].named_ends and reader.old_ends:
        dialect = "transitional"
    start = TRIM_HORIZON
    if initialize.sequence_number is not None:
        start = Place(initialize.sequence_number, initialize.sub_sequence_number or 0)
        if not is_decimal(start.sequence_number) and not is_sentinel(start.sequence_number):
            raise SourceError(f"{path}:1: {start.sequence_number!r} is no place to start at")
    label = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".in")
    return Shard(initialize.shard_id, label, records, tuple(reader.steps), start=start, dialect=dialect)


def _captured_columns(batches: Sequence[_core.RecordBatch]) -> Columns:
    records = [record for batch in batches for record in batch]
    sequence_numbers_ = [record.sequence_number for record in records]
    return Columns(
        [record.data for record in records],
        [record.partition_key for record in records],
        sequence_numbers_,
        _sub_numbers(sequence_numbers_, [record.sub_sequence_number for record in records]),
        [record.timestamp_millis for record in records],
    )


def _sub_numbers(sequence_numbers_: Sequence[str], given: Sequence[int | None]) -> list[int]:
    """Sub-sequence numbers, counted within a run of equal sequence numbers where the line has none (legacy)."""
    subs: list[int] = []
    for index, sub in enumerate(given):
        if sub is None:
            follows = index > 0 and sequence_numbers_[index] == sequence_numbers_[index - 1]
            sub = subs[-1] + 1 if follows else 0
        subs.append(sub)
    return subs


# Files of records.

_PARQUET_MAGIC = b"PAR1"
_COLUMN_NAMES = tuple(_core.CANONICAL_COLUMNS)


_MOST_MILLIS = (2**63 - 1) // 1000  # a child keeps microseconds in 64 bits


@dataclass(slots=True)
class _Row:
    data: bytes | None
    partition_key: str
    sequence_number: str | None
    sub_sequence_number: int | None
    timestamp_millis: int | None

    def __post_init__(self) -> None:
        """Refuse what a daemon cannot write."""
        try:
            self.partition_key.encode()
        except UnicodeEncodeError:
            raise ValueError(f"partitionKey {self.partition_key[:60]!r}: half of a surrogate pair") from None
        if self.sequence_number is not None and not is_decimal(self.sequence_number):
            raise ValueError(f"sequenceNumber {self.sequence_number[:60]!r}: decimal digits expected")
        if self.sub_sequence_number is not None and not 0 <= self.sub_sequence_number < 2**63:
            raise ValueError(f"subSequenceNumber {str(self.sub_sequence_number)[:60]}: 0 to 2**63 - 1 expected")
        if self.timestamp_millis is not None and abs(self.timestamp_millis) > _MOST_MILLIS:
            raise ValueError(
                f"approximateArrivalTimestamp {str(self.timestamp_millis)[:60]}: milliseconds since the epoch "
                f"expected, {_MOST_MILLIS} at most"
            )


@dataclass(frozen=True, slots=True)
class _RecordFile:
    path: Path
    shard_count: int
    batch_records: int

    @property
    def description(self) -> str:
        return f"records of {self.path.name}"

    def shards(self) -> Sequence[Shard]:
        with _reading(self.path):
            with self.path.open("rb") as file:
                parquet = file.read(4) == _PARQUET_MAGIC
            rows = list(_read_parquet(self.path) if parquet else _read_json_lines(self.path))
        if not rows:
            raise SourceError(f"{self.path}: no record in it")
        if len(rows) < self.shard_count:
            raise SourceError(f"{self.path}: {len(rows)} records are too few for {self.shard_count} shards")
        # Contiguous parts, so that the order within each shard is that of the file.
        cuts = [len(rows) * number // self.shard_count for number in range(self.shard_count + 1)]
        return [self._shard(number, rows[cuts[number] : cuts[number + 1]]) for number in range(self.shard_count)]

    def _shard(self, number: int, rows: Sequence[_Row]) -> Shard:
        created = EPOCH_MILLIS // 1000
        missing = [row.sequence_number is None for row in rows]
        if any(missing) and not all(missing):
            raise SourceError(f"{self.path}: some records have a sequenceNumber and some have none; give all or none")
        if any(missing):
            numbers = sequence_numbers(0, len(rows), shard=number, created=created, arrival=created)
        else:
            numbers = [row.sequence_number or "" for row in rows]
        columns = Columns(
            [row.data for row in rows],
            [row.partition_key for row in rows],
            numbers,
            _sub_numbers(numbers, [row.sub_sequence_number for row in rows]),
            [row.timestamp_millis for row in rows],
        )
        try:
            records = StoredRecords(columns)
        except ValueError as error:
            raise SourceError(f"{self.path}: {error}") from None
        return Shard(shard_name(number), shard_name(number), records, batch_records=self.batch_records)


def from_records(path: str | Path, *, shards: int = 1, batch_records: int = 1000) -> Source:
    """A source of records from a JSON lines or Parquet file (which of them is seen from its first bytes).

    Both hold the canonical columns: data (base64 in JSON lines, binary in Parquet), partitionKey,
    sequenceNumber, subSequenceNumber, approximateArrivalTimestamp (ms since the epoch in JSON lines, a
    timestamp in Parquet). All but data and partitionKey may be left out; sequence numbers are then made up.
    `fastkcl inspect` writes both forms. JSON lines may be packed (``.gz``).

    Args:
        path: the file.
        shards: the file is cut into as many parts of equal length (give or take a record), in order.
        batch_records: records of one batch.

    Raises:
        ValueError: a number out of range.
        SourceError: no such file.
    """
    if shards < 1 or batch_records < 1:
        raise ValueError("shards and batch_records must be at least 1")
    place = Path(path)
    if not place.is_file():
        raise SourceError(f"{place}: no such file")
    return _RecordFile(place, shards, batch_records)


def _read_json_lines(path: Path) -> Iterator[_Row]:
    with open_lines(path) as lines:
        for number, line in enumerate(bounded_lines(lines), 1):
            if not line.strip():
                continue
            try:
                yield _json_row(json.loads(line))
            except json.JSONDecodeError as error:
                raise SourceError(f"{path}:{number}: no JSON: {error.msg} (column {error.colno})") from None
            except RecursionError:
                raise SourceError(f"{path}:{number}: nested too deep for a record") from None
            except ValueError as error:
                raise SourceError(f"{path}:{number}: {error}") from None


def _json_row(row: object) -> _Row:
    if not isinstance(row, dict):
        raise ValueError("a JSON object expected, one record a line")
    unknown = sorted(set(row) - set(_COLUMN_NAMES) - {"shardId"})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; a record has {', '.join(_COLUMN_NAMES)}")
    if "data" not in row:
        raise ValueError("no data; give base64 text, or null")
    data = _typed(row, "data", str)
    key = _typed(row, "partitionKey", str)
    if key is None:
        raise ValueError("no partitionKey; give a text")
    return _Row(
        None if data is None else _core.decode_base64(data.encode(errors="replace")),
        key,
        _typed(row, "sequenceNumber", str),
        _typed(row, "subSequenceNumber", int),
        _typed(row, "approximateArrivalTimestamp", int),
    )


_Value = TypeVar("_Value", str, int)


def _typed(row: dict[str, object], key: str, kind: type[_Value]) -> _Value | None:
    value = row.get(key)
    if value is None:
        return None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{key}: {'text' if kind is str else 'an integer'} expected, not {type(value).__name__}")
    return value


def _read_parquet(path: Path) -> Iterator[_Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise SourceError(f"{path}: Parquet needs pyarrow: pip install 'fastkcl[arrow]'") from None
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, ValueError) as error:
        raise SourceError(f"{path}: {error}") from None
    return _table_rows(table, path)


def _table_rows(table: pa.Table, path: Path) -> Iterator[_Row]:
    import pyarrow as pa

    try:
        columns = {name: _table_column(table, name) for name in _COLUMN_NAMES}
    except (pa.ArrowException, ValueError) as error:
        raise SourceError(f"{path}: {error}") from None
    for index, values in enumerate(zip(*columns.values(), strict=True)):
        data, key, number, sub, timestamp = values
        try:
            if key is None:
                raise ValueError("partitionKey is null")
            row = _Row(data, key, number, sub, timestamp)
        except ValueError as error:
            raise SourceError(f"{path}: record {index}: {error}") from None
        yield row


def _table_column(table: pa.Table, name: str) -> list[Any]:
    import pyarrow as pa

    if name not in table.column_names:
        if name in ("data", "partitionKey"):
            raise ValueError(f"no column {name}; the canonical schema has {', '.join(_COLUMN_NAMES)}")
        return [None] * table.num_rows
    if table.column_names.count(name) > 1:
        raise ValueError(f"several columns {name}")
    column = table.column(name)
    if name == "approximateArrivalTimestamp":
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
        return list(column.cast(pa.int64()).to_pylist())
    return list(column.cast(pa.type_for_alias(_core.CANONICAL_COLUMNS[name])).to_pylist())


# Dead letters.

_LETTERS = "*.arrow"


@dataclass(frozen=True, slots=True)
class _Letter:
    path: Path
    stream: str | None
    shard_id: str
    rows: tuple[_Row, ...]
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
                raise SourceError(f"{letter.path}: it does not say whose stream it is of; name the stream (--stream)")
            return self.stream
        if self.stream not in (None, letter.stream):
            raise SourceError(
                f"{letter.path}: it is of the stream {letter.stream!r}, not {self.stream!r}; a stream has to be named"
                " for letters only that do not say theirs"
            )
        return letter.stream


def from_dead_letters(path: str | Path, *, stream: str | None = None) -> Source:
    """A source of dead letters, as `fastkcl.run(..., dead_letter=)` has written them.

    Each shard has the records of all its letters in the order of their positions, however often they failed: one
    that is in several letters comes once. In the legacy dialect nothing tells the records of an aggregate apart; so
    of equal runs of a sequence number one is left out only if they cannot be two ends of one aggregate. Letters of
    several streams make one shard for each stream and shard, and each child gets the name of its own stream.

    Args:
        path: the folder, whose ``*.arrow`` are taken, or one letter.
        stream: of letters that do not say it.

    Raises:
        SourceError: there is no letter.
    """
    place = Path(path)
    if place.is_dir():
        found = sorted(file for file in place.glob(_LETTERS) if not file.name.startswith("."))
        if not found:
            raise SourceError(f"{place}: no dead letters ({_LETTERS}) in this folder")
        return _DeadLetters(tuple(found), stream)
    if not place.is_file():
        raise SourceError(f"{place}: no such folder or file")
    return _DeadLetters((place,), stream)


def _read_letter(path: Path) -> _Letter:
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise SourceError(f"{path}: dead letters need pyarrow: pip install 'fastkcl[arrow]'") from None
    with _reading(path):
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
        rows = tuple(_table_rows(table, path))
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
            " put such letters into a folder of their own"
        )
    rows = _aggregates_once(letters) if legacy else _records_once(letters)
    numbers = [row.sequence_number or "" for row in rows]
    columns = Columns(
        [row.data for row in rows],
        [row.partition_key for row in rows],
        numbers,
        _sub_numbers(numbers, [row.sub_sequence_number for row in rows]),
        [row.timestamp_millis for row in rows],
    )
    return Shard(
        shard_id,
        label,
        StoredRecords(columns),
        batch_records=max(letter.most_of_a_batch for letter in letters),
        dialect="legacy" if legacy else None,
        stream=stream,
    )


def _records_once(letters: Sequence[_Letter]) -> list[_Row]:
    rows = {
        Place(row.sequence_number or "", row.sub_sequence_number or 0).order: row
        for letter in letters
        for row in letter.rows
    }
    return [rows[order] for order in sorted(rows)]


@dataclass(frozen=True, slots=True)
class _Run:
    """Records of one sequence number in one letter, and whether they stand at an end of it."""

    rows: tuple[_Row, ...]
    first: bool
    last: bool

    def repeats(self, other: _Run) -> bool:
        """Whether it is the same again. A batch can end in an aggregate, whose rest then begins the next letter."""
        halves = (self.first and other.last) or (self.last and other.first)
        return self.rows == other.rows and not halves


def _aggregates_once(letters: Sequence[_Letter]) -> list[_Row]:
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
