"""KCLProcess of the drop-in: text files and real pipes, user errors, a broken dialogue, parts that users replace."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import fastkcl
import pyarrow as pa
import pytest
from awkward_errors import AWKWARD, escaping
from fastkcl.kclpy import kcl, messages
from fastkcl.kclpy.v3 import processor
from kcl_helpers import (
    INITIALIZE,
    LEASE_LOST,
    LEGACY_INITIALIZE,
    SHARD_ENDED,
    SHUTDOWN_REQUESTED,
    Child,
    checkpoint,
    checkpoint_reply,
    process_records,
    standard_error,
    status,
)
from waiting import is_gone, wait_until_idle

DONE = status("processRecords")


class Recorder(processor.RecordProcessorBase):
    """Notes its calls; `act` is what process_records does."""

    def __init__(self, act: Any = lambda process_records_input: None) -> None:
        self.calls: list[Any] = []
        self.act = act

    def initialize(self, initialize_input: Any) -> None:
        self.calls.append(("initialize", initialize_input.shard_id))

    def process_records(self, process_records_input: Any) -> None:
        self.calls.append(("process_records", [record.sequence_number for record in process_records_input.records]))
        self.act(process_records_input)

    def lease_lost(self, lease_lost_input: Any) -> None:
        self.calls.append("lease_lost")

    def shard_ended(self, shard_ended_input: Any) -> None:
        self.calls.append("shard_ended")
        shard_ended_input.checkpointer.checkpoint()

    def shutdown_requested(self, shutdown_requested_input: Any) -> None:
        self.calls.append("shutdown_requested")


def lines(*parts: bytes) -> io.StringIO:
    return io.StringIO(b"".join(parts).decode())


def answers(output: io.StringIO) -> list[Any]:
    return [json.loads(line) for line in output.getvalue().split("\n") if line]


class Run:
    """A processor over text files."""

    def __init__(self, user: Any, *parts: bytes, **options: Any) -> None:
        self.output, self.errors = io.StringIO(), io.StringIO()
        self.process = kcl.KCLProcess(user, lines(*parts), self.output, self.errors, **options)

    def end(self) -> Run:
        assert self.process.run() is None
        return self

    @property
    def answers(self) -> list[Any]:
        return answers(self.output)


# ---- text files -------------------------------------------------------------------------------------------------


def test_a_whole_life_over_text_files() -> None:
    user = Recorder(lambda given: given.checkpointer.checkpoint("1", 0))
    run = Run(user, INITIALIZE, process_records(1, 2), checkpoint_reply(), SHUTDOWN_REQUESTED, LEASE_LOST).end()
    assert user.calls == [
        ("initialize", "shardId-000000000000"),
        ("process_records", ["1", "2"]),
        "shutdown_requested",
        "lease_lost",
    ]
    assert run.output.getvalue() == (
        '\n{"action": "status", "responseFor": "initialize"}\n'
        '\n{"action": "checkpoint", "sequenceNumber": "1", "subSequenceNumber": 0}\n'
        '\n{"action": "status", "responseFor": "processRecords"}\n'
        '\n{"action": "status", "responseFor": "shutdownRequested"}\n'
        '\n{"action": "status", "responseFor": "leaseLost"}\n'
    )
    assert run.errors.getvalue() == ""


def test_blank_lines_are_ignored_everywhere() -> None:
    user = Recorder(lambda given: given.checkpointer.checkpoint())
    run = Run(user, b"\n \r\n", INITIALIZE, b"\t\n", process_records(1), b"\n\r\n", checkpoint_reply(), b"\n").end()
    assert run.answers == [status("initialize"), checkpoint(), DONE]


def test_a_last_line_without_a_line_feed() -> None:
    assert Run(Recorder(), INITIALIZE, LEASE_LOST.rstrip()).end().answers[-1] == status("leaseLost")


def test_messages_in_any_order_as_the_original() -> None:
    """Tests of users send what they need; a state table is the daemon's business."""
    user = Recorder()
    Run(user, process_records(1), INITIALIZE, INITIALIZE, LEASE_LOST, process_records(2)).end()
    assert len(user.calls) == 5


def test_what_a_newer_daemon_may_send() -> None:
    record = b'{"data":null,"partitionKey":"k","sequenceNumber":"1"}'
    line = b'{"action":"processRecords","new":{"a":[1]},"records":[' + record + b"]}\n"
    seen: list[Any] = []
    Run(Recorder(seen.append), INITIALIZE, line).end()
    (kept,) = seen[0].records
    assert (kept.data, kept.binary_data, kept.sub_sequence_number, kept.timestamp_millis) == (None,) * 4
    assert (kept.approximate_arrival_timestamp, seen[0].millis_behind_latest) == (None, None)


