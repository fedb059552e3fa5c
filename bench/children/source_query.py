"""A Spark of its own that reads streams one way, and measures itself: ``source_query.py WAY OPTIONS``.

WAY is `backlog` for a stream that is read whole, `paced` for a batch every two seconds, `latency`, or `idle`. OPTIONS
is JSON. CPU is that of this process, its JVM and all their workers, those that have ended included. Figures come as
JSON on the last line of standard output.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from fastkcl.spark import LocalSpark
from pyspark import SparkContext
from pyspark.sql import SparkSession

COLUMNS = "data binary, stream string, partitionKey string, sequenceNumber string, subSequenceNumber bigint, "
COLUMNS += "approximateArrivalTimestamp timestamp, shardId string"
"""Of the source: seven."""
PLAIN = "data binary, partitionKey string, sequenceNumber string, approximateArrivalTimestamp timestamp, shardId string"
"""What a program over boto3 makes of a record."""
READY_ROWS = 10_000
PATIENCE = 900.0


class Program:
    """A session, and what was asked.

    Attributes:
        options: of the command.
        spark: the session.
        connect: URL of the Connect server, where that is the way.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.folder = Path(options["folder"])
        settings = {
            "spark.driver.memory": "3g",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={options['folder']}",
            "spark.local.dir": options["folder"],
        }
        if "jars" in options:
            settings["spark.jars"] = options["jars"]
        if options.get("way") == "connect":
            self._local = LocalSpark("local[2]", connect=True, settings=settings)
            self.spark, self.connect = self._local.session, self._local.url
            return
        builder = SparkSession.builder.master("local[2]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()

    def source(self, stream: str, **more: str) -> dict[str, str]:
        """Options of the source for a stream."""
        options = {"streamName": stream, "endpoint": self.options["endpoint"], "region": "us-east-1"}
        return {"initialPosition": "trim_horizon", "maxSlice": "24h", **options, **more}


def cpu_seconds() -> float:
    """Of this process and all below it, with those that have ended and were waited for."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def settled_cpu_seconds() -> float:
    """The same, when nothing works any more: compilers and collectors of the JVM go on for a while."""
    before = cpu_seconds()
    for _ in range(40):
        time.sleep(0.25)
        now = cpu_seconds()
        if now - before < 0.01:
            break
        before = now
    return now


# A backlog.


def streaming(
    program: Program,
    stream: str,
    frame: Callable[[Any], Any] = lambda df: df,
    *,
    declared: str | None = None,
    **options: str,
) -> None:
    """A streaming query until all is read, into Parquet or noop; `declared` are the query's columns."""
    reader = program.spark.readStream.format("kinesis").options(**program.source(stream, **options))
    store(program, frame((reader if declared is None else reader.schema(declared)).load()))


def store(program: Program, df: Any) -> None:
    """Run the query until all is read."""
    folder = program.folder / f"run-{time.monotonic_ns()}"
    writer = df.writeStream.format(program.options["sink"]).option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.trigger(availableNow=True)
    query = writer.start(str(folder / "table")) if program.options["sink"] == "parquet" else writer.start()
    assert query.awaitTermination(PATIENCE), "the query takes too long"
    assert query.exception() is None, query.exception()
    program.options["batches"] = max(program.options.get("batches", 0), len(query.recentProgress))


def fastkcl(program: Program, stream: str) -> None:
    """The source, with its seven columns."""
    streaming(program, stream)


def awslabs(program: Program, stream: str) -> None:
    """The connector of awslabs, with its five columns, in one batch; its jar has the name of the format before ours."""
    options = {
        "region": "us-east-1",
        "streamName": stream,
        "consumerType": "GetRecords",
        "endpointUrl": program.options["endpoint"],
        "startingPosition": "TRIM_HORIZON",
        "maxFetchRecordsPerShard": "100000000",
        "getRecords.fetchIntervalMs": "0",
    }
    reader = program.spark.readStream.format("aws-kinesis")
    store(program, reader.options(**{f"kinesis.{name}": value for name, value in options.items()}).load())


def typed(program: Program, stream: str) -> None:
    """JSON opened in the tasks."""
    streaming(program, stream, declared=f"{program.options['schema']}, _corrupt binary", payload="json")


def from_json(program: Program, stream: str) -> None:
    """JSON opened by Spark."""
    from pyspark.sql import functions as f

    parsed = f.from_json(f.col("data").cast("string"), program.options["schema"]).alias("parsed")
    streaming(program, stream, lambda df: df.select(parsed).select("parsed.*"), columns="data")


def avro(program: Program, stream: str) -> None:
    """Avro opened in the tasks."""
    declared = f"{program.options['schema']}, _corrupt binary"
    streaming(program, stream, declared=declared, payload="avro", schema=program.options["avro"])


def from_avro(program: Program, stream: str) -> None:
    """spark-avro opens the records; like ours, it leaves out fields that the schema does not have."""
    from pyspark.sql.avro.functions import from_avro as parse

    parsed = parse("data", program.options["avro"], {"mode": "PERMISSIVE"}).alias("parsed")
    streaming(program, stream, lambda df: df.select(parsed).select("parsed.*"), columns="data")


def binary(program: Program, stream: str) -> None:
    """Payloads that nobody opens."""
    streaming(program, stream, columns="data")


def shards_of(program: Program, stream: str) -> list[str]:
    """By boto3."""
    import boto3

    kinesis = boto3.client("kinesis", endpoint_url=program.options["endpoint"], region_name="us-east-1")
    return [shard["ShardId"] for shard in kinesis.list_shards(StreamName=stream)["Shards"]]


def map_in_pandas(program: Program, stream: str) -> None:
    """What one writes without a connector: a task a shard, boto3 in it."""
    endpoint = program.options["endpoint"]

    def read(frames: Iterator[Any]) -> Iterator[Any]:
        import boto3
        import pandas as pd

        kinesis = boto3.client("kinesis", endpoint_url=endpoint, region_name="us-east-1")
        for frame in frames:
            for shard in frame["shardId"]:
                place = {"StreamName": stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
                iterator = kinesis.get_shard_iterator(**place)["ShardIterator"]
                while iterator:
                    answer = kinesis.get_records(ShardIterator=iterator)
                    iterator, records = answer.get("NextShardIterator"), answer["Records"]
                    if records:
                        yield pd.DataFrame(
                            {
                                "data": [record["Data"] for record in records],
                                "partitionKey": [record["PartitionKey"] for record in records],
                                "sequenceNumber": [record["SequenceNumber"] for record in records],
                                "approximateArrivalTimestamp": pd.to_datetime(
                                    [record["ApproximateArrivalTimestamp"] for record in records], utc=True
                                ).tz_localize(None),
                                "shardId": shard,
                            }
                        )
                    if not records and not answer["MillisBehindLatest"]:
                        break

    shards = program.spark.createDataFrame([(shard,) for shard in shards_of(program, stream)], "shardId string")
    rows = shards.repartition(len(shards_of(program, stream)), "shardId").mapInPandas(read, PLAIN)
    rows.write.parquet(str(program.folder / f"run-{time.monotonic_ns()}" / "table"))


def connect(program: Program, stream: str) -> None:
    """Our way through a Connect server: a processor a shard in this process, and createDataFrame."""
    import asyncio

    from fastkcl.kinesis import MemoryCheckPointer, run_processors
    from fastkcl.spark import SparkProcessor

    table = str(program.folder / f"run-{time.monotonic_ns()}" / "table")

    def append(df: Any, context: Any) -> None:
        df.write.mode("append").parquet(f"{table}/shardId={context.shard_id}")  # jobs of one folder disturb each other

    async def work() -> None:
        await run_processors(
            stream,
            lambda: SparkProcessor(append, spark=program.connect),
            checkpointer=MemoryCheckPointer(),
            idle_timeout=2,
        )

    asyncio.run(work())


def ready(program: Program, stream: str) -> None:
    """Spark given the rows: one batch of Arrow again and again, by a source that does nothing else."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    rows, size = (int(program.options["ready"][stream][name]) for name in ("rows", "bytes"))

    class Reader(DataSourceReader):
        def partitions(self) -> list[Any]:
            return [InputPartition(rows // 2), InputPartition(rows - rows // 2)]

        def read(self, partition: Any) -> Iterator[Any]:
            import datetime
            import os

            import pyarrow as pa

            count = READY_ROWS
            at = pa.scalar(datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), pa.timestamp("us", "UTC"))
            columns = {
                "data": pa.array(
                    [os.urandom(size // 2) + b"x" * (size - size // 2) for _ in range(count)], pa.binary()
                ),
                "stream": pa.repeat("stream", count),
                "partitionKey": pa.array([f"key-{number % 1000:05}" for number in range(count)]),
                "sequenceNumber": pa.array(
                    [f"{49590338271490256608559692538361571095921575989136588898 + n}" for n in range(count)]
                ),
                "subSequenceNumber": pa.repeat(pa.scalar(0, pa.int64()), count),
                "approximateArrivalTimestamp": pa.repeat(at, count),
                "shardId": pa.repeat("shardId-000000000000", count),
            }
            batch = pa.RecordBatch.from_pydict(columns)
            left = partition.value
            while left > 0:
                yield batch if left >= count else batch.slice(0, left)
                left -= count

    class Ready(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready"

        def schema(self) -> str:
            return COLUMNS

        def reader(self, schema: Any) -> Any:
            return Reader()

    program.spark.dataSource.register(Ready)
    program.spark.read.format("ready").load().write.parquet(
        str(program.folder / f"run-{time.monotonic_ns()}" / "table")
    )


def ready_clicks(program: Program, stream: str) -> None:
    """Spark given the typed columns of clicks, as a reader that costs nothing would give them, to noop."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    rows, schema = int(program.options["ready"][stream]["rows"]), program.options["schema"]

    class Reader(DataSourceReader):
        def partitions(self) -> list[Any]:
            return [InputPartition(rows // 2), InputPartition(rows - rows // 2)]

        def read(self, partition: Any) -> Iterator[Any]:
            import pyarrow as pa
            from clicks import clicks

            inferred = pa.RecordBatch.from_pylist(clicks(READY_ROWS))
            place = pa.struct({"country": pa.string(), "zip": pa.int32()})
            at = inferred.schema.get_field_index("place")
            batch = inferred.set_column(at, "place", inferred.column(at).cast(place))
            left = partition.value
            while left > 0:
                yield batch.slice(0, min(left, READY_ROWS))
                left -= READY_ROWS

    class ReadyClicks(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready_clicks"

        def schema(self) -> str:
            return str(schema)

        def reader(self, schema: Any) -> Any:
            return Reader()

    program.spark.dataSource.register(ReadyClicks)
    program.spark.read.format("ready_clicks").load().write.format("noop").mode("overwrite").save()


def backlog(program: Program) -> dict[str, float]:
    """CPU for what the large stream has more than the small one; the first run warms up and is not counted."""
    way = globals()[program.options["way"]]
    small, large = program.options["streams"]
    for stream in program.options["warm"]:
        way(program, stream)
    before = settled_cpu_seconds()
    way(program, small["name"])
    between, begun = settled_cpu_seconds(), time.monotonic()
    way(program, large["name"])
    seconds, after = time.monotonic() - begun, settled_cpu_seconds()
    gigabytes = (large["bytes"] - small["bytes"]) / 1e9
    more = (after - between) - (between - before)
    assert more > 0 or gigabytes < 0.01, (
        f"no measurement: the large stream took {-more:.1f} CPU s less than the small one"
    )
    figures = {"seconds": seconds, "cpu_per_gb": more / gigabytes}
    if "batches" in program.options:
        figures["batches"] = program.options["batches"]
    return figures


# Batches of little.


def paced(program: Program) -> dict[str, float]:
    """CPU of a batch every two seconds, median; `way` is ``rate`` or the source with options."""
    reader = program.spark.readStream
    if program.options["way"] == "rate":
        df = reader.format("rate").options(rowsPerSecond=450, numPartitions=2).load()
    else:
        df = (
            reader.format("kinesis")
            .options(**program.source(program.options["stream"]))
            .options(**program.options["more"])
            .load()
        )
    folder = program.folder / f"run-{time.monotonic_ns()}"
    writer = df.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(processingTime="2 seconds").start(str(folder / "table"))
    wanted = program.options["batches"]
    seen, before, costs = -1, 0.0, []
    deadline = time.monotonic() + PATIENCE
    while len(costs) < 2 * wanted:  # the first half warms up
        assert time.monotonic() < deadline, "too few batches"
        assert query.exception() is None, query.exception()
        last = query.lastProgress
        if last is not None and last["batchId"] > seen and last["numInputRows"]:
            seen, now = last["batchId"], cpu_seconds()
            if before:
                costs.append(now - before)
            before = now
        time.sleep(0.02)
    query.stop()
    return {"cpu_per_batch": median(costs[wanted:])}


def latency(program: Program) -> dict[str, float]:
    """From the time in a record to the batch function that gets it, median; the other end puts one every 0.2 s."""
    ages: list[float] = []

    def take(df: Any, number: int) -> None:
        rows = df.select("data").collect()
        now = time.time()
        ages.extend(now - float(bytes(row["data"])) for row in rows)

    reader = program.spark.readStream.format("kinesis").options(**program.source(program.options["stream"]))
    writer = reader.option("initialPosition", "latest").load().writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", str(program.folder / "checkpoint")).start()
    print("ready", flush=True)
    deadline = time.monotonic() + PATIENCE
    while len(ages) < 2 * program.options["records"]:  # the first half warms up
        assert time.monotonic() < deadline, f"{len(ages)} records have come"
        assert query.exception() is None, query.exception()
        time.sleep(0.05)
    query.stop()
    return {"put_to_row_seconds": median(ages[program.options["records"] :])}


def idle(program: Program) -> dict[str, float]:
    """Share of a core of a query that has nothing to do, Spark included."""
    reader = program.spark.readStream.format("kinesis").options(**program.source(program.options["stream"]))
    writer = reader.load().writeStream.format("noop")
    query = writer.option("checkpointLocation", str(program.folder / "checkpoint")).start()
    time.sleep(program.options["settle"])
    assert query.isActive, query.exception()
    before, begun = cpu_seconds(), time.monotonic()
    time.sleep(program.options["seconds"])
    share = (cpu_seconds() - before) / (time.monotonic() - begun)
    assert query.isActive, query.exception()
    query.stop()
    return {"core_share": share}


def main() -> None:
    """Measure, check the tables, and end with the JVM."""
    what, options = sys.argv[1], json.loads(sys.argv[2])
    program = Program(options)
    figures = {"backlog": backlog, "paced": paced, "latency": latency, "idle": idle}[what](program)
    if "expected" in options:
        tables = sorted((program.folder).glob("run-*/table"))
        counts = [program.spark.read.parquet(str(table)).count() for table in tables]
        assert counts == options["expected"], f"{counts} rows, and not {options['expected']}"
    if "keep" in options:
        shutil.copytree(max(program.folder.glob("run-*/table")), options["keep"])
    print(json.dumps(figures), flush=True)
    gateway = SparkContext._gateway
    program.spark.stop()
    if gateway is not None:  # the JVM's files are in the folder: it ends first
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
    os._exit(0)  # threads of readers that Spark has left


if __name__ == "__main__":
    main()
