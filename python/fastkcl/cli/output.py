"""Standard output as commands need it: it fails in one line, with any writer.

click, rich, pyarrow and plain writes each make something else of a full disk or of a reader that has gone: a
traceback, a silent 1, an error at the very end of the process. So the reaction is decided here, below all of them.

    the reader has gone (`| head`)   no message, and 141: a shell's code for a program that SIGPIPE has ended
    any other error                  one line, and 2
    closed from the start (`>&-`)    one line, and 2

A character that the terminal's encoding does not have is written as its escape. So is each control character on its
way to a terminal, and to standard error: keys, payloads, lines of children and file names are from outside, and a
terminal obeys their control characters.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

import click

from fastkcl.masking import without_users
from fastkcl.stdio.reports import printable, shown

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = [
    "OutputError",
    "ReaderGoneError",
    "guard_standard_streams",
    "json_text",
    "output_error",
    "printable",
    "shown",
    "standard_output_of_bytes",
    "without_users",
]

_C1_IN_JSON = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


class OutputError(click.ClickException):
    """A command's output cannot be written."""

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


def json_text(value: object, indent: int | None = None) -> str:
    """Compact JSON, or indented, with characters as they are but for control characters, C1 and DEL too."""
    return json.dumps(value, ensure_ascii=False, indent=indent).translate(_C1_IN_JSON)


class _ShownText(io.TextIOWrapper):
    """A text file that escapes control characters."""

    def write(self, text: str, /) -> int:
        super().write(shown(text))
        return len(text)

    def write_as_it_is(self, text: str, /) -> int:
        """For text whose control characters are ours."""
        return super().write(text)


class _ShownBytes(io.RawIOBase):
    """Bytes that standard output, a terminal, shows as text."""

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        sys.stdout.write(bytes(data).decode("utf-8", "backslashreplace"))
        return memoryview(data).nbytes

    def flush(self) -> None:
        sys.stdout.flush()


def standard_output_of_bytes() -> BinaryIO:
    """Where data from outside goes: standard output as it is, or for a terminal as text without control characters."""
    return cast("BinaryIO", _ShownBytes()) if sys.stdout.isatty() else sys.stdout.buffer


class _StandardOutput(io.FileIO):
    def __init__(self) -> None:
        super().__init__(1, "wb", closefd=False)
        self._failed = False

    def write(self, data: ReadableBuffer, /) -> int:
        if self._failed:  # the rest in buffers, which Python flushes at its end
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True
            raise output_error("standard output", error) from None


def guard_standard_streams() -> None:
    """Put the rules above into `sys.stdout` and `sys.stderr`; a closed standard error becomes one that swallows.

    Raises:
        SystemExit: standard output is closed.
    """
    if sys.stderr is None:
        errors, encoding = cast("BinaryIO", Path(os.devnull).open("wb")), "ascii"  # noqa: SIM115 - for good
    else:
        errors, encoding = sys.stderr.buffer, sys.stderr.encoding
    sys.stderr = _ShownText(errors, encoding=encoding, errors="backslashreplace", line_buffering=True)
    if sys.stdout is None:
        click.echo("Error: standard output is closed", err=True)
        sys.exit(OutputError.exit_code)
    sys.stdout = (_ShownText if sys.stdout.isatty() else io.TextIOWrapper)(
        io.BufferedWriter(_StandardOutput()),
        encoding=sys.stdout.encoding,
        errors="backslashreplace",
        line_buffering=sys.stdout.isatty(),
    )
