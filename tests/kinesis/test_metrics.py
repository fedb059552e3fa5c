"""Metrics of the Kinesis clients: their values, and each collector's way to keep them."""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from fastkcl.kinesis import (
    METRICS,
    InMemoryMetricsCollector,
    MetricsCollector,
    MetricType,
    NoOpMetricsCollector,
    PrometheusMetricsCollector,
    get_metrics_collector,
    reset_metrics_collector,
    set_metrics_collector,
)
from prometheus_client import CollectorRegistry, generate_latest

CALLS = {"counter": "increment", "gauge": "gauge", "histogram": "histogram"}
VALUES = {
    "stream_name": "orders",
    "shard_id": "shardId-000000000000",
    "error_type": "InternalFailure",
    "reason": "digest",
}


def tell(collector: MetricsCollector, metric: MetricType, value: float) -> str:
    """Tell of a metric by its kind, with its labels; how Prometheus writes these."""
    labels = {name: VALUES[name] for name in METRICS[metric].labels}
    getattr(collector, CALLS[METRICS[metric].kind])(metric, value, labels)
    return ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))


# What there is.


def test_each_metric_is_described() -> None:
    assert list(METRICS) == list(MetricType)
    for name, metric in METRICS.items():
        assert (metric.kind == "counter") == name.value.endswith("_total")
        assert (metric.kind == "histogram") == bool(metric.buckets)
        assert metric.buckets == tuple(sorted(metric.buckets))
        assert metric.labels[0] == "stream_name"
        assert set(metric.labels) <= set(VALUES)
        assert re.fullmatch(r"[A-Z].*\.", metric.help)


@pytest.mark.parametrize("metric", MetricType)
def test_the_calls_of_a_kind_reach_prometheus(metric: MetricType) -> None:
    registry = CollectorRegistry()
    collector = PrometheusMetricsCollector(registry=registry)
    labels = tell(collector, metric, 2)
    tell(collector, metric, 3)
    name, expected = f"async_kinesis_{metric.value}", {"counter": "5.0", "gauge": "3.0", "histogram": "5.0"}
    sum_of = "_sum" if METRICS[metric].kind == "histogram" else ""
    written = generate_latest(registry).decode()
    lines = [line.split("} ") for line in written.splitlines() if line.startswith(f"{name}{sum_of}{{")]
    assert [(set(head.partition("{")[2].split(",")), value) for head, value in lines] == [
        (set(labels.split(",")), expected[METRICS[metric].kind])
    ]
    assert f"# HELP {name} {METRICS[metric].help}" in written


# Prometheus.


def test_prometheus_namespace_and_registry() -> None:
    registry = CollectorRegistry()
    collector = PrometheusMetricsCollector(namespace="mine", registry=registry)
    tell(collector, MetricType.PRODUCER_QUEUE_SIZE, 7)
    assert 'mine_producer_queue_size{stream_name="orders"} 7.0' in generate_latest(registry).decode()
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        PrometheusMetricsCollector(namespace="mine", registry=registry)


def test_prometheus_refuses_other_labels() -> None:
    collector = PrometheusMetricsCollector(registry=CollectorRegistry())
    with pytest.raises(ValueError, match="label"):
        collector.increment(MetricType.PRODUCER_ERRORS, 1, {"stream_name": "orders"})
    with pytest.raises(ValueError, match="label"):
        collector.gauge(MetricType.PRODUCER_QUEUE_SIZE, 1)


def test_prometheus_is_only_needed_by_its_collector() -> None:
    source = (
        "import sys; sys.modules['prometheus_client'] = None; import fastkcl.kinesis as kinesis\n"
        "kinesis.PrometheusMetricsCollector()"
    )
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "ImportError: PrometheusMetricsCollector needs prometheus_client: pip install 'fastkcl[prometheus]'"
    )


# In memory.


def test_what_is_kept_in_memory() -> None:
    collector = InMemoryMetricsCollector()
    collector.increment(MetricType.PRODUCER_ERRORS, 2, {"stream_name": "orders", "error_type": "E"})
    collector.increment(MetricType.PRODUCER_ERRORS, labels={"error_type": "E", "stream_name": "orders"})
    collector.gauge(MetricType.PRODUCER_QUEUE_SIZE, 3)
    collector.gauge(MetricType.PRODUCER_QUEUE_SIZE, 4)
    collector.histogram(MetricType.PRODUCER_BATCH_SIZE, 1)
    collector.histogram(MetricType.PRODUCER_BATCH_SIZE, 0.5)
    assert collector.counters == {"producer_errors_total{error_type=E,stream_name=orders}": 3}
    assert collector.gauges == {"producer_queue_size": 4}
    assert collector.histograms == {"producer_batch_size": [1, 0.5]}
    everything = collector.get_metrics()
    assert everything == {**collector.counters, **collector.gauges, **collector.histograms}
    everything["producer_batch_size"].append(9)  # type: ignore[union-attr]
    assert collector.histograms == {"producer_batch_size": [1, 0.5]}


def test_a_timer_counts_however_its_block_ends() -> None:
    collector = InMemoryMetricsCollector()
    labels = {"stream_name": "orders"}
    with collector.timer(MetricType.PRODUCER_FLUSH_DURATION, labels):
        pass
    with pytest.raises(KeyError), collector.timer(MetricType.PRODUCER_FLUSH_DURATION, labels):
        raise KeyError
    (seconds,) = collector.histograms.values()
    assert list(collector.histograms) == ["producer_flush_duration_seconds{stream_name=orders}"]
    assert len(seconds) == 2
    assert min(seconds) >= 0


# The collector of clients that are given none.


@pytest.fixture
def _at_first() -> Iterator[None]:
    yield
    reset_metrics_collector()


@pytest.mark.usefixtures("_at_first")
def test_the_collector_of_the_process() -> None:
    assert isinstance(get_metrics_collector(), NoOpMetricsCollector)
    mine = InMemoryMetricsCollector()
    set_metrics_collector(mine)
    assert get_metrics_collector() is mine
    reset_metrics_collector()
    assert isinstance(get_metrics_collector(), NoOpMetricsCollector)


def test_the_no_op_collector_takes_every_call() -> None:
    collector = NoOpMetricsCollector()
    for metric in MetricType:
        tell(collector, metric, 1)
        with pytest.raises(KeyError), collector.timer(metric):
            raise KeyError
