"""Hands batches of messages without positions to Spark, from any protocol: at least once.

    MessageBatch ─▶ add ─▶ BatchBuffer ─▶ writer's thread: pa.Table ─▶ createDataFrame ─▶ write(df, context), or a sink
                    flush: returns when everything added is stored ◀───────────────────────────┘

It is `SparkProcessor` without the shard: the same buffer, sessions and sinks, and no position that could be kept in a
table. So nothing can drop messages that come a second time: a sender that repeats a request because its answer was lost
gets its messages stored twice. Doubles are found by your own column, e.g. a number from the message's content.

Use by a protocol:

- A request with an answer (DKB's EOP): `add` and `flush`, then answer. Answered messages are stored.
- Messages without one (ProcessV1's Data): `add`, which writes in the background; `flush` at the end. Messages
  that were added and not stored are lost with the process, unless their sender keeps them and sends them again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self, Unpack, cast

from fastkcl._core import MessageBatch
from fastkcl.monitoring import Metrics
from fastkcl.processing.processor import refuse_deferred
from fastkcl.spark.server.session import DEFAULT_RECONNECT_TIMEOUT, Session
from fastkcl.spark.targets import FunctionTarget, Through
from fastkcl.stdio.log import logger
from fastkcl.tables.base import WriteCancelledError
from fastkcl.tables.bounds import Bounds, SingleBounds, bounds_of, check_names
from fastkcl.tables.progress import WriteProgress
from fastkcl.tables.writer import Target, Writer
from fastkcl.write_after import BatchBuffer, Run, Unordered

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import DataFrame, SparkSession

    from fastkcl.spark.server.session import Spark
    from fastkcl.spark.sinks.sink import Frame

__all__ = ["MessageContext", "MessageRows", "MessageSink", "MessageWriter"]

_JOIN_SECONDS: Final = 1.0  # for a writer that has nothing to do any more; one that hangs ends with the process


@dataclass(frozen=True, slots=True)
class MessageContext:
    """The content and the source of a DataFrame of messages."""

    source: str
    """As given to `MessageWriter`."""
    attempt: int
    """1 + the writes that have failed since the last one that did not."""
    rows: int
    bytes: int
    """Of the Arrow columns."""
    spark: SparkSession
    """The session of the DataFrame."""


class MessageSink(Protocol):
    """A table that takes rows of any schema, e.g. `fastkcl.spark.sinks.TableSink`."""

    def append(self, rows: Frame, session: SparkSession) -> None:
        """Make rows durable.

        Raises:
            Exception: some of the rows may be stored, or all.
        """


class MessageRows:
    """Messages as a sink takes them.

    Args:
        batches: of one schema, in order; none of them empty.
        cancelled: whether the rows are not wanted any more; asked by the thread that writes them.
    """

    corrupt_payloads = 0
    millis_behind_latest: int | None = None

    def __init__(self, batches: Sequence[MessageBatch], cancelled: Callable[[], bool]) -> None:
        self._batches = tuple(batches)
        self._cancelled = cancelled

    @property
    def num_rows(self) -> int:
        """Messages, at least one."""
        return sum(len(batch) for batch in self._batches)

    @property
    def nbytes(self) -> int:
        """Bytes of the Arrow columns."""
        return sum(batch.nbytes for batch in self._batches)

    def data_frame(self, session: SparkSession) -> DataFrame:
        """The messages' columns, without a copy up to the pa.Table."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import from_arrow_schema

        from fastkcl.spark.frame import data_frame

        table = pa.Table.from_batches([pa.record_batch(batch) for batch in self._batches])
        return data_frame(session, table, from_arrow_schema(table.schema))

    def check_wanted(self) -> None:
        """Stop a write before its atomic step.

        Raises:
            WriteCancelledError: the rows are not wanted any more.
        """
        if self._cancelled():
            raise WriteCancelledError("the writer was closed; these messages are not stored")


