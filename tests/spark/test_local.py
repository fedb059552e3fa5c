"""Records into a Spark that runs: tests/support/spark_fixtures.py has it."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from fastkcl import ProcessRecords, _core
from fastkcl.replay import ReplayOptions, generate, parse_fault, replay
from fastkcl.spark import LocalSpark, SparkProcessor, SparkUnavailableError, WriteContext
from fastkcl.spark.server.session import Session
from fastkcl.spark.sinks import DeltaSink, ParquetSink
from fastkcl.tables.bounds import DEFAULT_MAX_TABLE_BYTES
from paths import PROGRAMS
from processes import open_files
from pyspark.errors import PySparkException
from sink_helpers import delta_rows
from sink_replay import numbers_and_data
from spark_fixtures import SharedSpark
from spark_helpers import FakeCheckpointer, record_batch, shard_context
from waiting import PATIENCE, wait_until

KEY_COLUMNS = ["sequenceNumber", "subSequenceNumber"]


class Forwarder:
    """Stands before a server on this machine, to be its death for those who come this way."""

    def __init__(self, port: int, own_port: int = 0) -> None:
        self._target = port
        self._sockets = [listener := socket.create_server(("127.0.0.1", own_port))]
        self.port: int = listener.getsockname()[1]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Forwarder:
        self._start(self._accept, self._sockets[0])
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    def die(self) -> None:
        while self._sockets:
            dying = self._sockets.pop()
            with contextlib.suppress(OSError):
                dying.shutdown(socket.SHUT_RDWR)
            dying.close()
        while self._threads:
            self._threads.pop().join()

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments)
        thread.start()
        self._threads.append(thread)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                pair = listener.accept()[0], socket.create_connection(("127.0.0.1", self._target))
                self._sockets += pair
                self._start(self._copy, *pair)
                self._start(self._copy, *reversed(pair))

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)


def fill(processor: SparkProcessor, *batches: _core.RecordBatch) -> None:
    processor.initialize(shard_context())
    for batch in batches:
        processor.process_batch(batch, FakeCheckpointer())
    processor.shard_ended(FakeCheckpointer())


def batch_with_every_null() -> _core.RecordBatch:
    line = _core.encode_process_records(
        [b"", None, b"\x00\xff\xfe", "žluťoučký".encode()],
        ["k", "", "é\u2028", "k" * 256],
        ["1", "2", "2", str(10**128)],
        [0, None, 7, 2**40],
        [0, None, 253_402_300_799_999, 1_700_000_000_123],
    )
    message = _core.decode_line(line)
    assert isinstance(message, ProcessRecords)
    return message.batch


def test_every_value_arrives_as_it_was(spark: SharedSpark, way: str, given: Any, tmp_path: Path) -> None:
    batches = [batch_with_every_null(), record_batch(range(10, 2010))]
    rows = []

    def write(df: Any, context: WriteContext) -> None:
        assert type(df).__module__ == f"pyspark.sql.{way}.dataframe"
        rows.append(context.rows)
        df.write.mode("append").parquet(str(tmp_path / "table"))

    fill(SparkProcessor(write, spark=given), *batches)
    expected = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    found = spark.session.read.parquet(str(tmp_path / "table")).toArrow()
    assert rows == [2004]
    order = [(name, "ascending") for name in KEY_COLUMNS]
    assert found.sort_by(order).cast(expected.schema).equals(expected.sort_by(order))


@pytest.mark.parametrize("sink", [ParquetSink, DeltaSink])
def test_every_value_arrives_in_the_table_of_a_sink(given: Any, sink: Any, tmp_path: Path) -> None:
    batches = [batch_with_every_null(), record_batch(range(10**128 + 1, 10**128 + 2001))]
    fill(SparkProcessor(sink(tmp_path / "a b/table"), spark=given), *batches)
    expected = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    if sink is DeltaSink:
        found = delta_rows(tmp_path / "a b/table")
    else:
        found = pa.dataset.dataset(tmp_path / "a b/table", format="parquet", partitioning="hive").to_table()
    assert found.schema.names == [*expected.schema.names, "stream", "shard"]
    order = [(name, "ascending") for name in KEY_COLUMNS]
    assert found.select(expected.schema.names).sort_by(order).cast(expected.schema).equals(expected.sort_by(order))


def test_timestamps_are_instants(given: Any) -> None:
    seen: list[Any] = []

    def write(df: Any, context: WriteContext) -> None:
        seen.extend([df.first(), context.spark.conf.get("spark.sql.session.timeZone")])

    fill(SparkProcessor(write, spark=given), record_batch([1]))
    moment = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
    assert seen[0]["approximateArrivalTimestamp"].astimezone(datetime.UTC) == moment
    assert seen[1] == "UTC"


@pytest.mark.usefixtures("connect_mode")
class TestConnect:
    def test_a_table_goes_in_the_plan_and_leaves_nothing_on_the_server(self, spark: SharedSpark) -> None:
        """Above a threshold (1 MiB by default) pyspark uploads an artifact that lives as long as the session."""
        plans: list[tuple[str, int]] = []
        batches = [record_batch([n], data=[b"x" * 1_000_000]) for n in range(4)]
        processor = SparkProcessor(
            lambda df, context: plans.append((type(df._plan._child).__name__, context.bytes)), spark=spark.url
        )
        fill(processor, *batches)
        ((plan, size),) = plans
        assert size > 4_000_000
        assert plan == "LocalRelation"

    def test_the_largest_table_is_accepted(self, spark: SharedSpark) -> None:
        """One line that is larger than a message of Connect may be: cut, and each piece goes through."""
        found: list[tuple[int, int]] = []
        batch = record_batch(range(140), data=[bytes(1_000_000)] * 140)
        processor = SparkProcessor(
            lambda df, context: found.append((context.bytes, df.selectExpr("sum(length(data))").first()[0])),
            spark=spark.url,
        )
        fill(processor, batch)
        (first, first_sum), (_second, second_sum) = found
        assert DEFAULT_MAX_TABLE_BYTES - 1_100_000 < first <= DEFAULT_MAX_TABLE_BYTES
        assert first_sum + second_sum == 140_000_000

    def test_a_session_that_the_server_has_forgotten_is_opened_again(
        self, spark: SharedSpark, caplog: pytest.LogCaptureFixture
    ) -> None:
        counts: list[int] = []
        sessions: list[Any] = []

        def write(df: Any, context: WriteContext) -> None:
            counts.append(df.count())
            sessions.append(context.spark)

        processor = SparkProcessor(write, spark=spark.url, max_records=2)
        processor.initialize(shard_context())
        checkpointer = FakeCheckpointer()
        processor.process_batch(record_batch([1, 2]), checkpointer)
        processor.shutdown_requested(checkpointer)  # waits for the write
        sessions[0].client.release_session()  # what the server does after an hour of silence
        processor.process_batch(record_batch([3, 4, 5]), checkpointer)
        processor.shutdown_requested(checkpointer)
        processor.lease_lost()
        assert counts == [2, 3]
        assert sessions[0] is not sessions[1]
        assert "opening a new one" in caplog.text

    def test_a_server_without_the_token_is_closed_to_others(self, spark: SharedSpark) -> None:
        from pyspark.errors import PySparkException
        from pyspark.sql.connect.session import SparkSession

        stranger = SparkSession.builder.remote(spark.url.split(";")[0]).create()
        try:
            with pytest.raises(PySparkException, match="(?i)authenticat|token"):
                stranger.range(1).count()
        finally:
            stranger.client.close()
            stranger.client.close = lambda: None  # before PySpark 4.2 it would end calls of others when it is collected

    @pytest.mark.filterwarnings(r"ignore:\[RETRIES_EXCEEDED\]:UserWarning")  # pyspark's word for it
    def test_a_write_ends_when_its_server_has_died(self, spark: SharedSpark, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its clients ask again for ten minutes and more by themselves."""
        monkeypatch.setattr("fastkcl.spark.server.connect._PATIENCE_SECONDS", 1)
        address, _, parameters = spark.url.removeprefix("sc://").partition("/")
        counts: list[int] = []
        with Forwarder(int(address.rpartition(":")[2])) as server:
            processor = SparkProcessor(
                lambda df, _context: counts.append(df.count()),
                spark=f"sc://localhost:{server.port}/{parameters}",
                max_records=1,
                reconnect_timeout=1,
            )
            processor.initialize(shard_context())
            processor.process_batch(record_batch([1]), FakeCheckpointer())
            processor.shutdown_requested(FakeCheckpointer())
            server.die()
            begun = time.monotonic()
            processor.process_batch(record_batch([2]), FakeCheckpointer())
            with pytest.raises((PySparkException, SparkUnavailableError), match="connect|no Spark Connect server"):
                processor.shard_ended(FakeCheckpointer())
            processor.lease_lost()
        assert time.monotonic() - begun < 2 * PATIENCE
        assert counts == [1]


