"""Supervisors: their state table, real workers that answer, die, hang and break the rules, and pipelines of them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dkb_helpers import STAGE
from fastkcl import LocalProtocolError, RemoteProtocolError
from fastkcl._core import MarkerDecoder
from fastkcl.dkb import PRESETS, Markers, StageError, SupervisorConnection, WorkerConnection
from fastkcl.dkb.log import LineLevels
from fastkcl.dkb.pipeline import Pipeline, PipelineError, StageSpec, read_pipeline
from fastkcl.dkb.supervisor import Answer, Ready, RetryPolicy, Supervisor, SupervisorError
from hypothesis import given
from hypothesis import strategies as st
from signal_helpers import when_idle
from waiting import PATIENCE, wait_until, wait_until_idle

QUICK = RetryPolicy(backoff=0.01)


def stage_command(behaviour: str, size: int | None = None, message_type: str = "text") -> list[str]:
    return [sys.executable, str(STAGE), message_type, behaviour, "-" if size is None else str(size), "-m", "s"]


def program(source: str) -> list[str]:
    """A worker in a few lines, which need not keep any rule."""
    return [sys.executable, "-c", f"import os, sys, time\nread, write = os.read, os.write\n{source}"]


class Hurried(Ready):
    """Some messages have a response timeout of their own."""

    def __init__(self, messages: list[bytes], supervisor: Supervisor, seconds: dict[bytes, float]) -> None:
        super().__init__(messages)
        self._supervisor, self._seconds, self._else = supervisor, seconds, supervisor.response_timeout

    def take(self, timeout: float | None) -> bytes | None:
        message = super().take(timeout)
        self._supervisor.response_timeout = self._seconds.get(message or b"", self._else)
        return message


class Ran:
    """What came of a supervisor's run."""

    def __init__(
        self,
        messages: list[bytes] | None,
        command: list[str],
        *,
        impatient: dict[bytes, float] | None = None,
        **options: Any,
    ) -> None:
        self.answers: list[Answer] = []
        self.log: list[tuple[str, bytes]] = []
        self.supervisor = Supervisor(
            command=command, on_log=lambda level, line: self.log.append((level, line)), **{"retry": QUICK, **options}
        )
        if messages is None:
            self.supervisor.extract(self.answers.append)
        else:
            self.supervisor.run(Hurried(messages, self.supervisor, impatient or {}), self.answers.append)

    @property
    def results(self) -> list[bytes]:
        return [result for answer in self.answers if not answer.partial for result in answer.results]

    @property
    def warnings(self) -> str:
        return "\n".join(line.decode() for level, line in self.log if level == "WARN")


