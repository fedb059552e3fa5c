"""GetRecords answers of a profile's payloads, written as the service and local AWS write them."""

from __future__ import annotations

import json
from functools import cache

from fastkcl import _core
from fastkcl.replay import profiles
from fastkcl.shard import sequence_numbers

__all__ = ["answer", "records_of"]


@cache
def records_of(profile: str, records: int) -> bytes:
    """The ``Records`` of an answer, in JSON."""
    payloads = profiles.PROFILES[profile]
    second = profiles.EPOCH_MILLIS // 1000
    rows = zip(
        sequence_numbers(0, records, created=second, arrival=second),
        payloads.payloads(records),
        payloads.partition_keys(records),
        strict=True,
    )
    members = [
        {
            "SequenceNumber": sequence_number,
            "ApproximateArrivalTimestamp": (profiles.EPOCH_MILLIS + index) / 1000,
            "Data": _core.encode_base64(data).decode(),
            "PartitionKey": key,
        }
        for index, (sequence_number, data, key) in enumerate(rows)
    ]
    return json.dumps(members, separators=(",", ":")).encode()


def answer(profile: str, records: int) -> bytes:
    """The whole body."""
    tail = json.dumps({"NextShardIterator": "A" * 224, "MillisBehindLatest": 0}, separators=(",", ":")).encode()
    return b'{"Records":%s,%s' % (records_of(profile, records), tail[1:])
