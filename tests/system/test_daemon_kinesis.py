"""A group of consumers moves off the JVM, and back: KCL 3 and our consumer on one lease table, position by position."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from checkpoint_helpers import awaited
from daemon_helpers import QUICK, Daemon, jars_of, put
from daemon_records import ends, in_stream, is_read, put_aggregate
from fastkcl.daemon.keys import Generation
from fastkcl.kinesis import Consumer, StringProcessor, UserRecord
from fastkcl.kinesis.checkpoints import KCLCheckPointer
from fastkcl.local_aws import LocalAws, checkpoints
from fastkcl.shard import ShardMap
from paths import PROGRAMS
from waiting import PATIENCE as LONG

KCL_3 = Generation.KCL_3
FAILOVER = 10.0
"""Seconds; a busy machine keeps a heartbeat waiting for more than three."""
PROPERTIES = QUICK[KCL_3] | {"failoverTimeMillis": f"{FAILOVER * 1000:.0f}"}
A, B = "shardId-000000000000", "shardId-000000000001"

pytestmark = pytest.mark.timeout(900)


class Read(NamedTuple):
    """A record as a reader got it."""

    shard: str
    sequence_number: str
    sub_sequence_number: int | None
    partition_key: str
    data: str


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalAws]:
    with LocalAws() as aws:
        for name, value in aws.environment.items():
            monkeypatch.setenv(name, value)
        yield aws


class Group:
    """A stream, and who reads it: a daemon, or consumers, on the lease table of one application."""

    def __init__(self, aws: LocalAws, jars: Path, folder: Path, shards: int) -> None:
        self.aws = aws
        self.jars = jars
        self.folder = folder
        self.stream = f"s-{uuid.uuid4().hex[:12]}"
        self.kinesis, self.dynamodb = aws.client("kinesis"), aws.client("dynamodb")
        self.kinesis.create_stream(StreamName=self.stream, ShardCount=shards)
        self.keys = (f"clé {number}" for number in range(10**6))
        self.notes = 0

    def key_of(self, shard_id: str) -> str:
        """A partition key that the shard owns."""
        owners = ShardMap.of(self.kinesis, self.stream)
        return next(key for key in self.keys if owners.owner(key) == shard_id)

    def put(self, *records: str, keys: list[str] | None = None) -> None:
        put(self.aws, self.stream, *records, keys=keys)

    def put_aggregate(self, shard_id: str, *records: str) -> None:
        key = self.key_of(shard_id)
        put_aggregate(self.aws, self.stream, *(UserRecord(key, text.encode()) for text in records))

    def daemon(self, *, seed: bool) -> Daemon:
        self.notes += 1
        out = self.folder / str(self.notes)
        out.mkdir()
        command = [sys.executable, str(PROGRAMS / "daemon_place_child.py"), str(out)]
        return Daemon(self.aws, self.jars, KCL_3, self.stream, command, self.folder, seed=seed, properties=PROPERTIES)

    def noted(self, number: int) -> list[dict[str, list[str]]]:
        """What the children of a daemon have written down, each line with its shard."""
        rows = []
        for path in sorted((self.folder / str(number)).glob("*.jsonl")):
            text = path.read_text("utf-8")
            lines = text[: text.rfind("\n") + 1].splitlines()
            rows += [{"shard": path.stem, **json.loads(line)} for line in lines]
        return rows

    def read_by_daemon(self, number: int) -> list[Read]:
        return [Read(row["shard"], *row["record"]) for row in self.noted(number) if "record" in row]

    def consumer(self, id: str = "ours") -> Consumer:
        return Consumer(
            self.stream,
            checkpointer=KCLCheckPointer(self.stream, id=id, session_timeout=FAILOVER, heartbeat_frequency=1),
            processor=StringProcessor(),
            deaggregate=True,
            output="records",
            idle_timeout=None,
            shard_fetch_rate=5,
            sleep_time_no_records=0.2,
        )

    def places(self) -> dict[str, tuple[str, int]]:
        return checkpoints(self.dynamodb, application=self.stream)

    def all(self) -> list[Read]:
        """What is in the stream, by boto3 and aws-kinesis-agg."""
        return [
            Read(record.shard, record.sequence_number, record.sub_sequence_number, record.partition_key, text.decode())
            for record in in_stream(self.kinesis, self.stream, KCL_3)
            if (text := record.data) is not None
        ]


def of_shards(records: list[Read]) -> dict[str, list[Read]]:
    found: dict[str, list[Read]] = {}
    for record in records:
        found.setdefault(record.shard, []).append(record)
    return found


async def read(consumer: Consumer, until: str, count: int = 1) -> list[Read]:
    """Records up to so many whose data begins like this; the last of them is not acknowledged, and left out."""
    found = []
    async with asyncio.timeout(LONG * 2), consumer:
        async for record in consumer:
            count -= record.data.startswith(until)
            if not count:
                break
            place = (record.shard_id, record.sequence_number, record.sub_sequence_number or 0)
            found.append(Read(*place, record.partition_key, record.data))
    return found


@awaited
async def test_half_by_kcl_then_by_us_and_back(aws: LocalAws, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each takes over where the other stopped, inside an aggregate, and across a split that only one of them saw."""
    group = Group(aws, jars_of(KCL_3, request), tmp_path, shards=2)
    # By KCL, which stops inside an aggregate of the one shard, and at the end of the other.
    group.put(*(f"a{number}" for number in range(40)))
    group.put_aggregate(A, *(f"aggregated {number}" for number in range(5)))
    group.put_aggregate(B, *(f"aggregated {number}" for number in range(5, 8)))
    group.put_aggregate(A, "aa", "ab", "!stop", "ad", "ae")
    with group.daemon(seed=True) as daemon:
        expected = of_shards(group.all())
        places = {A: (expected[A][-3][1], 2), B: (expected[B][-1][1], 2)}
        daemon.wait_for("half of the stream", lambda: group.places() == places)
        assert daemon.end() == 0, daemon.text
    by_kcl = group.read_by_daemon(1)
    assert group.places() == places

    # By us, through a split, until inside an aggregate.
    group.put(*(f"b{number}" for number in range(40)))
    group.kinesis.split_shard(StreamName=group.stream, ShardToSplit=B, NewStartingHashKey=str(3 << 126))
    group.put(*(f"c{number}" for number in range(40)))
    group.put_aggregate("shardId-000000000003", "in a child", "of the split")
    group.put(*(f"d{number}" for number in range(40)))
    first = await read(group.consumer(), until="d", count=40)
    group.put_aggregate(A, "aA", "aB", "!halt", "aD", "aE")
    second = await read(group.consumer(), until="!halt")
    by_us = first + second
    halted = next(record for record in group.all() if record.data == "!halt")
    assert group.places()[A] == (halted.sequence_number, 1)
    assert group.places()[B] == ("SHARD_END", 0)
    leases = {
        item["leaseKey"]["S"]: item
        for item in group.dynamodb.scan(TableName=group.stream, ConsistentRead=True)["Items"]
    }
    assert sorted(leases[B]["childShardIds"]["SS"]) == ["shardId-000000000002", "shardId-000000000003"]
    assert not [lease for lease in leases.values() if "leaseOwner" in lease]

    # And by KCL again.
    group.put(*(f"e{number}" for number in range(40)))
    before = group.places()
    with group.daemon(seed=False) as daemon:
        due = ends(group.kinesis, group.stream, KCL_3)
        daemon.wait_for("the rest", lambda: is_read(group.dynamodb, group.stream, due))
        assert daemon.end() == 0, daemon.text
    begun = {row["shard"]: tuple(row["start"]) for row in group.noted(2) if "start" in row}
    assert begun == {shard_id: place for shard_id, place in before.items() if place[0] != "SHARD_END"}
    assert of_shards(by_kcl + by_us + group.read_by_daemon(2)) == of_shards(group.all())


