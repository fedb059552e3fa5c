"""The source's figures for Prometheus: from progress events to a file for each source of a query."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from fastkcl.local_aws import LocalAws
from fastkcl.spark.source import SourceListener
from local_aws_helpers import client, make_stream
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_until

RUN, ID = uuid4(), uuid4()
SAID: dict[str, Any] = {
    "behindMs": 1500,
    "slowest": "orders/shardId-000000000001",
    "shards": 2,
    "throttled": 3,
    "outages": 1,
    "calls": {"GetRecords": 10, "ListShards": 1},
    "at": 1763812345000,
}


def progress(*latest: Any, rows: int = 7, run: UUID = RUN, name: str | None = "orders") -> Any:
    """An event as PySpark makes it: what the source says is JSON."""
    sources = [
        SimpleNamespace(latestOffset=said if isinstance(said, str) else json.dumps(said), numInputRows=rows)
        for said in latest
    ]
    return SimpleNamespace(progress=SimpleNamespace(id=ID, runId=run, name=name, sources=sources))


def ended(run: UUID = RUN) -> Any:
    return SimpleNamespace(id=ID, runId=run, exception=None)


def values_in(file: Path) -> dict[str, float]:
    """Names without the prefix, as Prometheus' own parser reads them; each sample has its labels checked."""
    found = {}
    for family in text_string_to_metric_families(file.read_text()):
        for sample in family.samples:
            assert sample.labels["query"], sample
            found[sample.name.removeprefix("fastkcl_source_")] = sample.value
    return found


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[SourceListener]:
    made = SourceListener(metrics_dir=tmp_path, report_interval=0.05)
    yield made
    made.close()


def wait_for(file: Path, is_right: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    wait_until(lambda: file.exists() and is_right(values_in(file)), f"figures in {file.name}")
    return values_in(file)


def test_a_batch_is_reported(listener: SourceListener, tmp_path: Path) -> None:
    listener.onQueryProgress(progress(SAID))
    file = tmp_path / "fastkcl+orders+0.prom"
    values = wait_for(file, lambda values: bool(values))
    assert values.pop("last_batch_timestamp_seconds") <= values.pop("last_event_timestamp_seconds")
    values.pop("fastkcl_start_timestamp_seconds")
    assert values == {
        "batches_total": 1,
        "rows_total": 7,
        "behind_latest_seconds": 1.5,
        "slowest_shard_info": 1,
        "shards": 2,
        "throttled_calls_total": 3,
        "failed_calls_total": 1,
        "get_records_calls_total": 10,
        "get_shard_iterator_calls_total": 0,
        "list_shards_calls_total": 1,
        "describe_stream_summary_calls_total": 0,
    }
    text = file.read_text()
    assert 'slowest_shard_info{query="orders",source="0",shard="orders/shardId-000000000001"} 1' in text
    listener.onQueryTerminated(ended())
    assert not file.exists()


def test_calls_add_up_where_another_process_counts_from_0(listener: SourceListener, tmp_path: Path) -> None:
    for total in (10, 15, 4):
        listener.onQueryProgress(progress({**SAID, "calls": {"GetRecords": total}}))
    file = tmp_path / "fastkcl+orders+0.prom"
    values = wait_for(file, lambda values: values.get("batches_total") == 3)
    assert values["get_records_calls_total"] == 10 + 5 + 4


def test_each_source_of_each_query_has_a_file_as_long_as_it_runs(listener: SourceListener, tmp_path: Path) -> None:
    other = uuid4()
    listener.onQueryProgress(progress(SAID, {"partition": 7}, SAID))
    listener.onQueryProgress(progress(SAID, run=other, name=None))
    files = {f"fastkcl+orders+{number}.prom" for number in (0, 2)} | {f"fastkcl+{ID}+0.prom"}
    wait_until(lambda: {path.name for path in tmp_path.glob("*.prom")} == files, "three files")
    listener.onQueryTerminated(ended())
    assert {path.name for path in tmp_path.glob("*.prom")} == {f"fastkcl+{ID}+0.prom"}
    listener.onQueryTerminated(ended())
    listener.close()
    assert list(tmp_path.glob("*.prom")) == []


def test_an_idle_query_is_alive(listener: SourceListener, tmp_path: Path) -> None:
    listener.onQueryIdle(ended())  # before its first batch
    listener.onQueryProgress(progress(SAID))
    file = tmp_path / "fastkcl+orders+0.prom"
    before = wait_for(file, lambda values: bool(values))
    listener.onQueryIdle(ended(uuid4()))
    listener.onQueryIdle(ended())
    after = wait_for(
        file, lambda values: values["last_event_timestamp_seconds"] > before["last_event_timestamp_seconds"]
    )
    assert after["last_batch_timestamp_seconds"] == before["last_batch_timestamp_seconds"]


@pytest.mark.parametrize(
    "latest",
    [
        "null",
        "None",
        "{",
        '"x"',
        {"topic": {"0": 7}},
        {**SAID, "calls": 3},
        {**SAID, "calls": {"GetRecords": "3"}},
        {**SAID, "behindMs": None},
        {**SAID, "throttled": -1},
        {**SAID, "slowest": 3},
    ],
)
def test_what_is_not_ours_changes_nothing(listener: SourceListener, tmp_path: Path, latest: Any) -> None:
    listener.onQueryProgress(progress(latest))
    listener.onQueryProgress(progress(SAID))
    listener.onQueryProgress(progress(latest))
    listener.onQueryProgress(progress(SAID))
    wait_for(tmp_path / "fastkcl+orders+0.prom", lambda values: values.get("batches_total") == 2)


def test_a_listener_that_would_report_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTKCL_METRICS_DIR", raising=False)
    with pytest.raises(ValueError, match="give metrics_dir, or set FASTKCL_METRICS_DIR"):
        SourceListener()
    with pytest.raises(ValueError, match="not a name of a label"):
        SourceListener(metrics_dir=tmp_path, labels={"a-b": "c"})
    monkeypatch.setenv("FASTKCL_METRICS_DIR", str(tmp_path))
    SourceListener().close()


@pytest.mark.needs_pyspark("4.2")
@pytest.mark.parametrize("way", ["connect"])
def test_a_query_over_connect_is_reported_while_it_runs(
    session: Any, aws: LocalAws, tmp_path: Path, listener: SourceListener, connect_mode: None
) -> None:
    """In a classic session the JVM calls back into Python: tests/system/test_source_submitted.py has a JVM for it."""
    stream = make_stream(aws, 2)
    client(aws).put_records(
        StreamName=stream, Records=[{"Data": b"x", "PartitionKey": str(number)} for number in range(20)]
    )
    reader = session.readStream.format("kinesis").options(streamName=stream, endpoint=aws.url, region="us-east-1")
    writer = reader.option("initialPosition", "trim_horizon").load().writeStream.format("noop")
    session.streams.addListener(listener)
    try:
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).queryName(stream).start()
        try:
            file = tmp_path / f"fastkcl+{stream}+0.prom"
            values = wait_for(file, lambda values: values.get("rows_total") == 20)
            assert f'shard="{stream}/shardId-' in file.read_text()
        finally:
            query.stop()
        assert values["shards"] == 2
        assert values["get_records_calls_total"] >= 2
        wait_until(lambda: not file.exists(), "the end of the file")
    finally:
        session.streams.removeListener(listener)
