"""Faults on request: which calls are to fail, how, and how often.

A fault waits for calls of one operation. It lets `skip` of them pass, affects the next `times`, and is
then over. Faults are tried in their order, and one call meets one fault.

    {"op": "GetRecords", "error": "ExpiredIteratorException", "times": 1}
    {"op": "UpdateItem", "error": "ProvisionedThroughputExceededException", "contains": "checkpoint"}
    {"op": "PutRecords", "error": "InternalFailure", "every": 3}         each third record of a call, not the call
    {"op": "PutRecords", "delay": 2.5}                                   late, but done
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Fault", "FaultError", "Faults"]


class FaultError(ValueError):
    """A fault that cannot be: the message has the reason."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The effect on calls of an operation.

    Attributes:
        op: the operation, of any service, e.g. ``GetRecords`` or ``UpdateItem``.
        error: the error's name; None for a delay alone.
        times: how many calls; None for all.
        skip: how many pass before.
        contains: only calls whose body contains this text.
        every: of PutRecords, refuse each N-th record instead of the call: ``ErrorCode`` in a call that succeeds.
        delay: seconds until the answer.
    """

    op: str
    error: str | None = None
    times: int | None = None
    skip: int = 0
    contains: str = ""
    every: int | None = None
    delay: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a fault that could never happen.

        Raises:
            FaultError: the fault cannot be.
        """
        for name, kinds, least in _FIELDS:
            value = getattr(self, name)
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise FaultError(f"fault of {self.op!r}: {name} cannot be {value!r}")
            if least is not None and isinstance(value, int | float) and not value >= least:
                raise FaultError(f"fault of {self.op!r}: {name} has to be at least {least}, not {value}")
        if not self.op:
            raise FaultError("a fault needs the operation that it is for: op")
        if self.every is not None and (self.op != "PutRecords" or self.error is None):
            raise FaultError(f"fault of {self.op!r}: every is for the records of PutRecords, and needs an error")
        if self.error is None and not self.delay:
            raise FaultError(f"fault of {self.op!r}: it has neither error nor delay")

    @classmethod
    def from_json(cls, value: object) -> Fault:
        """From a decoded JSON object.

        Raises:
            FaultError: it is none.
        """
        if not isinstance(value, dict):
            raise FaultError(f"a fault is an object, not {value!r}")
        names = [name for name, _, _ in _FIELDS]
        unknown = sorted(set(value) - set(names))
        if unknown:
            raise FaultError(f"unknown key {unknown[0]!r}; a fault has {', '.join(names)}")
        if "op" not in value:
            raise FaultError("a fault needs the operation that it is for: op")
        return cls(**value)


_FIELDS: tuple[tuple[str, Any, float | None], ...] = (
    ("op", str, None),
    ("error", str | None, None),
    ("times", int | None, 1),
    ("skip", int, 0),
    ("contains", str, None),
    ("every", int | None, 1),
    ("delay", int | float, 0.0),
)


@dataclass(slots=True)
class _Armed:
    fault: Fault
    skipped: int = 0
    hits: int = 0

    def meets(self, op: str, body: bytes) -> bool:
        fault = self.fault
        if fault.op != op or fault.contains.encode() not in body or self.hits == fault.times:
            return False
        if self.skipped < fault.skip:
            self.skipped += 1
            return False
        self.hits += 1
        return True


class Faults:
    """The faults that wait, and how many calls of each operation there were."""

    def __init__(self) -> None:
        self._armed: list[_Armed] = []
        self._calls: collections.Counter[str] = collections.Counter()

    def arm(self, faults: Iterable[Fault]) -> None:
        """Wait with these, and no others."""
        self._armed = [_Armed(fault) for fault in faults]

    def meet(self, op: str, body: bytes) -> Fault | None:
        """Count a call, and return the fault that it meets."""
        self._calls[op] += 1
        return next((armed.fault for armed in self._armed if armed.meets(op, body)), None)

    def to_json(self) -> dict[str, Any]:
        """Faults with their hits, and calls by operation."""
        faults = [{**dataclasses.asdict(armed.fault), "hits": armed.hits} for armed in self._armed]
        return {"faults": faults, "calls": dict(sorted(self._calls.items()))}
