"""A stream in Avro with Glue's registry into a table, by `spark.readStream`: from producers to rows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fastkcl.kinesis import AvroProcessor, Producer
from fastkcl.local_aws import LocalAws
from fastkcl.payloads.writing import AvroWriter
from local_aws_helpers import client, make_registry, make_stream
from spark_fixtures import SharedSpark

FIELDS = [
    {"name": "user", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "page", "type": {"type": "record", "name": "Page", "fields": [{"name": "path", "type": "string"}]}},
]
REFERRER = {"name": "referrer", "type": ["null", "string"], "default": None}
TAGS = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}
BAD = b"\x03\x00 of no registry"


def schema(*more: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Click", "namespace": "web", "fields": [*FIELDS, *more]})


def clicks(first: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"user": f"u{n}", "at": 1_700_000_000_000 + n, "page": {"path": "/"}, **more} for n in range(first, first + 10)
    ]


def put(stream: str, name: str, schema: str, items: list[dict[str, Any]], *, compress: bool = False) -> None:
    """As a producer puts them: it registers the schema, or finds it."""

    async def work() -> None:
        processor = AvroProcessor(schema, "glue", registry="glue", name=name, compress=compress)
        async with Producer(stream, processor=processor) as producer:
            for item in items:
                await producer.put(item, partition_key=item["user"])

    asyncio.run(work())


@pytest.mark.needs_pyspark("4.2")
@pytest.mark.parametrize("way", ["connect"], indirect=True)
def test_versions_of_a_schema_from_producers_to_a_table(
    session: Any, aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in aws.environment.items():
        monkeypatch.setenv(key, value)
    registry, stream = make_registry(aws), make_stream(aws, 2)
    name = f"{registry}/click"

    def run(**more: str) -> list[Any]:
        """Until all is read; then the rows of the table."""
        options = {"streamName": stream, "initialPosition": "trim_horizon", "region": "us-east-1"}
        options |= {"endpoint": aws.url, "registryEndpoint": aws.url, **more}
        options |= {"payload": "avro", "schema": f"latest:{name}", "framing": "glue", "registry": "glue"}
        frame = session.readStream.format("kinesis").options(**options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "table"))
        assert query.awaitTermination(120), query.lastProgress
        table = session.read.option("mergeSchema", "true").parquet(str(tmp_path / "table"))
        columns = [column for column in table.columns if column != "approximateArrivalTimestamp"]
        return [row.asDict(recursive=True) for row in table.selectExpr(*columns).orderBy("user").collect()]

    put(stream, name, schema(), clicks(10))
    put(stream, name, schema(REFERRER), clicks(20, referrer="/"), compress=True)
    client(aws).put_record(StreamName=stream, Data=BAD, PartitionKey="bad")
    bad, *rows = run(inlineBytes="0")  # opened in tasks
    assert (bad["_corrupt"], bad["partitionKey"], bad["user"], bad["page"]) == (BAD, "bad", None, None)
    assert list(bad)[:4] == ["user", "at", "page", "referrer"]
    assert [(row["user"], row["referrer"], row["_corrupt"]) for row in rows] == [
        (f"u{n}", None if n < 20 else "/", None) for n in range(10, 30)
    ]
    assert {row["page"]["path"] for row in rows} == {"/"}
    assert [int(row["at"].timestamp() * 1000) for row in rows] == [1_700_000_000_000 + n for n in range(10, 30)]
    assert {(row["partitionKey"], row["stream"]) for row in rows} == {(f"u{n}", stream) for n in range(10, 30)}

    put(stream, name, schema(REFERRER, TAGS), clicks(30, tags=["new"]))
    after = run()  # opened in the driver; the restart has the new column
    assert [row["tags"] for row in after] == [None] * 21 + [["new"]] * 10
    assert [row["user"] for row in after] == [None, *(f"u{n}" for n in range(10, 40))]


def test_a_query_that_declares_some_of_the_columns(aws: LocalAws, spark: SharedSpark) -> None:
    stream = make_stream(aws)
    writer = AvroWriter(schema(), "none")
    client(aws).put_record(StreamName=stream, Data=writer.write(clicks(1)[0]), PartitionKey="k")
    options = {"streamName": stream, "endpoint": aws.url, "region": "us-east-1", "payload": "avro", "schema": schema()}
    reader = spark.session.read.format("kinesis").options(**options)
    rows = reader.schema("page struct<path: string>, user string, stream string, _corrupt binary").load().collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {"page": {"path": "/"}, "user": "u1", "stream": stream, "_corrupt": None}
    ]
