"""`fastkcl.run` as a daemon's child: ends, exit codes, reports, and the calls of the processor."""

from __future__ import annotations

import functools
import os
import pickle
from typing import Any

import fastkcl
import pytest
from fastkcl.kcl import Connection
from fastkcl.kcl.dialogue import Dialogue
from fastkcl.kcl.runner import serve
from fastkcl.processing.failures import FailurePolicy
from fastkcl.stdio import process
from fastkcl.stdio.descriptors import Descriptors
from kcl_helpers import (
    INITIALIZE,
    LEASE_LOST,
    LEGACY_INITIALIZE,
    SHARD_ENDED,
    SHUTDOWN_REQUESTED,
    Child,
    Daemon,
    checkpoint,
    in_process,
    process_records,
    standard_error,
    status,
)

NO_POLICY = FailurePolicy(on_error="stop", retries=0, backoff=0, dead_letter=None)
DONE = status("processRecords")

PROGRAM = """
import os, sys, threading, time
import fastkcl

class Processor(fastkcl.BatchProcessor):
    def initialize(self, context):
        print(context)

    def process_batch(self, batch, checkpointer):
{body}

fastkcl.run(Processor(), {options})
print("returned")
{after}
"""


def program(body: str = "pass", options: str = "", after: str = "") -> str:
    indented = "\n".join("        " + line for line in body.strip().splitlines())
    return PROGRAM.format(body=indented, options=options, after=after)


class Counts(fastkcl.BatchProcessor):
    def __init__(self) -> None:
        self.records = 0
        self.contexts: list[fastkcl.ShardContext] = []

    def initialize(self, context: fastkcl.ShardContext) -> None:
        self.contexts.append(context)

    def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
        self.records += len(batch)


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize("mangle", [lambda line: line, lambda line: b"\n \t\r\n" + line[:-1] + b"\r\n\n"])
def test_a_whole_life(mangle: Any, bytewise: bool) -> None:
    processor = Counts()

    def script(daemon: Daemon) -> None:
        daemon.ask(mangle(INITIALIZE), status("initialize"))
        for _ in range(20):
            daemon.ask(mangle(process_records(*range(50))), DONE)
        daemon.ask(mangle(SHUTDOWN_REQUESTED), checkpoint(), status("shutdownRequested"))
        daemon.ask(mangle(SHARD_ENDED), checkpoint(), status("shardEnded"))
        daemon.finish()

    assert in_process(processor, script, bytewise=bytewise) == (0, "")
    assert processor.records == 1000


def test_context_of_the_modern_dialect() -> None:
    processor = Counts()

    def script(daemon: Daemon) -> None:
        daemon.ask(INITIALIZE, status("initialize"))
        daemon.finish()

    in_process(processor, script, stream="orders")
    (context,) = processor.contexts
    assert context == fastkcl.ShardContext(
        stream="orders",
        shard_id="shardId-000000000000",
        sequence_number="TRIM_HORIZON",
        sub_sequence_number=0,
        dialect="modern",
    )
    assert len({context, processor.contexts[0]}) == 1
    assert pickle.loads(pickle.dumps(context)) == context
    with pytest.raises(AttributeError, match="immutable: shard_id"):
        context.shard_id = "other"
    with pytest.raises(AttributeError, match="immutable: stream"):
        del context.stream


@pytest.mark.parametrize(("forced", "effective"), [("auto", "legacy"), ("legacy", "legacy"), ("modern", "modern")])
def test_context_of_the_legacy_dialect(forced: str, effective: str) -> None:
    processor = Counts()

    def script(daemon: Daemon) -> None:
        daemon.ask(LEGACY_INITIALIZE, status("initialize"))
        daemon.finish()

    in_process(processor, script, dialect=forced)
    (context,) = processor.contexts
    assert (context.stream, context.sequence_number, context.sub_sequence_number) == (None, None, None)
    assert context.dialect == effective


@pytest.mark.parametrize(
    ("options", "environment", "stream"),
    [
        ("", {}, None),
        ("", {"FASTKCL_STREAM": "from-environment"}, "from-environment"),
        ("stream='argument'", {"FASTKCL_STREAM": "from-environment"}, "argument"),
        ("", {"FASTKCL_STREAM": ""}, None),
    ],
)
def test_name_of_the_stream(options: str, environment: dict[str, str], stream: str | None) -> None:
    with Child("-c", program(options=options), environment=environment) as child:
        child.daemon.start()
        code, stderr = child.finish()
    assert code == 0
    assert f"stream={stream!r}" in stderr


