"""Faults around real daemons: leases, their table, AWS, and records that cannot be written."""

from __future__ import annotations

import re

import pytest
from daemon_stage import SHARD, Make, daemons
from daemon_stage import stage as stage
from fastkcl.daemon.keys import Generation
from fastkcl.local_aws import Fault
from fastkcl.local_aws.leases import steal_lease
from sink_helpers import letters_in, records_of

KCL_3, KCL_1_15, KCL_1_7 = Generation.KCL_3, Generation.KCL_1_15, Generation.KCL_1_7
PARQUET, DELTA = "ParquetSink", "DeltaSink"

pytestmark = pytest.mark.timeout(900)

CHILD_ENDED = re.compile(r"exited with code 1\b|ended or closed its output instead of answering processRecords")
"""A busy JVM can be gone before it has logged the exit code."""


@daemons((KCL_3, DELTA), (KCL_1_7, PARQUET))
def test_a_lease_that_is_stolen_in_mid_batch(stage: Make, generation: Generation, sink: str) -> None:
    """The thief never renews it, so that the daemon gets it back: for another child, which is given the batch again."""
    at = stage(generation, sink)
    at.put()
    daemon = at.start(seconds=1.5)
    daemon.wait_for("a write", lambda: "staging" in daemon.text)
    steal_lease(at.aws.client("dynamodb"), application=at.stream, shard_id=SHARD)
    daemon.wait_for("the loss", lambda: "lease lost" in daemon.text)
    daemon.wait_for("another child", lambda: daemon.text.count("child ready") >= 2)
    at.put()
    at.finish(daemon)


@daemons((KCL_3, PARQUET), (KCL_1_7, DELTA))
def test_a_lease_table_that_is_throttled(stage: Make, generation: Generation, sink: str) -> None:
    """A daemon of KCL 3 answers after most of a minute, in which the lease may go; one of KCL 1 at once."""
    at = stage(generation, sink)
    throttled = "ProvisionedThroughputExceededException"
    at.aws.faults(Fault("UpdateItem", throttled, contains="checkpointSubSequenceNumber"))
    at.put()
    daemon = at.start()
    daemon.wait_for("a write", lambda: "staging" in daemon.text)
    daemon.wait_for("a refusal", lambda: "refused: ThrottlingException" in daemon.text)
    at.aws.faults()
    at.put()
    at.finish(daemon)


@daemons((KCL_3, PARQUET), (KCL_1_7, DELTA))
def test_an_aws_that_is_away_for_a_while(stage: Make, generation: Generation, sink: str) -> None:
    """Connections are refused, to stream and lease table.

    KCL 3 has batches in hand, whose checkpoints it refuses, and the child goes on. KCL 1 has none, and its lease runs
    out: 1.15 says so, and tells the child when AWS is back; 1.7 tells the child at once, and may say nothing.
    """
    at = stage(generation, sink)
    at.put()
    # On a busy machine a lease of three seconds can run out before the checkpoint is refused.
    lease = ["--set=failoverTimeMillis=60000"] if generation is KCL_3 else []
    daemon = at.start(*lease, seconds=1)
    daemon.wait_for("a write", lambda: "staging" in daemon.text)
    at.aws.kill()
    trouble = {KCL_3: "refused: RuntimeException", KCL_1_15: "lease lost", KCL_1_7: "lease given up"}[generation]
    daemon.wait_for("trouble", lambda: trouble in daemon.text)
    at.aws.start()
    at.put()
    at.finish(daemon)
    if generation is not KCL_3:
        assert daemon.text.count("child ready") >= 2, daemon.text  # another child, after the lease was taken again


@daemons((KCL_1_7, PARQUET))
def test_a_poison_record(stage: Make, generation: Generation, sink: str) -> None:
    """The child ends, each time; then it is told to put what it cannot write into a dead letter."""
    at = stage(generation, sink)
    at.put()
    poison = sorted(record[2] for record in at.sent())[25]
    for _ in range(2):
        daemon = at.start(poison=poison)
        assert daemon.end(None) == 1, daemon.text
        assert CHILD_ENDED.search(daemon.lines[-1])
    assert 0 < records_of(at.table).total() <= 25
    daemon = at.start(poison=poison, run={"dead_letter": str(at.letters)})
    daemon.wait_for("the last checkpoint", at.caught_up)
    assert daemon.end() == 0, daemon.text
    letters = letters_in(at.letters)
    assert poison in {record[2] for record in letters}
    assert records_of(at.table) + letters == at.sent()


@daemons((KCL_3, DELTA))
def test_a_poison_record_and_two_daemons(stage: Make, generation: Generation, sink: str) -> None:
    """It wanders from one to the other and ends both. With a dead letter both go on; leases may move meanwhile."""
    at = stage(generation, sink, shards=2)
    at.put(80)
    poison = sorted(record[2] for record in at.sent())[25]
    for daemon in [at.start(poison=poison), at.start(poison=poison)]:
        assert daemon.end(None) == 1, daemon.text
        assert CHILD_ENDED.search(daemon.lines[-1])
    both = [at.start(poison=poison, run={"dead_letter": str(at.letters)}) for _ in range(2)]
    both[0].wait_for("the last checkpoint", at.caught_up)
    for daemon in both:
        assert daemon.end() == 0, daemon.text
    table, letters = records_of(at.table), letters_in(at.letters)
    assert poison in {record[2] for record in letters}
    assert poison not in {record[2] for record in table}
    assert set(table.values()) == {1}
    assert set(table) | set(letters) == set(at.sent())


@daemons((KCL_1_7, DELTA))
def test_a_poison_record_that_is_skipped(stage: Make, generation: Generation, sink: str) -> None:
    """It is lost, with what had not been written by then, and a line says which."""
    at = stage(generation, sink)
    at.put()
    poison = sorted(record[2] for record in at.sent())[25]
    daemon = at.start(poison=poison, run={"on_error": "skip"})
    daemon.wait_for("the last checkpoint", at.caught_up)
    assert daemon.end() == 0, daemon.text
    lost = at.sent() - records_of(at.table)
    assert poison in {record[2] for record in lost}
    assert lost.total() < 40
    (said,) = [line for line in daemon.lines if "fastkcl: skip: " in line]
    assert min(record[2] for record in lost) in said
    assert max(record[2] for record in lost) in said


@daemons((KCL_1_7, PARQUET))
def test_a_failure_that_passes_is_retried_in_place(stage: Make, generation: Generation, sink: str) -> None:
    """A disk is full for two seconds. The daemon sees a slow child, and nobody ends."""
    at = stage(generation, sink)
    at.put()
    daemon = at.start(trouble=[["full", "before", "file", 1, 2.0]], run={"retries": 5})
    at.finish(daemon)
    assert daemon.text.count("child ready") == 1
    assert "retry: " in daemon.text
