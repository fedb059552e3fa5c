"""The log of a Delta table as files: their names, and which entry is damaged.

A power cut can leave an entry of 0 bytes of a writer that does not sync. deltalake takes it for a commit of nothing,
and the position in it would be gone without a word.

An entry that is cut off at the end of a line is a valid entry. The cut shows only if the entry states its length:
entries of ours end with the position and count the files that they add, and deltalake counts the files that it adds and
removes. In other entries it cannot be seen.

Readers pass over an action that they do not know. In an entry of ours it is one whose name was damaged.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fastkcl.tables import storage
from fastkcl.tables.base import RECOVERY, SinkError, parse_json
from fastkcl.tables.delta.snapshot import OURS, checked_metadata, checked_protocol
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store

__all__ = [
    "ASIDE",
    "KEPT",
    "LAST_CHECKPOINT",
    "LOG",
    "LOST",
    "MOST_BYTES",
    "LogFiles",
    "checkpoint_version",
    "entry",
    "entry_key",
    "fault",
    "files_named",
    "gaps",
    "last_checkpoint",
    "log_damage",
    "log_folder",
    "newest_checkpoint",
    "version_named",
    "versions",
    "whole_checkpoint",
    "whole_checkpoints",
]

ASIDE = "_fastkcl_checkpoints"
"""Folder of a table, where checkpoints are made."""
LAST_CHECKPOINT = "_last_checkpoint"
LOG = "_delta_log"
"""Folder of the log, in a table's."""
MOST_BYTES = 1 << 30
"""Of an entry: one that rewrites a table names all of its files."""
LOST = "its commit is lost"
KEPT = "the newest checkpoint has its commit"
"""What follows from the fault of an entry."""
# deltalake takes no other names for checkpoints, one that somebody has renamed for instance.
_CHECKPOINT = re.compile(
    r"([0-9]{20})\.checkpoint\.(?:parquet|[0-9]{10}\.[0-9]{10}\.parquet|[0-9a-fA-F-]{36}\.(?:parquet|json))", re.ASCII
)
_PART = re.compile(r"[0-9]{20}\.checkpoint\.([0-9]{10})\.([0-9]{10})\.parquet", re.ASCII)
_ENTRY = re.compile(r"([0-9]{20})\.json", re.ASCII)
_NO_JSON: Final = "damaged, its JSON is cut off or overwritten"
# Each must be there; deltalake takes numbers as text, too.
_MEMBERS: Final[Mapping[str, Mapping[str, type | tuple[type, ...]]]] = {
    "add": {
        "path": str,
        "partitionValues": dict,
        "size": (int, float, str),
        "modificationTime": (int, float, str),
        "dataChange": bool,
    },
    "remove": {"path": (str, int, float), "dataChange": bool},
    "txn": {"appId": str, "version": int},
    "metaData": {"format": dict},
    "protocol": {},
    "commitInfo": {},
}
_ACTIONS: Final = frozenset((*_MEMBERS, "cdc", "domainMetadata", "checkpointMetadata", "sidecar"))
"""Of all versions of the protocol."""
_CHECKS: Final = {"metaData": checked_metadata, "protocol": checked_protocol}
_ADD: Final = b'{"add":'
# In commitInfo's operationMetrics of deltalake, by operation.
_COUNTS = {
    _ADD: ("num_added_files", "numFilesAdded", "num_target_files_added"),
    b'{"remove":': ("num_removed_files", "numFilesRemoved", "num_target_files_removed"),
}
_CHANGES: Final = b'{"cdc":'
"""A file of the change data feed. deltalake counts these among the files that it adds, but not for an UPDATE."""


def log_folder(root: Path) -> Path:
    """Where a table's log is."""
    return root / LOG


def entry_key(version: int) -> str:
    """A version's entry, from the table's folder on."""
    return f"{LOG}/{version:020d}.json"


def entry(log: Path, version: int) -> Path:
    """A version's entry."""
    return log / f"{version:020d}.json"


def versions(names: Sequence[str]) -> list[int]:
    """Of the entries among a log's names, in order."""
    return [int(match[1]) for name in names if (match := _ENTRY.fullmatch(name))]


def gaps(first: int, there: Sequence[int]) -> list[int]:
    """The first missing version of each gap in a log that begins at `first`.

    Args:
        first: version.
        there: versions, in order; the name of the last one may have any 20 digits.
    """
    before = [first - 1, *there]
    return [version + 1 for version, after in zip(before, there, strict=False) if after > version + 1]