@pytest.mark.parametrize("lines", [[], [INITIALIZE], [INITIALIZE, process_records(1)], [INITIALIZE, LEASE_LOST]])
def test_end_of_input_between_messages_is_a_clean_end(lines: list[bytes]) -> None:
    with Child("-c", program()) as child:
        for line in lines:
            child.daemon.send(line)
            assert child.daemon.receive() is not None
        code, stderr = child.finish()
    assert code == 0
    assert stderr.endswith("returned\n")
    assert "fastkcl" not in stderr


@pytest.mark.parametrize(
    ("line", "report"),
    [
        (b'{"action":"processRecords","records":[', "fastkcl: json: "),
        (b'{"action":"leaseLost"', "fastkcl: json: "),
    ],
)
def test_end_of_input_inside_a_message(line: bytes, report: str) -> None:
    with Child("-c", program()) as child:
        child.daemon.start()
        child.daemon.send(line)
        code, stderr = child.finish()
    assert code == 1
    (last,) = [text for text in stderr.splitlines() if text.startswith("fastkcl: ")]
    assert last.startswith(report)
    assert "ended inside a message" in last
    assert "; line of message 2" in last
    assert "Traceback" not in stderr


BAD = process_records(1).replace(b"aGVsbG8=", b"aGVs*G8=")


@pytest.mark.parametrize(
    ("line", "report"),
    [
        (b"hello\n", "fastkcl: json: "),
        (b"[]\n", "fastkcl: not_an_object: "),
        (b'{"action":"reboot"}\n', "fastkcl: unknown_action: "),
        (b'{"action":"shutdown","reason":"\\u00e9\\n"}\n', "fastkcl: unknown_reason: "),
        (b'{"action":"processRecords"}\n', "fastkcl: missing_field: "),
        (b'{"action":"leaseLost\xff"}\n', "fastkcl: utf8: "),
        (BAD, "fastkcl: base64: "),
        (INITIALIZE, "fastkcl: unexpected_message: initialize is not allowed in state READY"),
        (b'{"action":"checkpoint"}\n', "fastkcl: unexpected_message: checkpoint is not allowed in state READY"),
        (b"[" * 1000 + b"\n", "fastkcl: "),
        (process_records(*range(1000)), "fastkcl: line_too_long: "),
    ],
)
def test_a_bad_line_calls_nothing_and_gets_no_status(line: bytes, report: str) -> None:
    with Child("-c", program("print('called')", "max_line_bytes=2000, on_error='skip'")) as child:
        child.daemon.start()
        child.daemon.send(line)
        assert child.daemon.receive() is None
        code, stderr = child.wait()
    assert code == 1
    last = stderr.splitlines()[-1]
    assert last.startswith(report)
    assert last.isascii()
    assert len(last) < 1200
    assert "called" not in stderr
    assert "Traceback" not in stderr


def test_the_report_names_record_and_byte() -> None:
    with Child("-c", program()) as child:
        child.daemon.start()
        child.daemon.send(BAD)
        code, stderr = child.finish()
    assert code == 1
    assert f"(record 0, byte {BAD.index(b'*')})" in stderr
    assert "; line of message 2, near b'" in stderr
    assert "aGVs*G8=" in stderr


def test_a_daemon_that_does_not_read_any_more() -> None:
    with Child("-c", program()) as child:
        child.daemon.start()
        os.close(child.daemon.read_fd)
        child.daemon.read_fd = -1
        child.daemon.send(process_records(1))
        code, stderr = child.wait()
    assert code == 1
    assert "fastkcl: closed_while_waiting: the daemon does not read any more: " in stderr
    assert "Traceback" not in stderr


def test_a_daemon_that_dies_while_a_checkpoint_is_open() -> None:
    with Child("-c", program("checkpointer.checkpoint()")) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        assert child.daemon.receive() == checkpoint()
        child.daemon.close()
        code, stderr = child.wait()
    assert code == 1
    assert "fastkcl: closed_while_waiting: end of input in state PROCESSING, where a checkpoint waits" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("caught", ["Exception", "BaseException"])
def test_who_tries_a_checkpoint_for_ever_does_not_keep_the_daemon(caught: str) -> None:
    """A daemon waits for its child without a limit."""
    body = f"""
while True:
    try: checkpointer.checkpoint()
    except {caught}: pass
"""
    with Child("-c", program(body)) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        assert child.daemon.receive() == checkpoint()
        child.daemon.send(LEASE_LOST)
        assert child.daemon.receive() is None
        code, stderr = child.wait()
    assert code == 1
    assert "user code asks for checkpoints again and again, and the process ends\n" in stderr
    assert "Traceback" not in stderr