def test_the_batch_as_arrow() -> None:
    seen: list[Any] = []
    Run(Recorder(lambda given: seen.append(pa.record_batch(given.batch))), process_records(1, 2)).end()
    assert seen[0]["sequenceNumber"].to_pylist() == ["1", "2"]


@pytest.mark.parametrize(
    ("line", "error", "said"),
    [
        (b"nonsense\n", fastkcl.DecodeError, "json"),
        (b'{"action":"reboot"}\n', kcl.dispatch.MalformedAction, "reboot"),
        (b'{"shardId":"s"}\n', kcl.dispatch.MalformedAction, "action"),
        (b'{"action":"shutdown","reason":"BORED"}\n', kcl.dispatch.MalformedAction, "BORED"),
        (b'{"action":"initialize"}\n', fastkcl.DecodeError, "shardId"),
        (b'{"action":"processRecords","records":[],"millisBehindLatest":NaN}\n', fastkcl.DecodeError, "json"),
        (b"[]\n", ValueError, "not_an_object"),
    ],
)
def test_an_invalid_line_comes_out_of_run(line: bytes, error: type[Exception], said: str) -> None:
    user = Recorder()
    run = Run(user, line, INITIALIZE)
    with pytest.raises(error, match=said):
        run.process.run()
    assert (user.calls, run.answers) == ([], [])


@pytest.mark.parametrize("data", ["QUJD!", "QUJ-QUJD", "QUJ"])
def test_bad_base64_never_reaches_user_code(data: str) -> None:
    user = Recorder()
    run = Run(user, process_records(1).replace(b"aGVsbG8=", data.encode()))
    with pytest.raises(fastkcl.DecodeError, match=r"base64: .*record 0"):
        run.process.run()
    assert (user.calls, run.answers) == ([], [])


def test_base64_goes_on_after_padding() -> None:
    """As Jackson reads it; the original drops what follows."""
    seen: list[Any] = []
    Run(Recorder(seen.append), process_records(1).replace(b"aGVsbG8=", b"QQ==QQ==")).end()
    assert seen[0].records[0].binary_data == b"AA"


def test_text_that_is_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(process_records(1).replace(b'"k"', b'"\xff"'))
    with path.open(encoding="utf-8", errors="surrogateescape") as file:
        process = kcl.KCLProcess(Recorder(), file, io.StringIO(), io.StringIO())
        with pytest.raises(fastkcl.DecodeError, match="utf8"):
            process.run()
    line = process_records(1).decode().replace('"k"', '"\ud800"')
    process = kcl.KCLProcess(Recorder(), io.StringIO(line), io.StringIO(), io.StringIO())
    with pytest.raises(fastkcl.DecodeError, match="utf8"):
        process.run()


# ---- checkpoints ------------------------------------------------------------------------------------------------


def test_the_daemons_refusal() -> None:
    caught: list[Any] = []

    def act(given: Any) -> None:
        with pytest.raises(messages.CheckpointError) as raised:
            given.checkpointer.checkpoint("1")
        caught.append(raised.value)
        given.checkpointer.checkpoint("1")

    run = Run(Recorder(act), process_records(1), checkpoint_reply("ThrottlingException"), checkpoint_reply()).end()
    assert run.answers == [checkpoint("1"), checkpoint("1"), DONE]
    assert (caught[0].value, str(caught[0]), caught[0].args) == (
        "ThrottlingException",
        "'ThrottlingException'",
        ("ThrottlingException",),
    )


def test_an_unexpected_message_is_the_originals_error_and_the_daemons_mistake() -> None:
    caught: list[Any] = []

    def act(given: Any) -> None:
        try:
            given.checkpointer.checkpoint("1")
        except messages.CheckpointError as error:
            caught.append(error)

    run = Run(Recorder(act), process_records(1), INITIALIZE)
    with pytest.raises(fastkcl.RemoteProtocolError):
        run.process.run()
    assert run.answers == [checkpoint("1")]
    for error in (caught[0], pickle.loads(pickle.dumps(caught[0]))):
        assert isinstance(error, messages.CheckpointError)
        assert isinstance(error, fastkcl.RemoteProtocolError)
        assert (error.value, error.args) == ("InvalidStateException", ("InvalidStateException",))
        assert (error.kind, error.state) == ("unexpected_message", "PROCESSING")
        assert str(error) == (
            "InvalidStateException: unexpected_message: initialize came where a checkpoint waits for its reply"
        )


