"""The whole way once, on one machine and without AWS: generated shards, children, Spark, and a check of what arrived.

    generate ──▶ replayer ═ pipe ═▶ child for each shard ──▶ Spark Connect ──▶ Parquet
       │        (the daemon's part)  (demo_child)            (in a JVM of ours)    │
       └────────────────── compared, shard by shard ◀────────────────── SQL ◀──────┘

What was sent is compared with what Spark reads back: rows, distinct (sequence number, sub-sequence number), and a
checksum over all columns of every record. It is no benchmark: the JVM is cold and everything shares one machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastkcl.replay import Progress, ReplayOptions, generate, replay
from fastkcl.spark import demo_child
from fastkcl.spark.processor import DEFAULT_MAX_BYTES
from fastkcl.spark.session import LocalSpark, without_frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fastkcl.replay import Report
    from fastkcl.replay.columns import Columns
    from fastkcl.replay.sources import Shard

__all__ = [
    "PROFILE",
    "CountryRow",
    "DemoError",
    "DemoReport",
    "DemoShard",
    "SentShard",
    "Step",
    "compare",
    "run_demo",
    "sent_shard",
]

PROFILE: Final = "clickstream"
_STREAM: Final = "demo"
_MEGABYTE: Final = 1e6
_LOG_LINES: Final = 30
_HELD_BYTES: Final = 4 * DEFAULT_MAX_BYTES  # by all children together, whatever their number

# For half a minute on one machine: the quick compiler only, and no 200 partitions for a handful of groups.
_SPARK_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "4",
}

_COUNT = """
SELECT shardId,
       count(*) AS stored,
       count(DISTINCT sequenceNumber, subSequenceNumber) AS distinct_records,
       sum(crc32(concat(cast(concat_ws('/', sequenceNumber, subSequenceNumber, partitionKey,
                                       unix_millis(approximateArrivalTimestamp)) AS binary), data))) AS checksum,
       sum(length(data)) AS bytes
FROM stored
GROUP BY shardId
"""
_EVENT = "country string, type string, item struct<price: double, quantity: int>"
_AGGREGATE = f"""
SELECT event.country AS country,
       count(*) AS events,
       count_if(event.type = 'purchase') AS purchases,
       sum(if(event.type = 'purchase', event.item.price * event.item.quantity, 0)) AS revenue
FROM (SELECT from_json(cast(data AS string), '{_EVENT}') AS event FROM stored)
GROUP BY event.country
ORDER BY events DESC, country
"""


class DemoError(RuntimeError):
    """Spark has failed on the way. `str()` says how."""


@dataclass(slots=True)
class DemoShard:
    """What became of a shard's records."""

    shard_id: str
    sent: int
    stored: int
    """Rows in the table."""
    lost: int
    """Records sent of which there is no row."""
    doubled: int
    """Rows beyond the first of a record."""
    same_content: bool
    """Whether the checksum over all columns is the one of what was sent."""
    checkpoints: int

    @property
    def ok(self) -> bool:
        """Whether every record is there once, unchanged."""
        return self.lost == 0 and self.doubled == 0 and self.same_content


@dataclass(slots=True)
class Step:
    """A step of the way and what it took."""

    name: str
    seconds: float
    bytes: int | None = None
    """What went through; None where that makes no sense."""

    @property
    def megabytes_per_second(self) -> float | None:
        """In units of 10**6 bytes."""
        return self.bytes / self.seconds / _MEGABYTE if self.bytes and self.seconds > 0 else None


@dataclass(slots=True)
class CountryRow:
    """A row of the aggregate over the payloads."""

    country: str
    events: int
    purchases: int
    revenue: float


