"""The event loop of a client: the one where it began, because its tasks and connections are there.

Rules: nothing is awaited here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

__all__ = ["check_loop", "cut_off_in_silence"]


@contextlib.contextmanager
def cut_off_in_silence() -> Iterator[None]:
    """Around a call of botocore: its coroutine may be collected after the end of its event loop.

    botocore makes a ValueError of the GeneratorExit that this is, because its context variable was set in another
    context. Callers would log it, and wait for another attempt.
    """
    loop = asyncio.get_running_loop()
    try:
        yield
    except Exception:
        if asyncio._get_running_loop() is not loop:
            raise GeneratorExit from None
        raise


def check_loop(began_in: asyncio.AbstractEventLoop | None, who: str) -> None:
    """Refuse another event loop while the first is not closed.

    Args:
        began_in: the first; None if it has not begun.
        who: has begun there.

    Raises:
        RuntimeError: the running event loop is another one.
    """
    if began_in is None or began_in.is_closed() or began_in is asyncio.get_running_loop():
        return
    state, how = "is stopped", "loop.run_until_complete(...)"
    if began_in.is_running():
        state, how = "runs in another thread", "asyncio.run_coroutine_threadsafe(..., loop)"
    raise RuntimeError(f"{who} began in another event loop, which {state}: use and close it there, with {how}")
