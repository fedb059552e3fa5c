"""The content of a checkpoint of a Delta log: in one file or in parts, in Parquet or in JSON, with sidecars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fastkcl.tables.base import parse_json
from fastkcl.tables.delta.actions import Json
from fastkcl.tables.delta.log import LOG, MOST_BYTES
from fastkcl.tables.delta.sidecars import opened_parquet, sidecar_fault, sidecar_name
from fastkcl.tables.delta.snapshot import OURS, checked_metadata, checked_protocol, whole
from fastkcl.tables.store import Store

__all__ = ["Content", "DamageError", "content"]

_ACTIONS: Final = ("txn", "metaData", "protocol")


class DamageError(ValueError):
    """A file of a checkpoint is damaged.

    Args:
        name: of the file, in the log.
        why: what is wrong with it.
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


class Content(NamedTuple):
    """The actions of a checkpoint that writers need."""

    metadata: Mapping[str, Json]
    protocol: Mapping[str, Json]
    transactions: Mapping[str, int]
    """Versions of our application transactions."""


def content(store: Store, files: Sequence[str]) -> Content:
    """What a checkpoint has.

    Args:
        store: the table's.
        files: the names of the checkpoint's files in the log.

    Raises:
        FileNotFoundError: one is not there.
        DamageError: one is damaged, or has lost a sidecar; or they have no metadata or no protocol.
        OSError: one cannot be read.
    """
    metadata: Json = {}
    protocol: Json = {}
    transactions: dict[str, int] = {}
    for name in files:
        sidecars = set()
        try:
            for action in _actions(store, f"{LOG}/{name}"):
                if found := action.get("sidecar"):
                    sidecars.add(sidecar_name(found))
                if (found := action.get("txn")) and found["appId"].startswith(OURS):
                    transactions[found["appId"]] = whole(found["version"])
                if found := action.get("metaData"):
                    metadata = checked_metadata(_without_none(found))
                if found := action.get("protocol"):
                    protocol = checked_protocol(_without_none(found))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamageError(name, str(error).partition("\n")[0][:300]) from error
        _check_sidecars(store, name, sidecars)
    if not metadata or not protocol:
        raise DamageError(files[0], "it names no schema, or no protocol")
    return Content(metadata, protocol, transactions)


def _check_sidecars(store: Store, name: str, sidecars: Iterable[str | None]) -> None:
    """See that the sidecars in the log, of a file of a checkpoint, are there and have an end.

    Raises:
        FileNotFoundError: the checkpoint is not there any more.
        DamageError: one has not.
    """
    for each in sorted(filter(None, sidecars)):
        if why := sidecar_fault(store, each, is_whole=False):
            if store.tail(f"{LOG}/{name}", 1) is None:  # a clean-up
                raise FileNotFoundError(name)
            raise DamageError(name, why)


def _is_complete(name: str) -> bool:
    """Whether a checkpoint's file has all actions by its kind; one of version 2 may have sidecars."""
    return name.endswith(".checkpoint.parquet") or len(name.split(".")) == 5  # noqa: PLR2004 - a part of several


def _actions(store: Store, key: str) -> Iterator[dict[str, Any]]:
    """Our transactions, the metadata, the protocol and the sidecars in a file of a checkpoint.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it is damaged.
    """
    import pyarrow as pa

    if key.endswith(".json"):
        text = store.read(key, MOST_BYTES)
        if text is None:
            raise FileNotFoundError(key)
        yield from map(parse_json, text.splitlines())
        return
    try:
        with opened_parquet(store, key) as parquet:
            there = parquet.schema_arrow.names
            _check_columns(there, key)
            for batch in parquet.iter_batches(columns=[name for name in (*_ACTIONS, "sidecar") if name in there]):
                yield from _rows(batch)
    except pa.ArrowException as error:
        raise ValueError(str(error).partition("\n")[0]) from error


def _check_columns(there: Sequence[str], key: str) -> None:
    """See that a checkpoint has the columns that each engine writes, also if all values are null.

    Raises:
        ValueError: it has not.
    """
    for name in _ACTIONS if not _is_complete(key.rpartition("/")[2]) and "add" not in there else (*_ACTIONS, "add"):
        if name not in there:
            raise ValueError(f"it has no column {name}")


def _without_none(action: Json) -> Json:
    """As an entry has an action: fields that it does not have are not there."""
    return {name: value for name, value in action.items() if value is not None}


def _rows(batch: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - of pyarrow
    for name in batch.schema.names:
        column = batch.column(name).drop_null()
        in_json = _in_json(column.type) or (lambda value: value)
        for value in column.to_pylist():
            yield {name: in_json(value)}


def _in_json(kind: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401 - of pyarrow
    """How a value of that type becomes one that JSON has: a map comes as pairs. None if it is one.

    pyarrow before 19 cannot do this by itself.
    """
    import pyarrow as pa

    if pa.types.is_map(kind):
        inner = _in_json(kind.item_type)
        return lambda pairs: _without_doubles(
            [(key, value if inner is None or value is None else inner(value)) for key, value in pairs]
        )
    if not pa.types.is_struct(kind):
        return None
    fields = ((field.name, _in_json(field.type)) for field in kind)
    parts = [(name, part) for name, part in fields if part]

    def struct(value: dict[str, Any]) -> dict[str, Any]:
        return value | {name: part(value[name]) for name, part in parts if value[name] is not None}

    return struct if parts else None


def _without_doubles(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """A map's pairs.

    Raises:
        KeyError: a key comes twice.
    """
    made = dict(pairs)
    if len(made) != len(pairs):
        raise KeyError("a map has a key twice")
    return made
