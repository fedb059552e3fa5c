"""Reports the source's values of each progress event to Prometheus and the log.

    progress event ──▶ sources[i].latestOffset ──▶ a Monitor for each source of each run ──▶ a file, a line in the log

Spark hands the events over, at the driver or at a client of Spark Connect, after each batch. A query without new
records has an idle event, which brings no figures: the last ones stay, and the time of the event is kept.

Rules: an event that is not ours, or not of the form that `report` gives, changes nothing. Reports are made by the
threads of the monitors, so that a slow disk holds up no event.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from fastkcl.monitoring import Counter, Monitor
from fastkcl.stdio.reports import METRICS_VARIABLE

__all__ = ["SourceListener"]

CALLS: Final = {
    "GetRecords": "get_records_calls",
    "GetShardIterator": "get_shard_iterator_calls",
    "ListShards": "list_shards_calls",
    "DescribeStreamSummary": "describe_stream_summary_calls",
}
"""Calls of the driver, and the names of their counters."""


class SourceListener(StreamingQueryListener):
    """Gives lag, slowest shard, throttling and calls of the source to Prometheus, as a file, and to the log.

        spark.streams.addListener(SourceListener(metrics_dir="/var/lib/node_exporter/textfile"))

    Each source of a query has a file, ``fastkcl+<query>+<number of the source>.prom``. It goes when the query ends.

    Args:
        metrics_dir: folder for the files; without it that of FASTKCL_METRICS_DIR.
        report_interval: seconds between two lines on standard error; None for no lines.
        labels: more labels, e.g. the application's name where several have queries of one name on one host.

    Raises:
        ValueError: neither files nor lines are wanted, or what `fastkcl.monitoring.Monitor` refuses.
        OSError: the folder cannot be made or written to.
    """

    def __init__(
        self,
        *,
        metrics_dir: str | os.PathLike[str] | None = None,
        report_interval: float | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        if metrics_dir is None and report_interval is None and not os.environ.get(METRICS_VARIABLE):
            raise ValueError(
                f"nothing would be reported: give metrics_dir, or set {METRICS_VARIABLE}, or give report_interval"
            )
        self._folder, self._interval, self._labels = metrics_dir, report_interval, dict(labels or {})
        self._monitor()  # refuses at once what cannot be
        self._sources: dict[tuple[str, int], _Source] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done: its figures count from now on."""
        progress = event.progress
        run, name = str(progress.runId), progress.name or str(progress.id)
        for number, source in enumerate(progress.sources):
            said = _figures(source.latestOffset)
            if said is None:
                continue
            known = self._sources.get((run, number))
            counted = known or _Source(self._monitor())
            counted.batch(said, source.numInputRows)
            if known is None:
                self._sources[run, number] = counted
                counted.monitor.start({"query": name, "source": str(number)})

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing was new: the query is alive."""
        for (run, _), source in list(self._sources.items()):
            if run == str(event.runId):
                source.seen.touch()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """A query has ended: its files go."""
        self._end(lambda run: run == str(event.runId))

    def close(self) -> None:
        """End all reports, and remove the files: for a program that ends before its queries do."""
        self._end(lambda _: True)

    def _monitor(self) -> Monitor:
        return Monitor(metrics_dir=self._folder, report_interval=self._interval, labels=self._labels)

    def _end(self, is_over: Callable[[str], bool]) -> None:
        for key in [key for key in list(self._sources) if is_over(key[0])]:
            self._sources.pop(key).monitor.stop()


class _Source:
    """The figures of a source of a run."""

    def __init__(self, monitor: Monitor) -> None:
        metrics = monitor.metrics
        self.monitor = monitor
        self._said: dict[str, Any] = {}
        self._seen: dict[str, int] = {}
        self._batches = metrics.counter("source_batches", "Batches that are done.")
        self._rows = metrics.counter("source_rows", "Rows of these batches.")
        behind = "How far the slowest shard is behind, as of the last batch."
        metrics.gauge("source_behind_latest_seconds", behind, self._behind)
        slowest = "The shard that is furthest behind, as of the last batch."
        metrics.info("source_slowest_shard", slowest, "shard", lambda: self._said.get("slowest"))
        metrics.gauge("source_shards", "Shards that are read.", lambda: self._said.get("shards"))
        counters = {"throttled": ("throttled_calls", "Calls of the driver that were throttled.")}
        counters["outages"] = ("failed_calls", "Calls of the driver that did not reach the service, or failed there.")
        counters |= {operation: (name, f"Calls of {operation} by the driver.") for operation, name in CALLS.items()}
        self._counters: dict[str, Counter] = {
            key: metrics.counter(f"source_{name}", help) for key, (name, help) in counters.items()
        }
        self._batch = metrics.timestamp("source_last_batch", "When a batch was last reported.")
        self.seen = metrics.timestamp("source_last_event", "When a batch, or that nothing is new, was last reported.")

    def batch(self, said: dict[str, Any], rows: int) -> None:
        """Count the values of a progress event."""
        self._said = said
        self._batches.add()
        self._rows.add(max(0, rows))
        totals = {**said["calls"], "throttled": said["throttled"], "outages": said["outages"]}
        for name, counter in self._counters.items():
            total = totals.get(name, 0)
            before = self._seen.get(name, 0)
            counter.add(total - before if total >= before else total)  # less: another process counts from 0
            self._seen[name] = total
        self._batch.touch()
        self.seen.touch()

    def _behind(self) -> float | None:
        behind = self._said.get("behindMs")
        return None if behind is None else behind / 1000


def _figures(latest: object) -> dict[str, Any] | None:
    """The values of our source in a progress event; None for other sources, and before the first plan."""
    try:
        said = json.loads(latest) if isinstance(latest, str) else latest
    except ValueError:
        return None
    if not isinstance(said, dict) or not isinstance(said.get("calls"), dict):
        return None
    counts = [said.get(name) for name in ("behindMs", "shards", "throttled", "outages")] + list(said["calls"].values())
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        return None
    return said if isinstance(said.get("slowest"), str | None) else None
