"""GetRecords answers: as the service could write them, and as botocore reads them."""

import datetime
import functools
from typing import Any

import botocore.parsers
import botocore.session
from fastkcl import _core

JSON = "application/x-amz-json-1.1"

UTC = datetime.UTC


@functools.cache
def output_shape() -> Any:
    """The model of what GetRecords answers."""
    session = botocore.session.Session()
    return session.get_service_model("kinesis").operation_model("GetRecords").output_shape


def by_botocore(body: bytes, protocol: str = "json") -> dict[str, Any]:
    """What botocore's own parser makes of an answer of status 200."""
    response = {"body": body, "headers": {}, "status_code": 200, "context": {"operation_name": "GetRecords"}}
    parsed = botocore.parsers.create_parser(protocol).parse(response, output_shape())
    parsed.pop("ResponseMetadata")
    return parsed


def as_botocore(answer: _core.GetRecordsAnswer) -> dict[str, Any]:
    """The same from the decoder's answer."""
    found: dict[str, Any] = {"Records": [_record(record) for record in answer.batch]}
    if answer.next_shard_iterator is not None:
        found["NextShardIterator"] = answer.next_shard_iterator
    if answer.millis_behind_latest is not None:
        found["MillisBehindLatest"] = answer.millis_behind_latest
    if answer.child_shards:
        found["ChildShards"] = [
            {
                "ShardId": shard.shard_id,
                "ParentShards": list(shard.parent_shards),
                "HashKeyRange": {
                    "StartingHashKey": str(shard.hash_range[0]),
                    "EndingHashKey": str(shard.hash_range[1]),
                },
            }
            for shard in answer.child_shards
        ]
    return found


def _record(record: _core.Record) -> dict[str, Any]:
    values = {
        "SequenceNumber": record.sequence_number,
        "ApproximateArrivalTimestamp": record.approximate_arrival_timestamp,
        "Data": record.data,
        "PartitionKey": record.partition_key,
        "EncryptionType": record.encryption_type,
    }
    assert record.sub_sequence_number is None
    return {name: value for name, value in values.items() if value is not None}
