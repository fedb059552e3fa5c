"""Typed payloads: JSON and gzip as Spark gets them, on a classic session and on Connect."""

from __future__ import annotations

import datetime
import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastkcl import ConfigurationError
from fastkcl.replay.profiles import PROFILES
from fastkcl.spark import SparkProcessor, WriteContext
from fastkcl.spark.sinks import DeltaSink, ParquetSink
from payload_helpers import MIB, batch_of, frame, payloads
from sink_helpers import delta_rows
from spark_helpers import FakeCheckpointer, record_batch, shard_context

KEYS = ["partitionKey", "sequenceNumber", "subSequenceNumber", "approximateArrivalTimestamp"]


def collected(session: Any, data: Iterable[bytes], schema: Any, **options: Any) -> list[dict[str, Any]]:
    rows = frame(session, data, schema, **options).orderBy("approximateArrivalTimestamp").collect()
    return [row.asDict(recursive=True) for row in rows]


class TableSession:
    """Gives tables back where Spark would make DataFrames of them; binary payloads need no more."""

    conf = SimpleNamespace(set=lambda _name, _value: None)

    def createDataFrame(self, table: pa.Table, schema: Any) -> pa.Table:  # noqa: N802 - Spark's name
        assert table.column_names == schema.fieldNames()
        return table


TABLE = [
    # payload, the columns that are not null, whether it is corrupt
    (b'{"a":1,"b":"x","c":1.5}', {"a": 1, "b": "x", "c": 1.5}, False),
    (b' {"c":2,"a":-2147483648}\n', {"a": -2147483648, "c": 2.0}, False),
    (b"{}", {}, False),
    (b'{"z":[{}],"a":7}', {"a": 7}, False),
    (b'{"a":null,"b":null}', {}, False),
    (b'{"A":5}', {}, False),
    ('{"b":"größer 😀 \\u00e9\\n"}'.encode(), {"b": "größer 😀 é\n"}, False),
    (b'{"s":{"y":"good","x":3},"l":[1,null,3]}', {"s": {"x": 3, "y": "good"}, "l": [1, None, 3]}, False),
    # what only from_json's rules can tell: the values that fit are kept
    (b'{"a":3000000000,"b":"ok"}', {"b": "ok"}, True),
    (b'{"a":"1","b":"ok"}', {"b": "ok"}, True),
    (b'{"a":1.0,"b":"ok"}', {"b": "ok"}, True),
    (b'{"s":{"x":"bad","y":"good"},"b":"k"}', {"s": {"x": None, "y": "good"}, "b": "k"}, True),
    (b'{"l":[1,"x"],"b":"k"}', {"b": "k"}, True),
    (b'{"b":5}', {"b": "5"}, False),
    (b'{"b":{"q":[1,true]}}', {"b": '{"q":[1,true]}'}, False),
    (b'{"a":1,"a":2}', {"a": 2}, True),
    (b'{"s":{"x":1,"x":2}}', {"s": {"x": 2, "y": None}}, True),
    (b'{"z":1,"z":2}', {}, False),
    # what from_json would take in silence, in part or with other text
    (b'{"a":1}{"a":2}', {}, True),
    (b'{"a":1} xyz', {}, True),
    (b'{"a":1}\x00', {}, True),
    (b'{"b":"\xff"}', {}, True),
    (b'{"b":"\xed\xa0\x80"}', {}, True),
    (b"{'a':1}", {}, True),
    (b'{"c":NaN}', {}, True),
    (b"null", {}, True),
    (b"", {}, True),
    (b" ", {}, True),
    # no objects
    (b'[{"a":1}]', {}, True),
    (b"[]", {}, True),
    (b"5", {}, True),
    (b'"x"', {}, True),
    (b'{"a":1,"b":', {}, True),
    (b'\xef\xbb\xbf{"a":1}', {}, True),
    (b"\x1f\x8b", {}, True),
]
SCHEMA = "a int, b string, c double, s struct<x: int, y: string>, l array<int>"