MESSAGES = [b"message %d" % number for number in range(7)]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"batch_size": 0}, "batch_size=0, linger="),
        ({"linger": -0.1}, "linger=-0.1: must be"),
        ({"linger": float("nan")}, "linger=nan: must be"),
        ({"response_timeout": 0}, "response_timeout=0: must be above 0"),
        ({"response_timeout": float("inf")}, "response_timeout=inf: must be above 0"),
    ],
)
def test_options_of_a_supervisor_that_cannot_be(option: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Supervisor(command=["x"], **option)


class TestConnection:
    """Both state tables against each other, without input or output."""

    @given(
        st.lists(st.binary(max_size=5).filter(lambda data: not set(data) & {0x0A, 0, 0x17, 0x05}), max_size=12),
        st.integers(0, 4),
        st.integers(1, 5),
    )
    def test_both_sides_together(self, messages: list[bytes], worker_size: int, supervisor_size: int) -> None:
        """Whatever the batch sizes, each message is processed once, in order, and both sides end idle."""
        markers = PRESETS["recommended"]
        worker = WorkerConnection(markers, worker_size)
        batching: Any = "single" if worker_size == 1 else "worker" if worker_size else "supervisor"
        supervisor = SupervisorConnection(markers, batching)
        to_worker = MarkerDecoder(end_of_message=b"\n", at_boundary=None if worker_size == 1 else b"\x17")
        to_supervisor = MarkerDecoder(end_of_message=b"\n", end_of_process=b"\0", at_boundary=b"\x05")
        waiting, batch, results = list(messages), [], []

        def work(data: bytes) -> None:
            to_worker.feed(data)
            for event in to_worker:
                if event.kind == "message":
                    batch.append(event.data)
                    answer = worker.receive_messages()
                else:
                    answer = worker.receive("end_of_batch")
                if worker.state == "PROCESSING":
                    answer += worker.send_results([b"r" + data for data in batch])
                    batch.clear()
                to_supervisor.feed(answer)
            for event in to_supervisor:
                if event.kind == "message":
                    results.append(event.data)
                    supervisor.receive("message")
                elif event.kind == "end_of_process":
                    supervisor.receive("end_of_process")
                else:
                    supervisor.receive("batch_not_complete")
                    rest = len(messages) - len(waiting)
                    if waiting and rest % supervisor_size:
                        work(supervisor.send_message(waiting.pop(0)))
                    else:
                        work(supervisor.send_end_of_batch())

        while waiting:
            if batching == "supervisor":
                taken, waiting[:] = waiting[:supervisor_size], waiting[supervisor_size:]
                work(b"".join(map(supervisor.send_message, taken)) + supervisor.send_end_of_batch())
            else:
                work(supervisor.send_message(waiting.pop(0)))
            assert (worker.state, supervisor.state) == ("IDLE", "IDLE")
        assert results == [b"r" + data for data in messages]

    @pytest.mark.parametrize(
        ("batching", "sends", "event", "says"),
        [
            ("single", "", "end_of_process", "EOP is not allowed in state IDLE"),
            ("single", "", "batch_not_complete", "BNC is not allowed in state IDLE"),
            ("single", "m", "batch_not_complete", "BNC is not allowed in state WAIT"),
            ("worker", "", "message", "a message is not allowed in state IDLE"),
            ("supervisor", "m", "batch_not_complete", "BNC is not allowed in state FEED"),
            ("supervisor", "m", "end_of_process", "EOP is not allowed in state FEED"),
        ],
    )
    def test_what_a_worker_may_not(self, batching: Any, sends: str, event: Any, says: str) -> None:
        connection = SupervisorConnection(Markers(), batching)
        for _ in sends:
            connection.send_message(b"x")
        for _ in range(2):
            with pytest.raises(RemoteProtocolError, match=says):
                connection.receive(event)
        assert connection.state == "ERROR"
        assert connection.error is not None
        with pytest.raises(RemoteProtocolError, match=says):
            connection.send_message(b"x")

    @pytest.mark.parametrize(
        ("batching", "before", "then"),
        [
            ("single", 1, "send_message"),
            ("worker", 1, "send_message"),
            ("worker", 0, "send_end_of_batch"),
            ("single", 0, "send_end_of_batch"),
            ("worker", 1, "send_end_of_batch"),
        ],
    )
    def test_what_this_side_may_not(self, batching: Any, before: int, then: str) -> None:
        connection = SupervisorConnection(Markers(), batching)
        for _ in range(before):
            connection.send_message(b"x")
        arguments = [b"x"] if then == "send_message" else []
        with pytest.raises(LocalProtocolError, match="not_allowed"):
            getattr(connection, then)(*arguments)

    def test_a_message_that_would_be_read_as_something_else(self) -> None:
        connection = SupervisorConnection(Markers(), "worker")
        for message, says in ((b"a\nb", "holds EOM"), (b"EOB!", "begins with EOB")):
            with pytest.raises(LocalProtocolError, match=says):
                connection.send_message(message)
        assert connection.send_message(b"a EOB") == b"a EOB\n"
        assert SupervisorConnection(Markers(), "single").send_message(b"EOB!") == b"EOB!\n"
        with pytest.raises(LocalProtocolError, match="holds EOM"):
            SupervisorConnection(Markers(b"aba"), "single").send_message(b"xab")  # with the EOM: xababa

    @pytest.mark.parametrize(
        ("markers", "batching"), [("shell", "worker"), ("pydkb", "supervisor"), ("pydkb-files", "single")]
    )
    def test_markers_that_do_not_do(self, markers: str, batching: Any) -> None:
        with pytest.raises(StageError):
            SupervisorConnection(PRESETS[markers], batching)

    def test_a_worker_answers_what_it_was_asked(self) -> None:
        connection = WorkerConnection(Markers(), 1)
        with pytest.raises(LocalProtocolError, match="results are not allowed in state IDLE"):
            connection.send_results([])
        connection = WorkerConnection(Markers(), 1)
        connection.receive_messages()
        with pytest.raises(LocalProtocolError, match="message is not allowed in state PROCESSING"):
            connection.receive_messages()

    @pytest.mark.parametrize("result", [b"a\nb", b"a\0", b"BNCx"])
    def test_a_result_that_holds_a_marker(self, result: bytes) -> None:
        connection = WorkerConnection(Markers(), 2)
        connection.receive_messages()
        connection.receive("end_of_batch")
        with pytest.raises(LocalProtocolError, match="result 2 holds"):
            connection.send_results([b"fine", result])

    def test_end_of_process_equal_to_end_of_message(self) -> None:
        for results, expected in (([b"a"], b"a\n"), ([], b"\n")):
            connection = WorkerConnection(PRESETS["kafka-streams-line"], 1)
            connection.receive_messages()
            assert connection.send_results(results) == expected
        connection = WorkerConnection(PRESETS["kafka-streams-line"], 1)
        connection.receive_messages()
        with pytest.raises(LocalProtocolError, match="the first would end it"):
            connection.send_results([b"a", b"b"])


class TestAnswers:
    @pytest.mark.parametrize("markers", ["fastkcl", "recommended"])
    @pytest.mark.parametrize(
        ("batching", "worker_size", "size"),
        [("single", 1, 1), ("worker", 2, 1), ("worker", 100, 1), ("supervisor", 0, 3), ("supervisor", 0, 100)],
    )
    def test_each_way_to_batch(self, batching: str, worker_size: int, size: int, markers: str) -> None:
        """Also a batch that never gets full: it is ended by EOB, and answered at once."""
        chosen = PRESETS[markers]
        command = [
            *stage_command("echo", worker_size),
            *(
                "--end-of-batch",
                chosen.end_of_batch.decode(),
                "--batch-not-complete",
                chosen.batch_not_complete.decode(),
            ),
        ]
        ran = Ran(MESSAGES, command, batching=batching, batch_size=size, markers=chosen)
        assert ran.results == MESSAGES
        counts = ran.supervisor.counts
        expected = {1: 7, 2: 4, 100: 1, 0: -(-7 // size)}[worker_size]
        assert (counts.messages, counts.requests, counts.restarts) == (7, expected, 0)
        assert [line for level, line in ran.log if level == "TRACE"] == [b"printed"] * expected

    def test_cyclic_extraction(self) -> None:
        ran = Ran([b"", b""], stage_command("extract", message_type="json"))
        assert [json.loads(result)["n"] for result in ran.results] == [0, 1, 2, 0, 1, 2]

    def test_a_worker_that_answers_while_it_is_still_written_to(self) -> None:
        """Both pipes are full at the same time, several times over."""
        source = """
while data := read(0, 1 << 16):
    write(1, data.replace(b"\\n", b"") * 3 + b"\\n\\0" * data.count(b"\\n"))
"""
        message = b"x" * 5_000_000
        assert Ran([message] * 2, program(source), markers=PRESETS["pydkb"]).results == [message * 3] * 2

    def test_text_before_the_end_of_process_is_a_message(self) -> None:
        ran = Ran([b"a"], program("read(0, 9); write(1, b'\\n\\nx\\ny\\0'); read(0, 9)"))
        assert ran.results == [b"x", b"y"]

    def test_levels_of_the_log(self) -> None:
        lines = b"(INFO) a\n(==) b\nc\n2016-10-19 13:00:00 (WARNING) (Stage) d\n"
        ran = Ran([b"a"], program(f"write(2, {lines!r}); read(0, 9); write(1, b'\\0')"))
        assert [level for level, _ in ran.log] == ["INFO", "INFO", "TRACE", "WARN"]
        assert LineLevels().level(b"(ERRORS) x") == "TRACE"


class TestDeaths:
    @pytest.mark.parametrize(("batching", "worker_size"), [("single", 1), ("worker", 4), ("supervisor", 0)])
    def test_a_worker_killed_in_mid_batch(self, tmp_path: Path, batching: str, worker_size: int) -> None:
        """It is restarted, and nothing is lost or there twice."""
        messages = [*MESSAGES[:2], b"die", *MESSAGES[2:]]
        command = stage_command(f"die-once={tmp_path / 'died'}", worker_size)
        ran = Ran(messages, command, batching=batching, batch_size=4)
        assert ran.results == messages
        assert (ran.supervisor.counts.restarts, ran.supervisor.counts.skipped) == (1, 0)
        assert "the worker died: ended by SIGKILL; restarting" in ran.warnings

    def test_once_more_and_then_it_is_skipped(self) -> None:
        ran = Ran([b"a", b"die", b"b"], stage_command("die"))
        assert ran.results == [b"a", b"b"]
        assert (ran.supervisor.counts.restarts, ran.supervisor.counts.skipped) == (2, 1)
        assert [answer.requests for answer in ran.answers if answer.skipped] == [(b"die",)]
        assert "skipped a request of 1 messages, as the worker died of it: ended by SIGKILL" in ran.warnings

    def test_skip_at_once(self) -> None:
        ran = Ran([b"a", b"die", b"b"], stage_command("die"), retry=RetryPolicy(policy="skip", backoff=0))
        assert (ran.results, ran.supervisor.counts.restarts) == ([b"a", b"b"], 1)

    def test_again_and_again_until_it_is_too_often(self) -> None:
        with pytest.raises(SupervisorError, match="the worker died 3 times in a row without any output, the last time"):
            Ran([b"die"], stage_command("die"), retry=RetryPolicy(max=2, policy="retry", backoff=0))

    def test_output_begins_the_count_anew(self) -> None:
        """Dies after each answer, more often than may be in a row."""
        worker = program("read(0, 9); write(1, b'x\\n\\0'); time.sleep(0.05); sys.exit(1)")
        ran = Ran([b"a"] * 6, worker, retry=RetryPolicy(max=1, policy="retry", backoff=0))
        assert ran.results == [b"x"] * 6

    def test_results_of_a_dead_worker_are_partial(self) -> None:
        ran = Ran([b"a"], program("read(0, 9); write(1, b'x\\ny\\nz')"))
        assert ran.results == []
        assert [(answer.results, answer.partial, answer.skipped) for answer in ran.answers] == [
            ((b"x", b"y"), True, False),
            ((b"x", b"y"), True, True),
        ]
        assert (ran.supervisor.counts.partial, ran.supervisor.counts.skipped) == (4, 1)

    def test_a_worker_that_hangs(self) -> None:
        skip = RetryPolicy(policy="skip", backoff=0)
        messages = [b"a", b"sleep", b"b"]
        ran = Ran(messages, stage_command("sleep"), response_timeout=PATIENCE, retry=skip, impatient={b"sleep": 0.5})
        assert ran.results == [b"a", b"b"]
        assert "no answer for 0.5 s" in ran.warnings

    def test_a_worker_that_does_not_read(self) -> None:
        ran = Ran([b"x" * 1_000_000], program("time.sleep(600)"), response_timeout=0.3)
        assert (ran.results, ran.supervisor.counts.skipped) == ([], 1)

    @pytest.mark.parametrize(
        ("source", "options", "says"),
        [
            (
                "write(1, b'BNC'); read(0, 9); read(0, 9)",
                {},
                "BNC is not allowed in state .*; see that the stage uses the markers",
            ),
            ("read(0, 9); write(1, b'\\0\\0'); read(0, 9)", {}, "EOP is not allowed in state IDLE"),
            ("read(0, 9); write(1, b'x' * 100); read(0, 9)", {"max_message_bytes": 50}, "message_too_long"),
        ],
    )
    def test_a_worker_that_breaks_the_rules(self, source: str, options: dict[str, Any], says: str) -> None:
        with pytest.raises(SupervisorError, match=says):
            Ran([b"a", b"b"], program(source), **options)

    def test_a_command_that_is_none(self) -> None:
        with pytest.raises(SupervisorError, match="no-such-program: cannot be started"):
            Ran([b"a"], ["no-such-program"])

    def test_stop_ends_every_wait(self) -> None:
        supervisor = Supervisor(command=program("time.sleep(600)"), retry=QUICK)
        stopper = when_idle(supervisor.stop)
        supervisor.run(Ready([b"a"]), lambda _answer: None)
        stopper.join()


class TestPlainExtraction:
    def test_until_its_end(self) -> None:
        ran = Ran(None, program("write(1, b'a\\n\\nb\\n')"), markers=PRESETS["kafka-connect-source"])
        assert ran.results == [b"a", b"b"]

    def test_it_is_not_started_again_after_its_first_message(self) -> None:
        with pytest.raises(
            SupervisorError, match=r"failed \(ended with exit code 3\) after 1 messages; it is not started"
        ):
            Ran(None, program("write(1, b'a\\n'); sys.exit(3)"))

    def test_a_death_before_it(self, tmp_path: Path) -> None:
        flag = tmp_path / "died"
        source = f"if not os.path.exists({str(flag)!r}): open({str(flag)!r}, 'w'); sys.exit(1)\nwrite(1, b'a\\n')"
        ran = Ran(None, program(source))
        assert (ran.results, ran.supervisor.counts.restarts) == ([b"a"], 1)


def transform_command(behaviour: str, batching: str, size: int) -> list[str]:
    return stage_command(behaviour, 0 if batching == "supervisor" else size)


def run_pipeline(tmp_path: Path, batching: Any, size: int, behaviour: str = "echo") -> tuple[list[bytes], Pipeline]:
    """Extract 25 messages, echo them in batches, and load them into a list through a third stage."""
    out: list[bytes] = []
    extract = program("for n in range(25): write(1, b'%d\\n' % n if n != 11 else b'die\\n')")
    pipeline = Pipeline(
        [
            StageSpec("extract", tuple(extract), extract="plain"),
            StageSpec(
                "transform",
                tuple(transform_command(behaviour, batching, size)),
                batching=batching,
                batch_size=size,
                linger=0.05,
                retry=QUICK,
            ),
            StageSpec("load", tuple(stage_command("echo"))),
        ],
        emit=out.append,
        queue_size=3,
    )
    pipeline.run()
    return out, pipeline


EXPECTED = [b"%d" % number if number != 11 else b"die" for number in range(25)]


class TestPipeline:
    @pytest.mark.parametrize(
        ("batching", "size"), [("single", 1), *itertools.product(("worker", "supervisor"), (2, 100))]
    )
    def test_output_is_the_same_for_each_batch_size(self, tmp_path: Path, batching: str, size: int) -> None:
        out, pipeline = run_pipeline(tmp_path, batching, size)
        assert out == EXPECTED
        assert [(report.messages, report.results, report.state) for report in pipeline.reports()] == [
            (0, 25, "done"),
            (25, 25, "done"),
            (25, 25, "done"),
        ]

    @pytest.mark.parametrize(("batching", "size"), [("single", 1), ("worker", 10), ("supervisor", 10)])
    def test_a_worker_killed_in_mid_batch(self, tmp_path: Path, batching: str, size: int) -> None:
        out, pipeline = run_pipeline(tmp_path, batching, size, f"die-once={tmp_path / 'died'}")
        assert out == EXPECTED
        assert [report.restarts for report in pipeline.reports()] == [0, 1, 0]

    @pytest.mark.parametrize("signalled", [KeyboardInterrupt(), SystemExit(129)])
    def test_a_signal_between_two_steps_of_join(self, monkeypatch: pytest.MonkeyPatch, signalled: Any) -> None:
        def join(thread: threading.Thread, timeout: float | None = None) -> None:
            if timeout is None:
                return whole(thread)
            try:
                raise signalled
            finally:
                raise RuntimeError("release unlocked lock")

        whole = threading.Thread.join
        monkeypatch.setattr(threading.Thread, "join", join)
        held = threading.Event()
        stage = StageSpec("s", stage_command("echo"))
        pipeline = Pipeline([stage], input=lambda: iter([b"a"]), emit=lambda result: held.wait())
        monkeypatch.setattr(pipeline, "stop", held.set)
        with pytest.raises(type(signalled)):
            pipeline.run()

    @pytest.mark.parametrize("policy", ["once", "skip"])
    def test_results_of_a_worker_that_died_before_its_end_of_process_do_not_go_on(
        self, tmp_path: Path, policy: Any
    ) -> None:
        died = tmp_path / "died"
        worker = program(
            f"""
import pathlib
while line := sys.stdin.buffer.readline():
    write(1, line)
    if line == b"b\\n" and not pathlib.Path({str(died)!r}).exists():
        pathlib.Path({str(died)!r}).touch()
        sys.exit(1)
    write(1, b"\\0")
"""
        )
        out: list[bytes] = []
        stages = [StageSpec("dies", tuple(worker), retry=RetryPolicy(policy=policy, backoff=0))]
        reports = Pipeline(stages, input=lambda: iter([b"a", b"b", b"c"]), emit=out.append).run()
        assert out == ([b"a", b"b", b"c"] if policy == "once" else [b"a", b"c"])
        assert (reports[0].restarts, reports[0].partial, reports[0].skipped) == (1, 1, int(policy == "skip"))

    def test_one_stage_that_fails_ends_all(self) -> None:
        pipeline = Pipeline(
            [
                StageSpec("extract", tuple(program("while True: write(1, b'x\\n')")), extract="plain"),
                StageSpec("broken", tuple(program("sys.exit(5)")), retry=RetryPolicy(max=0)),
            ]
        )
        with pytest.raises(PipelineError, match="broken: the worker died 1 times .* ended with exit code 5"):
            pipeline.run()
        assert [report.state for report in pipeline.reports()] == ["failed", "failed"]


class TestFifo:
    def test_a_fifo_is_read_when_somebody_writes(self, tmp_path: Path) -> None:
        os.mkfifo(fifo := tmp_path / "fifo")
        out: list[bytes] = []
        said: list[bytes] = []
        pipeline = Pipeline(
            [StageSpec("echo", tuple(stage_command("echo")))],
            input=str(fifo),
            emit=out.append,
            on_log=lambda _stage, _level, line: said.append(line),
        )
        thread = threading.Thread(target=pipeline.run)
        thread.start()
        try:
            wait_until(lambda: said, "a word about the FIFO")
            assert said[0] == f"reading the FIFO {fifo}".encode()
            with fifo.open("wb") as writer:
                writer.write(b"a\n")
                writer.flush()
                wait_until(lambda: out, "what was written first", seen=lambda: said)
                writer.write(b"b\n")
        finally:
            thread.join(PATIENCE)
        assert out == [b"a", b"b"]

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_fifo_that_nobody_writes_to_keeps_nobody(self, tmp_path: Path, number: signal.Signals) -> None:
        os.mkfifo(tmp_path / "fifo")
        words = ", ".join(map(json.dumps, stage_command("echo")))
        file = toml(tmp_path / "p.toml", f'[pipeline]\ninput = "fifo"\n[[stage]]\nname = "s"\ncommand = [{words}]\n')
        process = subprocess.Popen(
            [sys.executable, "-m", "fastkcl", "dkb", "run", str(file)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            assert "reading the FIFO fifo" in process.stderr.readline()
            process.send_signal(number)
            _, said = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == (1 if number == signal.SIGINT else 128 + number)
        assert "interrupted; all stages were ended" in said


def toml(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


class TestFile:
    STAGE = '[[stage]]\nname = "a"\ncommand = ["x"]\n'

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "no stage"),
            ("[pipe]\n", "unknown table .pipe."),
            ("nonsense", "Expected"),
            ("[[stage]]\nname = 'a'\n", "1: no command"),
            ("[[stage]]\nname = 'a'\ncommand = []\n", "must be a list of the program"),
            (STAGE + "batch = 1\n", "unknown key 'batch'; there are name, command"),
            (STAGE + "batching = 'both'\n", "choose single or worker or supervisor"),
            (STAGE + "linger = true\n", "linger = True: must be int or float"),
            (STAGE + "linger = nan\n", "linger = nan: must be 0 or more"),
            (STAGE + "batch_size = 0\n", "batch_size = 0: must be 1 or more"),
            (STAGE + "response_timeout = 0\n", "response_timeout = 0: must be above 0"),
            (STAGE + "response_timeout = -1\n", "response_timeout = -1: must be above 0"),
            (STAGE + "response_timeout = inf\n", "response_timeout = inf: must be above 0"),
            (STAGE + "response_timeout = nan\n", "response_timeout = nan: must be above 0"),
            (STAGE + "retry = {backoff = inf}\n", "backoff=inf"),
            ('[[stage]]\nname = "a"\ncommand = ["x\\u0000"]\n', "without NUL"),
            (STAGE + "markers = 'none'\n", "no markers 'none'; presets: fastkcl"),
            (STAGE + "markers = {eom = 'EO'}\n", "EOM 'EO' is a prefix of EOB"),
            (STAGE + "retry = {policy = 'never'}\n", "choose retry, once or skip"),
            (STAGE, "no extraction, so the pipeline needs an input"),
            ("[pipeline]\nqueue = 0\n" + STAGE, "queue = 0"),
            ("[pipeline]\nqueues = 1\n" + STAGE, "p.toml: .pipeline.: unknown key 'queues'"),
            ("[pipeline]\ninput = '/no/such/file'\n" + STAGE, "input /no/such/file: no such file"),
            ("[pipeline]\ninput = 'x'\n" + STAGE + STAGE, "two stages are named 'a'"),
            (
                "[pipeline]\ninput = 'x'\n" + STAGE + STAGE.replace('"a"', '"b"') + "extract = 'plain'\n",
                "only the first",
            ),
        ],
    )
    def test_refused(self, tmp_path: Path, text: str, says: str) -> None:
        with pytest.raises(PipelineError, match=says):
            read_pipeline(toml(tmp_path / "p.toml", text))

    @pytest.mark.parametrize("wrong", ["input = 'in'\n" + STAGE + "batch = 1\n", "input = '/no/such/file'\n" + STAGE])
    def test_a_file_that_is_wrong_leaves_no_output(self, tmp_path: Path, wrong: str) -> None:
        out = tmp_path / "out"
        with pytest.raises(PipelineError):
            read_pipeline(toml(tmp_path / "p.toml", f"[pipeline]\noutput = '{out}'\n{wrong}"))
        assert not out.exists()

    def test_a_closed_standard_input(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(PipelineError, match="standard input is closed"):
            read_pipeline(toml(tmp_path / "p.toml", "[pipeline]\ninput = '-'\n" + self.STAGE))

    def test_each_key(self, tmp_path: Path) -> None:
        (tmp_path / "in").write_text("a\nb\n\nc")
        text = f"""
[pipeline]
input = "{tmp_path}/in"
output = "{tmp_path}/out"
queue = 2

[[stage]]
name = "echo"
command = {json.dumps(stage_command("echo", 3) + ["--end-of-batch", chr(92) + "x17"])}
batching = "worker"
linger = 0.1
markers = {{ eob = "{chr(92) * 2}x17" }}
response_timeout = 60
retry = {{ max = 1, policy = "retry", backoff = 0.5 }}
"""
        pipeline, close = read_pipeline(toml(tmp_path / "p.toml", text))
        reports = pipeline.run()
        close()
        assert (tmp_path / "out").read_text() == "a\nb\nc\n"  # a supervisor discards empty results
        assert reports[0].messages == 4
        with pytest.raises(PipelineError, match="out: exists already"):
            read_pipeline(tmp_path / "p.toml")


def await_request(folder: Path) -> None:
    """Wait until the stage has been given its first request."""
    wait_until((folder / "requests").exists, "the first request")


class TestCommand:
    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fastkcl", "dkb", "run", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            **options,
        )

    def test_from_standard_input_to_standard_output(self, tmp_path: Path) -> None:
        text = f"""
[pipeline]
input = "-"
output = "-"

[[stage]]
name = "echo"
command = {json.dumps(stage_command("die"))}
retry = {{ backoff = 0.0 }}
"""
        done = self.run(str(toml(tmp_path / "p.toml", text)), input="a\ndie\nb\n")
        assert (done.returncode, done.stdout) == (1, "a\nb\n"), done.stderr
        assert "echo WARN echo: skipped a request of 1 messages" in done.stderr
        assert "echo: done, 2 messages in 2 requests, 2 results, 2 restarts, 1 skipped" in done.stderr

    @contextlib.contextmanager
    def silent(self, tmp_path: Path, batching: str, size: int) -> Iterator[subprocess.Popen[bytes]]:
        """A pipeline of one stage whose standard input stays open."""
        path = toml(
            tmp_path / "p.toml",
            f"""
[pipeline]
input = "-"
output = "-"

[[stage]]
name = "echo"
command = {json.dumps(stage_command("echo", size))}
batching = "{batching}"
linger = 0.1
""",
        )
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "fastkcl", "dkb", "run", str(path)]
        environment = {**os.environ, "STAGE_REQUESTS": str(tmp_path / "requests")}
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:
            watch = threading.Timer(100, process.kill)
            watch.start()
            try:
                yield process
            finally:
                watch.cancel()
                process.kill()

    @pytest.mark.parametrize(("batching", "size"), [("worker", 100), ("supervisor", 0)])
    def test_an_open_batch_does_not_wait_for_a_silent_input(self, tmp_path: Path, batching: str, size: int) -> None:
        with self.silent(tmp_path, batching, size) as process:
            assert process.stdin is not None
            os.write(process.stdin.fileno(), b"a\nb\nc")
            await_request(tmp_path)
            out, err = process.communicate(b"c\nd", timeout=PATIENCE)
        assert out == b"a\nb\ncc\nd\n"
        assert b"4 messages in 2 requests" in err

    def test_an_interrupt_while_the_input_is_silent(self, tmp_path: Path) -> None:
        with self.silent(tmp_path, "single", 1) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            os.write(process.stdin.fileno(), b"a\n")
            await_request(tmp_path)
            wait_until_idle(process.pid, looks=3)
            process.send_signal(signal.SIGINT)
            err = process.stderr.read()
            assert process.wait(PATIENCE) == 1
        assert b"interrupted; all stages were ended" in err
        assert b"Fatal" not in err

    @pytest.mark.parametrize(
        ("text", "code", "says"),
        [
            ("[pipe]\n", 2, "unknown table"),
            ('[[stage]]\nname = "a"\ncommand = ["no-such-program"]\nextract = "plain"\n', 1, "cannot be started"),
        ],
    )
    def test_refused(self, tmp_path: Path, text: str, code: int, says: str) -> None:
        done = self.run(str(toml(tmp_path / "p.toml", text)))
        assert (done.returncode, says in done.stderr) == (code, True), done.stderr
        assert "Traceback" not in done.stderr
