"""Opens the payloads of batches for programs that read them themselves: the asyncio client, or a BatchProcessor.

    opener = BatchOpener(AvroPayload(schema="clicks.avsc", framing="glue", registry="glue"))
    table = opener.open(batch)                       # or, in asyncio: await opener.open_async(batch)

Rules: `TableProcessor` uses the same openers. If a registry is away and there is an event loop, a separate thread waits
for the registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastkcl import RecordBatch
from fastkcl.payloads.options import Payload
from fastkcl.payloads.table import opener_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchOpener"]

_LARGEST_TABLE: Final = 1 << 30


class BatchOpener:
    """Opens batches, one after the other.

    Args:
        payload: what payloads are.

    Raises:
        ValueError: an option, or there is nothing to open.
        ConfigurationError: pyarrow is missing, or a schema is none.
        RegistryAwayError: a registry did not answer for `max_outage`.
    """

    def __init__(self, payload: Payload) -> None:
        opener = opener_of(payload, max_bytes=_LARGEST_TABLE, max_table_bytes=_LARGEST_TABLE)
        if opener is None:
            raise ValueError("binary payloads without compression are as they are: there is nothing to open")
        self._opener = opener

    def open(self, batch: RecordBatch) -> pa.Table:
        """A row for each record, in order: the columns of the payloads, those of the records, and ``_corrupt``.

        Raises:
            RegistryAwayError: the registry did not answer for `max_outage`; the batch can be opened later.
            ValueError: the batch is empty, or more than a GiB when it is opened.
        """
        if not len(batch):
            raise ValueError("an empty batch has no payloads to open")
        return self._opener.open_all([batch]).table

    async def open_async(self, batch: RecordBatch) -> pa.Table:
        """`open`, in a thread: the event loop goes on, also while a registry is away."""
        import asyncio

        return await asyncio.to_thread(self.open, batch)
