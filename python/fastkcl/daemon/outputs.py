"""The lines of a process that logs on standard output, and copies other lines to standard error once they are logged.

Each output has a pipe of its own, so lines are whole however long they are: in one pipe they would come in pieces, one
within the other. `lines` gives the two in their order: what standard output had when a piece of standard error came is
given first.
"""

from __future__ import annotations

import array
import fcntl
import os
import selectors
import termios
from collections.abc import Iterator
from typing import Final

__all__ = ["LONGEST", "lines"]

LONGEST: Final = 4 << 20
"""Bytes of a line; what is longer is not given."""
_PIECE: Final = 64 << 10


def lines(log: int, errors: int) -> Iterator[str]:
    """The lines of both, without their ends, until both are closed.

    Args:
        log: descriptor of a pipe: the standard output.
        errors: of the standard error.
    """
    outputs = {log: _Output(log), errors: _Output(errors)}
    with selectors.DefaultSelector() as selector:
        for descriptor in outputs:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = {key.fd for key, _ in selector.select()}
            late = outputs[errors].read(_PIECE) if errors in ready else []
            if log in selector.get_map() and (log in ready or late):
                yield from outputs[log].read(max(_PIECE, _waiting(log)) if log in ready else _waiting(log))
            yield from late
            for descriptor in ready:
                if outputs[descriptor].is_closed:
                    selector.unregister(descriptor)


def _waiting(descriptor: int) -> int:
    """Bytes that a pipe has."""
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


class _Output:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pieces: list[bytes] = []
        self._length = 0
        self.is_closed = False

    def read(self, count: int) -> list[str]:
        """The lines that end within the next bytes, at most so many."""
        if not count:
            return []
        read = os.read(self._descriptor, count)
        self.is_closed = not read
        *ended, rest = read.split(b"\n") if read else [b"", b""]
        found = []
        for piece in ended:
            self._add(piece)
            found += self._take()
        self._add(rest)
        return found

    def _add(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length <= LONGEST:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def _take(self) -> list[str]:
        """The line that has ended; as Java, it ends at a carriage return, too."""
        line, is_whole = b"".join(self._pieces), self._length <= LONGEST
        self._pieces.clear()
        self._length = 0
        if not is_whole or (self.is_closed and not line):
            return []
        return line.decode("utf-8", "backslashreplace").removesuffix("\r").split("\r")
