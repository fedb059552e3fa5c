"""Opens Avro and Protobuf payloads before Spark gets them; see `fastkcl.payloads.framed`.

    RecordBatch ──▶ SchemaReader (Rust, no GIL) ──▶ typed columns · keys · _corrupt ──▶ createDataFrame

Rules: the columns are those of the reader's schema, which is fixed when the processor starts. Nothing is left to Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastkcl import ConfigurationError, RecordBatch
from fastkcl.payloads.framed import FramedReader
from fastkcl.payloads.opener import PayloadOpener
from fastkcl.payloads.options import SchemaPayload, largest_payload
from fastkcl.payloads.table import pa_schema
from fastkcl.spark.frame import data_frame
from fastkcl.spark.payload import OpenedRows
from fastkcl.tables.bounds import Bounds

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from fastkcl.write_after import Run

__all__ = ["SchemaPayloads"]


class SchemaPayloads:
    """How a shard's payloads with a schema are opened.

    Args:
        payload: what they are.
        bounds: of the tables.

    Raises:
        ValueError: a bound out of range.
    """

    def __init__(self, payload: SchemaPayload, bounds: Bounds) -> None:
        self._payload = payload
        self._max_payload_bytes = largest_payload(payload.max_payload_bytes, bounds.max_table_bytes)
        self._bounds = bounds
        self._opener: PayloadOpener[OpenedRows] | None = None

    def prepare(self, session: SparkSession) -> None:  # noqa: ARG002 - Spark has no say in it
        """Read the schema, or look it up.

        Raises:
            ConfigurationError: it is none, or has a type without one of Spark, or a name twice.
            RegistryAwayError: the registry did not answer for `max_outage`.
        """
        reader = FramedReader(self._payload, max_payload_bytes=self._max_payload_bytes)
        frames = _SchemaFrames(pa_schema(reader))
        self._opener = PayloadOpener(
            reader, frames.opened, max_bytes=self._bounds.max_bytes, max_table_bytes=self._bounds.max_table_bytes
        )

    def open(self, batches: Sequence[RecordBatch]) -> OpenedRows:
        """Open payloads from the first row on: as many as make one table, and at least one."""
        return self._prepared.open(batches)

    def open_all(self, batches: Sequence[RecordBatch]) -> OpenedRows:
        """Open all payloads, however large the table."""
        return self._prepared.open_all(batches)

    def exactly(self, run: Run[RecordBatch, Any]) -> OpenedRows:
        """The rows of a run, of which `open` has opened some, or more."""
        return self._prepared.exactly(run)

    @property
    def _prepared(self) -> PayloadOpener[OpenedRows]:
        assert self._opener is not None
        return self._opener


class _SchemaFrames:
    """Makes DataFrames of opened payloads.

    Args:
        schema: of their tables.

    Raises:
        ConfigurationError: two columns have one name for Spark.
    """

    def __init__(self, schema: pa.Schema) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        folded = [name.casefold() for name in schema.names]
        twice = sorted({name for name in folded if folded.count(name) > 1})
        if twice:
            raise ConfigurationError(f"the schema of the payloads: a second column {twice[0]!r}; drop it by casts=")
        self._schema = from_arrow_schema(schema)

    def opened(self, table: pa.Table, unparsed: bool) -> OpenedRows:  # noqa: ARG002 - nothing is left to Spark
        return OpenedRows(table, self)

    def data_frame(self, table: pa.Table, session: SparkSession) -> DataFrame:
        return data_frame(session, table, self._schema)
