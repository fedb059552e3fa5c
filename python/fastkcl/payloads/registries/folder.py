"""Schemas in a folder, by id; see `FolderRegistry`.

Rules: files are read when they are asked for. An id becomes part of a path only if it is one of a header. A folder that
is not there (not mounted, for example) is away, as a registry that does not answer. Only regular files are read: a pipe
could hold its reader up for ever.
"""

from __future__ import annotations

import os
import re
import stat
from itertools import islice
from pathlib import Path
from typing import Final

from fastkcl._core import avro_fingerprint
from fastkcl.payloads.registries.answers import (
    MAX_SCHEMA_BYTES,
    AwayError,
    MissingError,
    SchemaFormat,
    SchemaText,
    UnusableError,
    check_text,
)
from fastkcl.payloads.registries.options import FolderRegistry

__all__ = ["FolderClient"]

_ID: Final = re.compile(r"[0-9a-f-]{1,36}")
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}")
_FORMATS: Final[dict[str, SchemaFormat]] = {".avsc": "avro", ".proto": "protobuf", ".json": "json"}
_MOST_FILES: Final = 10_000


class FolderClient:
    """Reads of one folder.

    Args:
        options: where it is.
    """

    def __init__(self, options: FolderRegistry) -> None:
        self._folder = Path(options.path)
        self.where = str(options)

    def by_id(self, id: str) -> SchemaText:  # noqa: A002 - the field's word
        """The schema of an id, or of a fingerprint.

        Raises:
            MissingError: there is none.
            UnusableError: it cannot be used.
            AwayError: the folder cannot be read.
        """
        if not _ID.fullmatch(id):
            raise UnusableError(f"{id!r} is no id of a header")
        found = [
            (suffix, text) for suffix in _FORMATS if (text := self._read(self._folder / f"{id}{suffix}")) is not None
        ]
        if len(found) > 1:
            raise UnusableError(
                f"{self.where} has {' and '.join(id + suffix for suffix, _ in found)}: keep one of them"
            )
        for suffix, text in found:
            return SchemaText(*check_text(_FORMATS[suffix], text, self.where), id=id)
        if _FINGERPRINT.fullmatch(id):
            for path in islice(sorted(self._folder.glob("*.avsc")), _MOST_FILES):
                try:
                    text = self._read(path)
                    if text is not None and avro_fingerprint(text) == id:
                        return SchemaText("avro", text, id=id)
                except ValueError:
                    continue  # another file, which says nothing about this id
        if not self._folder.is_dir():
            raise AwayError(f"{self.where} is not there, so nothing is known of {id}")
        raise MissingError(f"{self.where} has no {id}.avsc, {id}.proto or {id}.json")

    def latest(self, name: str) -> SchemaText:
        """Refused: a folder has no versions.

        Raises:
            UnusableError: always.
        """
        raise UnusableError(f"{self.where} has no versions: give the file of {name!r} as schema=")

    def register(self, name: str, format: str, text: str) -> str:  # noqa: A002, ARG002 - as others have it
        """Refused: a folder gives no ids.

        Raises:
            UnusableError: always.
        """
        raise UnusableError("a folder gives no ids: give schema_id=")

    def _read(self, path: Path) -> str | None:
        try:
            with open(path, "rb", opener=_without_waiting) as file:  # noqa: PTH123 - pathlib's has no opener
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise UnusableError(f"{path} is no file")
                data = file.read(MAX_SCHEMA_BYTES + 1)
        except IsADirectoryError:
            raise UnusableError(f"{path} is no file") from None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise AwayError(f"{path} cannot be read: {error.strerror}") from error
        if len(data) > MAX_SCHEMA_BYTES:
            raise UnusableError(f"{path} has more than {MAX_SCHEMA_BYTES} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise UnusableError(f"{path} is no UTF-8: {error}") from None


def _without_waiting(path: str, flags: int) -> int:
    """Opens a file; a pipe, too, without a writer at its other end."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
