"""Names in a table's folders, which every reader reads back in the same way, and positions as parts of names.

A reader makes a column from ``stream=…`` by its own rules: Spark reads 007 as a number and URL escapes as Latin-1,
other readers convert dates. So a name is spelled in ASCII letters, in a form that no reader converts:

    clicks-eu.1    itself: it begins with a letter, and has letters, digits, ``_``, ``.`` and ``-``
    007            @007: anything else, and words like nan, true or null, begin with ``@``
    ü              @@C3@BC: other characters are the bytes of their UTF-8, in hexadecimal
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

from fastkcl import Position
from fastkcl.tables.base import Shard

__all__ = [
    "NULL",
    "START",
    "can_exist",
    "check_names",
    "data_folder",
    "local_folder",
    "own_name",
    "parse_position",
    "position_of",
    "position_text",
    "quoted",
    "shard_folders",
    "spelled",
    "unspelled",
]

NULL = "__HIVE_DEFAULT_PARTITION__"
"""How folders spell null; `quoted` leaves a name like this as it is, `spelled` does not."""
START = "start"
"""Where a shard is of which the table has nothing."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/", re.ASCII)  # dbfs:/data would be a folder below the working directory
_FILE_URL = re.compile(r"file:(?:///|/(?!/))")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
_NOT_PLAIN = re.compile(rb"[^A-Za-z0-9_.-]")
_WORDS = {
    *("nan", "inf", "infinity", "true", "false", "null", "none"),
    *("epoch", "now", "today", "tomorrow", "yesterday"),
}
_LONGEST_PART = 255  # bytes
_LONGEST = _LONGEST_PART - len("stream=")  # of a folder's name
_DIGITS = 129  # of a sequence number, which the service has at the most
_QUERY = re.compile(r"[?#].*", re.DOTALL)
_ESCAPE = re.compile(rb"@([0-9A-F]{2})")


def can_exist(name: str) -> bool:
    """Whether a file on a disk can have a name, which may begin with folders."""
    try:
        return "\0" not in name and all(len(part) <= _LONGEST_PART for part in os.fsencode(name).split(b"/"))
    except UnicodeEncodeError:
        return False


def own_name(name: str) -> str:
    """A file's name without its folders, however somebody has spelled it: ``a//x``, ``./x``, ``x/``, ``s3://b/x?y``."""
    return _QUERY.sub("", PurePosixPath(name).name)


def local_folder(path: str | os.PathLike[str], sink: str) -> Path:
    """The absolute path of a table's folder.

    Args:
        path: a path, or a URL with the scheme file: ``file:///data`` or, as Spark writes it, ``file:/data``.
        sink: name of the sink, for the error.

    Raises:
        ValueError: a URL of something else.
    """
    text = os.fspath(path)
    if _URL.match(text) and not _FILE_URL.match(text):
        raise ValueError(f"{sink} needs a folder on a POSIX file system, not {text}")
    start = _FILE_URL.match(text)
    return Path(text if start is None else f"/{text[start.end() :]}").absolute()


def check_names(shard: Shard, sink: str, quoted_columns: Collection[str] = ()) -> None:
    """Check that a shard has names that folders can have; readers could not distinguish an empty name from null.

    Args:
        shard: with the names.
        sink: its name, for the error.
        quoted_columns: the columns by which the table is partitioned, if their folders are `quoted`.

    Raises:
        ValueError: it has not.
    """
    for column, name in (("stream", shard.stream), ("shard", shard.shard_id)):
        if name == NULL and column in quoted_columns:
            raise ValueError(f"{sink}: polars reads the {column} {NULL} as null: a table by {column} cannot have it")
    if not (shard.stream and shard.shard_id):
        raise ValueError(f"{sink} needs the name of a stream and of a shard, not {shard}")
    for name in (shard.stream, shard.shard_id):
        try:
            size = max(len(spelled(name)), len(quoted(name)))
        except UnicodeEncodeError as error:
            raise ValueError(f"{sink}: {ascii(name)[:80]} is no name: half of a pair of surrogates") from error
        if size > _LONGEST:
            raise ValueError(
                f"{sink}: the name {ascii(name)[:80]} has {size} bytes as a folder is spelled, and may have {_LONGEST};"
                " a stream's has 128 at the most"
            )


def spelled(name: str) -> str:
    """A name as the value of a partition."""
    if _PLAIN.fullmatch(name) and name.lower() not in _WORDS:
        return name
    escaped = _NOT_PLAIN.sub(lambda match: b"@%02X" % match[0][0], name.encode())
    return f"@{escaped.decode('ascii')}"


def unspelled(text: str) -> str:
    """The name that `spelled` has spelled, or `quoted`, which never begins with ``@``.

    Raises:
        ValueError: none is spelled so.
    """
    if not text.startswith("@"):
        return unquote(text, errors="strict")
    name = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text[1:].encode()).decode()
    if spelled(name) != text:
        raise ValueError(f"{text}: no spelling of a name")
    return name


def quoted(name: str) -> str:
    """A name as folders of Delta tables spell it, whose log has the name itself; so did all of earlier versions."""
    text = quote(name, safe="")
    return text.replace(".", "%2E") if text in (".", "..") else text


def shard_folders(shard: Shard) -> str:
    """A shard's folders, below one of the table's."""
    return f"{spelled(shard.stream)}/{spelled(shard.shard_id)}"


def data_folder(folders: str) -> str:
    """Where a shard's files are, from the table's folder on: partitions as Hive has them."""
    stream, _, shard_id = folders.partition("/")
    return f"stream={stream}/shard={shard_id}"


def position_text(position: Position | None) -> str:
    """A position as a part of a file name; without a sub-sequence number it is that of a whole sequence number."""
    if position is None:
        return START
    sub = position.sub_sequence_number
    return position.sequence_number if sub is None else f"{position.sequence_number}.{sub}"


def parse_position(text: str) -> Position | None:
    """The position that `position_text` has written.

    Raises:
        ValueError: it has not.
    """
    if text == START:
        return None
    number, dot, sub = text.partition(".")
    try:
        position = position_of([number, int(sub) if dot else None])
    except ValueError:
        raise ValueError(f"{text[:200]}: no position") from None
    if position_text(position) != text:
        raise ValueError(f"{text[:200]}: no position")
    return position


def position_of(value: Any) -> Position:  # noqa: ANN401 - whatever a file says
    """The position that JSON has as a list: a sequence number in digits, and a sub-sequence number or null.

    Raises:
        ValueError: it is none.
    """
    match value:
        case [str(number), None | int() as sub] if type(sub) is not bool and len(number) <= _DIGITS:
            if sub is None or 0 <= sub < 1 << 63:
                return Position(number, sub)
    raise ValueError("no position: a list of a sequence number in digits, and a sub-sequence number or null")
