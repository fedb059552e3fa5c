"""A file from which the state comes back: every request that changed something, with its time.

The services are deterministic: the same requests at the same times give the same streams, sequence numbers included,
and the same tables. So only the requests have to be stored. A request is written before it is answered, and its effects
survive any end of the process (not of the machine: nothing is synced).

The file is a CBOR sequence (RFC 8742): the options first, since the state depends on them, then one array a request.
A last one that was cut short was never answered, and is dropped.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cbor2

__all__ = ["Journal", "JournalError"]

_FORMAT = "fastkcl local-aws 1"


class JournalError(Exception):
    """The file cannot be used; the message has the reason."""


class Journal:
    """The file, open for one process at a time.

    Args:
        path: made if it is not there.
        options: the state depends on them beside the requests.

    Raises:
        JournalError: another process has it, or it is not such a file, or was written with other options.
    """

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        self._path = path
        try:
            # Closed at the end of the process.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise JournalError(f"{path}: no regular file, so no state can be kept in it")
        self._file = os.fdopen(descriptor, "r+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JournalError(f"{path}: another process has it") from None
        head = {"format": _FORMAT, "options": dict(options)}
        if not os.fstat(self._file.fileno()).st_size:
            self.append(head)
            self._file.seek(0)
        self._check(self._next(), head)

    def _check(self, found: object, head: dict[str, Any]) -> None:
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            raise JournalError(f"{self._path}: no state of fastkcl local-aws")
        for name, value in head["options"].items():
            if found["options"].get(name) != value:
                raise JournalError(
                    f"{self._path}: its state was made with {name} {found['options'].get(name)!r}, not {value!r}: give "
                    "the same options, or another file"
                )

    def _next(self) -> object:
        """The next item, None at the end, or at an item that is not whole."""
        start = self._file.tell()
        try:
            return cbor2.load(self._file)
        except (cbor2.CBORDecodeError, ValueError):
            self._file.seek(start)
            return None

    def entries(self) -> Iterator[list[Any]]:
        """Its items, from the beginning; an item that was not written whole is cut off at the end."""
        while isinstance(entry := self._next(), list):
            yield entry
        self._file.truncate()

    def append(self, entry: object) -> None:
        """Write a request."""
        self._file.write(cbor2.dumps(entry))
        self._file.flush()
