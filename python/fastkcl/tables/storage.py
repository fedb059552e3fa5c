"""The file system calls that change tables: a sink makes no others, except in scratch folders.

    one step each      write_new, link, rename, unlink, remove, make, sync_file, sync_folder
    looks              status, file_status, names, read, are_equal
    made of those      create, replace, make_folder

A power cut may undo everything that was not synced: a file's content until `sync_file`, a name in a folder (made, moved
or removed) until `sync_folder`. So files that others rely on are written under another name, synced, and then named:
`create` and `replace` leave either nothing or the complete file.

A step that fails raises OSError. For `status`, `names`, `read` and `unlink` a missing file is not a failure. Only
ENOENT means that it is missing: an I/O error never does, nor does a link that leads nowhere where a file or the names
of a folder are expected. There only files are opened: a FIFO would block, and a device has no end. A file, or a link in
a circle, in the place of a folder is a `SinkError`, which is not tried again.

Rules: POSIX file systems. Called as ``storage.link(…)``, so that a test can put its own disk under all of it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Final, TypeAlias

from fastkcl import folder_sync
from fastkcl.portable import sync
from fastkcl.tables.base import RECOVERY, SinkError

__all__ = [
    "ASIDE_NAME",
    "InTheWayError",
    "Kept",
    "are_equal",
    "create",
    "file_status",
    "link",
    "make",
    "make_folder",
    "names",
    "read",
    "remove",
    "rename",
    "replace",
    "status",
    "sync_file",
    "sync_folder",
    "unlink",
    "write_new",
]

ASIDE_NAME: Final = re.compile(r"\.[0-9a-f]{16}")
"""Of a file that `create` or `replace` has not finished."""
_MOST_BYTES = 64 << 20
"""Of a file that is read: a commit has a few hundred bytes, and a hundred for each of its files."""
_PIECE = 1 << 20
"""Bytes that are compared at once."""
Kept: TypeAlias = "dict[Path, tuple[int, ...]]"
"""Folders whose names are there for good, and which they were: see `_entry`."""
_NOWHERE = "a link that leads nowhere"
_CIRCLE = "a link that leads in a circle"
_MOVE = f"move it away, and restore the folder from a copy; {RECOVERY}"


class InTheWayError(SinkError):
    """Something else is in the place of a file or a folder."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.path = path
        """Where it is."""


def write_new(path: Path, body: bytes | memoryview) -> None:
    """Make a file; its content and its name are not kept yet.

    Raises:
        FileExistsError: there is one.
    """
    with path.open("xb") as file:
        file.write(body)


def link(source: Path, target: Path) -> None:
    """Give a file a second name.

    Raises:
        FileExistsError: the name is taken.
    """
    os.link(source, target)


def rename(source: Path, target: Path) -> None:
    """Move a file in the place of another, if there is one."""
    source.rename(target)


def unlink(path: Path) -> None:
    """Remove a name; absent is fine."""
    with suppress(FileNotFoundError):
        path.unlink()


def remove(folder: Path) -> None:
    """Remove a folder with its content, as far as that can be done. A link to a folder is left."""
    rmtree(folder, ignore_errors=True)


def make(folder: Path) -> None:
    """Make a folder.

    Raises:
        FileExistsError: there is one.
    """
    folder.mkdir()


def sync_file(path: Path) -> None:
    """Keep a file's content, whatever happens."""
    _sync(path)


def sync_folder(folder: Path) -> None:
    """Keep the names that a folder has now."""
    _sync(folder)


def status(path: Path) -> os.stat_result | None:
    """The status of a path, None if nothing is there.

    Raises:
        SinkError: it is a link in a circle; or that or a file is in the place of a folder above it.
    """
    try:
        return path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        _check_folders(path, error)
        raise


def names(folder: Path) -> list[str]:
    """The names in a folder, in order; none if it is not there.

    Raises:
        SinkError: it is a file, or a link that leads nowhere; or a file or a link in a circle is in the place of a
            folder above it.
    """
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - there can be very many
    except FileNotFoundError:
        if folder.is_symlink():
            raise InTheWayError(f"{folder}: {_NOWHERE} is in the place of a folder: {_MOVE}", folder) from None
        return []
    except OSError as error:
        _check_folders(folder, error)
        raise


def _check_folders(path: Path, error: OSError) -> None:
    """See what the error of a path was for.

    Raises:
        SinkError: its folder, or one above that, is something else, or a link in a circle is in its place.
    """
    if error.errno not in (errno.ENOTDIR, errno.ELOOP):
        return
    for each in (*reversed(path.parents), path):
        try:
            if stat.S_ISDIR(each.stat().st_mode):
                continue
            what = "a file"
        except OSError as failure:
            if failure.errno != errno.ELOOP:
                return
            what = _CIRCLE
        raise InTheWayError(f"{each}: {what} is in the place of a folder: {_MOVE}", each) from error


