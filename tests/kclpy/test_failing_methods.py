"""Unchanged programs whose methods raise, fork, ask a person, or only make a coroutine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kcl_helpers import (
    INITIALIZE,
    LEASE_LOST,
    SHARD_ENDED,
    SHUTDOWN_REQUESTED,
    checkpoint,
    checkpoint_reply,
    process_records,
    status,
)
from kclpy_helpers import Ended, Program, environment
from paths import PROGRAMS

DONE = status("processRecords")
# Methods of version 3, 2 and 1 get one argument, or what the original's own classes say.
ARGUMENTS = {
    ("1", "process_records"): "self, records, checkpointer",
    ("1", "shutdown"): "self, checkpointer, reason",
}


class Child(Program):
    """`fastkcl run` of a processor whose methods are given."""

    def __init__(self, tmp_path: Path, source: str, *, version: str = "3", **variables: str) -> None:
        command = [sys.executable, "-m", "fastkcl", "run", str(PROGRAMS / "kclpy" / "acts.py")]
        super().__init__(
            [*command, str(tmp_path / "log.jsonl"), version, source],
            environment(PYTHONPATH=os.pathsep.join(sys.path), **variables),
        )

    def play(self, *lines: bytes) -> Ended:
        """Each line gets its status, but for one that ends the child."""
        for line in lines:
            self.daemon.send(line)
            answer = self.daemon.receive()
            if answer is None:
                break
            assert line.startswith(f'{{"action":"{answer["responseFor"]}"'.encode())
        return self.end()


def reports(ended: Ended) -> list[str]:
    return [line for line in ended.stderr.splitlines() if line.startswith("fastkcl: ")]


# ---- dead letters -----------------------------------------------------------------------------------------------

FAILS = "def process_records(self, i): raise ValueError('boom')"


def test_batches_without_records_leave_no_dead_letter(tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    with Child(tmp_path, FAILS, FASTKCL_DEAD_LETTER=str(letters)) as child:
        ended = child.play(INITIALIZE, *[process_records()] * 3, process_records(7), process_records())
    assert ended.stdout.count(b'"processRecords"') == 5
    (path,) = letters.iterdir()
    assert pa.ipc.open_file(path).read_all()["sequenceNumber"].to_pylist() == ["7"]
    assert [report.rpartition("; ")[2] for report in reports(ended)] == [
        *["no record had to be stored"] * 3,
        f"these records are stored in {path}",
        "no record had to be stored",
    ]


def test_batches_without_records_are_not_said_to_be_lost(tmp_path: Path) -> None:
    with Child(tmp_path, FAILS) as child:
        (report,) = reports(child.play(INITIALIZE, process_records()))
    assert report.endswith("(shardId-000000000000, no records); it is skipped")


FORKS = {
    "raises": "raise ValueError('in the fork')",
    "returns": "return",
    "fails in a checkpoint": "i.checkpointer.checkpoint()",
}


@pytest.mark.parametrize("reader", ["the Rust reader", "text"])
@pytest.mark.parametrize("what", FORKS)
def test_a_forked_child_acts_for_nobody(what: str, reader: str, tmp_path: Path) -> None:
    """No letter of its parent's batch, no status; the parent's are the only ones."""
    letters = tmp_path / "letters"
    source = f"""
def process_records(self, i):
    if os.fork() == 0:
        {FORKS[what]}
    else:
        _, code = os.wait()
        print("fork", os.waitstatus_to_exitcode(code), file=sys.stderr, flush=True)
"""
    if reader == "text":
        source += """
