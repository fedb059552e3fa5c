"""Every block of Python in README and docs/ runs. A row has the code around a block; a block without a row fails."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from doc_examples import BLOCKS, RECORDS, ROWS, Example, block_of, example
from fastkcl import _core
from fastkcl.payloads.registries import GlueRegistry
from fastkcl.payloads.writing import AvroWriter
from fastkcl.processv1.core import Core, StitchSpec
from fastkcl.replay import from_records
from local_aws_helpers import client, iterator, make_registry, make_stream, post
from local_aws_helpers import headers as request_headers
from paths import EXAMPLES, ROOT
from spark_helpers import record_batch
from waiting import PATIENCE

README = "README.md"
LINE = _core.encode_process_records(
    [b"a", b"b"], ["k", "k"], ["1", "2"], [0, 0], [1_700_000_000_000, 1_700_000_000_001],
    millis_behind_latest=0, dialect="modern",
)  # fmt: skip
RUN_ELSEWHERE = {
    ("docs/deployment.md", "DeltaSink("): "tests/docs/test_deployment.py::test_the_child_is_a_program",
    ("docs/migrating-from-amazon-kclpy.md", "columns beside the records"): "tests/kclpy/test_migration_page.py",
    ("docs/kclpy-tests-and-image.md", "# conftest.py"): "tests/kclpy/test_migration_page.py",
    ("docs/kclpy-tests-and-image.md", "# test_consumer.py"): "tests/kclpy/test_migration_page.py",
    ("docs/kclpy-tests-and-image.md", "#!/usr/bin/env -S"): "tests/kclpy/test_migration_page.py",
    ("docs/kclpy-tests-and-image.md", "# app.py"): "tests/kclpy/test_migration_page.py",
}
"""Blocks that other tests run, with more of what their pages promise."""


def test_each_block_has_one_row() -> None:
    rows = sorted(block_of(*key).id for key in [*ROWS, *RUN_ELSEWHERE])
    assert rows == sorted(block.id for block in BLOCKS)


@pytest.mark.parametrize("test", sorted(set(RUN_ELSEWHERE.values())))
def test_what_runs_a_block_elsewhere_exists(test: str) -> None:
    path, _, name = test.partition("::")
    assert f"def {name or 'test_'}" in (ROOT / path).read_text()


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("key", ROWS, ids=lambda key: f"{key[0]} {re.sub(r'[^a-zA-Z0-9]+', '-', key[1])}")
def test_a_block_runs(key: tuple[str, str], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    ROWS[key](Example(block_of(*key), tmp_path, request))


# Workers.


@example(README, "def store(batch")
def readme_worker(block: Example) -> None:
    counts = [int(line.split()[1]) for line in block.worker() if line.startswith("shardId-")]
    assert sum(counts) == RECORDS


@example("docs/kcl.md", "fastkcl.decode_line")
def kcl_captured_lines(block: Example) -> None:
    (block.folder / "captured.jsonl").write_bytes(LINE)
    assert block.around(after="print(table.num_rows, table.schema.names[0])").program() == b"2 data\n"


@example("docs/kcl.md", "def store")
def kcl_function(block: Example) -> None:
    block.around("import sys").put("    ...  ", "    print(len(batch), file=sys.stderr)  ")
    assert sum(int(line) for line in block.worker() if line.strip().isdigit()) == RECORDS


@example("docs/kcl.md", "def give_up")
def kcl_give_up(block: Example) -> None:
    names = block.around("class Holds:\n    held = ['first']").inside()
    processor = names["Holds"]()
    assert processor.give_up("second") == ["first", "second"]
    assert processor.give_up(None) == []


@example("docs/monitoring.md", "Monitor(")
def monitoring(block: Example) -> None:
    block.put("/var/lib/node_exporter/textfile", block.folder)
    lines = block.around("import fastkcl\n@fastkcl.processor\ndef store(batch): pass").worker()
    (last,) = [line for line in lines if line.startswith("fastkcl: metrics ")]
    assert json.loads(last.removeprefix("fastkcl: metrics "))["records"] == RECORDS


@example("docs/replay.md", "replay(")
def replay_in_a_test(block: Example) -> None:
    (block.folder / "child.py").write_text(block_of(README, "def store(batch").text)
    block.program()


# Kinesis without a daemon.


@example("docs/kinesis.md", "install_botocore()")
def kinesis_botocore(block: Example) -> None:
    stream = block.stream(b"a", b"b")
    block.around(
        f"""
        import boto3, pyarrow
        client = boto3.client("kinesis")
        iterator = client.get_shard_iterator(
            StreamName={stream!r}, ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        """,
        "print(table.num_rows, record['Data'])",
    )
    assert block.program() == b"2 b'b'\n"


def get_records(block: Example) -> dict[str, Any]:
    """The body and headers of an answer, as a program without an SDK has them."""
    aws, stream = block.aws, make_stream(block.aws)
    client(aws).put_record(StreamName=stream, Data=b"a", PartitionKey="k")
    request = json.dumps({"ShardIterator": iterator(client(aws), stream)}).encode()
    status, headers, body = post(aws.url, request, request_headers("GetRecords", "application/x-amz-json-1.1"))
    assert status == 200
    return {"body": body, "response": SimpleNamespace(headers=headers), "shard_id": "shardId-000000000000"}


@example("docs/kinesis.md", "decode_get_records(body")
def kinesis_answer(block: Example) -> None:
    answer = block.inside(**get_records(block))["answer"]
    assert (len(answer.batch), answer.child_shards) == (1, ())


@example("docs/kinesis.md", "deaggregate(answer.batch")
def kinesis_aggregates(block: Example) -> None:
    block.text = block_of("docs/kinesis.md", "decode_get_records(body").text + block.text
    result = block.inside(hash_range=None, **get_records(block))["result"]
    assert (len(result.batch), result.aggregates, result.dropped_records) == (1, 0, 0)


@example("docs/kinesis.md", "MockConsumer")
def kinesis_mocks(block: Example) -> None:
    block.request.getfixturevalue("kinesis_backend")
    block.inside()


@example("docs/kinesis.md", "set_metrics_collector")
def kinesis_metrics(block: Example) -> None:
    block.around("from fastkcl.kinesis import METRICS")
    block.around(after="collector.increment(next(iter(METRICS)))\nprint(sum(collector.counters.values()))")
    assert float(block.program()) == 1


@example("docs/kinesis-consumer.md", 'checkpointer=RedisCheckPointer("billing")')
def consumer_items(block: Example) -> None:
    block.redis()
    name = block.stream(b'{"n": 1}', b'{"n": 2}')
    seen: list[Any] = []
    block.put('"billing"', f'"{name}"').put("        ...\n", "        seen.append(item)\n").inside(seen=seen)
    assert seen == [{"n": 1}, {"n": 2}]


@example("docs/kinesis-consumer.md", 'acknowledge="explicit"')
def consumer_explicit(block: Example) -> None:
    block.stream(b'{"n": 1}', b'{"n": 2}')
    seen: list[Any] = []

    async def work(record: Any) -> None:
        seen.append(record.data)
        await record.done()

    block.around("import asyncio\nfrom fastkcl.kinesis import Consumer").inside(work=work)
    assert seen == [{"n": 1}, {"n": 2}]


@example("docs/kinesis-consumer.md", "await run_processors(")
def consumer_into_spark(block: Example) -> None:
    name = block.stream(b"a", b"b")
    block.put("/data/orders", block.folder / "table").put('"to-spark"', f'"{name}"')
    block.put("await run_processors(", "asyncio.run(run_processors(").put("\n)", "\n))").around("import asyncio")
    block.put("checkpointer=Dynamo", "idle_timeout=1, checkpointer=Dynamo")
    block.environment["FASTKCL_SPARK"] = block.spark.url
    block.program()
    assert block.count("table") == 2


@example("docs/kinesis-groups.md", "KCLCheckPointer(")
def checkpointers(block: Example) -> None:
    block.redis()
    assert block.aws.url
    block.inside()


@example("docs/kinesis-producer.md", "async with Producer")
def producer(block: Example) -> None:
    name = block.stream()
    names = block.inside()
    assert names["shard_id"] == "shardId-000000000000"
    records = client(block.aws).get_records(ShardIterator=iterator(client(block.aws), name))["Records"]
    assert [json.loads(record["Data"]) for record in records] == [{"id": 7}, {"id": 8}]
    assert records[1]["SequenceNumber"] == names["sequence_number"]


@example("docs/kinesis-producer.md", "processor.add_item")
def processors(block: Example) -> None:
    names = block.around("from fastkcl.kinesis import JsonLineProcessor").inside(
        partition_key="k", data=b'{"a": 1}\n{"b": 2}\n'
    )
    assert [(record.n, bytes(record.data)) for record in names["records"]] == [(1, b'{"a": 1}\n')]


@example("docs/local-aws.md", "with LocalAws(")
def local_aws(block: Example) -> None:
    asks = (
        "import boto3, sys; c = boto3.client('kinesis');"
        "sys.exit(len(c.list_shards(StreamName='orders')['Shards']) != 4)"
    )
    block.put('["my-consumer"]', f"[{sys.executable!r}, '-c', {asks!r}], check=True").around("import os, subprocess")
    block.program()


# Other protocols.


@example("docs/dkb.md", "class Upper")
def dkb_stage(block: Example) -> None:
    assert block.program(b"abc\n", "-m", "s") == b"ABC\n\0"


@example("docs/dkb.md", "def total")
def dkb_function(block: Example) -> None:
    block.around("import sys\nfrom fastkcl import dkb", "sys.exit(total.run())")
    out = block.program(b'{"value": 1}\n{"value": 2}\n', "-m", "s", "-b", "2")
    assert [json.loads(found) for found in re.findall(rb"\{.*?\}", out)] == [{"sum": 3}]


@example("docs/dkb.md", "class Load")
def dkb_load(block: Example) -> None:
    given: list[Any] = []
    writer = SimpleNamespace(add=given.append, flush=lambda: given.append("flushed"))
    names = block.around("from fastkcl import dkb").inside()
    stage = names["Load"]()
    stage.writer = writer
    assert stage.process("batch") is True
    assert given == ["batch", "flushed"]


@example("docs/processv1.md", "def handle")
def processv1_function(block: Example) -> None:
    asks = block.folder / "asks.py"
    asks.write_text(ASKS)
    logged: list[str] = []
    answered = threading.Event()

    def log(_name: str, line: str) -> None:
        logged.append(line)
        answered.set()

    with Core(on_log=log) as core:
        core.start(StitchSpec([sys.executable, str(block.written())], "upper"))
        core.start(StitchSpec([sys.executable, str(asks)], "asks"))
        core.send("asks", "abc")
        assert answered.wait(PATIENCE), "no answer of the stitch"
    assert logged == ["ABC"]


ASKS = """
from fastkcl.processv1 import run

def handle(message, stitch):
    if message.from_stitch_instance_id is None:
        stitch.send_to("upper", message.data)
    else:
        stitch.log(message.data)

run(handle)
"""
"""A stitch that passes a message of the core on, and logs the answer."""


@example("docs/processv1.md", "# or: async for")
def processv1_stitch(block: Example) -> None:
    assert len([line for line in block.stitch() if " sent " in line]) == 20


@example("docs/processv1.md", "stitch.next_batch")
def processv1_spark(block: Example) -> None:
    columns = "id bigint, channel string, sender string, node string, data binary"
    table = block.table(f"CREATE TABLE db.messages ({columns}) USING parquet", "db.messages")
    block.put('"db.messages"', f'"{table}", only_writer=True').put("sc://spark:15002", block.spark.url)
    block.around(
        "from fastkcl.processv1 import Stitch, StitchBatch\n"
        "from fastkcl.spark import MessageWriter\nfrom fastkcl.spark.sinks import TableSink"
    ).stitch(messages=30)
    block.spark.session.catalog.refreshTable(table)
    assert block.spark.session.table(table).count() == 30


@example("docs/processv1.md", "with Core(")
def processv1_core(block: Example) -> None:
    for name in ("ping.js", "pong.py"):
        shutil.copy(EXAMPLES / "processv1" / name, block.folder)
    block.around(after="print(core.reports()['ping'].health)")
    assert block.program().decode().splitlines()[-1].endswith("green")


# Spark.


def spark_worker(block: Example, url: str = "sc://localhost:15002", folder: str = "/data/events") -> None:
    """A worker that writes Parquet files."""
    block.put(url, block.spark.url).put(folder, block.folder / "table").worker()
    assert block.count("table") == RECORDS


SINK = "import fastkcl\nfrom fastkcl.spark import SparkProcessor\n"


@example(README, "from fastkcl.spark.sinks import ParquetSink")
def readme_spark(block: Example) -> None:
    spark_worker(block, "sc://spark:15002", "/data/clicks")


@example("docs/spark.md", "ParquetSink(")
def spark_parquet(block: Example) -> None:
    spark_worker(block)


@example("docs/spark.md", "def write(df, context)")
def spark_function(block: Example) -> None:
    spark_worker(block.around(SINK))


@example("docs/spark.md", "Bounds(max_age=10")
def spark_options(block: Example) -> None:
    block.put("SparkProcessor(sink", "made = SparkProcessor(sink")
    assert block.inside(sink=print)["made"] is not None


@example("docs/spark.md", "MessageWriter(")
def message_writer(block: Example) -> None:
    table = block.table("CREATE TABLE db.messages (number BIGINT, data BINARY) USING parquet", "db.messages")
    block.put('"db.messages"', f'"{table}", only_writer=True').put("sc://spark:15002", block.spark.url)
    block.around("from fastkcl._core import message_batch\nbatch = message_batch([b'a', b'b'])").program()
    block.spark.session.catalog.refreshTable(table)
    assert block.spark.session.table(table).count() == 2


@example("docs/sinks.md", "DeltaSink(")
def delta_sink(block: Example) -> None:
    from deltalake import DeltaTable

    block.around(SINK).put("sc://localhost:15002", block.spark.url).put("/data/events", block.folder / "table").worker()
    assert sum(DeltaTable(block.folder / "table").get_add_actions()["num_records"].to_pylist()) == RECORDS


@example("docs/sinks.md", "TableSink(")
def table_sink(block: Example) -> None:
    page = (ROOT / "docs" / "sinks.md").read_text()
    (statement,) = re.findall(r"```sql\n(CREATE TABLE.*?)```", page, re.DOTALL)
    table = block.table(statement.replace("USING iceberg", "USING parquet"), "db.events")
    block.around(SINK).put('"db.events"', f'"{table}", only_writer=True').put("sc://localhost:15002", block.spark.url)
    block.worker()
    block.spark.session.catalog.refreshTable(table)
    assert block.spark.session.table(table).count() == RECORDS


@example("docs/typed-payloads.md", "page struct<path")
def typed_payloads(block: Example) -> None:
    payload = {"id": "a", "at": "2026-11-01T00:00:00Z", "page": {"path": "/", "load_ms": 3}, "tags": ["x"]}
    block.put("SparkProcessor(sink", "fastkcl.run(SparkProcessor(ParquetSink(TABLE), spark=URL").put(
        '<string>")', '<string>"))'
    )
    typed_worker(block, json.dumps(payload).encode())
    (row,) = block.spark.session.read.parquet(str(block.folder / "table")).collect()
    assert (row["id"], row["page"]["load_ms"], row["tags"], row["_corrupt"]) == ("a", 3, ["x"], None)


@example("docs/typed-payloads.md", "def events(df)")
def cloudwatch_logs(block: Example) -> None:
    payload = {"messageType": "DATA_MESSAGE", "owner": "1", "logGroup": "g", "logStream": "s"}
    payload["logEvents"] = [{"id": str(n), "timestamp": 1_700_000_000_000, "message": f"m{n}"} for n in range(3)]  # type: ignore[assignment]
    block.put('SparkProcessor(ParquetSink("/data/logs"', "fastkcl.run(SparkProcessor(ParquetSink(TABLE")
    block.put('compression="gzip")', 'compression="gzip", spark=URL))')
    typed_worker(block, gzip.compress(json.dumps(payload).encode()))
    rows = block.spark.session.read.parquet(str(block.folder / "table")).collect()
    assert sorted(row["message"] for row in rows) == ["m0", "m1", "m2"]


def typed_worker(block: Example, payload: bytes) -> None:
    """A worker that gets one record."""
    records = block.folder / "records.jsonl"
    records.write_text(json.dumps({"data": base64.b64encode(payload).decode(), "partitionKey": "k"}) + "\n")
    before = f"TABLE, URL = {str(block.folder / 'table')!r}, {block.spark.url!r}\n"
    block.around(f"{SINK}from fastkcl.spark.sinks import ParquetSink\n{before}").worker(from_records(records))


# Spark's own queries.


def query_until(block: Example, query: Any, folder: str, rows: int) -> None:
    """Run a query until it has read what is there."""
    try:
        query.processAllAvailable()
        assert block.count(folder) == rows
    finally:
        query.stop()


def source_of(block: Example, stream: str = '.option("streamName", "orders")') -> None:
    """A stream with two records; options name local AWS, as Spark's processes have no variables of ours."""
    place = f'.option("endpoint", "{block.aws.url}")'
    block.put(stream, f'{stream}{place}.option("region", "us-east-1").option("initialPosition", "trim_horizon")')
    block.stream(b'{"id": 1, "at": "2026-11-01T00:00:00Z", "price": 1.5}', b'{"id": 2}')


@example(README, 'spark.readStream.format("kinesis")')
def readme_source(block: Example) -> None:
    source_of(block)
    block.put("orders.writeStream", "query = orders.writeStream").put("/data/checkpoint", block.folder / "checkpoint")
    names = block.put("/data/orders", block.folder / "table").inside(spark=block.spark.session)
    query_until(block, names["query"], "table", 2)


CLICK = """{"type": "record", "name": "Click", "fields": [
  {"name": "user", "type": "string"}, {"name": "page", "type": "string"}]}"""
CLICKS = [{"user": "u", "page": "/"}, {"user": "v", "page": "/cart"}]


def glue_registry(block: Example) -> None:
    """A registry of the test's own in the place of `web`, and the schema's file."""
    name = make_registry(block.aws)
    (block.folder / "click.avsc").write_text(CLICK)
    if "click.avsc" in block.text:
        block.put("click.avsc", block.folder / "click.avsc")
    if "web/click" in block.text:
        block.put("web/click", f"{name}/click")


def glue_writer(block: Example, name: str) -> AvroWriter:
    """Writes clicks whose schema local AWS's registry has."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in block.aws.environment.items():
            patch.setenv(variable, value)
        registry = GlueRegistry(endpoint_url=block.aws.url, region="us-east-1")
        return AvroWriter(CLICK, "glue", registry=registry, name=name)


@example("docs/schema-payloads.md", "fastkcl.run(")
def avro_into_a_table(block: Example) -> None:
    glue_registry(block)
    block.put("/data/clicks", block.folder / "table")
    name = make_registry(block.aws)
    writer = glue_writer(block, f"{name}/click")
    records = block.folder / "records.jsonl"
    rows = [{"data": base64.b64encode(writer.write(each)).decode(), "partitionKey": "k"} for each in CLICKS]
    records.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    block.worker(from_records(records))
    tables = [pq.read_table(path, columns=["user", "page"]) for path in (block.folder / "table").rglob("*.parquet")]
    assert [row for table in tables for row in table.to_pylist()] == CLICKS


@example("docs/schema-payloads.md", "BatchOpener(")
def avro_batches(block: Example) -> None:
    (block.folder / "schemas").mkdir()
    (block.folder / "schemas" / "7.avsc").write_text(CLICK)
    block.put("click.avsc", block.folder / "schemas" / "7.avsc").put('"schemas/"', f'"{block.folder}/schemas"')
    writer = AvroWriter(CLICK, "confluent", schema_id="7")
    made = block.inside(batch=record_batch([1, 2], data=[writer.write(each) for each in CLICKS]))
    assert made["table"].select(["user", "page"]).to_pylist() == CLICKS


@example("docs/schema-payloads.md", "AvroProcessor(")
def avro_producer(block: Example) -> None:
    name = block.stream()
    block.put('"clicks"', f'"{name}"')
    glue_registry(block)
    block.program()
    found = client(block.aws).get_records(ShardIterator=iterator(client(block.aws), name))["Records"]
    assert [record["Data"][:2] for record in found] == [b"\x03\x00"]


@example("docs/tables.md", "s3://lake/clicks")
def tables_on_s3(block: Example) -> None:
    block.aws.client("s3").create_bucket(Bucket="lake")
    block.worker()
    import pyarrow.fs as fs

    system = fs.S3FileSystem(
        endpoint_override=block.aws.url, access_key="local", secret_key="local", region="us-east-1"
    )
    files = [each.path for each in system.get_file_info(fs.FileSelector("lake/clicks", recursive=True))]
    assert (
        sum(pq.read_metadata(path, filesystem=system).num_rows for path in files if path.endswith(".parquet"))
        == RECORDS
    )


@example("docs/tables.md", "s3://delta/clicks")
def a_delta_table_on_s3(block: Example) -> None:
    block.aws.client("s3").create_bucket(Bucket="delta")
    block.worker()
    from deltalake import DeltaTable

    options = {"AWS_ENDPOINT_URL": block.aws.url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    options |= {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    assert DeltaTable("s3://delta/clicks", storage_options=options).count() == RECORDS


def play_prices(block: Example) -> None:
    """Three records with a price of 0.5."""
    block.put("/data/clicks", str(block.folder / "table"))
    payload = json.dumps({"user": "u", "price": 0.5}).encode()
    records = block.folder / "records.jsonl"
    row = {"data": base64.b64encode(payload).decode(), "partitionKey": "k"}
    records.write_text(f"{json.dumps(row)}\n" * 3)
    block.worker(from_records(records))


@example("docs/tables.md", "SparkWriter(")
def a_table_by_spark(block: Example) -> None:
    from deltalake import DeltaTable

    play_prices(block.put("sc://localhost:15002", block.spark.url))
    adds = DeltaTable(block.folder / "table").file_uris()
    assert [price for uri in adds for price in pq.read_table(uri)["cents"].to_pylist()] == [50, 50, 50]


@example("docs/tables.md", "in_cents")
def tables_with_typed_columns(block: Example) -> None:
    play_prices(block)
    tables = [pq.read_table(path) for path in (block.folder / "table").rglob("*.parquet")]
    assert [row for table in tables for row in table["cents"].to_pylist()] == [50, 50, 50]


@example("docs/spark-source.md", '.option("initialPosition"')
def source_query(block: Example) -> None:
    block.put('    .option("region", "eu-central-1")\n    .option("initialPosition", "trim_horizon")\n', "")
    source_of(block)
    block.put("/data/orders-checkpoint", block.folder / "checkpoint")
    names = block.put("/data/orders", block.folder / "table").inside(spark=block.spark.session)
    query_until(block, names["query"], "table", 2)


def source_rows(block: Example, frame: Any, count: int = 2) -> list[Any]:
    """All rows of a stream."""
    folder = str(block.folder / "table")
    query = frame.writeStream.format("parquet").option("checkpointLocation", f"{folder}-checkpoint").start(folder)
    query_until(block, query, "table", count)
    return list(block.spark.session.read.parquet(folder).collect())


@example("docs/local-aws.md", ".readStream")
def local_source(block: Example) -> None:
    block.put('.option("endpoint", "http://127.0.0.1:4567")', f'.option("endpoint", "{block.aws.url}")')
    block.stream(b"a", b"b")
    names = block.inside(spark=block.spark.session)
    assert names["records"].columns[0] == "data"


@example("docs/spark-source.md", "FastkclKinesis")
def source_class(block: Example) -> None:
    source_of(block)
    # Workers of this JVM belong to the Python that runs the tests.
    block.request.getfixturevalue("monkeypatch").setattr(block.spark.session.sparkContext, "pythonExec", sys.executable)
    rows = source_rows(block, block.inside(spark=block.spark.session)["records"])
    assert sorted(json.loads(row["data"])["id"] for row in rows) == [1, 2]


@example("docs/spark-source.md", "write_deltalake(")
def source_into_delta(block: Example) -> None:
    from deltalake import DeltaTable

    options = {"streamName": block.stream(b"a", b"b"), "endpoint": block.aws.url, "region": "us-east-1"}
    options["initialPosition"] = "trim_horizon"
    block.request.getfixturevalue("connect_mode")
    session = block.request.getfixturevalue("_connect_session")
    block.put("/data/orders-checkpoint", block.folder / "checkpoint").put("/data/orders", block.folder / "table")
    names = block.inside(records=session.readStream.format("kinesis").options(**options).load())
    names["query"].processAllAvailable()
    names["query"].stop()
    batch = session.createDataFrame([(b"c",)], "data binary")
    for batch_id in (0, 7, 7):  # one that the query has written, a new one, and that again
        names["store"](batch, batch_id)
    table = DeltaTable(block.folder / "table").to_pyarrow_table(columns=["data"])
    assert sorted(table["data"].to_pylist()) == [b"a", b"b", b"c"]


@example("docs/spark-source.md", "SourceListener(")
def source_listener(block: Example) -> None:
    added: list[Any] = []
    spark = SimpleNamespace(streams=SimpleNamespace(addListener=added.append))
    block.put("/var/lib/node_exporter/textfile", block.folder).inside(spark=spark)
    (listener,) = added
    listener.close()


@example("docs/spark-source.md", 'payload="json"')
def source_typed(block: Example) -> None:
    block.put('    .options(streamName="orders", ', '    .option("streamName", "orders")\n    .options(')
    source_of(block)
    rows = source_rows(block, block.inside(spark=block.spark.session)["orders"])
    assert sorted(row["id"] for row in rows) == [1, 2]


@example("docs/spark-source.md", 'payload="avro"')
def source_avro(block: Example) -> None:
    glue_registry(block)
    (name,) = re.findall(r"latest:([^\"]+)", block.text)
    writer = glue_writer(block, name)
    stream = block.stream(*(writer.write(click) for click in CLICKS))
    places = f'endpoint="{block.aws.url}", registryEndpoint="{block.aws.url}", region="us-east-1"'
    block.put('streamName="clicks"', f'streamName="{stream}", {places}')
    block.put("/data/clicks-checkpoint", block.folder / "checkpoint").put("/data/clicks", block.folder / "table")
    query_until(block, block.inside(spark=block.spark.session)["query"], "table", 2)
    rows = block.spark.session.read.parquet(str(block.folder / "table")).select("user", "page").collect()
    assert sorted(row.asDict()["user"] for row in rows) == ["u", "v"]


@example("docs/spark-source.md", "kinesis_json(")
def source_json(block: Example) -> None:
    name = block.stream(b'{"id": 1, "price": 1.5}', b'{"id": 2}')
    options = f'endpoint="{block.aws.url}", region="us-east-1", initialPosition="trim_horizon"'
    block.put(f'streamName="{name}"', f'streamName="{name}", {options}')
    rows = source_rows(block, block.inside(spark=block.spark.session)["orders"])
    assert sorted((row["id"], str(row["price"])) for row in rows) == [(1, "1.50"), (2, "None")]


@example("docs/streaming.md", "maxFilesPerTrigger")
def streaming(block: Example) -> None:
    row = (b"a", "k", "1", 0, datetime.now(UTC), "clicks", "shardId-000000000000")
    schema = "data BINARY, partitionKey STRING, sequenceNumber STRING, subSequenceNumber BIGINT, "
    schema += "approximateArrivalTimestamp TIMESTAMP, stream STRING, shard STRING"
    frame = block.spark.session.createDataFrame([row], schema)
    frame.write.partitionBy("stream", "shard").parquet(str(block.folder / "events"))
    for name in ("events", "copy-checkpoint", "copy"):
        block.put(f'"/data/{name}"', f'"{block.folder / name}"')
    names = block.put('.trigger(processingTime="10 seconds")', "").inside(spark=block.spark.session)
    query_until(block, names["query"], "copy", 1)


@example("docs/streaming.md", "def new_files")
def delta_files(block: Example) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    path = str(block.folder / "table")
    for number in range(3):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    names = block.inside(DeltaTable=DeltaTable, path=path, seen=0, schema="n BIGINT", spark=block.spark.session)
    assert sorted(row["n"] for row in names["df"].collect()) == [1, 2]
