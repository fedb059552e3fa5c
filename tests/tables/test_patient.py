"""A table whose storage is away for a while: the calls that are made again, those that are not, and the end."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from fastkcl import Position
from fastkcl.kinesis import MemoryCheckPointer, run_processors
from fastkcl.local_aws import LocalAws
from fastkcl.tables import Shard, SinkError, WriteCancelledError
from fastkcl.tables.patient import DEFAULT_PATIENCE, PatientProcessor, PatientTable
from fastkcl.tables.rows import ShardRows
from fastkcl.tables.store import StoreError
from local_aws_helpers import make_stream
from sink_helpers import SHARD
from table_helpers import arrived, as_they_are


class Away:
    """A table whose next calls fail, before they do something or after.

    Args:
        failures: of the next calls of `append` and `open`; None for a call that succeeds.
        stores: whether an append that fails has stored its rows all the same.
    """

    url = "s3://lake/clicks"

    def __init__(self, *failures: Exception | None, stores: bool = False) -> None:
        self.failures = list(failures)
        self.stores = stores
        self.position: Position | None = None
        self.appended: list[tuple[str, str]] = []

    def open(self, shard: Shard) -> Position | None:
        self._fail()
        return self.position

    def append(self, rows: ShardRows, make: Callable[[ShardRows], pa.Table]) -> Position:
        if not self.failures or self.failures[0] is None or self.stores:
            self.appended.append((rows.first_position.sequence_number, rows.last_position.sequence_number))
            self.position = rows.last_position
        self._fail()
        return rows.last_position

    def give_up(self, upto: Position) -> None:
        self.position = upto

    def gone_on(self) -> bool:
        return False

    def given_up(self) -> Position | None:
        return self.position

    def _fail(self) -> None:
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure


class Clock:
    """Sleeping takes no time."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def patient(
    table: Away, clock: Clock, patience: float = 3600.0, stopping: threading.Event | None = None
) -> PatientTable:
    return PatientTable(
        table, stopping=stopping or threading.Event(), patience=patience, clock=lambda: clock.now, sleep=clock.sleep
    )


AWAY = StoreError("PUT s3://lake/clicks/a: is the store reachable?")


def test_an_outage_is_waited_out(caplog: pytest.LogCaptureFixture) -> None:
    clock, table = Clock(), Away(AWAY, AWAY, None, AWAY, AWAY, AWAY, None)
    waiting = patient(table, clock)
    assert waiting.open(SHARD) is None
    assert waiting.append(arrived([1, 2]), as_they_are) == Position("2", 0)
    assert table.appended == [("1", "2")]
    assert clock.now == pytest.approx(1 + 2 + 1 + 2 + 4)
    assert "shardId-000000000000: a write to s3://lake/clicks failed, again in 4 s: StoreError" in caplog.text


def test_an_outage_of_hours_is_asked_after_each_30_s_for_a_day(caplog: pytest.LogCaptureFixture) -> None:
    assert DEFAULT_PATIENCE == 24 * 3600
    clock, table = Clock(), Away(None, *[AWAY] * 5000)
    waiting = patient(table, clock, DEFAULT_PATIENCE)
    waiting.open(SHARD)
    with pytest.raises(StoreError):
        waiting.append(arrived([1]), as_they_are)
    assert clock.now == pytest.approx(DEFAULT_PATIENCE)
    pauses = [int(found) for found in re.findall(r"failed, again in (\d+) s", caplog.text)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 30]
    assert set(pauses[5:-1]) == {30}


def test_what_a_lost_answer_has_stored_is_not_written_again() -> None:
    table = Away(None, AWAY, stores=True)
    waiting = patient(table, Clock())
    waiting.open(SHARD)
    assert waiting.append(arrived([1, 2]), as_they_are) == Position("2", 0)
    assert table.appended == [("1", "2")]


def test_another_writer_has_stored_a_part_meanwhile() -> None:
    table = Away(None, AWAY)
    waiting = patient(table, Clock())
    waiting.open(SHARD)
    table.position = Position("1", 0)
    assert waiting.append(arrived([1, 2]), as_they_are) == Position("2", 0)
    assert table.appended == [("2", "2")]


