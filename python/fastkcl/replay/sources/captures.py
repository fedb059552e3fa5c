"""Captured lines of a daemon as a script; the rules are in the package's documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastkcl import _core
from fastkcl.replay.child_lines import ReplayDialect
from fastkcl.replay.columns import Columns, StoredRecords
from fastkcl.replay.sources.base import Ask, Deliver, Shard, Source, SourceError, Step
from fastkcl.replay.sources.lines import bounded_lines, open_lines, reading, regular_file
from fastkcl.replay.sources.rows import columns_of
from fastkcl.shard import is_sequence_number

_ENVIRONMENT_FREE = frozenset({"IllegalArgumentException", "InvalidStateException"})
"""Errors caused by requests of the captured child; every other one came from the world around it."""

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
        SourceError: a path does not exist, or a folder holds no capture, or one that is no regular file.
    """
    files: list[Path] = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        place = Path(path)
        if place.is_dir():
            found = sorted(file for pattern in CAPTURE_PATTERNS for file in place.glob(pattern))
            if not found:
                raise SourceError(f"{place}: no captures ({' or '.join(CAPTURE_PATTERNS)}) in this folder")
            files += map(regular_file, found)
        else:
            files.append(regular_file(place))
    if not files:
        raise SourceError("no captured file was given")
    return _Captures(tuple(files))


class _CaptureReader:
    """Turns captured lines into a script."""

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
                raise SourceError("a checkpoint reply before initialize: not a daemon's lines to a child")
            environment = None if message.error in _ENVIRONMENT_FREE else message.error
            self._errors.append(environment)
            return
        self._close_request()
        if isinstance(message, _core.Initialize):
            if self.initialize is not None:
                raise SourceError("a second initialize: a capture is the input of one child; cut the file here")
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
            raise SourceError("no initialize message in it: not a daemon's lines to a child")


def _read_capture(path: Path) -> Shard:
    reader = _CaptureReader()
    number = 0
    with reading(path):
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
    start = _core.Position.TRIM_HORIZON
    if initialize.sequence_number is not None:
        start = _start(path, initialize.sequence_number, initialize.sub_sequence_number or 0)
    label = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".in")
    return Shard(initialize.shard_id, label, records, tuple(reader.steps), start=start, dialect=dialect)


def _start(path: Path, number: str, sub: int) -> _core.Position:
    if is_sequence_number(number):
        return _core.Position(number, sub)
    try:
        position = _core.Position.parse(number)
    except ValueError:
        position = None
    if position is None or not position.is_sentinel:
        raise SourceError(f"{path}:1: {number!r} is no place to start at")
    return position


def _captured_columns(batches: Sequence[_core.RecordBatch]) -> Columns:
    records = [record for batch in batches for record in batch]
    return columns_of(records, [record.sequence_number for record in records])