@awaited
async def test_both_at_once(aws: LocalAws, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A daemon comes to a group of consumers: it takes some of the shards, and all of them when we leave."""
    group = Group(aws, jars_of(KCL_3, request), tmp_path, shards=4)
    shards = [f"shardId-{number:012}" for number in range(4)]
    keys = [group.key_of(shard_id) for shard_id in shards]
    rounds = iter(range(10**6))
    by_us: list[Read] = []

    def put_round() -> None:
        number = next(rounds)
        group.put(*(f"{number} of {shard_id}" for shard_id in shards), keys=keys)

    async def consume(consumer: Consumer) -> None:
        async for record in consumer:
            place = (record.shard_id, record.sequence_number, record.sub_sequence_number or 0)
            by_us.append(Read(*place, record.partition_key, record.data))

    async def while_putting(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONG * 3):
            while not condition():
                await asyncio.to_thread(put_round)
                await asyncio.sleep(0.2)

    consumer = group.consumer()
    async with consumer:
        consuming = asyncio.create_task(consume(consumer))
        await while_putting(lambda: {read.shard for read in by_us} == set(shards))
        with group.daemon(seed=False) as daemon:
            await while_putting(lambda: len({read.shard for read in group.read_by_daemon(1)}) == 2)
            status = consumer.get_shard_status()
            assert 1 <= status["allocated_shards"] <= 3
            begun = len(by_us)
            await while_putting(lambda: len(by_us) > begun + 20)  # beside each other
            await consumer.close()
            await consuming
            await while_putting(lambda: {read.shard for read in group.read_by_daemon(1)} == set(shards))
            due = ends(group.kinesis, group.stream, KCL_3)
            daemon.wait_for("the rest", lambda: is_read(group.dynamodb, group.stream, due))
            assert daemon.end() == 0, daemon.text
    ours, theirs, everything = map(of_shards, (by_us, group.read_by_daemon(1), group.all()))
    for shard_id, expected in everything.items():
        # A shard goes from us to them once; what we had not committed comes again.
        first, second = ours.get(shard_id, []), theirs[shard_id]
        assert first == expected[: len(first)]
        assert second == expected[len(expected) - len(second) :]
        assert len(first) + len(second) >= len(expected)
