"""One member of a group that shares leases: those that it holds, renews and takes. A state machine without I/O.

    looked ──▶ the rows seen, and since when ──▶ takes ──▶ Take ──▶ held ──▶ renewals ──▶ Renew ──▶ renewed …
                                                             │        │                     │
                                                             └────────┴── dropped ◀─────────┘

The time for which a lease is believed in:

- Its owner believes from the answer to a write until a failover time after it *asked* for that write: `holds`.
- Others believe in an owner until the row stood still for a failover time, from the *end* of the look that saw it first
  to the *beginning* of the one that saw it last. A take is conditional on that row. Where a table has a reliable clock,
  it may report sooner that a lease has `expired`.

So no owner believes in a lease that ran out, also if a process hangs, is suspended or loses an answer; only stealing
makes two believe, until the robbed one writes, or looks.

Rules: a renewal never revives a lease that has run out. A lost answer does no harm: the row names the owner of the
lease, and a row that names us is taken again. Leases that are handed over (`Lease.heir`) are not stolen. Another thread
may ask for the held leases, and renew them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from random import Random

from fastkcl.leases.balance import choose
from fastkcl.leases.lease import Lease

__all__ = ["Keeper", "Renew", "Rules", "Take", "Why"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Options that all members of a group have in common, and options of each.

    Attributes:
        failover: seconds without a renewal after which a lease is free. The same for all members.
        renew_every: seconds between two renewals; KCL's is a third of `failover`.
        grain: seconds within which two renewals may leave the same version.
        overdue: failover times after which a free lease is taken beyond the target.
        max_leases: of this member; None for any number.
        max_to_steal: at once; None for as many as are needed.

    Raises:
        ValueError: a renewal would come too late.
    """

    failover: float
    renew_every: float
    grain: float = 0.0
    overdue: float = 1.5
    max_leases: int | None = None
    max_to_steal: int | None = None

    def __post_init__(self) -> None:
        """Refuse options that lose every lease."""
        if not 0 < self.renew_every < self.failover:
            raise ValueError(f"renew_every must be above 0 and below failover, {self.failover} s: {self.renew_every} s")


class Why(Enum):
    """Why a lease is taken."""

    FREE = "free"
    OURS = "ours already"
    EXPIRED = "its owner is gone"
    BALANCE = "balance"


