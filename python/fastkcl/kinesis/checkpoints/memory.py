"""Positions in the memory of the process: for one consumer, and for tests."""

from __future__ import annotations

from collections.abc import Collection

from fastkcl.kinesis.checkpoints.base import FIRST, SHARD_END, BaseCheckPointer
from fastkcl.kinesis.exceptions import CheckpointOwnershipConflict

__all__ = ["MemoryCheckPointer"]


class MemoryCheckPointer(BaseCheckPointer):
    """Positions that live as long as the object. A consumer with the same object continues at the last one's positions.

    Args:
        name: of the group.
        id: of the consumer; the process id by default.
    """

    def __init__(self, name: str = "", id: str | int | None = None) -> None:
        super().__init__(name, id)
        self._positions: dict[str, str | None] = {}
        self._allocated: set[str] = set()
        self._ended: set[str] = set()

    async def allocate(self, shard_id: str) -> tuple[bool, str | None]:
        """The shard is ours, unless it is finished: there is nobody else."""
        if shard_id in self._ended:
            return False, SHARD_END
        self._allocated.add(shard_id)
        return True, self._positions.setdefault(shard_id, None)

    async def deallocate(self, shard_id: str) -> None:
        """Let go of a shard; its position stays."""
        self._allocated.discard(shard_id)

    async def shard_ended(self, shard_id: str) -> None:
        """Remember that nobody needs a shard any more, and let go of it.

        Raises:
            CheckpointOwnershipConflict: the shard is not allocated.
        """
        if shard_id not in self._allocated:
            raise CheckpointOwnershipConflict(f"{shard_id} is not allocated by {self.get_ref()}")
        self._ended.add(shard_id)
        await self.deallocate(shard_id)

    async def checkpoint(self, shard_id: str, sequence: str) -> None:
        """Remember a position.

        Raises:
            CheckpointOwnershipConflict: the shard is not allocated.
        """
        if shard_id not in self._allocated:
            self._count(shard_id, written=False)
            raise CheckpointOwnershipConflict(f"{shard_id} is not allocated by {self.get_ref()}")
        self._positions[shard_id] = sequence
        self._count(shard_id, written=True)

    async def begin_at_first(self, shard_id: str) -> None:
        """See `KeepsBeginnings`.

        Raises:
            CheckpointOwnershipConflict: the shard is not allocated.
        """
        await self.checkpoint(shard_id, FIRST)

    async def begins_at_first(self, shard_id: str) -> bool:
        """See `KeepsBeginnings`."""
        return self._positions.get(shard_id) == FIRST

    async def position(self, shard_id: str) -> str | None:
        """The position of a shard, allocated or not."""
        return SHARD_END if shard_id in self._ended else self._positions.get(shard_id)

    async def positions(self, besides: Collection[str]) -> dict[str, str]:
        """The positions of all shards but these."""
        found = {shard_id: await self.position(shard_id) for shard_id in self._positions if shard_id not in besides}
        return {shard_id: position for shard_id, position in found.items() if position is not None}

    def get_all_checkpoints(self) -> dict[str, str | None]:
        """The positions of all shards that were ever allocated."""
        return dict(self._positions)

    def is_allocated(self, shard_id: str) -> bool:
        """Whether the shard is allocated."""
        return shard_id in self._allocated

    async def close(self) -> None:
        """Let go of all shards; the positions stay."""
        self._allocated.clear()
