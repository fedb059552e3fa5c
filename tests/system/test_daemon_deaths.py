"""Deaths under real daemons: whoever dies, each record of the stream is in the table once."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from daemon_stage import SHARD, Make, daemons, jvm_of
from daemon_stage import stage as stage
from fastkcl.daemon.keys import Generation
from fastkcl.daemon.processes import group_members
from fastkcl.local_aws.leases import checkpoints

KCL_3, KCL_1_15, KCL_1_7 = Generation.KCL_3, Generation.KCL_1_15, Generation.KCL_1_7
PARQUET, DELTA = "ParquetSink", "DeltaSink"
KILLED = "exited with code 137 (signal 9)"

pytestmark = pytest.mark.timeout(900)

STAGES = [
    ["kill", "before", "status", 1],  # of initialize
    ["kill", "after", "status", 2],  # of the first batch: taken over, not written
    ["kill", "before", "stage", 1],
    ["kill", "before", "commit", 1],
    ["kill", "after", "commit", 1],  # committed, and not checkpointed
    ["kill", "before", "checkpoint", 1],
    ["kill", "after", "checkpoint", 1],
]


@daemons((KCL_3, DELTA), (KCL_1_7, PARQUET))
def test_a_child_that_is_killed_at_each_stage(stage: Make, generation: Generation, sink: str) -> None:
    """The daemon goes down with it, and is started again: seven times."""
    at = stage(generation, sink)
    at.put(60)
    for _ in STAGES:
        daemon = at.start(trouble=STAGES)
        assert daemon.end(None) == 1, daemon.text
        assert KILLED in daemon.lines[-1]
        at.put(10)
    at.finish(at.start(trouble=STAGES))


@daemons((KCL_3, PARQUET), (KCL_1_7, DELTA))
def test_a_child_that_is_killed_at_its_shards_end(stage: Make, generation: Generation, sink: str) -> None:
    """Before it has written and checkpointed the end, so that the end comes again; and after that."""
    at = stage(generation, sink)
    at.put()
    at.split()
    at.put()
    trouble = [["kill", "before", "end", 1], ["kill", "after", "end", 1]]
    for ended in (False, True):
        daemon = at.start(trouble=trouble)
        assert daemon.end(None) == 1, daemon.text
        assert f"the child of {SHARD} {KILLED}" in daemon.lines[-1]
        place, _ = checkpoints(at.aws.client("dynamodb"), application=at.stream)[SHARD]
        assert (place == "SHARD_END") == ended
    at.finish(at.start(trouble=trouble))


@daemons((KCL_3, PARQUET), generations=(KCL_3, KCL_1_15))
def test_a_child_that_is_killed_when_it_is_asked_to_stop(stage: Make, generation: Generation, sink: str) -> None:
    """Before it has written and checkpointed what it holds, and after that."""
    at = stage(generation, sink)
    trouble = [["kill", "before", "shutdown", 1], ["kill", "after", "shutdown", 1]]
    for _ in trouble:
        at.put()
        daemon = at.start(trouble=trouble, seconds=0.5)
        daemon.wait_for("a write", lambda daemon=daemon: "staging" in daemon.text)
        assert daemon.end() == 1, daemon.text
    at.finish(at.start(trouble=trouble))


@daemons((KCL_3, DELTA), (KCL_1_7, PARQUET))
def test_a_daemon_that_is_killed(stage: Make, generation: Generation, sink: str) -> None:
    """Its children read the end of their input, and `fastkcl daemon` waits for them."""
    at = stage(generation, sink)
    at.put()
    daemon = at.start(seconds=1)
    daemon.wait_for("a write", lambda: "staging" in daemon.text)
    os.kill(jvm_of(daemon), signal.SIGKILL)
    assert daemon.end(None) == 3, daemon.text
    assert "the daemon was killed" in daemon.lines[-1]
    at.put()
    at.finish(at.start())


@pytest.mark.usefixtures("each_way")
@daemons((KCL_3, PARQUET), (KCL_1_7, DELTA))
def test_a_fastkcl_daemon_that_is_killed(stage: Make, generation: Generation, sink: str) -> None:
    """Its JVM and children end without it, while the next one is there already."""
    at = stage(generation, sink)
    at.put()
    first = at.start(seconds=1)
    first.wait_for("a write", lambda: "staging" in first.text)
    jvm = jvm_of(first)
    first.process.kill()
    second = at.start()
    assert first.end(None) == -signal.SIGKILL
    assert "fastkcl daemon: it was killed; the JVM is asked to stop, and has 30 s for it" in first.lines
    assert first.lines[-1] == "fastkcl daemon: nothing of it is left"
    assert group_members(jvm) == []
    at.put()
    at.finish(second)


@daemons((KCL_3, PARQUET))
def test_everybody_is_asked_to_stop_at_once(stage: Make, generation: Generation, sink: str) -> None:
    """As by systemd's default KillMode: the JVM is told twice, and children and guard pass over it."""
    at = stage(generation, sink)
    at.put()
    daemon = at.start(seconds=1)
    daemon.wait_for("a write", lambda: "staging" in daemon.text)
    pid = daemon.process.pid
    started = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    for each in {pid, *started, *group_members(jvm_of(daemon))}:
        os.kill(each, signal.SIGTERM)
    assert daemon.end(None) == 0, daemon.text
    at.put()
    at.finish(at.start())


@daemons((KCL_3, PARQUET), (KCL_3, DELTA))
def test_two_daemons_share_a_stream_and_one_is_killed(stage: Make, generation: Generation, sink: str) -> None:
    """With its children, as when a host is lost. The other one takes its leases over when they have run out."""
    at = stage(generation, sink, shards=4)
    at.put(80)
    first = at.start()
    first.wait_for("its first leases", lambda: first.text.count("child ready") >= 4)
    second = at.start()
    second.wait_for("its share", lambda: second.text.count("child ready") >= 1)
    at.put(80)
    group = os.getpgid(jvm_of(first))
    assert group == jvm_of(first)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    assert first.end(None) == 3, first.text
    at.put(80)
    at.finish(second)
