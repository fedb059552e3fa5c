"""SparkProcessor against the rules of buffered sinks, with stand-ins for session and sink: no JVM here."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastkcl import CheckpointError, ConfigurationError, Position, RecordBatch
from fastkcl.spark import (
    AvroPayload,
    BinaryPayload,
    Bounds,
    JsonPayload,
    ProtobufPayload,
    SparkProcessor,
    WriteContext,
)
from fastkcl.spark.server.settings import MAX_CONNECT_BYTES
from fastkcl.spark.sinks import DeltaSink, ParquetSink, Shard, SinkError
from fastkcl.tables import storage
from fastkcl.tables.bounds import DEFAULT_MAX_TABLE_BYTES
from paths import PROGRAMS
from sink_helpers import FakeSession, FakeWriter, position_of, records_of
from spark_helpers import FakeCheckpointer, record_batch, shard_context
from waiting import PATIENCE, wait_until, wait_until_idle


class StandInFrame:
    def __init__(self, table: pa.Table, session: StandInSession) -> None:
        self.table = table
        self.sparkSession = session


class StandInSession:
    """Takes tables where Spark would make DataFrames of them."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.schemas: list[Any] = []

    @property
    def conf(self) -> StandInSession:
        return self

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def createDataFrame(self, table: pa.Table, schema: Any) -> StandInFrame:  # noqa: N802 - Spark's name
        assert isinstance(table, pa.Table)
        self.schemas.append(schema)
        return StandInFrame(table, self)


class Writes:
    """The user's write function; fails as often as told, waits for the gate if there is one."""

    def __init__(self, failures: int = 0, gate: threading.Event | None = None) -> None:
        self.failures = failures
        self.gate = gate
        self.begun = threading.Event()
        self.tables: list[pa.Table] = []
        self.contexts: list[WriteContext] = []

    def __call__(self, df: StandInFrame, context: WriteContext) -> None:
        self.begun.set()
        if self.gate is not None:
            assert self.gate.wait(PATIENCE)
        if self.failures:
            self.failures -= 1
            raise OSError("no space left on device")
        self.tables.append(df.table)
        self.contexts.append(context)

    @property
    def numbers(self) -> list[list[str]]:
        return [table["sequenceNumber"].to_pylist() for table in self.tables]


def processor(
    writes: Writes | ListSink | Callable[..., None],
    *,
    dialect: str = "modern",
    session: StandInSession | None = None,
    checkpoint: str = "TRIM_HORIZON",
    **options: Any,
) -> SparkProcessor:
    options = {"max_records": 4, "checkpoint_interval": 0} | options
    made = SparkProcessor(writes, spark=session or StandInSession(), **options)  # type: ignore[arg-type]
    _made.append(made)
    made.initialize(shard_context(dialect=dialect, checkpoint=checkpoint))
    return made


_made: list[SparkProcessor] = []


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    while _made:
        made = _made.pop()
        made.run_ended()
        assert made._buffer.join(PATIENCE)


def settle(made: SparkProcessor) -> None:
    """Wait until the writer has nothing to do, or has failed."""
    buffer = made._buffer
    wait_until(lambda: not buffer.busy or buffer._stalled, "an idle writer", seen=lambda: vars(buffer), step=0.0005)


def process(made: SparkProcessor, batch: RecordBatch, checkpointer: FakeCheckpointer) -> None:
    """A batch, and an empty one when what it leads to is written: the failure or the checkpoint comes with that."""
    made.process_batch(batch, checkpointer)
    settle(made)
    made.process_batch(record_batch([]), checkpointer)


def test_the_context_says_what_was_written() -> None:
    writes, session, checkpointer = Writes(), StandInSession(), FakeCheckpointer()
    made = processor(writes, session=session)
    batches = [record_batch([10, 10, 11], sub=[0, 1, 0]), record_batch([12, 13])]
    process(made, batches[0], checkpointer)
    assert writes.tables == []
    process(made, batches[1], checkpointer)
    (context,), (table,) = writes.contexts, writes.tables
    assert context == WriteContext(
        stream="events",
        shard_id="shardId-000000000007",
        first_position=Position("10", 0),
        last_position=Position("13", 0),
        attempt=1,
        rows=5,
        bytes=sum(batch.nbytes for batch in batches),
        spark=session,  # type: ignore[arg-type]
    )
    assert table.num_rows == 5
    assert checkpointer.stored == [Position("13", 0)]


def test_the_table_is_the_batches_own_memory() -> None:
    writes = Writes()
    made = processor(writes, max_records=1000)
    batches = [record_batch([1, 2, 3]), record_batch([4, 5])]
    for batch in batches:
        process(made, batch, FakeCheckpointer())
    made.shard_ended(FakeCheckpointer())
    chunks = writes.tables[0]["data"].chunks
    addresses = [chunk.buffers()[2].address for chunk in chunks]
    assert addresses == [pa.record_batch(batch)["data"].buffers()[2].address for batch in batches]


def test_the_schema_is_explicit_and_the_canonical_one() -> None:
    from fastkcl.spark.schema import SCHEMA
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    session = StandInSession()
    made = processor(Writes(), session=session)
    process(made, record_batch([1, 2, 3, 4]), FakeCheckpointer())
    assert session.schemas == [SCHEMA]
    arrow = pa.record_batch(record_batch([1])).schema
    assert from_arrow_schema(arrow) == SCHEMA
    in_utc = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}  # 4.0 and 4.1: always
    assert to_arrow_schema(SCHEMA, **in_utc) == arrow


def test_settings_for_ingest_are_applied_to_a_given_session() -> None:
    session = StandInSession()
    processor(Writes(), session=session)
    assert session.settings == {
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        "spark.sql.session.localRelationCacheThreshold": "120000000",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }


