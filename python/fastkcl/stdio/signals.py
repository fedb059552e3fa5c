"""SIGTERM, SIGINT and SIGHUP while a daemon is served: the first is noted, the second stops.

A service manager or Ctrl-C signals the whole process group, the daemon and its children alike. The daemon then
ends its shards in good order (shutdownRequested, leaseLost, end of input), and needs living children for that.
A child that dies of the first signal breaks this off for every shard of the host. So:

    first    noted; the child continues to answer, for at most `grace` seconds. A user method is not interrupted
    second   SystemExit(128 + n) out of the running code, so that `finally` and `with` clean up; no status
    third    the process ends at once

A wait for input sees a signal through the wake-up descriptor (`signal.set_wakeup_fd`), so none is missed between the
last check and the wait. The descriptor is set during a wait only: user code finds its own, or none, as event loops
expect it. A signal that is ignored when the run begins (nohup) stays ignored. A forked child gets back the handlers
from before the run, so that a pool can end its workers. The signals are blocked during the fork: one that is sent to
the child at once finds these handlers.
"""

from __future__ import annotations

import os
import time
from _thread import _local  # threading itself is slow to import

from fastkcl.stdio import reports
from fastkcl.stdio.descriptors import close_if_still, file_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any, NoReturn

_watching: SignalWatch | None = None
_fork_hooks_registered = False
_at_fork = _local()
_LONGEST_SLEEP = 0.25
_NO_LIMIT = 1e9
"""Seconds from which on a grace time is none that anybody waits for; a reader's clock ends somewhere too."""


