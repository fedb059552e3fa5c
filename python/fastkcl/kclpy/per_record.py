"""A record processor that is called for each record, and checkpoints by itself.

    from fastkcl.kclpy import kcl
    from fastkcl.kclpy.per_record import PerRecordProcessor

    class Words(PerRecordProcessor):
        def process_record(self, data, partition_key, sequence_number, sub_sequence_number, arrival_time):
            ...

    kcl.KCLProcess(Words(checkpoint_freq_seconds=30)).run()

It checkpoints at the first of these events. They are checked after every record, and once for an empty list:

    checkpoint_freq_seconds   more than this many seconds have passed since the last checkpoint
    records_per_checkpoint    at least this many records were processed since then
    process_record            has returned True: at this record, at once
    shard ended, shutdown     always

Your own `should_checkpoint` is called once for each list, after its last record, as in easy-kclpy.

The position is the largest of those processed, by sequence number and then sub-sequence number, both as integers, and
**never one that an unprocessed record is at or before**. So:

- Records without sub-sequence numbers (KCL 1.7 and older) can share a sequence number. Between two such records there
  is no position to checkpoint; a checkpoint that is due waits for the last of them.
- When a call of `process_records` is left by an exception, the first record that it did not come to is remembered, and
  nothing from there on is checkpointed in this process, even if later records are processed: after a restart it is
  delivered again. This holds where `on_error` of `fastkcl.kclpy.kcl` is "skip", too. The shard's end cannot be
  checkpointed then. Processing is resumed if that record does come again; `pass_unprocessed` gives the records up, and
  is called where `dead_letter` has stored them.
- With ``on_record_error="skip"`` a record that fails counts as processed. Checkpoints pass it; it does not come again.

The effect of a refused checkpoint:

    ThrottlingException, trouble of    tried again, `checkpoint_retries` times in all; then logged, and the position is
    dependencies, RuntimeException     kept for the next time that a checkpoint is due. Raised at a shard's end
    ShutdownException                  not tried again: the lease is another worker's, which goes on at our last
                                       position. No further record is processed, leaseLost is awaited. Raised at a
                                       shard's end
    anything else                      raised; logged at shutdown
"""

from __future__ import annotations

import time
from itertools import accumulate

from fastkcl.checks import check_choice, check_not_negative, check_whole_number
from fastkcl.kclpy.checkpoint_error import CheckpointError
from fastkcl.kclpy.v3.processor import RecordProcessorBase
from fastkcl.processing.errors import CheckpointError as _Meaning
from fastkcl.processing.processor import refuse_deferred, refuse_deferred_result, refuse_unrun
from fastkcl.stdio.log import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from typing import Any, Literal, TypeAlias

    from fastkcl.kclpy import kcl, messages

    Place: TypeAlias = tuple[int, int | None]  # sequence number, sub-sequence number

__all__ = ["PerRecordProcessor"]


