"""Shared by tests of local AWS: clients without retries, and requests below boto3."""

import json
import socket
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from random import Random
from typing import Any

import cbor2
import h2.config
import h2.connection
import h2.events
import pytest
from botocore.config import Config
from fastkcl.local_aws import LocalAws

SHARD_0 = "shardId-000000000000"
HASH_KEYS = 2**128
ONCE = Config(retries={"max_attempts": 0}, read_timeout=120)

JSON = "application/x-amz-json-1.1"
CBOR = "application/x-amz-cbor-1.1"


def client(aws: LocalAws, service: str = "kinesis") -> Any:
    """A client that tries once."""
    return aws.client(service, config=ONCE)


def server_of(request: pytest.FixtureRequest) -> LocalAws:
    """The local AWS of a test: its own, if the test asks for `own_aws`; otherwise everybody's."""
    server = request.getfixturevalue("own_aws" if "own_aws" in request.fixturenames else "aws")
    assert isinstance(server, LocalAws)
    return server


def new_name(prefix: str = "s") -> str:
    """A name that nothing else has on any server."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def make_stream(aws: LocalAws, shards: int = 1) -> str:
    """A new stream's name."""
    name = new_name()
    client(aws).create_stream(StreamName=name, ShardCount=shards)
    return name


_registries: dict[str, list[str]] = {}
_MOST_REGISTRIES = 4


def make_registry(aws: LocalAws, name: str | None = None) -> str:
    """A new registry of Glue's. An account has ten, so those that earlier tests have made are removed."""
    made, glue = _registries.setdefault(aws.url, []), aws.client("glue")
    while len(made) >= _MOST_REGISTRIES:
        glue.delete_registry(RegistryId={"RegistryName": made.pop(0)})
    made.append(name or new_name("registry"))
    glue.create_registry(RegistryName=made[-1])
    return made[-1]


def iterator(kinesis: Any, stream: str, shard: str = SHARD_0, **position: Any) -> str:
    position = position or {"ShardIteratorType": "TRIM_HORIZON"}
    return str(kinesis.get_shard_iterator(StreamName=stream, ShardId=shard, **position)["ShardIterator"])


def read(kinesis: Any, stream: str, shard: str = SHARD_0, **position: Any) -> list[dict[str, Any]]:
    """Records of one GetRecords."""
    return list(kinesis.get_records(ShardIterator=iterator(kinesis, stream, shard, **position))["Records"])


def shards(kinesis: Any, stream: str, **filters: Any) -> list[dict[str, Any]]:
    """Of all pages, which have 1,000 each."""
    answer = kinesis.list_shards(StreamName=stream, **filters)
    found = list(answer["Shards"])
    while token := answer.get("NextToken"):
        answer = kinesis.list_shards(NextToken=token)
        found += answer["Shards"]
    return found


def is_open(shard: dict[str, Any]) -> bool:
    return "EndingSequenceNumber" not in shard["SequenceNumberRange"]


def open_shards(kinesis: Any, stream: str) -> list[dict[str, Any]]:
    """In the order of their hash keys."""
    return sorted(filter(is_open, shards(kinesis, stream)), key=lambda shard: hash_keys(shard)[0])


def hash_keys(shard: dict[str, Any]) -> tuple[int, int]:
    """The first and the last."""
    return int(shard["HashKeyRange"]["StartingHashKey"]), int(shard["HashKeyRange"]["EndingHashKey"])


def split_shard(kinesis: Any, stream: str, shard: dict[str, Any]) -> None:
    """In its middle."""
    low, high = hash_keys(shard)
    middle = str((low + high) // 2 + 1)
    kinesis.split_shard(StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=middle)


def merge_shards(kinesis: Any, stream: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two that are neighbours."""
    kinesis.merge_shards(StreamName=stream, ShardToMerge=one["ShardId"], AdjacentShardToMerge=other["ShardId"])


def reshard(kinesis: Any, stream: str, random: Random) -> None:
    """A split of any open shard, or a merge where there are more than three."""
    opened = open_shards(kinesis, stream)
    at = random.randrange(len(opened))
    if len(opened) > 3:
        merge_shards(kinesis, stream, opened[at - 1 if at else 0], opened[at if at else 1])
    else:
        split_shard(kinesis, stream, opened[at])


def post(url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and body of an answer, whatever the status."""
    request = urllib.request.Request(url, body, dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def headers(operation: str, content_type: str) -> dict[str, str]:
    return {"X-Amz-Target": f"Kinesis_20131202.{operation}", "Content-Type": content_type}


def call(url: str, operation: str, request: Any, content_type: str = CBOR) -> tuple[int, Any]:
    """Status and value of a Kinesis call without an SDK."""
    body = cbor2.dumps(request) if content_type == CBOR else json.dumps(request).encode()
    status, answered, text = post(url, body, headers(operation, content_type))
    assert answered["Content-Type"] == content_type
    if not text:
        return status, {}
    return status, from_cbor(text) if content_type == CBOR else json.loads(text)


def from_cbor(body: bytes) -> Any:
    """Its value; a timestamp as its tag, whose number is not what RFC 8949 says."""
    return cbor2.loads(body, semantic_decoders={1: _tag})


def _tag(value: object, immutable: bool) -> object:
    del immutable
    return cbor2.CBORTag(1, value)


def post_by_http2(
    url: str, body: bytes, headers: Mapping[str, str], *, authority: str | None = None
) -> tuple[int, bytes]:
    """Status and body over HTTP/2 with prior knowledge, as the modern daemon's client opens it."""
    host, port = url.removeprefix("http://").split(":")
    connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    connection.initiate_connection()
    fields = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", authority or f"{host}:{port}")]
    fields += [(name.lower(), value) for name, value in headers.items()]
    status, answer = 0, b""
    with socket.create_connection((host, int(port)), timeout=60) as pipe:
        connection.send_headers(1, fields)
        while True:
            window = min(connection.local_flow_control_window(1), connection.max_outbound_frame_size)
            if body and window:
                piece, body = body[:window], body[window:]
                connection.send_data(1, piece, end_stream=not body)
                continue
            pipe.sendall(connection.data_to_send())
            received = pipe.recv(65536)
            assert received, "the connection was closed"
            for event in connection.receive_data(received):
                match event:
                    case h2.events.ResponseReceived():
                        status = int(dict(event.headers)[":status"])
                    case h2.events.DataReceived():
                        answer += event.data
                        connection.acknowledge_received_data(event.flow_controlled_length, 1)
                    case h2.events.StreamEnded():
                        return status, answer
