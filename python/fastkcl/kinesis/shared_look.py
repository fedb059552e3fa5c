"""One look for all who ask for it at the same time, and a pause between two: a quota is shared by many shards."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

__all__ = ["SharedLook"]


class SharedLook:
    """Looks at something that all callers see alike.

    Args:
        look: called once for those who have asked before it begins.
    """

    def __init__(self, look: Callable[[], Awaitable[None]]) -> None:
        self._look = look
        self._looking = asyncio.Lock()
        self._looked = -math.inf

    async def at(self, pause: float = 0.0) -> None:
        """Look, or wait for a look that begins after this call.

        Args:
            pause: seconds between two.
        """
        clock = asyncio.get_running_loop().time
        asked = clock()
        async with self._looking:
            if self._looked > asked:
                return
            await asyncio.sleep(self._looked + pause - clock())
            began = clock()
            await self._look()
            self._looked = began  # not of one that was cancelled
