"""Damaged checkpoints of a Delta table: which ones, and how the table goes on without them on POSIX.

A damaged checkpoint keeps deltalake from opening the table, also where an older one and the log have everything. One
that opens, and lacks positions or files that the log has, would lose or double records without a word.

Of a table's checkpoints the newest ones are read whole, as many as `WHOLE_BYTES` allow, and at least two. Of the older
ones only the ends are read: nobody needs them any more, and a clean-up removes them.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from fastkcl.stdio.log import logger
from fastkcl.tables import storage
from fastkcl.tables.base import RECOVERY, Shard, SinkError, parse_json
from fastkcl.tables.delta.checkpoint_comparison import contradiction
from fastkcl.tables.delta.checkpoint_content import DamageError, content
from fastkcl.tables.delta.log import (
    LAST_CHECKPOINT,
    LOG,
    MOST_BYTES,
    LogFiles,
    checkpoint_version,
    files_named,
    gaps,
    log_folder,
    version_named,
    versions,
    whole_checkpoint,
    whole_checkpoints,
)
from fastkcl.tables.delta.refusals import RefusalError, opened
from fastkcl.tables.delta.sidecars import SIDECARS, sidecar_fault, sidecar_name, sidecars_in
from fastkcl.tables.delta.window import Contradiction
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store, StoreError

__all__ = ["CheckpointDamage", "set_damage_aside"]

WHOLE_BYTES: Final = 256 << 20
_SMALL: Final = 64 << 20


class CheckpointDamage:
    """The damage of a table's checkpoints.

    Args:
        store: the table's.
        shard: whose position is wanted; its files without a position are damage, too.

    Raises:
        OSError: a file cannot be read.
    """

    def __init__(self, store: Store, shard: Shard | None = None) -> None:
        self._store = store
        last = self._last()  # before the checkpoints: it is written after the one that it names
        self.files = LogFiles.of(store)
        """Of the log, in which it was looked for."""
        self.found = self._faults()
        """By the names of files in the log: what is wrong with them, or with `_last_checkpoint`."""
        self.doubt: str | None = None
        """What the newest checkpoint has otherwise than the log before it: nobody can know which of them is wrong."""
        newest = whole_checkpoint(self._sound())[0]
        wrong = self._contradiction(shard)
        while wrong is not None and wrong.is_certain and checkpoint_version(wrong.files[0]) == newest:
            self.found |= dict.fromkeys(wrong.files, wrong.why)
            wrong = self._contradiction(shard if whole_checkpoint(self._sound())[0] == newest else None)
        if wrong is not None and not wrong.is_certain:
            self.doubt = wrong.why
        why = None if last is None else self._fault_of_last(last)
        if why is not None and self._last() == last:
            self.found[LAST_CHECKPOINT] = why

    def _last(self) -> bytes | None:
        """The content of `_last_checkpoint`; None for none, and for something else than a small file."""
        with suppress(SinkError):
            return self._store.read(f"{LOG}/{LAST_CHECKPOINT}", _SMALL)
        return None

    def _sound(self) -> list[str]:
        """Files of the log, without checkpoints that are damaged or empty."""
        sizes = self.files.sizes
        return [name for name in sizes if name not in self.found and (sizes[name] or versions([name]))]

    def _faults(self) -> dict[str, str]:
        """Of checkpoints that cannot be read, or have not what a checkpoint has."""
        found: dict[str, str] = {}
        by_version: dict[int, list[str]] = {}
        for name in self.files.sizes:
            by_version.setdefault(checkpoint_version(name), []).append(name)
        by_version.pop(-1, None)
        bytes_read = 0
        for index, version in enumerate(sorted(by_version, reverse=True)):
            names = by_version[version]
            bytes_read += sum(self.files.sizes[name] for name in names)
            is_whole = index < 2 or bytes_read <= WHOLE_BYTES
            for name in names:
                if (why := self._fault(name, is_whole=is_whole)) is not None:
                    found[name] = why
            left = [name for name in names if name not in found and self.files.sizes[name]]
            for files in whole_checkpoints(left)[1] if is_whole else ():
                try:
                    content(self._store, files)
                except DamageError as error:
                    found[error.name] = str(error)
                except FileNotFoundError:  # a clean-up
                    continue
        return dict(sorted(found.items()))

    def _fault(self, name: str, *, is_whole: bool) -> str | None:
        """Of one file."""
        try:
            why, sidecars = self._in_json(name) if name.endswith(".json") else self._in_parquet(name, is_whole=is_whole)
            for each in sidecars if why is None else ():
                if each is not None and (why := sidecar_fault(self._store, each, is_whole=is_whole)):
                    return None if self._store.tail(f"{LOG}/{name}", 1) is None else why
        except FileNotFoundError:  # a clean-up
            return None
        return why

    def _in_parquet(self, name: str, *, is_whole: bool) -> tuple[str | None, list[str | None]]:
        """The fault of a file, and its sidecars."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with self._opened(f"{LOG}/{name}") as source, pq.ParquetFile(source) as file:
                for _ in file.iter_batches() if is_whole else ():
                    pass
                return None, sidecars_in(file)
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, StoreError | FileNotFoundError):
                raise
            return str(error).partition("\n")[0], []

    def _opened(self, key: str) -> BinaryIO:
        """A file, or all of it if it is small.

        Raises:
            FileNotFoundError: it is gone.
        """
        size = self.files.sizes.get(key.rpartition("/")[2], _SMALL)
        text = self._store.read(key, _SMALL) if size < _SMALL else None
        file = self._store.open(key) if text is None else io.BytesIO(text)
        if file is None:
            raise FileNotFoundError(key)
        return file

    def _in_json(self, name: str) -> tuple[str | None, list[str | None]]:
        """The fault of a checkpoint of version 2 in JSON, and its sidecars."""
        sidecars = []
        try:
            text = self._store.read(f"{LOG}/{name}", MOST_BYTES)
            if text is None:
                raise FileNotFoundError(name)
            for line in text.splitlines():
                match parse_json(line):
                    case {"sidecar": {"path": str()} as sidecar}:
                        sidecars.append(sidecar_name(sidecar))
                    case dict():
                        continue
                    case _:
                        return "a line of it is no action", []
        except (ValueError, SinkError) as error:
            return str(error), []
        return None if text else "0 bytes", sidecars

    def _contradiction(self, shard: Shard | None) -> Contradiction | None:
        """What the newest checkpoint that is left has otherwise than the log."""
        with suppress(FileNotFoundError, DamageError):
            return contradiction(self._store, self._sound(), shard)
        return None

    def _fault_of_last(self, text: bytes) -> str | None:
        """Of `_last_checkpoint`: a reader looks for the checkpoint that it names."""
        if (version := version_named(text)) < 0:
            return "it names no version"
        sound = self._sound()
        if whole_checkpoint([name for name in sound if checkpoint_version(name) == version])[0] >= 0:
            return None
        missing = next((name for name in files_named(text) if name not in sound), None)
        return f"it names {missing}, which is damaged or missing"


