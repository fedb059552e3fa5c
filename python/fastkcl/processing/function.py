"""One function as a whole processor, which checkpoints by itself.

    @fastkcl.processor
    def store(batch):
        ...

    fastkcl.run(store)

It checkpoints at these events:

    after a batch        at the end of everything delivered, at most every `checkpoint_interval` seconds
    on an empty batch    the same, if something is not checkpointed yet; the function is not called for no records
    shard ended          always, with retries: the child shards wait for this checkpoint
    shutdown requested   always, with a few retries within the daemon's short patience

The effect of a refused checkpoint:

    may be retried       logged, tried again at the next request; the records are processed, only the position lags.
                         At shutdown the records after the last position are delivered again elsewhere. At a shard's
                         end it is raised: there is no next request
    ShutdownException    the lease is another worker's, which starts at our last position. Raising it would end this
                         process and with it every shard of the host, although a lease may move at any time. So it is
                         logged as a warning, the function is not called any more, nothing more is checkpointed, and
                         leaseLost is awaited; how many records were left to the new owner is logged then. At a shard's
                         end it is raised
    anything else        raised: a bug or a missing lease table, which `on_error` decides about
"""

from __future__ import annotations

import time

from fastkcl.checks import check_not_negative
from fastkcl.processing.errors import CheckpointError
from fastkcl.processing.processor import BatchProcessor, refuse_deferred, refuse_deferred_result
from fastkcl.stdio.log import logger

TYPE_CHECKING = False
if not TYPE_CHECKING:  # `import typing` would cost a child as much as the rest of the package

    def overload(function: object) -> object:
        """Stand for `typing.overload`."""
        return function


if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import overload

    from fastkcl._core import RecordBatch
    from fastkcl.processing.checkpointer import Checkpointer
    from fastkcl.processing.context import ShardContext

DEFAULT_CHECKPOINT_INTERVAL = 10.0
_SHARD_END_RETRIES = 5  # 1 + 2 + 4 + 8 + 16 s of pauses
_SHUTDOWN_RETRIES = 2  # the daemon's shutdownGraceMillis is some 20 s at best


class FunctionProcessor(BatchProcessor):
    """A function of a batch as a processor. Calling it calls the function.

    Args:
        function: called with each batch that has records. Its work is done when it returns: its result is dropped,
            and a coroutine, a generator or another awaitable is a failure.
        checkpoint_interval: least seconds between two checkpoints; 0 for one after every batch.

    Raises:
        TypeError: not a plain function of one batch.
        ValueError: a negative interval.
    """

    def __init__(self, function: Callable[[RecordBatch], object], checkpoint_interval: float) -> None:
        if not callable(function):
            raise TypeError(f"@fastkcl.processor decorates a function of one batch, not {function!r}")
        refuse_deferred(function)
        check_not_negative(checkpoint_interval=checkpoint_interval)
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self._interval = checkpoint_interval
        self._shard = ""
        self._last_checkpoint = float("-inf")
        self._uncheckpointed = False
        self._lease_gone = False
        self._left_records = 0

    def __call__(self, batch: RecordBatch) -> object:
        """Call the function itself, e.g. in a test."""
        return self.__wrapped__(batch)

    def initialize(self, context: ShardContext) -> None:
        """Remember the shard for the log."""
        self._shard = context.shard_id

    def process_batch(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        """Call the function, then checkpoint if it is time."""
        if self._lease_gone:
            self._left_records += len(batch)
            return
        if len(batch) > 0:
            result = self.__wrapped__(batch)
            refuse_deferred_result(getattr(self.__wrapped__, "__qualname__", repr(self.__wrapped__)), result)
            self._uncheckpointed = True
        if self._uncheckpointed and time.monotonic() - self._last_checkpoint >= self._interval:
            self._checkpoint(checkpointer, retries=0)

    def lease_lost(self) -> None:
        """Log the number of records that are left to the new owner of the lease."""
        if self._left_records > 0:
            logger().warning(
                "%s: %d records that came after the lease had moved were left to its new owner",
                self._shard,
                self._left_records,
            )

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """Checkpoint, and raise where that fails."""
        checkpointer.checkpoint(retries=_SHARD_END_RETRIES)

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Checkpoint the processed records, if any are new."""
        if self._uncheckpointed and not self._lease_gone:
            self._checkpoint(checkpointer, retries=_SHUTDOWN_RETRIES)

    def _checkpoint(self, checkpointer: Checkpointer, retries: int) -> None:
        try:
            checkpointer.checkpoint(retries=retries)
        except CheckpointError as error:
            if error.value == "ShutdownException":
                self._lease_gone = True
                logger().warning("%s: checkpoint refused: %s; waiting for leaseLost", self._shard, error)
            elif error.retryable:
                logger().warning(
                    "%s: checkpoint refused: %s; processed records wait for the next checkpoint", self._shard, error
                )
            else:
                raise
        else:
            self._last_checkpoint = time.monotonic()
            self._uncheckpointed = False


@overload
def processor(function: Callable[[RecordBatch], object], /) -> FunctionProcessor: ...
@overload
def processor(
    *, checkpoint_interval: float = DEFAULT_CHECKPOINT_INTERVAL
) -> Callable[[Callable[[RecordBatch], object]], FunctionProcessor]: ...
def processor(
    function: Callable[[RecordBatch], object] | None = None,
    /,
    *,
    checkpoint_interval: float = DEFAULT_CHECKPOINT_INTERVAL,
) -> FunctionProcessor | Callable[[Callable[[RecordBatch], object]], FunctionProcessor]:
    """Make a processor of a function; with or without arguments.

    Args:
        function: called with each batch that has records.
        checkpoint_interval: least seconds between two checkpoints; 0 for one after every batch.

    Returns:
        The processor for `fastkcl.run`, or a decorator that makes it.

    Raises:
        TypeError: not a plain function of one batch.
        ValueError: a negative interval.
    """

    def decorate(function: Callable[[RecordBatch], object]) -> FunctionProcessor:
        return FunctionProcessor(function, checkpoint_interval)

    return decorate if function is None else decorate(function)
