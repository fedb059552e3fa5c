"""Local Kinesis through boto3, point by point as a consumer or a daemon meets it."""

import datetime
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, EventStreamError
from fastkcl.local_aws import LocalAws
from local_aws_helpers import HASH_KEYS, SHARD_0, client, is_open, iterator, new_name, read, server_of, shards

Subscribe = Callable[..., Iterator[dict[str, Any]]]
SHARD_1, SHARD_2, SHARD_3 = (f"shardId-{number:012d}" for number in (1, 2, 3))


@pytest.fixture
def kinesis(request: pytest.FixtureRequest) -> Any:
    return client(server_of(request))


def make(kinesis: Any, count: int = 1, **options: Any) -> str:
    name = new_name()
    kinesis.create_stream(StreamName=name, ShardCount=count, **options)
    return name


def put(kinesis: Any, stream: str, data: bytes = b"x", key: str = "k", **options: Any) -> dict[str, Any]:
    return dict(kinesis.put_record(StreamName=stream, PartitionKey=key, Data=data, **options))


def refusal(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


# Streams.


def test_a_stream_and_its_description(kinesis: Any) -> None:
    stream = make(kinesis, 3, Tags={"team": "data"})
    described = kinesis.describe_stream(StreamName=stream)["StreamDescription"]
    summary = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    assert described["StreamStatus"] == summary["StreamStatus"] == "ACTIVE"
    assert described["StreamARN"] == f"arn:aws:kinesis:us-east-1:123456789012:stream/{stream}"
    assert summary["OpenShardCount"] == len(described["Shards"]) == 3
    assert summary["RetentionPeriodHours"] == 24
    assert abs(summary["StreamCreationTimestamp"].timestamp() - time.time()) < 60
    ranges = [shard["HashKeyRange"] for shard in described["Shards"]]
    assert [ranges[0]["StartingHashKey"], ranges[-1]["EndingHashKey"]] == ["0", str(HASH_KEYS - 1)]
    for before, after in itertools.pairwise(ranges):
        assert int(before["EndingHashKey"]) + 1 == int(after["StartingHashKey"])
    assert kinesis.list_tags_for_stream(StreamName=stream)["Tags"] == [{"Key": "team", "Value": "data"}]


@pytest.mark.usefixtures("own_aws")  # everybody's has many streams
def test_streams_are_listed_in_pages_and_deleted(kinesis: Any) -> None:
    ours = sorted(make(kinesis) for _ in range(3))
    pages = kinesis.get_paginator("list_streams").paginate(PaginationConfig={"PageSize": 2})
    listed = [name for page in pages for name in page["StreamNames"]]
    assert listed == sorted(listed)
    assert set(ours) <= set(listed)
    kinesis.delete_stream(StreamName=ours[0])
    with pytest.raises(kinesis.exceptions.ResourceNotFoundException):
        kinesis.describe_stream_summary(StreamName=ours[0])


def test_an_on_demand_stream_needs_no_shard_count(kinesis: Any) -> None:
    name = new_name()
    kinesis.create_stream(StreamName=name, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    assert len(shards(kinesis, name)) == 4


def test_retention_is_kept_and_bounded(kinesis: Any) -> None:
    stream = make(kinesis)
    kinesis.increase_stream_retention_period(StreamName=stream, RetentionPeriodHours=48)
    summary = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    assert summary["RetentionPeriodHours"] == 48
    with pytest.raises(kinesis.exceptions.InvalidArgumentException):
        kinesis.increase_stream_retention_period(StreamName=stream, RetentionPeriodHours=24)
    kinesis.decrease_stream_retention_period(StreamName=stream, RetentionPeriodHours=24)


def register(kinesis: Any, stream: str, name: str = "c") -> str:
    arn = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"]
    return str(kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=name)["Consumer"]["ConsumerARN"])


def test_consumers_are_registered(kinesis: Any) -> None:
    stream = make(kinesis)
    consumer = register(kinesis, stream)
    described = kinesis.describe_stream_consumer(ConsumerARN=consumer)["ConsumerDescription"]
    assert (described["ConsumerName"], described["ConsumerStatus"]) == ("c", "ACTIVE")
    listed = kinesis.list_stream_consumers(StreamARN=described["StreamARN"])["Consumers"]
    assert [each["ConsumerARN"] for each in listed] == [consumer]
    with pytest.raises(kinesis.exceptions.ResourceInUseException):
        register(kinesis, stream)
    with pytest.raises(kinesis.exceptions.ResourceInUseException):
        kinesis.delete_stream(StreamName=stream)
    kinesis.deregister_stream_consumer(ConsumerARN=consumer)
    kinesis.delete_stream(StreamName=stream)


REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("the name twice", "create_stream", {"ShardCount": 1}, "ResourceInUseException"),
    ("no such stream", "describe_stream_summary", {"StreamName": "nope"}, "ResourceNotFoundException"),
    ("no name at all", "describe_stream_summary", {"StreamName": None}, "InvalidArgumentException"),
    ("no such shard", "split_shard", {"ShardToSplit": SHARD_3, "NewStartingHashKey": "5"}, "ResourceNotFoundException"),
    (
        "split at its start",
        "split_shard",
        {"ShardToSplit": SHARD_0, "NewStartingHashKey": "0"},
        "InvalidArgumentException",
    ),
    (
        "merge of shards that are apart",
        "merge_shards",
        {"ShardToMerge": SHARD_0, "AdjacentShardToMerge": SHARD_2},
        "InvalidArgumentException",
    ),
    (
        "more than double",
        "update_shard_count",
        {"TargetShardCount": 7, "ScalingType": "UNIFORM_SCALING"},
        "InvalidArgumentException",
    ),
    (
        "less than half",
        "update_shard_count",
        {"TargetShardCount": 1, "ScalingType": "UNIFORM_SCALING"},
        "InvalidArgumentException",
    ),
    ("record over 1 MiB", "put_record", {"PartitionKey": "k", "Data": bytes(2**20)}, "ValidationException"),
    (
        "record over 1 MiB among others",
        "put_records",
        {"Records": [{"PartitionKey": "k", "Data": bytes(size)} for size in (1, 2**20)]},
        "ValidationException",
    ),
    (
        "more than 10 MiB in a call",
        "put_records",
        {
            "Records": [{"PartitionKey": "k" * 256, "Data": bytes(2**20 - 256)}] * 10
            + [{"PartitionKey": "k", "Data": b""}]
        },
        "InvalidArgumentException",
    ),
    (
        "501 records",
        "put_records",
        {"Records": [{"PartitionKey": "k", "Data": b""}] * 501},
        "ValidationException",
    ),
    ("a key of 257", "put_record", {"PartitionKey": "k" * 257, "Data": b""}, "ValidationException"),
    (
        "a hash key above the last",
        "put_record",
        {"PartitionKey": "k", "Data": b"", "ExplicitHashKey": str(HASH_KEYS)},
        "InvalidArgumentException",
    ),
    (
        "a hash key that is no number",
        "put_record",
        {"PartitionKey": "k", "Data": b"", "ExplicitHashKey": "-1"},
        "ValidationException",
    ),
    ("more than 10,000 at a time", "get_records", {"ShardIterator": "x", "Limit": 10_001}, "ValidationException"),
    ("a bad iterator", "get_records", {"ShardIterator": "x" * 40}, "InvalidArgumentException"),
    ("an iterator that is no base64", "get_records", {"ShardIterator": "-"}, "InvalidArgumentException"),
    (
        "an iterator type that is none",
        "get_shard_iterator",
        {"ShardId": SHARD_0, "ShardIteratorType": "NEWEST"},
        "ValidationException",
    ),
    (
        "an iterator without its number",
        "get_shard_iterator",
        {"ShardId": SHARD_0, "ShardIteratorType": "AT_SEQUENCE_NUMBER"},
        "InvalidArgumentException",
    ),
    ("a channel", "create_channel", {}, "InvalidActionException"),
]


