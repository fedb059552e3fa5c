"""Leases without a backend and without time: their owner, when they are lost, and writes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from checkpoint_helpers import A, B, awaited
from fastkcl.kinesis.checkpoints import SHARD_END, LeasedCheckPointer, RedisCheckPointer
from fastkcl.kinesis.checkpoints.base import is_later
from fastkcl.kinesis.exceptions import CheckpointFlushError, CheckpointOwnershipConflict, ValidationError
from waiting import until

SESSION = 60


def position(number: int) -> str:
    return str(10**55 + number)


class Places(LeasedCheckPointer):
    """A backend that is a dictionary. Calls wait while `gate` is closed, and raise what `failure` makes."""

    def __init__(self, *, auto_checkpoint: bool = True, heartbeat_frequency: float = 15) -> None:
        super().__init__(
            "g", "a", session_timeout=SESSION, heartbeat_frequency=heartbeat_frequency, auto_checkpoint=auto_checkpoint
        )
        self.now = 0.0
        self._clock = lambda: self.now
        self.written: dict[str, str | None] = {}
        self.calls: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Callable[[str, str], Exception | None] = lambda call, shard_id: None

    async def _call(self, call: str, shard_id: str) -> None:
        self.calls.append(f"{call} {shard_id[-1]}")
        await self.gate.wait()
        failure = self.failure(call, shard_id)
        if failure is not None:
            raise failure

    async def _take(self, shard_id: str) -> tuple[bool, str | None]:
        await self._call("take", shard_id)
        return True, self.written.get(shard_id)

    async def _store(self, shard_id: str, position: str) -> None:
        await self._call("store", shard_id)
        self.written[shard_id] = position

    async def _renew(self, shard_id: str) -> None:
        await self._call("renew", shard_id)

    async def _release(self, shard_id: str) -> None:
        await self._call("release", shard_id)

    async def _disconnect(self) -> None:
        self.calls.append("disconnect")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (position(2), position(1)),
        ("1" + "0" * 60, "9" * 60),
        (position(1), None),
        (position(1), "TRIM_HORIZON"),
        (position(1), "LATEST"),
        (f"{position(1)}/0", "AT_TIMESTAMP"),
        (f"{position(1)}/10", f"{position(1)}/9"),
        (position(1), f"{position(1)}/9"),
        (f"{position(2)}/0", position(1)),
        (SHARD_END, position(9)),
        (SHARD_END, "TRIM_HORIZON"),
    ],
)
def test_order(one: str, other: str | None) -> None:
    assert is_later(one, other)
    assert not is_later(one, one)
    assert other is None or not is_later(other, one)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "name"),
        ({"heartbeat_frequency": 60}, "session_timeout"),
        ({"heartbeat_frequency": 0}, "heartbeat_frequency"),
        ({"session_timeout": 0}, "session_timeout"),
        ({"session_timeout": 15, "heartbeat_frequency": 15}, "session_timeout"),
    ],
)
def test_what_cannot_be_meant(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RedisCheckPointer(**{"name": "g", **options})


def test_ids_differ_by_default() -> None:
    one, two = RedisCheckPointer("g"), RedisCheckPointer("g")
    assert one.get_ref() != two.get_ref()
    assert one.get_ref().startswith("g/")


@awaited
async def test_a_lease_that_is_not_renewed_is_lost() -> None:
    places = Places()
    await places.allocate(A)
    places.now = SESSION - 1
    assert places.is_allocated(A)
    places.now = SESSION
    assert not places.is_allocated(A)
    with pytest.raises(CheckpointOwnershipConflict):
        await places.checkpoint(A, position(1))
    assert places.written == {}
    assert await places.allocate(A) == (True, None)
    await places.checkpoint(A, position(1))
    await places.close()


@awaited
async def test_a_session_counts_from_before_the_call() -> None:
    """The backend may have written at once, however late its answer comes."""
    places = Places()
    places.gate.clear()
    taking = asyncio.create_task(places.allocate(A))
    await until(lambda: places.calls == ["take 0"], "take 0", seen=lambda: places.calls)
    places.now = SESSION
    places.gate.set()
    assert await taking == (True, None)
    assert not places.is_allocated(A)
    await places.close()


@awaited
async def test_a_checkpoint_is_a_renewal() -> None:
    places = Places()
    await places.allocate(A)
    for number in range(1, 4):
        places.now += SESSION - 1
        await places.checkpoint(A, position(number))
    assert places.is_allocated(A)
    await places.close()


@awaited
async def test_a_heartbeat_does_not_wake_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    places = Places(heartbeat_frequency=0.01)
    await places.allocate(A)
    await until(lambda: "renew 0" in places.calls, "renew 0", seen=lambda: places.calls)
    places.now = SESSION * 2
    await until(lambda: f"lost {A}" in caplog.text, "the loss of the lease", seen=lambda: caplog.text)
    count = len(places.calls)
    assert places.calls[-1] == "renew 0"
    await asyncio.sleep(0.05)
    assert len(places.calls) == count
    await places.close()


@awaited
async def test_heartbeats_that_fail_end_with_the_session(caplog: pytest.LogCaptureFixture) -> None:
    places = Places(heartbeat_frequency=0.01)
    await places.allocate(A)
    places.failure = lambda call, shard_id: OSError("no route") if call == "renew" else None
    await until(lambda: places.calls.count("renew 0") > 3, "calls of renew 0", seen=lambda: places.calls)
    assert places.is_allocated(A)
    assert "no route" in caplog.text
    places.now = SESSION
    await until(lambda: f"lost {A}" in caplog.text, "the loss of the lease", seen=lambda: caplog.text)
    await places.close()


@awaited
async def test_one_shard_that_hangs_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    places = Places(heartbeat_frequency=0.05)
    await places.allocate(A)
    await places.allocate(B)
    hang = asyncio.Event()
    call = places._call

    async def hanging(name: str, shard_id: str) -> None:
        await call(name, shard_id)
        if (name, shard_id) == ("renew", A):
            await hang.wait()

    places._call = hanging  # type: ignore[method-assign]
    await until(lambda: places.calls.count("renew 1") > 3, "calls of renew 1", seen=lambda: places.calls)
    assert places.calls.count("renew 0") > 1
    hang.set()
    await places.close()


@awaited
async def test_a_heartbeat_waits_for_a_checkpoint() -> None:
    places = Places(heartbeat_frequency=0.01)
    await places.allocate(A)
    places.gate.clear()
    writing = asyncio.create_task(places.checkpoint(A, position(1)))
    await until(lambda: "store 0" in places.calls, "store 0", seen=lambda: places.calls)
    count = len(places.calls)
    await asyncio.sleep(0.05)
    assert len(places.calls) == count
    places.gate.set()
    await writing
    await until(lambda: places.calls[-1] == "renew 0", "renew 0", seen=lambda: places.calls)
    await places.close()


@awaited
async def test_a_position_that_failed_can_be_written_again() -> None:
    places = Places()
    await places.allocate(A)
    places.failure = lambda call, shard_id: OSError("no route")
    with pytest.raises(OSError, match="no route"):
        await places.checkpoint(A, position(1))
    assert places.get_all_checkpoints() == {A: None}
    places.failure = lambda call, shard_id: None
    await places.checkpoint(A, position(1))
    assert places.written == {A: position(1)}
    await places.close()


@awaited
async def test_a_newer_position_that_comes_while_one_is_flushed_stays() -> None:
    places = Places(auto_checkpoint=False)
    await places.allocate(A)
    await places.checkpoint(A, position(1))
    places.gate.clear()
    flushing = asyncio.create_task(places.manual_checkpoint())
    await until(lambda: "store 0" in places.calls, "store 0", seen=lambda: places.calls)
    await places.checkpoint(A, position(2))
    places.gate.set()
    await flushing
    assert places.written == {A: position(1)}
    await places.manual_checkpoint()
    assert places.written == {A: position(2)}
    await places.close()


@awaited
async def test_flushes_come_one_after_the_other() -> None:
    places = Places(auto_checkpoint=False)
    for shard_id in (A, B):
        await places.allocate(shard_id)
        await places.checkpoint(shard_id, position(1))
    places.gate.clear()
    flushes = [asyncio.create_task(places.manual_checkpoint()) for _ in range(3)]
    await until(lambda: "store 0" in places.calls, "store 0", seen=lambda: places.calls)
    places.gate.set()
    await asyncio.gather(*flushes)
    assert [call for call in places.calls if call.startswith("store")] == ["store 0", "store 1"]
    await places.close()


@awaited
async def test_a_flush_tries_all_and_keeps_what_failed() -> None:
    places = Places(auto_checkpoint=False)
    for shard_id in (A, B):
        await places.allocate(shard_id)
        await places.checkpoint(shard_id, position(1))
    places.failure = lambda call, shard_id: OSError("no route") if shard_id == A else None
    with pytest.raises(CheckpointFlushError) as caught:
        await places.manual_checkpoint()
    assert [(shard_id, str(error)) for shard_id, error in caught.value.errors] == [(A, "no route")]
    assert isinstance(caught.value.__cause__, OSError)
    assert places.written == {B: position(1)}
    places.failure = lambda call, shard_id: None
    await places.manual_checkpoint()
    assert places.written == {A: position(1), B: position(1)}
    await places.close()


@awaited
async def test_a_cancelled_flush_keeps_the_rest() -> None:
    places = Places(auto_checkpoint=False)
    for shard_id in (A, B):
        await places.allocate(shard_id)
        await places.checkpoint(shard_id, position(1))
    places.gate.clear()
    flushing = asyncio.create_task(places.manual_checkpoint())
    await until(lambda: "store 0" in places.calls, "store 0", seen=lambda: places.calls)
    flushing.cancel()
    await asyncio.wait([flushing])
    places.gate.set()
    await places.manual_checkpoint()
    assert places.written == {A: position(1), B: position(1)}
    await places.close()


@awaited
async def test_an_older_position_is_not_written_after_a_newer_one() -> None:
    places = Places()
    await places.allocate(A)
    places.gate.clear()
    newer = asyncio.create_task(places.checkpoint(A, position(2)))
    await until(lambda: "store 0" in places.calls, "store 0", seen=lambda: places.calls)
    older = asyncio.create_task(places.checkpoint(A, position(1)))
    await asyncio.sleep(0)
    places.gate.set()
    await asyncio.gather(newer, older)
    assert places.written == {A: position(2)}
    assert places.calls.count("store 0") == 1
    await places.close()


@awaited
async def test_a_shard_whose_taker_gave_up_is_given_back() -> None:
    places = Places()
    places.gate.clear()
    taking = asyncio.create_task(places.allocate(A))
    await until(lambda: places.calls == ["take 0"], "take 0", seen=lambda: places.calls)
    taking.cancel()
    await asyncio.wait([taking])
    assert taking.cancelled()
    closing = asyncio.create_task(places.close())
    await asyncio.sleep(0)
    places.gate.set()
    await closing
    assert places.calls == ["take 0", "release 0", "disconnect"]


@awaited
async def test_two_that_ask_for_a_shard_ask_once() -> None:
    places = Places()
    places.gate.clear()
    taking = [asyncio.create_task(places.allocate(A)) for _ in range(2)]
    await until(lambda: places.calls == ["take 0"], "take 0", seen=lambda: places.calls)
    places.gate.set()
    assert await asyncio.gather(*taking) == [(True, None)] * 2
    places.failure = lambda call, shard_id: OSError("no route") if call == "take" else None
    with pytest.raises(OSError, match="no route"):
        await places.allocate(B)
    assert places.calls == ["take 0", "take 1"]
    await places.close()


@awaited
async def test_close_gives_back_whatever_fails() -> None:
    places = Places()
    await places.allocate(A)
    await places.allocate(B)
    places.failure = lambda call, shard_id: OSError("no route") if shard_id == A else None
    with pytest.raises(ExceptionGroup, match="could not give") as caught:
        await places.close()
    assert [str(error) for error in caught.value.exceptions] == ["no route"]
    assert places.calls[-3:] == ["release 0", "release 1", "disconnect"]
    assert not places.is_allocated(A)
    places.failure = lambda call, shard_id: None
    await places.close()


@awaited
async def test_each_heartbeat_of_many_shards_begins_in_a_turn_of_its_own() -> None:
    """A call takes a millisecond before it waits: those of a hundred shards at once would block the event loop."""
    loop, turn = asyncio.get_running_loop(), 0
    turns: list[int] = []

    def count() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count)

    class Noted(Places):
        async def _renew(self, shard_id: str) -> None:
            turns.append(turn)

        async def _release(self, shard_id: str) -> None:
            ends.append(turn)

    ends: list[int] = []
    places = Noted(heartbeat_frequency=0.01)
    count()
    for number in range(10):
        await places.allocate(f"{A}{number}")
    await until(lambda: len(turns) >= 10, "a heartbeat of each shard")
    await places.close()
    assert len(set(turns[:10])) == 10
    assert len(ends) == len(set(ends)) == 10
