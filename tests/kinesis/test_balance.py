"""Shards are shared evenly, step by step; tests/system/test_balance.py has real processes."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from checkpoint_helpers import ALL_HASH_KEYS, KCL, Backend, DynamoDB, Redis, awaited
from fastkcl.kinesis import Consumer
from fastkcl.kinesis.checkpoints import SHARD_END, KCLCheckPointer, LeasedCheckPointer
from fastkcl.kinesis.exceptions import CheckpointOwnershipConflict
from fastkcl.kinesis.topology import Shard
from fastkcl.local_aws import LocalAws
from kinesis_groups import KINDS
from kinesis_helpers import QUICK
from kinesis_helpers import environment as environment  # a fixture
from local_aws_helpers import make_stream, new_name
from redis.asyncio import Redis as RedisClient
from waiting import until

SHARDS = [f"shardId-{number:012}" for number in range(8)]


@pytest.fixture(params=KINDS)
def backend(request: pytest.FixtureRequest, aws: LocalAws, redis: dict[str, str]) -> Backend:
    return backend_of(request.param, aws, redis)


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch, aws: LocalAws, redis: dict[str, str]) -> None:
    for variable, value in {**redis, **aws.environment}.items():
        monkeypatch.setenv(variable, value)


def backend_of(kind: str, aws: LocalAws, redis: dict[str, str]) -> Backend:
    name = new_name("g")
    return Redis(name, redis) if kind == "redis" else {"dynamodb": DynamoDB, "kcl": KCL}[kind](name, aws)


async def member(backend: Backend, id: str, shards: list[Shard] | None = None, **options: Any) -> LeasedCheckPointer:
    """A checkpointer that never beats by itself, and knows the shards."""
    places = await backend.make(id, **{"session_timeout": 60, **options})
    if isinstance(places, KCLCheckPointer):
        await places.shards_listed(shards or [shard(shard_id) for shard_id in SHARDS])
    return places


def shard(shard_id: str, *parents: str) -> Shard:
    return Shard(shard_id=shard_id, parents=parents, hash_range=ALL_HASH_KEYS)


async def turn(places: LeasedCheckPointer, shard_ids: list[str] = SHARDS, **how: Any) -> list[str]:
    """What a consumer does every now and then: the shards that are ours then."""
    await places.share(shard_ids, **how)
    return [shard_id for shard_id in shard_ids if (await places.allocate(shard_id))[0]]


@awaited
async def test_a_member_takes_its_share_of_a_living_one(backend: Backend) -> None:
    one, two, three = [await member(backend, id) for id in "abc"]
    assert await turn(one) == SHARDS
    for number, shard_id in enumerate(SHARDS):
        await one.checkpoint(shard_id, backend.position(number))
    of_two = await turn(two)
    assert len(of_two) == 4
    of_one = await turn(one)
    assert sorted(of_one + of_two) == SHARDS
    for shard_id in of_two:
        assert await two.allocate(shard_id) == (True, backend.position(SHARDS.index(shard_id)))
        with pytest.raises(CheckpointOwnershipConflict):
            await one.checkpoint(shard_id, backend.position(100))
        await two.checkpoint(shard_id, backend.position(50))
    of_three = await turn(three)
    of_three = await turn(three)
    assert len(of_three) in (2, 3)
    shares = [await turn(places) for places in (one, two, three)]
    assert sorted(shard_id for share in shares for shard_id in share) == SHARDS
    assert sorted(map(len, shares)) == [2, 3, 3]
    assert [await turn(places) for places in (one, two, three)] == shares  # it stays so
    await three.close()
    shares = [await turn(places) for places in (one, two)]
    assert sorted(map(len, shares)) == [4, 4]
    for places in (one, two):
        await places.close()


@awaited
async def test_who_has_nothing_has_the_next_that_is_free(backend: Backend) -> None:
    one, two = [await member(backend, id) for id in "ab"]
    assert await turn(one, SHARDS[:1]) == SHARDS[:1]
    for _ in range(3):
        assert await turn(two, SHARDS[:1]) == []
    await one.close()
    assert await turn(two, SHARDS[:1]) == SHARDS[:1]
    await two.close()


@awaited
async def test_a_dead_members_shards_are_taken_when_they_stood_still(backend: Backend) -> None:
    dead, heir = [await member(backend, id) for id in "ab"]
    assert await turn(dead, SHARDS[:2]) == SHARDS[:2]
    assert len(await turn(heir, SHARDS[:2])) == 1
    clock, passed = heir._clock, 0.0
    heir._clock = lambda: clock() + passed
    passed = 50
    assert len(await turn(heir, SHARDS[:2])) == 1
    passed = 55
    (own,) = await turn(heir, SHARDS[:2])
    await heir.checkpoint(own, backend.position(1))  # its own lease is renewed meanwhile
    passed = 62
    assert await turn(heir, SHARDS[:2]) == SHARDS[:2]
    await dead.close()
    assert [backend.stored(shard_id)[0] for shard_id in SHARDS[:2]] == [backend.owner("b")] * 2
    await heir.close()


@awaited
async def test_a_living_member_keeps_what_it_renews(backend: Backend) -> None:
    one, two = [await member(backend, id) for id in "ab"]
    await turn(one, SHARDS[:1])
    clock, passed = two._clock, 0.0
    two._clock = lambda: clock() + passed
    for number in range(4):
        await one.checkpoint(SHARDS[0], backend.position(number))
        await asyncio.sleep(1.1)  # stamps are whole seconds
        passed += 40
        assert await turn(two, SHARDS[:1]) == []
    for places in (one, two):
        await places.close()


@awaited
async def test_a_finished_shard_is_finished_for_all(backend: Backend) -> None:
    family = [shard(SHARDS[0]), shard(SHARDS[1], SHARDS[0]), shard(SHARDS[2], SHARDS[0])]
    one, two = [await member(backend, id, family) for id in "ab"]
    await turn(one, SHARDS[:1])
    assert not await two.share(SHARDS[:1])
    await one.checkpoint(SHARDS[0], backend.position(1))
    await one.shard_ended(SHARDS[0])
    assert await two.share(SHARDS[:1])  # there may be more than is listed
    assert await two.allocate(SHARDS[0]) == (False, SHARD_END)
    assert not await two.share(SHARDS[:1])
    assert await turn(two, SHARDS[1:3]) == SHARDS[1:3]
    for places in (one, two):
        await places.close()


@awaited
async def test_a_shard_that_would_begin_anew_stays(backend: Backend) -> None:
    """With LATEST, a new owner of a shard without a position would leave out what its owner has at hand."""
    latest = {"initial_position": "LATEST"} if isinstance(backend, KCL) else {}
    one, two = [await member(backend, id, **latest) for id in "ab"]
    assert await turn(one, restartable=False) == SHARDS
    assert await turn(two, restartable=False) == []
    await one.checkpoint(SHARDS[3], backend.position(1))
    assert await turn(two, restartable=False) == [SHARDS[3]]
    for places in (one, two):
        await places.close()


@awaited
async def test_without_balance_a_member_takes_what_is_free_and_no_more(backend: Backend) -> None:
    """As those did that knew no shares, beside which others have theirs all the same."""
    old, new = await member(backend, "old", balance=False), await member(backend, "new")
    assert await turn(old) == SHARDS
    while len(await turn(new)) < 4:  # `old` may have renewed what it has just looked at
        pass
    assert len(await turn(old)) == 8  # it has not looked
    for shard_id in SHARDS:
        if backend.stored(shard_id)[0] != backend.owner("old"):
            with pytest.raises(CheckpointOwnershipConflict):
                await old.checkpoint(shard_id, backend.position(1))
    assert len(await turn(old)) == 4
    await new.close()
    assert await turn(old) == SHARDS
    await old.close()


@awaited
async def test_a_busy_event_loop_keeps_its_leases(aws: LocalAws, redis: dict[str, str]) -> None:
    """For longer than a lease lasts; of all backends in one go, and of a client of the program's."""
    backends = [backend_of(kind, aws, redis) for kind in [*KINDS, "redis"]]
    client = RedisClient(host=redis["REDIS_HOST"], port=int(redis["REDIS_PORT"]))
    options: dict[str, Any] = {"session_timeout": 10, "heartbeat_frequency": 1}
    owners = [await member(backend, "a", **options) for backend in backends[:-1]]
    owners.append(await member(backends[-1], "a", client=client, **options))
    for places in owners:
        for shard_id in SHARDS[:2]:
            await places.allocate(shard_id)
    end = time.monotonic() + 12
    while time.monotonic() < end:  # never awaits; half of the time it leaves the processor to others
        time.sleep(0.01)
        turn_ends = time.monotonic() + 0.01
        while time.monotonic() < turn_ends:
            pass
    kept = [places.is_allocated(shard_id) for places in owners for shard_id in SHARDS[:2]]
    assert kept == [True] * 2 * len(owners)
    for backend, places in zip(backends, owners, strict=True):
        other = await member(backend, "b", **options)
        assert await other.allocate(SHARDS[0]) == (False, None)
        await places.checkpoint(SHARDS[0], backend.position(1))
        for each in (places, other):
            await each.close()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith(backend.group)]
    await client.aclose()


