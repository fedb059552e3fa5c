"""The health of a stitch, by the number of heartbeats that it has missed.

missed  0 1 │ 2 3 4 5 │ 6 …
        green  yellow   red
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Health: TypeAlias = Literal["green", "yellow", "red"]

MOST_GREEN = 1
MOST_YELLOW = 5


class Heartbeats:
    """Heartbeats of one stitch, numbered from 1."""

    __slots__ = ("_answered", "_sent")

    def __init__(self) -> None:
        self._sent = 0
        self._answered = 0

    def send(self) -> int:
        """The number of the next heartbeat, which counts as missed until it is answered."""
        self._sent += 1
        return self._sent

    def answer(self, number: int) -> bool:
        """Take an answer; false if there was no such heartbeat. An old one changes nothing."""
        if not 1 <= number <= self._sent:
            return False
        self._answered = max(self._answered, number)
        return True

    @property
    def sent(self) -> int:
        """How many were sent."""
        return self._sent

    @property
    def answered(self) -> int:
        """The last number that was answered."""
        return self._answered

    @property
    def missed(self) -> int:
        """How many were sent since the last one that was answered."""
        return self._sent - self._answered

    @property
    def health(self) -> Health:
        """The health by the number of missed ones."""
        if self.missed <= MOST_GREEN:
            return "green"
        return "yellow" if self.missed <= MOST_YELLOW else "red"
