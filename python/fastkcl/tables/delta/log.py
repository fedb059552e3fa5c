"""The log of a Delta table as files: their names, which are whole checkpoints, and which are missing or damaged."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fastkcl.tables import storage
from fastkcl.tables.base import RECOVERY, SinkError, parse_json
from fastkcl.tables.delta.entry_content import fault
from fastkcl.tables.folders import local_folder
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
    "delta_folder",
    "entry",
    "entry_key",
    "files_named",
    "gaps",
    "is_cleaned_up",
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
KEPT = "a checkpoint has its commit if it was made before the damage"
"""What follows from the fault of an entry."""
# deltalake takes no other names for checkpoints, one that somebody has renamed for instance.
_CHECKPOINT = re.compile(
    r"([0-9]{20})\.checkpoint\.(?:parquet|[0-9]{10}\.[0-9]{10}\.parquet|[0-9a-fA-F-]{36}\.(?:parquet|json))", re.ASCII
)
_PART = re.compile(r"[0-9]{20}\.checkpoint\.([0-9]{10})\.([0-9]{10})\.parquet", re.ASCII)
_NOT_IN_PATHS = re.compile(r"[%\\\[\]^|\x00-\x1f\x7f]")
_ENTRY = re.compile(r"([0-9]{20})\.json", re.ASCII)


def delta_folder(path: str | os.PathLike[str], writer: str) -> Path:
    """The absolute path of a Delta table's folder; `writer` is for errors.

    Raises:
        ValueError: a URL of something else, or deltalake takes the path for another one, or for none.
    """
    root = local_folder(path, writer)
    if LOG in root.parts:
        raise ValueError(f"{str(root)!r}: within the log of a table: choose another folder")
    try:
        root.as_posix().encode()
    except UnicodeEncodeError:
        raise ValueError(f"{str(root)!r}: its path is no UTF-8, which deltalake needs: choose another folder") from None
    if found := _NOT_IN_PATHS.search(root.as_posix()):
        char = found[0] if found[0].isprintable() else ascii(found[0])
        why = "would take the % for an escape" if char == "%" else f"opens no table with {char} in its path"
        raise ValueError(f"{str(root)!r}: deltalake {why}: choose a path without")
    return root


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


def is_cleaned_up(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether a log was cleaned up between two looks at its names, so that a reader may have missed files."""
    return not set(before) <= set(after) or whole_checkpoint(before) != whole_checkpoint(after)


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
    ever, and take other things for nothing. Of links in a circle with any name: it looks at each, also in folders."""

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
        for path in _links_in_circles(log):
            told = f"{path}: a link that leads in a circle, for which deltalake does not read the log: move it away"
            others.setdefault(path.relative_to(log).as_posix(), told)
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


def _links_in_circles(folder: Path) -> Iterator[Path]:
    """Links in a folder that lead in a circle, and in the folders in it; none if it is not there."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for each in entries:
            if each.is_symlink():
                try:
                    Path(each).stat()
                except OSError as error:
                    if error.errno == errno.ELOOP:
                        yield Path(each)
            elif each.is_dir(follow_symlinks=False):
                yield from _links_in_circles(Path(each))


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
