"""The batch that is measured: someone's own payloads, or generated ones, as one line of a daemon.

A real daemon sends at most 10,000 records and 10 MiB of payloads in a line (GetRecords' limits). Fewer payloads are
repeated up to one of the two, so that a call is long enough to be timed; more are cut off there. A payload that is
longer than all of a batch may be is no record, and none that a child would take; such a file is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fastkcl import _core
from fastkcl.replay import SourceError, from_records, generate
from fastkcl.replay.profiles import EPOCH_MILLIS, PROFILES, timestamps
from fastkcl.replay.sources import READ_ERRORS, bounded_lines, open_lines
from fastkcl.shard import sequence_numbers

__all__ = ["MAX_BYTES", "MAX_RECORDS", "Batch", "of_lines", "of_profile", "of_records", "of_folder"]

MAX_RECORDS = 10_000
MAX_BYTES = 10 << 20

_Record = tuple[bytes | None, str]


@dataclass(frozen=True)
class Batch:
    """One batch.

    Attributes:
        line: the processRecords line, LF included.
        records: how many there are in it.
        payload_bytes: of all of them.
        distinct: records before any was repeated.
        describe: where they come from.
    """

    line: bytes
    records: int
    payload_bytes: int
    distinct: int
    describe: str


def _batch(records: Iterable[_Record], describe: str) -> Batch:
    """Cut or repeated to a daemon's limits.

    Raises:
        SourceError: there is no record, or one that no daemon sends.
    """
    taken: list[_Record] = []
    size = 0
    for record in islice(records, MAX_RECORDS):
        length = len(record[0] or b"")
        if length > MAX_BYTES:
            number = len(taken) + 1
            raise SourceError(f"{describe}: payload {number} has {length:,} bytes, and a record at most {MAX_BYTES:,}")
        size += length
        if taken and size > MAX_BYTES:
            break
        taken.append(record)
    if not taken:
        raise SourceError(f"{describe}: no records in it")
    size = sum(len(data or b"") for data, _ in taken)
    times = max(1, min(MAX_RECORDS // len(taken), MAX_BYTES // max(size, 1)))
    count = times * len(taken)
    created = EPOCH_MILLIS // 1000
    line = _core.encode_process_records(
        [data for data, _ in taken] * times,
        [key for _, key in taken] * times,
        sequence_numbers(0, count, created=created, arrival=created),
        [0] * count,
        timestamps(0, count),
        millis_behind_latest=0,
    )
    return Batch(line, count, times * size, len(taken), describe)


def of_profile(name: str) -> Batch:
    """A profile's payloads.

    Raises:
        ValueError: no such profile.
    """
    (shard,) = generate(name, records=PROFILES[name].records).shards()
    columns = shard.records.columns(0, len(shard.records))
    return _batch(zip(columns.data, columns.partition_keys, strict=True), f"profile {name}")


def of_records(path: Path) -> Batch:
    """Records as `fastkcl replay --input` reads them: JSON lines with data in base64 and partitionKey, or Parquet.

    Raises:
        SourceError: the file cannot be read, has no records, or one that is too long.
    """
    (shard,) = from_records(path).shards()
    columns = shard.records.columns(0, min(MAX_RECORDS, len(shard.records)))
    return _batch(zip(columns.data, columns.partition_keys, strict=True), str(path))


def of_lines(path: Path) -> Batch:
    """Each line of a file is a payload, without its line end; ``.gz`` is unpacked.

    Raises:
        SourceError: the file cannot be read, is empty, or has a line that is too long.
    """
    try:
        with open_lines(path) as lines:
            payloads = [line.rstrip(b"\r\n") for line in islice(bounded_lines(lines), MAX_RECORDS)]
    except READ_ERRORS as error:
        raise SourceError(f"{path}: {(isinstance(error, OSError) and error.strerror) or error}") from None
    return _batch(_keyed(payloads), str(path))


def of_folder(path: Path) -> Batch:
    """Each file in a folder is a payload, in the order of their names; hidden files and folders are left out.

    Raises:
        SourceError: it cannot be read, has no file, or one that is too long.
    """
    try:
        files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
        return _batch(_keyed(file.read_bytes() for file in files), str(path))
    except OSError as error:
        raise SourceError(f"{error.filename or path}: {error.strerror or error}") from None


def _keyed(payloads: Iterable[bytes]) -> Iterable[_Record]:
    return ((payload, f"key-{index % 1000:05d}") for index, payload in enumerate(payloads))
