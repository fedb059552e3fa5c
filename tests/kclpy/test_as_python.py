"""`fastkcl run X` runs a program as `python X` does: a file, a folder, an archive, a module."""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import subprocess
import sys
import zipapp
import zipfile
from pathlib import Path
from typing import Any

import fastkcl.kclpy
import pytest
from kcl_helpers import LEASE_LOST, Child, process_records, status
from kclpy_helpers import environment
from paths import PROGRAMS
from waiting import PATIENCE

SOURCES = str(Path(fastkcl.kclpy.__file__).parents[2])
SHOWS_ITSELF = (PROGRAMS / "shows_itself.py").read_text()
BESIDE = "import sys\nargv = list(sys.argv)\n"
SERVES = """
import sys
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor
import beside

class Processor(processor.RecordProcessorBase):
    def initialize(self, i): pass
    def process_records(self, i): print(beside.__name__, i.records[0].binary_data, file=sys.stderr)
    def lease_lost(self, i): pass

kcl.KCLProcess(Processor()).run()
"""


def lay_out(folder: Path, program: str) -> None:
    """The program in all its forms, and links to them."""
    for name in ("real", "real/deeper", "application", "package", "elsewhere"):
        (folder / name).mkdir()
    for name in ("real/app.py", "real/deeper/app.py", "application/__main__.py", "package/__main__.py", "module.py"):
        (folder / name).write_text(program)
    for name in ("real", "real/deeper", "application", "."):
        (folder / name / "beside.py").write_text(BESIDE)
    (folder / "package" / "__init__.py").write_text("import sys\nargv = list(sys.argv)\n")
    (folder / "package" / "inside.py").write_text(program)
    (folder / "linked.py").symlink_to("real/app.py")
    (folder / "elsewhere" / "linked.py").symlink_to(folder / "real" / "app.py")
    (folder / "elsewhere" / "twice.py").symlink_to("linked.py")
    (folder / "linked").symlink_to("real")
    (folder / "linked_application").symlink_to("application")
    zipapp.create_archive(folder / "application", folder / "app.pyz")
    zipapp.create_archive(folder / "application", folder / "shebang.pyz", "/usr/bin/env python3", compressed=True)
    (folder / "linked.pyz").symlink_to("app.pyz")
    with zipfile.ZipFile(folder / "nested.zip", "w") as archive:
        archive.writestr("inner/__main__.py", program)
        archive.writestr("inner/beside.py", BESIDE)
    py_compile.compile(str(folder / "real" / "app.py"), str(folder / "real" / "app.pyc"))
    (folder / "real" / "bytecode").write_bytes((folder / "real" / "app.pyc").read_bytes())
    (folder / "linked_bytecode").symlink_to("real/app.pyc")
    (folder / "compiled").mkdir()
    for name in ("__main__.py", "beside.py"):
        (folder / "compiled" / name).write_text((folder / "application" / name).read_text())
    compileall.compile_dir(folder / "compiled", quiet=1, legacy=True)
    (folder / "compiled" / "__main__.py").unlink()


FORMS = {
    "file": ["real/app.py"],
    "file, ./": ["./real/app.py"],
    "file, ././": ["././real/app.py"],
    "file, ..": ["real/../real/deeper/../app.py"],
    "file, //": ["real//app.py"],
    "file, absolute": ["{folder}/real/app.py"],
    "file, absolute with ..": ["{folder}/real/../real/app.py"],
    "link": ["linked.py"],
    "link, ./": ["./linked.py"],
    "link, absolute": ["{folder}/elsewhere/linked.py"],
    "link to a link": ["elsewhere/twice.py"],
    "file in a linked folder": ["linked/app.py"],
    "link below a linked folder": ["linked/deeper/../app.py"],
    "compiled": ["real/app.pyc"],
    "compiled, by another name": ["real/bytecode"],
    "compiled, linked": ["linked_bytecode"],
    "folder": ["application"],
    "folder, ./": ["./application"],
    "folder, /": ["application/"],
    "folder, absolute": ["{folder}/application"],
    "folder, linked": ["linked_application"],
    "folder, compiled": ["compiled"],
    "archive": ["app.pyz"],
    "archive, absolute": ["{folder}/app.pyz"],
    "archive, linked": ["linked.pyz"],
    "archive with a shebang": ["shebang.pyz"],
    "archive with a shebang, ./": ["./shebang.pyz"],
    "folder in an archive": ["nested.zip/inner"],
    "module": ["-m", "module"],
    "package": ["-m", "package"],
    "module in a package": ["-m", "package.inside"],
    "module in a namespace": ["-m", "real.deeper.app"],
}