@dataclass(slots=True)
class DemoReport:
    """What the demo found."""

    shards: list[DemoShard]
    steps: list[Step]
    countries: list[CountryRow]
    total_seconds: float
    java: str
    table: Path | None
    """Where the table was left; None if it has been removed."""
    problems: list[str] = field(default_factory=list)
    """What the children did against the protocol."""
    output: list[str] = field(default_factory=list)
    """The last lines that children and JVM wrote, if something is wrong."""

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, doubled or changed, and every child kept the protocol."""
        return not self.problems and all(shard.ok for shard in self.shards)

    def to_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON knows."""
        rates = [asdict(step) | {"megabytes_per_second": step.megabytes_per_second} for step in self.steps]
        table = None if self.table is None else str(self.table)
        return {"ok": self.ok, **asdict(self), "steps": rates, "table": table}


class _Generated:
    """Shards that were made before, as a source of the replayer."""

    def __init__(self, description: str, shards: Sequence[Shard]) -> None:
        self.description = description
        self._shards = shards

    def shards(self) -> Sequence[Shard]:
        return self._shards


@dataclass(frozen=True, slots=True)
class SentShard:
    """What a shard's table has to hold."""

    records: int
    checksum: int
    """Sum of the records' CRC-32, each over all columns, as `_COUNT` does it."""


def sent_shard(columns: Columns) -> SentShard:
    """Count and check records that have values in all columns."""
    rows = zip(
        columns.sequence_numbers,
        columns.sub_sequence_numbers,
        columns.partition_keys,
        columns.timestamps_millis,
        columns.data,
        strict=True,
    )
    checksum = 0
    for *head, data in rows:
        assert data is not None
        checksum += zlib.crc32(data, zlib.crc32("/".join(map(str, head)).encode()))
    return SentShard(len(columns), checksum)