@pytest.mark.parametrize("schema", [SCHEMA, f"{SCHEMA}, other map<string,int>"], ids=["parsed here", "by Spark"])
def test_every_record_is_a_row_and_what_cannot_be_read_is_kept(session: Any, schema: str) -> None:
    rows = collected(session, [payload for payload, _, _ in TABLE], schema)
    assert len(rows) == len(TABLE)
    for number, (row, (payload, values, corrupt)) in enumerate(zip(rows, TABLE, strict=True), 1):
        assert row["sequenceNumber"] == str(number)
        assert row["partitionKey"] == f"key-{number}"
        assert row["_corrupt"] == (payload if corrupt else None), payload
        found = {name: row[name] for name in "abcsl" if row[name] is not None}
        assert found == values, payload


LOST = [
    # what from_json makes of it in silence, and whether the payload is kept for that reason
    ('{"i":200}', "i", "-56", True),
    ('{"i":127}', "i", "127", False),
    ('{"d":1e400}', "d", "Infinity", True),
    ('{"d":"Infinity"}', "d", "Infinity", False),
    ('{"b":"half \\ud83d"}', "b", "half ?", True),
    ('{"b":"\\ud83d\\ude00"}', "b", "😀", False),
    ('{"b":0.12345678901234567890}', "b", "0.12345678901234568", True),
    ('{"b":0.30000000000000004}', "b", "0.30000000000000004", False),
    ('{"b":1.10}', "b", "1.1", False),
    ('{"b":{"x":1e400}}', "b", '{"x":"Infinity"}', True),
    ('{"b":{"x":"\\ud83d"}}', "b", '{"x":"\\uD83D"}', False),
    ('{"t":1748781296}', "t", "2025-06-01 12:34:56", False),
    ('{"t":1748781296789000}', "t", "-113992-07-16 14:29:52.59648", True),
    ('{"l":[1,200]}', "l", "[1, -56]", True),
    ('{"s":{"b":"\\udc00"}}', "s", "{?}", True),
]
LOST_BY_SPARK = [
    ('{"f":1e39}', "f", "Infinity", True),
    ('{"f":3e38}', "f", "3.0E38", False),
    ('{"m":{"x":200}}', "m", "{x -> -56}", True),
    ('{"m":{"\\ud83d":1}}', "m", "{? -> 1}", True),
    ('{"m":{"x":1}}', "m", "{x -> 1}", False),
]
LOSING = "i tinyint, d double, b string, t timestamp, l array<tinyint>, s struct<b: string>"


