"""Tables whose files Spark writes, each record exactly once; `fastkcl.tables` explains how they commit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastkcl import Position
from fastkcl.spark.payload import sql_text
from fastkcl.spark.sinks.sink import Rows, Transform
from fastkcl.tables.delta.sink import DeltaAppender
from fastkcl.tables.parquet.sink import ParquetAppender

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DeltaSink", "ParquetSink", "SparkFiles"]


class ParquetSink(ParquetAppender):
    """Writes a shard's records into a folder of Parquet files: exactly once, in order, with a zombie fenced off.

    Args:
        path: folder of the table, on a POSIX file system that Spark sees under the same path.
        transform: makes of a DataFrame in the canonical schema (`fastkcl.spark.schema.SCHEMA`) the one that is
            written. It may be called more than once for the same records.

    Raises:
        ValueError: `path` is a URL of something else.
    """

    def __init__(self, path: str | os.PathLike[str], *, transform: Transform | None = None) -> None:
        super().__init__(path)
        self._transform = transform

    def write(self, rows: Rows, session: SparkSession) -> Position:
        """Make rows durable and visible; see `Sink.write`.

        Raises:
            SinkError: the table is damaged, or another one.
            WriteCancelledError: the lease has gone before the commit.
            Exception: an error of Spark, `transform` or the file system.
        """
        return self.append_run(rows, partial(_files, session, self._transform))


class DeltaSink(DeltaAppender):
    """Writes a shard's records into a Delta table: exactly once, in order, with a zombie fenced off.

    The table has the DataFrame's columns and two more, by which it is partitioned: `stream` and `shard`. It is made at
    the first write, unless it is there. Needs deltalake: ``pip install 'fastkcl[delta]'``.

    Args:
        path: folder of the table, on a POSIX file system that Spark sees under the same path.
        transform: makes of a DataFrame in the canonical schema (`fastkcl.spark.schema.SCHEMA`) the one that is
            written. It may be called more than once for the same records.

    Raises:
        ValueError: `path` is a URL of something else, or has a ``%`` in it.
        ImportError: deltalake is not installed.
    """

    def __init__(self, path: str | os.PathLike[str], *, transform: Transform | None = None) -> None:
        super().__init__(path)
        self._transform = transform
        self._columns: list[Any] | None = None

    def write(self, rows: Rows, session: SparkSession) -> Position:
        """Make rows durable and visible; see `Sink.write`.

        Raises:
            SinkError: the table is not one that this sink can write to, or has lost a commit.
            WriteCancelledError: the lease has gone before the commit.
            Exception: an error of Spark, `transform`, deltalake or the file system. Whether the rows are in the table
                shows at the next write, which drops them then.
        """
        return self.append_run(rows, partial(self._files_of, session))

    def _files_of(self, session: SparkSession, rows: Rows) -> SparkFiles:
        files = _files(session, self._transform, rows)
        if self._transform is None:
            if self._columns is None:  # always the same, and asking Connect for them costs as much as sending the rows
                self._columns = files.columns()
            files.known_columns = self._columns
        return files


class SparkFiles:
    """A DataFrame on its way into Parquet files; see `fastkcl.tables.base.MadeFiles`."""

    def __init__(self, df: DataFrame) -> None:
        self._df = df
        self.known_columns: list[Any] | None = None

    def columns(self) -> list[Any]:
        """Their columns, as the JSON of a schema has them."""
        if self.known_columns is not None:
            return self.known_columns
        columns: list[Any] = self._df.schema.jsonValue()["fields"]
        return columns

    def with_columns(self, values: Mapping[str, str]) -> SparkFiles:
        """The same rows with more columns, each of one text."""
        # SQL, as in fastkcl.spark.payload: a literal of pyspark's functions is of one kind of session.
        return SparkFiles(self._df.selectExpr("*", *(f"{sql_text(text)} AS {name}" for name, text in values.items())))

    def write(self, folder: Path) -> None:
        """Write them into a folder, which is not there yet."""
        self._df.write.parquet(f"file://{folder}")  # Spark takes the path as it is, without escapes


def _files(session: SparkSession, transform: Transform | None, rows: Rows) -> SparkFiles:
    df = rows.data_frame(session)
    return SparkFiles(df if transform is None else transform(df))
