"""A shard's position in a table: records up to it are neither written again nor given up.

    rows ──▶ after the position? ──▶ write      ──▶ the position moves on
                 │ no                    │ fails
                 ▼                       ▼
          dropped, counted, logged    the table's position is read: the write may have been committed

Rules: one thread at a time uses the table: the writer's, or the main one, after a failure and before a checkpoint. What
one has read would look like another's change to the other. A table without a position drops nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from fastkcl import Position, RecordBatch
from fastkcl.stdio.log import logger
from fastkcl.tables.base import RECOVERY, KeepsPositions, Shard, SinkError, WriteCancelledError, in_one_line, place
from fastkcl.tables.rows import ShardRows
from fastkcl.tables.writer import Target

__all__ = ["Opens", "ShardTable"]

R = TypeVar("R", bound=ShardRows)

_WAIT_SECONDS: Final = 5.0
"""For a write to end, before a checkpoint: the main thread has messages to read meanwhile."""


class Opens(Protocol):
    """A table, as far as its positions go; one that has some is `KeepsPositions` as well."""

    def open(self, shard: Shard) -> Position | None:
        """Begin with a shard, or look again: the position up to which the table has its records."""


class ShardTable(Target[R], Generic[R]):
    """A table, opened for a shard.

    Args:
        table: to open.
        write: makes rows durable, and returns the table's position afterwards. It is given the number of the attempt.
        shard: whose records are written.
        legacy: sub-sequence numbers do not exist.
        dropped: called with the number of dropped records, each time.
        checkpoint: the daemon's, from which it delivers; None for the shard's start, or where nobody knows.
        accept_gap: go on where it lies after the table's position, as the records between are not wanted here.

    Raises:
        SinkError: the table, or its note, is damaged, or the checkpoint lies after its position.
        OSError: it cannot be read or written.
    """

    def __init__(
        self,
        table: Opens,
        write: Callable[[R, int], Position],
        shard: Shard,
        *,
        legacy: bool,
        dropped: Callable[[int], None],
        checkpoint: Position | None = None,
        accept_gap: bool = False,
    ) -> None:
        self._table = table
        self._write = write
        self._shard = shard
        self._legacy = legacy
        self._dropped = dropped
        self._upto: Position | None = None  # where the table is
        self._unsure = False  # a write has failed, and whether it was committed is not known yet
        self._dropped_records = 0
        self._dropped_told = 0
        self._new_records = 0
        self._has_note = True  # perhaps: of records that were given up, which later commits may have
        self._note_follows = False  # it has followed the table since the last write
        self._used = threading.Lock()  # the table
        self._writes = 0
        self._waited_for = 0  # the last write that a checkpoint has waited for in vain
        self._ask()
        if checkpoint is not None:
            self._check_gap(checkpoint, accept_gap=accept_gap)
        if self._upto is None:
            return
        if isinstance(table, KeepsPositions):
            self._has_note = table.given_up() is not None
            self._note_follows = not self._has_note
        logger().info("%s: the table has records up to %s", shard.shard_id, place(self._upto))
        if legacy and self._upto.sub_sequence_number is not None:
            logger().warning(
                "%s: the table has records up to %s, with sub-sequence numbers, which this daemon (KCL 1.7.1 or older)"
                " does not send: records of that sequence number are dropped. If it is an aggregate of which the"
                " table has only a beginning, the rest of it is not stored",
                shard.shard_id,
                place(self._upto),
            )

    @property
    def dropped_records(self) -> int:
        """Records that came again although the table has them."""
        return self._dropped_records

    def missing(self, rows: R) -> R | None:
        """The rows that the table does not have; None if it has all of them."""
        return rows if self._upto is None else rows.after(self._upto)

    def store(self, rows: R, attempt: int) -> None:
        """Write rows, and have a note of records given up follow, so that their checkpoint waits for no later write."""
        with self._used:
            self._writes += 1
            self._unsure = False
            try:
                upto = self._write(rows, attempt)
            finally:
                self._note_follows = False  # if it fails, the rows may be committed all the same
            self._upto = upto
            try:
                self._follow()
            except (OSError, SinkError):  # `before_checkpoint` tries it again
                logger().debug("%s: the note of records given up", self._shard.shard_id, exc_info=True)

    def has(self, rows: R, error: Exception) -> bool:
        """Whether rows were committed before their write failed. Then they are neither written again nor given up."""
        if isinstance(error, WriteCancelledError):
            return False
        try:
            with self._used:
                self._ask()
        except Exception:
            self._unsure = True
        if self._unsure or self._upto is None or self._upto < rows.last_position:
            return False
        logger().warning(
            "%s: a write has failed after its commit; the table has its records up to %s. It was %s",
            self._shard.shard_id,
            place(self._upto),
            in_one_line(error),
        )
        return True

    def done(self, rows: R, missing: R | None) -> None:
        """Count the rows that the table has now, and report the dropped rows."""
        stored = 0 if missing is None else missing.num_rows
        self._new_records += stored
        if dropped := rows.num_rows - stored:
            self._log_dropped(dropped, rows.last_position)
            # A redelivery after a death looks like this for a run or two; a stream that was created again goes on.
            if missing is None and self._dropped_records >= 2 * (self._dropped_told or dropped):
                self.tell_if_all_was_dropped()

    def without_stored(self, batches: Sequence[RecordBatch]) -> Sequence[RecordBatch]:
        """The records that the table has not, of those that are to be given up after a failure.

        Raises:
            Exception: the table's position cannot be read.
        """
        if self._unsure:
            with self._used:
                self._ask()
        if self._upto is None or not batches:
            return batches
        try:
            rest = ShardRows(batches, legacy=self._legacy).after(self._upto)
        except ValueError:  # refused for a position that can't be read: it is nowhere
            return batches
        return () if rest is None else rest.batches

    def before_checkpoint(self, position: Position) -> bool:
        """Note, if records up to a position have been given up, that their checkpoint is no sign of a loss.

        A note that is there follows the table before the checkpoint of what the table has: its loss is not excused.

        Returns:
            Whether the checkpoint may be made. False: a write is under way, so the table was not looked at; ask again.
            Each write is waited for once, some seconds.

        Raises:
            SinkError: the table, or the note, is damaged.
            OSError: it cannot be read, or the note not be written.
        """
        table = self._table
        if not isinstance(table, KeepsPositions) or (self._note_follows and not self._lacks(position)):
            return True
        if not self._used.acquire(timeout=0 if self._waited_for == self._writes else _WAIT_SECONDS):
            if self._waited_for != self._writes:
                self._waited_for = self._writes
                logger().warning(
                    "%s: no checkpoint at %s until the write under way has ended: the note of records that were given"
                    " up is looked at first",
                    self._shard.shard_id,
                    place(position),
                )
            return False
        try:
            if self._lacks(position):
                self._ask()  # another one may have written here
            if self._lacks(position):
                table.give_up(position)
                self._has_note = True
            else:
                self._follow()
        finally:
            self._used.release()
        return True

    def tell_if_all_was_dropped(self) -> None:
        """Log an ERROR if nothing that was delivered since the start was new."""
        if self._dropped_records and not self._new_records:
            self._dropped_told = self._dropped_records
            assert self._upto is not None
            logger().error(
                "%s: NONE of the %d records delivered since the start was stored: the table has records of stream %s up"
                " to %s, all of them lie below. If the stream was deleted and created again, these are new records:"
                " give it another name (stream=, FASTKCL_STREAM) or another table, and have them read again",
                self._shard.shard_id,
                self._dropped_records,
                self._shard.stream,
                place(self._upto),
            )

    def _check_gap(self, checkpoint: Position, *, accept_gap: bool) -> None:
        """Check that the table has all records that the daemon no longer delivers, except those given up.

        Raises:
            SinkError: it has not.
        """
        if not isinstance(self._table, KeepsPositions) or (self._upto is not None and checkpoint <= self._upto):
            return
        given_up = self._table.given_up()
        if given_up is not None and checkpoint <= given_up:
            return
        upto = "none of its records" if self._upto is None else f"its records up to {place(self._upto)}"
        what = (
            f"{self._shard.shard_id}: the checkpoint {place(checkpoint)} lies after the table's position: the table has"
            f" {upto} of stream {self._shard.stream}, and later records up to the checkpoint are not delivered again"
        )
        if not accept_gap:
            raise SinkError(
                f"{what}. If the table is new, or was replaced on purpose, start with accept_gap=True or"
                " FASTKCL_ACCEPT_GAP=1 until each shard has been written to; else the table has lost commits:"
                f" {RECOVERY}"
            )
        logger().error("%s; continuing after the checkpoint, as accept_gap is set", what)

    def _log_dropped(self, dropped: int, last: Position) -> None:
        assert self._upto is not None
        self._dropped_records += dropped
        self._dropped(dropped)
        logger().warning(
            "%s: %d records up to %s came again and are in the table already, which has them up to %s: dropped",
            self._shard.shard_id,
            dropped,
            place(last),
            place(self._upto),
        )

    def _lacks(self, position: Position) -> bool:
        return self._upto is None or self._upto < position

    def _follow(self) -> None:
        if self._has_note and isinstance(self._table, KeepsPositions):
            self._has_note = self._table.gone_on()
        self._note_follows = True

    def _ask(self) -> None:
        self._upto = self._table.open(self._shard)
        self._unsure = False
