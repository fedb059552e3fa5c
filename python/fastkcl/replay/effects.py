"""The effects of faults on a delivery: for each fault a function, by the moment at which it acts.

    instead      before the line: something else is written in its place
    before       how the line will be written, and a state that lasts while it is under way
    half-way     half of the line is written, and the child reads no more of it
    written      the whole line is written, the child's status is not there yet
    answered     the status has come

Functions of one moment run in the order of this file. One that ends the child raises SessionOver; one that returns True
is the last of its moment. The faults that count checkpoints are `ShardPlayer.error_for` and `before_reply`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from fastkcl import _core
from fastkcl.replay.faults import GARBAGE, Fault
from fastkcl.replay.session import Session, SessionOver
from fastkcl.replay.sources import Ask

__all__ = ["JVM_WRITE_SIZE", "Delivery", "Moment", "Shard", "acting", "apply"]

JVM_WRITE_SIZE: Final = 8192
"""The bytes that the daemon's BufferedWriter hands to the pipe at once."""

Moment: TypeAlias = Literal["instead", "before", "half-way", "written", "answered"]


class Shard(Protocol):
    """The parts of a `ShardPlayer` that faults act on."""

    close_at_reply: Fault | None
    """Closes the pipe while the next checkpoint waits for its reply."""

    def note(self, session: Session, fault: Fault, *, once: bool = False) -> None:
        """Write into the report that the fault has come; with `once` only the first time."""

    def ask(self, session: Session, step: Ask) -> None:
        """Send a request that carries no records, and wait for its status."""

    def make_zombie(self, session: Session, seconds: float) -> SessionOver:
        """Stop the child, and let it go on later beside its successor, without a lease."""

    def end_here(self) -> int:
        """Let the shard end after the delivered records; returns how many planned records are left out."""


@dataclass(slots=True)
class Delivery:
    """A line on its way to a child.

    Attributes:
        shard: whose line it is.
        session: with the child.
        line: its bytes.
        write_size: bytes that are written at once; None for all.
        pause: seconds before each piece.
    """

    shard: Shard
    session: Session
    line: bytes = b""
    write_size: int | None = None
    pause: float = 0.0

    def write_half(self) -> None:
        """Write the first half of the line."""
        half = memoryview(self.line)[: len(self.line) // 2]
        self.session.write(half, write_size=self.write_size, pause=self.pause)


_Effect: TypeAlias = Callable[[Delivery, Fault], "bool | None"]


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    value: str | None
    effect: _Effect


_EFFECTS: Final[dict[Moment, list[_Entry]]] = {}


def apply(moment: Moment, delivery: Delivery, faults: Mapping[str, Fault]) -> None:
    """Let the faults act that have an effect at this moment.

    Args:
        moment: of the delivery.
        delivery: that is under way; effects change it.
        faults: that hit this delivery, by name.

    Raises:
        SessionOver: a fault has ended the child.
    """
    for entry in _EFFECTS[moment]:
        fault = faults.get(entry.name)
        if fault is not None and entry.value in (None, fault.value) and entry.effect(delivery, fault):
            return


def acting() -> set[str]:
    """The names of the faults that have an effect here."""
    return {entry.name for entries in _EFFECTS.values() for entry in entries}


def _at(moment: Moment, name: str, value: str | None = None) -> Callable[[_Effect], _Effect]:
    """Register the effect of a fault at a moment, for one of its values or for all."""

    def register(effect: _Effect) -> _Effect:
        _EFFECTS.setdefault(moment, []).append(_Entry(name, value, effect))
        return effect

    return register


@_at("instead", "garbage")
def _garbage(delivery: Delivery, fault: Fault) -> None:
    delivery.shard.note(delivery.session, fault)
    delivery.session.write(GARBAGE[fault.value or ""])
    raise delivery.session.end(clean=False, after=f"a broken line ({fault.value})", close_input=False)


@_at("before", "crlf")
def _crlf(delivery: Delivery, fault: Fault) -> None:
    delivery.line = delivery.line.removesuffix(b"\n") + b"\r\n"
    delivery.shard.note(delivery.session, fault, once=True)  # often it is for every line


@_at("before", "slow-pipe")
def _slow_pipe(delivery: Delivery, fault: Fault) -> None:
    delivery.write_size, delivery.pause = delivery.write_size or JVM_WRITE_SIZE, fault.seconds
    delivery.shard.note(delivery.session, fault, once=True)


@_at("before", "byte-wise")
def _byte_wise(delivery: Delivery, fault: Fault) -> None:
    delivery.write_size = 1
    delivery.shard.note(delivery.session, fault, once=True)


@_at("before", "lease-lost", "mid-batch")
def _lease_lost_under_way(delivery: Delivery, fault: Fault) -> None:
    delivery.shard.note(delivery.session, fault)
    delivery.session.conversation.owns_lease = False


@_at("before", "close", "reply")
def _close_at_reply(delivery: Delivery, fault: Fault) -> None:
    delivery.shard.close_at_reply = fault


@_at("half-way", "kill", "half")
def _kill_half_way(delivery: Delivery, fault: Fault) -> None:
    delivery.shard.note(delivery.session, fault)
    delivery.write_half()
    raise delivery.session.kill()


@_at("half-way", "close", "mid-line")
def _close_half_way(delivery: Delivery, fault: Fault) -> None:
    delivery.shard.note(delivery.session, fault)
    delivery.write_half()
    raise delivery.session.end(clean=False, after="the end of its input in the middle of a line")


@_at("written", "kill")
def _kill(delivery: Delivery, fault: Fault) -> None:
    delivery.shard.note(delivery.session, fault)
    raise delivery.session.kill()


@_at("written", "stop")
def _stop(delivery: Delivery, fault: Fault) -> None:
    delivery.shard.note(delivery.session, fault)
    raise delivery.shard.make_zombie(delivery.session, fault.seconds)


@_at("answered", "shard-end")
def _shard_end(delivery: Delivery, fault: Fault) -> bool:
    delivery.shard.note(delivery.session, fault)
    left = delivery.shard.end_here()
    if left:
        delivery.session.fault(f"{left} records of the source are not in the shard that ends here")
    return True


@_at("answered", "lease-lost")
def _lease_lost(delivery: Delivery, fault: Fault) -> None:
    if fault.value == "between":
        delivery.shard.note(delivery.session, fault)
    delivery.shard.ask(delivery.session, Ask("leaseLost"))
    raise delivery.session.end()


@_at("answered", "shutdown")
def _shutdown(delivery: Delivery, fault: Fault) -> None:
    delivery.shard.note(delivery.session, fault)
    if _core.DIALECTS[delivery.session.conversation.dialect].shutdown_requested:
        delivery.shard.ask(delivery.session, Ask("shutdownRequested"))
        delivery.shard.ask(delivery.session, Ask("leaseLost"))
    raise delivery.session.end()


@_at("answered", "close", "idle")
def _close(delivery: Delivery, fault: Fault) -> None:
    delivery.shard.note(delivery.session, fault)
    raise delivery.session.end()
