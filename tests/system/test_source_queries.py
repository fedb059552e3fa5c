"""`spark.readStream.format("kinesis")` over restarts, a split and faults; tests/spark/test_source.py has the rest."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable

import pytest
from fastkcl.local_aws import Fault, LocalAws
from fastkcl.spark.source import FastkclKinesis
from local_aws_helpers import SHARD_0, client, make_stream
from spark_fixtures import SharedSpark
from table_queries import SECRET, Query, failure_of, fill, numbers_of, split
from table_queries import query as query  # a fixture
from waiting import wait_until


@pytest.mark.needs_pyspark("4.2")
@pytest.mark.parametrize("inline", ["8m", "0"])
def test_each_record_is_in_the_table_once_over_restarts_and_a_split(
    query: Callable[..., Query], aws: LocalAws, inline: str
) -> None:
    stream = make_stream(aws, 2)
    fill(aws, stream, range(1200))
    reading = query(aws, stream, inlineBytes=inline)
    reading.run()
    assert numbers_of(reading.rows) == Counter(range(1200))
    split(aws, stream)
    fill(aws, stream, range(1200, 2000))
    reading.run()
    rows = reading.rows
    assert numbers_of(rows) == Counter(range(2000))
    assert {row.stream for row in rows} == {stream}
    assert len({row.shardId for row in rows}) == 4
    assert {row.partitionKey for row in rows} == {f"k{n}" for n in range(50)}
    for key in {row.partitionKey for row in rows}:
        of_key = sorted((int(row.sequenceNumber), int(bytes(row.data))) for row in rows if row.partitionKey == key)
        assert [n for _, n in of_key] == sorted(n for _, n in of_key)


@pytest.mark.needs_pyspark("4.2")
def test_a_stream_that_was_made_again(query: Callable[..., Query], aws: LocalAws) -> None:
    stream = make_stream(aws)
    fill(aws, stream, range(10))
    reading = query(aws, stream)
    reading.run()
    client(aws).delete_stream(StreamName=stream)
    wait_until(lambda: stream not in client(aws).list_streams(Limit=1000)["StreamNames"], "the end of the stream")
    wait_until(lambda: made_again(aws, stream), "another second")
    said = failure_of(reading)
    assert f"stream {stream} was created" in said or f"{stream}/{SHARD_0} begins with record" in said
    assert "use a new checkpointLocation, and with a file sink a new folder" in said


def made_again(aws: LocalAws, stream: str) -> bool:
    """Make it; whether that is another second than before, as a stream has its time in seconds."""
    before = getattr(made_again, "before", None)
    client(aws).create_stream(StreamName=stream, ShardCount=1)
    summary = client(aws).describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    created = summary["StreamCreationTimestamp"].timestamp()
    if before is None or int(before) == int(created):
        made_again.before = created  # type: ignore[attr-defined]
        client(aws).delete_stream(StreamName=stream)
        return False
    return True


@pytest.mark.needs_pyspark("4.2")
@pytest.mark.parametrize("operation", ["ListShards", "GetShardIterator", "GetRecords"])
def test_a_permission_that_is_missing(query: Callable[..., Query], own_aws: LocalAws, operation: str) -> None:
    stream = make_stream(own_aws)
    fill(own_aws, stream, range(10))
    own_aws.faults(Fault(operation, "AccessDeniedException"))
    said = failure_of(query(own_aws, stream))
    # ListShards may be answered before DescribeStreamSummary has given the ARN.
    assert re.search(
        rf"kinesis:{operation} on (arn:aws:kinesis:us-east-1:\d+:stream/)?{stream}\S* is denied \(AccessDenied", said
    )
    assert SECRET not in said


@pytest.mark.needs_pyspark("4.2")
def test_a_summary_that_may_not_be_asked_is_no_error(query: Callable[..., Query], own_aws: LocalAws) -> None:
    stream = make_stream(own_aws)
    fill(own_aws, stream, range(10))
    own_aws.faults(Fault("DescribeStreamSummary", "AccessDeniedException"))
    reading = query(own_aws, stream)
    reading.run()
    assert numbers_of(reading.rows) == Counter(range(10))


@pytest.mark.needs_pyspark("4.2")
def test_faults_that_pass(query: Callable[..., Query], own_aws: LocalAws) -> None:
    stream = make_stream(own_aws, 2)
    fill(own_aws, stream, range(1000))
    own_aws.faults(
        Fault("GetRecords", "ProvisionedThroughputExceededException", times=4),
        Fault("GetRecords", "InternalFailure", times=3),
        Fault("GetShardIterator", "ExpiredIteratorException", times=1),
        Fault("ListShards", "LimitExceededException", times=1),
    )
    reading = query(own_aws, stream, inlineBytes="0")
    reading.run()
    assert numbers_of(reading.rows) == Counter(range(1000))


def test_a_name_of_its_own(spark: SharedSpark, aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.session.sparkContext, "pythonExec", sys.executable)
    stream = make_stream(aws)
    fill(aws, stream, range(5))
    spark.session.dataSource.register(FastkclKinesis)
    reader = spark.session.read.format("fastkcl-kinesis")
    rows = reader.options(streamName=stream, endpoint=aws.url, region="us-east-1").load().collect()
    assert numbers_of(rows) == Counter(range(5))