def test_a_descriptor_that_cannot_be_read() -> None:
    """Not an end of input: the report says what the system said."""
    child_read, daemon_write = os.pipe()
    daemon_read, child_write = os.pipe()
    os.close(child_read)
    with standard_error() as stderr, pytest.raises(SystemExit) as end:
        process.run_on(
            Descriptors(daemon_write, child_write),  # the writing end of a pipe
            lambda descriptors, signals: serve(
                Counts(), Dialogue(Connection(), descriptors, signals, 1000), NO_POLICY, None
            ),
            30,
        )
    os.close(daemon_read)
    assert end.value.code == 1
    assert stderr().startswith("fastkcl: read_failed: reading from the daemon: ")


def test_a_program_that_lets_sigpipe_kill_it_still_reports() -> None:
    source = "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\n" + program()
    with Child("-c", source) as child:
        child.daemon.start()
        os.close(child.daemon.read_fd)
        child.daemon.read_fd = -1
        child.daemon.send(process_records(1))
        code, stderr = child.wait()
    assert code == 1
    assert "closed_while_waiting" in stderr


@pytest.mark.parametrize(
    ("statement", "exit_code", "text"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('some words')", 1, "some words"),
        ("raise KeyboardInterrupt", 130, "fastkcl: interrupted by a KeyboardInterrupt; no status was sent"),
        ("os._exit(9)", 9, ""),
        ("raise MemoryError", 1, "fastkcl: user_error: process_batch failed with MemoryError ("),
        ("raise GeneratorExit", 1, "GeneratorExit"),
    ],
)
def test_exits_out_of_user_code(statement: str, exit_code: int, text: str) -> None:
    with Child("-c", program(statement)) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        assert child.daemon.receive() is None
        code, stderr = child.finish()
    assert code == exit_code
    assert text in stderr
    assert "returned" not in stderr


ENDED = """
def run_ended(state=sys.modules["__main__"]):
    print("run ended", threading.current_thread() is threading.main_thread())
    {then}
self.run_ended = run_ended
"""


@pytest.mark.parametrize(("then", "after"), [("pass", None), ("1 / 0", "run_ended failed with ZeroDivisionError")])
@pytest.mark.parametrize(("body", "exit_code"), [("pass", 0), ("raise SystemExit(5)", 5), ("1 / 0", 1)])
def test_the_end_of_the_run_is_told_once(body: str, exit_code: int, then: str, after: str | None) -> None:
    with Child("-c", program(ENDED.format(then=then) + body)) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        child.daemon.receive()
        code, stderr = child.finish()
    assert code == exit_code
    assert stderr.count("run ended True") == 1
    if after is not None:
        assert after in stderr


def test_a_thread_left_running_does_not_hang_the_daemon() -> None:
    body = "threading.Thread(target=time.sleep, args=(600,), name='forgotten').start()"
    with Child("-c", program(body, "shutdown_grace=0.5")) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        code, stderr = child.finish()
    assert code == 1
    assert "fastkcl: still running 0.5 s after the main thread's end (threads: forgotten); ending the process" in stderr


def test_a_worker_process_left_running_does_not_hang_the_daemon() -> None:
    body = """
import multiprocessing
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
worker.start()
print("worker", worker.pid)
"""
    with Child("-c", program(body, "shutdown_grace=0.5")) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        code, stderr = child.finish()
        os.kill(int(stderr.split("worker ")[1].split()[0]), 9)
    assert code == 1
    assert "fastkcl: still running 0.5 s after the main thread's end; ending the process" in stderr


def test_threads_that_end_in_time_change_nothing() -> None:
    body = """
def outlive():
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    print("outlived", flush=True)

threading.Thread(target=outlive).start()
"""
    with Child("-c", program(body)) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        code, stderr = child.finish()
    assert code == 0
    assert stderr.endswith("returned\noutlived\n")


GOES_ON = """
now, sleep, looks = time.monotonic, time.sleep, []

def looking(seconds):
    if threading.current_thread().name == "fastkcl-end":
        looks.append(now())
    sleep(seconds)

time.monotonic, time.sleep = lambda: now() + 3600, looking
while len(looks) < 3:
    sleep(0.01)
time.monotonic = now
print("cleaned up", flush=True)
cleaned.set()
"""


