"""Failures of user code, for each choice of `on_error`, `retries` and `dead_letter`."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import fastkcl
import pyarrow as pa
import pytest
from awkward_errors import AWKWARD, escaping
from fastkcl.processing.dead_letters import DeadLetters
from kcl_helpers import (
    INITIALIZE,
    LEASE_LOST,
    SHARD_ENDED,
    SHUTDOWN_REQUESTED,
    Child,
    Daemon,
    checkpoint,
    in_process,
    process_records,
    status,
)
from paths import PROGRAMS

DONE = status("processRecords")


class Fails(fastkcl.BatchProcessor):
    """Raises in the method named, the first `times` times."""

    def __init__(self, method: str = "process_batch", times: int = 1_000, error: BaseException | None = None) -> None:
        self.method = method
        self.left = times
        self.error = error or ValueError("boom\nin two lines")
        self.calls: list[str] = []

    def _act(self, method: str) -> None:
        self.calls.append(method)
        if method == self.method and self.left > 0:
            self.left -= 1
            raise self.error

    def initialize(self, context: fastkcl.ShardContext) -> None:
        self._act("initialize")

    def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
        self._act("process_batch")

    def lease_lost(self) -> None:
        self._act("lease_lost")

    def shard_ended(self, checkpointer: fastkcl.Checkpointer) -> None:
        self._act("shard_ended")

    def shutdown_requested(self, checkpointer: fastkcl.Checkpointer) -> None:
        self._act("shutdown_requested")


def no_status(*lines: bytes) -> Any:
    """The last line gets no answer, the others theirs."""

    def script(daemon: Daemon) -> None:
        for number, line in enumerate(lines):
            daemon.send(line)
            answer = daemon.receive()
            assert (answer is None) is (number == len(lines) - 1)
        assert daemon.receive() is None

    return script


LOST = ("lease_lost", LEASE_LOST, "leaseLost")
STOPPING = [
    ("process_batch", process_records(100, 101), "processRecords"),
    ("shard_ended", SHARD_ENDED, "shardEnded"),
    ("shutdown_requested", SHUTDOWN_REQUESTED, "shutdownRequested"),
]
REQUESTS = [LOST, *STOPPING]


@pytest.mark.parametrize(("method", "line", "action"), STOPPING)
def test_stop_is_the_default(method: str, line: bytes, action: str) -> None:
    code, stderr = in_process(Fails(method), no_status(INITIALIZE, line))
    assert code == 1
    assert stderr.startswith("Traceback (most recent call last):\n")
    assert "raise self.error\nValueError: boom\nin two lines\n" in stderr
    assert f"fastkcl: user_error: {method} failed with ValueError: boom\\nin two lines (shardId-000000000000" in stderr
    assert stderr.splitlines()[-1].endswith("no status was sent")


@pytest.mark.parametrize("options", [{}, {"on_error": "skip"}, {"dead_letter": True}, {"retries": 2}])
def test_a_failure_after_the_lease_is_lost_stops_nobody(options: dict[str, Any], tmp_path: Path) -> None:
    """No record can be lost by it; a stop would end the daemon's other shards."""
    if "dead_letter" in options:
        options = {"dead_letter": tmp_path}
    processor = Fails("lease_lost")

    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(LEASE_LOST, status("leaseLost"))
        daemon.finish()

    code, stderr = in_process(processor, script, **options)
    assert (code, processor.calls.count("lease_lost")) == (0, 1 + options.get("retries", 0))
    assert "raise self.error\nValueError: boom\nin two lines\n" in stderr
    assert stderr.splitlines()[-1] == (
        "fastkcl: skip: lease_lost failed with ValueError: boom\\nin two lines (shardId-000000000000); the lease is"
        " another worker's by now, so no record is lost by it"
    )


def test_the_report_names_the_positions() -> None:
    _, stderr = in_process(Fails(), no_status(INITIALIZE, process_records(100, 101)))
    assert "(shardId-000000000000, 2 records from 100/0 to 101/0)" in stderr
    _, stderr = in_process(Fails(), no_status(INITIALIZE, process_records()))
    assert "(shardId-000000000000, no records)" in stderr


