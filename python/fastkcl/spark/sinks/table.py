"""A table of the session's catalog, each record at least once.

    CREATE TABLE db.events (
      data BINARY, partitionKey STRING, sequenceNumber STRING, subSequenceNumber BIGINT,
      approximateArrivalTimestamp TIMESTAMP, stream STRING, shard STRING
    ) USING iceberg

Spark appends to a table of any format: Iceberg, Delta with Spark's own package, a database over JDBC. No step could
include a position, so this sink has none (`open` returns None). Records that the daemon delivers again after a death,
and rows that a failed write had already appended, are there twice. Each row carries its key, the columns
`stream`, `shard`, `sequenceNumber` and `subSequenceNumber`, by which a reader keeps one of them:

    SELECT * EXCEPT (copy) FROM (
      SELECT *, row_number() OVER (
        PARTITION BY stream, shard, sequenceNumber, subSequenceNumber ORDER BY partitionKey
      ) AS copy FROM db.events
    ) WHERE copy = 1

Not with KCL 1.7.1 or older (legacy dialect) and KPL aggregates: user records of an aggregate have one key there, and
the query would keep one of each aggregate.

A table of plain files (Parquet, ORC, JSON, ...) is refused, unless ``only_writer=True`` says that no other process
appends to it, which a stream with two shards does. Spark's jobs share a temporary folder in such a table, and the one
that ends first removes it: of 160 appends by four writers 54 failed and left a part of their rows; worse, 40 of the
2,120 rows whose appends had succeeded were not there (Spark 4.3, local files).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from fastkcl import Position
from fastkcl.spark.sinks.sink import Frame, Rows, Transform
from fastkcl.tables.base import Shard, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["KEY_COLUMNS", "TableSink"]

KEY_COLUMNS: Final = ("stream", "shard", "sequenceNumber", "subSequenceNumber")
"""Rows that are equal in these are one record."""
_ADDED = KEY_COLUMNS[:2]
_FILE_FORMATS = {"parquet", "orc", "csv", "json", "text", "avro", "xml", "binaryfile", "hive"}


class TableSink:
    """Appends a shard's records to a table of the session's catalog: at least once, in order.

    The table has to be there, with the DataFrame's columns (by name, in any order) and two more: `stream` and `shard`.

    Args:
        table: its name as Spark knows it, e.g. ``db.events`` or ``catalog.db.events``.
        transform: makes of a DataFrame in the canonical schema (`fastkcl.spark.schema.SCHEMA`) the one that is
            written, with `sequenceNumber` and `subSequenceNumber` kept. It may be called more than once for the same
            records.
        only_writer: no other process appends to the table, so it may be one of plain files.

    Raises:
        ValueError: `table` is empty.
    """

    def __init__(self, table: str, *, transform: Transform | None = None, only_writer: bool = False) -> None:
        if not table.strip():
            raise ValueError("TableSink needs the name of a table, e.g. 'db.events'")
        self._table = table
        self._transform = transform
        self._only_writer = only_writer
        self._shard: Shard | None = None
        self._checked = False

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard.

        Returns:
            None: the sink does not know the records that the table has.
        """
        self._shard = shard
        return None

    def write(self, rows: Rows, session: SparkSession) -> Position:
        """Append rows.

        Raises:
            SinkError: the table is not there or not safe to append to, or a key column is missing in `transform`'s
                result or taken by it.
            WriteCancelledError: the lease has gone before the append.
            Exception: an error of Spark or `transform`. The table may have some of the rows, or all.
        """
        assert self._shard is not None
        self._append(rows, session, dict(zip(_ADDED, (self._shard.stream, self._shard.shard_id), strict=True)))
        return rows.last_position

    def append(self, rows: Frame, session: SparkSession) -> None:
        """Append rows of another schema than records, e.g. of messages, as they are: nothing is added to them.

        Raises:
            SinkError: the table is not there or not safe to append to.
            WriteCancelledError: the rows are not wanted any more.
            Exception: an error of Spark or `transform`. The table may have some of the rows, or all.
        """
        self._append(rows, session, {})

    def _append(self, rows: Frame, session: SparkSession, origin: Mapping[str, str]) -> None:
        from pyspark.sql.functions import lit

        df = rows.data_frame(session)
        if self._transform is not None:
            df = self._transform(df)
        if origin and (self._transform is not None or not self._checked):  # asking Connect costs as much as sending
            self._check_columns(df)
        for name, value in origin.items():
            df = df.withColumn(name, lit(value))
        if not self._checked:
            self._check_table(session, df)
            self._checked = True
        rows.check_wanted()
        df.write.mode("append").saveAsTable(self._table)  # by name; insertInto goes by the columns' order

    def _check_columns(self, df: DataFrame) -> None:
        """Check that the rows can be distinguished.

        Raises:
            SinkError: not by the columns that are there.
        """
        there = {name.lower() for name in df.columns}
        for name in KEY_COLUMNS[2:]:
            if name.lower() not in there:
                raise SinkError(
                    f"transform has removed the column {name}, without which doubles cannot be found: keep it"
                )
        if taken := there & set(_ADDED):
            raise SinkError(f"column {taken.pop()}: the sink adds it, with the record's origin: name it otherwise")

    def _check_table(self, session: SparkSession, df: DataFrame) -> None:
        """See that the table is there, and one that several processes can append to.

        Raises:
            SinkError: it is not; it names the remedy.
        """
        if not session.catalog.tableExists(self._table):
            columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in df.schema.fields)
            raise SinkError(f"{self._table}: no such table. Make it: CREATE TABLE {self._table} ({columns}) USING ...")
        facts = {
            row["col_name"].lower(): row["data_type"]
            for row in session.sql(f"DESCRIBE TABLE EXTENDED {self._table}").collect()
            if row["col_name"] in ("Type", "Provider")
        }
        if "view" in facts.get("type", "").lower():
            raise SinkError(f"{self._table}: a view, which nothing can be appended to: name a table")
        provider = facts.get("provider", "")
        if provider.lower() in _FILE_FORMATS and not self._only_writer:
            raise SinkError(
                f"{self._table}: a table of plain {provider} files, whose writers lose each other's rows without an"
                " error: use ParquetSink or DeltaSink, a table of a format with commits (Iceberg, Delta, ...), or, if"
                " no other process appends to it (one shard only), TableSink(..., only_writer=True)"
            )
