"""One child's session: lines written, answers waited for, its end judged.

A child's output is either *answered* by the daemon's rules (`Conversation`), or it is a *problem*. A fault that was
asked for may make a child end with an error: that is noted with the fault. The judgement of an end is one table:

    ==============================  ========================  ================================
    the child's input               an end that is right      otherwise
    ==============================  ========================  ================================
    ended between requests          exit code 0               a problem
    ended in a message, a broken    an exit code above 0      a problem: 0 says all was well,
    line, ended before a reply                                 a signal is a crash
    open, a status is owed          none; above 0 if a fault  a problem: the daemon would stop,
                                    was the last thing read   with all of its shards
    ==============================  ========================  ================================

A child must read a request before it answers. So a message is a problem if it came before the last bytes of its request
were written, or while they still lie in the pipe; and so is an input that the child has closed although there was more.

Rules: every wait is bounded by the options, and ends at once when the replay is being stopped. A wait is over when its
time is over, also for a child that never stops writing: a line counts if it came in time. A session ends by raising
`SessionOver`, which has the decision whether another child continues with the shard.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from fastkcl.replay.child import Child, ChildTimeoutError, Line
from fastkcl.replay.conversation import (
    Answered,
    CheckpointAnswer,
    CheckpointRequest,
    Conversation,
    Fatal,
    Outcome,
    Skipped,
)
from fastkcl.replay.options import ReplayOptions
from fastkcl.replay.report import ShardReport

__all__ = ["CheckpointHooks", "Hub", "Session", "SessionOver"]


class SessionOver(Exception):  # noqa: N818 - how a session ends, not an error
    """The session is over.

    Attributes:
        again: whether a new child is to go on with the shard.
        died: whether the child ended by itself, so that a new one is a restart which nobody asked for.
        provoked: whether it ended by an error that was asked for.
        keep: whether the process lives on (a zombie) and is somebody else's to end.
    """

    def __init__(self, *, again: bool, died: bool = False, provoked: bool = False, keep: bool = False) -> None:
        super().__init__(again)
        self.again = again
        self.died = died
        self.provoked = provoked
        self.keep = keep


class CheckpointHooks(Protocol):
    """Interventions in checkpoints from outside."""

    def error_for(self, session: Session, request: CheckpointRequest) -> str | None:
        """Name of an error for a checkpoint that would be stored, None to store it."""
        ...

    def before_reply(self, session: Session, answer: CheckpointAnswer) -> bool:
        """Called before a checkpoint is stored and answered; False if the pipe is to be closed instead."""
        ...


class Hub:
    """The common state of all shards of a replay: the wish to stop, and a watch over writes that never end."""

    _TURN = 0.25  # seconds between two looks at the watched writes
    _NAP = 60.0  # seconds that one wait may take of a long one: the longest are beyond a lock's limit

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._children: set[Child] = set()
        self._deadlines: dict[Child, float] = {}
        self._overdue: set[Child] = set()
        self._lock = threading.Lock()  # for the two above
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._look, name="write-watch", daemon=True)
        self._watch.start()

    def add(self, child: Child) -> None:
        """Take a child in; it is ended by `stop`."""
        self._children.add(child)
        if self.stopping.is_set():
            child.abandon()

    def remove(self, child: Child) -> None:
        """Forget a child that has ended."""
        self._children.discard(child)

    @contextlib.contextmanager
    def bounded(self, child: Child, seconds: float) -> Iterator[None]:
        """Abandon the child if the block takes longer, see `overdue`."""
        with self._lock:
            self._deadlines[child] = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._lock:
                self._deadlines.pop(child, None)

    def overdue(self, child: Child) -> bool:
        """Whether the child was ended because it did not read."""
        return child in self._overdue

    def _look(self) -> None:
        while not self._done.wait(self._TURN):
            now = time.monotonic()
            with self._lock:
                for child in [child for child, deadline in self._deadlines.items() if now > deadline]:
                    del self._deadlines[child]
                    self._overdue.add(child)
                    child.abandon()

    def sleep(self, seconds: float) -> None:
        """Wait, or until the replay is being stopped."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.stopping.wait(min(left, self._NAP)):
            pass

    def stop(self) -> None:
        """End all children, and let nothing new start."""
        self.stopping.set()
        for child in list(self._children):
            child.abandon()

    def close(self) -> None:
        """End the watch."""
        self._done.set()
        self._watch.join()