@pytest.mark.parametrize("options", [{}, {"on_error": "skip"}, {"retries": 3}, {"dead_letter": True}])
def test_a_failing_initialize_always_stops(options: dict[str, Any], tmp_path: Path) -> None:
    if "dead_letter" in options:
        options = {"dead_letter": tmp_path}
    processor = Fails("initialize")
    code, stderr = in_process(processor, no_status(INITIALIZE), **options)
    assert code == 1
    assert "fastkcl: user_error: initialize failed with ValueError: boom" in stderr
    assert processor.calls == ["initialize"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("method", "line", "action"), REQUESTS)
def test_skip(method: str, line: bytes, action: str) -> None:
    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(line, status(action))
        daemon.finish()

    code, stderr = in_process(Fails(method), script, on_error="skip")
    assert code == 0
    assert "Traceback" in stderr
    assert f"fastkcl: skip: {method} failed with ValueError: boom" in stderr
    lost = "2 records from 100/0 to 101/0); these records are reported as processed without having been"
    assert (lost in stderr) is (method == "process_batch")


@pytest.mark.parametrize(("method", "line", "action"), REQUESTS)
def test_retries_in_place(method: str, line: bytes, action: str) -> None:
    processor = Fails(method, times=2)

    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(line, status(action))
        daemon.finish()

    code, stderr = in_process(processor, script, retries=2)
    assert code == 0
    assert processor.calls == ["initialize"] + [method] * 3
    assert stderr.count("Traceback") == 2
    assert "2 more to go" in stderr
    assert "1 more to go" in stderr


def test_retries_with_doubled_pauses_then_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("fastkcl.stdio.signals.SignalWatch.sleep", lambda self, seconds: pauses.append(seconds))
    processor = Fails()
    code, stderr = in_process(processor, no_status(INITIALIZE, process_records(1)), retries=3, retry_backoff=0.5)
    assert code == 1
    assert pauses == [0.5, 1.0, 2.0]
    assert len(processor.calls) == 1 + 4
    assert "fastkcl: user_error: " in stderr


