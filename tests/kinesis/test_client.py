"""`StreamClient`: the parts that a consumer and a producer share, against local AWS; its decisions without time."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import get_session
from botocore.exceptions import ClientError, EndpointConnectionError
from fastkcl.backoff import Backoff
from fastkcl.kinesis.client import StreamClient
from fastkcl.kinesis.exceptions import StreamDoesNotExist, StreamExists, StreamShardLimit, StreamStatusInvalid
from fastkcl.kinesis.failures import Failure, ReconnectPolicy, checked, error_code, failure_of
from fastkcl.kinesis.sessions import new_session
from fastkcl.local_aws import Fault, LocalAws
from http_servers import request_of, server
from kinesis_helpers import environment as environment  # a fixture
from local_aws_helpers import SHARD_0, make_stream, new_name, server_of
from waiting import wait_until


@pytest.fixture
def orders(request: pytest.FixtureRequest) -> str:
    """A new stream of three shards."""
    return make_stream(server_of(request), 3)


def client_error(code: str, status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetRecords")  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("error", "failure", "code"),
    [
        (client_error("ProvisionedThroughputExceededException"), Failure.THROTTLED, None),
        (client_error("LimitExceededException"), Failure.THROTTLED, None),
        (client_error("KMSThrottlingException"), Failure.THROTTLED, None),
        (client_error("ExpiredIteratorException"), Failure.EXPIRED_ITERATOR, None),
        (client_error("ResourceNotFoundException"), Failure.NOT_FOUND, None),
        (client_error("InternalFailure", 500), Failure.UNAVAILABLE, None),
        (client_error("ServiceUnavailable", 503), Failure.UNAVAILABLE, None),
        (client_error("Whatever", 502), Failure.UNAVAILABLE, None),
        (client_error("AccessDeniedException"), Failure.DENIED, None),
        (client_error("ExpiredTokenException"), Failure.DENIED, None),
        (client_error("InvalidArgumentException"), Failure.OTHER, None),
        (client_error("", 400), Failure.OTHER, "Unknown"),
        (EndpointConnectionError(endpoint_url="http://x"), Failure.UNAVAILABLE, "EndpointConnectionError"),
        (TimeoutError(), Failure.UNAVAILABLE, "TimeoutError"),
        (ConnectionResetError(), Failure.UNAVAILABLE, "ConnectionResetError"),
        (ValueError(), Failure.OTHER, "ValueError"),
    ],
)
def test_kinds_of_failures(error: BaseException, failure: Failure, code: str | None) -> None:
    assert failure_of(error) is failure
    assert error_code(error) == (code or error.response["Error"]["Code"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "pauses"),
    [
        ({}, [5.0, 5.0, 5.0, 5.0, 5.0, None]),
        ({"retry_limit": 0}, [None, None]),
        ({"retry_limit": 2, "expo_backoff": 3}, [3, 12, None]),
        ({"retry_limit": 4, "expo_backoff": 10, "expo_backoff_limit": 50}, [10, 40, 50, 50, None]),
        ({"retry_limit": 3, "expo_backoff": 4}, [4, 16, 36, None]),
    ],
)
def test_pauses_of_an_outage(options: dict[str, Any], pauses: list[float | None]) -> None:
    policy = ReconnectPolicy(**options)
    assert [policy.failed() for _ in pauses] == pauses
    policy.succeeded()
    assert policy.failed() == pauses[0]


def test_pauses_of_throttling() -> None:
    backoff = Backoff()
    assert [backoff.next() for _ in range(7)] == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.next() == 0.25


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"retry_limit": -1}, ValueError, "retry_limit"),
        ({"expo_backoff": 0}, ValueError, "expo_backoff"),
        ({"expo_backoff_limit": 0}, ValueError, "expo_backoff_limit"),
        ({"create_stream_shards": 0}, ValueError, "create_stream_shards"),
        ({"describe_timeout": 0}, ValueError, "describe_timeout"),
        ({"session": object()}, TypeError, "AioSession"),
        ({"retry_limits": 1}, TypeError, "retry_limits"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        StreamClient("orders", **options)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", ValueError),
        (None, TypeError),
        ("arn:aws:kinesis", ValueError),
        ("arn:aws:kinesis:us-east-1:123456789012:orders", ValueError),
        ("arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/c:1", ValueError),
        ("arn:aws:dynamodb:us-east-1:123456789012:table/orders", ValueError),
    ],
)
def test_what_names_no_stream(name: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        StreamClient(name)


def run(use: Callable[[StreamClient], Awaitable[Any]], name: str, **options: Any) -> Any:
    async def main() -> Any:
        async with StreamClient(name, expo_backoff=0.001, **options) as client:
            return await use(client)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "count"),  # a page of DescribeStream has 100 shards, one of ListShards 1,000
    [({}, 230), ({"use_list_shards": True}, 1030), ({"skip_describe_stream": True}, 1030)],
)
def test_all_pages_of_shards(aws: LocalAws, options: dict[str, Any], count: int) -> None:
    name = new_name()
    kinesis = aws.client("kinesis")
    kinesis.create_stream(StreamName=name, ShardCount=count)
    arn = kinesis.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamARN"]
    for address in (name, arn):
        shards = run(StreamClient.list_shards, address, **options)
        assert [shard.shard_id for shard in shards] == [f"shardId-{number:012}" for number in range(count)]
        assert not any(shard.is_closed for shard in shards)
    kinesis.delete_stream(StreamName=name)


def test_parents_and_ranges_of_shards(aws: LocalAws) -> None:
    kinesis = aws.client("kinesis")
    parents = make_stream(aws, 2)
    ids = [f"shardId-{number:012}" for number in range(3)]
    kinesis.merge_shards(StreamName=parents, ShardToMerge=ids[0], AdjacentShardToMerge=ids[1])
    left, right, merged = run(StreamClient.list_shards, parents)
    assert (left.is_closed, right.is_closed, merged.is_closed) == (True, True, False)
    assert set(merged.parents) == set(ids[:2])
    assert merged.hash_range == (0, 2**128 - 1) == (left.hash_range[0], right.hash_range[1])
    assert merged.range.is_open
    assert not left.range.is_open


def test_shards_are_described_where_they_cannot_be_listed(own_aws: LocalAws, orders: str) -> None:
    own_aws.faults(Fault("ListShards", "AccessDeniedException"))
    assert len(run(StreamClient.list_shards, orders, use_list_shards=True)) == 3
    with pytest.raises(ClientError, match="AccessDenied"):
        run(StreamClient.list_shards, orders, skip_describe_stream=True)


def test_a_stream_that_is_not_there() -> None:
    nowhere = new_name()
    with pytest.raises(StreamDoesNotExist, match=f"there is no stream {nowhere}"):
        run(StreamClient.list_shards, nowhere)
    with pytest.raises(StreamDoesNotExist, match=nowhere):
        run(StreamClient.list_shards, nowhere, skip_describe_stream=True)


def test_a_stream_that_is_made(own_aws: LocalAws) -> None:
    made = new_name()
    for _ in range(2):  # there already, the second time
        assert len(run(StreamClient.list_shards, made, create_stream=True, create_stream_shards=2)) == 2
    with pytest.raises(StreamExists):
        run(lambda client: client.create_stream(1), made)
    own_aws.faults(Fault("CreateStream", "LimitExceededException"))
    with pytest.raises(StreamShardLimit):
        run(lambda client: client.create_stream(1), made)


def test_a_stream_that_takes_its_time() -> None:
    with LocalAws(transition_seconds=1.0) as slow:
        slow.client("kinesis").create_stream(StreamName="slow", ShardCount=1)
        assert run(StreamClient.list_shards, "slow", endpoint_url=slow.url)
    with LocalAws(streams={"slower": 1}, transition_seconds=3600) as slower:
        with pytest.raises(StreamStatusInvalid, match="describe_timeout"):
            run(StreamClient.list_shards, "slower", endpoint_url=slower.url, describe_timeout=1)
        slower.client("kinesis").delete_stream(StreamName="slower")
        with pytest.raises(StreamStatusInvalid, match="being deleted"):
            run(StreamClient.list_shards, "slower", endpoint_url=slower.url)


@pytest.mark.parametrize("what", ["accepts and says nothing", "refuses"])
def test_a_service_that_does_not_answer_is_no_status_of_the_stream(what: str) -> None:
    """However long the outage may be waited for."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if what != "refuses":
            listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=r"orders: the service has not answered after the 0\.3 s"):
            run(StreamClient.list_shards, "orders", endpoint_url=url, describe_timeout=0.3, retry_limit=1000)


