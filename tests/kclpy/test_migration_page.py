"""The pages about amazon_kclpy, as they are printed: their blocks are files that are run, with both packages."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from kcl_helpers import (
    INITIALIZE,
    SHARD_ENDED,
    TIMEOUT,
    Child,
    checkpoint,
    checkpoint_reply,
    process_records,
    status,
)
from kclpy_helpers import Program, environment
from paths import PROGRAMS, ROOT

NAMES = ("migrating-from-amazon-kclpy.md", "kclpy-tests-and-image.md")
PAGE = "".join((ROOT / "docs" / name).read_text("utf-8") for name in NAMES)
BLOCKS = re.findall(r"^```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = {block.split()[1]: block for block in BLOCKS if block.startswith("# ")}
SHEBANG = "#!/usr/bin/env -S fastkcl run\n"
BATCH_PROCESSOR = "class Processor(processor.RecordProcessorBase):\n    def process_records"

SCRIPTS = Path(sys.executable).parent
RUN = [sys.executable, "-m", "fastkcl", "run"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the files of the page."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # not this project's
    return tmp_path


def run(folder: Path, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(PYTHONDONTWRITEBYTECODE="1", TMPDIR=str(folder)) | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )


def on_path(**variables: str) -> dict[str, str]:
    """An environment in which the scripts of this one are found."""
    return environment(PATH=f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}") | variables


def test_each_block_has_a_test_here() -> None:
    assert set(FILES) == {"conftest.py", "test_consumer.py", "app.properties", "typings.sh", "app.py"}
    others = [block for block in BLOCKS if block not in FILES.values()]
    assert [block for block in others if block != SHEBANG and not block.startswith(BATCH_PROCESSOR)] == []
    assert len(others) == 2


# ---- tests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "pytest", "-p", "no:randomly", "-p", "no:rerunfailures", "-p", "no:cacheprovider"],
        ["-m", "fastkcl", "run", "-m", "pytest", "--noconftest"],
        ["-m", "fastkcl", "run", "-m", "pytest", "--noconftest", "-n", "2"],
        ["-m", "fastkcl", "run", "-m", "unittest"],
    ],
    ids=["conftest.py", "run pytest", "run pytest with workers", "run unittest"],
)
def test_the_tests_of_the_page(project: Path, command: list[str]) -> None:
    (project / "app.py").write_text(FILES["app.py"].replace("    fastkcl.kclpy.install()\n", "    pass\n"))
    done = run(project, sys.executable, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout or "Ran 5 tests" in done.stderr


def test_the_tests_of_the_page_pass_with_the_original(project: Path, original_python: Path) -> None:
    done = run(project, original_python, "-m", "unittest")
    assert done.returncode == 0, done.stderr
    assert "Ran 5 tests" in done.stderr


# What the processor sees, and what leaves `run()` or the call: with amazon_kclpy, and with ours. Classes of exceptions.
BROKEN = "RemoteProtocolError"
WAYS = {
    "patch kcl.json": ("", "", "", "AttributeError"),
    "patch kcl.traceback": ("", "", "", "AttributeError"),
    "patch messages.base64": ("", "", "", "AttributeError"),
    "patch messages.datetime": ("", "", "", "AttributeError"),
    "no JSON": ("", "JSONDecodeError ValueError", "", "DecodeError ValueError"),
    "a record's line without data": ("", "KeyError", "", "DecodeError ValueError"),
    "a record's dict without data": ("", "KeyError", "", "KeyError"),
    "a record's line without partitionKey": ("", "KeyError", "", "DecodeError ValueError"),
    "a record's dict without partitionKey": ("", "KeyError", "", "KeyError"),
    "a record's line without sequenceNumber": ("", "KeyError", "", "DecodeError ValueError"),
    "a record's dict without sequenceNumber": ("", "KeyError", "", "KeyError"),
    # The batch arrives, and has a checkpoint that nobody answers.
    "a record's line without subSequenceNumber": ("", "KeyError", BROKEN, BROKEN),
    "a record's dict without subSequenceNumber": ("", "KeyError", "", "KeyError"),
    "a record's line without approximateArrivalTimestamp": ("", "KeyError", BROKEN, BROKEN),
    "a record's dict without approximateArrivalTimestamp": ("", "KeyError", "", "KeyError"),
    "a batch without millisBehindLatest": ("", "KeyError", BROKEN, BROKEN),
    "no answer": ("ValueError", "", BROKEN, BROKEN),
    "another line instead of an answer": (
        *("CheckpointError", ""),
        *(f"CheckpointError {BROKEN}", f"CheckpointError {BROKEN}"),
    ),
}


def test_the_idioms_that_change(original_python: Path, tmp_path: Path) -> None:
    ways: dict[str, list[list[str]]] = {name: [] for name in WAYS}
    for command in ([original_python], RUN):
        done = run(tmp_path, *command, PROGRAMS / "kclpy_idioms.py")
        assert done.returncode == 0, done.stderr
        for name, *classes in map(json.loads, done.stdout.splitlines()):
            ways[name] += classes
    for name, expected in WAYS.items():
        assert len(ways[name]) == 4, name
        for names, classes in zip(expected, ways[name], strict=True):
            assert set(names.split()) <= set(classes), name
            assert bool(names) == bool(classes), name


# ---- the image --------------------------------------------------------------------------------------------------


def test_what_the_original_brings_along(newest_source: Path) -> None:
    requirements = (newest_source / "amazon_kclpy.egg-info" / "requires.txt").read_text().split()
    assert requirements[0] == "boto3"
    assert "\ndependencies = []\n" in (ROOT / "pyproject.toml").read_text()
    assert '\nrequires-python = ">=3.11"\n' in (ROOT / "pyproject.toml").read_text()
    assert "Requires-Python" not in (newest_source / "PKG-INFO").read_text()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("import importlib.metadata; importlib.metadata.version('amazon_kclpy')", "PackageNotFoundError"),
        ("import samples", "ModuleNotFoundError: No module named 'samples'"),
        ("import importlib.metadata; importlib.metadata.version('fastkcl')", None),
    ],
)
def test_what_is_gone_with_the_original(tmp_path: Path, line: str, error: str | None) -> None:
    (tmp_path / "app.py").write_text(f"from amazon_kclpy import kcl\n{line}\n")
    done = run(tmp_path, *RUN, "app.py")
    assert done.returncode == (error is not None), done.stderr
    assert (error or "") in done.stderr


def test_the_examples_that_take_the_samples_place() -> None:
    assert "[word_consumer.py and word_putter.py](../examples)" in PAGE
    assert {"word_consumer.py", "word_putter.py"} <= {path.name for path in (ROOT / "examples").iterdir()}


def test_the_jars_are_kept(original_python: Path, tmp_path: Path) -> None:
    (command,) = re.findall(r"`(cp -r .*) /opt/kcl`", PAGE)
    done = run(tmp_path, "bash", "-c", f"{command} kcl", PATH=f"{original_python.parent}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert any(path.name.startswith("amazon-kinesis-client-multilang-") for path in (tmp_path / "kcl").iterdir())


def serve(child: Program) -> None:
    """Two records and the end of the shard, for the page's app.py."""
    for line, *answers in (
        (INITIALIZE, status("initialize")),
        (process_records(1, 2), checkpoint(), status("processRecords")),
        (SHARD_ENDED, checkpoint(), status("shardEnded")),
    ):
        child.daemon.send(line)
        for answer in answers:
            assert child.daemon.receive() == answer
            if answer["action"] == "checkpoint":
                child.daemon.send(checkpoint_reply(sequence_number=answer["sequenceNumber"]))


