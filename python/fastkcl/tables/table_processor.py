"""A batch processor that writes a shard's records into a table itself, without Spark, a JVM or a POSIX disk.

    import fastkcl
    from fastkcl.tables import ParquetTable, TableProcessor

    fastkcl.run(TableProcessor(ParquetTable("s3://lake/clicks")))

`fastkcl.tables.processor` decides when it writes and checkpoints, and how it reacts to a failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, Unpack, cast

from fastkcl import ConfigurationError, Position, RecordBatch
from fastkcl.monitoring import DEFAULT_REPORT_INTERVAL
from fastkcl.payloads.options import CORRUPT, Payload
from fastkcl.payloads.table import opener_of
from fastkcl.processing.function import DEFAULT_CHECKPOINT_INTERVAL
from fastkcl.processing.processor import refuse_deferred, refuse_deferred_result
from fastkcl.tables.base import KeepsPositions, MadeFiles, Shard
from fastkcl.tables.bounds import Bounds, SingleBounds, bounds_of, check_names
from fastkcl.tables.processor import DEFAULT_SHUTDOWN_GRACE, WriteBehindProcessor
from fastkcl.tables.rows import ShardRows

if TYPE_CHECKING:
    import pyarrow as pa

    from fastkcl import ShardContext
    from fastkcl.tables.progress import WriteProgress
    from fastkcl.tables.writer import Target
    from fastkcl.write_after import Run

__all__ = ["Table", "TableProcessor", "TableWriter", "TakesFiles", "Transform", "check_columns"]

Transform: TypeAlias = "Callable[[pa.Table], pa.Table]"
"""What a user makes of the table of records before it is written. It may be called more than once for the same rows."""

_PARTITIONS: Final = ("stream", "shard", "date")
_POOL: Final = "ARROW_DEFAULT_MEMORY_POOL"  # pyarrow's


class Table(KeepsPositions, Protocol):
    """A table that rows of Arrow are appended to, each exactly once; `ParquetTable`, `DeltaTable`."""

    @property
    def url(self) -> str:
        """Where it is."""

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard, or look again: the position up to which the table has its records."""

    def append(self, rows: ShardRows, make: Callable[[ShardRows], pa.Table]) -> Position:
        """Make rows durable and visible; the position up to which the table has the shard's records now."""


class TakesFiles(Protocol):
    """A table that files are appended to, which somebody else has written; a `DeltaTable` in a folder."""

    def append(self, rows: ShardRows, make: Callable[[ShardRows], MadeFiles]) -> Position:
        """As `Table.append`."""


class TableWriter(Protocol):
    """Has another process make the files of rows, instead of pyarrow here; `fastkcl.spark.SparkWriter`."""

    def open(self, wanted: Callable[[], bool]) -> None:
        """Begin, so that errors surface now.

        Args:
            wanted: whether the rows of a running append are still wanted; asked while a server is waited for.
        """

    def append(self, table: TakesFiles, rows: ShardRows, attempt: int) -> Position:
        """Append rows to a table; as `Table.append`."""

    def close(self) -> None:
        """Let go of what `open` has opened."""


