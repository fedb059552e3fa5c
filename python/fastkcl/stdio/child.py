"""A child process as its parent holds it: three pipes, its own process group, and an end that is waited for.

    parent's thread ── write ──▶ stdin │       │ stdout ──▶ reader thread ──▶ on_stdout(data)
                                       │ child │
                                       │       │ stderr ──▶ pump thread ──▶ on_stderr(line)

The parent writes and reads at the same time: a child that writes much while it reads must not block both. A child's
standard error is always drained.

Rules: a child has its own process group, so that its own children can be ended with it. Every wait has a bound, and
`abandon` ends it at once, also where a process that has left the group holds a pipe. `ChildProcess` never raises for
actions of the child: for a broken pipe `write` returns False.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Mapping, Sequence

from fastkcl import _core
from fastkcl.stdio.lines import LineSplitter

__all__ = ["ChildProcess"]

_CHUNK = 64 * 1024
_WRITE_SIZE = 1024 * 1024
_LAST_WAIT = 10.0  # seconds for a process to go after SIGKILL, which the system may put off
_TURN_MILLIS = 250  # how long a thread that waits for output does not look whether anybody still wants it


class ChildProcess:
    """A running child process.

    Args:
        command: program and arguments; no shell.
        env: its whole environment.
        on_stdout: called with its output, as it comes, from another thread; b"" at its end. What it returns says
            whether more is wanted.
        on_stderr: called with each line of its standard error, from another thread.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        on_stdout: Callable[[bytes], bool],
        on_stderr: Callable[[bytes], None],
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=dict(env),
            process_group=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        self._stderr = self._process.stderr
        # Only so can a write be given up that nobody reads; the child's end of the pipe does not know of it.
        os.set_blocking(self._stdin.fileno(), False)
        self._abandoned = threading.Event()
        self._discarded = False
        self._stdin_lock = threading.Lock()  # for the file of its number: `abandon` runs in other threads
        self._on_stdout = on_stdout
        self._on_stderr = on_stderr
        self._reader = threading.Thread(target=self._read_stdout, name=f"stdout-{self.pid}", daemon=True)
        self._pump = threading.Thread(target=self._read_stderr, name=f"stderr-{self.pid}", daemon=True)
        try:
            self._reader.start()
            self._pump.start()
        except RuntimeError as error:  # too many threads
            self._discarded = True
            self._kill()
            self._process.wait()
            raise OSError(errno.EAGAIN, str(error)) from error

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""
        return self._process.pid

    def _read_stdout(self) -> None:
        fd = self._stdout.fileno()
        while (data := self._read(fd)) and self._on_stdout(data):
            pass
        self._on_stdout(b"")

    def _read_stderr(self) -> None:
        splitter = LineSplitter()
        fd = self._stderr.fileno()
        while data := self._read(fd):
            for line in splitter.feed(data):
                self._on_stderr(line)
        last = splitter.finish()
        if last is not None:
            self._on_stderr(last)

    def _read(self, fd: int) -> bytes:
        """The present input; nothing at the end, or when the child is discarded: others may hold the other end."""
        ready = select.poll()
        ready.register(fd, select.POLLIN)
        while not self._discarded:
            if ready.poll(_TURN_MILLIS):
                return os.read(fd, _CHUNK)
        return b""

    def write(self, data: bytes | memoryview, *, write_size: int | None = None, pause: float = 0.0) -> bool:
        """Write all of `data` to its standard input.

        Args:
            data: to write.
            write_size: bytes of one write(2), as many as a pipe can hold without it.
            pause: seconds before each write.

        Returns:
            False if the child has closed its input, or was abandoned.
        """
        rest = memoryview(data)
        size = write_size or _WRITE_SIZE
        step = size if pause else max(len(rest), 1)
        try:
            for start in range(0, len(rest), step):
                if pause and self._abandoned.wait(pause):
                    return False
                _core.write_all(self._stdin.fileno(), rest[start : start + step], write_size=size)
        except OSError as error:
            if not self._abandoned.is_set() and not isinstance(error, BrokenPipeError | ConnectionResetError):
                raise
            return False
        return True

    def unread(self) -> int:
        """Bytes that were written and that nobody has read yet; 0 where the system does not show them."""
        if self._abandoned.is_set():
            return 0
        try:
            count = fcntl.ioctl(self._stdin.fileno(), termios.FIONREAD, bytes(4))
        except (OSError, ValueError):
            return 0
        return int.from_bytes(count, sys.byteorder)

    def close_stdin(self) -> None:
        """End of its input. Harmless when called twice."""
        with self._stdin_lock, contextlib.suppress(OSError):
            self._stdin.close()

    def wait(self, timeout: float) -> int | None:
        """Its exit code, negative for a signal; None if it is still there after `timeout` seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process itself (not its group). Harmless when it has ended."""
        self._process.send_signal(number)

    def discard(self) -> None:
        """End whatever is left of it, also processes that it started and that hold its output open."""
        self.close_stdin()
        if self._process.poll() is None or self._reader.is_alive() or self._pump.is_alive():
            self._kill()
        self.wait(_LAST_WAIT)
        # Its output before its end is still read; a process that left the group may hold the other ends for ever.
        self._reader.join(timeout=1.0)
        self._pump.join(timeout=1.0)
        self._discarded = True
        self._reader.join()
        self._pump.join()
        self._stdout.close()
        self._stderr.close()

    def kill_group(self) -> None:
        """SIGKILL to the process and all of its group, from any thread."""
        if self._process.poll() is None:
            self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.kill()  # it may have moved to another group

    def abandon(self) -> None:
        """End it, and every wait for it, from any thread: writing gives False, and its output has ended."""
        self._abandoned.set()
        self.kill_group()
        with self._stdin_lock:
            if not self._stdin.closed:
                # A process outside of the group may hold the other end, and not read. So a pipe takes the place of
                # ours that cannot be written to; it takes no descriptor more, of which there may be none.
                os.dup2(self._stdout.fileno(), self._stdin.fileno(), inheritable=False)
