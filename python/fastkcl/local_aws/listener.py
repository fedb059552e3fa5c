"""A listening socket that waits when the process runs out of descriptors.

asyncio accepts as many connections as may wait, in one go. Out of descriptors it logs each of them with a traceback,
and plans a retry for each, which does the same a second later. Here the first failure stops the round, so there is one
retry a second; one line marks its beginning, and one its end.

Rules: some descriptors are kept back, so that open requests can be finished. Connections wait in the kernel's
queue meanwhile.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import sys
import time
from typing import Any

__all__ = ["Listener", "is_out_of_resources"]

_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_KEPT_BACK = 16  # descriptors
_PAUSE = 0.5  # seconds; less than asyncio's, or its retry would find the pause
_QUIET = 5.0  # seconds without a failure before it counts as over


def is_out_of_resources(error: object) -> bool:
    """Whether it means that the process, or the machine, has no more descriptors or memory for sockets."""
    return isinstance(error, OSError) and error.errno in _OUT_OF_RESOURCES


class Listener(socket.socket):
    """Accepts connections while there are descriptors."""

    _paused_until = 0.0
    _failed_at: float | None = None

    @classmethod
    def of(cls, listening: socket.socket) -> Listener:
        """The same socket; `listening` has nothing any more."""
        # asyncio sets TCP_NODELAY for the protocol TCP alone, and many a socket is made without its number. Without the
        # option the body of an answer waits for the acknowledgement of its headers: 40 ms.
        return cls(listening.family, listening.type, socket.IPPROTO_TCP, fileno=listening.detach())

    def accept(self) -> tuple[socket.socket, Any]:
        """Take a connection.

        Raises:
            BlockingIOError: there is none, or the pause after a failure is not over.
            OSError: there are no descriptors left, or no memory.
        """
        now = time.monotonic()
        if now < self._paused_until:
            raise BlockingIOError
        try:
            self._check_descriptors()
            accepted = super().accept()
        except OSError as error:
            if is_out_of_resources(error):
                self._paused_until = now + _PAUSE
                if self._failed_at is None:
                    _log(f"{os.strerror(error.errno or 0)}: new connections wait")
                self._failed_at = now
            raise
        if self._failed_at is not None and now - self._failed_at > _QUIET:
            _log("connections are taken again")
            self._failed_at = None
        return accepted

    def _check_descriptors(self) -> None:
        """Raise the system's error, a few descriptors earlier."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(self.fileno())  # the lowest one
        os.close(free)
        if soft != resource.RLIM_INFINITY and free >= soft - _KEPT_BACK:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _log(what: str) -> None:
    sys.stderr.write(f"local-aws: {what}\n")
    sys.stderr.flush()
