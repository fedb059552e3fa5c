"""A child process as the daemon holds it: a `ChildProcess` whose output is lines with the time they came.

    player thread ── write ──▶ stdin │       │ stdout ──▶ reader thread ──▶ queue of lines ──▶ player thread
                                     │ child │
                                     │       │ stderr ──▶ pump thread ──▶ relay ──▶ our stderr

The daemon writes a line and reads the child's lines at the same time (two threads in KCL as well). A child's standard
error is passed on by one relay. It drops lines, and reports their number, rather than make a child wait for a terminal
that nobody reads. A child's output takes bounded memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import Full, Queue
from typing import NamedTuple

from fastkcl.replay.child_lines import ReplayDialect, read_child_line
from fastkcl.stdio.child import ChildProcess
from fastkcl.stdio.lines import LineSplitter
from fastkcl.stdio.reports import shown

__all__ = ["Child", "ChildTimeoutError", "Line", "StderrRelay"]

_RELAY_LINES = 10_000
_LINES = 100


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
    """Passes lines of all children on, one at a time, from a separate thread.

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
        head = f"[{shard_id}] " if self._prefix else ""
        text = shown(head + line.decode(errors="backslashreplace"))  # a file of it may be shown on a terminal
        rest = memoryview(f"{text}\n".encode(errors="backslashreplace"))
        with contextlib.suppress(OSError):
            while rest:
                rest = rest[os.write(2, rest) :]


class Child(ChildProcess):
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
        self._splitter = LineSplitter()
        self._lines = _Lines()
        self._dialect: ReplayDialect = dialect
        super().__init__(command, env, self._take_output, on_stderr)

    def _take_output(self, data: bytes) -> bool:
        at = time.monotonic()
        if data:
            wanted = True
            for text in self._splitter.feed(data):
                wanted = self._take_line(text, at)
            return wanted
        last = self._splitter.finish()
        if last is not None:
            self._take_line(last, at)
        self._lines.end()
        return False

    def _take_line(self, text: bytes, at: float) -> bool:
        if not text:  # children put a blank line before each message
            return True
        read = read_child_line(text, self._dialect)
        if read.verdict == "skip" and not read.why:  # blank, although not empty
            return True
        return self._lines.put(text, at, message=read.verdict != "skip")

    def next_line(self, timeout: float) -> Line | None:
        """The next line of its standard output; None at the end of it.

        Raises:
            ChildTimeoutError: nothing came for `timeout` seconds.
        """
        return self._lines.take(timeout)

    def discard(self) -> None:
        """End whatever is left of it, also processes that it started and that hold its output open."""
        self._lines.end(drop=True)
        super().discard()

    def abandon(self) -> None:
        """End it, and every wait for it, from any thread: writing gives False, and its output has ended."""
        self._lines.end(drop=True)
        super().abandon()
