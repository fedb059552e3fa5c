"""Input files and output files of a stage.

Each input file is a separate stream: its results go into its own output file, named by the input's stem and the
extension of the output type. An output file gets its name when it is complete, and never replaces an existing one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from fastkcl._core import write_all
from fastkcl.dkb.errors import StageError
from fastkcl.portable import sync

__all__ = ["OutputFile", "input_files", "output_path"]


def input_files(directory: str, names: Sequence[str], extension: str) -> list[Path]:
    """The input files: those named, or all of the extension in the directory, by name.

    Raises:
        StageError: kind ``file``: the directory or one of the files is not there.
    """
    folder = Path(directory)
    if not names:
        if not folder.is_dir():
            raise StageError("file", f"{folder}: no such directory; name one with --input-dir")
        return sorted(path for path in folder.iterdir() if path.suffix == extension and path.is_file())
    paths = [folder / name for name in names]
    for path in paths:
        if path.exists() and not path.is_file():
            raise StageError("file", f"{path}: not a regular file; a stage reads files, or standard input (--source s)")
        if not path.is_file():
            raise StageError("file", f"{path}: no such file; names are relative to --input-dir {folder}")
    return paths


def output_path(directory: str, source: Path | None, extension: str) -> Path:
    """Where the results of an input file go; of a stream, under the seconds since the epoch.

    Args:
        directory: as given: absolute, relative to the working directory if it starts with ./ or ../, else to the input.
        source: the input file, None for a stream.
        extension: of the output type.
    """
    folder = Path(directory)
    if source is None:
        return folder / f"{int(time.time())}{extension}"
    if not folder.is_absolute() and not directory.startswith(("./", "../")):
        folder = source.parent / folder
    return folder / f"{source.stem}{extension}"


class OutputFile:
    """A file that gets its name when it is complete, from the process that has begun it and from no fork of that.

    Raises:
        StageError: kind ``file``: it exists, or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.{os.urandom(8).hex()}.part")
        if path.exists():
            raise self._exists()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._partial.open("xb", buffering=0)  # a fork would write out the content of a buffer
        except OSError as error:
            raise StageError("file", f"{path}: cannot be written: {error.strerror}") from None
        self._process = os.getpid()

    def write(self, data: bytes) -> None:
        """Add to it."""
        write_all(self._file.fileno(), data)

    def finish(self) -> None:
        """Give it its name.

        Raises:
            StageError: kind ``file``: there is one of that name by now.
            OSError: it cannot be written.
        """
        sync(self._file.fileno())
        self._file.close()
        try:
            os.link(self._partial, self._path)  # fails where the name is taken, which rename does not
        except FileExistsError:
            raise self._exists() from None
        finally:
            self._partial.unlink()

    def discard(self) -> None:
        """Leave nothing of it. Harmless when it is finished, and in a forked child."""
        self._file.close()
        if os.getpid() == self._process:
            self._partial.unlink(missing_ok=True)

    def _exists(self) -> StageError:
        return StageError("file", f"{self._path}: exists already; move it away or choose another --output-dir")
