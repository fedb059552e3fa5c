"""How fast a count grows, as displays show it."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Rate"]

_SECONDS: Final = 10.0


class Rate:
    """The growth of a count over the last seconds.

    Args:
        seconds: how many.
    """

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._history: deque[tuple[float, float]] = deque()

    def at(self, now: float, count: float) -> float:
        """Counts a second, with the count of now; 0 at first, and where the count begins anew.

        Args:
            now: seconds, on a clock that does not go back.
            count: as it is now.
        """
        history = self._history
        history.append((now, count))
        while len(history) > 2 and now - history[1][0] >= self._seconds:
            history.popleft()
        since, before = history[0]
        return max(0.0, count - before) / (now - since) if now > since else 0.0
