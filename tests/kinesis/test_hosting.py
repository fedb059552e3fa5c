"""Processors over the consumer: their calls, their checkpoints, and a table that has each record once."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fastkcl import BatchProcessor, Checkpointer, CheckpointError, Position, RecordBatch, ShardContext
from fastkcl.kinesis import (
    CheckpointOwnershipConflict,
    KPLStringProcessor,
    MemoryCheckPointer,
    run_processors,
)
from fastkcl.kinesis.exceptions import AnswerTooLarge, StreamDoesNotExist
from fastkcl.kinesis.read import reading
from fastkcl.local_aws import Fault, LocalAws
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import ParquetSink
from kinesis_helpers import QUICK, numbered, open_shards, put, split
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from local_aws_helpers import SHARD_0, client, new_name, read
from paths import EXAMPLES
from sink_helpers import FakeSession, records_of
from waiting import until, wait_until

if TYPE_CHECKING:
    from spark_fixtures import SharedSpark

CHILD = "shardId-000000000001"


class Told(BatchProcessor):
    """Writes down what it is told, and does with the checkpointer what it is asked to."""

    def __init__(self, log: list[Any], act: Callable[[Told, RecordBatch, Checkpointer], None] | None = None) -> None:
        self.log = log
        self.act = act
        self.thread: int | None = None
        self.shard = ""

    def note(self, *what: object) -> None:
        assert self.thread in (None, threading.get_ident())
        self.thread = threading.get_ident()
        self.log.append((self.shard, *what))

    def initialize(self, context: ShardContext) -> None:
        self.shard = context.shard_id
        self.note("initialize", context.stream, context.sequence_number, context.sub_sequence_number)

    def process_batch(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if len(batch):
            self.note("batch", [record.data for record in batch])
        if self.act is not None:
            self.act(self, batch, checkpointer)

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        self.note("ended")
        super().shard_ended(checkpointer)

    def lease_lost(self) -> None:
        self.note("lost")

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        self.note("shutdown")

    def run_ended(self) -> None:
        self.note("over")


def run(stream: str, make: Callable[[], BatchProcessor], **options: Any) -> None:
    """Run them to the end; no thread and no task is left."""

    async def main() -> None:
        try:
            await run_processors(stream, make, **{"checkpointer": MemoryCheckPointer(), **QUICK, **options})
        finally:
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("shardId")]


def run_until(
    condition: Callable[[], bool],
    what: str,
    log: list[Any],
    stream: str,
    make: Callable[[], BatchProcessor],
    **options: Any,
) -> None:
    """Run them until the log says enough; then they are stopped."""

    async def main() -> None:
        stop = asyncio.Event()
        options_of_run = {"checkpointer": MemoryCheckPointer(), **QUICK, "idle_timeout": None, **options}
        running = asyncio.create_task(run_processors(stream, make, stop=stop, **options_of_run))
        await until(lambda: condition() or running.done(), what, seen=lambda: log)
        stop.set()
        await running
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("shardId")]


def names(log: list[Any], shard_id: str = SHARD_0) -> list[str]:
    """What the processors of a shard were told."""
    return [entry[1] for entry in log if entry[0] == shard_id]


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that has become free is allocated soon."""
    monkeypatch.setattr(reading, "ALLOCATE_SECONDS", 0.05)


def texts(aws: LocalAws, stream: str, *data: str) -> None:
    client(aws).put_records(StreamName=stream, Records=[{"Data": each.encode(), "PartitionKey": "k"} for each in data])


def test_it_does_not_end_before_the_tip(aws: LocalAws, stream: str, caplog: pytest.LogCaptureFixture) -> None:
    """The shard is asked once a second for one record, and waits for each longer than the run's idle_timeout."""
    caplog.set_level("INFO", "fastkcl")
    put(aws, stream, numbered(1, 3))
    log: list[Any] = []
    run(stream, lambda: Told(log), record_limit=1, shard_fetch_rate=1, idle_timeout=0.2)
    assert names(log).count("batch") == 3
    assert sum("the run ends: nothing has come for 0.2 s" in record.message for record in caplog.records) == 1