@pytest.mark.usefixtures("connect_mode")
class TestReconnect:
    """A server that goes while something is written; tests/system/test_chaos_connect.py kills real ones, and
    tests/system/test_spark_servers.py stops one."""

    def test_a_cut_way_repeats_what_was_written(
        self, spark: SharedSpark, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nothing comes through for longer than the client waits, then again, to the same server."""
        monkeypatch.setattr("fastkcl.spark.server.connect._PATIENCE_SECONDS", 0.5)
        address, _, parameters = spark.url.removeprefix("sc://").partition("/")
        attempts: list[int] = []
        with Forwarder(int(address.rpartition(":")[2])) as first:
            port = first.port
            back: list[Forwarder] = []

            def come_back() -> None:
                wait_until(lambda: "the write is repeated" in caplog.text, "a write that has failed")
                back.append(Forwarder(int(address.rpartition(":")[2]), port).__enter__())

            def write(df: Any, context: WriteContext) -> None:
                attempts.append(context.attempt)
                if context.attempt == 1:
                    first.die()
                    returning.start()
                assert df.count() == 2

            returning = threading.Thread(target=come_back)
            processor = SparkProcessor(write, spark=f"sc://localhost:{port}/{parameters}")
            fill(processor, record_batch([1, 2]))
            returning.join()
        assert attempts == [1, 2]
        back[0].die()

    def test_an_error_of_a_write_whose_server_is_well_is_its_own(self, spark: SharedSpark) -> None:
        session = Session(spark.url)
        calls: list[str] = []

        def write(opened: Any) -> None:
            calls.append("write")
            opened.sql("SELECT nothing FROM nowhere").collect()

        with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
            session.call(write)
        assert calls == ["write"]
        session.close()


class TestSession:
    def test_a_function_is_called_when_the_shard_is_initialized(self, spark: SharedSpark) -> None:
        calls: list[str] = []

        class NotToBeStopped:
            """The classic session but for its end; it raises when asked whether it has a client."""

            def __getattr__(self, name: str) -> Any:
                return getattr(spark.session, name)

            def stop(self) -> None:
                calls.append("stop")

        def make() -> Any:
            calls.append("make")
            return NotToBeStopped()

        session = Session(make)
        assert calls == []
        assert session.get() is session.get()
        session.close()
        session.close()
        assert calls == ["make", "stop"]

    def test_a_given_one_is_left_alone(self, spark: SharedSpark) -> None:
        session = Session(spark.session)
        assert session.get() is spark.session
        session.close()
        assert spark.session.range(3).count() == 3

    def test_a_second_spark_in_a_process_is_refused(self, spark: SharedSpark) -> None:
        """In the process that has started the JVM, and in one that has attached to it."""
        with pytest.raises(SparkUnavailableError, match="a Spark is running in this process already"):
            LocalSpark()
        assert spark.session.range(1).count() == 1
        assert "a Spark is running in this process already" in spark.facts["second"]
        assert spark.facts["rows_after_second"] == 1


class TestJvm:
    """A LocalSpark with its defaults: the process that has started it reports what only it can see."""

    def test_its_heap_is_larger_than_sparks_default(self, spark: SharedSpark) -> None:
        assert spark.facts["heap"] == 2 * 1024**3

    def test_the_handler_of_interrupts_is_still_ours(self, spark: SharedSpark) -> None:
        assert spark.facts["handler_kept"] is True

    def test_it_has_neither_our_process_group_nor_our_standard_output(self, spark: SharedSpark) -> None:
        assert os.getsid(spark.pid) == spark.pid
        for fd in (1, 2):
            assert Path(f"/proc/{spark.pid}/fd/{fd}").readlink().name == "jvm.log"

    def test_it_listens_on_the_loopback_interface_only(self, spark: SharedSpark) -> None:
        links = open_files(spark.pid).values()
        inodes = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:")}
        addresses = []
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{spark.pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:  # 0A: LISTEN
                    addresses.append(fields[1].rsplit(":", 1)[0])
        loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
        assert addresses
        assert set(addresses) <= loopback


# Fault, how the shard ends; how often records are stored at most, and whether all of them have to be there.
PLAYED = [
    ("nothing wrong", (), "shard-end", 1, True),
    ("a child that is killed starts again at the last checkpoint", ("kill@3",), "shard-end", 2, True),
    ("checkpoints that are refused are asked for again", ("checkpoint-error@1",), "shard-end", 1, True),
    ("a lease that is lost and won back", ("lease-lost@3=mid-batch",), "shard-end", 2, True),
    ("a worker that is stopped", (), "shutdown", 1, True),
    ("a lease that goes for good leaves what was not written", (), "lease-lost", 1, False),
]


@pytest.mark.parametrize(("faults", "end", "times", "complete"), [r[1:] for r in PLAYED], ids=[r[0] for r in PLAYED])
def test_what_is_checkpointed_is_stored(
    spark: SharedSpark, tmp_path: Path, faults: tuple[str, ...], end: Any, times: int, complete: bool
) -> None:
    """Children under the replayer, 1000 records in batches of 100, written by 250 and more."""
    noise: list[bytes] = []
    source = generate("tiny", records=1000, batch_records=100)
    report = replay(
        [sys.executable, str(PROGRAMS / "spark_child.py")],
        source,
        ReplayOptions(
            environment={"FASTKCL_SPARK": spark.url, "TABLE_PATH": str(tmp_path / "table")},
            faults=tuple(map(parse_fault, faults)),
            end=end,
            on_stderr=lambda _shard, line: noise.append(line),
        ),
    )
    (shard,) = report.shards
    assert shard.problems == [], noise
    assert shard.records_sent == 1000
    (played,) = source.shards()
    numbers = list(numbers_and_data(played)[0])
    stored = Counter(row["sequenceNumber"] for row in spark.session.read.parquet(str(tmp_path / "table")).collect())
    if shard.last_checkpoint is None:
        covered = []
    elif shard.last_checkpoint[0] == "SHARD_END":
        covered = numbers
    else:
        covered = numbers[: numbers.index(shard.last_checkpoint[0]) + 1]
    assert set(stored) >= set(covered)  # nothing that is checkpointed is missing
    assert set(stored) == set(numbers[: len(stored)])
    assert (len(covered) == 1000) == complete
    assert max(stored.values()) <= times
    assert any(line.startswith(b"wrote ") for line in noise)
    assert not any(b"FutureWarning" in line for line in noise)
