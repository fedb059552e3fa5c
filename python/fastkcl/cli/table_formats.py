"""The formats of tables that commands write: a row for each, which is offered where its class is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from fastkcl.tables import S3Storage
    from fastkcl.tables.table_processor import Table

__all__ = ["FORMATS", "WritableFormat", "offered"]


class WritableFormat(NamedTuple):
    """A format."""

    name: str
    """Its class in `fastkcl.tables`."""
    extra: str
    """What has the packages that it needs on any storage."""

    def table(self, url: str, storage: S3Storage | None) -> Table:
        """A table of this format.

        Raises:
            ValueError: the URL is none that it takes.
        """
        from fastkcl import tables

        made: Any = getattr(tables, self.name)
        table: Table = made(url, storage=storage)
        return table


FORMATS: Final[Mapping[str, WritableFormat]] = {
    "parquet": WritableFormat("ParquetTable", "arrow"),
    "delta": WritableFormat("DeltaTable", "delta"),
}


def offered() -> list[str]:
    """The names of the formats that this version has."""
    from fastkcl import tables

    return [name for name, each in FORMATS.items() if hasattr(tables, each.name)]