def test_a_life(aws: LocalAws, stream: str) -> None:
    texts(aws, stream, "1", "2")
    log: list[Any] = []
    run(stream, lambda: Told(log))
    assert log == [
        (SHARD_0, "initialize", stream, "TRIM_HORIZON", 0),
        (SHARD_0, "batch", [b"1", b"2"]),
        (SHARD_0, "shutdown"),
        (SHARD_0, "over"),
    ]


def test_through_a_split(aws: LocalAws, stream: str) -> None:
    """Each shard has a processor; children come when the parent is checkpointed at its end."""
    put(aws, stream, numbered(8, 5))
    split(aws, stream, open_shards(aws, stream)[0])
    put(aws, stream, numbered(8, 5, start=5))
    log: list[Any] = []
    kept = MemoryCheckPointer()
    run(stream, lambda: Told(log), checkpointer=kept)
    parent = [entry[1] for entry in log if entry[0] == SHARD_0]
    assert parent == ["initialize", "batch", "ended", "over"]
    assert [entry[0] for entry in log[:4]] == [SHARD_0] * 4
    for child in (CHILD, "shardId-000000000002"):
        assert [entry[1] for entry in log if entry[0] == child] == ["initialize", "batch", "shutdown", "over"]
    assert kept.get_all_checkpoints()[SHARD_0]
    assert not kept.get_all_checkpoints()[CHILD]  # Told checkpoints nothing else


