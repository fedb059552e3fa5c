"""Counts of producers, consumers and checkpointers, and the collectors that get them.

    Producer, Consumer, checkpointers ──▶ MetricsCollector ─┬─ NoOpMetricsCollector        nobody: the default
                                                            ├─ InMemoryMetricsCollector    a test, a person
                                                            └─ PrometheusMetricsCollector  prometheus_client

A metric is one of `MetricType`, and `METRICS` describes it: its kind, its labels, its help. A collector is given to
a client as ``metrics_collector``, or to all of them with `set_metrics_collector` before they are made. Write another
one by its three calls.

Rules: names, labels and the namespace for Prometheus are those of async-kinesis, so that dashboards keep working. The
event loop calls a collector between two reads or writes of the network. So a call must be quick, and an error in it
ends the counted operation.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = [
    "METRICS",
    "InMemoryMetricsCollector",
    "Metric",
    "MetricType",
    "MetricsCollector",
    "NoOpMetricsCollector",
    "PrometheusMetricsCollector",
    "Timer",
    "get_metrics_collector",
    "reset_metrics_collector",
    "set_metrics_collector",
]


class MetricType(enum.Enum):
    """A metric, by its name."""

    PRODUCER_RECORDS_SENT = "producer_records_sent_total"
    PRODUCER_BYTES_SENT = "producer_bytes_sent_total"
    PRODUCER_ERRORS = "producer_errors_total"
    PRODUCER_THROTTLES = "producer_throttles_total"
    PRODUCER_BATCH_SIZE = "producer_batch_size"
    PRODUCER_QUEUE_SIZE = "producer_queue_size"
    PRODUCER_FLUSH_DURATION = "producer_flush_duration_seconds"

    CONSUMER_RECORDS_RECEIVED = "consumer_records_received_total"
    CONSUMER_BYTES_RECEIVED = "consumer_bytes_received_total"
    CONSUMER_ERRORS = "consumer_errors_total"
    CONSUMER_CHECKPOINT_SUCCESS = "consumer_checkpoint_success_total"
    CONSUMER_CHECKPOINT_FAILURE = "consumer_checkpoint_failure_total"
    CONSUMER_ITERATOR_AGE = "consumer_iterator_age_milliseconds"
    CONSUMER_QUEUE_SIZE = "consumer_queue_size"
    CONSUMER_LAG = "consumer_lag_records"
    CONSUMER_PROCESSING_TIME = "consumer_processing_time_seconds"
    CONSUMER_DATA_LOSS = "consumer_data_loss_total"

    STREAM_SHARDS_ACTIVE = "stream_shards_active"
    STREAM_SHARDS_CLOSED = "stream_shards_closed"
    STREAM_RESHARDING_EVENTS = "stream_resharding_events_total"

    KPL_PLAIN_FALLBACK = "kpl_plain_fallback_total"
    KPL_DROPPED_AGGREGATES = "kpl_dropped_aggregates_total"


class Metric(NamedTuple):
    """The description of a metric.

    Attributes:
        kind: which call reports it: counters `increment`, gauges `gauge`, histograms `histogram` and `timer`.
        labels: that each call gives.
        help: one sentence.
        buckets: upper bounds of a histogram's.
    """

    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


_STREAM = ("stream_name",)
_SHARD = ("stream_name", "shard_id")
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

METRICS: Mapping[MetricType, Metric] = {
    MetricType.PRODUCER_RECORDS_SENT: Metric("counter", _STREAM, "Records that the stream has taken."),
    MetricType.PRODUCER_BYTES_SENT: Metric("counter", _STREAM, "Bytes of these records, keys included."),
    MetricType.PRODUCER_ERRORS: Metric(
        "counter", (*_STREAM, "error_type"), "Records that were refused and put again, and calls that failed."
    ),
    MetricType.PRODUCER_THROTTLES: Metric("counter", _STREAM, "Records that were refused as above a shard's limits."),
    MetricType.PRODUCER_BATCH_SIZE: Metric(
        "histogram", _STREAM, "Records of a PutRecords call.", (1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500)
    ),
    MetricType.PRODUCER_QUEUE_SIZE: Metric("gauge", _STREAM, "Records that wait to be put."),
    MetricType.PRODUCER_FLUSH_DURATION: Metric("histogram", _STREAM, "Seconds of a PutRecords call.", _SECONDS),
    MetricType.CONSUMER_RECORDS_RECEIVED: Metric("counter", _SHARD, "Records of GetRecords answers."),
    MetricType.CONSUMER_BYTES_RECEIVED: Metric(
        "counter", _SHARD, "Bytes of these records in columns, keys and numbers included."
    ),
    MetricType.CONSUMER_ERRORS: Metric(
        "counter", (*_SHARD, "error_type"), "Calls that failed, and records that could not be read."
    ),
    MetricType.CONSUMER_CHECKPOINT_SUCCESS: Metric("counter", _SHARD, "Checkpoints that were stored."),
    MetricType.CONSUMER_CHECKPOINT_FAILURE: Metric("counter", _SHARD, "Checkpoints that could not be stored."),
    MetricType.CONSUMER_ITERATOR_AGE: Metric("gauge", _SHARD, "Milliseconds that the last answer was behind the tip."),
    MetricType.CONSUMER_QUEUE_SIZE: Metric("gauge", _STREAM, "Records that were fetched and wait for the program."),
    MetricType.CONSUMER_LAG: Metric("gauge", _SHARD, "Records that were fetched and not yet committed."),
    MetricType.CONSUMER_PROCESSING_TIME: Metric(
        "histogram", _SHARD, "Seconds that the program took for its items.", _SECONDS
    ),
    MetricType.CONSUMER_DATA_LOSS: Metric(
        "counter", _SHARD, "Positions that the stream has trimmed: records after them are lost."
    ),
    MetricType.STREAM_SHARDS_ACTIVE: Metric("gauge", _STREAM, "Shards that are open."),
    MetricType.STREAM_SHARDS_CLOSED: Metric("gauge", _STREAM, "Shards that are closed and still listed."),
    MetricType.STREAM_RESHARDING_EVENTS: Metric("counter", _STREAM, "Shards that have ended with children."),
    MetricType.KPL_PLAIN_FALLBACK: Metric(
        "counter", (*_SHARD, "reason"), "Records that begin as a KPL aggregate and are none; they stay as they came."
    ),
    MetricType.KPL_DROPPED_AGGREGATES: Metric(
        "counter", _SHARD, "KPL aggregates with keys of other shards, which have them, too."
    ),
}

Labels = Mapping[str, str]


class MetricsCollector(abc.ABC):
    """Base class: the calls by which metrics are reported."""

    @abc.abstractmethod
    def increment(self, metric: MetricType, value: float = 1, labels: Labels | None = None) -> None:
        """Add to a counter."""

    @abc.abstractmethod
    def gauge(self, metric: MetricType, value: float, labels: Labels | None = None) -> None:
        """Set a gauge."""

    @abc.abstractmethod
    def histogram(self, metric: MetricType, value: float, labels: Labels | None = None) -> None:
        """Count a value into a histogram."""

    def timer(self, metric: MetricType, labels: Labels | None = None) -> AbstractContextManager[object]:
        """Count the seconds of a ``with`` block into a histogram, however the block ends."""
        return Timer(self.histogram, metric, labels)


class Timer:
    """Times a ``with`` block, however it ends.

    Args:
        callback: gets the metric, the seconds and the labels; `MetricsCollector.histogram` is one.
        metric: to time.
        labels: of the metric.
    """

    def __init__(
        self,
        callback: Callable[[MetricType, float, Labels | None], object],
        metric: MetricType,
        labels: Labels | None = None,
    ) -> None:
        self._callback = callback
        self._metric = metric
        self._labels = labels
        self._start = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self._callback(self._metric, time.perf_counter() - self._start, self._labels)


class NoOpMetricsCollector(MetricsCollector):
    """Reports nothing."""

    def increment(self, metric: MetricType, value: float = 1, labels: Labels | None = None) -> None:
        """Do nothing."""

    def gauge(self, metric: MetricType, value: float, labels: Labels | None = None) -> None:
        """Do nothing."""

    def histogram(self, metric: MetricType, value: float, labels: Labels | None = None) -> None:
        """Do nothing."""

    def timer(self, metric: MetricType, labels: Labels | None = None) -> AbstractContextManager[object]:
        """Time nothing."""
        del metric, labels
        return contextlib.nullcontext()


class InMemoryMetricsCollector(MetricsCollector):
    """Keeps everything, for tests and for a look.

    A key is the metric's name and its labels, sorted: ``producer_queue_size{stream_name=orders}``, or the name alone
    where there are none.

    Attributes:
        counters: sums.
        gauges: last values.
        histograms: all values, in the order in which they came.
    """

    def __init__(self) -> None:
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self.histograms: dict[str, list[float]] = {}

    def increment(self, metric: MetricType, value: float = 1, labels: Labels | None = None) -> None:
        """Add to `counters`."""
        key = _key(metric, labels)
        self.counters[key] = self.counters.get(key, 0) + value

    def gauge(self, metric: MetricType, value: float, labels: Labels | None = None) -> None:
        """Set in `gauges`."""
        self.gauges[_key(metric, labels)] = value

    def histogram(self, metric: MetricType, value: float, labels: Labels | None = None) -> None:
        """Append in `histograms`."""
        self.histograms.setdefault(_key(metric, labels), []).append(value)

    def get_metrics(self) -> dict[str, float | list[float]]:
        """All of them, in one dictionary: a copy."""
        return {**self.counters, **self.gauges, **{key: list(values) for key, values in self.histograms.items()}}


def _key(metric: MetricType, labels: Labels | None) -> str:
    if not labels:
        return metric.value
    return f"{metric.value}{{{','.join(f'{name}={value}' for name, value in sorted(labels.items()))}}}"


class PrometheusMetricsCollector(MetricsCollector):
    """Metrics of prometheus_client, all of them registered at once. Needs the extra ``prometheus``.

    Args:
        namespace: before each name, e.g. ``async_kinesis_producer_records_sent_total``.
        registry: where they are registered; None for prometheus_client's own.

    Raises:
        ImportError: prometheus_client is not installed.
        ValueError: the registry has metrics of these names already: one collector serves all clients of a process.
    """

    def __init__(self, namespace: str = "async_kinesis", registry: CollectorRegistry | None = None) -> None:
        try:
            import prometheus_client
        except ModuleNotFoundError:
            raise ImportError(
                "PrometheusMetricsCollector needs prometheus_client: pip install 'fastkcl[prometheus]'"
            ) from None

        kinds = {"counter": prometheus_client.Counter, "gauge": prometheus_client.Gauge}
        self._metrics: dict[MetricType, Any] = {}
        for name, metric in METRICS.items():
            common: dict[str, Any] = {
                "name": name.value,
                "documentation": metric.help,
                "labelnames": metric.labels,
                "namespace": namespace,
                "registry": prometheus_client.REGISTRY if registry is None else registry,
            }
            if metric.kind == "histogram":
                self._metrics[name] = prometheus_client.Histogram(**common, buckets=metric.buckets)
            else:
                self._metrics[name] = kinds[metric.kind](**common)

    def increment(self, metric: MetricType, value: float = 1, labels: Labels | None = None) -> None:
        """Add to a counter.

        Raises:
            ValueError: the labels are not those of `METRICS`; so for all calls.
        """
        self._metrics[metric].labels(**(labels or {})).inc(value)

    def gauge(self, metric: MetricType, value: float, labels: Labels | None = None) -> None:
        """Set a gauge."""
        self._metrics[metric].labels(**(labels or {})).set(value)

    def histogram(self, metric: MetricType, value: float, labels: Labels | None = None) -> None:
        """Count a value into a histogram."""
        self._metrics[metric].labels(**(labels or {})).observe(value)


_collector: MetricsCollector = NoOpMetricsCollector()


def get_metrics_collector() -> MetricsCollector:
    """The collector of clients that are given none."""
    return _collector


def set_metrics_collector(collector: MetricsCollector) -> None:
    """Make this the collector of clients that are made from now on and are given none."""
    global _collector
    _collector = collector


def reset_metrics_collector() -> None:
    """Have them report nothing, as at first."""
    set_metrics_collector(NoOpMetricsCollector())
