"""pyiceberg's metadata files over our storage: whole files, one request each.

pyiceberg makes it anew at each load of a table, with the ``s3.*`` properties of now: a REST catalog hands out
credentials there. The storage of an address is kept, and its connections with it.

A file that is gone, or that pyiceberg cannot read, is a `DamagedError` with its location.

Rules: a name of pyiceberg's has random bits, so its file is created exclusively; one that is there with the same bytes
is our own, whose answer was lost.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.typedef import EMPTY_DICT, Properties

from fastkcl.tables.base import RECOVERY, SinkError, in_one_line
from fastkcl.tables.folders import can_exist
from fastkcl.tables.object_store import ObjectStore, S3Storage
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store, StoreError

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

__all__ = [
    "CA",
    "OURS",
    "DamagedError",
    "MissingError",
    "StoreFileIO",
    "check_locations",
    "locations_of",
    "is_on_s3",
    "sizes",
    "storage_of",
    "store_and_key",
    "table_store",
]

CA: Final = "fastkcl.ca"
"""Property with the path of a private authority's certificate."""
OURS: Final = frozenset({CA, "auth", "ssl", "py-io-impl", "py-catalog-impl"})
"""Properties that choose code, or files of this machine: neither a server nor a table gives them."""
_MOST_BYTES: Final = 512 << 20


class DamagedError(SinkError):
    """A file of the table's metadata cannot be read as what it should be."""


class MissingError(DamagedError, FileNotFoundError):
    """A file of the table's metadata is gone."""


class StoreFileIO(FileIO):
    """Files by their locations: ``s3://``, ``file://``, or a path.

    Args:
        properties: the catalog's and the table's.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._storage = storage_of(properties)

    def new_input(self, location: str) -> InputFile:
        """A file to read."""
        return _File(location, self._storage)

    def new_output(self, location: str) -> OutputFile:
        """A file to make."""
        return _File(location, self._storage)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file; absent is fine."""
        store, key = store_and_key(location if isinstance(location, str) else location.location, self._storage)
        store.remove(key)


class _File(InputFile, OutputFile):
    def __init__(self, location: str, storage: S3Storage) -> None:
        super().__init__(location)
        self._store, self._key = store_and_key(location, storage)
        self._size: int | None = None

    def __len__(self) -> int:
        if self._size is None:
            self._size = len(self._read())
        return self._size

    def exists(self) -> bool:
        return self._store.tail(self._key, 1) is not None

    def open(self, seekable: bool = True) -> io.BytesIO:  # noqa: ARG002 - as pyiceberg has it
        body = self._read()
        self._size = len(body)
        return _Input(self.location, body)

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> _Output:  # noqa: ARG002 - names are never used twice
        return _Output(self)

    def put(self, body: bytes) -> None:
        if not self._store.create(self._key, body):
            there = self._store.read(self._key, _MOST_BYTES)
            if there is None:
                raise StoreError(f"{self.location}: the store refuses to create it, and there is nothing: try again")
            if there != body:
                raise FileExistsError(f"{self.location}: is there, and is another file")
        self._size = len(body)

    def _read(self) -> bytes:
        try:
            is_possible = is_on_s3(self.location) or can_exist(self.location)
            body = self._store.read(self._key, _MOST_BYTES) if is_possible else None
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            body = None
        if body is None:
            raise MissingError(f"{self.location}: a file of the table's metadata is gone; {RECOVERY}")
        return body


class _Input(io.BytesIO):
    """A file's content; who cannot make sense of it while it is open gets an error that names it."""

    def __init__(self, location: str, body: bytes) -> None:
        super().__init__(body)
        self._location = location

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, Exception) and not isinstance(error, SinkError):
            raise DamagedError(
                f"{self._location}: damaged, or cut off: {in_one_line(error)[:200]}; {RECOVERY}"
            ) from error


class _Output(io.BytesIO):
    """Put as a whole when it is closed, unless an error has come before."""

    def __init__(self, file: _File) -> None:
        super().__init__()
        self._file = file

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            super().close()

    def close(self) -> None:
        if not self.closed:
            body = self.getvalue()
            super().close()
            self._file.put(body)

    def __del__(self) -> None:
        """What was not closed is not there."""


def storage_of(properties: Properties) -> S3Storage:
    """How S3 is reached by properties of pyiceberg; what they leave open is found as for other tables."""

    def text(name: str) -> str | None:
        value = properties.get(f"s3.{name}") or properties.get(f"client.{name}")
        return None if value is None else str(value)

    key, secret = text("access-key-id"), text("secret-access-key")
    if key is None or secret is None:
        key = secret = None
    return S3Storage(
        endpoint=properties.get("s3.endpoint"),
        region=text("region"),
        access_key=key,
        secret_key=secret,
        session_token=None if key is None else text("session-token"),
        ca=properties.get(CA),
    )


