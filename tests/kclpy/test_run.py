"""`fastkcl run` and `install()`: unchanged programs, whether amazon_kclpy is installed or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kcl_helpers import LEASE_LOST, Child, process_records, status

RUN = ("-m", "fastkcl", "run")
APP = """
import sys
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

class Processor(processor.RecordProcessorBase):
    def initialize(self, i): pass
    def process_records(self, i):
        for record in i.records:
            print(record.binary_data, file=sys.stderr)
    def lease_lost(self, i): pass

if __name__ == "__main__":
    print("arguments", sys.argv[1:], file=sys.stderr)
    kcl.KCLProcess(Processor()).run()
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


def python(source: str, *, cwd: Path | None = None, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **variables},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *RUN, *arguments], capture_output=True, text=True, check=False, cwd=cwd, timeout=60
    )


def installed_package(folder: Path) -> Path:
    """A package amazon_kclpy that fails when it is imported, with jars."""
    package = folder / "amazon_kclpy"
    (package / "jars").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('the original was imported')")
    (package / "jars" / "__init__.py").write_text("")
    (package / "jars" / "kcl.jar").write_text("")
    return package


# ---- fastkcl run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize("way", [("-m", "fastkcl"), ("-c", "from fastkcl.__main__ import main; main()")])
def test_an_unchanged_program(app: Path, tmp_path: Path, way: tuple[str, ...], installed: bool) -> None:
    site = tmp_path / "site"
    site.mkdir()
    if installed:
        installed_package(site)
    path = os.pathsep.join([str(site), *sys.path])
    with Child(*way, "run", str(app), "-x", "--on-error", "y", environment={"PYTHONPATH": path}) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), status("processRecords"))
        child.daemon.ask(LEASE_LOST, status("leaseLost"))
        assert child.finish() == (0, "arguments ['-x', '--on-error', 'y']\nb'hello'\n")


@pytest.mark.parametrize("option", [(), ("--on-error", "stop"), ("--on-error=stop",)])
def test_on_error(app: Path, option: tuple[str, ...]) -> None:
    app.write_text(APP.replace("for record", "raise ValueError('boom')\n        for record"))
    with Child(*RUN, *option, str(app)) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        answer = child.daemon.receive()
        code, stderr = child.finish()
    assert (answer, code) == ((None, 1) if option else (status("processRecords"), 0))
    assert ("fastkcl: user_error: process_records" if option else "fastkcl: skip: process_records") in stderr


def test_dead_letter(app: Path, tmp_path: Path) -> None:
    app.write_text(APP.replace("for record", "raise ValueError('boom')\n        for record"))
    with Child(*RUN, "--dead-letter", str(tmp_path / "letters"), str(app)) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), status("processRecords"))
        assert child.finish().exit == 0
    assert len(list((tmp_path / "letters").iterdir())) == 1


def test_a_module(app: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *RUN, "-m", "app", "one"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[1:])},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "arguments ['one']\n")


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text("import sys\nfrom amazon_kclpy import kcl\nprint(__name__, sys.argv[1:])")
    assert run(str(tmp_path), "x").stdout == "__main__ ['x']\n"


