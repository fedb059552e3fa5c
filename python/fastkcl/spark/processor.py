"""A batch processor that hands a shard's records to Spark, in tables of a size that Spark likes, in the background.

    process_batch ──▶ BatchBuffer ─▶ status         the daemon goes on while
                          │
                          └──▶ writer's thread: pa.Table ──▶ createDataFrame ──▶ write(df, context), or a sink
                                                                                       │
    a later request: checkpoint ◀──────────────── position of the last record written ─┘

The table is made of the batches' own buffers; the schema is explicit. Records count as stored when `write` returns, so
it has to run an action on the DataFrame; a sink returns the position up to which it has stored. After a death the
daemon delivers again from the last checkpoint: at least once for a function and for a TableSink; exactly once for a
sink with a position in its table, which drops the records that the table has.

The loop, which all processors of tables share, decides when to write and to checkpoint, and how to react to a failure:
`fastkcl.tables.processor`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Unpack, cast

from fastkcl import Position, RecordBatch
from fastkcl.monitoring import DEFAULT_REPORT_INTERVAL
from fastkcl.payloads.options import Payload, SchemaPayload
from fastkcl.processing.function import DEFAULT_CHECKPOINT_INTERVAL
from fastkcl.processing.processor import refuse_deferred
from fastkcl.spark.payload import Payloads, SinglePayload, payload_of
from fastkcl.spark.schema_payload import SchemaPayloads
from fastkcl.spark.server.session import DEFAULT_RECONNECT_TIMEOUT, Session
from fastkcl.spark.sinks.rows import ShardRows
from fastkcl.spark.targets import FunctionTarget, Through
from fastkcl.tables.bounds import Bounds, SingleBounds, bounds_of, check_names
from fastkcl.tables.processor import DEFAULT_SHUTDOWN_GRACE, WriteBehindProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fastkcl import ShardContext
    from fastkcl.monitoring import Monitor
    from fastkcl.spark.payload import PayloadFormat
    from fastkcl.spark.server.session import Spark
    from fastkcl.spark.sinks.sink import Sink
    from fastkcl.tables.progress import WriteProgress
    from fastkcl.tables.writer import Target
    from fastkcl.write_after import Run

__all__ = [
    "DEFAULT_SHUTDOWN_GRACE",
    "SparkProcessor",
    "WriteContext",
]


@dataclass(frozen=True, slots=True)
class WriteContext:
    """The content and the source of a DataFrame."""

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


class SingleOptions(SingleBounds, SinglePayload, total=False):
    """What `Bounds` and the payloads have, one by one."""


class SparkProcessor(WriteBehindProcessor[ShardRows]):
    """Writes a shard's records through Spark; for `fastkcl.run`.

    Args:
        sink: where records go. A sink of `fastkcl.spark.sinks`, each with its own guarantee. Or a
            function, called as ``write(df, context)`` with a DataFrame of the canonical schema
            (`fastkcl.spark.schema.SCHEMA`) and a `WriteContext`, which stores the records before it returns: at least
            once. Either is called in a separate thread, one call at a time.
        spark: a SparkSession, a function that makes one, ``"sc://host:port"``, ``"shared"``, ``"local[n]"``, or None
            for FASTKCL_SPARK, SPARK_REMOTE or ``"shared"``; see `fastkcl.spark.server.session`.
        stream: the stream's name, if ``run(stream=)`` and FASTKCL_STREAM do not give it.
        bounds: when batches are written, how large a table may be, and how much is held.
        checkpoint_interval: least seconds between two checkpoints.
        shutdown_grace: seconds, at the most, that a requested shutdown waits for the writes.
        reconnect_timeout: seconds, from its failure on, in which a write whose Connect server has gone is repeated.
        report_interval: seconds between two lines of metrics in the log; None for none. See `fastkcl.monitoring`.
        metrics_dir: folder for a Prometheus file; without it that of FASTKCL_METRICS_DIR, if that is set.
        payload: a `JsonPayload`, `AvroPayload` or `ProtobufPayload` for typed columns in the place of ``data``; a
            `BinaryPayload`, to unpack gzip; or ``"json"``, ``"avro"``, ``"protobuf"`` and ``"binary"``, with `single`.
            See `fastkcl.spark.payload`.
        accept_gap: go on where the daemon's checkpoint lies after the position of a sink's table, which ends the run
            otherwise: the records between are not delivered again. For the first start on a new table; without it,
            FASTKCL_ACCEPT_GAP=1 says so.
        single: what `Bounds` and the payloads have, each by its own name: ``max_age=5``.

    Raises:
        TypeError: `sink` is neither, an option does not exist or has another type, or one is given in a group and by
            its own name.
        ValueError: a bound out of range, or a `spark` that is not a URL.
        OSError: `metrics_dir` cannot be written to.
    """

    monitor: Monitor

    def __init__(
        self,
        sink: Sink | Callable[[DataFrame, WriteContext], object],
        *,
        spark: Spark = None,
        stream: str | None = None,
        bounds: Bounds | None = None,
        checkpoint_interval: float = DEFAULT_CHECKPOINT_INTERVAL,
        shutdown_grace: float = DEFAULT_SHUTDOWN_GRACE,
        reconnect_timeout: float = DEFAULT_RECONNECT_TIMEOUT,
        report_interval: float | None = DEFAULT_REPORT_INTERVAL,
        metrics_dir: str | os.PathLike[str] | None = None,
        payload: PayloadFormat | Payload = "binary",
        accept_gap: bool | None = None,
        **single: Unpack[SingleOptions],
    ) -> None:
        self._sink: Sink | None = None
        self._user_write: Callable[[DataFrame, WriteContext], object] | None = None
        if isinstance(sink, type):
            raise TypeError(f"sink must be an instance, not the class: {sink.__name__}(…)")
        if callable(getattr(sink, "open", None)) and callable(getattr(sink, "write", None)):
            self._sink = cast("Sink", sink)
        elif callable(sink):
            refuse_deferred(sink)
            self._user_write = sink
        else:
            raise TypeError(f"sink must be a sink, or a function of a DataFrame and a WriteContext, not {sink!r}")
        check_names(SparkProcessor, single, SingleOptions)
        of_payload = {name: value for name, value in single.items() if name in SinglePayload.__annotations__}
        bounds = bounds_of(bounds, {name: value for name, value in single.items() if name not in of_payload})
        self._session = Session(spark, reconnect_timeout=reconnect_timeout)
        self._payloads = _payloads_of(payload_of(payload, of_payload), bounds)
        super().__init__(
            bounds=bounds,
            stream=stream,
            checkpoint_interval=checkpoint_interval,
            shutdown_grace=shutdown_grace,
            report_interval=report_interval,
            metrics_dir=metrics_dir,
            accept_gap=accept_gap,
            fit=None if self._payloads is None else self._payloads.open,
        )

    def initialize(self, context: ShardContext) -> None:
        """Open the Spark session and the sink, so that errors surface now, not after a buffer's worth of records.

        Raises:
            ConfigurationError: the stream's name, a part of each record's key, is not set; Spark cannot parse JSON
                by the schema; or, as a SparkUnavailableError, pyspark or Java is missing, or Spark does not start.
            SinkError: the sink's table is damaged, or the daemon's checkpoint lies after its position.
            OSError: the sink's table cannot be read or written.
        """
        super().initialize(context)

    def _open(self, context: ShardContext, progress: WriteProgress) -> Target[ShardRows]:
        session = self._session.get()
        if self._payloads is not None:
            self._payloads.prepare(session)
        through = Through(self._session, self._wanted)
        if self._sink is None:
            assert self._user_write is not None
            return FunctionTarget(self._user_write, self._context, through)
        write = partial(_write, self._sink, through)
        return self._shard_table(self._sink, write, context, progress)

    def _rows(self, run: Run[RecordBatch, Position]) -> ShardRows:
        opened = None if self._payloads is None else self._payloads.exactly(run)
        return ShardRows(run.batches, legacy=self._order.legacy, cancelled=lambda: self._buffer.closed, opened=opened)

    def _release(self) -> None:
        self._session.close()

    def _context(self, rows: ShardRows, session: SparkSession, attempt: int) -> WriteContext:
        assert self._stream is not None
        return WriteContext(
            stream=self._stream,
            shard_id=self._shard_id,
            first_position=rows.first_position,
            last_position=rows.last_position,
            attempt=attempt,
            rows=rows.num_rows,
            bytes=rows.nbytes,
            spark=session,
        )


def _write(sink: Sink, through: Through, rows: ShardRows, attempt: int) -> Position:
    return through.call(lambda session, _attempt: sink.write(rows, session), attempt)


def _payloads_of(payload: Payload, bounds: Bounds) -> Payloads | SchemaPayloads | None:
    """How payloads are opened; None if there is nothing to open."""
    if isinstance(payload, SchemaPayload):
        return SchemaPayloads(payload, bounds)
    made = Payloads(payload, max_bytes=bounds.max_bytes, max_table_bytes=bounds.max_table_bytes)
    return made if made.needed else None