def serve_and_end(command: list[str | Path], variables: Mapping[str, str] | None = None) -> None:
    """Serve a program that ends well."""
    with Program(command, variables or environment()) as child:
        serve(child)
        ended = child.end()
    assert ended.exit == 0, ended.stderr


@pytest.mark.parametrize("shebang", [SHEBANG, f"#!{SCRIPTS}/fastkcl run\n"], ids=["env", "path"])
def test_a_program_that_is_named_alone(project: Path, shebang: str) -> None:
    app = project / "app"
    app.write_text(shebang + FILES["app.py"].replace("fastkcl.kclpy.install()", "pass"))
    app.chmod(0o755)
    serve_and_end([app], on_path())


def test_executable_name(project: Path) -> None:
    (command,) = re.findall(r"^executableName = (.*)$", FILES["app.properties"], re.MULTILINE)
    words = command.replace("/opt/venv/bin", str(SCRIPTS)).replace("/srv", str(project)).split(" ")
    serve_and_end(words)


# ---- while it runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["original", "ours"])
def test_sigterm_ends_it_without_a_status(project: Path, who: str, original_python: Path) -> None:
    command = [original_python] if who == "original" else RUN
    with Program([*command, project / "app.py"], environment()) as child:
        child.daemon.send(INITIALIZE)
        assert child.daemon.receive() == status("initialize")
        child.daemon.send(process_records(1))
        assert child.daemon.receive() == checkpoint()
        child.process.send_signal(signal.SIGTERM)
        assert child.process.wait(TIMEOUT) == -signal.SIGTERM
        assert child.daemon.receive() is None


