"""Rows of a shard as a sink takes them: a DataFrame when it is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from fastkcl.tables import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fastkcl.spark.payload import OpenedRows

__all__ = ["ShardRows"]


class ShardRows(rows.ShardRows):
    """A contiguous run of a shard's records, of which Spark makes a DataFrame."""

    def data_frame(self, session: SparkSession) -> DataFrame:
        """The records in the canonical schema, without a copy up to the pa.Table; or with their payloads opened."""
        if self._opened is not None:
            return cast("OpenedRows", self._opened).data_frame(session)
        from fastkcl.spark.frame import data_frame
        from fastkcl.spark.schema import SCHEMA

        return data_frame(session, self.table(), SCHEMA)
