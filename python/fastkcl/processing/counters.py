"""The counts of a shard that `run` makes for any processor; for `fastkcl.monitoring`."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fastkcl._core import RecordBatch
    from fastkcl.monitoring import Monitor
    from fastkcl.processing.context import ShardContext


class Counters:
    """Counts into a monitor; without one it does nothing.

    Args:
        monitor: of the run.

    Raises:
        TypeError: it is something else.
    """

    __slots__ = (
        "_batches",
        "_behind_seconds",
        "_bytes",
        "_checkpoint_errors",
        "_checkpoint_seconds",
        "_checkpointed",
        "_checkpoints",
        "_dead_letter_records",
        "_dead_letters",
        "_monitor",
        "_processing_seconds",
        "_records",
        "_skipped_records",
    )

    def __init__(self, monitor: Monitor | None) -> None:
        self._monitor = monitor
        self._behind_seconds: float | None = None
        if monitor is None:
            return
        if not callable(getattr(getattr(monitor, "metrics", None), "counter", None)):
            raise TypeError(f"monitor must be a fastkcl.monitoring.Monitor, not {type(monitor).__name__}")
        counter = monitor.metrics.counter
        self._batches = counter("batches", "Requests with records, or with none, as on a quiet shard.")
        self._records = counter("records", "Records received, those delivered again included.")
        self._bytes = counter("bytes", "Bytes of the Arrow columns of the records received.")
        monitor.metrics.gauge(
            "behind_latest_seconds", "millisBehindLatest of the last request, in seconds.", lambda: self._behind_seconds
        )
        self._processing_seconds = counter(
            "processing_seconds", "Time in the processor's methods, its waits, retries and checkpoints included."
        )
        self._checkpoints = counter("checkpoints", "Checkpoints that the daemon has stored.")
        self._checkpoint_errors = counter("checkpoint_errors", "Checkpoints that the daemon has refused.")
        self._checkpoint_seconds = counter("checkpoint_seconds", "Time that the daemon took to answer checkpoints.")
        self._checkpointed = monitor.metrics.timestamp("last_checkpoint", "When the last checkpoint was stored.")
        self._dead_letters = counter("dead_letters", "Files of records that failed, written to dead_letter.")
        self._dead_letter_records = counter("dead_letter_records", "Records in dead letters.")
        self._skipped_records = counter("skipped_records", "Records that on_error=skip has given up.")

    def start(self, context: ShardContext) -> None:
        """Report from now on."""
        if self._monitor is not None:
            self._monitor.start({"stream": context.stream or "", "shard": context.shard_id})

    def stop(self) -> None:
        """Make the last report."""
        if self._monitor is not None:
            self._monitor.stop()

    def received(self, batch: RecordBatch) -> None:
        """A request with records, maybe none."""
        if self._monitor is None:
            return
        self._batches.add()
        self._records.add(len(batch))
        self._bytes.add(batch.nbytes if len(batch) else 0)
        if batch.millis_behind_latest is not None:
            self._behind_seconds = batch.millis_behind_latest / 1000

    def processed(self, begun: float) -> None:
        """A method of the processor was called at `begun`, in `time.monotonic()`, and is over."""
        if self._monitor is not None:
            self._processing_seconds.add(max(0.0, time.monotonic() - begun))

    def checkpointed(self, begun: float, error: str | None) -> None:
        """A checkpoint was asked for at `begun`, in `time.monotonic()`, and was answered."""
        if self._monitor is None:
            return
        self._checkpoint_seconds.add(max(0.0, time.monotonic() - begun))
        if error is None:
            self._checkpoints.add()
            self._checkpointed.touch()
        else:
            self._checkpoint_errors.add()

    def stored(self, records: int) -> None:
        """A dead letter was written."""
        if self._monitor is not None:
            self._dead_letters.add()
            self._dead_letter_records.add(records)

    def skipped(self, records: int) -> None:
        """Records were given up."""
        if self._monitor is not None:
            self._skipped_records.add(records)


UNCOUNTED = Counters(None)
"""For a run that nobody watches."""
