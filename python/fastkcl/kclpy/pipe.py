"""The process's own standard input and output, when the drop-in talks to a daemon over them.

amazon_kclpy reads lines from a text file and writes lines to another. Where these are the real standard input and
output, the Rust reader takes over. Only the speed differs:

- Text that a program has read ahead of us comes first: the input file's buffer is not lost.
- A checkpoint from another thread reads its own answer, as it does with the original: one reads at a time.
- Signals do what Python's defaults do, or the program's own handlers, at once: a wait for input sees them through a
  wake-up descriptor.

- A run that an exception has left can be begun again: the pipe is kept, with all that has been read.

One thing differs on purpose: fd 1 becomes standard error for everybody else, so that a print cannot end up inside of
a message, and neither descriptor is inherited by subprocesses or forked workers.
"""

from __future__ import annotations

import io
import os
import sys
from _signal import set_wakeup_fd  # type: ignore[import-not-found]  # signal itself is slow to import
from _thread import allocate_lock

from fastkcl._core import Initialize, Reader, write_all
from fastkcl.processing.errors import MOST_REFUSALS
from fastkcl.stdio import reports
from fastkcl.stdio.descriptors import LOST, Descriptors, DescriptorsError, close_if_still, file_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, NoReturn

    from fastkcl._core import Message

FORKED = "a forked child came back into the dialogue of its parent; end it with os._exit"
_refusals = 0
_broken_lines: BaseException | None = None
_lines_of: tuple[int, tuple[int, int] | None] | None = (
    None  # the process that reads lines of standard input, which file
)


class Pipe:
    """A daemon's messages and our lines to it, on private descriptors."""

    __slots__ = ("_broken", "_descriptors", "_is_left", "_reader", "_reading", "_wakeup", "shard")

    _of_process: ClassVar[Pipe | None] = None
    """The one that has standard input and output, until their end."""

    def __init__(self, descriptors: Descriptors, begun: bytes) -> None:
        self._descriptors = descriptors
        self._wakeup = _WakeUp()
        self._reader = Reader(descriptors.read_fd, wakeup_fd=self._wakeup.fd, begun=begun)
        self._reading = allocate_lock()
        self._broken: BaseException | None = None
        self._is_left = False
        self.shard: Initialize | None = None
        """The daemon's dialect, maybe of an earlier run."""

    @classmethod
    def take(cls, input_file: Any, output_file: Any) -> Pipe:
        """Take the real standard input and output away from these files, or go on where an exception has left a run.

        Raises:
            DescriptorsError: they are other files, or a terminal.
            RuntimeError: they have been taken before.
            SystemExit: nothing can go on there; the reason was written to standard error.
        """
        for name, file, fd in (("input", input_file, 0), ("output", output_file, 1)):
            if not _is_file_of(file, fd):
                raise DescriptorsError(f"the {name} file is not this process's own standard {name}")
        pipe = cls._in_place()
        if pipe is None:
            descriptors = Descriptors.take()  # earlier prints that are held back go to standard error
            pipe = cls._of_process = cls(descriptors, _read_ahead(input_file))
            return pipe
        if pipe._broken is not None:
            end_broken(pipe._broken)
        if pipe._descriptors.forked:
            end_broken(RuntimeError(FORKED))
        pipe._check_descriptors()
        pipe._is_left = False
        return pipe

    @classmethod
    def refuse_others(cls, input_file: Any, why: str) -> None:
        """Refuse to read standard input in another way where an exception has left a run: nothing would come.

        Raises:
            SystemExit: so it is; the reason is on standard error.
        """
        if cls._in_place() is not None and _is_file_of(input_file, 0):
            end_broken(RuntimeError(f"an earlier run reads standard input in Rust, and this one cannot: {why}"))

    @classmethod
    def _in_place(cls) -> Pipe | None:
        """The process's pipe; None if the program has replaced standard input by another file."""
        null = os.stat(os.devnull)
        return cls._of_process if file_of(0) == (null.st_dev, null.st_ino) else None

    def leave(self, broken: BaseException | None) -> None:
        """Keep all for the next run: an exception has left this one.

        Args:
            broken: why nothing can go on; then the daemon sees the end of our output, and `take` ends the program.
        """
        self._broken = broken
        if broken is not None:
            self.close()
            return
        self._is_left = True
        # Without it nothing outlives the main thread; a program's own module of that name starts no thread.
        register_atexit = getattr(sys.modules.get("threading"), "_register_atexit", None)
        if register_atexit is not None:
            try:
                register_atexit(self._close_if_left)
            except RuntimeError:  # the main thread is over
                self.close()

    def _close_if_left(self) -> None:
        """The main thread is over: threads that go on must not keep the daemon waiting."""
        if self._is_left:
            self.close()

    def receive(self) -> Message | None:
        """Wait for the next message; None at the end of input.

        Raises:
            DecodeError: an invalid line.
            OSError: reading failed.
            RuntimeError: this process is a forked child.
            SystemExit: the program has closed our descriptors; the reason is on standard error.
        """
        with self._reading:
            self._check_fork()
            try:
                self._wakeup.watch()
                message = self._reader.read()
            except OSError:
                self._check_descriptors()
                raise
            finally:
                self._wakeup.unwatch()
        if isinstance(message, Initialize):
            self.shard = message
        return message

    def write(self, text: str) -> None:
        """Write all of a text.

        Raises:
            OSError: writing failed; BrokenPipeError where the daemon has gone.
            RuntimeError: this process is a forked child.
            SystemExit: the program has closed our descriptors; the reason is on standard error.
        """
        self._check_fork()
        try:
            self._descriptors.write(text.encode())
        except OSError:
            self._check_descriptors()
            raise

    def close(self) -> None:
        """The daemon sees the end of our output."""
        self._descriptors.close()
        self._wakeup.close()
        if self._broken is None:
            Pipe._of_process = None

    def _check_fork(self) -> None:
        if self._descriptors.forked:
            raise RuntimeError(FORKED)

    def _check_descriptors(self) -> None:
        if self._descriptors.lost:
            _stop(f"descriptors_closed: {LOST}")


