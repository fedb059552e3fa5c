"""`run`: serve the daemon that started this process, with one processor, until its input ends.

    message ─▶ Dialogue.receive ─▶ user method, under the failure policy ─▶ Dialogue.send_status ─▶ next

A batch is let go before the next message is awaited, so that an idle child holds no records. Exit codes and
reports are listed in docs/kcl.md and docs/protocol-errors.md.
"""

from __future__ import annotations

import os
import time

from fastkcl._core import DEFAULT_MAX_LINE_BYTES, Decoder, Initialize, ProcessRecords
from fastkcl.checks import check_not_negative
from fastkcl.kcl.connection import Connection
from fastkcl.kcl.dialogue import Dialogue
from fastkcl.processing.checkpointer import Checkpointer
from fastkcl.processing.context import ShardContext
from fastkcl.processing.counters import UNCOUNTED, Counters
from fastkcl.processing.errors import LocalProtocolError, ProtocolError
from fastkcl.processing.failures import FailurePolicy, ProcessorError, unfinished_shard
from fastkcl.processing.processor import check_processor, refuse_deferred_result
from fastkcl.stdio import process, reports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Literal

    from fastkcl._core import RecordBatch
    from fastkcl.kcl.connection import State
    from fastkcl.monitoring import Monitor
    from fastkcl.processing.processor import BatchProcessor
    from fastkcl.stdio.descriptors import Descriptors
    from fastkcl.stdio.signals import SignalWatch

reports.skip_frames_of("fastkcl.kcl")

STREAM_VARIABLE = "FASTKCL_STREAM"
"""Environment variable with the stream's name, which no message has."""


def run(
    processor: BatchProcessor,
    *,
    stream: str | None = None,
    dialect: Literal["auto", "legacy", "modern"] = "auto",
    on_error: Literal["stop", "skip"] = "stop",
    retries: int = 0,
    retry_backoff: float = 1.0,
    dead_letter: str | os.PathLike[str] | None = None,
    max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
    shutdown_grace: float = 30.0,
    monitor: Monitor | None = None,
) -> None:
    """Serve the daemon on standard input and output, in the main thread, once in a process.

    From here on fd 1 is standard error for everybody else, and fd 0 is at its end; neither is given back.

    Args:
        processor: the processor of this shard.
        stream: the stream's name for `ShardContext`; without it the environment variable FASTKCL_STREAM.
        dialect: force the checkpoint dialect instead of finding it from `initialize`.
        on_error: "stop" ends the run without a status when a method raises; "skip" reports the failure and goes on.
        retries: how often a failed method (not `initialize`) is called again first.
        retry_backoff: seconds before the first retry, doubled before each further one.
        dead_letter: folder in which failed records are stored as Arrow IPC files; then the shard goes on.
        max_line_bytes: bound of one line of the daemon, at most 2**31 - 1.
        shutdown_grace: seconds that the dialogue may go on after a first SIGTERM, SIGINT or SIGHUP, and threads may
            go on after the end.
        monitor: a `fastkcl.monitoring.Monitor` that counts and reports events; without it the processor's own,
            if it has one, else one that only writes a Prometheus file if FASTKCL_METRICS_DIR is set.

    Raises:
        SystemExit: every end but a clean end of input; the codes are in docs/kcl.md.
        TypeError: `processor` cannot be served, or an argument is of another type.
        ValueError: an argument out of range.
        OSError: `dead_letter` or FASTKCL_METRICS_DIR cannot be written to.
        RuntimeError: not in the main thread, or this process has served before.
    """
    check_processor(processor)
    check_not_negative(shutdown_grace=shutdown_grace)
    Decoder(max_line_bytes=max_line_bytes)  # refuses values out of range; the reader would only after `take`
    connection = Connection(dialect=dialect)
    processor.monitor = monitor or processor.monitor or _monitor_of_environment()
    counters = Counters(processor.monitor)
    failures = FailurePolicy(
        on_error=on_error, retries=retries, backoff=retry_backoff, dead_letter=dead_letter, counters=counters
    )
    name = stream or os.environ.get(STREAM_VARIABLE) or None

    def serve_daemon(descriptors: Descriptors, signals: SignalWatch) -> None:
        serve(processor, Dialogue(connection, descriptors, signals, max_line_bytes), failures, name, counters)

    process.run(serve_daemon, shutdown_grace)


