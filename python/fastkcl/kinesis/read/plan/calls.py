"""The calls that the state machines ask for, and the answers that their drivers bring.

    call             answer
    ListShards       a sequence of `Shard`: all pages
    DescribeStream   `Described`
    GetShardIterator the iterator, as text
    GetRecords       `Records`

Rules: a driver makes each call once, and reports it by the very object: by ``answered`` or by ``failed``. It repeats
nothing by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from fastkcl.kinesis.read.plan.offset import Position
from fastkcl.kinesis.topology import Shard

__all__ = ["Answer", "Call", "DescribeStream", "Described", "GetRecords", "GetShardIterator", "ListShards", "Records"]


@dataclass(frozen=True, slots=True)
class ListShards:
    """List the shards of a stream, closed ones too."""

    stream: str


@dataclass(frozen=True, slots=True)
class DescribeStream:
    """Ask when a stream was made, and how long it keeps records (DescribeStreamSummary)."""

    stream: str


@dataclass(frozen=True, slots=True)
class GetShardIterator:
    """Ask for an iterator.

    Attributes:
        stream: name or ARN.
        shard_id: which.
        position: a record, which is to come again; `TRIM`; or a time.
    """

    stream: str
    shard_id: str
    position: Position

    @property
    def request(self) -> dict[str, object]:
        """The part of the request that has the position; ``Timestamp`` in s."""
        if self.position.number is not None:
            return {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": self.position.number}
        if self.position.time is not None:
            return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": self.position.time / 1000}
        return {"ShardIteratorType": "TRIM_HORIZON"}


@dataclass(frozen=True, slots=True)
class GetRecords:
    """Ask for records.

    Attributes:
        stream: name or ARN.
        shard_id: which.
        iterator: where they begin.
        limit: how many, 1 to 10,000.
    """

    stream: str
    shard_id: str
    iterator: str
    limit: int


Call = ListShards | DescribeStream | GetShardIterator | GetRecords


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of a stream.

    Attributes:
        created: when it was made, in s since the epoch; None if that may not be asked.
        retention: how long it keeps records, in ms; None if that may not be asked.
        arn: its ARN; None if that may not be asked.
    """

    created: int | None = None
    retention: int | None = None
    arn: str | None = None


@dataclass(frozen=True, slots=True)
class Records:
    """An answer to GetRecords. An aggregate is one record.

    Attributes:
        numbers: sequence numbers, rising.
        arrivals: in ms since the epoch; now and then they fall.
        sizes: bytes of each record, its key included.
        millis_behind: MillisBehindLatest.
        next_iterator: None at the end of a closed shard.
        content: the driver's own records, of which rows are referred to by index.
    """

    numbers: Sequence[str]
    arrivals: Sequence[int]
    sizes: Sequence[int]
    millis_behind: int
    next_iterator: str | None
    content: object = field(default=None, repr=False, compare=False)

    def rows_until(self, number: str | None) -> int:
        """How many records are not above a sequence number."""
        if number is None:
            return 0
        return bisect_right(self.numbers, int(number), key=int)


Answer = Sequence[Shard] | Described | str | Records
