"""Columns of values that Python has, made from their bytes.

`pyarrow.scalar` and `pyarrow.array` import pandas, where it is installed: 40 MB in each child.
"""

from __future__ import annotations

import array
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["integers", "repeated_text"]


def repeated_text(value: str, rows: int) -> pa.StringArray:
    """One text in each row."""
    import pyarrow as pa

    text = value.encode()
    one = pa.StringArray.from_buffers(1, pa.py_buffer(struct.pack("=2i", 0, len(text))), pa.py_buffer(text))
    return pa.repeat(one[0], rows)


def integers(values: Iterable[int]) -> pa.Int64Array:
    """One of these numbers in each row, of 64 bits."""
    import pyarrow as pa

    numbers = array.array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
