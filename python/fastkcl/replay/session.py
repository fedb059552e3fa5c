"""One child's session: lines written, answers waited for, its end judged.

What a child does is either *answered* by the daemon's rules (`Conversation`), or it is a *problem*. A fault that was
asked for may make a child end with an error: that is noted with the fault. The judgement of an end is one table:

    ==============================  ========================  ================================
    the child's input               an end that is right      otherwise
    ==============================  ========================  ================================
    ended between requests          exit code 0               a problem
    ended in a message, a broken    an exit code above 0      a problem: 0 says all was well,
    line, ended before a reply                                 a signal is a crash
    open, a status is owed          none; above 0 if a fault  a problem: the daemon would stop,
                                    was answered just before  with all of its shards
    ==============================  ========================  ================================

Rules: every wait is bounded by the options. A session ends by raising `SessionOver`, which says whether another
child is to go on with the shard.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from fastkcl.replay.child import Child, ChildTimeoutError, Line
from fastkcl.replay.child_lines import read_child_line
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
        keep: whether the process lives on (a zombie) and is somebody else's to end.
    """

    def __init__(self, *, again: bool, died: bool = False, keep: bool = False) -> None:
        super().__init__(again)
        self.again = again
        self.died = died
        self.keep = keep


class CheckpointHooks(Protocol):
    """What may be done to checkpoints from outside."""

    def error_for(self, session: Session, request: CheckpointRequest) -> str | None:
        """Name of an error for a checkpoint that would be stored, None to store it."""
        ...

    def before_reply(self, session: Session, answer: CheckpointAnswer) -> bool:
        """Called before a checkpoint is stored and answered; False if the pipe is to be closed instead."""
        ...


class Hub:
    """What all shards of a replay share: the wish to stop, and a watch over writes that never end."""

    _TURN = 0.25  # seconds between two looks at the watched writes

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._children: set[Child] = set()
        self._deadlines: dict[Child, float] = {}
        self._overdue: set[Child] = set()
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._look, name="write-watch", daemon=True)
        self._watch.start()

    def add(self, child: Child) -> None:
        """Take a child in; it is ended by `stop`."""
        self._children.add(child)
        if self.stopping.is_set():
            child.kill_group()

    def remove(self, child: Child) -> None:
        """Forget a child that has ended."""
        self._children.discard(child)

    @contextlib.contextmanager
    def bounded(self, child: Child, seconds: float) -> Iterator[None]:
        """End the child if what is done inside takes longer; its output then ends, see `overdue`."""
        self._deadlines[child] = time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadlines.pop(child, None)

    def overdue(self, child: Child) -> bool:
        """Whether the child was ended because it did not read."""
        return child in self._overdue

    def _look(self) -> None:
        while not self._done.wait(self._TURN):
            now = time.monotonic()
            for child, deadline in list(self._deadlines.items()):
                if now > deadline and child not in self._overdue:
                    self._overdue.add(child)
                    child.kill_group()

    def stop(self) -> None:
        """End all children, and let nothing new start."""
        self.stopping.set()
        for child in list(self._children):
            child.kill_group()

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


