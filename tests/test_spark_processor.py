"""SparkProcessor against the rules of buffered sinks, with a stand-in for the session: no JVM here."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest
from fastkcl import CheckpointError, ConfigurationError, Position, RecordBatch
from fastkcl.spark import SparkProcessor, WriteContext
from fastkcl.spark.processor import DEFAULT_MAX_TABLE_BYTES
from fastkcl.spark.session import MAX_CONNECT_BYTES
from spark_helpers import FakeCheckpointer, record_batch, shard_context


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
    """The user's write function; fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.tables: list[pa.Table] = []
        self.contexts: list[WriteContext] = []

    def __call__(self, df: StandInFrame, context: WriteContext) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("no space left on device")
        self.tables.append(df.table)
        self.contexts.append(context)

    @property
    def numbers(self) -> list[list[str]]:
        return [table["sequenceNumber"].to_pylist() for table in self.tables]


def processor(
    writes: Writes, *, dialect: str = "modern", session: StandInSession | None = None, **options: Any
) -> SparkProcessor:
    options = {"max_records": 4, "checkpoint_interval": 0} | options
    made = SparkProcessor(writes, spark=session or StandInSession(), **options)  # type: ignore[arg-type]
    made.initialize(shard_context(dialect=dialect))
    return made


def test_the_context_says_what_was_written() -> None:
    writes, session, checkpointer = Writes(), StandInSession(), FakeCheckpointer()
    made = processor(writes, session=session)
    made.process_batch(record_batch([10, 10, 11], sub=[0, 1, 0]), checkpointer)
    assert writes.tables == []
    made.process_batch(record_batch([12, 13]), checkpointer)
    (context,), (table,) = writes.contexts, writes.tables
    assert context == WriteContext(
        stream="events",
        shard_id="shardId-000000000007",
        first_position=Position("10", 0),
        last_position=Position("13", 0),
        attempt=1,
        rows=5,
        bytes=table.nbytes,
        spark=session,  # type: ignore[arg-type]
    )
    assert table.num_rows == 5
    assert checkpointer.stored == [Position("13", 0)]


def test_the_table_is_the_batches_own_memory() -> None:
    writes = Writes()
    made = processor(writes, max_records=1000)
    batches = [record_batch([1, 2, 3]), record_batch([4, 5])]
    for batch in batches:
        made.process_batch(batch, FakeCheckpointer())
    made.shard_ended(FakeCheckpointer())
    chunks = writes.tables[0]["data"].chunks
    addresses = [chunk.buffers()[2].address for chunk in chunks]
    assert addresses == [pa.record_batch(batch)["data"].buffers()[2].address for batch in batches]


def test_the_schema_is_explicit_and_the_canonical_one() -> None:
    from fastkcl.spark.schema import SCHEMA
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    session = StandInSession()
    made = processor(Writes(), session=session)
    made.process_batch(record_batch([1, 2, 3, 4]), FakeCheckpointer())
    assert session.schemas == [SCHEMA]
    arrow = pa.record_batch(record_batch([1])).schema
    assert from_arrow_schema(arrow) == SCHEMA
    assert to_arrow_schema(SCHEMA, timezone="UTC") == arrow


