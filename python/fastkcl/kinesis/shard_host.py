"""A shard of a stream as the host of a processor: its checkpoints are positions of the group's checkpointer.

Rules: a checkpoint may be any position from the last one to the end of the delivered records. Names of errors are
KCL's, which processors know (`fastkcl.processing.errors.CheckpointError`). For the processor's thread; `stop` and
`not_allowed` for any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NoReturn

from fastkcl._core import Position, RecordBatch
from fastkcl.backoff import doubled
from fastkcl.kinesis.checkpoints.base import Place
from fastkcl.kinesis.exceptions import described
from fastkcl.kinesis.read.fetch import ShardReader
from fastkcl.processing.errors import LocalProtocolError
from fastkcl.stdio.log import module_logger

__all__ = ["ShardHost"]

log = module_logger(__name__)


class ShardHost:
    """A shard's part of a processor's contract; see `fastkcl.processing.host.Host`.

    Args:
        reader: of the shard.
        commit: writes a position, and raises if it is not known to be written. If another consumer owns the shard by
            then, its reader is `lost`.
    """

    def __init__(self, reader: ShardReader, commit: Callable[[Place], None]) -> None:
        self._reader = reader
        self._commit = commit
        self._stopping = threading.Event()
        self._delivered: Place | None = None
        self._delivered_position: Position | None = None
        self._checkpointed: Position | None = None
        self.is_at_end = False
        """Whether everything in the shard was delivered."""
        self.end_is_stored = False
        """Whether a checkpoint has said so."""

    @property
    def is_stopping(self) -> bool:
        """Whether the shard was asked to stop."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Ask the shard to stop: no method is called again, its records are delivered again; from any thread."""
        self._stopping.set()

    def deliver(self, batch: RecordBatch, place: Place) -> None:
        """Take a batch for delivered, up to a place in the shard."""
        last = batch.last_position
        # Aggregates that were dropped may have come after the last record.
        reaches = last is not None and last.sequence_number == place.sequence_number
        self._delivered = place
        self._delivered_position = last if reaches else Position(place.sequence_number, 0)

    def check(self) -> None:
        """Return always: lease_lost follows where the shard is lost."""

    def not_allowed(self, what: str) -> NoReturn:
        """Refuse a call of the processor.

        Raises:
            LocalProtocolError: always.
        """
        raise LocalProtocolError("not_allowed", what, self._reader.shard_id)

    def back_off(self, seconds: float, attempt: int) -> None:
        """Wait before a checkpoint is tried again, twice as long each time."""
        time.sleep(doubled(seconds, attempt, threading.TIMEOUT_MAX))

    def may_retry(self, method: str, seconds: float, attempt: int) -> bool:
        """Wait before a method is called again, unless the shard is asked to stop; stopping itself is tried again."""
        if method == "shutdown_requested":
            self.back_off(seconds, attempt)
            return True
        return not self._stopping.wait(doubled(seconds, attempt, threading.TIMEOUT_MAX))

    def checkpoint(self, sequence_number: str | None, sub_sequence_number: int | None) -> str | None:
        """Write a position, or, without one, the end of the delivered records.

        Returns:
            KCL's name of the error, None on success.
        """
        if self._reader.lost:
            return "ShutdownException"
        place, position = self._delivered, self._delivered_position
        if sequence_number is not None:
            asked = Position(sequence_number, sub_sequence_number)
            if position is None or asked > position or (self._checkpointed is not None and asked < self._checkpointed):
                return "IllegalArgumentException"
            if asked != position:
                place, position = Place(sequence_number, sub_sequence_number), asked
        if place is not None:
            try:
                self._commit(place)
            except Exception as error:
                log.warning("%s: %s is not written: %s", self._reader.shard_id, place, described(error))
                return "KinesisClientLibDependencyException"
            if self._reader.lost:
                return "ShutdownException"
            self._checkpointed = position
        if sequence_number is None and self.is_at_end:
            self.end_is_stored = True
        return None
