"""Streams in memory, and the client that reads them: the base of `fastkcl.kinesis.testing`.

MockKinesisBackend ── by name ──▶ MemoryStream ── of a key ──▶ MemoryShard ◀── MemoryClient
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from fastkcl._core import GetRecordsAnswer, decode_get_records
from fastkcl.kinesis.bounds import check_count
from fastkcl.kinesis.client import StreamClient
from fastkcl.kinesis.exceptions import StreamDoesNotExist
from fastkcl.shard import hash_key

if TYPE_CHECKING:
    from fastkcl.kinesis.read.bodies import Gate

__all__ = ["MemoryClient", "MemoryRecord", "MemoryShard", "MemoryStream", "MockKinesisBackend"]

_SEQUENCE_DIGITS = 20
_LONGEST_WAIT = 0.05  # seconds, of a read for records
_T = TypeVar("_T")
_JSON = "application/x-amz-json-1.1"


def _sequence_number(number: int) -> str:
    return f"{number:0{_SEQUENCE_DIGITS}}"


class MemoryRecord(NamedTuple):
    """A record of a shard."""

    sequence_number: str
    data: bytes
    partition_key: str
    approximate_arrival_timestamp: datetime


class MemoryShard:
    """Records in their order.

    Attributes:
        shard_id: as the service would name it.
        records: all that were ever put.
        sealed: whether it ends with them.
    """

    def __init__(self, shard_id: str) -> None:
        self.shard_id = shard_id
        self.records: list[MemoryRecord] = []
        self.sealed = False
        self._waiting: list[asyncio.Event] = []

    @property
    def record_count(self) -> int:
        """How many records it has."""
        return len(self.records)

    def put(self, data: bytes, partition_key: str) -> str:
        """Add a record, and give its sequence number.

        Raises:
            RuntimeError: it is sealed.
        """
        if self.sealed:
            raise RuntimeError(f"{self.shard_id} is sealed: nothing can be put into it")
        sequence_number = _sequence_number(self.record_count + 1)
        self.records.append(MemoryRecord(sequence_number, bytes(data), partition_key, datetime.now(UTC)))
        self._wake()
        return sequence_number

    def seal(self) -> None:
        """Let it end with its present records. Again, nothing happens."""
        self.sealed = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            event.set()

    async def wait_for(self, count: int) -> None:
        """Wait for more records than so many, or for the end; not for long, as another thread may put them."""
        if self.record_count > count or self.sealed:
            return
        event = asyncio.Event()
        self._waiting.append(event)
        try:
            async with asyncio.timeout(_LONGEST_WAIT):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            with contextlib.suppress(ValueError):  # it was told
                self._waiting.remove(event)


class MemoryStream:
    """A stream in memory.

    Args:
        name: of the stream.
        shard_count: 1 or more.

    Raises:
        ValidationError: no shards.
    """

    def __init__(self, name: str, shard_count: int = 1) -> None:
        check_count("shard_count", shard_count, 1)
        self.name = name
        self.shards = [MemoryShard(f"shardId-{number:012}") for number in range(shard_count)]

    @property
    def shard_count(self) -> int:
        """How many shards it has."""
        return len(self.shards)

    @property
    def record_count(self) -> int:
        """How many records it has, in all shards."""
        return sum(shard.record_count for shard in self.shards)

    @property
    def sealed(self) -> bool:
        """Whether all of its shards are sealed."""
        return all(shard.sealed for shard in self.shards)

    def shard_of(self, partition_key: str, explicit_hash_key: str | None = None) -> MemoryShard:
        """The shard of a key, or of a hash key in its place."""
        key = hash_key(partition_key) if explicit_hash_key is None else int(explicit_hash_key)
        return self.shards[key % len(self.shards)]

    def put(self, data: bytes, partition_key: str) -> str:
        """Add a record to its key's shard, and give its sequence number.

        Raises:
            RuntimeError: the shard is sealed.
        """
        return self.shard_of(partition_key).put(data, partition_key)

    def seal(self) -> None:
        """Seal all shards: consumers read to the end of them, and then end. Again, nothing happens."""
        for shard in self.shards:
            shard.seal()


class MockKinesisBackend:
    """The streams of this process, by their names. There is one; `reset` it between tests."""

    _streams: ClassVar[dict[str, MemoryStream]] = {}

    @classmethod
    def create_stream(cls, name: str, shard_count: int = 1) -> MemoryStream:
        """Make a stream; one of this name is replaced."""
        stream = cls._streams[name] = MemoryStream(name, shard_count)
        return stream

    @classmethod
    def get_stream(cls, name: str) -> MemoryStream:
        """The stream of this name.

        Raises:
            KeyError: there is none.
        """
        if name not in cls._streams:
            raise KeyError(f"stream {name!r} does not exist: MockKinesisBackend.create_stream makes it")
        return cls._streams[name]

    @classmethod
    def stream_exists(cls, name: str) -> bool:
        """Whether there is a stream of this name."""
        return name in cls._streams

    @classmethod
    def reset(cls) -> None:
        """Forget all streams."""
        cls._streams.clear()


class MemoryClient(StreamClient):
    """The client of a stream in memory: the answers of a service, without one."""

    async def open(self) -> None:
        """Find the stream, or make it, as the options say.

        Raises:
            StreamDoesNotExist: there is none.
        """
        if not MockKinesisBackend.stream_exists(self.stream_name):
            if not self._create_stream:
                raise StreamDoesNotExist(
                    f"there is no stream {self.stream_name}: MockKinesisBackend.create_stream makes it"
                )
            MockKinesisBackend.create_stream(self.stream_name, self._create_stream_shards)
        self._client = MockKinesisBackend.get_stream(self.stream_name)

    async def call_once(self, operation: str, request: Mapping[str, object]) -> dict[str, Any]:
        """Answer those calls that a consumer makes."""
        stream = MockKinesisBackend.get_stream(self.stream_name)
        match operation:
            case "list_shards":
                return {"Shards": [_description(shard) for shard in stream.shards]}
            case "describe_stream":
                shards = [_description(shard) for shard in stream.shards]
                return {
                    "StreamDescription": {"StreamStatus": "ACTIVE", "Shards": shards, "HasMoreShards": False},
                }
            case "get_shard_iterator":
                index = [shard.shard_id for shard in stream.shards].index(str(request["ShardId"]))
                return {"ShardIterator": f"{index}:{_place(stream.shards[index].records, request)}"}
        raise NotImplementedError(f"{operation} of a stream in memory: fastkcl.local_aws has a service")

    async def get_records(
        self,
        shard_id: str,
        iterator: str,
        limit: int,
        then: Callable[[GetRecordsAnswer], _T],
        *,
        on_outage: Callable[[BaseException], None] | None = None,
        gate: Gate | None = None,
    ) -> _T:
        """Read from a shard; where there is nothing new, wait a moment for it."""
        del on_outage
        index, place = map(int, iterator.split(":"))
        shard = MockKinesisBackend.get_stream(self.stream_name).shards[index]
        await shard.wait_for(place)
        body = _answer(shard, index, place, limit)
        if gate is not None:
            await gate(len(body))
        return then(decode_get_records(body, _JSON, shard_id=shard_id))


def _description(shard: MemoryShard) -> dict[str, Any]:
    """As ListShards has it. Keys are divided by another rule than ranges, so each shard may own any of them."""
    sequence = {"StartingSequenceNumber": _sequence_number(1)}
    if shard.sealed:
        sequence["EndingSequenceNumber"] = _sequence_number(max(1, shard.record_count))
    return {
        "ShardId": shard.shard_id,
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)},
        "SequenceNumberRange": sequence,
    }


def _place(records: Sequence[MemoryRecord], request: Mapping[str, Any]) -> int:
    """Where an iterator begins."""
    match request["ShardIteratorType"]:
        case "TRIM_HORIZON":
            return 0
        case "LATEST":
            return len(records)
        case "AT_TIMESTAMP":
            return sum(record.approximate_arrival_timestamp < request["Timestamp"] for record in records)
        case "AT_SEQUENCE_NUMBER":
            return sum(int(record.sequence_number) < int(request["StartingSequenceNumber"]) for record in records)
        case kind:
            assert kind == "AFTER_SEQUENCE_NUMBER"
            return sum(int(record.sequence_number) <= int(request["StartingSequenceNumber"]) for record in records)


def _answer(shard: MemoryShard, index: int, place: int, limit: int) -> bytes:
    """The body of a GetRecords answer."""
    end = min(place + limit, shard.record_count)
    left = shard.records[end:]
    behind = (datetime.now(UTC) - left[0].approximate_arrival_timestamp).total_seconds() if left else 0.0
    answer = {
        "Records": [
            {
                "SequenceNumber": record.sequence_number,
                "ApproximateArrivalTimestamp": record.approximate_arrival_timestamp.timestamp(),
                "Data": base64.b64encode(record.data).decode(),
                "PartitionKey": record.partition_key,
                "EncryptionType": "NONE",
            }
            for record in shard.records[place:end]
        ],
        "MillisBehindLatest": max(0, round(behind * 1000)),
    }
    if shard.sealed and not left:
        answer["ChildShards"] = []
    else:
        answer["NextShardIterator"] = f"{index}:{end}"
    return json.dumps(answer).encode()
