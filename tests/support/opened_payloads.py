"""Payloads opened as consumers open them, for the tests of payloads with a schema."""

from __future__ import annotations

from typing import Any

from fastkcl import RecordBatch
from fastkcl._core import CANONICAL_COLUMNS
from fastkcl.payloads.batches import BatchOpener
from spark_helpers import record_batch


def batch_of(data: list[bytes | None]) -> RecordBatch:
    return record_batch(range(1, len(data) + 1), data=data)


def opened(payload: Any, data: list[bytes | None]) -> list[dict[str, Any]]:
    """The payloads' columns, and ``_corrupt``."""
    table = BatchOpener(payload).open(batch_of(data))
    own = set(CANONICAL_COLUMNS) - {"data"}
    return [{name: value for name, value in row.items() if name not in own} for row in table.to_pylist()]


def good(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "_corrupt": None} for row in rows]
