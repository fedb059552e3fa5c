"""Local Kinesis and time, at times that the test chooses: no server, no clock."""

import random
from typing import Any

import pytest
from fastkcl.local_aws.errors import ServiceError
from fastkcl.local_aws.kinesis import Kinesis
from fastkcl.local_aws.streams import KinesisOptions
from local_aws_helpers import SHARD_0

START = 1_750_000_000.0


class Service:
    """A service with one stream, and its clock."""

    def __init__(self, shards: int = 1, **options: Any) -> None:
        self.kinesis = Kinesis(KinesisOptions(**options))
        self.now = START
        self.call("CreateStream", StreamName="s", ShardCount=shards)

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        return self.kinesis.call(operation, request, self.now)

    def put(self, data: bytes = b"x", key: str = "k") -> dict[str, Any]:
        return self.call("PutRecord", StreamName="s", PartitionKey=key, Data=data)

    def iterator(self, shard: str = SHARD_0) -> str:
        answer = self.call("GetShardIterator", StreamName="s", ShardId=shard, ShardIteratorType="TRIM_HORIZON")
        return str(answer["ShardIterator"])

    def read(self, iterator: str | None = None, **options: Any) -> dict[str, Any]:
        return self.call("GetRecords", ShardIterator=iterator or self.iterator(), **options)

    def status(self) -> str:
        answer = self.call("DescribeStreamSummary", StreamName="s")["StreamDescriptionSummary"]
        return str(answer["StreamStatus"])

    def shards(self) -> list[str]:
        return [shard["ShardId"][-1] for shard in self.call("ListShards", StreamName="s")["Shards"]]

    def refusal(self, operation: str, **request: Any) -> str:
        with pytest.raises(ServiceError) as error:
            self.call(operation, **request)
        return error.value.kind


def test_an_iterator_expires() -> None:
    service = Service(iterator_seconds=10)
    iterator = service.iterator()
    service.now += 10
    following = service.read(iterator)["NextShardIterator"]
    service.now += 0.5
    assert service.refusal("GetRecords", ShardIterator=iterator) == "ExpiredIteratorException"
    assert service.read(following)["Records"] == []


def test_how_far_a_read_is_behind() -> None:
    service = Service()
    service.put()
    service.now += 60
    service.put()
    answer = service.read(Limit=1)
    assert answer["MillisBehindLatest"] == 60_000
    assert service.read(answer["NextShardIterator"])["MillisBehindLatest"] == 0


def test_arrival_times_do_not_fall_when_the_clock_does() -> None:
    service = Service()
    first = service.put()
    service.now -= 100
    second = service.put()
    assert int(first["SequenceNumber"]) < int(second["SequenceNumber"])
    times = [round(record.ApproximateArrivalTimestamp * 1000) for record in service.read()["Records"]]
    assert times == [START * 1000] * 2


@pytest.mark.parametrize("parent", [0, 15])
def test_children_of_the_same_second_are_above_their_parents(parent: int) -> None:
    """Shard 16 has a last digit below that of shard 15, and a digit stands before the counter."""
    service = Service(16)
    shard = service.kinesis._streams["s"].open_shards[parent]
    middle = (shard.low + shard.high) // 2
    service.call("SplitShard", StreamName="s", ShardToSplit=shard.shard_id, NewStartingHashKey=str(middle))
    ends = {
        each["ShardId"]: each["SequenceNumberRange"] for each in service.call("ListShards", StreamName="s")["Shards"]
    }
    for child in ("shardId-000000000016", "shardId-000000000017"):
        assert int(ends[child]["StartingSequenceNumber"]) > int(ends[shard.shard_id]["EndingSequenceNumber"])


def test_records_and_closed_shards_go_after_the_retention() -> None:
    service = Service(retention_seconds=100)
    service.put(b"old")
    before = service.iterator()
    service.now += 60
    service.put(b"new")
    service.call("SplitShard", StreamName="s", ShardToSplit=SHARD_0, NewStartingHashKey="1")
    service.now += 50
    assert [record.Data for record in service.read(before)["Records"]] == [b"new"]
    assert service.shards() == ["0", "1", "2"]
    service.now += 60
    assert service.shards() == ["1", "2"]
    assert service.refusal("GetRecords", ShardIterator=before) == "ResourceNotFoundException"


def test_the_retention_of_a_stream_is_its_hours() -> None:
    service = Service()
    service.put(b"old")
    service.now += 24 * 3600 - 1
    assert len(service.read()["Records"]) == 1
    service.now += 2
    assert service.read()["Records"] == []


