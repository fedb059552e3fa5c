"""The keys that a daemon knows, their spellings, and their valid values."""

from __future__ import annotations

import pytest
from fastkcl.daemon.keys import Generation, all_keys, collapse, find_key, suggest

KCL_3, KCL_1_15, KCL_1_7 = Generation.KCL_3, Generation.KCL_1_15, Generation.KCL_1_7

# What somebody writes, and the daemon's spelling.
SPELLINGS = [
    (KCL_3, "failoverTimeMillis", "failoverTimeMillis"),
    (KCL_3, "failover-time-millis", "failoverTimeMillis"),
    (KCL_3, "failover_time_millis", "failoverTimeMillis"),
    (KCL_3, "FAILOVER_TIME_MILLIS", "failoverTimeMillis"),
    (KCL_3, "FailoverTimeMillis", "failoverTimeMillis"),
    (KCL_3, "dynamo-db-endpoint", "dynamoDBEndpoint"),
    (KCL_3, "DYNAMODB_ENDPOINT", "dynamoDBEndpoint"),
    (KCL_3, "CALL_PROCESS_RECORDS_EVENFOR_EMPTY_RECORD_LIST", "callProcessRecordsEvenForEmptyRecordList"),
    (KCL_3, "AWSCredentialsProvider", "awsCredentialsProvider"),
    (KCL_1_7, "awsCredentialsProvider", "AWSCredentialsProvider"),
    (KCL_1_7, "KINESIS_CREDENTIALS_PROVIDER", "AWSCredentialsProvider"),
    (KCL_3, "dynamoDBCredentialsProvider", "awsCredentialsProviderDynamoDB"),
    (KCL_3, "fanout-config.consumer-arn", "fanoutConfig.consumerArn"),
    (KCL_3, "cloudWatchClient.endpointOverride", "cloudWatchClient.endpointOverride"),
    (KCL_3, "cloud-watch-client.endpoint-override", "cloudWatchClient.endpointOverride"),
    (KCL_3, "kinesisClient.overrideConfiguration.apiCallTimeout", "kinesisClient.overrideConfiguration.apiCallTimeout"),
    (KCL_3, "MIGRATE_ALL_ENTITIES_TO_LEASE_TABLE", "migrateAllEntitiesToLeaseTable"),
    (KCL_3, "lease-table-scan-total-segments", "leaseTableScanTotalSegments"),
    (KCL_3, "tableMigrationCompleteBakeTimeSeconds", "tableMigrationCompleteBakeTimeSeconds"),
    (KCL_1_15, "migrateAllEntitiesToLeaseTable", None),
    (KCL_3, "timestampAtInitialPositionInStream", None),
    (KCL_1_15, "timestampAtInitialPositionInStream", "timestampAtInitialPositionInStream"),
    (KCL_1_7, "timestampAtInitialPositionInStream", None),
    (KCL_1_7, "shutdownGraceMillis", None),
    (KCL_1_7, "cloudWatchClient.endpointOverride", None),
    (KCL_3, "failoverTimeMilis", None),
    (KCL_3, "PATH", None),
    (KCL_3, "kinesisClient.", None),
]


@pytest.mark.parametrize(("generation", "written", "name"), SPELLINGS)
def test_any_spelling(generation: Generation, written: str, name: str | None) -> None:
    key = find_key(generation, written)
    assert (key and key.name) == name


@pytest.mark.parametrize(
    ("generation", "written", "meant"),
    [
        (KCL_3, "failoverTimeMilis", "failoverTimeMillis"),
        (KCL_3, "max-record", "maxRecords"),
        (KCL_3, "skipShardSyncAtStartupIfLeasesExist", "skipShardSyncAtWorkerInitializationIfLeasesExist"),
        (KCL_1_15, "initialPositionInStreamExtended", "timestampAtInitialPositionInStream"),
        (KCL_3, "colour", None),
    ],
)
def test_what_was_meant(generation: Generation, written: str, meant: str | None) -> None:
    assert suggest(generation, written) == meant


@pytest.mark.parametrize(
    ("name", "value", "normal"),
    [
        ("maxRecords", " 500 ", "500"),
        ("maxRecords", "1e3", None),
        ("maxRecords", "10000L", None),
        ("workerMetricsEMAAlpha", "0.5", "0.5"),
        ("workerMetricsEMAAlpha", "half", None),
        ("cleanupLeasesUponShardCompletion", "Yes", "true"),
        ("cleanupLeasesUponShardCompletion", "0", "false"),
        ("cleanupLeasesUponShardCompletion", "maybe", None),
        ("initialPositionInStream", "trim_horizon", "TRIM_HORIZON"),
        ("initialPositionInStream", "OLDEST", None),
        ("initialPositionInStreamExtended", "1700000000", "1700000000"),
        ("initialPositionInStreamExtended", "2023-11-14", None),
        ("staleWorkerMetricsEntryCleanupDuration", "PT1H", "PT1H"),
        ("staleWorkerMetricsEntryCleanupDuration", "1h", None),
        ("metricsEnabledDimensions", "Operation,ShardId", "Operation,ShardId"),
        ("streamName", " s ", " s "),
    ],
)
def test_values(name: str, value: str, normal: str | None) -> None:
    key = find_key(KCL_3, name)
    assert key is not None
    if normal is not None:
        assert key.normalize(value) == normal
        return
    with pytest.raises(ValueError, match="^must be .*, not "):
        key.normalize(value)


PHASE_1 = "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"


@pytest.mark.parametrize(
    ("name", "value", "version", "first"),
    [
        ("migrateAllEntitiesToLeaseTable", "true", "3.1.3", "3.5.0"),
        ("migrateAllEntitiesToLeaseTable", "true", "3.4.10", "3.5.0"),
        ("migrateAllEntitiesToLeaseTable", "true", "3.5.0", None),
        ("migrateAllEntitiesToLeaseTable", "true", "3.10.0", None),
        ("clientVersionConfig", PHASE_1, "3.1.3", "3.5.0"),
        ("clientVersionConfig", PHASE_1, "3.5.3", None),
        ("clientVersionConfig", PHASE_1.removesuffix("_PHASE1"), "3.1.3", None),
        ("maxRecords", "5", "2.6.1", None),
    ],
)
def test_what_only_later_releases_know(name: str, value: str, version: str, first: str | None) -> None:
    key = find_key(KCL_3, name)
    assert key is not None
    assert key.later_than(version, key.normalize(value)) == first


@pytest.mark.parametrize("generation", Generation)
def test_no_two_keys_of_a_generation_are_one_in_another_spelling(generation: Generation) -> None:
    names = [collapse(key.name) for key in all_keys(generation)]
    assert len(names) == len(set(names))
    assert {"streamname", "applicationname", "executablename", "awscredentialsprovider"} <= set(names)
