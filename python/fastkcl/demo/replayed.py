"""The whole way once, on one machine and without AWS, through the usual faults, and a check of the table.

    generate ──▶ replayer ═ pipe ═▶ child for each shard ──▶ Spark Connect ──▶ Parquet table
       │        (the daemon's part)  (demo.child)            (in a JVM of ours)    │
       └────────────────── compared, shard by shard ◀────────────────── SQL ◀──────┘

Its faults:

    a child is killed      by SIGKILL, half way through the line of a batch half way through the shard; another one
                           takes over from the last checkpoint, so records come again
    a shard is split       it ends, and its records go on in two new shards, with a child for each
    Spark is killed        the JVM with the Connect server, by SIGKILL, when every shard has children at work; it is
                           started again at the same address, and the children go on by themselves

The sent records are compared with those that Spark reads back: rows, distinct (sequence number, sub-sequence number),
and a checksum over all columns of every record. This is not a benchmark: the JVM is cold, and all share one machine.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fastkcl.demo import child as demo_child
from fastkcl.demo.check import Delivered, SentShard, compare, countries, sent_shard
from fastkcl.demo.lake import can_run, run_lake
from fastkcl.demo.parts import LOG_LINES, PROFILE, ChildrenSaid, DemoServer, check_arguments, start_spark
from fastkcl.demo.report import DemoReport, Event, Step
from fastkcl.replay import Progress, ReplayOptions, generate, parse_fault, replay
from fastkcl.replay.plan import make_plans
from fastkcl.tables.bounds import DEFAULT_MAX_BYTES

if TYPE_CHECKING:
    from fastkcl.replay.sources import Shard

__all__ = ["run_demo"]

_STREAM: Final = "demo"
_BATCHES: Final = 25  # of each shard
_SPLIT_AFTER: Final = 4  # of these
_MAX_BYTES: Final = DEFAULT_MAX_BYTES // 4  # of one write, so that there are several of each shard
_HELD_BYTES: Final = 4 * DEFAULT_MAX_BYTES  # being written by all children together, whatever their number


class _Generated:
    """Shards that were made before, as a source of the replayer."""

    def __init__(self, description: str, shards: Sequence[Shard]) -> None:
        self.description = description
        self._shards = shards

    def shards(self) -> Sequence[Shard]:
        return self._shards


def run_demo(
    *,
    shards: int,
    records: int,
    keep: Path | None = None,
    on_step: Callable[[str], None] = lambda _step: None,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> DemoReport:
    """Run the demo. All its processes have ended when it returns or raises.

    Args:
        shards: how many, each with its own child process.
        records: records of each shard.
        keep: empty or new folder to leave the table in; a temporary one is used and removed without it.
        on_step: called with each step that begins.
        on_progress: called with the progress of the shards, from other threads.

    Raises:
        ValueError: a number below 1, or `keep` is not empty.
        SparkUnavailableError: Spark does not start, or is not installed.
        ReplayError: the children can't be started.
        DemoError: Spark fails afterwards.
    """
    check_arguments(shards, records, keep)
    begun = time.monotonic()
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastkcl-demo-")))
        table, log_path = keep or work / "table", work / "jvm.log"
        table.mkdir(parents=True, exist_ok=True)

        on_step(f"generating {shards} shards of {records:,} click events")
        clock = time.monotonic()
        source, options = _generate(shards, records), _options(shards, records)
        sent: dict[str, SentShard] = {}
        size = 0
        plans = make_plans(source, options)
        for plan in plans:
            columns = plan.records.columns(0, plan.records_planned)
            sent[plan.shard_id] = sent_shard(columns)
            size += sum(map(len, filter(None, columns.data)))
        steps = [Step("generate the events, and the expected table", time.monotonic() - clock, size)]

        on_step("starting Spark")
        server, step = start_spark(stack, work)
        steps.append(step)

        on_step(f"{shards} children: protocol lines → Arrow → Spark → Parquet")
        parents = {plan.index: plans[plan.parents[0]].label for plan in plans if plan.parents}
        stage = _Stage(server, on_step, on_progress, shards=len(plans), parents=parents)
        said = ChildrenSaid()
        played = replay(
            [sys.executable, "-m", "fastkcl.demo.child"],
            source,
            replace(
                options,
                environment={
                    "FASTKCL_SPARK": server.url,
                    demo_child.TABLE_VARIABLE: str(table.absolute()),
                    demo_child.MAX_BYTES_VARIABLE: str(min(_MAX_BYTES, _HELD_BYTES // shards)),
                },
                on_stderr=said.line,
            ),
            stage.progress,
        )
        stage.finish()
        lines = sum(shard.line_bytes for shard in played.shards)
        work_done = said.work()
        steps += [
            Step("pipe and decoding to Arrow, per child", sum(shard.write_seconds for shard in played.shards), lines),
            Step("children, from start to end", played.seconds, lines),
        ]
        if stage.spark_away is not None:
            written = sum(shard.written_bytes for shard in work_done)
            steps += [
                Step("    of it with Spark away", stage.spark_away),
                Step("    and with Spark: Arrow → Parquet", played.seconds - stage.spark_away, written),
            ]

        on_step("Spark reads the table back")
        clock = time.monotonic()
        session = server.spark.session
        delivered = {
            shard.shard_id: Delivered(shard.records_delivered - shard.records_sent, shard.checkpoints)
            for shard in played.shards
        }
        found = compare(session, table, sent, delivered)
        rows = countries(session) if any(shard.stored for shard in found) else []
        stored = sum(path.stat().st_size for path in table.rglob("*.parquet"))
        steps.append(Step("read back, compare, aggregate", time.monotonic() - clock, stored))
        lake = None
        if can_run():
            on_step("children that write Parquet on S3 themselves, without Spark")
            lake, more = run_lake(source, options)
            steps += more
        report = DemoReport(
            shards=found,
            events=stage.events,
            work=work_done,
            steps=steps,
            countries=rows,
            total_seconds=0.0,
            java=server.java,
            table=keep,
            lake=lake,
            problems=[f"{shard.label}: {problem}" for shard in played.shards for problem in shard.problems],
        )
        if not report.ok:
            report.output = (
                said.last
                + ([] if lake is None else lake.output)
                + log_path.read_text(errors="replace").splitlines()[-LOG_LINES:]
            )
    report.total_seconds = time.monotonic() - begun
    return report


def _generate(shards: int, records: int) -> _Generated:
    source = generate(PROFILE, shards=shards, records=records)
    return _Generated(source.description, source.shards())


def _options(shards: int, records: int) -> ReplayOptions:
    """A child of the first shard is killed, the second one is split, if there are two and batches enough."""
    size = -(-records // _BATCHES)
    batches = -(-records // size)
    split, split_after = min(1, shards - 1), min(_SPLIT_AFTER, batches - 1)
    kill_at = (batches + 1) // 2 if split else max(1, split_after)
    return ReplayOptions(
        stream=_STREAM,
        batch_records=size,
        faults=(parse_fault(f"kill@{kill_at}#0=half"),),
        split_at=split_after or None,
        split_shards=(split,) if split_after else None,
    )


class _Stage:
    """Watches how far the shards are, notes their faults, and kills Spark when it is time.

    Args:
        server: to kill, and to start again.
        on_step: called with it.
        on_progress: called with the progress.
        shards: how many there are, those of the split included.
        parents: the shards that these were split off, by their index.
    """

    def __init__(
        self,
        server: DemoServer,
        on_step: Callable[[str], None],
        on_progress: Callable[[Progress], None],
        *,
        shards: int,
        parents: Mapping[int, str],
    ) -> None:
        self.events: list[Event] = []
        self.spark_away: float | None = None
        """Seconds from the end of the first JVM to the second one's being there; None before that."""
        self._server = server
        self._on_step = on_step
        self._on_progress = on_progress
        self._shards = shards
        self._parents = parents
        self._begun: float | None = None
        self._lock = threading.Lock()
        self._seen: dict[int, Progress] = {}
        self._at_work: set[int] = set()
        self._restart: threading.Thread | None = None
        self._failure: BaseException | None = None

    def progress(self, shard: Progress) -> None:
        """How far a shard is; called from the shards' threads."""
        self._on_progress(shard)
        with self._lock:
            if self._begun is None:
                self._begun = time.monotonic()
            before = self._seen.get(shard.index)
            if before is not None and shard.restarts > before.restarts:
                self._note(f"a child of {shard.label} was killed; its successor is at work")
            begins = shard.state == "playing" and (before is None or before.state == "waiting")
            if begins and shard.index in self._parents:
                self._note(f"{shard.label} has begun, split off {self._parents[shard.index]}")
            self._seen[shard.index] = shard
            # The one that is to be killed has been, and no child is about to start: that waits 15 s for a Spark.
            if shard.state == "done" or (shard.records and (shard.index or shard.restarts)):
                self._at_work.add(shard.index)
            if self._restart is None and len(self._at_work) == self._shards and shard.state != "done":
                self._server.spark.kill()
                self._note("Spark was killed")
                self._restart = threading.Thread(target=self._start_again, name="demo-spark")
                self._restart.start()

    def finish(self) -> None:
        """Wait until Spark is there again.

        Raises:
            BaseException: why it is not.
        """
        if self._restart is not None:
            self._restart.join()
        if self._failure is not None:
            raise self._failure

    def _start_again(self) -> None:
        clock = time.monotonic()
        self._on_step("Spark is gone, and started again; the children hold new records")
        try:
            self._server.start_again()
        except BaseException as error:
            self._failure = error
            return
        self.spark_away = time.monotonic() - clock
        with self._lock:
            self._note("Spark was there again")
        self._on_step("the children go on")

    def _note(self, what: str) -> None:
        assert self._begun is not None
        self.events.append(Event(time.monotonic() - self._begun, what))
