"""`fastkcl kinesis tail` at calls that fail, and are made again: there is a line at the first."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest
from http_servers import request_of, server

STREAM = {"StreamName": "s", "StreamARN": "a", "StreamStatus": "ACTIVE", "RetentionPeriodHours": 24}
SHARD = {
    "ShardId": "shardId-0",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
}
ANSWERS = {
    b"DescribeStreamSummary": {
        "StreamDescriptionSummary": {
            **STREAM,
            "StreamCreationTimestamp": 1,
            "EnhancedMonitoring": [],
            "OpenShardCount": 1,
        }
    },
    b"DescribeStream": {
        "StreamDescription": {
            **STREAM,
            "StreamCreationTimestamp": 1,
            "EnhancedMonitoring": [],
            "HasMoreShards": False,
            "Shards": [SHARD],
        }
    },
    b"ListShards": {"Shards": [SHARD]},
    b"GetShardIterator": {"ShardIterator": "i"},
}
RECORD = {"SequenceNumber": "1", "Data": "Y Q==", "PartitionKey": "k", "ApproximateArrivalTimestamp": 1}
REFUSED = json.dumps({"Records": [RECORD], "NextShardIterator": "i", "MillisBehindLatest": 0}).encode()
THROTTLED = b'{"__type": "ProvisionedThroughputExceededException", "message": "too often"}'


@pytest.mark.parametrize(
    ("call", "status", "body", "line"),
    [
        (b"GetRecords", 200, REFUSED, b"shardId-0: a call has failed, and is made again in 0.25 s: "),
        (b"GetRecords", 429, b"<html/>", b"shardId-0: a call has failed, and is made again in 1 s: "),
        (b"GetRecords", 400, THROTTLED, b"shardId-0: a call has failed, and is made again in 1 s: "),
        (b"DescribeStream", 429, b"<html/>", b" of s is throttled, and is made again: "),
    ],
    ids=["an answer that cannot be decoded", "429", "throttled", "429 of the stream"],
)
def test_a_call_that_is_made_again(call: bytes, status: int, body: bytes, line: bytes) -> None:
    def talk(link: socket.socket, _: int) -> None:
        while request := request_of(link):
            name = next(each for each in (*ANSWERS, b"GetRecords") if b"." + each + b"\r\n" in request)
            given = (status, body) if name.startswith(call) else (200, json.dumps(ANSWERS.get(name)).encode())
            head = f"HTTP/1.1 {given[0]} X\r\nContent-Type: application/x-amz-json-1.1\r\nContent-Length: "
            link.sendall(f"{head}{len(given[1])}\r\n\r\n".encode() + given[1])

    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-m", "fastkcl", "kinesis", "tail", "s", "-i", "TRIM_HORIZON"]
    with server(talk) as address:
        env = {**kept, "AWS_ENDPOINT_URL": f"http://{address}", "AWS_DEFAULT_REGION": "us-east-1"}
        env |= {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "s"}
        with subprocess.Popen(command, env=env, stderr=subprocess.PIPE) as child:
            assert child.stderr is not None
            try:
                first = child.stderr.readline()  # the command ends by itself, with another line
            finally:
                child.kill()
    assert line in first