class PerRecordProcessor(RecordProcessorBase):
    """Base class of version 3; override `process_record`.

    Args:
        checkpoint_retries: how often a checkpoint is tried, the first time included.
        checkpoint_error_sleep_seconds: seconds between two tries.
        checkpoint_freq_seconds: checkpoint when more than so many seconds have passed; 0 for never.
        records_per_checkpoint: checkpoint when at least so many records were processed; 0 for never.
        on_record_error: when `process_record` raises: "raise" lets the exception out of `process_records`, and
            `on_error` of `fastkcl.kclpy.kcl` decides on the rest of the list; "skip" logs the record's position and
            goes on with the next one.
        clock: seconds that never go back; for tests.
        sleep: waits for seconds; for tests.

    Attributes:
        shard_id: as the daemon names it, e.g. ``shardId-000000000000``; empty before `initialize`.

    Raises:
        ValueError: an argument out of range.
        TypeError: `checkpoint_retries` is not a whole number.
    """

    def __init__(
        self,
        *,
        checkpoint_retries: int = 5,
        checkpoint_error_sleep_seconds: float = 5,
        checkpoint_freq_seconds: float = 60,
        records_per_checkpoint: int = 0,
        on_record_error: Literal["raise", "skip"] = "raise",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        check_whole_number("checkpoint_retries", checkpoint_retries)
        if checkpoint_retries < 1:
            raise ValueError(f"checkpoint_retries counts the first try too and must be 1 or more: {checkpoint_retries}")
        check_not_negative(checkpoint_error_sleep_seconds=checkpoint_error_sleep_seconds)
        check_not_negative(checkpoint_freq_seconds=checkpoint_freq_seconds)
        check_not_negative(records_per_checkpoint=records_per_checkpoint)
        check_choice("on_record_error", on_record_error, "raise", "skip")
        self.checkpoint_retries = checkpoint_retries
        self.checkpoint_error_sleep_seconds = checkpoint_error_sleep_seconds
        self.checkpoint_freq_seconds = checkpoint_freq_seconds
        self.records_per_checkpoint = records_per_checkpoint
        self.on_record_error = on_record_error
        self._clock = clock
        self._sleep = sleep
        self._begin("")

    def _begin(self, shard_id: str) -> None:
        self.shard_id = shard_id
        self._largest: Place | None = None  # of the records processed
        self._position: Place | None = None  # the largest of them that no unprocessed record is at or before
        self._checkpointed: Place | None = None
        self._unprocessed: str | None = None  # the first record that was delivered and not processed
        self._lease_gone = False
        self._left_records = 0  # to the lease's new owner
        self._restart_triggers()

    # ---- users override these -----------------------------------------------------------------------------------

    def process_record(
        self,
        data: bytes | None,
        partition_key: str,
        sequence_number: int,
        sub_sequence_number: int | None,
        arrival_time: datetime | None,
    ) -> bool | None:
        """Process a record. Must be overridden.

        Args:
            data: the payload; None where the daemon sent none.
            partition_key: its partition key.
            sequence_number: as an integer.
            sub_sequence_number: 0 for a plain record, 0, 1, 2... inside an aggregate; None from KCL 1.7 and older.
            arrival_time: `Record.approximate_arrival_timestamp`: local time without tzinfo; None where the daemon
                does not say.

        Returns:
            True to checkpoint at this record at once; anything else leaves it to the settings.
        """
        raise NotImplementedError

    def before_checkpoint(self, sequence_number: str | None, sub_sequence_number: int | None) -> None:
        """Called once before each checkpoint, not before each of its tries; flush held records here.

        An exception is raised to where the checkpoint was due, and nothing is checkpointed.

        Args:
            sequence_number: to be sent; None for the end of everything delivered.
            sub_sequence_number: to be sent; None with None, and where records have none.
        """

    def after_checkpoint(self, sequence_number: str | None, sub_sequence_number: int | None) -> None:
        """Called after each checkpoint that the daemon has stored, and never after one that failed.

        Args:
            sequence_number: as for `before_checkpoint`.
            sub_sequence_number: as for `before_checkpoint`.
        """

    def should_checkpoint(self) -> bool:
        """Whether a checkpoint is due by time or count; an override is asked once for each list, at its end."""
        return (
            0 < self.checkpoint_freq_seconds < self._clock() - self._last_trigger
            or 0 < self.records_per_checkpoint <= self._records_since_trigger
        )

    # ---- users call these ---------------------------------------------------------------------------------------

    def checkpoint(
        self,
        checkpointer: kcl.Checkpointer,
        sequence_number: str | None = None,
        sub_sequence_number: int | None = None,
    ) -> bool:
        """Checkpoint at the place given, with retries and both hooks.

        Returns:
            Whether it is stored. If not, the reason is logged: the last try was throttled, or the lease has moved.

        Raises:
            CheckpointError: the daemon refused for another reason.
        """
        try:
            self._store(checkpointer, sequence_number, sub_sequence_number)
        except CheckpointError as error:
            meaning = _Meaning(error.value)
            if error.value == "ShutdownException":
                self._lease_gone = True
                logger().warning("%s: checkpoint refused: %s; waiting for leaseLost", self.shard_id, meaning)
            elif meaning.retryable:
                logger().error(
                    "%s: checkpoint refused %d times: %s; the position is kept for the next one",
                    self.shard_id,
                    self.checkpoint_retries,
                    meaning,
                )
            else:
                raise
            return False
        self._call("after_checkpoint", sequence_number, sub_sequence_number)
        return True

    def pass_unprocessed(self) -> None:
        """Count the records that an exception left unprocessed as processed, so that checkpoints go on.

        For those who have stored them elsewhere, or do not want them: they are not delivered again.
        """
        self._unprocessed = None

    # ---- the daemon's requests ----------------------------------------------------------------------------------

    def initialize(self, initialize_input: messages.InitializeInput) -> None:
        """Begin with a shard.

        Raises:
            TypeError: `process_record` is not overridden, or calling it or a hook would run nothing.
        """
        self._check_overrides()
        self._begin(initialize_input.shard_id)

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        """Process each record, and checkpoint when it is due.

        Raises:
            Exception: what `process_record` raised, where that is not skipped, what a hook raised, or a
                CheckpointError that is neither worth a retry nor a moved lease.
        """
        records = process_records_input.records
        checkpointer = process_records_input.checkpointer
        assert checkpointer is not None, "the input has not been dispatched"
        done = 0
        try:
            self._check_overrides()  # a child that continues after a failed initialize must not skip every record
            places = [(int(record.sequence_number), record.sub_sequence_number) for record in records]
            # The smallest place after each record, from the last record backwards.
            smallest = list(accumulate(map(_order, reversed(places)), min))
            asked_for = False
            is_asked_once = _function_of(self.should_checkpoint) is not _SHOULD_CHECKPOINT or not records
            while done < len(records) and not self._lease_gone:
                place = places[done]
                asked_for |= self._process(records[done], place)
                done += 1
                self._records_since_trigger += 1
                if self._pass(place, smallest[-1 - done] if done < len(records) else None) and (
                    asked_for or (not is_asked_once and self.should_checkpoint())
                ):
                    asked_for = False
                    self._checkpoint_position(checkpointer)
            if is_asked_once and done == len(records) and self._call("should_checkpoint"):
                self._checkpoint_position(checkpointer)
        finally:
            if done < len(records):
                self._leave(records[done], len(records) - done)

    def lease_lost(self, lease_lost_input: messages.LeaseLostInput) -> None:
        """Log it, and how many records were left to the new owner."""
        logger().warning(
            "%s: the lease is lost; %d records were left to its new owner", self.shard_id, self._left_records
        )

    def shard_ended(self, shard_ended_input: messages.ShardEndedInput) -> None:
        """Checkpoint at the end of the shard.

        Raises:
            CheckpointError: refused to the last try.
            RuntimeError: an exception has left records unprocessed. Records before them are checkpointed.
        """
        checkpointer = shard_ended_input.checkpointer
        assert checkpointer is not None, "the input has not been dispatched"
        logger().info("%s: the shard has ended", self.shard_id)
        if self._unprocessed is not None:
            self._checkpoint_position(checkpointer)
            raise RuntimeError(
                f"{self.shard_id}: the shard's end cannot be checkpointed: the record {self._unprocessed} and those"
                " after it in its list were not processed. They are delivered again after a restart"
            )
        self._store(checkpointer, None, None)
        self._call("after_checkpoint", None, None)

    def shutdown_requested(self, shutdown_requested_input: messages.ShutdownRequestedInput) -> None:
        """Checkpoint the processed records; a failure is logged only: the records are delivered again elsewhere."""
        checkpointer = shutdown_requested_input.checkpointer
        assert checkpointer is not None, "the input has not been dispatched"
        logger().info("%s: shutdown requested", self.shard_id)
        if self._lease_gone:
            return
        try:
            if self._unprocessed is None:
                self._call("checkpoint", checkpointer)
            else:
                self._checkpoint_position(checkpointer)
        except CheckpointError as error:
            logger().error("%s: checkpoint refused at shutdown: %s", self.shard_id, _Meaning(error.value))

    # ---- one record ---------------------------------------------------------------------------------------------

    def _process(self, record: messages.Record, place: Place) -> bool:
        """Call `process_record`; whether it asks for a checkpoint."""
        try:
            answer = self.process_record(
                record.binary_data, record.partition_key, *place, record.approximate_arrival_timestamp
            )
        except Exception:
            if self.on_record_error == "raise":
                raise
            logger().exception(
                "%s: record %s is skipped: it counts as processed, checkpoints pass it", self.shard_id, _text(*place)
            )
            return False
        if answer is not None and answer is not True:
            refuse_deferred_result("process_record", answer)
        return answer is True

    def _pass(self, place: Place, smallest_to_come: tuple[int, int] | None) -> bool:
        """Note that a record is processed.

        Args:
            place: the record's.
            smallest_to_come: of the records that follow in the same list.

        Returns:
            Whether a checkpoint that is due now can be made.
        """
        if self._unprocessed is not None:
            if _text(*place) != self._unprocessed:
                return True  # the position stays where it is
            self._unprocessed = None
        if self._largest is None or _order(self._largest) < _order(place):
            self._largest = place
        if smallest_to_come is not None and smallest_to_come <= _order(self._largest):
            return False
        self._position = self._largest
        return True

    def _leave(self, record: messages.Record, count: int) -> None:
        """Remember that so many records from this one on were not processed."""
        first = _text(record.sequence_number, record.sub_sequence_number)
        if self._lease_gone:
            self._left_records += count
        elif self._unprocessed is None:
            logger().warning(
                "%s: %d records from %s on were not processed; nothing from there on is checkpointed any more, and a"
                " restart delivers it again",
                self.shard_id,
                count,
                first,
            )
        if self._unprocessed is None:
            self._unprocessed = first

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def _checkpoint_position(self, checkpointer: kcl.Checkpointer) -> None:
        """Checkpoint the processed records, if any of them is new."""
        position = self._position
        if position is None or position == self._checkpointed or self._lease_gone:
            return
        try:
            # An override may return nothing.
            if self._call("checkpoint", checkpointer, str(position[0]), position[1]) is not False:
                self._checkpointed = position
        finally:
            self._restart_triggers()  # also after a failure: the next record is too early for the next try

    def _store(self, checkpointer: kcl.Checkpointer, sequence_number: str | None, sub_number: int | None) -> None:
        """Try until it is stored.

        Raises:
            CheckpointError: of the last try.
        """
        self._call("before_checkpoint", sequence_number, sub_number)
        for tries_left in range(self.checkpoint_retries - 1, -1, -1):
            try:
                checkpointer.checkpoint(sequence_number, sub_number)
            except CheckpointError as error:
                meaning = _Meaning(error.value)
                if not meaning.retryable or tries_left == 0:
                    raise
                logger().warning(
                    "%s: checkpoint refused: %s; next try in %s s, %d left",
                    self.shard_id,
                    meaning,
                    self.checkpoint_error_sleep_seconds,
                    tries_left,
                )
            else:
                return
            self._sleep(self.checkpoint_error_sleep_seconds)

    def _call(self, method: str, *arguments: Any) -> Any:
        """The result of a user's method; one that only makes a coroutine has not done its work."""
        result = getattr(self, method)(*arguments)
        refuse_unrun(self, method, result)
        return result

    def _restart_triggers(self) -> None:
        self._last_trigger = self._clock()
        self._records_since_trigger = 0

    def _check_overrides(self) -> None:
        if _function_of(self.process_record) is PerRecordProcessor.process_record:
            raise TypeError(f"{type(self).__name__} does not define process_record(data, partition_key, ...)")
        for name in ("process_record", "should_checkpoint", "checkpoint", "before_checkpoint", "after_checkpoint"):
            refuse_deferred(getattr(self, name))


_SHOULD_CHECKPOINT = PerRecordProcessor.should_checkpoint


def _function_of(method: object) -> object:
    return getattr(method, "__func__", None)


def _order(place: Place) -> tuple[int, int]:
    """The order of positions. One without a sub-sequence number is the daemon's (number, 0)."""
    return place[0], place[1] or 0


def _text(sequence_number: int | str, sub_sequence_number: int | None) -> str:
    return str(sequence_number) if sub_sequence_number is None else f"{sequence_number}/{sub_sequence_number}"
