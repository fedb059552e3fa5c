"""Groups of consumers that share a stream: real processes over Redis, DynamoDB or KCL's lease table."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from daemon_helpers import put
from daemon_records import in_shard, in_stream
from fastkcl.daemon.keys import Generation
from fastkcl.local_aws import LocalAws
from fastkcl.shard import hash_key
from local_aws_helpers import make_stream
from local_aws_helpers import shards as list_shards
from paths import PROGRAMS, SUPPORT
from sink_helpers import records_of
from waiting import wait_until

KINDS = ["redis", "dynamodb", "kcl"]
PATIENCE = 120.0
KEYS = [
    next(key for key in map("key {}".format, itertools.count()) if hash_key(key) >> 123 == part) for part in range(32)
]
"""One in each 32nd of the hash keys, so that no shard is without records."""


class Line(NamedTuple):
    """A record as a consumer wrote it down."""

    nanoseconds: int
    """On the clock of all processes of the machine."""
    shard: str
    sequence_number: str
    partition_key: str
    data: str


class Group:
    """A stream, and the consumers of a group."""

    def __init__(
        self, aws: LocalAws, variables: dict[str, str], kind: str, folder: Path, *, shards: int = 4, failover: float = 6
    ) -> None:
        self.aws = aws
        self.kind = kind
        self.folder = folder
        path = os.pathsep.join([str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = {**os.environ, **aws.environment, **variables, "PYTHONPATH": path}
        self.failover = failover
        self.stream = make_stream(aws, shards)
        self.kinesis = aws.client("kinesis")
        self.rounds = 0
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, id: str, *more: str, program: str = "kinesis_consumer.py", out: str | None = None) -> None:
        command = [sys.executable, str(PROGRAMS / program), self.stream, self.kind, id, str(self.folder / (out or id))]
        environment = {**self.environment, "FAILOVER": str(self.failover)}
        self.processes[id] = subprocess.Popen([*command, *more], env=environment)

    def lines(self, id: str) -> list[Line]:
        path = self.folder / id
        text = path.read_text("utf-8") if path.exists() else ""
        return [Line(*json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]

    def put(self) -> None:
        """A round: the next number of each key."""
        put(self.aws, self.stream, *(str(self.rounds) for _ in KEYS), keys=KEYS)
        self.rounds += 1

    def put_until(self, condition: Callable[[], bool], what: str) -> None:
        """Put a round after the other until a condition holds."""

        def holds() -> bool:
            if condition():
                return True
            assert all(process.poll() in (None, -9) for process in self.processes.values()), "a process has ended"
            self.put()
            return False

        wait_until(holds, what, seconds=PATIENCE, seen=lambda: f"{self.rounds} rounds", step=0.2)

    def all(self) -> set[tuple[str, str]]:
        """Shard and sequence number of each record of the stream."""
        return {
            (shard["ShardId"], record["SequenceNumber"])
            for shard in list_shards(self.kinesis, self.stream)
            for record in in_shard(self.kinesis, self.stream, shard["ShardId"])
        }

    def wait_for_table(self, table: Path) -> None:
        """Wait until a table has each record of the stream once."""
        expected = Counter(
            (self.stream, record.shard, record.sequence_number, record.sub_sequence_number, record.data)
            for record in in_stream(self.kinesis, self.stream, Generation.KCL_3)
        )
        assert len(expected) == self.rounds * len(KEYS)
        wait_until(
            lambda: records_of(table) == expected,
            "each record once",
            seconds=PATIENCE,
            seen=lambda: records_of(table) - expected or f"{len(expected - records_of(table))} are missing",
            step=0.2,
        )

    def is_shared(self, shards: int) -> bool:
        """Whether three rounds in a row, lately, were read by all that run: each shard by one, an even share by each.

        How far the readers lag behind says nothing: a busy machine lets them read many rounds at once.
        """
        rounds: dict[int, dict[str, set[str]]] = {}
        for id in self.processes:
            for line in self.lines(id):
                rounds.setdefault(int(line.data), {}).setdefault(line.shard, set()).add(id)
        newest = sorted(rounds)[-10:]
        return any(self._is_even([rounds[n] for n in newest[i : i + 3]], shards) for i in range(len(newest) - 2))

    def _is_even(self, rounds: list[dict[str, set[str]]], shards: int) -> bool:
        readers = {shard: set[str]().union(*(read.get(shard, ()) for read in rounds)) for shard in set().union(*rounds)}
        loads = Counter(id for ids in readers.values() for id in ids)
        return len(readers) == shards == loads.total() and {loads[id] for id in self.processes} <= {
            shards // len(self.processes),
            -(-shards // len(self.processes)),
        }

    def leave(self, id: str) -> None:
        """Have a member end in order."""
        process = self.processes.pop(id)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)

    def kill(self, id: str) -> None:
        """Kill a member."""
        process = self.processes.pop(id)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Kill all processes."""
        for process in self.processes.values():
            process.kill()
            process.wait()