def newest_checkpoint(log: Path, names: Sequence[str]) -> tuple[int, list[str]]:
    """The newest checkpoint's version and the names of its files, of the names that a log has; -1 if there is none.

    A file of 0 bytes does not count, as for deltalake, nor a checkpoint without all of its parts. Only regular files
    count.
    """
    there = []
    for name in names:
        if _CHECKPOINT.fullmatch(name):
            with suppress(SinkError):
                status = storage.file_status(log / name)
                if status is not None and status.st_size:
                    there.append(name)
    return whole_checkpoint(there)


def whole_checkpoint(names: Sequence[str]) -> tuple[int, list[str]]:
    """As `newest_checkpoint`, of the names of files that are not empty."""
    version, wholes = whole_checkpoints(names)
    return version, wholes[0] if wholes else []


def whole_checkpoints(names: Sequence[str]) -> tuple[int, list[list[str]]]:
    """The newest version with a whole checkpoint, and the files of each whole one of that version.

    A reader takes any of them. Parts without the others belong to none.
    """
    found: dict[int, list[str]] = {}
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            found.setdefault(int(match[1]), []).append(name)
    for version in sorted(found, reverse=True):
        if wholes := _wholes(found[version]):
            return version, wholes
    return -1, []


def checkpoint_version(name: str) -> int:
    """The version of the checkpoint that a file belongs to by its name; -1 for a file of another kind."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else -1


def _wholes(names: Sequence[str]) -> list[list[str]]:
    """The whole checkpoints among the files of a version: first those of one file, then those in parts."""
    parts: dict[int, dict[int, str]] = {}
    alone: list[list[str]] = []
    for name in sorted(names, key=lambda name: (not name.endswith(".checkpoint.parquet"), name)):
        if match := _PART.fullmatch(name):
            parts.setdefault(int(match[2]), {})[int(match[1])] = name
        else:
            alone.append([name])
    several = [
        [there[number] for number in range(1, count + 1)]
        for count, there in parts.items()
        if 0 < count <= len(there) and all(number in there for number in range(1, count + 1))
    ]
    return [*alone, *several]


def last_checkpoint(log: Path) -> int:
    """The version of the checkpoint that `_last_checkpoint` names; -1 if it names none."""
    try:
        return version_named(storage.read(log / LAST_CHECKPOINT))
    except SinkError:
        return -1


def version_named(text: bytes | None) -> int:
    """The version of the checkpoint that the content of `_last_checkpoint` names; -1 if it names none."""
    try:
        version = parse_json(text or b"")["version"]
    except (ValueError, KeyError, TypeError):
        return -1
    return version if type(version) is int and version >= 0 else -1


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of a log at one time."""

    url: str
    """Of the log."""
    names: Sequence[str]
    """All names, in order."""
    sizes: Mapping[str, int]
    """Bytes, of the regular files."""
    others: Mapping[str, str]
    """The errors of objects with names of entries and checkpoints that are not files: deltalake would read a FIFO for
    ever, and take other things for nothing."""

    @classmethod
    def of(cls, store: Store) -> LogFiles:
        """As a table has them now."""
        url = f"{store.url}/{LOG}"
        if not isinstance(store, PosixStore):
            sizes = {each.key.rpartition("/")[2]: each.size for each in store.files(LOG)}
            return cls(url, list(sizes), sizes, {})
        log = log_folder(store.folder)
        names, sizes, others = storage.names(log), {}, {}
        for name in names:
            try:
                if name == LAST_CHECKPOINT:
                    storage.read(log / name)  # to see that it is not too large
                if (status := storage.file_status(log / name)) is not None:
                    sizes[name] = status.st_size
            except SinkError as error:
                if _ENTRY.fullmatch(name) or _CHECKPOINT.fullmatch(name) or name == LAST_CHECKPOINT:
                    others[name] = str(error).removesuffix(f"; {RECOVERY}")
        return cls(url, names, sizes, others)

    @property
    def checkpoint(self) -> int:
        """The version of the newest checkpoint; -1 without one."""
        return whole_checkpoint(self.with_content)[0]

    @property
    def with_content(self) -> list[str]:
        """Files that are not empty."""
        return [name for name, size in self.sizes.items() if size]

    def missing_entries(self) -> list[str]:
        """The faults of entries that are missing after the newest checkpoint."""
        first = self.checkpoint + 1
        there = [version for version in versions(self.names) if version >= first]
        return [f"{self.url}/{version:020d}.json: missing, and there are later ones" for version in gaps(first, there)]


