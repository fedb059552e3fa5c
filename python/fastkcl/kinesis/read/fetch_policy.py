"""The reactions to failures of a shard's calls, without I/O or clock.

==============================  ================================================================================
too much, too often             wait 0.25 s, then twice as long each time up to 5 s; this is not a failure
iterator expired                a new one after the last record that was queued, or where the shard began
no such shard, new iterator     look at the list of shards. It has the shard: as anything else. It does not, twice, 3 s
                                apart: the shard is gone with its records, its end
another stream of that name     it reaches the program at once, as does a stream that is gone
outage                          the client waits and tries again; when it gives up, so does the reader
answer above max_batch_bytes    it reaches the program at once, as it would come again
denied: permission, credentials wait as above; the fifth in a row, after 4 s, reaches the program
anything else                   wait as above; the tenth in a row reaches the program
==============================  ================================================================================

The first failure in a row has a line in the log, and so has the third answer in a row that said too much or too often.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from fastkcl.backoff import Backoff
from fastkcl.kinesis.failures import FEW_THROTTLED, Failure

__all__ = ["FetchPolicy", "Next", "Step"]

MAX_FAILURES = 10
MAX_DENIED = 5
MAX_ABSENCES = 2
ABSENCE_SECONDS = 3.0  # between two looks at the list of shards


class Next(Enum):
    """The step after a failure."""

    AGAIN = "again"
    NEW_ITERATOR = "new iterator"
    LOOK = "look"
    """At the list of shards, and call `FetchPolicy.looked`."""
    SHARD_GONE = "shard gone"
    GIVE_UP = "give up"


class Step(NamedTuple):
    """The next step, and the seconds before it."""

    next: Next
    pause: float = 0.0
    is_news: bool = False
    """Whether users are to hear of the failure: once in a row of them."""


class FetchPolicy:
    """The table above."""

    def __init__(self) -> None:
        self._failures = 0
        self._throttled = 0
        self._absences = 0
        self._is_told = False
        self._backoff = Backoff()

    def failed(self, failure: Failure, *, of_iterator: bool = False) -> Step:
        """The reaction to a failure.

        Args:
            failure: which.
            of_iterator: whether it was a new iterator that could not be had.
        """
        if failure is Failure.THROTTLED:
            self._throttled += 1
            return self._again(is_news=self._throttled > FEW_THROTTLED)
        if failure is Failure.NOT_FOUND and of_iterator:
            return Step(Next.LOOK)
        self._failures += 1
        if self._failures >= (MAX_DENIED if failure is Failure.DENIED else MAX_FAILURES):
            return Step(Next.GIVE_UP)
        if failure in (Failure.EXPIRED_ITERATOR, Failure.NOT_FOUND):
            return Step(Next.NEW_ITERATOR)
        return self._again(is_news=True)

    def _again(self, *, is_news: bool) -> Step:
        is_news, self._is_told = is_news and not self._is_told, is_news or self._is_told
        return Step(Next.AGAIN, self._backoff.next(), is_news)

    def looked(self, *, is_listed: bool) -> Step:
        """The reaction to a missing shard, after a look at the list of shards."""
        if is_listed:
            self._absences = 0
            return self.failed(Failure.OTHER)
        self._absences += 1
        return Step(Next.SHARD_GONE) if self._absences >= MAX_ABSENCES else Step(Next.AGAIN, ABSENCE_SECONDS)

    def succeeded(self) -> None:
        """The call has succeeded."""
        self._failures = self._throttled = self._absences = 0
        self._is_told = False
        self._backoff.reset()