def test_dead_letter(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    processor = Fails(times=2)

    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(process_records(100, 101), DONE)
        daemon.ask(process_records(102), DONE)
        daemon.finish()

    code, stderr = in_process(processor, script, dead_letter=folder, retries=1, stream="orders/eu")
    assert code == 0
    (path,) = folder.iterdir()
    assert path.name == "orders_eu-shardId-000000000000-100-0.arrow"
    assert f"stored in {path}" in stderr
    with pa.ipc.open_file(path) as file:
        table = file.read_all()
    assert table.column("sequenceNumber").to_pylist() == ["100", "101"]
    assert table.column("data").to_pylist() == [b"hello", b"hello"]
    metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    traceback = metadata.pop("fastkcl.traceback")
    assert "raise self.error" in traceback
    assert metadata == {
        "fastkcl.version": fastkcl.__version__,
        "fastkcl.stream": "orders/eu",
        "fastkcl.shard_id": "shardId-000000000000",
        "fastkcl.millis_behind_latest": "0",
        "fastkcl.first_sequence_number": "100",
        "fastkcl.first_sub_sequence_number": "0",
        "fastkcl.last_sequence_number": "101",
        "fastkcl.last_sub_sequence_number": "0",
        "fastkcl.error": "process_batch failed with ValueError: boom\nin two lines"
        " (shardId-000000000000, 2 records from 100/0 to 101/0)",
    }


def test_the_folder_of_dead_letters_outlives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is there: who made it may have died before it was kept."""
    kept: list[Path] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        kept.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    for _ in range(2):
        kept.clear()
        DeadLetters(tmp_path / "made" / "here")
        assert kept[:2] == [tmp_path / "made", tmp_path]
        assert kept[-1] in (Path("/"), *tmp_path.parents)

    def fails(_: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="input/output"):
        DeadLetters(tmp_path / "made" / "here")


def test_dead_letter_in_a_folder_that_user_code_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative folder is that of the start; a stream's name may be anything that an environment holds."""

    class Leaves(Fails):
        def initialize(self, context: fastkcl.ShardContext) -> None:
            os.chdir("/")

    monkeypatch.chdir(tmp_path)

    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(process_records(100), DONE)
        daemon.finish()

    assert in_process(Leaves(times=1), script, dead_letter=Path("letters"), stream="a\udcff").exit == 0
    (path,) = (tmp_path / "letters").iterdir()
    with pa.ipc.open_file(path) as file:
        assert file.schema.metadata[b"fastkcl.stream"] == b"a\\udcff"


def test_dead_letter_of_the_longest_names(tmp_path: Path) -> None:
    number = 10**79

    def script(daemon: Daemon) -> None:
        daemon.ask(INITIALIZE.replace(b"shardId-000000000000", b"s" * 128), status("initialize"))
        for _ in range(2):
            daemon.ask(process_records(number), DONE)
        daemon.finish()

    assert in_process(Fails(), script, dead_letter=tmp_path, stream="o" * 128).exit == 0
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", AWKWARD)
def test_dead_letter_for_an_exception_that_is_hard_to_say(name: str, tmp_path: Path) -> None:
    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(process_records(1), DONE)
        daemon.finish()

    ends: list[Any] = []
    assert escaping(lambda: ends.append(in_process(Fails(error=AWKWARD[name]), script, dead_letter=tmp_path))) is None
    ((code, stderr),) = ends
    assert code == 0
    assert f"process_batch failed with {name.partition(' ')[0]}: " in stderr
    assert len(list(tmp_path.iterdir())) == 1


def test_every_failure_keeps_its_file(tmp_path: Path) -> None:
    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(process_records(100), DONE)
        daemon.ask(process_records(100, 101), DONE)
        daemon.ask(process_records(), DONE)
        daemon.finish()

    code, _ = in_process(Fails(), script, dead_letter=tmp_path)
    assert code == 0
    rows = {path.name: pa.ipc.open_file(path).read_all().num_rows for path in tmp_path.iterdir()}
    stem = "shardId-000000000000"
    assert rows == {f"{stem}-100-0.arrow": 1, f"{stem}-100-0.1.arrow": 2}


@pytest.mark.parametrize(("method", "line", "action"), STOPPING[1:])
def test_dead_letter_is_for_batches_only(method: str, line: bytes, action: str, tmp_path: Path) -> None:
    code, stderr = in_process(Fails(method), no_status(INITIALIZE, line), dead_letter=tmp_path)
    assert code == 1
    assert "fastkcl: user_error: " in stderr
    assert list(tmp_path.iterdir()) == []


def test_batches_without_records_make_no_dead_letter(tmp_path: Path) -> None:
    def script(daemon: Daemon) -> None:
        daemon.start()
        for _ in range(3):
            daemon.ask(process_records(), DONE)
        daemon.finish()

    code, stderr = in_process(Fails(), script, dead_letter=tmp_path)
    assert (code, list(tmp_path.iterdir())) == (0, [])
    assert stderr.count("(shardId-000000000000, no records); no record had to be stored\n") == 3


class Holds(fastkcl.BatchProcessor):
    """Holds batches until there are five records, or an end; the write fails while `poison` is among them."""

    def __init__(self, poison: str = "101") -> None:
        self.poison = poison
        self.held: list[fastkcl.RecordBatch] = []
        self.written: list[str] = []
        self.given_up = 0

    def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
        if sum(map(len, [*self.held, batch])) >= 5:
            self._write([*self.held, batch])
            self.held = []
            checkpointer.checkpoint(batch.last_position)
        else:
            self.held.append(batch)

    def shard_ended(self, checkpointer: fastkcl.Checkpointer) -> None:
        self._write(self.held)
        self.held = []
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: fastkcl.Checkpointer) -> None:
        self.shard_ended(checkpointer)

    def give_up(self, batch: fastkcl.RecordBatch | None) -> list[fastkcl.RecordBatch]:
        self.given_up += 1
        unwritten, self.held = self.held, []
        return unwritten if batch is None else [*unwritten, batch]

    def _write(self, batches: list[fastkcl.RecordBatch]) -> None:
        numbers = [record.sequence_number for batch in batches for record in batch]
        if self.poison in numbers:
            raise ValueError(f"{self.poison} is poison")
        self.written += numbers


def letters(folder: Path) -> list[list[str]]:
    return [
        pa.ipc.open_file(path).read_all()["sequenceNumber"].to_pylist()
        for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    ]


