"""Reports the writes of a shard, or of messages: a line in the log for each, and values for the monitor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fastkcl.stdio.log import logger
from fastkcl.tables.base import WriteCancelledError, in_one_line

if TYPE_CHECKING:
    from fastkcl.monitoring import Metrics
    from fastkcl.write_after import BatchBuffer, Run

__all__ = ["WriteProgress", "Written"]


class Written(Protocol):
    """Rows that are stored."""

    @property
    def num_rows(self) -> int:
        """How many."""

    @property
    def nbytes(self) -> int:
        """Bytes of the Arrow columns."""

    @property
    def corrupt_payloads(self) -> int:
        """Payloads that could not be opened."""

    @property
    def millis_behind_latest(self) -> int | None:
        """How far the last of them was behind the newest record, if that is known."""


class WriteProgress:
    """Counts writes; for the writer's thread.

    Args:
        origin: for the log: the shard, or whatever the rows come from.
        metrics: where the values go.
        buffer: the values show its held rows.
    """

    def __init__(self, origin: str, metrics: Metrics, buffer: BatchBuffer[Any, Any]) -> None:
        self._origin = origin
        self._buffer = buffer
        counter = metrics.counter
        self._writes = counter("writes", "Writes that have stored records.")
        self._records = counter("written_records", "Records written.")
        self._bytes = counter("written_bytes", "Bytes of the Arrow columns of the records written.")
        self._seconds = counter("write_seconds", "Time in writes, failed ones included.")
        self._failures = counter("write_failures", "Writes that have failed, each attempt counted.")
        self._corrupt = counter(
            "corrupt_payloads", "Payloads written to _corrupt, those that Spark finds not included."
        )
        self._last = metrics.timestamp("last_write", "When the last write has stored records.")
        self._dropped = counter("dropped_records", "Records that came again and were in the sink's table already.")
        metrics.gauge("held_records", "Records taken over from the daemon and not written yet.", lambda: buffer.rows)
        metrics.gauge("held_bytes", "Memory that they keep allocated.", lambda: buffer.capacity_bytes)

    def repeated(self) -> None:
        """An attempt of a write has failed that the table itself makes again, and logs."""
        self._failures.add()

    def failed(self, run: Run[Any, Any], error: BaseException, seconds: float) -> None:
        """A write has failed. It is logged here, as the exception itself surfaces at the next request only."""
        self._seconds.add(seconds)
        if isinstance(error, WriteCancelledError):
            return
        if self._buffer.closed:
            # The session is released while a write runs, and the process ends; its exception says no more.
            logger().info(
                "%s: a write of %s rows was cut off after %.1f s, as its rows were not wanted any more: %s",
                self._origin,
                f"{run.rows:,}",
                seconds,
                type(error).__name__,
            )
            return
        self._failures.add()
        logger().warning(
            "%s: write %d: %s rows (%s) failed after %.1f s, attempt %d: %s",
            self._origin,
            self._writes.value + 1,
            f"{run.rows:,}",
            _megabytes(run.nbytes),
            seconds,
            run.attempt,
            in_one_line(error),
        )

    def written(self, rows: Written | None, seconds: float) -> None:
        """Rows are stored now; None if the table had all of them."""
        self._seconds.add(seconds)
        if rows is None:
            return
        self._writes.add()
        self._last.touch()
        self._records.add(rows.num_rows)
        self._bytes.add(rows.nbytes)
        self._corrupt.add(rows.corrupt_payloads)
        behind = rows.millis_behind_latest
        logger().info(
            "%s: write %d: %s rows (%s) in %.1f s%s",
            self._origin,
            self._writes.value,
            f"{rows.num_rows:,}",
            _megabytes(rows.nbytes),
            seconds,
            "" if behind is None else f", {behind / 1000:,.1f} s behind",
        )

    def dropped(self, rows: int) -> None:
        """Rows were in the table already."""
        self._dropped.add(rows)


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"