def test_settings_for_ingest_are_applied_to_a_given_session() -> None:
    session = StandInSession()
    processor(Writes(), session=session)
    assert session.settings == {
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        "spark.sql.session.localRelationCacheThreshold": "120000000",
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
        made.initialize(shard_context(stream=known))
        made.process_batch(record_batch([1]), FakeCheckpointer())
        assert writes.contexts[0].stream == used


class TestCheckpoint:
    def test_never_what_is_only_held(self) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer()
        made = processor(writes)
        made.process_batch(record_batch([1, 2, 3, 4]), checkpointer)
        made.process_batch(record_batch([5, 6]), checkpointer)
        made.process_batch(record_batch([]), checkpointer)
        assert checkpointer.asked == [Position("4", 0)]

    def test_both_numbers(self) -> None:
        checkpointer = FakeCheckpointer()
        made = processor(Writes())
        made.process_batch(record_batch([1, 7, 7, 7], sub=[0, 0, 1, 2]), checkpointer)
        (asked,) = checkpointer.asked
        assert tuple(asked or ()) == ("7", 2)

    def test_a_refusal_that_may_pass_is_tried_at_the_next_request(self, caplog: pytest.LogCaptureFixture) -> None:
        checkpointer = FakeCheckpointer("ThrottlingException", "KinesisClientLibDependencyException")
        made = processor(Writes(), checkpoint_interval=3600)
        made.process_batch(record_batch([1, 2, 3, 4]), checkpointer)
        made.process_batch(record_batch([5]), checkpointer)
        made.process_batch(record_batch([]), checkpointer)
        made.process_batch(record_batch([]), checkpointer)
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
            made.process_batch(batch, checkpointer)
        made.process_batch(batch, checkpointer)
        assert writes.numbers == [["1", "2", "3", "4"]]
        assert checkpointer.stored == [Position("4", 0)]

    def test_a_lost_lease_stops_the_work(self, caplog: pytest.LogCaptureFixture) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer("ShutdownException")
        made = processor(writes, checkpoint_interval=0)
        made.process_batch(record_batch([1, 2, 3, 4]), checkpointer)
        made.process_batch(record_batch([5, 6, 7, 8, 9]), checkpointer)
        made.shutdown_requested(checkpointer)
        assert writes.numbers == [["1", "2", "3", "4"]]
        assert len(checkpointer.asked) == 1
        made.lease_lost()
        assert "5 records that came after the lease had moved" in caplog.text

    def test_the_end_of_a_shard_is_not_checkpointed_over_records_left_to_another(self) -> None:
        checkpointer = FakeCheckpointer("ShutdownException")
        made = processor(Writes())
        made.process_batch(record_batch([1, 2, 3, 4]), checkpointer)
        made.process_batch(record_batch([5]), checkpointer)
        with pytest.raises(CheckpointError, match="ShutdownException"):
            made.shard_ended(checkpointer)
        assert checkpointer.stored == []


class TestEnds:
    def test_shard_ended_writes_then_checkpoints_the_end(self) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer("ThrottlingException")
        made = processor(writes)
        made.process_batch(record_batch([1, 2]), checkpointer)
        made.shard_ended(checkpointer)
        assert writes.numbers == [["1", "2"]]
        assert checkpointer.asked == [None, None]
        assert checkpointer.stored == [None]

    def test_a_shard_end_that_can_not_be_written_is_not_checkpointed(self) -> None:
        writes, checkpointer = Writes(failures=1), FakeCheckpointer()
        made = processor(writes)
        made.process_batch(record_batch([1, 2]), checkpointer)
        with pytest.raises(OSError, match="no space"):
            made.shard_ended(checkpointer)
        assert checkpointer.asked == []
        made.shard_ended(checkpointer)  # retries=1 of fastkcl.run
        assert (writes.numbers, checkpointer.stored) == ([["1", "2"]], [None])

    def test_shutdown_requested_writes_then_checkpoints_what_is_written(self) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer()
        made = processor(writes, checkpoint_interval=3600)
        made.process_batch(record_batch([1, 2, 3, 4]), checkpointer)
        made.process_batch(record_batch([5, 6]), checkpointer)
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
        made.process_batch(record_batch([1]), checkpointer)
        made.shutdown_requested(checkpointer)
        assert (checkpointer.asked, checkpointer.stored) == ([Position("1", 0)], [])
        assert "what is written stays to be checkpointed" in caplog.text

    def test_lease_lost_drops_what_is_held_and_says_so(self, caplog: pytest.LogCaptureFixture) -> None:
        writes = Writes()
        made = processor(writes)
        made.process_batch(record_batch([1, 2, 3], sub=[0, 0, 5]), FakeCheckpointer())
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
            made.process_batch(batch, checkpointer)
        assert writes.numbers == [["1", "2"], ["3", "3", "3", "3"], ["4", "5", "6", "6", "6"]]
        assert [tuple(asked or ()) for asked in checkpointer.asked] == [("2", None), ("3", None), ("6", None)]
        made.shard_ended(checkpointer)
        assert writes.numbers[3:] == [["7"]]
        assert checkpointer.stored[-1] is None

    def test_a_requested_shutdown_leaves_the_last_number_to_a_redelivery(self) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer()
        made = processor(writes, dialect="legacy")
        for batch in self.batches([1, 2, 2]):
            made.process_batch(batch, checkpointer)
        made.shutdown_requested(checkpointer)
        assert writes.numbers == [["1"]]
        assert [tuple(asked or ()) for asked in checkpointer.asked] == [("1", None)]

    def test_forced_on_records_that_have_sub_sequence_numbers(self) -> None:
        """A checkpoint of this dialect cannot name them, so the sequence number decides all the same."""
        writes, checkpointer = Writes(), FakeCheckpointer()
        made = processor(writes, dialect="legacy")
        made.process_batch(record_batch([1, 2, 2, 2], sub=[0, 0, 1, 2]), checkpointer)
        assert writes.numbers == [["1"]]
        assert [tuple(asked or ()) for asked in checkpointer.asked] == [("1", None)]


class TestFailingWrite:
    def test_a_retry_in_place_doubles_nothing(self) -> None:
        writes, checkpointer = Writes(failures=2), FakeCheckpointer()
        made = processor(writes)
        made.process_batch(record_batch([1, 2]), checkpointer)
        batch = record_batch([3, 4, 5])
        for _ in range(2):
            with pytest.raises(OSError, match="no space"):
                made.process_batch(batch, checkpointer)
        made.process_batch(batch, checkpointer)
        assert writes.numbers == [["1", "2", "3", "4", "5"]]
        assert [context.attempt for context in writes.contexts] == [3]
        assert checkpointer.asked == [Position("5", 0)]

    def test_given_up_the_whole_run_goes_and_the_position_moves_on(self) -> None:
        writes, checkpointer = Writes(failures=1), FakeCheckpointer()
        made = processor(writes)
        held, failed = record_batch([1, 2]), record_batch([3, 4])
        made.process_batch(held, checkpointer)
        with pytest.raises(OSError, match="no space"):
            made.process_batch(failed, checkpointer)
        assert made.give_up(failed) == [held, failed]
        made.process_batch(record_batch([5, 6]), checkpointer)
        assert (writes.tables, checkpointer.stored) == ([], [Position("4", 0)])
        made.shard_ended(checkpointer)
        assert writes.numbers == [["5", "6"]]

    @pytest.mark.parametrize("dialect", ["modern", "legacy"])
    def test_at_the_end_of_a_shard_nothing_is_held_back(self, dialect: str) -> None:
        writes, checkpointer = Writes(failures=1), FakeCheckpointer()
        made = processor(writes, dialect=dialect)
        made.process_batch(held := record_batch([1, 2, 2], dialect=dialect), checkpointer)
        with pytest.raises(OSError, match="no space"):
            made.shard_ended(checkpointer)
        assert made.give_up(None) == [held]
        made.shard_ended(checkpointer)
        assert (writes.tables, checkpointer.stored) == ([], [None])

    def test_before_that_the_last_number_of_the_legacy_dialect_is(self) -> None:
        writes, checkpointer = Writes(failures=1), FakeCheckpointer()
        made = processor(writes, dialect="legacy")
        batch = record_batch([1, 2, 3, 3], dialect="legacy")
        with pytest.raises(OSError, match="no space"):
            made.process_batch(batch, checkpointer)
        (given,) = made.give_up(batch)
        assert [record.sequence_number for record in given] == ["1", "2"]
        made.process_batch(record_batch([3, 4], dialect="legacy"), checkpointer)
        assert writes.numbers == [["3", "3", "3"]]

    @pytest.mark.parametrize("end", [False, True])
    def test_a_refused_checkpoint_gives_up_nothing(self, end: bool) -> None:
        writes, checkpointer = Writes(), FakeCheckpointer("InvalidStateException")
        made = processor(writes)
        batch = record_batch([1, 2, 3, 4])
        with pytest.raises(CheckpointError):
            made.process_batch(batch, checkpointer)
        assert made.give_up(batch) == []
        checkpointer.errors = ["InvalidStateException"]
        with pytest.raises(CheckpointError):
            made.shard_ended(checkpointer) if end else made.shutdown_requested(checkpointer)
        assert made.give_up(None) == []
        assert writes.numbers == [["1", "2", "3", "4"]]

    def test_a_number_that_is_not_decimal_is_refused_before_anything_else(self) -> None:
        writes = Writes()
        made = processor(writes)
        made.process_batch(record_batch([1, 2, 3]), FakeCheckpointer())
        with pytest.raises(ValueError, match="abc"):
            made.process_batch(record_batch(["4", "abc"]), FakeCheckpointer())
        made.shard_ended(FakeCheckpointer())
        assert writes.numbers == [["1", "2", "3"]]


class TestBytes:
    def test_tables_stay_below_the_limit_also_when_one_batch_does_not(self) -> None:
        writes = Writes()
        made = processor(writes, max_bytes=1, max_table_bytes=1000)
        made.process_batch(record_batch(range(100), data=[b"x" * 90] * 100), FakeCheckpointer())
        assert [n for numbers in writes.numbers for n in numbers] == [str(n) for n in range(100)]
        sizes = [table.nbytes for table in writes.tables]
        assert max(sizes) <= 1000
        assert min(sizes[:-1]) > 700  # and as full as rows of some 150 bytes allow

    def test_memory_that_is_held_counts_not_only_its_length(self) -> None:
        writes = Writes()
        batch = record_batch([1, 2, 3], data=[b"x" * 1000] * 3)
        made = processor(writes, max_records=1000, max_bytes=2 * batch.capacity_bytes)
        made.process_batch(batch.slice(0, 1), FakeCheckpointer())
        assert writes.numbers == []
        made.process_batch(batch.slice(1, 1), FakeCheckpointer())
        assert writes.numbers == [["1", "2"]]

    def test_the_default_leaves_room_below_what_connect_takes(self) -> None:
        assert DEFAULT_MAX_TABLE_BYTES < MAX_CONNECT_BYTES < 128 * 1024 * 1024


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"write": 3}, TypeError, "write must be a function"),
        ({"spark": 3}, TypeError, "not int"),
        ({"spark": "localhost:15002"}, ValueError, "spark='localhost:15002': expected sc://"),
        ({"spark": "sc://"}, ValueError, "expected sc://"),
        ({"max_bytes": 0}, ValueError, "max_bytes=0"),
        ({"max_records": -1}, ValueError, "max_records=-1"),
        ({"max_table_bytes": 0}, ValueError, "1 to 120000000"),
        ({"max_table_bytes": 128 * 1024 * 1024}, ValueError, "1 to 120000000"),
        ({"checkpoint_interval": -1}, ValueError, "checkpoint_interval"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SparkProcessor(**({"write": print, "spark": "local[1]"} | options))