class TestStream:
    def test_without_a_name_it_refuses_to_start(self) -> None:
        made = SparkProcessor(Writes(), spark=StandInSession())  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="FASTKCL_STREAM"):
            made.initialize(shard_context(stream=None))

    @pytest.mark.parametrize(("given", "known", "used"), [("a", "b", "a"), ("a", None, "a"), (None, "b", "b")])
    def test_its_own_name_wins(self, given: str | None, known: str | None, used: str) -> None:
        writes = Writes()
        made = SparkProcessor(writes, spark=StandInSession(), stream=given, max_records=1)  # type: ignore[arg-type]
        _made.append(made)
        made.initialize(shard_context(stream=known))
        process(made, record_batch([1]), FakeCheckpointer())
        assert writes.contexts[0].stream == used


class TestCheckpoint:
    def test_never_what_is_only_held(self) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer()
        made = processor(writes)
        process(made, record_batch([1, 2, 3, 4]), checkpointer)
        process(made, record_batch([5, 6]), checkpointer)
        process(made, record_batch([]), checkpointer)
        assert checkpointer.asked == [Position("4", 0)]

    def test_both_numbers(self) -> None:
        checkpointer = FakeCheckpointer()
        made = processor(Writes())
        process(made, record_batch([1, 7, 7, 7], sub=[0, 0, 1, 2]), checkpointer)
        (asked,) = checkpointer.asked
        assert tuple(asked or ()) == ("7", 2)

    def test_a_refusal_that_may_pass_is_tried_at_the_next_request(self, caplog: pytest.LogCaptureFixture) -> None:
        checkpointer = FakeCheckpointer("ThrottlingException", "RuntimeException")
        made = processor(Writes(), checkpoint_interval=3600)
        process(made, record_batch([1, 2, 3, 4]), checkpointer)
        process(made, record_batch([5]), checkpointer)
        process(made, record_batch([]), checkpointer)
        process(made, record_batch([]), checkpointer)
        assert checkpointer.asked == [Position("4", 0)] * 3
        assert checkpointer.stored == [Position("4", 0)]
        assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
        assert "checkpoint at 4/0 refused: ThrottlingException" in caplog.text

    @pytest.mark.parametrize("name", ["InvalidStateException", "IllegalArgumentException", "NullPointerException"])
    def test_any_other_refusal_is_raised_and_nothing_doubled(self, name: str) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer(name)
        made = processor(writes)
        batch = record_batch([1, 2, 3, 4])
        with pytest.raises(CheckpointError, match=name):
            process(made, batch, checkpointer)
        process(made, record_batch([]), checkpointer)
        assert writes.numbers == [["1", "2", "3", "4"]]
        assert checkpointer.stored == [Position("4", 0)]

    def test_a_lost_lease_stops_the_work(self, caplog: pytest.LogCaptureFixture) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer("ShutdownException")
        made = processor(writes, checkpoint_interval=0)
        process(made, record_batch([1, 2, 3, 4]), checkpointer)
        process(made, record_batch([5, 6, 7, 8, 9]), checkpointer)
        made.shutdown_requested(checkpointer)
        assert writes.numbers == [["1", "2", "3", "4"]]
        assert len(checkpointer.asked) == 1
        made.lease_lost()
        assert "5 records that came after the lease had moved" in caplog.text

    def test_the_end_of_a_shard_is_not_checkpointed_over_records_left_to_another(self) -> None:
        checkpointer = FakeCheckpointer("ShutdownException")
        made = processor(Writes())
        process(made, record_batch([1, 2, 3, 4]), checkpointer)
        process(made, record_batch([5]), checkpointer)
        with pytest.raises(CheckpointError, match="ShutdownException"):
            made.shard_ended(checkpointer)
        assert checkpointer.stored == []


class TestEnds:
    def test_shard_ended_writes_then_checkpoints_the_end(self) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer("ThrottlingException")
        made = processor(writes)
        process(made, record_batch([1, 2]), checkpointer)
        made.shard_ended(checkpointer)
        assert writes.numbers == [["1", "2"]]
        assert checkpointer.asked == [None, None]
        assert checkpointer.stored == [None]

    def test_a_shard_end_that_can_not_be_written_is_not_checkpointed(self) -> None:
        writes, checkpointer = Writes(failures=1), FakeCheckpointer()
        made = processor(writes)
        process(made, record_batch([1, 2]), checkpointer)
        with pytest.raises(OSError, match="no space"):
            made.shard_ended(checkpointer)
        assert checkpointer.asked == []
        made.shard_ended(checkpointer)  # retries=1 of fastkcl.run
        assert (writes.numbers, checkpointer.stored) == ([["1", "2"]], [None])

    def test_shutdown_requested_writes_then_checkpoints_what_is_written(self) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer()
        made = processor(writes, checkpoint_interval=3600)
        process(made, record_batch([1, 2, 3, 4]), checkpointer)
        process(made, record_batch([5, 6]), checkpointer)
        made.shutdown_requested(checkpointer)
        assert writes.numbers == [["1", "2", "3", "4"], ["5", "6"]]
        assert checkpointer.asked == [Position("4", 0), Position("6", 0)]

    def test_shutdown_requested_with_nothing_new_asks_for_nothing(self) -> None:
        checkpointer = FakeCheckpointer()
        made = processor(Writes())
        made.shutdown_requested(checkpointer)
        assert checkpointer.asked == []

    def test_a_shutdown_outlives_a_refused_checkpoint(self, caplog: pytest.LogCaptureFixture) -> None:
        """And does not ask again: the daemon's patience is for the writes of all its shards."""
        checkpointer = FakeCheckpointer("ThrottlingException")
        made = processor(Writes())
        process(made, record_batch([1]), checkpointer)
        made.shutdown_requested(checkpointer)
        assert (checkpointer.asked, checkpointer.stored) == ([Position("1", 0)], [])
        assert "written records wait for the next checkpoint" in caplog.text

    def test_lease_lost_drops_what_is_held_and_says_so(self, caplog: pytest.LogCaptureFixture) -> None:
        writes = Writes()
        made = processor(writes)
        process(made, record_batch([1, 2, 3], sub=[0, 0, 5]), FakeCheckpointer())
        with caplog.at_level(logging.WARNING, "fastkcl"):
            made.lease_lost()
        assert writes.tables == []
        assert "3 records from 1/0 to 3/5 were not written" in caplog.text


