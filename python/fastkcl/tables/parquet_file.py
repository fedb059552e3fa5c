"""Makes every Parquet file from Arrow: in memory, with our own metadata in its footer.

It uses zstd at level 1, which costs most of the time and saves most of the bytes. Sequence numbers differ only in their
last digits, and times differ little, so both are written as differences. A dictionary helps only for sub-sequence
numbers; for other columns it would be built and discarded. Only these columns have statistics, not the payloads.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FOOTER_KEY", "TAIL_BYTES", "footer_of", "parquet_bytes"]

FOOTER_KEY: Final = b"fastkcl"
"""In Parquet's metadata."""
TAIL_BYTES: Final = 64 * 1024
"""Of a file's end: as much as most footers have."""

_MAGIC: Final = b"PAR1"
_ENCODINGS: Final = {
    "sequenceNumber": ("string", "DELTA_BYTE_ARRAY"),
    "approximateArrivalTimestamp": ("timestamp[us, tz=UTC]", "DELTA_BINARY_PACKED"),
}
_DICTIONARIES: Final = ("subSequenceNumber", "stream", "shard")  # the last two of a Delta table's files, one value each


def parquet_bytes(table: pa.Table, footer: bytes) -> memoryview:
    """A whole file.

    Args:
        table: of any columns, also of no rows.
        footer: kept under `FOOTER_KEY`.

    Raises:
        pyarrow.ArrowException: a column of a type that Parquet does not have.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {field.name: str(field.type) for field in table.schema}
    known = [name for name in (*_ENCODINGS, *_DICTIONARIES) if name in kinds]
    encodings = {name: encoding for name, (kind, encoding) in _ENCODINGS.items() if kinds.get(name) == kind}
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata({**(table.schema.metadata or {}), FOOTER_KEY: footer}),
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in _DICTIONARIES if name in kinds] or False,
        column_encoding=encodings or None,
        write_statistics=known or False,
    )
    return memoryview(sink.getvalue()).cast("B")


def footer_of(tail: bytes) -> bytes | int:
    """The footer of `parquet_bytes`, by the end of a file.

    Returns:
        The footer; or, if `tail` is too short for it, how many bytes of the end have it.

    Raises:
        ValueError: it is not a Parquet file, or has no such footer.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if len(tail) < 8 or tail[-4:] != _MAGIC:
        raise ValueError("no Parquet file, or one that is cut off")
    (size,) = struct.unpack("<I", tail[-8:-4])
    needed = int(size) + 8
    if needed > len(tail):
        return needed
    try:
        # The reader wants a file's beginning as well, and only looks at its end.
        metadata: Any = pq.read_metadata(io.BytesIO(_MAGIC + tail[-needed:])).metadata
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"a damaged footer: {error}") from error
    found = (metadata or {}).get(FOOTER_KEY)
    if not isinstance(found, bytes):
        raise ValueError("a file without a footer of this table's writers")
    return found