handle = kcl.KCLProcess._handle_a_line
kcl.KCLProcess._handle_a_line = lambda self, line: handle(self, line)
"""
    with Child(tmp_path, source, FASTKCL_DEAD_LETTER=str(letters)) as child:
        ended = child.play(INITIALIZE, process_records(7), LEASE_LOST)
    assert ended.exit == 0
    assert ended.stdout.count(b"processRecords") == 1
    assert list(letters.iterdir()) == []
    assert "fork 1\n" in ended.stderr
    assert "RuntimeError: a forked child came back into the dialogue of its parent" in ended.stderr
    assert ("ValueError: in the fork" in ended.stderr) is (what == "raises")
    assert reports(ended) == []


@pytest.mark.parametrize("reader", ["the Rust reader", "text"])
@pytest.mark.parametrize("once", ["run", "run_until_it_returns"])
def test_a_forked_child_reads_nothing_of_its_parent(once: str, reader: str, tmp_path: Path) -> None:
    """A new object in it would read the parent's standard input, where the parent reads text."""
    source = f"""
def run(self): kcl.KCLProcess(type(self)()).run()
def run_until_it_returns(self):
    while True:
        try: return self.run()
        except: pass
def process_records(self, i):
    if os.fork() == 0:
        self.{once}()
        os._exit(0)
    _, code = os.wait()
    print("fork", os.waitstatus_to_exitcode(code), file=sys.stderr, flush=True)
"""
    if reader == "text":
        source += """
handle = kcl.KCLProcess._handle_a_line
kcl.KCLProcess._handle_a_line = lambda self, line: handle(self, line)
"""
    with Child(tmp_path, source) as child:
        child.daemon.send(INITIALIZE + process_records(7) + process_records(8) + LEASE_LOST)
        ended = child.end()
    assert (ended.exit, ended.stdout.count(b"processRecords"), ended.stdout.count(b"leaseLost")) == (0, 2, 1)
    assert ended.stderr.count("fork 1\n") == 2
    assert reports(ended)[0].startswith("fastkcl: run() cannot go on: RuntimeError: a forked child came back into")


def test_a_worker_that_raises_is_its_own_business(tmp_path: Path) -> None:
    source = """
def work(): raise ValueError("in the worker")
def process_records(self, i):
    worker = multiprocessing.get_context("fork").Process(target=self.work)
    worker.start()
    worker.join()
work = staticmethod(work)
"""
    letters = tmp_path / "letters"
    with Child(tmp_path, source, FASTKCL_DEAD_LETTER=str(letters)) as child:
        ended = child.play(INITIALIZE, process_records(7), LEASE_LOST)
    assert (ended.exit, ended.stdout.count(b"processRecords")) == (0, 1)
    assert list(letters.iterdir()) == []
    assert "ValueError: in the worker" in ended.stderr


# ---- checkpoints that cannot succeed ----------------------------------------------------------------------------

RETRIES = """
def retry(checkpointer):
    while True:
        try: return checkpointer.checkpoint()
        except Exception: pass
retry = staticmethod(retry)
"""
TRYING = {
    "the method": "def process_records(self, i): self.retry(i.checkpointer)",
    "a thread": """
def process_records(self, i):
    import threading
    answers = []
    thread = threading.Thread(target=lambda: answers.append(self.retry(i.checkpointer)))
    thread.start()
    while not answers: thread.join(60)
""",
}


@pytest.mark.parametrize("way", TRYING)
def test_who_retries_for_ever_does_not_keep_the_daemon(way: str, tmp_path: Path) -> None:
    """A daemon waits for its child without a limit."""
    with Child(tmp_path, RETRIES + TRYING[way]) as child:
        for line in (INITIALIZE, process_records(7), LEASE_LOST):
            child.daemon.send(line)
            child.daemon.receive()
        ended = child.end()
    assert (ended.exit, ended.stdout.count(b"status")) == (1, 1)
    assert reports(ended) == [
        "fastkcl: run() cannot go on: UnexpectedReplyError: InvalidStateException: unexpected_message:"
        " leaseLost came where a checkpoint waits for its reply"
    ]


