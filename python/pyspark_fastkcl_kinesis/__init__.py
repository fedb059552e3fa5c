"""Registers fastkcl's source with Spark by the name ``kinesis``: Spark imports each top-level module ``pyspark_*``.

Rules: imports nothing heavy, as every PySpark program of the environment pays for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fastkcl.spark.source.options import SourceOptions
    from fastkcl.spark.source.schema import Rows
    from pyspark.sql.datasource import DataSourceReader, InputPartition
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Streams of Kinesis; see `fastkcl.spark.source`."""

    fastkcl_names: ClassVar[dict[str, str]] = {}
    """Columns that have another name than ours."""

    @classmethod
    def name(cls) -> str:
        """For ``format``."""
        return "kinesis"

    def schema(self) -> StructType:
        """The columns of the rows.

        Raises:
            OptionError: an option that cannot be meant.
        """
        return self._made(None)[1].spark

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``.

        Raises:
            OptionError: an option that is for ``spark.readStream``.
        """
        from fastkcl.spark.source.batch import KinesisBatchReader

        return KinesisBatchReader(*self._made(schema, "read"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For ``spark.readStream``. What is wrong with the options, or with this PySpark, its first call raises.

        PySpark would show an UnboundLocalError last, if this method raised.
        """
        try:
            return self._stream_reader(schema)
        except Exception as error:  # noqa: BLE001 - for the first call
            return _Refused(error)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow  # noqa: F401
        except ImportError:
            import pyspark

            raise RuntimeError(
                f"streams need PySpark 4.2 or newer, this is {pyspark.__version__}; "
                f'spark.read.format("{self.name()}") works'
            ) from None
        from fastkcl.spark.source.stream import KinesisStreamReader

        return KinesisStreamReader(*self._made(schema, "readStream"))

    def _made(
        self, declared: StructType | None, way: Literal["read", "readStream"] | None = None
    ) -> tuple[SourceOptions, Rows]:
        from fastkcl.spark.source.options import SourceOptions, show_log
        from fastkcl.spark.source.schema import Rows

        if way is not None:
            show_log()
        options = SourceOptions.parse(self.options)
        if way is not None:
            from fastkcl.spark.source.ways import check_way

            check_way(options, way)
        return options, Rows(options, self.fastkcl_names, declared)


class _Refused(DataSourceStreamReader):
    """A reader that cannot be: each call of Spark's raises the reason.

    Args:
        error: the reason.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        """Raise it."""
        raise self._error

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: ANN401, ARG002
        """Raise it."""
        raise self._error

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:  # noqa: ANN401, ARG002
        """Raise it."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        """Raise it."""
        raise self._error
