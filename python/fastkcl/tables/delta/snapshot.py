"""A Delta table at a version of its log: the parts that a writer of complete files needs. No I/O.

    Snapshot ──▶ moved(the next version's entry) ──▶ Snapshot

An entry can set positions (application transactions), and change the table's metadata and its protocol. A commit of the
next version belongs to exactly one snapshot: it follows the one that was compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from fastkcl import Position
from fastkcl.tables.base import RECOVERY, Shard, SinkError, parse_json
from fastkcl.tables.delta.actions import position_by
from fastkcl.tables.delta.rules import Rules, check_field, fields_of
from fastkcl.tables.folders import parse_position, position_text

__all__ = [
    "NOTHING",
    "OURS",
    "Snapshot",
    "checked_metadata",
    "checked_protocol",
    "continues",
    "digest",
    "does_nothing",
    "makes_a_table",
]

_Json: TypeAlias = Any

OURS: Final = "fastkcl/"
"""Application ids of positions begin so."""
_KEYS: Final = (b'"txn"', b'"metaData"', b'"protocol"', b'"RESTORE"', b'"CREATE TABLE"', b'"fastkcl"')


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a table is at a version."""

    version: int
    entry: bytes
    """The digest of the version's entry; empty if only a checkpoint has it."""
    metadata: Mapping[str, _Json]
    """The action `metaData`."""
    protocol: Mapping[str, _Json]
    """The action `protocol`."""
    transactions: Mapping[str, int]
    """Versions of our application transactions."""
    restored: int | None = None
    """The newest version that has set the table back to an older one (RESTORE), of those that were looked at."""
    is_mended: bool = False
    """Whether one of the entries that were looked at is empty: what it did is in another one by now, or is gone."""

    @property
    def id(self) -> str:
        """The table's."""
        return str(self.metadata["id"])

    @property
    def partition_columns(self) -> list[str]:
        """The table's."""
        return list(self.metadata.get("partitionColumns") or ())

    @property
    def configuration(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self.metadata.get("configuration") or {})

    def position(self, shard: Shard, where: str) -> Position | None:
        """Up to where the table has a shard's records; None if it has none.

        Raises:
            SinkError: its transactions are no position.
        """
        return position_by(self.transactions.get, shard, where)

    def rules(self, table: str, writer: str) -> Rules:
        """What the table asks of a writer; `table` and `writer` are for errors."""
        protocol = self.protocol
        return Rules(
            table=table,
            writer=writer,
            partition_columns=self.partition_columns,
            configuration=self.configuration,
            fields=fields_of(self.metadata["schemaString"]),
            features=frozenset(protocol.get("writerFeatures") or ()),
            reader_version=int(protocol["minReaderVersion"]),
            writer_version=int(protocol["minWriterVersion"]),
        )

    def moved(self, text: bytes, where: str) -> Snapshot:
        """The table at the next version.

        Args:
            text: the entry of that version.
            where: its name, for the error.

        Raises:
            SinkError: it is not an entry of a Delta log.
        """
        return _with(self, self.version + 1, text, where)


NOTHING: Final = Snapshot(-1, b"", {}, {}, {})
"""Before the first entry."""


def digest(text: bytes) -> bytes:
    """Tells one entry from another."""
    return hashlib.sha256(text).digest()


def _with(before: Snapshot, version: int, text: bytes, where: str) -> Snapshot:
    metadata, protocol, restored = before.metadata, before.protocol, before.restored
    transactions = dict(before.transactions)
    told: _Json = None
    try:
        is_mended = before.is_mended or does_nothing(text)
        for line in text.splitlines():
            if not any(key in line for key in _KEYS):
                continue
            action = parse_json(line)
            if (transaction := action.get("txn")) is not None and transaction["appId"].startswith(OURS):
                transactions[transaction["appId"]] = whole(transaction["version"])
            elif (found := action.get("metaData")) is not None:
                metadata = checked_metadata(found)
            elif (found := action.get("protocol")) is not None:
                protocol = checked_protocol(found)
            elif (info := action.get("commitInfo")) is not None:
                told = info.get("fastkcl")
                if info.get("operation") == "RESTORE":
                    restored = version
                if version > 0 and makes_a_table(info):
                    raise ValueError("it makes the table, and is not its first one")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SinkError(f"{where}: no entry of a Delta log: {error!r}: restore it from a copy; {RECOVERY}") from error
    found = Snapshot(version, digest(text), metadata, protocol, transactions, restored, is_mended)
    for each in told if isinstance(told, list) else [told]:
        _check_told(before, found, each, where)
    return found