# ---- errors that are hard to say --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["UnspeakableError", "UnreadableError"])
@pytest.mark.parametrize("option", ["skip", "stop", "dead letter"])
def test_an_error_that_cannot_be_said_is_the_policys(name: str, option: str, tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    variables = {"FASTKCL_DEAD_LETTER": str(letters)} if option == "dead letter" else {"FASTKCL_ON_ERROR": option}
    with Child(tmp_path, f"def process_records(self, i): raise {name}", **variables) as child:
        ended = child.play(INITIALIZE, process_records(7), process_records(8), LEASE_LOST)
    assert ended.exit == (1 if option == "stop" else 0)
    assert ended.stdout.count(b"processRecords") == (0 if option == "stop" else 2)
    assert "Caught exception from action dispatch: <its text cannot be made>Traceback (most" in ended.stderr
    assert "in process_records" in ended.stderr
    assert f"process_records failed with {name}: <its text cannot be made> (" in reports(ended)[0]
    assert len(list(letters.iterdir())) == 2 if option == "dead letter" else not letters.exists()


@pytest.mark.parametrize("way", ["closed", "full", "none", "ascii"])
def test_what_becomes_of_a_batch_does_not_hang_on_the_error_file(way: str, tmp_path: Path) -> None:
    files = {
        "closed": "io.StringIO(); error_file.close()",
        "full": "open('/dev/full', 'w')",
        "none": "None",
        "ascii": "open(os.devnull, 'w', encoding='ascii')",
    }
    source = f"""
import io
error_file = {files[way]}
init = kcl.KCLProcess.__init__
kcl.KCLProcess.__init__ = lambda self, processor: init(self, processor, error_file=error_file)
def process_records(self, i): raise ValueError("b\u00f6om")
"""
    letters = tmp_path / "letters"
    with Child(tmp_path, source, FASTKCL_DEAD_LETTER=str(letters), PYTHONUTF8="1") as child:
        ended = child.play(INITIALIZE, process_records(7), LEASE_LOST)
    assert (ended.exit, ended.stdout.count(b"processRecords"), len(list(letters.iterdir()))) == (0, 1, 1)
    assert "Caught exception from action dispatch: b\\xf6omTraceback" in ended.stderr


def test_an_error_s_text_does_not_control_a_terminal(tmp_path: Path) -> None:
    with Child(tmp_path, "def process_records(self, i): raise ValueError('b\u00f6om\\x1b[31m\\x9b\\x07\\rX')") as child:
        ended = child.play(INITIALIZE, process_records(7), LEASE_LOST)
    assert "Caught exception from action dispatch: b\u00f6om\\x1b[31m\\x9b\\x07\\rXTraceback" in ended.stderr
    assert "ValueError: b\u00f6om\\x1b[31m\\x9b\\x07\\rX\n" in ended.stderr
    assert [c for c in ended.stderr if not c.isprintable() and c != "\n"] == []


UNCAUGHT = {
    "SystemExit": "sys.exit(TEXT)",
    "SystemExit of an object": "sys.exit(type('', (), {'__str__': lambda self: TEXT})())",
    "KeyboardInterrupt": "raise KeyboardInterrupt(TEXT)",
    "GeneratorExit": "raise GeneratorExit(TEXT)",
    "its own": "raise type('Own', (BaseException,), {})(TEXT)",
    "ignored": "sys.gone = type('', (), {'__del__': lambda self: [][TEXT]})(); del sys.gone; sys.exit(7)",
    "ignored at the end": "sys.modules['__main__'].gone = Gone(); sys.exit(7)",
    "atexit": "import atexit; atexit.register(fail); sys.exit(7)",
    "thread": "import threading; t = threading.Thread(target=fail); t.start(); t.join(); sys.exit(7)",
    "named thread": "import threading; t = threading.Thread(target=fail, name=TEXT); t.start(); t.join(); sys.exit(7)",
    "_thread": "import _thread; begun = _thread.allocate_lock(); begun.acquire()\n"
    "    _thread.start_new_thread(lambda: begun.release() or fail(), ()); begun.acquire()\n"
    "    while _thread._count(): pass\n    sys.exit(7)",
    "group": "raise BaseExceptionGroup(TEXT, [KeyboardInterrupt(TEXT)])",
    "number": "sys.exit(7)",
    "plain text": "sys.exit('b\u00f6om')",
    "nothing": "sys.exit()",
}
ENDING = r"""
TEXT = "b\u00f6\U0001f600\u2028\tX\x1b[31m\x9b\x07\rY"
def fail(): raise ValueError(TEXT)
class Gone:
    __fail = staticmethod(fail)
    def __del__(self): self.__fail()
"""


@pytest.mark.parametrize("end", UNCAUGHT)
def test_an_end_is_python_s_without_control_characters(end: str, tmp_path: Path) -> None:
    source = f"{ENDING}\ndef process_records(self, i):\n    {UNCAUGHT[end]}\n"
    with Child(tmp_path, source, PYTHONUTF8="1") as child:
        ended = child.play(INITIALIZE, process_records(7))
    command = [sys.executable, "-c", f"import sys\n{ENDING}\ndef end():\n    {UNCAUGHT[end]}\nend()"]
    plain = subprocess.run(command, capture_output=True, check=False, env=environment(PYTHONUTF8="1"), timeout=60)
    assert ended.exit == plain.returncode
    last = plain.stderr.decode().rpartition("\n")[0].split("\n")[-1]
    controls = {chr(code): f"\\x{code:02x}" for code in (7, 27, 0x9B)} | {"\r": "\\r"}
    assert last.translate(str.maketrans(controls)) in ended.stderr
    assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", ended.stderr) == []


# ---- a lost lease -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["skip", "stop"])
@pytest.mark.parametrize("version", ["1", "2", "3"])
@pytest.mark.parametrize("line", [LEASE_LOST, b'{"action":"shutdown","reason":"ZOMBIE"}\n'])
def test_a_failure_after_the_lease_is_lost(line: bytes, version: str, on_error: str, tmp_path: Path) -> None:
    method = "lease_lost" if version == "3" else "shutdown"
    source = f"def {method}(self, *arguments): raise ValueError('boom')"
    with Child(tmp_path, source, version=version, FASTKCL_ON_ERROR=on_error) as child:
        ended = child.play(INITIALIZE, line)
    assert ended.exit == 0
    assert "ValueError: boom" in ended.stderr
    (report,) = reports(ended)
    assert report.startswith(f"fastkcl: skip: {method} failed with ValueError: boom (shardId-000000000000); the lease")


def test_a_failure_at_a_shards_end_stops_as_before(tmp_path: Path) -> None:
    source = "def shutdown(self, *arguments): raise ValueError('boom')"
    with Child(tmp_path, source, version="2", FASTKCL_ON_ERROR="stop") as child:
        ended = child.play(INITIALIZE, SHARD_ENDED)
    assert (ended.exit, ended.stdout.count(b"shardEnded")) == (1, 0)


# ---- who asks a person ------------------------------------------------------------------------------------------

QUESTIONS = {
    "breakpoint()": "a debugger has quit",
    "breakpoint(); x = 1": "a debugger has quit",
    "input()": "user code has asked for input",
    "input('name? ')": "user code has asked for input",
    "list(map(input, ['name? ']))": "user code has asked for input",
    "\n  try: input()\n  except EOFError: raise RuntimeError('aborted') from None": "user code has asked for input",
    "\n  try: input()\n  except EOFError as e: raise RuntimeError('aborted') from e": "user code has asked for input",
    "\n  try: input()\n  except EOFError: raise RuntimeError('aborted')": "user code has asked for input",
    "\n  try: input()\n  except EOFError as e: raise ExceptionGroup('all', [e])": "user code has asked for input",
    "\n  try:\n    breakpoint()\n    x = 1\n  finally: 1 / 0": "a debugger has quit",
    "import prompt_toolkit; prompt_toolkit.prompt('name? ')": "user code has asked for input",
    "import prompt_toolkit, asyncio; asyncio.run(prompt_toolkit.PromptSession().prompt_async())": "asked for input",
    "os.setsid(); import click; click.getchar()": "user code has asked for input",
    "os.setsid(); open('/dev/tty').readline()": "user code has asked for input",
    "import curses; curses.wrapper(len)": "user code has asked for input",
    "import tty; tty.setraw(0)": "user code has asked for input",
    "\n  try: import termios; termios.tcgetattr(sys.stdin)\n  finally: 1 / 0": "user code has asked for input",
}


@pytest.mark.parametrize("on_error", ["skip", "dead letter"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_who_asks_a_person_stops(question: str, on_error: str, tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    variables = {"FASTKCL_DEAD_LETTER": str(letters)} if on_error == "dead letter" else {}
    with Child(tmp_path, f"def process_records(self, i): {question}", **variables) as child:
        ended = child.play(INITIALIZE, process_records(7), process_records(8))
    assert (ended.exit, ended.stdout.count(b"processRecords")) == (1, 0)
    (report,) = reports(ended)
    assert report.startswith("fastkcl: user_error: process_records failed with ")
    assert QUESTIONS[question] in report
    assert report.endswith("; no status was sent")
    assert not letters.exists() or not list(letters.iterdir())


@pytest.mark.parametrize(
    "other",
    [
        "raise EOFError",
        "pickle.loads(b'')",
        "raise EOFError('of a file')",
        "open(os.devnull).readline()[0]",
        "\n  try: input()\n  except EOFError: pass\n  raise ValueError",
        "import termios; termios.tcgetattr(os.pipe()[0] + 100)",
        "open('/dev/ttynone')",
        "import termios; raise termios.error('of mine')",
        "os.get_terminal_size(0)",
    ],
)
def test_another_end_of_file_is_an_error_like_others(other: str, tmp_path: Path) -> None:
    with Child(tmp_path, f"def process_records(self, i): {other}") as child:
        ended = child.play(INITIALIZE, process_records(7), process_records(8))
    assert (ended.exit, ended.stdout.count(b"processRecords")) == (0, 2)
    assert [report[:28] for report in reports(ended)] == ["fastkcl: skip: process_recor"] * 2


def test_an_answer_file_that_has_ended_is_no_standard_input(tmp_path: Path) -> None:
    source = "def process_records(self, i):\n    sys.stdin = open(os.devnull)\n    input()"
    with Child(tmp_path, source) as child:
        ended = child.play(INITIALIZE, process_records(7))
    assert (ended.exit, ended.stdout.count(b"processRecords")) == (0, 1)


# ---- methods that do nothing ------------------------------------------------------------------------------------

# A method's text for each version and way; the name of the type in the report.
UNRUN = {
    "async def {name}({arguments}): print('run')": "coroutine",
    "async def {name}({arguments}): yield 1": "async_generator",
    "def {name}({arguments}): yield 1": "generator",
    "async def work(self): print('run')\ndef {name}({arguments}): return self.work()": "coroutine",
}


@pytest.mark.parametrize("version", ["1", "2", "3"])
@pytest.mark.parametrize("text", UNRUN)
def test_a_method_that_does_nothing_has_failed(text: str, version: str, tmp_path: Path) -> None:
    arguments = ARGUMENTS.get((version, "process_records"), "self, i")
    source = text.format(name="process_records", arguments=arguments)
    with Child(tmp_path, source, version=version) as child:
        ended = child.play(INITIALIZE, process_records(7, 8))
    assert (ended.exit, ended.stdout.count(b"processRecords")) == (0, 1)
    (report,) = reports(ended)
    assert report == (
        f"fastkcl: skip: process_records failed with TypeError: Version{version}.process_records returned an object of"
        f" type {UNRUN[text]}, which nobody runs or waits for: use a plain def that does its work before it returns"
        " (shardId-000000000000, 2 records from 7/0 to 8/0); these records are reported as processed without having"
        " been"
    )
    assert "never awaited" not in ended.stderr


@pytest.mark.parametrize("options", [{"FASTKCL_ON_ERROR": "stop"}, {"FASTKCL_DEAD_LETTER": "letters"}])
def test_a_method_that_does_nothing_loses_nothing(options: dict[str, str], tmp_path: Path) -> None:
    options = {name: value.replace("letters", str(tmp_path / "letters")) for name, value in options.items()}
    with Child(tmp_path, "async def process_records(self, i): pass", **options) as child:
        ended = child.play(INITIALIZE, process_records(7, 8))
    if "FASTKCL_ON_ERROR" in options:
        assert (ended.exit, ended.stdout.count(b"processRecords")) == (1, 0)
    else:
        assert len(list((tmp_path / "letters").iterdir())) == 1


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("initialize", INITIALIZE),
        ("lease_lost", LEASE_LOST),
        ("shard_ended", SHARD_ENDED),
        ("shutdown_requested", SHUTDOWN_REQUESTED),
    ],
)
def test_so_has_any_other_method(method: str, line: bytes, tmp_path: Path) -> None:
    with Child(tmp_path, f"async def {method}(self, i): pass") as child:
        ended = child.play(line)
    assert f"fastkcl: skip: {method} failed with TypeError: Version3.{method} returned an object of" in ended.stderr


@pytest.mark.parametrize(
    "result",
    [
        "7",
        "i",
        "[1]",
        "iter([1])",
        "(gen := (x for x in [1]), list(gen))[0]",
        "__import__('unittest.mock').mock.MagicMock()",
        "__import__('concurrent.futures').futures.Future()",
    ],
)
def test_another_result_is_nobodys_business(result: str, tmp_path: Path) -> None:
    with Child(tmp_path, f"def process_records(self, i): return {result}") as child:
        ended = child.play(INITIALIZE, process_records(7))
    assert (ended.exit, reports(ended)) == (0, [])


# ---- a shard's end ----------------------------------------------------------------------------------------------

ENDS = [
    ("3", SHARD_ENDED, "shard_ended", "pass"),
    ("2", SHARD_ENDED, "shutdown", "pass"),
    ("1", b'{"action":"shutdown","reason":"TERMINATE"}\n', "shutdown", "pass"),
    ("3", SHARD_ENDED, "shard_ended", "raise ValueError('boom')"),
]


@pytest.mark.parametrize("reader", ["the Rust reader", "text"])
@pytest.mark.parametrize(("version", "line", "method", "body"), ENDS)
def test_an_end_without_a_checkpoint_is_said(
    version: str, line: bytes, method: str, body: str, reader: str, tmp_path: Path
) -> None:
    source = f"def {method}({ARGUMENTS.get((version, method), 'self, i')}): {body}"
    if reader == "text":
        source += "\nhandle = kcl.KCLProcess._handle_a_line\nkcl.KCLProcess._handle_a_line = lambda s, l: handle(s, l)"
    with Child(tmp_path, source, version=version) as child:
        ended = child.play(INITIALIZE, line)
    assert ended.exit == 0
    assert reports(ended)[-1] == (
        f"fastkcl: warning: {method} of shardId-000000000000 returned without a successful checkpoint: KCL cannot"
        " finish the shard, and its child shards do not start before the worker is restarted"
    )


CHECKPOINTS = "def shard_ended(self, i):\n    try: i.checkpointer.checkpoint()\n    except kcl.CheckpointError: pass"


@pytest.mark.parametrize("error", [None, "ThrottlingException"])
def test_a_checkpoint_that_is_refused_is_none(error: str | None, tmp_path: Path) -> None:
    with Child(tmp_path, CHECKPOINTS) as child:
        child.daemon.send(INITIALIZE + SHARD_ENDED)
        assert child.daemon.receive() == status("initialize")
        assert child.daemon.receive() == checkpoint()
        child.daemon.send(checkpoint_reply(error))
        ended = child.end()
    assert len(reports(ended)) == (0 if error is None else 1)


OWN_CHECKPOINTERS = {
    "reads by itself": """
class Own(kcl.Checkpointer):
    def checkpoint(self, *position):
        self.io_handler.write_line('{"action": "checkpoint", "sequenceNumber": null, "subSequenceNumber": null}')
        self.io_handler.read_line()
""",
    "another handler": "Own = lambda handler: kcl.Checkpointer(kcl._IOHandler(sys.stdin, sys.stdout, sys.stderr))",
}


@pytest.mark.parametrize("own", OWN_CHECKPOINTERS)
def test_a_checkpoint_of_a_programs_own_is_believed(own: str, tmp_path: Path) -> None:
    source = f"""{OWN_CHECKPOINTERS[own]}
init = kcl.KCLProcess.__init__
def made(self, processor):
    init(self, processor)
    self.checkpointer = Own(self.io_handler)
kcl.KCLProcess.__init__ = made
{CHECKPOINTS}
"""
    with Child(tmp_path, source) as child:
        child.daemon.send(INITIALIZE + SHARD_ENDED)
        assert child.daemon.receive() == status("initialize")
        assert child.daemon.receive() == checkpoint()
        child.daemon.send(checkpoint_reply())
        assert child.daemon.receive() == status("shardEnded")
        assert reports(child.end()) == []


# ---- which way lines are read -----------------------------------------------------------------------------------

WAYS: dict[str, tuple[str, str]] = {
    "untouched": ("", "messages are read by the Rust reader"),
    "a method": (
        "kcl.KCLProcess._handle_a_line = lambda self, line: None",
        "messages are read as lines of text: KCLProcess._handle_a_line is replaced by the program",
    ),
    "a writer": (
        "kcl._IOHandler.write_line = lambda self, line: self.output_file.write(line)",
        "messages are read as lines of text: _IOHandler.write_line is replaced by the program",
    ),
    "a file": (
        "import io\ninit = kcl.KCLProcess.__init__\n"
        "kcl.KCLProcess.__init__ = lambda self, processor: init(self, processor, io.StringIO())",
        "messages are read as lines of text: the input file is not this process's own standard input",
    ),
}


@pytest.mark.parametrize("what", WAYS)
@pytest.mark.parametrize("asked", ["FASTKCL_VERBOSE", "DEBUG", "nobody"])
def test_which_way_lines_are_read_is_said_on_request(asked: str, what: str, tmp_path: Path) -> None:
    source, said = WAYS[what]
    variables: Any = {"FASTKCL_VERBOSE": "1"} if asked == "FASTKCL_VERBOSE" else {}
    if asked == "DEBUG":
        source = f"import logging\nlogging.basicConfig(level='DEBUG')\n{source}"
    with Child(tmp_path, source, **variables) as child:
        ended = child.play()
    lines = {"FASTKCL_VERBOSE": f"fastkcl: {said}\n", "DEBUG": f"DEBUG:fastkcl:{said}\n", "nobody": ""}
    assert (ended.exit, ended.stderr) == (0, lines[asked])


@pytest.mark.parametrize("what", ["untouched", "a method"])
def test_which_way_is_not_said_to_the_daemon(what: str, tmp_path: Path) -> None:
    source = f"import logging\nlogging.basicConfig(level='DEBUG', stream=sys.stdout)\n{WAYS[what][0]}"
    with Child(tmp_path, source) as child:
        ended = child.play()
    assert (ended.exit, ended.stdout, ended.stderr) == (0, b"", f"DEBUG:fastkcl:{WAYS[what][1]}\n")
