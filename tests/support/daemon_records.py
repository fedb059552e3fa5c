"""Records of every shape that daemons' captures have: put into a stream, and read from it as a daemon delivers them.

The records of a stream are read by boto3 and taken apart by aws-kinesis-agg, with no code of fastkcl.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import captures
from aws_kinesis_agg.deaggregator import iter_deaggregate_records
from fastkcl.daemon.keys import Generation
from fastkcl.kinesis import Filler, PutOptions, UserRecord
from fastkcl.local_aws import LocalAws
from fastkcl.local_aws.leases import checkpoints
from local_aws_helpers import is_open, iterator, shards


class Record(NamedTuple):
    """A record as a child gets it."""

    shard: str
    sequence_number: str
    sub_sequence_number: int | None
    """None in the legacy dialect."""
    partition_key: str
    data: bytes | None
    millis: int
    """Arrival, since the epoch."""


@cache
def captured() -> tuple[tuple[UserRecord, ...], ...]:
    """The records of all captures: each alone, or with those that it shared an aggregate with."""
    found = []
    for capture in captures.CAPTURES:
        for message in captures.expected(capture):
            if message["action"] == "processRecords":
                for _, records in groupby(message["records"], lambda record: record["sequenceNumber"]):
                    found.append(tuple(UserRecord(record["partitionKey"], record["data"]) for record in records))
    return tuple(found)


def put_captured(aws: LocalAws, stream: str) -> None:
    """Put the records of all captures; those of an aggregate as one for each shard."""
    kinesis = aws.client("kinesis")
    alone: list[UserRecord] = []
    for records in [*captured(), (UserRecord("é-single", b"an aggregate of one"),) * 2]:
        if len(records) == 1:
            alone += records
            continue
        Filler(kinesis, stream).put(alone)
        alone = []
        put_aggregate(aws, stream, *records)
    Filler(kinesis, stream).put(alone)


def put_aggregate(aws: LocalAws, stream: str, *records: UserRecord) -> None:
    """Put records as one aggregate for each shard that they belong to."""
    Filler(aws.client("kinesis"), stream, PutOptions(aggregate=True)).put(records)


def in_shard(kinesis: Any, stream: str, shard: str) -> Iterator[dict[str, Any]]:
    """All records of a shard, as the service gives them."""
    position: str | None = iterator(kinesis, stream, shard)
    while position is not None:
        answer = kinesis.get_records(ShardIterator=position)
        yield from answer["Records"]
        position = answer.get("NextShardIterator") if answer["MillisBehindLatest"] else None


def in_stream(kinesis: Any, stream: str, generation: Generation, *, holding: bool = False) -> list[Record]:
    """The user records that children of a daemon get.

    Args:
        kinesis: a boto3 client.
        stream: its name.
        generation: of the daemon. One of KCL 1.7 does not tell the user records of an aggregate apart.
        holding: leave out what a child of KCL 1.7 holds back that writes behind the dialogue: the last sequence number
            of an open shard, which may go on.
    """
    found = []
    for shard in shards(kinesis, stream):
        records = list(in_shard(kinesis, stream, shard["ShardId"]))
        if holding and generation is Generation.KCL_1_7 and is_open(shard):
            records = records[:-1]
        for user in (each["kinesis"] for each in iter_deaggregate_records(records, data_format="Boto3")):
            aggregated = user.get("aggregated", False)
            sub = user["subSequenceNumber"] if aggregated else 0
            found.append(
                Record(
                    shard["ShardId"],
                    user["sequenceNumber"],
                    None if generation is Generation.KCL_1_7 else sub,
                    user["partitionKey"],
                    base64.b64decode(user["data"]) if aggregated else user["data"],
                    round(user["approximateArrivalTimestamp"].timestamp() * 1000),
                )
            )
    return found


def ends(kinesis: Any, stream: str, generation: Generation, *, holding: bool = False) -> dict[str, set[str | None]]:
    """Where the lease of each shard may stand when all of it is read; `holding` as for `in_stream`.

    Returns:
        By shard: checkpoints, None for no lease, as KCL removes those of shards that are done with.
    """
    found: dict[str, set[str | None]] = {
        shard["ShardId"]: {"TRIM_HORIZON"} if is_open(shard) else {"SHARD_END", None}
        for shard in shards(kinesis, stream)
    }
    for record in in_stream(kinesis, stream, generation, holding=holding):
        if None not in found[record.shard]:
            found[record.shard] = {record.sequence_number}
    return found


def is_read(dynamodb: Any, application: str, due: dict[str, set[str | None]]) -> bool:
    """Whether the leases of an application stand where `ends` says."""
    try:
        found = checkpoints(dynamodb, application=application)
    except dynamodb.exceptions.ResourceNotFoundException:  # a daemon that found no leases has made none yet
        return False
    return all(found.get(shard, (None, 0))[0] in places for shard, places in due.items())