class _WakeUp:
    """A descriptor that is readable when a signal has arrived, so that none is missed just before a wait.

    It never is for a thread other than the main one, where no signal is handled, or where the program has set one of
    its own. It is watched during a wait only: user code that sets one, as an event loop does, finds none of ours.
    """

    __slots__ = ("_file", "_write_end", "fd")

    def __init__(self) -> None:
        self.fd, self._write_end = os.pipe()
        self._file = file_of(self.fd)  # both ends of a pipe are one file
        for fd in (self.fd, self._write_end):
            os.set_blocking(fd, False)

    def watch(self) -> None:
        """From now on, unless the program has set one of its own."""
        try:
            before = set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
            if before != -1:
                set_wakeup_fd(before)
        except (ValueError, OSError):
            pass  # this is another thread, or somebody has closed ours

    def unwatch(self) -> None:
        """Stop it; handlers that the program has set in the meantime stay."""
        try:
            now = set_wakeup_fd(-1)
            if now != self._write_end:
                set_wakeup_fd(now)
        except (ValueError, OSError):
            pass  # this is another thread, or somebody has closed the program's

    def close(self) -> None:
        """Harmless when done before."""
        if self._file is None:
            return
        self.unwatch()
        for fd in (self.fd, self._write_end):
            close_if_still(fd, self._file)
        self._file = None