def test_it_ends_at_the_tips_although_more_comes_all_the_time(aws: LocalAws, stream: str) -> None:
    """With the children of a split, which are there when their parent has ended."""
    put(aws, stream, numbered(8, 2))
    split(aws, stream, open_shards(aws, stream)[0])
    put(aws, stream, numbered(8, 2, start=2))
    log: list[Any] = []

    def one_more(told: Told, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        del checkpointer
        if told.shard != SHARD_0 and len(batch):
            put(aws, stream, numbered(8, 1, start=len(log)))

    run(stream, lambda: Told(log, one_more), idle_timeout=None, stop_at_tip=True)
    assert names(log) == ["initialize", "batch", "ended", "over"]
    for child in (CHILD, "shardId-000000000002"):
        assert names(log, child)[:2] == ["initialize", "batch"]
        assert names(log, child)[-2:] == ["shutdown", "over"]


def test_it_goes_on_where_the_processor_has_checkpointed(aws: LocalAws, stream: str) -> None:
    texts(aws, stream, "1", "2", "3")
    log: list[Any] = []
    kept = MemoryCheckPointer()

    def second(told: Told, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if len(batch):
            checkpointer.checkpoint(batch[1])

    run(stream, lambda: Told(log, second), checkpointer=kept)
    run(stream, lambda: Told(log), checkpointer=kept)
    assert [entry[2] for entry in log if entry[1] == "batch"] == [[b"1", b"2", b"3"], [b"3"]]
    (_, again) = [entry for entry in log if entry[1] == "initialize"]
    assert again[3].isdecimal()


def test_inside_of_an_aggregate(aws: LocalAws, stream: str) -> None:
    processor = KPLStringProcessor()
    for item in "abcd":
        processor.add_item(item)
    client(aws).put_record(StreamName=stream, PartitionKey="a", Data=processor.get_items()[0].data)
    log: list[Any] = []
    kept = MemoryCheckPointer()

    def second(told: Told, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if len(batch) == 4:
            checkpointer.checkpoint(batch[1].sequence_number, 1)

    run(stream, lambda: Told(log, second), checkpointer=kept)
    run(stream, lambda: Told(log), checkpointer=kept)
    assert [entry[2] for entry in log if entry[1] == "batch"] == [[b"a", b"b", b"c", b"d"], [b"c", b"d"]]


def test_aggregates_that_become_too_much(aws: LocalAws, stream: str) -> None:
    """The run ends before any of it is processed or passed."""
    processor = KPLStringProcessor()
    for number in range(100):
        processor.add_item(str(number))
    client(aws).put_record(StreamName=stream, PartitionKey="a", Data=processor.get_items()[0].data)
    log: list[Any] = []
    kept = MemoryCheckPointer()
    with pytest.raises(AnswerTooLarge, match="max_batch_bytes, 5000 bytes"):
        run(stream, lambda: Told(log), checkpointer=kept, max_batch_bytes=5000)
    assert not [entry for entry in log if entry[1] == "batch"]
    assert not any(kept.get_all_checkpoints().values())


def test_what_cannot_be_checkpointed(aws: LocalAws, stream: str) -> None:
    texts(aws, stream, "1", "2")
    seen: list[Any] = []

    def act(told: Told, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if not len(batch):
            return
        last = batch.last_position
        assert last is not None
        beyond = Position(str(int(last.sequence_number) + 1), 0)
        checkpointer.checkpoint(last)
        for at in (beyond, batch[0]):
            try:
                checkpointer.checkpoint(at)
            except CheckpointError as error:
                seen.append(error.value)
        checkpointer.checkpoint()

    run(stream, lambda: Told([], act))
    assert seen == ["IllegalArgumentException"] * 2


class Refusing(MemoryCheckPointer):
    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    async def checkpoint(self, shard_id: str, sequence: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        await super().checkpoint(shard_id, sequence)


def checkpoint_each(told: Told, batch: RecordBatch, checkpointer: Checkpointer) -> None:
    if len(batch):
        try:
            checkpointer.checkpoint(retries=1, backoff=0)
        except CheckpointError as error:
            told.note("refused", error.value, error.retryable)


def test_a_backend_that_is_away(aws: LocalAws, stream: str) -> None:
    texts(aws, stream, "1")
    log: list[Any] = []
    kept = Refusing(OSError("away"))
    run(stream, lambda: Told(log, checkpoint_each), checkpointer=kept)
    assert kept.get_all_checkpoints()[SHARD_0]
    kept = Refusing(OSError("away"), OSError("away"))
    run(stream, lambda: Told(log, checkpoint_each), checkpointer=kept)
    assert (SHARD_0, "refused", "KinesisClientLibDependencyException", True) in log
    assert not kept.get_all_checkpoints()[SHARD_0]


@pytest.mark.usefixtures("looks_often")
def test_a_lease_that_is_lost(aws: LocalAws, stream: str) -> None:
    """It is told, and has the shard again when it is allocated again."""
    texts(aws, stream, "1")
    log: list[Any] = []
    kept = Refusing(CheckpointOwnershipConflict("another's"))
    run_until(
        lambda: names(log).count("batch") == 2,
        "the batch again",
        log,
        stream,
        lambda: Told(log, checkpoint_each),
        checkpointer=kept,
    )
    what = [entry[1:] for entry in log]
    lost = what.index(("lost",))
    assert what[:lost][1:] == [("batch", [b"1"]), ("refused", "ShutdownException", False)]
    assert what[lost + 1] == ("over",)
    assert [entry[0] for entry in what[lost + 2 :]] == ["initialize", "batch", "shutdown", "over"]


@pytest.mark.usefixtures("looks_often")
def test_a_failing_lease_lost_ends_no_run(aws: LocalAws, stream: str, caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Told):
        def lease_lost(self) -> None:
            super().lease_lost()
            raise ValueError("boom")

    texts(aws, stream, "1")
    log: list[Any] = []
    run_until(
        lambda: names(log).count("batch") == 2,
        "the batch again",
        log,
        stream,
        lambda: Fails(log, checkpoint_each),
        checkpointer=Refusing(CheckpointOwnershipConflict("another's")),
    )
    assert names(log).count("lost") == 1
    assert f"{SHARD_0}: lease_lost has failed" in caplog.text
    assert "ValueError: boom" in caplog.text


class Lapsing(MemoryCheckPointer):
    """Loses a shard when it is told to, until it is allocated again."""

    def __init__(self) -> None:
        super().__init__()
        self.lapsed, self.seen = threading.Event(), threading.Event()

    def lapse(self) -> None:
        self.lapsed, self.seen = threading.Event(), threading.Event()
        self.lapsed.set()

    async def allocate(self, shard_id: str) -> tuple[bool, str | None]:
        self.lapsed.clear()
        return await super().allocate(shard_id)

    def is_allocated(self, shard_id: str) -> bool:
        if self.lapsed.is_set():
            self.seen.set()
            return False
        return super().is_allocated(shard_id)


@pytest.mark.usefixtures("looks_often")
def test_a_lease_that_is_lost_while_a_batch_is_processed(aws: LocalAws, stream: str) -> None:
    """The shard is allocated again, and read, as soon as it is free."""
    texts(aws, stream, "1")
    log: list[Any] = []
    kept = Lapsing()

    def act(told: Told, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if len(batch) and len(log) == 2:
            kept.lapse()
            assert kept.seen.wait(60)

    run_until(
        lambda: names(log).count("batch") == 2,
        "the batch again",
        log,
        stream,
        lambda: Told(log, act),
        checkpointer=kept,
    )
    once = ["initialize", "batch"]
    assert [entry[1] for entry in log] == [*once, "lost", "over", *once, "shutdown", "over"]


@pytest.mark.usefixtures("looks_often")
def test_a_lease_that_is_lost_at_a_shards_end(aws: LocalAws, stream: str) -> None:
    """A processor that raises the refusal, as all of them do there, does not end those of other shards."""
    texts(aws, stream, "1")
    split(aws, stream, open_shards(aws, stream)[0])
    log: list[Any] = []
    run_until(
        lambda: "initialize" in names(log, CHILD),
        "the processor of a child",
        log,
        stream,
        lambda: Told(log),
        checkpointer=Refusing(CheckpointOwnershipConflict("another's")),
    )
    parent = names(log)
    assert parent == ["initialize", "batch", "ended", "lost", "over", "initialize", "batch", "ended", "over"]
    assert [entry[1] for entry in log if entry[0] == CHILD] == ["initialize", "shutdown", "over"]


def test_a_processor_that_fails_ends_the_run(aws: LocalAws, stream: str) -> None:
    split(aws, stream, open_shards(aws, stream)[0])
    put(aws, stream, numbered(8, 5))
    log: list[Any] = []

    def fail(told: Told, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if told.shard == CHILD and len(batch):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run(stream, lambda: Told(log, fail), idle_timeout=None)
    assert [entry[1] for entry in log if entry[0] == CHILD] == ["initialize", "batch", "over"]
    assert log[-1][1] == "over"


def poisoned(log: list[Any], failures: float = math.inf) -> Callable[[], Told]:
    """Processors that checkpoint each batch, and fail so often on the one that says so."""
    left = failures

    def act(told: Told, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        nonlocal left
        if len(batch) and batch[0].data == b"poison" and left:
            left -= 1
            raise ValueError("poison")
        checkpointer.checkpoint()

    return lambda: Told(log, act)


def batches(log: list[Any]) -> list[bytes]:
    return [record for entry in log if entry[1] == "batch" for record in entry[2]]


def test_records_that_a_processor_fails_on_are_skipped(aws: LocalAws, stream: str) -> None:
    texts(aws, stream, "1", "poison", "3")
    log: list[Any] = []
    kept = MemoryCheckPointer()
    run(stream, poisoned(log), on_error="skip", record_limit=1, checkpointer=kept)
    assert batches(log) == [b"1", b"poison", b"3"]
    assert kept.get_all_checkpoints()[SHARD_0] == read(client(aws), stream)[-1]["SequenceNumber"]


def test_records_that_a_processor_fails_on_are_stored(aws: LocalAws, stream: str, tmp_path: Path) -> None:
    texts(aws, stream, "1", "poison", "3")
    log: list[Any] = []
    run(stream, poisoned(log), dead_letter=tmp_path / "letters", record_limit=1)
    assert batches(log) == [b"1", b"poison", b"3"]
    (letter,) = (tmp_path / "letters").iterdir()
    with pa.ipc.open_file(letter) as file:
        assert file.read_all()["data"].to_pylist() == [b"poison"]
        assert b"poison" in file.schema.metadata[b"fastkcl.error"]


def test_a_call_that_fails_is_repeated(aws: LocalAws, stream: str) -> None:
    texts(aws, stream, "1", "poison", "3")
    log: list[Any] = []
    run(stream, poisoned(log, failures=2), retries=2, retry_backoff=0, record_limit=1)
    assert batches(log) == [b"1", b"poison", b"poison", b"poison", b"3"]
    with pytest.raises(ValueError, match="poison"):
        run(stream, poisoned(log := []), retries=1, retry_backoff=0, record_limit=1, idle_timeout=None)
    assert batches(log) == [b"1", b"poison", b"poison"]


def test_a_call_is_not_repeated_when_the_run_is_to_stop(aws: LocalAws, stream: str) -> None:
    texts(aws, stream, "1", "poison", "3")
    log: list[Any] = []

    async def main() -> None:
        stop = asyncio.Event()
        options = {**QUICK, "idle_timeout": None, "record_limit": 1, "checkpointer": MemoryCheckPointer()}
        running = asyncio.create_task(
            run_processors(stream, poisoned(log), stop=stop, retries=9, retry_backoff=3600, on_error="skip", **options)
        )
        await until(lambda: b"poison" in batches(log), "the poison", seen=lambda: log)
        stop.set()
        with pytest.raises(ValueError, match="poison"):
            await asyncio.wait_for(running, 60)

    asyncio.run(main())
    assert batches(log) == [b"1", b"poison"]


def test_a_processor_that_fails_to_shut_down(aws: LocalAws, stream: str) -> None:
    """What it was to write at last is not written, and whoever waits for the run knows."""

    class Full(Told):
        def shutdown_requested(self, checkpointer: Checkpointer) -> None:
            super().shutdown_requested(checkpointer)
            raise OSError("disk full")

    texts(aws, stream, "1")
    log: list[Any] = []
    with pytest.raises(OSError, match="disk full"):
        run(stream, lambda: Full(log))
    assert [entry[1] for entry in log] == ["initialize", "batch", "shutdown", "over"]


def test_an_end_without_a_checkpoint(aws: LocalAws, stream: str) -> None:
    split(aws, stream, open_shards(aws, stream)[0])

    class Forgetful(Told):
        def shard_ended(self, checkpointer: Checkpointer) -> None:
            self.note("ended")

    with pytest.raises(RuntimeError, match="without a checkpoint of the end"):
        run(stream, lambda: Forgetful([]), idle_timeout=None)


def test_a_method_that_would_not_run(stream: str) -> None:
    class Deferred(BatchProcessor):
        async def process_batch(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:  # type: ignore[override]
            """Never."""

    with pytest.raises(TypeError, match="coroutine"):
        run(stream, Deferred, idle_timeout=None)


def test_stop_and_cancel(aws: LocalAws, stream: str) -> None:
    texts(aws, stream, "1")

    async def stopped(log: list[Any]) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def act(told: Told, batch: RecordBatch, checkpointer: Checkpointer) -> None:
            loop.call_soon_threadsafe(stop.set)

        options = {**QUICK, "idle_timeout": None, "checkpointer": MemoryCheckPointer()}
        await run_processors(stream, lambda: Told(log, act), stop=stop, **options)

    async def cancelled(log: list[Any]) -> None:
        options = {**QUICK, "idle_timeout": None, "checkpointer": MemoryCheckPointer()}
        running = asyncio.create_task(run_processors(stream, lambda: Told(log), **options))
        await until(lambda: len(log) >= 2, "the batch", seen=lambda: log)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    for way in (stopped, cancelled):
        log: list[Any] = []
        asyncio.run(way(log))
        assert [entry[1] for entry in log] == ["initialize", "batch", "shutdown", "over"]


def test_what_stops_the_reading(own_aws: LocalAws, stream: str) -> None:
    with pytest.raises(StreamDoesNotExist):
        run(new_name(), lambda: Told([]))
    with pytest.raises(StreamDoesNotExist):
        run(new_name(), lambda: Told([]), skip_describe_stream=True)
    own_aws.faults(Fault("GetRecords", "ExpiredIteratorException"))
    log: list[Any] = []
    with pytest.raises(Exception, match="ExpiredIterator"):
        run(stream, lambda: Told(log), idle_timeout=None)
    assert [entry[1] for entry in log] == ["initialize", "over"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_queue_size": 0}, "max_queue_size"),
        ({"idle_timeout": 0}, "idle_timeout"),
        ({"record_limit": 0}, "record"),
        ({"retries": -1}, "retries"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("orders", lambda: Told([]), **options)


def test_positions_that_nobody_would_write() -> None:
    class Manual(MemoryCheckPointer):
        auto_checkpoint = False

    with pytest.raises(ValueError, match="auto_checkpoint"):
        run("orders", lambda: Told([]), checkpointer=Manual())
    with pytest.raises(TypeError, match="checkpointer"):
        run("orders", lambda: Told([]), checkpointer=Manual)


# Tables.


class SinkSession(FakeSession):
    """What SparkProcessor asks of a session."""

    @property
    def conf(self) -> SinkSession:
        return self

    def set(self, name: str, value: str) -> None:
        """Nothing to set."""


class Dying(SparkProcessor):
    """Fails at its n-th batch with records, as a process that dies would: nothing more is written or checkpointed."""

    def __init__(self, folder: Path, spark: Any, batches: int) -> None:
        super().__init__(
            ParquetSink(folder), spark=spark, max_records=30, max_age=0.2, checkpoint_interval=0, report_interval=None
        )
        self.left = batches

    def process_batch(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        self.left -= bool(len(batch))
        if self.left < 0:
            raise OSError("dies")
        super().process_batch(batch, checkpointer)

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Dies instead, unless it is to live."""
        if self.left > 1000:
            super().shutdown_requested(checkpointer)


def fill_a_table_with_deaths(aws: LocalAws, stream: str, folder: Path, spark: Any) -> None:
    """Two runs that die, resharding between them, and one that ends well; each record is in the table once."""
    kept = MemoryCheckPointer()
    put(aws, stream, numbered(16, 20))
    options: dict[str, Any] = {"checkpointer": kept, "record_limit": 50}
    for batches in (2, 4):
        with pytest.raises(OSError, match="dies"):
            run(stream, lambda batches=batches: Dying(folder, spark, batches), idle_timeout=None, **options)
        split(aws, stream, open_shards(aws, stream)[0])
        put(aws, stream, numbered(16, 5, start=20 if batches == 2 else 25))
    run(stream, lambda: Dying(folder, spark, 10**6), **options)
    kinesis, expected = client(aws), set()
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        position = {"ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = kinesis.get_shard_iterator(StreamName=stream, **position)["ShardIterator"]
        expected |= {
            (shard["ShardId"], record["SequenceNumber"])
            for record in kinesis.get_records(ShardIterator=iterator)["Records"]
        }
    stored = records_of(folder)
    assert set(stored.values()) == {1}
    assert {record[1:3] for record in stored} == expected
    assert len(expected) == 480


def test_each_record_once_in_a_table(aws: LocalAws, stream: str, tmp_path: Path) -> None:
    fill_a_table_with_deaths(aws, stream, tmp_path, SinkSession())


def test_each_record_once_in_a_table_by_spark(aws: LocalAws, stream: str, tmp_path: Path, spark: SharedSpark) -> None:
    fill_a_table_with_deaths(aws, stream, tmp_path, spark.session)


def test_the_example(aws: LocalAws, stream: str, tmp_path: Path, spark: SharedSpark) -> None:
    put(aws, stream, numbered(10, 50))
    program = EXAMPLES / "kinesis_to_spark.py"
    environment = {**os.environ, **aws.environment, "FASTKCL_SPARK": str(spark.url)}
    with subprocess.Popen([sys.executable, program, stream, tmp_path], env=environment) as running:
        try:
            wait_until(
                lambda: sum(records_of(tmp_path).values()) >= 500 or running.poll() is not None,
                "500 records in the table",
                seconds=120,
                seen=lambda: sum(records_of(tmp_path).values()),
                step=0.1,
            )
        finally:
            running.send_signal(signal.SIGTERM)
        assert running.wait(120) == 0
    assert set(records_of(tmp_path).values()) == {1}
    assert len(records_of(tmp_path)) == 500
