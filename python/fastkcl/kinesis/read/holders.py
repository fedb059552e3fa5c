"""The records that tasks hold: several tasks may iterate, and each acknowledges its record by asking for the next.

    task 1 ── asks ──▶ record 1 ............................. still at it
    task 2 ── asks ──▶ record 2 ── asks ──▶ record 3 ── asks ──▶ record 4
                                                    position: before record 1

A position is written up to the first record that a task still holds. A task that has ended by an exception, or was
cancelled, holds its record for good: the record comes again after a restart, and all that follows it in its shard. A
task that has ended without one is done with its record, as soon as another task asks.

Rules: no I/O and no clock. At most one record is held for each task.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastkcl.kinesis.read.positions import Handed

if TYPE_CHECKING:
    from fastkcl.kinesis.read.delivery import Delivery

__all__ = ["Holders", "current_task"]

log = logging.getLogger(__name__)

if sys.version_info >= (3, 12):
    from asyncio import current_task
else:
    # Python 3.11's own is written in Python and takes a quarter of a microsecond, of the two that an item takes.
    current_task = asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]

FEW = 64
"""Tasks that are not looked through before a position is written."""


@dataclass(slots=True)
class _Held:
    delivery: Delivery
    mark: int  # of the delivery: up to where it was acknowledged when this was taken

    @property
    def shard_id(self) -> str:
        return self.delivery.fetched.reader.shard_id

    @property
    def before(self) -> Handed | None:
        """The position before the first held record of the shard."""
        return self.delivery.done_until(self.mark) or self.delivery.before


class Holders:
    """The tasks that iterate over a consumer."""

    def __init__(self) -> None:
        self._held: dict[asyncio.Task[Any] | None, _Held] = {}
        self._failed: dict[str, Handed | None] = {}
        self._many = FEW

    def ask(self, task: asyncio.Task[Any] | None) -> None:
        """A task asks for more: it has finished its record."""
        self._held.pop(task, None)

    def give(self, task: asyncio.Task[Any] | None, delivery: Delivery) -> None:
        """A task has taken something of a delivery, and has finished the record before it."""
        held = self._held.get(task)
        if held is not None:
            held.delivery, held.mark = delivery, delivery.mark
            return
        self._held[task] = _Held(delivery, delivery.mark)
        if len(self._held) > self._many:
            self._sweep()
            self._many = max(FEW, 2 * len(self._held))

    def holds(self, shard_id: str) -> bool:
        """Whether a task holds something of a shard."""
        self._sweep()
        return shard_id in self._failed or any(held.shard_id == shard_id for held in self._held.values())

    def cap(self, shard_id: str, handed: Handed) -> Handed | None:
        """The position to commit for a shard that is finished up to `handed` except held records; None for none.

        Args:
            shard_id: which.
            handed: its last position.
        """
        self._sweep()
        floors = [held.before for held in self._held.values() if held.shard_id == shard_id]
        if shard_id in self._failed:
            floors.append(self._failed[shard_id])
        for floor in floors:
            if floor is None:
                return None
            if floor.place.order < handed.place.order:
                handed = floor
        return handed

    def drop(self, shard_id: str) -> None:
        """The shard is not ours any more, or is read anew."""
        self._failed.pop(shard_id, None)
        self._held = {task: held for task, held in self._held.items() if held.shard_id != shard_id}

    def _sweep(self) -> None:
        """Release records of ended tasks, unless they have failed."""
        for task, held in list(self._held.items()):
            if task is None or not task.done():
                continue
            del self._held[task]
            # exception() would keep asyncio from reporting one that nobody has retrieved.
            if task.cancelled() or task._exception is not None:
                self._keep(held, task)

    def _keep(self, held: _Held, task: asyncio.Task[Any]) -> None:
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
