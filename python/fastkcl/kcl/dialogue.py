"""A connection on its descriptors: reads messages, writes lines, and turns failures of both into ERROR.

It is the host of a processor (`fastkcl.processing.host`): a daemon stores the checkpoints.

Every failure of the dialogue ends in one way: the connection is in ERROR, and the error has the text to
report. An unreadable line, an end of input or a broken pipe inside a checkpoint therefore ends the run even where
user code catches the exception.
"""

from __future__ import annotations

import os

from fastkcl._core import Checkpoint, DecodeError, Reader
from fastkcl.processing.errors import MOST_REFUSALS, LocalProtocolError, RemoteProtocolError
from fastkcl.stdio import reports
from fastkcl.stdio.descriptors import LOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from fastkcl._core import Message
    from fastkcl.kcl.connection import Connection
    from fastkcl.stdio.descriptors import Descriptors
    from fastkcl.stdio.signals import SignalWatch


class Dialogue:
    """One dialogue over a pair of descriptors. For one thread.

    Args:
        connection: the rules.
        descriptors: the pipes.
        signals: they bound the wait for input.
        max_line_bytes: bound of one line of the daemon.

    Raises:
        ValueError: `max_line_bytes` out of range.
    """

    __slots__ = ("_descriptors", "_messages", "_reader", "_refusals", "checkpointed", "connection", "signals")

    def __init__(
        self, connection: Connection, descriptors: Descriptors, signals: SignalWatch, max_line_bytes: int
    ) -> None:
        self.connection = connection
        self.signals = signals
        self.checkpointed = False
        """Whether a checkpoint has succeeded in the request that is open."""
        self._descriptors = descriptors
        self._reader = Reader(descriptors.read_fd, wakeup_fd=signals.wakeup_fd, max_line_bytes=max_line_bytes)
        self._messages = 0
        self._refusals = 0
        signals.limit_reads(self._reader.set_deadline)

    def receive(self) -> Message | None:
        """Wait for the next message and give it to the connection; None at a clean end of input.

        Raises:
            ProtocolError: the message is not allowed or not readable, the end came too early, or the connection was in
                ERROR before.
            TimeoutError: the grace time after a signal is over.
            SystemExit: a second signal.
        """
        self.check()
        try:
            self.signals.watch()
            try:
                message = self._reader.read()
            finally:
                self.signals.unwatch()
        except DecodeError as error:
            near = f", near {reports.context(error.context)}" if error.context else ""
            what = f"{str(error).removeprefix(f'{error.kind}: ')}; line of message {self._messages + 1}{near}"
            failure = RemoteProtocolError(error.kind, what, self.connection.state)
            failure.__cause__ = error
            self.connection.fail(failure)
        except TimeoutError:
            raise
        except OSError as error:
            self._check_descriptors()
            failure = RemoteProtocolError("read_failed", f"reading from the daemon: {error}", self.connection.state)
            failure.__cause__ = error
            self.connection.fail(failure)
        self._messages += 1
        if message is None:
            self.connection.receive_eof()
        else:
            self.connection.receive(message)
        return message

    def send_status(self) -> None:
        """Answer the open request.

        Raises:
            ProtocolError: not allowed, or the daemon has gone.
        """
        self.check()
        self._write(self.connection.send_status())
        self.checkpointed = False

    def checkpoint(self, sequence_number: str | None, sub_sequence_number: int | None) -> str | None:
        """One checkpoint round trip.

        Returns:
            The daemon's error name, None on success.

        Raises:
            ProtocolError: not allowed, or the daemon broke the protocol or has gone.
            ValueError: the position cannot be said in this dialect; nothing was sent.
            SystemExit: a second signal, or the grace time after the first is over; or user code has caught the error
                that broke the dialogue, and tried again, too often.
        """
        self._refuse_endless_tries()
        self.check()
        self._write(self.connection.send_checkpoint(sequence_number, sub_sequence_number))
        try:
            reply = self.receive()
        except TimeoutError:
            self.signals.stop_after_grace("waiting for a checkpoint reply")
        assert isinstance(reply, Checkpoint), reply  # the connection accepts nothing else here
        self.checkpointed = self.checkpointed or reply.error is None
        return reply.error

    def _refuse_endless_tries(self) -> None:
        """End user code that tries until it succeeds where nothing can: the daemon would wait for it for ever.

        Raises:
            SystemExit: it has tried too often; the reason is on standard error.
        """
        error = self.connection.error
        if error is None or self.forked:
            return
        self._refusals += 1
        if self._refusals > MOST_REFUSALS:
            reports.line(f"{error}; user code asks for checkpoints again and again, and the process ends")
            if self._refusals > 2 * MOST_REFUSALS:  # it catches SystemExit, too
                os._exit(reports.EXIT_FAILURE)
            raise SystemExit(reports.EXIT_FAILURE)

    def not_allowed(self, what: str) -> NoReturn:
        """Go to ERROR because of a call that the state does not allow.

        Raises:
            LocalProtocolError: always.
        """
        self.connection.not_allowed(what)

    def back_off(self, seconds: float, attempt: int) -> None:
        """Wait before a checkpoint is tried again.

        Raises:
            SystemExit: a second signal, or the grace time after the first is over.
        """
        self.signals.back_off(seconds, attempt)

    def may_retry(self, method: str, seconds: float, attempt: int) -> bool:
        """Wait before a failed method is called again, which it always may be.

        Raises:
            SystemExit: a second signal, or the grace time after the first is over.
        """
        self.signals.back_off(seconds, attempt)
        return True

    @property
    def forked(self) -> bool:
        """Whether this process is a forked child of the one whose dialogue it is."""
        return self._descriptors.forked

    def check(self) -> None:
        """Refuse to go on where that is not possible any more.

        Raises:
            ProtocolError: the connection is in ERROR, or this process is a forked child.
            SystemExit: a second signal was swallowed by user code.
        """
        self.signals.check()
        if self.forked:
            self.connection.fail(
                LocalProtocolError(
                    "not_allowed",
                    "a forked child came back into the dialogue of its parent; end it with os._exit",
                    self.connection.state,
                )
            )
        self.connection.check()

    def _write(self, line: bytes) -> None:
        try:
            self._descriptors.write(line)
        except OSError as error:
            self._check_descriptors()
            what = f"the daemon does not read any more: {error} in state {self.connection.state}"
            failure = RemoteProtocolError("closed_while_waiting", what, self.connection.state)
            failure.__cause__ = error
            self.connection.fail(failure)

    def _check_descriptors(self) -> None:
        if self._descriptors.lost:
            self.connection.fail(LocalProtocolError("descriptors_closed", LOST, self.connection.state))