def file_status(path: Path) -> os.stat_result | None:
    """The status of a file, None if nothing is there.

    Raises:
        SinkError: something else is there.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        if not path.is_symlink():
            return None
        what = _NOWHERE
    except OSError as error:
        if error.errno != errno.ELOOP or not path.is_symlink():
            _check_folders(path, error)
            raise
        what = _CIRCLE
    else:
        if stat.S_ISREG(found.st_mode):
            return found
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "a FIFO, socket or device"
    told = f"{path}: {what} is in the place of a file: restore the file from a copy; {RECOVERY}"
    raise InTheWayError(told, path)


def read(path: Path, most: int = _MOST_BYTES) -> bytes | None:
    """A file's content, None if nothing is there.

    Raises:
        SinkError: there is something else than a file, or it has more than `most` bytes.
    """
    found = file_status(path)
    if found is None:
        return None
    if found.st_size > most:
        raise SinkError(
            f"{path}: damaged, {found.st_size:,} bytes, and at most {most:,} are read: restore the file from a copy;"
            f" {RECOVERY}"
        )
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def are_equal(one: Path, other: Path) -> bool:
    """Whether two files have the same bytes.

    Raises:
        FileNotFoundError: one is not there.
    """
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        while piece := first.read(_PIECE):
            if second.read(_PIECE) != piece:
                return False
        return not second.read(1)


def create(path: Path, body: bytes | memoryview, *, aside: Path | None = None) -> bool:
    """Make a file, whole and kept.

    Args:
        path: of the file.
        body: its content.
        aside: folder that it is written in before, on the same file system; that of `path` if None.

    Returns:
        False if there is one already.

    Raises:
        SinkError: there is something else in its place.
        OSError: it may be there or not.
    """
    temporary = _written_aside(path if aside is None else aside / path.name, body)
    try:
        try:
            link(temporary, path)
        except FileExistsError:
            there = file_status(path)
            if there is None or not os.path.samestat(there, temporary.stat()):
                return False  # else a network file system has done it and lost the answer
    finally:
        unlink(temporary)
    sync_folder(path.parent)
    return True


def replace(path: Path, body: bytes) -> None:
    """Make a file, whole and kept, in the place of another if there is one."""
    temporary = _written_aside(path, body)
    try:
        rename(temporary, path)
    except BaseException:
        unlink(temporary)
        raise
    sync_folder(path.parent)


def make_folder(folder: Path, kept: Kept | None = None) -> None:
    """Make a folder with those above it, and keep their names, also of existing ones.

    Who has made them may have died before they were kept. Up to where the file system begins; folders above the table
    that this user may not sync are somebody else's.

    Args:
        folder: to make.
        kept: folders that this call has made before, for the same caller. A name is not synced again while the folder
            is the same, and the one above it has the same names.

    Raises:
        SinkError: something else is in the place of one.
    """
    parent = folder.parent
    known = None if kept is None else kept.get(folder)
    if known is None and os.path.ismount(folder):
        return
    make_folder(parent, kept)
    if known is not None and (known == _entry(folder) or os.path.ismount(folder)):
        return
    if status(folder) is None:
        with suppress(FileExistsError):
            make(folder)
    found = status(folder)
    if folder.is_symlink() if found is None else not stat.S_ISDIR(found.st_mode):
        raise SinkError(f"{folder}: a file, or a link that leads nowhere, is in the place of a folder: {RECOVERY}")
    entry = _entry(folder)  # as it is before the sync: what comes later is synced the next time
    try:
        sync_folder(parent)
    except OSError as error:
        if not folder_sync.is_needless(error):
            raise
    if kept is not None and entry is not None:
        kept[folder] = entry


def _entry(folder: Path) -> tuple[int, ...] | None:
    """What a folder that is no link is known by: its number, and when the folder above it was last changed.

    A folder that is made again can get the number of the removed one, in a folder that has changed then. Copies put
    back the time of names (mtime), but not this one.
    """
    try:
        found, above = folder.lstat(), folder.parent.stat()
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        return None
    return found.st_dev, found.st_ino, above.st_dev, above.st_ino, above.st_ctime_ns


def _written_aside(path: Path, body: bytes | memoryview) -> Path:
    temporary = path.with_name(f".{secrets.token_hex(8)}")
    try:
        write_new(temporary, body)
        sync_file(temporary)
    except BaseException:
        unlink(temporary)
        raise
    return temporary


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
