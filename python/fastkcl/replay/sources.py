r"""Where the records of a replay come from: a profile, captured lines of a real daemon, or a file of records.

A `Source` opens to shards. Each shard has records and a script: the requests that a daemon makes, in order.

- `generate`: a profile's payloads; the script is the batches, one after the other.
- `from_records`: JSON lines or Parquet in the canonical schema; the same script.
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
    "from_captures",
    "from_records",
    "generate",
    "open_lines",
]

READ_ERRORS = (OSError, EOFError, zlib.error)
"""What reading `open_lines` raises for a file that cannot be read, or unpacked."""


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
    """

    shard_id: str
    label: str
    records: RecordSequence
    steps: tuple[Step, ...] | None = None
    batch_records: int = 1000
    start: Place = TRIM_HORIZON
    dialect: ReplayDialect | None = None


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

    @property
    def description(self) -> str:
        return f"profile {self.profile}, seed {self.seed}"

    def shards(self) -> Sequence[Shard]:
        return [
            Shard(
                shard_name(number),
                shard_name(number),
                GeneratedRecords(PROFILES[self.profile], self.records, shard=number, seed=self.seed),
                batch_records=self.batch_records,
            )
            for number in range(self.shard_count)
        ]


def generate(profile: str, *, shards: int = 1, records: int, batch_records: int | None = None, seed: int = 0) -> Source:
    """A source of generated records.

    Args:
        profile: name in `fastkcl.replay.profiles.PROFILES`.
        shards: how many.
        records: records of **each** shard.
        batch_records: records of one batch; the profile's own number without it.
        seed: equal seeds give equal records.

    Raises:
        ValueError: no such profile, or a number out of range.
    """
    if profile not in PROFILES:
        raise ValueError(f"no profile {profile!r}; there are: {', '.join(PROFILES)}")
    if shards < 1 or records < 0 or (batch_records is not None and batch_records < 1):
        raise ValueError("shards and batch_records must be at least 1, records at least 0")
    if records > COUNT:
        raise ValueError(f"at most {COUNT:,} records")
    return _Generated(profile, shards, records, batch_records or PROFILES[profile].records, seed)


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
                for number, line in enumerate(lines, 1):  # noqa: B007 - named in the error below
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
    if dialect == "modern" and reader.old_ends:
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
_COLUMN_NAMES = ("data", "partitionKey", "sequenceNumber", "subSequenceNumber", "approximateArrivalTimestamp")


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
        for number, line in enumerate(lines, 1):
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
        columns = {name: _parquet_column(table, name) for name in _COLUMN_NAMES}
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


def _parquet_column(table: pa.Table, name: str) -> list[Any]:
    import pyarrow as pa

    if name not in table.column_names:
        if name in ("data", "partitionKey"):
            raise ValueError(f"no column {name}; the canonical schema has {', '.join(_COLUMN_NAMES)}")
        return [None] * table.num_rows
    column = table.column(name)
    if name == "approximateArrivalTimestamp":
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
        return list(column.cast(pa.int64()).to_pylist())
    wanted = {"data": pa.binary(), "subSequenceNumber": pa.int64()}.get(name, pa.string())
    return list(column.cast(wanted).to_pylist())
