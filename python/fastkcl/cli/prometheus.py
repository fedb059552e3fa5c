"""Serves a command's metrics over HTTP for Prometheus: those of the reader, and those of each shard.

GET /metrics ──▶ prometheus_client ─┬─ PrometheusMetricsCollector    the stream's reader, by its labels
                                    └─ _ShardMetrics                 fastkcl_…, as a child's file has them
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from fastkcl.kinesis import MetricsCollector
    from fastkcl.monitoring import Metrics

__all__ = ["Address", "AddressType", "serving"]


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int


class AddressType(click.ParamType):  # type: ignore[type-arg]  # not generic in every click that will do
    """``9400``, of this machine alone, or ``0.0.0.0:9400``, ``[::]:9400``."""

    name = "[HOST:]PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:  # noqa: ANN401
        """An address."""
        found = re.fullmatch(r"(?:(\[[0-9a-fA-F:]+\]|[^:\[\]\s]+):)?([0-9]{1,5})", str(value))
        if found is None or int(found[2]) > 65_535:
            self.fail(f"{value!r}: must be a port, or an address and a port, e.g. 0.0.0.0:9400", param, ctx)
        return Address((found[1] or "127.0.0.1").strip("[]"), int(found[2]))


@contextmanager
def serving(address: Address, metrics: Callable[[], Sequence[Metrics]]) -> Iterator[tuple[str, MetricsCollector]]:
    """Serve metrics while it is entered; the URL, and the collector for a stream's clients.

    Args:
        address: port 0 takes a free one.
        metrics: those of now, each with its labels.

    Raises:
        ModuleNotFoundError: prometheus_client is not installed.
        OSError: nobody can listen there.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    from fastkcl.kinesis import PrometheusMetricsCollector

    registry = CollectorRegistry()
    collector = PrometheusMetricsCollector(registry=registry)
    registry.register(_ShardMetrics(metrics))
    server, thread = start_http_server(address.port, address.host, registry)
    try:
        host = f"[{address.host}]" if ":" in address.host else address.host
        yield f"http://{host}:{server.server_port}/metrics", collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _ShardMetrics:
    """A collector of prometheus_client."""

    def __init__(self, metrics: Callable[[], Sequence[Metrics]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Any]:
        """All values that are known, each name once."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        from fastkcl.monitoring import PREFIX

        families: dict[str, Any] = {}
        for thing in self._metrics():
            for metric in thing:
                sample = metric.for_prometheus()
                if sample.value is None:
                    continue
                kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                name = f"{PREFIX}_{sample.name}"
                labels = {**thing.labels, **sample.labels}
                family = families.setdefault(name, kind(name, metric.help, labels=list(labels)))
                family.add_metric(list(labels.values()), sample.value)
        yield from families.values()
