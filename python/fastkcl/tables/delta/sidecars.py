"""The files that a checkpoint of a Delta log names: those of its own, and those of its sidecars.

A checkpoint of version 2, by any name, can have its files in sidecars: Parquet files in a folder of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from fastkcl.tables.base import parse_json
from fastkcl.tables.delta.log import LOG, MOST_BYTES
from fastkcl.tables.store import Store, StoreError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

__all__ = ["SIDECARS", "ElsewhereError", "files_in", "opened_parquet", "sidecar_fault", "sidecar_name", "sidecars_in"]

SIDECARS: Final = "_sidecars"


class ElsewhereError(ValueError):
    """A checkpoint has a sidecar that is not in the table's log."""


def sidecar_name(action: Mapping[str, Any]) -> str | None:
    """The name of a sidecar in the log's folder of sidecars; None for one elsewhere.

    Raises:
        ValueError: the action is damaged; or KeyError, or TypeError.
    """
    name = unquote(action["path"])
    if not name or "\0" in name:
        raise ValueError("the path of a sidecar is damaged")
    return None if "/" in name or name in (".", "..") else name


def sidecars_in(parquet: ParquetFile) -> list[str | None]:
    """The names of the sidecars of a checkpoint in Parquet; None for one elsewhere.

    Raises:
        ValueError: one is damaged; or KeyError, TypeError, or an error of pyarrow's.
    """
    if "sidecar" not in parquet.schema_arrow.names:
        return []
    batches = parquet.iter_batches(columns=["sidecar.path"])
    return [sidecar_name(each) for batch in batches for each in batch.column("sidecar").drop_null().to_pylist()]


def sidecar_fault(store: Store, name: str, *, is_whole: bool) -> str | None:
    """What is wrong with a sidecar; None for a sound one.

    Args:
        store: the table's.
        name: in the folder of sidecars.
        is_whole: whether all of it is read, and not only its end.

    Raises:
        StoreError: it cannot be read.
    """
    import pyarrow as pa

    try:
        with opened_parquet(store, f"{LOG}/{SIDECARS}/{name}") as parquet:
            for _ in parquet.iter_batches() if is_whole else ():
                pass
    except FileNotFoundError:
        return f"its {SIDECARS}/{name} is missing"
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        return f"its {SIDECARS}/{name}: {str(error).partition(chr(10))[0]}"
    return None


def files_in(store: Store, name: str) -> Iterator[list[str]]:
    """The paths of files that a file of a checkpoint has, and its sidecars, by batches; as they are written there.

    Raises:
        FileNotFoundError: it is not there, or a sidecar.
        ElsewhereError: a sidecar is not in the log.
        ValueError: it is damaged; or KeyError, TypeError, AttributeError, or an error of pyarrow's.
    """
    if name.endswith(".json"):
        text = store.read(f"{LOG}/{name}", MOST_BYTES)
        if text is None:
            raise FileNotFoundError(name)
        actions = [parse_json(line) for line in text.splitlines() if line]
        yield [found["path"] for each in actions if (found := each.get("add")) is not None]
        sidecars = [sidecar_name(found) for each in actions if (found := each.get("sidecar")) is not None]
    else:
        with opened_parquet(store, f"{LOG}/{name}") as parquet:
            yield from _paths(parquet)
            sidecars = sidecars_in(parquet)
    for sidecar in sidecars:
        if sidecar is None:
            raise ElsewhereError("it has a sidecar elsewhere")
        with opened_parquet(store, f"{LOG}/{SIDECARS}/{sidecar}") as parquet:
            yield from _paths(parquet)


def _paths(parquet: ParquetFile) -> Iterator[list[str]]:
    if "add" in parquet.schema_arrow.names:
        for batch in parquet.iter_batches(columns=["add.path"]):
            yield batch.column("add").drop_null().field("path").to_pylist()


@contextmanager
def opened_parquet(store: Store, key: str) -> Iterator[ParquetFile]:
    """A file in Parquet, while it is read.

    Raises:
        FileNotFoundError: it is not there.
        StoreError: it cannot be read.
        ValueError: it is damaged; or an error of pyarrow's.
    """
    import pyarrow.parquet as pq

    file = store.open(key)
    if file is None:
        raise FileNotFoundError(key)
    with file:
        try:
            with pq.ParquetFile(file) as parquet:
                yield parquet
        except OSError as error:  # of pyarrow, for a page that cannot be unpacked; the storage's have a number
            if isinstance(error, StoreError) or error.errno is not None:
                raise
            raise ValueError(str(error).partition("\n")[0]) from error
