"""What happens when a method of the processor raises: stop, try again, store, or skip.

A child that exits takes its daemon down, the leases move, and the batch is delivered again, to fail again: a poison
record wanders from host to host. A child that goes on reports a batch as processed that was not. No default is right
for everybody:

    retries=n         first of all: the same call again, in place, with growing pauses. The daemon sees a slow child
    dead_letter=DIR   then the batch is written to DIR with its error, synced, and the shard goes on. Nothing is lost;
                      if the file cannot be written, stop
    on_error="skip"   or the batch is given up: a line names its positions
    on_error="stop"   or the run ends without a status (default)

Never subject to this: a protocol error, a daemon that is gone, SystemExit, KeyboardInterrupt and other exceptions
that are no Exception, and a failing `initialize`. `dead_letter` concerns batches only; for a failing lease_lost,
shard_ended or shutdown_requested `on_error` decides.
"""

from __future__ import annotations

import os

from fastkcl._core import __version__, write_ipc_file
from fastkcl.kcl.errors import ProtocolError
from fastkcl.stdio import reports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, NoReturn

    from fastkcl._core import Record, RecordBatch
    from fastkcl.kcl.dialogue import Dialogue
    from fastkcl.kcl.processor import ShardContext

_NAME_PART_LIMIT = 80
_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


class FailurePolicy:
    """The choice of one run, checked when it is made.

    Args:
        on_error: "stop" or "skip".
        retries: how often a failed call is repeated first.
        backoff: seconds before the first retry, doubled before each further one.
        dead_letter: folder for batches that failed; made if it is missing.
        report: writes a line.

    Raises:
        ValueError: an argument out of range.
        TypeError: `retries` is no whole number.
        OSError: `dead_letter` cannot be made or written to.
    """

    __slots__ = ("_backoff", "_dead_letter", "_on_error", "_report", "_retries")

    def __init__(
        self,
        *,
        on_error: Literal["stop", "skip"],
        retries: int,
        backoff: float,
        dead_letter: str | os.PathLike[str] | None,
        report: Callable[[str], None] = reports.line,
    ) -> None:
        if on_error not in ("stop", "skip"):
            raise ValueError(f"on_error must be 'stop' or 'skip', not {on_error!r}")
        if not isinstance(retries, int):
            raise TypeError(f"retries must be a whole number, not {retries!r}")
        if retries < 0 or not backoff >= 0:
            raise ValueError(f"retries and retry_backoff must not be negative: {retries}, {backoff}")
        self._on_error = on_error
        self._retries = retries
        self._backoff = backoff
        self._report = report
        self._dead_letter = None if dead_letter is None else os.fspath(dead_letter)
        if self._dead_letter is not None:
            os.makedirs(self._dead_letter, exist_ok=True)  # noqa: PTH103 - pathlib is slow to import
            if not os.access(self._dead_letter, os.W_OK | os.X_OK):
                raise PermissionError(f"dead_letter={self._dead_letter}: this user may not write there")

    def call(
        self,
        method: Callable[[], None],
        name: str,
        dialogue: Dialogue,
        context: ShardContext,
        batch: RecordBatch | None = None,
    ) -> None:
        """Call a method of the processor. On return its request can be answered.

        Args:
            method: the call.
            name: the method's name.
            dialogue: what the method may have broken.
            context: the shard.
            batch: for process_batch: its records.

        Raises:
            ProtocolError: the dialogue is broken, whatever the method made of that.
            SystemExit: the run has to stop.
        """
        retries = 0 if name == "initialize" else self._retries
        for attempt in range(retries + 1):
            try:
                method()
            except Exception as error:
                dialogue.check()
                if isinstance(error, ProtocolError):
                    raise
                text = reports.traceback_text(error)
                reports.traceback_lines(text)
                what = failed(name, error, context, batch)
                if name == "initialize":
                    self._stop(what)
                if attempt == retries:
                    self.settle(what, text, context, batch)
                    return
                self._report(f"retry: {what}; {retries - attempt} more to go")
            else:
                dialogue.check()
                return
            dialogue.signals.back_off(self._backoff, attempt)

    def settle(self, what: str, traceback: str, context: ShardContext, batch: RecordBatch | None) -> None:
        """Do what was chosen for a call that failed for good. On return its request can be answered.

        Args:
            what: as `failed` says it.
            traceback: for the dead letter.
            context: the shard.
            batch: for a call with records.

        Raises:
            SystemExit: the run has to stop.
        """
        if self._dead_letter is not None and batch is not None:
            try:
                path = _store(self._dead_letter, batch, context, what, traceback)
            except (OSError, ValueError) as error:
                self._stop(f"{what}; and dead_letter={self._dead_letter} could not be written: {error}")
            self._report(f"dead_letter: {what}; stored in {path}")
        elif self._on_error == "skip":
            told = (
                "these records are reported as processed without having been" if batch is not None else "it is skipped"
            )
            self._report(f"skip: {what}; {told}")
        else:
            self._stop(what)

    def _stop(self, what: str) -> NoReturn:
        self._report(f"user_error: {what}; no status was sent")
        raise SystemExit(reports.EXIT_FAILURE) from None


