"""Renewals of a checkpointer's leases by `fastkcl.leases.guard`, while the event loop is busy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastkcl.kinesis.exceptions import CheckpointOwnershipConflict
from fastkcl.leases import Keeper
from fastkcl.leases.guard import Guard

__all__ = ["GuardedLeases"]


class GuardedLeases:
    """Renews in the guard's thread, on a connection that is used there alone.

    Args:
        keeper: of the leases.
        connect: as `Renewer.connect` of `fastkcl.leases.guard`.
        renew: one lease of ours.
        disconnect: the connection.
        clock: the keeper's.
    """

    def __init__(
        self,
        keeper: Keeper,
        connect: Callable[[], Awaitable[None]],
        renew: Callable[[str], Awaitable[None]],
        disconnect: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._keeper = keeper
        self._connect = connect
        self._renew = renew
        self._disconnect = disconnect
        self._clock = clock

    def guard(self, name: str) -> Guard:
        """The thread, to be started.

        Args:
            name: of it.
        """
        rules = self._keeper.rules
        left = rules.failover - rules.renew_every
        return Guard(
            lambda: [renewal.key for renewal in self._keeper.renewals(self._clock(), late=True)],
            lambda: self,
            every=left / 8,
            timeout=left / 2,
            name=name,
        )

    async def connect(self) -> None:
        """Connect.

        Raises:
            Exception: the backend's error.
        """
        await self._connect()

    async def renew(self, key: str) -> None:
        """Renew a lease of ours.

        Raises:
            CheckpointOwnershipConflict: it is another's. The event loop notices when it runs again.
            Exception: the backend's error.
        """
        asked = self._clock()
        try:
            await self._renew(key)
        except CheckpointOwnershipConflict:
            self._keeper.dropped(key)
            raise
        self._keeper.renewed(key, asked=asked, answered=self._clock())

    async def close(self) -> None:
        """Disconnect."""
        await self._disconnect()
