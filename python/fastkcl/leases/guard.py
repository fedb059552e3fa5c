"""Renewals that no event loop can hold up: a thread that renews late leases, on its own connection.

Heartbeats are tasks of an event loop, and a program that computes for seconds without awaiting stops them. This thread
looks now and then for overdue leases, and renews them. While the loop beats in time the thread does nothing else.

Rules: the thread does not keep the process alive, and ends with the program's event loop: leases of a program that has
ended its loop without `close` run out. A lease that it cannot renew it tries again at the next look. Where a renewal
has no time to connect as well, the thread connects first, and leases are taken afterwards (`connected`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from fastkcl.masking import without_sent
from fastkcl.stdio.log import module_logger

__all__ = ["Guard", "Renewer"]

log = module_logger(__name__)

CLOSE_SECONDS = 1.0
CONNECT_SECONDS = 5.0
"""To connect ahead, at the most."""
QUICK_SECONDS = 2.0
"""A renewal that has less time than this finds a connection."""


class Renewer(Protocol):
    """A connection, used by one thread and its event loop."""

    async def connect(self) -> None:
        """Connect, as the first renewal does otherwise.

        Raises:
            Exception: it is not connected.
        """

    async def renew(self, key: str) -> None:
        """Renew a lease of ours.

        Raises:
            Exception: it is not known to be renewed.
        """

    async def close(self) -> None:
        """Disconnect."""


class Guard:
    """The thread, from `start` to `close`.

    Args:
        late: the leases that are overdue.
        connect: makes the connection: when the first lease is late, or ahead.
        every: seconds between two looks.
        timeout: seconds for a renewal.
        name: of the thread.
    """

    def __init__(
        self,
        late: Callable[[], Sequence[str]],
        connect: Callable[[], Renewer],
        *,
        every: float,
        timeout: float,
        name: str,
    ) -> None:
        self._late = late
        self._connect = connect
        self._every = every
        self._timeout = timeout
        self._name = name
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._connected = asyncio.Event()

    def start(self) -> None:
        """Begin to look, in the event loop whose leases these are. Again, nothing happens."""
        if self._thread is None:
            self._closing = threading.Event()
            arguments = self._closing, asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, args=arguments, name=self._name, daemon=True)
            self._thread.start()

    async def connected(self) -> None:
        """Wait until leases that are taken now can be renewed in time; a backend that is away is not waited for."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._connected.wait(), CONNECT_SECONDS)

    async def close(self) -> None:
        """End the thread, and wait a second for it: a renewal that hangs ends by its own timeout."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._closing.set()
            await asyncio.to_thread(thread.join, CLOSE_SECONDS)

    def _run(self, closing: threading.Event, program: asyncio.AbstractEventLoop) -> None:
        renewer: Renewer | None = None
        with asyncio.Runner() as runner:
            if self._timeout < QUICK_SECONDS:
                renewer = self._connect()
                runner.run(self._connect_ahead(renewer))
            with contextlib.suppress(RuntimeError):  # its loop has ended
                program.call_soon_threadsafe(self._connected.set)
            while not closing.wait(self._every):
                if program.is_closed():
                    log.warning("%s: the program's event loop has ended without close: its leases run out", self._name)
                    break
                if late := self._late():
                    renewer = renewer or self._connect()
                    runner.run(self._renew(renewer, late))
            if renewer is not None:
                runner.run(self._disconnect(renewer))

    async def _connect_ahead(self, renewer: Renewer) -> None:
        try:
            await asyncio.wait_for(renewer.connect(), CONNECT_SECONDS)
        except Exception as error:
            log.warning("%s: is not connected, the first renewal tries again: %r", self._name, error)

    async def _renew(self, renewer: Renewer, late: Sequence[str]) -> None:
        log.info("%s: the event loop is busy, so these leases are renewed without it: %s", self._name, ", ".join(late))
        calls = (asyncio.wait_for(renewer.renew(key), self._timeout) for key in late)
        for key, error in zip(late, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(error, Exception):
                log.warning(
                    "%s: %s is not renewed: %s(%r)", self._name, key, type(error).__name__, without_sent(str(error))
                )

    async def _disconnect(self, renewer: Renewer) -> None:
        try:
            await asyncio.wait_for(renewer.close(), self._timeout)
        except Exception as error:
            log.warning("%s: could not disconnect: %r", self._name, error)
