"""Clients that a program leaves without `close`: the log says what that costs.

    nobody refers to it any more ── __del__ ──┐
    the process ends ── atexit, Finalize ─────┼──▶ report_unclosed, once
    it knows of its end itself ───────────────┤
    its loop has ended ─── the next `watch` ──┘

An event loop that ends need not cancel its tasks, and a client cannot see that it has ended. The next client can: what
is reported then, e.g. that records come again, has not happened yet.

Rules: nothing is said of a client that is `unwatch`ed, and nothing in a fork of the process that has begun to watch it.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from fastkcl.kinesis.event_loops import check_loop

if TYPE_CHECKING:
    from fastkcl.kinesis.client import StreamClient

__all__ = ["Watched"]

_BEFORE_QUEUES = 100
"""Of the finalizers of multiprocessing: those of its queues, which may be the log's handlers, have 10."""
_LOST = "was not closed before its event loop ended"


class Watched(ABC):
    """A client, from `watch` to `unwatch`."""

    _client: StreamClient
    _kind: ClassVar[str]
    _watched_by: int | None = None  # the process
    _began_in: asyncio.AbstractEventLoop | None = None

    @property
    def stream_name(self) -> str:
        """The stream's name, without the rest of an ARN."""
        return self._client.stream_name

    @property
    def address(self) -> dict[str, str]:
        """The stream as a request names it: ``StreamName``, or ``StreamARN`` if it was given as an ARN."""
        return self._client.address

    @property
    def title(self) -> str:
        """Of what kind it is, and of which stream, for messages."""
        return f"the {self._kind} of {self.stream_name}"

    @abstractmethod
    def report_unclosed(self, why: str) -> None:
        """Log what is lost; the event loop may be closed, or run in another thread.

        Args:
            why: of the client, as in "was not closed".
        """

    def watch(self) -> None:
        """It has begun: it should be closed from now on."""
        _report_at_exit()
        for client in _those_watched():
            if client.has_lost_its_loop:
                client.leave(_LOST)
        self._watched_by = os.getpid()
        self._began_in = asyncio.get_running_loop()
        _watched.add(self)

    def unwatch(self) -> None:
        """It is closed."""
        self._watched_by = self._began_in = None
        _watched.discard(self)

    def leave(self, why: str = "was not closed") -> None:
        """Report it, unless it is closed or reported already."""
        if self._watched_by is not None and self._watched_by == os.getpid():
            self._watched_by = None
            _watched.discard(self)
            self.report_unclosed(why)

    @property
    def has_lost_its_loop(self) -> bool:
        """Whether the event loop has ended in which it began."""
        return self._began_in is not None and self._began_in.is_closed()

    def check_loop(self) -> None:
        """Refuse to go on, or to end, where it did not begin. Reported, if it cannot be closed any more.

        Raises:
            RuntimeError: the event loop has ended in which it began, or is another one.
        """
        self.check_other_loop()
        if self.has_lost_its_loop:
            self.leave(_LOST)
            raise RuntimeError(f"{self.title}: the event loop has ended in which it began; make another one")

    def check_other_loop(self) -> None:
        """Refuse another event loop while the first is not closed.

        Raises:
            RuntimeError: see `check_loop` of `fastkcl.kinesis.event_loops`.
        """
        check_loop(self._began_in, self.title)

    def __del__(self) -> None:
        """Nobody can close it any more."""
        self.leave()


_watched = weakref.WeakSet[Watched]()


def _those_watched() -> list[Watched]:
    while True:
        try:
            return list(_watched)
        except RuntimeError:  # another thread has added or removed one meanwhile, or a collection has
            continue


_finalizer: Any = None  # of multiprocessing, in a child of it


def _report_at_exit() -> None:
    """Have it done before the log's handlers end: those that a program ends at its exit are there by now."""
    global _finalizer
    if not any(client._watched_by == os.getpid() for client in _those_watched()):
        atexit.unregister(_report_all)
        atexit.register(_report_all)
    # A child that multiprocessing has forked ends by os._exit, after these, and begins with none of its parent's.
    util = sys.modules.get("multiprocessing.util")
    if util is not None and (_finalizer is None or not _finalizer.still_active()):
        _finalizer = util.Finalize(None, _report_all, exitpriority=_BEFORE_QUEUES)


def _report_all() -> None:
    for client in _those_watched():
        client.leave()