def run_demo(
    *,
    shards: int,
    records: int,
    keep: Path | None = None,
    on_step: Callable[[str], None] = lambda _step: None,
    on_progress: Callable[[Progress], None] | None = None,
) -> DemoReport:
    """Run the demo. What it starts has ended when it returns or raises.

    Args:
        shards: how many, each with a child process of its own.
        records: records of each shard.
        keep: empty or new folder to leave the table in; a temporary one is used and removed without it.
        on_step: told the step that begins.
        on_progress: told how far the shards are, from other threads.

    Raises:
        ValueError: a number below 1, or `keep` is not empty.
        SparkUnavailableError: Spark does not start, or is not installed.
        ReplayError: the children can't be started.
        DemoError: Spark fails afterwards.
    """
    if shards < 1 or records < 1:
        raise ValueError("shards and records must be at least 1")
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ValueError(f"{keep}: not an empty folder")
    begun = time.monotonic()
    steps: list[Step] = []
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastkcl-demo-")))
        table, notes, log_path = keep or work / "table", work / "notes", work / "jvm.log"
        for folder in (table, notes):
            folder.mkdir(parents=True, exist_ok=True)

        on_step(f"generating {shards} shards of {records:,} click events")
        source, sent, step = _generate(shards, records)
        steps.append(step)

        on_step("starting Spark")
        clock = time.monotonic()
        log = stack.enter_context(log_path.open("wb"))
        spark = stack.enter_context(LocalSpark(connect=True, output=log, settings=_SPARK_SETTINGS))
        stack.enter_context(_spark_errors_told())
        assert spark.url is not None
        # The first job of a JVM takes seconds, whatever it writes: that is start, not the way of the records.
        spark.session.range(1000).write.parquet(str(work / "first-job"))
        steps.append(Step("start Spark and its first job", time.monotonic() - clock))

        on_step(f"{shards} children: protocol lines → Arrow → Spark → Parquet")
        output: list[str] = []
        options = ReplayOptions(
            stream=_STREAM,
            environment={
                "FASTKCL_SPARK": spark.url,
                demo_child.TABLE_VARIABLE: str(table.absolute()),
                demo_child.NOTES_VARIABLE: str(notes),
                demo_child.MAX_BYTES_VARIABLE: str(min(DEFAULT_MAX_BYTES, _HELD_BYTES // shards)),
            },
            on_stderr=lambda shard, line: output.append(f"{shard}: {line.decode(errors='replace')}"),
        )
        played = replay([sys.executable, "-m", "fastkcl.spark.demo_child"], source, options, on_progress)
        steps += _played_steps(played, notes)

        checkpoints = {shard.shard_id: shard.checkpoints for shard in played.shards}

        on_step("Spark reads the table back")
        clock = time.monotonic()
        found, stored_bytes = compare(spark.session, table, sent, checkpoints)
        countries = _aggregate(spark.session) if stored_bytes else []
        steps.append(Step("read back, compare, aggregate", time.monotonic() - clock, stored_bytes))
        report = DemoReport(
            shards=found,
            steps=steps,
            countries=countries,
            total_seconds=0.0,
            java=spark.java,
            table=keep,
            problems=[f"{shard.label}: {problem}" for shard in played.shards for problem in shard.problems],
        )
        if not report.ok:
            report.output = output[-_LOG_LINES:] + log_path.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    report.total_seconds = time.monotonic() - begun
    return report


@contextmanager
def _spark_errors_told() -> Iterator[None]:
    """Turns Spark's exceptions into a DemoError while the JVM is there, which many ask for their text.

    Raises:
        DemoError: what Spark has raised.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise DemoError(f"Spark: {without_frames(error)}") from error


def _generate(shards: int, records: int) -> tuple[_Generated, dict[str, SentShard], Step]:
    clock = time.monotonic()
    source = generate(PROFILE, shards=shards, records=records)
    made = source.shards()
    sent: dict[str, SentShard] = {}
    size = 0
    for shard in made:
        columns = shard.records.columns(0, len(shard.records))
        sent[shard.shard_id] = sent_shard(columns)
        size += sum(map(len, filter(None, columns.data)))
    return _Generated(source.description, made), sent, Step("generate the events", time.monotonic() - clock, size)


def _played_steps(played: Report, notes: Path) -> list[Step]:
    lines = sum(shard.line_bytes for shard in played.shards)
    writing = sum(shard.write_seconds for shard in played.shards)
    steps = [Step("pipe and decoding to Arrow, per child", writing, lines)]
    writes = [json.loads(line) for path in notes.iterdir() for line in path.read_text().splitlines()]
    if writes:
        seconds = max(note["ended"] for note in writes) - min(note["begun"] for note in writes)
        steps.append(Step("Spark writes Parquet, all shards", seconds, sum(note["bytes"] for note in writes)))
    steps.append(Step("children, from start to end", played.seconds, lines))
    return steps


def compare(
    spark: SparkSession, table: Path, sent: Mapping[str, SentShard], checkpoints: Mapping[str, int]
) -> tuple[list[DemoShard], int]:
    """Compare each shard's rows with what was sent.

    Args:
        spark: a classic session.
        table: the folder with a partition for each shard.
        sent: by shard id.
        checkpoints: how many there were, by shard id.

    Returns:
        The shards, and the payload bytes in the table.
    """
    rows: dict[str, Any] = {}
    if any(table.rglob("*.parquet")):
        # The option is Spark's own for tables: a path is a path, not a pattern, whatever characters it has.
        frame = spark.read.option("__globPaths__", "false").parquet(str(table.absolute()))
        frame.createOrReplaceTempView("stored")
        rows = {row["shardId"]: row for row in spark.sql(_COUNT).collect()}
    found = []
    for shard_id, expected in sent.items():
        row = rows.get(shard_id)
        stored = row["stored"] if row else 0
        distinct = row["distinct_records"] if row else 0
        found.append(
            DemoShard(
                shard_id=shard_id,
                sent=expected.records,
                stored=stored,
                lost=expected.records - distinct,
                doubled=stored - distinct,
                same_content=row is not None and row["checksum"] == expected.checksum,
                checkpoints=checkpoints.get(shard_id, 0),
            )
        )
    return found, sum(row["bytes"] for row in rows.values())


def _aggregate(spark: SparkSession) -> list[CountryRow]:
    return [CountryRow(*row) for row in spark.sql(_AGGREGATE).collect()]
