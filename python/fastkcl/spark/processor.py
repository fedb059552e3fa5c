"""A batch processor that hands a shard's records to Spark, in tables of a size that Spark likes.

    process_batch ──▶ BatchBuffer ──▶ pa.Table ──▶ createDataFrame ──▶ write(df, context) ──▶ checkpoint

The table is made of the batches' own buffers; the schema is explicit. What `write` has returned from counts as
stored, so it has to run an action on the DataFrame, and a position is checkpointed only when everything up to it is
stored. After a death the daemon delivers again from the last checkpoint: at least once. Each record's key is
(stream, shard, sequenceNumber, subSequenceNumber).

When it writes, and when it checkpoints (both numbers of the last record written, never "everything delivered"):

    process_batch        writes when `max_bytes` or `max_records` are reached; then checkpoints, at most every
                         `checkpoint_interval`, what is written and not checkpointed
    an empty batch       a tick: the chance for a checkpoint
    shard ended          writes everything, then checkpoints the end of the shard
    shutdown requested   writes everything, then checkpoints what is written
    lease lost           drops what is not written; the shard's new owner gets it

In the legacy dialect the user records of an aggregate share one sequence number, and nothing tells them apart. So a
write never ends between two records of the same number: the last number waits for the next batch or the shard's end,
also at a requested shutdown (it is delivered again).

What a refused checkpoint does:

    may be retried       logged, tried again at the next request; after a requested shutdown there is none, and what was
                         written behind the last position comes again. At a shard's end: tried a few times, then raised
    ShutdownException    the lease is another worker's: logged, what is held and what still comes is left to the new
                         owner, leaseLost is awaited. At a shard's end it is raised
    anything else        raised

What a failing `write` does: it is raised, so `fastkcl.run` acts by ``retries``, ``dead_letter`` and ``on_error``. A
retry in place repeats the same rows. A dead letter holds everything behind the last record written (`give_up`), as any
of it can be what is wrong; then the shard goes on behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fastkcl import BatchProcessor, CheckpointError, ConfigurationError, Position, RecordBatch
from fastkcl.kcl.function import DEFAULT_CHECKPOINT_INTERVAL
from fastkcl.spark.buffer import BatchBuffer, Run
from fastkcl.spark.session import MAX_CONNECT_BYTES, Session
from fastkcl.stdio.log import logger

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from fastkcl import Checkpointer, ShardContext
    from fastkcl.spark.session import Spark

__all__ = ["DEFAULT_MAX_BYTES", "DEFAULT_MAX_RECORDS", "DEFAULT_MAX_TABLE_BYTES", "SparkProcessor", "WriteContext"]

DEFAULT_MAX_BYTES: Final = 16 * 1024 * 1024
"""A Connect server needs some five times this for each child that writes: four fit into 1 GB, Spark's default."""
DEFAULT_MAX_RECORDS: Final = 500_000
DEFAULT_MAX_TABLE_BYTES: Final = 112 * 1024 * 1024
"""Room is left below `MAX_CONNECT_BYTES` for what Arrow's stream format adds."""