class TestLegacy:
    """The records of an aggregate share one number and nothing else: they are written together."""

    def batches(self, *batches: list[int]) -> list[RecordBatch]:
        return [record_batch(numbers, dialect="legacy") for numbers in batches]

    def test_no_write_ends_inside_a_run_of_equal_numbers(self) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer()
        made = processor(writes, dialect="legacy")
        for batch in self.batches([1, 2, 3, 3], [3, 3, 4], [5, 6, 6, 6, 7]):
            process(made, batch, checkpointer)
        assert writes.numbers == [["1", "2"], ["3", "3", "3", "3"], ["4", "5", "6", "6", "6"]]
        assert [tuple(asked or ()) for asked in checkpointer.asked] == [("2", None), ("3", None), ("6", None)]
        made.shard_ended(checkpointer)
        assert writes.numbers[3:] == [["7"]]
        assert checkpointer.stored[-1] is None

    def test_a_requested_shutdown_leaves_the_last_number_to_a_redelivery(self) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer()
        made = processor(writes, dialect="legacy")
        for batch in self.batches([1, 2, 2]):
            process(made, batch, checkpointer)
        made.shutdown_requested(checkpointer)
        assert writes.numbers == [["1"]]
        assert [tuple(asked or ()) for asked in checkpointer.asked] == [("1", None)]

    def test_forced_on_records_that_have_sub_sequence_numbers(self) -> None:
        """A checkpoint of this dialect cannot name them, so the sequence number decides all the same."""
        writes, checkpointer = Writes(), FakeCheckpointer()
        made = processor(writes, dialect="legacy")
        process(made, record_batch([1, 2, 2, 2], sub=[0, 0, 1, 2]), checkpointer)
        assert writes.numbers == [["1"]]
        assert [tuple(asked or ()) for asked in checkpointer.asked] == [("1", None)]


class TestFailingWrite:
    def test_a_retry_in_place_doubles_nothing(self) -> None:
        writes, checkpointer = Writes(failures=2), FakeCheckpointer()
        made = processor(writes)
        made.process_batch(record_batch([1, 2]), checkpointer)
        made.process_batch(record_batch([3, 4, 5]), checkpointer)
        settle(made)
        batch = record_batch([6])
        for _ in range(2):
            with pytest.raises(OSError, match="no space"):
                made.process_batch(batch, checkpointer)
        made.process_batch(batch, checkpointer)
        assert writes.numbers == [["1", "2", "3", "4", "5"]]
        assert [context.attempt for context in writes.contexts] == [3]
        assert checkpointer.asked == [Position("5", 0)]

    def test_it_is_told_in_one_line(self, caplog: pytest.LogCaptureFixture) -> None:
        def write(df: Any, context: WriteContext) -> None:
            raise RuntimeError("RPC that terminated with:\n\tstatus = UNAVAILABLE\n\tat org.x.Y(Z.java:1)\n")

        made = processor(write)
        made.process_batch(record_batch([1, 2, 3, 4]), FakeCheckpointer())
        settle(made)
        assert caplog.messages[-1].endswith("RuntimeError: RPC that terminated with: status = UNAVAILABLE")

    def test_given_up_the_whole_run_goes_and_the_position_moves_on(self) -> None:
        writes, checkpointer = Writes(failures=1), FakeCheckpointer()
        made = processor(writes)
        held, failing, failed = record_batch([1]), record_batch([2, 3, 4]), record_batch([5])
        made.process_batch(held, checkpointer)
        made.process_batch(failing, checkpointer)
        settle(made)
        with pytest.raises(OSError, match="no space"):
            made.process_batch(failed, checkpointer)
        assert made.give_up(failed) == [held, failing, failed]
        process(made, record_batch([5, 6]), checkpointer)
        assert (writes.tables, checkpointer.stored) == ([], [Position("5", 0)])
        made.shard_ended(checkpointer)
        assert writes.numbers == [["5", "6"]]

    @pytest.mark.parametrize("dialect", ["modern", "legacy"])
    def test_at_the_end_of_a_shard_nothing_is_held_back(self, dialect: str) -> None:
        writes, checkpointer = Writes(failures=1), FakeCheckpointer()
        made = processor(writes, dialect=dialect)
        process(made, held := record_batch([1, 2, 2], dialect=dialect), checkpointer)
        with pytest.raises(OSError, match="no space"):
            made.shard_ended(checkpointer)
        assert made.give_up(None) == [held]
        made.shard_ended(checkpointer)
        assert (writes.tables, checkpointer.stored) == ([], [None])

    def test_before_that_the_last_number_of_the_legacy_dialect_is(self) -> None:
        writes, checkpointer = Writes(failures=1), FakeCheckpointer()
        made = processor(writes, dialect="legacy")
        made.process_batch(record_batch([1, 2, 3, 3], dialect="legacy"), checkpointer)
        settle(made)
        tick = record_batch([])
        with pytest.raises(OSError, match="no space"):
            made.process_batch(tick, checkpointer)
        (given,) = made.give_up(tick)
        assert [record.sequence_number for record in given] == ["1", "2"]
        process(made, record_batch([3, 4], dialect="legacy"), checkpointer)
        assert writes.numbers == [["3", "3", "3"]]

    @pytest.mark.parametrize("end", [False, True])
    def test_a_refused_checkpoint_gives_up_nothing(self, end: bool) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer("InvalidStateException")
        made = processor(writes)
        made.process_batch(record_batch([1, 2, 3, 4]), checkpointer)
        settle(made)
        with pytest.raises(CheckpointError):
            made.process_batch(batch := record_batch([]), checkpointer)
        assert made.give_up(batch) == []
        checkpointer.errors = ["InvalidStateException"]
        with pytest.raises(CheckpointError):
            made.shard_ended(checkpointer) if end else made.shutdown_requested(checkpointer)
        assert made.give_up(None) == []
        assert writes.numbers == [["1", "2", "3", "4"]]

    def test_a_number_that_is_not_decimal_is_refused_before_anything_else(self) -> None:
        writes = Writes()
        made = processor(writes)
        process(made, record_batch([1, 2, 3]), FakeCheckpointer())
        with pytest.raises(ValueError, match="abc"):
            process(made, record_batch(["4", "abc"]), FakeCheckpointer())
        made.shard_ended(FakeCheckpointer())
        assert writes.numbers == [["1", "2", "3"]]