def does_nothing(text: bytes) -> bool:
    """Whether an entry is an empty `commitInfo`, as the page on recovery has it in the place of one that was lost.

    Those of VACUUM, and of a write without rows, say so in it.
    """
    return b"".join(text.split()) == b'{"commitInfo":{}}'


def continues(told: _Json, at: Position | None, *, is_mended: bool) -> bool:
    """Whether an entry of ours continues from where the table has the shard; true where either is not known.

    Args:
        told: what it tells of itself.
        at: the table's position before it.
        is_mended: it may also begin later, as an entry that did the rest is gone.
    """
    after = told.get("after")
    if at is None or not isinstance(after, str) or after == position_text(at):
        return True
    try:
        start = parse_position(after)
    except ValueError:
        return False
    return is_mended and start is not None and start > at


def makes_a_table(info: Mapping[str, _Json]) -> bool:
    """Whether an entry of this description is the first one of a log of ours."""
    return info.get("operation") == "CREATE TABLE" and str(info.get("engineInfo")).startswith("fastkcl:")


def _check_told(before: Snapshot, found: Snapshot, told: _Json, where: str) -> None:
    """See that an entry of ours has the position that it tells of itself, in all of its transactions.

    And that it continues from the table's, where that is known: a copy of an older entry would set the shard back.

    Raises:
        SinkError: it has not, or does not.
    """
    match told:
        case {"stream": str(stream), "shard": str(shard_id), "upto": str(upto)}:
            try:
                at = before.position(Shard(stream, shard_id), where)
                position = found.position(Shard(stream, shard_id), where)
            except UnicodeEncodeError as error:  # half of a pair of surrogates
                raise SinkError(f"{where}: {error}: restore it from a copy; {RECOVERY}") from error
            if position_text(position) != upto:
                raise SinkError(
                    f"{where}: it tells of the position {upto[:200]}, and has another one in its application"
                    f" transactions: restore it from a copy; {RECOVERY}"
                )
            if not continues(told, at, is_mended=before.is_mended):
                raise SinkError(
                    f"{where}: it continues {stream}, {shard_id} from {str(told['after'])[:200]}, and the entries"
                    f" before it end at {position_text(at)}: it is a copy of another entry, or one before it is gone:"
                    f" restore the log from a copy; {RECOVERY}"
                )


def checked_protocol(found: _Json) -> _Json:
    """A protocol that can be relied on.

    Raises:
        ValueError: it cannot; or KeyError, or TypeError.
    """
    for name in ("readerFeatures", "writerFeatures"):
        check_texts(found.get(name) or [])
    return {**found, **{name: whole(found[name]) for name in ("minReaderVersion", "minWriterVersion")}}


def checked_metadata(found: _Json) -> _Json:
    """Metadata that can be relied on.

    Raises:
        ValueError: it cannot; or KeyError, or TypeError.
    """
    if not isinstance(found["id"], str):
        raise TypeError("metaData without an id")
    check_texts(found["partitionColumns"])
    configuration = found.get("configuration") or {}
    if not isinstance(configuration, dict) or not all(
        isinstance(value, str | None) for value in configuration.values()
    ):
        raise TypeError("a configuration that is no texts")
    fields = parse_json(found["schemaString"])["fields"]
    if not isinstance(fields, list):
        raise TypeError("a schema without fields")
    for field in fields:
        check_field(field)
    return found


def whole(value: _Json) -> int:
    """A whole number of a log.

    Raises:
        TypeError: it is none.
    """
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def check_texts(values: _Json) -> None:
    """See that a list of texts is one.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{values!r} is no list of texts")
