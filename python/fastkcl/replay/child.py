"""A child process as the daemon holds it: three pipes, lines with the time they came, and an end that is waited for.

    player thread ── write ──▶ stdin │       │ stdout ──▶ reader thread ──▶ queue of lines ──▶ player thread
                                     │ child │
                                     │       │ stderr ──▶ pump thread ──▶ relay ──▶ our stderr

The daemon writes a line and reads the child's lines at the same time (two threads in KCL as well): a child that
prints much while it reads must not block both. A child's standard error is always drained, and passed on by one
relay that drops lines, and says so, rather than make a child wait for a terminal that nobody reads.

Rules: a child is a process group of its own, so that what it leaves behind can be ended with it. Every wait has a
bound. `Child` never raises for what the child does: a broken pipe shows as the end of its output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, Full, Queue, SimpleQueue
from typing import NamedTuple

from fastkcl import _core
from fastkcl.replay.child_lines import LineSplitter

__all__ = ["Child", "ChildTimeoutError", "Line", "StderrRelay"]

_CHUNK = 64 * 1024
_RELAY_LINES = 10_000


class ChildTimeoutError(Exception):
    """The child neither wrote a line nor ended its output within the time it had."""


class Line(NamedTuple):
    """A line of a child's standard output, without its end."""

    text: bytes
    at: float
    """When its end was read, on the clock of `time.monotonic`."""


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
        head = f"[{shard_id}] ".encode() if self._prefix else b""
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

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], on_stderr: Callable[[bytes], None] = lambda _line: None
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
        self._lines: SimpleQueue[Line | None] = SimpleQueue()
        self._ended = False
        self._on_stderr = on_stderr
        self._reader = threading.Thread(target=self._read_stdout, name=f"stdout-{self.pid}", daemon=True)
        self._pump = threading.Thread(target=self._read_stderr, name=f"stderr-{self.pid}", daemon=True)
        self._reader.start()
        self._pump.start()

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""
        return self._process.pid

    def _read_stdout(self) -> None:
        splitter = LineSplitter()
        fd = self._stdout.fileno()
        while data := _read(fd):
            at = time.monotonic()
            for text in splitter.feed(data):
                if text:  # the daemon ignores blank lines, and children put one before each message
                    self._lines.put(Line(text, at))
        last = splitter.finish()
        if last is not None:
            self._lines.put(Line(last, time.monotonic()))
        self._lines.put(None)

    def _read_stderr(self) -> None:
        splitter = LineSplitter()
        fd = self._stderr.fileno()
        while data := _read(fd):
            for line in splitter.feed(data):
                self._on_stderr(line)
        last = splitter.finish()
        if last is not None:
            self._on_stderr(last)

    def write(self, data: bytes | memoryview, *, write_size: int | None = None, pause: float = 0.0) -> bool:
        """Write all of `data` to its standard input.

        Args:
            data: what to write.
            write_size: bytes of one write(2), the extension's default without it.
            pause: seconds before each write.

        Returns:
            False if the child has closed its input; its output tells the rest.
        """
        try:
            if write_size is None:
                _core.write_all(self._stdin.fileno(), data, pause=pause)
            else:
                _core.write_all(self._stdin.fileno(), data, write_size=write_size, pause=pause)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def next_line(self, timeout: float) -> Line | None:
        """The next line of its standard output; None at the end of it.

        Raises:
            ChildTimeoutError: nothing came for `timeout` seconds.
        """
        if self._ended:
            return None
        try:
            line = self._lines.get(timeout=timeout)
        except Empty:
            raise ChildTimeoutError from None
        self._ended = line is None
        return line

    def has_line(self) -> bool:
        """Whether a line, or the end of output, is there already."""
        return self._ended or not self._lines.empty()

    def close_stdin(self) -> None:
        """End of its input. Harmless when called twice."""
        with contextlib.suppress(OSError):
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
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(timeout=1.0)
        self._pump.join(timeout=1.0)
        # A process that left the group may still hold the write ends; the threads then keep our ends.
        if not self._reader.is_alive():
            self._stdout.close()
        if not self._pump.is_alive():
            self._stderr.close()

    def kill_group(self) -> None:
        """SIGKILL to the process and all of its group, from any thread."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _CHUNK)
    except OSError:  # our end was closed under us at the very end
        return b""
