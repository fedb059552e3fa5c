"""Consumers of one process that share a checkpointer: each shard belongs to one of them, as between processes.

    consumer a ─ join ─┐                    ┌─ shard 0: a's       the second to ask for a shard does not get it
                       ├─ one checkpointer ─┤
    consumer b ─ join ─┘                    └─ shard 1: b's       the last to leave closes the checkpointer

Rules: a checkpointer is for one stream at a time. A consumer that leaves gives back its own shards only. One whose
event loop has ended without `close` is no longer there. One that joins while the last of the others closes the
checkpointer waits for that: its connections end then.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from fastkcl.kinesis.checkpoints.base import CheckPointer
from fastkcl.kinesis.exceptions import AnotherStream

__all__ = ["Share"]


class Share:
    """A consumer's part of a checkpointer.

    Args:
        checkpointer: perhaps others' as well.
        stream_name: of its positions.
    """

    _all: ClassVar[dict[int, list[Share]]] = {}  # by the id of a checkpointer, which they keep alive
    _closing: ClassVar[dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}  # until they are closed

    def __init__(self, checkpointer: CheckPointer, stream_name: str) -> None:
        self._checkpointer = checkpointer
        self._stream_name = stream_name
        self._shards: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def join(self) -> None:
        """Use it from now on. Again, nothing happens.

        Raises:
            AnotherStream: a consumer of another stream uses it.
        """
        users = self._all.setdefault(id(self._checkpointer), [])
        users[:] = filter(Share._is_there, users)
        if self in users:
            return
        self._loop = asyncio.get_running_loop()
        for user in users:
            if user._stream_name != self._stream_name:
                raise AnotherStream(
                    f"{self._checkpointer!r} is used for stream {user._stream_name}, and cannot keep positions of "
                    f"{self._stream_name} as well: make a checkpointer of another name for it"
                )
        users.append(self)

    async def begin(self) -> None:
        """Wait, after `join`, until another consumer has closed the checkpointer that is closing it now."""
        while closing := self._closing.get(id(self._checkpointer)):
            loop, closed = closing
            if loop is not asyncio.get_running_loop():  # one that has ended during that
                return
            await closed.wait()

    def claim(self, shard_id: str) -> bool:
        """Whether no other consumer of this process has the shard; then it is this one's until `release`."""
        if any(shard_id in user._shards for user in self._all.get(id(self._checkpointer), ()) if user is not self):
            return False
        self._shards.add(shard_id)
        return True

    def release(self, shard_id: str) -> None:
        """Let others of this process have the shard."""
        self._shards.discard(shard_id)

    async def close(self) -> None:
        """Close the checkpointer; while others use it, give back the shards only.

        Raises:
            Exception: a shard was not given back.
        """
        users = self._all.pop(id(self._checkpointer), [])
        others = [user for user in users if user is not self and user._is_there()]
        if others:
            self._all[id(self._checkpointer)] = others
            shards, self._shards = self._shards, set()
            await asyncio.gather(*map(self._checkpointer.deallocate, sorted(shards)))
            return
        await self.begin()
        closing = self._closing[id(self._checkpointer)] = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self._checkpointer.close()
        finally:
            if self._closing.get(id(self._checkpointer)) is closing:
                del self._closing[id(self._checkpointer)]
            closing[1].set()

    def _is_there(self) -> bool:
        return self._loop is not None and not self._loop.is_closed()