@dataclass(frozen=True, slots=True)
class Take:
    """Own a lease, if it is as it was seen; of a steal, if it still has the owner that it had.

    Attributes:
        key: which.
        seen: its row; None if there was none.
        why: the reason.
    """

    key: str
    seen: Lease | None
    why: Why


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew a lease, if its owner still is the owner."""

    key: str


@dataclass(slots=True)
class _Seen:
    lease: Lease
    since: float  # the end of the look that saw this version first
    until: float  # the beginning of the look that saw it last

    @property
    def still(self) -> float:
        return max(0.0, self.until - self.since)


@dataclass(frozen=True, slots=True)
class _Held:
    asked: float
    answered: float


class Keeper:
    """A member.

    Args:
        me: its name, which no other member has.
        rules: see there.
        chance: for choices among equals.
    """

    def __init__(self, me: str, rules: Rules, chance: Random | None = None) -> None:
        self.me = me
        self.rules = rules
        self._chance = chance or Random()
        self._seen: dict[str, _Seen] = {}
        self._missing: dict[str, float] = {}  # wanted, without a row, since
        self._held: dict[str, _Held] = {}
        self._looked = -1.0  # when the last look began

    # Input.

    def looked(self, leases: Iterable[Lease], *, began: float, ended: float) -> list[str]:
        """All rows, as they were seen.

        Args:
            leases: each row once. Rows that are gone are forgotten.
            began: when they were asked for.
            ended: when they were there.

        Returns:
            Leases that were ours, and are another's by now. They are dropped.
        """
        self._looked = began
        before, self._seen = self._seen, {}
        for lease in leases:
            seen = before.get(lease.key)
            if seen is None or _changed(seen.lease, lease):
                self._seen[lease.key] = _Seen(lease, ended, began)
            else:
                seen.lease, seen.until = lease, began
                self._seen[lease.key] = seen
        lost = [
            key
            for key, held in list(self._held.items())
            if key in self._seen and self._seen[key].lease.owner != self.me and held.answered <= began
        ]
        for key in lost:
            self.dropped(key)
        return lost

    def held(self, key: str, *, asked: float, answered: float) -> None:
        """A take has succeeded, so the lease is ours.

        Args:
            key: which.
            asked: when the write was sent.
            answered: when its answer came.
        """
        self._held[key] = _Held(asked, answered)

    def renewed(self, key: str, *, asked: float, answered: float) -> None:
        """A write of the owner's has succeeded. Nothing happens to a lease that was dropped meanwhile.

        Args:
            key: which.
            asked: when the write was sent.
            answered: when its answer came.
        """
        held = self._held.get(key)
        if held is not None:
            self._held[key] = _Held(max(held.asked, asked), max(held.answered, answered))

    def dropped(self, key: str) -> None:
        """A lease is not ours any more: given back, refused, or seen to be another's."""
        self._held.pop(key, None)

    # Questions.

    def holds(self, key: str, now: float) -> bool:
        """Whether the lease is ours, and nobody can have found that it ran out."""
        held = self._held.get(key)
        return held is not None and now - held.asked < self.rules.failover

    def seen(self, key: str) -> Lease | None:
        """The row, as it was seen last."""
        seen = self._seen.get(key)
        return None if seen is None else seen.lease

    @property
    def finished(self) -> frozenset[str]:
        """Leases that nobody needs any more."""
        return frozenset(key for key, seen in self._seen.items() if seen.lease.finished)

    def renewals(self, now: float, *, late: bool = False) -> list[Renew]:
        """The due renewals.

        Args:
            now: the time.
            late: only leases overdue by a quarter of the time that is left, so that somebody else has to renew it.
        """
        rules = self.rules
        age = rules.renew_every + (rules.failover - rules.renew_every) / 4 if late else rules.renew_every
        return [Renew(key) for key, held in list(self._held.items()) if age <= now - held.asked < rules.failover]

    def takes(self, wanted: Collection[str], now: float, *, restartable: bool = True) -> list[Take]:
        """The leases to take now, by the last look.

        Args:
            wanted: all leases that this member could serve, with or without a row, ours and others' included.
            now: the time.
            restartable: whether a lease without a position may be stolen: its new owner begins it anew.

        Returns:
            Conditional writes; call `held` for those that succeed.
        """
        for key in [key for key in self._missing if key not in wanted or key in self._seen]:
            del self._missing[key]
        free: list[str] = []
        overdue: list[str] = []
        owned: dict[str, str] = {}
        ours: list[Take] = []
        for key, seen in self._seen.items():
            holder = seen.lease.holder
            if seen.lease.finished:
                continue
            if self.holds(key, now):
                owned[key] = self.me
            elif seen.lease.owner == self.me:
                if key in wanted:
                    owned[key] = self.me
                    ours.append(Take(key, seen.lease, Why.OURS))
            elif holder is not None and not self._is_over(seen):
                owned[key] = holder
            elif key in wanted:
                free.append(key)
                if seen.still >= self._overdue:
                    overdue.append(key)
        for key in wanted:
            if key in self._seen:
                continue
            if self.holds(key, now):
                owned[key] = self.me
                continue
            free.append(key)
            if self._looked - self._missing.setdefault(key, self._looked) >= self._overdue:
                overdue.append(key)
        stealable = [
            key
            for key, owner in owned.items()
            if owner != self.me
            and key in wanted
            and self._seen[key].lease.heir is None
            and (restartable or self._seen[key].lease.placed)
        ]
        taken, stolen = choose(
            self.me,
            free=free,
            overdue=overdue,
            owned=owned,
            stealable=stealable,
            max_leases=self.rules.max_leases,
            max_to_steal=self.rules.max_to_steal,
            chance=self._chance,
        )
        return [
            *ours,
            *(self._take(key) for key in taken),
            *(Take(key, self._seen[key].lease, Why.BALANCE) for key in stolen),
        ]

    def _take(self, key: str) -> Take:
        lease = self.seen(key)
        return Take(key, lease, Why.FREE if lease is None or lease.holder is None else Why.EXPIRED)

    @property
    def _overdue(self) -> float:
        return self.rules.failover * self.rules.overdue

    def _is_over(self, seen: _Seen) -> bool:
        """Whether the owner of a row is gone."""
        return seen.lease.expired or seen.still >= self.rules.failover + self.rules.grain


def _changed(before: Lease, now: Lease) -> bool:
    def identity(lease: Lease) -> tuple[Hashable, ...]:
        return lease.owner, lease.heir, lease.version

    return identity(before) != identity(now)
