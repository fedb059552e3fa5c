"""Decides which id is looked up when, and when an outage has lasted too long; keeps the known schemas.

    id ──▶ next ──▶ Look ──▶ found   ──▶ known for ever
                         ├─▶ missing ──▶ Wait 5 s ──▶ Look ──▶ missing ──▶ known as missing: the records are corrupt
                         └─▶ away    ──▶ Wait, longer each time ──▶ Look … until max_outage ──▶ GaveUp

A missing id gets one more look 5 s later, because registration and the first record can race. An outage (throttled,
denied, unreachable) concerns all ids of a registry, and is not the record's fault.

Rules: no clock, no chance, no I/O. Times are seconds of any clock that does not go back. Ids are bounded: a stream of
garbage with headers cannot fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from fastkcl.backoff import Backoff
from fastkcl.outage import Outage

__all__ = ["GaveUp", "Known", "Look", "Lookups", "Missing", "Next", "Wait"]

SECOND_LOOK: Final = 5.0
"""Seconds after which an id that was missing is looked up once more."""
SPREAD: Final = 0.5
"""Seconds within which the processes of a fleet make their first look."""
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
MAX_MISSING: Final = 10_000
"""Ids that are remembered as missing; beyond it all of them are asked for anew."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look:
    """Ask the registry for this id now."""

    id: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be asked for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Known:
    """Each of the ids is known, or known to be missing."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The registry was away for as long as `max_outage`."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Missing:
    """What is known of an id that cannot be used: why."""

    reason: str


Next: TypeAlias = Look | Wait | Known | GaveUp


class Lookups(Generic[T]):
    """What a process knows of a registry's ids.

    Args:
        max_outage: seconds for which the registry may be away.
    """

    def __init__(self, max_outage: float) -> None:
        self._max_outage = max_outage
        self._known: dict[str, T | Missing] = {}
        self._again: dict[str, float] = {}  # missing once: when they are looked up again
        self._outage = Outage()
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._pause_ends: float | None = None  # None before the first look of all
        self._away: GaveUp | None = None

    def get(self, id: str) -> T | Missing | None:  # noqa: A002 - the field's word
        """What is known of an id; None if nothing is."""
        return self._known.get(id)

    def next(self, ids: Iterable[str], now: float, chance: float) -> Next:
        """What is to be done until all of the ids are known.

        Args:
            ids: that are wanted.
            now: seconds.
            chance: 0 to 1, by which the first looks of many processes are spread.
        """
        if self._away is not None:
            gave_up, self._away = self._away, None
            return gave_up
        wanted = [id for id in ids if id not in self._known]
        if not wanted:
            return Known()
        if self._pause_ends is None:
            self._pause_ends = now + SPREAD * chance
        if now < self._pause_ends:
            return Wait(self._pause_ends - now)
        due = {id: self._again.get(id, now) for id in wanted}
        first = min(wanted, key=lambda id: due[id])
        return Look(first) if due[first] <= now else Wait(due[first] - now)

    def forget(self, id: str) -> None:  # noqa: A002
        """Look this one up again when it is wanted next."""
        self._known.pop(id, None)
        self._again.pop(id, None)

    def forget_missing(self) -> None:
        """Look each id that is missing, or cannot be used, up again when it is wanted next."""
        self._known = {id: each for id, each in self._known.items() if not isinstance(each, Missing)}
        self._again = {}

    def found(self, id: str, schema: T) -> None:  # noqa: A002
        """The registry has answered; what it has for the id stays."""
        self._answered()
        self._again.pop(id, None)
        self._known[id] = schema

    def unusable(self, id: str, reason: str) -> None:  # noqa: A002
        """The registry has answered, and what it has cannot be used."""
        self._answered()
        self._remember(id, reason)

    def missing(self, id: str, now: float, reason: str) -> None:  # noqa: A002
        """The registry does not know the id."""
        self._answered()
        if id in self._again:
            self._remember(id, reason)
        else:
            self._again[id] = now + SECOND_LOOK

    def away(self, now: float, chance: float, reason: str) -> None:
        """The registry gives no answer: unreachable, throttled or denied.

        Args:
            now: seconds.
            chance: 0 to 1: half of the pause, and this share of the other half, so that callers do not come together.
            reason: with the call, the id and the address.
        """
        lasted = self._outage.failed(int(now * 1000)) / 1000
        self._pause_ends = now + self._backoff.next() * (0.5 + 0.5 * chance)
        if lasted >= self._max_outage:
            self._away = GaveUp(lasted, reason)

    def _answered(self) -> None:
        self._outage.ended()
        self._backoff.reset()

    def _remember(self, id: str, reason: str) -> None:  # noqa: A002
        self._again.pop(id, None)
        if sum(isinstance(each, Missing) for each in self._known.values()) >= MAX_MISSING:
            self._known = {id: each for id, each in self._known.items() if not isinstance(each, Missing)}
        self._known[id] = Missing(reason)