def _monitor_of_environment() -> Monitor | None:
    if not os.environ.get(reports.METRICS_VARIABLE):
        return None
    from fastkcl.monitoring import Monitor

    return Monitor(report_interval=None)


def serve(
    processor: BatchProcessor,
    dialogue: Dialogue,
    failures: FailurePolicy,
    stream: str | None,
    counters: Counters = UNCOUNTED,
) -> None:
    """Serve one dialogue to its clean end.

    Args:
        processor: whose methods are called.
        dialogue: with whom.
        failures: the reaction when they raise.
        stream: the stream's name.
        counters: they count the events.

    Raises:
        SystemExit: it did not end cleanly; the reason is on standard error.
    """
    server = _Server(processor, dialogue, failures, stream, counters)
    try:
        while server.answer_one():
            pass
    except ProtocolError as error:
        if isinstance(error, LocalProtocolError) and error.kind == "not_allowed":
            reports.traceback_lines(reports.traceback_text(error))
        reports.line(str(error))
        raise SystemExit(reports.EXIT_FAILURE) from None
    finally:
        if not dialogue.forked:  # its parent's run goes on
            _end(processor, counters)


def _end(processor: BatchProcessor, counters: Counters) -> None:
    try:
        processor.run_ended()
    except Exception as error:
        reports.traceback_lines(reports.traceback_text(error))
        reports.line(f"warning: run_ended failed with {reports.describe(error)}")
    counters.stop()


class _Server:
    __slots__ = ("_checkpointer", "_context", "_counters", "_dialogue", "_failures", "_processor", "_stream")

    _context: ShardContext

    def __init__(
        self,
        processor: BatchProcessor,
        dialogue: Dialogue,
        failures: FailurePolicy,
        stream: str | None,
        counters: Counters,
    ) -> None:
        self._processor = processor
        self._dialogue = dialogue
        self._failures = failures
        self._stream = stream
        self._counters = counters
        self._checkpointer = Checkpointer(dialogue, counters)

    def answer_one(self) -> bool:
        """Answer the next request; False when the dialogue is over."""
        dialogue, connection = self._dialogue, self._dialogue.connection
        try:
            message = dialogue.receive()
        except TimeoutError:
            if connection.state in ("DRAINING", "DONE"):
                return False  # all that the graceful stop asks of a child is done
            dialogue.signals.stop_after_grace(f"in state {connection.state}")
        if message is None:
            return False
        if isinstance(message, Initialize):
            assert connection.dialect is not None
            self._context = ShardContext(
                stream=self._stream,
                shard_id=message.shard_id,
                sequence_number=message.sequence_number,
                sub_sequence_number=message.sub_sequence_number,
                dialect=connection.dialect,
            )
            self._counters.start(self._context)
        begun = time.monotonic()
        self._call(connection.state, message.batch if isinstance(message, ProcessRecords) else None)
        self._counters.processed(begun)
        dialogue.send_status()
        return not (connection.state == "DONE" and dialogue.signals.signalled)

    def _call(self, state: State, batch: RecordBatch | None) -> None:
        """Call the method that the open request is for; on return it can be answered."""
        processor, checkpointer, context = self._processor, self._checkpointer, self._context
        give_up = processor.give_up
        if batch is not None:
            self._counters.received(batch)
            self._guard("process_batch", lambda: processor.process_batch(batch, checkpointer), batch, give_up)
        elif state == "INITIALIZING":
            self._guard("initialize", lambda: processor.initialize(context))
        elif state == "LEASE_LOST":
            self._guard("lease_lost", processor.lease_lost)
        elif state == "SHUTDOWN_REQUESTED":
            self._guard("shutdown_requested", lambda: processor.shutdown_requested(checkpointer), give_up=give_up)
        else:
            self._guard("shard_ended", lambda: processor.shard_ended(checkpointer), give_up=give_up)
            if not self._dialogue.checkpointed:
                reports.line(unfinished_shard("shard_ended", context))

    def _guard(
        self,
        name: str,
        method: Callable[[], object],
        batch: RecordBatch | None = None,
        give_up: Callable[[RecordBatch | None], Sequence[RecordBatch]] | None = None,
    ) -> None:
        def call() -> None:
            refuse_deferred_result(f"{type(self._processor).__name__}.{name}", method())

        try:
            self._failures.call(call, name, self._dialogue, self._context, batch, give_up)
        except ProcessorError:
            raise SystemExit(reports.EXIT_FAILURE) from None
