"""Real daemons between a stream and a table, for the tests of deaths between them.

The children write by tests/programs/sink_child.py, which needs no Spark. The records of the stream are read from the
stream itself, and compared with the rows that a reader of the table sees: stream, shard, positions and payload of each
record.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from daemon_helpers import Daemon, jars_of, put
from daemon_records import ends, in_stream, is_read
from fastkcl.daemon.keys import Generation
from fastkcl.local_aws import LocalAws
from paths import PROGRAMS
from processes import children
from sink_helpers import Record, records_of

SHARD = "shardId-000000000000"
SINKS = ("ParquetSink", "DeltaSink")
CHILD = PROGRAMS / "sink_child.py"


def daemons(
    *quick: tuple[Generation, str], generations: Collection[Generation] = tuple(Generation)
) -> pytest.MarkDecorator:
    """Each generation with each sink. Those that are not `quick` are of ``make test-long`` only."""
    rows = [
        pytest.param(
            generation,
            sink,
            id=f"{generation.name}-{sink}",
            marks=() if (generation, sink) in quick else pytest.mark.long,
        )
        for generation in generations
        for sink in SINKS
    ]
    return pytest.mark.parametrize(("generation", "sink"), rows)


class Stage:
    """A stream of an AWS of its own, the table that its records belong into, and the daemons between them.

    Args:
        folder: for everything.
        request: the test's, by which the jars are found.
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
        generation: Generation = Generation.KCL_3,
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
        """Put records that differ, evenly over hash keys."""
        put(self.aws, self.stream, *(f"record {next(self._numbers)}" for _ in range(records)))

    def split(self) -> None:
        """Split the first shard, which has no more records from then on."""
        self.kinesis.split_shard(StreamName=self.stream, ShardToSplit=SHARD, NewStartingHashKey=str(1 << 127))

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
            trouble: see tests/programs/sink_child.py.
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

    def sent(self) -> Counter[Record]:
        """Each record that has to be in the table."""
        due = in_stream(self.kinesis, self.stream, self._generation, holding=True)
        return Counter(
            (self.stream, each.shard, each.sequence_number, each.sub_sequence_number, each.data) for each in due
        )

    def caught_up(self) -> bool:
        """Whether the lease table has each shard at its end."""
        due = ends(self.kinesis, self.stream, self._generation, holding=True)
        return is_read(self.aws.client("dynamodb"), self.stream, due)

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
    (jvm,) = [child for child, command in children(daemon.process.pid) if "java" in command]
    return jvm