class TestBehind:
    """Requests are answered while a write takes its time."""

    def test_a_batch_is_taken_over_during_a_write(self) -> None:
        writes, checkpointer = Writes(gate=threading.Event()), FakeCheckpointer()
        assert writes.gate is not None
        made = processor(writes)
        for number in range(1, 20):
            made.process_batch(record_batch([number]), checkpointer)
        assert writes.begun.wait(PATIENCE)
        made.process_batch(record_batch([]), checkpointer)
        assert (writes.tables, checkpointer.asked) == ([], [])
        writes.gate.set()
        made.shutdown_requested(checkpointer)
        assert [len(numbers) for numbers in writes.numbers] == [4, 4, 4, 4, 3]
        assert checkpointer.asked == [Position("19", 0)]

    def test_memory_stays_under_the_bound(self) -> None:
        writes, checkpointer = Writes(gate=threading.Event()), FakeCheckpointer()
        assert writes.gate is not None
        size = record_batch([1], data=[b"x" * 1000]).capacity_bytes
        made = processor(writes, max_bytes=2 * size, max_records=1000, max_held_bytes=5 * size)
        most = []

        def feed() -> None:
            for number in range(1, 30):
                made.process_batch(record_batch([number], data=[b"x" * 1000]), checkpointer)
                most.append(made._buffer.capacity_bytes)

        feeder = threading.Thread(target=feed)
        feeder.start()
        wait_until(lambda: most and most[-1] > 4 * size, "as many batches as may be held", seen=lambda: most)
        wait_until_idle(os.getpid(), feeder.native_id)
        assert len(most) < 10  # the next one waits for the write; a batch is as large as the memory it has got
        writes.gate.set()
        feeder.join(PATIENCE)
        assert len(most) == 29
        assert max(most) <= 5 * size
        made.shard_ended(checkpointer)
        assert [n for numbers in writes.numbers for n in numbers] == [str(n) for n in range(1, 30)]

    def test_a_quiet_shards_tail_is_written_without_a_request(self) -> None:
        writes = Writes()
        made = processor(writes, max_records=1000, max_age=0.1)
        made.process_batch(record_batch([1, 2]), FakeCheckpointer())
        assert writes.begun.wait(PATIENCE)
        settle(made)
        assert writes.numbers == [["1", "2"]]

    def test_user_code_runs_in_one_other_thread(self) -> None:
        threads: list[threading.Thread] = []
        made = processor(lambda _df, _context: threads.append(threading.current_thread()))  # type: ignore[arg-type]
        for number in range(1, 13):
            made.process_batch(record_batch([number]), FakeCheckpointer())
        made.shard_ended(FakeCheckpointer())
        assert len(threads) == 3
        (thread,) = set(threads)
        assert thread is not threading.main_thread()
        assert not thread.is_alive()  # it ends with the shard

    def test_a_lost_lease_does_not_wait_for_a_write(self, caplog: pytest.LogCaptureFixture) -> None:
        writes, checkpointer = Writes(gate=threading.Event()), FakeCheckpointer()
        assert writes.gate is not None
        made = processor(writes)
        made.process_batch(record_batch([1, 2, 3, 4]), checkpointer)
        made.process_batch(record_batch([5, 6, 7, 8]), checkpointer)
        assert writes.begun.wait(PATIENCE)
        made.lease_lost()
        assert made._buffer._thread is not None
        assert made._buffer._thread.is_alive()  # in the write
        writes.gate.set()
        assert made._buffer.join(PATIENCE)
        assert writes.numbers == [["1", "2", "3", "4"]]  # what was under way; nothing after it
        assert checkpointer.asked == []
        assert "8 records from 1/0 to 8/0 were not written" in caplog.text

    def test_what_is_only_being_prepared_when_the_lease_goes_is_not_written(self) -> None:
        class Slow(StandInSession):
            begun, gate = threading.Event(), threading.Event()

            def createDataFrame(self, table: pa.Table, schema: Any) -> StandInFrame:  # noqa: N802 - Spark's name
                self.begun.set()
                assert self.gate.wait(PATIENCE)
                return super().createDataFrame(table, schema)

        writes, session = Writes(), Slow()
        made = processor(writes, session=session)
        made.process_batch(record_batch([1, 2, 3, 4]), FakeCheckpointer())
        assert session.begun.wait(PATIENCE)
        made.lease_lost()
        session.gate.set()
        assert made._buffer.join(PATIENCE)
        assert writes.tables == []

    @pytest.mark.parametrize("end", ["lease_lost", "run_ended"])
    def test_a_write_that_is_cut_off_has_not_failed(self, end: str, caplog: pytest.LogCaptureFixture) -> None:
        """The session is released under it, or the interpreter ends: what it raises then is nobody's trouble."""
        writes = Writes(failures=1, gate=threading.Event())
        assert writes.gate is not None
        made = processor(writes)
        made.process_batch(record_batch([1, 2, 3, 4]), FakeCheckpointer())
        assert writes.begun.wait(PATIENCE)
        with caplog.at_level(logging.INFO, "fastkcl"):
            getattr(made, end)()
            writes.gate.set()
            assert made._buffer.join(PATIENCE)
        assert "a write of 4 rows was cut off" in caplog.text
        assert "failed" not in caplog.text
        assert made.monitor.metrics.to_dict()["write_failures"] == 0

    def test_a_shutdown_waits_for_its_grace_and_checkpoints_what_is_written(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer()
        made = processor(writes, shutdown_grace=0.1, checkpoint_interval=3600)
        process(made, record_batch([1, 2, 3, 4]), checkpointer)
        process(made, record_batch([5, 6, 7, 8]), checkpointer)
        writes.gate = threading.Event()
        made.process_batch(record_batch([9]), checkpointer)
        made.shutdown_requested(checkpointer)
        assert checkpointer.asked == [Position("4", 0), Position("8", 0)]
        assert "1 records were not written within the 0.1 s of shutdown_grace" in caplog.text
        writes.gate.set()

    def test_its_retries_in_place_have_the_same_grace(self, caplog: pytest.LogCaptureFixture) -> None:
        """The write that is tried again hangs: the call that repeats it comes back, and records are left for later."""
        writes, checkpointer = Writes(failures=1), FakeCheckpointer()
        made = processor(writes, shutdown_grace=0.5)
        made.process_batch(record_batch([1, 2, 3, 4]), checkpointer)
        settle(made)
        with pytest.raises(OSError, match="no space"):
            made.shutdown_requested(checkpointer)
        writes.gate = threading.Event()
        end = made._grace_ends
        for _ in range(3):
            made.shutdown_requested(checkpointer)
        assert made._grace_ends == end
        assert "4 records were not written within the 0.5 s of shutdown_grace" in caplog.text
        assert checkpointer.asked == []
        writes.gate.set()
        settle(made)
        assert writes.numbers == [["1", "2", "3", "4"]]

    def test_the_end_of_the_run_is_the_end_of_the_writing(self, caplog: pytest.LogCaptureFixture) -> None:
        writes = Writes()
        made = processor(writes, max_age=0.2)
        made.process_batch(record_batch([1]), FakeCheckpointer())
        made.run_ended()
        assert made._buffer.join(PATIENCE)  # so nothing is written any more
        assert writes.tables == []
        assert "the run ends before everything was written" in caplog.text


class ListSink:
    """A table in memory, by the rules of sinks; told what others write, and fails as often as told."""

    def __init__(self, upto: int | None = None, failures: int = 0) -> None:
        self.position = None if upto is None else Position(str(upto), 0)
        self.failures = failures
        self.tables: list[list[str]] = []
        self.opened: list[Shard] = []

    def open(self, shard: Shard) -> Position | None:
        self.opened.append(shard)
        return self.position

    def write(self, rows: Any, session: Any) -> Position:
        if self.failures:
            self.failures -= 1
            raise OSError("no space left on device")
        rest = rows if self.position is None else rows.after(self.position)
        if rest is not None:
            self.tables.append(rest.data_frame(session).table["sequenceNumber"].to_pylist())
            rows.check_wanted()
            self.position = rest.last_position
        assert self.position is not None
        return self.position


class TestSink:
    def test_it_is_opened_for_the_shard_and_given_its_rows(self) -> None:
        sink, checkpointer = ListSink(), FakeCheckpointer()
        made = processor(sink)
        assert sink.opened == [Shard("events", "shardId-000000000007")]
        process(made, record_batch([1, 2, 3, 4]), checkpointer)
        made.process_batch(record_batch([5]), checkpointer)
        made.shard_ended(checkpointer)
        assert sink.tables == [["1", "2", "3", "4"], ["5"]]
        assert checkpointer.asked == [Position("4", 0), None]

    def test_what_the_table_has_is_dropped_counted_and_told(self, caplog: pytest.LogCaptureFixture) -> None:
        sink, checkpointer = ListSink(upto=6), FakeCheckpointer()
        made = processor(sink)
        process(made, record_batch([1, 2, 3, 4]), checkpointer)
        assert checkpointer.asked == [Position("4", 0)]  # delivered; not 6, which was not
        process(made, record_batch([5, 6, 7, 8]), checkpointer)
        made.shard_ended(checkpointer)
        assert sink.tables == [["7", "8"]]
        assert made.dropped_records == 6
        assert "4 records up to 4/0 came again" in caplog.text
        assert "2 records up to 8/0 came again" in caplog.text
        assert "NONE of the" not in caplog.text

    @pytest.mark.parametrize("end", ["shard_ended", "shutdown_requested"])
    def test_a_start_that_stores_nothing_says_so_loudly(self, end: str, caplog: pytest.LogCaptureFixture) -> None:
        sink, checkpointer = ListSink(upto=1000), FakeCheckpointer()
        made = processor(sink)
        process(made, record_batch([1, 2, 3, 4, 5]), checkpointer)
        getattr(made, end)(checkpointer)
        assert sink.tables == []
        (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert "NONE of the 5 records delivered since the start was stored" in error.getMessage()

    def test_and_while_it_goes_on(self, caplog: pytest.LogCaptureFixture) -> None:
        sink, checkpointer = ListSink(upto=1000), FakeCheckpointer()
        made = processor(sink)
        for start in range(1, 41, 4):
            process(made, record_batch(range(start, start + 4)), checkpointer)
        errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert [message.split()[4] for message in errors] == ["8", "16", "32"]

    def test_somebody_else_has_gone_on(self) -> None:
        """A zombie: the table is ahead of what this process was delivered; its checkpoints are not."""
        sink, checkpointer = ListSink(), FakeCheckpointer()
        made = processor(sink)
        process(made, record_batch([1, 2, 3, 4]), checkpointer)
        sink.position = Position("10", 0)
        process(made, record_batch([5, 6, 7, 8]), checkpointer)
        process(made, record_batch([9, 10, 11, 12]), checkpointer)
        assert sink.tables == [["1", "2", "3", "4"], ["11", "12"]]
        assert checkpointer.asked == [Position("4", 0), Position("8", 0), Position("12", 0)]

    def test_a_lost_lease_takes_back_a_running_write(self) -> None:
        class Slow(ListSink):
            begun, gate = threading.Event(), threading.Event()

            def write(self, rows: Any, session: Any) -> Position:
                self.begun.set()
                assert self.gate.wait(PATIENCE)
                return super().write(rows, session)

        sink = Slow()
        made = processor(sink)
        made.process_batch(record_batch([1, 2, 3, 4]), FakeCheckpointer())
        assert sink.begun.wait(PATIENCE)
        made.lease_lost()
        sink.gate.set()
        assert made._buffer.join(PATIENCE)
        assert sink.position is None

    @pytest.mark.parametrize("sink", [ParquetSink, DeltaSink])
    def test_and_one_of_the_real_ones(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: Any) -> None:
        """The lease goes when all files are staged: they are removed, and the commit's step is not taken."""
        begun, gate, stage = threading.Event(), threading.Event(), FakeWriter.parquet

        def slow(writer: FakeWriter, url: str) -> None:
            stage(writer, url)
            begun.set()
            assert gate.wait(PATIENCE)

        monkeypatch.setattr(FakeWriter, "parquet", slow)
        made = processor(sink(tmp_path), session=SinkSession())
        made.process_batch(record_batch([1, 2, 3, 4]), FakeCheckpointer())
        assert begun.wait(PATIENCE)
        assert any(tmp_path.rglob("*.parquet"))
        made.lease_lost()
        gate.set()
        assert made._buffer.join(PATIENCE)
        assert position_of(tmp_path, Shard("events", "shardId-000000000007")) is None
        assert not any(tmp_path.rglob("*.parquet"))

    def test_a_retry_and_a_letter(self) -> None:
        sink, checkpointer = ListSink(failures=2), FakeCheckpointer()
        made = processor(sink)
        made.process_batch(first := record_batch([1, 2, 3, 4]), checkpointer)
        settle(made)
        tick = record_batch([])
        for _ in range(2):
            with pytest.raises(OSError, match="no space"):
                made.process_batch(tick, checkpointer)
        assert made.give_up(tick) == [first]
        process(made, record_batch([5, 6, 7, 8]), checkpointer)
        assert sink.tables == [["5", "6", "7", "8"]]
        assert checkpointer.asked[-1] == Position("8", 0)

    def test_a_table_of_the_legacy_dialect_has_whole_numbers(self) -> None:
        sink = ListSink()
        sink.position = Position("10")
        made = processor(sink)
        process(made, record_batch([9, 10, 10, 10, 11], sub=[0, 0, 1, 2, 0]), FakeCheckpointer())
        assert sink.tables == [["11"]]

    def test_sub_sequence_numbers_in_the_table_and_none_on_the_wire(self, caplog: pytest.LogCaptureFixture) -> None:
        """KCL was changed to an old one inside an aggregate: nothing tells which of its records the table has."""
        sink = ListSink()
        sink.position = Position("10", 1)
        made = processor(sink, dialect="legacy")
        process(made, record_batch([10, 10, 10, 11], dialect="legacy"), FakeCheckpointer())
        made.shard_ended(FakeCheckpointer())
        assert sink.tables == [["11"]]
        assert made.dropped_records == 3
        assert "the table has records up to 10/1, with sub-sequence numbers" in caplog.text
        assert "the rest of it is not stored" in caplog.text


class Unlucky(ListSink):
    """Fails after as much of a write as told: somebody's commit up to a number, or its own; cannot always tell."""

    def __init__(self, moves_to: int | None, silences: int = 0) -> None:
        super().__init__()
        self.moves_to = moves_to
        self.silences = silences

    def open(self, shard: Shard) -> Position | None:
        if self.opened and self.silences:
            self.silences -= 1
            raise OSError("input/output error")
        return super().open(shard)

    def write(self, rows: Any, session: Any) -> Position:
        if self.moves_to is None:
            return super().write(rows, session)
        self.position = Position(str(self.moves_to), 0)
        self.moves_to = None
        raise OSError("the answer is lost")


class TestAFailureAfterTheCommit:
    """The sink is asked how far its table is before anything is written again, or given up."""

    def test_the_write_is_done(self, caplog: pytest.LogCaptureFixture) -> None:
        sink, checkpointer = Unlucky(moves_to=4), FakeCheckpointer()
        made = processor(sink)
        process(made, record_batch([1, 2, 3, 4]), checkpointer)
        process(made, record_batch([5, 6, 7, 8]), checkpointer)
        assert sink.tables == [["5", "6", "7", "8"]]
        assert checkpointer.asked == [Position("4", 0), Position("8", 0)]
        assert "failed after its commit; the table has its records up to 4/0. It was OSError: the answer" in caplog.text

    @pytest.mark.parametrize("silences", [0, 1])
    def test_what_the_table_has_is_not_given_up(self, silences: int) -> None:
        """Somebody else has committed a part of the rows."""
        sink, checkpointer = Unlucky(moves_to=2, silences=silences), FakeCheckpointer()
        made = processor(sink)
        made.process_batch(record_batch([1, 2, 3, 4]), checkpointer)
        settle(made)
        tick = record_batch([])
        with pytest.raises(OSError, match="the answer is lost"):
            made.process_batch(tick, checkpointer)
        given = made.give_up(tick)
        assert [record.sequence_number for batch in given for record in batch] == ["3", "4"]
        process(made, record_batch([5, 6, 7, 8]), checkpointer)
        assert sink.tables == [["5", "6", "7", "8"]]

    def test_a_sink_that_can_not_tell_ends_the_run(self) -> None:
        sink, checkpointer = Unlucky(moves_to=4, silences=2), FakeCheckpointer()
        made = processor(sink)
        made.process_batch(record_batch([1, 2, 3, 4]), checkpointer)
        settle(made)
        tick = record_batch([])
        with pytest.raises(OSError, match="the answer is lost"):
            made.process_batch(tick, checkpointer)
        with pytest.raises(OSError, match="input/output error"):
            made.give_up(tick)
        assert checkpointer.asked == []

    def test_a_number_that_is_not_decimal_is_behind_everything(self) -> None:
        sink, checkpointer = ListSink(), FakeCheckpointer()
        made = processor(sink)
        process(made, record_batch([1, 2, 3, 4]), checkpointer)
        with pytest.raises(ValueError, match="LATEST"):
            made.process_batch(bad := record_batch(["LATEST"]), checkpointer)
        assert made.give_up(bad) == [bad]

    @pytest.mark.parametrize(
        ("sink", "place"),
        [
            (ParquetSink, (storage, "remove")),
            (DeltaSink, (DeltaSink, "_made_checkpoint")),
        ],
    )
    def test_of_the_real_ones(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: Any, place: Any) -> None:
        """The step after the commit fails once: neither doubled nor in a dead letter."""
        committed, failed = [], []
        steps = [(ParquetSink, "_commit"), (DeltaSink, "_commit")]
        for owner, name in steps:
            step = getattr(owner, name)
            monkeypatch.setattr(owner, name, lambda *a, step=step, **o: (step(*a, **o), committed.append(1))[0])
        step = getattr(*place)

        def fails(*arguments: Any, **options: Any) -> Any:
            if committed and not failed:
                failed.append(1)
                raise OSError("input/output error")
            return step(*arguments, **options)

        monkeypatch.setattr(*place, fails)
        checkpointer = FakeCheckpointer()
        made = processor(sink(tmp_path), session=SinkSession())
        process(made, record_batch([1, 2, 3, 4]), checkpointer)
        process(made, record_batch([5, 6, 7, 8]), checkpointer)
        assert failed
        assert checkpointer.asked == [Position("4", 0), Position("8", 0)]
        assert sorted(record[2] for record in records_of(tmp_path).elements()) == list("12345678")


class SinkSession(FakeSession, StandInSession):
    """DataFrames that can be written, too."""

    def __init__(self) -> None:
        FakeSession.__init__(self)
        StandInSession.__init__(self)


class TestACheckpointAfterTheTablesPosition:
    """Records that are neither in the table nor delivered again: lost, unless somebody says otherwise."""

    @pytest.mark.parametrize("sink", [ParquetSink, DeltaSink])
    @pytest.mark.parametrize("upto", [0, 4])
    def test_ends_the_run(self, tmp_path: Path, sink: Any, upto: int) -> None:
        if upto:
            process(processor(sink(tmp_path), session=SinkSession()), record_batch([1, 2, 3, 4]), FakeCheckpointer())
        processor(sink(tmp_path), session=SinkSession(), checkpoint=str(upto) if upto else "LATEST")
        has = "its records up to 4/0" if upto else "none of its records"
        with pytest.raises(SinkError, match=f"the checkpoint 7/0 lies after the table's position: the table has {has}"):
            processor(sink(tmp_path), session=SinkSession(), checkpoint="7")

    @pytest.mark.parametrize("sink", [ParquetSink, DeltaSink])
    @pytest.mark.parametrize("how", ["argument", "environment"])
    def test_is_gone_over_if_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, sink: Any, how: str
    ) -> None:
        options = {"accept_gap": True} if how == "argument" else {}
        if how == "environment":
            monkeypatch.setenv("FASTKCL_ACCEPT_GAP", "1")
        made = processor(sink(tmp_path), session=SinkSession(), checkpoint="7", **options)
        assert [each.levelname for each in caplog.records if "continuing after the checkpoint" in each.message] == [
            "ERROR"
        ]
        process(made, record_batch([8, 9, 10, 11]), FakeCheckpointer())
        monkeypatch.delenv("FASTKCL_ACCEPT_GAP", raising=False)
        processor(sink(tmp_path), session=SinkSession(), checkpoint="11")

    @pytest.mark.parametrize("sink", [ParquetSink, DeltaSink])
    def test_is_none_if_the_records_were_given_up(self, tmp_path: Path, sink: Any) -> None:
        def fails(df: Any) -> Any:
            raise ValueError("poison")

        checkpointer = FakeCheckpointer()
        made = processor(sink(tmp_path, transform=fails), session=SinkSession())
        made.process_batch(record_batch([1, 2, 3, 4]), checkpointer)
        settle(made)
        with pytest.raises(ValueError, match="poison"):
            made.process_batch(tick := record_batch([]), checkpointer)
        assert made.give_up(tick)
        made.process_batch(record_batch([]), checkpointer)
        assert checkpointer.asked == [Position("4", 0)]
        processor(sink(tmp_path), session=SinkSession(), checkpoint="4")
        with pytest.raises(SinkError, match="lies after"):
            processor(sink(tmp_path), session=SinkSession(), checkpoint="5")

    def test_does_not_matter_to_a_sink_without_positions(self) -> None:
        processor(ListSink(), checkpoint="7")

    def test_the_variable_has_two_values(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FASTKCL_ACCEPT_GAP", "yes")
        with pytest.raises(ConfigurationError, match="FASTKCL_ACCEPT_GAP=yes: must be 1"):
            processor(ParquetSink(tmp_path), session=SinkSession())

    @pytest.mark.parametrize("sink", ["ParquetSink", "DeltaSink"])
    def test_a_child_ends_at_its_start(self, tmp_path: Path, sink: str) -> None:
        """As a daemon meets it whose table was removed."""
        line = {"action": "initialize", "shardId": "s", "sequenceNumber": "7", "subSequenceNumber": 0}
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / "sink_child.py")],
            input=json.dumps(line) + "\n",
            env=os.environ
            | {
                "FASTKCL_STREAM": "events",
                "SINK": sink,
                "TABLE_PATH": str(tmp_path / "t"),
                "FASTKCL_REPLAY_ATTEMPT": "1",
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 1
        assert "the checkpoint 7/0 lies after the table's position" in done.stderr
        assert '"status"' not in done.stdout


class TestBytes:
    def test_tables_stay_below_the_limit_also_when_one_batch_does_not(self) -> None:
        writes = Writes()
        made = processor(writes, max_bytes=1, max_table_bytes=1000)
        process(made, record_batch(range(100), data=[b"x" * 90] * 100), FakeCheckpointer())
        assert [n for numbers in writes.numbers for n in numbers] == [str(n) for n in range(100)]
        sizes = [table.nbytes for table in writes.tables]
        assert max(sizes) <= 1000
        assert min(sizes[:-1]) > 700  # and as full as rows of some 150 bytes allow

    def test_memory_that_is_held_counts_not_only_its_length(self) -> None:
        writes = Writes()
        batch = record_batch([1, 2, 3], data=[b"x" * 1000] * 3)
        made = processor(writes, max_records=1000, max_bytes=2 * batch.capacity_bytes)
        process(made, batch.slice(0, 1), FakeCheckpointer())
        assert writes.numbers == []
        process(made, batch.slice(1, 1), FakeCheckpointer())
        assert writes.numbers == [["1", "2"]]

    def test_the_default_leaves_room_below_what_connect_takes(self) -> None:
        assert DEFAULT_MAX_TABLE_BYTES < MAX_CONNECT_BYTES < 128 * 1024 * 1024


async def _coroutine(df: Any, context: WriteContext) -> None: ...


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sink": 3}, TypeError, "sink must be a sink, or a function"),
        ({"sink": ParquetSink}, TypeError, "an instance, not the class: ParquetSink"),
        ({"sink": _coroutine}, TypeError, "coroutine"),
        ({"spark": 3}, TypeError, "not int"),
        ({"spark": "localhost:15002"}, ValueError, "spark='localhost:15002': expected sc://"),
        ({"spark": "sc://"}, ValueError, "expected sc://"),
        ({"max_bytes": 0}, ValueError, "max_bytes=0"),
        ({"max_records": -1}, ValueError, "max_records=-1"),
        ({"max_table_bytes": 0}, ValueError, "1 to 120000000"),
        ({"max_table_bytes": 128 * 1024 * 1024}, ValueError, "1 to 120000000"),
        ({"checkpoint_interval": -1}, ValueError, "checkpoint_interval"),
        ({"shutdown_grace": float("nan")}, ValueError, "shutdown_grace"),
        ({"max_age": 0}, ValueError, "max_age=0"),
        ({"max_held_bytes": 5}, ValueError, "max_held_bytes=5: must be at least max_bytes"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SparkProcessor(**({"sink": print, "spark": "local[1]"} | options))


SINGLE = {"max_bytes": 7, "max_records": 8, "max_age": 9.0, "max_table_bytes": 10, "max_held_bytes": 11}
BINARY = {"compression": "gzip", "max_payload_bytes": 5}
JSON = {"schema": "id string", "compression": "auto", "max_payload_bytes": 6}


def options_of(made: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The bounds of a processor's buffer, and how it opens payloads."""
    bounds = {name: value for name, value in vars(made._buffer).items() if name.startswith("_max_")}
    return bounds, made._payloads and vars(made._payloads)


@pytest.mark.parametrize(
    ("grouped", "single"),
    [
        ({"bounds": Bounds(**SINGLE)}, SINGLE),
        ({"bounds": Bounds()}, {}),
        ({"payload": BinaryPayload(**BINARY), "bounds": Bounds(max_table_bytes=9)}, {**BINARY, "max_table_bytes": 9}),
        ({"payload": BinaryPayload()}, {"payload": "binary"}),
        ({"payload": JsonPayload(**JSON)}, {"payload": "json", **JSON}),
        ({"payload": AvroPayload(schema="{}")}, {"payload": "avro", "schema": "{}"}),
        ({"payload": ProtobufPayload(schema="x", message="M")}, {"payload": "protobuf", "schema": "x", "message": "M"}),
    ],
)
def test_options_in_groups_are_those_one_by_one(grouped: dict[str, Any], single: dict[str, Any]) -> None:
    made = SparkProcessor(print, spark="local[1]", **grouped)
    assert options_of(made) == options_of(SparkProcessor(print, spark="local[1]", **single))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": Bounds(), "max_age": 5.0}, r"max_age= beside bounds=: give it as Bounds\(max_age=…\)"),
        (
            {"payload": JsonPayload("id string"), "compression": "gzip"},
            r"compression= beside payload=JsonPayload\(…\): give it as JsonPayload\(compression=…\)",
        ),
        ({"max_byte": 5}, r"SparkProcessor has no option max_byte=; did you mean max_bytes=\?"),
        ({"keepPayload": True}, r"SparkProcessor has no option keepPayload=; did you mean keep_payload=\?"),
        ({"maxOutage": 5}, r"SparkProcessor has no option maxOutage=; did you mean max_outage=\?"),
        ({"reportInterval": 5}, r"SparkProcessor has no option reportInterval=; did you mean report_interval=\?"),
        ({"registryEndpoint": "x", "payload": "avro"}, "SparkProcessor has no option registryEndpoint=; did you mean"),
        ({"zzz": 5}, "SparkProcessor has no option zzz=$"),
        ({"payload": "avro", "schema": "{}", "max_outage": "5s"}, "max_outage='5s': must be seconds, as a number"),
        ({"payload": "avro", "schema": "{}", "casts": "user=string"}, "casts='user=string': must be a mapping"),
        ({"payload": "protobuf", "schema": "x", "keep_payload": "yes"}, "keep_payload='yes': must be True or False"),
    ],
)
def test_options_that_are_given_twice_or_are_none(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        SparkProcessor(print, spark="local[1]", **options)
