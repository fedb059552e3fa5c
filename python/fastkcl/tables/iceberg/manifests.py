"""An Iceberg table's manifests, for those who look into a table: names each that is gone or damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.manifest import read_manifest_list

from fastkcl.tables.base import RECOVERY, SinkError, in_one_line
from fastkcl.tables.iceberg.io import DamagedError

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestEntry, ManifestFile
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["entries_of", "manifests_of"]

T = TypeVar("T")


def manifests_of(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    """The manifests of a snapshot.

    Raises:
        MissingError: their list is gone.
        DamagedError: it is damaged.
        OSError: the store does not answer.
    """
    location = snapshot.manifest_list
    return _read(location, "a manifest list", lambda: list(read_manifest_list(io.new_input(location))))


def entries_of(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """The entries of a manifest, those of removed files too.

    Raises:
        MissingError: it is gone.
        DamagedError: it is damaged.
        OSError: the store does not answer.
    """
    return _read(manifest.manifest_path, "a manifest", lambda: manifest.fetch_manifest_entry(io, discard_deleted=False))


def _read(location: str, what: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except (SinkError, OSError):
        raise
    except Exception as error:  # of a reader of Avro, which meets any bytes
        raise DamagedError(f"{location}: {what} that is damaged: {in_one_line(error)[:200]}; {RECOVERY}") from error