def test_throttling_of_calls_about_the_stream_is_waited_for(own_aws: LocalAws, orders: str) -> None:
    own_aws.faults(Fault("DescribeStream", "LimitExceededException", times=2))
    assert len(run(StreamClient.list_shards, orders)) == 3
    assert own_aws.hits() == [2]


def test_an_outage_is_waited_for(own_aws: LocalAws, orders: str) -> None:
    seen: list[str] = []
    own_aws.faults(Fault("ListShards", "InternalFailure", times=3))
    options: dict[str, Any] = {"skip_describe_stream": True, "on_outage": lambda error: seen.append(error_code(error))}
    shards = run(StreamClient.list_shards, orders, **options)
    assert len(shards) == 3
    assert seen == ["InternalFailure"] * 3


def test_an_outage_that_does_not_end() -> None:
    with pytest.raises(ConnectionError, match="after 2 attempts to reconnect") as caught:
        run(StreamClient.list_shards, "orders", endpoint_url="http://127.0.0.1:9", retry_limit=2)
    assert isinstance(caught.value.__cause__, EndpointConnectionError)


@pytest.mark.parametrize(
    ("options", "lacks"),
    [
        ({}, "describe_stream of orders: .* StreamDescription"),
        ({"use_list_shards": True}, "describe_stream_summary of orders: .* StreamDescriptionSummary"),
    ],
)
def test_what_answers_is_no_kinesis(options: dict[str, Any], lacks: str) -> None:
    """It says 200 and an empty object to everything."""

    def talk(link: socket.socket, number: int) -> None:
        while request_of(link):
            link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/x-amz-json-1.1\r\n\r\n{}")

    with server(talk) as address, pytest.raises(ConnectionError, match=f"{lacks}: the endpoint is not Kinesis"):
        run(StreamClient.list_shards, "orders", endpoint_url=f"http://{address}", retry_limit=1, **options)