class TableProcessor(WriteBehindProcessor[ShardRows]):
    """Writes a shard's records into a table, each exactly once; for `fastkcl.run` and `run_processors`.

    Args:
        table: a `ParquetTable` or a `DeltaTable`.
        transform: makes the table that is written of one in the canonical schema, or of one with opened payloads. It
            may drop rows and columns and add some, but for ``stream``, ``shard`` and ``date``, which folders give.
        writer: makes the files instead of pyarrow in this process: a `fastkcl.spark.SparkWriter`, which has a
            transformation of its own. For a `DeltaTable` in a folder.
        payload: a `JsonPayload`, `AvroPayload` or `ProtobufPayload` for typed columns in the place of ``data``; a
            `BinaryPayload`, to unpack gzip.
        stream: the stream's name, if ``run(stream=)`` and FASTKCL_STREAM do not give it.
        bounds: when batches are written, how large a file's table may be, and how much is held.
        checkpoint_interval: least seconds between two checkpoints.
        shutdown_grace: seconds, at the most, that a requested shutdown waits for the writes.
        report_interval: seconds between two lines of metrics in the log; None for none. See `fastkcl.monitoring`.
        metrics_dir: folder for a Prometheus file; without it that of FASTKCL_METRICS_DIR, if that is set.
        accept_gap: go on where the checkpoint lies after the table's position, which ends the run otherwise: the
            records between are not delivered again. For the first start on a new table; without it,
            FASTKCL_ACCEPT_GAP=1 says so.
        single: what `Bounds` has, each by its own name: ``max_age=5``.

    Raises:
        TypeError: `table` or `writer` is none, `transform` is given beside `writer`, or a bound in a group and by its
            own name.
        ValueError: the table takes no files of a `writer`, with the reason; a bound, an option of `payload`, or a
            column of its schema that is taken.
        ConfigurationError: pyarrow is not installed, or JSON is not read as a type of the schema.
        OSError: `metrics_dir` cannot be written to.
    """

    def __init__(
        self,
        table: Table,
        *,
        transform: Transform | None = None,
        writer: TableWriter | None = None,
        payload: Payload | None = None,
        stream: str | None = None,
        bounds: Bounds | None = None,
        checkpoint_interval: float = DEFAULT_CHECKPOINT_INTERVAL,
        shutdown_grace: float = DEFAULT_SHUTDOWN_GRACE,
        report_interval: float | None = DEFAULT_REPORT_INTERVAL,
        metrics_dir: str | os.PathLike[str] | None = None,
        accept_gap: bool | None = None,
        **single: Unpack[SingleBounds],
    ) -> None:
        check_names(TableProcessor, single)
        if isinstance(table, type) or not callable(getattr(table, "append", None)):
            raise TypeError(f"table must be a table, as ParquetTable(…), not {table!r}")
        if payload is not None and not isinstance(payload, Payload):
            raise TypeError(
                "payload must be an AvroPayload, a BinaryPayload, a JsonPayload or a ProtobufPayload of fastkcl.tables,"
                f" not {type(payload).__name__}"
            )
        try:
            import pyarrow  # noqa: F401 - before any work
        except ImportError as error:
            raise ConfigurationError("pyarrow is not installed: pip install 'fastkcl[arrow]'") from error
        if transform is not None:
            refuse_deferred(transform)
        if writer is not None:
            _check_writer(writer, table, transform)
        bounds = bounds_of(bounds, single)
        self._to = table
        self._transform = transform
        self._writer_of_files = writer
        self._opener = None
        if payload is not None:
            self._opener = opener_of(payload, max_bytes=bounds.max_bytes, max_table_bytes=bounds.max_table_bytes)
        super().__init__(
            bounds=bounds,
            stream=stream,
            checkpoint_interval=checkpoint_interval,
            shutdown_grace=shutdown_grace,
            report_interval=report_interval,
            metrics_dir=metrics_dir,
            accept_gap=accept_gap,
            fit=None if self._opener is None else self._opener.open,
        )

    def _open(self, context: ShardContext, progress: WriteProgress) -> Target[ShardRows]:
        if self._writer_of_files is not None:
            self._writer_of_files.open(self._wanted)
        else:
            _prepare_pyarrow()
        return self._shard_table(self._to, self._append, context, progress)

    def _release(self) -> None:
        if self._writer_of_files is not None:
            self._writer_of_files.close()

    def _rows(self, run: Run[RecordBatch, Position]) -> ShardRows:
        opened = None if self._opener is None else self._opener.exactly(run)
        return ShardRows(run.batches, legacy=self._order.legacy, cancelled=lambda: self._buffer.closed, opened=opened)

    def _append(self, rows: ShardRows, attempt: int) -> Position:
        if self._writer_of_files is not None:
            return self._writer_of_files.append(cast("TakesFiles", self._to), rows, attempt)
        return self._to.append(rows, self._table_of)

    def _table_of(self, rows: ShardRows) -> pa.Table:
        """The table that is written of rows.

        Raises:
            TypeError: `transform` returns something else.
            ValueError: it has a column that folders give, or that is there twice.
        """
        import pyarrow

        table = rows.table()
        if self._transform is None:
            return table
        had_corrupt = CORRUPT in table.column_names
        made = self._transform(table)
        refuse_deferred_result("transform", made)
        if not isinstance(made, pyarrow.Table):
            raise TypeError(f"transform must return a pyarrow.Table, not {type(made).__name__}")
        check_columns(made.column_names, had_corrupt=had_corrupt)
        return made


def _prepare_pyarrow() -> None:
    """Import what each write needs, so that a missing part surfaces now; and take memory of jemalloc.

    mimalloc, pyarrow's own choice, has the system clear 2 MiB at once, of which a file's pages need few. Not where the
    user has chosen, or where pyarrow was built without jemalloc.
    """
    import pyarrow.compute
    import pyarrow.parquet

    if _POOL not in os.environ and pyarrow.default_memory_pool().backend_name == "mimalloc":
        with suppress(NotImplementedError):
            pyarrow.set_memory_pool(pyarrow.jemalloc_memory_pool())


def _check_writer(writer: TableWriter, table: Table, transform: Transform | None) -> None:
    name = type(writer).__name__
    if isinstance(writer, type) or not all(callable(getattr(writer, each, None)) for each in ("open", "append")):
        raise TypeError(f"writer must be a writer, as SparkWriter(…), not {writer!r}")
    if transform is not None:
        raise TypeError(f"transform= beside writer={name}(…): give it to the writer, as {name}(transform)")
    why = getattr(table, "refuses_files", "it takes tables of Arrow alone")
    if why is not None:
        raise ValueError(f"writer={name}(…) for a {type(table).__name__}, {table.url}: {why}")


def check_columns(names: Sequence[str], *, had_corrupt: bool) -> None:
    """See that a transformation has left a table's own columns alone.

    Args:
        names: of the columns that it has made.
        had_corrupt: whether it was given the column of payloads that cannot be opened.

    Raises:
        ValueError: a column is taken, or there twice, or there is none.
    """
    reserved = _PARTITIONS if had_corrupt else (*_PARTITIONS, CORRUPT)
    seen: set[str] = set()
    for name in names:
        folded = name.casefold()
        if folded in reserved:
            where = "fastkcl's, for payloads that cannot be opened" if folded == CORRUPT else "given by the folders"
            raise ValueError(f"transform returns a column {name!r}, which is {where}: give it another name")
        if folded in seen:
            raise ValueError(f"transform returns a second column {name!r}; readers do not tell capitals: rename one")
        seen.add(folded)
    if not names:
        raise ValueError("transform returns a table without columns: return no rows instead, with columns")