@pytest.mark.parametrize("line", [b"[]\n", b"null\n", b"5\n", b'"checkpoint"\n'])
def test_a_line_that_is_no_object_is_no_reply_as_for_the_original(line: bytes) -> None:
    caught: list[Any] = []

    def act(given: Any) -> None:
        try:
            given.checkpointer.checkpoint("1")
        except messages.CheckpointError as error:
            caught.append(error)

    with pytest.raises(fastkcl.RemoteProtocolError, match="a line that is not an object came where a checkpoint waits"):
        Run(Recorder(act), process_records(1), line, LEASE_LOST).process.run()
    assert [error.value for error in caught] == ["InvalidStateException"]


@pytest.mark.parametrize("reply", [LEASE_LOST, b"nonsense\n", b""], ids=["another message", "no message", "none"])
def test_who_retries_until_it_succeeds_is_ended(reply: bytes) -> None:
    failures: list[Exception] = []

    def act(given: Any) -> None:
        while len(failures) < 100:
            try:
                given.checkpointer.checkpoint("1")
            except Exception as error:
                failures.append(error)

    run = Run(Recorder(act), process_records(1), reply)
    with standard_error() as stderr, pytest.raises(SystemExit) as ended:
        run.process.run()
    assert (ended.value.code, len(failures)) == (1, 11)
    assert len(set(map(id, failures))) == 1
    assert run.answers == [checkpoint("1")]
    assert stderr().startswith("fastkcl: run() cannot go on: ")


def test_a_sub_sequence_number_alone_is_refused() -> None:
    def act(given: Any) -> None:
        with pytest.raises(ValueError, match="without a sequence number"):
            given.checkpointer.checkpoint(None, 5)

    assert Run(Recorder(act), process_records(1)).end().answers == [DONE]


def test_the_legacy_dialect() -> None:
    def act(given: Any) -> None:
        with pytest.raises(ValueError, match="sub-sequence number"):
            given.checkpointer.checkpoint("1", 2)
        given.checkpointer.checkpoint("1", 0)
        given.checkpointer.checkpoint()

    reply = b'{"action":"checkpoint","checkpoint":"1","error":null}\n'
    terminate = b'{"action":"shutdown","reason":"TERMINATE"}\n'
    user = Recorder(act)
    run = Run(user, LEGACY_INITIALIZE, process_records(1), reply, reply, terminate, reply).end()
    assert run.answers[1:] == [
        {"action": "checkpoint", "checkpoint": "1"},
        {"action": "checkpoint", "checkpoint": None},
        DONE,
        {"action": "checkpoint", "checkpoint": None},
        status("shutdown"),
    ]
    assert user.calls[-1] == "shard_ended"


@pytest.mark.parametrize("on_error", ["skip", "stop"])
@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (LEASE_LOST, fastkcl.RemoteProtocolError, "leaseLost came where a checkpoint waits"),
        (b"", fastkcl.RemoteProtocolError, "closed_while_waiting"),
        (b"nonsense\n", fastkcl.DecodeError, "json"),
    ],
)
def test_a_wrong_answer_to_a_checkpoint_ends_the_run(
    reply: bytes, error: type[Exception], said: str, on_error: Any
) -> None:
    """Also where user code swallows it, and tries again: no status, nothing more is written or read."""

    def act(given: Any) -> None:
        for _ in range(3):
            with pytest.raises(error):
                given.checkpointer.checkpoint()

    run = Run(Recorder(act), process_records(1), reply, on_error=on_error)
    with pytest.raises(error, match=said):
        run.process.run()
    assert run.answers == [checkpoint()]


def test_no_checkpoint_once_the_lease_is_lost() -> None:
    class Old(kcl.v2processor.RecordProcessorBase):
        def shutdown(self, shutdown_input: Any) -> None:
            assert (shutdown_input.reason, shutdown_input.action) == ("ZOMBIE", "shutdown")
            with pytest.raises(messages.CheckpointError, match="not allowed when the lease is lost"):
                shutdown_input.checkpointer.checkpoint()

    run = Run(Old(), LEASE_LOST).end()
    assert (run.answers, run.errors.getvalue()) == ([status("leaseLost")], "")


