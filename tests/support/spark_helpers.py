"""Shared by the tests of Spark: batches, checkpointers that answer as told, and one Spark for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checkpointers import FakeCheckpointer as FakeCheckpointer
from fastkcl import ProcessRecords, RecordBatch, ShardContext, _core

ARRIVAL = 1_700_000_000_000


def record_batch(
    numbers: Sequence[int | str],
    *,
    sub: Sequence[int | None] | None = None,
    data: Sequence[bytes] | None = None,
    dialect: str = "modern",
) -> RecordBatch:
    """A batch as it comes off the wire; sub-sequence numbers are 0, or absent in the legacy dialect."""
    count = len(numbers)
    line = _core.encode_process_records(
        data or [f"payload {number}".encode() for number in numbers],
        [f"key-{number}" for number in numbers],
        [str(number) for number in numbers],
        None if dialect == "legacy" else sub or [0] * count,
        [ARRIVAL + index for index in range(count)],
        millis_behind_latest=0,
        dialect=dialect,  # type: ignore[arg-type]
    )
    message = _core.decode_line(line)
    assert isinstance(message, ProcessRecords)
    return message.batch


def shard_context(
    *,
    stream: str | None = "events",
    shard_id: str = "shardId-000000000007",
    dialect: Any = "modern",
    checkpoint: str = "TRIM_HORIZON",
) -> ShardContext:
    return ShardContext(
        stream=stream, shard_id=shard_id, sequence_number=checkpoint, sub_sequence_number=0, dialect=dialect
    )
