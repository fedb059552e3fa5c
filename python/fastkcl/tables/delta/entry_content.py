"""Whether the content of an entry of a Delta log is sound. No I/O.

A power cut can leave an entry of 0 bytes of a writer that does not sync. deltalake takes it for a commit of nothing,
and the position in it would be gone without a word.

Entries of ours begin with their description, which has a digest of the whole. Those of earlier versions have none.
There, and in entries of others, a cut at the end of a line shows only if the entry states its length: ours end with the
position and count the files that they add, and deltalake counts the files that it adds and removes.

Readers pass over blank lines, and over an action that they do not know. In an entry of ours it is one whose name was
damaged, and so it is where an entry has no other action. deltalake takes control characters within a text, which JSON
does not allow, and numbers as text, and for text. It refuses the whole table for a member of another type than the
protocol's.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from fastkcl.tables.base import Shard, parse_json
from fastkcl.tables.delta.actions import is_altered, transactions
from fastkcl.tables.delta.snapshot import OURS, checked_metadata, checked_protocol
from fastkcl.tables.folders import parse_position

__all__ = ["FilesLost", "Lost", "damage", "fault", "has_nothing", "positions_left", "sound", "told_positions"]

_NO_JSON: Final = "its JSON is cut off or overwritten"

_Check: TypeAlias = Callable[[Any], bool]


def _is(*types: type) -> _Check:
    return lambda value: isinstance(value, types)


def _number(bits: int) -> _Check:
    """Whether deltalake reads a value as an integer of so many bits."""
    most = 1 << bits - 1

    def check(value: object) -> bool:
        if isinstance(value, str):
            return _NUMBER.fullmatch(value) is not None and -most <= int(value) < most
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return -most <= value < most  # NaN is not

    return check


_NUMBER: Final = re.compile(r" *[+-]?[0-9]{1,20} *")
_is_number = _number(64)


def _is_whole(value: object) -> bool:
    return type(value) is int and _is_number(value)


_is_text = _is(str, int, float, bool)


def _map(check: _Check) -> _Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _or_null(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _has(members: Mapping[str, _Check]) -> _Check:
    return lambda value: isinstance(value, dict) and all(check(value.get(name)) for name, check in members.items())


_is_map = _map(_or_null(_is_text))
_VECTOR: Final = _has(
    {
        "storageType": _is_text,
        "pathOrInlineDv": _is_text,
        "sizeInBytes": _number(32),
        "cardinality": _is_number,
        "offset": _or_null(_number(32)),
    }
)
_MEMBERS: Final[Mapping[str, Mapping[str, _Check]]] = {
    "add": {
        "path": _is(str),
        "partitionValues": _is_map,
        "size": _is_number,
        "modificationTime": _is_number,
        "dataChange": _is(bool),
    },
    "remove": {"path": _is_text, "dataChange": _is(bool)},
    "txn": {"appId": _is(str), "version": _is_whole},
    "metaData": {"format": _has({"provider": _is_text}), "configuration": _map(_is_text)},
    "protocol": {},
    "commitInfo": {},
}
"""Each must be there."""
_OPTIONAL: Final[Mapping[str, Mapping[str, _Check]]] = {
    "add": {
        "stats": _is_text,
        "tags": _is_map,
        "deletionVector": _VECTOR,
        "baseRowId": _is_number,
        "defaultRowCommitVersion": _is_number,
        "clusteringProvider": _is_text,
    },
    "remove": {
        "deletionTimestamp": _is_number,
        "extendedFileMetadata": _is(bool),
        "partitionValues": _is_map,
        "size": _is_number,
        "tags": _is_map,
        "deletionVector": _VECTOR,
        "baseRowId": _is_number,
        "defaultRowCommitVersion": _is_number,
    },
    "txn": {"lastUpdated": _is_number},
    "metaData": {"name": _is_text, "description": _is_text, "createdTime": _is_number},
}
"""Each may be absent or null."""
_ACTIONS: Final = frozenset((*_MEMBERS, "cdc", "domainMetadata", "checkpointMetadata", "sidecar"))
"""Of all versions of the protocol."""
_CHECKS: Final = {"metaData": checked_metadata, "protocol": checked_protocol}
_MOST_BLANKS: Final = 16
"""Bytes of blank lines, which an editor may leave: an action has more."""
_NOT_IN_A_DESCRIPTION: Final = frozenset(
    ("appId", "baseRowId", "dataChange", "deletionTimestamp", "deletionVector", "modificationTime", "partitionValues")
)
"""Members of other actions: a range of bytes is lost, and the rest is one line."""
_FOLLOWING: Final = re.compile(r"\S")
_BEGIN: Final = re.compile(rb"\s*\{")
_ADD: Final = b'{"add":'
# In commitInfo's operationMetrics of deltalake, by operation.
_COUNTS = {
    _ADD: ("num_added_files", "numFilesAdded", "num_target_files_added", "numRestoredFile"),
    b'{"remove":': ("num_removed_files", "numFilesRemoved", "num_target_files_removed", "numRemovedFile"),
}
_CHANGES: Final = b'{"cdc":'
"""A file of the change data feed. deltalake counts these among the files that it adds, but not for an UPDATE."""


def fault(text: bytes) -> str | None:
    """What is wrong with an entry's content; None for a sound one."""
    why = damage(text)
    return None if why is None else f"damaged, {why}"


