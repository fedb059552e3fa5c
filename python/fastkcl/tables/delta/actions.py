"""A shard in a Delta log: its position in application transactions, and the entries that set it. No I/O.

A sequence number is stored in pieces of 62 bits (a transaction's version is a signed 64-bit number), beside the
sub-sequence number. Checkpoints and the clean-up of the log keep transactions, but drop the metadata of old commits.
DeltaSink and DeltaTable write the same, so both can write to one table.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

from fastkcl import Position
from fastkcl._core import __version__
from fastkcl.tables.base import RECOVERY, Shard, SinkError, parse_json
from fastkcl.tables.delta.rules import primitives
from fastkcl.tables.folders import position_text

__all__ = [
    "Json",
    "about",
    "application_id",
    "beginning",
    "information",
    "is_altered",
    "lines",
    "position_by",
    "removed",
    "transactions",
    "written_at",
]

Json: TypeAlias = Any

_BITS: Final = 62
_DIGITS: Final = 129  # of a sequence number, at the most
_PIECES: Final = 7  # of those digits
_DIGEST: Final = "sha256"
"""Member of an entry's description. Entries of earlier versions, and of other writers, have none."""
_ENGINE: Final = f"fastkcl:{__version__}"


def application_id(shard: Shard, name: str) -> str:
    """Of the transaction that has a part of a shard's position."""
    return f"fastkcl/{quote(shard.stream, safe='')}/{quote(shard.shard_id, safe='')}/{name}"


def position_by(version_of: Callable[[str], int | None], shard: Shard, where: str) -> Position | None:
    """The position up to which a table has a shard's records; None if it has none.

    Args:
        version_of: the version of an application's transaction.
        shard: whose position is wanted.
        where: the table, for the error.

    Raises:
        SinkError: its transactions are no position.
    """
    pieces = [version_of(application_id(shard, f"sequence-number/{index}")) for index in range(_PIECES)]
    sub = version_of(application_id(shard, "sub-sequence-number"))
    there = [piece for piece in pieces if piece is not None]
    if not there and sub is None:
        return None
    number = sum(piece << (_BITS * index) for index, piece in enumerate(there))
    is_whole = pieces[: len(there)] == there and all(0 <= piece < 2**_BITS for piece in there)
    if not there or not is_whole or sub is None or not -1 <= sub < 2**63 or number >= 10**_DIGITS:
        raise SinkError(
            f"{where}: the position of {shard.stream}, {shard.shard_id} in its application transactions is damaged:"
            f" pieces {pieces}, sub-sequence number {sub}: restore the log from a copy; {RECOVERY}"
        )
    return Position(str(number), None if sub < 0 else sub)


def transactions(shard: Shard, position: Position) -> list[Json]:
    """A position as application transactions, without a time: deltalake drops none of these, however old.

    Sequence numbers only grow, so a piece that was set is set by each later commit. Nothing writes a legacy position's
    absent sub-sequence number but -1.
    """
    number, sub = int(position.sequence_number), position.sub_sequence_number
    pieces = max(1, -(-number.bit_length() // _BITS))
    versions = {f"sequence-number/{index}": (number >> (_BITS * index)) % 2**_BITS for index in range(pieces)}
    versions["sub-sequence-number"] = -1 if sub is None else sub
    return [{"txn": {"appId": application_id(shard, name), "version": version}} for name, version in versions.items()]


def lines(actions: Sequence[Json]) -> bytes:
    """Actions as an entry of the log has them; a description in the first one gets the entry's digest."""
    first, *rest = (json.dumps(action).encode() + b"\n" for action in actions)
    others = b"".join(rest)
    if (given := actions[0].get("commitInfo")) is not None:
        info = {name: value for name, value in given.items() if name != _DIGEST}
        first = json.dumps({"commitInfo": {**info, _DIGEST: _digest(info, others)}}).encode() + b"\n"
    return first + others


def is_altered(text: bytes) -> bool:
    """Whether an entry with a digest in its first line is another one than was written.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: its first line is no description.
    """
    first, *rest = (line for line in map(bytes.strip, text.splitlines()) if line)
    others = b"".join(line + b"\n" for line in rest)
    info = dict(parse_json(first)["commitInfo"])
    told = info.pop(_DIGEST, None)
    return told is not None and told != _digest(info, others)


def _digest(info: Json, others: bytes) -> str:
    """Of an entry: its description without the digest, and the lines after it, without blanks around them."""
    return hashlib.sha256(json.dumps(info, sort_keys=True).encode() + b"\n" + others).hexdigest()


def removed(text: bytes) -> set[str]:
    """The files that an entry removes.

    Raises:
        ValueError: it is damaged.
    """
    try:
        actions = [parse_json(line) for line in text.splitlines() if b'"remove"' in line]
        return {unquote(str(action["remove"]["path"])) for action in actions if "remove" in action}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(repr(error)) from error


def written_at(text: bytes) -> float | None:
    """When an entry was written, in seconds since 1970, as it says itself; None if it does not.

    Raises:
        ValueError: it is damaged.
    """
    try:
        found = [parse_json(line)["commitInfo"] for line in text.splitlines() if line.startswith(b'{"commitInfo"')]
        times = [each["timestamp"] for each in found if type(each.get("timestamp")) is int]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(repr(error)) from error
    return times[0] / 1000 if times else None


def about(shard: Shard, after: Position | None, upto: Position, rows: int, files: int | None = None) -> Json:
    """What a commit says of itself, for people and `sink inspect`; no position is taken from it.

    Args:
        shard: whose rows they are.
        after: the position before them.
        upto: the position that they reach.
        rows: that were given, also those of which nothing was made.
        files: that its entry adds, of which no reader may miss one; None for no entry.
    """
    return {
        "stream": shard.stream,
        "shard": shard.shard_id,
        "after": position_text(after),
        "upto": position_text(upto),
        "rows": rows,
        **({} if files is None else {"files": files}),
    }


def information(partition_columns: Sequence[str], told: Json, *, blind: bool = True) -> Json:
    """The first line of a commit's entry."""
    return {
        "commitInfo": {
            "timestamp": time.time_ns() // 1_000_000,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": json.dumps(list(partition_columns))},
            "engineInfo": _ENGINE,
            "isBlindAppend": blind,
            "fastkcl": told,
        }
    }


def beginning(schema: str, partition_columns: Sequence[str]) -> bytes:
    """The first entry of a log.

    Args:
        schema: JSON.
        partition_columns: some of its columns.
    """
    now = time.time_ns() // 1_000_000
    protocol: Json = {"minReaderVersion": 1, "minWriterVersion": 2}
    if "timestamp_ntz" in {kind for field in json.loads(schema)["fields"] for kind in primitives(field["type"])}:
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
        "schemaString": schema,
        "partitionColumns": list(partition_columns),
        "configuration": {},
        "createdTime": now,
    }
    info = {"timestamp": now, "operation": "CREATE TABLE", "operationParameters": {}, "engineInfo": _ENGINE}
    return lines([{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}])