class TestGivenUp:
    """A processor that holds records back says which ones are not written."""

    def test_a_dead_letter_holds_all_of_them(self, tmp_path: Path) -> None:
        processor = Holds()

        def script(daemon: Daemon) -> None:
            daemon.start()
            daemon.ask(process_records(100, 101), DONE)
            daemon.ask(process_records(), DONE)
            daemon.ask(process_records(102, 103, 104), DONE)
            daemon.ask(process_records(105, 106, 107, 108, 109), checkpoint("109", 0), DONE)
            daemon.finish()

        code, stderr = in_process(processor, script, dead_letter=tmp_path, retries=1)
        assert code == 0
        assert letters(tmp_path) == [["100", "101", "102", "103", "104"]]
        assert processor.written == ["105", "106", "107", "108", "109"]
        (path,) = tmp_path.iterdir()
        assert path.name == "shardId-000000000000-100-0.arrow"
        assert f"3 records from 102/0 to 104/0); 5 records from 100/0 to 104/0 are stored in {path}" in stderr
        metadata = pa.ipc.open_file(path).schema.metadata
        ends = [metadata[f"fastkcl.{end}_sequence_number".encode()] for end in ("first", "last")]
        assert ends == [b"100", b"104"]

    def test_skip_names_all_of_them(self) -> None:
        processor = Holds()

        def script(daemon: Daemon) -> None:
            daemon.start()
            daemon.ask(process_records(100, 101, 102), DONE)
            daemon.ask(process_records(103, 104), DONE)
            daemon.ask(SHARD_ENDED, checkpoint(), status("shardEnded"))
            daemon.finish()

        code, stderr = in_process(processor, script, on_error="skip")
        assert (code, processor.written) == (0, [])
        assert "; 5 records from 100/0 to 104/0 are reported as processed without having been\n" in stderr

    @pytest.mark.parametrize(("method", "line", "action"), STOPPING[1:])
    @pytest.mark.parametrize("options", [{"on_error": "skip"}, {"dead_letter": True}])
    def test_an_end_is_checkpointed_without_them(
        self, method: str, line: bytes, action: str, options: dict[str, Any], tmp_path: Path
    ) -> None:
        if "dead_letter" in options:
            options = {"dead_letter": tmp_path}

        def script(daemon: Daemon) -> None:
            daemon.start()
            daemon.ask(process_records(100, 101), DONE)
            daemon.ask(line, checkpoint(), status(action))
            daemon.finish()

        code, stderr = in_process(Holds(), script, **options)
        assert code == 0
        assert f"{method} failed with ValueError: 101 is poison (shardId-000000000000); 2 records from 100/0" in stderr
        assert letters(tmp_path) == ([["100", "101"]] if "dead_letter" in options else [])
        assert "without a successful checkpoint" not in stderr

    def test_an_end_that_fails_without_them_too_is_for_on_error(self, tmp_path: Path) -> None:
        class NeverEnds(Holds):
            def shard_ended(self, checkpointer: fastkcl.Checkpointer) -> None:
                raise ValueError("never")

            def give_up(self, batch: fastkcl.RecordBatch | None) -> list[fastkcl.RecordBatch]:
                super().give_up(batch)
                return list(self.all)

            def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
                self.all = [batch]

        processor = NeverEnds()
        code, stderr = in_process(
            processor, no_status(INITIALIZE, process_records(100), SHARD_ENDED), dead_letter=tmp_path
        )
        assert (code, processor.given_up, letters(tmp_path)) == (1, 1, [["100"]])
        assert stderr.splitlines()[-1].startswith("fastkcl: user_error: shard_ended failed with ValueError: never")

    @pytest.mark.parametrize("options", [{"on_error": "skip"}, {"dead_letter": True}])
    def test_a_failure_that_concerns_no_record(self, options: dict[str, Any], tmp_path: Path) -> None:
        class Adopts(Holds):
            def give_up(self, batch: fastkcl.RecordBatch | None) -> list[fastkcl.RecordBatch]:
                self.poison = ""
                return []

        if "dead_letter" in options:
            options = {"dead_letter": tmp_path}

        def script(daemon: Daemon) -> None:
            daemon.start()
            daemon.ask(process_records(100, 101, 102, 103, 104), DONE)
            daemon.finish()

        code, stderr = in_process(Adopts(), script, **options)
        assert (code, letters(tmp_path)) == (0, [])
        said = "; no record had to be stored" if "dead_letter" in options else "; it is skipped"
        assert said in stderr.splitlines()[-1]

    def test_it_stops_where_they_cannot_be_told(self, tmp_path: Path) -> None:
        class Forgets(Holds):
            def give_up(self, batch: fastkcl.RecordBatch | None) -> list[fastkcl.RecordBatch]:
                raise KeyError("gone")

        lines = (INITIALIZE, process_records(100, 101, 102, 103, 104))
        code, stderr = in_process(Forgets(), no_status(*lines), dead_letter=tmp_path)
        assert code == 1
        assert "; and give_up failed with KeyError: 'gone'; no status was sent" in stderr.splitlines()[-1]

    def test_nobody_asks_where_the_run_ends(self) -> None:
        processor = Holds()
        in_process(processor, no_status(INITIALIZE, process_records(100, 101, 102, 103, 104)), retries=1)
        assert processor.given_up == 0

    def test_it_is_no_generator(self) -> None:
        class Deferred(Holds):
            def give_up(self, batch: fastkcl.RecordBatch | None) -> Any:
                yield batch

        with pytest.raises(TypeError, match="give_up is a coroutine or generator function"):
            fastkcl.run(Deferred())


