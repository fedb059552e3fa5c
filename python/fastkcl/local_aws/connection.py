"""A connection that ends when its client has closed it.

Hypercorn waits for the end of `keep_alive_timeout` before it closes a connection that its client has closed between two
requests, or before the first. That is an hour here, and a descriptor for each of them.
"""

from __future__ import annotations

from hypercorn.asyncio import run
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.events import Event, Updated

__all__ = ["use_connections"]


class _Connection(TCPServer):
    """Hypercorn's, without a wait for a next request when there can be none."""

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated) and event.idle and self.reader.at_eof():
            return
        await super().protocol_send(event)


def use_connections() -> None:
    """Have Hypercorn serve by these in this process."""
    run.TCPServer = _Connection  # type: ignore[attr-defined]  # it is imported there