# ---- user errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("is_cause", [False, True], ids=["itself", "as a cause"])
def test_an_error_that_resists_is_the_policys(name: str, is_cause: bool, tmp_path: Path) -> None:
    def act(given: Any) -> None:
        if not is_cause:
            raise AWKWARD[name]
        raise ValueError("another") from AWKWARD[name]

    run = Run(Recorder(act), process_records(7), process_records(8), LEASE_LOST, dead_letter=tmp_path)
    assert escaping(run.end) is None
    assert run.answers == [DONE, DONE, status("leaseLost")]
    shown = "ValueError: another" if is_cause else f"{name.partition(' ')[0]}: "
    assert run.errors.getvalue().count(f"fastkcl: dead_letter: process_records failed with {shown}") == 2
    assert len(list(tmp_path.iterdir())) == 2


def boom(given: Any) -> None:
    raise ValueError("boom")


def test_by_default_the_original_way_but_not_silent() -> None:
    run = Run(Recorder(boom), INITIALIZE, process_records(7, 8)).end()
    assert run.answers == [status("initialize"), DONE]
    assert run.errors.getvalue().startswith("Caught exception from action dispatch: boomTraceback (most recent call")
    assert "in boom" in run.errors.getvalue()
    assert run.errors.getvalue().endswith(
        "\nfastkcl: skip: process_records failed with ValueError: boom (shardId-000000000000,"
        " 2 records from 7/0 to 8/0); these records are reported as processed without having been\n"
    )


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_stop(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "environment":
        monkeypatch.setenv("FASTKCL_ON_ERROR", "stop")
    run = Run(Recorder(boom), INITIALIZE, process_records(7), **({"on_error": "stop"} if by == "argument" else {}))
    with pytest.raises(SystemExit) as end:
        run.process.run()
    assert (end.value.code, run.answers) == (1, [status("initialize")])
    assert "fastkcl: user_error: process_records failed with ValueError: boom" in run.errors.getvalue()


def test_the_argument_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTKCL_ON_ERROR", "stop")
    assert Run(Recorder(boom), process_records(7), on_error="skip").end().answers == [DONE]


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_dead_letter(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "letters"
    if by == "environment":
        monkeypatch.setenv("FASTKCL_DEAD_LETTER", str(folder))
    seen: list[int] = []

    class Output(io.StringIO):
        """Looks for the letter at the moment of the status."""

        def write(self, text: str) -> int:
            if "processRecords" in text:
                seen.append(len(list(folder.iterdir())))
            return super().write(text)

    output, errors = Output(), io.StringIO()
    options = {"dead_letter": folder, "on_error": "stop"} if by == "argument" else {}
    kcl.KCLProcess(Recorder(boom), lines(INITIALIZE, process_records(7, 8)), output, errors, **options).run()
    (letter,) = folder.iterdir()
    with pa.ipc.open_file(letter) as file:
        table = file.read_all()
        assert table["sequenceNumber"].to_pylist() == ["7", "8"]
        assert table["data"].to_pylist() == [b"hello"] * 2
        assert b"ValueError: boom" in table.schema.metadata[b"fastkcl.error"]
        assert table.schema.metadata[b"fastkcl.shard_id"] == b"shardId-000000000000"
    assert seen == [1]
    assert f"stored in {letter}" in errors.getvalue()


def test_a_dead_letter_that_cannot_be_stored_stops(tmp_path: Path) -> None:
    run = Run(Recorder(boom), process_records(7), dead_letter=tmp_path / "letters")
    (tmp_path / "letters").rmdir()
    (tmp_path / "letters").write_text("in the way")
    with pytest.raises(SystemExit):
        run.process.run()
    assert run.answers == []
    assert "could not be written" in run.errors.getvalue()


def test_a_failed_initialize_is_told() -> None:
    class Failing(Recorder):
        def initialize(self, initialize_input: Any) -> None:
            raise ValueError("boom")

    run = Run(Failing(), INITIALIZE).end()
    assert run.answers == [status("initialize")]
    assert "fastkcl: skip: initialize failed with ValueError: boom (shardId-000000000000)" in run.errors.getvalue()


@pytest.mark.parametrize("error", [SystemExit(7), KeyboardInterrupt()])
def test_what_is_no_exception_leaves_without_a_status(error: BaseException) -> None:
    def act(given: Any) -> None:
        raise error

    run = Run(Recorder(act), process_records(1))
    with pytest.raises(type(error)) as raised:
        run.process.run()
    assert raised.value is error
    assert (run.answers, run.errors.getvalue()) == ([], "")


def test_arguments() -> None:
    with pytest.raises(TypeError, match="attribute version"):
        kcl.KCLProcess(object())
    with pytest.raises(ValueError, match="on_error must be"):
        kcl.KCLProcess(Recorder(), on_error="ignore")  # type: ignore[arg-type]


def test_a_bad_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTKCL_ON_ERROR", "ignore")
    with pytest.raises(ValueError, match="FASTKCL_ON_ERROR must be 'stop' or 'skip', not 'ignore'"):
        kcl.KCLProcess(Recorder())


@pytest.mark.parametrize("base", [kcl.RecordProcessorBase, kcl.v2processor.RecordProcessorBase, Recorder.__base__])
def test_methods_that_nobody_wrote(base: Any) -> None:
    run = Run(base(), process_records(1)).end()
    assert run.answers == [DONE]
    assert "NotImplementedError" in run.errors.getvalue()


# ---- real pipes -------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys, threading, time
from fastkcl.kclpy import kcl
from fastkcl.kclpy.v3 import processor

class Processor(processor.RecordProcessorBase):
    def initialize(self, i): pass
    def process_records(self, i):
{body}
    def lease_lost(self, i): pass
    def shard_ended(self, i): i.checkpointer.checkpoint()
    def shutdown_requested(self, i): i.checkpointer.checkpoint()
{before}
kcl.KCLProcess(Processor(){arguments}).run()
{after}
"""


def program(body: str = "pass", before: str = "", after: str = "", arguments: str = "") -> str:
    indented = "\n".join("        " + line for line in body.splitlines())
    return PROGRAM.format(body=indented, before=before, after=after, arguments=arguments)


def test_over_pipes() -> None:
    with Child("-c", program("i.checkpointer.checkpoint(i.records[0].sequence_number)"), bytewise=True) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1, 2), checkpoint("1"), DONE)
        child.daemon.ask(SHARD_ENDED, checkpoint(), status("shardEnded"))
        assert child.finish() == (0, "")


@pytest.mark.parametrize(
    "body",
    ["print('stray')", "os.write(1, b'stray\\n')", "os.system('echo stray')", "sys.__stdout__.write('stray\\n')"],
)
def test_prints_land_on_standard_error(body: str) -> None:
    with Child("-c", program(body, before="print('early')", after="print('late')")) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        code, stderr = child.finish()
    assert code == 0
    assert [word for word in ("early", "stray", "late") if word not in stderr] == []


def test_what_the_program_has_read_ahead_is_not_lost() -> None:
    """A text file reads 8 KiB at a time; a program that looks at its input leaves the rest in the buffer."""
    before = "first = sys.stdin.readline(); print('first', first, file=sys.stderr)"
    body = "print(len(i.records), 'records', file=sys.stderr)"
    with Child("-c", program(body, before)) as child:
        child.daemon.send(b"hello\r\n" + INITIALIZE + process_records(1, 2) + process_records(*range(1000)))
        for expected in (status("initialize"), DONE, DONE):
            assert child.daemon.receive() == expected
        code, stderr = child.finish()
    assert code == 0
    assert [text for text in ("first hello", "2 records", "1000 records") if text not in stderr] == []


def test_a_second_run_finds_the_end() -> None:
    with Child("-c", program(after="kcl.KCLProcess(Processor()).run(); print('over', file=sys.stderr)")) as child:
        child.daemon.start()
        assert child.finish() == (0, "over\n")


@pytest.mark.parametrize(
    "replaced",
    [
        "process._handle_a_line = lambda line: (noted.append(line), type(process)._handle_a_line(process, line))",
        "read = process.io_handler.read_line; process.io_handler.read_line = lambda: noted.append(1) or read()",
        "load = process.io_handler.load_action\n"
        "process.io_handler.load_action = lambda line: noted.append(line) or load(line)",
        "done = process._report_done; process._report_done = lambda name: (noted.append(name), done(name))",
        "do = process._perform_action; process._perform_action = lambda action: (noted.append(action), do(action))",
        "write = process.io_handler.write_line; process.io_handler.write_line = lambda s: (noted.append(s), write(s))",
    ],
)
def test_what_users_replace_is_called(replaced: str) -> None:
    before = f"noted = []\nprocess = kcl.KCLProcess(Processor())\n{replaced}"
    source = program(before=before, after="print(len(noted), 'noted', file=sys.stderr)").replace(
        "kcl.KCLProcess(Processor()).run()", "process.run()"
    )
    assert "process.run()" in source
    with Child("-c", source) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        code, stderr = child.finish()
    assert code == 0, stderr
    assert stderr in ("2 noted\n", "3 noted\n")  # the end of input is a line that is read too


# Programs that write to the daemon by themselves: they have to find it where they look for it.
OWN_WRITERS = {
    "write_line of the object": """
io = process.io_handler
io.write_line = lambda line: (io.output_file.write('\\n%s\\n' % line), io.output_file.flush())
""",
    "a handler that derives": """
class Mine(kcl._IOHandler):
    def write_line(self, line):
        self.output_file.write('\\n%s\\n' % line)
        self.output_file.flush()
process.io_handler = Mine(sys.stdin, sys.stdout, sys.stderr)
process.checkpointer = kcl.Checkpointer(process.io_handler)
""",
    "another handler, the same checkpointer": """
process.io_handler = kcl._IOHandler(sys.stdin, sys.stdout, sys.stderr)
""",
    "another checkpointer": """
process.checkpointer = kcl.Checkpointer(kcl._IOHandler(sys.stdin, sys.stdout, sys.stderr))
""",
    "a checkpointer that derives": """
class Mine(kcl.Checkpointer):
    def checkpoint(self, sequence_number=None, sub_sequence_number=None):
        file = self.io_handler.output_file
        file.write('{"action": "checkpoint", "sequenceNumber": null, "subSequenceNumber": null}\\n')
        file.flush()
        self.io_handler.load_action(self.io_handler.input_file.readline())
process.checkpointer = Mine(process.io_handler)
""",
    "the original's way to an answer": """
class Mine(kcl.Checkpointer):
    def _get_action(self):
        return self.io_handler.load_action(self.io_handler.read_line())
process.checkpointer = Mine(process.io_handler)
""",
    "_report_done of the object": """
process._report_done = lambda name: print('{"action": "status", "responseFor": "%s"}' % name, flush=True)
""",
}


@pytest.mark.parametrize("own", OWN_WRITERS)
def test_programs_that_write_by_themselves(own: str) -> None:
    before = f"process = kcl.KCLProcess(Processor())\n{OWN_WRITERS[own]}"
    source = program("i.checkpointer.checkpoint()", before).replace(
        "kcl.KCLProcess(Processor()).run()", "process.run()"
    )
    with Child("-c", source) as child:
        child.daemon.start()
        for number in (1, 2):
            child.daemon.ask(process_records(number), checkpoint(), DONE)
        assert child.finish() == (0, "")


def test_a_broken_dialogue_ends_the_run_where_an_override_swallows() -> None:
    class Mine(kcl.KCLProcess):
        def _perform_action(self, action: Any) -> None:
            with contextlib.suppress(Exception):
                super()._perform_action(action)

    output = io.StringIO()
    user = Recorder(lambda given: given.checkpointer.checkpoint())
    process = Mine(user, lines(process_records(1), LEASE_LOST), output, io.StringIO())
    with pytest.raises(fastkcl.RemoteProtocolError, match="leaseLost came"):
        process.run()
    assert answers(output) == [checkpoint()]


def test_zero_without_a_sequence_number_is_none() -> None:
    user = Recorder(lambda given: given.checkpointer.checkpoint(None, 0))
    run = Run(user, process_records(1), checkpoint_reply()).end()
    assert run.answers == [checkpoint(None, 0), DONE]


def test_read_ahead_that_ends_inside_of_a_character(tmp_path: Path) -> None:
    """The text file's buffer is cut anywhere; the other half of the character is still in the pipe."""
    line = process_records(1).replace(b'"k"', '"\u00e9"'.encode())
    cut = line.index(b"\xa9")
    before = (
        "sys.stdin.readline(); print('ready', file=sys.stderr, flush=True); sys.stdin.buffer.peek();"
        f"\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)"
    )
    body = "print(ascii(i.records[0].partition_key), file=sys.stderr)"
    with Child("-c", program(body, before), environment={"PYTHONIOENCODING": "utf-8:strict"}) as child:
        child.daemon.send(b"first\n" + INITIALIZE + line[:cut])
        child.await_stderr("ready")
        (tmp_path / "go").touch()
        wait_until_idle(child.process.pid)  # for the other half
        child.daemon.send(line[cut:])
        assert child.daemon.receive() == status("initialize")
        assert child.daemon.receive() == DONE
        assert child.finish() == (0, "ready\n'\\xe9'\n")


@pytest.mark.parametrize("name", ["message_decode", "record", "processRecords", "__init__"])
def test_hooks_into_decoding_are_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def noting(function: Any) -> Any:
        return lambda *arguments: asked.append(arguments) or function(*arguments)

    dispatch = kcl.dispatch
    if name == "message_decode":
        monkeypatch.setattr(dispatch, name, noting(dispatch.message_decode))
    elif name == "__init__":
        monkeypatch.setattr(messages.Record, name, noting(messages.Record.__init__))
    else:
        monkeypatch.setitem(dispatch._serializers, name, noting(dispatch._serializers[name]))
    user = Recorder()
    assert Run(user, process_records(1, 2)).end().answers == [DONE]
    assert user.calls == [("process_records", ["1", "2"])]
    assert len(asked) == {"message_decode": 3, "processRecords": 1}.get(name, 2)


def test_an_action_of_a_users_own() -> None:
    from unittest.mock import Mock

    run = Run(Recorder())
    run.process._perform_action(Mock(action="x", dispatch=Mock(side_effect=ValueError("boom"))))
    assert "fastkcl: skip: x failed with ValueError: boom" in run.errors.getvalue()


def test_stop_in_a_thread_ends_the_process() -> None:
    source = program("raise ValueError('boom')", arguments=", on_error='stop'").replace(
        "kcl.KCLProcess(Processor(), on_error='stop').run()",
        "process = kcl.KCLProcess(Processor(), on_error='stop')\n"
        "thread = threading.Thread(target=process.run); thread.start(); thread.join(); sys.exit(0)",
    )
    assert "thread.start()" in source
    with Child("-c", source) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        code, stderr = child.wait()
    assert (code, "user_error: process_records" in stderr) == (1, True)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_report_names_the_users_method(version: int) -> None:
    class Failing:
        def __init__(self) -> None:
            self.version = version

        def shutdown(self, *arguments: Any) -> None:
            raise ValueError("boom")

        shard_ended = shutdown

    run = Run(Failing(), SHARD_ENDED).end()
    assert f"skip: {'shard_ended' if version == 3 else 'shutdown'} failed with" in run.errors.getvalue()


def test_a_program_without_standard_output() -> None:
    """Beside an input of its own; the exit is that of the program."""
    before = f"import io\nown = io.StringIO({INITIALIZE.decode()!r})"
    source = program(before=before, arguments=", input_file=own").replace(
        "kcl.KCLProcess(Processor(), input_file=own).run()",
        "process = kcl.KCLProcess(Processor(), input_file=own); sys.stdout = None; process.run()",
    )
    with Child("-c", source) as child:
        assert child.daemon.receive() == status("initialize")
        assert child.wait() == (0, "")


def test_a_subclass_with_lines_of_its_own() -> None:
    before = """
class Mine(kcl.KCLProcess):
    def _handle_a_line(self, line):
        print("saw", type(line).__name__, file=sys.stderr)
        super()._handle_a_line(line)
"""
    source = program(before=before).replace("kcl.KCLProcess(Processor())", "Mine(Processor())")
    with Child("-c", source) as child:
        child.daemon.start()
        assert child.finish() == (0, "saw str\n")


def test_a_checkpoint_from_another_thread(tmp_path: Path) -> None:
    """Later than its batch: with the original the thread's checkpoint is answered inside of the next request."""
    body = """
if i.records[0].sequence_number == "1":
    checkpointer = i.checkpointer
    def later():
        while not os.path.exists(os.environ["GO"]):
            time.sleep(0.01)
        checkpointer.checkpoint("1")
        print("stored", file=sys.stderr)
    thread = threading.Thread(target=later)
    thread.start()
    self.thread = thread
else:
    self.thread.join()
"""
    with Child("-c", program(body), environment={"GO": str(tmp_path / "go")}) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        (tmp_path / "go").touch()
        assert child.daemon.receive() == checkpoint("1")
        child.daemon.send(process_records(2))
        child.daemon.send(checkpoint_reply())
        assert child.daemon.receive() == DONE
        assert child.finish() == (0, "stored\n")


def test_the_daemon_goes_while_a_checkpoint_is_open() -> None:
    body = "try:\n    i.checkpointer.checkpoint()\nexcept Exception: pass"
    with Child("-c", program(body)) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        assert child.daemon.receive() == checkpoint()
        code, stderr = child.finish()
    assert code == 1
    assert "closed_while_waiting" in stderr


def test_the_daemon_does_not_read_any_more(tmp_path: Path) -> None:
    body = "while not os.path.exists(os.environ['GO']): time.sleep(0.01)"
    with Child("-c", program(body), environment={"GO": str(tmp_path / "go")}) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        os.close(child.daemon.read_fd)
        child.daemon.read_fd = -1
        (tmp_path / "go").touch()
        code, stderr = child.wait()
    assert code == 1
    assert "RemoteProtocolError: closed_while_waiting: the daemon does not read any more" in stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)])
