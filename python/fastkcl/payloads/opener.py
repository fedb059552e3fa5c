"""Opens the payloads of as many batches as make one table; a reader decodes them.

Rules: rows are opened in order, without the GIL. The size of the opened payloads decides where a table ends, because it
can be many times the packed size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from fastkcl import RecordBatch
from fastkcl.payloads.opened import Opened

if TYPE_CHECKING:
    import pyarrow as pa

    from fastkcl._core import OpenedPayloads
    from fastkcl.write_after import Run

__all__ = ["PayloadOpener"]

_LARGEST_BYTES: Final = 1 << 30  # within Arrow's 32-bit offsets in any case

T = TypeVar("T", bound=Opened)


class Reader(Protocol):
    """Opens the payloads of a batch: `PayloadReader`, or `fastkcl.payloads.framed.FramedReader`."""

    def open(self, batch: RecordBatch, offset: int, max_bytes: int) -> OpenedPayloads:
        """Open the payloads from row offset on: as many as make no more than max_bytes, and at least one."""


class PayloadOpener(Generic[T]):
    """Opens payloads.

    Args:
        reader: knows what they are.
        make: makes of a table, and whether the reader has left objects unparsed, what is written.
        max_bytes: cut tables here, unless their batches came larger; one row may be larger.
        max_table_bytes: cut tables here in any case.
    """

    def __init__(
        self, reader: Reader, make: Callable[[pa.Table, bool], T], *, max_bytes: int, max_table_bytes: int
    ) -> None:
        self._reader = reader
        self._make = make
        self._max_bytes = max_bytes
        self._max_table_bytes = max_table_bytes

    def open(self, batches: Sequence[RecordBatch]) -> T:
        """Open payloads from the first row on: as many as make one table, and at least one.

        Args:
            batches: none of them empty.
        """
        left = min(self._max_table_bytes, max(self._max_bytes, sum(batch.nbytes for batch in batches)))
        opened: list[OpenedPayloads] = []
        for batch in batches:
            part = self._reader.open(batch, 0, max(left, 1))
            if opened and part.nbytes > left:
                break  # the one row that is there in any case
            opened.append(part)
            left -= part.nbytes
            if part.num_rows < len(batch):
                break
        return self._rows(opened)

    def open_all(self, batches: Sequence[RecordBatch]) -> T:
        """Open all payloads, however large the table.

        Raises:
            ValueError: they are more than Arrow's columns take.
        """
        opened = [self._reader.open(batch, 0, _LARGEST_BYTES) for batch in batches]
        for part, batch in zip(opened, batches, strict=True):
            if part.num_rows < len(batch):
                raise ValueError(
                    f"records of sequence number {batch[part.num_rows].sequence_number} must stay together and are"
                    f" more than {_LARGEST_BYTES} bytes when opened: with a smaller max_payload_bytes the largest of"
                    " them are kept as they came"
                )
        return self._rows(opened)

    def exactly(self, run: Run[RecordBatch, Any]) -> T:
        """The rows of a run, of which `open` has opened some, or more."""
        opened: T = run.fitted
        if opened.num_rows < run.rows:  # more records of one group than make a table
            opened = self.open_all(run.batches)
        return opened.slice(0, run.rows)

    def _rows(self, opened: Sequence[OpenedPayloads]) -> T:
        import pyarrow as pa

        table = pa.Table.from_batches([pa.record_batch(part) for part in opened])
        return self._make(table, any(part.unparsed for part in opened))
