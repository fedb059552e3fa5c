"""`Supervisor`: one stage's worker process, fed with requests, restarted when it dies.

    requests ─▶ SupervisorConnection ─▶ stdin │        │ stdout ─▶ MarkerDecoder ─▶ results of a request, at its EOP
                                              │ worker │
    on_log(level, line) ◀── read all the time │        │ stderr

Ways to batch: ``single`` sends a message and waits for its EOP. ``worker`` sends one more at each BNC, or EOB when
none is ready within `linger`. ``supervisor`` sends up to `batch_size` messages, then EOB. An extraction stage gets no
requests (plain: its output is the messages, its end their end) or empty messages that trigger it (cyclic).

Rules:
- Results are held until the EOP of their request, so that a request is answered as a whole: nothing of it goes on
  twice when the worker dies in between. The results of a dead worker are handed on marked `partial`.
- A dead worker is restarted, `RetryPolicy.max` times in a row without any output. The policy decides on the request
  that it died of: ``retry`` sends it again each time, ``once`` once more and skips it then, ``skip`` skips it. A
  skipped request is reported, never silent.
- The worker may have done its work before it died, so a request is processed at least once.
- It is written and read at the same time: a worker that answers while it still gets its request blocks nobody.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

from fastkcl import DecodeError, ProtocolError, RemoteProtocolError
from fastkcl.dkb.connection import Batching, SupervisorConnection
from fastkcl.dkb.markers import Markers, escape
from fastkcl.dkb.worker import OnLog, Worker, WorkerDiedError

__all__ = ["Answer", "Inbox", "RetryPolicy", "Supervisor", "SupervisorError", "WorkerDiedError"]

RetryName: TypeAlias = Literal["retry", "once", "skip"]

_TERMINATE_SECONDS: Final = 2.0
_END_SECONDS: Final = 30.0  # for a worker to end by itself after the end of its input


class SupervisorError(Exception):
    """A stage cannot go on. `str()` has its name, the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The reaction to a worker's death.

    Raises:
        ValueError: out of range, or another name.
    """

    max: int = 3
    """Restarts in a row without any output, then `SupervisorError`."""
    policy: RetryName = "once"
    backoff: float = 3.0
    """Seconds before a restart."""

    def __post_init__(self) -> None:
        if self.max < 0 or not 0 <= self.backoff <= threading.TIMEOUT_MAX:
            limit = f"must not be negative, nor a backoff above {threading.TIMEOUT_MAX:g} s"
            raise ValueError(f"max={self.max}, backoff={self.backoff}: {limit}")
        if self.policy not in ("retry", "once", "skip"):
            raise ValueError(f"policy={self.policy!r}: choose retry, once or skip")


@dataclass(frozen=True, slots=True)
class Answer:
    """A worker's results of one request."""

    requests: tuple[bytes, ...]
    """The messages of the request; none for a plain extraction."""
    results: tuple[bytes, ...]
    partial: bool = False
    """The worker died before its EOP: the results may come again, and others may be missing."""
    skipped: bool = False
    """The request is not sent again."""


class Inbox(Protocol):
    """Where a supervisor gets its messages."""

    def take(self, timeout: float | None) -> bytes | None:
        """The next message, None at the end.

        Raises:
            TimeoutError: none came for so many seconds.
        """


class Ready:
    """An inbox of messages that are all at hand."""

    def __init__(self, messages: Iterable[bytes]) -> None:
        self._messages = iter(messages)

    def take(self, timeout: float | None) -> bytes | None:
        """The next one."""
        del timeout
        return next(self._messages, None)


@dataclass(slots=True)
class Counts:
    """A supervisor's counts so far."""

    messages: int = 0
    """Sent and answered."""
    requests: int = 0
    results: int = 0
    restarts: int = 0
    skipped: int = 0
    """Messages of requests that were given up."""
    partial: int = 0
    """Results of requests whose worker died."""