def has_nothing(text: bytes) -> bool:
    """Whether an entry has 0 bytes, or blanks alone: readers take it for a commit of nothing."""
    return not text or text.isspace()


class Lost(str):
    """A fault that readers pass over: actions are lost, of which they see nothing."""

    __slots__ = ()


class FilesLost(Lost):
    """The same, and no position is among them of which the entry does not tell."""

    __slots__ = ()


def damage(text: bytes) -> str | Lost | None:
    """What is wrong with an entry's content, without the word for it; a `Lost` if readers pass over it."""
    if has_nothing(text):
        return Lost("nothing but blanks" if text else "0 bytes")
    if not _BEGIN.match(text) or not text.rstrip().endswith(b"}") or b"\0" in text:
        return Lost(_NO_JSON) if _is_read_by_others(text) else _NO_JSON
    ours, has_action, blanks = _Ours(), False, 0
    for number, line in enumerate(io.BytesIO(text), 1):  # one at a time: an entry can have a gigabyte
        if not line.strip():
            blanks += len(line)
            continue
        try:
            action = parse_json(line)
        except ValueError:
            action = None
        if not isinstance(action, dict):
            told = f"{_NO_JSON} (line {number})"
            return Lost(told) if _is_read_by_others(text) else told
        if why := _fault_of_action(action):
            return f"{why} (line {number})"
        ours.take(number, action)
        has_action = has_action or not _ACTIONS.isdisjoint(action)
    if not has_action:
        return ours.unknown or Lost("it has no action")
    if why := _lack(text):
        told = f"cut off at the end of a line ({why})"
        return FilesLost(told) if ours.is_described else told
    if why := ours.fault:
        return why
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        if ours.is_ours and is_altered(text):  # an entry of others may have a gigabyte
            return FilesLost("it is not what was written (its sha256)")
    return Lost(f"{blanks} bytes of it are blanks") if blanks > _MOST_BLANKS else None


def _is_read_by_others(text: bytes) -> bool:
    """Whether an entry whose lines are no JSON is one to deltalake, which takes control characters within a text."""
    decoder, end = json.JSONDecoder(strict=False), 0
    try:
        whole = text.decode().strip()
        while end < len(whole):
            action, end = decoder.raw_decode(whole, end)
            if not isinstance(action, dict):
                return False
            following = _FOLLOWING.search(whole, end)
            end = len(whole) if following is None else following.start()
    except (ValueError, RecursionError):
        return False
    return True


