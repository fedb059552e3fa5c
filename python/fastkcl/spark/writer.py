"""Has Spark make the files of a table that a child commits: `TableProcessor(DeltaTable(path), writer=SparkWriter(…))`.

    rows ──▶ pa.Table ──▶ createDataFrame ──▶ transform(df) ──▶ Parquet files in the table's folder ──▶ DeltaTable
             payloads                                                                                   commits them
             opened here

The table, its position, shared commits and their guarantee are those of the direct writer, which is pyarrow in the
child. A table may be written by both in turn. Rows of a run that lie in two days are two jobs of Spark.

Rules: the transformation may be called more than once for the same rows. When the server goes, the append is repeated
as a whole with another session: rows that were committed before that are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from fastkcl.payloads.options import CORRUPT
from fastkcl.processing.processor import refuse_deferred, refuse_deferred_result
from fastkcl.spark.server.session import DEFAULT_RECONNECT_TIMEOUT, Session
from fastkcl.spark.sinks.files import SparkFiles
from fastkcl.spark.targets import Through
from fastkcl.tables.table_processor import check_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fastkcl import Position
    from fastkcl.spark.server.session import Spark
    from fastkcl.spark.sinks.sink import Transform
    from fastkcl.tables.rows import ShardRows
    from fastkcl.tables.table_processor import TakesFiles

__all__ = ["SparkWriter"]


class SparkWriter:
    """A transformation by Spark, for a `DeltaTable` in a folder that Spark sees under the same path.

    Args:
        transform: makes of a DataFrame in the canonical schema (`fastkcl.spark.schema.SCHEMA`), or of one with opened
            payloads, the one that is written. It may drop rows and columns and add some, but for ``stream``, ``shard``
            and ``date``. It may be called more than once for the same records.
        spark: a SparkSession, a function that makes one, ``"sc://host:port"``, ``"shared"``, ``"local[n]"``, or None
            for FASTKCL_SPARK, SPARK_REMOTE or ``"shared"``; see `fastkcl.spark.server.session`.
        reconnect_timeout: seconds, from its failure on, in which a write whose Connect server has gone is repeated.

    Raises:
        TypeError: `transform` is no function, or `spark` is something else.
        ValueError: a `spark` that is no URL, or a negative time.
    """

    def __init__(
        self,
        transform: Transform,
        *,
        spark: Spark = None,
        reconnect_timeout: float = DEFAULT_RECONNECT_TIMEOUT,
    ) -> None:
        if not callable(transform):
            raise TypeError(f"transform must be a function of a DataFrame, not {transform!r}")
        refuse_deferred(transform)
        self._transform = transform
        self._session = Session(spark, reconnect_timeout=reconnect_timeout)
        self._through: Through | None = None

    def open(self, wanted: Callable[[], bool]) -> None:
        """Open the session, so that errors surface now; see `TableWriter.open`.

        Raises:
            SparkUnavailableError: pyspark or Java is missing, or Spark does not start.
        """
        self._session.get()
        self._through = Through(self._session, wanted)

    def append(self, table: TakesFiles, rows: ShardRows, attempt: int) -> Position:
        """Append rows to a table; see `TableWriter.append`.

        Raises:
            TypeError: `transform` returns no DataFrame.
            ValueError: it has a column that folders give, or that is there twice.
            Exception: the table's, or Spark's.
        """
        assert self._through is not None

        def call(session: SparkSession, _attempt: int) -> Position:
            return table.append(rows, partial(self._files, session))

        return self._through.call(call, attempt)

    def close(self) -> None:
        """Let go of the session."""
        self._session.close()

    def _files(self, session: SparkSession, rows: ShardRows) -> SparkFiles:
        from pyspark.sql.pandas.types import from_arrow_schema

        from fastkcl.spark.frame import data_frame

        table = rows.table()
        made = self._transform(data_frame(session, table, from_arrow_schema(table.schema)))
        refuse_deferred_result("transform", made)
        if not hasattr(made, "selectExpr"):
            raise TypeError(f"transform must return a DataFrame, not {type(made).__name__}")
        files = SparkFiles(made)
        names = [str(field["name"]) for field in files.columns()]
        check_columns(names, had_corrupt=CORRUPT in table.column_names)
        return files
