"""docs/migrating-to-the-source.md: each row of its tables is true."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

import pytest
from fastkcl.spark.source.options import OPTIONS, OptionError, SourceOptions
from paths import ROOT

PAGE = (ROOT / "docs" / "migrating-to-the-source.md").read_text()
AWSLABS = {
    *("streamName", "region", "kinesisRegion", "endpointUrl", "startingPosition", "failOnDataLoss"),
    *("maxFetchRecordsPerShard", "maxFetchTimePerShardSec", "describeShardInterval", "minBatchesToRetain"),
    *("checkNewRecordThreads", "metadataCommitterType", "metadataPath", "metadataNumRetries"),
    *("metadataRetryIntervalsMs", "metadataMaxRetryIntervalMs", "clientNumRetries", "clientRetryIntervalsMs"),
    *("clientMaxRetryIntervalMs", "consumerType", "consumerName", "stsRoleArn", "stsSessionName", "stsEndpointUrl"),
    *("awsAccessKeyId", "awsSecretKey", "sessionToken", "credentialProviderClass", "credentialProviderParam"),
    *("dynamodb.tableName", "subscribeToShard.timeoutSec", "subscribeToShard.maxRetries"),
    *("getRecords.numberOfRecordsPerFetch", "getRecords.fetchIntervalMs", "internal.avoidEmptyBatches"),
    *("internal.dataQueueCapacity", "internal.maxDataQueueEmptyCount", "internal.dataQueueWaitTimeoutSec"),
    *("internal.maintenanceTaskIntervalSec", "proxyAddress", "proxyPort", "proxyUsername", "proxyPassword"),
}
"""Of its README and its KinesisOptions.scala, without ``kinesis.`` and without the sink's."""
DATABRICKS = {
    *("streamName", "streamARN", "region", "endpoint", "initialPosition", "consumerMode", "consumerName"),
    *("consumerNamePrefix", "consumerRefreshInterval", "registeredConsumerId", "registeredConsumerIdType"),
    *("requireConsumerDeregistration", "fetchBufferSize", "maxFetchDuration", "maxFetchRate", "minFetchPeriod"),
    *("maxRecordsPerFetch", "shardsPerTask", "maxPartitions", "shardFetchInterval", "maxShardsPerDescribe"),
    *("coalesceThresholdBlockSize", "coalesce", "coalesceBinSize", "clientRetries", "serviceCredential"),
    *("roleArn", "roleExternalId", "roleSessionName", "stsEndpoint", "awsAccessKey", "awsSecretKey"),
}
"""Of its reference of the Kinesis source and of ``read_kinesis``."""
SECRET = ("Key", "KeyId", "Token", "Password")


@dataclass(frozen=True)
class Row:
    table: str
    option: str
    value: str
    kind: str
    new: str | None


def rows() -> list[Row]:
    found = []
    for heading, text in re.findall(r"(?ms)^## Coming from (.+?)$(.+?)(?=^## |\Z)", PAGE):
        for line in text.splitlines():
            if line.startswith("| `"):
                cells = [cell.strip() for cell in line.strip("|").split(" | ")]
                kind, _, new = cells[2].partition(": ")
                found.append(Row(heading, cells[0].strip("`"), cells[1].strip("`"), kind, new.strip("`") or None))
    return found


ROWS = rows()


def short(name: str) -> str:
    return name.removeprefix("kinesis.")


def given(row: Row) -> dict[str, str]:
    """A query's options, with this one and no other name of the stream than it has."""
    base = {} if short(row.option) in ("streamName", "streamARN") else {"streamName": "orders"}
    return {**base, row.option: row.value}


@pytest.mark.parametrize(
    ("table", "expected"), [("awslabs' connector", AWSLABS), ("Databricks", DATABRICKS)], ids=["awslabs", "Databricks"]
)
def test_each_option_has_a_row(table: str, expected: set[str]) -> None:
    options = [short(row.option) for row in ROWS if row.table == table]
    assert len(options) == len(set(options))
    assert set(options) == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.table.split()[-1]} {row.option}")
def test_a_row_is_true(row: Row, caplog: pytest.LogCaptureFixture) -> None:
    name = short(row.option)
    caplog.set_level(logging.INFO, "fastkcl.spark.source")
    if row.kind == "refused":
        with pytest.raises(OptionError, match=rf"^option {re.escape(row.option)} is refused, .{{20,}}") as error:
            SourceOptions.parse(given(row))
        assert row.value not in str(error.value) or not name.endswith(SECRET)
        return
    parsed = SourceOptions.parse(given(row))
    said = [record.getMessage() for record in caplog.records]
    if row.kind == "ignored":
        assert said == [f"option {row.option} is ignored: the source has no use for it"]
        assert parsed == SourceOptions.parse({"streamName": "orders"})
        return
    assert said == []
    if name in ("consumerType", "consumerMode"):
        assert row.kind == "same"
        assert parsed["consumerMode"] == "polling"
        return
    ours = row.new or name
    (option,) = [option for option in OPTIONS if option.name == ours]
    assert row.kind == ("same" if name == ours else "renamed")
    assert parsed[ours] == option.parse(row.value)
    del (same := given(row))[row.option]
    assert SourceOptions.parse({**same, ours: row.value}) == parsed


def test_the_words_of_the_page_are_those_of_its_rows() -> None:
    assert {row.kind for row in ROWS} == {"same", "renamed", "ignored", "refused"}
    assert len(ROWS) == len(AWSLABS) + len(DATABRICKS)


@pytest.mark.parametrize(("option", "value"), [("kinesis.consumerType", "SubscribeToShard"), ("consumerMode", "efo")])
def test_fan_out_is_refused(option: str, value: str) -> None:
    with pytest.raises(OptionError, match="streams are read by polling"):
        SourceOptions.parse({"streamName": "orders", option: value})


def test_a_time_with_a_format_is_refused() -> None:
    with pytest.raises(OptionError, match="must not have a format"):
        SourceOptions.parse(
            {"streamName": "orders", "initialPosition": '{"at_timestamp": "06/25/2026", "format": "MM/dd/yyyy"}'}
        )
