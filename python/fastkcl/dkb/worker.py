"""A stage's worker process and its dialogue, as the supervisor sees them."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from fastkcl import DecodeError
from fastkcl._core import MarkerDecoder
from fastkcl.dkb.connection import Batching, SupervisorConnection
from fastkcl.dkb.log import LineLevels
from fastkcl.dkb.markers import Markers
from fastkcl.stdio.child import ChildProcess

__all__ = ["OnLog", "Worker", "WorkerDiedError"]

OnLog: TypeAlias = Callable[[str, bytes], None]

_TERMINATE_SECONDS: Final = 2.0
_ANSWER_WAIT: Final = 3600.0  # a bound of each single wait, not of a request
_EXTRACTED: Final = 1000  # messages of an extraction that wait to be taken
_TURN: Final = 0.25  # seconds after which a wait checks that its result is still wanted
_PIPE_BYTES: Final = 64 * 1024  # the capacity of a pipe without a reader


class WorkerDiedError(Exception):
    """The worker process has ended, or was ended, inside a request."""


class Worker:
    """A worker process and its dialogue. A thread takes its output, the caller takes events."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        markers: Markers,
        batching: Batching,
        on_log: OnLog,
        *,
        max_message_bytes: int,
        extract: bool,
    ) -> None:
        self.connection = SupervisorConnection(markers, batching, extract=extract)
        self._decoder = MarkerDecoder(
            end_of_message=markers.end_of_message,
            end_of_process=markers.end_of_process or None,
            at_boundary=markers.batch_not_complete or None,
            max_message_bytes=max_message_bytes,
        )
        self._events: queue.SimpleQueue[tuple[str, bytes | None] | Exception] = queue.SimpleQueue()
        # An extraction waits for who takes its messages. Who gets requests must not: we may be writing to it.
        self._room = threading.Semaphore(_EXTRACTED) if extract else None
        self._unwanted = threading.Event()
        self._levels = LineLevels()
        self._on_log = on_log
        self.has_answered = False
        self.child = ChildProcess(command, env, self._take_output, self._take_error)

    def _take_output(self, data: bytes) -> bool:
        try:
            if data:
                self._decoder.feed(data)
            else:
                self._decoder.finish()
            for event in self._decoder:
                while self._room is not None and not self._room.acquire(timeout=_TURN):
                    if self._unwanted.is_set():
                        return False
                self._events.put((event.kind, event.data))
        except DecodeError as error:
            self._events.put(error)
            return False
        if not data:
            self._events.put(("eof", None))
        return True

    def _take_error(self, line: bytes) -> None:
        self._on_log(self._levels.level(line), line)

    def write(self, data: bytes, timeout: float | None) -> None:
        """Write all of it; a worker that does not take it in time is killed. Its output then shows the end."""
        if timeout is None or len(data) <= _PIPE_BYTES:
            self.child.write(data)
            return
        killer = threading.Timer(timeout, self.child.kill_group)
        killer.start()
        try:
            self.child.write(data)
        finally:
            killer.cancel()

    def is_gone(self) -> bool:
        """Whether it has ended, although nobody has asked it for anything.

        Raises:
            ProtocolError: it has written something instead.
        """
        return not self._events.empty() and self.next_event(None)[0] == "eof"

    def next_event(self, timeout: float | None) -> tuple[str, bytes | None]:
        """The next event; gives it to the connection.

        Raises:
            WorkerDiedError: the output has ended, inside a message maybe, or nothing came in time.
            ProtocolError: not allowed here.
            DecodeError: a message is too long.
        """
        while True:
            try:
                event = self._events.get(timeout=_ANSWER_WAIT if timeout is None else timeout)
            except queue.Empty:
                if timeout is None:
                    continue
                raise WorkerDiedError(f"no answer for {timeout:g} s") from None
            if isinstance(event, Exception):
                raise event
            kind, data = event
            if self._room is not None:
                self._room.release()
            self.has_answered = self.has_answered or kind != "eof"
            if kind == "message" and not data:
                continue  # discarded
            if kind == "message":
                self.connection.receive("message")
            elif kind == "end_of_process":
                self.connection.receive("end_of_process")
            elif kind == "at_boundary":
                self.connection.receive("batch_not_complete")
            elif kind == "truncated":
                continue  # the end follows
            else:
                self.connection.receive("eof")
            return kind, data

    def end(self, seconds: float) -> int | None:
        """End its input, and wait for its end; then make it."""
        self._unwanted.set()
        self.child.close_stdin()
        code = self.child.wait(seconds)
        if code is None:
            self.terminate()
            code = self.child.wait(0)
        self.child.discard()
        return code

    def abandon(self) -> None:
        """End it and every wait for it, from any thread."""
        self._unwanted.set()
        self.child.abandon()

    def terminate(self) -> None:
        """SIGTERM, twice as a stage notes only the first, then SIGKILL."""
        self._unwanted.set()
        for _ in range(2):
            self.child.signal(signal.SIGTERM)
        if self.child.wait(_TERMINATE_SECONDS) is None:
            self.child.kill_group()
            self.child.wait(_TERMINATE_SECONDS)
