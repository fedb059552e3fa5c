"""Makes a DataFrame of a pa.Table, in the form that costs Spark least.

A server of Spark Connect has the rows of such a table in the plan itself. It copies them one by one, several times, and
nearly every rule of its analyzer and optimizer walks over all of them: that is most of its cost of a write. So the
rows go there in groups, each a single row with a list of structs, and ``inline`` makes rows of them again in the tasks
of the job:

    pa.Table ──▶ records: list<struct<…>> ──▶ createDataFrame ──▶ inline(records) ──▶ the rows, their columns and order
    28,000 rows   64 rows, no copy              64 rows in the plan

Columns and schema are those of the table either way. A classic session has no rows in its plans (by the settings of
`fastkcl.spark.server.settings`) and gets the table as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["data_frame", "trimmed"]

_GROUP_BYTES: Final = 256 * 1024
"""Of the Arrow columns, on average. From 150 to 600 KB made no difference (bench/README.md)."""
_FEW: Final = 0.1
_FEW_BYTES: Final = 16 * 1024
"""A table of the largest size, and so much more, is still below Connect's limit of a message."""


def data_frame(session: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """A DataFrame with the table's rows.

    Args:
        session: of Spark Connect, or classic.
        table: one row at least. It is not copied here, but by `trimmed`; Spark decides on copies in the session.
        schema: of the table, all nullable.
    """
    table = trimmed(table)
    if not type(session).__module__.startswith("pyspark.sql.connect."):
        return session.createDataFrame(table, schema=schema)
    from pyspark.sql.types import ArrayType, StructField, StructType

    groups = StructType([StructField("records", ArrayType(schema))])
    return session.createDataFrame(_grouped(table), schema=groups).selectExpr("inline(records)")


def _grouped(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    size = max(1, _GROUP_BYTES * table.num_rows // max(table.nbytes, 1))
    groups = []
    for batch in table.to_batches():
        starts = range(0, batch.num_rows, size)
        structs = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        groups.append(pa.ListArray.from_arrays(pa.array([*starts, batch.num_rows], pa.int32()), structs))
    return pa.table({"records": pa.chunked_array(groups)})


def trimmed(table: pa.Table) -> pa.Table:
    """A table of which a stream of Arrow gets its own bytes alone, not those of larger batches that it was cut from.

    Before its version 21, pyarrow writes all data before the first value of a piece, too; such pieces are copied.
    """
    import pyarrow as pa

    batches = table.to_batches()
    if int(pa.__version__.partition(".")[0]) >= 21 or not any(map(_is_cut, batches)):
        return table
    return pa.Table.from_batches([_copied(batch) if _is_cut(batch) else batch for batch in batches], table.schema)


def _is_cut(batch: pa.RecordBatch) -> bool:
    """Whether many bytes belong to others; a few are what each buffer is rounded up by."""
    others: int = batch.get_total_buffer_size() - batch.nbytes
    allowed: float = _FEW_BYTES + batch.nbytes * _FEW
    return others > allowed


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.concat_arrays([column]) for column in batch.columns], schema=batch.schema)
