"""Shared by tests and benches of typed payloads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastkcl import RecordBatch
from fastkcl.spark.payload import Payloads, payload_of
from spark_helpers import record_batch

MIB = 1 << 20


def payloads(
    payload: Any = "json",
    schema: Any = None,
    compression: Any = "none",
    max_payload_bytes: int | None = None,
    *,
    max_bytes: int = 16 * MIB,
    max_table_bytes: int = 112 * MIB,
) -> Payloads:
    single = {"schema": schema, "compression": compression, "max_payload_bytes": max_payload_bytes}
    return Payloads(payload_of(payload, single), max_bytes=max_bytes, max_table_bytes=max_table_bytes)  # type: ignore[arg-type]


def batch_of(data: Iterable[bytes]) -> RecordBatch:
    listed = list(data)
    return record_batch(range(1, len(listed) + 1), data=listed)


def frame(session: Any, data: Iterable[bytes], schema: Any, **options: Any) -> Any:
    opener = payloads(schema=schema, **options)
    opener.prepare(session)
    return opener.open([batch_of(data)]).data_frame(session)
