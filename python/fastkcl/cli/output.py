"""Standard output as commands need it: one that fails in one line, whoever writes.

click, rich, pyarrow and plain writes each make something else of a full disk or of a reader that has gone: a
traceback, a silent 1, an error at the very end of the process. So what happens then is decided below all of them.

    the reader has gone (`| head`)   not a word, and 141: what a shell says of a program that SIGPIPE has ended
    any other error                  one line, and 2
    closed from the start (`>&-`)    one line, and 2

A character that the terminal's encoding does not have is written as its escape.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["OutputError", "ReaderGoneError", "guard_standard_streams", "output_error", "printable"]


class OutputError(click.ClickException):
    """What a command makes cannot be written."""

    exit_code = 2


class ReaderGoneError(OutputError):
    """Nobody reads it any more; not a word about that."""

    exit_code = 141

    def show(self, file: IO[Any] | None = None) -> None:
        """Say nothing."""
        del file


def output_error(name: str, error: OSError) -> OutputError:
    """Why `name` could not be written."""
    kind = ReaderGoneError if error.errno == errno.EPIPE else OutputError
    return kind(f"{name}: {error.strerror or error}")


def printable(text: str) -> str:
    """Text without control characters: each is written as its escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class _StandardOutput(io.FileIO):
    def __init__(self) -> None:
        super().__init__(1, "wb", closefd=False)
        self._failed = False

    def write(self, data: ReadableBuffer, /) -> int:
        if self._failed:  # what is still in buffers, which Python flushes at its end
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True
            raise output_error("standard output", error) from None


def guard_standard_streams() -> None:
    """Put the rules above into `sys.stdout`; a closed standard error becomes one that swallows.

    Raises:
        SystemExit: standard output is closed.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
    if sys.stdout is None:
        click.echo("Error: standard output is closed", err=True)
        sys.exit(OutputError.exit_code)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_StandardOutput()),
        encoding=sys.stdout.encoding,
        errors="backslashreplace",
        line_buffering=sys.stdout.isatty(),
    )
