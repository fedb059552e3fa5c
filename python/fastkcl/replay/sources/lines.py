"""Files of lines, packed or not."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from pathlib import Path

from fastkcl import _core
from fastkcl.replay.sources.base import SourceError
from fastkcl.stdio.given_files import open_pipe

READ_ERRORS = (OSError, EOFError, zlib.error)
"""The errors of reading `open_lines` for a file that cannot be read, or unpacked."""
_LONGEST_LINE = _core.DEFAULT_MAX_LINE_BYTES
"""The bound of a child. A few kilobytes of ``.gz`` can be a line of any length."""


def open_lines(path: Path, on_wait: Callable[[], None] | None = None) -> BufferedIOBase:
    """Open a file of lines for reading, unpacking ``.gz``.

    Args:
        path: of the file; a pipe is as for `open_pipe`.
        on_wait: as for `open_pipe`.
    """
    if path.is_fifo():
        pipe = open_pipe(path, on_wait)
        return gzip.open(pipe, "rb") if path.suffix == ".gz" else pipe
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def regular_file(path: Path) -> Path:
    """The path of a source that is read more than once, or by Arrow.

    Raises:
        SourceError: no regular file is there.
    """
    if not path.is_file():
        raise SourceError(f"{path}: {'no regular file' if path.exists() else 'no such file'}")
    return path


def bounded_lines(lines: BufferedIOBase) -> Iterator[bytes]:
    """Lines, cut at LF only, one in memory at a time.

    Raises:
        OSError: a line of more than 256 MiB, or one of `READ_ERRORS`.
    """
    while line := lines.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise OSError(f"a line of more than {_LONGEST_LINE} bytes: no lines of a daemon, or of a child")
        yield line


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file that cannot be read.

    Raises:
        SourceError: it cannot.
    """
    try:
        yield
    except READ_ERRORS as error:
        raise SourceError(f"{path}: {(isinstance(error, OSError) and error.strerror) or error}") from None
