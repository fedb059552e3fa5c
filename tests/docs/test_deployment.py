"""The examples of docs/deployment.md: systemd, Kubernetes and `fastkcl daemon` take them, and they agree."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner
from fastkcl.cli.main import cli
from fastkcl.daemon.defaults import DEFAULTS
from fastkcl.daemon.supervision import Supervisor
from paths import ROOT

PAGE = (ROOT / "docs" / "deployment.md").read_text()
ENVIRONMENT = "/opt/app/.venv/bin"


def block(language: str) -> str:
    """The page's only block in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=["="], strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(block("ini"))
    return parser


def instructions() -> list[tuple[str, str]]:
    """Of the image's file."""
    lines = block("dockerfile").replace("\\\n", "").splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def instruction(name: str) -> str:
    (found,) = [rest for each, rest in instructions() if each == name]
    return found


def objects() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(block("yaml")))


def pod() -> dict[str, Any]:
    (deployment,) = [each for each in objects() if each["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def commands() -> dict[str, list[str]]:
    """Each `fastkcl daemon …` of an example."""
    (built,) = [rest for name, rest in instructions() if name == "RUN" and rest.startswith("fastkcl daemon")]
    entry = json.loads(instruction("ENTRYPOINT"))
    (container,) = pod()["containers"]
    return {
        "unit": shlex.split(unit()["Service"]["ExecStart"].removeprefix(f"{ENVIRONMENT}/")),
        "image, built": shlex.split(built),
        "image": [*entry, *json.loads(instruction("CMD"))],
        "pod": [*entry, *container["args"]],
    }


@pytest.mark.parametrize("command", commands().values(), ids=list(commands()))
def test_a_command_is_one_that_the_daemon_takes(command: list[str]) -> None:
    assert command[:2] == ["fastkcl", "daemon"]
    options = [argument for argument in command[1 : command.index("--")] if argument != "--check"]
    child = [argument.replace(f"{ENVIRONMENT}/python", sys.executable) for argument in command[command.index("--") :]]
    done = CliRunner().invoke(cli, [*options, "--no-environment", "--strict", "--print-properties", *child])
    assert done.exit_code == 0, done.output
    written = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert written["executableName"] == f"{sys.executable} /opt/app/app.py"
    assert written["streamName"] == "clicks"
    assert ("timeoutInSeconds" in written) == ("--check" not in command)


def test_the_unit_is_one_that_systemd_takes() -> None:
    found = unit()
    assert found.sections() == ["Unit", "Service", "Install"]
    assert found["Service"]["KillMode"] == "mixed"
    assert found["Service"]["RestartPreventExitStatus"] == "2"  # fastkcl.cli.daemon's, for options


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="a machine without systemd")
def test_the_unit_as_systemd_checks_it(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "fastkcl"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file = tmp_path / "clicks.service"

    def verified(text: str) -> str:
        file.write_text(text.replace(ENVIRONMENT, str(program.parent)))
        done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True)
        # It looks at every unit that this one wants, and says what is wrong with those too.
        return "\n".join(line for line in done.stderr.splitlines() if "clicks.service" in line)

    assert verified(block("ini")) == ""
    assert "Failed to parse" in verified(block("ini").replace("KillMode=mixed", "KillMode=some"))
    assert "KilMode" in verified(block("ini").replace("KillMode", "KilMode"))


def test_kubernetes_takes_the_objects() -> None:
    for each in objects():
        kubernetes_validate.validate(each, "1.30", strict=True)
    misspelt = yaml.safe_load(block("yaml").split("---")[1].replace("mountPath", "mountpath"))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(misspelt, "1.30", strict=True)


def test_what_the_objects_say_of_each_other() -> None:
    claim, deployment = objects()
    assert (claim["kind"], deployment["kind"]) == ("PersistentVolumeClaim", "Deployment")
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    (volume,), (container,) = pod()["volumes"], pod()["containers"]
    (mount,) = container["volumeMounts"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert mount["name"] == volume["name"]
    for path in re.findall(r'"(/var/[^"]*)"', block("python")):
        assert Path(path).is_relative_to(mount["mountPath"])
        assert Path(path).is_relative_to(f"/var/lib/{unit()['Service']['StateDirectory']}")
    assert str(pod()["securityContext"]["runAsUser"]) == instruction("USER")


def test_what_stops_it_waits_as_long_as_the_stop_can_take() -> None:
    (grace,) = [int(default.value) / 1000 for default in DEFAULTS if default.key == "shutdownGraceMillis"]
    longest = grace + Supervisor.grace_margin + 2 * Supervisor.orphan_seconds
    (stop_timeout,) = re.findall(r"--stop-timeout (\d+)", PAGE)
    given = [unit()["Service"]["TimeoutStopSec"], pod()["terminationGracePeriodSeconds"], stop_timeout]
    assert [float(seconds) > longest for seconds in given] == [True] * 3


def test_the_image_has_what_its_command_needs() -> None:
    (extras,) = re.findall(r"\.whl\)\[([\w,]+)\]", block("dockerfile"))
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"cli", "jdk", "spark", "delta"} == set(extras.split(",")) <= set(declared)
    assert instruction("ENV").endswith(" FASTKCL_JARS=/opt/app/kcl")
    copied = [rest.split()[-1] for name, rest in instructions() if name == "COPY"]
    assert {"/opt/app/kcl/", "/opt/app/"} < set(copied)
    assert "exec" not in instruction("ENTRYPOINT")


def test_the_child_is_a_program() -> None:
    """It begins, up to the folder that it cannot make here; a wrong import or argument would end it before."""
    code = block("python")
    child = subprocess.run(
        [sys.executable, "-c", code.replace("/var/lib/clicks", "/proc/no-such-folder")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert child.stderr.splitlines()[-1].startswith("FileNotFoundError")
    assert "no-such-folder" in child.stderr.splitlines()[-1]


def test_variables_that_it_names_are_read() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "python").rglob("*.py"))
    named = set(re.findall(r"FASTKCL_\w+", PAGE))
    assert named
    assert {name for name in named if f'"{name}"' not in sources} == set()
