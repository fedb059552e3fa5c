"""Queries of the Kinesis source into a table of Parquet, and the streams that they read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastkcl.local_aws import LocalAws
from local_aws_helpers import HASH_KEYS, SHARD_0, client
from waiting import wait_until

SECRET = "secret-of-the-tests"  # programs/service.py


class Query:
    """A query into a table of Parquet, which can be run again and again."""

    def __init__(self, session: Any, aws: LocalAws, stream: str, folder: Path, **options: str) -> None:
        self.session, self.folder = session, folder
        self.options = {
            "streamName": stream,
            "endpoint": aws.url,
            "region": "us-east-1",
            "initialPosition": "trim_horizon",
            **options,
        }

    def reader(self) -> Any:
        return self.session.readStream.format("kinesis").options(**self.options)

    def start(self, **trigger: Any) -> Any:
        writer = self.reader().load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return (writer.trigger(**trigger) if trigger else writer).start(str(self.folder / "table"))

    def run(self) -> Any:
        """Until all is read that is there now."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(120), query.lastProgress
        return query

    @property
    def rows(self) -> list[Any]:
        if not any((self.folder / "table").glob("_spark_metadata/[0-9]*")):
            return []
        return list(self.session.read.parquet(str(self.folder / "table")).collect())


@pytest.fixture
def query(session: Any, tmp_path: Path) -> Callable[..., Query]:
    def make(aws: LocalAws, stream: str, **options: str) -> Query:
        return Query(session, aws, stream, tmp_path, **options)

    return make


def fill(aws: LocalAws, stream: str, numbers: range) -> None:
    records = [{"Data": str(n).encode(), "PartitionKey": f"k{n % 50}"} for n in numbers]
    for begin in range(0, len(records), 500):
        answer = client(aws).put_records(StreamName=stream, Records=records[begin : begin + 500])
        assert answer["FailedRecordCount"] == 0


def split(aws: LocalAws, stream: str) -> None:
    client(aws).split_shard(StreamName=stream, ShardToSplit=SHARD_0, NewStartingHashKey=str(HASH_KEYS // 4))
    wait_until(
        lambda: (
            client(aws).describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamStatus"]
            == "ACTIVE"
        ),
        "the split",
    )


def numbers_of(rows: list[Any]) -> Counter[int]:
    return Counter(int(bytes(row.data)) for row in rows)


def failure_of(query: Query) -> str:
    """The message with which a query ends."""
    running = query.start(availableNow=True)
    try:
        with pytest.raises(Exception) as error:  # noqa: PT011 - classic and Connect have classes of their own
            running.awaitTermination(60)
    finally:
        running.stop()
    found = re.findall(r"(?m)^fastkcl\.[\w.]+: .*$", str(error.value))
    return str(found[-1]) if found else str(error.value)
