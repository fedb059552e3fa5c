"""Records into a Spark that runs: tests/support/spark_fixtures.py has it."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from fastkcl import ProcessRecords, _core
from fastkcl.replay import ReplayOptions, generate, parse_fault, profiles, replay
from fastkcl.spark import LocalSpark, SparkProcessor, SparkUnavailableError, WriteContext
from fastkcl.spark.server.session import Session
from fastkcl.spark.sinks import DeltaSink, ParquetSink
from fastkcl.tables.bounds import DEFAULT_MAX_TABLE_BYTES
from paths import EXAMPLES, PROGRAMS, ROOT
from processes import open_files
from pyspark.errors import PySparkException
from sink_helpers import delta_rows
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


@pytest.mark.timeout(400)
def test_the_example_fills_a_table_through_the_server_it_is_pointed_at(spark: SharedSpark, tmp_path: Path) -> None:
    """The command that its text tells, word for word: 400,000 records, on the heap that a LocalSpark has."""
    table = tmp_path / "clicks"
    command = "fastkcl replay --profile clickstream --shards 4 -- python examples/to_spark.py"
    assert command in (EXAMPLES / "to_spark.py").read_text()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command.replace(" -- ", " --json -- ").split(),
        cwd=ROOT,
        env=os.environ | {"PATH": path, "FASTKCL_SPARK": spark.url, "TABLE_PATH": str(table)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ok"]
    assert [shard["last_checkpoint"][0] for shard in report["shards"]] == ["SHARD_END"] * 4
    assert "Warning" not in done.stderr
    columns = ["shardId", "sequenceNumber", "crc32(data) AS crc", "length(event) > 0 AS event", "stream"]
    rows = spark.session.read.parquet(str(table)).selectExpr(*columns).toArrow()
    count = sum(shard["records_sent"] for shard in report["shards"])
    assert rows.num_rows == count == 400_000
    stored = set(zip(*(rows[name].to_pylist() for name in ("shardId", "sequenceNumber", "crc")), strict=True))
    assert stored == {
        (shard.shard_id, number, zlib.crc32(data))
        for shard in generate("clickstream", shards=4, records=count // 4).shards()
        for number, data in zip(*_numbers_and_data(shard), strict=True)
    }
    assert rows["stream"].unique().to_pylist() == ["replay"]
    assert rows["event"].unique().to_pylist() == [True]


def _numbers_and_data(shard: Any) -> tuple[Any, Any]:
    columns = shard.records.columns(0, len(shard.records))
    return columns.sequence_numbers, columns.data


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
    numbers = list(_numbers_and_data(played)[0])
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


@pytest.mark.parametrize("sink", ["ParquetSink", "DeltaSink"])
@pytest.mark.parametrize("dialect", ["modern", "legacy"])
def test_a_sink_has_each_record_once_whoever_dies(spark: SharedSpark, tmp_path: Path, sink: str, dialect: Any) -> None:
    """A child killed twice and one that wakes up beside its successor; a lease lost and a checkpoint refused."""
    noise: list[bytes] = []
    source = generate("tiny", records=1000, batch_records=100)
    report = replay(
        [sys.executable, str(PROGRAMS / "spark_child.py")],
        source,
        ReplayOptions(
            dialect=dialect,
            environment={"FASTKCL_SPARK": spark.url, "TABLE_PATH": str(tmp_path / "table"), "SINK": sink},
            faults=tuple(
                map(parse_fault, ("kill@3", "stop@6=1", "kill@8=half", "lease-lost@11", "checkpoint-error@2"))
            ),
            on_stderr=lambda _shard, line: noise.append(line),
        ),
    )
    (shard,) = report.shards
    assert shard.problems == [], noise
    assert shard.restarts == 4
    assert shard.last_checkpoint == ("SHARD_END", 0)
    (played,) = source.shards()
    if sink == "DeltaSink":
        rows = delta_rows(tmp_path / "table").to_pylist()
    else:
        table = spark.session.read.parquet(str(tmp_path / "table"))
        rows = table.selectExpr("sequenceNumber", "stream", "shard").collect()
    assert sorted(row["sequenceNumber"] for row in rows) == sorted(_numbers_and_data(played)[0])
    assert {(row["stream"], row["shard"]) for row in rows} == {("replay", shard.shard_id)}


@pytest.mark.parametrize(
    ("poison", "first"),
    [(130, 0), (420, 300), (990, 900)],
    ids=["in the first table", "in the second", "at the shard's end"],
)
@pytest.mark.parametrize("choice", ["dead_letter", "skip"])
def test_a_poison_record_takes_its_run_with_it_and_nothing_else(
    spark: SharedSpark, tmp_path: Path, poison: int, first: int, choice: str
) -> None:
    """The table and the letter together hold every record, once, and the shard goes on to its end.

    The run begins with the table that could not be written, and ends with the batch that met the failure.
    """
    table, letters = tmp_path / "table", tmp_path / "letters"
    chosen = {"DEAD_LETTER": str(letters)} if choice == "dead_letter" else {"ON_ERROR": "skip"}
    source = generate("tiny", records=1000, batch_records=100)
    (played,) = source.shards()
    numbers = list(_numbers_and_data(played)[0])
    noise: list[bytes] = []
    report = replay(
        [sys.executable, str(PROGRAMS / "spark_child.py")],
        source,
        ReplayOptions(
            environment={"FASTKCL_SPARK": spark.url, "TABLE_PATH": str(table), "POISON": numbers[poison]} | chosen,
            on_stderr=lambda _shard, line: noise.append(line),
        ),
    )
    (shard,) = report.shards
    assert (shard.problems, shard.exit_codes) == ([], [0]), noise
    assert shard.last_checkpoint is not None
    assert shard.last_checkpoint[0] == "SHARD_END"
    stored = {row["sequenceNumber"]: 1 for row in spark.session.read.parquet(str(table)).collect()}
    assert spark.session.read.parquet(str(table)).count() == len(stored)
    given_up = [number for number in numbers if number not in stored]
    assert given_up == numbers[first : first + len(given_up)]
    assert (len(given_up) % 100, numbers[poison] in given_up) == (0, True)
    said = f"; {len(given_up)} records from {given_up[0]}/0 to {given_up[-1]}/0 are "
    said += "stored in " if choice == "dead_letter" else "reported as processed without having been"
    assert sum(said.encode() in line for line in noise) == 1
    if choice == "dead_letter":
        (letter,) = letters.iterdir()
        assert pa.ipc.open_file(letter).read_all()["sequenceNumber"].to_pylist() == given_up


def test_profiles_used_here_are_json() -> None:
    """The example looks into the payloads; if the profile changed its field names it would show nulls."""
    event = json.loads(profiles.PROFILES["clickstream"].payloads(1, 0)[0])
    assert {"type", "country", "item"} <= set(event)
