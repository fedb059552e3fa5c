"""A clock that stands still until a test moves it."""

from __future__ import annotations


class Clock:
    """Time that passes only when a test moves it, or when it is slept away.

    Takes the place of `time.monotonic` when it is called, and of `time.sleep` by its method.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
