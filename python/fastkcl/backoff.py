"""Pauses before something is tried again: each twice as long as the one before. No clock, no sleep."""

from __future__ import annotations

__all__ = ["Backoff", "doubled"]

_MOST_DOUBLINGS = 16


def doubled(first: float, attempt: int, longest: float = float("inf")) -> float:
    """Seconds to wait before a retry.

    Args:
        first: before the first retry.
        attempt: retries before this one; from 16 on the pause stays as it is.
        longest: the bound of all pauses.
    """
    return min(first * 2.0 ** min(attempt, _MOST_DOUBLINGS), longest)


class Backoff:
    """Pauses that double until something succeeds; by default those for a service that throttles its callers.

    Args:
        first: seconds.
        longest: seconds.
    """

    def __init__(self, first: float = 0.25, longest: float = 5.0) -> None:
        self._first = first
        self._longest = longest
        self._attempt = 0

    def next(self) -> float:
        """Seconds to wait now."""
        self._attempt += 1
        return doubled(self._first, self._attempt - 1, self._longest)

    def reset(self) -> None:
        """Begin with the first again."""
        self._attempt = 0
