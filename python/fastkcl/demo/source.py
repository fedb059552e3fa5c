"""`fastkcl spark demo`: a stream of local AWS into Parquet by the Spark source, through a split and a death.

    put ──▶ local AWS ──▶ spark.readStream.format("kinesis") ──▶ Parquet
      │      a shard is split, then the driver and its JVM are killed, and started again
      └──────────── compared: each number once ◀──── spark.read ──┘

Rules: the table is Spark's own file sink, so each batch is in it once. All processes have ended when it returns.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from fastkcl.demo.parts import LOG_LINES, DemoError, check_arguments
from fastkcl.local_aws import LocalAws

__all__ = ["SourceReport", "run_source_demo"]

STREAM: Final = "clicks"
COUNTRIES: Final = ("de", "fr", "it", "nl", "se")
CALL: Final = 500
"""Records of a call."""
PATIENCE: Final = 180.0
"""Seconds for a start of Spark and a batch."""
STARTS: Final = 4
"""Of a query that Spark has ended for its own impatience, see `is_impatience`."""
_IMPATIENCE = re.compile(r"(failed|waiting|timed out).{0,80}connect(ing)? back", re.IGNORECASE)


@dataclass(slots=True, kw_only=True)
class SourceReport:
    """What the demo has shown.

    Attributes:
        sent: records that were put.
        rows: of the table.
        distinct: of them.
        batches: that were committed.
        shards: rows by shard.
        restarts: of the query, by us and where Spark had no patience.
        put_seconds: for putting them, beside the query.
        query_seconds: from the query's first start to the end of its last batch, starts of Spark included.
        events: what happened, with seconds from the beginning.
        table: folder; None if it was removed.
    """

    sent: int
    rows: int
    distinct: int
    batches: int
    shards: dict[str, int]
    restarts: int
    put_seconds: float
    query_seconds: float
    events: list[tuple[float, str]] = field(default_factory=list)
    table: str | None = None

    @property
    def ok(self) -> bool:
        """Whether each record is there once."""
        return self.rows == self.distinct == self.sent

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ok": self.ok, "lost": self.sent - self.distinct, "doubled": self.rows - self.distinct}


def is_impatience(log: str) -> bool:
    """Whether Spark ended a query because its Python needed longer than 10 s to connect.

    No option changes these 10 s, whatever else the machine does meanwhile. The query can be started again.
    """
    return _IMPATIENCE.search(log) is not None


def run_source_demo(
    *, shards: int, records: int, keep: Path | None = None, on_step: Callable[[str], None] = lambda _step: None
) -> SourceReport:
    """Run the demo.

    Args:
        shards: of the stream.
        records: to put.
        keep: empty or new folder to leave the table in; a temporary one is used and removed without it.
        on_step: called with each step that begins.

    Raises:
        ValueError: a number below 1, or `keep` is not empty.
        LocalAwsError: local AWS does not start.
        DemoError: Spark fails; the message has the end of its log.
    """
    check_arguments(shards, records, keep)
    with tempfile.TemporaryDirectory(prefix="fastkcl-demo-", ignore_cleanup_errors=True) as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        on_step("starting local AWS")
        with LocalAws(streams={STREAM: shards}) as aws:
            report = _Demo(aws, folder.absolute(), Path(temporary), on_step).run(records)
        report.table = str(folder / "table") if keep is not None else None
        return report


class _Demo:
    def __init__(self, aws: LocalAws, folder: Path, work: Path, on_step: Callable[[str], None]) -> None:
        self._aws, self._folder, self._work, self._on_step = aws, folder, work, on_step
        self._kinesis = aws.client("kinesis")
        self._began = time.monotonic()
        self._events: list[tuple[float, str]] = []
        self._put_seconds = 0.0
        self._starts = 0
        self._log = work / "spark.log"

    def run(self, records: int) -> SourceReport:
        thirds = [records * part // 3 for part in range(4)]
        self._on_step(f"putting the first of {records:,} records")
        self._put(range(thirds[0], thirds[1]))
        self._on_step("starting Spark, and the query: Kinesis → Parquet")
        began = time.monotonic()
        with self._query() as query:
            self._wait_for_batches(query, 1)
            self._on_step("splitting a shard, under load")
            self._split()
            before = self._batches()
            self._put(range(thirds[1], thirds[2]))
            self._wait_for_batches(query, before + 1)
            self._on_step("killing the driver and its JVM")
            done = self._batches()
        self._event(f"the driver and its JVM were killed; batches in the table: {done}")
        self._put(range(thirds[2], thirds[3]))
        self._on_step("starting the query again, from its checkpoint")
        self._finish()
        seconds = time.monotonic() - began
        result = json.loads((self._folder / "result.json").read_text())
        (self._folder / "result.json").unlink()
        return SourceReport(
            sent=records,
            rows=result["rows"],
            distinct=result["distinct"],
            batches=self._batches(),
            shards=dict(sorted(result["shards"].items())),
            restarts=self._starts - 1,
            put_seconds=self._put_seconds,
            query_seconds=seconds,
            events=self._events,
        )

    def _event(self, what: str) -> None:
        self._events.append((round(time.monotonic() - self._began, 1), what))

    def _put(self, numbers: range) -> None:
        began = time.monotonic()
        for start in range(numbers.start, numbers.stop, CALL):
            entries = [_entry(number) for number in range(start, min(start + CALL, numbers.stop))]
            while entries:
                answer = self._kinesis.put_records(StreamName=STREAM, Records=entries)
                outcomes = zip(entries, answer["Records"], strict=True)
                entries = [entry for entry, outcome in outcomes if outcome.get("ErrorCode")]
        self._put_seconds += time.monotonic() - began

    def _split(self) -> None:
        shard = self._kinesis.list_shards(StreamName=STREAM)["Shards"][0]
        low, high = (int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        self._kinesis.split_shard(
            StreamName=STREAM, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((low + high) // 2 + 1)
        )
        self._event(f"{shard['ShardId']} was split")

    def _batches(self) -> int:
        """Batches that the sink has committed."""
        log = self._folder / "table" / "_spark_metadata"
        names = [path.name.partition(".")[0] for path in log.glob("[0-9]*")]
        return max(map(int, names), default=-1) + 1

    def _wait_for_batches(self, query: _Query, count: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._batches() < count:
            if query.process.poll() is not None:
                query.start_again()
            if time.monotonic() > deadline:
                raise DemoError(f"no batch {count} within {PATIENCE:g} s; the end of Spark's log:\n{self._tail()}")
            time.sleep(0.1)

    def _finish(self) -> None:
        with self._query("last") as query:
            while True:
                try:
                    code = query.process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    raise DemoError(f"the last batches take more than {PATIENCE:g} s:\n{self._tail()}") from None
                if code == 0:
                    self._event("the query has read what there was")
                    return
                query.start_again()

    @contextmanager
    def _query(self, *arguments: str) -> Iterator[_Query]:
        query = _Query(self, arguments)
        try:
            yield query
        finally:
            query.kill()

    def start(self, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        """Start the query's process."""
        self._starts += 1
        scratch = self._work / "tmp"
        scratch.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            **self._aws.environment,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(scratch),
            "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={scratch}",
            "TMPDIR": str(scratch),
        }
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "fastkcl.demo.source_query", self._aws.url, STREAM, self._folder, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def judge(self) -> None:
        """Go on after a query has ended by itself, if that was only Spark's impatience.

        Raises:
            DemoError: it was something else, or too often.
        """
        tail = self._tail()
        if not is_impatience(tail) or self._starts >= STARTS:
            raise DemoError(f"the query has ended; the end of its log:\n{tail}")
        self._log.rename(self._work / f"spark-{self._starts}.log")
        self._event("Spark gave the query's Python 10 s to connect, in vain: the query was started again")

    def _tail(self) -> str:
        text = self._log.read_text("utf-8", "replace") if self._log.exists() else ""
        causes = [line for line in text.splitlines() if _IMPATIENCE.search(line)]
        return "\n".join([*causes[-1:], *text.splitlines()[-LOG_LINES:]])


class _Query:
    def __init__(self, demo: _Demo, arguments: tuple[str, ...]) -> None:
        self._demo, self._arguments = demo, arguments
        self.process = demo.start(arguments)

    def start_again(self) -> None:
        self.kill()
        self._demo.judge()
        self.process = self._demo.start(self._arguments)

    def kill(self) -> None:
        """End driver and JVM as a failing machine would; Python's workers end with the JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        assert self.process.stdin is not None
        self.process.stdin.close()


def _entry(number: int) -> dict[str, Any]:
    value = {"number": number, "country": COUNTRIES[number % len(COUNTRIES)], "price": number % 997 / 10}
    return {"Data": json.dumps(value).encode(), "PartitionKey": f"user-{number % 211}"}
