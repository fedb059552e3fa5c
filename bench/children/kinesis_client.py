"""A program that consumes from or produces into a stream, by async-kinesis or by fastkcl, and says how fast it was.

    python kinesis_client.py consume|produce PACKAGE OPTIONS

PACKAGE is ``kinesis`` or ``fastkcl.kinesis``; OPTIONS is JSON. Both packages call AWS through aiobotocore. Without an
endpoint a stub in this process answers each call at once, between aiobotocore's serialisers and its parsers: only the
client's own work is left. The figures come as JSON on standard output; they are of the time from the first item to the
last, or, ``from_nothing``, from where the consumer is open and has fetched nothing; connecting not included.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.session import AioSession

HEADERS = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-RequestId": "0"}


class Stub:
    """Answers of a stream whose shards have the same records again and again.

    Args:
        records: the ``Records`` of each GetRecords answer, in JSON.
        shards: how many there are.
    """

    def __init__(self, records: bytes, shards: int) -> None:
        self._answer_of_records = b'{"MillisBehindLatest":0,"NextShardIterator":"next","Records":%s}' % records
        width = 2**128 // shards
        self._shards = [
            {
                "ShardId": f"shardId-{n:012}",
                "HashKeyRange": {
                    "StartingHashKey": str(n * width),
                    "EndingHashKey": str((n + 1) * width - 1 if n < shards - 1 else 2**128 - 1),
                },
                "SequenceNumberRange": {"StartingSequenceNumber": "1"},
            }
            for n in range(shards)
        ]

    def session(self) -> AioSession:
        """A session whose clients get them."""
        session = AioSession()
        session.register("before-send.kinesis", self._answer)
        return session

    async def _answer(self, request: Any, **_: object) -> AioAWSResponse:
        target = request.headers["X-Amz-Target"]
        operation = (target.decode() if isinstance(target, bytes) else target).rpartition(".")[2]
        asked = json.loads(request.body)
        if operation == "GetRecords":
            body = self._answer_of_records  # the same bytes for all: making them would be the most of the work
        elif operation == "PutRecords":
            accepted = [{"SequenceNumber": "1", "ShardId": "shardId-000000000000"}] * len(asked["Records"])
            body = json.dumps({"FailedRecordCount": 0, "Records": accepted}).encode()
        else:
            body = json.dumps(self._other(operation, asked)).encode()
        response = AioAWSResponse(request.url, 200, HEADERS, None)
        response._content = body
        return response

    def _other(self, operation: str, asked: dict[str, Any]) -> dict[str, Any]:
        if operation == "GetShardIterator":
            return {"ShardIterator": asked["ShardId"]}
        if operation == "ListShards":
            return {"Shards": self._shards}
        stream = {"StreamName": "bench", "StreamARN": "arn", "StreamStatus": "ACTIVE"}
        if operation == "DescribeStreamSummary":
            return {"StreamDescriptionSummary": {**stream, "OpenShardCount": len(self._shards)}}
        assert operation == "DescribeStream", operation
        return {"StreamDescription": {**stream, "Shards": self._shards, "HasMoreShards": False}}


def common(package: ModuleType, options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of both classes."""
    if options["endpoint"]:
        return {"endpoint_url": options["endpoint"]}
    records = Path(options["records_file"]).read_bytes() if options.get("records_file") else b"[]"
    return {"session": Stub(records, options["shards"]).session()}


async def consume(package: ModuleType, options: dict[str, Any]) -> dict[str, float]:
    """Take so many records; the first item starts the clock, or that the consumer is open."""
    arguments = common(package, options) | {"processor": package.StringProcessor(), "shard_fetch_rate": 5}
    if options["output"] is not None:
        arguments["output"] = options["output"]
    seen, before, begun, cpu = 0, 0, 0.0, 0.0
    in_batches = options["output"] == "batches"
    async with package.Consumer(options["stream"], **arguments, idle_timeout=60.0) as consumer:
        if options.get("from_nothing"):
            begun, cpu = time.perf_counter(), time.process_time()
        async for item in consumer:
            seen += len(item) if in_batches else 1
            if not begun:
                before, begun, cpu = seen, time.perf_counter(), time.process_time()
            if seen >= options["records"]:
                break
        seconds, used = time.perf_counter() - begun, time.process_time() - cpu
    assert seen >= options["records"], seen
    return {"seconds": seconds, "cpu_seconds": used, "records": seen - before}


async def produce(package: ModuleType, options: dict[str, Any]) -> dict[str, float]:
    """Put so many items, until the service has them all."""
    sent = 0

    async def accepted(items: list[Any]) -> None:
        nonlocal sent
        sent += sum(item.n for item in items)

    item = "x" * options["item_bytes"]
    # async-kinesis has some in a module only.
    named = options["processor"]
    processors = package if hasattr(package, named) else import_module(f"{package.__name__}.processors")
    async with package.Producer(
        options["stream"],
        **common(package, options),
        processor=getattr(processors, named)(),
        after_flush_fun=accepted,
        put_rate_limit_per_shard=10_000_000,
        put_bandwidth_limit_per_shard=10_000_000,
    ) as producer:
        begun, cpu = time.perf_counter(), time.process_time()
        for _ in range(options["records"]):
            await producer.put(item)
        await producer.flush()
        seconds, used = time.perf_counter() - begun, time.process_time() - cpu
    assert sent == options["records"], sent
    return {"seconds": seconds, "cpu_seconds": used, "records": sent}


def main() -> None:
    """Run one, and say how it was."""
    what, name, text = sys.argv[1:]
    os.environ |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    options = json.loads(text)
    os.sched_setaffinity(0, {options["core"]})
    package = import_module(name)
    print(json.dumps(asyncio.run({"consume": consume, "produce": produce}[what](package, options))))


if __name__ == "__main__":
    main()
