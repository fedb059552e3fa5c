"""The result of an item that was put: for a program that awaits it.

    sent = await producer.put(item)     it waits for its call
    result = await sent                 it is in the stream: shard and sequence number

Rules: awaiting is optional; an item that nobody awaits costs only a reference. An error that stops the producer is
raised to all waiting tasks; the items are not lost, and can be awaited again after `flush`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol

__all__ = ["PutResult", "Sent"]


class PutResult(NamedTuple):
    """Where an item is in the stream.

    Attributes:
        shard_id: e.g. ``shardId-000000000000``.
        sequence_number: of its record, decimal digits; items that share a record share it.
    """

    shard_id: str
    sequence_number: str


class Putter(Protocol):
    """Who puts items, and knows when one is in the stream."""

    async def wait_for(self, sent: Sent) -> None:
        """Wait until an item has its result.

        Raises:
            Exception: the error that keeps it from being put.
        """


class Sent:
    """An item on its way; await it for its `PutResult`.

    Attributes:
        result: None until it is in the stream.
    """

    __slots__ = ("_putter", "result")

    def __init__(self, putter: Putter) -> None:
        self._putter = putter
        self.result: PutResult | None = None

    def __await__(self) -> Generator[Any, None, PutResult]:
        """Wait until it is in the stream.

        Raises:
            Exception: the error that keeps the producer from putting it; see `Producer.flush`.
        """
        if self.result is None:
            yield from self._putter.wait_for(self).__await__()
        assert self.result is not None
        return self.result


class Waiting:
    """The items that somebody awaits."""

    def __init__(self) -> None:
        self._futures: dict[Sent, asyncio.Future[None]] = {}

    async def wait(self, sent: Sent) -> None:
        """Wait for `settle` or `fail`."""
        future = self._futures.get(sent)
        if future is None:
            future = self._futures[sent] = asyncio.get_running_loop().create_future()
        await asyncio.shield(future)

    def settle(self, items: Sequence[Sent]) -> None:
        """They are in the stream."""
        if not self._futures:
            return
        for sent in items:
            if (future := self._futures.pop(sent, None)) is not None and not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Nothing is put for now."""
        futures, self._futures = self._futures, {}
        for future in futures.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # perhaps nobody waits any more
