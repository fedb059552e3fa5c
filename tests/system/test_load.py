"""`fastkcl load` by two processes over one stream: one is killed and started again, a shard is split meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_records import in_stream
from delta_table_helpers import delta_posix
from fastkcl.daemon.keys import Generation
from fastkcl.local_aws import LocalAws
from kinesis_groups import KEYS, PATIENCE, Group
from local_aws_helpers import is_open, shards
from sink_helpers import Record
from table_helpers import Place, s3_place
from waiting import wait_until


class Loads(Group):
    """Processes of `fastkcl load`."""

    def __init__(self, aws: LocalAws, folder: Path, place: Place, form: str) -> None:
        super().__init__(aws, {}, "kcl", folder, shards=3)
        self.place = place
        options = ("--format", form, "--endpoint-url", aws.url, "--max-age", "0.5", "--json")
        self.command = [sys.executable, "-m", "fastkcl", "load", self.stream, place.url, *options]

    def begin(self, id: str) -> None:
        out = (self.folder / f"{id}.out").open("w")
        err = (self.folder / f"{id}.err").open("w")
        with out, err:
            self.processes[id] = subprocess.Popen(self.command, stdout=out, stderr=err, env=self.environment)

    def end(self, id: str) -> dict[str, Any]:
        """By SIGTERM; what it says of itself."""
        process = self.processes.pop(id)
        process.terminate()
        assert process.wait(PATIENCE) == 0, (self.folder / f"{id}.err").read_text()
        found: dict[str, Any] = json.loads((self.folder / f"{id}.out").read_text())
        return found

    def holders(self) -> Counter[str]:
        """How many shards each process has, by the lease tables of this stream."""
        dynamodb = self.aws.client("dynamodb")
        names = [name for name in dynamodb.list_tables()["TableNames"] if name.startswith(f"load-{self.stream}-")]
        leases = [lease for name in names for lease in dynamodb.scan(TableName=name)["Items"]]
        return Counter(lease["leaseOwner"]["S"] for lease in leases if "leaseOwner" in lease)

    def has_of_round(self, shard_ids: set[str]) -> bool:
        """Whether the table has a record of the newest rounds of each shard."""
        newest = {str(number).encode() for number in range(self.rounds - 5, self.rounds)}
        return {shard for _, shard, _, _, data in self.place.records() if data in newest} >= shard_ids

    def expected(self) -> Counter[Record]:
        found = in_stream(self.kinesis, self.stream, Generation.KCL_3)
        return Counter(
            (self.stream, each.shard, each.sequence_number, each.sub_sequence_number, each.data) for each in found
        )


@pytest.fixture(params=["parquet", "delta"])
def loads(request: pytest.FixtureRequest, aws: LocalAws, tmp_path: Path) -> Iterator[Loads]:
    """One format on S3, one on a disk."""
    place = s3_place(aws) if request.param == "parquet" else delta_posix(tmp_path)
    loads = Loads(aws, tmp_path, place, request.param)
    yield loads
    loads.close()


def test_each_record_is_there_once(loads: Loads) -> None:
    loads.begin("a")
    loads.begin("b")
    loads.put_until(lambda: len(loads.holders()) == 2 and loads.holders().total() == 3, "both have shards")
    before = {shard["ShardId"] for shard in shards(loads.kinesis, loads.stream)}
    loads.put_until(lambda: loads.has_of_round(before), "rows of all shards")
    loads.kill("a")
    loads.kinesis.split_shard(StreamName=loads.stream, ShardToSplit=min(before), NewStartingHashKey=str(1 << 125))
    loads.put()
    loads.begin("c")
    after = {shard["ShardId"] for shard in shards(loads.kinesis, loads.stream) if is_open(shard)}
    assert len(after) == 4
    loads.put_until(lambda: loads.has_of_round(after), "rows of all shards after the split")
    assert loads.end("b")["rows"] > 0
    loads.put()
    expected = loads.expected()
    assert len(expected) == loads.rounds * len(KEYS)
    wait_until(
        lambda: loads.place.records() == expected,
        "each record once",
        seconds=PATIENCE,
        seen=lambda: loads.place.records() - expected or f"{len(expected - loads.place.records())} are missing",
        step=0.3,
    )
    assert loads.end("c")["error"] is None
    assert loads.place.records() == expected
