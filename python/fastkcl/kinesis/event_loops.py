"""The event loop of a client: the one where it began, because its tasks and connections are there.

Rules: nothing is awaited here.
"""

from __future__ import annotations

import asyncio

__all__ = ["check_loop"]


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
