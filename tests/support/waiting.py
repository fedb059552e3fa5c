"""Waiting in tests: for an event, with a bound, and with a message that names the awaited event and the last state.

No test sleeps for a time in the hope that something has happened by then. Where a test shows that something does *not*
happen, it waits for an event that comes after it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Seen = TypeVar("Seen")

PATIENCE = 60.0
"""Seconds for what happens within milliseconds on a machine that has nothing else to do."""
STEP = 0.01
"""Seconds between two looks."""


class NotSeenError(AssertionError):
    """What a test waited for did not come."""


def wait_until(
    condition: Callable[[], Seen],
    what: str,
    *,
    seconds: float = PATIENCE,
    seen: Callable[[], object] | None = None,
    step: float = STEP,
) -> Seen:
    """Wait until a condition holds.

    Args:
        condition: is asked again and again.
        what: what is waited for, for the message: "the second child".
        seconds: the bound.
        seen: what there is instead, for the message; by default the condition's last value.
        step: seconds between two looks.

    Returns:
        The condition's first true value.

    Raises:
        NotSeenError: it did not hold within the bound.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise NotSeenError(_message(what, seconds, value, seen))
        time.sleep(step)
    return value


async def until(
    condition: Callable[[], Seen],
    what: str,
    *,
    seconds: float = PATIENCE,
    seen: Callable[[], object] | None = None,
    step: float = STEP,
) -> Seen:
    """`wait_until` for coroutines: the event loop runs meanwhile."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise NotSeenError(_message(what, seconds, value, seen))
        await asyncio.sleep(step)
    return value


def _message(what: str, seconds: float, value: object, seen: Callable[[], object] | None) -> str:
    return f"waited {seconds:g} s for {what}; seen: {value if seen is None else seen()!r}"


def state_of(pid: int) -> str:
    """The state of a process or thread as /proc has it: R runs, S sleeps, T is stopped, Z is a zombie; "" for none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_gone(pid: int) -> bool:
    """Whether a process has ended; nobody may have waited for it yet."""
    return state_of(pid) in ("", "Z")


def wait_until_gone(pid: int, what: str = "", *, seconds: float = PATIENCE) -> None:
    """Wait for the end of a process that need not be a child."""
    wait_until(lambda: is_gone(pid), what or f"the end of process {pid}", seconds=seconds, seen=lambda: state_of(pid))


def wait_until_idle(pid: int, thread: int | None = None, *, looks: int = 5, seconds: float = PATIENCE) -> None:
    """Wait until a thread sleeps and nothing wakes it: it has done all it could, and waits for an event.

    A thread that a busy machine does not let run is in state R, so it does not count as idle.

    Args:
        pid: of the process.
        thread: its native id; the main thread by default.
        looks: so many in a row have to find it asleep, with nothing done in between.
        seconds: the bound.
    """
    status = Path(f"/proc/{pid}/task/{thread or pid}/status")
    last: list[str] = []
    found = 0

    def look() -> bool:
        nonlocal last, found
        lines = status.read_text().splitlines()
        now = [line for line in lines if line.startswith(("State", "voluntary"))]
        found = found + 1 if now == last and "S (" in now[0] else 0
        last = now
        return found >= looks

    wait_until(look, f"process {pid} to have nothing to do", seconds=seconds, seen=lambda: last)
