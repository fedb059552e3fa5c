"""Faults between a daemon and its child, by name, so that a test can ask for them.

A fault is *asked for*: its effects on the child are expected, noted in the report, and no problem by themselves. A
problem is a breach of the protocol by the child: it answers a broken line, it ends with 0 after one, it does not end
when the daemon has gone. One table, `CATALOG`, and the player separate the two.

On the command line a fault is one word::

    NAME [@WHEN] [#SHARD] [=VALUE]        kill@3    checkpoint-error@2-4=ThrottlingException    stop@2#0=1.5

WHEN counts from 1 and is a number, a range ``2-4``, or ``*`` for always. The fault decides on the counted events:
deliveries of a shard (batches, redelivered ones and empty ones included) or checkpoints asked for. Without it
a fault comes at the first. SHARD is the shard's index from 0, in the order of the report; without it, each shard.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["CATALOG", "GARBAGE", "OF_CHECKPOINTS", "SECONDS", "Fault", "FaultKind", "parse_fault"]

SECONDS = 1_000_000
"""No wait is longer than that, whatever is asked for."""

_ERROR_NAME = re.compile(r"[A-Za-z_$][\w$.]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class FaultKind:
    """The description of a fault.

    Attributes:
        name: as on the command line.
        counts: the events that WHEN counts.
        help: its effect, for people.
        default: the value where none is given; None if it takes no value.
        choices: the values it takes; empty if it is free or a number.
        number: whether the value is a number of seconds.
        ends_child: the child is gone afterwards, so "always" would never end.
    """

    name: str
    counts: Literal["delivery", "checkpoint"]
    help: str
    default: str | None = None
    choices: tuple[str, ...] = ()
    number: bool = False
    ends_child: bool = False


_BROKEN_RECORD = b'"partitionKey":"k","sequenceNumber":"1","approximateArrivalTimestamp":0,"subSequenceNumber":0'

GARBAGE: dict[str, bytes] = {
    "not-json": b"\x00\x01 this is no JSON\n",
    "truncated": b'{"action":"processRecords","records":[{"data":"aGVsbG8=","partitionKey":"k\n',
    "base64": b'{"action":"processRecords","records":[{"data":"aGV*bG8=",' + _BROKEN_RECORD + b"}]}\n",
    "utf8": b'{"action":"processRecords","records":[{"data":"","partitionKey":"\xff",' + _BROKEN_RECORD[19:] + b"}]}\n",
    "missing-field": b'{"action":"processRecords"}\n',
    "unknown-action": b'{"action":"processRecord","records":[]}\n',
    "unexpected": b'{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null,"error":null}\n',
    "null": b"null\n",
}
"""Broken lines by the value of the fault ``garbage``: each must end a child with an error, and without a status."""


CATALOG: dict[str, FaultKind] = {
    kind.name: kind
    for kind in (
        FaultKind(
            "kill",
            "delivery",
            "SIGKILL while the batch is under way; a new child gets it again. VALUE half: when half of its line "
            "is written.",
            default="whole",
            choices=("whole", "half"),
            ends_child=True,
        ),
        FaultKind(
            "stop",
            "delivery",
            "SIGSTOP while the batch is under way: the lease moves to a second child, and after VALUE seconds the "
            "first one continues beside it as a zombie, whose checkpoints get ShutdownException.",
            default="0.5",
            number=True,
            ends_child=True,
        ),
        FaultKind(
            "checkpoint-error",
            "checkpoint",
            "The checkpoint is not stored; the child reads VALUE as the error, e.g. ThrottlingException.",
            default="ThrottlingException",
        ),
        FaultKind(
            "slow-reply", "checkpoint", "The reply to the checkpoint comes VALUE seconds late.", "1.0", number=True
        ),
        FaultKind(
            "lease-lost",
            "delivery",
            "The lease is lost when the batch is answered, or (VALUE mid-batch) while it is under way: its checkpoints "
            "get ShutdownException. Then leaseLost, and a new child as the lease is won back.",
            default="between",
            choices=("between", "mid-batch"),
            ends_child=True,
        ),
        FaultKind(
            "shard-end", "delivery", "The shard ends after the batch; later records are left out.", ends_child=True
        ),
        FaultKind(
            "shutdown",
            "delivery",
            "The worker is stopped after the batch: shutdownRequested (not in legacy), leaseLost; then a new child.",
            ends_child=True,
        ),
        FaultKind(
            "garbage",
            "delivery",
            "A broken line in place of the batch, which a new child gets whole. The child must stop with an error.",
            default="not-json",
            choices=tuple(GARBAGE),
            ends_child=True,
        ),
        FaultKind(
            "close",
            "delivery",
            "The daemon closes the pipe: after the batch (idle), in the middle of its line (mid-line), or while a "
            "checkpoint asked for in it or later waits for its reply (reply). Then a new child.",
            default="idle",
            choices=("idle", "mid-line", "reply"),
            ends_child=True,
        ),
        FaultKind(
            "slow-pipe",
            "delivery",
            "VALUE seconds before each piece of the line (see the write size).",
            "0.001",
            number=True,
        ),
        FaultKind("byte-wise", "delivery", "The line is written one byte at a time."),
        FaultKind("crlf", "delivery", "The line ends in CR LF, as a JVM on Windows writes it."),
    )
}
"""All faults by name."""
OF_CHECKPOINTS: Final = tuple(name for name, kind in CATALOG.items() if kind.counts == "checkpoint")
"""The faults whose WHEN counts checkpoints."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a time.

    Attributes:
        name: of `CATALOG`.
        first: the first ordinal it hits, from 1.
        last: the last ordinal, None for no end.
        shard: index of the only shard that has it, None for all.
        value: as `CATALOG` says; None for its default.

    Raises:
        ValueError: an unknown name, or a value or time which that fault cannot have.
    """

    name: str
    first: int = 1
    last: int | None = 1
    shard: int | None = None
    value: str | None = None

    def __post_init__(self) -> None:
        kind = CATALOG.get(self.name)
        if kind is None:
            raise ValueError(f"unknown fault {self.name!r}; there are: {', '.join(CATALOG)}")
        if self.first < 1 or (self.last is not None and self.last < self.first):
            raise ValueError(f"{self.name}: counting starts at 1, and a range goes upwards")
        if kind.ends_child and self.last is None:
            raise ValueError(f"{self.name}@*: each child would be ended in turn, for ever; give a number or a range")
        if self.value is None:
            object.__setattr__(self, "value", kind.default)
        elif kind.default is None:
            raise ValueError(f"{self.name} takes no value (got {self.value!r})")
        if kind.choices and self.value not in kind.choices:
            raise ValueError(f"{self.name}={self.value}: one of {', '.join(kind.choices)}")
        if kind.number and not 0 <= self.seconds <= SECONDS:
            raise ValueError(f"{self.name}={self.value}: from 0 to {SECONDS:,} seconds expected")
        if self.name == "checkpoint-error" and not _ERROR_NAME.fullmatch(self.value or ""):
            raise ValueError(f"{self.name}={self.value!r}: a class name expected, e.g. ThrottlingException")

    @property
    def seconds(self) -> float:
        """The value as seconds.

        Raises:
            ValueError: it is no number.
        """
        try:
            return float(self.value or "")
        except ValueError:
            raise ValueError(f"{self.name}={self.value}: a number of seconds expected") from None

    def hits(self, ordinal: int, shard: int) -> bool:
        """Whether it comes at this ordinal (from 1) of this shard (index from 0)."""
        if self.shard is not None and self.shard != shard:
            return False
        return self.first <= ordinal and (self.last is None or ordinal <= self.last)

    def __str__(self) -> str:
        when = "*" if self.last is None else str(self.first) if self.last == self.first else f"{self.first}-{self.last}"
        shard = "" if self.shard is None else f"#{self.shard}"
        return f"{self.name}@{when}{shard}" + ("" if self.value is None else f"={self.value}")


_SYNTAX = re.compile(
    r"(?P<name>[a-z0-9-]+)(?:@(?:(?P<always>\*)|(?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?))?"
    r"(?:\#(?P<shard>[0-9]+))?(?:=(?P<value>.+))?"
)


def parse_fault(text: str) -> Fault:
    """Read a fault from the command line, e.g. ``kill@3`` or ``checkpoint-error@2-4=ThrottlingException``.

    Raises:
        ValueError: it is none; the message has the expected form.
    """
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no fault: expected NAME[@WHEN][#SHARD][=VALUE], e.g. kill@3 or crlf@*")
    first = int(match["first"] or 1)
    last = None if match["always"] else int(match["last"] or first)
    shard = int(match["shard"]) if match["shard"] else None
    return Fault(match["name"], first, last, shard, match["value"])