def test_the_program_finds_what_python_would_give_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "beside.py").write_text("VALUE = 7\n")
    path = folder / "app.py"
    path.write_text(
        "import __main__, beside, os, pickle, sys\n"
        "class Mine: value: int\n"
        "assert Mine.__annotations__ == {'value': int}\n"
        "assert __name__ == '__main__' and __main__.Mine is Mine and beside.VALUE == 7\n"
        "assert isinstance(pickle.loads(pickle.dumps(Mine())), Mine)\n"
        "print(__file__, sys.argv, sys.path[0], __builtins__.__name__, __doc__, __spec__)\n"
    )
    expected = subprocess.run(
        [sys.executable, "folder/app.py", "a b"], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    assert run("folder/app.py", "a b", cwd=tmp_path).stdout == expected


@pytest.mark.parametrize(
    ("source", "code"), [("import sys; sys.exit(7)", 7), ("raise SystemExit('bye')", 1), ("1/0", 1), ("(", 1)]
)
def test_the_program_ends_as_it_would(tmp_path: Path, source: str, code: int) -> None:
    path = tmp_path / "app.py"
    path.write_text(source)
    done = run(str(path))
    assert done.returncode == code
    if source == "1/0":
        assert f'File "{path}", line 1' in done.stderr


def test_a_program_that_is_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_bytes(b"# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n")
    assert run(str(path)).stdout == "'\\xe9'\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "which program?"),
        (("nosuch.py",), "nosuch.py cannot be read: No such file"),
        (("-m", "nosuch"), "no module named nosuch"),
        (("-m",), "-m needs a value"),
        (("--on-error", "ignore", "app.py"), "must be skip or stop, not 'ignore'"),
        (("--verbose", "app.py"), "no such option: --verbose"),
        ((".",), ". is a folder without a __main__.py"),
    ],
)
def test_what_cannot_be_run(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Try 'fastkcl run --help'" in done.stderr


def test_help() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: fastkcl run")
    assert max(map(len, done.stdout.splitlines())) < 80


def test_it_loads_no_command_line_library(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(
        "import sys\nfrom amazon_kclpy import kcl\nprint(*sorted(m.partition('.')[0] for m in sys.modules))"
    )
    loaded = set(run(str(path)).stdout.split())
    assert "fastkcl" in loaded
    bare = set(python("import sys; print(*(m.partition('.')[0] for m in sys.modules))").split())
    assert (loaded - bare) & {
        "click",
        "rich",
        "argparse",
        "json",
        "logging",
        "inspect",
        "datetime",
        "traceback",
    } == set()


# ---- install ----------------------------------------------------------------------------------------------------


def test_the_same_modules_under_both_names(tmp_path: Path) -> None:
    python(
        """
import sys
before = list(sys.meta_path)
import fastkcl.kclpy
fastkcl.kclpy.install()
fastkcl.kclpy.install()
assert len(sys.meta_path) == len(before) + 1
import amazon_kclpy, amazon_kclpy.kcl, amazon_kclpy.messages as messages
from amazon_kclpy import dispatch
from amazon_kclpy.v2 import processor
from amazon_kclpy.checkpoint_error import CheckpointError
import fastkcl.kclpy.kcl, fastkcl.kclpy.messages, fastkcl.kclpy.v2.processor
assert amazon_kclpy is fastkcl.kclpy and amazon_kclpy.kcl is fastkcl.kclpy.kcl and messages is fastkcl.kclpy.messages
assert processor is fastkcl.kclpy.v2.processor and dispatch is fastkcl.kclpy.dispatch
assert amazon_kclpy.kcl.CheckpointError is CheckpointError is messages.CheckpointError
for name, module in list(sys.modules.items()):
    if name.startswith("fastkcl."):
        assert module.__spec__.name == name, (name, module.__spec__)
import importlib
assert importlib.import_module("amazon_kclpy.helper").__name__ == "fastkcl.kclpy.helper"
""",
        cwd=tmp_path,
    )


def test_what_is_not_there(tmp_path: Path) -> None:
    source = (
        "import fastkcl.kclpy; fastkcl.kclpy.install()\n"
        "try: import amazon_kclpy.nothing\n"
        "except ModuleNotFoundError as error: print(error.name, '|', error)\n"
        "import importlib.util; print(importlib.util.find_spec('amazon_kclpy_helper'))"
    )
    expected = "amazon_kclpy.nothing | No module named 'amazon_kclpy.nothing' (served by fastkcl.kclpy)\nNone\n"
    assert python(source, cwd=tmp_path) == expected


def test_too_late(tmp_path: Path) -> None:
    package = tmp_path / "amazon_kclpy"
    package.mkdir()
    (package / "__init__.py").write_text("")
    source = (
        "import amazon_kclpy, fastkcl.kclpy\ntry: fastkcl.kclpy.install()\nexcept RuntimeError as error: print(error)\n"
    )
    assert "amazon_kclpy is imported already" in python(source, cwd=tmp_path)


def test_the_jars_are_those_of_the_installed_package(tmp_path: Path) -> None:
    package = installed_package(tmp_path)
    source = (
        "import fastkcl.kclpy; fastkcl.kclpy.install()\nimport amazon_kclpy.jars; print(amazon_kclpy.jars.__file__)"
    )
    assert python(source, cwd=tmp_path).strip() == str(package / "jars" / "__init__.py")
    empty = tmp_path / "empty"
    empty.mkdir()
    ours = Path(python(source, cwd=empty).strip())
    assert ours.parts[-4:] == ("fastkcl", "kclpy", "jars", "__init__.py")


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_of_an_unchanged_program(tmp_path: Path, method: str, installed: bool) -> None:
    """A worker that starts afresh imports the program again, and has to find amazon_kclpy there."""
    site = tmp_path / "site"
    site.mkdir()
    if installed:
        installed_package(site)
    environment = {"PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    path = tmp_path / "app.py"
    path.write_text(
        f"""
import multiprocessing, sys
from amazon_kclpy import kcl, messages
from amazon_kclpy.v3 import processor

def work(records):
    return [(type(record) is messages.Record, record.binary_data) for record in records]

class Processor(processor.RecordProcessorBase):
    def initialize(self, i):
        self.pool = multiprocessing.get_context({method!r}).Pool(1)
    def process_records(self, i):
        print(self.pool.apply(work, (i.records,)), file=sys.stderr)
    def lease_lost(self, i):
        self.pool.close()
        self.pool.join()

if __name__ == "__main__":
    kcl.KCLProcess(Processor()).run()
"""
    )
    with Child(*RUN, str(path), environment=environment) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), status("processRecords"))
        child.daemon.ask(LEASE_LOST, status("leaseLost"))
        code, stderr = child.finish()
    assert (code, stderr) == (0, "[(True, b'hello')]\n")


# ---- sentences of the page on migrating --------------------------------------------------------------------------

SUBCLASS = "class Lines(kcl.KCLProcess):\n    def _handle_a_line(self, line): super()._handle_a_line(line)\n"


@pytest.mark.parametrize(("kind", "after_the_end"), [("kcl.KCLProcess", ""), ("Lines", "printed\nwritten\n")])
def test_how_long_standard_output_is_standard_error(kind: str, after_the_end: str, tmp_path: Path) -> None:
    """To the end of the process where Rust reads, to the end of `run()` where lines are read as text."""
    path = tmp_path / "app.py"
    prints = "print('printed', flush=True); import os; os.write(1, b'written\\n')"
    path.write_text(APP.partition("if __name__")[0] + f"{SUBCLASS}{kind}(Processor()).run()\n{prints}\n")
    done = subprocess.run(
        [sys.executable, *RUN, str(path)], input=LEASE_LOST, capture_output=True, check=False, timeout=60
    )
    answer, _, after = done.stdout.decode().strip("\n").partition("\n")
    assert (json.loads(answer), done.returncode) == (status("leaseLost"), 0)
    assert (after.strip(), done.stderr.decode()) == (
        after_the_end.strip(),
        "" if after_the_end else "printed\nwritten\n",
    )


@pytest.mark.parametrize("sign", ["", "-"])
def test_arrival_times_out_of_range(sign: str, app: Path) -> None:
    """`timestamp_millis` works where no datetime does, up to what a column of microseconds can hold."""
    app.write_text(APP.replace("record.binary_data", "record.timestamp_millis"))
    farthest = f"{sign}9223372036854775"
    for millis, taken in ((farthest, True), (f"{sign}9223372036854776", False)):
        batch = json.loads(process_records(1))
        batch["records"][0]["approximateArrivalTimestamp"] = int(millis)
        with Child(*RUN, str(app)) as child:
            child.daemon.start()
            child.daemon.send(json.dumps(batch).encode() + b"\n")
            answer = child.daemon.receive()
            code, stderr = child.finish()
        assert (answer, code) == ((status("processRecords"), 0) if taken else (None, 1))
        assert (f"{farthest}\n" if taken else "DecodeError: out_of_range") in stderr


def test_a_program_from_a_pipe(tmp_path: Path) -> None:
    """It says that it waits, and a traceback does not read the pipe again."""
    pipe = tmp_path / "app.py"
    os.mkfifo(pipe)
    with subprocess.Popen([sys.executable, *RUN, str(pipe)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        pipe.write_text("import sys\nassert __name__ == '__main__'\nsys.stderr.write(__file__ + chr(10))\n[][0]\n")
        _, stderr = process.communicate(timeout=60)
    assert told == f"fastkcl: {pipe} is a pipe to which nobody has written yet; waiting for it\n"
    assert stderr.startswith(f"{pipe}\nTraceback")
    assert stderr.endswith("IndexError: list index out of range\n")
    assert process.returncode == 1
