"""A standard error that drops output that its reader does not take, instead of blocking the writer.

A parent that starts a worker with a pipe for standard error and never reads it stops the worker at some print: a full
pipe blocks. `drop_when_full` drops output that does not fit, and reports the amount as soon as there is room again.

Rules:
- Only a pipe or a socket is changed; a file, a terminal and /dev/null never block for long. The protocol's own pipe
  (``2>&1`` before the start) is left alone: dropped bytes would be messages there.
- The descriptor itself stops blocking, also for C libraries and for subprocesses that inherit it: they see EAGAIN.
- `sys.stdout` is changed too where it leads to the same pipe, as it does once a protocol has taken fd 1.
- An object with the earlier `sys.stderr` (a handler of logging made before) gets BlockingIOError at a full pipe.
"""

from __future__ import annotations

import io
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, TextIO

    from _typeshed import ReadableBuffer


class DroppingWriter(io.RawIOBase):
    """Writes to a descriptor that does not block; bytes that it does not take are dropped and counted.

    Args:
        fd: the descriptor, which does not block (`os.set_blocking`). It is not closed.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.dropped = 0
        """Bytes that were dropped and not yet reported."""

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def isatty(self) -> bool:
        """Never: a terminal is not changed."""
        return False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write the bytes that fit.

        Returns:
            The number of bytes given: dropped ones count as written.

        Raises:
            OSError: write failed for another reason than a full pipe; BrokenPipeError where nobody can read.
        """
        view = memoryview(data).cast("B")
        if self.dropped:
            told = f"fastkcl: {self.dropped} bytes of standard error were dropped: its reader had left the pipe full\n"
            if self._put(memoryview(told.encode())) < len(told):
                self.dropped += len(view)
                return len(view)
            self.dropped = 0
        self.dropped += len(view) - self._put(view)
        return len(view)

    def _put(self, view: memoryview) -> int:
        """Write until all is written or the pipe is full; how much was written."""
        done = 0
        while done < len(view):
            try:
                done += os.write(self._fd, view[done:])
            except BlockingIOError:
                break
        return done


def drop_when_full(protocol_fd: int) -> bool:
    """Let writes to standard error drop bytes that do not fit, from now on, for the whole process.

    Args:
        protocol_fd: the protocol's output, which must continue to wait.

    Returns:
        Whether there was something to change: fd 2 is a separate pipe or socket.
    """
    try:
        mode = os.fstat(2).st_mode
    except OSError:  # closed
        return False
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) or os.path.sameopenfile(2, protocol_fd):
        return False
    os.set_blocking(2, False)
    sys.stderr = _text_over(2, sys.stderr)
    if os.path.sameopenfile(1, 2):
        sys.stdout = _text_over(1, sys.stdout)
    return True


def _text_over(fd: int, before: TextIO | None) -> TextIO:
    if before is not None and not before.closed:  # user code may have put anything there
        before.flush()
    encoding = getattr(before, "encoding", None) or "utf-8"
    # write_through hands each text to `write` as it is; the stubs know no raw stream below text, which -u has as well.
    raw: BinaryIO = DroppingWriter(fd)  # type: ignore[assignment]
    return io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=True, write_through=True)