@awaited
async def test_a_consumer_with_nothing_waits(aws: LocalAws, backend: Backend) -> None:
    """Until there is something for it, and it ends when that is idle."""
    stream = make_stream(aws)
    one, two = [await backend.make(id) for id in "ab"]
    first = Consumer(stream, checkpointer=one, **{**QUICK, "idle_timeout": None})
    second = Consumer(stream, checkpointer=two, **QUICK)
    async with first, second:
        await first.wait_ready()
        waiting = asyncio.ensure_future(anext(second))
        asked: list[str] = []
        allocate = two.allocate

        async def note(shard_id: str) -> tuple[bool, str | None]:
            asked.append(shard_id)
            return await allocate(shard_id)

        two.allocate = note  # type: ignore[method-assign]
        await until(lambda: waiting.done() or len(asked) > 2, "questions for the shard")
        assert not waiting.done()
        await first.close()
        with pytest.raises(StopAsyncIteration):
            await waiting


@awaited
async def test_a_look_while_a_shard_is_given_back(backend: Backend) -> None:
    places = await member(backend, "a")
    await turn(places, SHARDS[:2])
    release, released, going_on = places._release, asyncio.Event(), asyncio.Event()

    async def slow(shard_id: str) -> None:
        await release(shard_id)
        released.set()
        await going_on.wait()

    places._release = slow  # type: ignore[method-assign]
    giving = asyncio.create_task(places.deallocate(SHARDS[0]))
    await released.wait()
    await places.share(SHARDS[:2])
    going_on.set()
    await giving
    assert backend.stored(SHARDS[0])[0] is None
    assert places.is_allocated(SHARDS[1])
    await places.close()


@awaited
async def test_a_look_that_fails(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    """Who has shards goes on with them, and with their positions; who has none says it."""
    one, two = [await member(backend, id) for id in "ab"]
    await turn(one, SHARDS[:2])

    async def away(shard_ids: object) -> Any:
        raise OSError("no route")

    one._look = two._look = away  # type: ignore[method-assign]
    assert await turn(one, SHARDS[:2]) == SHARDS[:2]
    assert "no route" in caplog.text
    await one.checkpoint(SHARDS[0], backend.position(1))
    assert await turn(one, SHARDS[:3]) == SHARDS[:2]
    with pytest.raises(OSError, match="no route"):
        await two.share(SHARDS)
    for places in (one, two):
        await places.close()
