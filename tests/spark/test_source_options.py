"""The options of the source, without Spark."""

from __future__ import annotations

import logging
import pickle
import re
import subprocess
import sys
from typing import Any

import pytest
from fastkcl.kinesis.access import Access
from fastkcl.kinesis.read.plan import TRIM, PlanOptions, Position
from fastkcl.spark.source.options import IGNORED, OPTIONS, REFUSED, OptionError, SourceOptions
from fastkcl.spark.source.ways import check_way
from paths import ROOT
from pyspark_fastkcl_kinesis import DefaultSource

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
SOURCE_PAGE = (ROOT / "docs" / "spark-source.md").read_text()


def parsed(**options: str) -> SourceOptions:
    return SourceOptions.parse({"streamName": "orders", **options})


def test_the_defaults() -> None:
    options = parsed()
    assert options.streams == ("orders",)
    assert options.access == Access()
    assert options.plan_options() == PlanOptions(streams=("orders",))
    assert options.columns == (
        *("data", "stream", "partitionKey", "sequenceNumber", "subSequenceNumber"),
        *("approximateArrivalTimestamp", "shardId"),
    )
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_name_of_an_option_is_the_option(option: Any) -> None:
    value = {
        "streamName": "a,b",
        "streamARN": ARN,
        "consumerMode": "polling",
        "initialPosition": "earliest",
        "failOnDataLoss": "FALSE",
        "deaggregate": "false",
        "columns": "data,shardId",
        "credentials": "m.n:f",
        "shardFetchInterval": "1000",
        "payload": "json",
        "compression": "gzip",
        "framing": "glue",
        "keepPayload": "true",
        "casts": "at=string, span.length=drop",
        "startingTimestamp": "2026-11-21T08:00:00Z",
        "endingTimestamp": "1700000000000",
    }.get(option.name, "999")
    given = {} if option.name in ("streamName", "streamARN") else {"streamName": "orders"}
    expected = option.parse(value)
    for name in (option.name, *option.aliases):
        for spelled in (name, name.lower(), name.upper(), f"kinesis.{name}"):
            assert SourceOptions.parse({**given, spelled: value})[option.name] == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("initialPosition", "latest", None),
        ("initialPosition", "TRIM_HORIZON", TRIM),
        ("initialPosition", "earliest", TRIM),
        ("initialPosition", '{"at_timestamp": "2026-11-21T08:00:00Z"}', Position.since(1795248000000)),
        ("initialPosition", "AT_TIMESTAMP 2026-11-21T09:00:00+01:00", Position.since(1795248000000)),
        ("initialPosition", "at_timestamp 1795248000000", Position.since(1795248000000)),
        ("maxSlice", "5m", 300_000),
        ("maxSlice", "90 s", 90_000),
        ("minFetchPeriod", "200", 200),
        ("shardFetchInterval", "1h", 3_600_000),
        ("inlineBytes", "0", 0),
        ("maxBytesPerTrigger", "1g", 1 << 30),
        ("maxBytesPerTrigger", "100MB", 100 << 20),
        ("columns", "SHARDID, data", ("data", "shardId")),
        ("maxRecordsPerTrigger", "10", 10),
    ],
)
def test_values(name: str, value: str, expected: object) -> None:
    assert parsed(**{name: value})[name] == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "name the stream"),
        ({"streamName": "a", "streamARN": ARN}, "name the stream"),
        ({"streamName": "a,a"}, "named once"),
        ({"streamName": " "}, "must have a name"),
        ({"streamName": "a/b"}, "not a name of a stream"),
        ({"streamARN": "orders"}, "not an ARN of a stream"),
        ({"streamName": "a", "initialPosition": "AT_TIMESTAMP"}, "must be latest"),
        ({"streamName": "a", "initialPosition": "{"}, "at_timestamp"),
        ({"streamName": "a", "initialPosition": '{"at_timestamp": "1", "format": "x"}'}, "must not have a format"),
        ({"streamName": "a", "initialPosition": "AT_TIMESTAMP 2026-11-21T09:00:00"}, "time zone"),
        ({"streamName": "a", "initialPosition": "AT_TIMESTAMP 1960-01-01T00:00:00Z"}, "1970 or later"),
        ({"streamName": "a", "startingTimestamp": "1700000000"}, "milliseconds"),
        ({"streamName": "a", "endingTimestamp": "tomorrow"}, "ISO 8601"),
        ({"streamName": "a", "failOnDataLoss": "yes"}, "true or false"),
        ({"streamName": "a", "minFetchPeriod": "100ms"}, "200ms or more"),
        ({"streamName": "a", "maxSlice": "soon"}, "a time such as"),
        ({"streamName": "a", "inlineBytes": "-1"}, "a size such as"),
        ({"streamName": "a", "maxRecordsPerFetch": "10001"}, "1 to 10000"),
        ({"streamName": "a", "maxRecordsPerTrigger": "0"}, "1 or more"),
        ({"streamName": "a", "columns": "data,payload"}, "must be some of"),
        ({"streamName": "a", "credentials": "f"}, "module:function"),
        ({"streamName": "a", "payload": "csv"}, "binary or json or avro or protobuf"),
        ({"streamName": "a", "compression": "zstd"}, "none or gzip or auto"),
        ({"streamName": "a", "payload": "json", "columns": "data"}, "columns is for payload=binary"),
        ({"streamName": "a", "columns": "user,n", "payload": "AVRO"}, "columns is for payload=binary: with avro the"),
        ({"streamName": "a", "consumerMode": "efo"}, "polling"),
        ({"streamName": "a", "kinesis.consumerType": "SubscribeToShard"}, "polling"),
        ({"streamName": "a", "maxSlize": "5m"}, "did you mean maxSlice"),
        ({"streamName": "a", "zzz": "5m"}, "there is no option zzz"),
        ({"streamName": "a", "endpoint": "x", "endpointUrl": "y"}, "the same option"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        SourceOptions.parse(options)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("prefix", ["", "kinesis."])
def test_what_is_refused_is_not_repeated(name: str, prefix: str) -> None:
    with pytest.raises(OptionError, match=f"option {prefix}{name} is refused") as error:
        parsed(**{f"{prefix}{name}": "verysecret"})
    assert "verysecret" not in str(error.value)


@pytest.mark.parametrize("name", [pattern.replace("*", "X") for pattern in IGNORED])
def test_what_is_ignored_is_said(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert parsed(**{f"kinesis.{name}": "1"}) == parsed()
    assert [record.getMessage() for record in caplog.records] == [
        f"option kinesis.{name} is ignored: the source has no use for it"
    ]


@pytest.mark.parametrize("reader", ["reader", pytest.param("streamReader", marks=pytest.mark.needs_pyspark("4.2"))])
def test_what_is_ignored_stands_in_the_log_of_a_process_that_has_set_none(reader: str) -> None:
    program = (
        "from pyspark_fastkcl_kinesis import DefaultSource\n"
        f"DefaultSource({{'streamName': 's', 'avoidEmptyBatches': '1'}}).{reader}(None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert "option avoidEmptyBatches is ignored" in done.stderr


OF_THE_OTHER_WAY = [
    ("streamReader", "startingTimestamp", "2026-11-21T08:00:00Z", "initialPosition, such as AT_TIMESTAMP 2026"),
    ("streamReader", "kinesis.endingTimestamp", "2026-11-21T08:00:00Z", "filter on approximateArrivalTimestamp"),
    ("reader", "initialPosition", "latest", "spark.read begins at startingTimestamp, such as 2026"),
    ("reader", "startingPosition", "AT_TIMESTAMP 2026-11-21T08:00:00Z", "or at the oldest record"),
]


@pytest.mark.needs_pyspark("4.2")
@pytest.mark.parametrize(("reader", "name", "value", "said"), OF_THE_OTHER_WAY)
def test_an_option_of_the_other_way_that_changes_the_rows_is_refused(
    reader: str, name: str, value: str, said: str
) -> None:
    source = DefaultSource({"streamName": "orders", name: value})
    with pytest.raises(OptionError, match=f"^option {name} is for spark.*{said}"):
        getattr(source, reader)(source.schema()).initialOffset()  # a stream's reader says so when it is used


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.only == "readStream"], ids=lambda o: o.name)
def test_what_spark_read_has_no_use_for_is_said(option: Any, caplog: pytest.LogCaptureFixture) -> None:
    value = "earliest" if option.name == "initialPosition" else "1000"
    with caplog.at_level(logging.INFO):
        check_way(parsed(**{option.name: value}), "readStream")
        assert caplog.records == []
        check_way(parsed(**{option.name: value}), "read")
    said = [f"option {option.name} is ignored: spark.read has no use for it"]
    assert [record.getMessage() for record in caplog.records] == ([] if value == "earliest" else said)


def test_the_page_says_which_way_has_an_option() -> None:
    rows = re.findall(r"(?m)^\| ([\w, ]+) \|[^|]*\|[^|]*\| `(read|readStream)`: ", SOURCE_PAGE)
    found = {name: way for names, way in rows for name in names.split(", ")}
    assert found == {option.name: option.only for option in OPTIONS if option.only}


def test_an_arn_has_its_own_region() -> None:
    options = SourceOptions.parse({"streamARN": ARN})
    assert options.access_of(ARN).region == "eu-west-1"
    assert SourceOptions.parse({"streamARN": ARN, "region": "r"}).access_of(ARN).region == "r"
    assert parsed(region="x").access_of("orders").region == "x"