def test_the_main_thread_may_go_on_after_the_run() -> None:
    """The grace time begins with its end: here, longer than that passes while it goes on."""
    body = "global cleaned; cleaned = threading.Event(); threading.Thread(target=cleaned.wait).start()"
    with Child("-c", program(body, "shutdown_grace=30", GOES_ON)) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), DONE)
        code, stderr = child.finish()
    assert code == 0
    assert stderr.endswith("returned\ncleaned up\n")


def test_an_idle_child_holds_no_batch() -> None:
    """When the next message is awaited, nobody has the last batch any more."""
    body = """
import weakref

def idle(batch=weakref.ref(batch)):
    while batch() is not None:
        time.sleep(0.02)
    print("nothing held")

threading.Thread(target=idle, daemon=True).start()
"""
    with Child("-c", program(body)) as child:
        child.daemon.start()
        child.daemon.ask(process_records(*range(1000)), DONE)
        child.await_stderr("nothing held")
        assert child.finish().exit == 0


class NoMethod(fastkcl.BatchProcessor):
    pass


class Coroutine(fastkcl.BatchProcessor):
    async def process_batch(  # type: ignore[override]
        self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer
    ) -> None: ...


class Generator(Counts):
    def shard_ended(self, checkpointer: fastkcl.Checkpointer) -> Any:
        yield checkpointer


@pytest.mark.parametrize(
    ("processor", "text"),
    [
        (NoMethod(), r"NoMethod does not define process_batch\(batch, checkpointer\)"),
        (fastkcl.BatchProcessor(), "BatchProcessor does not define process_batch"),
        (Counts, r"takes an instance, not the class: run\(Counts\(\)\)"),
        (object(), "takes a fastkcl.BatchProcessor, not object"),
        (lambda batch: None, "not function; decorate it with @fastkcl.processor"),
        (Coroutine(), "Coroutine.process_batch is a coroutine or generator function"),
        (Generator(), "Generator.shard_ended is a coroutine or generator function"),
    ],
)
def test_what_cannot_be_served(processor: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        fastkcl.run(processor)


async def _work(*arguments: object) -> None: ...


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("initialize", INITIALIZE),
        ("process_batch", process_records(1)),
        ("shard_ended", SHARD_ENDED),
        ("shutdown_requested", SHUTDOWN_REQUESTED),
    ],
)
def test_a_method_that_only_makes_a_coroutine_gets_no_status(method: str, line: bytes) -> None:
    hidden = type("Hidden", (Counts,), {method: functools.partialmethod(_work)})

    def script(daemon: Daemon) -> None:
        if line != INITIALIZE:
            daemon.start()
        daemon.send(line)
        assert daemon.receive() is None

    code, stderr = in_process(hidden(), script)
    assert code == 1
    assert f"Hidden.{method} returned an object of type coroutine, which nobody runs or waits for" in stderr
    assert "never awaited" not in stderr


def test_after_the_lease_is_lost_it_is_only_reported() -> None:
    hidden = type("Hidden", (Counts,), {"lease_lost": functools.partialmethod(_work)})

    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(LEASE_LOST, status("leaseLost"))
        daemon.finish()

    code, stderr = in_process(hidden(), script)
    assert code == 0
    assert "skip: lease_lost failed with TypeError: Hidden.lease_lost returned an object of type coroutine" in stderr


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"max_line_bytes": 0}, ValueError, "max_line_bytes must be from 1 to 2147483647, not 0"),
        ({"max_line_bytes": 1 << 31}, ValueError, "max_line_bytes must be from 1"),
        ({"max_line_bytes": 1.5}, TypeError, "float"),
        ({"shutdown_grace": -1}, ValueError, "shutdown_grace must not be negative: -1"),
        ({"shutdown_grace": float("nan")}, ValueError, "shutdown_grace must not be negative: nan"),
        ({"retry_backoff": float("nan")}, ValueError, "must not be negative: 0, nan"),
        ({"dialect": "old"}, ValueError, "dialect must be"),
        ({"on_error": "go"}, ValueError, "on_error must be"),
    ],
)
def test_arguments_are_refused_before_the_descriptors_are_taken(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    monkeypatch.setattr(Descriptors, "take", lambda: pytest.fail("the descriptors were taken"))
    with pytest.raises(error, match=text):
        fastkcl.run(Counts(), **arguments)


def test_the_base_method_names_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="NoMethod does not define process_batch"):
        NoMethod().process_batch(None, None)  # type: ignore[arg-type]
