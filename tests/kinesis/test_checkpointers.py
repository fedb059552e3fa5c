"""The promises of every checkpointer: the same tests over memory, Redis, DynamoDB and KCL's lease table."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from checkpoint_helpers import HEARTBEAT, KCL, A, B, Backend, DynamoDB, Redis, awaited
from fastkcl.kinesis.checkpoints import CheckPointer, DynamoDBCheckPointer, KCLCheckPointer, MemoryCheckPointer
from fastkcl.kinesis.checkpoints.dynamodb_table import Item
from fastkcl.kinesis.exceptions import CheckpointFlushError, CheckpointOwnershipConflict, ValidationError
from fastkcl.kinesis.metrics import InMemoryMetricsCollector
from fastkcl.local_aws import Fault, LocalAws
from local_aws_helpers import new_name, server_of
from waiting import until

SHARED = ["redis", "dynamodb", "kcl"]
POSITION = str(10**55)


@pytest.fixture(params=SHARED)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    group = new_name("g")
    if request.param == "redis":
        variables = request.getfixturevalue("redis")
    else:
        aws = server_of(request)
        variables = aws.environment
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if request.param == "redis":
        return Redis(group, variables)
    return DynamoDB(group, aws) if request.param == "dynamodb" else KCL(group, aws)


class TestOne:
    """One consumer alone."""

    @awaited
    async def test_in_memory(self) -> None:
        places = MemoryCheckPointer()
        assert isinstance(places, CheckPointer)
        assert await places.allocate(A) == (True, None)
        assert await places.allocate(A) == (True, None)
        await places.checkpoint(A, POSITION)
        await places.deallocate(A)
        assert not places.is_allocated(A)
        with pytest.raises(CheckpointOwnershipConflict):
            await places.checkpoint(A, POSITION)
        assert await places.allocate(A) == (True, POSITION)
        await places.close()
        await places.close()

    @awaited
    async def test_a_life(self, backend: Backend) -> None:
        places = await backend.make("a")
        assert isinstance(places, CheckPointer)
        assert not places.is_allocated(A)
        assert await places.allocate(A) == (True, backend.first)
        assert await places.allocate(A) == (True, backend.first)
        assert places.is_allocated(A)
        assert backend.stored(A) == (backend.owner("a"), backend.first)
        await places.checkpoint(A, backend.position(1))
        assert backend.stored(A) == (backend.owner("a"), backend.position(1))
        assert await places.allocate(A) == (True, backend.position(1))
        assert places.get_all_checkpoints() == {A: backend.position(1)}
        await places.deallocate(A)
        await places.deallocate(A)
        assert not places.is_allocated(A)
        assert backend.stored(A) == (None, backend.position(1))
        assert await places.allocate(A) == (True, backend.position(1))
        await places.close()
        assert backend.stored(A) == (None, backend.position(1))
        await places.close()

    @awaited
    async def test_goes_on_after_it_was_closed(self, backend: Backend) -> None:
        places = await backend.make("a")
        await places.allocate(A)
        await places.checkpoint(A, backend.position(1))
        await places.close()
        assert await places.allocate(A) == (True, backend.position(1))
        await places.close()

    @awaited
    async def test_positions_only_grow(self, backend: Backend) -> None:
        places = await backend.make("a")
        await places.allocate(A)
        for number in (5, 4, 5, 10, 9):
            await places.checkpoint(A, backend.position(number))
        await asyncio.gather(*(places.checkpoint(A, backend.position(n)) for n in (30, 12, 31, 11)))
        assert backend.stored(A) == (backend.owner("a"), backend.position(31))
        await places.close()

    @awaited
    async def test_what_is_no_position_is_refused(self, backend: Backend) -> None:
        places = await backend.make("a")
        await places.allocate(A)
        await places.checkpoint(A, backend.position(1))
        with pytest.raises(ValueError, match="no position"):
            await places.checkpoint(A, "soon")
        assert backend.stored(A) == (backend.owner("a"), backend.position(1))
        await places.close()

    @awaited
    async def test_a_shard_that_was_never_allocated(self, backend: Backend) -> None:
        places = await backend.make("a")
        with pytest.raises(CheckpointOwnershipConflict, match=A):
            await places.checkpoint(A, backend.position(1))
        await places.deallocate(A)
        assert places.get_all_checkpoints() == {}
        await places.close()

    @awaited
    async def test_the_heart_beats(self, backend: Backend) -> None:
        places = await backend.make("a", heartbeat_frequency=HEARTBEAT)
        await places.allocate(A)
        await places.checkpoint(A, backend.position(1))
        await until(backend.touch(A), "a heartbeat")
        await until(backend.touch(A), "a heartbeat")
        assert backend.stored(A) == (backend.owner("a"), backend.position(1))
        await places.close()

    @awaited
    async def test_an_id_that_stays_has_its_shards_at_once(self, backend: Backend) -> None:
        dead = await backend.make("a")
        await dead.allocate(A)
        await dead.checkpoint(A, backend.position(1))
        alive = await backend.make("a")
        assert await alive.allocate(A) == (True, backend.position(1))
        await alive.close()
        await dead.close()
        assert backend.stored(A) == (None, backend.position(1))

    @awaited
    async def test_counts(self, backend: Backend) -> None:
        places, collector = await backend.make("a"), InMemoryMetricsCollector()
        places.bind_metrics(collector, {"stream_name": "orders"})
        await places.allocate(A)
        await places.checkpoint(A, backend.position(1))
        await places.checkpoint(A, backend.position(2))
        backend.steal(A)
        with pytest.raises(CheckpointOwnershipConflict):
            await places.checkpoint(A, backend.position(3))
        labels = f"{{shard_id={A},stream_name=orders}}"
        assert collector.counters == {
            f"consumer_checkpoint_success_total{labels}": 2,
            f"consumer_checkpoint_failure_total{labels}": 1,
        }
        await places.close()


class TestTwo:
    """Consumers that share shards."""

    @awaited
    async def test_a_shard_is_one_owners(self, backend: Backend) -> None:
        one, two = await backend.make("a"), await backend.make("b")
        assert await one.allocate(A) == (True, backend.first)
        assert await two.allocate(A) == (False, None)
        assert not two.is_allocated(A)
        with pytest.raises(CheckpointOwnershipConflict):
            await two.checkpoint(A, backend.position(1))
        assert await two.allocate(B) == (True, backend.first)
        await one.checkpoint(A, backend.position(1))
        await one.close()
        assert await two.allocate(A) == (True, backend.position(1))
        await two.close()

    @awaited
    async def test_of_many_one_gets_it(self, backend: Backend) -> None:
        many = [await backend.make(str(number)) for number in range(8)]
        await many[0].allocate(B)  # the table is there
        got = await asyncio.gather(*(places.allocate(A) for places in many))
        assert sorted(ours for ours, _ in got) == [False] * 7 + [True]
        owner = [number for number, (ours, _) in enumerate(got) if ours][0]
        assert backend.stored(A) == (backend.owner(str(owner)), backend.first)
        for places in many:
            await places.close()

    @awaited
    async def test_a_dead_owners_shard_is_taken_and_the_dead_overwrites_nothing(self, backend: Backend) -> None:
        dead, heir = await backend.make("a"), await backend.make("b")
        await dead.allocate(A)
        await dead.checkpoint(A, backend.position(1))
        await backend.outlive(heir, A)
        assert await heir.allocate(A) == (True, backend.position(1))
        await heir.checkpoint(A, backend.position(7))
        assert dead.is_allocated(A)  # it has not looked yet
        with pytest.raises(CheckpointOwnershipConflict, match="nothing was written"):
            await dead.checkpoint(A, backend.position(9))
        assert not dead.is_allocated(A)
        await dead.close()
        assert backend.stored(A) == (backend.owner("b"), backend.position(7))
        await heir.close()

    @awaited
    async def test_a_lost_lease_is_seen_by_the_heartbeat(self, backend: Backend) -> None:
        places = await backend.make("a", heartbeat_frequency=HEARTBEAT)
        await places.allocate(A)
        await places.allocate(B)
        await places.checkpoint(A, backend.position(1))
        backend.steal(A)
        await until(lambda: not places.is_allocated(A), "the loss of the lease")
        assert places.is_allocated(B)
        assert places.get_all_checkpoints() == {B: backend.first}
        assert await places.allocate(A) == (False, None)
        await places.close()
        assert backend.stored(A) == ("thief", backend.position(1))

    @awaited
    async def test_a_lost_shard_is_not_given_back(self, backend: Backend) -> None:
        places = await backend.make("a")
        await places.allocate(A)
        await places.checkpoint(A, backend.position(1))
        backend.steal(A)
        await places.deallocate(A)
        assert backend.stored(A) == ("thief", backend.position(1))
        await places.close()


class TestManual:
    """auto_checkpoint=False."""

    @awaited
    async def test_nothing_is_written_before_it_is_said(self, backend: Backend) -> None:
        places = await backend.make("a", auto_checkpoint=False)
        for shard_id in (A, B):
            await places.allocate(shard_id)
            for number in (1, 3, 2):
                await places.checkpoint(shard_id, backend.position(number))
            assert backend.stored(shard_id)[1] == backend.first
        await places.manual_checkpoint()
        for shard_id in (A, B):
            assert backend.stored(shard_id) == (backend.owner("a"), backend.position(3))
        await places.manual_checkpoint()
        await places.close()

    @awaited
    async def test_every_shard_is_tried(self, backend: Backend) -> None:
        places = await backend.make("a", auto_checkpoint=False)
        for shard_id in (A, B):
            await places.allocate(shard_id)
            await places.checkpoint(shard_id, backend.position(1))
        backend.steal(A)
        with pytest.raises(CheckpointFlushError) as caught:
            await places.manual_checkpoint()
        assert [(shard_id, type(error)) for shard_id, error in caught.value.errors] == [
            (A, CheckpointOwnershipConflict)
        ]
        assert backend.stored(A) == ("thief", backend.first)
        assert backend.stored(B) == (backend.owner("a"), backend.position(1))
        await places.manual_checkpoint()  # a position of a shard that is lost is not tried again
        await places.close()

    @awaited
    async def test_a_shard_that_ended_stays_ours_until_it_is_said(self, backend: Backend) -> None:
        places = await backend.make("a", auto_checkpoint=False)
        await places.allocate(A)
        await places.checkpoint(A, backend.position(1))
        await places.deallocate(A)
        assert backend.stored(A) == (backend.owner("a"), backend.first)
        await places.manual_checkpoint()
        assert backend.stored(A) == (None, backend.position(1))
        assert not places.is_allocated(A)
        await places.close()

    @awaited
    async def test_close_writes_nothing(self, backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
        places = await backend.make("a", auto_checkpoint=False)
        await places.allocate(A)
        await places.checkpoint(A, backend.position(1))
        await places.close()
        assert backend.stored(A) == (None, backend.first)
        assert backend.position(1) in caplog.text


@pytest.mark.parametrize("backend", ["dynamodb", "kcl"], indirect=True)
class TestFailures:
    """A DynamoDB that refuses, or whose answers get lost."""

    @awaited
    async def test_what_failed_is_kept(self, backend: Backend, own_aws: LocalAws) -> None:
        places = await backend.make("a", auto_checkpoint=False)
        for shard_id in (A, B):
            await places.allocate(shard_id)
            await places.checkpoint(shard_id, backend.position(1))
        own_aws.faults(Fault("UpdateItem", "AccessDeniedException", contains=A))
        with pytest.raises(CheckpointFlushError, match="AccessDenied") as caught:
            await places.manual_checkpoint()
        assert [shard_id for shard_id, _ in caught.value.errors] == [A]
        assert backend.stored(B)[1] == backend.position(1)
        own_aws.faults()
        assert places.is_allocated(A)
        await places.manual_checkpoint()
        assert backend.stored(A)[1] == backend.position(1)
        await places.close()

    @awaited
    async def test_a_throttled_write_is_written(self, backend: Backend, own_aws: LocalAws) -> None:
        places = await backend.make("a")
        await places.allocate(A)
        own_aws.faults(Fault("UpdateItem", "ProvisionedThroughputExceededException", times=2))
        await places.checkpoint(A, backend.position(1))
        assert backend.stored(A)[1] == backend.position(1)
        await places.close()

    @awaited
    async def test_an_answer_that_got_lost(self, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        places = await backend.make("a")
        assert isinstance(places, DynamoDBCheckPointer | KCLCheckPointer)
        table = places._table
        update = table.update

        async def lose(*arguments: Any) -> None:
            await update(*arguments)
            monkeypatch.setattr(table, "update", update)
            raise ConnectionError("the answer got lost")

        monkeypatch.setattr(table, "update", lose)
        with pytest.raises(ConnectionError):
            await places.allocate(A)
        assert await places.allocate(A) == (True, backend.first)
        for number in (1, 3):
            monkeypatch.setattr(table, "update", lose)
            with pytest.raises(ConnectionError):
                await places.checkpoint(A, backend.position(number))
            await places.checkpoint(A, backend.position(number + 1))
            assert backend.stored(A) == (backend.owner("a"), backend.position(number + 1))
        await places.close()

    @awaited
    async def test_an_update_that_is_done_twice(self, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        """As by an SDK that got no answer to every other one."""
        places = await backend.make("a", heartbeat_frequency=HEARTBEAT)
        assert isinstance(places, DynamoDBCheckPointer | KCLCheckPointer)
        await places.allocate(A)
        table = places._table
        update = table.update
        again = itertools.cycle([True, False])

        async def twice(*arguments: Any) -> Item | None:
            if next(again):
                await update(*arguments)
            return await update(*arguments)

        monkeypatch.setattr(table, "update", twice)
        await places.checkpoint(A, backend.position(1))
        await until(backend.touch(A), "a heartbeat")
        await until(backend.touch(A), "a heartbeat")
        assert places.is_allocated(A)
        await places.close()
        assert backend.stored(A) == (None, backend.position(1))

    @awaited
    async def test_a_heartbeat_that_fails_is_tried_again(
        self, backend: Backend, own_aws: LocalAws, caplog: pytest.LogCaptureFixture
    ) -> None:
        places = await backend.make("a", heartbeat_frequency=HEARTBEAT)
        await places.allocate(A)
        own_aws.faults(Fault("UpdateItem", "AccessDeniedException", times=3))
        await until(lambda: own_aws.hits() == [3], "three failures", seen=own_aws.hits)
        await until(backend.touch(A), "a heartbeat")
        assert places.is_allocated(A)
        assert "AccessDenied" in caplog.text
        await places.close()

    @awaited
    async def test_close_says_what_could_not_be_given_back(self, backend: Backend, own_aws: LocalAws) -> None:
        places = await backend.make("a")
        await places.allocate(A)
        await places.allocate(B)
        own_aws.faults(Fault("UpdateItem", "AccessDeniedException", contains=A))
        with pytest.RaisesGroup(Exception):
            await places.close()
        assert backend.stored(A)[0] == backend.owner("a")
        assert backend.stored(B)[0] is None
        await places.close()

    @awaited
    async def test_a_table_that_is_not_to_be_made(self, backend: Backend) -> None:
        places = await backend.make("a", create_table=False)
        with pytest.raises(ValidationError, match="create_table=True"):
            await places.allocate(A)
        await places.close()
