"""JSON payloads into typed columns: parsed in the child, beside Spark's from_json and pyarrow's JSON reader.

From record batches to Spark's noop, or to Parquet, on a classic session and on Connect; both threads of Spark and this
process share the machine. *no parsing* writes the payloads as they came: the cost of the rest.
"""

from __future__ import annotations

import io
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastkcl import decode_line
from fastkcl.demo.child import EVENT_SCHEMA
from fastkcl.payloads.options import JsonPayload
from fastkcl.replay.profiles import line
from fastkcl.spark import LocalSpark
from fastkcl.spark.payload import Payloads
from fastkcl.spark.schema import SCHEMA
from fastkcl.spark.server.session import Session
from fastkcl.spark.sinks.rows import ShardRows
from pyarrow import json as pyarrow_json
from pyspark.sql.types import BinaryType, StructField, StructType
from suites import take_turns

PROFILES = {
    "clickstream": (EVENT_SCHEMA, 30_000),
    "iot": ("d STRING, t BIGINT, temp DOUBLE, hum DOUBLE, v DOUBLE, rssi INT, ok BOOLEAN", 100_000),
}
"""Schema, and records of one table: some 16 MB."""
QUICK_RECORDS = 2_000
"""Where only results count."""
ROUNDS = 7
WAYS = ("classic", "Connect")
TARGETS = ("noop", "Parquet")
_TICK = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSpark]:
    """One JVM, with a classic session and a Connect server."""
    with (
        (tmp_path_factory.mktemp("spark") / "jvm.log").open("wb") as log,
        LocalSpark(connect=True, output=log) as local,
    ):
        yield local


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """Which kind of session."""
    return request.param


@pytest.fixture(scope="module")
def session(way: str, spark: LocalSpark) -> Iterator[Any]:
    """A session of each kind."""
    opened = Session(spark.session if way == "classic" else spark.url)
    yield opened.get()
    opened.close()


class Records:
    """A table's worth of records, and the ways to make a typed DataFrame of them."""

    def __init__(self, profile: str, count: int, session: Any) -> None:
        self.ddl = PROFILES[profile][0]
        message = decode_line(line(profile, records=count))
        self.batch = message.batch
        self.session = session
        self.payloads = Payloads(JsonPayload(self.ddl), max_bytes=1 << 26, max_table_bytes=1 << 26)
        self.payloads.prepare(session)
        types = session.createDataFrame([], self.ddl).schema
        self.typed = StructType([*types.fields, *SCHEMA.fields[1:], StructField("_corrupt", BinaryType())])
        (opened,) = self.payloads.open([self.batch])._table.to_batches()
        self.arrow = pa.schema([opened.schema.field(name) for name in types.fieldNames()])

    def fastkcl(self) -> Any:
        """As SparkProcessor does it."""
        return self.payloads.open([self.batch]).data_frame(self.session)

    def no_parsing(self) -> Any:
        """As SparkProcessor does it without typed payloads."""
        return ShardRows([self.batch], legacy=False).data_frame(self.session)

    def from_json(self) -> Any:
        """As one does it in Spark; what cannot be read is kept, too."""
        options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"
        parsed = f"from_json(CAST(data AS STRING), '{self.ddl}, _corrupt STRING', {options}) AS parsed"
        own = SCHEMA.fieldNames()[1:]
        columns = [f"parsed.{name}" for name in self.arrow.names]
        corrupt = "CASE WHEN parsed IS NULL OR parsed._corrupt IS NOT NULL THEN data END AS _corrupt"
        return self.no_parsing().selectExpr("*", parsed).selectExpr(*columns, *own, corrupt)

    def pyarrow_json(self) -> Any:
        """As one does it with pyarrow: all or nothing, as one payload that is no JSON fails them all."""
        canonical = pa.record_batch(self.batch)
        text = b"\n".join(canonical["data"].to_pylist())
        table = pyarrow_json.read_json(
            io.BytesIO(text),
            read_options=pyarrow_json.ReadOptions(use_threads=False, block_size=1 << 22),
            parse_options=pyarrow_json.ParseOptions(explicit_schema=self.arrow, unexpected_field_behavior="ignore"),
        )
        for field in canonical.schema.names[1:]:
            table = table.append_column(field, pa.chunked_array([canonical[field]]))
        table = table.append_column("_corrupt", pa.nulls(len(table), pa.binary()))
        return self.session.createDataFrame(table, schema=self.typed)


PEERS: dict[str, Callable[[Records], Any]] = {
    "fastkcl": Records.fastkcl,
    "from_json": Records.from_json,
    "pyarrow.json": Records.pyarrow_json,
    "no parsing": Records.no_parsing,
}


def write(make: Callable[[Records], Any], records: Records, target: str, folder: Path) -> None:
    """One table, written."""
    writer = make(records).write.mode("overwrite")
    if target == "noop":
        writer.format("noop").save()
    else:
        writer.parquet(str(folder))


def cpu_seconds(pid: int) -> tuple[float, float]:
    """Of this process and of a JVM, since they began."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return own.ru_utime + own.ru_stime, (int(fields[11]) + int(fields[12])) / _TICK


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("target", TARGETS)
def test_payload(
    benchmark, target: str, profile: str, way: str, session: Any, spark: LocalSpark, tmp_path: Path
) -> None:
    """Equal tables first, which warms the JVM up as well."""
    records = Records(profile, PROFILES[profile][1] if benchmark.enabled else QUICK_RECORDS, session)
    expected = PEERS["from_json"](records).toArrow()
    assert expected.num_rows == len(records.batch)
    for peer in ("fastkcl", "pyarrow.json"):
        assert PEERS[peer](records).toArrow().equals(expected), peer
    del expected

    def work(peer: str) -> dict[str, float]:
        before, start = cpu_seconds(spark.pid), time.perf_counter()
        write(PEERS[peer], records, target, tmp_path / peer)
        seconds, after = time.perf_counter() - start, cpu_seconds(spark.pid)
        client, jvm = after[0] - before[0], after[1] - before[1]
        return {"seconds": seconds, "client_cpu_seconds": client, "cpu_seconds": client + jvm}

    ways = {peer: lambda peer=peer: work(peer) for peer in PEERS}
    take_turns(benchmark, f"typed payloads, {way}, {target}", profile, ways, ROUNDS)