def _refused(store: PosixStore, names: Sequence[str]) -> dict[str, str]:
    """The newest checkpoint's files, and what names them, if deltalake opens the table only without them."""
    version, files = whole_checkpoint(names)
    log = log_folder(store.folder)
    why = _refusal(log, names, version) if files else None
    others = [name for name in names if name not in (*files, LAST_CHECKPOINT)]
    if why is None or _refusal(log, others, version) is not None:
        return {}
    found = dict.fromkeys(files, f"deltalake cannot read it: {why}")
    if version_named(store.read(f"{LOG}/{LAST_CHECKPOINT}", _SMALL)) == version:
        found[LAST_CHECKPOINT] = f"it names {files[0]}, which is damaged or missing"
    return found


def _refusal(log: Path, names: Sequence[str], version: int) -> str | None:
    """deltalake's, of a table at a version whose log has these files; None if it opens the table."""
    from deltalake import DeltaTable

    with tempfile.TemporaryDirectory(prefix="fastkcl-") as folder:
        there = Path(folder) / LOG
        there.mkdir()
        for name in (*names, SIDECARS):
            (there / name).symlink_to(log.absolute() / name)  # where that is not there, nobody follows it
        try:
            opened(lambda: DeltaTable(folder, version=version).get_add_actions())
        except RefusalError as error:
            return str(error)
    return None


def set_damage_aside(log: Path, shard: Shard | None = None) -> bool:
    """Rename damaged checkpoints, so that the table opens by an older one and the log.

    Returns:
        Whether there was one.

    Raises:
        SinkError: the log does not go back to a checkpoint that is whole, or to its beginning.
    """
    store = PosixStore(log.parent)
    damage = CheckpointDamage(store, shard)
    if not damage.found:
        damage.found = _refused(store, damage.files.with_content)
    if not damage.found:
        return False
    names = [name for name in damage.files.with_content if name not in damage.found]
    start, _ = whole_checkpoint(names)
    there = [number for number in versions(damage.files.names) if number > start]
    if not there or gaps(start + 1, there):
        name, why = next(iter(damage.found.items()))
        raise SinkError(
            f"{log / name}: a damaged checkpoint ({why}), and the log does not go back to an older one: {RECOVERY}"
        )
    for name, why in damage.found.items():
        aside = log / f"{name}.damaged"
        logger().error(
            "%s: a damaged checkpoint (%s). It is %s now, and the table goes on by %s and the log, which have"
            " everything",
            log / name,
            why,
            aside.name,
            f"the checkpoint {start}" if start >= 0 else "its beginning",
        )
        try:
            storage.rename(log / name, aside)
        except FileNotFoundError:  # another child has done it
            continue
    storage.sync_folder(log)
    return True