_SHARD_END_RETRIES: Final = 5  # 1 + 2 + 4 + 8 + 16 s of pauses: there is no next request


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What a DataFrame holds and where it comes from."""

    stream: str
    shard_id: str
    first_position: Position
    """Position of the first record."""
    last_position: Position
    """Position of the last record. The records in between are all there, in order."""
    attempt: int
    """1 + the writes that have failed since the last one that did not."""
    rows: int
    bytes: int
    """Of the Arrow columns."""
    spark: SparkSession
    """The session of the DataFrame."""


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
        """The sequence number, where nothing else tells the records of an aggregate apart."""
        record = batch[row]
        return record.sequence_number if self.legacy or record.sub_sequence_number is None else None


class SparkProcessor(BatchProcessor):
    """Writes a shard's records through Spark; for `fastkcl.run`.

    Args:
        write: called as ``write(df, context)`` with a DataFrame of the canonical schema
            (`fastkcl.spark.schema.SCHEMA`) and a `WriteContext`. It stores the records before it returns.
        spark: a SparkSession, a function that makes one, ``"sc://host:port"``, ``"local[n]"``, or None for
            FASTKCL_SPARK, SPARK_REMOTE or a JVM of this process; see `fastkcl.spark.session`.
        stream: the stream's name, when ``run(stream=)`` and FASTKCL_STREAM do not tell it.
        max_bytes: write when the batches that are held keep this many bytes allocated.
        max_records: write when this many records are held.
        max_table_bytes: cut tables so that none is larger; at most `MAX_CONNECT_BYTES`.
        checkpoint_interval: least seconds between two checkpoints.

    Raises:
        TypeError: `write` can't be called, or `spark` is something else.
        ValueError: a bound out of range, or a `spark` that is no URL.
    """

    def __init__(
        self,
        write: Callable[[DataFrame, WriteContext], object],
        *,
        spark: Spark = None,
        stream: str | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_records: int = DEFAULT_MAX_RECORDS,
        max_table_bytes: int = DEFAULT_MAX_TABLE_BYTES,
        checkpoint_interval: float = DEFAULT_CHECKPOINT_INTERVAL,
    ) -> None:
        if not callable(write):
            raise TypeError(f"write must be a function of a DataFrame and a WriteContext, not {write!r}")
        if not 1 <= max_table_bytes <= MAX_CONNECT_BYTES:
            raise ValueError(
                f"max_table_bytes={max_table_bytes}: must be 1 to {MAX_CONNECT_BYTES}, what Spark Connect takes at most"
            )
        if not checkpoint_interval >= 0:
            raise ValueError(f"checkpoint_interval={checkpoint_interval!r}: must be seconds, 0 or more")
        self._user_write = write
        self._session = Session(spark)
        self._stream = stream
        self._shard_id = ""
        self._ended = False
        self._lease_gone = False
        self._left_records = 0
        self._order = ShardOrder()
        self._buffer: BatchBuffer[RecordBatch, Position] = BatchBuffer(
            self._write,
            self._order,
            max_bytes=max_bytes,
            max_records=max_records,
            max_run_bytes=max_table_bytes,
            commit_interval=checkpoint_interval,
        )

    def initialize(self, context: ShardContext) -> None:
        """Open the Spark session, so that a wrong address fails now and not after a buffer's worth of records.

        Raises:
            ConfigurationError: nobody has told the stream's name, a part of each record's key; or, as a
                SparkUnavailableError, pyspark or Java is missing, or Spark does not start.
        """
        self._stream = self._stream or context.stream
        if not self._stream:
            raise ConfigurationError(
                "the stream's name is missing: every stream has a shardId-000000000000, so a record's key needs it."
                " Set FASTKCL_STREAM in the daemon's environment, or give stream="
            )
        self._shard_id = context.shard_id
        self._order.legacy = context.dialect == "legacy"
        self._session.get()

    def process_batch(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        """Hold the records; write and checkpoint when it is time.

        Raises:
            Exception: what `write` or Spark raised. The batch is not held then, and can be given again.
            CheckpointError: a checkpoint was refused for good.
            ValueError: a sequence number is not decimal.
        """
        if self._lease_gone:
            self._left_records += batch.num_rows
            return
        self._buffer.add(batch, lambda position: self._checkpoint(checkpointer, position))
        if self._lease_gone:  # the checkpoint has just told
            self._leave()

    def lease_lost(self) -> None:
        """Leave what is not written to the shard's new owner."""
        self._leave()
        if self._left_records:
            logger().warning(
                "%s: %d records that came after the lease had moved were left to its new owner",
                self._shard_id,
                self._left_records,
            )
        self._session.close()

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """Write everything that is held, then checkpoint the end of the shard.

        Raises:
            Exception: what `write` or Spark raised; nothing is checkpointed then.
            CheckpointError: the checkpoint was refused. It is also raised without asking after a ShutdownException,
                as records were left to the new owner.
        """
        if self._lease_gone:
            raise CheckpointError("ShutdownException")
        self._ended = True
        self._buffer.flush(at_end=True)
        checkpointer.checkpoint(retries=_SHARD_END_RETRIES)
        self._session.close()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Write what is held, then checkpoint what is written.

        Raises:
            Exception: what `write` or Spark raised.
            CheckpointError: a checkpoint was refused for good.
        """
        if self._lease_gone:
            return
        self._buffer.flush(at_end=False)
        self._buffer.commit(lambda position: self._checkpoint(checkpointer, position))

    def give_up(self, batch: RecordBatch | None) -> list[RecordBatch]:
        """Let go of all records behind the last one written; nothing if it was a checkpoint that failed.

        In the legacy dialect the last sequence number stays held before the shard's end, as it may go on.
        """
        return self._buffer.give_up(batch, at_end=self._ended)

    def _write(self, run: Run[RecordBatch, Position]) -> None:
        import pyarrow as pa

        table = pa.Table.from_batches([pa.record_batch(batch) for batch in run.batches])
        df = self._data_frame(table)
        assert self._stream is not None
        assert run.first_position is not None
        assert run.last_position is not None
        context = WriteContext(
            stream=self._stream,
            shard_id=self._shard_id,
            first_position=run.first_position,
            last_position=run.last_position,
            attempt=run.attempt,
            rows=run.rows,
            bytes=table.nbytes,
            spark=df.sparkSession,
        )
        self._user_write(df, context)

    def _data_frame(self, table: pa.Table) -> DataFrame:
        from fastkcl.spark.schema import SCHEMA

        session = self._session.get()
        try:
            return session.createDataFrame(table, schema=SCHEMA)
        except Exception as error:
            if not self._session.reopenable:
                raise
            # Nothing has been written yet, so trying again can double nothing.
            logger().warning("%s: opening a new Spark session, the old one fails: %s", self._shard_id, error)
        return self._session.reopen().createDataFrame(table, schema=SCHEMA)

    def _checkpoint(self, checkpointer: Checkpointer, position: Position | None) -> bool:
        # A null checkpoint would cover records that are held, not written.
        assert position is not None
        try:
            checkpointer.checkpoint(position)
        except CheckpointError as error:
            if error.value == "ShutdownException":
                self._lease_gone = True
                logger().warning("%s: checkpoint refused: %s; waiting for leaseLost", self._shard_id, error)
            elif error.retryable:
                logger().warning(
                    "%s: checkpoint at %s refused: %s; what is written stays to be checkpointed",
                    self._shard_id,
                    _text(position),
                    error,
                )
            else:
                raise
            return False
        return True

    def _leave(self) -> None:
        """Drop what is held: its shard is another worker's."""
        first, last = self._buffer.first_position, self._buffer.last_position
        if first is not None and last is not None:
            logger().warning(
                "%s: %d records from %s to %s were not written; the new owner of the lease gets them",
                self._shard_id,
                self._buffer.rows,
                _text(first),
                _text(last),
            )
        self._buffer.discard()


def _text(position: Position) -> str:
    if position.sub_sequence_number is None:
        return position.sequence_number
    return f"{position.sequence_number}/{position.sub_sequence_number}"