def files_named(text: bytes) -> Iterator[str]:
    """The files of the checkpoint that the content of `_last_checkpoint` names, which names a version."""
    told = parse_json(text)
    name, parts = f"{told['version']:020d}.checkpoint", told.get("parts")
    match told:
        case {"v2Checkpoint": {"path": str(path)}} if _CHECKPOINT.fullmatch(path):
            yield path
        case _ if type(parts) is int and parts > 0:
            for number in range(1, parts + 1):
                yield f"{name}.{number:010d}.{parts:010d}.parquet"
        case _:
            yield f"{name}.parquet"


def fault(text: bytes) -> str | None:
    """What is wrong with an entry's content; None for a sound one."""
    if not text:
        return "damaged, 0 bytes"
    if not text.startswith(b"{") or not text.rstrip().endswith(b"}") or b"\0" in text:
        return _NO_JSON
    ours, has_action = _Ours(), False
    for number, line in enumerate(io.BytesIO(text), 1):  # one at a time: an entry can have a gigabyte
        if not line.strip():
            continue
        try:
            action = parse_json(line)
        except ValueError:
            action = None
        if not isinstance(action, dict):
            return f"{_NO_JSON} (line {number})"
        if why := _fault_of_action(action):
            return f"damaged, {why} (line {number})"
        ours.take(number, action)
        has_action = has_action or bool(action)
    if not has_action:
        return "damaged, it has no action"
    if why := _lack(text):
        return f"damaged, cut off at the end of a line ({why})"
    if why := ours.fault:
        return f"damaged, {why}"
    return None


@dataclass(slots=True)
class _Ours:
    """An entry's actions, as far as an entry of ours is checked by them."""

    _is_ours: bool = False
    _unknown: str | None = None
    _there: int = 0
    _wanted: int = 0

    def take(self, number: int, action: Mapping[str, Any]) -> None:
        """Add the action of a line, whose members have been checked."""
        information, transaction = (action.get(kind) or {} for kind in ("commitInfo", "txn"))
        writer, told = information.get("engineInfo"), information.get("fastkcl")
        self._is_ours |= isinstance(writer, str) and writer.startswith("fastkcl:")
        self._is_ours |= transaction.get("appId", "").startswith(OURS)
        if self._unknown is None and (unknown := [name for name in action if name not in _ACTIONS]):
            self._unknown = f"it has the unknown action {unknown[0][:40]!r} (line {number})"
        self._there += action.get("add") is not None
        for each in told if isinstance(told, list) else [told]:
            if isinstance(each, dict) and type(count := each.get("files")) is int:
                self._wanted += count

    @property
    def fault(self) -> str | None:
        """The action of an unknown name, or the number of files that it has lost; None for an entry of others."""
        if not self._is_ours:
            return None
        lost = f"it names {self._there} of {self._wanted} files" if self._there < self._wanted else None
        return self._unknown or lost


def _fault_of_action(action: dict[str, Any]) -> str | None:
    """Which member a line of an entry lacks, for readers and for writers."""
    for kind, members in _MEMBERS.items():
        if (found := action.get(kind)) is None:
            continue
        if not isinstance(found, dict):
            return f"its {kind} is no object"
        for name, types in members.items():
            if not isinstance(found.get(name), types):
                return f"its {kind} has no {name}"
        try:
            _CHECKS.get(kind, dict)(found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return f"its {kind}: {error!r}"
    return None


def _lack(text: bytes) -> str | None:
    """The part that an entry lacks by its own content."""
    lines = text.rstrip().split(b"\n")
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


def log_damage(store: Store) -> list[str]:
    """The faults of the entries after the newest checkpoint.

    Also objects that are not files, with the name of any entry or checkpoint.
    """
    files = LogFiles.of(store)
    checkpoint, damage = files.checkpoint, [*files.others.values(), *files.missing_entries()]
    for version in versions(files.names):
        if version > checkpoint and f"{version:020d}.json" not in files.others:
            text = store.read(entry_key(version), MOST_BYTES)
            if text is not None and (why := fault(text)):
                damage.append(f"{store.url}/{entry_key(version)}: {why}: {LOST}")
    return damage
