"""The counters of a run of ``fastkcl load``: of each shard that it has now, and in all.

    processor ── counts ──▶ its monitor's metrics ──▶ Shards ── look ──▶ Look ──▶ a table, a line, a summary, Prometheus

Rules: for any threads. A shard that is over, or another host's by now, is counted on in the totals.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastkcl.cli.rates import Rate
from fastkcl.monitoring import Metrics, Monitor

__all__ = ["Look", "ShardLook", "ShardMonitor", "Shards"]


@dataclass(frozen=True, slots=True)
class ShardLook:
    """A shard at some moment."""

    shard_id: str
    rows: int
    """Written by this process."""
    bytes: int
    """Of their Arrow columns."""
    commits: int
    held: int
    """Records that are read and not written."""
    behind: float | None
    """Seconds that the last answer of the stream lay behind its newest record; None before the first answer."""
    commit_age: float | None
    """Seconds since the last commit; None before the first."""
    rows_a_second: float
    bytes_a_second: float


@dataclass(frozen=True, slots=True)
class Look:
    """All shards at some moment."""

    shards: tuple[ShardLook, ...]
    """Those that this process has now."""
    rows: int
    bytes: int
    commits: int
    corrupt: int
    """Payloads in ``_corrupt``."""
    failures: int
    """Writes that have failed."""
    rows_by_shard: Mapping[str, int]
    """Of all shards that this process has ever had."""

    @property
    def held(self) -> int:
        """Records that are read and not written."""
        return sum(shard.held for shard in self.shards)

    @property
    def behind(self) -> float | None:
        """Of the shard that is furthest behind."""
        return max((shard.behind for shard in self.shards if shard.behind is not None), default=None)

    @property
    def commit_age(self) -> float | None:
        """Of the last commit of any shard."""
        return min((shard.commit_age for shard in self.shards if shard.commit_age is not None), default=None)

    @property
    def rows_a_second(self) -> float:
        """Over the last seconds."""
        return sum(shard.rows_a_second for shard in self.shards)

    @property
    def bytes_a_second(self) -> float:
        """Over the last seconds."""
        return sum(shard.bytes_a_second for shard in self.shards)


_TOTALS = ("written_records", "written_bytes", "writes", "corrupt_payloads", "write_failures")


class Shards:
    """The metrics of the shards that this process has, and the sums of those that it has had."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: list[Metrics] = []
        self._past: Counter[str] = Counter()
        self._past_rows: Counter[str] = Counter()
        self._rates: dict[str, tuple[Rate, Rate]] = {}

    @property
    def metrics(self) -> list[Metrics]:
        """Of the shards that this process has now."""
        with self._lock:
            return list(self._live)

    def started(self, metrics: Metrics) -> None:
        """A shard is ours from now on."""
        with self._lock:
            self._live.append(metrics)

    def stopped(self, metrics: Metrics) -> None:
        """It is not any more."""
        values = metrics.to_dict()
        with self._lock:
            if metrics not in self._live:
                return
            self._live.remove(metrics)
            self._add(values, self._past, self._past_rows)
            self._rates.pop(values["shard"], None)

    def look(self, now: float) -> Look:
        """How it is now, in seconds on a clock that does not go back."""
        with self._lock:
            totals, rows = Counter(self._past), Counter(self._past_rows)
            shards = []
            for metrics in self._live:
                values = metrics.to_dict()
                self._add(values, totals, rows)
                shards.append(self._look_of(values, now))
        return Look(
            shards=tuple(sorted(shards, key=lambda shard: shard.shard_id)),
            rows=totals["written_records"],
            bytes=totals["written_bytes"],
            commits=totals["writes"],
            corrupt=totals["corrupt_payloads"],
            failures=totals["write_failures"],
            rows_by_shard=dict(sorted(rows.items())),
        )

    @staticmethod
    def _add(values: Mapping[str, Any], totals: Counter[str], rows: Counter[str]) -> None:
        for name in _TOTALS:
            totals[name] += values.get(name, 0)
        rows[values["shard"]] += values.get("written_records", 0)

    def _look_of(self, values: Mapping[str, Any], now: float) -> ShardLook:
        rows, size = values.get("written_records", 0), values.get("written_bytes", 0)
        of_rows, of_bytes = self._rates.setdefault(values["shard"], (Rate(), Rate()))
        return ShardLook(
            shard_id=values["shard"],
            rows=rows,
            bytes=size,
            commits=values.get("writes", 0),
            held=values.get("held_records", 0),
            behind=values.get("behind_latest_seconds"),
            commit_age=values.get("last_write_age_seconds"),
            rows_a_second=of_rows.at(now, rows),
            bytes_a_second=of_bytes.at(now, size),
        )


class ShardMonitor(Monitor):
    """The monitor of a shard's processor, which `Shards` looks at while the shard is ours.

    Args:
        shards: of the run.
        application: a label: several may read one stream on one host.
    """

    def __init__(self, shards: Shards, application: str) -> None:
        super().__init__(report_interval=None, labels={"application": application})
        self._shards = shards

    def start(self, labels: Mapping[str, str]) -> None:
        """Report from now on."""
        super().start(labels)
        self._shards.started(self.metrics)

    def stop(self) -> None:
        """Report no more."""
        self._shards.stopped(self.metrics)
        super().stop()
