"""Interleaved measurement: ways to do one thing take turns, so that a busy machine slows all of them alike.

    round 1:  A (A A A)  B (B B B)  C        figures of a round: the median of its measured calls
    round 2:  A (A A A)  B (B B B)  C        in brackets: measured; the call before them warms caches up
    ...

A slow way (20 ms and more for its quickest call) is measured by one call: warming up would win little beside it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

__all__ = ["Call", "Samples", "Turns"]

Call = Callable[[], Mapping[str, float]]
"""One call of a way: does the work, and gives its figures by name. One of them is "seconds"."""

Samples = dict[str, dict[str, list[float]]]
"""Figures by way and name, one of each round."""

SLOW_SECONDS = 0.02
MEASURED_CALLS = 3


class Turns:
    """Rounds of several ways.

    Args:
        ways: by name.

    Attributes:
        samples: results of the rounds.
    """

    def __init__(self, ways: Mapping[str, Call]) -> None:
        self._ways = ways
        self._quickest = dict.fromkeys(ways, float("inf"))
        self.samples: Samples = {}
        self.forget()

    def forget(self) -> None:
        """Drop the samples, as after a first round, which does extra work."""
        self.samples = {name: {} for name in self._ways}

    def round(self) -> None:
        """Each way once, in turn."""
        for name, call in self._ways.items():
            first = call()
            self._quickest[name] = min(self._quickest[name], first["seconds"])
            slow = self._quickest[name] >= SLOW_SECONDS
            measured = [first] if slow else [call() for _ in range(MEASURED_CALLS)]
            for figure in first:
                values = self.samples[name].setdefault(figure, [])
                values.append(statistics.median(one[figure] for one in measured))
