"""Clients that a program leaves without `close`: the log says what that costs.

    nobody refers to it any more ── __del__ ──┐
    the process ends ─────────────── atexit ──┼──▶ report_unclosed, once
    it knows of its end itself ───────────────┘

An event loop that ends need not cancel its tasks, and a client cannot see that it has ended.

Rules: nothing is said of a client that is `unwatch`ed, and nothing in a fork of the process that has begun to watch it.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import weakref
from abc import ABC, abstractmethod

__all__ = ["Watched"]


class Watched(ABC):
    """A client, from `watch` to `unwatch`."""

    _watched_by: int | None = None  # the process
    _began_in: asyncio.AbstractEventLoop | None = None

    @abstractmethod
    def report_unclosed(self, why: str) -> None:
        """Log what is lost; the event loop may be closed, or run in another thread.

        Args:
            why: of the client, as in "was not closed".
        """

    def watch(self) -> None:
        """It has begun: it should be closed from now on."""
        if not _watched:  # the handlers of the log that a program ends at its exit are there by now, and end later
            atexit.unregister(_report_all)
            atexit.register(_report_all)
        self._watched_by = os.getpid()
        self._began_in = asyncio.get_running_loop()
        _watched.add(self)

    def unwatch(self) -> None:
        """It is closed, or all is said."""
        self._watched_by = None
        _watched.discard(self)

    def leave(self, why: str = "was not closed") -> None:
        """Report it, unless it is closed or reported already."""
        if self._watched_by is not None and self._watched_by == os.getpid():
            self.unwatch()
            self.report_unclosed(why)

    def check_loop(self) -> None:
        """Report it, if it cannot be closed any more.

        Raises:
            RuntimeError: the event loop has ended in which it began.
        """
        if self._began_in is not None and self._began_in.is_closed():
            self.leave("was not closed before its event loop ended")
            raise RuntimeError(f"{type(self).__name__}.close(): the event loop has ended in which it began")

    def __del__(self) -> None:
        """Nobody can close it any more."""
        self.leave()


_watched = weakref.WeakSet[Watched]()


def _report_all() -> None:
    for client in list(_watched):
        client.leave()