class MessageWriter:
    """Writes batches of messages through Spark, each at least once. For one thread; a context manager.

    Args:
        sink: where messages go: a sink with ``append``, as `fastkcl.spark.sinks.TableSink`; or a function, called as
            ``write(df, context)`` with a DataFrame of the batches' columns and a `MessageContext`, which stores them
            before it returns. Either is called in a separate thread, one call at a time.
        spark: as for `fastkcl.spark.SparkProcessor`.
        source: where the messages come from, for the log and the context.
        bounds: when batches are written, how large a table may be, and how much is held. A `flush` writes at once.
        reconnect_timeout: seconds in which a write whose Connect server has gone is repeated.
        single: what `Bounds` has, each by its own name: ``max_age=5``.

    Raises:
        TypeError: `sink` is neither, `spark` is something else, or a bound is given twice.
        ValueError: a bound out of range, or a `spark` that is not a URL.
    """

    def __init__(
        self,
        sink: MessageSink | Callable[[DataFrame, MessageContext], object],
        *,
        spark: Spark = None,
        source: str = "messages",
        bounds: Bounds | None = None,
        reconnect_timeout: float = DEFAULT_RECONNECT_TIMEOUT,
        **single: Unpack[SingleBounds],
    ) -> None:
        check_names(MessageWriter, single)
        target: Target[MessageRows]
        self._session = Session(spark, reconnect_timeout=reconnect_timeout)
        through = Through(self._session, lambda: not self._buffer.closed)
        if isinstance(sink, type):
            raise TypeError(f"sink must be an instance, not the class: {sink.__name__}(…)")
        if callable(getattr(sink, "append", None)):
            target = _SinkTarget(cast("MessageSink", sink), through)
        elif hasattr(sink, "write"):
            raise TypeError(
                f"{type(sink).__name__} goes by the positions of a shard's records, and messages have none: use"
                " TableSink, or a function"
            )
        elif callable(sink):
            refuse_deferred(sink)
            target = FunctionTarget(sink, self._context, through)
        else:
            raise TypeError(f"sink must be a sink, or a function of a DataFrame and a MessageContext, not {sink!r}")
        bounds = bounds_of(bounds, single)
        self._source = source
        self._buffer: BatchBuffer[MessageBatch, None] = bounds.buffer(self._write, Unordered(), commit_interval=0.0)
        self.metrics = Metrics({"source": source})
        """Writes, messages and bytes written, failures, what is held; see `fastkcl.monitoring`."""
        progress = WriteProgress(source, self.metrics, self._buffer)
        self._writer = Writer(target, progress)

    def open(self) -> MessageWriter:
        """Open the session now, so that errors surface now; the first write does otherwise.

        Raises:
            SparkUnavailableError: there is no Spark, or it does not answer.
        """
        self._session.get()
        return self

    def add(self, batch: MessageBatch) -> None:
        """Take a batch over, to be written in the background; waits while too much is held.

        Raises:
            Exception: the error of a write of earlier batches. The batch is not taken then, and calling again has
                the failed write tried again first.
        """
        self._buffer.add(batch, lambda _position: True)

    def flush(self, timeout: float | None = None) -> bool:
        """Write everything that is held, and wait for it.

        Args:
            timeout: seconds to wait at most.

        Returns:
            Whether everything that was added is stored; False when the time was over, and the writer goes on.

        Raises:
            Exception: the error of a write. Unwritten messages stay held; calling again tries again.
        """
        return self._buffer.flush(at_end=True, timeout=timeout)

    def close(self) -> int:
        """Stop writing, and release the session. Harmless when done before.

        Returns:
            Messages that were added and are not stored; 0 after a `flush`.
        """
        left = sum(len(batch) for batch in self._buffer.discard())
        self._buffer.join(_JOIN_SECONDS)
        self._session.close()
        if left:
            logger().warning("%s: %d messages were taken over and are not stored", self._source, left)
        return left

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _write(self, run: Run[MessageBatch, None]) -> None:
        """Make a run durable; in the writer's thread."""
        self._writer.write(run, MessageRows(run.batches, lambda: self._buffer.closed))

    def _context(self, rows: MessageRows, session: SparkSession, attempt: int) -> MessageContext:
        return MessageContext(
            source=self._source, attempt=attempt, rows=rows.num_rows, bytes=rows.nbytes, spark=session
        )


class _SinkTarget(Target[MessageRows]):
    """A sink of messages."""

    def __init__(self, sink: MessageSink, through: Through) -> None:
        self._sink = sink
        self._through = through

    def store(self, rows: MessageRows, attempt: int) -> None:
        self._through.call(lambda session, _attempt: self._sink.append(rows, session), attempt)
