"""A batch processor that collects a shard's records and writes them to a table in the background.

    process_batch ──▶ BatchBuffer ─▶ status         the daemon continues while
                          │
                          └──▶ writer's thread: missing rows ──▶ the table, or a function
                                                                        │
    a later request: checkpoint ◀── position of the last record written ┘

A position is checkpointed only when everything up to it is stored. After a death the daemon delivers again from the
last checkpoint: a table with a position drops the records that it has. Each record's key is (stream, shard,
sequenceNumber, subSequenceNumber).

It writes and checkpoints at these events (both numbers of the last record written, never "everything delivered"):

    bounds reached       `max_bytes` or `max_records` collected, or `max_age` since the first of them: the writer's
                         thread writes them, also without a request
    any batch            checkpoints the written records, at most every `checkpoint_interval`; waits
                         while `max_held_bytes` are held. An empty batch is a tick: the chance for a checkpoint
    shard ended          writes everything, then checkpoints the end of the shard
    shutdown requested   writes everything, for `shutdown_grace` seconds at most, then checkpoints the written records
    lease lost           drops unwritten records; the shard's new owner gets them. A running write of a sink does not
                         commit any more

In the legacy dialect the user records of an aggregate share one sequence number, and nothing distinguishes them. So a
write never ends between two records of the same number: the last number waits for the next batch or the shard's end,
also at a requested shutdown (it is delivered again).

The effect of a refused checkpoint:

    may be retried       logged, tried again at the next request; after a requested shutdown there is none, and records
                         that were written after the last position come again. At a shard's end: tried a few times, then
                         raised
    ShutdownException    the lease is another worker's: logged, held records and those that still come are left to the
                         new owner, leaseLost is awaited. At a shard's end it is raised
    anything else        raised

The next request raises the error of a failed write, so `fastkcl.run` acts by ``retries``, ``dead_letter`` and
``on_error``. A retry in place repeats the same write. A table that fails is asked first how far it is: a write that
failed after its commit is done. A dead letter holds everything after the last record written (`give_up`), as any of
these records can be the cause; then the shard continues after them.

Threads: signals, checkpoints and the dialogue are the main thread's; writes run in the writer's, one at a time. A
subclass chooses the writer: `fastkcl.tables.TableProcessor`, `fastkcl.spark.SparkProcessor`.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from fastkcl import BatchProcessor, CheckpointError, ConfigurationError, Position, RecordBatch
from fastkcl._core import DIALECTS
from fastkcl.monitoring import DEFAULT_REPORT_INTERVAL, Monitor
from fastkcl.processing.function import DEFAULT_CHECKPOINT_INTERVAL
from fastkcl.stdio.log import logger
from fastkcl.tables.base import Shard, place
from fastkcl.tables.bounds import Bounds
from fastkcl.tables.progress import WriteProgress
from fastkcl.tables.rows import ShardRows
from fastkcl.tables.shard_table import Opens, ShardTable
from fastkcl.tables.writer import Target, Writer
from fastkcl.write_after import BatchBuffer, Run

if TYPE_CHECKING:
    from fastkcl import Checkpointer, ShardContext
    from fastkcl.write_after import Fitted

__all__ = [
    "DEFAULT_SHUTDOWN_GRACE",
    "ShardOrder",
    "WriteBehindProcessor",
]

DEFAULT_SHUTDOWN_GRACE: Final = 20.0
"""Less than the 30 s for which `fastkcl.run` continues after a signal."""

_JOIN_SECONDS: Final = 1.0  # for a writer that has nothing to do any more; one that hangs ends with the process
_SHARD_END_RETRIES: Final = 5  # 1 + 2 + 4 + 8 + 16 s of pauses: there is no next request

R = TypeVar("R", bound=ShardRows)


class ShardOrder:
    """Positions of a shard's records, and which of them must stay together."""

    legacy = False
    """Whether checkpoints of this dialogue know no sub-sequence numbers."""

    def position(self, batch: RecordBatch, row: int) -> Position:
        """Both numbers of a record; only the first in the legacy dialect.

        Raises:
            ValueError: the sequence number is not decimal.
        """
        record = batch[row]
        return Position(record.sequence_number, None if self.legacy else record.sub_sequence_number)

    def group(self, batch: RecordBatch, row: int) -> str | None:
        """The sequence number, where nothing else distinguishes the records of an aggregate."""
        record = batch[row]
        return record.sequence_number if self.legacy or record.sub_sequence_number is None else None


