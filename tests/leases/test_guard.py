"""The thread that renews leases when a busy event loop does not."""

from __future__ import annotations

import asyncio
import threading

import pytest
from fastkcl.leases.guard import Guard
from waiting import wait_until


class Renewals:
    """Counts them."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.connected = threading.Event()
        self.closed = threading.Event()

    async def connect(self) -> None:
        await asyncio.to_thread(self.connected.wait)

    async def renew(self, key: str) -> None:
        self.keys.append(key)

    async def close(self) -> None:
        self.closed.set()


def test_it_ends_with_the_programs_event_loop(caplog: pytest.LogCaptureFixture) -> None:
    """A program that ends its loop without closing anything, and lives on, keeps nobody from its shards."""
    renewals = Renewals()
    guard = Guard(lambda: ["a"], lambda: renewals, every=0.01, timeout=5, name="leases of a program")

    async def main() -> None:
        guard.start()
        while not renewals.keys:
            await asyncio.sleep(0.01)

    asyncio.run(main())
    wait_until(renewals.closed.is_set, "the end of the renewals")
    wait_until(lambda: "leases of a program" not in {thread.name for thread in threading.enumerate()}, "its end")
    assert "has ended without close" in caplog.text


@pytest.mark.parametrize(("timeout", "ahead"), [(0.3, True), (5, False)])
def test_it_connects_ahead_if_a_renewal_has_no_time_for_it(timeout: float, ahead: bool) -> None:
    renewals = Renewals()
    guard = Guard(lambda: ["a"], lambda: renewals, every=0.01, timeout=timeout, name="leases")

    async def main() -> None:
        guard.start()
        connected = asyncio.create_task(guard.connected())
        if ahead:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(connected), 0.1)
            assert not renewals.keys
            renewals.connected.set()
        await connected
        while not renewals.keys:
            await asyncio.sleep(0.01)
        await guard.close()

    asyncio.run(main())