def test_signals_do_what_python_does(number: signal.Signals, code: int) -> None:
    with Child("-c", program("print('working', file=sys.stderr, flush=True)\ntime.sleep(600)")) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        child.await_stderr("working")
        child.process.send_signal(number)
        result = child.wait()
        assert child.daemon.receive() is None
    assert result.exit == code
    assert ("KeyboardInterrupt" in result.stderr) == (number == signal.SIGINT)


def test_an_interrupt_of_an_idle_child() -> None:
    with Child("-c", program()) as child:
        child.daemon.start()
        wait_until_idle(child.process.pid)
        child.process.send_signal(signal.SIGINT)
        code, stderr = child.wait()
    assert code == -signal.SIGINT
    assert "KeyboardInterrupt" in stderr


def test_an_event_loop_of_the_program_finds_no_wake_up_descriptor() -> None:
    """Trio warns where there is one, and asyncio leaves none when it ends."""
    body = "import signal\nprint('found', signal.set_wakeup_fd(-1), file=sys.stderr, flush=True)"
    with Child("-c", program(body)) as child:
        child.daemon.start()
        for number in (1, 2):
            child.daemon.ask(process_records(number), DONE)
        wait_until_idle(child.process.pid)
        child.process.send_signal(signal.SIGINT)
        code, stderr = child.wait()
    assert stderr.startswith("found -1\nfound -1\nTraceback")
    assert code == -signal.SIGINT