def failed(name: str, error: BaseException, context: ShardContext, batch: RecordBatch | None) -> str:
    """Which call failed, why, and for which records; for a report."""
    return f"{name} failed with {reports.describe(error)} ({span(batch, context)})"


def span(batch: RecordBatch | None, context: ShardContext) -> str:
    """The shard, and the first and last position of a batch, for a report."""
    if batch is None:
        return context.shard_id
    if len(batch) == 0:
        return f"{context.shard_id}, no records"
    return f"{context.shard_id}, {len(batch)} records from {_place(batch[0])} to {_place(batch[len(batch) - 1])}"


def _place(record: Record) -> str:
    sub = record.sub_sequence_number
    return record.sequence_number if sub is None else f"{record.sequence_number}/{sub}"


def _store(folder: str, batch: RecordBatch, context: ShardContext, error: str, traceback: str) -> str:
    """Write a dead letter; on return it is on disk.

    Returns:
        The path of the file.

    Raises:
        OSError: it could not be written.
    """
    metadata = {
        "fastkcl.version": __version__,
        "fastkcl.shard_id": context.shard_id,
        "fastkcl.error": _as_utf8(error),
        "fastkcl.traceback": _as_utf8(traceback),
    }
    if context.stream is not None:
        metadata["fastkcl.stream"] = context.stream
    if batch.millis_behind_latest is not None:
        metadata["fastkcl.millis_behind_latest"] = str(batch.millis_behind_latest)
    parts = [context.stream or "", context.shard_id]
    if len(batch) > 0:
        for name, record in (("first", batch[0]), ("last", batch[len(batch) - 1])):
            metadata[f"fastkcl.{name}_sequence_number"] = record.sequence_number
            if record.sub_sequence_number is not None:
                metadata[f"fastkcl.{name}_sub_sequence_number"] = str(record.sub_sequence_number)
        parts += [batch[0].sequence_number, str(batch[0].sub_sequence_number or 0)]
    stem = "-".join(_safe(part) for part in parts if part)
    # The same position may fail again after a redelivery: every failure keeps its file.
    number = 0
    while True:
        path = f"{folder}/{stem}{f'.{number}' if number else ''}.arrow"
        try:
            write_ipc_file(path, [batch], metadata)
        except FileExistsError:
            number += 1
        else:
            return path


def _as_utf8(text: str) -> str:
    """Text of user code as Arrow metadata can hold it: a lone surrogate is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _safe(part: str) -> str:
    """A part of a file name: what is no letter, digit, - or _ becomes _, and a long part keeps its end."""
    return "".join(char if char in _SAFE else "_" for char in part)[-_NAME_PART_LIMIT:]
