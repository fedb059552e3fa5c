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
    has_schema: bool
    """Whether a table refuses columns that it does not have, unless an option asks to add them."""
    in_catalog: bool = False
    """Whether a table is named, in a catalog, and has no URL."""

    def table(
        self, url: str, storage: S3Storage | None, *, add_columns: bool, catalog: Mapping[str, str] | None = None
    ) -> Table:
        """A table of this format.

        Raises:
            ValueError: the format does not take such a URL, or such a catalog.
        """
        from fastkcl import tables

        made: Any = getattr(tables, self.name)
        options: dict[str, Any] = {"evolve": "add"} if self.has_schema and add_columns else {}
        if self.in_catalog:
            options["catalog"] = dict(catalog or {})
        elif catalog:
            raise ValueError("--catalog is for --format iceberg alone")
        table: Table = made(url, storage=storage, **options)
        return table


FORMATS: Final[Mapping[str, WritableFormat]] = {
    "parquet": WritableFormat("ParquetTable", has_schema=False),
    "delta": WritableFormat("DeltaTable", has_schema=True),
    "iceberg": WritableFormat("IcebergTable", has_schema=True, in_catalog=True),
}


def offered() -> list[str]:
    """The names of the formats that this version has."""
    from fastkcl import tables

    return [name for name, each in FORMATS.items() if hasattr(tables, each.name)]
