"""Faults under real daemons: whatever dies, each record of the stream is in the table once.

The children write by tests/sink_child.py, which needs no Spark. What is in the stream is read from the stream itself,
and compared with what a reader of the table sees: shard, positions and payload of each record.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from daemon_helpers import Daemon, jars_of, put
from fastkcl.daemon.keys import Generation
from fastkcl.local_aws import Fault, LocalAws
from fastkcl.local_aws.leases import checkpoints, steal_lease
from local_aws_helpers import is_open, read, shards
from sink_helpers import Record, letters_in, records_of

KCL_3, KCL_1_15, KCL_1_7 = Generation.KCL_3, Generation.KCL_1_15, Generation.KCL_1_7
SHARD = "shardId-000000000000"
CHILD = Path(__file__).parent / "sink_child.py"
SINKS = ("ParquetSink", "DeltaSink")

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]
generations = pytest.mark.parametrize("generation", Generation, ids=lambda generation: generation.name)
both_sinks = pytest.mark.parametrize("sink", SINKS)


class Stage:
    """A stream of an AWS of its own, the table that its records belong into, and the daemons between them.

    Args:
        folder: for everything.
        request: the test's.
        aws: where the stream is.
        generation: of the daemons.
        sink: of the children.
        shards: of the stream.
    """

    def __init__(
        self,
        folder: Path,
        request: pytest.FixtureRequest,
        aws: LocalAws,
        generation: Generation = KCL_3,
        sink: str = "ParquetSink",
        shards: int = 1,
    ) -> None:
        self.folder = folder
        self.table = folder / "table"
        self.letters = folder / "letters"
        self.aws = aws
        self.stream = f"s-{uuid.uuid4().hex[:12]}"
        self.kinesis = aws.client("kinesis")
        self.kinesis.create_stream(StreamName=self.stream, ShardCount=shards)
        self.daemons: list[Daemon] = []
        self._request = request
        self._generation = generation
        self._sink = sink
        self._numbers = count()

    def put(self, records: int = 40) -> None:
        """Put records that differ."""
        put(self.aws, self.stream, *(f"record {next(self._numbers)}" for _ in range(records)))

    def start(
        self,
        *arguments: str,
        trouble: list[Any] | None = None,
        run: dict[str, Any] | None = None,
        seconds: float = 0.0,
        poison: str | None = None,
    ) -> Daemon:
        """Start a daemon.

        Args:
            arguments: of `fastkcl daemon`.
            trouble: see tests/sink_child.py.
            run: options of `fastkcl.run`.
            seconds: that each write takes.
            poison: a sequence number that cannot be written.
        """
        environment: dict[str, str | None] = {
            "SINK": self._sink,
            "TABLE_PATH": str(self.table),
            # Several writes of what is delivered at once, and checkpoints between them.
            "OPTIONS": json.dumps({"max_records": 10, "max_age": 0.2, "max_bytes": 1, "max_held_bytes": 1}),
            "RUN_OPTIONS": json.dumps(run or {}),
            "TROUBLE": json.dumps(trouble or []),
            "WRITE_SECONDS": str(seconds),
            "POISON": poison,
        }
        daemon = Daemon(
            self.aws,
            jars_of(self._generation, self._request),
            self._generation,
            self.stream,
            [sys.executable, str(CHILD)],
            self.folder,
            "--max-records=10",  # of one answer of Kinesis, which becomes one batch
            *arguments,
            environment=environment,
            seed=not self.daemons,
        )
        self.daemons.append(daemon)
        return daemon

    def due(self, shard: dict[str, Any]) -> list[dict[str, Any]]:
        """A shard's records that have to be in the table.

        KCL 1.7 does not tell the user records of an aggregate apart, so that a child holds an open shard's last one: it
        may go on.
        """
        records = read(self.kinesis, self.stream, shard["ShardId"])
        return records[:-1] if self._generation is KCL_1_7 and is_open(shard) else records

    def sent(self) -> Counter[Record]:
        """Each record that has to be in the table."""
        sub = None if self._generation is KCL_1_7 else 0
        return Counter(
            (self.stream, shard["ShardId"], record["SequenceNumber"], sub, record["Data"])
            for shard in shards(self.kinesis, self.stream)
            for record in self.due(shard)
        )

    def caught_up(self) -> bool:
        """Whether the lease table has each shard at its end."""
        places = checkpoints(self.aws.client("dynamodb"), application=self.stream)
        for shard in shards(self.kinesis, self.stream):
            records = self.due(shard)
            place = places.get(shard["ShardId"], (None, 0))[0]
            if is_open(shard):
                if records and place != records[-1]["SequenceNumber"]:
                    return False
            elif place not in ("SHARD_END", None):
                return False
        return True

    def check(self) -> None:
        """The table has each record once."""
        sent, found = self.sent(), records_of(self.table)
        assert sent
        said = "\n".join(daemon.text for daemon in self.daemons)
        assert (lost := sent - found) == Counter(), f"{sum(lost.values())} lost: {lost.keys()}\n{said}"
        assert (more := found - sent) == Counter(), f"{sum(more.values())} too many: {more.keys()}\n{said}"

    def finish(self, daemon: Daemon) -> None:
        """Wait until everything is checkpointed, stop the daemon in order, and check the table."""
        daemon.wait_for("the last checkpoint", self.caught_up)
        assert daemon.end() == 0, daemon.text
        self.check()


Make = Callable[..., Stage]


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Make]:
    stages: list[Stage] = []
    with LocalAws(state=tmp_path / "aws") as aws:

        def make(*arguments: Any, **options: Any) -> Stage:
            stages.append(Stage(tmp_path, request, aws, *arguments, **options))
            return stages[-1]

        yield make
        for made in stages:
            for daemon in made.daemons:
                daemon.__exit__()


def jvm_of(daemon: Daemon) -> int:
    """The JVM's process id."""
    pid = daemon.process.pid
    found = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
        if "java" in Path(f"/proc/{child}/comm").read_text()
    ]
    (jvm,) = found
    return jvm