def shown(command: list[str], cwd: Path, **variables: str) -> Any:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment(**{"PYTHONPATH": SOURCES} | variables),
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("variables", [{}, {"PYTHONSAFEPATH": "1"}], ids=["", "safe path"])
@pytest.mark.parametrize("form", FORMS)
def test_a_program_finds_itself_as_python_would_have_it(form: str, variables: dict[str, str], tmp_path: Path) -> None:
    lay_out(tmp_path, SHOWS_ITSELF)
    variables = variables | {"PYTHONWARNINGS": "error"}
    if "PYTHONSAFEPATH" in variables:  # its neighbours are not found by themselves then
        variables = variables | {"PYTHONPATH": os.pathsep.join([str(tmp_path), SOURCES])}
    arguments = [part.format(folder=tmp_path) for part in FORMS[form]] + ["a b", "-x", "--on-error", "y"]
    expected = shown([sys.executable, *arguments], tmp_path, **variables)
    for command in (
        [sys.executable, "-m", "fastkcl"],
        [sys.executable, "-c", "import fastkcl.__main__ as it; it.main()"],
    ):
        assert shown([*command, "run", *arguments], tmp_path, **variables) == expected


@pytest.mark.parametrize("form", FORMS)
def test_a_program_of_any_form_serves(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path, SERVES)
    monkeypatch.chdir(tmp_path)
    arguments = [part.format(folder=tmp_path) for part in FORMS[form]]
    with Child("-m", "fastkcl", "run", *arguments, environment={"PYTHONPATH": SOURCES}) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1), status("processRecords"))
        child.daemon.ask(LEASE_LOST, status("leaseLost"))
        assert child.finish() == (0, "beside b'hello'\n")


@pytest.mark.parametrize("chosen", ["", "false"])
def test_a_pex_that_starts_python_again_finds_fastkcl(chosen: str, tmp_path: Path) -> None:
    """A stand-in: a pex's own start gives the new Python a path of its own, unless this variable says otherwise."""
    (tmp_path / "__pex__").mkdir()
    (tmp_path / "__pex__" / "__init__.py").write_text("")
    (tmp_path / "__main__.py").write_text("import json, os\nprint(json.dumps(os.environ['PEX_INHERIT_PATH']))\n")
    command = [sys.executable, "-m", "fastkcl", "run", str(tmp_path)]
    variables = {"PEX_INHERIT_PATH": chosen} if chosen else {}
    assert shown(command, tmp_path, **variables) == (chosen or "fallback")


@pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["", "workers"])
@pytest.mark.parametrize("command", [["-m", "fastkcl"], ["-W", "error", "-m", "fastkcl"]], ids=["", "-W error"])
def test_pytest_where_every_warning_is_an_error(command: list[str], options: list[str], tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_processor.py").write_text(
        "from amazon_kclpy import kcl\n\ndef test_a_module(): assert kcl.__name__ == 'fastkcl.kclpy.kcl'\n"
    )
    done = subprocess.run(
        [sys.executable, *command, "run", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp=t", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment(PYTHONPATH=SOURCES),
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(
    ("name", "said"), [("empty.zip", "is an archive without a __main__.py"), ("no.zip", "cannot be read: No such file")]
)
def test_an_archive_that_cannot_be_run(name: str, said: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("beside.py", BESIDE)
    done = subprocess.run(
        [sys.executable, "-m", "fastkcl", "run", str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("name", ["", "."])
def test_the_current_folder(name: str, tmp_path: Path) -> None:
    lay_out(tmp_path, SHOWS_ITSELF)
    expected = shown([sys.executable, name], tmp_path / "application")
    assert shown([sys.executable, "-m", "fastkcl", "run", name], tmp_path / "application") == expected


NAMED_AS_A_LIBRARY = """
import {name}
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

class Processor(processor.RecordProcessorBase):
    def initialize(self, i): pass
    def process_records(self, i):
        if i.records[0].sequence_number == "1":
            raise KeyboardInterrupt
        raise ValueError("boom")
    def lease_lost(self, i): pass

process = kcl.KCLProcess(Processor())
while True:
    try:
        process.run()
        break
    except KeyboardInterrupt:
        pass
"""


@pytest.mark.parametrize("on_error", ["skip", "stop"])
@pytest.mark.parametrize("name", ["bdb", "logging", "threading"])
def test_a_module_beside_the_program_may_be_named_as_one_of_the_library(
    name: str, on_error: str, tmp_path: Path
) -> None:
    """What amazon_kclpy does not import may have any content."""
    (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "app.py").write_text(NAMED_AS_A_LIBRARY.format(name=name))
    variables = {"PYTHONPATH": SOURCES, "FASTKCL_ON_ERROR": on_error}
    with Child("-m", "fastkcl", "run", str(tmp_path / "app.py"), environment=variables) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        child.daemon.send(process_records(2))
        if on_error == "skip":
            assert child.daemon.receive() == status("processRecords")
        code, said = child.finish()
    assert code == (0 if on_error == "skip" else 1)
    assert "AttributeError" not in said.partition("Exception ignored in: <module 'threading'")[0]
    assert f"fastkcl: {'skip' if on_error == 'skip' else 'user_error'}: process_records failed" in said