QUESTIONS = {"breakpoint()": "a debugger has quit", "input('name? ')": "user code has asked for input"}


@pytest.mark.parametrize("option", ["on_error=skip", "dead_letter"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_who_asks_a_person_stops(question: str, option: str, tmp_path: Path) -> None:
    """A child of a daemon has no terminal: every batch would fail."""
    option = option.replace("dead_letter", f"dead_letter={tmp_path}")
    source = f"def process_batch(self, batch, checkpointer): {question}"
    with Child(str(PROGRAMS / "acts.py"), source, option) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        assert child.daemon.receive() is None
        code, stderr = child.finish()
    assert (code, list(tmp_path.iterdir())) == (1, [])
    (report,) = [line for line in stderr.splitlines() if line.startswith("fastkcl: ")]
    assert report.startswith("fastkcl: user_error: process_batch failed with ")
    assert QUESTIONS[question] in report


@pytest.mark.parametrize("way", ["raise ValueError('in the fork')", "sys.exit(5)", "return"])
def test_a_forked_child_acts_for_nobody(way: str, tmp_path: Path) -> None:
    source = f"""
def process_batch(self, batch, checkpointer):
    if os.fork() == 0:
        {way}
    else:
        print("fork", os.waitstatus_to_exitcode(os.wait()[1]), file=sys.stderr, flush=True)
"""
    with Child(str(PROGRAMS / "acts.py"), source, f"dead_letter={tmp_path}") as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        code, stderr = child.finish()
    assert (code, list(tmp_path.iterdir())) == (0, [])
    assert f"fork {5 if 'exit' in way else 1}\n" in stderr
    assert "run_ended in a fork" not in stderr
    assert stderr.endswith("run_ended in the child\n")


@pytest.mark.parametrize(("method", "line"), [("initialize", None), ("process_batch", process_records(100))])
def test_what_is_wrong_around_the_program_is_told_without_a_traceback(method: str, line: bytes | None) -> None:
    error = fastkcl.ConfigurationError("TABLE_PATH is not set: a folder for the table")
    lines = (INITIALIZE, line) if line else (INITIALIZE,)
    code, stderr = in_process(Fails(method, error=error), no_status(*lines))
    assert code == 1
    assert stderr.startswith(f"fastkcl: user_error: {method} failed with ConfigurationError: TABLE_PATH is not set: ")
    assert stderr.count("\n") == 1


def test_a_dead_letter_that_cannot_be_written_stops(tmp_path: Path) -> None:
    folder = tmp_path / "letters"

    class Removes(Fails):
        def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
            folder.rmdir()
            super().process_batch(batch, checkpointer)

    code, stderr = in_process(Removes(), no_status(INITIALIZE, process_records(1)), dead_letter=folder, on_error="skip")
    assert code == 1
    assert f"and dead_letter={folder} could not be written: " in stderr


@pytest.mark.parametrize("options", [{}, {"on_error": "skip"}, {"retries": 5}, {"dead_letter": True}])
@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (SystemExit(7), 7),
        (SystemExit(), 0),
        (SystemExit("words"), "words"),
        (KeyboardInterrupt(), 130),
        (fastkcl.LocalProtocolError("not_allowed", "by hand", "READY"), 1),
    ],
)
def test_what_always_stops(options: dict[str, Any], error: BaseException, exit_code: object, tmp_path: Path) -> None:
    if "dead_letter" in options:
        options = {"dead_letter": tmp_path}
    processor = Fails(error=error)
    code, _ = in_process(processor, no_status(INITIALIZE, process_records(1)), **options)
    assert code == exit_code
    assert processor.calls == ["initialize", "process_batch"]
    assert list(tmp_path.iterdir()) == []


