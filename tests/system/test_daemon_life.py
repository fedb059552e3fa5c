"""A stream through daemons of three generations into children of three kinds, through all that befalls a shard.

For each generation a native child, a drop-in child and a Spark child read one stream, each under a daemon of its own,
side by side, as they wait more than they work:

    records of every shape ─▶ split ─▶ records ─▶ merge ─▶ records ─▶ a stolen lease ─▶ records ─▶ shutdown

Then the stream is read from the service itself, and the table of each child is compared with that. The JVMs run under
LANG=C, which must change no key.
"""

from __future__ import annotations

import base64
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as dataset
import pytest
from daemon_helpers import Daemon, calls, jars_of, put
from daemon_records import Record, ends, in_stream, is_read, put_aggregate, put_captured
from fastkcl.daemon.keys import Generation
from fastkcl.kinesis import UserRecord
from fastkcl.local_aws import LocalAws
from fastkcl.local_aws.leases import checkpoints, steal_lease
from local_aws_helpers import is_open, shards
from paths import PROGRAMS

if TYPE_CHECKING:
    from spark_fixtures import SharedSpark

KCL_1_7 = Generation.KCL_1_7
DIALECTS = {Generation.KCL_3: "modern", Generation.KCL_1_15: "modern", KCL_1_7: "legacy"}
KINDS = ("native", "drop-in", "spark")
SHARDS = [f"shardId-{index:012}" for index in range(5)]
LOCALE: dict[str, str | None] = {"LANG": "C", "LC_ALL": "C", "LC_CTYPE": None, "PYTHONUTF8": "1"}

pytestmark = pytest.mark.timeout(900)
kinds = pytest.mark.parametrize("kind", KINDS)
calling = pytest.mark.parametrize("kind", ["native", "drop-in"])  # those that write down each call


class Life:
    """One generation's daemons over one stream, from their start to their end.

    Args:
        aws: where the stream is made.
        generation: of the daemons.
        jars: of them.
        spark: URL of the Connect server.
        folder: for what the children write.
    """

    def __init__(self, aws: LocalAws, generation: Generation, jars: Path, spark: str, folder: Path) -> None:
        self.aws = aws
        self.generation = generation
        self.stream = f"life-of-{generation.name.lower()}"
        self.kinesis, self.dynamodb = aws.client("kinesis"), aws.client("dynamodb")
        self.kinesis.create_stream(StreamName=self.stream, ShardCount=2)
        self.folders = {kind: folder / kind for kind in KINDS}
        self.daemons: dict[str, Daemon] = {}
        self.codes: dict[str, int] = {}
        self._jars = jars
        self._environment = LOCALE | {"FASTKCL_SPARK": spark, "TABLE_PATH": str(self.folders["spark"])}

    def run(self) -> None:
        """Everything, in order."""
        put_captured(self.aws, self.stream)
        for kind in KINDS:
            self._start(kind)
        self._wait_until_read("records of every shape")
        self.kinesis.split_shard(StreamName=self.stream, ShardToSplit=SHARDS[0], NewStartingHashKey=str(1 << 126))
        self._put("after the split")
        self._wait_until_read("records after the split")
        self.kinesis.merge_shards(StreamName=self.stream, ShardToMerge=SHARDS[3], AdjacentShardToMerge=SHARDS[1])
        self._put("after the merge")
        self._wait_until_read("records after the merge")
        for kind in KINDS:
            steal_lease(self.dynamodb, application=self._application(kind), shard_id=SHARDS[4])
        for daemon in self.daemons.values():
            daemon.wait_for("the loss", lambda daemon=daemon: f"{SHARDS[4]}  lease lost" in daemon.text)
        self._put("after the loss")
        self._wait_until_read("records after the loss")
        for daemon in self.daemons.values():
            daemon.process.send_signal(signal.SIGTERM)
        self.codes = {kind: daemon.end(None) for kind, daemon in self.daemons.items()}

    def due(self, kind: str) -> list[Record]:
        """What has to be in the table."""
        return in_stream(self.kinesis, self.stream, self.generation, holding=kind == "spark")

    def table(self, kind: str) -> list[Record]:
        """What is in the table."""
        folder = self.folders[kind]
        if kind == "spark":
            rows = dataset.dataset(folder, format="parquet", partitioning="hive").to_table().to_pylist()
            assert {row["stream"] for row in rows} == {self.stream}
            return [
                Record(
                    row["shard"],
                    row["sequenceNumber"],
                    row["subSequenceNumber"],
                    row["partitionKey"],
                    row["data"],
                    round(row["approximateArrivalTimestamp"].timestamp() * 1000),
                )
                for row in rows
            ]
        return [
            Record(shard, number, sub, key, None if data is None else base64.b64decode(data), millis)
            for shard, rows in calls(folder).items()
            for row in rows
            for number, sub, key, data, millis in row.get("records", [])
        ]

    def checkpoints(self, kind: str) -> dict[str, tuple[str, int]]:
        """What the lease table says, by shard."""
        return checkpoints(self.dynamodb, application=self._application(kind))

    def end(self) -> None:
        """End what is left, after a failure."""
        for daemon in self.daemons.values():
            daemon.__exit__()

    def _application(self, kind: str) -> str:
        return f"{self.stream}-{kind}"

    def _start(self, kind: str) -> None:
        folder = self.folders[kind]
        folder.mkdir(parents=True)
        program = {
            "native": [str(PROGRAMS / "daemon_child.py"), str(folder)],
            "drop-in": ["-m", "fastkcl", "run", str(PROGRAMS / "daemon_kclpy_child.py"), str(folder)],
            "spark": [str(PROGRAMS / "daemon_spark_child.py")],
        }[kind]
        self.daemons[kind] = Daemon(
            self.aws,
            self._jars,
            self.generation,
            self.stream,
            [sys.executable, *program],
            folder.parent,
            application=self._application(kind),
            environment=self._environment,
        )

    def _put(self, when: str) -> None:
        """Put records alone and an aggregate for each shard."""
        put(self.aws, self.stream, *(f"{when}: {index}" for index in range(40)))
        users = (UserRecord(f"clé {index} \N{PARTY POPPER}", f"{when}: {index}".encode()) for index in range(40))
        put_aggregate(self.aws, self.stream, *users)

    def _wait_until_read(self, what: str) -> None:
        for kind, daemon in self.daemons.items():
            due = ends(self.kinesis, self.stream, self.generation, holding=kind == "spark")
            daemon.wait_for(f"{what} ({kind})", lambda: is_read(self.dynamodb, self._application(kind), due))  # noqa: B023


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    with LocalAws() as aws:
        yield aws


