"""Signals for the main thread of a test, at the moment when it waits."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from waiting import wait_until_idle

NUMBER = signal.SIGUSR1
"""The signal; SIGALRM belongs to the tests' time limits."""


def when_idle(action: Callable[[], object], *, times: int = 1, looks: int = 5) -> threading.Thread:
    """Start a thread that acts as soon as the main thread waits, and again when it has gone back to waiting.

    It acts also after `waiting.PATIENCE`, so that the main thread's wait has an end; then the thread fails.
    """

    def act() -> None:
        for _ in range(times):
            try:
                wait_until_idle(os.getpid(), looks=looks)
            finally:
                action()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


@contextlib.contextmanager
def handled_when_idle(handler: Callable[[], object], *, times: int = 1, looks: int = 5) -> Iterator[None]:
    """In the block the main thread gets a signal as soon as it waits, and `handler` runs in it.

    Args:
        handler: called in the main thread.
        times: so many signals, each when it waits.
        looks: of `wait_until_idle`, 10 ms or more between two.
    """
    main = threading.main_thread().ident
    assert main is not None
    left = False

    def send() -> None:
        if not left:
            signal.pthread_kill(main, NUMBER)

    def handle(*_: Any) -> None:
        handler()

    before = signal.signal(NUMBER, handle)
    try:
        thread = when_idle(send, times=times, looks=looks)
        try:
            yield
        finally:
            left = True
            thread.join()
    finally:
        signal.signal(NUMBER, before)
