"""The claim of a ParquetTable: its id, and its partition. Each file names the id, so a lost claim can be made again.

    /data/clicks/_fastkcl/table/{"format":1,"id":"…","partition":"date"}   on a disk: an empty file in a folder
    s3://lake/clicks/_fastkcl/table                                        on S3: an empty object, which has the text
                                                                           as its metadata

Copies lose it: programs that leave out empty files, file systems that have no such names, and uploads without metadata.
With another id the table's files would be those of another table. So it is not made where files are.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from fastkcl.tables.base import RECOVERY, SinkError, parse_own_json
from fastkcl.tables.object_store import ObjectStore
from fastkcl.tables.parquet.chain import Footer
from fastkcl.tables.parquet.footers import read_footer
from fastkcl.tables.store import Store

__all__ = ["CLAIM", "check_is_of_files", "check_not_lost", "claim_text", "parse_claim"]

CLAIM: Final = "_fastkcl/table"
_FORMAT: Final = 1


def claim_text(table: str, partition: str) -> str:
    """The claim of the table with this id."""
    return json.dumps({"format": _FORMAT, "id": table, "partition": partition}, separators=(",", ":"))


def parse_claim(text: str, url: str) -> dict[str, Any]:
    """The claim of a table: its id, and its partition.

    Raises:
        SinkError: it has another version, or is damaged.
    """
    try:
        value = parse_own_json(text)
        if type(value["format"]) is int and value["format"] == _FORMAT and isinstance(value["id"], str):
            return dict(value)
    except (ValueError, KeyError, TypeError):
        pass
    raise SinkError(
        f"{url}/{CLAIM}: says {text[:200]!r}, which is not of this version: of a newer one, or damaged: restore it from"
        f" a copy; {RECOVERY}"
    )


def check_not_lost(store: Store) -> None:
    """See that a place without a claim has no files of a table.

    Raises:
        SinkError: it has; the error says how the claim is made again.
        OSError: it cannot be read.
    """
    keys = list(_newest_files(store))
    if not keys or store.claimed(CLAIM):  # somebody has made the table meanwhile
        return
    footers = [(key, footer) for key in keys if (footer := _footer(store, key)) is not None]
    tables: dict[str, str] = {}
    for key, footer in footers:
        tables.setdefault(footer.table, key)
    lost = f"{store.url}/{CLAIM}: the table's claim is gone, and its files are there"
    if not footers:
        raise SinkError(
            f"{lost} ({keys[0]}): restore it from a copy. This file does not tell the table's id: if it is no"
            f" ParquetTable's, give another folder; {RECOVERY}"
        )
    if len(tables) > 1:
        named = ", ".join(f"{table} ({key})" for table, key in tables.items())
        raise SinkError(
            f"{lost}, of several tables: {named}. Move the shards' folders of other tables away; the error after that"
            f" says how the claim is made again; {RECOVERY}"
        )
    key, footer = footers[0]
    lost += f" ({key})"
    text = claim_text(footer.table, "none" if footer.next_day is None else "date")
    raise SinkError(f"{lost}: restore it from a copy, or make it again ({RECOVERY}): {_command(store, text)}")


def check_is_of_files(store: Store, table: str) -> None:
    """See that files of a table name the id that its claim has: a copy may lie over a table that was new.

    Raises:
        SinkError: there are files, and none of those that are newest in their shards names it; the error says how the
            claim is made again.
        OSError: they cannot be read.
    """
    other: tuple[str, Footer] | None = None
    for key in _newest_files(store):
        footer = _footer(store, key)
        if footer is not None and footer.table == table:
            return
        if footer is not None and other is None:
            other = (key, footer)
    if other is not None:
        key, footer = other
        text = claim_text(footer.table, "none" if footer.next_day is None else "date")
        raise SinkError(
            f"{store.url}/{CLAIM}: the claim of another table, {table}: the files here are of {footer.table} ({key})."
            f" Remove the claim, and make it again ({RECOVERY}): {_command(store, text)}"
        )


def _footer(store: Store, key: str) -> Footer | None:
    """Of a file of another shard; None for a damaged one: who opens that shard says so."""
    try:
        return read_footer(store, key)
    except (ValueError, SinkError):
        return None


def _command(store: Store, text: str) -> str:
    """What makes a claim."""
    if isinstance(store, ObjectStore):
        bucket, _, prefix = store.url.removeprefix("s3://").partition("/")
        metadata = shlex.quote(json.dumps(store.metadata_of(text)))
        return f"aws s3api put-object --bucket {bucket} --key {shlex.quote(f'{prefix}/{CLAIM}')} --metadata {metadata}"
    folder = Path(store.url, CLAIM)
    return f"mkdir -p {shlex.quote(str(folder))} && touch {shlex.quote(str(folder / text))}"


def _newest_files(store: Store) -> Iterator[str]:
    """That of each shard that has some."""
    for stream in store.folders(""):
        if not stream.startswith("stream="):
            continue
        for shard in store.folders(stream):
            folder = f"{stream}/{shard}"
            days = [f"{folder}/{name}" for name in store.folders(folder)]
            for each in (*reversed(days), folder):
                files = [file.key for file in store.files(each)]
                if found := [key for key in files if key.rpartition("/")[2].startswith("after-")]:
                    yield found[-1]
                    break
