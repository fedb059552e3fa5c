"""`spark.readStream.format("kinesis")` in the Spark that all tests share, against local AWS."""

from __future__ import annotations

import gzip
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark_fastkcl_kinesis
import pytest
from fastkcl.kinesis.access import Access
from fastkcl.kinesis.read.plan import TRIM, Offset, PlanOptions
from fastkcl.kinesis.read.plan.driver import PlanDriver
from fastkcl.local_aws import LocalAws
from fastkcl.spark import kinesis_json
from fastkcl.spark.source.stream import report
from fastkcl.spark.source.tasks import service_of
from local_aws_helpers import SHARD_0, client, make_stream
from spark_fixtures import SharedSpark
from table_queries import SECRET, Query, fill, numbers_of, split
from table_queries import query as query  # a fixture
from waiting import wait_until


@pytest.mark.needs_pyspark("4.2")
def test_a_shard_that_was_read_to_its_end_is_not_behind(own_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in own_aws.environment.items():
        monkeypatch.setenv(name, value)
    stream = make_stream(own_aws)
    fill(own_aws, stream, range(12_000))  # of which an answer has a part
    split(own_aws, stream)
    own_aws.pass_time(600)
    service = service_of(Access(endpoint_url=own_aws.url, region="us-east-1"))
    options = PlanOptions(streams=(stream,), initial=TRIM)
    driver = PlanDriver(options, {stream: service}, threads=2, log=logging.getLogger("test"))
    offset, said = Offset(), []
    for _ in range(10):
        offset = driver.latest(offset).offset
        said.append(report(driver, offset))
    assert (said[0]["behindMs"] > 500_000, said[0]["slowest"]) == (True, f"{stream}/{SHARD_0}")
    assert {each["behindMs"] for each in said[1:]} == {0}
    assert said[1]["shards"] == 3
    driver.close()


def test_records_that_come_while_it_runs(query: Callable[..., Query], aws: LocalAws) -> None:
    stream = make_stream(aws)
    reading = query(aws, stream)
    running = reading.start()
    try:
        for begin in range(0, 300, 100):
            fill(aws, stream, range(begin, begin + 100))
            wait_until(
                lambda most=begin + 100: len(reading.rows) >= most,  # type: ignore[misc]
                f"{begin + 100} rows",
                seen=lambda: str(running.exception()),
            )
        (source,) = running.lastProgress["sources"]
    finally:
        running.stop()
    assert numbers_of(reading.rows) == Counter(range(300))
    seen = source["latestOffset"]
    seen = json.loads(seen) if isinstance(seen, str) else seen
    assert seen["shards"] == 1
    assert seen["calls"]["GetRecords"] > 0
    for file in (reading.folder / "checkpoint").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert SECRET.encode() not in content
            assert b"AKIDOFTESTS" not in content


def test_columns_and_the_names_of_awslabs(session: Any, aws: LocalAws, tmp_path: Path) -> None:
    stream = make_stream(aws)
    fill(aws, stream, range(10))
    places = {"endpoint": aws.url, "region": "us-east-1"}
    few = session.read.format("kinesis").options(streamName=stream, columns="shardId,data,encryptionType", **places)
    assert few.load().columns == ["data", "shardId", "encryptionType"]
    assert {(row.shardId, row.encryptionType) for row in few.load().collect()} == {(SHARD_0, None)}
    aliased = session.read.format("aws-kinesis").options(
        **{"kinesis.streamName": stream, "kinesis.region": "us-east-1", "kinesis.endpointUrl": aws.url}
    )
    assert numbers_of(aliased.load().select("data").collect()) == Counter(range(10))
    assert {row.streamName for row in aliased.load().collect()} == {stream}


def test_a_time_that_is_over(session: Any, aws: LocalAws) -> None:
    stream = make_stream(aws, 2)
    fill(aws, stream, range(100))
    reader = session.read.format("kinesis").options(streamName=stream, endpoint=aws.url, region="us-east-1")
    rows = reader.load().collect()
    assert numbers_of(rows) == Counter(range(100))
    last = max(row.approximateArrivalTimestamp for row in rows)
    millis = str(int(last.timestamp() * 1000) + 1)
    fill(aws, stream, range(100, 200))
    assert numbers_of(reader.option("endingTimestamp", millis).load().collect()) == Counter(range(100))
    later = reader.option("endingTimestamp", str(int(millis) + 3_600_000)).option("startingTimestamp", millis)
    assert set(numbers_of(later.load().collect())) >= set(range(100, 200))


def test_nothing_to_read(session: Any, aws: LocalAws) -> None:
    stream = make_stream(aws)
    reader = session.read.format("kinesis").options(streamName=stream, endpoint=aws.url, region="us-east-1")
    assert reader.load().count() == 0


@pytest.mark.needs_pyspark("4.2")
@pytest.mark.parametrize(
    ("option", "said"),
    [("awsSecretKey", "is refused, it would stand in plans and logs"), ("streamNames", "did you mean streamName")],
)
def test_options_are_checked_when_the_query_is_made(session: Any, aws: LocalAws, option: str, said: str) -> None:
    reader = session.readStream.format("kinesis").options(streamName="s", endpoint=aws.url, **{option: "x"})
    with pytest.raises(Exception, match=said):
        _ = reader.load().columns


def test_a_pyspark_without_what_streams_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    source = pyspark_fastkcl_kinesis.DefaultSource({"streamName": "s"})
    with pytest.raises(RuntimeError, match=r"streams need PySpark 4\.2 or newer, this is .*; spark\.read"):
        source.streamReader(source.schema()).initialOffset()


def test_what_a_stream_cannot_have_is_the_last_line_of_its_error(session: Any, aws: LocalAws, tmp_path: Path) -> None:
    """An error of `streamReader` itself would be followed by one of PySpark's."""
    reader = session.readStream.format("kinesis").options(
        streamName="s", endpoint=aws.url, region="us-east-1", startingTimestamp="2026-11-01T00:00:00Z"
    )
    writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="startingtimestamp|startingTimestamp") as raised:
        writer.trigger(availableNow=True).start().awaitTermination(60)
    assert "UnboundLocalError" not in str(raised.value)