class SignalWatch:
    """Context manager that handles SIGTERM, SIGINT and SIGHUP by the rules above; for the main thread.

    Args:
        grace: seconds from the first signal in which the dialogue may go on; `math.inf` for no limit.
    """

    __slots__ = (
        "_deadline",
        "_grace",
        "_number",
        "_previous",
        "_set_read_deadline",
        "_stopping",
        "_wakeup",
        "_wakeup_before",
        "_wakeup_file",
    )

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._number: int | None = None
        self._deadline = float("inf")
        self._stopping = False
        self._set_read_deadline: Callable[[float | None], None] | None = None
        self._previous: dict[int, Any] = {}
        self._wakeup: tuple[int, int] | None = None
        self._wakeup_before = -1
        self._wakeup_file: tuple[int, int] | None = None

    def __enter__(self) -> SignalWatch:
        global _watching, _fork_hooks_registered
        import signal

        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        os.set_blocking(write_end, False)
        self._wakeup = (read_end, write_end)
        try:
            signal.set_wakeup_fd(signal.set_wakeup_fd(-1))
        except ValueError as error:
            os.close(read_end)
            os.close(write_end)
            self._wakeup = None
            raise RuntimeError("a run has to be started in the main thread, where Python handles signals") from error
        except OSError:
            pass  # the program has closed its own
        self._wakeup_file = file_of(read_end)  # both ends of a pipe are one file
        for number in _numbers():
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                self._previous[number] = before
                signal.signal(number, self._handle)
        # A program that lets SIGPIPE kill it would die without a word when the daemon has gone.
        self._previous[signal.SIGPIPE] = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        _watching = self
        if not _fork_hooks_registered:
            os.register_at_fork(
                before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_restore_in_forked_child
            )
            _fork_hooks_registered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self._restore()

    @property
    def wakeup_fd(self) -> int | None:
        """Readable when a signal has arrived; None outside the context."""
        return self._wakeup[0] if self._wakeup is not None else None

    def watch(self) -> None:
        """From now on a signal makes `wakeup_fd` readable; `unwatch` is to follow, before user code runs.

        Nothing happens in another thread, where no signal is handled.
        """
        from _signal import set_wakeup_fd  # type: ignore[import-not-found]  # without the checks of signal's

        if self._wakeup is None:
            return
        try:
            # A full pipe is harmless: one byte is enough to wake up.
            self._wakeup_before = set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
        except ValueError:  # another thread
            return

    def unwatch(self) -> None:
        """The program's own descriptor is set again, if it has one."""
        from _signal import set_wakeup_fd

        if self._wakeup is not None:
            try:
                set_wakeup_fd(self._wakeup_before)
            except ValueError:  # another thread
                return
            except OSError:  # it is closed
                set_wakeup_fd(-1)
            self._wakeup_before = -1

    @property
    def signalled(self) -> bool:
        """Whether the first signal has come."""
        return self._number is not None

    def limit_reads(self, set_deadline: Callable[[float | None], None]) -> None:
        """Have the first signal call `set_deadline(grace)`, which bounds the wait for input."""
        self._set_read_deadline = set_deadline
        if self.signalled:  # it came before there was a reader
            self._bound_reads()

    def check(self) -> None:
        """Go on stopping where user code has swallowed the SystemExit of the second signal.

        Raises:
            SystemExit: 128 + n.
        """
        if self._stopping and self._number is not None:
            raise SystemExit(reports.exit_code_of_signal(self._number))

    def back_off(self, seconds: float, attempt: int) -> None:
        """Sleep before a retry: `seconds` before the first (attempt 0), doubled before each further one.

        Raises:
            SystemExit: the second signal has come, or the grace time is over.
        """
        from fastkcl.backoff import doubled

        self.sleep(doubled(seconds, attempt))

    def sleep(self, seconds: float) -> None:
        """Sleep, but not beyond the grace time.

        Raises:
            SystemExit: the second signal has come, or the grace time is over.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check_grace("while waiting for a retry")
            time.sleep(min(left, _LONGEST_SLEEP))
        self.check()

    def check_grace(self, what: str) -> None:
        """Stop if the grace time is over.

        Args:
            what: the state of the dialogue.

        Raises:
            SystemExit: 128 + n of the first signal.
        """
        if time.monotonic() >= self._deadline:
            self.stop_after_grace(what)

    def stop_after_grace(self, what: str) -> NoReturn:
        """Report that the grace time is over and stop.

        Args:
            what: the state of the dialogue.

        Raises:
            SystemExit: 128 + n of the first signal.
        """
        assert self._number is not None  # without a signal there is no grace time
        reports.line(
            f"{_name(self._number)}: stopped {what}; the daemon did not end the dialogue within {self._grace:g} s"
        )
        raise SystemExit(reports.exit_code_of_signal(self._number))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._number is None:
            self._number = number
            self._deadline = time.monotonic() + self._grace
            self._bound_reads()
            reports.line(
                f"{_name(number)}: noted; going on until the daemon ends the dialogue, {self._grace:g} s at most;"
                " a second signal stops at once"
            )
        elif not self._stopping:
            self._number = number
            self._stopping = True
            reports.line(f"{_name(number)}: stopping at once, no status is sent")
            self.check()
        else:
            os._exit(reports.exit_code_of_signal(number))

    def _bound_reads(self) -> None:
        if self._set_read_deadline is not None and self._grace < _NO_LIMIT:
            self._set_read_deadline(max(0.0, self._deadline - time.monotonic()))

    def _restore(self) -> None:
        global _watching
        import signal

        if self._wakeup is None:
            return
        _watching = None
        for number, before in self._previous.items():
            # A handler that was not set from Python reads as None and cannot be put back.
            signal.signal(number, before if before is not None else signal.SIG_DFL)
        if (now := signal.set_wakeup_fd(-1)) not in (-1, self._wakeup[1]):
            signal.set_wakeup_fd(now)
        for fd in self._wakeup:
            close_if_still(fd, self._wakeup_file)
        self._wakeup = None


def _numbers() -> tuple[int, ...]:
    import signal

    return signal.SIGTERM, signal.SIGINT, signal.SIGHUP


def _name(number: int) -> str:
    import signal

    return signal.Signals(number).name


def _block_signals() -> None:
    import signal

    if _watching is not None:
        _at_fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _numbers())


def _unblock_signals() -> None:
    import signal

    mask = _at_fork.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _restore_in_forked_child() -> None:
    if _watching is not None:
        _watching._restore()
    _unblock_signals()
