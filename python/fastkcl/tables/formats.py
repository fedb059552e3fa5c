"""The formats of tables, each by a folder that its tables have."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from fastkcl.tables import storage
from fastkcl.tables.base import SinkError
from fastkcl.tables.delta_inspection import inspect_delta
from fastkcl.tables.inspection import NO_POSITIONS, TableState
from fastkcl.tables.parquet_inspection import inspect_parquet

__all__ = ["FORMATS", "Format", "inspect_table"]


class Format(NamedTuple):
    """A format of tables."""

    folder: str
    """Only tables of this format have it."""
    sink: str
    """The class that writes them."""
    inspect: Callable[[Path], TableState]


FORMATS: Final = (
    Format("_commits", "ParquetSink", inspect_parquet),
    Format("_delta_log", "DeltaSink", inspect_delta),
)


def inspect_table(path: str | os.PathLike[str]) -> TableState:
    """Inspect a table.

    Raises:
        SinkError: `path` is no table of a sink.
        OSError: it cannot be read.
        ModuleNotFoundError: pyarrow is missing.
    """
    import pyarrow.parquet  # noqa: F401 - before any work

    root = Path(path)
    for each in FORMATS:
        if storage.status(root / each.folder) is not None:
            return each.inspect(root)
    folders = " nor ".join(f"{each.folder} ({each.sink})" for each in FORMATS)
    raise SinkError(f"{root}: no table of a sink; it has neither a folder {folders}; {NO_POSITIONS}")
