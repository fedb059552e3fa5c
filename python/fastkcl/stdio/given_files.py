"""Reads files that a user has named: bounded, and without waiting for ever for a pipe that nobody writes to."""

from __future__ import annotations

import errno
import os
import select
import stat

__all__ = ["PATIENCE", "read_given"]

PATIENCE = 5.0
"""Seconds for which a pipe may have nothing."""
_PART = 65_536


def read_given(path: str | os.PathLike[str], most: int, *, patience: float | None = None) -> bytes:
    """A file's content, or that of a pipe: a shell gives one for ``<(command)``.

    Args:
        path: of the file.
        most: bytes that it may have.
        patience: seconds for which a pipe may have nothing; `PATIENCE` if None.

    Raises:
        OSError: it cannot be read, has more bytes (EFBIG), or nobody writes to it (ETIMEDOUT).
    """
    patience = PATIENCE if patience is None else patience
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        data = bytearray()
        while True:
            if is_pipe and not select.select([descriptor], [], [], patience)[0]:
                raise OSError(
                    errno.ETIMEDOUT, f"a pipe to which nobody has written for {patience:g} s", os.fspath(path)
                )
            part = os.read(descriptor, _PART)
            if not part:
                return bytes(data)
            data += part
            if len(data) > most:
                raise OSError(errno.EFBIG, f"it has more than {most} bytes", os.fspath(path))
    finally:
        os.close(descriptor)
