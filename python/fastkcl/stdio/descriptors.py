"""The two descriptors of a protocol, private to this process.

    before            after `take()`
    fd 0  daemon ──▶   fd 0  /dev/null          a user's input() sees the end of input
    fd 1  ──▶ daemon   fd 1  a copy of fd 2     print, C libraries and subprocesses land on standard error
                       fd n  daemon ──▶         close-on-exec: no subprocess inherits them
                       fd m  ──▶ daemon         closed in a forked child

A forked worker that outlives us and still held fd m would keep the daemon waiting for the end of a child that is
gone (it drains our output before it waits for the process). A fork that runs no exec is seen by
`os.register_at_fork`; one made by C code without Python's knowledge is not.

fd 0 and fd 1 are never given back: prints while the interpreter ends do not belong in the pipe either.
Workers that were forked *before* `take()` still hold the daemon's pipe; start them afterwards.
"""

from __future__ import annotations

import os
import sys

from fastkcl._core import write_all

_open: list[Descriptors] = []
_taken = False
_fork_hook_registered = False


LOST = (
    "this program has closed the descriptors that its standard input and output were moved to, as"
    " os.closerange(3, ...) does; nothing is read or answered any more. Close only what the program has opened itself"
)
"""The message about descriptors that are `lost`."""


class DescriptorsError(Exception):
    """Standard input or output are no pipes of a daemon, or cannot be used as such."""


class Descriptors:
    """A readable and a writable descriptor that belong to one protocol.

    Args:
        read_fd: the input from the daemon.
        write_fd: the output to the daemon.
    """

    __slots__ = ("_files", "_forked", "read_fd", "write_fd")

    def __init__(self, read_fd: int, write_fd: int) -> None:
        global _fork_hook_registered
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._files = file_of(read_fd), file_of(write_fd)
        self._forked = False
        _open.append(self)
        if not _fork_hook_registered:
            os.register_at_fork(after_in_child=_close_in_forked_child)
            _fork_hook_registered = True

    @classmethod
    def take(cls) -> Descriptors:
        """Move fd 0 and fd 1 away, and put /dev/null and standard error in their place.

        Raises:
            DescriptorsError: they are closed, standard input is a terminal, or the system is not POSIX.
            RuntimeError: they have been taken before.
        """
        global _taken
        if _taken:
            raise RuntimeError(
                "an earlier run of this process took standard input and output; one process serves one daemon, once"
            )
        if os.name != "posix":
            raise DescriptorsError(
                f"a daemon's pipes need a POSIX system, and this one is {sys.platform}; run the program on Linux or"
                " macOS. Decoding, Arrow and fastkcl.kinesis work here"
            )
        for fd, name in ((0, "input"), (1, "output")):
            try:
                os.fstat(fd)
            except OSError as error:
                raise DescriptorsError(f"standard {name} is closed; a daemon has to start this program") from error
        if os.isatty(0):
            raise DescriptorsError(
                "standard input is a terminal; a daemon starts this program and talks to it over pipes."
                " To try it by hand: fastkcl replay --profile clickstream -- python YOUR_PROGRAM.py"
                " (a stitch: with --protocol processv1 instead of the profile)"
            )
        null = os.open(os.devnull, os.O_RDWR)
        if null == 2:  # fd 2 was closed and is the lowest free number: keep it, so that no pipe of ours becomes fd 2
            os.set_inheritable(2, True)
        descriptors = cls(os.dup(0), os.dup(1))
        os.dup2(null, 0)
        os.dup2(2, 1)
        if null != 2:
            os.close(null)
        _taken = True
        _print_line_by_line()
        return descriptors

    @property
    def forked(self) -> bool:
        """Whether this process is a forked child of the one that owns the descriptors."""
        return self._forked

    @property
    def lost(self) -> bool:
        """Whether somebody else has closed one of them; its number may stand for another file by now."""
        files = file_of(self.read_fd), file_of(self.write_fd)
        return files != self._files and self.read_fd >= 0  # another thread's close() takes the numbers away first

    def read(self, size: int) -> bytes:
        """At most `size` bytes of the present input; none at the end.

        Raises:
            OSError: read failed; EBADF where the descriptors are `lost`.
        """
        if file_of(self.read_fd) != self._files[0]:
            raise _lost()
        return os.read(self.read_fd, size)

    def write(self, data: bytes) -> None:
        """Write all of `data`.

        Raises:
            OSError: write failed; BrokenPipeError where the daemon has gone, EBADF where the descriptors are `lost`.
        """
        if file_of(self.write_fd) != self._files[1]:
            raise _lost()
        write_all(self.write_fd, data)

    def close(self) -> None:
        """Close both; the daemon sees the end of our output. Harmless when done before."""
        if self in _open:
            _open.remove(self)
        fds = self.read_fd, self.write_fd
        self.read_fd = self.write_fd = -1
        for fd, file in zip(fds, self._files, strict=True):
            close_if_still(fd, file)


def _lost() -> OSError:
    import errno

    return OSError(errno.EBADF, LOST)


def file_of(fd: int) -> tuple[int, int] | None:
    """The file of a descriptor: numbers that another file does not have; None where it is closed."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def close_if_still(fd: int, file: tuple[int, int] | None) -> None:
    """Close a descriptor of ours, unless somebody else has; its number may stand for a file of his."""
    if file is not None and file_of(fd) == file:
        os.close(fd)


def _close_in_forked_child() -> None:
    while _open:
        descriptors = _open.pop()
        descriptors._forked = True
        descriptors.close()


def _print_line_by_line() -> None:
    """Let `print` show at once; on a pipe Python holds output back, and a killed child would lose it."""
    try:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # also flushes, now to standard error
    except (AttributeError, TypeError, ValueError):
        return  # user code may have put anything there, closed it, or taken its buffer away
