"""`install_botocore`: the answers that a boto3 or aiobotocore program gets with it, compared with those without."""

import asyncio
import base64
import copy
import io
import json
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import aiobotocore.session
import boto3
import botocore.awsrequest
import botocore.parsers
import botocore.session
import cbor2
import pytest
from answer_helpers import by_botocore
from botocore.config import Config
from botocore.exceptions import ClientError
from fastkcl import DecodeError, RecordBatch
from fastkcl.kinesis import install_botocore
from fastkcl.local_aws import LocalAws
from local_aws_helpers import make_stream

RECORDS = [
    {
        "SequenceNumber": str(number),
        "ApproximateArrivalTimestamp": 1748736000.5 + number,
        "Data": base64.b64encode(b"data %d" % number).decode(),
        "PartitionKey": "k\u00e9",
        "EncryptionType": "NONE",
    }
    for number in range(3)
]
ANSWER = {
    "New": {"unknown": [1]},
    "NextShardIterator": "next",
    "Records": RECORDS,
    "MillisBehindLatest": 5,
    "ChildShards": [
        {
            "ShardId": "shardId-000000000002",
            "ParentShards": ["shardId-000000000000"],
            "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"},
        }
    ],
}


class _Raw(io.BytesIO):
    def stream(self) -> Iterator[bytes]:
        yield self.read()


def answered(body: bytes, status: int = 200, service: str = "kinesis", session: Any = None) -> Any:
    """A client of boto3 that always gets this answer."""
    once = Config(retries={"max_attempts": 0})
    client = (session or boto3.session.Session()).client(
        service, region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b", config=once
    )

    def answer(request: Any, **_: Any) -> Any:
        headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-RequestId": "id", "X-Other": "1"}
        return botocore.awsrequest.AWSResponse(request.url, status, headers, _Raw(body))

    client.meta.events.register(f"before-send.{service}", answer)
    return client


def get(client: Any) -> Any:
    return client.get_records(ShardIterator="iterator")


BODY = json.dumps(ANSWER).encode()


def test_a_program_sees_what_it_saw_and_the_batch() -> None:
    client = answered(BODY)
    plain = get(client)
    with install_botocore():
        response = get(client)
    batch = response["RecordBatch"]
    assert isinstance(batch, RecordBatch)
    assert (len(batch), batch.millis_behind_latest) == (3, 5)
    assert list(response) == [*plain, "RecordBatch"]
    assert type(response["Records"]) is list
    assert all(type(record) is dict for record in response["Records"])
    assert [list(record.items()) for record in response["Records"]] == [
        [(name, record[name]) for name in response["Records"][0]] for record in plain["Records"]
    ]
    for name, value in plain.items():
        assert response[name] == value, name
    assert response["ResponseMetadata"]["RequestId"] == "id"
    # The moment, and the zone that it is told in.
    for ours, theirs in zip(response["Records"], plain["Records"], strict=True):
        moment, original = ours["ApproximateArrivalTimestamp"], theirs["ApproximateArrivalTimestamp"]
        assert (moment.utcoffset(), type(moment.tzinfo)) == (original.utcoffset(), type(original.tzinfo))
    assert "RecordBatch" not in get(client)


WAYS = {
    "get": lambda response: response.get("Records"),
    "items": lambda response: dict(response.items())["Records"],
    "values": lambda response: next(value for value in response.values() if isinstance(value, list) and value),
    "dict": lambda response: dict(response)["Records"],
    "unpacked": lambda response: {**response}["Records"],
    "update": lambda response: (into := {}, into.update(response), into["Records"])[-1],
    "keyword": lambda response: (lambda **members: members["Records"])(**response),
    "pop": lambda response: response.pop("Records"),
    "setdefault": lambda response: response.setdefault("Records", None),
    "copy": lambda response: response.copy()["Records"],
    "copy.copy": lambda response: copy.copy(response)["Records"],
    "copy.deepcopy": lambda response: copy.deepcopy(response)["Records"],
    "pickle": lambda response: pickle.loads(pickle.dumps(response))["Records"],
    "or": lambda response: (response | {"a": 1})["Records"],
    "ror": lambda response: ({"a": 1} | response)["Records"],
    "json": lambda response: json.loads(json.dumps(response, default=str))["Records"],
    "match": lambda response: _matched(response),
}


