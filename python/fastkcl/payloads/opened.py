"""Records with opened payloads, in the form that writers use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from fastkcl.payloads.options import CORRUPT

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Opened", "OpenedTable"]


class Opened(Protocol):
    """Records whose payloads are opened."""

    @property
    def num_rows(self) -> int:
        """Records."""

    @property
    def nbytes(self) -> int:
        """Bytes of the Arrow columns."""

    @property
    def corrupt(self) -> int:
        """Payloads that could not be opened in this process."""

    @property
    def table(self) -> pa.Table:
        """The columns of the payloads, those of the records, and ``_corrupt``."""

    def slice(self, offset: int, length: int | None = None) -> Self:
        """Rows [offset, offset + length) without a copy."""


class OpenedTable:
    """Records whose payloads are opened."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        """The columns of the payloads, those of the records, and ``_corrupt``."""

    @property
    def num_rows(self) -> int:
        """Records."""
        return int(self.table.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the Arrow columns."""
        return int(self.table.nbytes)

    @property
    def corrupt(self) -> int:
        """Records with something in ``_corrupt``."""
        return self.num_rows - int(self.table[CORRUPT].null_count)

    def slice(self, offset: int, length: int | None = None) -> OpenedTable:
        """Rows [offset, offset + length) without a copy."""
        return OpenedTable(self.table.slice(offset, length))