@pytest.mark.parametrize(
    ("stop", "variable", "goes_on"),
    [
        ("breakpoint()", {}, False),
        ("import pdb; pdb.set_trace()", {}, False),
        ("input()", {}, False),
        ("breakpoint()", {"PYTHONBREAKPOINT": "0"}, True),
    ],
)
def test_a_debugger_finds_no_terminal(project: Path, stop: str, variable: dict[str, str], goes_on: bool) -> None:
    (project / "app.py").write_text(
        FILES["app.py"].replace("        for record", f"        {stop}\n        for record")
    )
    with Program([*RUN, project / "app.py"], environment(**variable)) as child:
        child.daemon.send(INITIALIZE)
        assert child.daemon.receive() == status("initialize")
        child.daemon.send(process_records(1))
        assert child.daemon.receive() == (checkpoint() if goes_on else None)
        if not goes_on:
            assert child.end().exit != 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "messages are read by the Rust reader"),
        ("kcl.KCLProcess._handle_a_line = lambda self, line: None\n", "messages are read as lines of text: "),
    ],
)
def test_which_reader_is_said(project: Path, more: str, said: str) -> None:
    assert said.rstrip(": ") in " ".join(PAGE.split())
    (project / "app.py").write_text(FILES["app.py"].replace('if __name__ == "__main__":', f"{more}if True:"))
    done = run(project, *RUN, "app.py", FASTKCL_VERBOSE="1")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"fastkcl: {said}" in done.stderr


# ---- types ------------------------------------------------------------------------------------------------------

TYPED = """
from amazon_kclpy import kcl, messages
from amazon_kclpy.v3 import processor

class Processor(processor.RecordProcessorBase):
    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        for record in process_records_input.records:
            reveal_type(record.binary_data)
        process_records_input.checkpointer.checkpoint(5)

kcl.KCLProcess(Processor()).run()
"""


def test_types_of_an_unchanged_program(project: Path) -> None:
    (project / "typed.py").write_text(TYPED)
    assert run(project, "bash", "typings.sh").returncode == 0
    done = run(project, sys.executable, "-m", "mypy", "--strict", "--config-file=", "typed.py", MYPYPATH="typings")
    assert re.findall(r"^typed\.py:\d+: (\w+: .*?)(?:  \[.*)?$", done.stdout, re.MULTILINE) == [
        'note: Revealed type is "bytes"',
        'error: Argument 1 to "checkpoint" of "Checkpointer" has incompatible type "int"; expected "str | None"',
    ], done.stdout + done.stderr


# ---- the way back -----------------------------------------------------------------------------------------------


def test_there_and_back(project: Path, original_python: Path) -> None:
    """The same file each time; in the middle by its own line."""
    app = project / "app.py"
    for command in ([*RUN, app], [sys.executable, app], [original_python, app]):
        serve_and_end(command)


def test_our_variables_mean_nothing_to_the_original(project: Path, original_python: Path) -> None:
    (project / "app.py").write_text(FILES["app.py"].replace("for record in", "for record in 1 / 0 or"))
    with Program([original_python, project / "app.py"], environment(FASTKCL_ON_ERROR="stop")) as child:
        child.daemon.send(INITIALIZE)
        assert child.daemon.receive() == status("initialize")
        child.daemon.send(process_records(1))
        assert child.daemon.receive() == status("processRecords")
        assert child.end().exit == 0


# ---- what the page says before that -----------------------------------------------------------------------------


def test_it_is_tried_without_aws(project: Path) -> None:
    (command,) = re.findall(r"Try it without AWS: `(.*)`", PAGE)
    done = run(project, "sh", "-c", command, **on_path())
    assert done.returncode == 0, done.stderr


def test_a_batch_beside_the_records(tmp_path: Path) -> None:
    (block,) = [block for block in BLOCKS if block.startswith(BATCH_PROCESSOR)]
    (tmp_path / "app.py").write_text(
        "import sys, pyarrow\n"
        "from amazon_kclpy import kcl\n"
        "from amazon_kclpy.v3 import processor\n"
        "def write(table): print(table.num_rows, table.schema.names, file=sys.stderr)\n"
        f"{block}"
        "    def initialize(self, initialize_input): pass\n"
        "kcl.KCLProcess(Processor()).run()\n"
    )
    with Child("-m", "fastkcl", "run", str(tmp_path / "app.py")) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1, 2), checkpoint(), status("processRecords"))
        code, stderr = child.finish()
    names = ["data", "partitionKey", "sequenceNumber", "subSequenceNumber", "approximateArrivalTimestamp"]
    assert (code, stderr) == (0, f"2 {names}\n")
