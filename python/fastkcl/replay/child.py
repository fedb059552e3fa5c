"""A child process as the daemon holds it: three pipes, lines with the time they came, and an end that is waited for.

    player thread ── write ──▶ stdin │       │ stdout ──▶ reader thread ──▶ queue of lines ──▶ player thread
                                     │ child │
                                     │       │ stderr ──▶ pump thread ──▶ relay ──▶ our stderr

The daemon writes a line and reads the child's lines at the same time (two threads in KCL as well): a child that
prints much while it reads must not block both. A child's standard error is always drained, and passed on by one
relay that drops lines, and says so, rather than make a child wait for a terminal that nobody reads.

Rules: a child is a process group of its own, so that what it leaves behind can be ended with it. Every wait has a
bound, and `abandon` ends it at once, also where a process that has left the group holds a pipe. What a child writes
takes bounded memory. `Child` never raises for what the child does: a broken pipe is the False of `write`.
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
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import Full, Queue
from typing import NamedTuple

from fastkcl import _core
from fastkcl.replay.child_lines import LineSplitter, ReplayDialect, read_child_line

__all__ = ["Child", "ChildTimeoutError", "Line", "StderrRelay"]

_CHUNK = 64 * 1024
_WRITE_SIZE = 1024 * 1024
_RELAY_LINES = 10_000
_LINES = 100
_LAST_WAIT = 10.0  # seconds for a process to go after SIGKILL, which the system may put off
_TURN_MILLIS = 250  # how long a thread that waits for output does not look whether anybody still wants it


class ChildTimeoutError(Exception):
    """The child neither wrote a line nor ended its output within the time it had."""


class Line(NamedTuple):
    """A line of a child's standard output, without its end."""

    text: bytes
    at: float
    """When its end was read, on the clock of `time.monotonic`."""
    more: int = 0
    """Lines right after it that were no messages either, and are only counted."""