def _matched(response: Any) -> Any:
    match response:
        case {"Records": records}:
            return records


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_however_a_program_gets_at_the_records(way: Any) -> None:
    client = answered(BODY.replace(b'"ChildShards"', b'"Other"'))
    expected = get(client)["Records"]
    with install_botocore():
        found = way(get(client))
    assert json.dumps(found, default=str) == json.dumps(expected, default=str)
    assert isinstance(found, list)


def test_equality_and_text() -> None:
    client = answered(BODY)
    plain = get(client)
    with install_botocore():
        response, again = get(client), get(client)
    del response["RecordBatch"], again["RecordBatch"]
    assert response == again
    assert (response == plain, plain == response, response != plain) == (True, True, False)
    assert repr(response) == repr(dict(response))
    assert {**response, "Records": []} != response


def test_records_are_made_once_for_all_threads() -> None:
    client = answered(json.dumps({"Records": RECORDS * 1000}).encode())
    with install_botocore():
        response = get(client)
    barrier, found = threading.Barrier(8), []

    def look() -> None:
        barrier.wait()
        found.append(response["Records"])

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(records is found[0] for records in found)


@pytest.mark.parametrize(
    "body",
    [
        {"Records": []},
        {"Records": [], "NextShardIterator": None, "MillisBehindLatest": 0},
        {"Records": [{**RECORDS[0], "EncryptionType": None, "ApproximateArrivalTimestamp": None}]},
        {"Records": RECORDS, "Records2": RECORDS},
    ],
)
def test_other_answers(body: dict[str, Any]) -> None:
    client = answered(json.dumps(body).encode())
    plain = get(client)
    with install_botocore():
        response = get(client)
    assert response.pop("RecordBatch").num_rows == len(body["Records"])
    assert response == plain


def test_errors_of_the_service_stay_what_they_are() -> None:
    client = answered(b'{"__type":"ExpiredIteratorException","message":"too late"}', 400)
    with install_botocore(), pytest.raises(client.exceptions.ExpiredIteratorException, match="too late"):
        get(client)
    client = answered(b"<html>", 503)
    with install_botocore(), pytest.raises(ClientError, match="503"):
        get(client)


@pytest.mark.parametrize("body", [b"", b"<html>", BODY[:-20], BODY.replace(b"ZGF0", b"!!!!"), b"{}"])
def test_what_is_no_answer_is_an_error(body: bytes) -> None:
    """botocore's own parser gives an answer without records, or another one."""
    with install_botocore(), pytest.raises(DecodeError):
        get(answered(body))


