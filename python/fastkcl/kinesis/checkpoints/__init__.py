"""Where consumers keep their positions, and divide the shards among them.

    base ── the protocol of a checkpointer, and what implementations share
    memory  in the process

Rules: `base` says what a checkpointer promises; nothing here knows of the consumer.
"""

from fastkcl.kinesis.checkpoints.base import (
    SHARD_END,
    BaseCheckPointer,
    BindsMetrics,
    CheckPointer,
    EndsShards,
    ListsShards,
    Place,
)
from fastkcl.kinesis.checkpoints.memory import MemoryCheckPointer

__all__ = [
    "SHARD_END",
    "BaseCheckPointer",
    "BindsMetrics",
    "CheckPointer",
    "EndsShards",
    "ListsShards",
    "MemoryCheckPointer",
    "Place",
]
