"""Children of SparkProcessor with a ParquetSink under the replayer: slow writes, deaths, zombies. No JVM here.

tests/sink_child.py ends with a code of its own if a checkpoint is ahead of the table, or of what was delivered.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from fastkcl.replay import ReplayOptions, Report, generate, parse_fault, replay
from fastkcl.spark.sinks.base import Shard
from fastkcl.spark.sinks.parquet import commits
from kcl_helpers import Child, process_records, status
from sink_helpers import stored

CHILD = Path(__file__).parent / "sink_child.py"
STREAM = "clicks"
BATCH_BY_BATCH = {"max_bytes": 1, "max_held_bytes": 1}
"""Each is held, and written, alone; the next one waits for that, and checkpoints it."""


def play(
    folder: Path,
    *faults: str,
    records: int = 500,
    batch_records: int = 20,
    shards: int = 1,
    options: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    **settings: Any,
) -> tuple[Report, list[str]]:
    noise: list[str] = []
    report = replay(
        [sys.executable, str(CHILD)],
        generate("tiny", records=records, shards=shards, batch_records=batch_records),
        ReplayOptions(
            stream=STREAM,
            faults=tuple(map(parse_fault, faults)),
            environment={"TABLE_PATH": str(folder), "OPTIONS": json.dumps(options or {}), **(environment or {})},
            on_stderr=lambda _shard, line: noise.append(line.decode()),
            **settings,
        ),
    )
    return report, noise


def payloads_stored(folder: Path) -> list[bytes]:
    """A split gives records new sequence numbers, not new payloads."""
    table = pa.dataset.dataset(folder, format="parquet", partitioning="hive").to_table(columns=["data"])
    return sorted(table["data"].to_pylist())


def payloads_sent(records: int) -> list[bytes]:
    (shard,) = generate("tiny", records=records).shards()
    return sorted(data or b"" for data in shard.records.columns(0, records).data)


def sent(records: int, shards: int = 1) -> list[int]:
    return sorted(
        int(number)
        for shard in generate("tiny", records=records, shards=shards).shards()
        for number in shard.records.columns(0, len(shard.records)).sequence_numbers
    )


def test_statuses_go_out_while_a_write_takes_long(tmp_path: Path) -> None:
    begun = time.monotonic()
    report, noise = play(tmp_path, environment={"WRITE_SECONDS": "1.5"}, options={"max_records": 200})
    seconds = time.monotonic() - begun
    (shard,) = report.shards
    assert report.ok, (shard.problems, noise)
    assert sum(line.startswith("staging") for line in noise) == 3
    assert seconds > 4.5  # that is what the shard's end has waited for, and not the batches:
    assert (shard.batches, shard.answer_seconds < 1) == (25, True)
    assert stored(tmp_path) == sent(500)


def test_statuses_wait_when_the_bound_is_reached(tmp_path: Path) -> None:
    report, noise = play(
        tmp_path,
        environment={"WRITE_SECONDS": "0.5"},
        options=BATCH_BY_BATCH,
        records=100,
    )
    (shard,) = report.shards
    assert report.ok, (shard.problems, noise)
    assert sum(line.startswith("staging 20 ") for line in noise) == 5
    assert shard.answer_seconds > 1.5  # four of them have waited for the one before
    assert stored(tmp_path) == sent(100)


def test_a_quiet_shard_is_written_after_max_age(tmp_path: Path) -> None:
    """Two seconds pass between the two batches: the second one's request checkpoints the first."""
    report, noise = play(
        tmp_path,
        records=100,
        batch_records=50,
        rate=25,
        end="eof",
        options={"max_records": 10_000, "max_age": 0.1},
    )
    assert report.ok, (report.shards[0].problems, noise)
    assert stored(tmp_path)[:50] == sent(100)[:50]
    assert report.shards[0].last_checkpoint == (str(sent(100)[49]), 0)


MEASURED = """
import sys, threading, time
sys.path.insert(0, {tests!r})
import fastkcl, fastkcl.spark.schema
from fastkcl.spark import SparkProcessor
from sink_child import Session

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

class Processor(SparkProcessor):
    begun = most = 0

    def initialize(self, context):
        super().initialize(context)
        self.begun = resident()

    def process_batch(self, batch, checkpointer):
        super().process_batch(batch, checkpointer)
        self.most = max(self.most, resident())

    def shard_ended(self, checkpointer):
        super().shard_ended(checkpointer)
        print("grown by", self.most - self.begun, flush=True)

fastkcl.run(Processor(lambda df, context: time.sleep(0.5), spark=Session(), max_bytes=2**22, max_held_bytes=2**24))
"""


def test_memory_of_the_process_stays_at_the_bound() -> None:
    """70 MB of batches come while writes are slow, 16 MiB may wait: the rest stays with the daemon."""
    noise: list[str] = []
    report = replay(
        [sys.executable, "-c", MEASURED.format(tests=str(CHILD.parent))],
        generate("clickstream", records=100_000, batch_records=2500),
        ReplayOptions(on_stderr=lambda _shard, line: noise.append(line.decode())),
    )
    assert report.ok, (report.shards[0].problems, noise)
    (grown,) = [int(line.split()[-1]) for line in noise if line.startswith("grown by")]
    assert 2**23 < grown < 2 * 2**24


