"""Children of SparkProcessor with a ParquetSink under the replayer: slow writes, ends, bounds. No JVM here."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastkcl.replay import ReplayOptions, generate, replay
from kcl_helpers import Child, process_records, status
from sink_helpers import stored
from sink_replay import CHILD, play
from waiting import wait_until_idle

BATCH_BY_BATCH = {"max_bytes": 1, "max_held_bytes": 1}
"""Each is held, and written, alone; the next one waits for that, and checkpoints it."""


def sent(records: int, shards: int = 1) -> list[int]:
    return sorted(
        int(number)
        for shard in generate("tiny", records=records, shards=shards).shards()
        for number in shard.records.columns(0, len(shard.records)).sequence_numbers
    )


def test_statuses_go_out_while_a_write_takes_long(tmp_path: Path) -> None:
    """The first write lasts until the shard's end arrives. So no batch waited for the write, and the end did."""
    report, noise = play(tmp_path, environment={"FREE_WRITES": "0"}, options={"max_records": 200}, records=400)
    (shard,) = report.shards
    assert report.ok, (shard.problems, noise)
    assert sum(line.startswith("staging") for line in noise) == 2
    assert [line for line in noise if line.startswith("staged")] == ["staged 200 records, at the end"] * 2
    assert shard.batches == 20
    assert stored(tmp_path) == sent(400)


def test_no_checkpoint_comes_before_its_write(tmp_path: Path) -> None:
    """All batches are answered while the first write runs; then the input ends. The replayer has seen no checkpoint."""
    report, noise = play(
        tmp_path,
        environment={"FREE_WRITES": "0", "STAGING_BEFORE": "25"},
        options={"max_records": 20},
        end="eof",
    )
    (shard,) = report.shards
    assert report.ok, (shard.problems, noise)
    assert any(line.startswith("staging") for line in noise)
    assert (shard.batches, shard.checkpoints, shard.last_checkpoint, shard.uncheckpointed) == (25, 0, None, 500)
    assert stored_or_nothing(tmp_path) == []


def test_statuses_wait_when_the_bound_is_reached(tmp_path: Path) -> None:
    report, noise = play(
        tmp_path,
        environment={"WRITE_SECONDS": "0.1", "TELL_BATCHES": "1"},
        options=BATCH_BY_BATCH,
        records=100,
    )
    (shard,) = report.shards
    assert report.ok, (shard.problems, noise)
    assert sum(line.startswith("staging 20 ") for line in noise) == 5
    taken = [number for number, line in enumerate(noise) if line == "taken over"]
    staged = [number for number, line in enumerate(noise) if line.startswith("staged 20 ")]
    assert (len(taken), len(staged)) == (5, 5)
    assert all(one < other for one, other in zip(staged, taken[1:], strict=False)), noise  # the one before is written
    assert stored(tmp_path) == sent(100)


def test_a_quiet_shard_is_written_after_max_age(tmp_path: Path) -> None:
    """Nothing is asked for before the first batch is written; the second one's request checkpoints the first."""
    report, noise = play(
        tmp_path,
        "slow-pipe@2=0.1",
        records=100,
        batch_records=50,
        end="eof",
        options={"max_records": 10_000, "max_age": 0.1},
        environment={"WRITTEN_BEFORE": "2"},
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
    ended = False

    def initialize(self, context):
        super().initialize(context)
        self.begun = resident()

    def process_batch(self, batch, checkpointer):
        super().process_batch(batch, checkpointer)
        self.most = max(self.most, resident())

    def shard_ended(self, checkpointer):
        self.ended = True
        super().shard_ended(checkpointer)
        print("grown by", self.most - self.begun, flush=True)

def write(df, context):
    # Slow: as long as there is room for another batch, and batches come.
    while processor._buffer.capacity_bytes < 2**24 - 2**21 and not processor.ended:
        time.sleep(0.001)

processor = Processor(write, spark=Session(), max_bytes=2**22, max_held_bytes=2**24)
fastkcl.run(processor)
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
    """Two writes are done on the way; the third one is under way when the end comes."""
    report, noise = play(tmp_path, end=end, environment={"FREE_WRITES": "2"})
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
    report, noise = play(
        tmp_path, end="shutdown", environment={"WRITE_SECONDS": "600"}, options={"shutdown_grace": 0.3}
    )
    (shard,) = report.shards
    assert report.ok, (shard.problems, noise)
    assert (shard.exit_codes, shard.uncheckpointed) == ([0], 500)
    assert any("were not written within the 0.3 s of shutdown_grace" in line for line in noise)
    assert stored_or_nothing(tmp_path) == []


def stored_or_nothing(folder: Path) -> list[int]:
    return stored(folder) if any(folder.glob("stream=*/*/*.parquet")) else []


HANGING = """
import sys, time
sys.path.insert(0, {tests!r})
import fastkcl
from fastkcl.spark import SparkProcessor
from sink_child import Session

def write(df, context):
    print("writing", flush=True)
    time.sleep(600)

fastkcl.run(SparkProcessor(write, spark=Session(), stream="s", max_records=1), shutdown_grace=600)
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
            wait_until_idle(child.process.pid)  # it waits for the write
            child.process.send_signal(signal.SIGTERM)
            wait_until_idle(child.process.pid)  # it has seen the signal, and waits on
            child.process.send_signal(signal.SIGTERM)
            code, stderr = child.wait()
        assert code == 128 + signal.SIGTERM, stderr

    def test_the_end_of_input(self) -> None:
        with self.child() as child:
            code, stderr = child.finish()
        assert code == 0, stderr
        assert "the run ends before everything was written" in stderr
