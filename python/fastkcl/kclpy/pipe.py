"""The process's own standard input and output, when the drop-in talks to a daemon over them.

amazon_kclpy reads lines from a text file and writes lines to another. Where these are the real standard input and
output, the Rust reader takes over; nobody can tell but by the clock:

- What a program has read ahead of us comes first: text that stands in the input file's buffer is not lost.
- A checkpoint from another thread reads its own answer, as it does with the original: one reads at a time.
- Signals do what Python's defaults do, or the program's own handlers, at once: a wait for input sees them through a
  wake-up descriptor.

One thing differs on purpose: fd 1 becomes standard error for everybody else, so that a print cannot end up inside of
a message, and neither descriptor is inherited by subprocesses or forked workers.
"""

from __future__ import annotations

import io
import os
import sys
from _signal import set_wakeup_fd  # type: ignore[import-not-found]  # signal itself is slow to import
from _thread import allocate_lock

from fastkcl._core import Reader, write_all
from fastkcl.stdio import reports
from fastkcl.stdio.descriptors import LOST, Descriptors, DescriptorsError, close_if_still, file_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from fastkcl._core import Message


class Pipe:
    """A daemon's messages and what is written to it, on private descriptors."""

    __slots__ = ("_descriptors", "_reader", "_reading", "_wakeup")

    def __init__(self, descriptors: Descriptors, begun: bytes) -> None:
        self._descriptors = descriptors
        self._wakeup = _WakeUp()
        self._reader = Reader(descriptors.read_fd, wakeup_fd=self._wakeup.fd, begun=begun)
        self._reading = allocate_lock()

    @classmethod
    def take(cls, input_file: Any, output_file: Any) -> Pipe | None:
        """Take the real standard input and output away from these files.

        Returns:
            None where they are other files, or a terminal, or have been taken before.
        """
        if not (_is_file_of(input_file, 0) and _is_file_of(output_file, 1)):
            return None
        try:
            descriptors = Descriptors.take()  # what was printed before and is held back goes to standard error
        except (DescriptorsError, RuntimeError):
            return None
        return cls(descriptors, _read_ahead(input_file))

    def receive(self) -> Message | None:
        """Wait for the next message; None at the end of input.

        Raises:
            DecodeError: an invalid line.
            OSError: reading failed.
            RuntimeError: this process is a forked child.
            SystemExit: the program has closed our descriptors, which is said.
        """
        with self._reading:
            self._check()
            return self._reader.read()

    def write(self, text: str) -> None:
        """Write all of a text.

        Raises:
            OSError: writing failed; BrokenPipeError where the daemon has gone.
            RuntimeError: this process is a forked child.
            SystemExit: the program has closed our descriptors, which is said.
        """
        self._check()
        self._descriptors.write(text.encode())

    def close(self) -> None:
        """The daemon sees the end of our output."""
        self._descriptors.close()
        self._wakeup.close()

    def _check(self) -> None:
        if self._descriptors.forked:
            raise RuntimeError("a forked child came back into the dialogue of its parent; end it with os._exit")
        if self._descriptors.lost:
            _stop()


class _WakeUp:
    """A descriptor that is readable when a signal has arrived, so that none is missed just before a wait.

    There is none in a thread other than the main one, where no signal is handled, and none where the program has set
    one of its own.
    """

    __slots__ = ("_ends", "_file")

    def __init__(self) -> None:
        self._ends: tuple[int, int] | None = os.pipe()
        self._file = file_of(self._ends[0])  # both ends of a pipe are one file
        for fd in self._ends:
            os.set_blocking(fd, False)
        try:
            before = set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)
        except ValueError:
            before = -1
            self._close_ends()
        if before != -1:
            set_wakeup_fd(before)
            self._close_ends()

    @property
    def fd(self) -> int | None:
        return None if self._ends is None else self._ends[0]

    def close(self) -> None:
        """Leave what the program has set meanwhile."""
        if self._ends is None:
            return
        now = set_wakeup_fd(-1)
        if now != self._ends[1]:
            try:
                set_wakeup_fd(now)
            except OSError:  # it is closed
                set_wakeup_fd(-1)
        self._close_ends()

    def _close_ends(self) -> None:
        if self._ends is not None:
            for fd in self._ends:
                close_if_still(fd, self._file)
            self._ends = None


class GuardedOutput:
    """Real standard output beside an input that is another file; fd 1 is standard error for all others meanwhile."""

    __slots__ = ("_fd", "_file")

    def __init__(self, output_file: Any) -> None:
        self._fd = os.dup(1)
        self._file = file_of(self._fd)
        os.dup2(2, 1)
        output_file.flush()  # what was printed before

    @classmethod
    def take(cls, output_file: Any) -> GuardedOutput | None:
        """None where it is another file."""
        return cls(output_file) if _is_file_of(output_file, 1) else None

    def write(self, text: str) -> None:
        """Write all of a text.

        Raises:
            OSError: writing failed.
            SystemExit: the program has closed our descriptor, which is said.
        """
        if file_of(self._fd) != self._file:
            _stop()
        write_all(self._fd, text.encode())

    def close(self) -> None:
        """Give fd 1 back."""
        try:
            sys.stdout.flush()  # prints of meanwhile
        except (AttributeError, ValueError):
            pass  # user code may have put anything there, or closed it
        finally:
            if file_of(self._fd) == self._file:
                os.dup2(self._fd, 1)
            close_if_still(self._fd, self._file)


def _stop() -> NoReturn:
    reports.line(f"descriptors_closed: {LOST}")
    raise SystemExit(reports.EXIT_FAILURE)


def _read_ahead(input_file: Any) -> bytes:
    """What stands in the buffers of a text file on fd 0, which is /dev/null now: this cannot wait."""
    characters = []
    try:
        while character := input_file.read(1):
            characters.append(character)
        cut = b""
    except UnicodeDecodeError as error:  # the buffers end inside of a character, the rest of which is in the pipe
        cut = error.object[error.start :]
    return "".join(characters).encode(input_file.encoding, input_file.errors) + cut


def _is_file_of(file: Any, fd: int) -> bool:
    """Whether it is an ordinary text file on that descriptor, down to its bytes.

    What is of a user's own anywhere in it may do anything.
    """
    if type(file) is not io.TextIOWrapper:
        return False
    try:
        buffer = file.buffer
        raw = getattr(buffer, "raw", buffer)  # `python -u` leaves the buffer out
        return (
            type(buffer) in (io.BufferedReader, io.BufferedWriter, io.FileIO)
            and type(raw) is io.FileIO
            and raw.fileno() == fd
            and not any(_is_method(part, name) for part in (file, buffer, raw) for name in vars(part))
        )
    except (OSError, ValueError):
        return False


def _is_method(thing: object, name: str) -> bool:
    """Whether something of a user's own stands where its class has a method: ``sys.stdout.write = ...``."""
    return callable(getattr(type(thing), name, None))