def test_smithy_cbor() -> None:
    """The protocol that botocore speaks where a service's model has it."""
    records = [
        {"SequenceNumber": "1", "Data": b"1", "PartitionKey": "k", "ApproximateArrivalTimestamp": cbor2.CBORTag(1, 1.5)}
    ]
    body = cbor2.dumps({"Records": records, "MillisBehindLatest": 5, "NextShardIterator": "next"})
    plain = by_botocore(body, "smithy-rpc-v2-cbor")
    with install_botocore():
        response = by_botocore(body, "smithy-rpc-v2-cbor")
    assert response.pop("RecordBatch").num_rows == 1
    assert response == plain


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"])
def test_times_are_told_in_the_local_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Around the changes of 2025, in steps that meet no quarter of an hour."""
    moments = [change + step * 411.7 for change in (1743296400, 1761440400, 1743868800) for step in range(-40, 40)]
    records = [{**RECORDS[0], "ApproximateArrivalTimestamp": moment} for moment in [*moments, 0, 0.000001, -1.5]]
    client = answered(json.dumps({"Records": records}).encode())
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        plain = get(client)["Records"]
        with install_botocore():
            found = get(client)["Records"]
        shown = [
            [
                (str(moment), moment.fold, moment.utcoffset())
                for moment in (each["ApproximateArrivalTimestamp"] for each in made)
            ]
            for made in (found, plain)
        ]
    time.tzset()
    assert found == plain
    assert shown[0] == shown[1]


def test_other_operations_and_services_are_left_alone() -> None:
    streams = {"Records": [{"eventID": "1", "dynamodb": {"Keys": {"k": {"S": "v"}}, "SequenceNumber": "1"}}]}
    with install_botocore():
        listed = answered(b'{"StreamNames":["a"],"HasMoreStreams":false}').list_streams()
        changes = get(answered(json.dumps(streams).encode(), service="dynamodbstreams"))
    assert (type(listed), listed["StreamNames"]) == (dict, ["a"])
    assert (type(changes), changes["Records"]) == (dict, streams["Records"])


def test_parsers_with_a_blob_parser_of_their_own_are_left_alone() -> None:
    session = botocore.session.Session()
    session.get_component("response_parser_factory").set_parser_defaults(blob_parser=lambda text: f"<{text}>")
    client = answered(BODY, session=boto3.session.Session(botocore_session=session))
    with install_botocore():
        response = get(client)
    assert response["Records"][0]["Data"] == "<ZGF0YSAw>"
    assert "RecordBatch" not in response


def test_hooks_nest_and_leave_no_trace() -> None:
    original = vars(botocore.parsers.ResponseParser)["parse"]
    client = answered(BODY)
    first = install_botocore()
    with install_botocore() as second:
        assert "RecordBatch" in get(client)
        second.uninstall()
        assert "RecordBatch" in get(client)
    first.uninstall()
    first.uninstall()
    assert "RecordBatch" not in get(client)
    assert vars(botocore.parsers.ResponseParser)["parse"] is original


def test_who_patches_above_it_keeps_working(monkeypatch: pytest.MonkeyPatch) -> None:
    client, seen = answered(BODY), []
    hook = install_botocore()
    below = botocore.parsers.ResponseParser.parse

    def above(self: Any, response: Any, shape: Any) -> Any:
        seen.append(shape.name)
        return below(self, response, shape)

    with monkeypatch.context() as patch:
        patch.setattr(botocore.parsers.ResponseParser, "parse", above)
        hook.uninstall()
        assert "RecordBatch" not in get(client)
        assert seen == ["GetRecordsOutput"]
    # What was put back is our own parse, which has to be inert.
    assert "RecordBatch" not in get(client)
    monkeypatch.setattr(botocore.parsers.ResponseParser, "parse", below.__wrapped__)


def test_install_and_uninstall_from_many_threads() -> None:
    client, failures = answered(BODY), []

    def work() -> None:
        for _ in range(20):
            with install_botocore():
                if "RecordBatch" not in get(client):
                    failures.append("not installed")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert "RecordBatch" not in get(client)


def test_boto3_and_aiobotocore_against_local_aws(aws: LocalAws) -> None:
    """The same records by both, through real sockets, with clients made before the hook."""
    kinesis, stream = aws.client("kinesis"), make_stream(aws)
    entries = [{"Data": b"%d" % number, "PartitionKey": "k"} for number in range(100)]
    kinesis.put_records(StreamName=stream, Records=entries)
    shard = kinesis.list_shards(StreamName=stream)["Shards"][0]["ShardId"]
    position = {"StreamName": stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
    plain = kinesis.get_records(**_from(kinesis.get_shard_iterator(**position)))

    async def read() -> Any:
        session = aiobotocore.session.get_session()
        async with session.create_client(
            "kinesis",
            endpoint_url=aws.url,
            region_name="us-east-1",
            aws_access_key_id="a",
            aws_secret_access_key="b",
        ) as client:
            iterator = await client.get_shard_iterator(**position)
            with install_botocore():
                return await client.get_records(**_from(iterator)), await client.list_shards(StreamName=stream)

    with install_botocore():
        by_boto3 = kinesis.get_records(**_from(kinesis.get_shard_iterator(**position)))
    by_aiobotocore, listed = asyncio.run(read())
    assert listed["Shards"][0]["ShardId"] == shard
    assert len(plain["Records"]) == 100
    for response in (by_boto3, by_aiobotocore):
        assert [response["RecordBatch"][row].data for row in (0, 99)] == [b"0", b"99"]
        assert response["Records"] == plain["Records"]
        assert response["ResponseMetadata"]["HTTPStatusCode"] == 200


def _from(iterator: dict[str, Any]) -> dict[str, str]:
    return {"ShardIterator": iterator["ShardIterator"]}
