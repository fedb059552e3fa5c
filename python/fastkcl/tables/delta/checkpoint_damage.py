"""Damaged checkpoints of a Delta table on POSIX: which ones, and how the table goes on without them.

A damaged checkpoint keeps deltalake from opening the table, also where an older one and the log have everything. One
that opens, and lacks positions or files that the log has, would lose or double records without a word.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fastkcl.stdio.log import logger
from fastkcl.tables import storage
from fastkcl.tables.base import RECOVERY, Shard, SinkError, parse_json
from fastkcl.tables.delta.checkpoint_content import Contradiction, DamageError, content, contradiction
from fastkcl.tables.delta.log import (
    LAST_CHECKPOINT,
    MOST_BYTES,
    checkpoint_version,
    gaps,
    newest_checkpoint,
    no_files,
    version_named,
    versions,
)
from fastkcl.tables.posix_store import PosixStore

__all__ = ["checkpoint_damage", "checkpoint_doubt", "set_damage_aside"]

_SIDECARS = "_sidecars"


def checkpoint_damage(log: Path, shard: Shard | None = None) -> list[tuple[Path, str]]:
    """Which checkpoints of those that are there cannot be read, and why; also if `_last_checkpoint` cannot.

    Of files only: `no_files` has the others.
    """
    found = []
    others = no_files(log)
    for name in storage.names(log):
        if log / name not in others and checkpoint_version(name) >= 0:
            why = _fault_of_json(log, name) if name.endswith(".json") else _fault_of_parquet(log / name)
            if why is not None:
                found.append((log / name, why))
    found += _damage_of_content(log, {path.name for path, _ in found}, shard)
    text = None if log / LAST_CHECKPOINT in others else storage.read(log / LAST_CHECKPOINT)
    if text is not None:
        damaged = {path.name for path, _ in found}
        try:
            if (version := version_named(text)) < 0:
                raise ValueError("it names no version")
            named = f"{version:020d}.checkpoint."
            left = [name for name in storage.names(log) if name.startswith(named) and name not in damaged]
            if newest_checkpoint(log, left)[0] < 0:
                found.append((log / LAST_CHECKPOINT, f"it names {named}parquet, which is damaged or missing"))
        except ValueError as error:
            found.append((log / LAST_CHECKPOINT, str(error)))
    return found


def checkpoint_doubt(log: Path) -> str | None:
    """What the newest checkpoint has otherwise than the older one, if nobody can know which of them is wrong."""
    found = _contradiction(log, {path.name for path, _ in checkpoint_damage(log)})
    return None if found is None or found.is_certain else found.why


def _damage_of_content(log: Path, damaged: set[str], shard: Shard | None) -> list[tuple[Path, str]]:
    """Checkpoints that can be read, and have not what a checkpoint has; or what the log has otherwise."""
    found = []
    store = PosixStore(log.parent)
    others = {path.name for path in no_files(log)}
    names = [name for name in storage.names(log) if name not in others]
    for version in sorted({checkpoint_version(name) for name in names} - {-1}):
        files = [name for name in names if checkpoint_version(name) == version and name not in damaged]
        if newest_checkpoint(log, files)[0] == version:
            try:
                content(store, newest_checkpoint(log, files)[1])
            except DamageError as error:
                found.append((log / error.name, str(error)))
            except FileNotFoundError:  # a clean-up
                continue
    damaged = damaged | {path.name for path, _ in found}
    contradicted = _contradiction(log, damaged, shard)
    if contradicted is not None and contradicted.is_certain:
        _, files = newest_checkpoint(log, [name for name in names if name not in damaged])
        found += [(log / name, contradicted.why) for name in files]
    return found


def _contradiction(log: Path, damaged: set[str], shard: Shard | None = None) -> Contradiction | None:
    others = {path.name for path in no_files(log)}
    names = [name for name in storage.names(log) if name not in damaged | others]
    files = newest_checkpoint(log, names)[1]
    older = [name for name in names if checkpoint_version(name) < 0 or name in files or _has_content(log / name)]
    with suppress(FileNotFoundError, DamageError):
        return contradiction(PosixStore(log.parent), older, shard)
    return None


def _has_content(path: Path) -> bool:
    status = storage.status(path)
    return status is not None and status.st_size > 0


def _fault_of_parquet(path: Path) -> str | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for _ in file.iter_batches():
                pass
    except FileNotFoundError:  # a clean-up
        return None
    except (pa.ArrowException, OSError, ValueError) as error:
        return str(error).partition("\n")[0]
    return None


def _fault_of_json(log: Path, name: str) -> str | None:
    """The fault of a checkpoint of version 2 in JSON, or of a sidecar that it names."""
    try:
        text = storage.read(log / name, MOST_BYTES)
        if text is None:  # a clean-up
            return None
        for line in text.splitlines():
            match parse_json(line):
                case {"sidecar": {"path": str(path)}} if path == Path(path).name:
                    sidecar = log / _SIDECARS / path
                    if storage.file_status(sidecar) is None:
                        return f"its {_SIDECARS}/{path} is missing"
                    if why := _fault_of_parquet(sidecar):
                        return f"its {_SIDECARS}/{path}: {why}"
                case dict():
                    continue
                case _:
                    return "a line of it is no action"
    except (ValueError, SinkError) as error:
        return str(error)
    return None if text else "0 bytes"


def set_damage_aside(log: Path, shard: Shard | None = None) -> bool:
    """Rename damaged checkpoints, so that the table opens by an older one and the log.

    Returns:
        Whether there was one.

    Raises:
        SinkError: the log does not go back to a checkpoint that is whole, or to its beginning.
    """
    found = checkpoint_damage(log, shard)
    if not found:
        return False
    damaged, names = {path.name for path, _ in found}, storage.names(log)
    start, _ = newest_checkpoint(log, [name for name in names if name not in damaged])
    there = [number for number in versions(names) if number > start]
    if not there or gaps(start + 1, there):
        path, why = found[0]
        raise SinkError(
            f"{path}: a damaged checkpoint ({why}), and the log does not go back to an older one: {RECOVERY}"
        )
    for path, why in found:
        aside = path.with_name(f"{path.name}.damaged")
        logger().error(
            "%s: a damaged checkpoint (%s). It is %s now, and the table goes on by %s and the log, which have"
            " everything",
            path,
            why,
            aside.name,
            f"the checkpoint {start}" if start >= 0 else "its beginning",
        )
        try:
            storage.rename(path, aside)
        except FileNotFoundError:  # another child has done it
            continue
    storage.sync_folder(log)
    return True
