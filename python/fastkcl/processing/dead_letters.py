"""Dead letters: files of records that a processor has failed on, for `fastkcl.replay` and for people.

A letter is an Arrow IPC file in the canonical schema. Its metadata say whose records they are, which, and why. Only a
run that asks for dead letters imports this module.
"""

from __future__ import annotations

import os

from fastkcl import folder_sync
from fastkcl._core import __version__, write_ipc_file
from fastkcl.portable import sync

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastkcl._core import RecordBatch
    from fastkcl.processing.context import ShardContext

_NAME_PART_LIMIT = 60
"""Of four parts: with those of a temporary name they stay below the 255 bytes that a file system has for a name."""
_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


class DeadLetters:
    """A folder of dead letters.

    Args:
        folder: made if it is missing.

    Raises:
        OSError: it cannot be made or written to.
    """

    __slots__ = ("folder",)

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # User code may change the current folder.
        self.folder = os.path.abspath(os.fspath(folder))  # noqa: PTH100
        os.makedirs(self.folder, exist_ok=True)  # noqa: PTH103 - pathlib is slow to import
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise PermissionError(f"dead_letter={self.folder}: this user may not write there")
        _keep_names(self.folder)

    def store(self, batches: Sequence[RecordBatch], context: ShardContext, error: str, traceback: str) -> str:
        """Write a letter; on return it is on disk.

        Args:
            batches: one or more, each with records.
            context: their shard.
            error: why they are here, in a line.
            traceback: of that error.

        Returns:
            The path of the file.

        Raises:
            OSError: it could not be written.
        """
        first, last = batches[0][0], batches[-1][len(batches[-1]) - 1]
        metadata = {
            "fastkcl.version": __version__,
            "fastkcl.shard_id": context.shard_id,
            "fastkcl.error": _as_utf8(error),
            "fastkcl.traceback": _as_utf8(traceback),
        }
        if context.stream is not None:
            metadata["fastkcl.stream"] = _as_utf8(context.stream)
        if batches[-1].millis_behind_latest is not None:
            metadata["fastkcl.millis_behind_latest"] = str(batches[-1].millis_behind_latest)
        for name, record in (("first", first), ("last", last)):
            metadata[f"fastkcl.{name}_sequence_number"] = record.sequence_number
            if record.sub_sequence_number is not None:
                metadata[f"fastkcl.{name}_sub_sequence_number"] = str(record.sub_sequence_number)
        position = (first.sequence_number, str(first.sub_sequence_number or 0))
        stem = "-".join(_safe(part) for part in (context.stream or "", context.shard_id, *position) if part)
        # The same position may fail again after a redelivery: every failure keeps its file.
        number = 0
        while True:
            path = f"{self.folder}/{stem}{f'.{number}' if number else ''}.arrow"
            try:
                write_ipc_file(path, batches, metadata)
            except FileExistsError:
                number += 1
            else:
                return path


def _keep_names(folder: str) -> None:
    """Have a folder, and those above it, outlive a power cut, also existing ones: who made them may have died before.

    Up to where the file system begins. A letter keeps its own name.

    Raises:
        OSError: one cannot be synced, and it is this user's.
    """
    while not os.path.ismount(folder):
        folder = os.path.dirname(folder)  # noqa: PTH120
        try:
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                sync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if not folder_sync.is_needless(error):
                raise


def _as_utf8(text: str) -> str:
    """Text of user code as Arrow metadata can hold it: a lone surrogate is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _safe(part: str) -> str:
    """A part of a file name: all but letters, digits, - and _ become _, and a long part keeps its end."""
    return "".join(char if char in _SAFE else "_" for char in part)[-_NAME_PART_LIMIT:]
