"""Kinesis Data Streams without a daemon: for now, what fills a stream.

    put ──▶ aggregate ──▶ shards          PutRecords in batches, KPL aggregates, which shard a key belongs to

Rules: needs the extra ``kinesis``.
"""

from fastkcl.kinesis.aggregate import Aggregator, Entry, UserRecord
from fastkcl.kinesis.put import Filler, PutError, PutOptions, PutReport
from fastkcl.kinesis.shards import ShardMap

__all__ = ["Aggregator", "Entry", "Filler", "PutError", "PutOptions", "PutReport", "ShardMap", "UserRecord"]