@pytest.mark.parametrize(
    ("operation", "arguments", "kind"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refusals(aws: LocalAws, kinesis: Any, operation: str, arguments: dict[str, Any], kind: str) -> None:
    stream = "refusals"
    if stream not in kinesis.list_streams(Limit=1000)["StreamNames"]:
        kinesis.create_stream(StreamName=stream, ShardCount=3)
    service = client(aws)
    given = {"StreamName": stream, **arguments}
    given = {name: value for name, value in given.items() if value is not None}
    if operation in ("get_records", "create_channel"):
        del given["StreamName"]
    with pytest.raises(ClientError) as error:
        unchecked(service)._make_api_call(service.meta.method_to_api_mapping[operation], given)
    assert refusal(error) == kind
    assert all(read(kinesis, stream, shard) == [] for shard in (SHARD_0, SHARD_1, SHARD_2)), "nothing is half done"


def unchecked(service: Any) -> Any:
    """The client without its own validation, so that the server has to say it."""
    service._serializer = service._serializer._serializer
    return service


# Records.


def test_sequence_numbers_have_the_services_layout_and_rise(kinesis: Any) -> None:
    stream = make(kinesis, 2)
    numbers: dict[str, list[int]] = {}
    for number in range(40):
        answer = put(kinesis, stream, key=f"k{number}")
        numbers.setdefault(answer["ShardId"], []).append(int(answer["SequenceNumber"]))
    assert len(numbers) == 2
    for shard, given in numbers.items():
        assert given == sorted(set(given))
        assert {len(str(number)) for number in given} == {56}
        (described,) = [each for each in shards(kinesis, stream) if each["ShardId"] == shard]
        assert int(described["SequenceNumberRange"]["StartingSequenceNumber"]) < given[0]
        assert [int(record["SequenceNumber"]) for record in read(kinesis, stream, shard)] == given


@pytest.mark.parametrize(
    ("key", "shard"),
    [(0, SHARD_0), (2**126 - 1, SHARD_0), (2**126, SHARD_1), (2**127, SHARD_2), (HASH_KEYS - 1, SHARD_3)],
)
def test_an_explicit_hash_key_chooses_the_shard(kinesis: Any, key: int, shard: str) -> None:
    stream = make(kinesis, 4)
    assert put(kinesis, stream, ExplicitHashKey=str(key))["ShardId"] == shard


def test_what_is_put_is_read(kinesis: Any) -> None:
    stream = make(kinesis)
    given = [(bytes(range(256)), "plain"), (b"", "empty"), (b"\xf3\x89\x9a\xc2", 'ä "\\/\u2028😀\t')]
    answer = kinesis.put_records(
        StreamName=stream, Records=[{"Data": data, "PartitionKey": key} for data, key in given]
    )
    assert answer["FailedRecordCount"] == 0
    records = read(kinesis, stream)
    assert [(record["Data"], record["PartitionKey"]) for record in records] == given
    assert [record["SequenceNumber"] for record in records] == [each["SequenceNumber"] for each in answer["Records"]]
    for record in records:
        assert abs(record["ApproximateArrivalTimestamp"].timestamp() - time.time()) < 60


def test_where_iterators_begin(kinesis: Any) -> None:
    stream = make(kinesis)
    first = put(kinesis, stream, key="first")["SequenceNumber"]
    time.sleep(0.01)
    between = datetime.datetime.now(datetime.UTC)
    time.sleep(0.01)
    put(kinesis, stream, key="second")

    def keys(**position: Any) -> list[str]:
        return [record["PartitionKey"] for record in read(kinesis, stream, **position)]

    both = ["first", "second"]
    assert keys(ShardIteratorType="TRIM_HORIZON") == both
    assert keys(ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber=first) == both
    assert keys(ShardIteratorType="AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=first) == ["second"]
    assert keys(ShardIteratorType="AFTER_SEQUENCE_NUMBER", StartingSequenceNumber="0") == both
    assert keys(ShardIteratorType="AT_TIMESTAMP", Timestamp=between) == ["second"]
    assert keys(ShardIteratorType="AT_TIMESTAMP", Timestamp=between + datetime.timedelta(hours=1)) == []
    latest = iterator(kinesis, stream, ShardIteratorType="LATEST")
    put(kinesis, stream, key="third")
    answer = kinesis.get_records(ShardIterator=latest)
    assert [record["PartitionKey"] for record in answer["Records"]] == ["third"]


def test_a_sequence_number_of_another_shard_is_refused(kinesis: Any) -> None:
    stream = make(kinesis, 2)
    other = put(kinesis, stream, ExplicitHashKey=str(HASH_KEYS - 1))["SequenceNumber"]
    with pytest.raises(kinesis.exceptions.InvalidArgumentException, match="encodes shardId-000000000001"):
        iterator(kinesis, stream, ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber=other)


def test_an_iterator_made_from_an_arn_stands_alone(kinesis: Any) -> None:
    stream = make(kinesis)
    put(kinesis, stream)
    arn = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"]
    made = kinesis.get_shard_iterator(StreamARN=arn, ShardId=SHARD_0, ShardIteratorType="TRIM_HORIZON")
    assert len(kinesis.get_records(ShardIterator=made["ShardIterator"])["Records"]) == 1


def test_reading_on_by_limits(kinesis: Any) -> None:
    stream = make(kinesis)
    kinesis.put_records(StreamName=stream, Records=[{"Data": b"%d" % n, "PartitionKey": "k"} for n in range(5)])
    position, seen, behind = iterator(kinesis, stream), [], []
    for _ in range(4):
        answer = kinesis.get_records(ShardIterator=position, Limit=2)
        position = answer["NextShardIterator"]
        seen.append([record["Data"] for record in answer["Records"]])
        behind.append(answer["MillisBehindLatest"])
    assert seen == [[b"0", b"1"], [b"2", b"3"], [b"4"], []]
    assert behind[2:] == [0, 0]


def test_an_answer_has_ten_mebibytes_at_most(kinesis: Any) -> None:
    stream = make(kinesis)
    for number in range(12):
        put(kinesis, stream, bytes([number]) * (2**20 - 1))
    position, sizes = iterator(kinesis, stream), []
    while sum(sizes) < 12:
        answer = kinesis.get_records(ShardIterator=position)
        position = answer["NextShardIterator"]
        sizes.append(len(answer["Records"]))
    assert sizes == [10, 2]


def test_larger_records_where_the_stream_is_set_up_for_them(kinesis: Any) -> None:
    stream = make(kinesis, MaxRecordSizeInKiB=10_240)
    put(kinesis, stream, bytes(5 * 2**20))
    assert [len(record["Data"]) for record in read(kinesis, stream)] == [5 * 2**20]


def test_encryption_is_told_of(kinesis: Any) -> None:
    stream = make(kinesis)
    kinesis.start_stream_encryption(StreamName=stream, EncryptionType="KMS", KeyId="alias/aws/kinesis")
    assert put(kinesis, stream)["EncryptionType"] == "KMS"
    assert read(kinesis, stream)[0]["EncryptionType"] == "KMS"


# Enhanced fan-out.


@pytest.fixture
def subscribe(kinesis: Any) -> Iterator[Subscribe]:
    """Subscribes a consumer to the first shard; gives its events."""
    streams = []

    def subscribe(consumer: str, **position: Any) -> Iterator[dict[str, Any]]:
        position = position or {"Type": "TRIM_HORIZON"}
        answer = kinesis.subscribe_to_shard(ConsumerARN=consumer, ShardId=SHARD_0, StartingPosition=position)
        streams.append(answer["EventStream"])
        return (event["SubscribeToShardEvent"] for event in answer["EventStream"])

    yield subscribe
    for stream in streams:
        stream.close()


def test_a_subscription_from_the_first_record_to_the_shards_end(kinesis: Any, subscribe: Subscribe) -> None:
    stream = make(kinesis)
    consumer = register(kinesis, stream)
    sent = [put(kinesis, stream, b"%d" % number)["SequenceNumber"] for number in range(3)]
    events = subscribe(consumer)
    first = next(events)
    assert [record["SequenceNumber"] for record in first["Records"]] == sent
    assert [record["Data"] for record in first["Records"]] == [b"0", b"1", b"2"]
    assert first["ContinuationSequenceNumber"] == sent[-1]
    put(kinesis, stream, b"later")
    assert [record["Data"] for record in with_records(events)["Records"]] == [b"later"]
    kinesis.split_shard(StreamName=stream, ShardToSplit=SHARD_0, NewStartingHashKey="10")
    *_, last = events
    assert last["Records"] == []
    assert "ContinuationSequenceNumber" not in last
    assert [child["ShardId"] for child in last["ChildShards"]] == [SHARD_1, SHARD_2]


def with_records(events: Iterator[dict[str, Any]]) -> dict[str, Any]:
    return next(event for event in events if event["Records"])


def test_where_subscriptions_begin(kinesis: Any, subscribe: Subscribe) -> None:
    stream = make(kinesis)
    consumer = register(kinesis, stream)
    first = put(kinesis, stream, b"first")["SequenceNumber"]
    put(kinesis, stream, b"second")
    for position, expected in (
        ({"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": first}, [b"first", b"second"]),
        ({"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": first}, [b"second"]),
        ({"Type": "AT_TIMESTAMP", "Timestamp": 0}, [b"first", b"second"]),
    ):
        event = next(subscribe(consumer, **position))
        assert [record["Data"] for record in event["Records"]] == expected
    events = subscribe(consumer, Type="LATEST")
    idle = next(events)
    assert idle["Records"] == []
    put(kinesis, stream, b"third")
    assert [record["Data"] for record in with_records(events)["Records"]] == [b"third"]
    events = subscribe(consumer, Type="AFTER_SEQUENCE_NUMBER", SequenceNumber=idle["ContinuationSequenceNumber"])
    assert [record["Data"] for record in next(events)["Records"]] == [b"third"]


def test_the_newest_subscription_of_a_consumer_goes_on(kinesis: Any, subscribe: Subscribe) -> None:
    stream = make(kinesis)
    consumer, other = register(kinesis, stream), register(kinesis, stream, "other")
    events = {name: subscribe(arn) for name, arn in (("old", consumer), ("other", other))}
    for each in events.values():
        next(each)
    events["new"] = subscribe(consumer)
    next(events["new"])
    with pytest.raises(EventStreamError, match="ResourceInUseException"):
        list(events["old"])
    put(kinesis, stream, b"x")
    for name in ("new", "other"):
        assert [record["Data"] for record in with_records(events[name])["Records"]] == [b"x"]


# Resharding.


def test_a_split(kinesis: Any) -> None:
    stream = make(kinesis)
    old = put(kinesis, stream, ExplicitHashKey="5")["SequenceNumber"]
    kinesis.split_shard(StreamName=stream, ShardToSplit=SHARD_0, NewStartingHashKey=str(2**127))
    parent, low, high = shards(kinesis, stream)
    assert [is_open(shard) for shard in (parent, low, high)] == [False, True, True]
    assert int(parent["SequenceNumberRange"]["EndingSequenceNumber"]) > int(old)
    assert {shard["ParentShardId"] for shard in (low, high)} == {SHARD_0}
    assert high["HashKeyRange"] == {"StartingHashKey": str(2**127), "EndingHashKey": str(HASH_KEYS - 1)}

    for key, shard in ((0, SHARD_1), (2**127 - 1, SHARD_1), (2**127, SHARD_2)):
        answer = put(kinesis, stream, ExplicitHashKey=str(key))
        assert answer["ShardId"] == shard
        assert int(answer["SequenceNumber"]) > int(old)

    # The parent keeps its record, and ends.
    answer = kinesis.get_records(ShardIterator=iterator(kinesis, stream), Limit=1)
    assert [record["SequenceNumber"] for record in answer["Records"]] == [old]
    assert "NextShardIterator" not in answer
    assert [(child["ShardId"], child["ParentShards"]) for child in answer["ChildShards"]] == [
        (SHARD_1, [SHARD_0]),
        (SHARD_2, [SHARD_0]),
    ]
    after = kinesis.get_records(ShardIterator=iterator(kinesis, stream, ShardIteratorType="LATEST"))
    assert after["Records"] == []
    assert "NextShardIterator" not in after


def test_a_merge(kinesis: Any) -> None:
    stream = make(kinesis, 2)
    for key in (0, HASH_KEYS - 1):
        put(kinesis, stream, ExplicitHashKey=str(key))
    kinesis.merge_shards(StreamName=stream, ShardToMerge=SHARD_1, AdjacentShardToMerge=SHARD_0)
    *_, child = shards(kinesis, stream)
    assert (child["ParentShardId"], child["AdjacentParentShardId"]) == (SHARD_1, SHARD_0)
    assert child["HashKeyRange"] == {"StartingHashKey": "0", "EndingHashKey": str(HASH_KEYS - 1)}
    for parent in (SHARD_0, SHARD_1):
        answer = kinesis.get_records(ShardIterator=iterator(kinesis, stream, parent))
        assert len(answer["Records"]) == 1
        assert [child["ShardId"] for child in answer["ChildShards"]] == [SHARD_2]
    assert read(kinesis, stream, SHARD_2) == []


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (3, 5), (5, 3), (4, 4)])
def test_update_shard_count_ends_in_equal_ranges(kinesis: Any, before: int, after: int) -> None:
    stream = make(kinesis, before)
    kinesis.update_shard_count(StreamName=stream, TargetShardCount=after, ScalingType="UNIFORM_SCALING")
    every = shards(kinesis, stream)
    starts = sorted(int(shard["HashKeyRange"]["StartingHashKey"]) for shard in every if is_open(shard))
    assert starts == [HASH_KEYS * number // after for number in range(after)]
    ids = {shard["ShardId"] for shard in every}
    for shard in every[before:]:
        assert {shard["ParentShardId"], shard.get("AdjacentParentShardId", shard["ParentShardId"])} <= ids
    children = [shard for shard in every if shard["ShardId"] > f"shardId-{before - 1:012d}"]
    created = {shard["ShardId"]: int(shard["SequenceNumberRange"]["StartingSequenceNumber"]) for shard in every}
    assert all(created[child["ShardId"]] > created[child["ParentShardId"]] for child in children)


def test_shard_lists(kinesis: Any) -> None:
    stream = make(kinesis, 4)
    kinesis.split_shard(StreamName=stream, ShardToSplit=SHARD_0, NewStartingHashKey="10")
    page = kinesis.list_shards(StreamName=stream, MaxResults=4)
    assert len(page["Shards"]) == 4
    alone = kinesis.list_shards(NextToken=page["NextToken"])
    assert [shard["ShardId"][-1] for shard in alone["Shards"]] == ["4", "5"]
    assert "NextToken" not in alone

    def ids(**chosen: Any) -> str:
        return "".join(shard["ShardId"][-1] for shard in shards(kinesis, stream, ShardFilter=chosen))

    assert ids(Type="AT_LATEST") == "12345"
    assert ids(Type="AT_TRIM_HORIZON") == "0123"
    assert ids(Type="FROM_TRIM_HORIZON") == "012345"
    assert ids(Type="AFTER_SHARD_ID", ShardId=SHARD_3) == "45"
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    assert ids(Type="AT_TIMESTAMP", Timestamp=past) == "0123"
    assert ids(Type="FROM_TIMESTAMP", Timestamp=past) == "012345"
    future = past + datetime.timedelta(hours=2)
    assert ids(Type="AT_TIMESTAMP", Timestamp=future) == ids(Type="FROM_TIMESTAMP", Timestamp=future) == "12345"


# The other services.


def test_old_conditions_on_a_lease_table(aws: LocalAws) -> None:
    """As KCL 1.15 writes them; moto by itself takes the first for an equality."""
    dynamodb, table = client(aws, "dynamodb"), new_name()
    dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
    )
    dynamodb.put_item(TableName=table, Item={"leaseKey": {"S": "s"}, "owner": {"S": "me"}})
    change: dict[str, Any] = {
        "TableName": table,
        "Key": {"leaseKey": {"S": "s"}},
        "AttributeUpdates": {"checkpoint": {"Value": {"S": "1"}, "Action": "PUT"}},
    }
    dynamodb.update_item(Expected={"owner": {"Value": {"S": "you"}, "ComparisonOperator": "NE"}}, **change)
    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
        dynamodb.update_item(Expected={"owner": {"Value": {"S": "me"}, "ComparisonOperator": "NE"}}, **change)
    item = dynamodb.get_item(TableName=table, Key={"leaseKey": {"S": "s"}})["Item"]
    assert item["checkpoint"] == {"S": "1"}


def test_cloudwatch_takes_metrics(own_aws: LocalAws) -> None:
    cloudwatch, namespace = client(own_aws, "cloudwatch"), new_name()
    before = own_aws.calls().get("PutMetricData", 0)
    cloudwatch.put_metric_data(Namespace=namespace, MetricData=[{"MetricName": "RecordsProcessed", "Value": 3.0}])
    assert [metric["MetricName"] for metric in cloudwatch.list_metrics(Namespace=namespace)["Metrics"]] == [
        "RecordsProcessed"
    ]
    assert own_aws.calls()["PutMetricData"] == before + 1