def test_a_wake_up_descriptor_of_the_program_stays_its_own() -> None:
    before = "import signal\nown = os.pipe()[1]\nos.set_blocking(own, False)"
    body = "print(signal.set_wakeup_fd(own) == own, file=sys.stderr)"
    with Child("-c", program(body, before)) as child:
        child.daemon.start()
        for number in (1, 2, 3):
            child.daemon.ask(process_records(number), DONE)
        assert child.finish() == (0, "False\nTrue\nTrue\n")


def test_a_fork_that_comes_back_cannot_speak() -> None:
    body = "if os.fork() == 0: return\nos.wait()"
    with Child("-c", program(body)) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        code, stderr = child.finish()
    assert code == 0
    assert "forked child" in stderr


def test_a_worker_that_lives_on_does_not_hold_the_pipe() -> None:
    body = """
from multiprocessing import get_context
worker = get_context('fork').Process(target=time.sleep, args=(600,), daemon=True)
worker.start()
print('worker', worker.pid, file=sys.stderr, flush=True)
"""
    with Child("-c", program(body, after="os._exit(0)")) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        worker = int(child.stderr().split("worker ")[1].split()[0])
        try:
            assert child.finish().exit == 0
            assert not is_gone(worker)
        finally:
            os.kill(worker, signal.SIGKILL)


