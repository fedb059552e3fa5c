"""The records that tasks hold: several tasks may iterate, and each acknowledges its record by asking for the next.

    task 1 ── asks ──▶ record 1 ............................. still at it
    task 2 ── asks ──▶ record 2 ── asks ──▶ record 3 ── asks ──▶ record 4
                                                    position: before record 1

A position is written up to the first record that a task still holds. A task that has ended by an exception, or was
cancelled, holds its record for good: the record comes again after a restart, and all that follows it in its shard. A
task that has ended without one is done with its record, as soon as another task asks.

A task asks when it calls ``anext``, whichever task then awaits that: `asyncio.wait_for` of Python 3.11, `create_task`
and `gather` make tasks which only pass the record on. With the call it is done with the records that it was given
before. Of several records that it has asked for together, it is done with none until it asks again.

Rules: no I/O and no clock. For a task at most the first record of each delivery is held.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastkcl.kinesis.read.positions import Handed
from fastkcl.stdio.log import module_logger

if TYPE_CHECKING:
    from fastkcl.kinesis.read.delivery import Delivery

__all__ = ["Held", "Holders", "current_task"]

log = module_logger(__name__)

if sys.version_info >= (3, 12):
    from asyncio import current_task
else:
    # Python 3.11's own is written in Python and takes a quarter of a microsecond, of the two that an item takes.
    current_task = asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]

FEW = 64
"""Tasks that are not looked through before a position is written."""


@dataclass(slots=True)
class Held:
    """The records that a task holds."""

    delivery: Delivery
    mark: int
    """Of the delivery: up to where it was acknowledged when this was taken."""
    is_done: bool = False
    """Whether the task has asked since. Never of one that no task has any more."""
    earlier: list[Held] = field(default_factory=list)
    """Of other deliveries, asked for together with this; none when it is done."""

    @property
    def shard_id(self) -> str:
        """Of the delivery."""
        return self.delivery.fetched.reader.shard_id

    @property
    def before(self) -> Handed | None:
        """The position before the first held record of the shard."""
        return self.delivery.done_until(self.mark) or self.delivery.before

    @property
    def open(self) -> list[Held]:
        """All that the task is not done with."""
        return [] if self.is_done else [*self.earlier, self]


class Holders:
    """The tasks that iterate over a consumer."""

    def __init__(self) -> None:
        self.held: dict[asyncio.Task[Any] | None, Held] = {}
        """By task. A task that asks marks its own as done; None is for calls outside of a running loop."""
        self._failed: dict[str, Handed | None] = {}
        self._asking: dict[asyncio.Task[Any] | None, int] = {}
        self._many = FEW

    def wait(self, task: asyncio.Task[Any] | None) -> None:
        """A task has to wait, until `served`: nothing is kept of a batch that it is done with."""
        self._asking[task] = self._asking.get(task, 0) + 1
        held = self.held.get(task)
        if held is not None and held.is_done:
            self._remove(task, held)

    def served(self, task: asyncio.Task[Any] | None) -> None:
        """A task no longer waits for what it has asked for once."""
        self._asking[task] -= 1
        if not self._asking[task]:
            del self._asking[task]

    def give(self, task: asyncio.Task[Any] | None, delivery: Delivery) -> None:
        """A task has been given something of a delivery."""
        held = self.held.get(task)
        if held is None:
            self.held[task] = Held(delivery, delivery.mark)
            if len(self.held) > self._many:
                self._sweep()
                self._many = max(FEW, 2 * len(self.held))
        elif held.is_done:
            held.delivery, held.mark, held.is_done = delivery, delivery.mark, False
        elif held.delivery is not delivery:
            held.earlier.append(Held(held.delivery, held.mark))
            held.delivery, held.mark = delivery, delivery.mark

    def holds(self, shard_id: str) -> bool:
        """Whether a task holds something of a shard, or one that has failed did."""
        self._sweep()
        return shard_id in self._failed or any(held.shard_id == shard_id for held in self._open())

    def is_at(self, shard_id: str) -> bool:
        """Whether a task that lives holds something of a shard, and does not wait for more itself."""
        self._sweep()
        busy = (held for task, held in self.held.items() if task not in self._asking)
        return any(each.shard_id == shard_id for held in busy for each in held.open)

    def cap(self, shard_id: str, handed: Handed) -> Handed | None:
        """The position to commit for a shard that is finished up to `handed` except held records; None for none.

        Args:
            shard_id: which.
            handed: its last position.
        """
        self._sweep()
        floors = [held.before for held in self._open() if held.shard_id == shard_id]
        if shard_id in self._failed:
            floors.append(self._failed[shard_id])
        for floor in floors:
            if floor is None:
                return None
            if floor.place.order < handed.place.order:
                handed = floor
        return handed

    def drop(self, shard_id: str) -> None:
        """The shard is no longer ours, or is read again from its position."""
        self._failed.pop(shard_id, None)
        for task, held in list(self.held.items()):
            left = [each for each in held.open if each.shard_id != shard_id]
            self._remove(task, held)
            if left:
                self.held[task] = Held(left[-1].delivery, left[-1].mark, earlier=left[:-1])

    def _remove(self, task: asyncio.Task[Any] | None, held: Held) -> None:
        del self.held[task]
        held.is_done = False

    def _open(self) -> Iterator[Held]:
        for held in self.held.values():
            yield from held.open

    def _sweep(self) -> None:
        """Release records of ended tasks, unless they have failed."""
        for task, held in list(self.held.items()):
            if task is None or not task.done():
                continue
            left = held.open
            self._remove(task, held)
            # exception() would keep asyncio from reporting one that nobody has retrieved.
            if task.cancelled() or task._exception is not None:
                for each in left:
                    self._keep(each, task)

    def _keep(self, held: Held, task: asyncio.Task[Any]) -> None:
        shard_id, before = held.shard_id, held.before
        log.warning(
            "%s: %s ended with a record that it was not done with: the position stays at %s, and the record comes "
            "again after a restart",
            shard_id,
            task.get_name(),
            "the beginning" if before is None else before.place,
        )
        kept = self._failed.setdefault(shard_id, before)
        if kept is not None and (before is None or before.place.order < kept.place.order):
            self._failed[shard_id] = before