class WriteBehindProcessor(BatchProcessor, Generic[R]):
    """What all processors that write in the background have in common.

    Args:
        stream: the stream's name, if ``run(stream=)`` and FASTKCL_STREAM do not give it.
        bounds: when batches are written, how large a table may be, and how much is held.
        checkpoint_interval: least seconds between two checkpoints.
        shutdown_grace: seconds, at the most, that a requested shutdown waits for the writes.
        report_interval: seconds between two lines of metrics in the log; None for none. See `fastkcl.monitoring`.
        metrics_dir: folder for a Prometheus file; without it that of FASTKCL_METRICS_DIR, if that is set.
        accept_gap: go on where the daemon's checkpoint lies after the table's position, which ends the run otherwise.
            Without it, FASTKCL_ACCEPT_GAP=1 says so.
        fit: opens payloads; see `BatchBuffer`.

    Raises:
        ValueError: a bound out of range.
        OSError: `metrics_dir` cannot be written to.
    """

    monitor: Monitor

    def __init__(
        self,
        *,
        bounds: Bounds,
        stream: str | None = None,
        checkpoint_interval: float = DEFAULT_CHECKPOINT_INTERVAL,
        shutdown_grace: float = DEFAULT_SHUTDOWN_GRACE,
        report_interval: float | None = DEFAULT_REPORT_INTERVAL,
        metrics_dir: str | os.PathLike[str] | None = None,
        accept_gap: bool | None = None,
        fit: Callable[[Sequence[RecordBatch]], Fitted] | None = None,
    ) -> None:
        for name, seconds in (("checkpoint_interval", checkpoint_interval), ("shutdown_grace", shutdown_grace)):
            if not seconds >= 0:
                raise ValueError(f"{name}={seconds!r}: must be seconds, 0 or more")
        self.monitor = Monitor(report_interval=report_interval, metrics_dir=metrics_dir)
        self._stream = stream
        self._accept_gap = accept_gap
        self._shutdown_grace = shutdown_grace
        self._shard_id = ""
        self._ended = False
        self._lease_gone = False
        self._left_records = 0
        self._order = ShardOrder()
        self._table: ShardTable[R] | None = None  # if there is one that keeps positions
        self._grace_ends: float | None = None  # once a shutdown is requested, on the clock of time.monotonic
        self._buffer: BatchBuffer[RecordBatch, Position] = bounds.buffer(
            self._write, self._order, commit_interval=checkpoint_interval, fit=fit
        )

    @abstractmethod
    def _open(self, context: ShardContext, progress: WriteProgress) -> Target[R]:
        """Open what is written to, so that errors surface now, not after a buffer's worth of records."""

    @abstractmethod
    def _rows(self, run: Run[RecordBatch, Position]) -> R:
        """The rows of a run as they are written."""

    def _release(self) -> None:  # noqa: B027 - most have nothing to release
        """Let go of what `_open` has opened, if it must be."""

    @property
    def dropped_records(self) -> int:
        """Records that came again although the table has them, and were dropped."""
        return 0 if self._table is None else self._table.dropped_records

    def initialize(self, context: ShardContext) -> None:
        """Open what is written to, so that errors surface now, not after a buffer's worth of records.

        Raises:
            ConfigurationError: the stream's name, a part of each record's key, is not set; or something that is
                needed is missing.
            SinkError: the table is damaged, or the daemon's checkpoint lies after its position.
            OSError: the table cannot be read or written.
        """
        self._stream = self._stream or context.stream
        if not self._stream:
            raise ConfigurationError(
                "the stream's name is missing: every stream has a shardId-000000000000, so a record's key needs it."
                " Set FASTKCL_STREAM in the daemon's environment, or give stream="
            )
        self._shard_id = context.shard_id
        self._order.legacy = not DIALECTS[context.dialect].sub_sequence_numbers
        progress = WriteProgress(self._shard_id, self.monitor.metrics, self._buffer)
        self._writer = Writer(self._open(context, progress), progress)

    def process_batch(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        """Hold the records, to be written in the background; checkpoint the written ones when it is time.

        Raises:
            Exception: the error of a write of earlier records. The batch is not held then, and can be given again.
            CheckpointError: a checkpoint was refused for good.
            ValueError: a sequence number is not decimal.
        """
        if self._lease_gone:
            self._left_records += batch.num_rows
            return
        self._buffer.add(batch, lambda position: self._checkpoint(checkpointer, position))
        if self._lease_gone:  # the checkpoint has just shown it
            self._leave()

    def lease_lost(self) -> None:
        """Leave unwritten records to the shard's new owner."""
        self._leave()
        if self._left_records:
            logger().warning(
                "%s: %d records that came after the lease had moved were left to its new owner",
                self._shard_id,
                self._left_records,
            )
        self._close()

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """Write everything that is held, then checkpoint the end of the shard.

        Raises:
            Exception: the error of a write; nothing is checkpointed then.
            CheckpointError: the checkpoint was refused. It is also raised without asking after a ShutdownException,
                as records were left to the new owner.
        """
        if self._lease_gone:
            raise CheckpointError("ShutdownException")
        self._ended = True
        self._buffer.flush(at_end=True)
        if self._table is not None:
            self._table.tell_if_all_was_dropped()
        checkpointer.checkpoint(retries=_SHARD_END_RETRIES)
        self._close()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Write held records, then checkpoint the written ones, when the grace time is over at the latest.

        Raises:
            Exception: the error of a write.
            CheckpointError: a checkpoint was refused for good.
        """
        if self._lease_gone:
            return
        if not self._write_held():
            logger().warning(
                "%s: %d records were not written within the %g s of shutdown_grace; they are delivered again",
                self._shard_id,
                self._buffer.rows,
                self._shutdown_grace,
            )
        if self._table is not None:
            self._table.tell_if_all_was_dropped()
        self._buffer.commit(lambda position: self._checkpoint(checkpointer, position))

    def _write_held(self) -> bool:
        """Have everything written that is held; False if the grace time is over.

        Raises:
            Exception: the error of a write.
        """
        if self._grace_ends is None:  # or this is a retry
            self._grace_ends = time.monotonic() + self._shutdown_grace
        return self._buffer.flush(at_end=False, timeout=self._grace_ends - time.monotonic())

    def give_up(self, batch: RecordBatch | None) -> Sequence[RecordBatch]:
        """Let go of all records after the last one written; of none if it was a checkpoint that failed.

        In the legacy dialect the last sequence number stays held before the shard's end, as it may go on. What the
        table has all the same is not among them.

        Raises:
            Exception: the table's position cannot be read.
        """
        given = self._buffer.give_up(batch, at_end=self._ended)
        return given if self._table is None else self._table.without_stored(given)

    def run_ended(self) -> None:
        """Let nothing be written after the run: a running write is no longer committed."""
        if self._buffer.discard() and not self._lease_gone:
            logger().warning("%s: the run ends before everything was written; it is delivered again", self._shard_id)
        self._buffer.join(_JOIN_SECONDS)

    def _shard_table(
        self, table: Opens, write: Callable[[R, int], Position], context: ShardContext, progress: WriteProgress
    ) -> ShardTable[R]:
        """A table that keeps positions, opened for the shard."""
        assert self._stream is not None
        self._table = ShardTable(
            table,
            write,
            Shard(self._stream, self._shard_id),
            legacy=self._order.legacy,
            dropped=progress.dropped,
            checkpoint=_checkpoint_of(context),
            accept_gap=_accepts_gap() if self._accept_gap is None else self._accept_gap,
        )
        return self._table

    def _write(self, run: Run[RecordBatch, Position]) -> None:
        """Make a run durable; in the writer's thread."""
        self._writer.write(run, self._rows(run))

    def _wanted(self) -> bool:
        """Whether the rows of the running write are still this worker's; in the writer's thread."""
        return not self._buffer.closed

    def _close(self) -> None:
        self._buffer.discard()
        self._buffer.join(_JOIN_SECONDS)
        self._release()

    def _checkpoint(self, checkpointer: Checkpointer, position: Position | None) -> bool:
        # A null checkpoint would cover records that are held, not written.
        assert position is not None
        if self._table is not None:
            try:
                if not self._table.before_checkpoint(position):
                    return False
            except OSError as error:
                logger().warning("%s: no checkpoint at %s yet: %s", self._shard_id, place(position), error)
                return False
        try:
            checkpointer.checkpoint(position)
        except CheckpointError as error:
            if error.value == "ShutdownException":
                logger().warning("%s: checkpoint refused: %s; waiting for leaseLost", self._shard_id, error)
                self._lease_gone = True
            elif error.retryable:
                logger().warning(
                    "%s: checkpoint at %s refused: %s; written records wait for the next checkpoint",
                    self._shard_id,
                    place(position),
                    error,
                )
            else:
                raise
            return False
        return True

    def _leave(self) -> None:
        """Drop held records: their shard is another worker's."""
        self._lease_gone = True
        held = self._buffer.discard()
        if held:
            logger().warning(
                "%s: %d records from %s to %s were not written; the new owner of the lease gets them",
                self._shard_id,
                sum(map(len, held)),
                place(self._order.position(held[0], 0)),
                place(self._order.position(held[-1], len(held[-1]) - 1)),
            )


def _checkpoint_of(context: ShardContext) -> Position | None:
    """The position of the daemon's last checkpoint; None if there is none, or it is not known."""
    number = context.sequence_number
    return Position(number, context.sub_sequence_number) if number and number.isdecimal() else None


def _accepts_gap() -> bool:
    text = os.environ.get("FASTKCL_ACCEPT_GAP", "")
    if text not in ("", "0", "1"):
        raise ConfigurationError(f"FASTKCL_ACCEPT_GAP={text}: must be 1 to accept a gap, or 0")
    return text == "1"