@pytest.fixture(scope="module", params=Generation, ids=lambda generation: generation.name)
def life(
    aws: LocalAws, spark: SharedSpark, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Life]:
    generation: Generation = request.param
    folder = tmp_path_factory.mktemp("life")
    life = Life(aws, generation, jars_of(generation, request), spark.url, folder)
    try:
        life.run()
        yield life
    finally:
        life.end()


@kinds
def test_the_table_has_each_record_of_the_stream_once(life: Life, kind: str) -> None:
    due, found = Counter(life.due(kind)), Counter(life.table(kind))
    assert due.total() > 10_000
    assert (lost := due - found) == Counter(), f"{lost.total()} of {due.total()} records are missing"
    assert (more := found - due) == Counter(), f"{more.total()} records are too many"


@kinds
def test_the_lease_table_has_each_shard_at_its_end(life: Life, kind: str) -> None:
    last = {record.shard: record for record in life.due(kind)}
    found = life.checkpoints(kind)
    for shard in shards(life.kinesis, life.stream):
        place, sub = found.get(shard["ShardId"], ("SHARD_END", 0))
        if not is_open(shard):
            assert place == "SHARD_END"
        else:
            assert place == last[shard["ShardId"]].sequence_number
            if life.generation is not KCL_1_7:
                assert sub == last[shard["ShardId"]].sub_sequence_number


@kinds
def test_the_daemon_stops_in_order(life: Life, kind: str) -> None:
    assert life.codes[kind] == 0, life.daemons[kind].text


@calling
def test_records_come_in_order(life: Life, kind: str) -> None:
    assert life.table(kind) == sorted(life.due(kind), key=lambda record: record.shard)


@calling
def test_children_are_told_what_happens(life: Life, kind: str) -> None:
    told = {shard: [row["call"] for row in rows] for shard, rows in calls(life.folders[kind]).items()}
    assert {shard: names[0] for shard, names in told.items()} == dict.fromkeys(SHARDS, "initialize")
    for shard in (SHARDS[0], SHARDS[1], SHARDS[3]):
        assert told[shard][-1] == "shard_ended"
    for shard in (SHARDS[2], SHARDS[4]):
        # KCL 1.7 does not say that it stops: its children read the end of their input.
        assert told[shard][-2:] == ["shutdown_requested", "lease_lost"] or life.generation is KCL_1_7
        assert "shard_ended" not in told[shard]
    assert ("lease_lost", "initialize") in pairwise(told[SHARDS[4]])


@calling
def test_a_child_begins_where_the_last_one_checkpointed(life: Life, kind: str) -> None:
    for rows in calls(life.folders[kind]).values():
        last = "TRIM_HORIZON"
        for row in rows:
            if row["call"] == "initialize":
                assert row["start"] == (None if life.generation is KCL_1_7 else last)
            last = row.get("records", [[last]])[-1][0]


def test_the_dialect_is_found(life: Life) -> None:
    found = {
        row["dialect"] for rows in calls(life.folders["native"]).values() for row in rows if row["call"] == "initialize"
    }
    assert found == {DIALECTS[life.generation]}


def test_the_stream_is_known_to_native_children(life: Life) -> None:
    rows = [row for rows in calls(life.folders["native"]).values() for row in rows if row["call"] == "initialize"]
    assert {row["stream"] for row in rows} == {life.stream}


@kinds
def test_the_log_says_what_happens_in_a_line_each(life: Life, kind: str) -> None:
    text = life.daemons[kind].text
    for shard in SHARDS:
        assert f"{shard}  lease taken, from " in text
        assert f"{shard}  checkpoint at " in text
    for shard in (SHARDS[0], SHARDS[1], SHARDS[3]):
        assert f"{shard}  shard ended" in text
    assert f"{SHARDS[4]}  lease lost: another worker has it, or it ran out" in text
    answered = sum(int(count.replace(",", "")) for count in re.findall(r"batch of ([\d,]+) record", text))
    assert answered >= len(life.due(kind))
    # What a child prints is no message.
    assert bool(re.search(r"  taken \d+", text)) == (kind == "drop-in")
