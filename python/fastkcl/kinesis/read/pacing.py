"""Decides when a program that iterates over items lets the event loop run.

If an item is ready, the program does not wait for it. So a program whose loop body awaits nothing would hold the event
loop for a whole answer: nothing would be fetched, no position written, and no other task would run. So when the program
has been busy for `BUSY_SECONDS`, asking for an item lets the loop run once. If the program blocks the loop for much
longer at a time, one turn is not enough, for example for a TLS handshake: then the loop gets a fiftieth of that time.

Rules: no I/O and no clock.
"""

from __future__ import annotations

__all__ = ["BUSY_SECONDS", "Pace"]

BUSY_SECONDS = 0.005
LONG_SECONDS = 0.05
LOOPS_PART = 0.02
LONGEST_PAUSE = 0.25  # seconds


class Pace:
    """How long the program has been busy since the event loop ran."""

    def __init__(self) -> None:
        self._since = 0.0
        self.due = BUSY_SECONDS
        """When `pause` gives something again."""
        self._loop_ran = True

    def pause(self, now: float) -> float | None:
        """Seconds for the event loop before the next item, 0 for one turn; None for none."""
        busy = now - self._since
        if now < self.due:
            return None
        if self._loop_ran or busy < LONG_SECONDS:
            return 0.0
        return min(busy * LOOPS_PART, LONGEST_PAUSE)

    def resumed(self, now: float) -> None:
        """The program continues after a pause."""
        self._since = now
        self.due = now + BUSY_SECONDS
        self._loop_ran = False

    def loop_ran(self) -> None:
        """The event loop runs: the program awaits something, or has ended."""
        self._loop_ran = True