def describe_exit(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def _shown(line: bytes) -> str:
    return repr(line if len(line) <= 100 else line[:100] + b"...")[1:]


def _name(error: str) -> str:
    return error if error.isidentifier() else repr(error[:140])


_STATUS_WITHIN = 10
"""A status has to come within so many answer timeouts, whatever other messages come before it."""

_END_OF_MESSAGE = 3
"""Bytes of a line without which no message is whole: its last brace, CR, LF."""

_END_OF_LINE = 2
"""Bytes of a line that a child need not have read to know the message: CR, LF."""


class Session:
    """A child that plays with the daemon of one shard.

    Args:
        child: the process.
        conversation: the daemon's side.
        report: of the shard; counts, times and problems go there.
        options: of the replay.
        hub: of the replay.
        hooks: interventions in checkpoints from outside, if there are any.
        name: of the child in messages, e.g. ``child 2``.

    Attributes:
        child: the process.
        conversation: the daemon's side.
        initialized: whether the child got through initialize.
        place: where in the shard it is, put after its name in messages, e.g. ``, delivery 3``.
    """

    def __init__(
        self,
        child: Child,
        conversation: Conversation,
        report: ShardReport,
        options: ReplayOptions,
        hub: Hub,
        hooks: CheckpointHooks | None,
        name: str,
    ) -> None:
        self.child = child
        self.conversation = conversation
        self.initialized = False
        self.place = ""
        conversation.intervene = self._error_for
        self._report = report
        self._options = options
        self._hub = hub
        self._hooks = hooks
        self._name = name
        self._provoked: str | None = None  # an error that was asked for, which the child may end by
        self._errors: tuple[str | None, ...] = ()
        self._checkpoints_before = 0
        self._asked = ""  # the last written line
        self._asked_at = 0.0  # before which nobody can have read it
        self._unread: str | None = None  # the line that could not be written
        self._noise = 0  # lines in this request that are no messages
        self._message_by = self._status_by = 0.0

    def problem(self, text: str) -> None:
        """Note a problem of the child."""
        self._report.problem(f"{self._name}{self.place}: {text}")

    def verdict(self, text: str) -> None:
        """Note a problem of the child's end."""
        self._report.problem(f"{self._name}{self.place}: {text}", last=True)

    def fault(self, text: str) -> None:
        """Note a fault that was asked for, or its effect."""
        self._report.fault(f"{self._name}{self.place}: {text}")

    def disown(self, report: ShardReport) -> None:
        """The lease has gone to another child: no checkpoint succeeds, no fault comes, and notes go elsewhere."""
        self.conversation.owns_lease = False
        self._report, self._hooks, self._errors = report, None, ()

    # Requests.

    def expect_errors(self, errors: tuple[str | None, ...]) -> None:
        """For the request that comes now: errors for its checkpoints, by rank."""
        self._errors = errors
        self._checkpoints_before = self.conversation.checkpoints

    def _error_for(self, request: CheckpointRequest) -> str | None:
        rank = self.conversation.checkpoints - self._checkpoints_before - 1
        captured = self._errors[rank] if rank < len(self._errors) else None
        return captured or (self._hooks.error_for(self, request) if self._hooks else None)

    def write(self, line: bytes | memoryview, *, write_size: int | None = None, pause: float = 0.0) -> float:
        """Write (part of) a line.

        Returns:
            When its last byte was in the pipe, on the clock of `time.monotonic`.

        Raises:
            SessionOver: the child did not read it in time.
        """
        size = write_size or self._options.write_size
        self._put(line, self.conversation.awaited_status or "a broken line", size, pause)
        return time.monotonic()

    def _put(self, line: bytes | memoryview, what: str, write_size: int | None = None, pause: float = 0.0) -> None:
        if self._hub.stopping.is_set():
            raise SessionOver(again=False)
        rest = memoryview(line)
        timeout = self._options.answer_timeout
        slow = pause * (2 + (len(line) / write_size if write_size else 0))
        with self._hub.bounded(self.child, timeout + slow):
            written = self.child.write(rest[:-_END_OF_MESSAGE], write_size=write_size, pause=pause)
            self._asked, self._asked_at = what, time.monotonic()
            written = written and self.child.write(rest[-_END_OF_MESSAGE:], write_size=write_size, pause=pause)
        if self._hub.overdue(self.child):
            self.verdict(f"did not read {what} within {timeout:g} s")
            self._reap(self._options.exit_grace)
            raise SessionOver(again=False)
        if not written and self._unread is None:
            self._unread = what  # if it is ending, its end shows more

    def request(self, line: bytes) -> None:
        """Write a request's line and wait for its status."""
        self.write(line)
        self.await_status()

    def await_status(self) -> float:
        """Answer the child until the open request has its status; returns when the status came.

        Raises:
            SessionOver: the child did not give it.
        """
        timeout = self._options.answer_timeout
        self._message_by = time.monotonic() + timeout
        self._status_by = time.monotonic() + timeout * _STATUS_WITHIN
        self._noise = 0
        try:
            while True:
                line = self._next_line()
                if line is None:
                    raise self._died()
                outcome = self.conversation.receive(line.text)
                if isinstance(outcome, Skipped) and outcome.message is None:
                    self._skip(line, outcome.why)
                    continue
                self._check_order(line, outcome)
                if isinstance(outcome, Answered):
                    if self._unread is not None:
                        self.end(clean=None)
                        raise SessionOver(again=False)
                    self._provoked = None
                    self.initialized = True
                    return line.at
                self._act(outcome)
                self._message_by = time.monotonic() + timeout
        finally:
            if self._noise > 1:
                self.problem(f"wrote {self._noise - 1:,} more lines that are no messages")

    def _check_order(self, line: Line, outcome: Outcome) -> None:
        """A child cannot answer a request that it has not read."""
        if isinstance(outcome, Answered | CheckpointAnswer) and (
            line.at < self._asked_at or (self._unread is None and self.child.unread() > _END_OF_LINE)
        ):
            self.problem(f"wrote {_shown(line.text)} before it had read {self._asked}")

    def _skip(self, line: Line, why: str) -> None:
        """Lines that are no messages: the first is reported, the others of a request are counted."""
        if not self._noise:
            self.problem(f"wrote {_shown(line.text)} on standard output: {why}; the daemon skips it and waits on")
        self._noise += 1 + line.more

    def _act(self, outcome: Outcome) -> None:
        match outcome:
            case CheckpointAnswer():
                self._report.checkpoint(outcome.error)
                self._provoked = None
                if outcome.wrong is not None:
                    self.problem(f"{outcome.wrong} ({outcome.error or 'nothing to store'})")
                if self._hooks is not None:
                    begun = time.monotonic()
                    if not self._hooks.before_reply(self, outcome):
                        raise self.end(clean=False, after="the end of its input before the reply to a checkpoint")
                    self._status_by += time.monotonic() - begun
                outcome.commit()
                self._put(outcome.line, "the reply to its checkpoint")
                if outcome.wrong is None and self._unread is None:
                    self._provoked = outcome.error
            case Skipped(line, why):
                self.problem(f"wrote {_shown(line)} on standard output: {why}; the daemon skips it and waits on")
            case Fatal(line, why):
                self.verdict(f"wrote {_shown(line)}: {why}; the daemon stops, with all of its shards")
                self.end(clean=None)
                raise SessionOver(again=False)
            case _:
                pass

    def _next_line(self) -> Line | None:
        if self._hub.stopping.is_set():
            raise SessionOver(again=False)
        by = min(self._message_by, self._status_by)
        try:
            line = self.child.next_line(max(by - time.monotonic(), 0.0))
            if line is None or line.at <= by:
                return line
        except ChildTimeoutError:
            pass
        self._report_unread()
        owed, timeout = self.conversation.awaited_status, self._options.answer_timeout
        if by == self._message_by:
            self.verdict(
                f"no message for {timeout:g} s, and the status of {owed} is owed: "
                "a daemon without timeoutInSeconds waits for ever"
            )
        else:
            self.verdict(f"other messages, and no status of {owed}, for {timeout * _STATUS_WITHIN:g} s")
        self._reap(0.0)
        raise SessionOver(again=False)

    def _died(self) -> SessionOver:
        """The output ended while a status was owed."""
        if self._hub.stopping.is_set():
            return SessionOver(again=False)
        owed = self.conversation.awaited_status
        code = self._reap(self._options.exit_grace)
        if code is None:
            self.verdict(f"closed its standard output while the status of {owed} was owed, and went on running")
            return SessionOver(again=False)
        if self._provoked is not None and code > 0:
            self.fault(f"ended {describe_exit(code)} after {_name(self._provoked)}")
            return SessionOver(again=True, provoked=True)
        self.verdict(f"ended {describe_exit(code)} while the status of {owed} was owed")
        return SessionOver(again=self.initialized, died=True)

    # The end.

    def end(
        self, *, clean: bool | None = True, after: str = "the end of its input", close_input: bool = True
    ) -> SessionOver:
        """Read the child's remaining output, wait for it, and judge its end.

        Args:
            clean: whether it has to end with 0, or with an error; None for no judgement.
            after: the event before its end, for messages.
            close_input: whether its input ends now.

        Returns:
            The exception to raise where a new child continues.
        """
        if clean is not False:  # a broken input need not be read to its end
            self._report_unread()
        if close_input:
            self.child.close_stdin()
        grace = self._options.exit_grace
        deadline = time.monotonic() + grace
        said: bytes | None = None
        try:
            while (line := self.child.next_line(max(deadline - time.monotonic(), 0.0))) is not None:
                said = said or line.text
                if line.at > deadline:
                    raise ChildTimeoutError
            code = self.child.wait(max(deadline - time.monotonic(), 0.0))
        except ChildTimeoutError:
            code = self.child.wait(0.0)
            if code is not None:
                self.verdict(
                    f"its standard output is still open {grace:g} s after {after}, although it has ended: "
                    "a process that it started holds it, and the daemon waits"
                )
        if self._hub.stopping.is_set():
            return SessionOver(again=False)
        if said is not None and clean is not None:
            self.problem(f"wrote {_shown(said)} after {after}")
        if code is None:
            self.verdict(f"still running {grace:g} s after {after}: the daemon waits without a limit")
            self._reap(0.0)
            return SessionOver(again=True)
        self._report.exit_codes.append(code)
        if clean and code != 0:
            self.verdict(f"ended {describe_exit(code)} after {after}; 0 is the end of a child that did its work")
        elif clean is False and code <= 0:
            self.verdict(f"ended {describe_exit(code)} after {after}; it must exit with a code above 0")
        elif clean is False:
            self.fault(f"ended {describe_exit(code)} after {after}")
        return SessionOver(again=True)

    def kill(self) -> SessionOver:
        """SIGKILL, as asked for."""
        self._report_unread()
        self.child.signal(signal.SIGKILL)
        code = self._reap(self._options.exit_grace)
        if code not in (None, -signal.SIGKILL):
            self.verdict(f"ended {describe_exit(code)} before it was killed")
        with contextlib.suppress(ChildTimeoutError):  # somebody else may hold its output
            line = self.child.next_line(0.1)
            if line is not None and line.at < self._asked_at:
                self.problem(f"wrote {_shown(line.text)} before it had read {self._asked}")
        return SessionOver(again=True)

    def _report_unread(self) -> None:
        if self._unread is not None and not self._hub.stopping.is_set():
            self.verdict(f"closed its input before {self._unread} was written: the daemon stops, with all its shards")
        self._unread = None

    def _reap(self, grace: float) -> int | None:
        """The exit code of a child that should have ended; None if it had to be ended after `grace` seconds."""
        code = self.child.wait(grace)
        if code is None:
            self.child.kill_group()
            self._report.exit_codes.append(-signal.SIGKILL)
            return None
        self._report.exit_codes.append(code)
        return code

    def discard(self) -> None:
        """End whatever is left of the child."""
        self.child.discard()
        self._hub.remove(self.child)
