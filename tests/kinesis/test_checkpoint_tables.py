"""Tables and keys of positions: their stream, their lifetime, their place, and the log lines about them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import AioSession
from checkpoint_helpers import ALL_HASH_KEYS, A, B, DynamoDB, awaited
from fastkcl.kinesis import (
    AnotherStream,
    CheckpointTableError,
    Consumer,
    DynamoDBCheckPointer,
    KCLCheckPointer,
    MemoryCheckPointer,
    RedisCheckPointer,
    ValidationError,
    run_processors,
)
from fastkcl.kinesis.checkpoints import dynamodb_table, table_errors
from fastkcl.kinesis.checkpoints.table_errors import account_of_arn, account_of_key
from fastkcl.kinesis.topology import Shard
from fastkcl.local_aws import Fault, LocalAws
from kinesis_helpers import QUICK, assert_each_once, numbered, put, take_all
from kinesis_helpers import environment as environment  # a fixture
from local_aws_helpers import SHARD_0, client, make_stream, new_name
from waiting import until

KINDS = [MemoryCheckPointer, RedisCheckPointer, DynamoDBCheckPointer, KCLCheckPointer]


def shard(shard_id: str) -> Shard:
    return Shard(shard_id=shard_id, hash_range=ALL_HASH_KEYS)


async def consume(stream: str, checkpointer: Any, **options: Any) -> list[Any]:
    async with Consumer(stream, **{**QUICK, "idle_timeout": 3, **options}, checkpointer=checkpointer) as consumer:
        return await take_all(consumer)


# Whose positions they are.


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_one_name_for_two_streams(
    aws: LocalAws, redis: dict[str, str], monkeypatch: pytest.MonkeyPatch, kind: type[Any]
) -> None:
    """The second would read nothing, or begin in the middle, without a word."""
    for name, value in redis.items():
        monkeypatch.setenv(name, value)
    first, second, group = make_stream(aws), make_stream(aws), new_name()
    for stream in (first, second):
        put(aws, stream, numbered(1, 5))

    async def main() -> None:
        kept = kind(group)
        async with Consumer(first, **QUICK, checkpointer=kept) as consumer:
            assert len(await take_all(consumer)) == 5
            with pytest.raises(AnotherStream, match=f"{first}.*{second}.*another checkpointer name"):
                await consume(second, kept if kind is MemoryCheckPointer else kind(group))
        with pytest.raises(AnotherStream, match=f"{first}.*{second}"):
            await consume(second, kept if kind is MemoryCheckPointer else kind(group))
        assert await consume(first, kept) == []

    asyncio.run(main())


def test_a_checkpointer_of_ones_own_for_two_streams(aws: LocalAws) -> None:
    """One that knows nothing of streams is refused while it is used for another one."""

    class Plain:
        def __init__(self) -> None:
            self.kept = MemoryCheckPointer()

        def __getattr__(self, name: str) -> Any:
            if name in ("bind_stream", "bind_metrics"):
                raise AttributeError(name)
            return getattr(self.kept, name)

    first, second, plain = make_stream(aws), make_stream(aws), Plain()

    async def main() -> None:
        async with Consumer(first, **QUICK, checkpointer=plain) as consumer:  # type: ignore[arg-type]
            await take_all(consumer)
            with pytest.raises(AnotherStream, match=f"{first}.*{second}"):
                await consume(second, plain)

    asyncio.run(main())


def test_what_was_kept_before_names_were_noted(
    aws: LocalAws, redis: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of async-kinesis, or of an earlier version, are the stream's that takes them first."""
    for name, value in redis.items():
        monkeypatch.setenv(name, value)
    stream, group = make_stream(aws), new_name()

    async def main() -> None:
        places = RedisCheckPointer(group, "a")
        await places.allocate(A)
        assert "stream" not in json.loads(await places._client.get(f"pyredis-{group}-{A}"))
        places.bind_stream(stream)
        await places.close()
        await places.allocate(A)
        await places.checkpoint(A, "5")
        await places.close()
        other = RedisCheckPointer(group, "b")
        other.bind_stream("another")
        with pytest.raises(AnotherStream, match=f"pyredis-{group}-{A}"):
            await other.allocate(A)
        await other.close()

    asyncio.run(main())


# How long they stay.