def test_an_error_has_nothing_that_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that is being debugged answers with the request's headers."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "SECRET")

    def talk(link: socket.socket, number: int) -> None:
        while request := request_of(link):
            body = json.dumps({"__type": "AccessDeniedException", "message": request.decode("latin-1")}).encode()
            head = b"HTTP/1.1 400 No\r\nContent-Type: application/x-amz-json-1.1\r\nContent-Length: %d\r\n\r\n"
            link.sendall(head % len(body) + body)

    with server(talk) as address, pytest.raises(ClientError, match="X-Amz-Security-Token: …") as caught:
        run(StreamClient.list_shards, "orders", endpoint_url=f"http://{address}")
    assert "SECRET" not in str(caught.value)
    assert "Signature" not in str(caught.value)


@pytest.mark.parametrize(
    ("operation", "member"),
    [("list_shards", "Shards"), ("get_shard_iterator", "ShardIterator"), ("put_records", "Records")],
)
def test_what_each_answer_has(operation: str, member: str) -> None:
    assert checked(operation, {member: []}) == {member: []}
    with pytest.raises(ConnectionError, match=f"an answer without {member}: the endpoint is not Kinesis"):
        checked(operation, {"Another": []})


def test_an_outage_is_reported_at_once_and_once(
    own_aws: LocalAws, orders: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(client: StreamClient) -> None:
        own_aws.faults(Fault("DescribeStream", "InternalFailure", times=20))
        calls = [asyncio.create_task(client.describe()) for _ in range(10)]
        await asyncio.to_thread(wait_until, lambda: bool(caplog.records), "a warning")
        assert not any(call.done() for call in calls)
        await asyncio.gather(*calls)

    run(use, orders, retry_limit=3)
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(
        f"describe_stream of {orders}: the service cannot be reached, and is tried again up to 3 times: "
    )


def test_an_outage_is_one_for_all_tasks(own_aws: LocalAws, orders: str) -> None:
    """20 tasks fail at once; that is one attempt, not 20."""

    async def use(client: StreamClient) -> list[Any]:
        own_aws.faults(Fault("DescribeStream", "InternalFailure", times=40))
        return await asyncio.gather(*(client.describe() for _ in range(20)))

    assert len(run(use, orders, retry_limit=3)) == 20


def test_a_service_that_fails_at_one_call_only(own_aws: LocalAws, orders: str) -> None:
    """What succeeds beside it does not keep it going for ever."""

    async def use(client: StreamClient) -> None:
        own_aws.faults(Fault("DescribeStream", "InternalFailure"))
        failing = asyncio.create_task(client.describe())
        while not failing.done():
            await client.call("list_shards", client.address)
        with pytest.raises(ConnectionError, match="describe_stream"):
            await failing

    run(use, orders, retry_limit=4)
    assert own_aws.hits() == [5]


def test_records_are_decoded_without_botocores_parser(aws: LocalAws, orders: str) -> None:
    kinesis = aws.client("kinesis")
    for number in range(3):
        kinesis.put_record(StreamName=orders, PartitionKey="k", ExplicitHashKey="0", Data=b"%d" % number)

    async def use(client: StreamClient) -> Any:
        request = {**client.address, "ShardId": SHARD_0, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = (await client.call("get_shard_iterator", request))["ShardIterator"]
        return await client.get_records(SHARD_0, iterator, 2, lambda answer: answer)

    answer = run(use, orders)
    assert [record.data for record in answer.batch] == [b"0", b"1"]
    assert answer.batch.shard_id == SHARD_0
    assert answer.next_shard_iterator


def test_a_session_of_the_programs_own(orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    session = get_session()
    session.set_credentials("a", "b")
    assert len(run(StreamClient.list_shards, orders, session=session)) == 3


def test_a_client_that_is_not_open() -> None:
    client = StreamClient("orders")
    with pytest.raises(RuntimeError, match="not open"):
        asyncio.run(client.list_shards())


def test_sessions_share_what_botocore_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unless it reads elsewhere; what else a session has is its own."""
    one, other = new_session(), new_session()
    assert one.get_component("data_loader") is other.get_component("data_loader")
    one.set_config_variable("region", "eu-west-1")
    assert other.get_config_variable("region") != "eu-west-1"
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    loader = new_session().get_component("data_loader")
    assert loader is not one.get_component("data_loader")
    assert str(tmp_path) in loader.search_paths
