"""The folder of this user's processes on this host: sockets, locks and messages between them.

    $XDG_RUNTIME_DIR/fastkcl, or fastkcl-UID in the folder for temporary files

It is this user's alone (mode 0700), and no link: anybody may make names in a folder for temporary files.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["opened", "runtime_folder"]


def runtime_folder() -> Path:
    """Where it is; it need not be there."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime, "fastkcl")
    return Path(tempfile.gettempdir(), f"fastkcl-{os.getuid()}")


@contextmanager
def opened(path: Path | str, within: int | None = None) -> Iterator[int]:
    """A folder of this user's alone, as a descriptor; it is made if it is not there.

    Args:
        path: of the folder.
        within: descriptor of the folder that `path` is relative to.

    Raises:
        PermissionError: it is another user's, or open to others.
        OSError: it cannot be made, or is not a folder.
    """
    with suppress(FileExistsError):
        os.mkdir(path, 0o700, dir_fd=within)  # noqa: PTH102 - pathlib takes no descriptor
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=within)
    try:
        found = os.fstat(folder)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{path} is not this user's alone (mode 0700): remove it, or set XDG_RUNTIME_DIR")
        yield folder
    finally:
        os.close(folder)