@pytest.mark.parametrize(
    ("schema", "table"),
    [(LOSING, LOST), (f"{LOSING}, f float, m map<string,tinyint>", LOST + LOST_BY_SPARK)],
    ids=["parsed here", "by Spark"],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_what_from_json_does_not_keep_and_does_not_tell_of_is_kept(
    session: Any, schema: str, table: list[tuple[str, str, str, bool]], packed: bool
) -> None:
    texts = [text.encode() for text, _, _, _ in table]
    data = [gzip.compress(text) for text in texts] if packed else texts
    df = frame(session, data, schema, compression="auto")
    columns = [name.split()[0] for name in schema.split(", ")]
    # As text, as Python has no such times.
    rows = df.selectExpr("sequenceNumber", *(f"CAST({name} AS STRING) AS {name}" for name in columns), "_corrupt")
    found = sorted(rows.collect(), key=lambda row: int(row.sequenceNumber))
    for row, payload, (text, column, value, kept) in zip(found, data, table, strict=True):
        assert (row[column], row._corrupt) == (value, payload if kept else None), text


@pytest.mark.parametrize("schema", [SCHEMA, f"{SCHEMA}, other map<string,int>"], ids=["parsed here", "by Spark"])
def test_the_columns_are_the_schemas_then_the_records_then_the_corrupt_payload(session: Any, schema: str) -> None:
    fit, left = b'{"a":1}', b'{"b":2}'
    for data in ([fit], [fit, left]):
        df = frame(session, data, schema)
        names = [*"abcsl", *(["other"] if "other" in schema else [])]
        assert df.columns == [*names, *KEYS, "_corrupt"]
        types = dict(df.dtypes)
        assert (types["s"], types["l"], types["_corrupt"]) == ("struct<x:int,y:string>", "array<int>", "binary")
        assert (types["subSequenceNumber"], types["approximateArrivalTimestamp"]) == ("bigint", "timestamp")
        assert all(field.nullable for field in df.schema)


def test_a_schema_may_be_a_struct_type(session: Any) -> None:
    from pyspark.sql.types import (
        ArrayType,
        DecimalType,
        IntegerType,
        MapType,
        StringType,
        StructField,
        StructType,
    )

    inner = StructType([StructField("odd `name`, it's\\", IntegerType(), nullable=False)])
    schema = StructType(
        [
            StructField("key: with `ticks`", StringType(), nullable=False),
            StructField("in", ArrayType(inner, containsNull=False)),
            StructField("numbers", MapType(StringType(), DecimalType(6, 2))),
        ]
    )
    values = {"key: with `ticks`": "v", "in": [{"odd `name`, it's\\": 1}], "numbers": {"n": 1.25}}
    missing: dict[str, Any] = {"in": [{}]}
    for columns in (schema.fields, schema.fields[:2]):
        rows = collected(session, [json.dumps(values).encode(), json.dumps(missing).encode()], StructType(columns))
        assert rows[0]["key: with `ticks`"] == "v"
        assert rows[0]["in"] == values["in"]
        assert "numbers" not in rows[0] or {k: float(v) for k, v in rows[0]["numbers"].items()} == values["numbers"]
        assert (rows[1]["key: with `ticks`"], rows[1]["in"]) == (None, [{"odd `name`, it's\\": None}])
        assert [row["_corrupt"] for row in rows] == [None, None]


def test_times_are_instants(session: Any) -> None:
    at, day = datetime.datetime(2025, 6, 1, 12, 34, 56, 789000, datetime.UTC), datetime.date(2025, 6, 1)
    data = [b'{"t":"2025-06-01T12:34:56.789Z","d":"2025-06-01"}', b'{"t":"2025-06-01T14:34:56.789+02:00"}']
    table = frame(session, data, "t timestamp, d date").toArrow()
    assert table["t"].cast(pa.timestamp("us", "UTC")).to_pylist() == [at, at]
    assert table["d"].to_pylist() == [day, None]


REFUSED = [
    ({"payload": "csv"}, ValueError, "payload='csv': must be 'binary' or 'json'"),
    ({"compression": "zip"}, ValueError, "compression='zip': must be 'none' or 'gzip' or 'auto'"),
    ({"payload": "json"}, ValueError, "needs schema="),
    ({"payload": "avro"}, ValueError, "needs schema="),
    ({"payload": "json", "schema": "a int", "message": "M"}, TypeError, "message= is not an option of payload="),
    ({"payload": "avro", "schema": "{}", "framing": "glue"}, ValueError, "needs registry="),
    ({"schema": "a int"}, ValueError, 'schema= is for payload="json"'),
    ({"payload": "json", "schema": ["a"]}, TypeError, "schema must be a StructType or a text"),
    ({"max_payload_bytes": 0}, ValueError, "max_payload_bytes=0: must be 1 to max_table_bytes"),
    ({"max_payload_bytes": 200 * MIB}, ValueError, "must be 1 to max_table_bytes, 117440512"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_arguments_that_do_not_fit_together_are_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        SparkProcessor(print, **arguments)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("a int,, b", "is not a schema by which Spark can parse JSON"),
        ("a what", "is not a schema by which Spark can parse JSON"),
        ("", "schema="),
        ("int", "schema='int'"),
        ("array<int>", "must name columns"),
        ("a map<int, int>", "is not a schema by which Spark can parse JSON"),
        ("a int, A string", "a second column 'A'"),
        ("partitionkey string", "a second column 'partitionkey'"),
        ("a int, _corrupt string", "a second column '_corrupt'"),
        ("_unparsed int", "a second column '_unparsed'"),
        ("_packed int", "a second column '_packed'"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_at_the_start(session: Any, schema: str, message: str) -> None:
    made = SparkProcessor(print, spark=session, payload="json", schema=schema)
    with pytest.raises(ConfigurationError) as raised:
        made.initialize(shard_context())
    assert message in str(raised.value)


# gzip


def table_of(data: list[bytes], **options: Any) -> pa.Table:
    opener = payloads("binary", **options)
    opener.prepare(TableSession())  # type: ignore[arg-type]
    return opener.open([batch_of(data)]).data_frame(TableSession())  # type: ignore[arg-type]


PACKED = gzip.compress(b"a payload", mtime=0)
GZIP = [
    # payload, by "gzip", by "auto"; None: corrupt
    (PACKED, b"a payload", b"a payload"),
    (PACKED + gzip.compress(b"", mtime=0) + gzip.compress(b", and more", mtime=0), *[b"a payload, and more"] * 2),
    (gzip.compress(b""), b"", b""),
    (b"plain", None, b"plain"),
    (b"", None, b""),
    (b"\x1f", None, b"\x1f"),
    (b"\x1f\x8b", None, None),
    (PACKED[:-1], None, None),
    (PACKED[:10], None, None),
    (PACKED[:-8] + bytes([PACKED[-8] ^ 1]) + PACKED[-7:], None, None),
    (PACKED + b"\0", None, None),
    (PACKED + b"tail", None, None),
    (PACKED + PACKED[:5], None, None),
    (gzip.compress(bytes(1000)), bytes(1000), bytes(1000)),
    (gzip.compress(bytes(1001)), None, None),
    (gzip.compress(bytes(50 * MIB), 1), None, None),
]


@pytest.mark.parametrize("compression", ["gzip", "auto"])
def test_gzip_is_unpacked_whole_or_kept_as_it_came(compression: str) -> None:
    table = table_of([payload for payload, _, _ in GZIP], compression=compression, max_payload_bytes=1000)
    assert table.column_names == ["data", *KEYS, "_corrupt"]
    for row, (payload, by_gzip, by_auto) in zip(table.to_pylist(), GZIP, strict=True):
        expected = by_gzip if compression == "gzip" else by_auto
        assert (row["data"], row["_corrupt"]) == ((expected, None) if expected is not None else (None, payload))
    assert table["sequenceNumber"].to_pylist() == [str(number) for number in range(1, len(GZIP) + 1)]


def test_json_that_was_packed_is_kept_packed_if_it_is_corrupt(session: Any) -> None:
    texts = [b'{"a":1}', b'{"a":"no","b":"kept"}', b'{"b":2}', b'{"a":1}{"a":2}']
    data = [gzip.compress(text) for text in texts] + [b"\x1f\x8b broken"]
    rows = collected(session, data, "a int, b string", compression="auto")
    assert [(row["a"], row["b"], row["_corrupt"]) for row in rows] == [
        (1, None, None),
        (None, "kept", data[1]),
        (None, "2", None),
        (None, None, data[3]),
        (None, None, data[4]),
    ]


@pytest.mark.parametrize("schema", ["a int, b string", "a int, b string, other map<string,int>"])
def test_packed_json_that_is_left_to_spark_does_not_count_as_corrupt(session: Any, schema: str) -> None:
    opener = payloads(schema=schema, compression="gzip")
    opener.prepare(session)
    texts = [b'{"a":1}', b'{"b":2}', b"[]", b'{"b":"\\ud83d"}']
    assert opener.open([batch_of(map(gzip.compress, texts))]).corrupt == 2


def test_a_null_payload_is_null_everywhere() -> None:
    from fastkcl import decode_line

    line = b'{"action":"processRecords","records":[{"data":null,"partitionKey":"k","sequenceNumber":"7"}]}'
    message = decode_line(line)
    opener = payloads("binary", compression="gzip")
    opener.prepare(TableSession())  # type: ignore[arg-type]
    (row,) = opener.open([message.batch]).data_frame(TableSession()).to_pylist()  # type: ignore[arg-type, union-attr]
    assert (row["data"], row["_corrupt"], row["sequenceNumber"]) == (None, None, "7")


# Tables are cut by what is unpacked


class Writes:
    """Takes down tables and contexts; fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.tables: list[pa.Table] = []
        self.contexts: list[WriteContext] = []

    def __call__(self, df: Any, context: WriteContext) -> None:
        self.tables.append(df)
        self.contexts.append(context)
        if self.failures:
            self.failures -= 1
            raise OSError("no space left on device")


def test_a_table_is_no_larger_than_said_whatever_is_unpacked() -> None:
    data = [gzip.compress(bytes([number]) * 200_000, 1) for number in range(40)]
    opener = payloads("binary", compression="gzip", max_bytes=MIB, max_table_bytes=4 * MIB)
    opener.prepare(TableSession())  # type: ignore[arg-type]
    batches = [batch_of(data[:3]), batch_of(data[3:])]
    opened = opener.open(batches)
    assert opened.num_rows == 5
    assert 5 * 200_000 < opened.nbytes <= MIB
    assert opener.open_all(batches).num_rows == 40
    assert opener.open([batch_of([gzip.compress(bytes(3 * MIB)), data[0]])]).num_rows == 1


@pytest.mark.parametrize("dialect", ["modern", "legacy"])
def test_a_run_is_parted_between_records_and_each_is_written_once(dialect: str) -> None:
    data = [gzip.compress(bytes([number]) * 200_000, 1) for number in range(40)]
    # in the legacy dialect, records 10 to 29 are of one aggregate: 4 MB that must stay together
    numbers = [100 if dialect == "legacy" and 10 <= number < 30 else number + 1 for number in range(40)]
    numbers = sorted(numbers) if dialect == "modern" else [*range(1, 11), *[100] * 20, *range(101, 111)]
    writes, checkpointer = Writes(failures=1), FakeCheckpointer()
    made = SparkProcessor(
        writes,
        spark=TableSession(),  # type: ignore[arg-type]
        compression="gzip",
        max_bytes=MIB,
        max_table_bytes=4 * MIB,
        max_held_bytes=64 * MIB,
        report_interval=None,
    )
    made.initialize(shard_context(dialect=dialect))
    made.process_batch(record_batch(numbers, data=data, dialect=dialect), checkpointer)
    with pytest.raises(OSError, match="no space left"):
        made.shard_ended(checkpointer)
    made.shard_ended(checkpointer)
    first, *rest = writes.tables
    assert first.equals(rest[0])  # a retry writes the same
    written = pa.concat_tables(rest)
    assert [row[:1] for row in written["data"].to_pylist()] == [bytes([number]) for number in range(40)]
    assert written["_corrupt"].null_count == 40
    sizes = [table.num_rows for table in rest]
    assert sizes == ([5] * 8 if dialect == "modern" else [5, 5, 20, 5, 5])
    for table, context in zip(rest, writes.contexts[1:], strict=True):
        assert context.rows == table.num_rows
        assert context.bytes == table.nbytes
        assert context.first_position.sequence_number == table["sequenceNumber"][0].as_py()
        assert context.last_position.sequence_number == table["sequenceNumber"][-1].as_py()
    assert checkpointer.stored == [None]


def test_dead_letters_hold_payloads_as_they_came() -> None:
    data = [PACKED, b"plain"]
    made = SparkProcessor(
        Writes(failures=1),
        spark=TableSession(),  # type: ignore[arg-type]
        compression="auto",
        report_interval=None,
    )
    made.initialize(shard_context())
    made.process_batch(record_batch([1, 2], data=data), FakeCheckpointer())
    with pytest.raises(OSError, match="no space left"):
        made.shard_ended(FakeCheckpointer())
    (given_up,) = made.give_up(None)
    assert [record.data for record in given_up] == data
    made.run_ended()


def test_more_than_a_message_of_connect_unpacks_from_one_line(given: Any) -> None:
    rows: list[int] = []
    sizes: list[int] = []

    def write(df: Any, context: WriteContext) -> None:
        rows.append(df.where(f"length(data) = {4 * MIB} AND _corrupt IS NULL").count())
        sizes.append(context.bytes)

    made = SparkProcessor(write, spark=given, compression="gzip", report_interval=None)
    made.initialize(shard_context())
    packed = gzip.compress(bytes(4 * MIB), 1)
    made.process_batch(batch_of([packed] * 33), FakeCheckpointer())
    made.shard_ended(FakeCheckpointer())
    assert sum(sizes) > 128 * MIB  # which is what Connect refuses as one table
    assert max(sizes) < 16 * MIB
    assert sum(rows) == 33


# A subscription of CloudWatch Logs, as in docs/typed-payloads.md

LOGS = (
    "messageType string, owner string, logGroup string, logStream string,"
    " logEvents array<struct<id: string, timestamp: bigint, message: string>>"
)


def events(df: Any) -> Any:
    return (
        df.where("messageType = 'DATA_MESSAGE' OR _corrupt IS NOT NULL")
        .selectExpr("logGroup", "explode_outer(logEvents) AS event", "sequenceNumber", "subSequenceNumber", "_corrupt")
        .selectExpr(
            "logGroup",
            "timestamp_millis(event.timestamp) AS at",
            "event.message",
            "sequenceNumber",
            "subSequenceNumber",
            "_corrupt",
        )
    )


def test_a_subscription_of_cloudwatch_logs_becomes_events(given: Any, tmp_path: Path) -> None:
    control = {"messageType": "CONTROL_MESSAGE", "owner": "CloudwatchLogs", "logGroup": "", "logStream": ""}
    control |= {"subscriptionFilters": [], "logEvents": [{"id": "", "timestamp": 1, "message": "CWL CONTROL MESSAGE"}]}
    data = PROFILES["logs"].payloads(3)
    broken = data[0][:-20]
    sink = ParquetSink(tmp_path, transform=events)
    made = SparkProcessor(
        sink, spark=given, payload="json", schema=LOGS, compression="gzip", report_interval=None, checkpoint_interval=0
    )
    made.initialize(shard_context())
    checkpointer = FakeCheckpointer()
    made.process_batch(batch_of([gzip.compress(json.dumps(control).encode()), *data, broken]), checkpointer)
    made.shard_ended(checkpointer)
    rows = pq.read_table(tmp_path, columns=["at", "message", "sequenceNumber", "_corrupt"]).to_pylist()
    expected = [
        (event["timestamp"], event["message"], str(number))
        for number, payload in enumerate(data, 2)
        for event in json.loads(gzip.decompress(payload))["logEvents"]
    ]
    found = [
        (round(row["at"].timestamp() * 1000), row["message"], row["sequenceNumber"])
        for row in rows
        if row["_corrupt"] is None
    ]
    assert sorted(found) == sorted(expected)
    assert [(row["sequenceNumber"], row["_corrupt"]) for row in rows if row["_corrupt"] is not None] == [("5", broken)]


@pytest.mark.parametrize("make_sink", [ParquetSink, DeltaSink])
def test_what_comes_again_is_dropped_before_it_is_typed(given: Any, tmp_path: Path, make_sink: Any) -> None:
    def child() -> SparkProcessor:
        made = SparkProcessor(
            make_sink(tmp_path), spark=given, payload="json", schema="n int, s string", report_interval=None
        )
        made.initialize(shard_context())
        return made

    data = [b'{"n":%d,"s":%d}' % (number, number) if number % 2 else b'{"n":%d}' % number for number in range(6)]
    batch = batch_of(data)
    for part in (batch.slice(0, 3), batch):
        made = child()
        made.process_batch(part, FakeCheckpointer())
        made.shard_ended(FakeCheckpointer())
    table = delta_rows(tmp_path) if make_sink is DeltaSink else pq.read_table(tmp_path)
    rows = table.select(["n", "s", "sequenceNumber"]).sort_by("n").to_pylist()
    assert [(row["n"], row["s"], row["sequenceNumber"]) for row in rows] == [
        (number, str(number) if number % 2 else None, str(number + 1)) for number in range(6)
    ]
