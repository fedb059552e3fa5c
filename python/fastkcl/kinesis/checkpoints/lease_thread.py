"""An event loop in a thread of its own: for heartbeats that a busy program must not hold up.

A program that computes for a minute between two items runs none of its event loop's tasks meanwhile. What runs here
goes on: Python switches threads every 5 ms, whatever they do. (Code in C that keeps the GIL for a minute stops it.)

Rules: connections belong to the loop that has made them, so all calls to a backend run here. The thread starts with the
first of them, and ends with `stop`, or with the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["LeaseThread"]

T = TypeVar("T")


class LeaseThread:
    """A thread with an event loop.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has been started, and not stopped."""
        return self._loop is not None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something there. If this is cancelled, so is the work.

        Raises:
            Exception: what the work has raised.
        """
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=[self._loop], name=self._name, daemon=True)
            self._thread.start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def stop(self) -> None:
        """Cancel what runs there, and end the thread. Again, nothing happens."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(asyncio.sleep(0))  # the turn in which closed connections close
    finally:
        loop.close()