@pytest.mark.parametrize("end", ["shutdown", "lease-lost", "eof", "shard-end"])
def test_ends(tmp_path: Path, end: Any) -> None:
    report, noise = play(tmp_path, end=end, environment={"WRITE_SECONDS": "0.3"})
    (shard,) = report.shards
    assert report.ok, (shard.problems, noise)
    assert shard.exit_codes == [0]
    table, everything = stored_or_nothing(tmp_path), sent(500)
    assert table == everything[: len(table)]
    if end in ("shutdown", "shard-end"):
        assert table == everything
    else:
        assert len(table) < 500
        assert any("not written" in line or "before everything was written" in line for line in noise)
    if end == "shutdown":
        assert shard.uncheckpointed == 0


def test_a_shutdown_waits_no_longer_than_its_grace(tmp_path: Path) -> None:
    begun = time.monotonic()
    report, noise = play(tmp_path, end="shutdown", environment={"WRITE_SECONDS": "20"}, options={"shutdown_grace": 0.3})
    assert time.monotonic() - begun < 15
    (shard,) = report.shards
    assert report.ok, (shard.problems, noise)
    assert (shard.exit_codes, shard.uncheckpointed) == ([0], 500)
    assert any("were not written within the 0.3 s of shutdown_grace" in line for line in noise)
    assert stored_or_nothing(tmp_path) == []


def stored_or_nothing(folder: Path) -> list[int]:
    return stored(folder) if any(folder.rglob("stream=*/*/*.parquet")) else []


HANGING = """
import sys, time
sys.path.insert(0, {tests!r})
import fastkcl
from fastkcl.spark import SparkProcessor
from sink_child import Session

def write(df, context):
    print("writing", flush=True)
    time.sleep(60)

fastkcl.run(SparkProcessor(write, spark=Session(), stream="s", max_records=1), shutdown_grace=60)
"""


class TestAWriteThatHangs:
    """The main thread waits for it, and hears what comes meanwhile; the process ends at once when it has to."""

    @contextmanager
    def child(self) -> Iterator[Child]:
        with Child("-c", HANGING.format(tests=str(CHILD.parent))) as child:
            child.daemon.start()
            child.daemon.ask(process_records(1), status("processRecords"))  # at once
            child.await_stderr("writing")
            yield child

    def test_a_second_signal(self) -> None:
        with self.child() as child:
            child.daemon.send(b'{"action":"shardEnded"}\n')
            begun = time.monotonic()
            child.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            child.process.send_signal(signal.SIGTERM)
            code, stderr = child.wait()
        assert (code, time.monotonic() - begun < 10) == (128 + signal.SIGTERM, True), stderr

    def test_the_end_of_input(self) -> None:
        with self.child() as child:
            begun = time.monotonic()
            code, stderr = child.finish()
        assert (code, time.monotonic() - begun < 10) == (0, True), stderr
        assert "the run ends before everything was written" in stderr


# At the second time that the point is reached: something is in the table by then.
DEATHS = [f"{when}:{point}:2" for point in ("stage", "commit", "publish", "checkpoint") for when in ("before", "after")]


@pytest.mark.parametrize("death", DEATHS)
def test_a_death_at_a_named_point(tmp_path: Path, death: str) -> None:
    report, noise = play(
        tmp_path / "table",
        environment={"DIE_AT": death, "DIED": str(tmp_path / "died"), "WRITE_SECONDS": "0.01"},
        options=BATCH_BY_BATCH if "checkpoint" in death else {},
    )
    (shard,) = report.shards
    assert (tmp_path / "died").exists()
    assert shard.exit_codes == [-9, 0], noise
    assert shard.last_checkpoint == ("SHARD_END", 0)
    assert stored(tmp_path / "table") == sent(500)
    chain = commits(tmp_path / "table", Shard(STREAM, shard.shard_id))
    assert [commit.after for commit in chain] == [None, *(commit.upto for commit in chain[:-1])]


def chaos(folder: Path, seed: int) -> None:  # `make test-chaos` plays many more
    """Kills, zombies, lost leases, stopped workers and refused checkpoints at random; every record exactly once."""
    chance = random.Random(seed)
    count = chance.randrange(1, 6)
    faults = []
    for delivery in sorted(chance.sample(range(1, 26), count)):
        faults.append(
            chance.choice(
                [
                    f"kill@{delivery}",
                    f"kill@{delivery}=half",
                    f"stop@{delivery}={chance.uniform(0.05, 0.6):.2f}",
                    f"lease-lost@{delivery}",
                    f"lease-lost@{delivery}=mid-batch",
                    f"shutdown@{delivery}",
                    f"checkpoint-error@{delivery}",
                ]
            )
        )
    more: dict[str, Any] = {}
    if chance.random() < 0.3:
        more["split_at"] = chance.randrange(3, 20)
    dialect = chance.choice(["modern", "legacy"])
    if dialect == "legacy":
        faults = [fault for fault in faults if not fault.startswith("shutdown")]
    report, noise = play(
        folder,
        *faults,
        environment={"WRITE_SECONDS": str(chance.choice([0, 0.01, 0.1, 0.3]))},
        options={
            "max_records": chance.choice([1, 30, 70, 200]),
            "max_age": chance.choice([0.02, 0.2, 60]),
            "checkpoint_interval": chance.choice([0, 0.1]),
            "max_held_bytes": chance.choice([2**24, 2**26]),
        },
        rate=chance.choice([None, None, 2000]),
        dialect=dialect,
        **more,
    )
    said = (faults, more, dialect, [shard.problems for shard in report.shards], noise)
    assert report.ok, said
    assert all(shard.last_checkpoint == ("SHARD_END", 0) for shard in report.shards), said
    assert payloads_stored(folder) == payloads_sent(500), said


@pytest.mark.parametrize("seed", range(int(os.environ.get("FASTKCL_CHAOS_RUNS", "4"))))
def test_chaos(tmp_path: Path, seed: int) -> None:
    chaos(tmp_path, seed)
