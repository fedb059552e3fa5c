"""Checkpoints of a Delta table's log: deltalake makes one in a scratch folder, from copies or links of the log's files.

From there it is moved to the table: first the complete checkpoint, then `_last_checkpoint`, which names it. If a step
fails, nothing is lost, because the log has everything. The next checkpoint is tried when it is due.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from fastkcl.tables.delta.checkpoint_comparison import check_entries
from fastkcl.tables.delta.log import LAST_CHECKPOINT, LOG, MOST_BYTES, entry_key, version_named, whole_checkpoint
from fastkcl.tables.object_store import ObjectStore
from fastkcl.tables.posix_store import PosixStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastkcl.tables.store import Store

__all__ = ["INTERVAL", "is_due", "make_checkpoint"]

INTERVAL: Final = 100
"""Versions; `delta.checkpointInterval`, where the table has none."""
_LAST: Final = f"{LOG}/{LAST_CHECKPOINT}"
_SMALL: Final = 64 << 20


def is_due(version: int, options: Mapping[str, str]) -> bool:
    """Whether the commit of a version is one that a checkpoint is made after.

    Args:
        version: of the commit.
        options: the table's.
    """
    interval = int(options.get("delta.checkpointInterval") or INTERVAL)
    return version > 0 and version % max(1, interval) == 0


def make_checkpoint(store: Store, version: int, options: Mapping[str, str]) -> None:
    """Make the checkpoint of a version, and have deltalake remove what the log has no need of any more.

    Raises:
        Exception: it was not made, or not all of it: deltalake's error, or the store's.
    """
    from deltalake import DeltaTable

    before = version_named(store.read(_LAST, _SMALL))
    entries = store.files(LOG, f"{before:020d}" if before > 0 else "")
    names = [each.key.rpartition("/")[2] for each in entries if each.size]
    before, files = whole_checkpoint(names)
    if before >= version or not all(name.endswith(".checkpoint.parquet") for name in files):
        return  # somebody has made it; or in parts or by another scheme, whose engine goes on with it
    with TemporaryDirectory(prefix="fastkcl-") as scratch:
        log = Path(scratch) / LOG
        log.mkdir()
        keys = [f"{LOG}/{name}" for name in files] + [entry_key(number) for number in range(before + 1, version + 1)]
        for key in keys:
            _bring(store, key, Path(scratch) / key)
        check_entries(store if isinstance(store, PosixStore) else PosixStore(Path(scratch)), before, files, version)
        made = DeltaTable(scratch)
        made.create_checkpoint()
        for path in sorted(path for path in log.rglob("*") if path.is_file() and not path.is_symlink()):
            key = str(path.relative_to(scratch))
            if key not in keys and path.name != LAST_CHECKPOINT:
                store.replace(key, path.read_bytes())  # one that is there has the same content, or is damaged
        if version_named(store.read(_LAST, _SMALL)) < made.version():
            store.replace(_LAST, (log / LAST_CHECKPOINT).read_bytes())
    if options.get("delta.enableExpiredLogCleanup") != "false":
        _clean_up(store)


def _bring(store: Store, key: str, target: Path) -> None:
    if isinstance(store, PosixStore):
        target.symlink_to(store.folder / key)
        return
    content = store.read(key, MOST_BYTES)
    if content is None:
        raise FileNotFoundError(f"{store.url}/{key}: it was there, and is gone: is the log cleaned up?")
    target.write_bytes(content)


def _clean_up(store: Store) -> None:
    from deltalake import DeltaTable

    if isinstance(store, PosixStore):
        DeltaTable(store.folder).cleanup_metadata()
    elif isinstance(store, ObjectStore) and not store.has_private_authority:
        DeltaTable(store.url, storage_options=store.library_options()).cleanup_metadata()