def test_another_base_exception_goes_through() -> None:
    class Unheard(BaseException):
        pass

    with pytest.raises(Unheard):
        in_process(Fails(error=Unheard()), no_status(INITIALIZE, process_records(1)), on_error="skip")


def test_an_uncaught_checkpoint_error_is_a_user_error() -> None:
    code, stderr = in_process(
        Fails(error=fastkcl.CheckpointError("ThrottlingException")), no_status(INITIALIZE, process_records(1))
    )
    assert code == 1
    assert "user_error: process_batch failed with CheckpointError: ThrottlingException: the lease table" in stderr


def test_a_shard_end_without_a_checkpoint_is_warned_about() -> None:
    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(SHARD_ENDED, status("shardEnded"))
        daemon.finish()

    code, stderr = in_process(Fails("nothing"), script)
    assert code == 0
    assert stderr.startswith(
        "fastkcl: warning: shard_ended of shardId-000000000000 returned without a successful checkpoint: KCL cannot"
    )


class ChecksBatchesOnly(fastkcl.BatchProcessor):
    def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
        checkpointer.checkpoint()

    def shard_ended(self, checkpointer: fastkcl.Checkpointer) -> None:
        pass


def test_a_checkpoint_of_an_earlier_request_does_not_count_for_the_shard_end() -> None:
    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(process_records(1), checkpoint(), DONE)
        daemon.ask(SHARD_ENDED, status("shardEnded"))
        daemon.finish()

    assert "returned without a successful checkpoint" in in_process(ChecksBatchesOnly(), script).stderr


def test_a_broken_dialogue_is_the_only_thing_said_of_a_shard_end() -> None:
    class Swallows(Fails):
        def shard_ended(self, checkpointer: fastkcl.Checkpointer) -> None:
            with contextlib.suppress(fastkcl.ProtocolError):
                checkpointer.checkpoint()

    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.send(SHARD_ENDED)
        assert daemon.receive() == checkpoint()
        daemon.finish()

    code, stderr = in_process(Swallows("nothing"), script)
    assert code == 1
    assert stderr.startswith("fastkcl: closed_while_waiting: ")
    assert stderr.count("\n") == 1


SOURCE = """
import sys, fastkcl

class Processor(fastkcl.BatchProcessor):
    def process_batch(self, batch, checkpointer):
        raise ValueError("poison")

fastkcl.run(Processor(), {options})
"""


@pytest.mark.parametrize(
    ("options", "answered", "exit_code", "report"),
    [
        ("", False, 1, "fastkcl: user_error: process_batch failed with ValueError: poison"),
        ("on_error='stop', retries=1, retry_backoff=0.01", False, 1, "fastkcl: retry: "),
        ("on_error='skip'", True, 0, "fastkcl: skip: "),
        ("dead_letter=sys.argv[1]", True, 0, "fastkcl: dead_letter: "),
    ],
)
def test_with_a_real_child(options: str, answered: bool, exit_code: int, report: str, tmp_path: Path) -> None:
    with Child("-c", SOURCE.format(options=options), str(tmp_path)) as child:
        child.daemon.start()
        child.daemon.send(process_records(100, 101))
        assert child.daemon.receive() == (DONE if answered else None)
        code, stderr = child.finish()
    assert code == exit_code
    assert report in stderr
    assert 'File "<string>", line 6, in process_batch' in stderr
    assert "processing/failures.py" not in stderr
    assert len(list(tmp_path.iterdir())) == ("dead_letter" in options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on_error": "ignore"}, "on_error must be 'stop' or 'skip', not 'ignore'"),
        ({"retries": -1}, "must not be negative: -1"),
        ({"retry_backoff": -0.5}, "must not be negative: 0, -0.5"),
        ({"retry_backoff": float("nan")}, "must not be negative"),
        ({"shutdown_grace": -1}, "shutdown_grace must not be negative: -1"),
        ({"dialect": "old"}, "dialect must be"),
    ],
)
def test_run_refuses_wrong_arguments_before_it_takes_anything(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        fastkcl.run(Fails(), **options)


def test_run_refuses_half_a_retry() -> None:
    with pytest.raises(TypeError, match="retries must be a whole number, not 1.5"):
        fastkcl.run(Fails(), retries=1.5)  # type: ignore[arg-type]


def test_run_refuses_a_dead_letter_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        fastkcl.run(Fails(), dead_letter=tmp_path / "file")
