"""The backend of a checkpointer with leases: one request for each step, and the event loop of its connections."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection

from fastkcl.kinesis.checkpoints.base import BaseCheckPointer
from fastkcl.kinesis.event_loops import check_loop
from fastkcl.leases import Lease, Take

__all__ = ["LeaseBackend"]


class LeaseBackend(BaseCheckPointer, ABC):
    """The steps that differ from backend to backend. See `LeasedCheckPointer`."""

    _loop: asyncio.AbstractEventLoop | None = None
    """That of the heartbeats and connections."""

    @property
    def _member(self) -> str:
        """How the backend names this consumer."""
        return self.get_ref()

    async def _look(self, shard_ids: Collection[str]) -> list[Lease] | None:
        """The leases of these shards, and of others that it knows; None where shards are not divided."""
        del shard_ids
        return None

    async def _seize(self, shard_id: str, take: Take) -> tuple[bool, str | None]:
        """Own a shard that has an owner, if it is as it was seen; whether it is ours, and its position."""
        raise NotImplementedError(f"{type(self).__name__} takes no shard of another's: {take} of {shard_id}")

    def _second(self) -> LeaseBackend | None:
        """The same consumer on a separate connection, for another event loop; None if there can be none."""
        return None

    async def _connect(self) -> None:
        """Connect, so that the next call does not have to. Does nothing where calls need not."""

    def _leave_loop(self) -> None:
        """The event loop of the connections has ended: the next call connects in another one."""

    @abstractmethod
    def _begin_anew(self) -> None:
        """Forget what belongs to an event loop that has ended."""

    def _enter_loop(self) -> None:
        """Begin anew, if the event loop has ended that it was used in: nobody has closed it. Each public call does it.

        Raises:
            RuntimeError: that event loop is another one, and has not ended.
        """
        check_loop(self._loop, f"{self!r}")
        if self._loop is not None and self._loop.is_closed():
            self._loop = None
            self._begin_anew()
            self._leave_loop()
        self._loop = self._loop or asyncio.get_running_loop()

    async def _finish(self, shard_id: str) -> None:
        """Free a shard that nobody needs any longer; does nothing if it is not ours."""
        await self._release(shard_id)

    @abstractmethod
    async def _take(self, shard_id: str) -> tuple[bool, str | None]:
        """Own a shard that is free, or ours, or whose owner is gone; whether it is ours, and its position."""

    @abstractmethod
    async def _store(self, shard_id: str, position: str) -> None:
        """Write the position, and renew; CheckpointOwnershipConflict if the shard is not ours."""

    @abstractmethod
    async def _renew(self, shard_id: str) -> None:
        """Renew our lease; CheckpointOwnershipConflict if the shard is not ours."""

    @abstractmethod
    async def _release(self, shard_id: str) -> None:
        """Free a shard and leave its position; nothing, if it is not ours."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close connections; a later call opens them again."""