@dataclass(slots=True, kw_only=True)
class Supervisor:
    """Runs one stage. For one thread; `stop` may be called from another.

    Args:
        command: program and arguments; no shell.
        name: for messages.
        markers: those that the command uses.
        batching: ``single``, ``worker`` or ``supervisor``.
        batch_size: messages of a batch that the supervisor ends.
        linger: seconds for which an open batch waits for its next message.
        retry: the reaction to the worker's death.
        response_timeout: seconds without an answer after which a worker is ended and counts as dead; None for no limit.
        on_log: called with the level and each line of the worker's standard error, from another thread.
        env: the worker's whole environment; None for this process's.
        max_message_bytes: bound of one result.

    Raises:
        StageError: markers that do not do for this way of batching.
        ValueError: a number out of range.
    """

    command: Sequence[str]
    name: str = "stage"
    markers: Markers = field(default_factory=Markers)
    batching: Batching = "single"
    batch_size: int = 1
    linger: float = 0.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    response_timeout: float | None = None
    on_log: OnLog = lambda _level, _line: None  # noqa: E731
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    max_message_bytes: int = 64 << 20
    counts: Counts = field(default_factory=Counts, init=False)
    """The counts so far; other threads may look."""
    _worker: Worker | None = field(default=None, init=False)
    _deaths: int = field(default=0, init=False)
    _stopped: threading.Event = field(default_factory=threading.Event, init=False)

    def __post_init__(self) -> None:
        if self.batch_size < 1 or not self.linger >= 0:
            raise ValueError(f"batch_size={self.batch_size}, linger={self.linger}: must be 1 or more, 0 or more")
        if self.response_timeout is not None and not 0 < self.response_timeout <= threading.TIMEOUT_MAX:
            limit = f"must be above 0 and at most {threading.TIMEOUT_MAX:g}, or None"
            raise ValueError(f"response_timeout={self.response_timeout}: {limit}")

    def run(self, inbox: Inbox, emit: Callable[[Answer], None]) -> None:
        """Have everything processed that the inbox gives, in order.

        Args:
            inbox: the messages.
            emit: gets each answer, in order; after a `partial` one the request comes again, unless it is skipped.

        Raises:
            SupervisorError: the worker died too often, broke the protocol or cannot be started; or a message holds a
                marker.
        """
        SupervisorConnection(self.markers, self.batching)  # refuses wrong markers
        try:
            while not self._stopped.is_set():
                first = inbox.take(None)
                if first is None:
                    break
                self._request([first], inbox, emit)
        except BaseException:
            self.stop()
            raise
        finally:
            code = self._end_worker()
        if code != 0 and code is not None and not self._stopped.is_set():
            self.on_log("WARN", f"{self.name}: the worker had answered everything, and {_ended(code)}".encode())

    def extract(self, emit: Callable[[Answer], None]) -> None:
        """Run an extraction stage once: its output until its end is the messages, handed on as they come.

        Raises:
            SupervisorError: it failed. After its first message it is not started again, as all would come twice.
        """
        try:
            while not self._stopped.is_set() and not self._extract_once(emit):
                pass
        except BaseException:
            self.stop()
            raise
        finally:
            self._end_worker()

    def _extract_once(self, emit: Callable[[Answer], None]) -> bool:
        """Whether it is done."""
        worker = self._start(extract=True)
        reason = ""
        try:
            while True:
                kind, data = worker.next_event(self.response_timeout)
                if kind == "message":
                    assert data is not None
                    self._deaths = 0
                    self.counts.results += 1
                    emit(Answer((), (data,)))
                elif kind == "eof":
                    break
        except (ProtocolError, DecodeError) as error:
            raise self._broken(error) from error
        except WorkerDiedError as error:
            worker.terminate()
            reason = str(error)
        code = self._end_worker()
        if self._stopped.is_set() or (code == 0 and not reason):
            return True
        if self.counts.results:
            raise SupervisorError(
                f"{self.name}: the extraction failed ({reason or _ended(code)}) after {self.counts.results} messages;"
                " it is not started again, as they would come twice"
            )
        self._died(reason or _ended(code))
        return False

    def stop(self) -> None:
        """End the worker and every wait for it, from any thread."""
        self._stopped.set()
        worker = self._worker
        if worker is not None:
            worker.abandon()

    # One request, as often as it takes.

    def _request(self, messages: list[bytes], inbox: Inbox, emit: Callable[[Answer], None]) -> None:
        sent_again = False
        while True:
            results: list[bytes] = []
            try:
                if self._worker is not None and self._worker.is_gone():
                    self._died(self._bury("it ended between two requests"))
                self._play(self._worker or self._start(extract=False), messages, inbox, results)
            except (ProtocolError, DecodeError) as error:
                raise self._broken(error) from error
            except WorkerDiedError as error:
                reason = self._bury(str(error))
            else:
                self._deaths = 0
                self.counts.requests += 1
                self.counts.messages += len(messages)
                self.counts.results += len(results)
                emit(Answer(tuple(messages), tuple(results)))
                return
            if self._stopped.is_set():
                return
            skip = self.retry.policy == "skip" or (self.retry.policy == "once" and sent_again)
            self.counts.partial += len(results)
            if skip:
                self.counts.skipped += len(messages)
                text = f"{self.name}: skipped a request of {len(messages)} messages, as the worker died of it: {reason}"
                self.on_log("WARN", text.encode())
            if skip or results:
                emit(Answer(tuple(messages), tuple(results), partial=True, skipped=skip))
            self._died(reason)
            if skip:
                return
            sent_again = True

    def _play(self, worker: Worker, messages: list[bytes], inbox: Inbox, results: list[bytes]) -> None:
        """Send the request, more messages of its batch too, and take its results.

        `messages` grows with those of the inbox; those it has on entry are sent first.
        """
        connection = worker.connection
        if self.batching == "supervisor":
            self._fill(messages, inbox)
            begin = b"".join(map(connection.send_message, messages)) + connection.send_end_of_batch()
        else:
            begin = connection.send_message(messages[0])
        worker.write(begin, self.response_timeout)
        sent = 1
        while connection.state != "IDLE":
            kind, data = worker.next_event(self.response_timeout)
            if kind == "message":
                assert data is not None
                self._deaths = 0
                results.append(data)
            elif kind == "eof":
                raise WorkerDiedError(_ended(worker.child.wait(_TERMINATE_SECONDS)))
            elif connection.state == "ASKED":
                if sent == len(messages):
                    self._fill(messages, inbox, sent + 1)
                if sent < len(messages):
                    worker.write(connection.send_message(messages[sent]), self.response_timeout)
                    sent += 1
                else:
                    worker.write(connection.send_end_of_batch(), self.response_timeout)

    def _fill(self, messages: list[bytes], inbox: Inbox, size: int | None = None) -> None:
        """Take messages until there are so many, or none is ready within `linger`."""
        end = time.monotonic() + self.linger
        while len(messages) < (size or self.batch_size):
            try:
                message = inbox.take(max(0.0, end - time.monotonic()))
            except TimeoutError:
                return
            if message is None:
                return
            messages.append(message)

    # The worker's life.

    def _start(self, *, extract: bool) -> Worker:
        if self._stopped.is_set():
            raise WorkerDiedError("stopped")
        try:
            self._worker = Worker(
                self.command,
                self.env,
                self.markers,
                self.batching,
                self.on_log,
                max_message_bytes=self.max_message_bytes,
                extract=extract,
            )
        except OSError as error:
            raise SupervisorError(f"{self.name}: {self.command[0]}: cannot be started: {error.strerror}") from None
        return self._worker

    def _end_worker(self) -> int | None:
        worker, self._worker = self._worker, None
        return None if worker is None else worker.end(_END_SECONDS)

    def _bury(self, reason: str) -> str:
        """See that the dead worker is; why it is."""
        worker, self._worker = self._worker, None
        if worker is not None:
            if worker.connection.state != "DEAD":
                worker.terminate()
            worker.child.discard()
            if worker.has_answered:
                self._deaths = 0
        return reason

    def _died(self, reason: str) -> None:
        """Count a death, and wait before the restart.

        Raises:
            SupervisorError: there were too many.
        """
        self._deaths += 1
        if self._deaths > self.retry.max:
            raise SupervisorError(
                f"{self.name}: the worker died {self._deaths} times in a row without any output, the last time:"
                f" {reason}. See its own standard error"
            )
        self.counts.restarts += 1
        self.on_log("WARN", f"{self.name}: the worker died: {reason}; restarting in {self.retry.backoff:g} s".encode())
        self._stopped.wait(self.retry.backoff)

    def _broken(self, error: Exception) -> SupervisorError:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.terminate()
            worker.child.discard()
        hint = ""
        if isinstance(error, RemoteProtocolError):
            eom, eop, eob, bnc = map(escape, self.markers)
            hint = f"; see that the stage uses the markers EOM {eom!r}, EOP {eop!r}, EOB {eob!r}, BNC {bnc!r}"
        return SupervisorError(f"{self.name}: {error}{hint}")


def _ended(code: int | None) -> str:
    if code is None:
        return "closed its output"
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
