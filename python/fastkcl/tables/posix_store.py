"""Files of a table on a POSIX file system: written under another name, synced, then linked; `storage` has the steps.

A dead writer's unfinished files are in ``_fastkcl/writing``, and are removed when they are older than an hour. Only
regular files are, with names that writers give there; neither this folder nor the one above it may be a link.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from fastkcl.tables import storage
from fastkcl.tables.base import RECOVERY, SinkError
from fastkcl.tables.store import Entry, Found, is_visible

__all__ = ["PosixStore"]

_ASIDE: Final = "_fastkcl/writing"
_DEAD_AFTER: Final = 3600.0  # seconds; nobody writes a file for so long


class PosixStore:
    """A folder.

    Args:
        root: the table's; it is made when something is written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._kept: storage.Kept = {}

    @property
    def url(self) -> str:
        """The folder."""
        return str(self._root)

    @property
    def identity(self) -> str:
        """See `Store.identity`."""
        return os.path.realpath(self._root)

    @property
    def folder(self) -> Path:
        """The folder."""
        return self._root

    def create(self, key: str, body: bytes | memoryview) -> bool:
        """See `Store.create`."""
        self.check_aside()
        aside = self._root / _ASIDE
        storage.make_folder(aside, self._kept)
        path = self._root / key
        storage.make_folder(path.parent, self._kept)
        return storage.create(path, body, aside=aside)

    def claim(self, key: str, text: str) -> str:
        """See `Store.claim`: a folder with one empty file, which the text names, moved into place."""
        target = self._root / key
        storage.make_folder(target.parent, self._kept)
        temporary = target.with_name(f".{secrets.token_hex(8)}")
        storage.make(temporary)
        try:
            storage.write_new(temporary / text, b"")
            storage.sync_folder(temporary)
            try:
                storage.rename(temporary, target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        finally:
            storage.remove(temporary)
        storage.sync_folder(target.parent)
        there = self.claimed(key)
        if there is None:
            raise SinkError(f"{target}: it was there, and is gone: the table was removed meanwhile; start again")
        return there

    def claimed(self, key: str) -> str | None:
        """See `Store.claimed`."""
        names = [name for name in storage.names(self._root / key) if not name.startswith(".")]  # .DS_Store
        if len(names) > 1:
            raise SinkError(
                f"{self._root / key}: must have one file, and has {len(names)}: remove this folder. The next error"
                f" says how it is made again with the id that the table's files name; {RECOVERY}"
            )
        return names[0] if names else None

    def replace(self, key: str, body: bytes) -> None:
        """See `Store.replace`."""
        path = self._root / key
        storage.make_folder(path.parent, self._kept)
        storage.replace(path, body)

    def remove(self, key: str) -> None:
        """See `Store.remove`."""
        storage.unlink(self._root / key)

    def read(self, key: str, most: int) -> bytes | None:
        """See `Store.read`."""
        return storage.read(self._root / key, most)

    def open(self, key: str) -> BinaryIO | None:
        """See `Store.open`."""
        path = self._root / key
        if storage.file_status(path) is None:
            return None
        try:
            return path.open("rb")
        except FileNotFoundError:
            return None

    def tail(self, key: str, count: int) -> bytes | None:
        """See `Store.tail`."""
        path = self._root / key
        if storage.file_status(path) is None:
            return None
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - count))
                return file.read(count)
        except FileNotFoundError:
            return None

    def sizes(self, keys: Sequence[str]) -> list[int | None]:
        """See `Store.sizes`."""
        found: list[int | None] = []
        for key in keys:
            try:
                status = storage.file_status(self._root / key)
            except SinkError:
                status = None
            found.append(None if status is None else status.st_size)
        return found

    def files(self, folder: str, after: str = "") -> list[Entry]:
        """See `Store.files`."""
        path = self._root / folder
        found = []
        for name in storage.names(path):
            if name <= after:
                continue
            status = _status(path / name)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                found.append(Entry(f"{folder}/{name}", status.st_size))
        return found

    def folders(self, folder: str) -> list[str]:
        """See `Store.folders`."""
        path = self._root / folder
        found = [(name, _status(path / name)) for name in storage.names(path)]
        return [name for name, status in found if status is not None and stat.S_ISDIR(status.st_mode)]

    def walk(self) -> list[Found]:
        """See `Store.walk`."""
        found = []

        def fail(error: OSError) -> None:
            raise error

        for folder, folders, files in os.walk(self._root, onerror=fail):
            folders[:] = [name for name in folders if name[0] not in "_."]
            links = [name for name in folders if Path(folder, name).is_symlink()]
            for name in (*files, *links):
                path = Path(folder, name)
                key = path.relative_to(self._root).as_posix()
                if not is_visible(key):
                    continue
                status = _status(path)
                if status is None and path.is_symlink():  # leads nowhere, or to itself, and readers see it
                    status = path.lstat()
                if status is not None:
                    found.append(Found(key, status.st_size, status.st_mtime))
        return sorted(found)

    def obstacles(self) -> list[str]:
        """What is in the place of a folder that a writer needs for its files: the table's, or one above or in it."""
        aside = self._root / _ASIDE
        for folder in (*reversed(aside.parents), aside):
            try:
                status = storage.status(folder)
            except SinkError as error:
                return [str(error)]
            if folder.is_symlink() if status is None else not stat.S_ISDIR(status.st_mode):
                return [f"{folder}: something else is in the place of a folder: move it away; writers make it again"]
        try:
            self.check_aside()
        except SinkError as error:
            return [str(error)]
        return []

    def check_aside(self) -> None:
        """See that unfinished files are where their names say: writers remove files there.

        Raises:
            SinkError: a folder of ours leads elsewhere.
        """
        aside = self._root / _ASIDE
        for folder in (aside.parent, aside):
            if folder.is_symlink():
                storage.names(folder)  # a link that leads nowhere has another remedy
                raise SinkError(
                    f"{folder}: leads elsewhere, and writers remove files there: make it a folder; {RECOVERY}"
                )

    def dead(self) -> list[Found]:
        """Unfinished files; some may still be in the process of being written.

        Raises:
            SinkError: their folder leads elsewhere.
        """
        return [Found(f"{_ASIDE}/{name}", each.st_size, each.st_mtime) for name, each in self._unfinished()]

    def settle(self, key: str, *others: str) -> None:
        """See `Store.settle`."""
        path = self._root / key
        storage.make_folder(path.parent, self._kept)
        for each in (key, *others):
            storage.sync_file(self._root / each)
        storage.sync_folder(path.parent)

    def prove(self) -> None:
        """A link is exclusive; files that the dead have left are removed here.

        Raises:
            SinkError: their folder leads elsewhere.
        """
        for name, status in self._unfinished():
            if time.time() - status.st_mtime > _DEAD_AFTER:
                storage.unlink(self._root / _ASIDE / name)

    def _unfinished(self) -> Iterator[tuple[str, os.stat_result]]:
        """The files that writers have put aside; what else is there is nobody's business."""
        self.check_aside()
        aside = self._root / _ASIDE
        for name in storage.names(aside):
            if storage.ASIDE_NAME.fullmatch(name):
                with suppress(FileNotFoundError):
                    status = (aside / name).lstat()
                    if stat.S_ISREG(status.st_mode):
                        yield name, status


def _status(path: Path) -> os.stat_result | None:
    """The status of what a folder has; None also for a link in a circle."""
    try:
        return storage.status(path)
    except storage.InTheWayError as error:
        if error.path != path:
            raise
        return None