def test_changes_of_a_stream_take_a_while() -> None:
    service = Service(transition_seconds=5)
    assert service.status() == "CREATING"
    assert service.refusal("PutRecord", StreamName="s", PartitionKey="k", Data=b"") == "ResourceNotFoundException"
    service.now += 5
    assert service.status() == "ACTIVE"
    service.put(b"before")

    split = {"StreamName": "s", "ShardToSplit": SHARD_0, "NewStartingHashKey": "1"}
    service.call("SplitShard", **split)
    assert service.status() == "UPDATING"
    assert service.refusal("SplitShard", **split) == "ResourceInUseException"
    service.put(b"meanwhile")
    assert service.shards() == ["0"]
    service.now += 5
    assert service.status() == "ACTIVE"
    assert service.shards() == ["0", "1", "2"]
    assert service.put(b"after")["ShardId"] != SHARD_0
    answer = service.read()
    assert [record.Data for record in answer["Records"]] == [b"before", b"meanwhile"]
    assert "NextShardIterator" not in answer

    service.call("DeleteStream", StreamName="s")
    assert service.status() == "DELETING"
    service.now += 5
    assert service.refusal("DescribeStreamSummary", StreamName="s") == "ResourceNotFoundException"


def test_a_shard_takes_so_many_records_a_second() -> None:
    service = Service(shard_limits=True)

    def put(count: int, size: int) -> list[str | None]:
        records = [{"PartitionKey": "k", "Data": bytes(size)}] * count
        answer = service.call("PutRecords", StreamName="s", Records=records)
        codes = [each.get("ErrorCode") for each in answer["Records"]]
        assert answer["FailedRecordCount"] == sum(code is not None for code in codes)
        return codes

    assert set(put(500, 10)) == set(put(500, 10)) == {None}
    assert set(put(500, 10)) == {"ProvisionedThroughputExceededException"}
    assert service.refusal("PutRecord", StreamName="s", PartitionKey="k", Data=b"") == (
        "ProvisionedThroughputExceededException"
    )
    service.now += 1
    assert put(11, 100_000) == [None] * 10 + ["ProvisionedThroughputExceededException"]
    service.now += 1
    assert put(2, 2**20 - 1) == [None, "ProvisionedThroughputExceededException"]
    service.now += 1
    assert len(service.read()["Records"]) == 1011


def test_a_shard_gives_so_much_a_second() -> None:
    service = Service(shard_limits=True)
    service.put(b"small")
    service.now += 1
    for _ in range(12):
        service.put(bytes(2**20 - 1))
        service.now += 1
    iterator = service.iterator()
    for _ in range(5):
        service.read(iterator, Limit=1)
    assert service.refusal("GetRecords", ShardIterator=iterator) == "ProvisionedThroughputExceededException"
    service.now += 1
    assert len(service.read(iterator)["Records"]) == 10
    service.now += 3
    assert service.refusal("GetRecords", ShardIterator=iterator) == "ProvisionedThroughputExceededException"
    service.now += 2
    service.read(iterator, Limit=1)


def test_without_limits_nothing_is_refused() -> None:
    service = Service()
    for _ in range(20):
        service.put(bytes(2**20 - 1))
        service.read()


@pytest.mark.parametrize("seed", range(5))
def test_the_same_requests_at_the_same_times_give_the_same_state(seed: int) -> None:
    """What `fastkcl.local_aws.journal` rests on: only changes are done again, and no read, refusal or look is."""
    chance = random.Random(seed)
    options: dict[str, Any] = {"transition_seconds": 3.0, "shard_limits": True, "retention_seconds": 60.0}
    first, second = Service(4, **options), Kinesis(KinesisOptions(**options))
    done: list[tuple[str, dict[str, Any], float]] = [("CreateStream", {"StreamName": "s", "ShardCount": 4}, START)]
    refused = 0
    for _ in range(300):
        first.now += chance.choice([0.0, 0.001, 0.3, 2.0])
        operation, request = random_request(chance, first)
        try:
            first.call(operation, StreamName="s", **request)
            if operation not in Kinesis.READS:
                done.append((operation, {"StreamName": "s", **request}, first.now))
        except ServiceError:
            refused += 1
    for operation, request, now in done:
        second.call(operation, request, now)
    first.status(), second.call("ListStreams", {}, first.now)  # what is due by now
    assert 10 < refused < 290
    assert second._streams["s"].shards == first.kinesis._streams["s"].shards


def random_request(chance: random.Random, service: Service) -> tuple[str, dict[str, Any]]:
    stream = service.kinesis._streams["s"]
    shards = [shard.shard_id for shard in stream.open_shards] or [SHARD_0]
    place = chance.randrange(len(shards))
    match chance.randrange(8):
        case 0:
            return "SplitShard", {"ShardToSplit": shards[place], "NewStartingHashKey": str(chance.getrandbits(128))}
        case 1:
            return "MergeShards", {"ShardToMerge": shards[place], "AdjacentShardToMerge": shards[place - 1]}
        case 2:
            return "UpdateShardCount", {"TargetShardCount": chance.randint(1, 9), "ScalingType": "UNIFORM_SCALING"}
        case 3:
            return "GetShardIterator", {"ShardId": shards[place], "ShardIteratorType": "LATEST"}
        case 4:
            return "PutRecord", {"PartitionKey": str(chance.random()), "Data": bytes(chance.choice([10, 2**20 - 50]))}
        case _:
            records = [{"PartitionKey": str(chance.random()), "Data": bytes(300_000)} for _ in range(10)]
            return "PutRecords", {"Records": records}