class Session:
    """A child that plays with the daemon of one shard.

    Args:
        child: the process.
        conversation: the daemon's side.
        report: of the shard; counts, times and problems go there.
        options: of the replay.
        hub: of the replay.
        hooks: what is done to checkpoints from outside.
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
        hooks: CheckpointHooks,
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
        self._written_at = 0.0

    def problem(self, text: str) -> None:
        """Note what the child did wrong."""
        self._report.problems.append(f"{self._name}{self.place}: {text}")

    def fault(self, text: str) -> None:
        """Note a fault that was asked for, or what came of it."""
        self._report.faults.append(f"{self._name}{self.place}: {text}")

    # Requests.

    def expect_errors(self, errors: tuple[str | None, ...]) -> None:
        """For the request that comes now: errors for its checkpoints, by rank."""
        self._errors = errors
        self._checkpoints_before = self.conversation.checkpoints

    def _error_for(self, request: CheckpointRequest) -> str | None:
        rank = self.conversation.checkpoints - self._checkpoints_before - 1
        captured = self._errors[rank] if rank < len(self._errors) else None
        return captured or self._hooks.error_for(self, request)

    def write(self, line: bytes | memoryview, *, write_size: int | None = None, pause: float = 0.0) -> float:
        """Write (part of) a line; returns when its last byte was in the pipe, on the clock of `time.monotonic`."""
        self._written_at = time.monotonic()
        slow = pause * (len(line) / write_size if write_size else 1.0)
        with self._hub.bounded(self.child, self._options.answer_timeout + slow):
            self.child.write(line, write_size=write_size or self._options.write_size, pause=pause)
        return time.monotonic()

    def request(self, line: bytes) -> None:
        """Write a request's line and wait for its status."""
        self.write(line)
        self.await_status()

    def await_status(self) -> float:
        """Answer the child until the open request has its status; returns when the status came.

        Raises:
            SessionOver: the child did not give it.
        """
        awaited = self.conversation.open
        early = True
        while True:
            line = self._next_line()
            if line is None:
                raise self._died()
            outcome = self.conversation.receive(line.text)
            if early and line.at < self._written_at and not (isinstance(outcome, Skipped) and not outcome.why):
                early = False
                self.problem(f"wrote {_shown(line.text)} before {awaited} was asked for")
            if isinstance(outcome, Answered):
                self._provoked = None
                self.initialized = True
                return line.at
            self._act(outcome)

    def _act(self, outcome: Outcome) -> None:
        match outcome:
            case CheckpointAnswer():
                self._report.checkpoints += 1
                if outcome.error is not None:
                    errors = self._report.checkpoint_errors
                    errors[outcome.error] = errors.get(outcome.error, 0) + 1
                if outcome.wrong is not None:
                    self.problem(f"{outcome.wrong} ({outcome.error or 'nothing to store'})")
                elif outcome.error is not None:
                    self._provoked = outcome.error
                if not self._hooks.before_reply(self, outcome):
                    raise self.end(clean=False, after="the end of its input before the reply to a checkpoint")
                outcome.commit()
                # A child that is gone shows at the next line.
                with self._hub.bounded(self.child, self._options.answer_timeout):
                    self.child.write(outcome.line)
            case Skipped(line, why) if why:
                self.problem(f"wrote {_shown(line)} on standard output: {why}; the daemon skips it and waits on")
            case Fatal(line, why):
                self.problem(f"wrote {_shown(line)}: {why}; the daemon stops, with all of its shards")
                self.end(clean=None, after="a fatal line")
                raise SessionOver(again=False)
            case _:
                pass

    def _next_line(self) -> Line | None:
        try:
            return self.child.next_line(self._options.answer_timeout)
        except ChildTimeoutError:
            owed = self.conversation.awaited_status
            self.problem(
                f"no line for {self._options.answer_timeout:g} s, and the status of {owed} is owed: "
                "a daemon without timeoutInSeconds waits for ever"
            )
            self._reap(0.0)
            raise SessionOver(again=False) from None

    def _died(self) -> SessionOver:
        """The output ended while a status was owed."""
        owed = self.conversation.awaited_status
        code = self._reap(self._options.exit_grace)
        if self._hub.stopping.is_set():
            return SessionOver(again=False)
        if self._hub.overdue(self.child):
            self.problem(f"did not read {owed} within {self._options.answer_timeout:g} s")
            return SessionOver(again=False)
        if code is None:
            self.problem(f"closed its standard output while the status of {owed} was owed, and went on running")
            return SessionOver(again=False)
        if self._provoked is not None and code > 0:
            self.fault(f"ended {describe_exit(code)} after {self._provoked}")
            return SessionOver(again=True)
        self.problem(f"ended {describe_exit(code)} while the status of {owed} was owed")
        return SessionOver(again=self.initialized, died=True)

    # The end.

    def end(
        self, *, clean: bool | None = True, after: str = "the end of its input", close_input: bool = True
    ) -> SessionOver:
        """Read what the child still writes, wait for it, and judge how it ends.

        Args:
            clean: whether it has to end with 0, or with an error; None for no judgement.
            after: what it ends after, for messages.
            close_input: whether its input ends now.

        Returns:
            What may be raised where a new child is to go on.
        """
        if close_input:
            self.child.close_stdin()
        grace = self._options.exit_grace
        deadline = time.monotonic() + grace
        said: bytes | None = None
        try:
            while (line := self.child.next_line(max(deadline - time.monotonic(), 0.0))) is not None:
                read = read_child_line(line.text, self.conversation.dialect)
                if read.verdict != "skip" or read.why:
                    said = said or line.text
            code = self.child.wait(max(deadline - time.monotonic(), 0.0))
        except ChildTimeoutError:
            code = self.child.wait(0.0)
            if code is not None:
                self.problem(
                    f"its standard output is still open {grace:g} s after {after}, although it has ended: "
                    "a process that it started holds it, and the daemon waits"
                )
        if self._hub.stopping.is_set():
            return SessionOver(again=False)
        if said is not None and clean is not None:
            self.problem(f"wrote {_shown(said)} after {after}")
        if code is None:
            self.problem(f"still running {grace:g} s after {after}: the daemon waits without a limit")
            self._reap(0.0)
            return SessionOver(again=True)
        self._report.exit_codes.append(code)
        if clean and code != 0:
            self.problem(f"ended {describe_exit(code)} after {after}; 0 is the end of a child that did its work")
        elif clean is False and code <= 0:
            self.problem(f"ended {describe_exit(code)} after {after}; an exit code above 0 has to tell of it")
        elif clean is False:
            self.fault(f"ended {describe_exit(code)} after {after}")
        return SessionOver(again=True)

    def kill(self) -> SessionOver:
        """SIGKILL, as asked for."""
        self.child.signal(signal.SIGKILL)
        self._reap(self._options.exit_grace)
        return SessionOver(again=True)

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