STAGES = [
    ["kill", "before", "status", 1],  # of initialize
    ["kill", "after", "status", 2],  # of the first batch: taken over, not written
    ["kill", "before", "stage", 1],
    ["kill", "before", "commit", 1],
    ["kill", "after", "commit", 1],  # committed, and not checkpointed
    ["kill", "before", "checkpoint", 1],
    ["kill", "after", "checkpoint", 1],
]


def test_a_child_that_is_killed_at_each_stage(stage: Make) -> None:
    """The daemon goes down with it, and is started again: seven times."""
    at = stage()
    at.put(60)
    for _ in STAGES:
        daemon = at.start(trouble=STAGES)
        assert daemon.end(None) == 1, daemon.text
        assert "exited with code 137 (signal 9)" in daemon.lines[-1]
        at.put(10)
    at.finish(at.start(trouble=STAGES))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("generation", [KCL_3, KCL_1_15], ids=lambda generation: generation.name)
def test_a_child_that_is_killed_when_it_is_asked_to_stop(stage: Make, generation: Generation, when: str) -> None:
    at = stage(generation)
    at.put()
    trouble = [["kill", when, "shutdown", 1]]
    daemon = at.start(trouble=trouble, seconds=0.5)
    daemon.wait_for("a write", lambda: "staging" in daemon.text)
    assert daemon.end() == 1, daemon.text
    at.finish(at.start(trouble=trouble))


def test_a_daemon_that_is_killed(stage: Make) -> None:
    """Its children read the end of their input, and `fastkcl daemon` waits for them."""
    at = stage()
    at.put()
    daemon = at.start(seconds=1)
    daemon.wait_for("a write", lambda: "staging" in daemon.text)
    os.kill(jvm_of(daemon), signal.SIGKILL)
    assert daemon.end(None) == 3, daemon.text
    at.put()
    at.finish(at.start())


@both_sinks
@generations
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


@generations
def test_a_lease_table_that_is_throttled(stage: Make, generation: Generation) -> None:
    """A daemon of KCL 3 answers after most of a minute, in which the lease may go; one of KCL 1 at once."""
    at = stage(generation)
    throttled = "ProvisionedThroughputExceededException"
    at.aws.faults(Fault("UpdateItem", throttled, contains="checkpointSubSequenceNumber"))
    at.put()
    daemon = at.start()
    daemon.wait_for("a refusal", lambda: "refused: ThrottlingException" in daemon.text)
    at.aws.faults()
    at.put()
    at.finish(daemon)


@pytest.mark.parametrize("generation", [KCL_3, KCL_1_15], ids=lambda generation: generation.name)
def test_an_aws_that_is_away_for_a_while(stage: Make, generation: Generation) -> None:
    """Connections are refused, to stream and lease table.

    KCL 3 has batches in hand, whose checkpoints it refuses, and the child goes on. KCL 1 has none, and loses its lease.
    """
    at = stage(generation)
    at.put()
    daemon = at.start(seconds=1)
    daemon.wait_for("a write", lambda: "staging" in daemon.text)
    at.aws.kill()
    trouble = "refused: RuntimeException" if generation is KCL_3 else "lease lost"
    daemon.wait_for("trouble", lambda: trouble in daemon.text)
    at.aws.start()
    at.put()
    at.finish(daemon)


def test_a_poison_record(stage: Make) -> None:
    """The child ends, each time; then it is told to put what it cannot write into a dead letter."""
    at = stage()
    at.put()
    poison = sorted(record[2] for record in at.sent())[25]
    for _ in range(2):
        daemon = at.start(poison=poison)
        assert daemon.end(None) == 1, daemon.text
        assert "exited with code 1" in daemon.lines[-1]
    assert 0 < records_of(at.table).total() <= 25
    daemon = at.start(poison=poison, run={"dead_letter": str(at.letters)})
    daemon.wait_for("the last checkpoint", at.caught_up)
    assert daemon.end() == 0, daemon.text
    letters = letters_in(at.letters)
    assert poison in {record[2] for record in letters}
    assert records_of(at.table) + letters == at.sent()


def test_a_poison_record_that_is_skipped(stage: Make) -> None:
    """It is lost, with what had not been written by then, and a line says which."""
    at = stage()
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


def test_a_failure_that_passes_is_retried_in_place(stage: Make) -> None:
    """A disk is full for two seconds. The daemon sees a slow child, and nobody ends."""
    at = stage()
    at.put()
    daemon = at.start(trouble=[["full", "before", "file", 1, 2.0]], run={"retries": 5})
    at.finish(daemon)
    assert daemon.text.count("child ready") == 1
    assert "retry: " in daemon.text


def test_two_daemons_share_a_stream_and_one_is_killed(stage: Make) -> None:
    """With its children, as when a host is lost. The other one takes its leases over when they have run out."""
    at = stage(shards=4)
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