class GuardedOutput:
    """Real standard output beside an input that is another file; fd 1 is standard error for all others meanwhile."""

    __slots__ = ("_fd", "_file", "_process")

    def __init__(self, output_file: Any) -> None:
        self._process = os.getpid()
        self._fd = os.dup(1)
        self._file = file_of(self._fd)
        os.dup2(2, 1)
        output_file.flush()  # earlier prints

    @classmethod
    def take(cls, output_file: Any) -> GuardedOutput | None:
        """None where it is another file."""
        return cls(output_file) if _is_file_of(output_file, 1) else None

    def write(self, text: str) -> None:
        """Write all of a text.

        Raises:
            OSError: writing failed.
            RuntimeError: this process is a forked child.
            SystemExit: the program has closed our descriptor; the reason is on standard error.
        """
        if os.getpid() != self._process:
            raise RuntimeError(FORKED)
        if file_of(self._fd) != self._file:
            _stop(f"descriptors_closed: {LOST}")
        write_all(self._fd, text.encode())

    def close(self) -> None:
        """Give fd 1 back; in a forked child it stays standard error."""
        try:
            sys.stdout.flush()  # prints of meanwhile
        except (AttributeError, ValueError):
            pass  # user code may have put anything there, or closed it
        finally:
            if file_of(self._fd) == self._file and os.getpid() == self._process:
                os.dup2(self._fd, 1)
            close_if_still(self._fd, self._file)


def begin_lines(input_file: Any) -> None:
    """Note that this process reads lines of standard input as text: `refuse_broken_lines` keeps forked children off."""
    global _lines_of
    if _is_on_standard_input(input_file):
        _lines_of = os.getpid(), file_of(0)


def end_lines() -> None:
    """Note the end of input: anybody may have it."""
    global _lines_of
    _lines_of = None


def leave_lines(input_file: Any, broken: BaseException) -> None:
    """Note that nothing can go on where lines of standard input were read as text: `refuse_broken` ends the program."""
    global _broken_lines
    if _is_on_standard_input(input_file):
        _broken_lines = broken


def refuse_broken_lines(input_file: Any) -> None:
    """End a program that goes on to read lines of standard input after `leave_lines`, or that its parent reads.

    Raises:
        SystemExit: so it is; the reason is on standard error.
    """
    if not _is_on_standard_input(input_file):
        return
    if _broken_lines is not None:
        end_broken(_broken_lines)
    if _lines_of is not None and _lines_of[0] != os.getpid() and _lines_of[1] == file_of(0):
        end_broken(RuntimeError(FORKED))


def end_broken(error: BaseException) -> NoReturn:
    """End a program that tries again where nothing can go on; an Exception might be caught for ever.

    So might a SystemExit, in a loop with a bare ``except:``. A daemon's child ends all the same, after some.

    Raises:
        SystemExit: always.
    """
    global _refusals
    if Pipe._of_process is not None or _broken_lines is not None or _lines_of is not None:
        _refusals += 1
        if _refusals > MOST_REFUSALS:
            reports.line("the program tries again and again where nothing can go on; the process ends")
            os._exit(reports.EXIT_FAILURE)
    if isinstance(error, SystemExit):
        raise error
    _stop(f"run() cannot go on: {reports.describe(error)}")


def _stop(what: str) -> NoReturn:
    reports.line(what)
    raise SystemExit(reports.EXIT_FAILURE)


def _read_ahead(input_file: Any) -> bytes:
    """The text in the buffers of a text file on fd 0, which is /dev/null now: this cannot wait."""
    characters = []
    try:
        while character := input_file.read(1):
            characters.append(character)
        cut = b""
    except UnicodeDecodeError as error:  # the buffers end inside of a character, the rest of which is in the pipe
        cut = error.object[error.start :]
    return "".join(characters).encode(input_file.encoding, input_file.errors) + cut


def _is_on_standard_input(file: Any) -> bool:
    """Whether it reads fd 0 in any way; tests have text in memory."""
    try:
        return bool(file.fileno() == 0)
    except (AttributeError, OSError, ValueError):
        return False


def _is_file_of(file: Any, fd: int) -> bool:
    """Whether it is an ordinary text file on that descriptor, down to its bytes.

    A user's own part of it may do anything.
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
    """Whether a user has replaced a method of its class: ``sys.stdout.write = ...``."""
    return callable(getattr(type(thing), name, None))
