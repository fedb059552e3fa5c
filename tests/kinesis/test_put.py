"""Filling a stream: calls, rates, refusals and aggregates, against a stand-in for the client that keeps everything."""

import base64
import itertools
import json
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from aws_kinesis_agg.deaggregator import iter_deaggregate_records
from clocks import Clock
from fastkcl.kinesis import Aggregator, Entry, Filler, PutError, PutOptions, PutReport, ShardMap, UserRecord
from fastkcl.kinesis.write.aggregate import AGGREGATE_BYTES
from fastkcl.kinesis.write.put import MAX_CALL_BYTES, MAX_CALL_RECORDS
from fastkcl.local_aws.kinesis import Kinesis
from fastkcl.local_aws.streams import KinesisOptions
from fastkcl.shard import ShardRange
from paths import CASES

Refuse = Callable[[int, int, dict[str, Any]], str | None]
"""Of a call, a place in it, and an entry: the error code, or None."""


class Client:
    """As much of boto3's client as a filler uses, over the service itself."""

    def __init__(self, shards: int = 1, refuse: Refuse = lambda call, index, entry: None) -> None:
        self.service = Kinesis(KinesisOptions())
        self.refuse = refuse
        self.calls: list[list[dict[str, Any]]] = []
        self.now = 1_750_000_000.0
        self.before_call: Callable[[int], None] = lambda call: None
        self.call("CreateStream", ShardCount=shards)

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        return self.service.call(operation, {"StreamName": "s", **request}, self.now)

    def get_paginator(self, operation: str) -> "Client":
        assert operation == "list_shards"
        return self

    def paginate(self, **request: Any) -> list[dict[str, Any]]:
        return [self.call("ListShards", **request)]

    def put_records(self, StreamName: str, Records: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - boto3's
        self.before_call(len(self.calls))
        codes = [self.refuse(len(self.calls), index, entry) for index, entry in enumerate(Records)]
        self.calls.append(Records)
        taken = [entry for entry, code in zip(Records, codes, strict=True) if code is None]
        outcomes = iter(self.call("PutRecords", StreamName=StreamName, Records=taken)["Records"] if taken else [])
        answers = [next(outcomes) if code is None else {"ErrorCode": code} for code in codes]
        return {"FailedRecordCount": len(Records) - len(taken), "Records": answers}

    def stored(self) -> dict[str, list[tuple[str, bytes]]]:
        """Key and data of all records, by shard."""
        result = {}
        for shard in self.call("ListShards")["Shards"]:
            position = self.call("GetShardIterator", ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")
            rows, iterator = [], position["ShardIterator"]
            while iterator is not None:
                answer = self.call("GetRecords", ShardIterator=iterator)
                rows += [(record.PartitionKey, record.Data) for record in answer["Records"]]
                iterator = answer.get("NextShardIterator") if answer["Records"] else None
            result[shard["ShardId"]] = rows
        return result


def fill(client: Client, records: Iterable[UserRecord], clock: Clock | None = None, **options: Any) -> PutReport:
    clock = clock or Clock()
    return Filler(client, "s", PutOptions(**options), sleep=clock.sleep, clock=clock).put(records)


def numbered(count: int, keys: int = 50, size: int = 10) -> list[UserRecord]:
    return [UserRecord(f"k{number % keys}", b"%0*d" % (size, number)) for number in range(count)]


def flat(stored: dict[str, list[tuple[str, bytes]]]) -> list[tuple[str, bytes]]:
    return sorted(itertools.chain.from_iterable(stored.values()))


# Calls.


def test_calls_are_full_and_everything_arrives() -> None:
    client = Client(3)
    records = numbered(1234)
    report = fill(client, records)
    assert [len(call) for call in client.calls] == [500, 500, 234]
    assert flat(client.stored()) == sorted(records)
    assert (report.users, report.records, report.calls) == (1234, 1234, 3)
    assert report.bytes == sum(len(data) + len(key) for key, data in records)
    assert {shard: len(rows) for shard, rows in client.stored().items()} == dict(report.shards)


def test_calls_stay_below_the_services_bytes() -> None:
    client = Client()
    fill(client, [UserRecord("ä", bytes(1_000_000))] * 11)
    assert [len(call) for call in client.calls] == [5, 5, 1]
    for call in client.calls:
        assert sum(len(entry["Data"]) + len(entry["PartitionKey"].encode()) for entry in call) <= MAX_CALL_BYTES
        assert len(call) <= MAX_CALL_RECORDS


def test_a_record_that_the_stream_does_not_take() -> None:
    client = Client()
    with pytest.raises(PutError, match="record 1 has 1,048,577 bytes with its key, and the stream takes 1,048,576"):
        fill(client, [UserRecord("k", b""), UserRecord("k", bytes(2**20))])
    assert client.calls == []


def test_nothing_to_put() -> None:
    client = Client()
    assert fill(client, [], aggregate=True).calls == 0


# Rates.


@pytest.mark.parametrize(
    ("options", "seconds"),
    [({"rate": 1000.0}, 3.0), ({"bytes_rate": 10_000.0}, 3.3), ({"rate": 1000.0, "bytes_rate": 10_000.0}, 3.3)],
)
def test_a_rate_is_kept_evenly(options: dict[str, float], seconds: float) -> None:
    clock = Clock()
    records = [UserRecord("k", b"0123456789")] * 3000
    report = fill(Client(), records, clock, **options)
    # The last call is put when it is due, not when the next would be.
    assert seconds - 0.25 <= report.seconds <= seconds
    assert max(clock.slept) <= 0.21
    assert report.users == 3000


def test_a_low_rate_is_one_record_at_a_time() -> None:
    client, clock = Client(), Clock()
    fill(client, numbered(4), clock, rate=2.0)
    assert [len(call) for call in client.calls] == [1, 1, 1, 1]
    assert clock.slept == [0.5, 0.5, 0.5]


# Refusals.


def test_refused_records_come_again_in_order_and_first() -> None:
    def refuse(call: int, index: int, entry: dict[str, Any]) -> str | None:
        return "ProvisionedThroughputExceededException" if call < 2 and index % 2 else None

    client, clock = Client(refuse=refuse), Clock()
    records = numbered(600)
    report = fill(client, records, clock)
    assert [len(call) for call in client.calls] == [500, 250, 125, 100]
    assert client.calls[1] == client.calls[0][1::2]
    assert client.calls[2] == client.calls[1][1::2]
    assert flat(client.stored()) == sorted(records)
    assert report.refused == {"ProvisionedThroughputExceededException": 375}
    assert all(nap > 0 for nap in clock.slept)


def test_order_within_a_key_through_refusals() -> None:
    chance = random.Random(1)

    def refuse(call: int, index: int, entry: dict[str, Any]) -> str | None:
        return "InternalFailure" if chance.random() < 0.4 else None

    client = Client(2, refuse)
    records = numbered(1000, keys=37)
    fill(client, records, ordered=True)
    for rows in client.stored().values():
        by_key: dict[str, list[bytes]] = {}
        for key, data in rows:
            by_key.setdefault(key, []).append(data)
        assert all(data == sorted(data) for data in by_key.values())
    assert flat(client.stored()) == sorted(records)


def test_a_stream_that_takes_nothing_is_given_up() -> None:
    client, clock = Client(refuse=lambda call, index, entry: "InternalFailure" if call else None), Clock()
    with pytest.raises(PutError, match="s took none of 100 records in 4 calls: InternalFailure 400x") as error:
        fill(client, numbered(600), clock, attempts=4)
    assert (error.value.report.users, len(client.calls)) == (500, 5)
    assert len(clock.slept) == 3
    assert 0.2 < clock.slept[-1] <= 0.8, "pauses grow"


# Aggregates.


def users_of(client: Client) -> list[UserRecord]:
    """User records as readers get them: an aggregate with a key of another shard is dropped, all of it."""
    result = []
    shards = ShardMap.of(client, "s")
    for shard_id, rows in client.stored().items():
        for row in rows:
            users = deaggregated(*row)
            if len(users) == 1 or all(shards.owns(shard_id, user.partition_key) for user in users):
                result += users
    return result


def deaggregated(key: str, data: bytes) -> list[UserRecord]:
    record = {"SequenceNumber": "1", "ApproximateArrivalTimestamp": 0, "PartitionKey": key, "Data": data}
    users = []
    for each in iter_deaggregate_records([record], data_format="Boto3"):
        value = each["kinesis"]
        users.append(UserRecord(value["partitionKey"], base64.b64decode(value["data"]) if len(value) > 5 else data))
    return users


def test_a_list_without_an_open_shard() -> None:
    closed = ShardMap([ShardRange("shardId-000000000000", 0, 2**128 - 1, is_open=False)])
    for shards in (closed, ShardMap([])):
        with pytest.raises(ConnectionError, match="no open one"):
            shards.owner("key")


ONE_SHARD = ShardMap([ShardRange("shardId-000000000000", 0, 2**128 - 1, is_open=True)])


@pytest.mark.parametrize("name", ["one", "two_keys"])
def test_the_bytes_of_an_aggregate(name: str) -> None:
    lines = (CASES / "kpl.jsonl").read_text().splitlines()
    (case,) = [case for case in map(json.loads, lines) if case["name"] == name]
    aggregator = Aggregator(ONE_SHARD)
    users = [UserRecord(each["partition_key"], bytes.fromhex(each["data_hex"])) for each in case["records"]]
    assert [entry for user in users for entry in aggregator.add(user)] == []
    assert aggregator.drain() == [Entry("a", base64.b64decode(case["data_b64"]), tuple(users))]


def test_aggregates_by_shard() -> None:
    client = Client(4)
    records = numbered(20_000, keys=997, size=100)
    report = fill(client, records, aggregate=True)
    assert sorted(users_of(client)) == sorted(records)
    assert (report.users, report.moved) == (20_000, 0)
    assert report.records < 100
    for rows in client.stored().values():
        assert all(len(data) <= AGGREGATE_BYTES for _, data in rows)
        by_key: dict[str, list[bytes]] = {}
        for user in (user for row in rows for user in deaggregated(*row)):
            by_key.setdefault(user.partition_key, []).append(user.data)
        assert all(data == sorted(data) for data in by_key.values())


def test_a_record_too_large_for_an_aggregate_goes_alone_and_in_its_turn() -> None:
    client = Client()
    records = [UserRecord("k", b"1"), UserRecord("k", b"2" * AGGREGATE_BYTES), UserRecord("k", b"3")]
    fill(client, records, aggregate=True)
    assert users_of(client) == records
    assert [len(deaggregated(*row)) for row in client.stored()["shardId-000000000000"]] == [1, 1, 1]


@pytest.mark.parametrize("change", ["split", "merge"])
def test_a_reshard_on_the_way(change: str) -> None:
    """An aggregate that was made for the shards of before is dropped by readers, so it has to come again."""
    client = Client(2)

    def reshard(call: int) -> None:
        if call == 1 and change == "split":
            client.call("SplitShard", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**126))
        if call == 1 and change == "merge":
            client.call("MergeShards", ShardToMerge="shardId-000000000000", AdjacentShardToMerge="shardId-000000000001")

    client.before_call = reshard
    records = numbered(30_000, keys=997, size=1000)
    report = fill(client, records, aggregate=True)
    assert sorted(users_of(client)) == sorted(records)
    assert report.users == 30_000
    assert (report.moved > 0) == (change == "split")


def test_refused_aggregates_count_as_records() -> None:
    client = Client(2, lambda call, index, entry: "InternalFailure" if call == 0 and index == 0 else None)
    records = numbered(2000, size=100)
    report = fill(client, records, aggregate=True)
    assert sorted(users_of(client)) == sorted(records)
    assert (report.refused, report.users) == ({"InternalFailure": 1}, 2000)
