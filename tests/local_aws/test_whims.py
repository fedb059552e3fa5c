"""The oddities of the service: by itself, and by the options of the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from random import Random

import pytest
from fastkcl.kinesis.access import Access
from fastkcl.kinesis.service import Service
from fastkcl.local_aws import LocalAws
from fastkcl.local_aws.errors import ServiceError
from fastkcl.local_aws.kinesis import Kinesis
from fastkcl.local_aws.streams import KinesisOptions
from fastkcl.local_aws.whims import WhimOptions, Whims
from local_aws_helpers import JSON, SHARD_0, client, headers, make_stream, post

START = 1_750_000_000.0


def answers(count: int, **options: float) -> Iterator[dict[str, object]]:
    """Answers to reads of one record each, of a stream with so many, until the last one came."""
    kinesis = Kinesis(KinesisOptions(), Whims(WhimOptions(**options), Random(7)))
    kinesis.call("CreateStream", {"StreamName": "s", "ShardCount": 1}, START)
    for number in range(count):
        put = {"StreamName": "s", "PartitionKey": "k", "Data": str(number).encode()}
        kinesis.call("PutRecord", put, START + number)
    request = {"StreamName": "s", "ShardId": SHARD_0, "ShardIteratorType": "TRIM_HORIZON"}
    iterator = kinesis.call("GetShardIterator", request, START + count)["ShardIterator"]
    seen = 0
    while seen < count:
        answer = kinesis.call("GetRecords", {"ShardIterator": iterator, "Limit": 1}, START + count)
        iterator = answer["NextShardIterator"]
        seen += len(answer["Records"])
        yield answer


def numbers(found: list[dict[str, object]]) -> list[int]:
    return [int(record.Data) for answer in found for record in answer["Records"]]  # type: ignore[attr-defined]


def test_empty_answers_lose_nothing() -> None:
    found = list(answers(50, empty_answers=0.5))
    assert numbers(found) == list(range(50))
    empty = [answer for answer in found if not answer["Records"]]
    assert 20 < len(empty) < 120
    assert all(answer["MillisBehindLatest"] for answer in empty)


def test_a_false_zero_never_comes_twice_in_a_row() -> None:
    found = list(answers(50, false_zeros=0.9))
    assert numbers(found) == list(range(50))
    zeros = [answer["MillisBehindLatest"] == 0 for answer in found[:-1]]
    assert sum(zeros) > 10
    assert not any(one and next_one for one, next_one in zip(zeros, zeros[1:], strict=False))


def test_times_fall_and_are_the_same_each_time() -> None:
    def times() -> list[float]:
        found = answers(50, falling_seconds=5.0)
        return [record.ApproximateArrivalTimestamp for answer in found for record in answer["Records"]]  # type: ignore[attr-defined]

    first = times()
    assert first == times()
    assert first != sorted(first)
    assert all(-5 <= time - START - number <= 0 for number, time in enumerate(first))


@pytest.mark.parametrize(("signed", "refused"), [(0, False), (299, False), (-299, False), (301, True), (-301, True)])
def test_a_signature_of_another_time_is_refused(signed: float, refused: bool) -> None:
    whims = Whims(WhimOptions(clock_seconds=7.0))
    sent = {"x-amz-date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(START + signed))}
    if refused:
        with pytest.raises(ServiceError, match="InvalidSignatureException: Signature (expired|not yet current)"):
            whims.check_time(sent, START)
    else:
        whims.check_time(sent, START)
    Whims().check_time(sent, START)
    with pytest.raises(ServiceError, match="IncompleteSignatureException"):
        whims.check_time({"x-amz-date": "today"}, START)


@pytest.mark.parametrize("ahead", [7200.0, -7200.0])
def test_a_server_with_another_clock(monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    with LocalAws(streams={"s": 1}, clock_seconds=ahead, empty_answers=0.5, falling_seconds=1) as aws:
        status, answered, body = post(aws.url, b"{}", headers("ListStreams", JSON))
        assert (status, b"StreamNames" in body) == (200, True), "unsigned calls have no time"
        off = parsedate_to_datetime(answered["Date"]).timestamp() - time.time()
        assert abs(off - ahead) < 60
        calls = Service(Access(endpoint_url=aws.url, region="us-east-1"))
        shards, date = calls.json("ListShards", {"StreamName": "s"})
        assert shards["Shards"]
        assert date is not None
        assert abs(date / 1000 - time.time() - ahead) < 60
        calls.close()


def test_a_server_without_whims_has_the_time(aws: LocalAws) -> None:
    name = make_stream(aws)
    answer = client(aws).list_shards(StreamName=name)["ResponseMetadata"]
    (sent,) = [value for header, value in answer["HTTPHeaders"].items() if header.lower() == "date"]
    assert abs(parsedate_to_datetime(sent).timestamp() - time.time()) < 60
