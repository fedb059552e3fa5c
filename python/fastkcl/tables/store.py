"""The storage of a table's files: a few verbs, with one implementation for POSIX and one for object stores.

    create   True: this call has made the file. False: the file exists, perhaps our own whose answer was lost, or
             another request for it is running: look. An exception: the outcome is unknown
    claim    an exclusive creation, with a text instead of a body; returns the text that is there afterwards
    mark     an empty file whose name has all information; it may exist already
    replace  a complete file, in the place of another one if there is one
    remove   absent is fine
    read     a small file, or None if it is absent
    open     a file to read parts of, or None if it is absent
    tail     the end of a file, or None if it is absent
    sizes    how large files are, None for each that is absent
    files    the files below a folder, in order, complete
    folders  the folders in a folder, in order, complete
    walk     all files except those that no reader looks at
    settle   makes a file that was read durable; on POSIX its writer may have died before the sync
    prove    refuses a store that ignores conditional writes, before anything relies on them

Rules: keys are relative to the table, with ``/`` between parts, in characters that no reader decodes. Each call ends
within a minute or two. Its `StoreError` names the call, the object and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, NamedTuple, Protocol

__all__ = ["DeniedError", "Entry", "Found", "Store", "StoreError", "is_visible"]


class StoreError(OSError):
    """A store refuses, or does not answer. `str()` has the call, what it was for, and the remedy; no secret."""


class DeniedError(StoreError):
    """These credentials have no right to the call."""


class Entry(NamedTuple):
    """A file."""

    key: str
    """From the table on."""
    size: int
    """Bytes."""


def is_visible(key: str) -> bool:
    """Whether readers look at a file: no part of its key begins with ``_`` or ``.``."""
    return not any(part[:1] in ("_", ".") for part in key.split("/"))


class Found(NamedTuple):
    """A file, and when it was made."""

    key: str
    """From the table on."""
    size: int
    """Bytes."""
    modified: float
    """Seconds since the epoch, by the storage's clock."""


class Store(Protocol):
    """Files of one table. Errors are an OSError, of which `StoreError` is one."""

    @property
    def url(self) -> str:
        """Of the table, for people."""

    @property
    def identity(self) -> str:
        """The same for all stores of one table, on one host."""

    def create(self, key: str, body: bytes | memoryview) -> bool:
        """Make a file, whole and kept, unless there is one.

        Returns:
            True if this call has made it. False: look whether there is one, and whose.
        """

    def claim(self, key: str, text: str) -> str:
        """Have a text be there, unless another one is.

        Returns:
            The text that is there.
        """

    def claimed(self, key: str) -> str | None:
        """The text that `claim` has left, None if there is none."""

    def replace(self, key: str, body: bytes) -> None:
        """Make a file, whole and kept, in the place of another if there is one."""

    def remove(self, key: str) -> None:
        """Remove a file, if there is one."""

    def read(self, key: str, most: int) -> bytes | None:
        """A file's content; None if there is none.

        Raises:
            SinkError: it has more bytes than `most`, or is not a file.
        """

    def open(self, key: str) -> BinaryIO | None:
        """A file, to read parts of; None if there is none. To be closed."""

    def tail(self, key: str, count: int) -> bytes | None:
        """The last bytes of a file, at most so many; None if there is none."""

    def sizes(self, keys: Sequence[str]) -> list[int | None]:
        """The bytes of each file; None where a file is missing, or something else is in its place."""

    def files(self, folder: str, after: str = "") -> list[Entry]:
        """The files in a folder itself, by their keys in the order of their bytes; none if it is not there.

        Args:
            folder: from the table on.
            after: only those whose names come after this one.
        """

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder, in the order of their bytes; "" is the table's."""

    def walk(self) -> list[Found]:
        """All files but those whose name, or that of a folder above them, begins with ``_`` or ``.``; in order.

        A link to a folder is a file here: readers follow it, and this does not.
        """

    def settle(self, key: str, *others: str) -> None:
        """Have files or a claim that were seen be there for good, with their folder."""

    def prove(self) -> None:
        """See that exclusive creation is exclusive.

        Raises:
            SinkError: it is not.
        """
