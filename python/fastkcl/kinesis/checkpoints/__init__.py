"""The stores in which consumers keep their positions, and by which they divide the shards.

    base ── the protocol of a checkpointer, and the common parts of implementations
      ├─ memory                                   in the process
      └─ leased ── shards that several processes share: heartbeats, shares, lost leases, manual_checkpoint
           ├─ redis                               as async-kinesis keeps them
           ├─ dynamodb ─┬─ dynamodb_table         the same
           └─ kcl ──────┘                         KCL's own lease table

Rules: `base` defines the promises of a checkpointer. Nothing here depends on the consumer. Only the modules that need
the clients of Redis and AWS import them.
"""

from fastkcl.kinesis.checkpoints.base import (
    SHARD_END,
    STANDALONE_STREAM_LABEL,
    BaseCheckPointer,
    BindsMetrics,
    CheckPointer,
    EndsShards,
    ListsShards,
    Place,
    SharesShards,
)
from fastkcl.kinesis.checkpoints.dynamodb import DynamoDBCheckPointer
from fastkcl.kinesis.checkpoints.kcl import KCLCheckPointer
from fastkcl.kinesis.checkpoints.leased import LeasedCheckPointer
from fastkcl.kinesis.checkpoints.memory import MemoryCheckPointer
from fastkcl.kinesis.checkpoints.redis import RedisCheckPointer

__all__ = [
    "SHARD_END",
    "STANDALONE_STREAM_LABEL",
    "BaseCheckPointer",
    "BindsMetrics",
    "CheckPointer",
    "DynamoDBCheckPointer",
    "EndsShards",
    "KCLCheckPointer",
    "LeasedCheckPointer",
    "ListsShards",
    "MemoryCheckPointer",
    "Place",
    "RedisCheckPointer",
    "SharesShards",
]