def store_and_key(location: str, storage: S3Storage, table: str | None = None) -> tuple[Store, str]:
    """The storage of a file, and its key there.

    Args:
        location: of the file.
        storage: how S3 is reached.
        table: the table's location; its folder is that of the file's folder if None.

    Raises:
        SinkError: it is neither on S3 nor in a folder.
    """
    if is_on_s3(location):
        folder, _, name = location.partition("://")[2].rpartition("/")
        bucket, _, prefix = folder.partition("/")
        first, _, rest = prefix.partition("/")  # one connection for all that has one beginning
        if not first:
            raise SinkError(f"{location}: a table needs a prefix in its bucket")
        return _objects(f"s3://{bucket}/{first}", storage), f"{rest}/{name}" if rest else name
    path = _path(location)
    root = path.parent.parent
    if table is not None and path.is_relative_to(above := _path(table)):
        root = above
    return PosixStore(root), path.relative_to(root).as_posix()


def sizes(locations: Sequence[str], storage: S3Storage, table: str) -> list[int | None]:
    """The bytes of each file of a table; None if there is none.

    Args:
        locations: of the files.
        storage: how S3 is reached.
        table: the table's location.

    Raises:
        SinkError: one is neither on S3 nor in a folder.
        OSError: nobody knows.
    """
    places: dict[str, tuple[Store, list[str]]] = {}
    where = []
    for location in locations:
        store, key = store_and_key(location, storage, table)
        keys = places.setdefault(store.url, (store, []))[1]
        where.append((store.url, len(keys)))
        keys.append(key)
    found = {url: store.sizes(keys) for url, (store, keys) in places.items()}
    return [found[url][number] for url, number in where]


def table_store(location: str, storage: S3Storage) -> Store:
    """The storage of a whole table.

    Raises:
        SinkError: it is neither on S3 nor in a folder.
    """
    if is_on_s3(location):
        return ObjectStore(f"s3://{location.partition('://')[2].rstrip('/')}", storage)
    return PosixStore(_path(location))


def check_locations(metadata: TableMetadata, storage: S3Storage) -> None:
    """See that a table can have files at its location, and where its properties ask for them.

    Raises:
        SinkError: it is neither in a bucket nor in a folder, or no folder can have this name.
    """
    for name, location in locations_of(metadata).items():
        try:
            _check_location(location, storage)
        except SinkError as error:
            raise SinkError(f"its {name} {error}; set another one, or restore its metadata from a copy") from None


def locations_of(metadata: TableMetadata) -> dict[str, str]:
    """Where a table has its files: its location, and those that its properties ask for, by name."""
    found = {name: metadata.properties.get(name) for name in ("write.data.path", "write.metadata.path")}
    return {"location": metadata.location, **{name: place for name, place in found.items() if place is not None}}


def _check_location(location: str, storage: S3Storage) -> None:
    """See that files of a table can be at a location.

    Raises:
        SinkError: it is neither in a bucket nor in a folder, or no folder can have this name.
    """
    why = "no file can have such a name"
    try:
        if is_on_s3(location):
            _check_whole(location)
            store_and_key(f"{location}/data/file", storage)
            return
        if can_exist(str(_path(location))):
            return
    except (SinkError, ValueError) as error:
        why = str(error)
    raise SinkError(f"{location[:200]!r} cannot have files: {why}")


def is_on_s3(location: str) -> bool:
    """Whether a location is on S3, in whatever spelling."""
    return _split(location).scheme in ("s3", "s3a", "s3n")


def _check_whole(location: str) -> None:
    """See that readers, which take a location for a URL, take all of it for its path."""
    if "?" in location or "#" in location:
        raise SinkError(f"{location[:200]!r}: readers of Iceberg cut a location off at a ? or #: name it without")


def _split(location: str) -> SplitResult:
    try:
        return urlsplit(location)
    except ValueError as error:
        raise SinkError(f"{location[:200]}: no location of a file: {error}") from None


def _path(location: str) -> Path:
    parts = _split(location)
    _check_whole(location)
    is_file = parts.scheme == "file" and parts.netloc in ("", "localhost")
    name = parts.path if is_file else location  # as it is: other readers decode nothing
    if (is_file or not parts.scheme) and os.path.isabs(name):  # noqa: PTH117 - a text of somebody else's
        return Path(name)
    raise SinkError(f"{location[:200]!r}: files of an IcebergTable lie on S3 or in a folder, and not there")


@lru_cache(maxsize=64)
def _objects(url: str, storage: S3Storage) -> ObjectStore:
    return ObjectStore(url, storage)
