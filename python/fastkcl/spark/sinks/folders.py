"""A table's folders on a POSIX file system: names that readers understand, changes that survive a power failure."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from fastkcl import Position
from fastkcl.spark.sinks.base import Shard

__all__ = ["START", "data_folder", "local_folder", "make_folder", "position_text", "quoted", "sync"]

START = "start"
"""Where a shard is of which the table has nothing."""


def local_folder(path: str | os.PathLike[str], sink: str) -> Path:
    """The absolute path of a table's folder.

    Args:
        path: a path, or a URL with the scheme file.
        sink: name of the sink, for the error.

    Raises:
        ValueError: a URL of something else.
    """
    text = os.fspath(path)
    if "://" in text and not text.startswith("file:///"):
        raise ValueError(f"{sink} needs a folder on a POSIX file system, not {text}")
    return Path(text.removeprefix("file://")).absolute()


def data_folder(shard: Shard) -> str:
    """Where a shard's files are, from the table's folder on: partitions as Hive has them."""
    return f"stream={quoted(shard.stream)}/shard={quoted(shard.shard_id)}"


def quoted(name: str) -> str:
    """A name as one folder of a path, which Spark and Arrow read back in partition columns."""
    text = quote(name, safe="")
    return text.replace(".", "%2E") if text in (".", "..") else text


def position_text(position: Position | None) -> str:
    """A position as a part of a file name; without a sub-sequence number it is that of a whole sequence number."""
    if position is None:
        return START
    sub = position.sub_sequence_number
    return position.sequence_number if sub is None else f"{position.sequence_number}.{sub}"


def make_folder(folder: Path) -> None:
    """Make a folder that survives a power failure, with those above it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir()
        sync(folder.parent)


def sync(path: Path) -> None:
    """Have the file system keep a file's content, or a folder's names, whatever happens."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
