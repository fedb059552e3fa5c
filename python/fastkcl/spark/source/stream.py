"""A stream as Spark's micro-batches see it.

    latestOffset ──▶ PlanDriver ──▶ Plan, kept ──▶ partitions ──▶ tasks ──▶ read
                                                   └─ a plan that is not kept: a replay, all of it by range

Spark's checkpoint is the only store of progress. The memory of this process only saves calls: another process goes on
from the offset alone.

Rules: the reader travels to the tasks without its driver. Offsets are dictionaries of JSON, equal if their texts are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from fastkcl.kinesis.read.plan import TRIM, Offset, Plan, Planner
from fastkcl.kinesis.read.plan.driver import PlanDriver
from fastkcl.kinesis.read.plan.losses import DAY
from fastkcl.kinesis.read.plan.planner import Part, ranges_of
from fastkcl.spark.source.options import SourceOptions
from fastkcl.spark.source.schema import Rows
from fastkcl.spark.source.tasks import (
    TaskPartition,
    listed,
    partitions_of,
    read_partition,
    retention_of,
    service_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KinesisStreamReader"]

log = logging.getLogger("fastkcl.spark.source")

ROWS_PER_INLINE_BYTE: Final = 16
"""Bytes of rows that may travel, for each of ``inlineBytes``: small records are a tenth of their rows."""


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams in micro-batches.

    Args:
        options: of the query.
        rows: how records become rows.
    """

    def __init__(self, options: SourceOptions, rows: Rows) -> None:
        self._options = options
        self._rows = rows
        self._driver: PlanDriver | None = None
        self._plans: dict[str, Plan] = {}
        self._last: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Only what a task needs."""
        return {"_options": self._options, "_rows": self._rows, "_driver": None, "_plans": {}, "_last": None}

    # Spark's methods.

    def initialOffset(self) -> dict[str, Any]:
        """Before the first batch: the same at each start, as Spark asks again after a death."""
        return Offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """No limit of Spark's own, and not `ReadAllAvailable`, which means Trigger.Once."""
        return ReadMaxBytes(2**63 - 1)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends when it has all that there is now."""
        self._planner().prepare()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; `start` itself if nothing is new."""
        begin = Offset.from_json(start)
        plan = self._open().latest(begin, everything=isinstance(limit, ReadAllAvailable))
        self._last = plan.offset
        if str(plan.offset) == str(begin):
            return start
        self._plans = {str(plan.offset): plan}
        return plan.offset.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the batch that ends at `end`."""
        last = Offset.from_json(end)
        if start == end:
            return []
        plan = self._plans.get(str(last))
        parts: Sequence[Part] = self._replayed(last) if plan is None else plan.parts
        retention = {name: self._retention(name) for name in last.streams}
        most = ROWS_PER_INLINE_BYTE * self._options["inlineBytes"]
        made = partitions_of(parts, self._rows, retention, self._options["shardsPerTask"], most, last.at)
        return [TaskPartition(partition) for partition in made]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, TaskPartition)
        return read_partition(partition.partition, self._options, self._rows)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is in the sink: its plan is no longer needed."""
        self._plans.pop(str(Offset.from_json(end)), None)

    def stop(self) -> None:
        """The query has ended."""
        if self._driver is not None:
            self._driver.close()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What the progress of each batch says of the source."""
        return None if self._driver is None else report(self._driver, self._last)

    # Insides.

    def _open(self) -> PlanDriver:
        if self._driver is None:
            options = self._options
            services = {name: service_of(options.access_of(name)) for name in options.streams}
            self._driver = PlanDriver(options.plan_options(), services, threads=options["driverThreads"], log=log)
            log.info(
                "reading %s: initialPosition=%s, failOnDataLoss=%s",
                ", ".join(options.streams),
                {None: "latest", TRIM: "trim_horizon"}.get(options["initialPosition"], options["initialPosition"]),
                str(options["failOnDataLoss"]).lower(),
            )
        return self._driver

    def _planner(self) -> Planner:
        return self._open().planner

    def _retention(self, name: str) -> int:
        """How long a stream keeps records, in ms; a replay has no plan that has asked."""
        stream = self._planner().streams.get(name)
        if stream is not None and stream.is_described:
            return stream.retention
        service = service_of(self._options.access_of(name))
        return retention_of(service, name, self._options["maxOutage"]) or DAY

    def _replayed(self, end: Offset) -> list[Part]:
        """A batch that another process has planned."""
        shards = {}
        if self._options["deaggregate"]:
            outage = self._options["maxOutage"]
            shards = {name: listed(service_of(self._options.access_of(name)), name, outage) for name in end.streams}
        return [Part(part.stream, part.shard_id, part.hash_range, None, part) for part in ranges_of(end, shards)]


def report(driver: PlanDriver, last: Offset | None) -> dict[str, Any]:
    """Lag, slowest shard, throttling and calls, for a progress event."""
    looks = [look for stream in driver.planner.streams.values() for look in stream.looks.values()]
    going_on = [look for look in looks if not look.has_ended]
    # The lag of a shard that was read to its end counts until the lag of its children is known.
    counting = looks if not going_on or any(look.behind is None for look in going_on) else going_on
    behind = {f"{look.stream}/{look.shard_id}": look.behind for look in counting if look.behind is not None}
    slowest = max(behind, key=lambda key: behind[key], default=None)
    return {
        "behindMs": behind.get(slowest, 0) if slowest is not None else 0,
        "slowest": slowest,
        "shards": len(looks),
        "throttled": driver.throttled,
        "outages": driver.outages,
        "calls": dict(sorted(driver.calls.items())),
        "at": None if last is None else last.at,
    }