@dataclass(slots=True)
class _Ours:
    """An entry's actions, as far as an entry of ours is checked by them."""

    is_ours: bool = False
    is_described: bool = False
    unknown: Lost | None = None
    """The first action with a name that is no action's."""
    merged: Lost | None = None
    """A description that ends in another action."""
    _tells: bool = False
    """Whether its description tells of its positions, or is of an entry that sets none."""
    _there: int = 0
    _wanted: int = 0

    def take(self, number: int, action: Mapping[str, Any]) -> None:
        """Add the action of a line, whose members have been checked."""
        info = action.get("commitInfo") or {}
        told = info.get("fastkcl")
        names_a_position = any(isinstance(value, str) and "sequence-number" in value for value in info.values())
        if names_a_position or not _NOT_IN_A_DESCRIPTION.isdisjoint(info):
            self.merged = Lost(f"its description (commitInfo) goes over into another action (line {number})")
        is_bare = action.get("commitInfo") == {}  # as somebody has written it by hand
        self._tells |= told is not None or is_bare or info.get("operation") == "CREATE TABLE"
        for each in action.values():  # whatever its name has become
            self.is_ours |= isinstance(each, dict) and (
                str(each.get("engineInfo")).startswith("fastkcl") or str(each.get("appId")).startswith(OURS)
            )
        self.is_described |= action.get("commitInfo") is not None
        if self.unknown is None and (unknown := [name for name in action if name not in _ACTIONS]):
            self.unknown = Lost(f"it has the unknown action {unknown[0][:40]!r} (line {number})")
        self._there += action.get("add") is not None
        for each in told if isinstance(told, list) else [told]:
            if isinstance(each, dict) and type(count := each.get("files")) is int:
                self._wanted += count

    @property
    def has_lost_files(self) -> bool:
        """Whether the entry names fewer files than it tells of."""
        return self._there < self._wanted

    @property
    def fault(self) -> str | None:
        """What shows that actions are lost; None for a sound one, and for most of others."""
        if self.merged is not None:
            return self.merged
        if not self.is_ours:
            return None
        if self.unknown is not None:
            return FilesLost(self.unknown) if self.is_described else self.unknown
        if not self.is_described:
            return FilesLost("it sets a position, and its description (commitInfo) is lost")
        if not self._tells:
            return FilesLost("its description (commitInfo) tells of no position")
        if not self.has_lost_files:
            return None
        return FilesLost(f"it names {self._there} of {self._wanted} files")


def _fault_of_action(action: dict[str, Any]) -> str | None:
    """Which member a line of an entry lacks, for readers and for writers."""
    for kind, members in _MEMBERS.items():
        if (found := action.get(kind)) is None:
            continue
        if not isinstance(found, dict):
            return f"its {kind} is no object"
        for name, check in members.items():
            if not check(found.get(name)):
                return f"its {kind} has no {name}"
        for name, check in _OPTIONAL.get(kind, {}).items():
            if not check(found.get(name)) and found.get(name) is not None:
                return f"its {kind} has another {name} than readers take"
        try:
            _CHECKS.get(kind, dict)(found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return f"its {kind}: {error!r}"
    return None


def _lack(text: bytes) -> str | None:
    """The part that an entry lacks by its own content."""
    lines = text.strip().split(b"\n")
    if not lines[0].startswith(b'{"commitInfo":'):
        return None
    try:
        info = parse_json(lines[0])["commitInfo"]
        writer, operation, counts = info.get("engineInfo"), info.get("operation"), info.get("operationMetrics")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "its first line is no JSON of a commit"
    if not isinstance(writer, str):
        return None
    if writer.startswith("fastkcl:"):
        end = b'{"metaData":' if operation == "CREATE TABLE" else b'/sub-sequence-number"'
        told = info.get("fastkcl")
        if isinstance(told, list) and sum(end in line for line in lines) < len(told):
            return f"it has not the positions of {len(told)} shards"
        return None if end in lines[-1] else "its end is missing"
    if writer.startswith("delta-rs:") and isinstance(counts, dict):
        for action, names in _COUNTS.items():
            there = sum(line.startswith(action) for line in lines)
            has_changes = action == _ADD and operation != "UPDATE"
            with_changes = there + has_changes * sum(line.startswith(_CHANGES) for line in lines)
            told = [count for name in names if type(count := counts.get(name)) is int and count > there]
            if told and told[0] != with_changes:
                return f"it names {there} of {told[0]} files"
    return None


def told_positions(told: Any) -> dict[str, int]:  # noqa: ANN401 - whatever an entry has
    """The transactions with the positions that an entry of ours tells of itself, as far as it does."""
    found: dict[str, int] = {}
    for each in told if isinstance(told, list) else [told]:
        with suppress(LookupError, ValueError, TypeError, AttributeError, OverflowError):
            if (position := parse_position(each["upto"])) is not None:
                made = transactions(Shard(str(each["stream"]), str(each["shard"])), position)
                found |= {action["txn"]["appId"]: action["txn"]["version"] for action in made}
    return found


def sound(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The actions of a damaged entry that readers would take."""
    found = []
    for line in lines:
        with suppress(ValueError):
            action = parse_json(line)
            if isinstance(action, dict) and _fault_of_action(action) is None:
                found.append(action)
    return found


def positions_left(text: bytes) -> dict[str, int]:
    """Those of a damaged entry of ours, as far as its description of itself is left."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        if b'"fastkcl"' in line:
            with suppress(LookupError, ValueError, TypeError, AttributeError, OverflowError):
                found |= told_positions(parse_json(line)["commitInfo"]["fastkcl"])
    return found
