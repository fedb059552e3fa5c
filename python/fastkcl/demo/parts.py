"""The common parts of both demos: the Spark that they start, and the metrics of their children."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final

from fastkcl.demo.report import ShardWork, Step
from fastkcl.spark.server.local import LocalSpark
from fastkcl.spark.server.settings import without_frames

__all__ = [
    "LOG_LINES",
    "PROFILE",
    "ChildrenSaid",
    "DemoError",
    "DemoServer",
    "check_arguments",
    "spark_errors_told",
    "start_spark",
]

PROFILE: Final = "clickstream"
LOG_LINES: Final = 30
"""Of each log, in a report of something that is wrong."""
_METRICS: Final = b"fastkcl: metrics "

# For a minute on one machine: the quick compiler only, and no 200 partitions for a handful of groups.
_SPARK_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "4",
}


class DemoError(RuntimeError):
    """Spark has failed on the way. `str()` has the error."""


def check_arguments(shards: int, records: int, keep: Path | None) -> None:
    """Refuse options that no demo can serve.

    Raises:
        ValueError: a number below 1, or `keep` is not empty.
    """
    if shards < 1 or records < 1:
        raise ValueError("shards and records must be at least 1")
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ValueError(f"{keep}: not an empty folder")


@contextmanager
def spark_errors_told() -> Iterator[None]:
    """Turns Spark's exceptions into a DemoError while the JVM is there, which many ask for their text.

    Raises:
        DemoError: Spark's error.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise DemoError(f"Spark: {without_frames(error)}") from error


class DemoServer:
    """The Spark that the children write to, and that reads the table back.

    Args:
        log: where its JVM writes.

    Raises:
        SparkUnavailableError: it does not start.
    """

    def __init__(self, log: IO[bytes]) -> None:
        self._log = log
        self.spark = LocalSpark(connect=True, output=log, settings=_SPARK_SETTINGS)
        assert self.spark.url is not None
        self.url = self.spark.url
        self.java = self.spark.java  # the second one takes the Java of this one

    def start_again(self) -> None:
        """At the same URL.

        Raises:
            SparkUnavailableError: it does not start.
        """
        self.spark = LocalSpark(connect=self.url, output=self._log, settings=_SPARK_SETTINGS)

    def close(self) -> None:
        """End it."""
        self.spark.close()


def start_spark(stack: ExitStack, work: Path) -> tuple[DemoServer, Step]:
    """Start Spark until the stack ends, its log in ``work/jvm.log``, and run a first job.

    That takes a JVM seconds, whatever it writes: it is start, not the way of the records.

    Raises:
        SparkUnavailableError: it does not start.
    """
    begun = time.monotonic()
    server = DemoServer(stack.enter_context((work / "jvm.log").open("wb")))
    stack.callback(server.close)
    stack.enter_context(spark_errors_told())
    server.spark.session.range(1000).write.parquet(str(work / "first-job"))
    return server, Step("start Spark and its first job", time.monotonic() - begun)


class ChildrenSaid:
    """The children's lines on standard error: their metrics, and the rest."""

    def __init__(self) -> None:
        self.last: list[str] = []
        """The last lines that are no metrics."""
        self._metrics: dict[tuple[str, int], dict[str, Any]] = {}
        self._lock = threading.Lock()

    def line(self, shard: str, line: bytes) -> None:
        """A line; called from the shards' threads."""
        with self._lock:
            if line.startswith(_METRICS):
                values = json.loads(line.removeprefix(_METRICS))
                self._metrics[shard, values["pid"]] = values
            else:
                self.last.append(f"{shard}: {line.decode(errors='replace')}")
                del self.last[:-LOG_LINES]

    def total(self, shard: str | None, name: str) -> int:
        """The sum of a count over a shard's processes; None for all shards'."""
        with self._lock:
            values = [values for (of, _), values in self._metrics.items() if shard in (None, of)]
        return sum(int(each[name]) for each in values)

    def work(self) -> list[ShardWork]:
        """The sums over each shard's processes."""
        sums: dict[str, Counter[str]] = {}
        for (shard, _), values in self._metrics.items():
            of_shard = sums.setdefault(shard, Counter())
            of_shard["processes"] += 1
            for name, value in values.items():
                if isinstance(value, int | float):
                    of_shard[name] += value  # type: ignore[assignment]  # seconds are fractions
        return [
            ShardWork(
                shard_id=shard,
                processes=of_shard["processes"],
                writes=of_shard["writes"],
                write_failures=of_shard["write_failures"],
                written_bytes=of_shard["written_bytes"],
                dropped=of_shard["dropped_records"],
                seconds=of_shard["start_age_seconds"],
                write_seconds=of_shard["write_seconds"],
                processing_seconds=of_shard["processing_seconds"],
            )
            for shard, of_shard in sorted(sums.items())
        ]
