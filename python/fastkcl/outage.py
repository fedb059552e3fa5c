"""How long a service is away, as failures of calls show it.

    failure ── 5 s ── failure ── 5 s ── failure       10 s
    failure ── an hour without a call ── failure      90 s: nobody has tried in between

Rules: no clock; times are ms of any clock that does not go back.
"""

from __future__ import annotations

__all__ = ["ATTEMPT", "Outage"]

ATTEMPT = 90_000
"""ms of a call and its pause; between two failures more time counts for no outage, as nobody has tried."""


class Outage:
    """Failures of one kind of call without a success between them."""

    def __init__(self) -> None:
        self._since: int | None = None
        self._last = 0

    def failed(self, now: int) -> int:
        """A call has failed; for how many ms the service is away."""
        if self._since is None:
            self._since = self._last = now
        self._since += max(0, now - self._last - ATTEMPT)
        self._last = now
        return now - self._since

    def ended(self) -> None:
        """The service has answered."""
        self._since = None