@pytest.mark.parametrize("error", [SinkError("is another table now"), TypeError("a mistake")])
def test_other_errors_are_raised_at_once(error: Exception) -> None:
    clock, table = Clock(), Away(None, error)
    waiting = patient(table, clock)
    waiting.open(SHARD)
    with pytest.raises(type(error)):
        waiting.append(arrived([1]), as_they_are)
    assert clock.now == 0


def test_its_patience_has_an_end() -> None:
    clock, table = Clock(), Away(*[AWAY] * 1000)
    with pytest.raises(StoreError):
        patient(table, clock, patience=100.0).open(SHARD)
    assert clock.now == pytest.approx(100.0)
    with pytest.raises(StoreError):
        patient(table, clock, patience=0.0).open(SHARD)
    assert clock.now == pytest.approx(100.0)


def test_rows_that_are_not_wanted_any_more_are_left() -> None:
    clock, table = Clock(), Away(None, *[AWAY] * 1000)
    waiting = patient(table, clock)
    waiting.open(SHARD)
    rows = ShardRows(arrived([1]).batches, legacy=False, cancelled=lambda: clock.now > 50)
    with pytest.raises(WriteCancelledError):
        waiting.append(rows, as_they_are)
    assert clock.now < 52


def test_a_worker_that_is_to_stop_opens_nothing_more() -> None:
    clock, stopping = Clock(), threading.Event()
    stopping.set()
    with pytest.raises(StoreError):
        patient(Away(AWAY), clock, stopping=stopping).open(SHARD)
    assert clock.now == 0


def test_notes_go_to_the_table() -> None:
    table = Away()
    patient(table, Clock()).give_up(Position("3", 0))
    assert patient(table, Clock()).given_up() == Position("3", 0)


def read_to_the_tip(
    aws: LocalAws, table: Away, stopping: threading.Event, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> PatientProcessor:
    """A run that ends by itself, over a shard of three records; its processor."""
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    stream = make_stream(aws, 1)
    records = [{"Data": b"a", "PartitionKey": "k"} for _ in range(3)]
    aws.client("kinesis").put_records(StreamName=stream, Records=records)
    options = {"patience": 60.0, "report_interval": None, **options}
    waiting = PatientTable(table, stopping=stopping, patience=60.0, sleep=lambda _: None)
    processor = PatientProcessor(waiting, stopping=stopping, **options)
    asyncio.run(
        run_processors(
            stream,
            lambda: processor,
            checkpointer=MemoryCheckPointer(),
            endpoint_url=aws.url,
            region_name="us-east-1",
            stop_at_tip=True,
        )
    )
    return processor


def test_a_run_that_ends_by_itself_waits_for_the_store(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Away(None, AWAY, AWAY, None, AWAY)
    processor = read_to_the_tip(aws, table, threading.Event(), monkeypatch)
    assert len(table.appended) == 1
    values = processor.monitor.metrics.to_dict()
    assert (values["written_records"], values["write_failures"]) == (3, 3)


class Hangs(Away):
    """A table whose appends wait for `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def append(self, rows: ShardRows, make: Callable[[ShardRows], pa.Table]) -> Position:
        assert self.go.wait(60)
        return super().append(rows, make)


def test_a_run_that_ends_by_itself_without_its_store_fails(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Hangs()
    try:
        with pytest.raises(TimeoutError, match=r"3 records were not written to s3://lake/clicks within 1 s"):
            read_to_the_tip(aws, table, threading.Event(), monkeypatch, patience=1.0)
    finally:
        table.go.set()


def test_after_a_signal_an_end_waits_for_shutdown_grace(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table, stopping = Hangs(), threading.Event()
    signal = threading.Timer(1.0, stopping.set)
    signal.start()
    try:
        read_to_the_tip(aws, table, stopping, monkeypatch, shutdown_grace=0.2)
    finally:
        table.go.set()
        signal.join()
    assert "3 records were not written within the 0.2 s of shutdown_grace" in caplog.text