# Payloads.

OBJECTS = [
    b'{"id": 1, "name": "a", "at": "2026-01-02T03:04:05Z"}',
    b'{"id": 2, "name": 7}',  # a number for a text: a rule of from_json
    b'{"id": 3, "price": 1.5}',
    b"no object",
    b'{"name": "d", "tags": ["x", "y"], "id": 5}',
]
COLUMNS = "id bigint, name string, at timestamp, tags array<string>"


def put(aws: LocalAws, stream: str, *payloads: bytes) -> None:
    client(aws).put_records(StreamName=stream, Records=[{"Data": data, "PartitionKey": "k"} for data in payloads])


def objects_of(rows: list[Any]) -> list[tuple[Any, ...]]:
    ordered = sorted(rows, key=lambda row: int(row.sequenceNumber))
    return [
        (row.id, row.name, row.at is not None, row.tags, None if row["_corrupt"] is None else bytes(row["_corrupt"]))
        for row in ordered
    ]


@pytest.mark.needs_pyspark("4.2")
@pytest.mark.parametrize("compression", ["none", "gzip", "auto"])
def test_json_objects_are_columns(query: Callable[..., Query], aws: LocalAws, compression: str) -> None:
    stream = make_stream(aws)
    payloads = OBJECTS if compression == "none" else [gzip.compress(data) for data in OBJECTS]
    put(aws, stream, *payloads)

    class JsonQuery(Query):
        def reader(self) -> Any:
            return super().reader().schema(f"{COLUMNS}, sequenceNumber string, stream string, _corrupt binary")

    binary = query(aws, stream, payload="json", compression=compression)
    reading = JsonQuery(binary.session, aws, stream, binary.folder, payload="json", compression=compression)
    reading.run()
    assert objects_of(reading.rows) == [
        (1, "a", True, None, None),
        (None, None, False, None, payloads[1]),
        (3, None, False, None, None),
        (None, None, False, None, payloads[3]),
        (5, "d", False, ["x", "y"], None),
    ]
    assert {row.stream for row in reading.rows} == {stream}


@pytest.mark.parametrize("extra", ["", ", price decimal(9,2)"])
def test_kinesis_json_has_all_the_rules_of_from_json(session: Any, aws: LocalAws, extra: str) -> None:
    stream = make_stream(aws)
    put(aws, stream, *OBJECTS)
    places = {"streamName": stream, "endpoint": aws.url, "region": "us-east-1"}
    df = kinesis_json(session, COLUMNS + extra, streaming=False, **places)
    assert kinesis_json(session, COLUMNS + extra, **places).isStreaming
    rows = df.collect()
    assert objects_of(rows) == [
        (1, "a", True, None, None),
        (2, "7", False, None, None),
        (3, None, False, None, None),
        (None, None, False, None, b"no object"),
        (5, "d", False, ["x", "y"], None),
    ]
    by_spark = session.read.format("kinesis").options(**places).load()
    parsed = by_spark.selectExpr(f"from_json(cast(data as string), '{COLUMNS}') as o", "sequenceNumber")
    expected = {row.sequenceNumber: (row.o.id, row.o.name, row.o.tags) for row in parsed.collect() if row.o is not None}
    assert {row.sequenceNumber: (row.id, row.name, row.tags) for row in rows}.items() >= {
        number: value for number, value in expected.items() if value != (None, None, None)
    }.items()


def test_gzip_is_unpacked_into_binary(session: Any, aws: LocalAws) -> None:
    stream = make_stream(aws)
    put(aws, stream, gzip.compress(b"packed"), b"plain")
    reader = session.read.format("kinesis").options(streamName=stream, endpoint=aws.url, region="us-east-1")
    rows = sorted(reader.option("compression", "auto").load().collect(), key=lambda row: int(row.sequenceNumber))
    assert [(bytes(row.data), row["_corrupt"]) for row in rows] == [(b"packed", None), (b"plain", None)]
    rows = sorted(reader.option("compression", "gzip").load().collect(), key=lambda row: int(row.sequenceNumber))
    assert [(row.data, row["_corrupt"] and bytes(row["_corrupt"])) for row in rows] == [
        (b"packed", None),
        (None, b"plain"),
    ]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, "payload=json needs the columns"),
        ("id bigint", "_corrupt binary"),
        ("_corrupt binary, stream string", "columns of the objects"),
        ("id bigint, _corrupt string", "must be binary"),
        ("id bigint, stream binary, _corrupt binary", "column stream of the schema must be string"),
        ("id bigint not null, _corrupt binary", "must be nullable"),
        ("id decimal(9,2), _corrupt binary", "use fastkcl.spark.kinesis_json"),
        ("id bigint, data binary, _corrupt binary", "has no payload beside its columns, and keeps in _corrupt those"),
        ("id bigint, _unparsed binary, _corrupt binary", "come together"),
    ],
)
def test_a_schema_that_cannot_be(spark: SharedSpark, schema: str | None, said: str) -> None:
    reader = spark.session.read.format("kinesis").options(streamName="s", payload="json", endpoint="http://127.0.0.1:1")
    with pytest.raises(Exception, match=said):
        (reader if schema is None else reader.schema(schema)).load().collect()
