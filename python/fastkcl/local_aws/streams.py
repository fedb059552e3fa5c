"""Streams as they are administered: created, described, changed, tagged; and registered consumers.

Rules: as in `fastkcl.local_aws.kinesis`, which adds shards and records to it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastkcl.local_aws.errors import ServiceError
from fastkcl.local_aws.shards import Consumer, Shard, Stream
from fastkcl.local_aws.wire import Timestamp

__all__ = [
    "ACCOUNT",
    "Answer",
    "KinesisOptions",
    "Streams",
    "describe_shard",
    "from_token",
    "hash_key_range",
    "page_of",
    "token_of",
]

ACCOUNT = "123456789012"
"""The account that everything belongs to."""

_ON_DEMAND_SHARDS = 4
_DAY = 24  # hours, the shortest retention
_YEAR = 8760
_MAX_SHARDS = 10_000

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisOptions:
    """Options for tests that differ from the service.

    Attributes:
        region: of the ARNs; there is one set of streams, whatever region a client names.
        iterator_seconds: how long a shard iterator can be used.
        retention_seconds: how long records stay; None for the hours that each stream is set to.
        transition_seconds: how long a stream is CREATING, UPDATING or DELETING.
        shard_limits: whether shards refuse more than the service lets them take and give in a second.
    """

    region: str = "us-east-1"
    iterator_seconds: float = 300.0
    retention_seconds: float | None = None
    transition_seconds: float = 0.0
    shard_limits: bool = False


class Streams:
    """The operations on streams.

    Args:
        options: see there.
    """

    def __init__(self, options: KinesisOptions) -> None:
        self._options = options
        self._streams: dict[str, Stream] = {}

    def _stream(self, request: Answer) -> Stream:
        arn = request.get("StreamARN")
        name = request.get("StreamName") or (arn.rpartition("/")[2] if arn else None)
        if name is None:
            raise ServiceError("InvalidArgumentException", "Either StreamName or StreamARN has to be given")
        stream = self._streams.get(name)
        if stream is None or arn not in (None, stream.arn):
            raise ServiceError("ResourceNotFoundException", f"Stream {arn or name} under account {ACCOUNT} not found.")
        return stream

    def _usable(self, request: Answer) -> Stream:
        """A stream that records can be put into and read from."""
        stream = self._stream(request)
        if stream.status == "CREATING":
            raise ServiceError(
                "ResourceNotFoundException", f"Stream {stream.name} under account {ACCOUNT} not found: it is CREATING."
            )
        return stream

    def _changing(self, request: Answer) -> Stream:
        stream = self._stream(request)
        stream.require_active()
        return stream

    def _change(self, stream: Stream, status: str, now: float, then: Callable[[float], None]) -> None:
        stream.change(status, now, self._options.transition_seconds, then)

    def _create_stream(self, request: Answer, now: float) -> None:
        name = request["StreamName"]
        if name in self._streams:
            raise ServiceError("ResourceInUseException", f"Stream {name} under account {ACCOUNT} already exists.")
        mode = request.get("StreamModeDetails", {}).get("StreamMode", "PROVISIONED")
        count = request.get("ShardCount")
        if mode == "ON_DEMAND":
            count = _ON_DEMAND_SHARDS
        elif count is None:
            raise ServiceError("ValidationException", "ShardCount is needed for a stream in PROVISIONED mode")
        if count > _MAX_SHARDS:
            raise ServiceError("LimitExceededException", f"{count} shards are more than the limit of {_MAX_SHARDS}")
        stream = Stream(
            name,
            f"arn:aws:kinesis:{self._options.region}:{ACCOUNT}:stream/{name}",
            now,
            mode,
            self._retention(_DAY),
            request.get("MaxRecordSizeInKiB", 1024) * 1024,
            tags=dict(request.get("Tags", {})),
        )
        self._streams[name] = stream
        self._change(stream, "CREATING", now, lambda due: stream.divide(count, due))

    def _retention(self, hours: int) -> float:
        seconds = self._options.retention_seconds
        return hours * 3600.0 if seconds is None else seconds

    def _delete_stream(self, request: Answer, now: float) -> None:
        stream = self._stream(request)
        if stream.consumers and not request.get("EnforceConsumerDeletion"):
            raise ServiceError(
                "ResourceInUseException", f"Stream {stream.name} has registered consumers: EnforceConsumerDeletion"
            )
        if stream.status != "DELETING":
            self._change(stream, "DELETING", now, lambda due: self._forget(stream))

    def _forget(self, stream: Stream) -> None:
        del self._streams[stream.name]

    def _list_streams(self, request: Answer, now: float) -> Answer:
        del now
        start = from_token(request["NextToken"]) if "NextToken" in request else ""
        start = request.get("ExclusiveStartStreamName", start)
        names = [name for name in sorted(self._streams) if name > start]
        page, token = page_of(names, request.get("Limit", 100))
        summaries = [
            {
                "StreamName": stream.name,
                "StreamARN": stream.arn,
                "StreamStatus": stream.status,
                "StreamModeDetails": {"StreamMode": stream.mode},
                "StreamCreationTimestamp": _millis(stream.created),
            }
            for stream in (self._streams[name] for name in page)
        ]
        return {"StreamNames": page, "StreamSummaries": summaries, "HasMoreStreams": token is not None} | (
            {"NextToken": token} if token else {}
        )

    def _describe(self, stream: Stream) -> Answer:
        hours = max(1, int(stream.retention_seconds // 3600))
        encryption = {"EncryptionType": "KMS", "KeyId": stream.key_id} if stream.key_id else {"EncryptionType": "NONE"}
        return {
            "StreamName": stream.name,
            "StreamARN": stream.arn,
            "StreamStatus": stream.status,
            "StreamModeDetails": {"StreamMode": stream.mode},
            "RetentionPeriodHours": hours,
            "StreamCreationTimestamp": _millis(stream.created),
            "EnhancedMonitoring": [{"ShardLevelMetrics": sorted(stream.metrics)}],
            **encryption,
        }

    def _describe_stream(self, request: Answer, now: float) -> Answer:
        del now
        stream = self._stream(request)
        start = request.get("ExclusiveStartShardId", "")
        shards = [shard for shard in stream.shards.values() if shard.shard_id > start]
        limit = request.get("Limit", 100)
        return {
            "StreamDescription": {
                **self._describe(stream),
                "Shards": [describe_shard(shard) for shard in shards[:limit]],
                "HasMoreShards": len(shards) > limit,
            }
        }

    def _describe_stream_summary(self, request: Answer, now: float) -> Answer:
        del now
        stream = self._stream(request)
        return {
            "StreamDescriptionSummary": {
                **self._describe(stream),
                "OpenShardCount": len(stream.open_shards),
                "ConsumerCount": len(stream.consumers),
                "MaxRecordSizeInKiB": stream.max_record_bytes // 1024,
            }
        }

    def _describe_limits(self, request: Answer, now: float) -> Answer:
        del request, now
        return {
            "ShardLimit": _MAX_SHARDS,
            "OpenShardCount": sum(len(stream.open_shards) for stream in self._streams.values()),
            "OnDemandStreamCount": sum(stream.mode == "ON_DEMAND" for stream in self._streams.values()),
            "OnDemandStreamCountLimit": 50,
        }

    def _update_stream_mode(self, request: Answer, now: float) -> None:
        stream = self._changing(request)
        stream.mode = request["StreamModeDetails"]["StreamMode"]
        self._change(stream, "UPDATING", now, lambda due: None)

    def _update_max_record_size(self, request: Answer, now: float) -> None:
        stream = self._changing(request)
        stream.max_record_bytes = request["MaxRecordSizeInKiB"] * 1024
        self._change(stream, "UPDATING", now, lambda due: None)

    def _increase_stream_retention_period(self, request: Answer, now: float) -> None:
        self._set_retention(request, now, lambda hours, before: hours >= before)

    def _decrease_stream_retention_period(self, request: Answer, now: float) -> None:
        self._set_retention(request, now, lambda hours, before: hours <= before)

    def _set_retention(self, request: Answer, now: float, right_way: Callable[[int, float], bool]) -> None:
        stream = self._changing(request)
        hours = request["RetentionPeriodHours"]
        before = stream.retention_seconds / 3600
        if not _DAY <= hours <= _YEAR or not right_way(hours, before):
            raise ServiceError(
                "InvalidArgumentException",
                f"Retention of {hours} hours: {_DAY} to {_YEAR} expected, and increased or decreased from {before:g}",
            )
        stream.retention_seconds = self._retention(hours)
        self._change(stream, "UPDATING", now, lambda due: None)

    def _start_stream_encryption(self, request: Answer, now: float) -> None:
        stream = self._changing(request)
        stream.key_id = request["KeyId"]
        self._change(stream, "UPDATING", now, lambda due: None)

    def _stop_stream_encryption(self, request: Answer, now: float) -> None:
        stream = self._changing(request)
        stream.key_id = None
        self._change(stream, "UPDATING", now, lambda due: None)

    def _enable_enhanced_monitoring(self, request: Answer, now: float) -> Answer:
        del now
        return self._set_metrics(request, lambda before, named: before | named)

    def _disable_enhanced_monitoring(self, request: Answer, now: float) -> Answer:
        del now
        return self._set_metrics(request, lambda before, named: set() if "ALL" in named else before - named)

    def _set_metrics(self, request: Answer, change: Callable[[set[str], set[str]], set[str]]) -> Answer:
        stream = self._stream(request)
        before = stream.metrics
        stream.metrics = change(before, set(request["ShardLevelMetrics"]))
        return {
            "StreamName": stream.name,
            "StreamARN": stream.arn,
            "CurrentShardLevelMetrics": sorted(before),
            "DesiredShardLevelMetrics": sorted(stream.metrics),
        }

    # Tags and consumers.

    def _add_tags_to_stream(self, request: Answer, now: float) -> None:
        del now
        self._stream(request).tags.update(request["Tags"])

    def _remove_tags_from_stream(self, request: Answer, now: float) -> None:
        del now
        tags = self._stream(request).tags
        for key in request["TagKeys"]:
            tags.pop(key, None)

    def _list_tags_for_stream(self, request: Answer, now: float) -> Answer:
        del now
        start = request.get("ExclusiveStartTagKey", "")
        tags = [tag for tag in sorted(self._stream(request).tags.items()) if tag[0] > start]
        limit = request.get("Limit", 50)
        return {
            "Tags": [{"Key": key, "Value": value} for key, value in tags[:limit]],
            "HasMoreTags": tags[limit:] != [],
        }

    def _tag_resource(self, request: Answer, now: float) -> None:
        self._add_tags_to_stream({"StreamARN": request["ResourceARN"], **request}, now)

    def _untag_resource(self, request: Answer, now: float) -> None:
        self._remove_tags_from_stream({"StreamARN": request["ResourceARN"], **request}, now)

    def _list_tags_for_resource(self, request: Answer, now: float) -> Answer:
        tags = self._list_tags_for_stream({"StreamARN": request["ResourceARN"], "Limit": 1000}, now)
        return {"Tags": tags["Tags"]}

    def _register_stream_consumer(self, request: Answer, now: float) -> Answer:
        stream = self._changing(request)
        name = request["ConsumerName"]
        if name in stream.consumers:
            raise ServiceError("ResourceInUseException", f"Consumer {name} of {stream.arn} already exists.")
        consumer = Consumer(name, f"{stream.arn}/consumer/{name}:{int(now)}", now)
        stream.consumers[name] = consumer
        return {"Consumer": _describe_consumer(consumer)}

    def _consumer(self, request: Answer) -> tuple[Stream, Consumer]:
        arn = request.get("ConsumerARN", "")
        stream = self._stream({"StreamARN": request.get("StreamARN") or arn.partition("/consumer/")[0]})
        for consumer in stream.consumers.values():
            if consumer.arn == arn or consumer.name == request.get("ConsumerName"):
                return stream, consumer
        raise ServiceError(
            "ResourceNotFoundException", f"Consumer {arn or request.get('ConsumerName')} of {stream.arn} not found."
        )

    def _deregister_stream_consumer(self, request: Answer, now: float) -> None:
        del now
        stream, consumer = self._consumer(request)
        del stream.consumers[consumer.name]

    def _describe_stream_consumer(self, request: Answer, now: float) -> Answer:
        del now
        stream, consumer = self._consumer(request)
        return {"ConsumerDescription": {**_describe_consumer(consumer), "StreamARN": stream.arn}}

    def _list_stream_consumers(self, request: Answer, now: float) -> Answer:
        del now
        consumers = self._stream(request).consumers
        start = from_token(request["NextToken"]) if "NextToken" in request else ""
        names, token = page_of([name for name in sorted(consumers) if name > start], request.get("MaxResults", 100))
        answer: Answer = {"Consumers": [_describe_consumer(consumers[name]) for name in names]}
        return answer | ({"NextToken": token} if token else {})


# Pieces of answers and requests.


def _millis(seconds: float) -> Timestamp:
    return Timestamp(int(seconds * 1000))


def hash_key_range(shard: Shard) -> Answer:
    """As answers have it."""
    return {"StartingHashKey": str(shard.low), "EndingHashKey": str(shard.high)}


def describe_shard(shard: Shard) -> Answer:
    """As answers have it."""
    sequences = {"StartingSequenceNumber": str(shard.starting_sequence)}
    if shard.ending_sequence is not None:
        sequences["EndingSequenceNumber"] = str(shard.ending_sequence)
    parents = dict(zip(("ParentShardId", "AdjacentParentShardId"), shard.parents, strict=False))
    return {
        "ShardId": shard.shard_id,
        **parents,
        "HashKeyRange": hash_key_range(shard),
        "SequenceNumberRange": sequences,
    }


def _describe_consumer(consumer: Consumer) -> Answer:
    return {
        "ConsumerName": consumer.name,
        "ConsumerARN": consumer.arn,
        "ConsumerStatus": "ACTIVE",
        "ConsumerCreationTimestamp": _millis(consumer.created),
    }


def token_of(text: str) -> str:
    """A text as an opaque token."""
    return base64.b64encode(text.encode()).decode()


def from_token(token: str) -> str:
    """The text of a token.

    Raises:
        ServiceError: it is none.
    """
    try:
        return base64.b64decode(token, validate=True).decode()
    except ValueError:
        raise ServiceError("InvalidArgumentException", "Invalid NextToken or ShardIterator.") from None


def page_of(names: list[str], limit: int, prefix: str = "") -> tuple[list[str], str | None]:
    """The first `limit` names, and the token that goes on after them."""
    page = names[:limit]
    return page, token_of(prefix + page[-1]) if len(names) > limit else None
