"""A lease of a checkpointer's, which is a shard that is ours, and how often it is renewed."""

from __future__ import annotations

import asyncio

from fastkcl.kinesis.bounds import MOST_SECONDS, check_seconds
from fastkcl.kinesis.exceptions import ValidationError

__all__ = ["HeldLease", "seconds_between_heartbeats"]


def seconds_between_heartbeats(session_timeout: float, given: float | None, most: float) -> float:
    """The `heartbeat_frequency` of a checkpointer.

    Args:
        session_timeout: seconds that a lease lasts.
        given: by the program.
        most: by default.

    Raises:
        ValidationError: one of them cannot be meant.
    """
    check_seconds("session_timeout", session_timeout, most=MOST_SECONDS)
    frequency = min(most, session_timeout / 3) if given is None else given
    check_seconds("heartbeat_frequency", frequency)
    if not frequency < session_timeout:
        raise ValidationError(
            f"heartbeat_frequency must be less than session_timeout ({session_timeout} s), not "
            f"{frequency} s: a lease would run out between two heartbeats"
        )
    return frequency


class HeldLease:
    """A shard that is ours.

    Attributes:
        position: the last one that the backend has.
        leaving: it is to be given back as soon as its buffered position is written.
        ended: nobody needs it when it is given back.
        lock: one request at a time.
    """

    __slots__ = ("ended", "leaving", "lock", "position")

    def __init__(self, position: str | None) -> None:
        self.position = position
        self.leaving = self.ended = False
        self.lock = asyncio.Lock()
