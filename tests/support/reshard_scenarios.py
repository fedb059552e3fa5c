"""Seven ways in which shards change, for any reader of a stream: rows are put, shards split and merged, rows read.

A scenario is a function of a `Stage`. It calls `stage.read()` where a query runs until it has all that there is, as
Spark does with `availableNow`; between two of these the query is down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fastkcl.local_aws import LocalAws
from local_aws_helpers import client, hash_keys, make_stream, merge_shards, open_shards, split_shard
from waiting import wait_until

KEYS = 16


class Stage:
    """A stream, who puts into it, and who reads it.

    Args:
        aws: where it is.

    Attributes:
        counts: rows put, by key.
        read: reads all that there is, and goes on where it was.
    """

    read: Callable[[], object]

    def __init__(self, aws: LocalAws) -> None:
        self.kinesis = client(aws)
        self.stream = make_stream(aws, 2)
        self.counts: Counter[str] = Counter()

    def put(self, rows: int = 60) -> None:
        records = []
        for number in range(rows):
            key = f"k{number % KEYS}"
            records.append({"Data": f"{key}:{self.counts[key]}".encode(), "PartitionKey": key})
            self.counts[key] += 1
        assert self.kinesis.put_records(StreamName=self.stream, Records=records)["FailedRecordCount"] == 0

    def put_nothing(self) -> None:
        """A record of no bytes for each shard: it is a row, too, and has no number."""
        for shard in open_shards(self.kinesis, self.stream):
            low = str(hash_keys(shard)[0])
            self.kinesis.put_record(StreamName=self.stream, Data=b"", PartitionKey="nothing", ExplicitHashKey=low)
            self.counts["nothing"] += 1

    def split(self) -> None:
        """The first open shard."""
        split_shard(self.kinesis, self.stream, open_shards(self.kinesis, self.stream)[0])
        self._settle()

    def merge(self) -> None:
        """The first two open shards."""
        merge_shards(self.kinesis, self.stream, *open_shards(self.kinesis, self.stream)[:2])
        self._settle()

    def _settle(self) -> None:
        summary = "StreamDescriptionSummary"
        wait_until(
            lambda: self.kinesis.describe_stream_summary(StreamName=self.stream)[summary]["StreamStatus"] == "ACTIVE",
            "the end of a change of shards",
        )


def closed_before_the_start(stage: Stage) -> None:
    stage.put()
    stage.split()
    stage.put()
    stage.merge()
    stage.put()
    stage.read()


def nothing_changes(stage: Stage) -> None:
    stage.put()
    stage.read()
    stage.put()
    stage.read()


def under_load(stage: Stage) -> None:
    for change in (stage.split, stage.split, stage.merge, stage.split, stage.merge):
        stage.put()
        stage.read()
        stage.put()
        change()
        stage.put()
    stage.read()


def split_with_a_backlog(stage: Stage) -> None:
    stage.put(30)
    stage.read()
    for _ in range(4):
        stage.put(250)
    stage.split()
    stage.put(30)
    stage.read()


def while_the_query_is_down(stage: Stage) -> None:
    stage.put()
    stage.read()
    stage.split()
    stage.put()
    stage.merge()
    stage.put()
    stage.split()
    stage.read()
    stage.put()
    stage.read()


def after_a_record_of_no_bytes(stage: Stage) -> None:
    stage.put()
    stage.read()
    stage.put_nothing()
    stage.split()
    stage.put()
    stage.put_nothing()
    stage.put()
    stage.read()


def many_in_a_row_without_load(stage: Stage) -> None:
    stage.put()
    stage.read()
    for _ in range(3):
        stage.split()
        stage.merge()
    stage.split()
    stage.read()
    stage.put()
    stage.read()


SCENARIOS = (
    closed_before_the_start,
    nothing_changes,
    under_load,
    split_with_a_backlog,
    while_the_query_is_down,
    after_a_record_of_no_bytes,
    many_in_a_row_without_load,
)


def check_rows(batches: list[list[tuple[int, str, bytes]]], counts: Counter[str]) -> None:
    """Each row once, and each key in its order.

    Args:
        batches: sequence number, partition key and payload of each row, by batch.
        counts: rows put, by key; those of the key "nothing" have no number.
    """
    seen: dict[str, list[int]] = {}
    empty = 0
    for rows in batches:
        for _, key, data in sorted(rows):
            if key == "nothing":
                assert data == b""
                empty += 1
                continue
            name, number = data.decode().split(":")
            assert name == key
            seen.setdefault(key, []).append(int(number))
    assert empty == counts["nothing"]
    assert seen == {key: list(range(count)) for key, count in counts.items() if key != "nothing"}