class _Lines:
    """Lines on their way from the reader to the player, never more than `_LINES`.

    A run of lines that are no messages is one entry, so a child that prints much is not held up while it is being
    written to. Messages wait for room: in the daemon, too, each waits until the one before is dealt with.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: deque[Line] = deque()
        self._in_run = False  # whether the last entry is a run that can grow
        self._ended = False

    def put(self, text: bytes, at: float, *, message: bool) -> bool:
        """Take a line; False if nobody wants any more."""
        with self._changed:
            if self._in_run and not message and self._entries:
                last = self._entries.pop()
                self._entries.append(last._replace(more=last.more + 1))
                return not self._ended
            self._changed.wait_for(lambda: self._ended or len(self._entries) < _LINES)
            if self._ended:
                return False
            self._entries.append(Line(text, at))
            self._in_run = not message
            self._changed.notify_all()
            return True

    def end(self, *, drop: bool = False) -> None:
        """No more lines come; those that wait can still be taken, unless they are dropped."""
        with self._changed:
            self._ended = True
            if drop:
                self._entries.clear()
            self._changed.notify_all()

    def take(self, timeout: float) -> Line | None:
        """The next line, None at the end; raises `ChildTimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended or self._entries, timeout):
                raise ChildTimeoutError
            if not self._entries:
                return None
            self._changed.notify_all()
            return self._entries.popleft()


class StderrRelay:
    """Passes lines of all children on, one at a time, from a thread of its own.

    Args:
        emit: called with (shard id, line without its end); None passes the line to our standard error.
        prefix: whether lines for our standard error start with the shard's id.
    """

    def __init__(self, emit: Callable[[str, bytes], None] | None = None, *, prefix: bool = False) -> None:
        self._emit = emit or self._to_standard_error
        self._prefix = prefix
        self._queue: Queue[tuple[str, bytes] | None] = Queue(_RELAY_LINES)
        self._dropped = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="stderr-relay", daemon=True)
        self._thread.start()

    def put(self, shard_id: str, line: bytes) -> None:
        """Take a line; never waits."""
        with self._lock:
            try:
                if self._dropped:
                    self._queue.put_nowait((shard_id, self._note()))
                    self._dropped = 0
                self._queue.put_nowait((shard_id, line))
            except Full:
                self._dropped += 1

    def _note(self) -> bytes:
        return b"(%d lines of the children's standard error were dropped here)" % self._dropped

    def close(self) -> None:
        """Wait, a few seconds at most, until everything is out."""
        with contextlib.suppress(Full):
            if self._dropped:
                self._queue.put(("", self._note()), timeout=2.0)
            self._queue.put(None, timeout=2.0)
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            self._emit(*item)

    def _to_standard_error(self, shard_id: str, line: bytes) -> None:
        head = f"[{shard_id}] ".encode(errors="surrogateescape") if self._prefix else b""
        rest = memoryview(head + line + b"\n")
        with contextlib.suppress(OSError):
            while rest:
                rest = rest[os.write(2, rest) :]


class Child:
    """A running child process.

    Args:
        command: program and arguments; no shell.
        env: its whole environment.
        on_stderr: called with each line of its standard error, from another thread.
        dialect: of the daemon, which makes some lines messages and others not.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        on_stderr: Callable[[bytes], None] = lambda _line: None,
        dialect: ReplayDialect = "modern",
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
        self._stdin_lock = threading.Lock()  # for what its number stands for: `abandon` runs in other threads
        self._lines = _Lines()
        self._dialect: ReplayDialect = dialect
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
        splitter = LineSplitter()
        fd = self._stdout.fileno()
        wanted = True
        while wanted and (data := self._read(fd)):
            at = time.monotonic()
            for text in splitter.feed(data):
                wanted = self._take_line(text, at)
        last = splitter.finish()
        if last is not None:
            self._take_line(last, time.monotonic())
        self._lines.end()

    def _take_line(self, text: bytes, at: float) -> bool:
        if not text:  # children put a blank line before each message
            return True
        read = read_child_line(text, self._dialect)
        if read.verdict == "skip" and not read.why:  # blank, although not empty
            return True
        return self._lines.put(text, at, message=read.verdict != "skip")

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
        """What there is; nothing at the end, or when the child is discarded: somebody else may hold the other end."""
        ready = select.poll()
        ready.register(fd, select.POLLIN)
        while not self._discarded:
            if ready.poll(_TURN_MILLIS):
                return os.read(fd, _CHUNK)
        return b""

    def write(self, data: bytes | memoryview, *, write_size: int | None = None, pause: float = 0.0) -> bool:
        """Write all of `data` to its standard input.

        Args:
            data: what to write.
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
        """Bytes that were written and that nobody has read yet; 0 where the system does not tell."""
        if self._abandoned.is_set():
            return 0
        try:
            count = fcntl.ioctl(self._stdin.fileno(), termios.FIONREAD, bytes(4))
        except (OSError, ValueError):
            return 0
        return int.from_bytes(count, sys.byteorder)

    def next_line(self, timeout: float) -> Line | None:
        """The next line of its standard output; None at the end of it.

        Raises:
            ChildTimeoutError: nothing came for `timeout` seconds.
        """
        return self._lines.take(timeout)

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
        self._lines.end(drop=True)
        if self._process.poll() is None or self._reader.is_alive() or self._pump.is_alive():
            self._kill()
        self.wait(_LAST_WAIT)
        # What it wrote before its end is still read; a process that left the group may hold the other ends for ever.
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
        self._lines.end(drop=True)
        with self._stdin_lock:
            if not self._stdin.closed:
                # A process outside of the group may hold the other end, and not read. So a pipe takes the place of
                # ours that cannot be written to; it takes no descriptor more, of which there may be none.
                os.dup2(self._stdout.fileno(), self._stdin.fileno(), inheritable=False)
