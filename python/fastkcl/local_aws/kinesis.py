"""The operations of Kinesis Data Streams over `fastkcl.local_aws.shards`: a request and a time in, an answer out.

Rules: no I/O and no clock; the effects of a request depend on the request, the time and the options alone. Names,
messages and limits are the service's, where they are known; a missing operation is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from botocore import xform_name

from fastkcl.local_aws.errors import ServiceError
from fastkcl.local_aws.shards import Record, Shard, Stream
from fastkcl.local_aws.streams import (
    ACCOUNT,
    Answer,
    KinesisOptions,
    Streams,
    describe_shard,
    from_token,
    hash_key_range,
    page_of,
    token_of,
)
from fastkcl.local_aws.throughput import Throughput
from fastkcl.local_aws.validation import OPERATIONS, conform
from fastkcl.local_aws.whims import Whims
from fastkcl.local_aws.wire import RecordAnswer
from fastkcl.shard import HASH_KEYS, created_of, hash_key, shard_number_of

__all__ = ["Kinesis", "Subscription"]

MAX_PUT = 10 * 2**20
"""Most bytes of one PutRecords request, keys included."""

MAX_READ_RECORDS = 10_000
"""Most records of one GetRecords answer."""

MAX_EVENT = 2**20
"""Most bytes of one event of a subscription, unless one record has more."""


class Kinesis(Streams):
    """The service: all streams.

    Args:
        options: see there.
    """

    READS = frozenset(
        {
            "DescribeLimits",
            "DescribeStream",
            "DescribeStreamConsumer",
            "DescribeStreamSummary",
            "GetRecords",
            "GetShardIterator",
            "ListShards",
            "ListStreamConsumers",
            "ListStreams",
            "ListTagsForResource",
            "ListTagsForStream",
        }
    )
    """Operations that change nothing."""

    def __init__(self, options: KinesisOptions, whims: Whims | None = None) -> None:
        super().__init__(options)
        self._whims = whims or Whims()
        self._throughput = Throughput()
        self._nonce = itertools.count()
        self._operations: dict[str, Callable[[Answer, float], Answer | None]] = {}
        for operation in OPERATIONS:
            method = getattr(self, f"_{xform_name(operation)}", None)
            if method is not None:
                self._operations[operation] = method

    def call(self, operation: str, request: object, now: float) -> Answer:
        """Do an operation.

        Args:
            operation: the service's name of it, e.g. ``PutRecords``.
            request: as decoded from the wire.
            now: seconds since the epoch.

        Raises:
            ServiceError: it is refused.
        """
        method = self._operations.get(operation)
        if method is None:
            kind = "InvalidActionException" if operation in OPERATIONS else "UnknownOperationException"
            raise ServiceError(kind, f"{operation} is not there in fastkcl local-aws")
        conforming = conform(operation, request)
        self._settle(now)
        return method(conforming, now) or {}

    def _settle(self, now: float) -> None:
        for stream in list(self._streams.values()):
            stream.settle(now)

    # Shards.

    def _list_shards(self, request: Answer, now: float) -> Answer:
        del now
        given = request
        start = request.get("ExclusiveStartShardId", "")
        if "NextToken" in request:
            name, _, start = from_token(request["NextToken"]).partition(" ")
            given = {"StreamName": name}
        stream = self._usable(given)
        chosen = _shard_filter(request.get("ShardFilter", {}), stream)
        ids = [shard.shard_id for shard in stream.shards.values() if shard.shard_id > start and chosen(shard)]
        page, token = page_of(ids, request.get("MaxResults", 1000), f"{stream.name} ")
        answer: Answer = {"Shards": [describe_shard(stream.shards[shard_id]) for shard_id in page]}
        return answer | ({"NextToken": token} if token else {})

    def _split_shard(self, request: Answer, now: float) -> None:
        stream = self._changing(request)
        shard = _open_shard(stream, request["ShardToSplit"])
        key = int(request["NewStartingHashKey"])
        if not shard.low < key <= shard.high:
            raise ServiceError(
                "InvalidArgumentException",
                f"NewStartingHashKey {key} used in SplitShard() on shard {shard.shard_id} in stream {stream.name} is "
                f"not both greater than one plus the shard's StartingHashKey {shard.low} and less than the shard's "
                f"EndingHashKey {shard.high}.",
            )
        self._change(stream, "UPDATING", now, lambda due: stream.split(shard, key, due))

    def _merge_shards(self, request: Answer, now: float) -> None:
        stream = self._changing(request)
        shard = _open_shard(stream, request["ShardToMerge"])
        other = _open_shard(stream, request["AdjacentShardToMerge"])
        if shard.high + 1 != other.low and other.high + 1 != shard.low:
            raise ServiceError(
                "InvalidArgumentException",
                f"Shards {shard.shard_id} and {other.shard_id} in stream {stream.name} are not an adjacent pair of "
                "shards eligible for merging",
            )
        self._change(stream, "UPDATING", now, lambda due: stream.merge(shard, other, due))

    def _update_shard_count(self, request: Answer, now: float) -> Answer:
        stream = self._changing(request)
        before, target = len(stream.open_shards), request["TargetShardCount"]
        if not before <= 2 * target <= 4 * before:
            raise ServiceError(
                "InvalidArgumentException",
                f"UpdateShardCount to {target}: between half and double of the current {before} shards expected",
            )
        self._change(stream, "UPDATING", now, lambda due: stream.rescale(target, due))
        return {
            "StreamName": stream.name,
            "StreamARN": stream.arn,
            "CurrentShardCount": before,
            "TargetShardCount": target,
        }

    # Records.

    def _put_record(self, request: Answer, now: float) -> Answer:
        stream = self._usable(request)
        outcome = self._store(stream, _Entry.of(request, stream), now)
        if "ErrorCode" in outcome:
            raise ServiceError(outcome["ErrorCode"], outcome["ErrorMessage"])
        return outcome | _encryption(stream)

    def _put_records(self, request: Answer, now: float) -> Answer:
        stream = self._usable(request)
        entries = [
            _Entry.of(entry, stream, f"records.{number}.member.") for number, entry in enumerate(request["Records"], 1)
        ]
        size = sum(entry.size for entry in entries)
        if size > MAX_PUT:
            raise ServiceError(
                "InvalidArgumentException", f"Records size exceeds {MAX_PUT} bytes: they have {size} with their keys"
            )
        outcomes = [self._store(stream, entry, now) for entry in entries]
        failed = sum("ErrorCode" in outcome for outcome in outcomes)
        return {"FailedRecordCount": failed, "Records": outcomes} | _encryption(stream)

    def _store(self, stream: Stream, entry: _Entry, now: float) -> Answer:
        shard = stream.owner(entry.hash_key)
        if self._options.shard_limits:
            throughput = self._throughput.of(stream.arn, shard.shard_id)
            if not throughput.take(entry.size, now):
                refusal = _rate_exceeded(stream, shard)
                return {"ErrorCode": refusal.kind, "ErrorMessage": refusal.message}
        record = shard.append(entry.partition_key, entry.data, entry.size, now)
        return {"SequenceNumber": record.sequence_number, "ShardId": shard.shard_id}

    def _get_shard_iterator(self, request: Answer, now: float) -> Answer:
        stream = self._usable(request)
        shard = stream.shard(request["ShardId"])
        after = _position(shard, request["ShardIteratorType"], request, "StartingSequenceNumber")
        return {"ShardIterator": self._iterator(stream, shard, after, now)}

    def _iterator(self, stream: Stream, shard: Shard, after: int, now: float) -> str:
        # As opaque and as long as the service's, and never twice the same.
        text = f"{stream.name} {stream.created} {shard.shard_id} {after} {now:.3f} {next(self._nonce)}"
        return token_of(text.ljust(160))

    def _get_records(self, request: Answer, now: float) -> Answer:
        if request.get("Limit", 1) > MAX_READ_RECORDS:
            raise ServiceError("InvalidArgumentException", f"Limit is above {MAX_READ_RECORDS}")
        try:
            name, created, shard_id, after, issued, _ = from_token(request["ShardIterator"]).split()
            age, position = now - float(issued), int(after)
        except ValueError:
            raise ServiceError("InvalidArgumentException", "Invalid ShardIterator.") from None
        if age > self._options.iterator_seconds:
            raise ServiceError(
                "ExpiredIteratorException",
                f"Iterator expired. It was created {age:.3f} s ago, and can be used for "
                f"{self._options.iterator_seconds:g} s.",
            )
        stream = self._stream({"StreamName": name})
        if str(stream.created) != created:
            raise ServiceError("ResourceNotFoundException", f"The iterator's stream {name} was deleted.")
        shard = stream.shard(shard_id)
        throughput = self._throughput.of(stream.arn, shard_id) if self._options.shard_limits else None
        if throughput is not None and not throughput.may_read(now):
            raise _rate_exceeded(stream, shard)
        records, more = shard.read(position, request.get("Limit", MAX_READ_RECORDS))
        behind = _millis_behind(records, more, now)
        if records and self._whims.hides():
            behind = max(1, int(now * 1000) - records[0].arrival_millis)
            records, more = [], True
        if throughput is not None:
            throughput.gave(sum(record.size for record in records), now)
        answer: Answer = {
            "Records": _describe_records(records, stream, self._whims),
            "MillisBehindLatest": self._whims.behind(stream.arn, shard_id, behind),
        }
        if more or shard.is_open:
            last = records[-1].sequence if records else position
            return answer | {"NextShardIterator": self._iterator(stream, shard, last, now)}
        return answer | {"ChildShards": [_describe_child(child) for child in stream.children(shard)]}

    # Enhanced fan-out.

    def subscribe(self, request: object, now: float) -> Subscription:
        """SubscribeToShard: from now on a consumer has this subscription to a shard, and no other.

        Args:
            request: as decoded from the wire.
            now: seconds since the epoch.

        Raises:
            ServiceError: it is refused.
        """
        conforming = conform("SubscribeToShard", request)
        self._settle(now)
        stream, consumer = self._consumer(conforming)
        shard = stream.shard(conforming["ShardId"])
        start = conforming["StartingPosition"]
        after = _position(shard, start["Type"], start, "SequenceNumber")
        number = next(self._nonce)
        consumer.subscriptions[shard.shard_id] = number
        return Subscription(stream.name, consumer.arn, shard.shard_id, number, max(after, shard.starting_sequence))

    def next_event(self, subscription: Subscription, now: float) -> Answer:
        """The records since the event before: perhaps no records, and at the shard's end its children.

        Raises:
            ServiceError: the subscription has ended, as there is a newer one, or the consumer or the shard is gone.
        """
        self._settle(now)
        arn = subscription.consumer_arn
        stream, consumer = self._consumer({"ConsumerARN": arn})
        shard = stream.shard(subscription.shard_id)
        if consumer.subscriptions[shard.shard_id] != subscription.number:
            raise ServiceError("ResourceInUseException", f"Another subscription of {arn} to {shard.shard_id} began.")
        records, more = shard.read(subscription.after, MAX_READ_RECORDS, MAX_EVENT)
        if records:
            subscription.after = records[-1].sequence
        event: Answer = {
            "Records": _describe_records(records, stream, self._whims),
            "MillisBehindLatest": _millis_behind(records, more, now),
        }
        if more or shard.is_open:
            return event | {"ContinuationSequenceNumber": str(subscription.after)}
        return event | {"ChildShards": [_describe_child(child) for child in stream.children(shard)]}


@dataclass(slots=True)
class Subscription:
    """A consumer's to a shard.

    Attributes:
        number: above those of all before it.
        after: sequence number after which the next records come.
    """

    stream: str
    consumer_arn: str
    shard_id: str
    number: int
    after: int


# Pieces of answers.


def _millis_behind(records: Sequence[Record], more: bool, now: float) -> int:
    """How old the last record of an answer is, if there are others after it."""
    return max(0, int(now * 1000) - records[-1].arrival_millis) if records and more else 0


def _describe_child(shard: Shard) -> Answer:
    return {"ShardId": shard.shard_id, "ParentShards": list(shard.parents), "HashKeyRange": hash_key_range(shard)}


def _describe_records(records: Sequence[Record], stream: Stream, whims: Whims) -> list[RecordAnswer]:
    encryption = _encryption(stream).get("EncryptionType")
    arrival = whims.arrival
    return [
        RecordAnswer(number, arrival(sequence, millis) / 1000, data, key, encryption)
        for sequence, number, key, data, millis, _, _ in records
    ]


def _encryption(stream: Stream) -> Answer:
    return {"EncryptionType": "KMS"} if stream.key_id else {}


def _rate_exceeded(stream: Stream, shard: Shard) -> ServiceError:
    return ServiceError(
        "ProvisionedThroughputExceededException",
        f"Rate exceeded for shard {shard.shard_id} in stream {stream.name} under account {ACCOUNT}.",
    )


# Pieces of requests.


class _Entry(NamedTuple):
    """A record to be put."""

    partition_key: str
    data: bytes
    hash_key: int
    size: int

    @classmethod
    def of(cls, entry: Answer, stream: Stream, path: str = "") -> _Entry:
        key, data, explicit = entry["PartitionKey"], entry["Data"], entry.get("ExplicitHashKey")
        size = len(data) + len(key.encode())
        if size > stream.max_record_bytes:
            raise ServiceError(
                "ValidationException",
                f"1 validation error detected: Value at '{path}data' failed to satisfy constraint: Member must have "
                f"length less than or equal to {stream.max_record_bytes} with its partition key; they have {size}",
            )
        place = hash_key(key) if explicit is None else int(explicit)
        if place >= HASH_KEYS:
            raise ServiceError("InvalidArgumentException", f"ExplicitHashKey {explicit} is not below 2**128")
        return cls(key, data, place, size)


def _given(request: Answer, member: str, kind: str) -> Any:  # noqa: ANN401 - text or a number
    if member not in request:
        raise ServiceError("InvalidArgumentException", f"{member} is needed for the ShardIteratorType {kind}")
    return request[member]


def _position(shard: Shard, kind: str, request: Answer, sequence_member: str) -> int:
    """The sequence number after which reading begins."""
    if kind == "TRIM_HORIZON":
        return 0
    if kind == "LATEST":
        return shard.latest
    if kind == "AT_TIMESTAMP":
        return shard.before(round(_given(request, "Timestamp", kind) * 1000))
    sequence = int(_given(request, sequence_member, kind))
    other = shard_number_of(sequence)
    if other not in (None, shard.number):
        raise ServiceError(
            "InvalidArgumentException",
            f"Invalid {sequence_member}. It encodes shardId-{other:012d}, while it was used in a call to a shard with "
            f"{shard.shard_id}",
        )
    if created_of(sequence) not in (None, shard.created):
        raise ServiceError(
            "InvalidArgumentException",
            f"{sequence_member} {sequence} used in a call to shard {shard.shard_id} is invalid because it did not come "
            "from this stream.",
        )
    return sequence - (kind == "AT_SEQUENCE_NUMBER")


def _open_shard(stream: Stream, shard_id: str) -> Shard:
    shard = stream.shard(shard_id)
    if not shard.is_open:
        raise ServiceError("InvalidArgumentException", f"Shard {shard_id} in stream {stream.name} is closed already")
    return shard


def _shard_filter(given: Answer, stream: Stream) -> Callable[[Shard], bool]:
    """Which shards a ShardFilter means. The trim horizon is the oldest record, or the present where there is none."""
    kind = given.get("Type")
    if kind is None:
        return lambda shard: True
    if kind == "AFTER_SHARD_ID":
        after = _given(given, "ShardId", kind)
        return lambda shard: shard.shard_id > after
    if kind == "AT_LATEST":
        return lambda shard: shard.is_open
    if kind == "FROM_TRIM_HORIZON":
        return lambda shard: True  # older ones are not there any more
    moment = _given(given, "Timestamp", kind) if "TIMESTAMP" in kind else 0.0
    ended = {shard.shard_id for shard in stream.shards.values() if shard.closed is not None and shard.closed < moment}
    if kind == "FROM_TIMESTAMP":
        return lambda shard: shard.shard_id not in ended
    # Open at that moment: not closed before it, and not the child of one that was open at it.
    return lambda shard: (
        shard.shard_id not in ended and all(parent in ended or parent not in stream.shards for parent in shard.parents)
    )
