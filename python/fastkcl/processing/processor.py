"""The methods of a batch processor, which a user writes."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastkcl._core import RecordBatch
    from fastkcl.monitoring import Monitor
    from fastkcl.processing.checkpointer import Checkpointer
    from fastkcl.processing.context import ShardContext


class BatchProcessor:
    """Base class of processors. One object serves one shard, in one thread, one call at a time.

    When a method returns, the status is sent: the daemon may forget the request. So its work has to be done by then; a
    coroutine or generator that it returns is a failure. Records become safe only with a checkpoint; what was processed
    but not checkpointed is delivered again after a death.
    """

    monitor: Monitor | None = None
    """Counts and reports the work of `run`; ``run(monitor=)`` sets it first of all. A processor may add values of
    its own to ``monitor.metrics`` in `initialize`."""

    def initialize(self, context: ShardContext) -> None:
        """The first call: this shard is ours. A failure always ends the run."""

    def process_batch(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        """Process the records of one request; there may be none. Must be overridden."""
        raise NotImplementedError(f"{type(self).__name__} does not define process_batch(batch, checkpointer)")

    def lease_lost(self) -> None:
        """Another worker has the shard now. Checkpoints are no longer possible."""

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """The shard was split or merged and everything in it has been delivered.

        It has to be checkpointed, or its child shards do not start before the worker is restarted. The default does
        so at the end of everything delivered.
        """
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """The daemon is about to stop: the last chance to checkpoint. The default does, at the end of everything."""
        checkpointer.checkpoint()

    def give_up(self, batch: RecordBatch | None) -> Sequence[RecordBatch]:
        """Let go of the records that could not be written, so that the shard can go on without them.

        Called when a method has failed for good and the run shall not end (``dead_letter``, ``on_error="skip"``).
        `run` stores or skips the returned records before anything else happens; from then on positions beyond them may
        be checkpointed. The default suits a processor that has finished each batch when process_batch returns. One that
        holds records back overrides this: the failing ones may be older than the current batch.

        Args:
            batch: the one that process_batch failed on; None where shard_ended or shutdown_requested did. If records
                are given up there, the method is called again, as it can now do its work.

        Returns:
            Every record that was taken over and is not written, in order: these are not to be written any more.
        """
        return [] if batch is None else [batch]

    def run_ended(self) -> None:
        """The last call, however the run ends: end everything that would outlive it, e.g. a thread, within seconds.

        Not a message of the daemon, which may wait for the process by now; nothing can be checkpointed. An exception is
        reported, and changes nothing.
        """


_METHODS = ("initialize", "process_batch", "lease_lost", "shard_ended", "shutdown_requested", "give_up", "run_ended")
# Flags of a code object (the module inspect, which names them, is slow to import): generator, coroutine,
# iterable coroutine, asynchronous generator.
_DEFERRED = 0x20 | 0x80 | 0x100 | 0x200


def refuse_deferred(function: object) -> None:
    """Refuse a function whose call would only make a coroutine or generator, and so silently drop its records.

    Raises:
        TypeError: it is one.
    """
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & _DEFERRED:
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"{name} is a coroutine or generator function: calling it runs nothing; use a plain def")


def refuse_deferred_result(name: str, result: object) -> None:
    """Refuse a result that only defers the call's work: `refuse_deferred` does not see through a wrapper.

    Args:
        name: of the function.
        result: its result.

    Raises:
        TypeError: a coroutine, a generator, an asynchronous generator, or anything else that waits to be awaited.
    """
    kind = type(result)
    if hasattr(kind, "send") and hasattr(kind, "throw"):
        result.close()  # type: ignore[attr-defined]  # or Python warns of a coroutine that was never awaited
    elif not (hasattr(kind, "__await__") or hasattr(kind, "asend")):
        return
    raise TypeError(
        f"{name} returned an object of type {kind.__name__}, which nobody runs or waits for: use a plain def that does"
        " its work before it returns"
    )


def refuse_unrun(processor: object, method: str, result: object) -> None:
    """As `refuse_deferred_result`, of code written for another package: only results that nobody can have begun to run.

    Args:
        processor: whose method it was.
        method: its name.
        result: its result.

    Raises:
        TypeError: a coroutine, a generator or an asynchronous generator, at its start.
    """
    if result is None:
        return
    for kind in ("cr", "gi", "ag"):
        if hasattr(type(result), f"{kind}_frame"):
            begun = getattr(result, f"{kind}_running") or getattr(result, f"{kind}_suspended", False)
            if getattr(result, f"{kind}_frame") is not None and not begun:
                refuse_deferred_result(f"{type(processor).__name__}.{method}", result)


def check_processor(processor: object) -> None:
    """Refuse an object that cannot be served, before the daemon's first message.

    Raises:
        TypeError: no instance of a `BatchProcessor` with its own `process_batch`.
    """
    if isinstance(processor, type):
        raise TypeError(f"run() takes an instance, not the class: run({processor.__name__}())")
    if not isinstance(processor, BatchProcessor):
        hint = "; decorate it with @fastkcl.processor" if callable(processor) else ""
        raise TypeError(f"run() takes a fastkcl.BatchProcessor, not {type(processor).__name__}{hint}")
    if type(processor).process_batch is BatchProcessor.process_batch and "process_batch" not in vars(processor):
        raise TypeError(f"{type(processor).__name__} does not define process_batch(batch, checkpointer)")
    for name in _METHODS:
        refuse_deferred(getattr(processor, name))