@pytest.mark.usefixtures("environment")
class TestTimeToLive:
    @awaited
    async def test_none_while_the_stream_lists_the_shard(self, aws: LocalAws) -> None:
        group = new_name()
        table = DynamoDB(group, aws)
        places = await table.make("a", ttl_hours=2)
        await places.shards_listed([shard(A), shard(B)])  # type: ignore[attr-defined]
        for shard_id in (A, B):
            await places.allocate(shard_id)
            await places.checkpoint(shard_id, table.position(1))
        await places.deallocate(A)
        await places.shards_listed([shard(A), shard(B)])  # type: ignore[attr-defined]
        assert "ttl" not in table.item(A)
        before = int(time.time())
        await places.shards_listed([])  # type: ignore[attr-defined]
        assert before + 7200 <= int(table.item(A)["ttl"]) <= time.time() + 7200
        assert "ttl" not in table.item(B)  # it has an owner
        assert await places.allocate(A) == (True, table.position(1))
        assert "ttl" not in table.item(A)
        await places.close()

    @awaited
    async def test_a_table_that_is_away(self, own_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
        """The list is read all the same, and the next one does it."""
        for name, value in own_aws.environment.items():
            monkeypatch.setenv(name, value)
        table = DynamoDB(new_name(), own_aws)
        places = await table.make("a")
        await places.allocate(A)
        await places.deallocate(A)
        await places.shards_listed([shard(A)])  # type: ignore[attr-defined]
        own_aws.faults(Fault("UpdateItem", "AccessDeniedException"))
        await places.shards_listed([])  # type: ignore[attr-defined]
        own_aws.faults()
        assert "ttl" not in table.item(A)
        await places.shards_listed([])  # type: ignore[attr-defined]
        assert "ttl" in table.item(A)
        await places.close()

    def test_a_finished_parent_keeps_its_position(self, aws: LocalAws) -> None:
        """A restart would read all of it again, as long as the stream has it."""
        stream, group = make_stream(aws), new_name()
        put(aws, stream, numbered(4, 5))
        kinesis = client(aws)
        kinesis.split_shard(StreamName=stream, ShardToSplit=SHARD_0, NewStartingHashKey=str(1 << 127))
        assert_each_once(asyncio.run(consume(stream, DynamoDBCheckPointer(group))), 4, 5)
        item = DynamoDB(group, aws).item(SHARD_0)
        assert "ttl" not in item
        assert item["sequence"].isdecimal()
        assert asyncio.run(consume(stream, DynamoDBCheckPointer(group))) == []

    @pytest.mark.parametrize("balance", [True, False])
    def test_an_end_that_an_earlier_version_lets_expire_stays(self, aws: LocalAws, balance: bool) -> None:
        """During a rolling update it takes finished shards, too, and gives each a time to live when it lets go."""
        stream, group = make_stream(aws), new_name()
        table = DynamoDB(group, aws)
        put(aws, stream, numbered(4, 5))
        client(aws).split_shard(StreamName=stream, ShardToSplit=SHARD_0, NewStartingHashKey=str(1 << 127))
        assert_each_once(asyncio.run(consume(stream, DynamoDBCheckPointer(group, balance=balance))), 4, 5)
        table.set(SHARD_0, ttl={"N": str(int(time.time()) + 86400)})
        assert asyncio.run(consume(stream, DynamoDBCheckPointer(group, balance=balance))) == []
        assert "ttl" not in table.item(SHARD_0)

    @awaited
    async def test_an_end_that_cannot_be_kept_stops_nobody(
        self, own_aws: LocalAws, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        for name, value in own_aws.environment.items():
            monkeypatch.setenv(name, value)
        table = DynamoDB(new_name(), own_aws)
        places = await table.make("a")
        await places.allocate(A)
        await places.shard_ended(A)  # type: ignore[attr-defined]
        table.set(A, ttl={"N": "1"})
        await places.share([A])  # type: ignore[attr-defined]
        assert "ttl" in table.item(A)  # the stream does not list it
        await places.shards_listed([shard(A)])  # type: ignore[attr-defined]
        own_aws.faults(Fault("UpdateItem", "AccessDeniedException"))
        await places.share([A])  # type: ignore[attr-defined]
        assert f"{A} in table {table.table} is to expire" in caplog.text
        own_aws.faults()
        await places.share([A])  # type: ignore[attr-defined]
        assert "ttl" not in table.item(A)
        await places.close()


# Where they are.


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AioSession:
    """A session of a profile, in a region of its own."""
    path = tmp_path / "config"
    path.write_text(
        "[profile billing]\nregion = eu-north-1\naws_access_key_id = of-billing\naws_secret_access_key = s\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(path))
    return AioSession(profile="billing")


def regions_of(checkpointer: Any, session: Any) -> str:
    region: str = checkpointer._table._region_of(session or AioSession())
    return region


@pytest.mark.parametrize("kind", [DynamoDBCheckPointer, KCLCheckPointer], ids=lambda kind: kind.__name__)
def test_the_region(kind: type[Any], profile: AioSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given, environment, profile, stream, us-east-1."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert regions_of(kind("g"), None) == "us-east-1"
    places = kind("g")
    places.bind_stream("orders", "ap-south-1")
    assert regions_of(places, None) == "ap-south-1"
    assert regions_of(places, profile) == "eu-north-1"
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert regions_of(places, profile) == "us-west-2"
    assert regions_of(kind("g", region_name="sa-east-1"), profile) == "sa-east-1"


@pytest.mark.parametrize("kind", [DynamoDBCheckPointer, KCLCheckPointer], ids=lambda kind: kind.__name__)
def test_a_session_of_ones_own(aws: LocalAws, kind: type[Any], profile: AioSession) -> None:
    stream, group = make_stream(aws), new_name()
    put(aws, stream, numbered(1, 5))

    async def main() -> None:
        places = kind(group, session=profile)
        assert len(await consume(stream, places)) == 5
        assert places._table._session is profile

    asyncio.run(main())
    with pytest.raises(TypeError, match="AioSession"):
        kind(group, session=object())


# What is said of them.


def test_a_denied_table(own_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: the API call, the table, the region and the account."""
    monkeypatch.setattr(table_errors, "_STS_SECONDS", 60.0)
    for name, value in own_aws.environment.items():
        monkeypatch.setenv(name, value)
    stream, group = make_stream(own_aws), new_name()
    put(own_aws, stream, numbered(1, 5))
    for fault, operation in [
        (Fault("DescribeTable", "AccessDeniedException"), "DescribeTable"),
        (Fault("CreateTable", "AccessDeniedException"), "CreateTable"),
        (Fault("Scan", "AccessDeniedException"), "Scan"),
        (Fault("UpdateItem", "ExpiredTokenException"), "UpdateItem"),
    ]:
        own_aws.faults(fault)
        with pytest.raises(CheckpointTableError) as raised:
            asyncio.run(consume(stream, DynamoDBCheckPointer(group)))
        assert own_aws.hits() == [1], operation
        said = str(raised.value)
        for part in (f"{operation} of DynamoDB table kinesis-checkpoints-{group}", "us-east-1", "123456789012"):
            assert part in said
        assert (raised.value.account, raised.value.is_lasting) == ("123456789012", True)
    own_aws.faults()
    assert len(asyncio.run(consume(stream, DynamoDBCheckPointer(group)))) == 5


def test_a_table_of_something_else(aws: LocalAws) -> None:
    stream, group = make_stream(aws), new_name()
    client(aws, "dynamodb").create_table(
        TableName=group,
        KeySchema=[{"AttributeName": "order", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "order", "AttributeType": "N"}],
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(ValidationError, match=f"123456789012:table/{group} has the key.*order.*shard_id"):
        asyncio.run(consume(stream, DynamoDBCheckPointer(group, table_name=group)))
    with pytest.raises(ValidationError, match="create_table=True makes it"):
        asyncio.run(run_processors(stream, object, checkpointer=KCLCheckPointer(new_name(), create_table=False)))  # type: ignore[arg-type]


@pytest.fixture
def silent() -> Iterator[str]:
    """A service that takes connections, and says nothing."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("away", ["refuses", "silent"])
def test_a_table_that_is_away_at_the_start(
    aws: LocalAws, away: str, silent: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said soon, and waited for; closing does not hang."""
    monkeypatch.setattr(dynamodb_table, "FIRST_SECONDS", 0.5)
    monkeypatch.setattr(dynamodb_table, "READ_TIMEOUT", 1)
    stream, group = make_stream(aws), new_name()
    put(aws, stream, numbered(1, 5))
    places = DynamoDBCheckPointer(group, endpoint_url="http://127.0.0.1:9" if away == "refuses" else silent)
    table = f"DescribeTable of DynamoDB table kinesis-checkpoints-{group} in us-east-1 at http"

    async def main() -> list[Any]:
        async with Consumer(stream, **{**QUICK, "idle_timeout": None}, checkpointer=places) as consumer:
            reading = asyncio.create_task(anext(consumer))
            await until(lambda: table in caplog.text, "the word of it", seen=lambda: caplog.text)
            assert not reading.done()
            places._table._endpoint_url = aws.url
            item = await reading
        return [item]

    assert asyncio.run(main()) == [{"key": 0, "n": 0}]


def test_a_redis_that_is_away_at_the_start(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its address is said, and what happened there."""
    with contextlib.closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("REDIS_HOST", "127.0.0.1")
        monkeypatch.setenv("REDIS_PORT", str(unused.getsockname()[1]))
        stream, group = make_stream(aws), new_name()

        async def main() -> None:
            async with Consumer(stream, **QUICK, checkpointer=RedisCheckPointer(group)) as consumer:
                reading = asyncio.create_task(anext(consumer))
                said = f"Error 111 connecting to 127.0.0.1:{unused.getsockname()[1]}"
                await until(lambda: any(said in line for line in caplog.messages), "it", seen=lambda: caplog.text)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

        asyncio.run(main())


def test_a_busy_program_is_no_table_that_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is there, and the program has kept the event loop from reading it."""
    monkeypatch.setattr(dynamodb_table, "FIRST_SECONDS", 0.12)

    class Client:
        exceptions = type("Exceptions", (), {"ResourceNotFoundException": LookupError})

        async def describe_table(self, TableName: str) -> dict[str, Any]:  # noqa: N803
            asyncio.get_running_loop().call_soon(time.sleep, 0.15)
            for _ in range(20):  # of the loop's turns that reading an answer takes
                await asyncio.sleep(0)
            keys = [{"AttributeName": "shard_id", "KeyType": "HASH"}]
            types = [{"AttributeName": "shard_id", "AttributeType": "S"}]
            return {"Table": {"TableName": TableName, "KeySchema": keys, "AttributeDefinitions": types}}

    table = dynamodb_table.Table("positions", "shard_id", create=False)
    assert asyncio.run(table._look(Client()))
    assert caplog.text == ""


def test_a_table_that_is_away_is_said_within_ten_seconds() -> None:
    assert dynamodb_table.FIRST_SECONDS + 2 <= 10


def test_denied_reads_of_the_stream(own_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five tries, 4 s."""
    for name, value in own_aws.environment.items():
        monkeypatch.setenv(name, value)
    stream = make_stream(own_aws)
    for operation in ("GetShardIterator", "GetRecords"):
        own_aws.faults(Fault(operation, "ExpiredTokenException"))
        with pytest.raises(Exception, match=f"ExpiredTokenException.*{operation}"):
            asyncio.run(consume(stream, None, idle_timeout=None))
        assert own_aws.hits() == [5]


def test_the_account_of_a_denied_table() -> None:
    """Of the table, which may be in another account than whoever asks for it."""
    denied = (
        "User: arn:aws:sts::111111111111:assumed-role/worker/i-1 is not authorized to perform: dynamodb:DescribeTable"
    )
    resource = " on resource: arn:aws:dynamodb:eu-west-1:222222222222:table/t"
    assert account_of_arn(denied + resource) == "222222222222"
    assert account_of_arn(denied) == "111111111111"
    assert account_of_arn("no ARN") is None


@pytest.mark.parametrize(
    ("key", "account"),
    [("ASIAY34FZKBOKMUTVV7A", "609629065308"), ("AKIAIOSFODNN7EXAMPLE", None), ("local", None), ("", None)],
)
def test_the_account_of_a_key(key: str, account: str | None) -> None:
    assert account_of_key(key) == account


def test_closing_ends(aws: LocalAws, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the backend does: positions that cannot be written, leases that cannot be given back."""
    from fastkcl.kinesis.checkpoints import leased
    from fastkcl.kinesis.read import consumer as consumers

    monkeypatch.setattr(consumers, "CLOSE_SECONDS", 0.3)
    monkeypatch.setattr(leased, "CLOSE_SECONDS", 0.2)
    stream = make_stream(aws, 4)
    put(aws, stream, numbered(20, 5))
    waiting = asyncio.Event

    class Hangs(DynamoDBCheckPointer):
        async def _store(self, shard_id: str, position: str) -> None:
            await waiting().wait()

        async def _release(self, shard_id: str) -> None:
            await waiting().wait()

    async def main() -> None:
        async with Consumer(stream, **QUICK, checkpointer=Hangs(new_name()), checkpoint_interval=3600) as consumer:
            assert len(await take_all(consumer)) == 100

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main()

    with pytest.raises((TimeoutError, ExceptionGroup)) as raised:
        asyncio.run(bounded())
    said, error = [], raised.value
    while error is not None:
        said.append(str(error))
        error = error.__context__  # type: ignore[assignment]
    assert any("writing the positions of shardId-000000000000, " in each for each in said)
    assert any("could not give all shards back" in each for each in said)