def test_a_file_as_standard_input(tmp_path: Path) -> None:
    """`python app.py < captured.jsonl`: the Rust reader reads any descriptor."""
    path = tmp_path / "captured.jsonl"
    path.write_bytes(INITIALIZE + process_records(1, 2) + LEASE_LOST)
    import subprocess

    with path.open("rb") as file:
        done = subprocess.run(
            [sys.executable, "-c", program()], stdin=file, capture_output=True, check=True, timeout=30
        )
    assert [json.loads(line) for line in done.stdout.splitlines() if line] == [
        status("initialize"),
        DONE,
        status("leaseLost"),
    ]


def test_real_standard_output_beside_an_input_of_ones_own() -> None:
    """Prints stay out of the protocol meanwhile, and fd 1 is given back."""
    before = f"import io\nown = io.StringIO({(INITIALIZE + process_records(1)).decode()!r})"
    source = program("print('stray')", before, "print('after')", arguments=", input_file=own")
    with Child("-c", source) as child:
        assert child.daemon.receive() == status("initialize")
        assert child.daemon.receive() == DONE
        with pytest.raises(json.JSONDecodeError):
            child.daemon.receive()
        code, stderr = child.wait()
    assert (code, stderr) == (0, "stray\n")


def test_a_thread_that_reads_finds_no_lock_held_after_an_error() -> None:
    """A DecodeError in a checkpoint's answer lets the reader go."""
    errors: list[BaseException] = []
    process = kcl.KCLProcess(Recorder(), io.StringIO("nonsense\n"), io.StringIO(), io.StringIO())

    def ask() -> None:
        try:
            process.checkpointer.checkpoint()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(errors) == 2
