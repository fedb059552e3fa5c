"""Reading a stream by plans: which records a batch has, and reading them anywhere, any number of times.

    offset n ──▶ Planner ──▶ calls ──▶ (a driver) ──▶ answers ──▶ Planner ──▶ offset n+1 ──▶ Range, one a shard
                                                                                                │
                              rows ◀── RangeReader ◀── answers ◀── (a driver) ◀── calls ◀───────┘

    offset ── the text that a checkpoint keeps: positions, and the first record of the batch in each shard
    calls ── the calls and answers that the state machines and their drivers exchange
    planner ── the streams of a query: the next calls, when the batch may be planned, at which offset it ends
    stream ── one stream: its list of shards, its retention, its outages
    look ── one shard: its next records, and how far a batch may reach beyond them
    generations ── which shards enter an offset, and which leave it
    ranges ── a closed range of records, or of time, and its reader
    taken ── the input of a look, from its trigger, and its result, for a batch
    outage ── how long a service is away
    losses ── positions that the stream has trimmed: how much is known of the loss, and the message

No call returns a shard's latest record, and time only finds some record near it. So a batch ends at a record that was
seen, or at the end of a closed shard. It is the closed ranges [first, end] of its shards, and both are in the offset
where it ends: a replay on another machine, days later, has the same rows. A range counts records of Kinesis, so an
aggregate is never cut. A shard is read after its parents, in a later batch.

Rules: no I/O and no clock. Each call is given the time. The memory of a process only saves calls: a planner with an
empty memory goes on from any offset, without a lost or doubled record.
"""

from fastkcl.kinesis.read.plan.calls import (
    Call,
    Described,
    DescribeStream,
    GetRecords,
    GetShardIterator,
    ListShards,
    Records,
)
from fastkcl.kinesis.read.plan.errors import CallError, OffsetError
from fastkcl.kinesis.read.plan.offset import END, TRIM, Offset, Position, StreamOffset
from fastkcl.kinesis.read.plan.planner import Head, Plan, Planner, PlanOptions
from fastkcl.kinesis.read.plan.ranges import Range, RangeReader, TimeRange, TimeRangeReader

__all__ = [
    "Call",
    "CallError",
    "DescribeStream",
    "Described",
    "END",
    "GetRecords",
    "GetShardIterator",
    "Head",
    "ListShards",
    "Offset",
    "OffsetError",
    "Plan",
    "PlanOptions",
    "Planner",
    "Position",
    "Range",
    "RangeReader",
    "Records",
    "StreamOffset",
    "TRIM",
    "TimeRange",
    "TimeRangeReader",
]
